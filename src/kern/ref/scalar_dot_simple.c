/* Dot products of weights with a float scale per 16 or 32 values, INTEGER order; see scalar_dot.h. */
#include "kern/ref/scalar.h"
#include "kern/ref/scalar_dot.h"
#include "quant/blocks.h"
#include "quant/half.h"

SCALAR_CLONES float scalar_dot_q8_0(const void *w, struct dot_input in, int32_t n)
{
    const struct block_q8_0 *blocks = w;
    float acc = 0.0f;
    for (int32_t b = 0; b < n / 32; b++) {
        const int16_t *q = in.q.q + 32 * b;
        int32_t sum = 0;
        for (int i = 0; i < 32; i++)
            sum += blocks[b].qs[i] * q[i];
        acc = fmaf(f16_to_f32(blocks[b].d) * in.q.d[b], (float)sum, acc);
    }
    return acc;
}

SCALAR_CLONES float scalar_dot_q4_0(const void *w, struct dot_input in, int32_t n)
{
    const struct block_q4_0 *blocks = w;
    float acc = 0.0f;
    for (int32_t b = 0; b < n / 32; b++) {
        const int16_t *q = in.q.q + 32 * b;
        int32_t sum = 0;
        for (int i = 0; i < 16; i++) {
            sum += ((blocks[b].qs[i] & 15) - 8) * q[i];
            sum += ((blocks[b].qs[i] >> 4) - 8) * q[i + 16];
        }
        acc = fmaf(f16_to_f32(blocks[b].d) * in.q.d[b], (float)sum, acc);
    }
    return acc;
}

/* acc + dw * dx * sum + m * dx * (sum of the activations of block b): the step of the types whose blocks have an offset. */
static inline float add_affine(float acc, float d, float m, const struct kern_act_row *in, int32_t b, int32_t sum)
{
    acc = fmaf(d * in->d[b], (float)sum, acc);
    return fmaf(m * in->d[b], (float)(in->bsum[2 * b] + in->bsum[2 * b + 1]), acc);
}

SCALAR_CLONES float scalar_dot_q4_1(const void *w, struct dot_input in, int32_t n)
{
    const struct block_q4_1 *blocks = w;
    float acc = 0.0f;
    for (int32_t b = 0; b < n / 32; b++) {
        const int16_t *q = in.q.q + 32 * b;
        int32_t sum = 0;
        for (int i = 0; i < 16; i++)
            sum += (blocks[b].qs[i] & 15) * q[i] + (blocks[b].qs[i] >> 4) * q[i + 16];
        acc = add_affine(acc, f16_to_f32(blocks[b].d), f16_to_f32(blocks[b].m), &in.q, b, sum);
    }
    return acc;
}

/* Element i of Q5_0 and Q5_1, i < 16 in the low nibbles of qs, the others in the high ones. */
static inline int q5_code(const uint8_t qs[16], uint32_t qh, int i)
{
    return (i < 16 ? qs[i] & 15 : qs[i - 16] >> 4) | (int)(qh >> i & 1) << 4;
}

SCALAR_CLONES float scalar_dot_q5_0(const void *w, struct dot_input in, int32_t n)
{
    const struct block_q5_0 *blocks = w;
    float acc = 0.0f;
    for (int32_t b = 0; b < n / 32; b++) {
        const int16_t *q = in.q.q + 32 * b;
        const uint32_t qh = blocks[b].qh;
        int32_t sum = 0;
        for (int i = 0; i < 16; i++)
            sum += (q5_code(blocks[b].qs, qh, i) - 16) * q[i] + (q5_code(blocks[b].qs, qh, i + 16) - 16) * q[i + 16];
        acc = fmaf(f16_to_f32(blocks[b].d) * in.q.d[b], (float)sum, acc);
    }
    return acc;
}

SCALAR_CLONES float scalar_dot_q5_1(const void *w, struct dot_input in, int32_t n)
{
    const struct block_q5_1 *blocks = w;
    float acc = 0.0f;
    for (int32_t b = 0; b < n / 32; b++) {
        const int16_t *q = in.q.q + 32 * b;
        const uint32_t qh = blocks[b].qh;
        int32_t sum = 0;
        for (int i = 0; i < 16; i++)
            sum += q5_code(blocks[b].qs, qh, i) * q[i] + q5_code(blocks[b].qs, qh, i + 16) * q[i + 16];
        acc = add_affine(acc, f16_to_f32(blocks[b].d), f16_to_f32(blocks[b].m), &in.q, b, sum);
    }
    return acc;
}

