/* The op contracts: what every operation of the forward pass computes, on which memory, in which order.
 *
 * A model emits a flat list of `struct kern_op` for a batch of rows; a device (src/dev) executes it. On the CPU each op is
 * a function over "work units": kern_units() tells how many there are, and a call with [begin, end) computes those units
 * completely. A unit's result never depends on how units are grouped into calls or threads.
 *
 * There are three families of implementations with the same signatures:
 *   - the reference table (kern/ref/refd_*.c): float32 activations, double accumulation. `--precision reference`.
 *   - the scalar table (kern/ref/scalar_*.c): the production arithmetic in plain C. It DEFINES the bits.
 *   - the SIMD tiers (kern/cpu/<op>_<isa>.c): must equal the scalar table bit for bit.
 *
 * Canonical arithmetic of the production tables (all float operations are binary32, round to nearest even, never
 * contracted; `fma` is a fused multiply-add):
 *   LANES    dot16(x, y, n): sixteen accumulators, lane l takes the elements k with k % 16 == l in increasing order,
 *            acc[l] = fma(x[k], y[k], acc[l]) starting from 0; then acc[l] += acc[l + s] for s = 8, 4, 2, 1.
 *            sum16 is the same with acc[l] += x[k].
 *   INTEGER  products of quantised weights and quantised activations: see MATMUL below. One float accumulator per output
 *            element, one fma per block, blocks in increasing order: every tile shape gives the same bits.
 *   EXP      kern_expf (kern/math.h): one polynomial for scalar and vector code. sigmoid(x) = 1 / (1 + kern_expf(-x)),
 *            silu(x) = x / (1 + kern_expf(-x)).
 *   ROWS     no operation mixes rows, except attention and the recurrence, which read the rows of their own sequence in
 *            order of position.
 *
 * Memory: all activations are float32, row-major, one row per batch row, with an explicit row stride in floats. Weights
 * stay in their file format. Buffers belong to whoever built the op list and must outlive its execution.
 */
#ifndef SKUA_KERN_KERN_H
#define SKUA_KERN_KERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- memory ---- */

/* A piece of device memory. `host` is the address where the CPU can read it (NULL on devices where it cannot). Devices
   embed this as the first member of their own buffer type. */
struct kern_buf {
    void *host;
    size_t size; /* bytes */
};

struct kern_view {
    struct kern_buf *buf;
    size_t offset; /* bytes */
};

static inline void *kern_ptr(struct kern_view v)
{
    return (char *)v.buf->host + v.offset;
}

static inline struct kern_view kern_view_at(struct kern_view v, size_t bytes)
{
    return (struct kern_view){v.buf, v.offset + bytes};
}

/* ---- the batch ---- */

#define KV_PAGE_ROWS 256 /* positions per KV page, and the fixed grid on which attention splits */

/* One sequence's share of a batch. Its rows are contiguous and in order of position. */
struct kern_seq {
    int32_t row_begin, n_rows;
    int32_t pos_begin;               /* position of row row_begin = rows of this sequence that are in its cache already */
    struct kern_buf *state;          /* recurrent state of all layers (ops carry the layer's offsets) */
    struct kern_buf *const *kv_pages;/* page p holds positions [p * KV_PAGE_ROWS, (p + 1) * KV_PAGE_ROWS) of all layers */
    int32_t n_kv_pages;
    struct kern_buf *tape;           /* not NULL: the rows are held. They leave the state as it is, and what it takes to bring it forward by
                                        any number of them lies here: one record per row (ops carry the layer's offset and the stride) */
};

struct kern_batch {
    int32_t n_rows, n_seqs;
    const int32_t *token; /* [n_rows] */
    const int32_t *pos;   /* [n_rows] */
    const int32_t *seq;   /* [n_rows] index into seqs */
    const struct kern_seq *seqs;
};

/* ---- quantised activations ---- */

/* How a MATMUL wants its input rows. Which kind goes with which weight type: kern_act_kind(). */
enum kern_act {
    KERN_ACT_F32,    /* the float rows themselves */
    KERN_ACT_Q12_32,  /* 12-bit integers with one float scale per 32 values */
    KERN_ACT_Q12_256, /* 12-bit integers with one float scale per 256 values */
    KERN_ACT_Q8_256,  /* 8-bit integers with one float scale per 256 values */
    KERN_ACT_COUNT
};

