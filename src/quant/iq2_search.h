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

/* The entry for magnitudes x[8] (an element with a forced sign may be negative) at inverse scale id: the digits nearest to
   id * x when they are an entry (*exact = true), else the listed neighbour with the least sum of
   root_w * (scale * (2 * digit + 1) - x)^2, the first of equals (*exact = false). */
int iq2_nearest(const struct iq2_book *book, const float *x, const float *root_w, float id, float scale, bool *exact);

/* 2 * digit + 1 of element i of an entry: 1, 3 or 5. */
int iq2_level(const struct iq2_book *book, int entry, int i);

#endif
