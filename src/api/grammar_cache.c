/* Compiled grammars by what describes them; see answer_internal.h. The oldest place is used anew. */
#include <pthread.h>
#include <string.h>

#include <xxhash.h>

#include "api/answer_internal.h"
#include "base/mem.h"

#define PLACES 128

struct place {
    XXH128_hash_t key;
    struct grammar *grammar; /* NULL: free */
    char *warnings;          /* NULL: none */
};

struct grammar_cache {
    pthread_mutex_t lock;
    struct place places[PLACES];
    size_t next;
};

int grammar_cache_new(struct grammar_cache **out, skua_error *err)
{
    *out = mem_calloc(1, sizeof **out);
    if (!*out)
        return error_nomem(err, "cache of grammars", sizeof **out);
    pthread_mutex_init(&(*out)->lock, NULL);
    return 0;
}

static void clear(struct place *p)
{
    grammar_release(p->grammar);
    mem_free(p->warnings);
    *p = (struct place){0};
}

void grammar_cache_free(struct grammar_cache *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < PLACES; i++)
        clear(&c->places[i]);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

static struct grammar *look_up(struct grammar_cache *c, XXH128_hash_t key, struct strbuf *warnings)
{
    struct grammar *found = NULL;
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < PLACES && !found; i++) {
        struct place *p = &c->places[i];
        if (p->grammar && XXH128_isEqual(p->key, key)) {
            found = grammar_retain(p->grammar);
            if (p->warnings)
                strbuf_puts(warnings, p->warnings);
        }
    }
    pthread_mutex_unlock(&c->lock);
    return found;
}

/* Another thread may have compiled the same meanwhile: then it is there twice, which does no harm. */
static void add(struct grammar_cache *c, XXH128_hash_t key, struct grammar *g, const struct strbuf *warnings)
{
    char *text = warnings->len ? mem_strdup(warnings->data) : NULL;
    if (warnings->len && !text)
        return; /* not remembered for want of memory */
    pthread_mutex_lock(&c->lock);
    struct place *p = &c->places[c->next++ % PLACES];
    clear(p);
    *p = (struct place){key, grammar_retain(g), text};
    pthread_mutex_unlock(&c->lock);
}

int grammar_cache_get(struct grammar_cache *c, const struct strbuf *key, grammar_compile *compile, const void *user,
                      struct strbuf *warnings, struct grammar **out, skua_error *err)
{
    if (strbuf_failed(key))
        return error_nomem(err, "schema", key->len);
    XXH128_hash_t hash = XXH3_128bits(strbuf_str(key), key->len);
    struct strbuf own = {0};
    *out = look_up(c, hash, warnings);
    if (*out)
        return 0;
    int rc = compile(user, &own, out, err);
    if (!rc && strbuf_failed(&own)) {
        grammar_release(*out);
        *out = NULL;
        rc = error_nomem(err, "warnings", own.len);
    }
    if (!rc) {
        strbuf_append(warnings, strbuf_str(&own), own.len);
        add(c, hash, *out, &own);
    }
    strbuf_free(&own);
    return rc;
}
