/* Texts in chunks; see text_chunks.h. */
#include "cmd/text_chunks.h"

#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "cmd/opts.h"
#include "tok/tokenizer.h"

int text_option(struct text_options *o, int c, const char *arg, skua_error *err)
{
    int rc = 0;
    switch (c) {
    case 'f': o->file = arg; break;
    case TEXT_OPT_CHUNK_SIZE: rc = opt_i64("--chunk-size", arg, 2, TEXT_MAX_CHUNK, &o->chunk_size, err); break;
    case TEXT_OPT_CHUNKS: rc = opt_i64("--chunks", arg, 1, INT32_MAX, &o->max_chunks, err); break;
    case TEXT_OPT_SPECIAL: o->special = true; break;
    default: return 0;
    }
    return rc ? rc : 1;
}

static int cut(struct text_chunks *t, const struct text_options *o, const char *command, skua_error *err)
{
    int64_t n = (int64_t)(t->n_tokens / (size_t)o->chunk_size);
    if (!t->n_tokens)
        return error_set(err, SKUA_EARG, "%s: is empty; expected a text of at least %lld tokens, one chunk", t->name,
                         (long long)o->chunk_size);
    if (!n)
        return error_set(err, SKUA_EARG, "%s: %zu tokens do not fill one chunk of %lld; expected a longer text or a smaller --chunk-size",
                         t->name, t->n_tokens, (long long)o->chunk_size);
    if (o->max_chunks > n)
        opts_warn(command, "%s: has %lld chunks of %lld tokens, fewer than --chunks %lld", t->name, (long long)n, (long long)o->chunk_size,
                  (long long)o->max_chunks);
    if (o->max_chunks && o->max_chunks < n)
        n = o->max_chunks;
    t->chunk_size = (int32_t)o->chunk_size;
    t->n_chunks = (int32_t)n; /* a text has at most 2^30 bytes */
    return 0;
}

int text_chunks_read(struct text_chunks *t, const skua_engine *e, const struct text_options *o, const char *command, skua_error *err)
{
    const char *slash = strrchr(o->file, '/');
    char *text;
    size_t n;
    *t = (struct text_chunks){.name = slash ? slash + 1 : strcmp(o->file, "-") == 0 ? "standard input" : o->file};
    int rc = file_read_all(o->file, TOKENIZER_MAX_TEXT, &text, &n, err);
    if (rc)
        return rc;
    rc = skua_tokenize(e, text, n, o->special, &t->ids, &t->n_tokens, err);
    mem_free(text);
    if (!rc)
        rc = cut(t, o, command, err);
    if (rc)
        text_chunks_free(t);
    return rc;
}

void text_chunks_free(struct text_chunks *t)
{
    skua_free(t->ids);
    *t = (struct text_chunks){0};
}

int text_chunks_session(const struct text_chunks *t, skua_engine *e, const char *command, skua_session **s, skua_error *err)
{
    int32_t trained = skua_engine_get_info(e).n_ctx_train;
    int rc = skua_session_create(e, t->chunk_size, s, err);
    if (!rc && t->chunk_size > trained)
        opts_warn(command, "chunks of %d tokens are longer than the %d tokens this model was trained for", t->chunk_size, trained);
    return rc;
}
