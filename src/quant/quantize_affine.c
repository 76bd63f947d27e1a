/* Floats -> the 64-element affine types Q4_64A and Q2_64A. By definition scale and bias come from the extreme values, truncated
   to bf16, the codes are derived from the values as they will be read back, and importance is ignored. The fitted form stores
   the scale and bias of the least weighted square error that a search finds. */
#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/half.h"
#include "quant/pack.h"

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
    for (int64_t i = 0; i < blocks; i++) {
        uint8_t codes[QK64];
        uint16_t scale, bias;
        affine_codes(x + i * QK64, 15, codes, &scale, &bias);
        pack_q4_64a(scale, bias, codes, b + i);
    }
}

void quantize_q2_64a(const float *x, void *out, int64_t blocks, const float *imp)
{
    (void)imp;
    struct block_q2_64a *b = out;
    for (int64_t i = 0; i < blocks; i++) {
        uint8_t codes[QK64];
        uint16_t scale, bias;
        affine_codes(x + i * QK64, 3, codes, &scale, &bias);
        pack_q2_64a(scale, bias, codes, b + i);
    }
}

/* ---- fitted ---- */

struct affine_fit {
    uint16_t scale, bias; /* bf16 */
    uint8_t codes[QK64];
    double error; /* sum w * (value - x)^2 */
};

static double affine_error(const float *x, const float *w, const struct affine_fit *f)
{
    float s = bf16_to_f32(f->scale), b = bf16_to_f32(f->bias);
    double error = 0.0;
    for (int j = 0; j < QK64; j++) {
        double d = (double)((float)f->codes[j] * s + b) - (double)x[j];
        error += (w ? (double)w[j] : 1.0) * d * d;
    }
    return error;
}

/* The best codes for a scale and bias, rounded to bf16. */
static struct affine_fit affine_at(const float *x, const float *w, int top, double scale, double bias)
{
    struct affine_fit f = {.scale = f32_to_bf16((float)scale), .bias = f32_to_bf16((float)bias)};
    float s = bf16_to_f32(f.scale), b = bf16_to_f32(f.bias);
    for (int j = 0; j < QK64; j++)
        f.codes[j] = (uint8_t)(s == 0.0f ? 0 : fit_haz_clamped((x[j] - b) / s, 0, top));
    f.error = affine_error(x, w, &f);
    return f;
}

/* Least squares for given codes: the scale for the bias that is stored, or both. False: the codes do not determine them. */
static bool affine_solve(const float *x, const float *w, const struct affine_fit *f, bool keep_bias, double *scale, double *bias)
{
    double sw = 0.0, sl = 0.0, sll = 0.0, sx = 0.0, slx = 0.0;
    for (int j = 0; j < QK64; j++) {
        double wj = w ? (double)w[j] : 1.0, l = f->codes[j];
        sw += wj;
        sl += wj * l;
        sll += wj * l * l;
        sx += wj * (double)x[j];
        slx += wj * l * (double)x[j];
    }
    double det = sw * sll - sl * sl;
    if (keep_bias) {
        *bias = (double)bf16_to_f32(f->bias);
        *scale = (slx - *bias * sl) / sll;
    } else {
        *scale = (sw * slx - sl * sx) / det;
        *bias = (sx - *scale * sl) / sw;
    }
    return (keep_bias ? sll : det) > 0.0 && *scale > 0.0;
}

static void keep_better(struct affine_fit *best, const struct affine_fit *f)
{
    if (f->error < best->error)
        *best = *f;
}

/* From one scale and bias: alternate between the codes for them and least squares for the codes. */
static void affine_descend(const float *x, const float *w, int top, double scale, double bias, struct affine_fit *best)
{
    for (int round = 0; round < 4; round++) {
        struct affine_fit f = affine_at(x, w, top, scale, bias);
        keep_better(best, &f);
        if (affine_solve(x, w, &f, true, &scale, &bias)) {
            struct affine_fit again = affine_at(x, w, top, scale, bias);
            keep_better(best, &again);
        }
        if (!affine_solve(x, w, &f, false, &scale, &bias))
            break;
    }
}

/* Start from the default, so that the result is never worse, and from grids around the middle of the range that cut off more and
   more of its ends. */
static struct affine_fit affine_fitted(const float *x, const float *w, int top)
{
    struct affine_fit best;
    affine_codes(x, top, best.codes, &best.scale, &best.bias);
    best.error = affine_error(x, w, &best);
    double low = (double)x[0], high = low;
    for (int j = 1; j < QK64; j++) {
        low = (double)x[j] < low ? (double)x[j] : low;
        high = (double)x[j] > high ? (double)x[j] : high;
    }
    if (high == low) {
        struct affine_fit flat = affine_at(x, w, top, 0.0, low);
        keep_better(&best, &flat);
        return best;
    }
    for (int k = -2; k <= 10; k++) {
        double scale = (high - low) / (top + 0.25 * k);
        affine_descend(x, w, top, scale, 0.5 * (low + high - scale * top), &best);
    }
    return best;
}

void quantize_q4_64a_fitted(const float *x, void *out, int64_t blocks, const float *imp)
{
    struct block_q4_64a *b = out;
    for (int64_t i = 0; i < blocks; i++) {
        struct affine_fit f = affine_fitted(x + i * QK64, imp ? imp + i * QK64 : NULL, 15);
        pack_q4_64a(f.scale, f.bias, f.codes, b + i);
    }
}

void quantize_q2_64a_fitted(const float *x, void *out, int64_t blocks, const float *imp)
{
    struct block_q2_64a *b = out;
    for (int64_t i = 0; i < blocks; i++) {
        struct affine_fit f = affine_fitted(x + i * QK64, imp ? imp + i * QK64 : NULL, 3);
        pack_q2_64a(f.scale, f.bias, f.codes, b + i);
    }
}
