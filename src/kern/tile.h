/* The tiled layout of weight matrices: what a tier's matrix products would otherwise do to every block in every pass, once.
 *
 * A SIMD kernel gives each weight row a lane of its vectors, so it needs the same word of several rows side by side, and files have
 * rows one behind the other. A tile is kern_table.tile_rows (T) rows in the T * row_bytes bytes that the same rows take in the file:
 * block after block (as the type stores them), of each block first its 32-bit words, word after word, each of T rows in order, then
 * the two bytes that may be left, again of T rows in order. So no byte is added, changed or lost, and what starts at byte b of a
 * row's file format, b a multiple of 4, is at byte T * b of the tile.
 */
#ifndef SKUA_KERN_TILE_H
#define SKUA_KERN_TILE_H

#include "kern/kern.h"

/* Can a matrix with rows of this type be multiplied as tiles by this table? n_out: its rows, of each expert. */
bool kern_tile_fits(const struct kern_table *t, uint32_t type, int32_t n_out);

/* Write tiles [begin, end) of a matrix that fits, counted over all experts, to their places behind `out`, which has room for all. */
void kern_tile_rows(const struct kern_table *t, const struct kern_weight *w, uint8_t *out, int64_t begin, int64_t end);

#endif
