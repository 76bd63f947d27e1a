/* Kept answers; see response_store.h. Two hash tables of chains, of answers and of items by their ids, and a list of answers by age. A turn
 * is counted by references: one for being listed under its id, one for each turn after it, one for each caller. What it holds is constant
 * once it is kept, so that callers read it without the lock; only the response object goes when the turn is no longer listed. */
#include "api/response_store.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "api/api.h"
#include "api/field.h"
#include "api/json_text.h"
#include "base/json.h"
#include "base/mem.h"

#define BUCKETS 4096u

struct item {
    struct item *next, **at;  /* in its chain */
    const struct response_turn *turn;
    const struct items *list;
    uint64_t hash;
    size_t id, text, n_text;  /* places in the list's bytes */
};

struct items {
    struct item *item;
    size_t n, n_bytes;
    char *bytes;              /* id, zero, text of each */
};

struct response_turn {
    struct response_store *store;
    uint64_t owner;
    struct response_turn *before;
    size_t refs, n_bytes;     /* n_bytes: counted in the store's, without the response; 0 before it is kept */
    struct items input, output;
    /* while it is listed: */
    bool listed;
    char id[48];
    uint64_t hash;
    struct response_turn *chain, *older, *newer;
    struct strbuf response;
};

struct response_store {
    pthread_mutex_t lock;
    size_t max_answers, max_bytes, n_answers, n_bytes;
    struct response_turn *oldest, *newest;
    struct response_turn *answers[BUCKETS];
    struct item *items[BUCKETS];
};

static uint64_t hash_of(const char *id) { return XXH3_64bits(id, strlen(id)); }

int response_store_new(size_t max_answers, size_t max_bytes, struct response_store **out, skua_error *err)
{
    struct response_store *s = *out = mem_calloc(1, sizeof *s);
    if (!s)
        return error_nomem(err, "table of kept responses", sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    s->max_answers = max_answers;
    s->max_bytes = max_bytes;
    return 0;
}

/* ---- lists of items ---- */

static void items_free(struct items *l)
{
    mem_free(l->item);
    mem_free(l->bytes);
    *l = (struct items){0};
}

static const char *id_prefix(const char *type)
{
    static const char *const prefixes[][2] = {
        {"message", "msg_"},           {"reasoning", "rs_"},           {"function_call", "fc_"},
        {"custom_tool_call", "ctc_"},  {"function_call_output", "fco_"}, {"custom_tool_call_output", "ctco_"},
    };
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strcmp(type, prefixes[i][0]))
            return prefixes[i][1];
    return "item_";
}

/* The item with a type and an id, a copy if it has not both. NULL: out of memory. */
static json_t *named(json_t *item)
{
    const char *type = json_string_value(api_field(item, "type"));
    const char *id = json_string_value(api_field(item, "id"));
    char own[48];
    if (type && id && *id)
        return json_incref(item);
    json_t *copy = json_copy_whole(item);
    int failed = !copy;
    if (!failed && !type)
        failed = json_object_set_new(copy, "type", json_string("message"));
    if (!failed && !(id && *id)) {
        api_id(id_prefix(type ? type : "message"), own);
        failed = json_object_set_new(copy, "id", json_string(own));
    }
    if (failed) {
        json_decref(copy);
        return NULL;
    }
    return copy;
}

/* 0 or -1: out of memory, and l is empty. */
static int items_fill(struct items *l, const struct response_turn *t, const json_t *array)
{
    struct strbuf b = {0};
    size_t i;
    json_t *value;
    l->n = json_array_size(array);
    l->item = mem_calloc(l->n + 1, sizeof *l->item);
    b.failed = !l->item;
    json_array_foreach(array, i, value) {
        json_t *item = b.failed ? NULL : named(value);
        if (!item) {
            b.failed = true;
            break;
        }
        const char *id = json_string_value(json_object_get(item, "id"));
        struct item *to = &l->item[i];
        *to = (struct item){.turn = t, .list = l, .hash = hash_of(id), .id = b.len, .text = b.len + strlen(id) + 1};
        strbuf_append(&b, id, strlen(id) + 1);
        api_json_value(&b, item);
        to->n_text = b.len - to->text;
        json_decref(item);
    }
    if (!b.failed && b.len) {
        l->bytes = strbuf_take(&b, &l->n_bytes);
        char *fitting = mem_realloc(l->bytes, l->n_bytes); /* it is kept for long */
        l->bytes = fitting ? fitting : l->bytes;
    }
    const bool failed = b.failed;
    strbuf_free(&b);
    if (failed)
        items_free(l);
    return failed ? -1 : 0;
}

