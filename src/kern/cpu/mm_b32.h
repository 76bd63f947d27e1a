/* Kernels for weight formats with blocks of 32 values and one scale per block. Template: mm_quant.h. */
#ifndef SKUA_KERN_CPU_MM_B32_H
#define SKUA_KERN_CPU_MM_B32_H

#define BLOCK 32
#define OFFSETS 0
#include "kern/cpu/mm_quant.h"
#include "quant/blocks.h"
#include "quant/half.h"

/* f16 d, 32 signed bytes. */
static INLINE void unpack_q8_0(struct sink *s, struct tile_rows row, size_t offset, int n_blocks)
{
    ROLLED
    for (int b = 0; b < n_blocks; b++, offset += 34) {
        put_d(s, b, load_f16(&s->ahead, row, offset));
        UNROLL
        for (int c = 0; c < 2; c++) {
            vi q[4], pair[2];
            load_words(&s->ahead, row, offset + 2 + 16 * (size_t)c, q);
            UNROLL
            for (int t = 0; t < 4; t++) {
                v_widen_signed(q[t], pair);
                put_pair(s, 16 * b + 8 * c + 2 * t, 0, pair[0], NULL, NULL);
                put_pair(s, 16 * b + 8 * c + 2 * t + 1, 1, pair[1], NULL, NULL);
            }
        }
        end_part(s, 0, NULL);
        end_part(s, 1, NULL);
        end_block(s, b, false);
    }
}

/* f16 d, 16 bytes of nibbles: value i in the low half of byte i, value i + 16 in the high half. Weight: code - 8. */
static INLINE void unpack_q4_0(struct sink *s, struct tile_rows row, size_t offset, int n_blocks)
{
    const vi eight = v_set(0x00080008);
    ROLLED
    for (int b = 0; b < n_blocks; b++, offset += 18) {
        vi q[4];
        put_d(s, b, load_f16(&s->ahead, row, offset));
        load_words(&s->ahead, row, offset + 2, q);
        UNROLL
        for (int t = 0; t < 4; t++)
            put_nibbles(s, 16 * b + 2 * t, 8, 0, 1, q[t], &eight, NULL, NULL);
        end_part(s, 0, NULL);
        end_part(s, 1, NULL);
        put_offset(s, b, v_sub16(v_zero(), eight));
        end_block(s, b, false);
    }
}

/* As Q4_0 with a word of fifth bits, value i in bit i. Weight: code - 16. */
static INLINE void unpack_q5_0(struct sink *s, struct tile_rows row, size_t offset, int n_blocks)
{
    const vi sixteen = v_set(0x00100010);
    ROLLED
    for (int b = 0; b < n_blocks; b++, offset += 22) {
        vi q[4];
        put_d(s, b, load_f16(&s->ahead, row, offset));
        vi fifth = load_word(&s->ahead, row, offset + 2);
        load_words(&s->ahead, row, offset + 6, q);
        UNROLL
        for (int t = 0; t < 4; t++) {
            vi low = v_or(low_nibbles(q[t]), v_sll(spread_bits(fifth, t), 4));
            vi high = v_or(high_nibbles(q[t]), v_sll(spread_bits(fifth, t + 4), 4));
            put_bytes(s, 16 * b + 2 * t, 0, low, &sixteen, NULL);
            put_bytes(s, 16 * b + 8 + 2 * t, 1, high, &sixteen, NULL);
        }
        end_part(s, 0, NULL);
        end_part(s, 1, NULL);
        put_offset(s, b, v_sub16(v_zero(), sixteen));
        end_block(s, b, false);
    }
}

/* 16 bytes of nibbles at `offset`, laid out as in Q4_0, that stand for the values of a table. */
static INLINE void unpack_looked_up(struct sink *s, struct tile_rows row, size_t offset, const int8_t table[16], int b)
{
    vi q[4];
    load_words(&s->ahead, row, offset, q);
    UNROLL
    for (int t = 0; t < 4; t++) {
        put_signed_bytes(s, 16 * b + 2 * t, 0, v_lookup(table, low_nibbles(q[t])), NULL);
        put_signed_bytes(s, 16 * b + 8 + 2 * t, 1, v_lookup(table, high_nibbles(q[t])), NULL);
    }
    end_part(s, 0, NULL);
    end_part(s, 1, NULL);
    end_block(s, b, false);
}

static INLINE void unpack_iq4_nl(struct sink *s, struct tile_rows row, size_t offset, int n_blocks)
{
    ROLLED
    for (int b = 0; b < n_blocks; b++, offset += 18) {
        put_d(s, b, load_f16(&s->ahead, row, offset));
        unpack_looked_up(s, row, offset + 2, nl4_values, b);
    }
}

/* A byte of exponent: 2^(e - 128), see e8m0_half_to_f32. */
static INLINE vf load_e8m0(struct sink *s, struct tile_rows row, size_t offset)
{
    float d[LANES];
    prefetch_next(&s->ahead, 1);
    UNROLL
    for (int i = 0; i < LANES; i++)
        d[i] = e8m0_half_to_f32(row.first[(size_t)i * row.stride + offset]);
    return vf_load(d);
}

static INLINE void unpack_mxfp4(struct sink *s, struct tile_rows row, size_t offset, int n_blocks)
{
    ROLLED
    for (int b = 0; b < n_blocks; b++, offset += 17) {
        put_d(s, b, load_e8m0(s, row, offset));
        unpack_looked_up(s, row, offset + 1, fp4_values, b);
    }
}

MM_QUANT_KERNEL(q8_0, 32, 34, false)
MM_QUANT_KERNEL(q4_0, 32, 18, false)
MM_QUANT_KERNEL(q5_0, 32, 22, false)
MM_QUANT_KERNEL(iq4_nl, 32, 18, false)
MM_QUANT_KERNEL(mxfp4, 32, 17, false)

#endif
