/* Reference versions of ROUTER and MOE_COMBINE. Contracts: kern/kern.h; arithmetic: kern/ref/refd.h. */
#include "kern/ref/kern_ref.h"
#include "kern/ref/refd.h"

/* The expert that follows `last` in decreasing order of logit, equal ones in order of id; last < 0: the first of all.
   The softmax keeps this order. -1 when only NaNs are left. */
static int32_t next_expert(const float *logits, int32_t n_expert, int32_t last)
{
    int32_t best = -1;
    for (int32_t i = 0; i < n_expert; i++) {
        const bool after = last < 0 || logits[i] < logits[last] || (logits[i] == logits[last] && i > last);
        if (after && !isnan(logits[i]) && (best < 0 || logits[i] > logits[best]))
            best = i;
    }
    return best;
}

void kern_router_refd(const struct op_router *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    for (int64_t r = begin; r < end; r++) {
        const float *logits = (const float *)kern_ptr(op->logits) + r * op->n_expert;
        int32_t *ids = (int32_t *)kern_ptr(op->ids) + r * op->n_used;
        float *weights = (float *)kern_ptr(op->weights) + r * op->n_used;
        double m = (double)logits[0], sum = 0.0, selected = 0.0;
        for (int32_t i = 1; i < op->n_expert; i++)
            m = fmax(m, (double)logits[i]);
        for (int32_t i = 0; i < op->n_expert; i++)
            sum += exp((double)logits[i] - m);
        for (int32_t j = 0; j < op->n_used; j++) {
            const int32_t next = next_expert(logits, op->n_expert, j > 0 ? ids[j - 1] : -1);
            ids[j] = next >= 0 ? next : j; /* NaN logits: any valid id; the weights are NaN anyway, through sum */
            selected += exp((double)logits[ids[j]] - m) / sum;
        }
        for (int32_t j = 0; j < op->n_used; j++)
            weights[j] = (float)(exp((double)logits[ids[j]] - m) / sum / fmax(selected, 6.103515625e-5));
    }
}

void kern_moe_combine_refd(const struct op_moe_combine *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    for (int64_t r = begin; r < end; r++) {
        float *x = (float *)kern_ptr(op->x) + r * op->x_stride;
        const float *y = (const float *)kern_ptr(op->y) + r * op->n_used * op->y_stride;
        const float *weight = (const float *)kern_ptr(op->weights) + r * op->n_used;
        const float *shared = NULL;
        double gate = 0.0;
        if (op->shared.buf) {
            shared = (const float *)kern_ptr(op->shared) + r * op->shared_stride;
            gate = refd_sigmoid((double)((const float *)kern_ptr(op->shared_gate))[r]);
        }
        for (int32_t i = 0; i < op->n; i++) {
            double t = 0.0;
            for (int32_t slot = 0; slot < op->n_used; slot++)
                t += (double)weight[slot] * (double)y[(int64_t)slot * op->y_stride + i];
            if (shared)
                t += gate * (double)shared[i];
            x[i] = (float)((double)x[i] + t);
        }
    }
}
