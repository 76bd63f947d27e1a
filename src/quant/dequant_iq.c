/* Codebook types -> floats: IQ4_NL and IQ4_XS (sixteen levels), IQ2_XXS and IQ2_S (codebooks of octets, iq2_grid.h). */
#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/half.h"
#include "quant/iq2_grid.h"

const int8_t nl4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void expand_nl4(const uint8_t qs[16], float d, float out[32])
{
    for (int j = 0; j < 16; j++) {
        out[j] = d * (float)nl4_values[qs[j] & 15];
        out[j + 16] = d * (float)nl4_values[qs[j] >> 4];
    }
}

void dequant_iq4_nl(const void *row, float *out, int64_t blocks)
{
    const struct block_iq4_nl *b = row;
    for (int64_t i = 0; i < blocks; i++, b++, out += QK32)
        expand_nl4(b->qs, f16_to_f32(b->d), out);
}

void dequant_iq4_xs(const void *row, float *out, int64_t blocks)
{
    const struct block_iq4_xs *b = row;
    for (int64_t i = 0; i < blocks; i++, b++) {
        float d = f16_to_f32(b->d);
        for (int g = 0; g < 8; g++, out += 32) {
            int ls = (b->sl[g / 2] >> 4 * (g & 1) & 15) | (b->sh >> 2 * g & 3) << 4;
            expand_nl4(b->qs + 16 * g, d * (float)(ls - 32), out);
        }
    }
}

static void expand_octet(uint16_t code, uint8_t signs, float db, float out[8])
{
    for (int j = 0; j < 8; j++) {
        float value = db * (float)iq2_levels[code >> 2 * j & 3];
        out[j] = signs >> j & 1 ? -value : value;
    }
}

void dequant_iq2_xxs(const void *row, float *out, int64_t blocks)
{
    const struct block_iq2_xxs *b = row;
    for (int64_t i = 0; i < blocks; i++, b++) {
        float d = f16_to_f32(b->d);
        for (int k = 0; k < 8; k++) {
            uint32_t indices = b->group[k].a, word = b->group[k].b;
            float db = d * (0.5f + (float)(word >> 28)) * 0.25f;
            for (int o = 0; o < 4; o++, out += 8)
                expand_octet(iq2_xxs_codes[indices >> 8 * o & 255], iq2_xxs_signs(word >> 7 * o & 127), db, out);
        }
    }
}

void dequant_iq2_s(const void *row, float *out, int64_t blocks)
{
    const struct block_iq2_s *b = row;
    for (int64_t i = 0; i < blocks; i++, b++) {
        float d = f16_to_f32(b->d);
        for (int o = 0; o < 32; o++, out += 8) {
            int index = b->idx[o] | (b->qh[o / 4] >> 2 * (o % 4) & 3) << 8;
            int s = b->sc[o / 4] >> (o % 4 < 2 ? 0 : 4) & 15;
            expand_octet(iq2_s_codes[index], b->sign[o], d * (0.5f + (float)s) * 0.25f, out);
        }
    }
}
