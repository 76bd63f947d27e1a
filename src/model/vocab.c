/* From the tokenizer.ggml.* keys of a model file to a tokenizer; see vocab.h. The string arrays are read in one pass each:
   their elements have no fixed size, and nothing here needs one by number. */
#include "model/vocab.h"

#define KEY "tokenizer.ggml."

struct reader {
    struct gguf_array tokens, types, merges;
    size_t token_offset, merge_offset;
};

static const char *next_token(void *ctx, size_t i, size_t *len)
{
    struct reader *r = ctx;
    struct gguf_string s = {"", 0};
    (void)i;
    gguf_array_next_string(&r->tokens, &r->token_offset, &s);
    *len = s.len;
    return s.data;
}

static const char *next_merge(void *ctx, size_t i, size_t *len)
{
    struct reader *r = ctx;
    struct gguf_string s = {"", 0};
    (void)i;
    gguf_array_next_string(&r->merges, &r->merge_offset, &s);
    *len = s.len;
    return s.data;
}

static int32_t type_at(void *ctx, size_t i)
{
    const struct reader *r = ctx;
    int64_t v = -1;
    gguf_array_i64(&r->types, i, &v);
    return v >= 0 && v <= INT32_MAX ? (int32_t)v : -1;
}

/* An array that runs parallel to the tokens. */
static int check_parallel(const struct gguf *g, const char *key, const struct gguf_array *a, bool type_ok,
                          const char *expected, uint64_t n_tokens, skua_error *err)
{
    if (!type_ok)
        return error_set(err, SKUA_EFORMAT, "%s: key '%s' is of type array of %s, expected array of %s", gguf_shard_path(g, 0),
                         key, gguf_type_name(a->type), expected);
    if (a->count != n_tokens)
        return error_set(err, SKUA_EFORMAT, "%s: key '%s' has %llu elements, expected %llu (one for each of '" KEY "tokens')",
                         gguf_shard_path(g, 0), key, (unsigned long long)a->count, (unsigned long long)n_tokens);
    return 0;
}

static int read_arrays(const struct gguf *g, struct reader *r, skua_error *err)
{
    int rc = gguf_require_array(g, KEY "tokens", GGUF_STRINGS, &r->tokens, err);
    if (!rc) rc = gguf_require_array(g, KEY "token_type", GGUF_INTEGERS, &r->types, err);
    if (!rc) rc = gguf_require_array(g, KEY "merges", GGUF_STRINGS, &r->merges, err);
    if (rc)
        return rc;
    bool is_32_bit = r->types.type == GGUF_I32 || r->types.type == GGUF_U32;
    rc = check_parallel(g, KEY "token_type", &r->types, is_32_bit, "i32", r->tokens.count, err);
    if (rc)
        return rc;
    struct gguf_array scores; /* a byte-level vocabulary has no use for them, but a wrong shape betrays a damaged file */
    int found = gguf_get_array(g, KEY "scores", GGUF_ANY_ELEMENTS, &scores, err);
    if (found <= 0)
        return found;
    return check_parallel(g, KEY "scores", &scores, scores.type == GGUF_F32, "f32", r->tokens.count, err);
}

/* An optional token id; -1, which some writers use for "none", is allowed. Ranges are the tokenizer's to check. */
static int read_id(const struct gguf *g, const char *key, int64_t *id, skua_error *err)
{
    *id = -1;
    int found = gguf_get_i64(g, key, id, err);
    return found < 0 ? found : 0;
}

static int read_flag(const struct gguf *g, const char *key, bool *flag, skua_error *err)
{
    *flag = false;
    int found = gguf_get_bool(g, key, flag, err);
    return found < 0 ? found : 0;
}

int vocab_load(const struct gguf *g, struct tokenizer **out, skua_error *err)
{
    *out = NULL;
    struct gguf_string model, pre = {"", 0};
    int rc = gguf_require_string(g, KEY "model", &model, err);
    if (rc)
        return rc;
    rc = gguf_get_string(g, KEY "pre", &pre, err); /* absence is not 'default': the tokenizer refuses it by name */
    if (rc < 0)
        return rc;
    struct reader r = {.token_offset = 0};
    struct tokenizer_source source = {.model = model.data, .model_len = model.len, .pre = pre.data, .pre_len = pre.len,
                                      .ctx = &r, .token = next_token, .type = type_at, .merge = next_merge};
    rc = read_arrays(g, &r, err);
    if (!rc) rc = read_id(g, KEY "bos_token_id", &source.bos, err);
    if (!rc) rc = read_id(g, KEY "eos_token_id", &source.eos, err);
    if (!rc) rc = read_id(g, KEY "eot_token_id", &source.eot, err);
    if (!rc) rc = read_id(g, KEY "padding_token_id", &source.pad, err);
    if (!rc) rc = read_flag(g, KEY "add_bos_token", &source.add_bos, err);
    if (!rc) rc = read_flag(g, KEY "add_eos_token", &source.add_eos, err);
    if (rc)
        return rc;
    source.n_tokens = (size_t)r.tokens.count;
    source.n_merges = (size_t)r.merges.count;
    rc = tokenizer_new(out, &source, err);
    if (rc)
        error_prefix(err, "%s", gguf_shard_path(g, 0));
    return rc;
}
