/* The codebooks of IQ2_XXS and IQ2_S. A code packs eight 2-bit digits 0..2, element i in bits 2i; a digit stands for the
   magnitude iq2_levels[digit] when decoding and for 2 * digit + 1 inside the quantizer. Codes ascend. The codebooks were
   found by search and follow no formula. */
#ifndef SKUA_QUANT_IQ2_GRID_H
#define SKUA_QUANT_IQ2_GRID_H

#include <stdint.h>

extern const uint8_t iq2_levels[4]; /* 8, 25, 43; digit 3 does not occur */
extern const uint16_t iq2_xxs_codes[256];
extern const uint16_t iq2_s_codes[1024];

/* The sign byte of IQ2_XXS: seven stored bits and their parity on top, so the number of minus signs is even. */
static inline uint8_t iq2_xxs_signs(uint32_t seven)
{
    uint32_t parity = seven ^ seven >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return (uint8_t)(seven | (parity & 1) << 7);
}

#endif
