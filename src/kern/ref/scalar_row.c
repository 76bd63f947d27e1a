/* Scalar versions of the ops on single rows: GET_ROWS, RMS_NORM, SWIGLU, ROPE_TABLE. Contracts: kern/kern.h. */
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
