/* Floats -> super-blocks of 256 (Q2_K .. Q6_K). Each procedure: fit every sub-block alone, quantize the scales (and
   offsets) of the super-block, then derive the codes again from the scales as they will be read back. A sub-block whose
   scale became zero keeps the codes of its fit. */
#include <math.h>
#include <string.h>

#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/half.h"
#include "quant/superblock.h"

/* ---- affine types: Q2_K, Q4_K, Q5_K ---- */

const struct affine_format q2_k_format = {16, 16, 3, 15, 1.0f, {-0.5f, 0.1f, 15, true}};
const struct affine_format q4_k_format = {8, 32, 15, 63, 2.0f, {-1.0f, 0.1f, 20, false}};
const struct affine_format q5_k_format = {8, 32, 31, 63, 2.0f, {-0.5f, 0.1f, 15, false}};

/* How much an element matters when nothing is known about the activations. */
static void plain_weights(const struct affine_format *f, const float *x, float *w)
{
    float base = f->size == 32 ? sqrtf(fit_sum_squares(32, x) / 32.0f) : 0.0f;
    for (int i = 0; i < f->size; i++)
        w[i] = base + fabsf(x[i]);
}

/* Scales to codes against their maximum; returns the unrounded factor. */
static float codes_by_maximum(int n, int top, const float *scales, uint8_t *codes)
{
    float max = 0.0f;
    for (int j = 0; j < n; j++)
        max = scales[j] > max ? scales[j] : max;
    float inv = max > 0.0f ? (float)top / max : 0.0f;
    for (int j = 0; j < n; j++)
        codes[j] = (uint8_t)fit_rne_clamped(inv * scales[j], 0, top);
    return max > 0.0f ? max / (float)top : 0.0f;
}

static float codes_by_fit(int n, int top, const float *scales, const float *w, uint8_t *codes)
{
    float d = fit_positive(n, top, scales, w, codes);
    for (int j = 0; j < n; j++)
        codes[j] = codes[j] < top ? codes[j] : (uint8_t)top;
    return d;
}

static void affine_superblock(const struct affine_format *f, const float *x, const float *imp, struct affine_codes *r)
{
    float scales[16], minus[16], sub_weight[16], w[32];
    float sigma2 = imp ? f->sigma_factor * fit_sum_squares(QK256, x) / (float)QK256 : 0.0f;
    for (int j = 0; j < f->subs; j++) {
        const float *xs = x + j * f->size;
        if (imp)
            fit_weights(f->size, xs, imp + j * f->size, sigma2, w);
        else
            plain_weights(f, xs, w);
        sub_weight[j] = fit_sum(f->size, w);
        scales[j] = fit_affine(f->size, f->top, xs, w, imp ? &fit_weighted_search : &f->plain, r->codes + j * f->size,
                               &minus[j]);
    }
    if (imp) {
        r->d = f32_to_f16(codes_by_fit(f->subs, f->top_scale, scales, sub_weight, r->sc));
        r->dmin = f32_to_f16(codes_by_fit(f->subs, f->top_scale, minus, sub_weight, r->mn));
    } else {
        r->d = f32_to_f16(codes_by_maximum(f->subs, f->top_scale, scales, r->sc));
        r->dmin = f32_to_f16(codes_by_maximum(f->subs, f->top_scale, minus, r->mn));
    }
    for (int j = 0; j < f->subs; j++) {
        float scale = f16_to_f32(r->d) * (float)r->sc[j], min = f16_to_f32(r->dmin) * (float)r->mn[j];
        if (scale == 0.0f)
            continue;
        for (int l = j * f->size; l < (j + 1) * f->size; l++)
            r->codes[l] = (uint8_t)fit_rne_clamped((x[l] + min) / scale, 0, f->top);
    }
}

void quantize_q2_k(const float *x, void *out, int64_t blocks, const float *imp)
{
    struct block_q2_k *b = out;
    for (int64_t i = 0; i < blocks; i++) {
        struct affine_codes r;
        affine_superblock(&q2_k_format, x + i * QK256, imp ? imp + i * QK256 : NULL, &r);
        pack_q2_k(&r, b + i);
    }
}

