/* MATMUL and MOE_MATMUL in plain C, production arithmetic; this file defines the bits. Contract: kern.h; block formulas:
   quant/blocks.h. One function per weight type computes one dot product; everything else is loops. */
#include <string.h>

#include "kern/kern.h"
#include "kern/ref/kern_ref.h"
#include "kern/ref/scalar.h"
#include "quant/blocks.h"
#include "quant/half.h"
#include "quant/type.h"

/* One input row: the floats, or its quantised copy. */
struct input {
    const float *x;
    struct kern_act_row q;
};

typedef float dot_fn(const void *w, struct input in, int32_t n);

/* ---- float weights: LANES order ---- */

typedef float widen_fn(const char *w, int32_t i);

static inline float widen_f32(const char *w, int32_t i)
{
    float v;
    memcpy(&v, w + 4 * (size_t)i, sizeof v);
    return v;
}

static inline uint16_t load16(const char *w, int32_t i)
{
    uint16_t v;
    memcpy(&v, w + 2 * (size_t)i, sizeof v);
    return v;
}

static inline float widen_f16(const char *w, int32_t i)
{
    return f16_to_f32(load16(w, i));
}

static inline float widen_bf16(const char *w, int32_t i)
{
    return bf16_to_f32(load16(w, i));
}

/* widen is a constant of each caller, and inlined. */
static inline __attribute__((always_inline)) float dot16_widened(const char *w, const float *x, int32_t n, widen_fn *widen)
{
    float acc[16] = {0};
    int32_t k = 0;
    for (; k + 16 <= n; k += 16)
        for (int l = 0; l < 16; l++)
            acc[l] = fmaf(widen(w, k + l), x[k + l], acc[l]);
    for (int l = 0; k + l < n; l++)
        acc[l] = fmaf(widen(w, k + l), x[k + l], acc[l]);
    return scalar_reduce16(acc);
}

SCALAR_CLONES static float dot_f32(const void *w, struct input in, int32_t n)
{
    return dot16_widened(w, in.x, n, widen_f32);
}

SCALAR_CLONES static float dot_f16(const void *w, struct input in, int32_t n)
{
    return dot16_widened(w, in.x, n, widen_f16);
}

SCALAR_CLONES static float dot_bf16(const void *w, struct input in, int32_t n)
{
    return dot16_widened(w, in.x, n, widen_bf16);
}

/* ---- quantised weights: INTEGER order ---- */

SCALAR_CLONES static float dot_q8_0(const void *w, struct input in, int32_t n)
{
    const struct block_q8_0 *blocks = w;
    float acc = 0.0f;
    for (int32_t b = 0; b < n / 32; b++) {
        const int16_t *q = in.q.q + 32 * b;
        int32_t sum = 0;
        for (int i = 0; i < 32; i++)
            sum += blocks[b].qs[i] * q[i];
        acc = fmaf(f16_to_f32(blocks[b].d) * in.q.d[b], (float)sum, acc);
    }
    return acc;
}

SCALAR_CLONES static float dot_q4_0(const void *w, struct input in, int32_t n)
{
    const struct block_q4_0 *blocks = w;
    float acc = 0.0f;
    for (int32_t b = 0; b < n / 32; b++) {
        const int16_t *q = in.q.q + 32 * b;
        int32_t sum = 0;
        for (int i = 0; i < 16; i++) {
            sum += ((blocks[b].qs[i] & 15) - 8) * q[i];
            sum += ((blocks[b].qs[i] >> 4) - 8) * q[i + 16];
        }
        acc = fmaf(f16_to_f32(blocks[b].d) * in.q.d[b], (float)sum, acc);
    }
    return acc;
}

/* sum_j(mn[j] * (bsum[2j] + bsum[2j + 1])) */
static int32_t min_sum(const uint8_t mn[8], const int16_t *bsum)
{
    int32_t sum = 0;
    for (int j = 0; j < 8; j++)
        sum += mn[j] * (bsum[2 * j] + bsum[2 * j + 1]);
    return sum;
}

SCALAR_CLONES static float dot_q4_k(const void *w, struct input in, int32_t n)
{
    const struct block_q4_k *blocks = w;
    float acc = 0.0f;
    for (int32_t b = 0; b < n / 256; b++) {
        const int16_t *q = in.q.q + 256 * b;
        uint8_t sc[8], mn[8];
        k4_unpack_pairs(blocks[b].c, sc, mn);
        int32_t sum = 0;
        for (int j = 0; j < 8; j++) {
            int32_t part = 0;
            for (int l = 0; l < 32; l++)
                part += (blocks[b].qs[32 * (j / 2) + l] >> 4 * (j & 1) & 15) * q[32 * j + l];
            sum += sc[j] * part;
        }
        acc = fmaf(f16_to_f32(blocks[b].d) * in.q.d[b], (float)sum, acc);
        acc = fmaf(-(f16_to_f32(blocks[b].dmin) * in.q.d[b]), (float)min_sum(mn, in.q.bsum + 16 * b), acc);
    }
    return acc;
}

