/* Kernels for weight formats that have a scale and an offset per block: 32 values, or 64 that count as two blocks with the same
   scale and offset. Weight: code * d + m. Template: mm_quant.h. */
#ifndef SKUA_KERN_CPU_MM_AFFINE_H
#define SKUA_KERN_CPU_MM_AFFINE_H

#define BLOCK 32
#define OFFSETS 1
#include "kern/cpu/mm_quant.h"

/* f16 d, f16 m. */
static INLINE void unpack_head_f16(struct sink *s, struct tile_rows row, size_t offset, int b)
{
    vi head = load_word(&s->ahead, row, offset);
    put_d(s, b, vf_from_low_f16(head));
    put_m(s, b, vf_from_low_f16(v_srl(head, 16)));
}

/* 16 bytes of nibbles: value i in the low half of byte i, value i + 16 in the high half. */
static INLINE void unpack_q4_1(struct sink *s, struct tile_rows row, size_t offset, int n_blocks)
{
    ROLLED
    for (int b = 0; b < n_blocks; b++, offset += 20) {
        vi q[4];
        unpack_head_f16(s, row, offset, b);
        load_words(&s->ahead, row, offset + 4, q);
        UNROLL
        for (int t = 0; t < 4; t++)
            put_nibbles(s, 16 * b + 2 * t, 8, 0, 1, q[t], NULL, NULL, NULL);
        end_part(s, 0, NULL);
        end_part(s, 1, NULL);
        end_block(s, b, false);
    }
}

/* The same with a word of fifth bits before the nibbles, value i in bit i. */
static INLINE void unpack_q5_1(struct sink *s, struct tile_rows row, size_t offset, int n_blocks)
{
    ROLLED
    for (int b = 0; b < n_blocks; b++, offset += 24) {
        vi q[4];
        unpack_head_f16(s, row, offset, b);
        vi fifth = load_word(&s->ahead, row, offset + 4);
        load_words(&s->ahead, row, offset + 8, q);
        UNROLL
        for (int t = 0; t < 4; t++) {
            vi low = v_or(low_nibbles(q[t]), v_sll(spread_bits(fifth, t), 4));
            vi high = v_or(high_nibbles(q[t]), v_sll(spread_bits(fifth, t + 4), 4));
            put_bytes(s, 16 * b + 2 * t, 0, low, NULL, NULL);
            put_bytes(s, 16 * b + 8 + 2 * t, 1, high, NULL, NULL);
        }
        end_part(s, 0, NULL);
        end_part(s, 1, NULL);
        end_block(s, b, false);
    }
}

/* bf16 scale and bias, for blocks 2b and 2b + 1. */
static INLINE void unpack_head_bf16(struct sink *s, struct tile_rows row, size_t offset, int b)
{
    vi head = load_word(&s->ahead, row, offset);
    UNROLL
    for (int i = 0; i < 2; i++) {
        put_d(s, 2 * b + i, vf_from_bits(v_sll(head, 16)));
        put_m(s, 2 * b + i, vf_from_bits(v_and(head, v_set((int32_t)0xFFFF0000u))));
    }
}

/* 32 bytes of nibbles in sequence, the even value in the low half. */
static INLINE void unpack_q4_64a(struct sink *s, struct tile_rows row, size_t offset, int n_blocks)
{
    ROLLED
    for (int b = 0; b < n_blocks; b++, offset += 36) {
        unpack_head_bf16(s, row, offset + 32, b);
        UNROLL
        for (int i = 0; i < 2; i++) {
            vi q[4];
            load_words(&s->ahead, row, offset + 16 * (size_t)i, q);
            UNROLL
            for (int t = 0; t < 16; t++) { /* byte t of the 16: a pair of codes */
                vi byte = v_and(v_srl(q[t / 4], 8 * (t % 4)), v_set(0xFF));
                vi pair = v_and(v_or(byte, v_sll(byte, 12)), v_set(0x000F000F));
                put_pair(s, 32 * b + 16 * i + t, t % 2, pair, NULL, NULL);
            }
            end_part(s, 0, NULL);
            end_part(s, 1, NULL);
            end_block(s, 2 * b + i, false);
        }
    }
}

/* 16 bytes of 2-bit codes in sequence, from the lowest bits. */
static INLINE void unpack_q2_64a(struct sink *s, struct tile_rows row, size_t offset, int n_blocks)
{
    ROLLED
    for (int b = 0; b < n_blocks; b++, offset += 20) {
        vi q[4];
        load_words(&s->ahead, row, offset, q);
        unpack_head_bf16(s, row, offset + 16, b);
        UNROLL
        for (int i = 0; i < 2; i++) {
            UNROLL
            for (int t = 0; t < 16; t++) { /* nibble t of the 16: a pair of codes */
                vi nibble = v_and(v_srl(q[2 * i + t / 8], 4 * (t % 8)), v_set(0xF));
                vi pair = v_and(v_or(nibble, v_sll(nibble, 14)), v_set(0x00030003));
                put_pair(s, 32 * b + 16 * i + t, t % 2, pair, NULL, NULL);
            }
            end_part(s, 0, NULL);
            end_part(s, 1, NULL);
            end_block(s, 2 * b + i, false);
        }
    }
}

MM_QUANT_KERNEL(q4_1, 32, 20, false)
MM_QUANT_KERNEL(q5_1, 32, 24, false)
MM_QUANT_KERNEL(q4_64a, 64, 36, false)
MM_QUANT_KERNEL(q2_64a, 64, 20, false)

#endif