void quantize_q4_k(const float *x, void *out, int64_t blocks, const float *imp)
{
    struct block_q4_k *b = out;
    for (int64_t i = 0; i < blocks; i++) {
        struct affine_codes r;
        affine_superblock(&q4_k_format, x + i * QK256, imp ? imp + i * QK256 : NULL, &r);
        pack_q4_k(&r, b + i);
    }
}

void quantize_q5_k(const float *x, void *out, int64_t blocks, const float *imp)
{
    struct block_q5_k *b = out;
    for (int64_t i = 0; i < blocks; i++) {
        struct affine_codes r;
        affine_superblock(&q5_k_format, x + i * QK256, imp ? imp + i * QK256 : NULL, &r);
        pack_q5_k(&r, b + i);
    }
}

/* ---- symmetric types: Q3_K, Q6_K ---- */

/* Codes again from the scale as read back; level range -levels .. levels - 1. */
static void symmetric_recode(const float *x, float scale, int levels, uint8_t *codes)
{
    if (scale == 0.0f)
        return;
    for (int l = 0; l < 16; l++)
        codes[l] = (uint8_t)(fit_rne_clamped(x[l] / scale, -levels, levels - 1) + levels);
}

uint16_t q3_k_plain_scales(const float scales[16], uint8_t codes[16])
{
    float max = fit_signed_max(16, scales);
    if (max == 0.0f) {
        memset(codes, 0, 16);
        return 0;
    }
    float iscale = -32.0f / max;
    for (int j = 0; j < 16; j++)
        codes[j] = (uint8_t)(fit_rne_clamped(iscale * scales[j], -32, 31) + 32);
    return f32_to_f16(1.0f / iscale);
}

void quantize_q3_k(const float *x, void *out, int64_t blocks, const float *imp)
{
    struct block_q3_k *b = out;
    for (int64_t i = 0; i < blocks; i++, x += QK256) {
        const float *importance = imp ? imp + i * QK256 : NULL;
        float scales[16], sub_weight[16], w[16];
        uint8_t codes[QK256], ls[16];
        float sigma2 = imp ? 2.0f * fit_sum_squares(QK256, x) / (float)QK256 : 0.0f;
        for (int j = 0; j < 16; j++) {
            if (imp) {
                fit_weights(16, x + 16 * j, importance + 16 * j, sigma2, w);
                sub_weight[j] = fit_sum(16, w);
                scales[j] = fit_symmetric(16, 4, x + 16 * j, w, codes + 16 * j);
            } else {
                scales[j] = fit_three_bits(16, x + 16 * j, codes + 16 * j);
            }
        }
        uint16_t d = imp ? f32_to_f16(fit_symmetric(16, 32, scales, sub_weight, ls)) : q3_k_plain_scales(scales, ls);
        for (int j = 0; j < 16; j++)
            symmetric_recode(x + 16 * j, f16_to_f32(d) * (float)(ls[j] - 32), 4, codes + 16 * j);
        pack_q3_k(d, ls, codes, b + i);
    }
}

bool q6_k_scales(const float scales[16], int8_t codes[16], uint16_t *d)
{
    float max = fit_signed_max(16, scales);
    if (fabsf(max) < FIT_EPS)
        return false;
    float iscale = -128.0f / max;
    *d = f32_to_f16(1.0f / iscale);
    for (int j = 0; j < 16; j++)
        codes[j] = (int8_t)fit_rne_clamped(iscale * scales[j], -128, 127);
    return true;
}

void quantize_q6_k(const float *x, void *out, int64_t blocks, const float *imp)
{
    struct block_q6_k *b = out;
    for (int64_t i = 0; i < blocks; i++, b++, x += QK256) {
        float scales[16], w[16];
        uint8_t codes[QK256];
        int8_t s[16];
        uint16_t d;
        for (int j = 0; j < 16; j++) {
            const float *xs = x + 16 * j;
            for (int l = 0; l < 16; l++)
                w[l] = imp ? imp[i * QK256 + 16 * j + l] : xs[l] * xs[l];
            scales[j] = fit_symmetric(16, 32, xs, w, codes + 16 * j);
        }
        if (!q6_k_scales(scales, s, &d)) {
            memset(b, 0, sizeof *b);
            continue;
        }
        for (int j = 0; j < 16; j++)
            symmetric_recode(x + 16 * j, f16_to_f32(d) * (float)s[j], 32, codes + 16 * j);
        pack_q6_k(d, s, codes, b);
    }
}
