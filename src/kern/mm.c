/* The part of MATMUL and MOE_MATMUL that is the same in every SIMD tier: which input rows meet which weight rows. */
#include "kern/mm.h"
#include "quant/type.h"

/* Matrix e. */
static struct mm_weight weight_of(const struct kern_weight *w, int64_t e)
{
    size_t row_bytes = qtype_row_bytes(w->type, (uint64_t)w->n_in);
    const bool tiled = w->tiles.buf != NULL;
    const uint8_t *data = (const uint8_t *)kern_ptr(tiled ? w->tiles : w->data) + (size_t)(e * w->n_out) * row_bytes;
    return (struct mm_weight){data, row_bytes, w->n_in, w->n_out, tiled, kern_scale(w, e)};
}

static struct mm_row row_at(const struct kern_weight *w, const void *x, int32_t x_stride, int64_t row, float *y)
{
    int kind = kern_act_kind(&kern_scalar, w->type);
    if (kind == KERN_ACT_F32)
        return (struct mm_row){.x = (const float *)x + row * x_stride, .y = y};
    return (struct mm_row){.q = kern_act_row_at((enum kern_act)kind, x, w->n_in, row), .y = y};
}

void mm_run(const struct op_matmul *op, int64_t begin, int64_t end, mm_fn *fn)
{
    struct mm_weight w = weight_of(&op->w, 0);
    const void *x = kern_ptr(op->x);
    float *y = kern_ptr(op->y);
    struct mm_row row[MM_ROWS];
    for (int32_t r = 0; r < op->n_rows; r += MM_ROWS) {
        int n = op->n_rows - r < MM_ROWS ? op->n_rows - r : MM_ROWS;
        for (int i = 0; i < n; i++)
            row[i] = row_at(&op->w, x, op->x_stride, r + i, y + (int64_t)(r + i) * op->y_stride);
        fn(&w, row, n, op->accumulate, begin, end);
    }
}

/* Columns [begin, end) of expert e for all of its pairs. */
static void run_expert(const struct op_moe_matmul *op, int64_t e, int64_t begin, int64_t end, mm_fn *fn)
{
    const int32_t *first = kern_ptr(op->group), *pair = first + op->w.n_expert + 1;
    struct mm_weight w = weight_of(&op->w, e);
    struct mm_row row[MM_ROWS];
    for (int32_t i = first[e]; i < first[e + 1]; i += MM_ROWS) {
        int n = first[e + 1] - i < MM_ROWS ? first[e + 1] - i : MM_ROWS;
        for (int j = 0; j < n; j++) {
            int32_t p = pair[i + j];
            row[j] = row_at(&op->w, kern_ptr(op->x), op->x_stride, op->x_per_pair ? p : p / op->n_used,
                            (float *)kern_ptr(op->y) + (int64_t)p * op->y_stride);
        }
        fn(&w, row, n, false, begin, end);
    }
}

void mm_run_moe(const struct op_moe_matmul *op, int64_t begin, int64_t end, mm_fn *fn)
{
    int64_t n_blocks = (op->w.n_out + 31) / 32;
    while (begin < end) { /* consecutive units of one expert become one range of columns */
        int64_t e = begin / n_blocks, first = begin % n_blocks;
        int64_t last = end - begin < n_blocks - first ? first + (end - begin) : n_blocks;
        int64_t o_end = 32 * last < op->w.n_out ? 32 * last : op->w.n_out;
        run_expert(op, e, 32 * first, o_end, fn);
        begin += last - first;
    }
}
