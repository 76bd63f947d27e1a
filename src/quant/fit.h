/* Building blocks of the reference quantizers: roundings, and searches for the scale (and offset) of a few values on an
   integer grid. The order of every binary32 operation is part of the definition: sums run in element order from 0, a
   product of three is (a * b) * c, and the codes depend on it. No input has undefined behaviour. When finite inputs overflow
   in a sum, the codes are meaningless but in range and the returned scale is NaN or infinite, so that the caller's check of
   the finished block refuses it. */
#ifndef SKUA_QUANT_FIT_H
#define SKUA_QUANT_FIT_H

#include <stdbool.h>
#include <stdint.h>

#include "quant/half.h"

#define FIT_EPS 1e-15f /* a block whose largest magnitude is below this counts as zero */

static inline int fit_clamp(int v, int low, int high)
{
    return v < low ? low : v > high ? high : v;
}

/* Nearest integer, ties to even, for |x| <= 4194303. Adding 1.5 * 2^23 leaves the integer in the low mantissa bits; beyond
   the range (and for NaN) some value in [-4194304, 4194303] results. */
static inline int fit_rne(float x)
{
    return (int)(f32_to_bits(x + 12582912.0f) & 0x007FFFFFu) - 0x00400000;
}

static inline int fit_rne_clamped(float x, int low, int high)
{
    return fit_clamp(fit_rne(x), low, high);
}

/* Toward zero, in [low, high]; NaN gives low. */
static inline int fit_trunc_clamped(float x, int low, int high)
{
    return x > (float)low ? x < (float)high ? (int)x : high : low;
}

/* Nearest integer, ties away from zero, in [low, high]; NaN gives low. */
int fit_haz_clamped(float x, int low, int high);

/* The signed element of the largest magnitude, the first of equals; 0 when all are 0; NaN when one is NaN. */
float fit_signed_max(int n, const float *x);

/* Sum of n elements, in order, in float. */
float fit_sum(int n, const float *x);

/* Sum of x * x over n elements. */
float fit_sum_squares(int64_t n, const float *x);

/* w[i] = imp[i] * sqrt(sigma2 + x[i]^2): how much an error in x[i] matters. */
void fit_weights(int n, const float *x, const float *imp, float sigma2, float *w);

/* x ~ scale * (code - levels), codes 0 .. 2 * levels - 1, minimising the weighted square error over 19 candidate scales.
   Returns the scale, which may be negative; 0 and codes 0 for a zero block. */
float fit_symmetric(int n, int levels, const float *x, const float *w, uint8_t *codes);

/* x ~ scale * code - minus, codes 0..top, offset -minus <= 0. Candidate k of 0..steps spans top + first + step * k levels;
   the offset of an accepted candidate is the one that later candidates start from. n <= 32. */
struct fit_affine_search {
    float first, step;
    int steps;
    bool absolute; /* judge by |error| instead of its square */
};
extern const struct fit_affine_search fit_weighted_search; /* for importance weights */
float fit_affine(int n, int top, const float *x, const float *w, const struct fit_affine_search *search, uint8_t *codes,
                 float *minus);

/* x ~ scale * code, codes 0..top, for values that are not negative (scales, offsets, magnitudes), by nine candidates and
   up to five sweeps of coordinate descent. n <= 32. Codes of negative x wrap modulo 256, as the byte-exact definition
   demands; callers that pack fewer bits mask them. */
float fit_positive(int n, int top, const float *x, const float *w, uint8_t *codes);

/* x ~ scale * (code - 4), codes 0..7, with weights x^2: one candidate and up to five sweeps. n <= 32. */
float fit_three_bits(int n, const float *x, uint8_t *codes);

#endif
