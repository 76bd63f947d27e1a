/* The tokens of a vocabulary: what each id prints, what kind it is, and the way from bytes to ids.

   All printed bytes lie one after another in one block: token i is text[start[i]] .. text[start[i + 1]]. A normal token is
   stored as the bytes it stands for (byte_alphabet.h), any other one as its literal text. */
#ifndef SKUA_TOK_TOKEN_TABLE_H
#define SKUA_TOK_TOKEN_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define TOKEN_MAX_COUNT (1u << 24)
#define TOKEN_MAX_BYTES 65535u /* one token's text */

enum token_kind {
    TOKEN_NORMAL,       /* made by merging bytes */
    TOKEN_LITERAL,      /* typed normal, but its text is not in the byte alphabet: decoded as it is, never produced */
    TOKEN_CONTROL,      /* invisible unless asked for; from text only when special parsing is on */
    TOKEN_USER_DEFINED, /* always recognised in text */
    TOKEN_UNUSED        /* padding of the vocabulary: prints nothing, is never produced and never sampled */
};

struct token_slot {
    uint32_t hash;
    uint32_t id; /* UINT32_MAX: free */
};

struct token_table {
    uint32_t n, cap;
    uint32_t *start; /* cap + 1 offsets */
    uint8_t *kind;
    char *text;
    size_t text_size, text_cap; /* bytes; below 4 GiB */
    struct token_slot *slots; /* normal tokens by their bytes; open addressing, at most half full */
    uint32_t slot_mask;
    bool repeats;      /* some normal token occurs twice */
};

/* Room for exactly count tokens. 0 or SKUA_ENOMEM, SKUA_EFORMAT (count 0 or above TOKEN_MAX_COUNT); free in either case. */
int  token_table_init(struct token_table *t, size_t count, skua_error *err);
void token_table_free(struct token_table *t); /* zeroed tables allowed */

/* Append the token with the next id. type is the value of tokenizer.ggml.token_type. Empty texts and texts of the form
   [PAD<id>] with their own id become unused. Errors name the id. */
int token_table_add(struct token_table *t, const char *text, size_t len, int32_t type, skua_error *err);

/* Id of the normal token that stands for these bytes, the lowest one if the vocabulary repeats itself; -1 if none. */
int32_t token_table_find(const struct token_table *t, const char *bytes, size_t len);

/* The same in two steps, so that a caller with several questions can wait for memory once: ask with the hash that
   token_table_prefetch returned. */
uint64_t token_table_prefetch(const struct token_table *t, const char *bytes, size_t len);
int32_t token_table_find_hashed(const struct token_table *t, const char *bytes, size_t len, uint64_t hash);

/* Whether the answer to token_table_find is id, without a search. */
bool token_table_is(const struct token_table *t, uint32_t id, const char *bytes, size_t len);

static inline const char *token_table_text(const struct token_table *t, uint32_t id, size_t *len)
{
    *len = t->start[id + 1] - t->start[id];
    return t->text + t->start[id];
}

/* Write text between quotes into out, cut to fit, with everything but printable ASCII as \xNN: for error messages. */
const char *token_quote(char *out, size_t out_size, const char *text, size_t len);

#endif