/* A quantised row of n values (n a multiple of the block B = 32 or 256) is kern_act_bytes(kind, n) bytes:
     int16_t q[n]          rounded to nearest even of x * (L / amax), amax = max |x| of the block (all 0 when amax is 0); L = 2047.
                           Of the 8-bit kind: int8_t q8[n], L = 127
     float   d[n / B]      amax / L, one division
     int16_t bsum[n / 16]  sums of 16 consecutive q (at most 16 * 2047 = 32752). Of the 8-bit kind: bsum[n / 32], sums of 32
   each part starting at a multiple of 64 bytes. Row r of a buffer starts at r * kern_act_bytes.
   Q4_K takes 8 bits: byte products are twice as fast, and what the rounding of the activations adds is far below that of the weights.
   All others take 12, beside which nothing is seen even of 8-bit weights; twelve because the sum of 256 products with the largest
   weight of any format (6-bit levels times 8-bit scales, 4096) then just fits int32. */
struct kern_act_row {
    const int16_t *q;  /* NULL for the 8-bit kind */
    const int8_t *q8;  /* NULL for the others */
    const float *d;
    const int16_t *bsum;
};
size_t kern_act_bytes(enum kern_act kind, int64_t n);
struct kern_act_row kern_act_row_at(enum kern_act kind, const void *base, int64_t n, int64_t row);

/* ---- op parameters ---- */

/* Weight matrix in file format: rows of `n_in` values, back to back; `n_out` rows; n_expert matrices back to back. Formats with
   coarse scales (NVFP4) come with a factor per matrix, `scale` (float [n_expert]; no buffer: 1), which multiplies the finished
   dot products. `tiles`: the same matrices once more, in the layout that the table in use multiplies fastest (kern/tile.h; no buffer:
   none). Products read the tiles then, lookups of rows always `data`. */
struct kern_weight {
    struct kern_view data, scale, tiles;
    uint32_t type; /* quant/type.h */
    int32_t n_in, n_out, n_expert;
};

/* The factor of matrix e. */
static inline float kern_scale(const struct kern_weight *w, int64_t e)
{
    return w->scale.buf ? ((const float *)kern_ptr(w->scale))[e] : 1.0f;
}

/* EMBED: out[r] = row token[r] of the table, dequantised, times the table's factor. Units: rows. */
struct op_embed {
    struct kern_weight table;
    struct kern_view out; /* [n_rows][stride] */
    int32_t stride;
};

/* GET_ROWS: out[i] = in[rows[i]], n floats each. Units: n_get. */
struct op_get_rows {
    struct kern_view in, out;
    int32_t in_stride, out_stride, n, n_get;
    const int32_t *rows; /* host memory, [n_get] */
};

/* RMS_NORM: y[i] = (x[i] * inv) * w[i], inv = 1 / sqrtf(dot16(x, x, n) / n + eps). Units: n_rows. In place allowed. */
struct op_rms_norm {
    struct kern_view x, w, y;
    int32_t x_stride, y_stride, n, n_rows;
    float eps;
};

/* QUANT_ACT: quantised copies of float rows. Units: n_rows. */
struct op_quant_act {
    struct kern_view x, out;
    int32_t x_stride, n, n_rows;
    enum kern_act kind;
};

