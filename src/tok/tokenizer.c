/* The tokenizer; see tokenizer.h. */
#include "tok/tokenizer.h"

#include <string.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "base/utf8.h"
#include "tok/bpe.h"
#include "tok/pretok.h"
#include "tok/special.h"
#include "tok/unicode_class.h"

struct tokenizer {
    struct token_table tokens;
    struct bpe bpe;
    struct special_set control_too, user_defined; /* what is cut out with and without special parsing */
    const struct pretok *pretok;
    const struct unicode_classes *classes;
    uint8_t *eog; /* one flag per token */
    int32_t bos, eos, eot, pad;
    bool add_bos, add_eos;
};

/* Texts of tokens that end a generation wherever they occur in a vocabulary of this family. */
static const char *const eog_texts[] = {"<|im_end|>", "<|endoftext|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"};

static int check_names(const struct tokenizer_source *source, const struct pretok **pretok, skua_error *err)
{
    char quoted[100];
    if (source->model_len != 4 || memcmp(source->model, "gpt2", 4) != 0)
        return error_set(err, SKUA_EUNSUPPORTED, "tokenizer.ggml.model is %s, supported: gpt2",
                         token_quote(quoted, sizeof quoted, source->model, source->model_len));
    *pretok = source->pre_len ? pretok_by_name(source->pre, source->pre_len) : NULL;
    if (!*pretok)
        return error_set(err, SKUA_EUNSUPPORTED, "tokenizer.ggml.pre is %s, supported: %s",
                         token_quote(quoted, sizeof quoted, source->pre, source->pre_len), pretok_names());
    return 0;
}

static int check_id(int64_t id, const char *key, const struct token_table *tokens, int32_t *out, skua_error *err)
{
    if (id < -1 || id >= (int64_t)tokens->n)
        return error_set(err, SKUA_EFORMAT, "tokenizer.ggml.%s is %lld, expected an id below the vocabulary size %u", key,
                         (long long)id, tokens->n);
    *out = (int32_t)id;
    return 0;
}

static int load_ids(struct tokenizer *t, const struct tokenizer_source *source, skua_error *err)
{
    int rc = check_id(source->bos, "bos_token_id", &t->tokens, &t->bos, err);
    if (!rc) rc = check_id(source->eos, "eos_token_id", &t->tokens, &t->eos, err);
    if (!rc) rc = check_id(source->eot, "eot_token_id", &t->tokens, &t->eot, err);
    if (!rc) rc = check_id(source->pad, "padding_token_id", &t->tokens, &t->pad, err);
    if (rc)
        return rc;
    if (source->add_bos && t->bos < 0)
        return error_set(err, SKUA_EFORMAT, "tokenizer.ggml.add_bos_token is true, but there is no tokenizer.ggml.bos_token_id");
    if (source->add_eos && t->eos < 0)
        return error_set(err, SKUA_EFORMAT, "tokenizer.ggml.add_eos_token is true, but there is no tokenizer.ggml.eos_token_id");
    t->add_bos = source->add_bos;
    t->add_eos = source->add_eos;

    t->eog = mem_calloc(t->tokens.n, 1);
    if (!t->eog)
        return error_nomem(err, "end token flags", t->tokens.n);
    if (t->eos >= 0) t->eog[t->eos] = 1;
    if (t->eot >= 0) t->eog[t->eot] = 1;
    for (size_t i = 0; i < sizeof eog_texts / sizeof eog_texts[0]; i++) {
        int32_t id = special_set_lookup(&t->control_too, eog_texts[i], strlen(eog_texts[i]));
        if (id >= 0)
            t->eog[id] = 1;
    }
    return 0;
}

