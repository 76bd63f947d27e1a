/* A small byte-level vocabulary made in code: the 256 single bytes (ids 0..255, in byte order), then whatever the caller
   adds. Also the check counter of the tokenizer tests. Header only, so that the fuzz target can use it. Uses malloc: the
   tests of failing allocations must not see it. */
#ifndef SKUA_TESTS_SUPPORT_TOK_VOCAB_H
#define SKUA_TESTS_SUPPORT_TOK_VOCAB_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tok/byte_alphabet.h"
#include "tok/tokenizer.h"

struct tok_string {
    char *data;
    size_t len;
    int32_t type;
};

struct tok_vocab {
    struct tok_string *tokens, *merges;
    size_t n_tokens, n_merges;
};

/* n bytes in the byte alphabet, at most 2 n bytes; returns the length. */
static inline size_t tok_to_alphabet(const char *bytes, size_t n, char *out)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        k += (size_t)utf8_encode(byte_alphabet_char((uint8_t)bytes[i]), out + k);
    return k;
}

static inline void tok_list_add(struct tok_string **list, size_t *n, const char *data, size_t len, int32_t type)
{
    struct tok_string *grown = realloc(*list, (*n + 1) * sizeof **list);
    char *copy = malloc(len + 1);
    if (!grown || !copy)
        abort();
    if (len)
        memcpy(copy, data, len);
    copy[len] = '\0';
    *list = grown;
    grown[(*n)++] = (struct tok_string){copy, len, type};
}

/* A token with this literal text. */
static inline uint32_t tok_vocab_add(struct tok_vocab *v, const char *text, int32_t type)
{
    tok_list_add(&v->tokens, &v->n_tokens, text, strlen(text), type);
    return (uint32_t)(v->n_tokens - 1);
}

static inline void tok_vocab_init(struct tok_vocab *v)
{
    memset(v, 0, sizeof *v);
    for (int b = 0; b < 256; b++) {
        char byte = (char)b, text[4];
        tok_list_add(&v->tokens, &v->n_tokens, text, tok_to_alphabet(&byte, 1, text), 1);
    }
}

/* A merge of two byte strings, and a normal token for the result unless there is one. At most 500 bytes in all. */
static inline void tok_vocab_merge_bytes(struct tok_vocab *v, const char *left, size_t n_left, const char *right,
                                         size_t n_right)
{
    char text[2048];
    size_t a = tok_to_alphabet(left, n_left, text);
    size_t b = tok_to_alphabet(right, n_right, text + a);
    int known = 0;
    for (size_t i = 0; i < v->n_tokens; i++)
        known |= v->tokens[i].len == a + b && memcmp(v->tokens[i].data, text, a + b) == 0;
    if (!known)
        tok_list_add(&v->tokens, &v->n_tokens, text, a + b, 1);
    memmove(text + a + 1, text + a, b);
    text[a] = ' ';
    tok_list_add(&v->merges, &v->n_merges, text, a + b + 1, 0);
}

static inline void tok_vocab_merge(struct tok_vocab *v, const char *left, const char *right)
{
    tok_vocab_merge_bytes(v, left, strlen(left), right, strlen(right));
}

static inline void tok_vocab_free(struct tok_vocab *v)
{
    for (size_t i = 0; i < v->n_tokens; i++)
        free(v->tokens[i].data);
    for (size_t i = 0; i < v->n_merges; i++)
        free(v->merges[i].data);
    free(v->tokens);
    free(v->merges);
    memset(v, 0, sizeof *v);
}

static inline const char *tok_vocab_token(void *ctx, size_t i, size_t *len)
{
    const struct tok_vocab *v = ctx;
    *len = v->tokens[i].len;
    return v->tokens[i].data;
}

static inline int32_t tok_vocab_type(void *ctx, size_t i) { return ((const struct tok_vocab *)ctx)->tokens[i].type; }

static inline const char *tok_vocab_merge_at(void *ctx, size_t i, size_t *len)
{
    const struct tok_vocab *v = ctx;
    *len = v->merges[i].len;
    return v->merges[i].data;
}

static inline struct tokenizer_source tok_vocab_source(struct tok_vocab *v, const char *pre)
{
    return (struct tokenizer_source){.model = "gpt2", .model_len = 4, .pre = pre, .pre_len = strlen(pre),
                                     .n_tokens = v->n_tokens, .n_merges = v->n_merges, .ctx = v, .token = tok_vocab_token,
                                     .type = tok_vocab_type, .merge = tok_vocab_merge_at,
                                     .bos = -1, .eos = -1, .eot = -1, .pad = -1};
}

#endif
