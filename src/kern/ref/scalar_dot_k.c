/* Dot products of the K formats: blocks of 256 values, sub-blocks with integer scales, INTEGER order; see scalar_dot.h. */
#include "kern/ref/scalar.h"
#include "kern/ref/scalar_dot.h"
#include "quant/blocks.h"
#include "quant/half.h"

/* Two bits of each of the 16 elements of sub-block j (of 16), as Q2_K, Q3_K and Q6_K lay them out: half h = j / 8 has 32 bytes, whose bit
   pairs k = 0..3 belong to its four 32-element rows. Element l: at[l] >> shift & 3. */
struct bit_pairs {
    const uint8_t *at;
    int shift;
};

static inline struct bit_pairs bit_pairs_of(const uint8_t qs[64], int j)
{
    return (struct bit_pairs){.at = qs + 32 * (j / 8) + 16 * (j & 1), .shift = 2 * (j % 8 / 2)};
}

SCALAR_CLONES float scalar_dot_q2_k(const void *w, struct dot_input in, int32_t n)
{
    const struct block_q2_k *blocks = w;
    float acc = 0.0f;
    for (int32_t b = 0; b < n / 256; b++) {
        const int16_t *q = in.q.q + 256 * b, *bsum = in.q.bsum + 16 * b;
        int32_t sum = 0, min = 0;
        for (int j = 0; j < 16; j++) {
            const struct bit_pairs code = bit_pairs_of(blocks[b].qs, j);
            int32_t part = 0;
            for (int l = 0; l < 16; l++)
                part += (code.at[l] >> code.shift & 3) * q[16 * j + l];
            sum += (blocks[b].s[j] & 15) * part;
            min += (blocks[b].s[j] >> 4) * bsum[j];
        }
        acc = fmaf(f16_to_f32(blocks[b].d) * in.q.d[b], (float)sum, acc);
        acc = fmaf(-(f16_to_f32(blocks[b].dmin) * in.q.d[b]), (float)min, acc);
    }
    return acc;
}

SCALAR_CLONES float scalar_dot_q3_k(const void *w, struct dot_input in, int32_t n)
{
    const struct block_q3_k *blocks = w;
    float acc = 0.0f;
    for (int32_t b = 0; b < n / 256; b++) {
        const int16_t *q = in.q.q + 256 * b;
        int8_t sc[16];
        int32_t sum = 0;
        q3k_unpack_scales(blocks[b].c, sc);
        for (int j = 0; j < 16; j++) {
            const struct bit_pairs low = bit_pairs_of(blocks[b].qs, j);
            const uint8_t *high = blocks[b].hm + 16 * (j & 1);
            int32_t part = 0;
            for (int l = 0; l < 16; l++) {
                int code = (low.at[l] >> low.shift & 3) | (high[l] >> j / 2 & 1) << 2;
                part += (code - 4) * q[16 * j + l];
            }
            sum += sc[j] * part;
        }
        acc = fmaf(f16_to_f32(blocks[b].d) * in.q.d[b], (float)sum, acc);
    }
    return acc;
}

SCALAR_CLONES float scalar_dot_q4_k(const void *w, struct dot_input in, int32_t n)
{
    const struct block_q4_k *blocks = w;
    float acc = 0.0f;
    for (int32_t b = 0; b < n / 256; b++) {
        const int8_t *q = in.q.q8 + 256 * b;
        uint8_t sc[8], mn[8];
        k4_unpack_pairs(blocks[b].c, sc, mn);
        int32_t sum = 0, min = 0;
        for (int j = 0; j < 8; j++) {
            int32_t part = 0;
            for (int l = 0; l < 32; l++)
                part += (blocks[b].qs[32 * (j / 2) + l] >> 4 * (j & 1) & 15) * q[32 * j + l];
            sum += sc[j] * part;
            min += mn[j] * in.q.bsum[8 * b + j];
        }
        acc = fmaf(f16_to_f32(blocks[b].d) * in.q.d[b], (float)sum, acc);
        acc = fmaf(-(f16_to_f32(blocks[b].dmin) * in.q.d[b]), (float)min, acc);
    }
    return acc;
}

/* sum_j(mn[j] * (bsum[2j] + bsum[2j + 1])) */
static int32_t min_sum(const uint8_t mn[8], const int16_t *bsum)
{
    int32_t sum = 0;
    for (int j = 0; j < 8; j++)
        sum += mn[j] * (bsum[2 * j] + bsum[2 * j + 1]);
    return sum;
}

SCALAR_CLONES float scalar_dot_q5_k(const void *w, struct dot_input in, int32_t n)
{
    const struct block_q5_k *blocks = w;
    float acc = 0.0f;
    for (int32_t b = 0; b < n / 256; b++) {
        const int16_t *q = in.q.q + 256 * b;
        uint8_t sc[8], mn[8];
        k4_unpack_pairs(blocks[b].c, sc, mn);
        int32_t sum = 0;
        for (int j = 0; j < 8; j++) {
            int32_t part = 0;
            for (int l = 0; l < 32; l++) {
                int low = blocks[b].qs[32 * (j / 2) + l] >> 4 * (j & 1) & 15;
                int high = blocks[b].qh[l] >> j & 1;
                part += (low | high << 4) * q[32 * j + l];
            }
            sum += sc[j] * part;
        }
        acc = fmaf(f16_to_f32(blocks[b].d) * in.q.d[b], (float)sum, acc);
        acc = fmaf(-(f16_to_f32(blocks[b].dmin) * in.q.d[b]), (float)min_sum(mn, in.q.bsum + 16 * b), acc);
    }
    return acc;
}

SCALAR_CLONES float scalar_dot_q6_k(const void *w, struct dot_input in, int32_t n)
{
    const struct block_q6_k *blocks = w;
    float acc = 0.0f;
    for (int32_t b = 0; b < n / 256; b++) {
        const int16_t *q = in.q.q + 256 * b;
        int32_t sum = 0;
        for (int j = 0; j < 16; j++) {
            const int h = j / 8, k = j % 8 / 2;
            const uint8_t *low = blocks[b].ql + 64 * h + 32 * (k & 1) + 16 * (j & 1);
            const struct bit_pairs high = bit_pairs_of(blocks[b].qh, j);
            int32_t part = 0;
            for (int l = 0; l < 16; l++) {
                int code = (low[l] >> 4 * (k / 2) & 15) | (high.at[l] >> high.shift & 3) << 4;
                part += (code - 32) * q[16 * j + l];
            }
            sum += blocks[b].s[j] * part;
        }
        acc = fmaf(f16_to_f32(blocks[b].d) * in.q.d[b], (float)sum, acc);
    }
    return acc;
}