/* MATMUL: y[r][o] = v, or y[r][o] + v (one rounded add) when accumulate; v = scale * (W[o] . x[r]), one rounded product.
   Units: output columns o (n_out); devices split at multiples of 32.
   The dot products, K = n_in; every sum in parentheses is exact in int32, `acc` starts at 0 and takes the blocks in order:
     F32, F16, BF16 (ACT_F32): dot16 of the widened weights and x.
     ACT_Q12_32, each 32-block b:
       Q8_0, Q4_0, Q5_0, IQ4_NL, MXFP4:   acc = fma(d[b] * dx[b], (float)sum(qw * qx), acc); qw = code, code - 8, code - 16, the
                                          table's value.
       Q4_1, Q5_1, Q4_64A, Q2_64A:        the same with qw = code; then acc = fma(m[b] * dx[b], (float)(bsum[2b] + bsum[2b + 1]),
                                          acc). The 64-value blocks count as two with the same d (scale) and m (bias).
       NVFP4:                             per 16-group g: acc = fma(s[g] * dx[g / 2], (float)sum(qw * qx), acc).
     ACT_Q12_256 (Q4_K: ACT_Q8_256), each 256-block b:
       Q3_K, Q6_K, IQ4_XS:                acc = fma(d * dx, (float)sum_j(sc_j * sum(level * qx)), acc).
       IQ2_XXS, IQ2_S:                    the same with d * 0.125 for d and sc_j = 2 * nibble + 1.
       Q2_K, Q4_K, Q5_K:                  the same with level = code; then acc = fma(-(dmin * dx), (float)sum(mn * bsum), acc).
   Scales are widened to float; products of scales are rounded once. Formulas of the blocks: quant/blocks.h. */
struct op_matmul {
    struct kern_weight w;
    struct kern_view x;  /* act kind kern_act_kind(w.type): float rows (x_stride floats) or quantised rows (x_stride unused) */
    struct kern_view y;
    int32_t x_stride, y_stride, n_rows;
    bool accumulate;
};

/* ARGMAX and ARGMAX_MERGE: the best column of each row of a MATMUL (its y and accumulate are unused) without writing its rows. allow: a
   bitmap, column o is bit o % 64 of uint64 word o / 64; no buffer: all. Best is the allowed column with the largest value, the lowest
   of equal ones; but if the value of an allowed column is NaN or +infinity, the lowest such column; and column -1 with -infinity when
   every allowed value is -infinity. ARGMAX: the best of each block of KERN_ARGMAX_COLUMNS columns: struct kern_best
   blocks[block][n_rows], n_rows <= KERN_ARGMAX_ROWS. Units: blocks. ARGMAX_MERGE: the best of the blocks: struct kern_best
   best[n_rows]. Units: n_rows. */
#define KERN_ARGMAX_COLUMNS 1024
#define KERN_ARGMAX_ROWS 32
struct kern_best {
    float value;
    int32_t column;
};
struct op_argmax {
    struct op_matmul matmul;
    struct kern_view allow, blocks;
};
struct op_argmax_merge {
    struct kern_view blocks, best;
    int32_t n_blocks, n_rows;
};

/* TOPK and TOPK_MERGE: the k best columns of each row, in the same way: those allowed ones with the largest values, in decreasing order,
   equal ones in order of columns; behind the last, when there are fewer than k, {-infinity, -1}. NaN and -infinity are never among them.
   TOPK: struct kern_best blocks[block][n_rows][k], n_rows <= KERN_ARGMAX_ROWS, 1 <= k <= KERN_TOPK_MAX. Units: blocks of
   KERN_ARGMAX_COLUMNS columns. TOPK_MERGE: struct kern_best best[n_rows][k]. Units: n_rows. */
#define KERN_TOPK_MAX 64
struct op_topk {
    struct op_matmul matmul;
    struct kern_view allow, blocks;
    int32_t k;
};
struct op_topk_merge {
    struct kern_view blocks, best;
    int32_t n_blocks, n_rows, k;
};

/* MOE_MATMUL: MATMUL for routed experts. For every pair p = row * n_used + slot: e = ids[p],
   y[p] = W_e x[x_per_pair ? p : row]. `group` holds what MOE_GROUP made of ids. Units: n_expert * ceil(n_out / 32);
   unit u = expert u / blocks, columns 32 * (u % blocks)... */
struct op_moe_matmul {
    struct kern_weight w;
    struct kern_view x, y, group;
    int32_t x_stride, y_stride, n_rows, n_used;
    bool x_per_pair;
};

/* ROUTER: from logits [n_rows][n_expert]: p = softmax over all experts (m = max, e_i = kern_expf(l_i - m), p_i = e_i / sum,
   sum in order of i), the n_used largest, ties to the lowest id, in decreasing order of p; weight = p / max(sum of the
   selected p in slot order, 6.103515625e-5). ids int32 and weights float, [n_rows][n_used]. Units: rows. */
