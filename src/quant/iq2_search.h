/* From eight magnitudes to a codebook entry of IQ2_XXS or IQ2_S. Digits that are no entry are replaced by the best of the
   nearest ones; the lists of nearest entries of all 3^8 digit tuples are made at first use (once, thread-safe, in static
   memory, some 50 ms). */
#ifndef SKUA_QUANT_IQ2_SEARCH_H
#define SKUA_QUANT_IQ2_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

struct iq2_book;

/* The codebooks with their lists of neighbours. */
const struct iq2_book *iq2_book_xxs(void);
const struct iq2_book *iq2_book_s(void);

/* The tuple of the digits nearest to id * x[0..7] (an element with a forced sign may be negative). */
int iq2_tuple(const float *x, float id);

/* The entry that a tuple is; or -1, and then *near lists the entries nearest to it with their codes. The codes can be read
   sixteen at a time, to beyond the end of the list. */
struct iq2_near {
    const uint16_t *entries, *codes;
    int count;
};
int iq2_lookup(const struct iq2_book *book, int tuple, struct iq2_near *near);

/* The entry for magnitudes x[8] at inverse scale id: the digits nearest to id * x when they are an entry (*exact = true), else
   the listed neighbour with the least sum of root_w * (scale * (2 * digit + 1) - x)^2, the first of equals (*exact = false). */
typedef int iq2_nearest_fn(const struct iq2_book *book, const float *x, const float *root_w, float id, float scale, bool *exact);
iq2_nearest_fn iq2_nearest;

/* Eight 2-bit digits, element i in bits 2i; a digit stands for 2 * digit + 1. */
uint16_t iq2_code(const struct iq2_book *book, int entry);

static inline int iq2_level(uint16_t code, int i)
{
    return 2 * (code >> 2 * i & 3) + 1;
}

#endif
