/* ATTN_Q, ATTN_KV and ATTN on v16. Included once by attn_<isa>.c, which has defined v16 and V16_OP(op) = kern_<op>_<isa>.
 * Contracts: kern/kern.h; the same steps in plain C: kern/ref/scalar_attn.c.
 *
 * ATTN takes all query heads of one KV head together, in groups of up to V16_TILE_HEADS, so that a cached row is widened
 * once per group. Within a page the scores come first (tiles of heads x positions, one v16 per dot product), then the
 * values (tiles of heads x columns, running over the positions). The running O lives in the output row.
 */
#include "kern/cpu/kern_tiers.h"
#include "kern/cpu/v16_math.h"
#include "kern/ref/kern_ref.h"
#include "kern/ref/kv_row.h"
#include "kern/ref/scalar.h"

/* ---- ATTN_Q, ATTN_KV ---- */

/* Values d .. d + 15 of a head after RMS norm and RoPE; d and n_rot / 2 are multiples of 16. */
V16_INLINE v16 norm_rope16(const float *x, const float *norm, v16 inv, const float *table, int32_t n_rot, int32_t d)
{
    const int32_t half = n_rot / 2;
    const v16 y = v16_mul(v16_mul(v16_load(x + d), inv), v16_load(norm + d));
    if (d >= n_rot)
        return y;
    const int32_t i = d < half ? d : d - half, other = d < half ? d + half : i;
    const v16 z = v16_mul(v16_mul(v16_load(x + other), inv), v16_load(norm + other));
    const v16 c = v16_load(table + i), s = v16_load(table + half + i);
    return d < half ? v16_fma(y, c, v16_neg(v16_mul(z, s))) : v16_fma(y, c, v16_mul(z, s));
}

void V16_OP(attn_q)(const struct op_attn_q *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    if (op->n_rot % 32 != 0) {
        kern_attn_q_scalar(op, batch, begin, end);
        return;
    }
    const int32_t hd = op->head_dim;
    const float *norm = kern_ptr(op->norm);
    for (int64_t u = begin; u < end; u++) {
        const int64_t r = u / op->n_head, h = u % op->n_head;
        const float *x = (const float *)kern_ptr(op->u) + r * op->u_stride + h * 2 * hd;
        const float *table = (const float *)kern_ptr(op->rope) + r * op->n_rot;
        float *q = (float *)kern_ptr(op->q) + r * op->q_stride + h * hd;
        const v16 inv = v16_set1(v16_rms_inv(x, hd, op->eps));
        for (int32_t d = 0; d < hd; d += 16)
            v16_store(q + d, norm_rope16(x, norm, inv, table, op->n_rot, d));
    }
}

/* kv_store_q8_0 of kv_row.h for a block whose lanes are all finite. */
V16_INLINE void store_q8_0(struct block_q8_0 *b, v16 lo, v16 hi, float amax)
{
    const float d = amax / 127.0f;
    const v16 id = v16_set1(d != 0.0f ? 1.0f / d : 0.0f);
    const v16 most = v16_set1(127.0f), least = v16_set1(-127.0f), zero = v16_set1(0.0f);
    /* roundf(v) = trunc(v +- the float before 0.5): the sum rounds to the next integer exactly when the fraction is >= 0.5 */
    const v16 up = v16_set1(0x1.fffffep-2f), down = v16_set1(-0x1.fffffep-2f);
    b->d = f32_to_f16(d);
    lo = v16_max(v16_min(v16_mul(lo, id), most), least);
    hi = v16_max(v16_min(v16_mul(hi, id), most), least);
    v16_store_i8(b->qs, v16_add(lo, v16_if_lt(lo, zero, down, up)));
    v16_store_i8(b->qs + 16, v16_add(hi, v16_if_lt(hi, zero, down, up)));
}

