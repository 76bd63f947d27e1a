/* Block formats as they lie in a file: one packed struct per type, little-endian fields, no padding, any alignment.
   A block holds a fixed number of consecutive elements of one row; rows follow each other without gaps.
   f16 and bf16 fields are raw bits (quant/half.h). The value formula of element i stands beside each struct; every
   operation in it is rounded to binary32 separately.

   "Split nibbles": byte j of 16 holds element j in the low and element j + 16 in the high nibble. */
#ifndef SKUA_QUANT_BLOCKS_H
#define SKUA_QUANT_BLOCKS_H

#include <stdint.h>

#define QK32  32  /* elements of a simple block */
#define QK64  64  /* elements of an NVFP4 or affine block */
#define QK256 256 /* elements of a super-block */

#define BLOCK_SIZE_IS(name, size) _Static_assert(sizeof(struct name) == (size), #name " must be " #size " bytes")
#define BLOCK_PACKED __attribute__((packed))

/* What 4-bit codes stand for in some formats. */
extern const int8_t fp4_values[16]; /* E2M1, doubled; code 8 (minus zero) is plain zero */
extern const int8_t nl4_values[16]; /* IQ4_NL and IQ4_XS, ascending */

/* ---- 32 elements ---- */

struct block_q4_0 { /* (code - 8) * d; split nibbles */
    uint16_t d;
    uint8_t qs[16];
} BLOCK_PACKED;
BLOCK_SIZE_IS(block_q4_0, 18);

struct block_q4_1 { /* code * d + m; split nibbles */
    uint16_t d, m;
    uint8_t qs[16];
} BLOCK_PACKED;
BLOCK_SIZE_IS(block_q4_1, 20);

struct block_q5_0 { /* (code - 16) * d; split nibbles, fifth bit of element j in bit j of qh */
    uint16_t d;
    uint32_t qh;
    uint8_t qs[16];
} BLOCK_PACKED;
BLOCK_SIZE_IS(block_q5_0, 22);

struct block_q5_1 { /* code * d + m */
    uint16_t d, m;
    uint32_t qh;
    uint8_t qs[16];
} BLOCK_PACKED;
BLOCK_SIZE_IS(block_q5_1, 24);

struct block_q8_0 { /* q * d; as weight and as activation */
    uint16_t d;
    int8_t qs[32];
} BLOCK_PACKED;
BLOCK_SIZE_IS(block_q8_0, 34);

struct block_q8_1 { /* q * d; activations only; s = sum of the codes times the unrounded d */
    uint16_t d, s;
    int8_t qs[32];
} BLOCK_PACKED;
BLOCK_SIZE_IS(block_q8_1, 36);

struct block_iq4_nl { /* d * nl4_values[code]; split nibbles */
    uint16_t d;
    uint8_t qs[16];
} BLOCK_PACKED;
BLOCK_SIZE_IS(block_iq4_nl, 18);

struct block_mxfp4 { /* fp4_values[code] * 2^(e - 128); split nibbles */
    uint8_t e;
    uint8_t qs[16];
} BLOCK_PACKED;
BLOCK_SIZE_IS(block_mxfp4, 17);

/* ---- 64 elements ---- */

/* fp4_values[code] * ue4m3_half(s[i / 16]). Group g uses qs[8g..8g+7]: byte j holds element 16g + j in the low and
   16g + j + 8 in the high nibble. */
struct block_nvfp4 {
    uint8_t s[4];
    uint8_t qs[32];
} BLOCK_PACKED;
BLOCK_SIZE_IS(block_nvfp4, 36);

struct block_q4_64a { /* code * scale + bias (bf16); sequential nibbles, even element in the low one */
    uint8_t qs[32];
    uint16_t scale, bias;
} BLOCK_PACKED;
BLOCK_SIZE_IS(block_q4_64a, 36);

struct block_q2_64a { /* code * scale + bias (bf16); sequential, element i in bits 2 * (i % 4) of byte i / 4 */
    uint8_t qs[16];
    uint16_t scale, bias;
} BLOCK_PACKED;
BLOCK_SIZE_IS(block_q2_64a, 20);

/* ---- 256 elements ---- */

/* d * (s[i / 16] & 15) * code - dmin * (s[i / 16] >> 4). With h = i / 128, k = i % 128 / 32, l = i % 32 the code is
   (qs[32h + l] >> 2k) & 3. */
struct block_q2_k {
    uint8_t s[16];
    uint8_t qs[64];
    uint16_t d, dmin;
} BLOCK_PACKED;
BLOCK_SIZE_IS(block_q2_k, 84);

