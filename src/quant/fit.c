/* Scale searches of the reference quantizers; see fit.h. */
#include "quant/fit.h"

#include <math.h>
#include <string.h>

#define FIT_MAX   32 /* elements of the largest sub-block */
#define FIT_SWEEPS 5

int fit_haz_clamped(float x, int low, int high)
{
    return fit_trunc_clamped(roundf(x), low, high);
}

float fit_signed_max(int n, const float *x)
{
    float magnitude = 0.0f, max = 0.0f;
    for (int i = 0; i < n; i++) {
        if (isnan(x[i]))
            return x[i];
        if (fabsf(x[i]) > magnitude) {
            magnitude = fabsf(x[i]);
            max = x[i];
        }
    }
    return max;
}

float fit_sum(int n, const float *x)
{
    float sum = 0.0f;
    for (int i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

float fit_sum_squares(int64_t n, const float *x)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sum;
}

void fit_weights(int n, const float *x, const float *imp, float sigma2, float *w)
{
    for (int i = 0; i < n; i++)
        w[i] = imp[i] * sqrtf(sigma2 + x[i] * x[i]);
}

/* The normal equation of a scale: it is xl / ll, and xl^2 / ll is the error it removes. */
struct sums {
    float xl; /* sum w * x * level */
    float ll; /* sum w * level^2 */
};

static struct sums symmetric_trial(int n, int levels, const float *x, const float *w, float iscale, uint8_t *codes)
{
    struct sums s = {0.0f, 0.0f};
    for (int i = 0; i < n; i++) {
        int l = fit_rne_clamped(iscale * x[i], -levels, levels - 1);
        codes[i] = (uint8_t)(l + levels);
        s.xl += w[i] * x[i] * (float)l;
        s.ll += w[i] * (float)l * (float)l;
    }
    return s;
}

float fit_symmetric(int n, int levels, const float *x, const float *w, uint8_t *codes)
{
    float max = fit_signed_max(n, x);
    if (fabsf(max) < FIT_EPS) {
        memset(codes, 0, (size_t)n);
        return 0.0f;
    }
    struct sums s = symmetric_trial(n, levels, x, w, -(float)levels / max, codes);
    float scale = s.ll != 0.0f ? s.xl / s.ll : 0.0f;
    float best = scale * s.xl;
    for (int k = -9; k <= 9; k++) {
        uint8_t trial[FIT_MAX];
        if (k == 0)
            continue;
        s = symmetric_trial(n, levels, x, w, -((float)levels + 0.1f * (float)k) / max, trial);
        if (s.ll > 0.0f && s.xl * s.xl > best * s.ll) {
            memcpy(codes, trial, (size_t)n);
            scale = s.xl / s.ll;
            best = scale * s.xl;
        }
    }
    return scale;
}

const struct fit_affine_search fit_weighted_search = {-0.9f, 0.05f, 36, false};

static float affine_error(int n, const float *x, const float *w, const uint8_t *codes, float scale, float min,
                          bool absolute)
{
    float error = 0.0f;
    for (int i = 0; i < n; i++) {
        float d = scale * (float)codes[i] + min - x[i];
        error += w[i] * (absolute ? fabsf(d) : d * d);
    }
    return error;
}

static void affine_codes(int n, int top, const float *x, float iscale, float min, uint8_t *codes)
{
    for (int i = 0; i < n; i++)
        codes[i] = (uint8_t)fit_rne_clamped(iscale * (x[i] - min), 0, top);
}

/* Least squares for scale and offset of given codes; the offset may not be positive. False: the codes do not determine
   them. sw and sx are the sums of w and w * x. */
static bool affine_solve(int n, const float *x, const float *w, const uint8_t *codes, float sw, float sx, float *scale,
                         float *min)
{
    float sl = 0.0f, sl2 = 0.0f, sxl = 0.0f;
    for (int i = 0; i < n; i++) {
        float l = (float)codes[i], wl = w[i] * l;
        sl += wl;
        sl2 += wl * l;
        sxl += wl * x[i];
    }
    float det = sw * sl2 - sl * sl;
    if (!(det > 0.0f))
        return false;
    *scale = (sw * sxl - sx * sl) / det;
    *min = (sl2 * sx - sl * sxl) / det;
    if (*min > 0.0f) {
        *min = 0.0f;
        *scale = sxl / sl2;
    }
    return true;
}

float fit_affine(int n, int top, const float *x, const float *w, const struct fit_affine_search *search, uint8_t *codes,
                 float *minus)
{
    float min = x[0], max = x[0], sw = 0.0f, sx = 0.0f;
    for (int i = 0; i < n; i++) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
        sw += w[i];
        sx += w[i] * x[i];
    }
    if (min > 0.0f)
        min = 0.0f;
    if (!(max > min)) {
        memset(codes, 0, (size_t)n);
        *minus = -min;
        return 0.0f;
    }
    float iscale = (float)top / (max - min);
    float scale = 1.0f / iscale;
    affine_codes(n, top, x, iscale, min, codes);
    float best = affine_error(n, x, w, codes, scale, min, search->absolute);
    for (int k = 0; k <= search->steps; k++) {
        uint8_t trial[FIT_MAX];
        float trial_scale, trial_min;
        iscale = (search->first + search->step * (float)k + (float)top) / (max - min);
        affine_codes(n, top, x, iscale, min, trial);
        if (!affine_solve(n, x, w, trial, sw, sx, &trial_scale, &trial_min))
            continue;
        float error = affine_error(n, x, w, trial, trial_scale, trial_min, search->absolute);
        if (error < best) {
            memcpy(codes, trial, (size_t)n);
            best = error;
            scale = trial_scale;
            min = trial_min;
        }
    }
    *minus = -min;
    return scale;
}

