/* A growable vector of token ids. {0} is empty; the owner calls token_vec_free. */
#ifndef SKUA_TOK_TOKEN_VEC_H
#define SKUA_TOK_TOKEN_VEC_H

#include <stddef.h>
#include <stdint.h>

struct token_vec {
    uint32_t *ids;
    size_t n, cap;
};

int  token_vec_reserve(struct token_vec *v, size_t extra); /* room for extra more ids; 0 or SKUA_ENOMEM */
int  token_vec_push(struct token_vec *v, uint32_t id);     /* 0 or SKUA_ENOMEM */
void token_vec_free(struct token_vec *v);                  /* back to {0} */

#endif
