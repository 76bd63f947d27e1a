/* MATMUL and MOE_MATMUL of the reference table: weights of any type dequantised to float, float32 activations, products
   and sums in double, in order of k, rounded to float once. Contract: kern.h (activation kind F32 for every weight type). */
#include "kern/kern.h"
#include "kern/ref/kern_ref.h"
#include "quant/quant.h"

#define PIECE 256 /* values dequantised at once; a multiple of every type's block */
#define ROWS 16   /* input rows that share a dequantised piece */

/* sum[r] = row . x[r] for r < n_rows <= ROWS. */
static void dot_rows(const struct kern_weight *w, const char *row, const float *const *x, int n_rows, double *sum)
{
    size_t piece_bytes = qtype_row_bytes(w->type, PIECE);
    for (int r = 0; r < n_rows; r++)
        sum[r] = 0.0;
    for (int32_t at = 0; at < w->n_in; at += PIECE, row += piece_bytes) {
        float piece[PIECE];
        int32_t count = w->n_in - at < PIECE ? w->n_in - at : PIECE;
        dequant_row(w->type, row, piece, count);
        for (int r = 0; r < n_rows; r++)
            for (int32_t i = 0; i < count; i++)
                sum[r] += (double)piece[i] * (double)x[r][at + i];
    }
}

void kern_matmul_refd(const struct op_matmul *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    size_t row_bytes = qtype_row_bytes(op->w.type, (uint64_t)op->w.n_in);
    double scale = (double)kern_scale(&op->w, 0);
    for (int32_t r0 = 0; r0 < op->n_rows; r0 += ROWS) {
        int n = op->n_rows - r0 < ROWS ? op->n_rows - r0 : ROWS;
        const float *x[ROWS];
        for (int r = 0; r < n; r++)
            x[r] = (const float *)kern_ptr(op->x) + (int64_t)(r0 + r) * op->x_stride;
        for (int64_t o = begin; o < end; o++) {
            double sum[ROWS];
            dot_rows(&op->w, (const char *)kern_ptr(op->w.data) + (size_t)o * row_bytes, x, n, sum);
            for (int r = 0; r < n; r++) {
                float *y = (float *)kern_ptr(op->y) + (int64_t)(r0 + r) * op->y_stride + o;
                float v = (float)(sum[r] * scale);
                *y = op->accumulate ? *y + v : v;
            }
        }
    }
}

/* Columns [o_begin, o_end) of one expert's matrix, times scale, for its list of pairs. */
static void expert_columns(const struct op_moe_matmul *op, const char *w, double scale, const int32_t *pair, int32_t n_pairs,
                           int64_t o_begin, int64_t o_end)
{
    size_t row_bytes = qtype_row_bytes(op->w.type, (uint64_t)op->w.n_in);
    for (int32_t i0 = 0; i0 < n_pairs; i0 += ROWS) {
        int n = n_pairs - i0 < ROWS ? n_pairs - i0 : ROWS;
        const float *x[ROWS];
        for (int i = 0; i < n; i++) {
            int64_t row = op->x_per_pair ? pair[i0 + i] : pair[i0 + i] / op->n_used;
            x[i] = (const float *)kern_ptr(op->x) + row * op->x_stride;
        }
        for (int64_t o = o_begin; o < o_end; o++) {
            double sum[ROWS];
            dot_rows(&op->w, w + (size_t)o * row_bytes, x, n, sum);
            for (int i = 0; i < n; i++)
                ((float *)kern_ptr(op->y))[(int64_t)pair[i0 + i] * op->y_stride + o] = (float)(sum[i] * scale);
        }
    }
}

void kern_moe_matmul_refd(const struct op_moe_matmul *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    size_t row_bytes = qtype_row_bytes(op->w.type, (uint64_t)op->w.n_in);
    int64_t n_blocks = (op->w.n_out + 31) / 32;
    const int32_t *first = kern_ptr(op->group), *pair = first + op->w.n_expert + 1;
    for (int64_t u = begin; u < end; u++) {
        int64_t e = u / n_blocks, o_begin = 32 * (u % n_blocks);
        int64_t o_end = o_begin + 32 < op->w.n_out ? o_begin + 32 : op->w.n_out;
        const char *w = (const char *)kern_ptr(op->w.data) + (size_t)(e * op->w.n_out) * row_bytes;
        expert_columns(op, w, (double)kern_scale(&op->w, e), pair + first[e], first[e + 1] - first[e], o_begin, o_end);
    }
}