/* kv_store of kv_row.h for values first .. first + n - 1, n = 16 or 32. NaNs and infinities are rare and go through it. */
V16_INLINE void store_piece(uint32_t type, char *row, int32_t first, v16 lo, v16 hi, int32_t n)
{
    const v16 largest = v16_max(v16_abs(lo), v16_abs(hi));
    const bool nan = v16_any_nan(lo) || v16_any_nan(hi);
    const float amax = v16_reduce_max(largest);
    if (nan || (type == QTYPE_Q8_0 && !(amax <= 3.402823466e38f))) {
        float piece[KV_PIECE];
        v16_store(piece, lo);
        v16_store(piece + 16, hi);
        kv_store(type, row, first, piece, n);
    } else if (type == QTYPE_Q8_0) {
        store_q8_0((struct block_q8_0 *)row + first / 32, lo, hi, amax);
    } else if (type == QTYPE_F32) {
        v16_store((float *)(void *)row + first, lo);
        if (n == 32)
            v16_store((float *)(void *)row + first + 16, hi);
    } else if (type == QTYPE_F16) {
        v16_store_f16(row + 2 * (size_t)first, lo);
        if (n == 32)
            v16_store_f16(row + 2 * (size_t)(first + 16), hi);
    } else {
        v16_store_bf16(row + 2 * (size_t)first, lo);
        if (n == 32)
            v16_store_bf16(row + 2 * (size_t)(first + 16), hi);
    }
}

void V16_OP(attn_kv)(const struct op_attn_kv *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    if (op->n_rot % 32 != 0) {
        kern_attn_kv_scalar(op, batch, begin, end);
        return;
    }
    const int32_t hd = op->head_dim;
    const size_t row_bytes = qtype_row_bytes(op->kv_type, (uint64_t)hd);
    const float *norm = kern_ptr(op->norm);
    for (int64_t u = begin; u < end; u++) {
        const int64_t r = u / op->n_head_kv;
        const int32_t h = (int32_t)(u % op->n_head_kv);
        const struct kern_seq *seq = &batch->seqs[batch->seq[r]];
        const float *k = (const float *)kern_ptr(op->k) + r * op->k_stride + (int64_t)h * hd;
        const float *v = (const float *)kern_ptr(op->v) + r * op->v_stride + (int64_t)h * hd;
        const float *table = (const float *)kern_ptr(op->rope) + r * op->n_rot;
        char *k_row = kern_kv_row(seq, op->k_offset, h, batch->pos[r], row_bytes);
        char *v_row = kern_kv_row(seq, op->v_offset, h, batch->pos[r], row_bytes);
        const v16 inv = v16_set1(v16_rms_inv(k, hd, op->eps));
        for (int32_t d = 0; d < hd; d += 32) {
            const int32_t n = hd - d < 32 ? 16 : 32, second = n == 32 ? d + 16 : d;
            const v16 k_lo = norm_rope16(k, norm, inv, table, op->n_rot, d);
            const v16 k_hi = norm_rope16(k, norm, inv, table, op->n_rot, second);
            store_piece(op->kv_type, k_row, d, k_lo, k_hi, n);
            store_piece(op->kv_type, v_row, d, v16_load(v + d), v16_load(v + second), n);
        }
    }
}

/* ---- ATTN ---- */

/* Values d .. d + 15 of a cache row. */
V16_INLINE v16 load_kv(uint32_t type, const char *row, int32_t d)
{
    switch (type) {
    case QTYPE_F16: return v16_load_f16(row + 2 * (size_t)d);
    case QTYPE_BF16: return v16_load_bf16(row + 2 * (size_t)d);
    case QTYPE_Q8_0: {
        const struct block_q8_0 *b = (const struct block_q8_0 *)row + d / 32;
        return v16_mul(v16_load_i8(b->qs + d % 32), v16_set1(f16_to_f32(b->d)));
    }
    default: return v16_load((const float *)(const void *)row + d);
    }
}

/* What one call of a tile needs to know. Heads of the group are head_dim floats apart in q and out, 2 * head_dim in gate. */
struct attn_group {
    const float *q, *gate;
    float *out;
    int32_t head_dim;
    float scale;
    size_t row_bytes;
};

