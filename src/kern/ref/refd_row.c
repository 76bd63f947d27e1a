/* Reference versions of the ops on single rows: RMS_NORM, SWIGLU. Contracts: kern/kern.h; arithmetic: kern/ref/refd.h. */
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
