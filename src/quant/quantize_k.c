/* Floats -> super-blocks of 256 (Q2_K .. Q6_K). Each procedure: fit every sub-block alone, quantize the scales (and
   offsets) of the super-block, then derive the codes again from the scales as they will be read back. A sub-block whose
   scale became zero keeps the codes of its fit. */
#include <math.h>
#include <string.h>

#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/half.h"

/* ---- affine types: Q2_K, Q4_K, Q5_K ---- */

struct affine_format {
    int subs, size;  /* sub-blocks and their elements; subs * size = 256 */
    int top;         /* largest code */
    int top_scale;   /* largest code of the sub-block scales and offsets */
    float sigma_factor; /* sigma2 = factor * sum x^2 / 256, for importance weights */
    struct fit_affine_search plain;
};

static const struct affine_format q2_k_format = {16, 16, 3, 15, 1.0f, {-0.5f, 0.1f, 15, true}};
static const struct affine_format q4_k_format = {8, 32, 15, 63, 2.0f, {-1.0f, 0.1f, 20, false}};
static const struct affine_format q5_k_format = {8, 32, 31, 63, 2.0f, {-0.5f, 0.1f, 15, false}};
static const struct fit_affine_search weighted_search = {-0.9f, 0.05f, 36, false};

struct affine_result {
    uint16_t d, dmin; /* f16 */
    uint8_t sc[16], mn[16];
    uint8_t codes[QK256];
};

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

