/* Blocks -> floats for the plain types, the 32-element types, FP4 and the affine types; formulas in blocks.h.
   Each multiplication and addition is one binary32 operation in the written order. */
#include <string.h>

#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/half.h"

const int8_t fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void dequant_f32(const void *row, float *out, int64_t blocks)
{
    if (blocks > 0)
        memcpy(out, row, (size_t)blocks * sizeof *out);
}

/* 16-bit rows may lie at odd addresses, hence the byte-wise load (one instruction after compilation). */
static uint16_t load_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

void dequant_f16(const void *row, float *out, int64_t blocks)
{
    const uint8_t *p = row;
    for (int64_t i = 0; i < blocks; i++)
        out[i] = f16_to_f32(load_u16(p + 2 * i));
}

void dequant_bf16(const void *row, float *out, int64_t blocks)
{
    const uint8_t *p = row;
    for (int64_t i = 0; i < blocks; i++)
        out[i] = bf16_to_f32(load_u16(p + 2 * i));
}

void dequant_q4_0(const void *row, float *out, int64_t blocks)
{
    const struct block_q4_0 *b = row;
    for (int64_t i = 0; i < blocks; i++, b++, out += QK32) {
        float d = f16_to_f32(b->d);
        for (int j = 0; j < 16; j++) {
            out[j] = (float)((b->qs[j] & 15) - 8) * d;
            out[j + 16] = (float)((b->qs[j] >> 4) - 8) * d;
        }
    }
}

void dequant_q4_1(const void *row, float *out, int64_t blocks)
{
    const struct block_q4_1 *b = row;
    for (int64_t i = 0; i < blocks; i++, b++, out += QK32) {
        float d = f16_to_f32(b->d), m = f16_to_f32(b->m);
        for (int j = 0; j < 16; j++) {
            out[j] = (float)(b->qs[j] & 15) * d + m;
            out[j + 16] = (float)(b->qs[j] >> 4) * d + m;
        }
    }
}

/* Five-bit codes of one 16-byte group: elements j and j + 16. */
static int low5(uint8_t q, uint32_t qh, int j) { return (q & 15) | (int)(qh >> j & 1) << 4; }
static int high5(uint8_t q, uint32_t qh, int j) { return q >> 4 | (int)(qh >> (j + 16) & 1) << 4; }

void dequant_q5_0(const void *row, float *out, int64_t blocks)
{
    const struct block_q5_0 *b = row;
    for (int64_t i = 0; i < blocks; i++, b++, out += QK32) {
        float d = f16_to_f32(b->d);
        for (int j = 0; j < 16; j++) {
            out[j] = (float)(low5(b->qs[j], b->qh, j) - 16) * d;
            out[j + 16] = (float)(high5(b->qs[j], b->qh, j) - 16) * d;
        }
    }
}

void dequant_q5_1(const void *row, float *out, int64_t blocks)
{
    const struct block_q5_1 *b = row;
    for (int64_t i = 0; i < blocks; i++, b++, out += QK32) {
        float d = f16_to_f32(b->d), m = f16_to_f32(b->m);
        for (int j = 0; j < 16; j++) {
            out[j] = (float)low5(b->qs[j], b->qh, j) * d + m;
            out[j + 16] = (float)high5(b->qs[j], b->qh, j) * d + m;
        }
    }
}

void dequant_q8_0(const void *row, float *out, int64_t blocks)
{
    const struct block_q8_0 *b = row;
    for (int64_t i = 0; i < blocks; i++, b++, out += QK32) {
        float d = f16_to_f32(b->d);
        for (int j = 0; j < QK32; j++)
            out[j] = (float)b->qs[j] * d;
    }
}

void dequant_q8_1(const void *row, float *out, int64_t blocks)
{
    const struct block_q8_1 *b = row;
    for (int64_t i = 0; i < blocks; i++, b++, out += QK32) {
        float d = f16_to_f32(b->d);
        for (int j = 0; j < QK32; j++)
            out[j] = (float)b->qs[j] * d;
    }
}

void dequant_q8_k(const void *row, float *out, int64_t blocks)
{
    const struct block_q8_k *b = row;
    for (int64_t i = 0; i < blocks; i++, b++, out += QK256)
        for (int j = 0; j < QK256; j++)
            out[j] = b->d * (float)b->qs[j];
}

void dequant_mxfp4(const void *row, float *out, int64_t blocks)
{
    const struct block_mxfp4 *b = row;
    for (int64_t i = 0; i < blocks; i++, b++, out += QK32) {
        float d = e8m0_half_to_f32(b->e);
        for (int j = 0; j < 16; j++) {
            out[j] = (float)fp4_values[b->qs[j] & 15] * d;
            out[j + 16] = (float)fp4_values[b->qs[j] >> 4] * d;
        }
    }
}

void dequant_nvfp4(const void *row, float *out, int64_t blocks)
{
    const struct block_nvfp4 *b = row;
    for (int64_t i = 0; i < blocks; i++, b++, out += QK64)
        for (int g = 0; g < 4; g++) {
            float d = ue4m3_half_to_f32(b->s[g]);
            for (int j = 0; j < 8; j++) {
                uint8_t q = b->qs[8 * g + j];
                out[16 * g + j] = (float)fp4_values[q & 15] * d;
                out[16 * g + j + 8] = (float)fp4_values[q >> 4] * d;
            }
        }
}

void dequant_q4_64a(const void *row, float *out, int64_t blocks)
{
    const struct block_q4_64a *b = row;
    for (int64_t i = 0; i < blocks; i++, b++, out += QK64) {
        float scale = bf16_to_f32(b->scale), bias = bf16_to_f32(b->bias);
        for (int j = 0; j < QK64; j++)
            out[j] = (float)(b->qs[j >> 1] >> 4 * (j & 1) & 15) * scale + bias;
    }
}

void dequant_q2_64a(const void *row, float *out, int64_t blocks)
{
    const struct block_q2_64a *b = row;
    for (int64_t i = 0; i < blocks; i++, b++, out += QK64) {
        float scale = bf16_to_f32(b->scale), bias = bf16_to_f32(b->bias);
        for (int j = 0; j < QK64; j++)
            out[j] = (float)(b->qs[j >> 2] >> 2 * (j & 3) & 3) * scale + bias;
    }
}
