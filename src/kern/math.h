/* The elementary functions of the production arithmetic. Scalar code here; every SIMD tier performs exactly the same
 * operations in the same order, so that results are equal bit for bit.
 *
 * kern_expf(x): e^x with a relative error below 1e-7 where the result is normal, below one unit of the last place where it
 * is subnormal (over all floats: 7.7e-8 and 0.86; tests/kern samples it). Range reduction x = n ln2 + r with ln2 in two
 * parts (Cody and Waite), |r| <= ln2 / 2, then a degree-6 polynomial 1 + r + C2 r^2 + ... + C6 r^6 by Horner's rule with
 * fma, scaled by 2^n in two steps, the first exact, so that results down to the subnormals are rounded once. The
 * coefficients minimise the largest relative error on that interval (3.2e-9 before rounding), chosen one after the other in
 * float, each time with the later ones fitted again.
 *   x > 88.722839 -> +inf; x < -103.972084 -> 0; NaN stays NaN.
 */
#ifndef SKUA_KERN_MATH_H
#define SKUA_KERN_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define KERN_EXP_HI 88.722839f
#define KERN_EXP_LO (-103.972084f)
#define KERN_EXP_LOG2E 1.44269502f
#define KERN_EXP_LN2_HI 0.693145752f
#define KERN_EXP_LN2_LO 1.42860677e-06f
#define KERN_EXP_C2 0.49999994f
#define KERN_EXP_C3 0.16666521f
#define KERN_EXP_C4 0.041668255f
#define KERN_EXP_C5 0.008368662f
#define KERN_EXP_C6 0.0013821451f

static inline float kern_pow2i(int32_t n) /* 2^n, -126 <= n <= 127 */
{
    uint32_t bits = (uint32_t)(n + 127) << 23;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline float kern_expf(float x)
{
    if (!(x <= KERN_EXP_HI)) /* true for NaN too */
        return x > KERN_EXP_HI ? INFINITY : x;
    if (x < KERN_EXP_LO)
        return 0.0f;
    float nf = rintf(x * KERN_EXP_LOG2E);
    float r = fmaf(nf, -KERN_EXP_LN2_HI, x);
    r = fmaf(nf, -KERN_EXP_LN2_LO, r);
    float p = KERN_EXP_C6;
    p = fmaf(p, r, KERN_EXP_C5);
    p = fmaf(p, r, KERN_EXP_C4);
    p = fmaf(p, r, KERN_EXP_C3);
    p = fmaf(p, r, KERN_EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    int32_t n = (int32_t)nf; /* -150 .. 128 */
    int32_t half = n >> 1;   /* arithmetic shift: both halves are normal exponents */
    return p * kern_pow2i(half) * kern_pow2i(n - half);
}

static inline float kern_sigmoidf(float x) { return 1.0f / (1.0f + kern_expf(-x)); }
static inline float kern_siluf(float x) { return x / (1.0f + kern_expf(-x)); }

#endif
