/* Finding special tokens in text: literal, leftmost first, the longest of those that begin at one place. */
#ifndef SKUA_TOK_SPECIAL_H
#define SKUA_TOK_SPECIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct token_table;

#define SPECIAL_MAX_BYTES 1024u /* bounds the time per text byte */

struct special_set {
    const struct token_table *tokens; /* borrowed */
    uint32_t *ids;                    /* sorted by their bytes, no two alike (the lowest id stays) */
    uint32_t n;
    bool first[256];                  /* bytes that some token of the set begins with */
};

/* The set of the user-defined tokens, with the control tokens too if with_control. 0, SKUA_ENOMEM or SKUA_EFORMAT (a text
   above SPECIAL_MAX_BYTES, named); free in either case. tokens must outlive the set. */
int  special_set_init(struct special_set *s, const struct token_table *tokens, bool with_control, skua_error *err);
void special_set_free(struct special_set *s); /* zeroed sets allowed */

/* The first token in text[from, n): true, with its place and id. */
bool special_set_find(const struct special_set *s, const char *text, size_t n, size_t from, size_t *at, uint32_t *id);

/* The token with exactly this text, or -1. */
int32_t special_set_lookup(const struct special_set *s, const char *text, size_t len);

#endif
