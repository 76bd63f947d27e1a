/* Floats -> the 64-element affine types Q4_64A and Q2_64A. Scale and bias are truncated to bf16 and the codes are derived
   from the values as they will be read back. Importance is ignored. */
#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/half.h"

static void affine_codes(const float *x, int top, uint8_t *codes, uint16_t *scale, uint16_t *bias)
{
    float low = x[0], high = x[0];
    for (int j = 1; j < QK64; j++) {
        low = x[j] < low ? x[j] : low;
        high = x[j] > high ? x[j] : high;
    }
    *scale = f32_to_bf16_trunc(high == low ? 0.0f : (high - low) / (float)top);
    *bias = f32_to_bf16_trunc(low);
    float s = bf16_to_f32(*scale), b = bf16_to_f32(*bias);
    for (int j = 0; j < QK64; j++)
        codes[j] = (uint8_t)(s == 0.0f ? 0 : fit_haz_clamped((x[j] - b) / s, 0, top));
}

void quantize_q4_64a(const float *x, void *out, int64_t blocks, const float *imp)
{
    (void)imp;
    struct block_q4_64a *b = out;
    for (int64_t i = 0; i < blocks; i++, b++, x += QK64) {
        uint8_t codes[QK64];
        uint16_t scale, bias;
        affine_codes(x, 15, codes, &scale, &bias);
        b->scale = scale;
        b->bias = bias;
        for (int j = 0; j < QK64; j += 2)
            b->qs[j / 2] = (uint8_t)(codes[j] | codes[j + 1] << 4);
    }
}

void quantize_q2_64a(const float *x, void *out, int64_t blocks, const float *imp)
{
    (void)imp;
    struct block_q2_64a *b = out;
    for (int64_t i = 0; i < blocks; i++, b++, x += QK64) {
        uint8_t codes[QK64];
        uint16_t scale, bias;
        affine_codes(x, 3, codes, &scale, &bias);
        b->scale = scale;
        b->bias = bias;
        for (int j = 0; j < QK64; j += 4)
            b->qs[j / 4] = (uint8_t)(codes[j] | codes[j + 1] << 2 | codes[j + 2] << 4 | codes[j + 3] << 6);
    }
}
