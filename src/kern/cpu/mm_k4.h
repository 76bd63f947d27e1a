/* Kernel for Q4_K. Template: mm_byte.h. */
#ifndef SKUA_KERN_CPU_MM_K4_H
#define SKUA_KERN_CPU_MM_K4_H

#define PART 32
#include "kern/cpu/mm_byte.h"

/* d, dmin and the packed pairs of six-bit scales and minima of eight parts, then nibbles: 64 values in 32 bytes, part 2g in the low
   halves and 2g + 1 in the high ones. */
static INLINE void unpack_q4_k(struct sink *s, struct tile_rows row, size_t offset)
{
    const vi six = v_set(0x3F3F3F3F), two = v_set(0x30303030), byte = v_set(0xFF);
    vi head[4];
    load_words(&s->ahead, row, offset, head);
    put_d(s, vf_from_low_f16(head[0]), vf_from_low_f16(v_srl(head[0], 16)));
    vi scale[8];
    vi sc[2] = {v_and(head[1], six), v_or(low_nibbles(head[3]), v_and(v_srl(head[1], 2), two))};
    vi mn[2] = {v_and(head[2], six), v_or(high_nibbles(head[3]), v_and(v_srl(head[2], 2), two))};
    UNROLL
    for (int j = 0; j < 8; j++)
        scale[j] = v_and(v_srl(sc[j / 4], 8 * (j % 4)), byte);
    UNROLL
    for (int j = 0; j < 2; j++) {
        vi pair[2];
        v_widen(mn[j], pair);
        put_min(s, 2 * j, pair[0]);
        put_min(s, 2 * j + 1, pair[1]);
    }
    ROLLED
    for (int g = 0; g < 4; g++) {
        vi q[8];
        load_words(&s->ahead, row, offset + 16 + 32 * (size_t)g, q);
        load_words(&s->ahead, row, offset + 32 + 32 * (size_t)g, q + 4);
        UNROLL
        for (int t = 0; t < 8; t++)
            put_quad(s, 16 * g + t, low_nibbles(q[t]));
        end_part(s, 2 * g, scale[2 * g]);
        UNROLL
        for (int t = 0; t < 8; t++)
            put_quad(s, 16 * g + 8 + t, high_nibbles(q[t]));
        end_part(s, 2 * g + 1, scale[2 * g + 1]);
    }
}

MM_BYTE_KERNEL(q4_k, 144)

#endif
