/* Inside src/quant: the quantizers of IQ2_XXS and IQ2_S with their expensive steps apart, which are in plain C (quantize_iq2.c) or
   in vector code (cpu/). */
#ifndef SKUA_QUANT_IQ2_GROUP_H
#define SKUA_QUANT_IQ2_GROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "quant/blocks.h"
#include "quant/iq2_search.h"

#define IQ2_TOP_LEVEL 5.0f /* codebook levels in the quantizer are 1, 3, 5 */
#define IQ2_GROUPS    16   /* two super-blocks of IQ2_XXS */

/* One group that shares a scale: 32 elements in four octets (IQ2_XXS) or 16 in two (IQ2_S). */
struct iq2_group {
    const struct iq2_book *book;
    int octets;
    bool zero;        /* IQ2_XXS: nothing but zeros */
    float x[32];      /* magnitudes; an element with a forced sign is negative */
    float w[32], root_w[32];
    uint8_t signs[4]; /* bit i of an octet: element i is negated */
    int entry[4];
    bool exact[4];
    float scale;
};

struct iq2_steps {
    /* scale = that of fit_positive(32, 4, x, w), 0 for a zero group, of n <= IQ2_GROUPS groups of 32. */
    void (*first_scales)(struct iq2_group *groups, int n);
    /* Try 2 * reach + 1 inverse scales around 5 / max, max > 0, and keep the best entries and scale. */
    void (*search)(struct iq2_group *g, float max, int reach);
    iq2_nearest_fn *nearest;
};

/* The quantizers, with the given steps. imp may be NULL for IQ2_S only. */
void iq2_xxs_row(const struct iq2_steps *steps, const float *x, struct block_iq2_xxs *out, int64_t blocks, const float *imp);

/* Likewise. */
void iq2_s_row(const struct iq2_steps *steps, const float *x, struct block_iq2_s *out, int64_t blocks, const float *imp);

#endif
