/* QUANT_ACT in plain C; this file defines the bits. Contract: kern.h.

   Edge cases, the same in every tier: the maximum is taken over the bit patterns of |x|, so a NaN in a block wins over
   everything and ends up in d, where it stays visible. A block whose 2047 / amax is no finite positive number (amax is
   0, below about 6e-36, infinite or NaN) has only zero codes. */
#include <math.h>
#include <string.h>

#include "kern/kern.h"
#include "kern/ref/kern_ref.h"
#include "kern/ref/scalar.h"
#include "quant/half.h"

static void quantise_block(const float *x, int block, int16_t *q, float *d)
{
    uint32_t max_bits = 0;
    for (int i = 0; i < block; i++) {
        uint32_t bits = f32_to_bits(x[i]) & 0x7FFFFFFFu;
        max_bits = bits > max_bits ? bits : max_bits;
    }
    float amax = f32_from_bits(max_bits);
    float inverse = 2047.0f / amax;
    *d = amax / 2047.0f;
    if (!(inverse > 0.0f && inverse < INFINITY)) {
        memset(q, 0, (size_t)block * sizeof *q);
        return;
    }
    for (int i = 0; i < block; i++)
        q[i] = (int16_t)rintf(x[i] * inverse);
}

SCALAR_CLONES void kern_quant_act_scalar(const struct op_quant_act *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    int block = op->kind == KERN_ACT_Q12_256 ? 256 : 32;
    for (int64_t r = begin; r < end; r++) {
        const float *x = (const float *)kern_ptr(op->x) + r * op->x_stride;
        struct kern_act_row row = kern_act_row_at(op->kind, kern_ptr(op->out), op->n, r);
        int16_t *q = (int16_t *)row.q;
        float *d = (float *)row.d;
        int16_t *bsum = (int16_t *)row.bsum;
        for (int32_t b = 0; b < op->n / block; b++)
            quantise_block(x + b * block, block, q + b * block, d + b);
        for (int32_t j = 0; j < op->n / 16; j++) {
            int sum = 0;
            for (int i = 0; i < 16; i++)
                sum += q[16 * j + i];
            bsum[j] = (int16_t)sum;
        }
    }
}
