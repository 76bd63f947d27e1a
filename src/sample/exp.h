/* e^x for x <= 0 in double, from additions and multiplications only, so that a sampled token is the same on every machine
   (the C library's exp differs between versions and processors in the last bit).
   Range reduction x = n ln2 + r with ln2 in two parts (Cody and Waite), |r| <= ln2 / 2, then the Taylor series to r^13 (its
   remainder is below 5e-18), scaled by 2^n. Relative error below 4e-16; sample_exp(0) == 1. Below -708 the result is 0, so
   that no subnormal number occurs; -inf gives 0. NaN is not allowed. */
#ifndef SKUA_SAMPLE_EXP_H
#define SKUA_SAMPLE_EXP_H

#include <stdint.h>
#include <string.h>

static inline double sample_exp(double x)
{
    if (!(x >= -708.0))
        return 0.0;
    int32_t n = (int32_t)(x * 1.44269504088896338700 - 0.5); /* towards zero: rounds to nearest for x <= 0 */
    double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    double r2 = r * r, r4 = r2 * r2; /* 1/2! + r/3! + ... + r^11/13!, in pairs so that the processor can overlap them */
    double a0 = (1.0 / 2.0 + r * (1.0 / 6.0)) + r2 * (1.0 / 24.0 + r * (1.0 / 120.0));
    double a1 = (1.0 / 720.0 + r * (1.0 / 5040.0)) + r2 * (1.0 / 40320.0 + r * (1.0 / 362880.0));
    double a2 = (1.0 / 3628800.0 + r * (1.0 / 39916800.0)) + r2 * (1.0 / 479001600.0 + r * (1.0 / 6227020800.0));
    double p = r + r2 * (a0 + r4 * (a1 + r4 * a2));
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return (1.0 + p) * scale;
}

#endif