struct op_router {
    struct kern_view logits, ids, weights;
    int32_t n_rows, n_expert, n_used;
};

/* MOE_GROUP: counting sort of the pairs by expert: group = int32 begin[n_expert + 1], then int32 pair[n_rows * n_used], the
   pairs of expert e, in increasing order, at pair[begin[e]] .. pair[begin[e + 1] - 1]. Units: 1. */
struct op_moe_group {
    struct kern_view ids, group;
    int32_t n_rows, n_expert, n_used;
};

/* MOE_COMBINE: t = 0; for slots in order: t = fma(weight[slot], y[pair][i], t); if shared: t = fma(sigmoid(gate[r]),
   shared[r][i], t); x[r][i] += t. Units: rows. */
struct op_moe_combine {
    struct kern_view x, y, weights;
    struct kern_view shared, shared_gate; /* buf NULL: none. shared_gate is [n_rows] logits */
    int32_t n, n_rows, n_used, x_stride, y_stride, shared_stride;
};

/* SWIGLU: h[i] = silu(gate[i]) * up[i]. Units: n_rows * ceil(n / 256) (256-value pieces of rows). May write onto gate or up. */
struct op_swiglu {
    struct kern_view gate, up, h;
    int32_t n, n_rows, gate_stride, up_stride, h_stride;
};

/* ROPE_TABLE: table[r] = cos[i], i < n_rot/2, then sin[i]: angle = (double)pos[r] * inv_freq[i], cos and sin in double, times
   `scale`, rounded to float. inv_freq: host memory, double[n_rot / 2]. Units: rows. */
struct op_rope_table {
    struct kern_view table; /* [n_rows][n_rot] */
    const double *inv_freq;
    double scale;
    int32_t n_rot;
};

/* ATTN_Q: for head h of row r: q = rms(u[r][h * 2 * hd ..][hd], norm) as in RMS_NORM, then RoPE on the first n_rot values:
   pair (i, i + n_rot/2): a' = fma(a, cos, -(b * sin)), b' = fma(b, cos, a * sin). Ungated: head h lies at u[r][h * hd], without a gate
   behind it. Units: n_rows * n_head. */
struct op_attn_q {
    struct kern_view u, norm, rope, q;
    int32_t u_stride, q_stride, n_head, head_dim, n_rot;
    float eps;
    bool ungated;
};

/* KV cache types and page layout of one layer: k_offset + ((kv_head * KV_PAGE_ROWS + pos % KV_PAGE_ROWS) * row bytes), the
   same for v. A row is head_dim values of `kv_type` (QTYPE_F32, F16, BF16: rounded to nearest even; Q8_0: 32-blocks as
   quant/ defines them). */

/* ATTN_KV: k = RoPE(rms(k, norm)) as in ATTN_Q, v as it is; both rounded to the cache type and stored at the row's position
   of its sequence. Units: n_rows * n_head_kv. */
struct op_attn_kv {
    struct kern_view k, v, norm, rope;
    int32_t k_stride, v_stride, n_head_kv, head_dim, n_rot;
    float eps;
    uint32_t kv_type;
    size_t k_offset, v_offset;
};

/* ATTN: attention of every query head over the positions first .. last of the row's sequence, query head h uses KV head
   h / (n_head / n_head_kv). Last: the row's own position, or of a bidirectional layer that of the sequence's last row in the batch
   (whose rows are a block that is seen as a whole). First: 0; with a window (not 0) max(0, pos[r] - window + 1), but never behind
   pos_begin of the sequence: the window is one on what was there before the batch. Rows at positions that no row sees need no page.
   Positions are taken in pages of KV_PAGE_ROWS; per page, t counting its seen positions by their place in the page:
   s_t = dot16(q, k_t) * scale, m = max s_t, p_t = kern_expf(s_t - m), l = sum16(p_t) with p_t = 0 at places that are not seen,
   o[d] = fma(p_t, v_t[d], o[d]) in order of t from 0. Pages are
   merged in order: the first is taken as it is; then M' = max(M, m), a = kern_expf(M - M'), b = kern_expf(m - M'),
   L = fma(L, a, l * b), O[d] = fma(O[d], a, o[d] * b), M = M'. Result: out[r][h][d] = (O[d] / L) * sigmoid(gate[d]), the gate
   being u[r][h * 2 * hd + hd + d] of ATTN_Q; O[d] / L when u is no buffer. Cached values are widened to float before use.
   Units: n_head_kv * n_rows: unit u = all query heads of KV head u / n_rows in row u % n_rows, so that rows of one sequence, which
   read the same pages, lie side by side. */
