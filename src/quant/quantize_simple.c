/* Floats -> plain rows, 32-element blocks and the activation blocks. Without importance weights the scale follows from the
   extreme values; with them the fits of fit.h are used. Codes of the former come from the unrounded scale. */
#include <math.h>
#include <string.h>

#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/half.h"
#include "quant/pack.h"

void quantize_f32(const float *x, void *out, int64_t blocks, const float *imp)
{
    (void)imp;
    if (blocks > 0)
        memcpy(out, x, (size_t)blocks * sizeof *x);
}

void quantize_f16(const float *x, void *out, int64_t blocks, const float *imp)
{
    (void)imp;
    for (int64_t i = 0; i < blocks; i++) {
        uint16_t h = f32_to_f16(x[i]);
        memcpy((uint8_t *)out + 2 * i, &h, sizeof h);
    }
}

void quantize_bf16(const float *x, void *out, int64_t blocks, const float *imp)
{
    (void)imp;
    for (int64_t i = 0; i < blocks; i++) {
        uint16_t h = f32_to_bf16(x[i]);
        memcpy((uint8_t *)out + 2 * i, &h, sizeof h);
    }
}

static float inverse(float d)
{
    return d != 0.0f ? 1.0f / d : 0.0f;
}

/* Codes of Q8_0 and Q8_1; returns the unrounded scale. */
static float quantize_8bit(const float *x, int8_t *qs)
{
    float d = fabsf(fit_signed_max(QK32, x)) / 127.0f, id = inverse(d);
    for (int j = 0; j < QK32; j++)
        qs[j] = (int8_t)fit_haz_clamped(x[j] * id, -127, 127);
    return d;
}

void quantize_q8_0(const float *x, void *out, int64_t blocks, const float *imp)
{
    (void)imp;
    struct block_q8_0 *b = out;
    for (int64_t i = 0; i < blocks; i++, b++, x += QK32)
        b->d = f32_to_f16(quantize_8bit(x, b->qs));
}

void quantize_q8_1(const float *x, void *out, int64_t blocks, const float *imp)
{
    (void)imp;
    struct block_q8_1 *b = out;
    for (int64_t i = 0; i < blocks; i++, b++, x += QK32) {
        float d = quantize_8bit(x, b->qs);
        int sum = 0;
        for (int j = 0; j < QK32; j++)
            sum += b->qs[j];
        b->d = f32_to_f16(d);
        b->s = f32_to_f16((float)sum * d);
    }
}

void quantize_q8_k(const float *x, void *out, int64_t blocks, const float *imp)
{
    (void)imp;
    struct block_q8_k *b = out;
    for (int64_t i = 0; i < blocks; i++, b++, x += QK256) {
        float max = fit_signed_max(QK256, x);
        memset(b, 0, sizeof *b);
        if (max == 0.0f)
            continue;
        /* -127, not -128: the negative of every code is a code, which kernels that move signs rely on. */
        float iscale = -127.0f / max;
        for (int j = 0; j < QK256; j++) {
            b->qs[j] = (int8_t)fit_rne_clamped(iscale * x[j], -127, 127);
            b->bsum[j / 16] = (int16_t)(b->bsum[j / 16] + b->qs[j]);
        }
        b->d = 1.0f / iscale;
    }
}

/* Symmetric codes 0 .. 2 * levels - 1 of a 32-element block (Q4_0: 8 levels, Q5_0: 16); returns the unrounded scale.
   Without importance the element of the largest magnitude gets code 0, the one level without a mirror image. */
static float symmetric_block(const float *x, const float *imp, float sigma2, int levels, uint8_t *codes)
{
    if (imp) {
        float w[QK32];
        fit_weights(QK32, x, imp, sigma2, w);
        return fit_symmetric(QK32, levels, x, w, codes);
    }
    float d = fit_signed_max(QK32, x) / -(float)levels, id = inverse(d);
    for (int j = 0; j < QK32; j++)
        codes[j] = (uint8_t)fit_trunc_clamped(x[j] * id + ((float)levels + 0.5f), 0, 2 * levels - 1);
    return d;
}

/* Affine codes 0..top (Q4_1: 15, Q5_1: 31); returns the unrounded scale, *min gets the offset. */
static float affine_block(const float *x, const float *imp, float sigma2, int top, uint8_t *codes, float *min)
{
    if (imp) {
        float w[QK32], minus;
        fit_weights(QK32, x, imp, sigma2, w);
        float scale = fit_affine(QK32, top, x, w, &fit_weighted_search, codes, &minus);
        *min = -minus;
        return scale;
    }
    float low = x[0], high = x[0];
    for (int j = 1; j < QK32; j++) {
        low = x[j] < low ? x[j] : low;
        high = x[j] > high ? x[j] : high;
    }
    float d = (high - low) / (float)top, id = inverse(d);
    for (int j = 0; j < QK32; j++)
        codes[j] = (uint8_t)fit_trunc_clamped((x[j] - low) * id + 0.5f, 0, top);
    *min = low;
    return d;
}

/* Mean square of the whole row, for the importance weights of these types. */
static float row_sigma2(const float *x, int64_t blocks, const float *imp)
{
    return imp ? fit_sum_squares(blocks * QK32, x) / (float)(blocks * QK32) : 0.0f;
}

void quantize_q4_0(const float *x, void *out, int64_t blocks, const float *imp)
{
    struct block_q4_0 *b = out;
    float sigma2 = row_sigma2(x, blocks, imp);
    for (int64_t i = 0; i < blocks; i++, b++) {
        uint8_t codes[QK32];
        b->d = f32_to_f16(symmetric_block(x + i * QK32, imp ? imp + i * QK32 : NULL, sigma2, 8, codes));
        pack_nibbles(codes, b->qs);
    }
}

void quantize_q5_0(const float *x, void *out, int64_t blocks, const float *imp)
{
    struct block_q5_0 *b = out;
    float sigma2 = row_sigma2(x, blocks, imp);
    for (int64_t i = 0; i < blocks; i++, b++) {
        uint8_t codes[QK32];
        b->d = f32_to_f16(symmetric_block(x + i * QK32, imp ? imp + i * QK32 : NULL, sigma2, 16, codes));
        b->qh = pack_fifth_bits(codes);
        pack_nibbles(codes, b->qs);
    }
}

void quantize_q4_1(const float *x, void *out, int64_t blocks, const float *imp)
{
    struct block_q4_1 *b = out;
    float sigma2 = row_sigma2(x, blocks, imp);
    for (int64_t i = 0; i < blocks; i++, b++) {
        uint8_t codes[QK32];
        float min;
        b->d = f32_to_f16(affine_block(x + i * QK32, imp ? imp + i * QK32 : NULL, sigma2, 15, codes, &min));
        b->m = f32_to_f16(min);
        pack_nibbles(codes, b->qs);
    }
}

void quantize_q5_1(const float *x, void *out, int64_t blocks, const float *imp)
{
    struct block_q5_1 *b = out;
    float sigma2 = row_sigma2(x, blocks, imp);
    for (int64_t i = 0; i < blocks; i++, b++) {
        uint8_t codes[QK32];
        float min;
        b->d = f32_to_f16(affine_block(x + i * QK32, imp ? imp + i * QK32 : NULL, sigma2, 31, codes, &min));
        b->m = f32_to_f16(min);
        b->qh = pack_fifth_bits(codes);
        pack_nibbles(codes, b->qs);
    }
}
