/* Scalar versions of the routing ops of a mixture of experts: ROUTER, MOE_GROUP, MOE_COMBINE. Contracts: kern/kern.h. */
#include "kern/ref/kern_ref.h"
#include "kern/ref/scalar.h"

static void route_row(const float *logits, int32_t n_expert, int32_t n_used, int32_t *ids, float *weights)
{
    float m = logits[0];
    for (int32_t i = 1; i < n_expert; i++)
        m = logits[i] > m ? logits[i] : m;
    float sum = 0.0f;
    for (int32_t i = 0; i < n_expert; i++)
        sum = sum + kern_expf(logits[i] - m);
    int32_t n = 0;
    for (int32_t i = 0; i < n_expert; i++)
        n = scalar_route_offer(ids, weights, n, n_used, i, kern_expf(logits[i] - m) / sum);
    scalar_route_weights(weights, n);
}

SCALAR_CLONES void kern_router_scalar(const struct op_router *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    for (int64_t r = begin; r < end; r++)
        route_row((const float *)kern_ptr(op->logits) + r * op->n_expert, op->n_expert, op->n_used,
                  (int32_t *)kern_ptr(op->ids) + r * op->n_used, (float *)kern_ptr(op->weights) + r * op->n_used);
}

/* Counting sort. While pairs are placed, begin_of[e] is the place of the expert's next pair; afterwards it has become the
   start of expert e + 1, and the array is moved up by one. */
void kern_moe_group_scalar(const struct op_moe_group *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    if (begin >= end)
        return;
    const int32_t *ids = kern_ptr(op->ids);
    int32_t *begin_of = kern_ptr(op->group);
    int32_t *pair = begin_of + op->n_expert + 1;
    const int32_t n_pairs = op->n_rows * op->n_used;

    for (int32_t e = 0; e <= op->n_expert; e++)
        begin_of[e] = 0;
    for (int32_t p = 0; p < n_pairs; p++)
        begin_of[ids[p] + 1]++;
    for (int32_t e = 0; e < op->n_expert; e++)
        begin_of[e + 1] += begin_of[e];
    for (int32_t p = 0; p < n_pairs; p++)
        pair[begin_of[ids[p]]++] = p;
    for (int32_t e = op->n_expert; e > 0; e--)
        begin_of[e] = begin_of[e - 1];
    begin_of[0] = 0;
}

SCALAR_CLONES void kern_moe_combine_scalar(const struct op_moe_combine *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    for (int64_t r = begin; r < end; r++) {
        float *x = (float *)kern_ptr(op->x) + r * op->x_stride;
        const float *y = (const float *)kern_ptr(op->y) + r * op->n_used * op->y_stride;
        const float *weight = (const float *)kern_ptr(op->weights) + r * op->n_used;
        const float *shared = NULL;
        float gate = 0.0f;
        if (op->shared.buf) {
            shared = (const float *)kern_ptr(op->shared) + r * op->shared_stride;
            gate = kern_sigmoidf(((const float *)kern_ptr(op->shared_gate))[r]);
        }
        for (int32_t i = 0; i < op->n; i++) {
            float t = 0.0f;
            for (int32_t slot = 0; slot < op->n_used; slot++)
                t = fmaf(weight[slot], y[(int64_t)slot * op->y_stride + i], t);
            if (shared)
                t = fmaf(gate, shared[i], t);
            x[i] = x[i] + t;
        }
    }
}