/* Split nibbles that are looked up in a table. */
static inline int32_t sum_looked_up(const uint8_t qs[16], const int8_t table[16], const int16_t *q)
{
    int32_t sum = 0;
    for (int i = 0; i < 16; i++)
        sum += table[qs[i] & 15] * q[i] + table[qs[i] >> 4] * q[i + 16];
    return sum;
}

SCALAR_CLONES float scalar_dot_iq4_nl(const void *w, struct dot_input in, int32_t n)
{
    const struct block_iq4_nl *blocks = w;
    float acc = 0.0f;
    for (int32_t b = 0; b < n / 32; b++) {
        int32_t sum = sum_looked_up(blocks[b].qs, nl4_values, in.q.q + 32 * b);
        acc = fmaf(f16_to_f32(blocks[b].d) * in.q.d[b], (float)sum, acc);
    }
    return acc;
}

SCALAR_CLONES float scalar_dot_mxfp4(const void *w, struct dot_input in, int32_t n)
{
    const struct block_mxfp4 *blocks = w;
    float acc = 0.0f;
    for (int32_t b = 0; b < n / 32; b++) {
        int32_t sum = sum_looked_up(blocks[b].qs, fp4_values, in.q.q + 32 * b);
        acc = fmaf(e8m0_half_to_f32(blocks[b].e) * in.q.d[b], (float)sum, acc);
    }
    return acc;
}

/* Four groups of 16 values to a block, two to a block of activations. */
SCALAR_CLONES float scalar_dot_nvfp4(const void *w, struct dot_input in, int32_t n)
{
    const struct block_nvfp4 *blocks = w;
    float acc = 0.0f;
    for (int32_t g = 0; g < n / 16; g++) {
        const struct block_nvfp4 *block = blocks + g / 4;
        const uint8_t *qs = block->qs + 8 * (g % 4);
        const int16_t *q = in.q.q + 16 * g;
        int32_t sum = 0;
        for (int i = 0; i < 8; i++)
            sum += fp4_values[qs[i] & 15] * q[i] + fp4_values[qs[i] >> 4] * q[i + 8];
        acc = fmaf(ue4m3_half_to_f32(block->s[g % 4]) * in.q.d[g / 2], (float)sum, acc);
    }
    return acc;
}

SCALAR_CLONES float scalar_dot_q4_64a(const void *w, struct dot_input in, int32_t n)
{
    const struct block_q4_64a *blocks = w;
    float acc = 0.0f;
    for (int32_t b = 0; b < n / 32; b++) { /* blocks of activations, two to a block of weights */
        const struct block_q4_64a *block = blocks + b / 2;
        const uint8_t *qs = block->qs + 16 * (b % 2);
        const int16_t *q = in.q.q + 32 * b;
        int32_t sum = 0;
        for (int i = 0; i < 16; i++)
            sum += (qs[i] & 15) * q[2 * i] + (qs[i] >> 4) * q[2 * i + 1];
        acc = add_affine(acc, bf16_to_f32(block->scale), bf16_to_f32(block->bias), &in.q, b, sum);
    }
    return acc;
}

SCALAR_CLONES float scalar_dot_q2_64a(const void *w, struct dot_input in, int32_t n)
{
    const struct block_q2_64a *blocks = w;
    float acc = 0.0f;
    for (int32_t b = 0; b < n / 32; b++) {
        const struct block_q2_64a *block = blocks + b / 2;
        const uint8_t *qs = block->qs + 8 * (b % 2);
        const int16_t *q = in.q.q + 32 * b;
        int32_t sum = 0;
        for (int i = 0; i < 32; i++)
            sum += (qs[i / 4] >> 2 * (i % 4) & 3) * q[i];
        acc = add_affine(acc, bf16_to_f32(block->scale), bf16_to_f32(block->bias), &in.q, b, sum);
    }
    return acc;
}
