/* The canonical arithmetic of kern/kern.h on v16. Include after exactly one of v16_avx2.h, v16_avx512.h, v16_neon.h; the op
 * bodies (*_impl.h) include it. Each function is lane by lane what kern/math.h and kern/ref/scalar.h say.
 */
#ifndef SKUA_KERN_CPU_V16_MATH_H
#define SKUA_KERN_CPU_V16_MATH_H

#include <math.h>

#include "kern/math.h"

#define V16_INLINE static inline __attribute__((always_inline))

/* For loops over tiles of accumulators, whose counts are constants once the function is inlined: arrays indexed by them
   stay in registers only if the loop is gone. */
#if defined(__clang__)
#define V16_UNROLL _Pragma("unroll")
#else
#define V16_UNROLL _Pragma("GCC unroll 16")
#endif

V16_INLINE v16 v16_exp(v16 x)
{
    const v16 n = v16_rint(v16_mul(x, v16_set1(KERN_EXP_LOG2E)));
    v16 r = v16_fma(n, v16_set1(-KERN_EXP_LN2_HI), x);
    r = v16_fma(n, v16_set1(-KERN_EXP_LN2_LO), r);
    v16 p = v16_set1(KERN_EXP_C6);
    p = v16_fma(p, r, v16_set1(KERN_EXP_C5));
    p = v16_fma(p, r, v16_set1(KERN_EXP_C4));
    p = v16_fma(p, r, v16_set1(KERN_EXP_C3));
    p = v16_fma(p, r, v16_set1(KERN_EXP_C2));
    p = v16_fma(p, r, v16_set1(1.0f));
    p = v16_fma(p, r, v16_set1(1.0f));
    p = v16_scale2(p, n);
    p = v16_if_lt(x, v16_set1(KERN_EXP_LO), v16_set1(0.0f), p);
    p = v16_if_gt(x, v16_set1(KERN_EXP_HI), v16_set1(INFINITY), p);
    return v16_if_nan(x, x, p);
}

V16_INLINE v16 v16_one_plus_exp_neg(v16 x)
{
    return v16_add(v16_set1(1.0f), v16_exp(v16_neg(x)));
}

V16_INLINE v16 v16_sigmoid(v16 x)
{
    return v16_div(v16_set1(1.0f), v16_one_plus_exp_neg(x));
}

V16_INLINE v16 v16_silu(v16 x)
{
    return v16_div(x, v16_one_plus_exp_neg(x));
}

/* dot16(x, x, n) of kern.h. The lanes behind the end of a row add zero products, which only a negative zero would notice, and
   a sum of squares never is one. */
V16_INLINE float v16_squares(const float *x, int64_t n)
{
    v16 acc = v16_set1(0.0f);
    int64_t k = 0;
    for (; k + 16 <= n; k += 16)
        acc = v16_fma(v16_load(x + k), v16_load(x + k), acc);
    if (k < n) {
        const v16 rest = v16_load_n(x + k, (int)(n - k));
        acc = v16_fma(rest, rest, acc);
    }
    return v16_reduce(acc);
}

/* The factor of RMS_NORM. */
V16_INLINE float v16_rms_inv(const float *x, int64_t n, float eps)
{
    return 1.0f / sqrtf(v16_squares(x, n) / (float)n + eps);
}

#endif
