/* Inside src/quant: what the reference quantizers of super-blocks (quantize_k.c, quantize_iq4.c) and their vector versions (cpu/)
   share: the parameters of the affine formats, the scales of a super-block, packing. */
#ifndef SKUA_QUANT_SUPERBLOCK_H
#define SKUA_QUANT_SUPERBLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "quant/blocks.h"
#include "quant/fit.h"
#include "quant/pack.h"

struct affine_format {
    int subs, size;  /* sub-blocks and their elements; subs * size = 256 */
    int top;         /* largest code */
    int top_scale;   /* largest code of the sub-block scales and offsets */
    float sigma_factor; /* sigma2 = factor * sum x^2 / 256, for importance weights */
    struct fit_affine_search plain; /* without importance weights; with them: fit_weighted_search */
};

extern const struct affine_format q2_k_format, q4_k_format, q5_k_format;

/* A super-block before packing. */
struct affine_codes {
    uint16_t d, dmin; /* f16 */
    uint8_t sc[16], mn[16];
    uint8_t codes[QK256];
};

/* Scales of Q3_K without importance weights: codes 0..63 (32 = zero); returns the factor as f16. */
uint16_t q3_k_plain_scales(const float scales[16], uint8_t codes[16]);

/* Scales of Q6_K; returns the factor as f16. False: the whole block is zero. */
bool q6_k_scales(const float scales[16], int8_t codes[16], uint16_t *d);

/* The scales of a super-block of IQ4_XS: fills in all of *b but the codes; scales[g] becomes the scale that the codes of
   sub-block g are chosen for. */
void iq4_xs_scales(float scales[8], struct block_iq4_xs *b);

static inline void pack_q2_k(const struct affine_codes *r, void *block)
{
    struct block_q2_k *b = block;
    b->d = r->d;
    b->dmin = r->dmin;
    for (int j = 0; j < 16; j++)
        b->s[j] = (uint8_t)(r->sc[j] | r->mn[j] << 4);
    pack_two_bits(r->codes, b->qs);
}

static inline void pack_q4_k(const struct affine_codes *r, void *block)
{
    struct block_q4_k *b = block;
    b->d = r->d;
    b->dmin = r->dmin;
    pack_pairs(r->sc, r->mn, b->c);
    pack_four_bits(r->codes, b->qs);
}

static inline void pack_q5_k(const struct affine_codes *r, void *block)
{
    struct block_q5_k *b = block;
    b->d = r->d;
    b->dmin = r->dmin;
    pack_pairs(r->sc, r->mn, b->c);
    pack_one_bit(r->codes, 4, b->qh);
    pack_four_bits(r->codes, b->qs);
}

/* Codes 0..7, scales 0..63. */
static inline void pack_q3_k(uint16_t d, const uint8_t *scales, const uint8_t *codes, struct block_q3_k *b)
{
    b->d = d;
    memset(b->c, 0, sizeof b->c);
    for (int j = 0; j < 16; j++) {
        int at = j % 8, high = 8 + j % 4;
        b->c[at] = (uint8_t)(b->c[at] | (scales[j] & 15) << (j < 8 ? 0 : 4));
        b->c[high] = (uint8_t)(b->c[high] | (scales[j] >> 4) << 2 * (j / 4));
    }
    pack_one_bit(codes, 2, b->hm);
    pack_two_bits(codes, b->qs);
}

/* Codes 0..63. */
static inline void pack_q6_k(uint16_t d, const int8_t *scales, const uint8_t *codes, struct block_q6_k *b)
{
    b->d = d;
    memcpy(b->s, scales, sizeof b->s);
    for (int h = 0; h < 2; h++)
        for (int l = 0; l < 32; l++) {
            const uint8_t *c = codes + 128 * h + l;
            b->ql[64 * h + l] = (uint8_t)((c[0] & 15) | (c[64] & 15) << 4);
            b->ql[64 * h + 32 + l] = (uint8_t)((c[32] & 15) | (c[96] & 15) << 4);
            b->qh[32 * h + l] = (uint8_t)(c[0] >> 4 | c[32] >> 4 << 2 | c[64] >> 4 << 4 | c[96] >> 4 << 6);
        }
}

#endif
