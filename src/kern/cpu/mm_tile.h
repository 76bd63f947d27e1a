/* What the templates of matrix products share, mm_quant.h (16-bit activations) and mm_byte.h (8-bit activations): loading and
 * transposing weights, and walking over the tiles of few input rows. Included by them, after the tier's vocabulary (vec_<isa>.h).
 */
#ifndef SKUA_KERN_CPU_MM_TILE_H
#define SKUA_KERN_CPU_MM_TILE_H

#include <string.h>

#include "kern/cpu/mm_types.h"

/* LANES rows of weights, `stride` bytes apart; or, tiled, a tile that begins at `first` (kern/tile.h). */
struct tile_rows {
    const uint8_t *first;
    size_t stride;
    bool tiled; /* known at compile time */
};

/* Every byte of a block is loaded exactly once, through load_words and its like; each prefetches as much of the next tile.
   The rows of a tile are read side by side, which no hardware prefetcher follows, but tiles follow each other in memory. */
struct ahead {
    uintptr_t next; /* where to prefetch: as far into the next tile as the unpacking is into this one */
};

static INLINE void prefetch_next(struct ahead *s, size_t row_bytes)
{
    for (size_t i = 0; i < LANES * row_bytes; i += 64)
        __builtin_prefetch((const void *)(s->next + i), 0, 2);
    s->next += LANES * row_bytes;
    /* Unpacking and multiplying stay behind the loads that they follow here: gcc would gather the loads and prefetches of a whole block at
       its begin, which is more of them than the processor can have under way. */
    __asm__ volatile("" ::: "memory");
}

/* Sixteen bytes at `offset` of LANES rows, transposed: lane i of out[c] is the c-th 32-bit word of row i. */
static INLINE void load_words(struct ahead *s, struct tile_rows row, size_t offset, vi out[4])
{
    prefetch_next(s, 16);
    if (!row.tiled) {
        v_transpose(row.first + offset, row.stride, out);
        return;
    }
    UNROLL
    for (size_t c = 0; c < 4; c++)
        out[c] = v_load(row.first + LANES * (offset + 4 * c));
}

static INLINE vf load_f16(struct ahead *s, struct tile_rows row, size_t offset)
{
    uint32_t half[LANES];
    prefetch_next(s, 2);
    if (row.tiled)
        return vf_load_f16(row.first + LANES * offset);
    UNROLL
    for (int i = 0; i < LANES; i++) {
        uint16_t h;
        memcpy(&h, row.first + (size_t)i * row.stride + offset, sizeof h);
        half[i] = h;
    }
    return vf_from_low_f16(v_load(half));
}

/* Four bytes at `offset` of LANES rows. */
static INLINE vi load_word(struct ahead *s, struct tile_rows row, size_t offset)
{
    uint32_t word[LANES];
    prefetch_next(s, 4);
    if (row.tiled)
        return v_load(row.first + LANES * offset);
    UNROLL
    for (int i = 0; i < LANES; i++)
        memcpy(&word[i], row.first + (size_t)i * row.stride + offset, sizeof word[i]);
    return v_load(word);
}

static INLINE vi broadcast32(const void *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return v_set(x);
}

static INLINE vi low_nibbles(vi a)
{
    return v_and(a, v_set(0x0F0F0F0F));
}

static INLINE vi high_nibbles(vi a)
{
    return v_and(v_srl(a, 4), v_set(0x0F0F0F0F));
}

/* Bits 4i to 4i + 3 of every lane, one per byte, as 0 or 1. */
static INLINE vi spread_bits(vi bits, int i)
{
    return v_and(v_mul(v_and(v_srl(bits, 4 * i), v_set(0xF)), v_set(0x00204081)), v_set(0x01010101));
}

/* ---- walking over tiles ---- */

/* The rows in which output o of a tiled matrix is: whole tiles, `width` rows of them. */
static struct tile_rows tiles_around(const struct mm_weight *w, int64_t o, int64_t end, int width, int *skip, int *n)
{
    int64_t first = o - o % LANES;
    if (first + width > w->n_out)
        first = w->n_out - width;
    *skip = (int)(o - first);
    *n = end - o < width - *skip ? (int)(end - o) : width - *skip;
    return (struct tile_rows){w->data + (size_t)first * w->row_bytes, w->row_bytes, true};
}

/* A tile of `width` rows for outputs o .. end - 1: it starts at row o, or earlier where fewer than `width` rows follow; a matrix of
   fewer rows than that is taken row by row, the same in all lanes. The next output behind the tile is o + *n. */
static struct tile_rows tile_at(const struct mm_weight *w, int64_t o, int64_t end, int width, int *skip, int *n)
{
    if (w->tiled)
        return tiles_around(w, o, end, width, skip, n);
    struct tile_rows rows = {w->data + (size_t)o * w->row_bytes, w->row_bytes, false};
    *skip = 0;
    *n = end - o < width ? (int)(end - o) : width;
    if (*n == width)
        return rows;
    if (end < width) {
        rows.stride = 0;
        *n = 1;
        return rows;
    }
    *skip = width - *n; /* lanes whose outputs were computed already, or belong to somebody else */
    rows.first -= (size_t)*skip * w->row_bytes;
    return rows;
}

/* How far behind a tile the next one is in memory, 0 behind the last. */
static size_t to_next_tile(const struct mm_weight *w, int64_t next, int64_t end, int n)
{
    return next < end ? (size_t)n * w->row_bytes : 0;
}

static void put_outputs(float *y, const float *v, int n, float scale, bool accumulate)
{
    for (int i = 0; i < n; i++) {
        float x = v[i] * scale;
        y[i] = accumulate ? y[i] + x : x;
    }
}

#endif
