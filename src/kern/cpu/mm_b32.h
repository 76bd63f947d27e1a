/* Kernels for weight formats with blocks of 32 values and one scale per block. Template: mm_quant.h. */
#ifndef SKUA_KERN_CPU_MM_B32_H
#define SKUA_KERN_CPU_MM_B32_H

#define BLOCK 32
#include "kern/cpu/mm_quant.h"

/* f16 d, 32 signed bytes. */
static INLINE void unpack_q8_0(struct sink *s, const uint8_t *const row[LANES], size_t offset, int n_blocks)
{
    ROLLED
    for (int b = 0; b < n_blocks; b++, offset += 34) {
        put_d(s, b, load_f16(s, row, offset));
        UNROLL
        for (int c = 0; c < 2; c++) {
            vi q[4], pair[2];
            load_words(s, row, offset + 2 + 16 * (size_t)c, q);
            UNROLL
            for (int t = 0; t < 4; t++) {
                v_widen_signed(q[t], pair);
                put_pair(s, 16 * b + 8 * c + 2 * t, 0, pair[0], NULL, NULL);
                put_pair(s, 16 * b + 8 * c + 2 * t + 1, 1, pair[1], NULL, NULL);
            }
        }
        end_part(s, 0, NULL);
        end_part(s, 1, NULL);
    }
}

/* f16 d, 16 bytes of nibbles: value i in the low half of byte i, value i + 16 in the high half. Weight: code - 8. */
static INLINE void unpack_q4_0(struct sink *s, const uint8_t *const row[LANES], size_t offset, int n_blocks)
{
    const vi eight = v_set(0x00080008);
    ROLLED
    for (int b = 0; b < n_blocks; b++, offset += 18) {
        vi q[4];
        put_d(s, b, load_f16(s, row, offset));
        load_words(s, row, offset + 2, q);
        UNROLL
        for (int t = 0; t < 4; t++)
            put_nibbles(s, 16 * b + 2 * t, 8, 0, 1, q[t], &eight, NULL, NULL);
        end_part(s, 0, NULL);
        end_part(s, 1, NULL);
        put_offset(s, 0, v_sub16(v_zero(), eight));
    }
}

MM_QUANT_KERNEL(q8_0, 34, false)
MM_QUANT_KERNEL(q4_0, 18, false)

#endif