struct op_attn {
    struct kern_view q, u, out;
    int32_t q_stride, u_stride, out_stride, n_head, n_head_kv, head_dim;
    float scale;
    uint32_t kv_type;
    size_t k_offset, v_offset;
    int32_t window;
    bool bidirectional;
};

/* The positions that the row at position pos of a sequence sees. */
struct kern_span {
    int32_t first, last;
};
static inline struct kern_span kern_attn_span(const struct op_attn *op, const struct kern_seq *seq, int32_t pos)
{
    const int32_t first = op->window && pos >= op->window ? pos - op->window + 1 : 0;
    return (struct kern_span){first < seq->pos_begin ? first : seq->pos_begin, op->bidirectional ? seq->pos_begin + seq->n_rows - 1 : pos};
}

/* ATTN_PAGES and ATTN_MERGE: ATTN in two steps with the same bits, for few rows with long contexts, where the pages of one row are
   work for many threads.
   ATTN_PAGES: m, l and o of the pages page_begin .. page_begin + n_pages - 1, as ATTN has them, but m = l where l is NaN. A part is
   float o[head_dim], m, l, in kern_part_floats(head_dim) floats; parts has one for each page, row and head, in this order. Nothing is
   done for a page of which the row sees nothing. Units: n_head_kv * n_pages * n_rows, the row fastest.
   ATTN_MERGE: takes those pages, in order, into the row's running result: O in out, M and L in running (float [n_rows][n_head][2]).
   The row's first page begins it, its last page ends it with the division and the gate. Units: n_rows * n_head.
   The reference table computes all at the end: ATTN_PAGES nothing, ATTN_MERGE of a row's last page what its ATTN does. */
struct op_attn_pages {
    struct op_attn attn;
    struct kern_view parts;
    int32_t page_begin, n_pages;
};
struct op_attn_merge {
    struct op_attn_pages pages;
    struct kern_view running;
};
static inline size_t kern_part_floats(int32_t head_dim)
{
    return (size_t)head_dim + 16; /* whole cache lines */
}

/* BLOCK_CONV: causal convolution over the rows that each sequence has in the batch, with taps that depend on the row. With G = n / group,
   channel c in group g = c / group, and rows before the sequence's first one left out:
   w_o = base[o][c] + dyn[r][o * G + g]; acc = w_0 * x[r][c]; acc = fma(w_o, x[r - o][c], acc), o = 1 .. kernel - 1;
   y[r][c] = acc, or y[r][c] + acc (one rounded add) when accumulate. group divides n; y must not be x.
   Units: n_rows * ceil(n / 256) (256-value pieces of rows). */
struct op_block_conv {
    struct kern_view x, base, dyn, y; /* base: float [kernel][n] */
    int32_t x_stride, dyn_stride, y_stride, n, group, kernel;
    bool accumulate;
};

/* GDN_CONV: causal depthwise convolution over the rows of each sequence: with x_{-K+1} .. x_{-1} from the state,
   acc = w[0] * x[t-K+1]; acc = fma(w[j], x[t-K+1+j], acc), j = 1 .. K-1; c = silu(acc). w is [n_channel][K] (K = kernel).
   State: float [K - 1][n_channel] at state_offset of the sequence's state, oldest first; updated to the last K - 1 raw rows.
   Of held rows the state stays, and row t of the sequence is copied to its record: float x[n_channel] at tape_offset.
   Units: n_seqs * ceil(n_channel / 64). out must not be x. */