static size_t items_bytes(const struct items *l) { return l->n * sizeof *l->item + l->n_bytes; }

static void items_link(struct response_store *s, struct items *l)
{
    for (size_t i = 0; i < l->n; i++) {
        struct item *item = &l->item[i], **at = &s->items[item->hash % BUCKETS];
        item->at = at;
        item->next = *at;
        if (item->next)
            item->next->at = &item->next;
        *at = item;
    }
}

static void items_unlink(struct items *l)
{
    for (size_t i = 0; i < l->n; i++) {
        struct item *item = &l->item[i];
        *item->at = item->next;
        if (item->next)
            item->next->at = item->at;
    }
}

static const struct item *item_find(const struct response_access *a, const char *id)
{
    const uint64_t hash = hash_of(id);
    const struct item *i = a->store->items[hash % BUCKETS];
    while (i && !(i->hash == hash && i->turn->owner == a->owner && !strcmp(i->list->bytes + i->id, id)))
        i = i->next;
    return i;
}

/* ---- turns ---- */

static void turn_free(struct response_turn *t)
{
    items_free(&t->input);
    items_free(&t->output);
    strbuf_free(&t->response);
    mem_free(t);
}

/* With the lock. A long conversation goes turn by turn. */
static void unref(struct response_turn *t)
{
    while (t && --t->refs == 0) {
        struct response_turn *before = t->before;
        if (t->n_bytes) {
            items_unlink(&t->input);
            items_unlink(&t->output);
            t->store->n_bytes -= t->n_bytes;
        }
        turn_free(t);
        t = before;
    }
}

/* With the lock: its id is forgotten, and what only that leads to. */
static void unlist(struct response_turn *t)
{
    struct response_store *s = t->store;
    struct response_turn **at = &s->answers[t->hash % BUCKETS];
    while (*at != t)
        at = &(*at)->chain;
    *at = t->chain;
    *(t->older ? &t->older->newer : &s->oldest) = t->newer;
    *(t->newer ? &t->newer->older : &s->newest) = t->older;
    s->n_answers--;
    s->n_bytes -= t->response.len;
    strbuf_free(&t->response);
    t->listed = false;
    unref(t);
}

/* With the lock. */
static struct response_turn *find(const struct response_access *a, const char *id)
{
    const uint64_t hash = hash_of(id);
    struct response_turn *t = a->store->answers[hash % BUCKETS];
    while (t && !(t->hash == hash && t->owner == a->owner && !strcmp(t->id, id)))
        t = t->chain;
    return t;
}

