/* What the SIMD tiers of MATMUL and MOE_MATMUL share: the op is turned into calls of one kernel per weight type that
   multiplies a range of weight rows ("columns" of the output) with a list of at most MM_ROWS input rows. */
#ifndef SKUA_KERN_MM_H
#define SKUA_KERN_MM_H

#include "kern/kern.h"

#define MM_ROWS 128 /* input rows per kernel call; bounds the accumulators on the kernels' stack */

struct mm_row {
    const float *x;       /* float weight types: the row */
    struct kern_act_row q; /* quantised types: the quantised row */
    float *y;             /* output row; the kernel writes y[begin .. end) */
};

struct mm_weight {
    const uint8_t *data; /* the matrix in file format, any alignment */
    size_t row_bytes;
    int32_t n_in, n_out;
    bool tiled; /* data is in the tier's tiled layout (kern/tile.h) */
    float scale; /* multiplies the dot products */
};

/* y[r][o] = v, or y[r][o] + v, with v = scale * (W[o] . x[r]), for begin <= o < end and r < n_rows <= MM_ROWS. */
typedef void mm_fn(const struct mm_weight *w, const struct mm_row *row, int n_rows, bool accumulate, int64_t begin,
                   int64_t end);

/* MATMUL and MOE_MATMUL, work units [begin, end), with fn for the rows of one matrix: at most MM_ROWS input rows a call. */
void mm_run(const struct op_matmul *op, int64_t begin, int64_t end, mm_fn *fn);
void mm_run_moe(const struct op_moe_matmul *op, int64_t begin, int64_t end, mm_fn *fn);

#endif