struct op_gdn_conv {
    struct kern_view x, w, out;
    int32_t x_stride, out_stride, n_channel, kernel;
    size_t state_offset, tape_offset, tape_stride; /* tape_stride: bytes from row to row */
};

/* GDN_CONV_COMMIT: the state behind the first n_rows held rows of each sequence. Units: n_seqs * ceil(n_channel / 64). */
struct op_gdn_conv_commit {
    int32_t n_channel, kernel;
    size_t state_offset, tape_offset, tape_stride;
};

/* GDN_QK: in place, per key head of q and k: v[i] = v[i] * (1 / sqrtf(dot16(v, v, d) + eps)), and q additionally times
   q_scale afterwards (one more rounded product). qk holds q (n_key_head * d) then k. Units: n_rows * 2 * n_key_head. */
struct op_gdn_qk {
    struct kern_view qk;
    int32_t stride, n_key_head, d;
    float eps, q_scale;
};

/* GDN_GATES: in double from float inputs, rounded once to float: decay = exp(softplus(a + dt_bias) * ssm_a), softplus(x) = x
   for x > 20, else log1p(exp(x)); beta = 1 / (1 + exp(-b)). a, b, decay, beta: [n_rows][n_v]; decay may be a, beta may be b.
   Units: rows. */
struct op_gdn_gates {
    struct kern_view a, b, dt_bias, ssm_a, decay, beta;
    int32_t n_v;
};

/* GDN_STEP: the gated delta rule, row by row within each sequence. V head j uses key head j % n_key_head. State S[j][i][c]
   (i key, c value index, c contiguous), float, at state_offset. Per row and head:
     S = S * decay;  e[c] = fma(S[i][c], k[i], e[c]) over i in order from 0;  u[c] = (v[c] - e[c]) * beta;
     S = fma(k[i], u[c], S);  o[c] = fma(S[i][c], q[i], o[c]) over i in order from 0.
   qkv: q heads, k heads, v heads of one row as GDN_CONV and GDN_QK left them. out: [n_rows][n_v * d].
   Of held rows (d <= KERN_HELD_KEYS then) the state stays, and the record of a row has float k[n_key_head][d], u[n_v][d], decay[n_v] at
   tape_offset. The reference table, too, rounds u to float.
   Units: n_seqs * n_v * ceil(d / 32) (32 value columns c). */
#define KERN_HELD_KEYS 256
struct op_gdn_step {
    struct kern_view qkv, decay, beta, out;
    int32_t qkv_stride, out_stride, n_key_head, n_v, d;
    size_t state_offset, tape_offset, tape_stride; /* tape_stride: bytes from row to row */
};

/* GDN_COMMIT: the state behind the first n_rows held rows of each sequence: S[i][c] = fma(k[i], u[c], S[i][c] * decay), row by row, which
   is what GDN_STEP does to it. Units: n_seqs * n_v * ceil(d / 32) (32 keys i). */
struct op_gdn_commit {
    int32_t n_key_head, n_v, d;
    size_t state_offset, tape_offset, tape_stride;
};

/* GDN_OUT: per V head: y = rms(o, w) as in RMS_NORM over d values, times silu(z). In place on o allowed.
   Units: n_rows * n_v. */
struct op_gdn_out {
    struct kern_view o, z, w, y;
    int32_t o_stride, z_stride, y_stride, n_v, d;
    float eps;
};

/* ---- the one op list ---- */

#define KERN_OPS(X) \
    X(EMBED, embed) X(GET_ROWS, get_rows) X(RMS_NORM, rms_norm) X(QUANT_ACT, quant_act) X(MATMUL, matmul) \
    X(ARGMAX, argmax) X(ARGMAX_MERGE, argmax_merge) X(TOPK, topk) X(TOPK_MERGE, topk_merge) \
    X(BLOCK_CONV, block_conv) X(MOE_MATMUL, moe_matmul) X(ROUTER, router) \
    X(MOE_GROUP, moe_group) X(MOE_COMBINE, moe_combine) X(SWIGLU, swiglu) \
    X(ROPE_TABLE, rope_table) X(ATTN_Q, attn_q) X(ATTN_KV, attn_kv) X(ATTN, attn) X(ATTN_PAGES, attn_pages) \
    X(ATTN_MERGE, attn_merge) X(GDN_CONV, gdn_conv) X(GDN_QK, gdn_qk) X(GDN_GATES, gdn_gates) X(GDN_STEP, gdn_step) X(GDN_OUT, gdn_out) \
    X(GDN_COMMIT, gdn_commit) X(GDN_CONV_COMMIT, gdn_conv_commit)