void response_store_free(struct response_store *s)
{
    if (!s)
        return;
    while (s->oldest)
        unlist(s->oldest);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

void response_store_get_stats(struct response_store *s, size_t *n_answers, size_t *n_bytes)
{
    pthread_mutex_lock(&s->lock);
    *n_answers = s->n_answers;
    *n_bytes = s->n_bytes;
    pthread_mutex_unlock(&s->lock);
}

struct response_turn *response_turn_find(const struct response_access *a, const char *id)
{
    if (!a->store)
        return NULL;
    pthread_mutex_lock(&a->store->lock);
    struct response_turn *t = find(a, id);
    if (t)
        t->refs++;
    pthread_mutex_unlock(&a->store->lock);
    return t;
}

void response_turn_drop(struct response_turn *t)
{
    if (!t)
        return;
    struct response_store *s = t->store;
    pthread_mutex_lock(&s->lock);
    unref(t);
    pthread_mutex_unlock(&s->lock);
}

struct response_turn *response_turn_new(const struct response_access *a, struct response_turn *before, const json_t *input)
{
    struct response_turn *t = mem_calloc(1, sizeof *t);
    if (!t) {
        response_turn_drop(before);
        return NULL;
    }
    *t = (struct response_turn){.store = a->store, .owner = a->owner, .before = before, .refs = 1};
    if (items_fill(&t->input, t, input)) {
        response_turn_drop(t);
        return NULL;
    }
    return t;
}

/* What response_turn_keep makes before it needs the lock. */
static bool fill_answer(struct response_turn *t, const char *id, const struct strbuf *response, const struct strbuf *output)
{
    struct strbuf list = {0};
    json_error_t at;
    bool no_memory;
    strbuf_putc(&list, '[');
    strbuf_append(&list, output->data, output->len);
    strbuf_putc(&list, ']');
    json_t *array = list.failed ? NULL : json_read(list.data, list.len, JSON_ALLOW_NUL, &at, &no_memory);
    strbuf_free(&list);
    bool ok = array && !items_fill(&t->output, t, array) && strbuf_reserve(&t->response, response->len);
    json_decref(array);
    if (ok)
        strbuf_append(&t->response, response->data, response->len);
    snprintf(t->id, sizeof t->id, "%s", id);
    t->hash = hash_of(t->id);
    return ok;
}

bool response_turn_keep(struct response_turn *t, const char *id, const struct strbuf *response, const struct strbuf *output)
{
    struct response_store *s = t->store;
    bool ok = !t->n_bytes && fill_answer(t, id, response, output);
    const size_t bytes = sizeof *t + items_bytes(&t->input) + items_bytes(&t->output);
    if (!ok || bytes > s->max_bytes || t->response.len > s->max_bytes - bytes)
        return false; /* what was filled goes with the turn */
    pthread_mutex_lock(&s->lock);
    t->refs++;
    t->n_bytes = bytes;
    items_link(s, &t->input);
    items_link(s, &t->output);
    t->chain = s->answers[t->hash % BUCKETS];
    s->answers[t->hash % BUCKETS] = t;
    t->older = s->newest;
    *(s->newest ? &s->newest->newer : &s->oldest) = t;
    s->newest = t;
    t->listed = true;
    s->n_answers++;
    s->n_bytes += bytes + t->response.len;
    while (s->oldest && (s->n_answers > s->max_answers || s->n_bytes > s->max_bytes))
        unlist(s->oldest);
    ok = t->listed; /* the turns before it may take all the room */
    pthread_mutex_unlock(&s->lock);
    return ok;
}

static void add_items(const struct items *l, struct response_item *out)
{
    for (size_t i = 0; i < l->n; i++)
        out[i] = (struct response_item){l->bytes + l->item[i].id, l->bytes + l->item[i].text, l->item[i].n_text};
}

int response_turn_items(const struct response_turn *t, bool with_output, struct response_item **out, size_t *n)
{
    size_t at = 0;
    for (const struct response_turn *i = t; i; i = i->before)
        at += i->input.n + (i == t && !with_output ? 0 : i->output.n);
    *n = at;
    *out = mem_calloc(at + 1, sizeof **out);
    if (!*out)
        return SKUA_ENOMEM;
    for (const struct response_turn *i = t; i; i = i->before) { /* from the end */
        if (i != t || with_output)
            add_items(&i->output, *out + (at -= i->output.n));
        add_items(&i->input, *out + (at -= i->input.n));
    }
    return 0;
}

/* ---- by id ---- */

bool response_store_answer(const struct response_access *a, const char *id, struct strbuf *out)
{
    if (!a->store)
        return false;
    pthread_mutex_lock(&a->store->lock);
    const struct response_turn *t = find(a, id);
    if (t)
        strbuf_append(out, t->response.data, t->response.len);
    pthread_mutex_unlock(&a->store->lock);
    return t != NULL;
}

bool response_store_item(const struct response_access *a, const char *id, struct strbuf *out)
{
    if (!a->store)
        return false;
    pthread_mutex_lock(&a->store->lock);
    const struct item *item = item_find(a, id);
    if (item)
        strbuf_append(out, item->list->bytes + item->text, item->n_text);
    pthread_mutex_unlock(&a->store->lock);
    return item != NULL;
}

bool response_store_delete(const struct response_access *a, const char *id)
{
    if (!a->store)
        return false;
    pthread_mutex_lock(&a->store->lock);
    struct response_turn *t = find(a, id);
    if (t)
        unlist(t);
    pthread_mutex_unlock(&a->store->lock);
    return t != NULL;
}