/* One sweep of coordinate descent: move each code to the optimum for the scale the others imply, when the removed error
   grows. Returns whether any moved. */
static bool positive_sweep(int n, int top, const float *x, const float *w, uint8_t *codes, struct sums *s)
{
    bool moved = false;
    for (int i = 0; i < n; i++) {
        float l = (float)codes[i];
        struct sums t = {s->xl - w[i] * x[i] * l, s->ll - w[i] * l * l};
        if (!(t.xl > 0.0f && t.ll > 0.0f))
            continue;
        int next = fit_rne(x[i] * t.ll / t.xl);
        next = next < top ? next : top;
        if (next == codes[i])
            continue;
        t.xl += w[i] * x[i] * (float)next;
        t.ll += w[i] * (float)next * (float)next;
        if (t.xl * t.xl * s->ll > s->xl * s->xl * t.ll) {
            codes[i] = (uint8_t)next;
            *s = t;
            moved = true;
        }
    }
    return moved;
}

float fit_positive(int n, int top, const float *x, const float *w, uint8_t *codes)
{
    float max = 0.0f;
    for (int i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    if (max < FIT_EPS) {
        memset(codes, 0, (size_t)n);
        return 0.0f;
    }
    /* Candidate -5 stands for the plain inverse scale, whose codes are bytes without an upper bound; then -4..4 without 0. */
    float best_iscale = 0.0f, best = 0.0f;
    for (int c = -5; c <= 4; c++) {
        if (c == 0)
            continue;
        bool initial = c == -5;
        float iscale = initial ? (float)top / max : (0.1f * (float)c + (float)top) / max;
        float scale = 1.0f / iscale, error = 0.0f;
        for (int i = 0; i < n; i++) {
            int l = fit_rne(iscale * x[i]);
            l = initial ? (uint8_t)l : l < top ? l : top;
            float d = x[i] - scale * (float)l;
            error += w[i] * d * d;
        }
        if (initial || error < best) {
            best = error;
            best_iscale = iscale;
        }
    }
    struct sums s = {0.0f, 0.0f};
    for (int i = 0; i < n; i++) {
        int l = fit_rne(best_iscale * x[i]);
        l = l < top ? l : top;
        codes[i] = (uint8_t)l;
        s.xl += w[i] * x[i] * (float)l;
        s.ll += w[i] * (float)l * (float)l;
    }
    for (int sweep = 0; sweep < FIT_SWEEPS; sweep++)
        if (!positive_sweep(n, top, x, w, codes, &s))
            break;
    return s.ll <= 0.0f ? 0.0f : s.xl / s.ll;
}

static bool three_bits_sweep(int n, const float *x, int8_t *levels, struct sums *s)
{
    bool moved = false;
    for (int i = 0; i < n; i++) {
        float w = x[i] * x[i], l = (float)levels[i];
        struct sums t = {s->xl - w * x[i] * l, 0.0f};
        if (!(t.xl > 0.0f))
            continue;
        t.ll = s->ll - w * l * l;
        int next = fit_rne_clamped(x[i] * t.ll / t.xl, -4, 3);
        if (next == levels[i])
            continue;
        t.xl += w * x[i] * (float)next;
        t.ll += w * (float)next * (float)next;
        if (t.ll > 0.0f && t.xl * t.xl * s->ll > s->xl * s->xl * t.ll) {
            levels[i] = (int8_t)next;
            *s = t;
            moved = true;
        }
    }
    return moved;
}

float fit_three_bits(int n, const float *x, uint8_t *codes)
{
    float max = fit_signed_max(n, x);
    if (fabsf(max) < FIT_EPS) {
        memset(codes, 0, (size_t)n);
        return 0.0f;
    }
    int8_t levels[FIT_MAX];
    float iscale = -4.0f / max;
    struct sums s = {0.0f, 0.0f};
    for (int i = 0; i < n; i++) {
        int l = fit_rne_clamped(iscale * x[i], -4, 3);
        float w = x[i] * x[i];
        levels[i] = (int8_t)l;
        s.xl += w * x[i] * (float)l;
        s.ll += w * (float)l * (float)l;
    }
    for (int sweep = 0; sweep < FIT_SWEEPS; sweep++)
        if (!three_bits_sweep(n, x, levels, &s))
            break;
    for (int i = 0; i < n; i++)
        codes[i] = (uint8_t)(levels[i] + 4);
    return s.xl / s.ll;
}
