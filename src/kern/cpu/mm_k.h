/* Kernels for weight formats with blocks of 256 values whose sub-blocks have integer scales. Template: mm_quant.h. */
#ifndef SKUA_KERN_CPU_MM_K_H
#define SKUA_KERN_CPU_MM_K_H

#define BLOCK 256
#define OFFSETS 0
#include "kern/cpu/mm_quant.h"

/* The head: d, dmin and the packed scale pairs of eight 32-value sub-blocks. */
static INLINE void unpack_head_q5_k(struct sink *s, struct tile_rows row, size_t offset, vi scale[8])
{
    vi head[4];
    load_words(&s->ahead, row, offset, head);
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

static INLINE void unpack_q5_k(struct sink *s, struct tile_rows row, size_t offset, int n_blocks)
{
    (void)n_blocks;
    vi scale[8], bit = v_set(0x10101010), high[2][4];
    unpack_head_q5_k(s, row, offset, scale);
    load_words(&s->ahead, row, offset + 16, high[0]); /* bit j of byte l: the fifth bit of value l of sub-block j */
    load_words(&s->ahead, row, offset + 32, high[1]);
    ROLLED
    for (int g = 0; g < 4; g++) { /* 64 values: sub-block 2g in the low nibbles and bit 0 of `high`, 2g + 1 in the high ones and bit 1 */
        UNROLL
        for (int c = 0; c < 2; c++) {
            vi q[4];
            load_words(&s->ahead, row, offset + 48 + 32 * (size_t)g + 16 * (size_t)c, q);
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
    end_block(s, 0, true);
}

/* Sixteen scales of 16-value sub-blocks, each in both halves of a lane, from signed bytes. The offset of all codes, 2^log2_offset,
   is put too. */
static INLINE void put_scales16(struct sink *s, const vi bytes[4], int log2_offset, vi scale[16])
{
    vi pair[2];
    UNROLL
    for (int j = 0; j < 16; j++)
        scale[j] = v_byte_twice_signed(bytes[j / 4], j % 4);
    UNROLL
    for (int j = 0; j < 4; j++) {
        v_widen_signed(bytes[j], pair);
        UNROLL
        for (int i = 0; i < 2; i++)
            put_offset(s, 2 * j + i, v_sub16(v_zero(), v_sll16(pair[i], log2_offset)));
    }
}

static INLINE void unpack_q6_k(struct sink *s, struct tile_rows row, size_t offset, int n_blocks)
{
    (void)n_blocks;
    const vi two = v_set(0x30303030), offset32 = v_set(0x00200020);
    vi scale[16], bytes[4];
    put_d(s, 0, load_f16(&s->ahead, row, offset + 208));
    load_words(&s->ahead, row, offset + 192, bytes);
    put_scales16(s, bytes, 5, scale);
    ROLLED
    for (int c = 0; c < 4; c++) { /* half h = c / 2 of the block, values l of its four 32-value rows with l / 16 == c % 2 */
        const size_t part = 16 * (size_t)(c % 2), h = (size_t)(c / 2);
        const int at = 64 * (c / 2) + 8 * (c % 2);
        const vi *sc = scale + 8 * h + c % 2; /* of row k: sc[2k] */
        vi high[4], q[4];
        load_words(&s->ahead, row, offset + 128 + 32 * h + part, high);
        load_words(&s->ahead, row, offset + 64 * h + part, q);
        UNROLL
        for (int t = 0; t < 4; t++) {
            put_bytes(s, at + 2 * t, 0, v_or(low_nibbles(q[t]), v_and(v_sll(high[t], 4), two)), &offset32, &sc[0]);
            put_bytes(s, at + 32 + 2 * t, 1, v_or(high_nibbles(q[t]), v_and(high[t], two)), &offset32, &sc[4]);
        }
        end_part(s, 0, &sc[0]);
        end_part(s, 1, &sc[4]);
        load_words(&s->ahead, row, offset + 64 * h + 32 + part, q);
        UNROLL
        for (int t = 0; t < 4; t++) {
            put_bytes(s, at + 16 + 2 * t, 0, v_or(low_nibbles(q[t]), v_and(v_sll(high[t], 2), two)), &offset32, &sc[2]);
            put_bytes(s, at + 48 + 2 * t, 1, v_or(high_nibbles(q[t]), v_and(v_srl(high[t], 2), two)), &offset32, &sc[6]);
        }
        end_part(s, 0, &sc[2]);
        end_part(s, 1, &sc[6]);
    }
    end_block(s, 0, false);
}

/* Sixteen values each of the four 32-value rows of half h of the block, as Q2_K and Q3_K keep their low two bits: row k in bits 2k. */
static INLINE vi two_bits(vi q, int k)
{
    return v_and(v_srl(q, 2 * k), v_set(0x03030303));
}

static INLINE void unpack_q2_k(struct sink *s, struct tile_rows row, size_t offset, int n_blocks)
{
    (void)n_blocks;
    vi scale[16], head[4], pair[2];
    vi both = load_word(&s->ahead, row, offset + 80);
    put_d(s, 0, vf_from_low_f16(both));
    put_dmin(s, vf_from_low_f16(v_srl(both, 16)));
    load_words(&s->ahead, row, offset, head); /* low nibbles: scales, high ones: minima */
    UNROLL
    for (int j = 0; j < 4; j++) {
        v_widen(high_nibbles(head[j]), pair);
        put_min(s, 2 * j, pair[0]);
        put_min(s, 2 * j + 1, pair[1]);
    }
    UNROLL
    for (int j = 0; j < 16; j++)
        scale[j] = v_byte_twice(low_nibbles(head[j / 4]), j % 4);
    ROLLED
    for (int c = 0; c < 4; c++) { /* as in Q6_K */
        const int at = 64 * (c / 2) + 8 * (c % 2);
        const vi *sc = scale + 8 * (c / 2) + c % 2; /* of row k: sc[2k] */
        vi q[4];
        load_words(&s->ahead, row, offset + 16 + 32 * (size_t)(c / 2) + 16 * (size_t)(c % 2), q);
        UNROLL
        for (int k = 0; k < 4; k++) {
            UNROLL
            for (int t = 0; t < 4; t++)
                put_bytes(s, at + 16 * k + 2 * t, k % 2, two_bits(q[t], k), NULL, &sc[2 * k]);
            end_part(s, k % 2, &sc[2 * k]);
        }
    }
    end_block(s, 0, true);
}

/* The sixteen 6-bit scales of Q3_K as signed bytes, and d. */
static INLINE void unpack_head_q3_k(struct sink *s, struct tile_rows row, size_t offset, vi bytes[4])
{
    const vi two = v_set(0x30303030), bias = v_set(0x20202020);
    vi w[4], c[3];
    load_words(&s->ahead, row, offset + 94, w); /* two bytes of codes, twelve of scales, d */
    put_d(s, 0, vf_from_low_f16(v_srl(w[3], 16)));
    UNROLL
    for (int i = 0; i < 3; i++)
        c[i] = v_or(v_srl(w[i], 16), v_sll(w[i + 1], 16));
    bytes[0] = v_or(low_nibbles(c[0]), v_and(v_sll(c[2], 4), two));
    bytes[1] = v_or(low_nibbles(c[1]), v_and(v_sll(c[2], 2), two));
    bytes[2] = v_or(high_nibbles(c[0]), v_and(c[2], two));
    bytes[3] = v_or(high_nibbles(c[1]), v_and(v_srl(c[2], 2), two));
    UNROLL
    for (int j = 0; j < 4; j++) { /* minus 32 in each byte: 0..63 with bit 5 flipped, its sign extended over bits 6 and 7 */
        vi flipped = v_xor(bytes[j], bias), sign = v_and(flipped, bias);
        bytes[j] = v_or(flipped, v_or(v_sll(sign, 1), v_sll(sign, 2)));
    }
}

static INLINE void unpack_q3_k(struct sink *s, struct tile_rows row, size_t offset, int n_blocks)
{
    (void)n_blocks;
    const vi offset4 = v_set(0x00040004), third = v_set(0x04040404);
    vi scale[16], bytes[4], high[2][4]; /* bit j of byte l: the third bit of value l of 32-value row j */
    unpack_head_q3_k(s, row, offset, bytes);
    put_scales16(s, bytes, 2, scale);
    load_words(&s->ahead, row, offset, high[0]);
    load_words(&s->ahead, row, offset + 16, high[1]);
    ROLLED
    for (int c = 0; c < 4; c++) { /* as in Q6_K; bits 0 to 3 of `high` are those of the rows of this half */
        const int at = 64 * (c / 2) + 8 * (c % 2);
        const vi *sc = scale + 8 * (c / 2) + c % 2;
        vi *h = high[c % 2], q[4];
        load_words(&s->ahead, row, offset + 32 + 32 * (size_t)(c / 2) + 16 * (size_t)(c % 2), q);
        UNROLL
        for (int k = 0; k < 4; k++) {
            UNROLL
            for (int t = 0; t < 4; t++) {
                vi bit = v_and(k < 2 ? v_sll(h[t], 2 - k) : v_srl(h[t], k - 2), third);
                put_bytes(s, at + 16 * k + 2 * t, k % 2, v_or(two_bits(q[t], k), bit), &offset4, &sc[2 * k]);
            }
            end_part(s, k % 2, &sc[2 * k]);
        }
        UNROLL
        for (int t = 0; t < 4; t++)
            h[t] = v_srl(h[t], 4);
    }
    end_block(s, 0, false);
}

MM_QUANT_KERNEL(q2_k, 256, 84, true)
MM_QUANT_KERNEL(q3_k, 256, 110, false)
MM_TILED_QUANT_KERNEL(q5_k, 256, 176, true)
MM_TILED_QUANT_KERNEL(q6_k, 256, 210, false)

#endif
