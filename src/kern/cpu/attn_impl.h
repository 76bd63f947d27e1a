/* ATTN_Q, ATTN_KV, ATTN, ATTN_PAGES and ATTN_MERGE on v16. Included once by attn_<isa>.c, which has defined v16 and
 * V16_OP(op) = kern_<op>_<isa>.
 * Contracts: kern/kern.h; the same steps in plain C: kern/ref/scalar_attn.c.
 *
 * Attention takes a page for all query heads of one KV head in several rows of one sequence, BLOCK positions at a time, so that
 * what comes from memory is used for all of them while it lies in the first-level cache. The scores come first (tiles of heads x
 * positions, one v16 per dot product), then the values (tiles of heads x columns running over the positions). One row works on
 * the cache's own values; for several, a block is widened to float once. In ATTN the running O lives in the output row.
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
        const float *x = (const float *)kern_ptr(op->u) + r * op->u_stride + h * (op->ungated ? hd : 2 * hd);
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

#define BLOCK 32          /* positions */
#define GROUP_QUERIES 64  /* heads x rows that take a page together */
#define MAX_HEAD_DIM 256  /* no model has wider heads; they go to the scalar functions */

/* Part of a page for a tile of heads of one row, head_dim floats apart in q. */
struct attn_tile {
    const float *q;
    const char *kv; /* cache rows of n positions */
    size_t row_bytes;
    int32_t n, head_dim;
    float scale;
    const char *next; /* as many rows that will be read after these, to be asked for from memory; NULL: none */
};

/* Ask for piece i of what comes next, pieces of 16 * n values: one behind the other, whatever the order in which they will be read, since
   memory is fastest end to end. */
V16_INLINE void prefetch_values(uint32_t type, const char *next, int32_t i, int n)
{
    const int bytes = n * (type == QTYPE_F32 ? 64 : type == QTYPE_Q8_0 ? 17 : 32);
    V16_UNROLL
    for (int at = 0; at < bytes; at += 64)
        __builtin_prefetch(next + (size_t)i * (size_t)bytes + at);
}

/* p[h][t ..] = scores of n_t positions for n_h heads. */
V16_INLINE void score_tile(const struct attn_tile *g, uint32_t type, int n_h, int n_t, float (*p)[KV_PAGE_ROWS], int32_t t)
{
    const char *k = g->kv + (size_t)t * g->row_bytes;
    const char *next = g->next ? g->next + (size_t)t * g->row_bytes : NULL;
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
        if (next && d % 32 == 0)
            prefetch_values(type, next, d / 32, 2 * n_t);
        V16_UNROLL
        for (int h = 0; h < n_h; h++) {
            const v16 q = v16_load(g->q + (int64_t)h * g->head_dim + d);
            V16_UNROLL
            for (int i = 0; i < n_t; i++)
                acc[h][i] = v16_fma(q, row[i], acc[h][i]);
        }
    }
#if V16_TILE_HEADS == 4 && V16_TILE_POSITIONS == 4
    if (n_h == 4 && n_t == 4) {
        v16_reduce4x4(acc, g->scale, p[0] + t, KV_PAGE_ROWS);
        return;
    }
#endif
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

V16_INLINE void score_block(const struct attn_tile *g, uint32_t type, int n_h, float (*p)[KV_PAGE_ROWS])
{
    int32_t t = 0;
    for (; t + V16_TILE_POSITIONS <= g->n; t += V16_TILE_POSITIONS)
        score_tile(g, type, n_h, V16_TILE_POSITIONS, p, t);
    for (; t < g->n; t++)
        score_tile(g, type, n_h, 1, p, t);
}

