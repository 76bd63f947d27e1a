/* Dot products of the 256-value codebook formats, INTEGER order; see scalar_dot.h. */
#include "kern/ref/scalar.h"
#include "kern/ref/scalar_dot.h"
#include "quant/blocks.h"
#include "quant/half.h"
#include "quant/iq2_grid.h"

SCALAR_CLONES float scalar_dot_iq4_xs(const void *w, struct dot_input in, int32_t n)
{
    const struct block_iq4_xs *blocks = w;
    float acc = 0.0f;
    for (int32_t b = 0; b < n / 256; b++) {
        int32_t sum = 0;
        for (int g = 0; g < 8; g++) {
            const int16_t *q = in.q.q + 256 * b + 32 * g;
            const uint8_t *qs = blocks[b].qs + 16 * g;
            int scale = (blocks[b].sl[g / 2] >> 4 * (g & 1) & 15) | (blocks[b].sh >> 2 * g & 3) << 4;
            int32_t part = 0;
            for (int i = 0; i < 16; i++)
                part += nl4_values[qs[i] & 15] * q[i] + nl4_values[qs[i] >> 4] * q[i + 16];
            sum += (scale - 32) * part;
        }
        acc = fmaf(f16_to_f32(blocks[b].d) * in.q.d[b], (float)sum, acc);
    }
    return acc;
}

/* Eight values: the magnitudes of a codebook entry with the signs of a byte (bit set: negative). */
static inline int32_t sum_octet(uint32_t code, uint32_t signs, const int16_t *q)
{
    int32_t sum = 0;
    for (int i = 0; i < 8; i++) {
        int32_t v = iq2_levels[code >> 2 * i & 3] * q[i];
        sum += signs >> i & 1 ? -v : v;
    }
    return sum;
}

SCALAR_CLONES float scalar_dot_iq2_xxs(const void *w, struct dot_input in, int32_t n)
{
    const struct block_iq2_xxs *blocks = w;
    float acc = 0.0f;
    for (int32_t b = 0; b < n / 256; b++) {
        int32_t sum = 0;
        for (int k = 0; k < 8; k++) {
            const uint32_t index = blocks[b].group[k].a, signs = blocks[b].group[k].b;
            int32_t part = 0;
            for (int o = 0; o < 4; o++)
                part += sum_octet(iq2_xxs_codes[index >> 8 * o & 255], iq2_xxs_signs(signs >> 7 * o & 127),
                                  in.q.q + 256 * b + 32 * k + 8 * o);
            sum += (int32_t)(2 * (signs >> 28) + 1) * part;
        }
        acc = fmaf(f16_to_f32(blocks[b].d) * 0.125f * in.q.d[b], (float)sum, acc);
    }
    return acc;
}

SCALAR_CLONES float scalar_dot_iq2_s(const void *w, struct dot_input in, int32_t n)
{
    const struct block_iq2_s *blocks = w;
    float acc = 0.0f;
    for (int32_t b = 0; b < n / 256; b++) {
        int32_t sum = 0;
        for (int j = 0; j < 16; j++) { /* 16 values: octets 2j and 2j + 1 */
            int32_t part = 0;
            for (int o = 2 * j; o < 2 * j + 2; o++) {
                int index = blocks[b].idx[o] | (blocks[b].qh[o / 4] >> 2 * (o % 4) & 3) << 8;
                part += sum_octet(iq2_s_codes[index], blocks[b].sign[o], in.q.q + 256 * b + 8 * o);
            }
            sum += (2 * (blocks[b].sc[j / 2] >> 4 * (j & 1) & 15) + 1) * part;
        }
        acc = fmaf(f16_to_f32(blocks[b].d) * 0.125f * in.q.d[b], (float)sum, acc);
    }
    return acc;
}