static int load_vocabulary(struct tokenizer *t, const struct tokenizer_source *source, skua_error *err)
{
    size_t len;
    int rc = token_table_init(&t->tokens, source->n_tokens, err);
    for (size_t i = 0; i < source->n_tokens && !rc; i++) {
        const char *text = source->token(source->ctx, i, &len);
        rc = token_table_add(&t->tokens, text, len, source->type(source->ctx, i), err);
    }
    if (!rc) rc = bpe_init(&t->bpe, &t->tokens, source->n_merges, err);
    for (size_t i = 0; i < source->n_merges && !rc; i++) {
        const char *text = source->merge(source->ctx, i, &len);
        rc = bpe_add_merge(&t->bpe, &t->tokens, text, len, err);
    }
    if (!rc) rc = special_set_init(&t->control_too, &t->tokens, true, err);
    if (!rc) rc = special_set_init(&t->user_defined, &t->tokens, false, err);
    return rc;
}

int tokenizer_new(struct tokenizer **out, const struct tokenizer_source *source, skua_error *err)
{
    *out = NULL;
    const struct pretok *pretok;
    int rc = check_names(source, &pretok, err);
    if (rc)
        return rc;
    struct tokenizer *t = mem_calloc(1, sizeof *t);
    if (!t)
        return error_nomem(err, "tokenizer", sizeof *t);
    t->pretok = pretok;
    t->classes = unicode_classes_get();
    rc = load_vocabulary(t, source, err);
    if (!rc) rc = load_ids(t, source, err);
    if (rc) {
        tokenizer_free(t);
        return rc;
    }
    *out = t;
    return 0;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    token_table_free(&t->tokens);
    bpe_free(&t->bpe);
    special_set_free(&t->control_too);
    special_set_free(&t->user_defined);
    mem_free(t->eog);
    mem_free(t);
}

/* Working memory of one encoding call. */
struct encoder {
    const struct tokenizer *t;
    struct token_vec *out;
    struct bpe_scratch scratch;
    struct strbuf repaired; /* a piece with its malformed bytes replaced */
};

/* Encode a piece that may hold malformed bytes. The characters of a piece decode as they did in the whole segment: a
   sequence that is valid there lies in one piece, and a malformed byte does not become valid by being cut off. */
static int encode_piece(struct encoder *e, const char *s, size_t n)
{
    strbuf_clear(&e->repaired);
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);
        if (len)
            strbuf_append(&e->repaired, s + i, (size_t)len);
        else
            strbuf_append(&e->repaired, "\xEF\xBF\xBD", 3);
        i += len ? (size_t)len : 1;
    }
    if (strbuf_failed(&e->repaired))
        return SKUA_ENOMEM;
    return bpe_encode(&e->t->bpe, e->repaired.data, e->repaired.len, &e->scratch, e->out);
}

static bool is_valid_utf8(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        if ((uint8_t)s[i] < 0x80) {
            i++;
            continue;
        }
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);
        if (!len)
            return false;
        i += (size_t)len;
    }
    return true;
}

/* Encode text without special tokens. */
static int encode_segment(struct encoder *e, const char *s, size_t n)
{
    const struct tokenizer *t = e->t;
    bool valid = is_valid_utf8(s, n);
    for (size_t i = 0; i < n;) {
        size_t end = pretok_next(t->pretok, t->classes, s, n, i);
        int rc = valid ? bpe_encode(&t->bpe, s + i, end - i, &e->scratch, e->out) : encode_piece(e, s + i, end - i);
        if (rc)
            return rc;
        i = end;
    }
    return 0;
}

