/* Super-blocks of 256 with packed sub-block scales (Q2_K .. Q6_K) -> floats; formulas in blocks.h. */
#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/half.h"

void dequant_q2_k(const void *row, float *out, int64_t blocks)
{
    const struct block_q2_k *b = row;
    for (int64_t i = 0; i < blocks; i++, b++) {
        float d = f16_to_f32(b->d), dmin = f16_to_f32(b->dmin);
        for (int j = 0; j < 16; j++) { /* 16 elements: half h = j / 8, bit pair k = j % 8 / 2 */
            float scale = d * (float)(b->s[j] & 15), min = dmin * (float)(b->s[j] >> 4);
            const uint8_t *q = b->qs + 32 * (j / 8) + 16 * (j & 1);
            int shift = 2 * (j % 8 / 2);
            for (int l = 0; l < 16; l++)
                *out++ = scale * (float)(q[l] >> shift & 3) - min;
        }
    }
}

void dequant_q3_k(const void *row, float *out, int64_t blocks)
{
    const struct block_q3_k *b = row;
    for (int64_t i = 0; i < blocks; i++, b++) {
        float d = f16_to_f32(b->d);
        int8_t sc[16];
        q3k_unpack_scales(b->c, sc);
        for (int j = 0; j < 16; j++) {
            float scale = d * (float)sc[j];
            const uint8_t *q = b->qs + 32 * (j / 8) + 16 * (j & 1), *high = b->hm + 16 * (j & 1);
            int shift = 2 * (j % 8 / 2);
            for (int l = 0; l < 16; l++) {
                int level = (q[l] >> shift & 3) - (high[l] >> (j / 2) & 1 ? 0 : 4);
                *out++ = scale * (float)level;
            }
        }
    }
}

void dequant_q4_k(const void *row, float *out, int64_t blocks)
{
    const struct block_q4_k *b = row;
    for (int64_t i = 0; i < blocks; i++, b++) {
        float d = f16_to_f32(b->d), dmin = f16_to_f32(b->dmin);
        uint8_t sc[8], mn[8];
        k4_unpack_pairs(b->c, sc, mn);
        for (int j = 0; j < 8; j++) {
            float scale = d * (float)sc[j], min = dmin * (float)mn[j];
            const uint8_t *q = b->qs + 32 * (j / 2);
            int shift = 4 * (j & 1);
            for (int l = 0; l < 32; l++)
                *out++ = scale * (float)(q[l] >> shift & 15) - min;
        }
    }
}

void dequant_q5_k(const void *row, float *out, int64_t blocks)
{
    const struct block_q5_k *b = row;
    for (int64_t i = 0; i < blocks; i++, b++) {
        float d = f16_to_f32(b->d), dmin = f16_to_f32(b->dmin);
        uint8_t sc[8], mn[8];
        k4_unpack_pairs(b->c, sc, mn);
        for (int j = 0; j < 8; j++) {
            float scale = d * (float)sc[j], min = dmin * (float)mn[j];
            const uint8_t *q = b->qs + 32 * (j / 2);
            int shift = 4 * (j & 1);
            for (int l = 0; l < 32; l++)
                *out++ = scale * (float)((q[l] >> shift & 15) | (b->qh[l] >> j & 1) << 4) - min;
        }
    }
}

void dequant_q6_k(const void *row, float *out, int64_t blocks)
{
    const struct block_q6_k *b = row;
    for (int64_t i = 0; i < blocks; i++, b++) {
        float d = f16_to_f32(b->d);
        for (int j = 0; j < 16; j++) { /* 16 elements: half h = j / 8, quarter k = j % 8 / 2 */
            float scale = d * (float)b->s[j];
            int h = j / 8, k = j % 8 / 2, l0 = 16 * (j & 1);
            const uint8_t *low = b->ql + 64 * h + 32 * (k & 1) + l0, *high = b->qh + 32 * h + l0;
            int shift = k < 2 ? 0 : 4;
            for (int l = 0; l < 16; l++)
                *out++ = scale * (float)(((low[l] >> shift & 15) | (high[l] >> 2 * k & 3) << 4) - 32);
        }
    }
}