/* p[h][t ..] = scores of n_t positions (k: the first one's row) for n_h heads. */
V16_INLINE void score_tile(const struct attn_group *g, uint32_t type, const char *k, int n_h, int n_t, float (*p)[KV_PAGE_ROWS],
                           int32_t t)
{
    v16 acc[V16_TILE_HEADS][V16_TILE_POSITIONS];
    V16_UNROLL
    for (int h = 0; h < n_h; h++)
        V16_UNROLL
        for (int i = 0; i < n_t; i++)
            acc[h][i] = v16_set1(0.0f);
    for (int32_t d = 0; d < g->head_dim; d += 16) {
        v16 row[V16_TILE_POSITIONS];
        V16_UNROLL
        for (int i = 0; i < n_t; i++)
            row[i] = load_kv(type, k + (size_t)i * g->row_bytes, d);
        V16_UNROLL
        for (int h = 0; h < n_h; h++) {
            const v16 q = v16_load(g->q + (int64_t)h * g->head_dim + d);
            V16_UNROLL
            for (int i = 0; i < n_t; i++)
                acc[h][i] = v16_fma(q, row[i], acc[h][i]);
        }
    }
    V16_UNROLL
    for (int h = 0; h < n_h; h++) {
        if (n_t == 4) {
            v16_reduce4(acc[h], g->scale, p[h] + t);
            continue;
        }
        V16_UNROLL
        for (int i = 0; i < n_t; i++)
            p[h][t + i] = v16_reduce(acc[h][i]) * g->scale;
    }
}

/* Scores p[0 .. n-1] -> weights, in place; m and l as in the contract. The lanes behind n take part as -infinity, which
   changes neither the maximum nor, as +0, the sum. */
V16_INLINE void page_softmax(float p[KV_PAGE_ROWS], int32_t n, float *m, float *l)
{
    v16 top = v16_set1(-INFINITY), sum = v16_set1(0.0f);
    for (int32_t t = n; t % 16 != 0; t++)
        p[t] = -INFINITY;
    for (int32_t t = 0; t < n; t += 16)
        top = v16_max(top, v16_load(p + t));
    *m = v16_reduce_max(top);
    for (int32_t t = 0; t < n; t += 16) {
        const v16 e = v16_exp(v16_sub(v16_load(p + t), v16_set1(*m)));
        v16_store(p + t, e);
        sum = v16_add(sum, e);
    }
    *l = v16_reduce(sum);
}

/* Columns d .. of n_c v16 for n_h heads over the n rows of a page, merged into the running O with factors a and b (first
   page: stored). */
V16_INLINE void value_tile(const struct attn_group *g, uint32_t type, const char *v, int n_h, int n_c,
                           float (*p)[KV_PAGE_ROWS], int32_t n, int32_t d, bool first_page, const float *a, const float *b)
{
    v16 acc[V16_TILE_HEADS][V16_TILE_COLUMNS];
    V16_UNROLL
    for (int h = 0; h < n_h; h++)
        V16_UNROLL
        for (int c = 0; c < n_c; c++)
            acc[h][c] = v16_set1(0.0f);
    for (int32_t t = 0; t < n; t++) {
        v16 row[V16_TILE_COLUMNS];
        V16_UNROLL
        for (int c = 0; c < n_c; c++)
            row[c] = load_kv(type, v + (size_t)t * g->row_bytes, d + 16 * c);
        V16_UNROLL
        for (int h = 0; h < n_h; h++) {
            const v16 weight = v16_set1(p[h][t]);
            V16_UNROLL
            for (int c = 0; c < n_c; c++)
                acc[h][c] = v16_fma(weight, row[c], acc[h][c]);
        }
    }
    V16_UNROLL
    for (int h = 0; h < n_h; h++)
        V16_UNROLL
        for (int c = 0; c < n_c; c++) {
            float *out = g->out + (int64_t)h * g->head_dim + d + 16 * c;
            const v16 o = acc[h][c];
            v16_store(out, first_page ? o : v16_fma(v16_load(out), v16_set1(a[h]), v16_mul(o, v16_set1(b[h]))));
        }
}

