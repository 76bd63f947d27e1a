/* Building blocks of the reference implementations: everything in double, with the C library's functions. */
#ifndef SKUA_KERN_REF_REFD_H
#define SKUA_KERN_REF_REFD_H

#include <math.h>

#include "kern/kern.h"

static inline double refd_dot(const float *x, const float *y, int64_t n)
{
    double sum = 0.0;
    for (int64_t k = 0; k < n; k++)
        sum += (double)x[k] * (double)y[k];
    return sum;
}

static inline double refd_rms_inv(const float *x, int64_t n, float eps)
{
    return 1.0 / sqrt(refd_dot(x, x, n) / (double)n + (double)eps);
}

static inline double refd_sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static inline double refd_silu(double x)
{
    return x / (1.0 + exp(-x));
}

#endif
