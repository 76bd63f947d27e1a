/* QUANT_ACT in plain C; this file defines the bits. Contract: kern.h.

   Edge cases, the same in every tier: the maximum is taken over the bit patterns of |x|, so a NaN in a block wins over
   everything and ends up in d, where it stays visible. A block whose L / amax is no finite positive number (amax is
   0, below about 6e-36, infinite or NaN) has only zero codes. */
#include <math.h>
#include <string.h>

#include "kern/kern.h"
#include "kern/ref/kern_ref.h"
#include "kern/ref/scalar.h"
#include "quant/half.h"

/* levels: L of kern.h, in int32 whatever they are stored in. */
static inline __attribute__((always_inline)) void quantise_block(const float *x, int block, float levels, int16_t *q, int8_t *q8, float *d)
{
    uint32_t max_bits = 0;
    for (int i = 0; i < block; i++) {
        uint32_t bits = f32_to_bits(x[i]) & 0x7FFFFFFFu;
        max_bits = bits > max_bits ? bits : max_bits;
    }
    float amax = f32_from_bits(max_bits);
    float inverse = levels / amax;
    *d = amax / levels;
    if (!(inverse > 0.0f && inverse < INFINITY))
        inverse = 0.0f;
    for (int i = 0; i < block; i++) {
        float v = inverse > 0.0f ? rintf(x[i] * inverse) : 0.0f;
        if (q8)
            q8[i] = (int8_t)v;
        else
            q[i] = (int16_t)v;
    }
}

SCALAR_CLONES void kern_quant_act_scalar(const struct op_quant_act *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    for (int64_t r = begin; r < end; r++) {
        const float *x = (const float *)kern_ptr(op->x) + r * op->x_stride;
        struct kern_act_row row = kern_act_row_at(op->kind, kern_ptr(op->out), op->n, r);
        int16_t *q = (int16_t *)row.q, *bsum = (int16_t *)row.bsum;
        int8_t *q8 = (int8_t *)row.q8;
        float *d = (float *)row.d;
        if (q8)
            for (int32_t b = 0; b < op->n / 256; b++)
                quantise_block(x + b * 256, 256, 127.0f, NULL, q8 + b * 256, d + b);
        else if (op->kind == KERN_ACT_Q12_256)
            for (int32_t b = 0; b < op->n / 256; b++)
                quantise_block(x + b * 256, 256, 2047.0f, q + b * 256, NULL, d + b);
        else
            for (int32_t b = 0; b < op->n / 32; b++)
                quantise_block(x + b * 32, 32, 2047.0f, q + b * 32, NULL, d + b);
        const int32_t group = q8 ? 32 : 16;
        for (int32_t j = 0; j < op->n / group; j++) {
            int sum = 0;
            for (int32_t i = 0; i < group; i++)
                sum += q8 ? q8[group * j + i] : q[group * j + i];
            bsum[j] = (int16_t)sum;
        }
    }
}
