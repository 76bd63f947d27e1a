/* RMS_NORM, SWIGLU, ROUTER and MOE_COMBINE on v16. Included once by row_<isa>.c, which has defined v16 and
 * V16_OP(op) = kern_<op>_<isa>. Contracts: kern/kern.h; the same steps in plain C: kern/ref/scalar_row.c, scalar_moe.c.
 */
#include "kern/cpu/kern_tiers.h"
#include "kern/cpu/v16_math.h"
#include "kern/ref/scalar.h"

void V16_OP(rms_norm)(const struct op_rms_norm *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    const float *w = kern_ptr(op->w);
    const int32_t n = op->n, rest = n % 16;
    for (int64_t r = begin; r < end; r++) {
        const float *x = (const float *)kern_ptr(op->x) + r * op->x_stride;
        float *y = (float *)kern_ptr(op->y) + r * op->y_stride;
        const v16 inv = v16_set1(v16_rms_inv(x, n, op->eps));
        for (int32_t i = 0; i + 16 <= n; i += 16)
            v16_store(y + i, v16_mul(v16_mul(v16_load(x + i), inv), v16_load(w + i)));
        if (rest > 0) {
            const int32_t i = n - rest;
            v16_store_n(y + i, v16_mul(v16_mul(v16_load_n(x + i, rest), inv), v16_load_n(w + i, rest)), rest);
        }
    }
}

void V16_OP(swiglu)(const struct op_swiglu *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    const int64_t pieces = (op->n + 255) / 256;
    for (int64_t u = begin; u < end; u++) {
        const int64_t r = u / pieces, first = u % pieces * 256;
        const int64_t last = first + 256 < op->n ? first + 256 : op->n;
        const float *gate = (const float *)kern_ptr(op->gate) + r * op->gate_stride;
        const float *up = (const float *)kern_ptr(op->up) + r * op->up_stride;
        float *h = (float *)kern_ptr(op->h) + r * op->h_stride;
        int64_t i = first;
        for (; i + 16 <= last; i += 16)
            v16_store(h + i, v16_mul(v16_silu(v16_load(gate + i)), v16_load(up + i)));
        if (i < last) {
            const int rest = (int)(last - i);
            v16_store_n(h + i, v16_mul(v16_silu(v16_load_n(gate + i, rest)), v16_load_n(up + i, rest)), rest);
        }
    }
}

/* out[0 .. n-1] = kern_expf(logits - m), n <= 16 */
V16_INLINE v16 route_exp(const float *logits, int n, float m)
{
    return v16_exp(v16_sub(n == 16 ? v16_load(logits) : v16_load_n(logits, n), v16_set1(m)));
}

void V16_OP(router)(const struct op_router *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    for (int64_t r = begin; r < end; r++) {
        const float *logits = (const float *)kern_ptr(op->logits) + r * op->n_expert;
        int32_t *ids = (int32_t *)kern_ptr(op->ids) + r * op->n_used;
        float *weights = (float *)kern_ptr(op->weights) + r * op->n_used;
        float m = logits[0], sum = 0.0f, lanes[16];
        for (int32_t i = 1; i < op->n_expert; i++)
            m = logits[i] > m ? logits[i] : m;
        for (int32_t first = 0; first < op->n_expert; first += 16) {
            const int n = op->n_expert - first < 16 ? op->n_expert - first : 16;
            v16_store(lanes, route_exp(logits + first, n, m));
            for (int i = 0; i < n; i++)
                sum = sum + lanes[i];
        }
        int32_t n_selected = 0;
        for (int32_t first = 0; first < op->n_expert; first += 16) {
            const int n = op->n_expert - first < 16 ? op->n_expert - first : 16;
            v16_store(lanes, v16_div(route_exp(logits + first, n, m), v16_set1(sum)));
            for (int i = 0; i < n; i++)
                n_selected = scalar_route_offer(ids, weights, n_selected, op->n_used, first + i, lanes[i]);
        }
        scalar_route_weights(weights, n_selected);
    }
}

void V16_OP(moe_combine)(const struct op_moe_combine *op, const struct kern_batch *batch, int64_t begin, int64_t end)
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
        for (int32_t i = 0; i < op->n; i += 16) {
            const int n = op->n - i;
            v16 t = v16_set1(0.0f);
            for (int32_t slot = 0; slot < op->n_used; slot++) {
                const float *from = y + (int64_t)slot * op->y_stride + i;
                t = v16_fma(v16_set1(weight[slot]), n >= 16 ? v16_load(from) : v16_load_n(from, n), t);
            }
            if (shared)
                t = v16_fma(v16_set1(gate), n >= 16 ? v16_load(shared + i) : v16_load_n(shared + i, n), t);
            if (n >= 16)
                v16_store(x + i, v16_add(v16_load(x + i), t));
            else
                v16_store_n(x + i, v16_add(v16_load_n(x + i, n), t), n);
        }
    }
}
