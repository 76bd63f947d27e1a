/* Floats -> FP4 with a shared scale: MXFP4 (power of two per 32) and NVFP4 (E4M3 per 16). Importance is ignored. */
#include <math.h>

#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/half.h"

/* The code whose value times d is nearest to x; the lowest of equals, so never 8 (minus zero). */
static uint8_t nearest_fp4(float x, float d)
{
    int best = 0;
    float best_error = fabsf((float)fp4_values[0] * d - x);
    for (int c = 1; c < 16; c++) {
        float error = fabsf((float)fp4_values[c] * d - x);
        if (error < best_error) {
            best = c;
            best_error = error;
        }
    }
    return (uint8_t)best;
}

void quantize_mxfp4(const float *x, void *out, int64_t blocks, const float *imp)
{
    (void)imp;
    struct block_mxfp4 *b = out;
    for (int64_t i = 0; i < blocks; i++, b++, x += QK32) {
        /* floor(log2(amax)) - 2 in E8M0: the largest element lands in 4..8 times the scale, where 6 is the largest code. */
        int e = (int)(f32_to_bits(fabsf(fit_signed_max(QK32, x))) >> 23) - 2;
        b->e = (uint8_t)(e > 0 ? e : 0);
        float d = e8m0_half_to_f32(b->e);
        for (int j = 0; j < 16; j++)
            b->qs[j] = (uint8_t)(nearest_fp4(x[j], d) | nearest_fp4(x[j + 16], d) << 4);
    }
}

void quantize_nvfp4(const float *x, void *out, int64_t blocks, const float *imp)
{
    (void)imp;
    struct block_nvfp4 *b = out;
    for (int64_t i = 0; i < blocks; i++, b++)
        for (int g = 0; g < 4; g++, x += 16) {
            b->s[g] = f32_to_ue4m3(fabsf(fit_signed_max(16, x)) / 6.0f);
            float d = ue4m3_half_to_f32(b->s[g]);
            for (int j = 0; j < 8; j++)
                b->qs[8 * g + j] = (uint8_t)(nearest_fp4(x[j], d) | nearest_fp4(x[j + 8], d) << 4);
        }
}
