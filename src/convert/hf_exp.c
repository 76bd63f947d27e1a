/* See hf_exp.h. x = q ln 2 + r with q whole, ln 2 in two parts; e^r is a rational function of degree 5 over 2 on |r| <= ln 2 / 2, each
   step a fused multiply-add. Constants: NumPy's (docs/CREDITS.md). */
#include "convert/hf_exp.h"

#include <math.h>

float hf_exp(float x)
{
    static const float above[] = {5.082762527590693718096e-04f, 6.757896990527504603057e-03f, 5.114512081637298353406e-02f,
                                  2.473615434895520810817e-01f, 7.257664613233124478488e-01f, 9.999999999980870924916e-01f};
    static const float below[] = {2.159509375685829852307e-02f, -2.742335390411667452936e-01f, 1.0f};
    if (!(fabsf(x) < 104.0f))
        return isnan(x) ? x : x > 0.0f ? INFINITY : 0.0f;
    float q = rintf(x * 1.44269504088896341f);
    float r = fmaf(q, -6.93145752e-1f, x);
    r = fmaf(q, -1.42860677e-6f, r);
    float p = above[0], d = below[0];
    for (int i = 1; i < 6; i++)
        p = fmaf(p, r, above[i]);
    for (int i = 1; i < 3; i++)
        d = fmaf(d, r, below[i]);
    return ldexpf(p / d, (int)q);
}
