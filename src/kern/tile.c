/* The tiled layout; see tile.h. */
#include "kern/tile.h"

#include <string.h>

#include "quant/type.h"

#define MAX_TILE_ROWS 16

bool kern_tile_fits(const struct kern_table *t, uint32_t type, int32_t n_out)
{
    const bool laid_out = type == QTYPE_Q4_K || type == QTYPE_Q5_K || type == QTYPE_Q6_K;
    return laid_out && t->tile_rows > 0 && n_out > 0 && n_out % (2 * t->tile_rows) == 0; /* kernels take two tiles together */
}

/* One block of n rows that are `stride` bytes apart. */
static void tile_block(const uint8_t *first, size_t stride, size_t block_bytes, int n, uint8_t *out)
{
    uint32_t words[MAX_TILE_ROWS];
    size_t b = 0;
    for (; b + 4 <= block_bytes; b += 4) {
        for (int i = 0; i < n; i++)
            memcpy(&words[i], first + (size_t)i * stride + b, 4);
        memcpy(out + (size_t)n * b, words, 4 * (size_t)n);
    }
    for (int i = 0; i < n; i++)
        memcpy(out + (size_t)n * b + (size_t)i * (block_bytes - b), first + (size_t)i * stride + b, block_bytes - b);
}

void kern_tile_rows(const struct kern_table *t, const struct kern_weight *w, uint8_t *out, int64_t begin, int64_t end)
{
    const size_t row = qtype_row_bytes(w->type, (uint64_t)w->n_in), block = qtype_info(w->type)->block_bytes;
    const size_t tile = row * (size_t)t->tile_rows;
    const uint8_t *in = kern_ptr(w->data);
    for (int64_t i = begin; i < end; i++)
        for (size_t at = 0; at < row; at += block)
            tile_block(in + (size_t)i * tile + at, row, block, t->tile_rows, out + (size_t)i * tile + (size_t)t->tile_rows * at);
}
