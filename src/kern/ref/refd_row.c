/* Reference versions of the ops on single rows: RMS_NORM, SWIGLU, and BLOCK_CONV. Contracts: kern/kern.h; arithmetic: kern/ref/refd.h. */
#include "kern/ref/kern_ref.h"
#include "kern/ref/refd.h"

void kern_rms_norm_refd(const struct op_rms_norm *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    const float *w = kern_ptr(op->w);
    for (int64_t r = begin; r < end; r++) {
        const float *x = (const float *)kern_ptr(op->x) + r * op->x_stride;
        float *y = (float *)kern_ptr(op->y) + r * op->y_stride;
        const double inv = refd_rms_inv(x, op->n, op->eps);
        for (int32_t i = 0; i < op->n; i++)
            y[i] = (float)((double)x[i] * inv * (double)w[i]);
    }
}

void kern_swiglu_refd(const struct op_swiglu *op, const struct kern_batch *batch, int64_t begin, int64_t end)
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
            h[i] = (float)(refd_silu((double)gate[i]) * (double)up[i]);
    }
}

void kern_block_conv_refd(const struct op_block_conv *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    const int64_t pieces = (op->n + 255) / 256, n_groups = op->n / op->group;
    const float *base = kern_ptr(op->base);
    for (int64_t u = begin; u < end; u++) {
        const int64_t r = u / pieces, first = u % pieces * 256, last = first + 256 < op->n ? first + 256 : op->n;
        const int64_t row_begin = batch->seqs[batch->seq[r]].row_begin;
        const float *x = kern_ptr(op->x), *dyn = (const float *)kern_ptr(op->dyn) + r * op->dyn_stride;
        float *y = (float *)kern_ptr(op->y) + r * op->y_stride;
        for (int64_t c = first; c < last; c++) {
            double acc = op->accumulate ? (double)y[c] : 0.0;
            for (int32_t o = 0; o < op->kernel && r - o >= row_begin; o++)
                acc += ((double)base[(int64_t)o * op->n + c] + (double)dyn[o * n_groups + c / op->group]) * (double)x[(r - o) * op->x_stride + c];
            y[c] = (float)acc;
        }
    }
}
