/* Kernels for the weight format with a scale per 16 values. Template: mm_quant.h. */
#ifndef SKUA_KERN_CPU_MM_B16_H
#define SKUA_KERN_CPU_MM_B16_H

#define BLOCK 16
#define OFFSETS 0
#include "kern/cpu/mm_quant.h"
#include "quant/blocks.h"

/* Byte i of every lane as a group scale, ue4m3_half_to_f32: the low seven bits are the bits of a binary16 number that is 2^7 times
   smaller; 0x7F (but not 0xFF) stands for 0. */
static INLINE vf ue4m3_half(vi bytes, int i)
{
    vi byte = v_clear_equal(v_and(v_srl(bytes, 8 * i), v_set(0xFF)), 0x7F);
    return vf_mul(vf_from_low_f16(v_sll(v_and(byte, v_set(0x7F)), 7)), vf_set(128.0f));
}

/* Four scale bytes, then 8 bytes of nibbles per group of 16: value i in the low half of byte i, value i + 8 in the high half. */
static INLINE void unpack_nvfp4(struct sink *s, struct tile_rows row, size_t offset, int n_blocks)
{
    ROLLED
    for (int b = 0; b < n_blocks; b++, offset += 36) {
        vi scales = load_word(&s->ahead, row, offset);
        UNROLL
        for (int i = 0; i < 2; i++) {
            vi q[4];
            load_words(&s->ahead, row, offset + 4 + 16 * (size_t)i, q);
            UNROLL
            for (int j = 0; j < 2; j++) {
                const int g = 2 * i + j, at = 32 * b + 8 * g;
                put_d(s, 4 * b + g, ue4m3_half(scales, g));
                UNROLL
                for (int t = 0; t < 2; t++) {
                    put_signed_bytes(s, at + 2 * t, 0, v_lookup(fp4_values, low_nibbles(q[2 * j + t])), NULL);
                    put_signed_bytes(s, at + 4 + 2 * t, 1, v_lookup(fp4_values, high_nibbles(q[2 * j + t])), NULL);
                }
                end_part(s, 0, NULL);
                end_part(s, 1, NULL);
                end_block(s, 4 * b + g, false);
            }
        }
    }
}

MM_QUANT_KERNEL(nvfp4, 64, 36, false)

#endif