/* d * scale[i / 16] * level, level = low bits (qs as in Q2_K) - 4 unless bit i / 32 of hm[i % 32] is set. Scales:
   q3k_unpack_scales. */
struct block_q3_k {
    uint8_t hm[32];
    uint8_t qs[64];
    uint8_t c[12];
    uint16_t d;
} BLOCK_PACKED;
BLOCK_SIZE_IS(block_q3_k, 110);

/* d * sc[i / 32] * code - dmin * mn[i / 32]; element i is in byte qs[32 * (i / 64) + i % 32], in the high nibble when
   i / 32 is odd. Pairs: k4_unpack_pairs. */
struct block_q4_k {
    uint16_t d, dmin;
    uint8_t c[12];
    uint8_t qs[128];
} BLOCK_PACKED;
BLOCK_SIZE_IS(block_q4_k, 144);

struct block_q5_k { /* as Q4_K with 16 * bit i / 32 of qh[i % 32] added to the code */
    uint16_t d, dmin;
    uint8_t c[12];
    uint8_t qh[32];
    uint8_t qs[128];
} BLOCK_PACKED;
BLOCK_SIZE_IS(block_q5_k, 176);

/* d * s[i / 16] * (code - 32). With h, k, l as in Q2_K: low four bits in byte ql[64h + 32 * (k & 1) + l], low nibble for
   k < 2; high two bits (qh[32h + l] >> 2k) & 3. */
struct block_q6_k {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t s[16];
    uint16_t d;
} BLOCK_PACKED;
BLOCK_SIZE_IS(block_q6_k, 210);

struct block_q8_k { /* d * q; activations only; bsum[j] = sum of q[16j..16j+15] */
    float d;
    int8_t qs[256];
    int16_t bsum[16];
} BLOCK_PACKED;
BLOCK_SIZE_IS(block_q8_k, 292);

/* Group k (32 elements) is two words: a = four codebook indices, octet o in bits 8o; b = 7 sign bits per octet, and the
   scale nibble s in bits 28..31. d * (0.5 + s) * 0.25 * magnitude; the eighth sign is the parity of the seven. */
struct block_iq2_xxs {
    uint16_t d;
    struct {
        uint32_t a, b;
    } BLOCK_PACKED group[8];
} BLOCK_PACKED;
BLOCK_SIZE_IS(block_iq2_xxs, 66);

/* Octet o = i / 8: index idx[o] | ((qh[o / 4] >> 2 * (o % 4)) & 3) << 8, eight sign bits in sign[o]. The scale nibble of
   16 elements j = i / 16 is the low (j even) or high half of sc[j / 2]. */
struct block_iq2_s {
    uint16_t d;
    uint8_t idx[32];
    uint8_t sign[32];
    uint8_t qh[8];
    uint8_t sc[8];
} BLOCK_PACKED;
BLOCK_SIZE_IS(block_iq2_s, 82);

/* d * (ls - 32) * nl4_values[code]; sub-block g of 32: ls = 4 low bits from sl[g / 2] (high nibble for odd g) and 2 high
   bits from sh >> 2g; split nibbles in qs[16g..16g+15]. */
struct block_iq4_xs {
    uint16_t d;
    uint16_t sh;
    uint8_t sl[4];
    uint8_t qs[128];
} BLOCK_PACKED;
BLOCK_SIZE_IS(block_iq4_xs, 136);

/* ---- packed scales ---- */

/* The eight 6-bit (scale, min) pairs of Q4_K and Q5_K. */
static inline void k4_unpack_pairs(const uint8_t c[12], uint8_t sc[8], uint8_t mn[8])
{
    for (int j = 0; j < 4; j++) {
        sc[j] = c[j] & 63;
        mn[j] = c[j + 4] & 63;
        sc[j + 4] = (uint8_t)((c[j + 8] & 15) | (c[j] >> 6) << 4);
        mn[j + 4] = (uint8_t)((c[j + 8] >> 4) | (c[j + 4] >> 6) << 4);
    }
}

/* The sixteen 6-bit scales of Q3_K, offset removed: -32..31. */
static inline void q3k_unpack_scales(const uint8_t c[12], int8_t sc[16])
{
    for (int j = 0; j < 16; j++) {
        int low = j < 8 ? c[j] & 15 : c[j - 8] >> 4;
        int high = (c[8 + j % 4] >> 2 * (j / 4)) & 3;
        sc[j] = (int8_t)((high << 4 | low) - 32);
    }
}

#endif
