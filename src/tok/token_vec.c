/* Token id vector; see token_vec.h. Grows by doubling. */
#include "tok/token_vec.h"

#include "base/mem.h"
#include "skua.h"

int token_vec_reserve(struct token_vec *v, size_t extra)
{
    if (extra <= v->cap - v->n)
        return 0;
    size_t need;
    if (__builtin_add_overflow(v->n, extra, &need) || need > SIZE_MAX / 2)
        return SKUA_ENOMEM;
    size_t cap = v->cap ? v->cap : 32;
    while (cap < need)
        cap *= 2;
    uint32_t *p = mem_realloc_array(v->ids, cap, sizeof *p);
    if (!p)
        return SKUA_ENOMEM;
    v->ids = p;
    v->cap = cap;
    return 0;
}

int token_vec_push(struct token_vec *v, uint32_t id)
{
    if (v->n == v->cap && token_vec_reserve(v, 1))
        return SKUA_ENOMEM;
    v->ids[v->n++] = id;
    return 0;
}

void token_vec_free(struct token_vec *v)
{
    mem_free(v->ids);
    *v = (struct token_vec){0};
}
