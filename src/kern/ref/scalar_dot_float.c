/* Dot products of float weights in plain C, LANES order; see scalar_dot.h. */
#include <string.h>

#include "kern/ref/scalar.h"
#include "kern/ref/scalar_dot.h"
#include "quant/half.h"

typedef float widen_fn(const char *w, int32_t i);

static inline float widen_f32(const char *w, int32_t i)
{
    float v;
    memcpy(&v, w + 4 * (size_t)i, sizeof v);
    return v;
}

static inline uint16_t load16(const char *w, int32_t i)
{
    uint16_t v;
    memcpy(&v, w + 2 * (size_t)i, sizeof v);
    return v;
}

static inline float widen_f16(const char *w, int32_t i)
{
    return f16_to_f32(load16(w, i));
}

static inline float widen_bf16(const char *w, int32_t i)
{
    return bf16_to_f32(load16(w, i));
}

/* widen is a constant of each caller, and inlined. */
static inline __attribute__((always_inline)) float dot16_widened(const char *w, const float *x, int32_t n, widen_fn *widen)
{
    float acc[16] = {0};
    int32_t k = 0;
    for (; k + 16 <= n; k += 16)
        for (int l = 0; l < 16; l++)
            acc[l] = fmaf(widen(w, k + l), x[k + l], acc[l]);
    for (int l = 0; k + l < n; l++)
        acc[l] = fmaf(widen(w, k + l), x[k + l], acc[l]);
    return scalar_reduce16(acc);
}

SCALAR_CLONES float scalar_dot_f32(const void *w, struct dot_input in, int32_t n)
{
    return dot16_widened(w, in.x, n, widen_f32);
}

SCALAR_CLONES float scalar_dot_f16(const void *w, struct dot_input in, int32_t n)
{
    return dot16_widened(w, in.x, n, widen_f16);
}

SCALAR_CLONES float scalar_dot_bf16(const void *w, struct dot_input in, int32_t n)
{
    return dot16_widened(w, in.x, n, widen_bf16);
}