static void affine_superblock(const struct affine_format *f, const float *x, const float *imp, struct affine_result *r)
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
        scales[j] = fit_affine(f->size, f->top, xs, w, imp ? &weighted_search : &f->plain, r->codes + j * f->size,
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

/* Two-bit fields of Q2_K and Q3_K: element 128h + 32k + l in bits 2k of byte 32h + l. */
static void pack_two_bits(const uint8_t *codes, uint8_t *qs)
{
    for (int h = 0; h < 2; h++)
        for (int l = 0; l < 32; l++) {
            const uint8_t *c = codes + 128 * h + l;
            qs[32 * h + l] = (uint8_t)((c[0] & 3) | (c[32] & 3) << 2 | (c[64] & 3) << 4 | (c[96] & 3) << 6);
        }
}

/* Nibbles of Q4_K and Q5_K: elements 64p + l and 64p + 32 + l in byte 32p + l. */
static void pack_four_bits(const uint8_t *codes, uint8_t *qs)
{
    for (int p = 0; p < 4; p++)
        for (int l = 0; l < 32; l++)
            qs[32 * p + l] = (uint8_t)((codes[64 * p + l] & 15) | (codes[64 * p + 32 + l] & 15) << 4);
}

static void pack_pairs(const uint8_t *sc, const uint8_t *mn, uint8_t *c)
{
    for (int j = 0; j < 4; j++) {
        c[j] = (uint8_t)(sc[j] | (sc[j + 4] >> 4) << 6);
        c[j + 4] = (uint8_t)(mn[j] | (mn[j + 4] >> 4) << 6);
        c[j + 8] = (uint8_t)((sc[j + 4] & 15) | (mn[j + 4] & 15) << 4);
    }
}

void quantize_q2_k(const float *x, void *out, int64_t blocks, const float *imp)
{
    struct block_q2_k *b = out;
    for (int64_t i = 0; i < blocks; i++, b++) {
        struct affine_result r;
        affine_superblock(&q2_k_format, x + i * QK256, imp ? imp + i * QK256 : NULL, &r);
        for (int j = 0; j < 16; j++)
            b->s[j] = (uint8_t)(r.sc[j] | r.mn[j] << 4);
        pack_two_bits(r.codes, b->qs);
        b->d = r.d;
        b->dmin = r.dmin;
    }
}

void quantize_q4_k(const float *x, void *out, int64_t blocks, const float *imp)
{
    struct block_q4_k *b = out;
    for (int64_t i = 0; i < blocks; i++, b++) {
        struct affine_result r;
        affine_superblock(&q4_k_format, x + i * QK256, imp ? imp + i * QK256 : NULL, &r);
        b->d = r.d;
        b->dmin = r.dmin;
        pack_pairs(r.sc, r.mn, b->c);
        pack_four_bits(r.codes, b->qs);
    }
}

void quantize_q5_k(const float *x, void *out, int64_t blocks, const float *imp)
{
    struct block_q5_k *b = out;
    for (int64_t i = 0; i < blocks; i++, b++) {
        struct affine_result r;
        affine_superblock(&q5_k_format, x + i * QK256, imp ? imp + i * QK256 : NULL, &r);
        b->d = r.d;
        b->dmin = r.dmin;
        pack_pairs(r.sc, r.mn, b->c);
        memset(b->qh, 0, sizeof b->qh);
        for (int j = 0; j < QK256; j++)
            b->qh[j % 32] = (uint8_t)(b->qh[j % 32] | (r.codes[j] >> 4 & 1) << (j / 32));
        pack_four_bits(r.codes, b->qs);
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

/* Q3_K: sub-block scales to 0..63 (32 = zero); returns the factor as f16. */
static uint16_t q3_k_scales(const float *scales, const float *sub_weight, uint8_t *ls)
{
    if (sub_weight)
        return f32_to_f16(fit_symmetric(16, 32, scales, sub_weight, ls));
    float max = fit_signed_max(16, scales);
    if (max == 0.0f) {
        memset(ls, 0, 16);
        return 0;
    }
    float iscale = -32.0f / max;
    for (int j = 0; j < 16; j++)
        ls[j] = (uint8_t)(fit_rne_clamped(iscale * scales[j], -32, 31) + 32);
    return f32_to_f16(1.0f / iscale);
}

static void q3_k_pack(const uint8_t *ls, const uint8_t *codes, struct block_q3_k *b)
{
    memset(b->c, 0, sizeof b->c);
    for (int j = 0; j < 16; j++) {
        int at = j % 8, high = 8 + j % 4;
        b->c[at] = (uint8_t)(b->c[at] | (ls[j] & 15) << (j < 8 ? 0 : 4));
        b->c[high] = (uint8_t)(b->c[high] | (ls[j] >> 4) << 2 * (j / 4));
    }
    memset(b->hm, 0, sizeof b->hm);
    for (int j = 0; j < QK256; j++)
        b->hm[j % 32] = (uint8_t)(b->hm[j % 32] | (codes[j] >> 2 & 1) << (j / 32));
    pack_two_bits(codes, b->qs);
}

void quantize_q3_k(const float *x, void *out, int64_t blocks, const float *imp)
{
    struct block_q3_k *b = out;
    for (int64_t i = 0; i < blocks; i++, b++, x += QK256) {
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
        uint16_t d = q3_k_scales(scales, imp ? sub_weight : NULL, ls);
        for (int j = 0; j < 16; j++)
            symmetric_recode(x + 16 * j, f16_to_f32(d) * (float)(ls[j] - 32), 4, codes + 16 * j);
        b->d = d;
        q3_k_pack(ls, codes, b);
    }
}

static void q6_k_pack(const uint8_t *codes, struct block_q6_k *b)
{
    for (int h = 0; h < 2; h++)
        for (int l = 0; l < 32; l++) {
            const uint8_t *c = codes + 128 * h + l;
            b->ql[64 * h + l] = (uint8_t)((c[0] & 15) | (c[64] & 15) << 4);
            b->ql[64 * h + 32 + l] = (uint8_t)((c[32] & 15) | (c[96] & 15) << 4);
            b->qh[32 * h + l] = (uint8_t)(c[0] >> 4 | c[32] >> 4 << 2 | c[64] >> 4 << 4 | c[96] >> 4 << 6);
        }
}

void quantize_q6_k(const float *x, void *out, int64_t blocks, const float *imp)
{
    struct block_q6_k *b = out;
    for (int64_t i = 0; i < blocks; i++, b++, x += QK256) {
        float scales[16], w[16];
        uint8_t codes[QK256];
        for (int j = 0; j < 16; j++) {
            const float *xs = x + 16 * j;
            for (int l = 0; l < 16; l++)
                w[l] = imp ? imp[i * QK256 + 16 * j + l] : xs[l] * xs[l];
            scales[j] = fit_symmetric(16, 32, xs, w, codes + 16 * j);
        }
        float max = fit_signed_max(16, scales);
        if (fabsf(max) < FIT_EPS) {
            memset(b, 0, sizeof *b);
            continue;
        }
        float iscale = -128.0f / max;
        b->d = f32_to_f16(1.0f / iscale);
        for (int j = 0; j < 16; j++) {
            b->s[j] = (int8_t)fit_rne_clamped(iscale * scales[j], -128, 127);
            symmetric_recode(x + 16 * j, f16_to_f32(b->d) * (float)b->s[j], 32, codes + 16 * j);
        }
        q6_k_pack(codes, b);
    }
}