enum kern_op_code {
#define X(CODE, name) KERN_##CODE,
    KERN_OPS(X)
#undef X
    KERN_OP_COUNT
};

struct kern_op {
    enum kern_op_code code;
    int16_t layer;    /* block index, -1 outside blocks */
    const char *role; /* static string: "attn_qkv", "ffn_down", ... for reports */
    union {
#define X(CODE, name) struct op_##name name;
        KERN_OPS(X)
#undef X
    } p;
};

/* One function type per op: compute units [begin, end). */
#define X(CODE, name) \
    typedef void kern_##name##_fn(const struct op_##name *op, const struct kern_batch *batch, int64_t begin, int64_t end);
KERN_OPS(X)
#undef X

/* Reading memory as fast as a tier can, to measure it: the wrapping sum of the 64-bit words of n bytes at p (n a multiple of
   KERN_READ_GRAIN, p aligned to 64). All ways give the same sum. */
enum kern_read_way {
    KERN_READ_PLAIN,    /* from begin to end, wide loads */
    KERN_READ_STREAMS,  /* four quarters side by side */
    KERN_READ_PREFETCH, /* the same, asking for lines ahead */
    KERN_READ_WAYS
};
#define KERN_READ_GRAIN 4096
typedef uint64_t kern_read_fn(const void *p, size_t n, enum kern_read_way way);

/* A complete set of implementations. */
struct kern_table {
    const char *name; /* "reference", "scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "neon", "dotprod", "i8mm" */
    int tile_rows;    /* weight rows in a tile of its tiled layout; 0: it has none (kern/tile.h) */
    kern_read_fn *read_memory;
#define X(CODE, name) kern_##name##_fn *name;
    KERN_OPS(X)
#undef X
};

/* Work units of an op, and the number of consecutive units a thread should take at least (splits fall on multiples). */
int64_t kern_units(const struct kern_op *op, const struct kern_batch *batch);
int64_t kern_grain(const struct kern_op *op, const struct kern_batch *batch);

/* Run units [begin, end) of an op with a table. */
void kern_run(const struct kern_table *t, const struct kern_op *op, const struct kern_batch *batch, int64_t begin, int64_t end);

const char *kern_op_name(enum kern_op_code code); /* "MATMUL", ... */

/* What an op asks of the machine. Bytes of memory that its formula touches, each counted once however often the kernel comes back to it;
   activations, which live in the caches, are not counted. */
struct kern_cost {
    uint64_t weight_bytes; /* read. Embedding: the rows looked up. Routed experts: those of n_rows * n_used pairs at most, which is exact
                              for one row */
    uint64_t state_bytes;  /* recurrent state and convolution windows, read and written */
    uint64_t kv_bytes;     /* KV cache: read by ATTN, once per sequence; written by ATTN_KV */
    uint64_t macs;         /* multiply-adds of the matrix products, attention, convolution and recurrence; 0 for the other ops */
};
struct kern_cost kern_op_cost(const struct kern_op *op, const struct kern_batch *batch);

/* Activation kind that a table's MATMUL wants for a weight type; -1: this type cannot be multiplied (yet). The reference table
   takes KERN_ACT_F32 for every type. */
int kern_act_kind(const struct kern_table *t, uint32_t weight_type);

/* ---- tables ---- */

extern const struct kern_table kern_reference;
extern const struct kern_table kern_scalar;

/* The table for a tier name, or the best one for this CPU when name is NULL. NULL if the name is unknown or this CPU cannot
   run it. Only the kernels of the instruction sets named are used. */
const struct kern_table *kern_select(const char *tier);

/* Names of the tiers that this CPU can run, best first, NULL-terminated ("scalar" is always last). */
const char *const *kern_tiers(void);

#endif
