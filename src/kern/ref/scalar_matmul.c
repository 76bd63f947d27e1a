/* MATMUL and MOE_MATMUL in plain C, production arithmetic; with scalar_dot_*.c this defines the bits. Contract: kern.h. */
#include "kern/kern.h"
#include "kern/ref/kern_ref.h"
#include "kern/ref/scalar_dot.h"
#include "quant/type.h"

/* NULL for types for which kern_act_kind() is -1: no op list contains them. */
static scalar_dot_fn *dot_for(uint32_t type)
{
    static scalar_dot_fn *const dot[QTYPE_END] = {
        [QTYPE_F32] = scalar_dot_f32,         [QTYPE_F16] = scalar_dot_f16,       [QTYPE_BF16] = scalar_dot_bf16,
        [QTYPE_Q8_0] = scalar_dot_q8_0,       [QTYPE_Q4_0] = scalar_dot_q4_0,     [QTYPE_Q4_1] = scalar_dot_q4_1,
        [QTYPE_Q5_0] = scalar_dot_q5_0,       [QTYPE_Q5_1] = scalar_dot_q5_1,     [QTYPE_IQ4_NL] = scalar_dot_iq4_nl,
        [QTYPE_MXFP4] = scalar_dot_mxfp4,     [QTYPE_NVFP4] = scalar_dot_nvfp4,   [QTYPE_Q4_64A] = scalar_dot_q4_64a,
        [QTYPE_Q2_64A] = scalar_dot_q2_64a,   [QTYPE_Q2_K] = scalar_dot_q2_k,     [QTYPE_Q3_K] = scalar_dot_q3_k,
        [QTYPE_Q4_K] = scalar_dot_q4_k,       [QTYPE_Q5_K] = scalar_dot_q5_k,     [QTYPE_Q6_K] = scalar_dot_q6_k,
        [QTYPE_IQ4_XS] = scalar_dot_iq4_xs,   [QTYPE_IQ2_XXS] = scalar_dot_iq2_xxs, [QTYPE_IQ2_S] = scalar_dot_iq2_s,
    };
    return type < QTYPE_END ? dot[type] : NULL;
}

static struct dot_input input_at(const struct kern_weight *w, const void *x, int32_t x_stride, int64_t row)
{
    int kind = kern_act_kind(&kern_scalar, w->type);
    struct dot_input in = {0};
    if (kind == KERN_ACT_F32)
        in.x = (const float *)x + row * x_stride;
    else
        in.q = kern_act_row_at((enum kern_act)kind, x, w->n_in, row);
    return in;
}

void kern_matmul_scalar(const struct op_matmul *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    scalar_dot_fn *dot = dot_for(op->w.type);
    size_t row_bytes = qtype_row_bytes(op->w.type, (uint64_t)op->w.n_in);
    float scale = kern_scale(&op->w, 0);
    for (int64_t r = 0; r < op->n_rows; r++) {
        struct dot_input in = input_at(&op->w, kern_ptr(op->x), op->x_stride, r);
        float *y = (float *)kern_ptr(op->y) + r * op->y_stride;
        for (int64_t o = begin; o < end; o++) {
            float v = dot((const char *)kern_ptr(op->w.data) + (size_t)o * row_bytes, in, op->w.n_in) * scale;
            y[o] = op->accumulate ? y[o] + v : v;
        }
    }
}

void kern_moe_matmul_scalar(const struct op_moe_matmul *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    scalar_dot_fn *dot = dot_for(op->w.type);
    size_t row_bytes = qtype_row_bytes(op->w.type, (uint64_t)op->w.n_in);
    int64_t n_blocks = (op->w.n_out + 31) / 32;
    const int32_t *first = kern_ptr(op->group), *pair = first + op->w.n_expert + 1;
    for (int64_t u = begin; u < end; u++) {
        int64_t e = u / n_blocks, o_begin = 32 * (u % n_blocks);
        int64_t o_end = o_begin + 32 < op->w.n_out ? o_begin + 32 : op->w.n_out;
        const char *w = (const char *)kern_ptr(op->w.data) + (size_t)(e * op->w.n_out) * row_bytes;
        float scale = kern_scale(&op->w, e);
        for (int32_t i = first[e]; i < first[e + 1]; i++) {
            int32_t p = pair[i];
            struct dot_input in = input_at(&op->w, kern_ptr(op->x), op->x_stride, op->x_per_pair ? p : p / op->n_used);
            float *y = (float *)kern_ptr(op->y) + (int64_t)p * op->y_stride;
            for (int64_t o = o_begin; o < o_end; o++)
                y[o] = dot(w + (size_t)o * row_bytes, in, op->w.n_in) * scale;
        }
    }
}
