/* Kernels for weight formats with blocks of 256 values whose sub-blocks have integer scales. Template: mm_quant.h. */
#ifndef SKUA_KERN_CPU_MM_K_H
#define SKUA_KERN_CPU_MM_K_H

#define BLOCK 256
#include "kern/cpu/mm_quant.h"

/* The common head of Q4_K and Q5_K: d, dmin and the packed scale pairs of eight 32-value sub-blocks. */
static INLINE void unpack_head_k45(struct sink *s, const uint8_t *const row[LANES], size_t offset, vi scale[8])
{
    vi head[4];
    load_words(s, row, offset, head);
    put_d(s, 0, vf_from_low_f16(head[0]));
    put_dmin(s, vf_from_low_f16(v_srl(head[0], 16)));
    vi six = v_set(0x3F3F3F3F), two = v_set(0x30303030);
    vi sc[2] = {v_and(head[1], six), v_or(low_nibbles(head[3]), v_and(v_srl(head[1], 2), two))};
    vi mn[2] = {v_and(head[2], six), v_or(high_nibbles(head[3]), v_and(v_srl(head[2], 2), two))};
    UNROLL
    for (int j = 0; j < 8; j++) {
        scale[j] = v_byte_twice(sc[j / 4], j % 4);
        put_min(s, j, v_byte_twice(mn[j / 4], j % 4));
    }
}

static INLINE void unpack_q4_k(struct sink *s, const uint8_t *const row[LANES], size_t offset, int n_blocks)
{
    (void)n_blocks; /* always 1 */
    vi scale[8];
    unpack_head_k45(s, row, offset, scale);
    ROLLED
    for (int g = 0; g < 4; g++) { /* 64 values: sub-block 2g in the low nibbles, 2g + 1 in the high ones */
        UNROLL
        for (int c = 0; c < 2; c++) {
            vi q[4];
            load_words(s, row, offset + 16 + 32 * (size_t)g + 16 * (size_t)c, q);
            UNROLL
            for (int t = 0; t < 4; t++)
                put_nibbles(s, 32 * g + 8 * c + 2 * t, 16, 0, 1, q[t], NULL, &scale[2 * g], &scale[2 * g + 1]);
        }
        end_part(s, 0, &scale[2 * g]);
        end_part(s, 1, &scale[2 * g + 1]);
    }
}

static INLINE void unpack_q5_k(struct sink *s, const uint8_t *const row[LANES], size_t offset, int n_blocks)
{
    (void)n_blocks;
    vi scale[8], bit = v_set(0x10101010), high[2][4];
    unpack_head_k45(s, row, offset, scale);
    load_words(s, row, offset + 16, high[0]); /* bit j of byte l: the fifth bit of value l of sub-block j */
    load_words(s, row, offset + 32, high[1]);
    ROLLED
    for (int g = 0; g < 4; g++) { /* as in Q4_K; bits 0 and 1 of `high` are those of sub-blocks 2g and 2g + 1 */
        UNROLL
        for (int c = 0; c < 2; c++) {
            vi q[4];
            load_words(s, row, offset + 48 + 32 * (size_t)g + 16 * (size_t)c, q);
            UNROLL
            for (int t = 0; t < 4; t++) {
                vi even = v_and(v_sll(high[c][t], 4), bit), odd = v_and(v_sll(high[c][t], 3), bit);
                int at = 32 * g + 8 * c + 2 * t;
                put_bytes(s, at, 0, v_or(low_nibbles(q[t]), even), NULL, &scale[2 * g]);
                put_bytes(s, at + 16, 1, v_or(high_nibbles(q[t]), odd), NULL, &scale[2 * g + 1]);
                high[c][t] = v_srl(high[c][t], 2);
            }
        }
        end_part(s, 0, &scale[2 * g]);
        end_part(s, 1, &scale[2 * g + 1]);
    }
}

/* Sixteen signed scale bytes at `offset`, each in both halves of a lane. The offset of all codes, 2^log2_offset, is put too. */
static INLINE void unpack_scales16(struct sink *s, const uint8_t *const row[LANES], size_t offset, int log2_offset,
                                   vi scale[16])
{
    vi sc[4], pair[2];
    load_words(s, row, offset, sc);
    UNROLL
    for (int j = 0; j < 16; j++)
        scale[j] = v_byte_twice_signed(sc[j / 4], j % 4);
    UNROLL
    for (int j = 0; j < 4; j++) {
        v_widen_signed(sc[j], pair);
        UNROLL
        for (int i = 0; i < 2; i++)
            put_offset(s, 2 * j + i, v_sub16(v_zero(), v_sll16(pair[i], log2_offset)));
    }
}

static INLINE void unpack_q6_k(struct sink *s, const uint8_t *const row[LANES], size_t offset, int n_blocks)
{
    (void)n_blocks;
    const vi two = v_set(0x30303030), offset32 = v_set(0x00200020);
    vi scale[16];
    put_d(s, 0, load_f16(s, row, offset + 208));
    unpack_scales16(s, row, offset + 192, 5, scale);
    ROLLED
    for (int c = 0; c < 4; c++) { /* half h = c / 2 of the block, values l of its four 32-value rows with l / 16 == c % 2 */
        const size_t part = 16 * (size_t)(c % 2), h = (size_t)(c / 2);
        const int at = 64 * (c / 2) + 8 * (c % 2);
        const vi *sc = scale + 8 * h + c % 2; /* of row k: sc[2k] */
        vi high[4], q[4];
        load_words(s, row, offset + 128 + 32 * h + part, high);
        load_words(s, row, offset + 64 * h + part, q);
        UNROLL
        for (int t = 0; t < 4; t++) {
            put_bytes(s, at + 2 * t, 0, v_or(low_nibbles(q[t]), v_and(v_sll(high[t], 4), two)), &offset32, &sc[0]);
            put_bytes(s, at + 32 + 2 * t, 1, v_or(high_nibbles(q[t]), v_and(high[t], two)), &offset32, &sc[4]);
        }
        end_part(s, 0, &sc[0]);
        end_part(s, 1, &sc[4]);
        load_words(s, row, offset + 64 * h + 32 + part, q);
        UNROLL
        for (int t = 0; t < 4; t++) {
            put_bytes(s, at + 16 + 2 * t, 0, v_or(low_nibbles(q[t]), v_and(v_sll(high[t], 2), two)), &offset32, &sc[2]);
            put_bytes(s, at + 48 + 2 * t, 1, v_or(high_nibbles(q[t]), v_and(v_srl(high[t], 2), two)), &offset32, &sc[6]);
        }
        end_part(s, 0, &sc[2]);
        end_part(s, 1, &sc[6]);
    }
}

MM_QUANT_KERNEL(q4_k, 144, true)
MM_QUANT_KERNEL(q5_k, 176, true)
MM_QUANT_KERNEL(q6_k, 210, false)

#endif
