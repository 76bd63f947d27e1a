/* Floats -> IQ4_NL and IQ4_XS: a scale search per 32 elements on sixteen uneven levels. */
#include <math.h>
#include <string.h>

#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/half.h"
#include "quant/superblock.h"

/* The code of the level nearest to x; halfway goes to the larger level. */
static uint8_t nearest_nl4(float x)
{
    int k = 0; /* the last level not above x, if any: four halvings */
    for (int step = 8; step > 0; step /= 2)
        k += x >= (float)nl4_values[k + step] ? step : 0;
    if (k == 15)
        return 15;
    return (uint8_t)(x - (float)nl4_values[k] < (float)nl4_values[k + 1] - x ? k : k + 1);
}

/* The scale of 32 elements: sixteen candidates, weighted by w. */
static float nl4_scale(const float *x, const float *w)
{
    float max = fit_signed_max(32, x);
    if (fabsf(max) < FIT_EPS)
        return 0.0f;
    float scale = 0.0f, best = 0.0f;
    for (int t = -8; t <= 7; t++) {
        bool initial = t == -8; /* maps max to +127, the others to -127 + t */
        float id = initial ? 1.0f / (max / 127.0f) : ((float)t - 127.0f) / max;
        float xq = 0.0f, qq = 0.0f;
        for (int j = 0; j < 32; j++) {
            float q = (float)nl4_values[nearest_nl4(id * x[j])];
            xq += w[j] * q * x[j];
            qq += w[j] * q * q;
        }
        if (initial) {
            scale = qq <= 0.0f ? 0.0f : xq / qq;
            best = scale * xq;
        } else if (qq > 0.0f && xq * xq > best * qq) {
            scale = xq / qq;
            best = scale * xq;
        }
    }
    return scale;
}

static void nl4_weights(const float *x, const float *imp, float sigma2, float *w)
{
    if (imp)
        fit_weights(32, x, imp, sigma2, w);
    else
        for (int j = 0; j < 32; j++)
            w[j] = x[j] * x[j];
}

static void nl4_pack(const float *x, float scale, uint8_t *qs)
{
    float id = scale != 0.0f ? 1.0f / scale : 0.0f;
    for (int j = 0; j < 16; j++)
        qs[j] = (uint8_t)(nearest_nl4(x[j] * id) | nearest_nl4(x[j + 16] * id) << 4);
}

void quantize_iq4_nl(const float *x, void *out, int64_t blocks, const float *imp)
{
    struct block_iq4_nl *b = out;
    for (int64_t i = 0; i < blocks; i++, b++, x += QK32) {
        float w[32];
        nl4_weights(x, imp ? imp + i * QK32 : NULL, fit_sum_squares(QK32, x) * (2.0f / 32.0f), w);
        float scale = nl4_scale(x, w);
        b->d = f32_to_f16(scale);
        nl4_pack(x, scale, b->qs); /* with the unrounded scale */
    }
}

void iq4_xs_scales(float scales[8], struct block_iq4_xs *b)
{
    float d = -fit_signed_max(8, scales) / 32.0f, id = d != 0.0f ? 1.0f / d : 0.0f;
    memset(b, 0, sizeof *b);
    b->d = f32_to_f16(d);
    for (int g = 0; g < 8; g++) {
        int l = fit_rne_clamped(id * scales[g], -32, 31), ls = l + 32;
        b->sl[g / 2] = (uint8_t)(b->sl[g / 2] | (ls & 15) << 4 * (g & 1));
        b->sh = (uint16_t)(b->sh | (ls >> 4) << 2 * g);
        scales[g] = d * (float)l;
    }
}

void quantize_iq4_xs(const float *x, void *out, int64_t blocks, const float *imp)
{
    struct block_iq4_xs *b = out;
    for (int64_t i = 0; i < blocks; i++, b++, x += QK256) {
        float scales[8], w[32];
        float sigma2 = fit_sum_squares(QK256, x) * (2.0f / 256.0f);
        for (int g = 0; g < 8; g++) {
            nl4_weights(x + 32 * g, imp ? imp + i * QK256 + 32 * g : NULL, sigma2, w);
            scales[g] = nl4_scale(x + 32 * g, w);
        }
        iq4_xs_scales(scales, b);
        for (int g = 0; g < 8; g++)
            nl4_pack(x + 32 * g, scales[g], b->qs + 16 * g);
    }
}
