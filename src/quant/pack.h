/* Inside src/quant: codes, one a byte, into the bit fields of blocks. Used by the reference quantizers and the vector ones. */
#ifndef SKUA_QUANT_PACK_H
#define SKUA_QUANT_PACK_H

#include <stdint.h>

#include "quant/blocks.h"

/* Split nibbles of 32 elements: j and j + 16 in byte j. */
static inline void pack_nibbles(const uint8_t *codes, uint8_t *qs)
{
    for (int j = 0; j < 16; j++)
        qs[j] = (uint8_t)((codes[j] & 15) | (codes[j + 16] & 15) << 4);
}

/* Bit 4 of the code of element j in bit j. */
static inline uint32_t pack_fifth_bits(const uint8_t *codes)
{
    uint32_t qh = 0;
    for (int j = 0; j < QK32; j++)
        qh |= (uint32_t)(codes[j] >> 4 & 1) << j;
    return qh;
}

/* Affine blocks of 64: consecutive elements from the low bits up; scale and bias are bf16. */
static inline void pack_q4_64a(uint16_t scale, uint16_t bias, const uint8_t *codes, struct block_q4_64a *b)
{
    b->scale = scale;
    b->bias = bias;
    for (int j = 0; j < QK64; j += 2)
        b->qs[j / 2] = (uint8_t)(codes[j] | codes[j + 1] << 4);
}

static inline void pack_q2_64a(uint16_t scale, uint16_t bias, const uint8_t *codes, struct block_q2_64a *b)
{
    b->scale = scale;
    b->bias = bias;
    for (int j = 0; j < QK64; j += 4)
        b->qs[j / 4] = (uint8_t)(codes[j] | codes[j + 1] << 2 | codes[j + 2] << 4 | codes[j + 3] << 6);
}

/* Two-bit fields of Q2_K and Q3_K: element 128h + 32k + l in bits 2k of byte 32h + l. */
static inline void pack_two_bits(const uint8_t *codes, uint8_t *qs)
{
    for (int h = 0; h < 2; h++)
        for (int l = 0; l < 32; l++) {
            const uint8_t *c = codes + 128 * h + l;
            qs[32 * h + l] = (uint8_t)((c[0] & 3) | (c[32] & 3) << 2 | (c[64] & 3) << 4 | (c[96] & 3) << 6);
        }
}

/* Nibbles of Q4_K and Q5_K: elements 64p + l and 64p + 32 + l in byte 32p + l. */
static inline void pack_four_bits(const uint8_t *codes, uint8_t *qs)
{
    for (int p = 0; p < 4; p++)
        for (int l = 0; l < 32; l++)
            qs[32 * p + l] = (uint8_t)((codes[64 * p + l] & 15) | (codes[64 * p + 32 + l] & 15) << 4);
}

/* Bit `bit` of the code of element 32k + l in bit k of byte l. */
static inline void pack_one_bit(const uint8_t *codes, int bit, uint8_t *high)
{
    for (int l = 0; l < 32; l++)
        high[l] = 0;
    for (int k = 0; k < 8; k++)
        for (int l = 0; l < 32; l++)
            high[l] = (uint8_t)(high[l] | (codes[32 * k + l] >> bit & 1) << k);
}

static inline void pack_pairs(const uint8_t *sc, const uint8_t *mn, uint8_t *c)
{
    for (int j = 0; j < 4; j++) {
        c[j] = (uint8_t)(sc[j] | (sc[j + 4] >> 4) << 6);
        c[j + 4] = (uint8_t)(mn[j] | (mn[j + 4] >> 4) << 6);
        c[j + 8] = (uint8_t)((sc[j + 4] & 15) | (mn[j + 4] & 15) << 4);
    }
}

#endif