int tokenizer_encode_part(const struct tokenizer *t, const char *text, size_t len, bool parse_special,
                          struct token_vec *out, skua_error *err)
{
    if (len > TOKENIZER_MAX_TEXT)
        return error_set(err, SKUA_ELIMIT, "text of %zu bytes, at most %zu can be tokenized at once", len, TOKENIZER_MAX_TEXT);
    struct encoder e = {.t = t, .out = out};
    const struct special_set *set = parse_special ? &t->control_too : &t->user_defined;
    size_t n_before = out->n;
    int rc = 0;
    for (size_t i = 0; i < len && !rc;) {
        size_t at;
        uint32_t id;
        bool found = special_set_find(set, text, len, i, &at, &id);
        rc = encode_segment(&e, text + i, (found ? at : len) - i);
        i = len;
        if (found && !rc) {
            size_t special_len;
            token_table_text(&t->tokens, id, &special_len);
            rc = token_vec_push(out, id);
            i = at + special_len;
        }
    }
    bpe_scratch_free(&e.scratch);
    strbuf_free(&e.repaired);
    if (rc) {
        out->n = n_before;
        return error_nomem(err, "tokenizing", len);
    }
    return 0;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, bool parse_special, struct token_vec *out,
                     skua_error *err)
{
    size_t n_before = out->n;
    if (t->add_bos && n_before == 0 && token_vec_push(out, (uint32_t)t->bos))
        return error_nomem(err, "tokenizing", len);
    int rc = tokenizer_encode_part(t, text, len, parse_special, out, err);
    if (!rc && t->add_eos && token_vec_push(out, (uint32_t)t->eos))
        rc = error_nomem(err, "tokenizing", len);
    if (rc)
        out->n = n_before;
    return rc;
}

bool tokenizer_find_control(const struct tokenizer *t, const char *text, size_t n, size_t from, size_t *at, size_t *len,
                            uint32_t *id)
{
    while (special_set_find(&t->control_too, text, n, from, at, id)) {
        token_table_text(&t->tokens, *id, len);
        if (tokenizer_kind(t, *id) == TOKEN_CONTROL)
            return true;
        from = *at + *len;
    }
    return false;
}

const char *tokenizer_piece(const struct tokenizer *t, uint32_t id, bool special, size_t *len)
{
    *len = 0;
    enum token_kind kind = tokenizer_kind(t, id);
    if (kind == TOKEN_UNUSED || (kind == TOKEN_CONTROL && !special))
        return "";
    return token_table_text(&t->tokens, id, len);
}

int tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, bool special, struct strbuf *out,
                     skua_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= t->tokens.n)
            return error_set(err, SKUA_EARG, "token %zu is id %u, expected below the vocabulary size %u", i, ids[i], t->tokens.n);
        size_t len;
        const char *piece = tokenizer_piece(t, ids[i], special, &len);
        strbuf_append(out, piece, len);
    }
    return strbuf_failed(out) ? error_nomem(err, "detokenizing", n) : 0;
}

uint32_t tokenizer_unusable_merges(const struct tokenizer *t)
{
    return t->bpe.n_unusable;
}

uint32_t tokenizer_size(const struct tokenizer *t) { return t->tokens.n; }

enum token_kind tokenizer_kind(const struct tokenizer *t, uint32_t id)
{
    return id < t->tokens.n ? (enum token_kind)t->tokens.kind[id] : TOKEN_UNUSED;
}

bool tokenizer_is_eog(const struct tokenizer *t, uint32_t id) { return id < t->tokens.n && t->eog[id]; }

bool tokenizer_is_samplable(const struct tokenizer *t, uint32_t id) { return tokenizer_kind(t, id) != TOKEN_UNUSED; }

int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t len)
{
    int32_t id = special_set_lookup(&t->control_too, text, len);
    return id >= 0 ? id : token_table_find(&t->tokens, text, len);
}

int32_t tokenizer_bos(const struct tokenizer *t) { return t->bos; }
int32_t tokenizer_eos(const struct tokenizer *t) { return t->eos; }
int32_t tokenizer_eot(const struct tokenizer *t) { return t->eot; }
int32_t tokenizer_pad(const struct tokenizer *t) { return t->pad; }
bool tokenizer_adds_bos(const struct tokenizer *t) { return t->add_bos; }
const char *tokenizer_pre(const struct tokenizer *t) { return t->pretok->name; }
