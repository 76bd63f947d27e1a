/* Scalar versions of the ops on single rows: GET_ROWS, RMS_NORM, SWIGLU, ROPE_TABLE, and BLOCK_CONV. Contracts: kern/kern.h. */
#include "kern/ref/kern_ref.h"
#include "kern/ref/scalar.h"

void kern_get_rows_scalar(const struct op_get_rows *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    const float *in = kern_ptr(op->in);
    float *out = kern_ptr(op->out);
    for (int64_t i = begin; i < end; i++)
        memcpy(out + i * op->out_stride, in + (int64_t)op->rows[i] * op->in_stride, (size_t)op->n * sizeof *out);
}

SCALAR_CLONES void kern_rms_norm_scalar(const struct op_rms_norm *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    const float *w = kern_ptr(op->w);
    for (int64_t r = begin; r < end; r++) {
        const float *x = (const float *)kern_ptr(op->x) + r * op->x_stride;
        float *y = (float *)kern_ptr(op->y) + r * op->y_stride;
        const float inv = scalar_rms_inv(x, op->n, op->eps);
        for (int32_t i = 0; i < op->n; i++)
            y[i] = (x[i] * inv) * w[i];
    }
}

SCALAR_CLONES void kern_swiglu_scalar(const struct op_swiglu *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    const int64_t pieces = (op->n + 255) / 256;
    for (int64_t u = begin; u < end; u++) {
        const int64_t r = u / pieces, first = u % pieces * 256;
        const int64_t last = first + 256 < op->n ? first + 256 : op->n;
        const float *gate = (const float *)kern_ptr(op->gate) + r * op->gate_stride;
        const float *up = (const float *)kern_ptr(op->up) + r * op->up_stride;
        float *h = (float *)kern_ptr(op->h) + r * op->h_stride;
        for (int64_t i = first; i < last; i++)
            h[i] = kern_siluf(gate[i]) * up[i];
    }
}

/* Channels first .. last - 1 of row r, all in one group. */
static inline __attribute__((always_inline)) void conv_channels(const struct op_block_conv *op, int64_t r, int32_t taps, int64_t first,
                                                                int64_t last)
{
    const float *x = (const float *)kern_ptr(op->x) + r * op->x_stride, *base = kern_ptr(op->base);
    const float *dyn = (const float *)kern_ptr(op->dyn) + r * op->dyn_stride + first / op->group;
    float *y = (float *)kern_ptr(op->y) + r * op->y_stride;
    const int64_t n_groups = op->n / op->group;
    for (int64_t at = first; at < last; at += 16) {
        const int64_t n = last - at < 16 ? last - at : 16;
        float acc[16];
        for (int64_t i = 0; i < n; i++)
            acc[i] = (base[at + i] + dyn[0]) * x[at + i];
        for (int32_t o = 1; o < taps; o++)
            for (int64_t i = 0; i < n; i++)
                acc[i] = fmaf(base[(int64_t)o * op->n + at + i] + dyn[o * n_groups], x[at + i - (int64_t)o * op->x_stride], acc[i]);
        for (int64_t i = 0; i < n; i++)
            y[at + i] = op->accumulate ? y[at + i] + acc[i] : acc[i];
    }
}

SCALAR_CLONES void kern_block_conv_scalar(const struct op_block_conv *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    const int64_t pieces = (op->n + 255) / 256;
    for (int64_t u = begin; u < end; u++) {
        const int64_t r = u / pieces, first = u % pieces * 256, last = first + 256 < op->n ? first + 256 : op->n;
        const int64_t before = r - batch->seqs[batch->seq[r]].row_begin; /* rows of the sequence */
        const int32_t taps = before + 1 < op->kernel ? (int32_t)before + 1 : op->kernel;
        for (int64_t c = first, next; c < last; c = next) {
            next = (c / op->group + 1) * op->group;
            next = next < last ? next : last;
            conv_channels(op, r, taps, c, next);
        }
    }
}

void kern_rope_table_scalar(const struct op_rope_table *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    const int32_t half = op->n_rot / 2;
    for (int64_t r = begin; r < end; r++) {
        float *table = (float *)kern_ptr(op->table) + r * op->n_rot;
        for (int32_t i = 0; i < half; i++) {
            const double angle = (double)batch->pos[r] * op->inv_freq[i];
            table[i] = (float)(cos(angle) * op->scale);
            table[half + i] = (float)(sin(angle) * op->scale);
        }
    }
}
