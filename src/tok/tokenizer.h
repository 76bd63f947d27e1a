/* The tokenizer of a model: text to token ids and back. Built once from the vocabulary of a model file, then constant, so
   one tokenizer may serve any number of threads.

   Encoding: special tokens are cut out of the raw text (special.h), the rest is split into pieces (pretok.h) and each
   piece merged (bpe.h). No normalisation. Each byte that is not part of valid UTF-8 is encoded as U+FFFD. */
#ifndef SKUA_TOK_TOKENIZER_H
#define SKUA_TOK_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "tok/token_table.h"
#include "tok/token_vec.h"

struct tokenizer;
struct strbuf;

#define TOKENIZER_MAX_TEXT ((size_t)1 << 30) /* bytes in one call */

/* What the caller takes out of a model file. Nothing of it is needed after tokenizer_new. */
struct tokenizer_source {
    const char *model, *pre; /* tokenizer.ggml.model and .pre, not zero-terminated; an absent one has length 0 */
    size_t model_len, pre_len;
    size_t n_tokens, n_merges;
    void *ctx;
    /* Text of the i-th token / merge: its start, and its length in bytes in *len. Each is called with i = 0, 1, 2, ... once,
       so a sequential reader will do; tokens come before merges. */
    const char *(*token)(void *ctx, size_t i, size_t *len);
    int32_t (*type)(void *ctx, size_t i); /* tokenizer.ggml.token_type: 1 to 5 */
    const char *(*merge)(void *ctx, size_t i, size_t *len);
    int64_t bos, eos, eot, pad; /* ids, -1 when the file has none */
    bool add_bos, add_eos;
};

/* Build a tokenizer. SKUA_EUNSUPPORTED: a model other than gpt2 or an unknown pre-tokenizer (named, with what is known);
   SKUA_EFORMAT: a malformed vocabulary, naming the entry; SKUA_ENOMEM. The caller frees *out; NULL on failure. */
int  tokenizer_new(struct tokenizer **out, const struct tokenizer_source *source, skua_error *err);
void tokenizer_free(struct tokenizer *t); /* NULL allowed */

/* Append the ids of len bytes of text to out: with the beginning-of-sequence token first if the file asks for it and out
   is empty, and the end token last if the file asks for that. With parse_special control tokens are recognised in the
   text; without it their names are ordinary text. User-defined tokens (<think>, <tool_call>) are recognised in both cases.
   SKUA_ENOMEM, or SKUA_ELIMIT above TOKENIZER_MAX_TEXT; out is unchanged on failure. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, bool parse_special, struct token_vec *out,
                     skua_error *err);

/* The same without the automatic beginning and end: one part of a longer prompt. */
int tokenizer_encode_part(const struct tokenizer *t, const char *text, size_t len, bool parse_special,
                          struct token_vec *out, skua_error *err);

/* The next control token in text[from, n) (as parse_special would recognise it): true, with its place, length and id. For
   callers that must tell template text from untrusted text. */
bool tokenizer_find_control(const struct tokenizer *t, const char *text, size_t n, size_t from, size_t *at, size_t *len,
                            uint32_t *id);

/* The bytes that a token prints (not zero-terminated, valid as long as the tokenizer; any part of a UTF-8 sequence).
   Control tokens print nothing unless special is set, unused ones and ids beyond the vocabulary nothing at all. */
const char *tokenizer_piece(const struct tokenizer *t, uint32_t id, bool special, size_t *len);

/* Append the bytes of n tokens to out, exactly. An id outside the vocabulary is SKUA_EARG and names its place. */
int tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, bool special, struct strbuf *out,
                     skua_error *err);

uint32_t tokenizer_unusable_merges(const struct tokenizer *t);               /* see bpe_add_merge; 0 in a sound file */
uint32_t tokenizer_size(const struct tokenizer *t);                          /* ids are 0 .. size - 1 */
enum token_kind tokenizer_kind(const struct tokenizer *t, uint32_t id);      /* TOKEN_UNUSED beyond the vocabulary */
bool tokenizer_is_eog(const struct tokenizer *t, uint32_t id);               /* ends a generation */
bool tokenizer_is_samplable(const struct tokenizer *t, uint32_t id);         /* not padding, not beyond the vocabulary */
/* Id of the special token with this literal text, else of the normal token that prints these bytes, else -1. */
int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t len);

int32_t tokenizer_bos(const struct tokenizer *t); /* -1: none; likewise below */
int32_t tokenizer_eos(const struct tokenizer *t);
int32_t tokenizer_eot(const struct tokenizer *t);
int32_t tokenizer_pad(const struct tokenizer *t);
bool tokenizer_adds_bos(const struct tokenizer *t);
const char *tokenizer_pre(const struct tokenizer *t); /* name of the pre-tokenizer */

#endif
