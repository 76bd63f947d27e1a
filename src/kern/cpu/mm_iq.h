/* Kernels for the codebook formats with blocks of 256 values. Template: mm_quant.h. */
#ifndef SKUA_KERN_CPU_MM_IQ_H
#define SKUA_KERN_CPU_MM_IQ_H

#define BLOCK 256
#define OFFSETS 0
#include "kern/cpu/mm_quant.h"
#include "quant/blocks.h"
#include "quant/iq2_grid.h"

/* A small number in the low half of every lane, in both halves. */
static INLINE vi twice(vi a)
{
    return v_or(v_and(a, v_set(0xFFFF)), v_sll(a, 16));
}

/* f16 d, eight 6-bit scales, and 16 bytes of nibbles per 32 values, laid out as in Q4_0, that stand for the values of a table. */
static INLINE void unpack_iq4_xs(struct sink *s, struct tile_rows row, size_t offset, int n_blocks)
{
    (void)n_blocks; /* always 1 */
    vi head = load_word(&s->ahead, row, offset), low = load_word(&s->ahead, row, offset + 4), scale[8];
    put_d(s, 0, vf_from_low_f16(head));
    UNROLL
    for (int g = 0; g < 8; g++) {
        vi six = v_or(v_and(v_srl(low, 4 * g), v_set(15)), v_sll(v_and(v_srl(head, 16 + 2 * g), v_set(3)), 4));
        scale[g] = twice(v_add(six, v_set(-32)));
    }
    ROLLED
    for (int g = 0; g < 8; g++) {
        vi q[4];
        load_words(&s->ahead, row, offset + 8 + 16 * (size_t)g, q);
        UNROLL
        for (int t = 0; t < 4; t++) {
            put_signed_bytes(s, 16 * g + 2 * t, 0, v_lookup(nl4_values, low_nibbles(q[t])), &scale[g]);
            put_signed_bytes(s, 16 * g + 8 + 2 * t, 1, v_lookup(nl4_values, high_nibbles(q[t])), &scale[g]);
        }
        end_part(s, 0, &scale[g]);
        end_part(s, 1, &scale[g]);
    }
    end_block(s, 0, false);
}

/* Eight values at pair t: the magnitudes of codebook entry `index` with the signs of the low byte of `signs`. */
static INLINE void put_octet(struct sink *s, int t, int k, const uint16_t *codes, vi index, vi signs, const vi *scale)
{
    static const int8_t levels[16] = {8, 25, 43};
    vi code = v_gather16(codes, index);
    UNROLL
    for (int i = 0; i < 2; i++) {
        vi digits = v_and(v_srl(code, 8 * i), v_set(0xFF)); /* four, two bits each; then one in each byte */
        digits = v_and(v_or(digits, v_sll(digits, 12)), v_set(0x000F000F));
        digits = v_and(v_or(digits, v_sll(digits, 6)), v_set(0x03030303));
        vi negative = spread_bits(signs, i), all = v_sub(v_sll(negative, 8), negative); /* 1 and 0xFF in negative bytes */
        put_signed_bytes(s, t + 2 * i, k, v_add(v_xor(v_lookup(levels, digits), all), negative), scale); /* no byte is 0: no carry */
    }
}

/* f16 d; per 32 values a word of four indices and a word of four times seven sign bits and a scale nibble. */
static INLINE void unpack_iq2_xxs(struct sink *s, struct tile_rows row, size_t offset, int n_blocks)
{
    (void)n_blocks;
    put_d(s, 0, vf_mul(load_f16(&s->ahead, row, offset), vf_set(0.125f)));
    ROLLED
    for (int i = 0; i < 4; i++) { /* 64 values */
        vi w[4];
        load_words(&s->ahead, row, offset + 2 + 16 * (size_t)i, w);
        UNROLL
        for (int k = 0; k < 2; k++) {
            vi index = w[2 * k], signs = w[2 * k + 1];
            vi scale = twice(v_add(v_sll(v_srl(signs, 28), 1), v_set(1)));
            UNROLL
            for (int o = 0; o < 4; o++) {
                vi seven = v_and(v_srl(signs, 7 * o), v_set(127)), parity = v_xor(seven, v_srl(seven, 4));
                parity = v_xor(parity, v_srl(parity, 2));
                parity = v_and(v_xor(parity, v_srl(parity, 1)), v_set(1));
                put_octet(s, 32 * i + 16 * k + 4 * o, k, iq2_xxs_codes, v_and(v_srl(index, 8 * o), v_set(255)),
                          v_or(seven, v_sll(parity, 7)), &scale);
            }
            end_part(s, k, &scale);
        }
    }
    end_block(s, 0, false);
}

/* f16 d, 32 low bytes of indices, 32 sign bytes, 8 bytes of high index bits, 8 of scale nibbles. */
static INLINE void unpack_iq2_s(struct sink *s, struct tile_rows row, size_t offset, int n_blocks)
{
    (void)n_blocks;
    vi tail[4], high[2], scales[2];
    put_d(s, 0, vf_mul(load_f16(&s->ahead, row, offset), vf_set(0.125f)));
    load_words(&s->ahead, row, offset + 66, tail);
    high[0] = tail[0], high[1] = tail[1], scales[0] = tail[2], scales[1] = tail[3];
    ROLLED
    for (int i = 0; i < 2; i++) { /* 128 values */
        vi low[4], signs[4];
        load_words(&s->ahead, row, offset + 2 + 16 * (size_t)i, low);
        load_words(&s->ahead, row, offset + 34 + 16 * (size_t)i, signs);
        UNROLL
        for (int k = 0; k < 4; k++) { /* 32 values: byte k of the words of `high` and `scales` */
            UNROLL
            for (int j = 0; j < 2; j++) {
                vi nibble = v_and(v_srl(scales[i], 8 * k + 4 * j), v_set(15));
                vi scale = twice(v_add(v_sll(nibble, 1), v_set(1)));
                UNROLL
                for (int o = 2 * j; o < 2 * j + 2; o++) {
                    vi top = v_sll(v_and(v_srl(high[i], 8 * k + 2 * o), v_set(3)), 8);
                    put_octet(s, 64 * i + 16 * k + 4 * o, j, iq2_s_codes, v_or(v_and(v_srl(low[k], 8 * o), v_set(255)), top),
                              v_and(v_srl(signs[k], 8 * o), v_set(255)), &scale);
                }
                end_part(s, j, &scale);
            }
        }
    }
    end_block(s, 0, false);
}

MM_QUANT_KERNEL(iq4_xs, 256, 136, false)
MM_QUANT_KERNEL(iq2_xxs, 256, 66, false)
MM_QUANT_KERNEL(iq2_s, 256, 82, false)

#endif
