/* ARGMAX, TOPK and their merges; see kern.h. The products are those of MATMUL; the comparisons are a few hundred per block of columns. */
#include "kern/argmax.h"

#include <float.h>
#include <math.h>

#include "kern/ref/kern_ref.h"
#include "quant/type.h"

#define SCAN 32 /* values at once */

/* The better of a and b, whose columns lie behind a's. */
static struct kern_best better(struct kern_best a, struct kern_best b)
{
    if (!(a.value <= FLT_MAX) || b.value <= a.value)
        return a;
    return b;
}

/* Is any of the values a better one than those up to `limit`, or no finite number? */
static bool any_above(const float values[SCAN], float limit)
{
    int above = 0;
    for (int i = 0; i < SCAN; i++)
        above |= !(values[i] <= limit);
    return above;
}

static bool allowed(const uint64_t *allow, int64_t column)
{
    return !allow || (allow[column / 64] >> (column % 64) & 1);
}

/* Most values are below the best so far, whatever the mask says: only the others are looked at one by one. */
static struct kern_best best_of(const float *values, const uint64_t *allow, int64_t first, int64_t n)
{
    struct kern_best best = {-INFINITY, -1};
    for (int64_t at = 0; at < n; at += SCAN) {
        if (at + SCAN <= n && !any_above(values + at, best.value))
            continue;
        for (int64_t i = at; i < n && i < at + SCAN; i++)
            if (allowed(allow, first + i))
                best = better(best, (struct kern_best){values[i], (int32_t)(first + i)});
    }
    return best;
}

/* The products of block u, KERN_ARGMAX_COLUMNS apart in `values`; returns how many columns it has. */
static int32_t block_values(kern_matmul_fn *matmul, const struct op_matmul *m, const struct kern_batch *batch, int64_t u, float *values)
{
    struct kern_buf buf = {values, KERN_ARGMAX_ROWS * KERN_ARGMAX_COLUMNS * sizeof *values};
    const int64_t first = u * KERN_ARGMAX_COLUMNS, left = m->w.n_out - first;
    const int32_t n = left < KERN_ARGMAX_COLUMNS ? (int32_t)left : KERN_ARGMAX_COLUMNS;
    struct op_matmul block = *m;
    const size_t skipped = qtype_row_bytes(m->w.type, (uint64_t)m->w.n_in) * (size_t)first; /* whole tiles */
    block.w.data.offset += skipped;
    block.w.tiles.offset += skipped;
    block.w.n_out = n;
    block.y = (struct kern_view){&buf, 0};
    block.y_stride = KERN_ARGMAX_COLUMNS;
    block.accumulate = false;
    matmul(&block, batch, 0, n);
    return n;
}

void kern_argmax_with(kern_matmul_fn *matmul, const struct op_argmax *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    _Alignas(64) float values[KERN_ARGMAX_ROWS * KERN_ARGMAX_COLUMNS];
    const uint64_t *allow = op->allow.buf ? kern_ptr(op->allow) : NULL;
    const int32_t n_rows = op->matmul.n_rows;
    struct kern_best *blocks = kern_ptr(op->blocks);
    for (int64_t u = begin; u < end; u++) {
        const int32_t n = block_values(matmul, &op->matmul, batch, u, values);
        for (int32_t r = 0; r < n_rows; r++)
            blocks[u * n_rows + r] = best_of(values + r * KERN_ARGMAX_COLUMNS, allow, u * KERN_ARGMAX_COLUMNS, n);
    }
}

void kern_argmax_scalar(const struct op_argmax *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    kern_argmax_with(kern_matmul_scalar, op, batch, begin, end);
}

void kern_argmax_refd(const struct op_argmax *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    kern_argmax_with(kern_matmul_refd, op, batch, begin, end);
}

void kern_argmax_merge_scalar(const struct op_argmax_merge *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    const struct kern_best *blocks = kern_ptr(op->blocks);
    for (int64_t r = begin; r < end; r++) {
        struct kern_best best = {-INFINITY, -1};
        for (int64_t b = 0; b < op->n_blocks; b++)
            best = better(best, blocks[b * op->n_rows + r]);
        ((struct kern_best *)kern_ptr(op->best))[r] = best;
    }
}

/* ---- the k best ---- */

/* Offer a value that is above best[k - 1]'s, or equal and behind all there; those that are offered come in order of columns. */
static void insert(struct kern_best *best, int32_t k, struct kern_best b)
{
    int32_t at = k - 1;
    for (; at > 0 && b.value > best[at - 1].value; at--)
        best[at] = best[at - 1];
    best[at] = b;
}

static void clear(struct kern_best *best, int32_t k)
{
    for (int32_t i = 0; i < k; i++)
        best[i] = (struct kern_best){-INFINITY, -1};
}

static void best_k_of(const float *values, const uint64_t *allow, int64_t first, int64_t n, struct kern_best *best, int32_t k)
{
    clear(best, k);
    for (int64_t at = 0; at < n; at += SCAN) {
        if (at + SCAN <= n && !any_above(values + at, best[k - 1].value))
            continue;
        for (int64_t i = at; i < n && i < at + SCAN; i++)
            if (values[i] > best[k - 1].value && allowed(allow, first + i))
                insert(best, k, (struct kern_best){values[i], (int32_t)(first + i)});
    }
}

void kern_topk_with(kern_matmul_fn *matmul, const struct op_topk *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    _Alignas(64) float values[KERN_ARGMAX_ROWS * KERN_ARGMAX_COLUMNS];
    const uint64_t *allow = op->allow.buf ? kern_ptr(op->allow) : NULL;
    const int32_t n_rows = op->matmul.n_rows;
    struct kern_best *blocks = kern_ptr(op->blocks);
    for (int64_t u = begin; u < end; u++) {
        const int32_t n = block_values(matmul, &op->matmul, batch, u, values);
        for (int32_t r = 0; r < n_rows; r++)
            best_k_of(values + r * KERN_ARGMAX_COLUMNS, allow, u * KERN_ARGMAX_COLUMNS, n, blocks + (u * n_rows + r) * op->k, op->k);
    }
}

void kern_topk_scalar(const struct op_topk *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    kern_topk_with(kern_matmul_scalar, op, batch, begin, end);
}

void kern_topk_refd(const struct op_topk *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    kern_topk_with(kern_matmul_refd, op, batch, begin, end);
}

void kern_topk_merge_scalar(const struct op_topk_merge *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    const struct kern_best *blocks = kern_ptr(op->blocks);
    for (int64_t r = begin; r < end; r++) {
        struct kern_best *best = (struct kern_best *)kern_ptr(op->best) + r * op->k;
        clear(best, op->k);
        for (int64_t b = 0; b < op->n_blocks; b++) {
            const struct kern_best *block = blocks + (b * op->n_rows + r) * op->k;
            for (int32_t i = 0; i < op->k && block[i].value > best[op->k - 1].value; i++)
                insert(best, op->k, block[i]);
        }
    }
}