SCALAR_CLONES static float dot_q5_k(const void *w, struct input in, int32_t n)
{
    const struct block_q5_k *blocks = w;
    float acc = 0.0f;
    for (int32_t b = 0; b < n / 256; b++) {
        const int16_t *q = in.q.q + 256 * b;
        uint8_t sc[8], mn[8];
        k4_unpack_pairs(blocks[b].c, sc, mn);
        int32_t sum = 0;
        for (int j = 0; j < 8; j++) {
            int32_t part = 0;
            for (int l = 0; l < 32; l++) {
                int low = blocks[b].qs[32 * (j / 2) + l] >> 4 * (j & 1) & 15;
                int high = blocks[b].qh[l] >> j & 1;
                part += (low | high << 4) * q[32 * j + l];
            }
            sum += sc[j] * part;
        }
        acc = fmaf(f16_to_f32(blocks[b].d) * in.q.d[b], (float)sum, acc);
        acc = fmaf(-(f16_to_f32(blocks[b].dmin) * in.q.d[b]), (float)min_sum(mn, in.q.bsum + 16 * b), acc);
    }
    return acc;
}

SCALAR_CLONES static float dot_q6_k(const void *w, struct input in, int32_t n)
{
    const struct block_q6_k *blocks = w;
    float acc = 0.0f;
    for (int32_t b = 0; b < n / 256; b++) {
        const int16_t *q = in.q.q + 256 * b;
        int32_t sum = 0;
        for (int j = 0; j < 16; j++) { /* 16 elements: half h = j / 8, 32-element row k = j % 8 / 2 of it */
            int h = j / 8, k = j % 8 / 2;
            const uint8_t *low = blocks[b].ql + 64 * h + 32 * (k & 1) + 16 * (j & 1);
            const uint8_t *high = blocks[b].qh + 32 * h + 16 * (j & 1);
            int32_t part = 0;
            for (int l = 0; l < 16; l++) {
                int code = (low[l] >> 4 * (k / 2) & 15) | (high[l] >> 2 * k & 3) << 4;
                part += (code - 32) * q[16 * j + l];
            }
            sum += blocks[b].s[j] * part;
        }
        acc = fmaf(f16_to_f32(blocks[b].d) * in.q.d[b], (float)sum, acc);
    }
    return acc;
}

static dot_fn *dot_for(uint32_t type)
{
    switch (type) {
    case QTYPE_F32:
        return dot_f32;
    case QTYPE_F16:
        return dot_f16;
    case QTYPE_BF16:
        return dot_bf16;
    case QTYPE_Q8_0:
        return dot_q8_0;
    case QTYPE_Q4_0:
        return dot_q4_0;
    case QTYPE_Q4_K:
        return dot_q4_k;
    case QTYPE_Q5_K:
        return dot_q5_k;
    case QTYPE_Q6_K:
        return dot_q6_k;
    default:
        return NULL; /* kern_act_kind() is -1 for these, so no op list contains them */
    }
}

static struct input input_at(const struct kern_weight *w, const void *x, int32_t x_stride, int64_t row)
{
    int kind = kern_act_kind(&kern_scalar, w->type);
    struct input in = {0};
    if (kind == KERN_ACT_F32)
        in.x = (const float *)x + row * x_stride;
    else
        in.q = kern_act_row_at((enum kern_act)kind, x, w->n_in, row);
    return in;
}

void kern_matmul_scalar(const struct op_matmul *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    dot_fn *dot = dot_for(op->w.type);
    size_t row_bytes = qtype_row_bytes(op->w.type, (uint64_t)op->w.n_in);
    for (int64_t r = 0; r < op->n_rows; r++) {
        struct input in = input_at(&op->w, kern_ptr(op->x), op->x_stride, r);
        float *y = (float *)kern_ptr(op->y) + r * op->y_stride;
        for (int64_t o = begin; o < end; o++) {
            float v = dot((const char *)kern_ptr(op->w.data) + (size_t)o * row_bytes, in, op->w.n_in);
            y[o] = op->accumulate ? y[o] + v : v;
        }
    }
}

void kern_moe_matmul_scalar(const struct op_moe_matmul *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    dot_fn *dot = dot_for(op->w.type);
    size_t row_bytes = qtype_row_bytes(op->w.type, (uint64_t)op->w.n_in);
    int64_t n_blocks = (op->w.n_out + 31) / 32;
    const int32_t *first = kern_ptr(op->group), *pair = first + op->w.n_expert + 1;
    for (int64_t u = begin; u < end; u++) {
        int64_t e = u / n_blocks, o_begin = 32 * (u % n_blocks);
        int64_t o_end = o_begin + 32 < op->w.n_out ? o_begin + 32 : op->w.n_out;
        const char *w = (const char *)kern_ptr(op->w.data) + (size_t)(e * op->w.n_out) * row_bytes;
        for (int32_t i = first[e]; i < first[e + 1]; i++) {
            int32_t p = pair[i];
            struct input in = input_at(&op->w, kern_ptr(op->x), op->x_stride, op->x_per_pair ? p : p / op->n_used);
            float *y = (float *)kern_ptr(op->y) + (int64_t)p * op->y_stride;
            for (int64_t o = o_begin; o < o_end; o++)
                y[o] = dot(w + (size_t)o * row_bytes, in, op->w.n_in);
        }
    }
}