/* One group of n_h heads over all pages up to position pos. type and n_h are constants in every call. */
V16_INLINE void attend(const struct op_attn *op, const struct attn_group *g, const struct kern_seq *seq, int32_t kv_head,
                       int32_t pos, uint32_t type, int n_h)
{
    _Alignas(64) float p[V16_TILE_HEADS][KV_PAGE_ROWS];
    float M[V16_TILE_HEADS] = {0}, L[V16_TILE_HEADS] = {0}, a[V16_TILE_HEADS] = {0}, b[V16_TILE_HEADS] = {0};
    for (int32_t start = 0; start <= pos; start += KV_PAGE_ROWS) {
        const int32_t n = pos + 1 - start < KV_PAGE_ROWS ? pos + 1 - start : KV_PAGE_ROWS;
        const char *k = kern_kv_row(seq, op->k_offset, kv_head, start, g->row_bytes);
        const char *v = kern_kv_row(seq, op->v_offset, kv_head, start, g->row_bytes);
        int32_t t = 0;
        for (; t + V16_TILE_POSITIONS <= n; t += V16_TILE_POSITIONS)
            score_tile(g, type, k + (size_t)t * g->row_bytes, n_h, V16_TILE_POSITIONS, p, t);
        for (; t < n; t++)
            score_tile(g, type, k + (size_t)t * g->row_bytes, n_h, 1, p, t);
        for (int h = 0; h < n_h; h++) {
            float m, l;
            page_softmax(p[h], n, &m, &l);
            if (start == 0) {
                M[h] = m;
                L[h] = l;
                continue;
            }
            const float both = m > M[h] ? m : M[h];
            a[h] = kern_expf(M[h] - both);
            b[h] = kern_expf(m - both);
            M[h] = both;
            L[h] = fmaf(L[h], a[h], l * b[h]);
        }
        int32_t d = 0;
        for (; d + 16 * V16_TILE_COLUMNS <= g->head_dim; d += 16 * V16_TILE_COLUMNS)
            value_tile(g, type, v, n_h, V16_TILE_COLUMNS, p, n, d, start == 0, a, b);
        for (; d < g->head_dim; d += 16)
            value_tile(g, type, v, n_h, 1, p, n, d, start == 0, a, b);
    }
    for (int h = 0; h < n_h; h++) {
        float *out = g->out + (int64_t)h * g->head_dim;
        const float *gate = g->gate + (int64_t)h * 2 * g->head_dim;
        for (int32_t d = 0; d < g->head_dim; d += 16)
            v16_store(out + d, v16_mul(v16_div(v16_load(out + d), v16_set1(L[h])), v16_sigmoid(v16_load(gate + d))));
    }
}

V16_INLINE void attend_units(const struct op_attn *op, const struct kern_batch *batch, int64_t begin, int64_t end, uint32_t type)
{
    const int64_t hd = op->head_dim;
    const int32_t per_kv = op->n_head / op->n_head_kv;
    for (int64_t u = begin; u < end; u++) {
        const int64_t r = u / op->n_head_kv;
        const int32_t kv_head = (int32_t)(u % op->n_head_kv);
        const struct kern_seq *seq = &batch->seqs[batch->seq[r]];
        for (int32_t i = 0; i < per_kv;) {
            const int64_t h = (int64_t)kv_head * per_kv + i;
            const struct attn_group g = {
                .q = (const float *)kern_ptr(op->q) + r * op->q_stride + h * hd,
                .gate = (const float *)kern_ptr(op->u) + r * op->u_stride + h * 2 * hd + hd,
                .out = (float *)kern_ptr(op->out) + r * op->out_stride + h * hd,
                .head_dim = op->head_dim,
                .scale = op->scale,
                .row_bytes = qtype_row_bytes(type, (uint64_t)hd),
            };
            if (V16_TILE_HEADS >= 4 && per_kv - i >= 4) {
                attend(op, &g, seq, kv_head, batch->pos[r], type, V16_TILE_HEADS >= 4 ? 4 : 1);
                i += 4;
            } else if (per_kv - i >= 2) {
                attend(op, &g, seq, kv_head, batch->pos[r], type, 2);
                i += 2;
            } else {
                attend(op, &g, seq, kv_head, batch->pos[r], type, 1);
                i += 1;
            }
        }
    }
}

void V16_OP(attn)(const struct op_attn *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    switch (op->kv_type) {
    case QTYPE_F32: attend_units(op, batch, begin, end, QTYPE_F32); break;
    case QTYPE_F16: attend_units(op, batch, begin, end, QTYPE_F16); break;
    case QTYPE_BF16: attend_units(op, batch, begin, end, QTYPE_BF16); break;
    case QTYPE_Q8_0: attend_units(op, batch, begin, end, QTYPE_Q8_0); break;
    default: break;
    }
}
