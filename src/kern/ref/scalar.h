/* Building blocks of the scalar implementations: the LANES sums of kern/kern.h, RMS and RoPE on single values, and where a
 * sequence's state and cache live.
 *
 * This is plain C without intrinsics, but for the heavy functions the compiler may also emit a version for processors with AVX2
 * and FMA (SCALAR_CLONES): there fmaf is one instruction instead of a call, and loops over 16 lanes become vectors. The bits
 * are those of the C source either way: tests/kern compare the SIMD tiers with both, since sanitizer and clang builds have none.
 */
#ifndef SKUA_KERN_REF_SCALAR_H
#define SKUA_KERN_REF_SCALAR_H

#include <math.h>

#include "kern/kern.h"
#include "kern/math.h"

/* gcc only; not under the address or thread sanitizer, whose start-up comes after the choice of the version. SCALAR_NO_CLONES: tests. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__) && !defined(SCALAR_NO_CLONES)
#define SCALAR_CLONES __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define SCALAR_CLONES
#endif

/* acc[l] += acc[l + s] for s = 8, 4, 2, 1. Destroys acc. */
static inline float scalar_reduce16(float acc[16])
{
    for (int s = 8; s > 0; s >>= 1)
        for (int l = 0; l < s; l++)
            acc[l] = acc[l] + acc[l + s];
    return acc[0];
}

static inline float scalar_dot16(const float *x, const float *y, int64_t n)
{
    float acc[16] = {0};
    int64_t k = 0;
    for (; k + 16 <= n; k += 16)
        for (int l = 0; l < 16; l++)
            acc[l] = fmaf(x[k + l], y[k + l], acc[l]);
    for (int l = 0; k + l < n; l++)
        acc[l] = fmaf(x[k + l], y[k + l], acc[l]);
    return scalar_reduce16(acc);
}

static inline float scalar_sum16(const float *x, int64_t n)
{
    float acc[16] = {0};
    for (int64_t k = 0; k < n; k++)
        acc[k % 16] = acc[k % 16] + x[k];
    return scalar_reduce16(acc);
}

/* The factor of RMS_NORM. */
static inline float scalar_rms_inv(const float *x, int64_t n, float eps)
{
    return 1.0f / sqrtf(scalar_dot16(x, x, n) / (float)n + eps);
}

/* Value d of a head after RMS norm (inv from scalar_rms_inv) and RoPE: ATTN_Q and ATTN_KV. table: cos, then sin, of the row. */
static inline float scalar_norm_rope(const float *x, const float *norm, float inv, const float *table, int32_t n_rot, int32_t d)
{
    const int32_t half = n_rot / 2;
    const float y = (x[d] * inv) * norm[d];
    if (d < half) {
        const float b = (x[d + half] * inv) * norm[d + half];
        return fmaf(y, table[d], -(b * table[half + d]));
    }
    if (d < 2 * half) {
        const int32_t i = d - half;
        const float a = (x[i] * inv) * norm[i];
        return fmaf(y, table[i], a * table[half + i]);
    }
    return y;
}

/* ROUTER keeps the selected experts sorted in the output arrays themselves; n of n_used are there. Offer expert i (offered
   in order of id) with probability p; returns the new n. It moves ahead of those with a smaller probability only, so equal
   ones stay in order of id; a NaN moves ahead of nothing, so ids are valid whatever comes in. */
static inline int32_t scalar_route_offer(int32_t *ids, float *weights, int32_t n, int32_t n_used, int32_t i, float p)
{
    int32_t at = n;
    while (at > 0 && p > weights[at - 1])
        at--;
    if (at == n_used)
        return n;
    n = n < n_used ? n + 1 : n;
    for (int32_t j = n - 1; j > at; j--) {
        ids[j] = ids[j - 1];
        weights[j] = weights[j - 1];
    }
    ids[at] = i;
    weights[at] = p;
    return n;
}

/* The last step of ROUTER: weights of the n selected experts from their probabilities. */
static inline void scalar_route_weights(float *weights, int32_t n)
{
    float sum = 0.0f;
    for (int32_t j = 0; j < n; j++)
        sum = sum + weights[j];
    const float divisor = sum > 6.103515625e-5f ? sum : 6.103515625e-5f;
    for (int32_t j = 0; j < n; j++)
        weights[j] = weights[j] / divisor;
}

static inline char *kern_state(const struct kern_seq *seq, size_t offset)
{
    return (char *)seq->state->host + offset;
}

/* A layer's record of held row t of a sequence. */
static inline float *kern_tape(const struct kern_seq *seq, size_t offset, size_t stride, int64_t t)
{
    return (float *)(void *)((char *)seq->tape->host + (size_t)t * stride + offset);
}

/* What GDN_STEP keeps of held rows besides u, by the units of a head's first column: each head its decay, the first of the heads with a
   key head its k. */
static inline void kern_tape_keys(const struct op_gdn_step *op, const struct kern_seq *seq, int32_t head, int32_t first_column)
{
    const int32_t d = op->d;
    for (int32_t t = 0; seq->tape && first_column == 0 && t < seq->n_rows; t++) {
        const int64_t r = (int64_t)seq->row_begin + t;
        const float *qkv = (const float *)kern_ptr(op->qkv) + r * op->qkv_stride;
        float *record = kern_tape(seq, op->tape_offset, op->tape_stride, t);
        for (int32_t i = 0; head < op->n_key_head && i < d; i++)
            record[(int64_t)head * d + i] = qkv[(int64_t)(op->n_key_head + head) * d + i];
        record[(int64_t)(op->n_key_head + op->n_v) * d + head] = ((const float *)kern_ptr(op->decay))[r * op->n_v + head];
    }
}

/* Where GDN_STEP keeps u of a head in a record. */
static inline float *kern_tape_u(const struct op_gdn_step *op, const struct kern_seq *seq, int64_t t, int32_t head)
{
    return kern_tape(seq, op->tape_offset, op->tape_stride, t) + (int64_t)(op->n_key_head + head) * op->d;
}

/* The cache row of a position: layer_offset is the op's k_offset or v_offset. */
static inline char *kern_kv_row(const struct kern_seq *seq, size_t layer_offset, int32_t kv_head, int32_t pos, size_t row_bytes)
{
    const size_t row = (size_t)kv_head * KV_PAGE_ROWS + (size_t)(pos % KV_PAGE_ROWS);
    return (char *)seq->kv_pages[pos / KV_PAGE_ROWS]->host + layer_offset + row * row_bytes;
}

/* The positions that a row of the batch sees. */
static inline struct kern_span kern_row_span(const struct op_attn *op, const struct kern_batch *batch, int64_t row)
{
    return kern_attn_span(op, &batch->seqs[batch->seq[row]], batch->pos[row]);
}

/* The places of the page from position start on that are seen: from .. to - 1; none when from >= to. */
struct kern_places {
    int32_t from, to;
};
static inline struct kern_places kern_places(struct kern_span seen, int32_t start)
{
    const int32_t from = seen.first - start, to = seen.last + 1 - start;
    return (struct kern_places){from > 0 ? from : 0, to < KV_PAGE_ROWS ? to : KV_PAGE_ROWS};
}

/* The part of a page (counted from page_begin), row and head. */
static inline float *kern_part(const struct op_attn_pages *op, const struct kern_batch *batch, int64_t page, int64_t row, int64_t head)
{
    const int64_t at = (page * batch->n_rows + row) * op->attn.n_head + head;
    return (float *)kern_ptr(op->parts) + at * (int64_t)kern_part_floats(op->attn.head_dim);
}

#endif