/* o[d .. d + 16 * n_c - 1] of n_h heads, o_stride floats apart: the positions added to what is there, or first to zero. */
V16_INLINE void value_tile(const struct attn_tile *g, uint32_t type, int n_h, int n_c, float (*p)[KV_PAGE_ROWS], int32_t d, float *o,
                           int64_t o_stride, bool first)
{
    v16 acc[V16_TILE_HEADS][V16_TILE_COLUMNS];
    V16_UNROLL
    for (int h = 0; h < n_h; h++)
        V16_UNROLL
        for (int c = 0; c < n_c; c++)
            acc[h][c] = first ? v16_set1(0.0f) : v16_load(o + h * o_stride + d + 16 * c);
    const char *v = g->kv;
    for (int32_t t = 0; t < g->n; t++, v += g->row_bytes) {
        v16 row[V16_TILE_COLUMNS];
        V16_UNROLL
        for (int c = 0; c < n_c; c++)
            row[c] = load_kv(type, v, d + 16 * c);
        if (g->next)
            prefetch_values(type, g->next, d / (16 * n_c) * BLOCK + t, n_c);
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
        for (int c = 0; c < n_c; c++)
            v16_store(o + h * o_stride + d + 16 * c, acc[h][c]);
}

V16_INLINE void value_block(const struct attn_tile *g, uint32_t type, int n_h, float (*p)[KV_PAGE_ROWS], float *o, int64_t o_stride,
                            bool first)
{
    int32_t d = 0;
    for (; d + 16 * V16_TILE_COLUMNS <= g->head_dim; d += 16 * V16_TILE_COLUMNS)
        value_tile(g, type, n_h, V16_TILE_COLUMNS, p, d, o, o_stride, first);
    for (; d < g->head_dim; d += 16)
        value_tile(g, type, n_h, 1, p, d, o, o_stride, first);
}

/* The two for each cache type and number of heads, as functions of their own. p points at the block's first position. */
struct block_fns {
    void (*scores)(const struct attn_tile *g, float (*p)[KV_PAGE_ROWS]);
    void (*values)(const struct attn_tile *g, float (*p)[KV_PAGE_ROWS], float *o, int64_t o_stride, bool first);
};
#define BLOCK_FNS(name, type, n_h) \
    static void scores_##name(const struct attn_tile *g, float (*p)[KV_PAGE_ROWS]) { score_block(g, type, n_h, p); } \
    static void values_##name(const struct attn_tile *g, float (*p)[KV_PAGE_ROWS], float *o, int64_t o_stride, bool first) \
    { \
        value_block(g, type, n_h, p, o, o_stride, first); \
    } \
    static const struct block_fns fns_##name = {scores_##name, values_##name};
#define BLOCK_FNS_OF(name, type) \
    BLOCK_FNS(name##_1, type, 1) \
    BLOCK_FNS(name##_2, type, 2) \
    BLOCK_FNS(name##_most, type, V16_TILE_HEADS)
BLOCK_FNS_OF(f32, QTYPE_F32)
BLOCK_FNS_OF(f16, QTYPE_F16)
BLOCK_FNS_OF(bf16, QTYPE_BF16)
BLOCK_FNS_OF(q8_0, QTYPE_Q8_0)

/* The functions for the next heads when `left` are left, and how many they take. */
static const struct block_fns *block_functions(uint32_t type, int32_t left, int *n_h)
{
    static const struct block_fns *const f32[] = {&fns_f32_1, &fns_f32_2, &fns_f32_most};
    static const struct block_fns *const f16[] = {&fns_f16_1, &fns_f16_2, &fns_f16_most};
    static const struct block_fns *const bf16[] = {&fns_bf16_1, &fns_bf16_2, &fns_bf16_most};
    static const struct block_fns *const q8_0[] = {&fns_q8_0_1, &fns_q8_0_2, &fns_q8_0_most};
    const int size = left >= V16_TILE_HEADS ? 2 : left >= 2 ? 1 : 0;
    *n_h = size == 2 ? V16_TILE_HEADS : size + 1;
    return type == QTYPE_F32 ? f32[size] : type == QTYPE_F16 ? f16[size] : type == QTYPE_BF16 ? bf16[size] : q8_0[size];
}

/* Scores p[from .. to - 1] -> weights, in place; m and l as in the contract. The lanes before and behind them take part as -infinity,
   which changes neither the maximum nor, as +0, the sum. */
V16_INLINE void page_softmax(float p[KV_PAGE_ROWS], struct kern_places at, float *m, float *l)
{
    v16 top = v16_set1(-INFINITY), sum = v16_set1(0.0f);
    const int32_t first = at.from / 16 * 16;
    for (int32_t t = first; t < at.from; t++)
        p[t] = -INFINITY;
    for (int32_t t = at.to; t % 16 != 0; t++)
        p[t] = -INFINITY;
    for (int32_t t = first; t < at.to; t += 16)
        top = v16_max(top, v16_load(p + t));
    *m = v16_reduce_max(top);
    for (int32_t t = first; t < at.to; t += 16) {
        const v16 e = v16_exp(v16_sub(v16_load(p + t), v16_set1(*m)));
        v16_store(p + t, e);
        sum = v16_add(sum, e);
    }
    *l = v16_reduce(sum);
}

/* A page for heads of one KV head in rows of one sequence, n_heads * n_rows <= GROUP_QUERIES. */
struct attn_group {
    const struct op_attn *op;
    struct kern_span seen[GROUP_QUERIES]; /* of the rows; neither end ever moves back from one to the next */
    const float *q;     /* first head of the first row; rows are op->q_stride apart */
    int32_t n_rows, n_heads;
    int32_t start;      /* position of the page's first row */
    const char *k, *v;  /* that row */
    const char *next_k; /* the K row that the next page begins with; NULL: this is the last one */
    float *o;           /* results: o of row i and head h at o + i * o_row + h * o_head, m and l at [i * n_heads + h] */
    int64_t o_row, o_head;
    float *m, *l;
};

/* What an attn_group needs while it runs; wide: a block in float. */
struct attn_work {
    _Alignas(64) float p[GROUP_QUERIES][KV_PAGE_ROWS];
    _Alignas(64) float wide[BLOCK * MAX_HEAD_DIM];
};

/* The places of the group's page that row i sees, and those that any of its rows sees. */
static struct kern_places row_places(const struct attn_group *g, int32_t i)
{
    return kern_places(g->seen[i], g->start);
}

static struct kern_places group_places(const struct attn_group *g)
{
    return kern_places((struct kern_span){g->seen[0].first, g->seen[g->n_rows - 1].last}, g->start);
}

/* Does row i see nothing of it? */
static bool unseen(const struct attn_group *g, int32_t i)
{
    const struct kern_places at = row_places(g, i);
    return at.from >= at.to;
}

V16_INLINE void widen_as(uint32_t type, const char *from, size_t row_bytes, int32_t n, int32_t hd, float *out)
{
    for (int32_t t = 0; t < n; t++, from += row_bytes, out += hd)
        for (int32_t d = 0; d < hd; d += 16)
            v16_store(out + d, load_kv(type, from, d));
}

static void widen(uint32_t type, const char *from, size_t row_bytes, int32_t n, int32_t hd, float *out)
{
    switch (type) {
    case QTYPE_F16: widen_as(QTYPE_F16, from, row_bytes, n, hd, out); break;
    case QTYPE_BF16: widen_as(QTYPE_BF16, from, row_bytes, n, hd, out); break;
    case QTYPE_Q8_0: widen_as(QTYPE_Q8_0, from, row_bytes, n, hd, out); break;
    default: widen_as(QTYPE_F32, from, row_bytes, n, hd, out); break;
    }
}

/* Scores (values false) or values of the places t .. t + BLOCK - 1 of a page. What the page is read for next is asked for from memory
   meanwhile: the block behind this one, then the first one of the values, then that of the next page. */
static void attend_block(const struct attn_group *g, struct attn_work *w, int32_t t, bool values)
{
    const struct kern_places all = group_places(g);
    const int32_t hd = g->op->head_dim, longest = all.to;
    const size_t cache_row = qtype_row_bytes(g->op->kv_type, (uint64_t)hd), block_bytes = BLOCK * cache_row;
    const char *block = (values ? g->v : g->k) + (size_t)t * cache_row;
    const char *next = values ? g->next_k : g->v + (size_t)(all.from / BLOCK * BLOCK) * cache_row;
    if (t + BLOCK < longest)
        next = block + block_bytes;
    struct attn_tile tile = {.row_bytes = cache_row, .head_dim = hd, .scale = g->op->scale};
    uint32_t type = g->op->kv_type;
    if (g->n_rows > 1) {
        widen(type, block, cache_row, longest - t < BLOCK ? longest - t : BLOCK, hd, w->wide);
        type = QTYPE_F32;
        block = (const char *)w->wide;
        tile.row_bytes = (size_t)hd * sizeof(float);
    }
    for (int32_t i = 0; i < g->n_rows; i++) {
        if (g->n_rows > 1 && next) /* a row's share of the next block */
            for (size_t at = block_bytes * (size_t)i / (size_t)g->n_rows; at < block_bytes * (size_t)(i + 1) / (size_t)g->n_rows; at += 64)
                __builtin_prefetch(next + at);
        const struct kern_places seen = row_places(g, i);
        const int32_t from = seen.from > t ? seen.from : t, to = seen.to < t + BLOCK ? seen.to : t + BLOCK;
        tile.kv = block + (size_t)(from - t) * tile.row_bytes;
        tile.n = to - from;
        for (int32_t h = 0, n_h; h < g->n_heads && tile.n > 0; h += n_h) {
            const struct block_fns *fn = block_functions(type, g->n_heads - h, &n_h);
            float (*p)[KV_PAGE_ROWS] = (float (*)[KV_PAGE_ROWS])(w->p[i * g->n_heads + h] + from);
            tile.q = g->q + (int64_t)i * g->op->q_stride + (int64_t)h * hd;
            tile.next = g->n_rows == 1 && h == 0 && next ? next + (size_t)(from - t) * cache_row : NULL;
            if (values)
                fn->values(&tile, p, g->o + i * g->o_row + h * g->o_head, g->o_head, from == seen.from);
            else
                fn->scores(&tile, p);
        }
    }
}

static void attend_page(const struct attn_group *g, struct attn_work *w)
{
    const struct kern_places all = group_places(g);
    for (int32_t t = all.from / BLOCK * BLOCK; t < all.to; t += BLOCK)
        attend_block(g, w, t, false);
    for (int32_t i = 0; i < g->n_rows; i++)
        for (int32_t k = i * g->n_heads; k < (i + 1) * g->n_heads && !unseen(g, i); k++)
            page_softmax(w->p[k], row_places(g, i), &g->m[k], &g->l[k]);
    for (int32_t t = all.from / BLOCK * BLOCK; t < all.to; t += BLOCK)
        attend_block(g, w, t, true);
}

/* M, L of a head and O = out take a page's m, l, o. */
V16_INLINE void merge_page(float *M, float *L, float *out, float m, float l, const float *o, int32_t hd)
{
    const float both = m > *M ? m : *M;
    const float a = kern_expf(*M - both), b = kern_expf(m - both);
    *M = both;
    *L = fmaf(*L, a, l * b);
    for (int32_t d = 0; d < hd; d += 16)
        v16_store(out + d, v16_fma(v16_load(out + d), v16_set1(a), v16_mul(v16_load(o + d), v16_set1(b))));
}

/* The end of row r, head h. */
V16_INLINE void finish_head(const struct op_attn *op, int64_t r, int64_t h, float L, float *out)
{
    const int64_t hd = op->head_dim;
    const float *gate = op->u.buf ? (const float *)kern_ptr(op->u) + r * op->u_stride + h * 2 * hd + hd : NULL;
    for (int64_t d = 0; d < hd; d += 16) {
        const v16 o = v16_div(v16_load(out + d), v16_set1(L));
        v16_store(out + d, gate ? v16_mul(o, v16_sigmoid(v16_load(gate + d))) : o);
    }
}

/* How many rows, from unit u on, a group takes: units are rows of one kind, the row fastest, and those of the group below end. */
static int32_t group_rows(const struct op_attn *op, const struct kern_batch *batch, int64_t u, int64_t end)
{
    const int32_t row = (int32_t)(u % batch->n_rows), per_kv = op->n_head / op->n_head_kv;
    const struct kern_seq *seq = &batch->seqs[batch->seq[row]];
    const int64_t most = per_kv < GROUP_QUERIES ? GROUP_QUERIES / per_kv : 1, n = seq->row_begin + seq->n_rows - row;
    const int64_t rows = n < end - u ? n : end - u;
    return (int32_t)(rows < most ? rows : most);
}

/* Its heads first .. of the `left` last ones of a KV head. */
static struct attn_group group_at(const struct op_attn *op, const struct kern_batch *batch, int32_t row, int32_t n_rows, int32_t first,
                                  int32_t left)
{
    struct attn_group g = {.op = op, .n_rows = n_rows, .n_heads = left < GROUP_QUERIES ? left : GROUP_QUERIES,
                           .q = (const float *)kern_ptr(op->q) + (int64_t)row * op->q_stride + (int64_t)first * op->head_dim};
    for (int32_t i = 0; i < n_rows; i++)
        g.seen[i] = kern_row_span(op, batch, row + i);
    return g;
}

/* start: position of the page's first row; next: that of the page to come, -1 if there is none. */
static void set_page(struct attn_group *g, const struct kern_seq *seq, int32_t kv_head, int32_t start, int32_t next)
{
    const size_t row_bytes = qtype_row_bytes(g->op->kv_type, (uint64_t)g->op->head_dim);
    g->start = start;
    g->k = kern_kv_row(seq, g->op->k_offset, kv_head, start, row_bytes);
    g->v = kern_kv_row(seq, g->op->v_offset, kv_head, start, row_bytes);
    g->next_k = next >= 0 ? kern_kv_row(seq, g->op->k_offset, kv_head, next, row_bytes) : NULL;
}

/* Do all rows of the group begin in the same page? */
static bool begin_together(const struct attn_group *g)
{
    return g->seen[0].first / KV_PAGE_ROWS == g->seen[g->n_rows - 1].first / KV_PAGE_ROWS;
}

/* All pages of a group whose first row is `row` and whose first head is `first`. */
static void attend_group(struct attn_group *g, const struct kern_batch *batch, int32_t kv_head, int32_t row, int32_t first)
{
    struct attn_work w;
    float m[GROUP_QUERIES], l[GROUP_QUERIES], M[GROUP_QUERIES], L[GROUP_QUERIES];
    _Alignas(64) float o[GROUP_QUERIES][MAX_HEAD_DIM];
    const struct op_attn *op = g->op;
    const int32_t hd = op->head_dim, first_page = g->seen[0].first / KV_PAGE_ROWS * KV_PAGE_ROWS;
    const int32_t in_place = begin_together(g) ? first_page : -1; /* the page whose results need no merging */
    float *out = (float *)kern_ptr(op->out) + (int64_t)row * op->out_stride + (int64_t)first * hd;
    for (int32_t start = first_page; start <= g->seen[g->n_rows - 1].last; start += KV_PAGE_ROWS) {
        const int32_t next = start + KV_PAGE_ROWS;
        set_page(g, &batch->seqs[batch->seq[row]], kv_head, start, next <= g->seen[g->n_rows - 1].last ? next : -1);
        g->o = start == in_place ? out : o[0];
        g->o_row = start == in_place ? op->out_stride : (int64_t)g->n_heads * MAX_HEAD_DIM;
        g->o_head = start == in_place ? hd : MAX_HEAD_DIM;
        g->m = start == in_place ? M : m;
        g->l = start == in_place ? L : l;
        attend_page(g, &w);
        for (int32_t i = 0; i < g->n_rows && start != in_place; i++)
            for (int32_t h = 0, k = i * g->n_heads; h < g->n_heads && !unseen(g, i); h++, k++) {
                float *at = out + (int64_t)i * op->out_stride + (int64_t)h * hd;
                if (g->seen[i].first < start) {
                    merge_page(&M[k], &L[k], at, m[k], l[k], o[k], hd);
                    continue;
                }
                memcpy(at, o[k], (size_t)hd * sizeof *at);
                M[k] = m[k];
                L[k] = l[k];
            }
    }
    for (int32_t i = 0; i < g->n_rows; i++)
        for (int32_t h = 0; h < g->n_heads; h++)
            finish_head(op, row + i, first + h, L[i * g->n_heads + h], out + (int64_t)i * op->out_stride + (int64_t)h * hd);
}

void V16_OP(attn)(const struct op_attn *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    if (op->head_dim > MAX_HEAD_DIM) {
        kern_attn_scalar(op, batch, begin, end);
        return;
    }
    const int32_t per_kv = op->n_head / op->n_head_kv;
    for (int64_t u = begin, n_rows; u < end; u += n_rows) {
        const int32_t kv_head = (int32_t)(u / batch->n_rows), row = (int32_t)(u % batch->n_rows);
        n_rows = group_rows(op, batch, u, end);
        for (int32_t h = 0; h < per_kv; h += GROUP_QUERIES) {
            struct attn_group g = group_at(op, batch, row, (int32_t)n_rows, kv_head * per_kv + h, per_kv - h);
            attend_group(&g, batch, kv_head, row, kv_head * per_kv + h);
        }
    }
}

/* ---- ATTN_PAGES, ATTN_MERGE ---- */

static void attend_part(const struct op_attn_pages *op, const struct kern_batch *batch, struct attn_group *g, int32_t kv_head,
                        int32_t row, int32_t first, int32_t at)
{
    struct attn_work w;
    float m[GROUP_QUERIES], l[GROUP_QUERIES];
    const int32_t hd = op->attn.head_dim, start = (op->page_begin + at) * KV_PAGE_ROWS;
    const struct kern_span *seen = g->seen;
    if (start > seen[g->n_rows - 1].last || start + KV_PAGE_ROWS <= seen[0].first)
        return;
    const int32_t next = at + 1 < op->n_pages ? start + KV_PAGE_ROWS : -1;
    set_page(g, &batch->seqs[batch->seq[row]], kv_head, start, next <= seen[g->n_rows - 1].last ? next : -1);
    g->o = kern_part(op, batch, at, row, first);
    g->o_head = (int64_t)kern_part_floats(hd);
    g->o_row = g->o_head * op->attn.n_head;
    g->m = m;
    g->l = l;
    attend_page(g, &w);
    for (int32_t i = 0; i < g->n_rows; i++)
        for (int32_t h = 0, k = i * g->n_heads; h < g->n_heads && !unseen(g, i); h++, k++) {
            g->o[i * g->o_row + h * g->o_head + hd] = isnan(l[k]) ? l[k] : m[k];
            g->o[i * g->o_row + h * g->o_head + hd + 1] = l[k];
        }
}

void V16_OP(attn_pages)(const struct op_attn_pages *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    if (op->attn.head_dim > MAX_HEAD_DIM) {
        kern_attn_pages_scalar(op, batch, begin, end);
        return;
    }
    const int32_t per_kv = op->attn.n_head / op->attn.n_head_kv;
    for (int64_t u = begin, n_rows; u < end; u += n_rows) {
        const int32_t at = (int32_t)(u / batch->n_rows % op->n_pages), kv_head = (int32_t)(u / batch->n_rows / op->n_pages);
        const int32_t row = (int32_t)(u % batch->n_rows);
        n_rows = group_rows(&op->attn, batch, u, end);
        for (int32_t h = 0; h < per_kv; h += GROUP_QUERIES) {
            struct attn_group g = group_at(&op->attn, batch, row, (int32_t)n_rows, kv_head * per_kv + h, per_kv - h);
            attend_part(op, batch, &g, kv_head, row, kv_head * per_kv + h, at);
        }
    }
}

void V16_OP(attn_merge)(const struct op_attn_merge *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    const struct op_attn *attn = &op->pages.attn;
    const int32_t hd = attn->head_dim;
    for (int64_t u = begin; u < end; u++) {
        const int64_t r = u / attn->n_head, h = u % attn->n_head;
        const struct kern_span seen = kern_row_span(attn, batch, r);
        const int32_t first = seen.first / KV_PAGE_ROWS - op->pages.page_begin, last = seen.last / KV_PAGE_ROWS - op->pages.page_begin;
        float *out = (float *)kern_ptr(attn->out) + r * attn->out_stride + h * hd;
        float *running = (float *)kern_ptr(op->running) + 2 * u;
        for (int32_t page = first > 0 ? first : 0; page < op->pages.n_pages && page <= last; page++) {
            const float *part = kern_part(&op->pages, batch, page, r, h);
            if (page > first) {
                merge_page(&running[0], &running[1], out, part[hd], part[hd + 1], part, hd);
                continue;
            }
            memcpy(out, part, (size_t)hd * sizeof *out);
            memcpy(running, part + hd, 2 * sizeof *running);
        }
        if (last >= 0 && last < op->pages.n_pages)
            finish_head(attn, r, h, running[1], out);
    }
}
