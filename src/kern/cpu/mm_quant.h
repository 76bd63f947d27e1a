/* Matrix products of quantised weights: one template for all SIMD tiers. Included once by each matmul_<isa>.c, after the
 * tier's vector vocabulary (vec_<isa>.h). A new weight format needs one unpack function and one line at the end of this file.
 *
 * A tile is NR = NV * LANES rows of weights ("columns"), one 32-bit lane each. 256 values of every row at a time are unpacked
 * into a panel in the first-level cache: 16-bit integers with the scales of sub-blocks multiplied in (at most 4096 in
 * magnitude), transposed, so that vector (t, v) holds values 2t and 2t + 1 of the rows of group v. Then each input row is
 * multiplied with the panel: a pair of activations is broadcast against all lanes, so no horizontal sums exist anywhere, and
 * the float work of a block (one conversion, one fma) is done for all lanes at once. Up to MR input rows share the loads of
 * the panel. Running sums of all input rows of the call wait in `acc` between panels.
 *
 * Few input rows (up to MD) do without the panel: every vector is multiplied as soon as it is unpacked, which spreads the
 * loads of the weights evenly in time. So an unpack function puts what it finds into a `sink`, which is one or the other.
 *
 * Every lane performs exactly the operations of kern/ref/scalar_matmul.c, in the same order, integer sums aside, which are
 * exact; which rows share a tile or a call cannot matter. Lanes beyond the last column repeat it and are not stored.
 *
 * From the tier: NV, MR (1, 2, 4 or 6), MD (1 .. 4), LANES, vi, vf, v_*, vf_*, and dot_acc with dot_zero, dot_add, dot_sum: the accumulator
 * of one vector of outputs.
 */
#ifndef SKUA_KERN_CPU_MM_QUANT_H
#define SKUA_KERN_CPU_MM_QUANT_H

#include <string.h>

#include "kern/mm.h"
#include "quant/type.h"

#define NR (NV * LANES)
#define PANEL_VALUES 256

struct panel {
    _Alignas(64) int16_t w[PANEL_VALUES / 2][NV][2 * LANES];
    float d[PANEL_VALUES / 32][NV][LANES]; /* per block */
    float dmin[NV][LANES];
    int32_t min[8][NV][LANES]; /* minimum of sub-block j in both halves of a lane, for bsum[2j] and bsum[2j + 1] */
};

struct sink {
    int n_direct; /* input rows to multiply with at once; 0: store to the panel. Known at compile time */
    struct panel *panel;
    int v;
    const int16_t *q[MD], *bsum[MD]; /* of the current block */
    dot_acc sum[2][MD], min[MD];     /* two accumulators, for the latency of the products */
    vf d, dmin;
};

/* Unpacks n_blocks consecutive blocks at `offset` of LANES rows; 1 if the sink multiplies directly, or if a block is 256. */
typedef void unpack_fn(struct sink *s, const uint8_t *const row[LANES], size_t offset, int n_blocks);

static INLINE vi broadcast32(const void *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return v_set(x);
}

/* Values 2t and 2t + 1 of the panel, or of the current block. */
static INLINE void put_pair(struct sink *s, int t, vi w)
{
    if (s->n_direct == 0)
        v_store(s->panel->w[t][s->v], w);
    UNROLL
    for (int r = 0; r < s->n_direct; r++)
        s->sum[t % 2][r] = dot_add(s->sum[t % 2][r], w, broadcast32(s->q[r] + 2 * t));
}

/* The factor of block b. */
static INLINE void put_d(struct sink *s, int b, vf d)
{
    if (s->n_direct == 0)
        vf_store(s->panel->d[b][s->v], d);
    else
        s->d = d;
}

static INLINE void put_dmin(struct sink *s, vf dmin)
{
    if (s->n_direct == 0)
        vf_store(s->panel->dmin[s->v], dmin);
    else
        s->dmin = dmin;
}

/* The minimum of sub-block j, in both halves of a lane. */
static INLINE void put_min(struct sink *s, int j, vi min)
{
    if (s->n_direct == 0)
        v_store(s->panel->min[j][s->v], min);
    UNROLL
    for (int r = 0; r < s->n_direct; r++)
        s->min[r] = dot_add(s->min[r], min, broadcast32(s->bsum[r] + 2 * j));
}

/* ---- unpacking ---- */

static INLINE vf load_f16(const uint8_t *const row[LANES], size_t offset)
{
    uint32_t half[LANES];
    UNROLL
    for (int i = 0; i < LANES; i++) {
        uint16_t h;
        memcpy(&h, row[i] + offset, sizeof h);
        half[i] = h;
    }
    return vf_from_low_f16(v_load(half));
}

/* 16-bit integers of 32 bits of codes per lane, times `scale` (in both halves of a lane). */
static INLINE void put_scaled(struct sink *s, int t, vi codes, vi scale)
{
    vi pair[2];
    v_widen(codes, pair);
    put_pair(s, t, v_mul16(pair[0], scale));
    put_pair(s, t + 1, v_mul16(pair[1], scale));
}

static INLINE vi low_nibbles(vi a)
{
    return v_and(a, v_set(0x0F0F0F0F));
}

static INLINE vi high_nibbles(vi a)
{
    return v_and(v_srl(a, 4), v_set(0x0F0F0F0F));
}

/* Byte i of every lane, in both halves. */
static INLINE vi byte_twice(vi a, int i)
{
    vi b = v_and(v_srl(a, 8 * i), v_set(0xFF));
    return v_or(b, v_sll(b, 16));
}

static INLINE void unpack_q8_0(struct sink *s, const uint8_t *const row[LANES], size_t offset, int n_blocks)
{
    for (int b = 0; b < n_blocks; b++, offset += 34) {
        put_d(s, b, load_f16(row, offset));
        UNROLL
        for (int c = 0; c < 2; c++) {
            vi q[4], pair[2];
            v_transpose(row, offset + 2 + 16 * (size_t)c, q);
            UNROLL
            for (int t = 0; t < 4; t++) {
                v_widen_signed(q[t], pair);
                put_pair(s, 16 * b + 8 * c + 2 * t, pair[0]);
                put_pair(s, 16 * b + 8 * c + 2 * t + 1, pair[1]);
            }
        }
    }
}

static INLINE void unpack_q4_0(struct sink *s, const uint8_t *const row[LANES], size_t offset, int n_blocks)
{
    vi nibble = v_set(0x000F000F), eight = v_set(0x00080008);
    for (int b = 0; b < n_blocks; b++, offset += 18) {
        put_d(s, b, load_f16(row, offset));
        vi q[4], pair[2];
        v_transpose(row, offset + 2, q);
        UNROLL
        for (int t = 0; t < 4; t++) {
            v_widen(q[t], pair);
            UNROLL
            for (int i = 0; i < 2; i++) {
                put_pair(s, 16 * b + 2 * t + i, v_sub16(v_and(pair[i], nibble), eight));
                put_pair(s, 16 * b + 8 + 2 * t + i, v_sub16(v_srl16(pair[i], 4), eight));
            }
        }
    }
}

/* The common head of Q4_K and Q5_K: d, dmin and the packed scale pairs, four to a lane. */
static INLINE void unpack_head_k45(struct sink *s, const uint8_t *const row[LANES], size_t offset, vi scale[8])
{
    vi head[4];
    v_transpose(row, offset, head);
    put_d(s, 0, vf_from_low_f16(head[0]));
    put_dmin(s, vf_from_low_f16(v_srl(head[0], 16)));
    vi six = v_set(0x3F3F3F3F), two = v_set(0x30303030);
    vi sc[2] = {v_and(head[1], six), v_or(low_nibbles(head[3]), v_and(v_srl(head[1], 2), two))};
    vi mn[2] = {v_and(head[2], six), v_or(high_nibbles(head[3]), v_and(v_srl(head[2], 2), two))};
    UNROLL
    for (int j = 0; j < 8; j++) {
        scale[j] = byte_twice(sc[j / 4], j % 4);
        put_min(s, j, byte_twice(mn[j / 4], j % 4));
    }
}

static INLINE void unpack_q4_k(struct sink *s, const uint8_t *const row[LANES], size_t offset, int n_blocks)
{
    (void)n_blocks; /* always 1 */
    vi scale[8], nibble = v_set(0x000F000F);
    unpack_head_k45(s, row, offset, scale);
    UNROLL
    for (int c = 0; c < 8; c++) { /* 16 bytes: element 64 * (c / 2) + 16 * (c % 2) and, in the high nibbles, 32 further */
        vi q[4], pair[2];
        v_transpose(row, offset + 16 + 16 * (size_t)c, q);
        UNROLL
        for (int t = 0; t < 4; t++) {
            v_widen(q[t], pair);
            UNROLL
            for (int i = 0; i < 2; i++) {
                int at = 32 * (c / 2) + 8 * (c % 2) + 2 * t + i;
                put_pair(s, at, v_mul16(v_and(pair[i], nibble), scale[c / 2 * 2]));
                put_pair(s, at + 16, v_mul16(v_srl16(pair[i], 4), scale[c / 2 * 2 + 1]));
            }
        }
    }
}

static INLINE void unpack_q5_k(struct sink *s, const uint8_t *const row[LANES], size_t offset, int n_blocks)
{
    (void)n_blocks;
    vi scale[8], bit = v_set(0x10101010);
    unpack_head_k45(s, row, offset, scale);
    for (int half = 0; half < 2; half++) { /* elements l of the 32-element rows with l / 16 == half */
        vi high[4];
        v_transpose(row, offset + 16 + 16 * (size_t)half, high);
        UNROLL
        for (int g = 0; g < 4; g++) { /* 64 elements: rows 2g and 2g + 1, whose fifth bits are bits 2g and 2g + 1 */
            vi q[4];
            v_transpose(row, offset + 48 + 32 * (size_t)g + 16 * (size_t)half, q);
            UNROLL
            for (int t = 0; t < 4; t++) {
                vi even = g < 2 ? v_sll(high[t], 4 - 2 * g) : v_srl(high[t], 2 * g - 4);
                vi odd = g < 2 ? v_sll(high[t], 3 - 2 * g) : v_srl(high[t], 2 * g - 3);
                int at = 32 * g + 8 * half + 2 * t;
                put_scaled(s, at, v_or(low_nibbles(q[t]), v_and(even, bit)), scale[2 * g]);
                put_scaled(s, at + 16, v_or(high_nibbles(q[t]), v_and(odd, bit)), scale[2 * g + 1]);
            }
        }
    }
}

/* As put_scaled, for codes with an offset of 32. */
static INLINE void put_q6(struct sink *s, int t, vi codes, vi scale)
{
    vi pair[2], offset = v_set(0x00200020);
    v_widen(codes, pair);
    put_pair(s, t, v_mul16(v_sub16(pair[0], offset), scale));
    put_pair(s, t + 1, v_mul16(v_sub16(pair[1], offset), scale));
}

static INLINE void unpack_q6_k(struct sink *s, const uint8_t *const row[LANES], size_t offset, int n_blocks)
{
    (void)n_blocks;
    put_d(s, 0, load_f16(row, offset + 208));
    vi sc[4];
    v_transpose(row, offset + 192, sc); /* scale j, signed: byte j % 4 of sc[j / 4] */
    vi two = v_set(0x30303030);
    UNROLL
    for (int c = 0; c < 4; c++) { /* half h = c / 2 of the block, elements l of its four 32-element rows with l / 16 == c % 2 */
        vi high[4], a[4], b[4], scale[4];
        size_t part = 16 * (size_t)(c % 2);
        v_transpose(row, offset + 128 + 32 * (size_t)(c / 2) + part, high);
        v_transpose(row, offset + 64 * (size_t)(c / 2) + part, a);
        v_transpose(row, offset + 64 * (size_t)(c / 2) + 32 + part, b);
        UNROLL
        for (int k = 0; k < 4; k++) {
            int j = 8 * (c / 2) + 2 * k + c % 2;
            vi top = v_sra(v_sll(sc[j / 4], 24 - 8 * (j % 4)), 24);
            scale[k] = v_or(v_and(top, v_set(0xFFFF)), v_sll(top, 16));
        }
        UNROLL
        for (int t = 0; t < 4; t++) {
            int at = 64 * (c / 2) + 8 * (c % 2) + 2 * t;
            put_q6(s, at, v_or(low_nibbles(a[t]), v_and(v_sll(high[t], 4), two)), scale[0]);
            put_q6(s, at + 16, v_or(low_nibbles(b[t]), v_and(v_sll(high[t], 2), two)), scale[1]);
            put_q6(s, at + 32, v_or(high_nibbles(a[t]), v_and(high[t], two)), scale[2]);
            put_q6(s, at + 48, v_or(high_nibbles(b[t]), v_and(v_srl(high[t], 2), two)), scale[3]);
        }
    }
}

/* ---- multiplying: R input rows with a panel whose first value is value `at` of the rows ---- */

/* What a kernel must know about a weight type at compile time. */
struct mm_class {
    int block; /* values per block: 32 or 256 */
    bool mins; /* 256 only: minima of 32-value sub-blocks, scaled by dmin, are subtracted */
};

/* sum[r][v] = the integer sums of one block: n_pairs pairs, weights from panel pair t on, activations from q[r] on. With one
   or two input rows several accumulators per output hide the latency of the products. */
static INLINE void sum_block(const struct panel *p, int t, const int16_t *const q[MR], int n_pairs, vi sum[MR][NV], int R)
{
    const int chains = R == 1 ? 4 : R == 2 ? 2 : 1;
    dot_acc a[4][MR][NV];
    UNROLL
    for (int k = 0; k < chains; k++)
        UNROLL
        for (int r = 0; r < R; r++)
            UNROLL
            for (int v = 0; v < NV; v++)
                a[k][r][v] = dot_zero();
    for (int i = 0; i < n_pairs; i += 4)
        UNROLL
        for (int k = 0; k < 4; k++)
            UNROLL
            for (int r = 0; r < R; r++) {
                vi x = broadcast32(q[r] + 2 * (i + k));
                UNROLL
                for (int v = 0; v < NV; v++)
                    a[k % chains][r][v] = dot_add(a[k % chains][r][v], v_load(p->w[t + i + k][v]), x);
            }
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
        for (int v = 0; v < NV; v++) {
            sum[r][v] = dot_sum(a[0][r][v]);
            UNROLL
            for (int k = 1; k < chains; k++)
                sum[r][v] = v_add(sum[r][v], dot_sum(a[k][r][v]));
        }
}

/* acc = fma(-(dmin * dx), sum_j min_j * (bsum[2j] + bsum[2j + 1]), acc). */
static INLINE void subtract_minima(const struct panel *p, const struct mm_row *row, int at, float acc[][NR], int R)
{
    dot_acc m[MR][NV];
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
        for (int v = 0; v < NV; v++)
            m[r][v] = dot_zero();
    UNROLL
    for (int j = 0; j < 8; j++)
        UNROLL
        for (int r = 0; r < R; r++) {
            vi b = broadcast32(row[r].q.bsum + at / 16 + 2 * j);
            UNROLL
            for (int v = 0; v < NV; v++)
                m[r][v] = dot_add(m[r][v], v_load(p->min[j][v]), b);
        }
    UNROLL
    for (int r = 0; r < R; r++) {
        vf dx = vf_set(row[r].q.d[at / 256]);
        UNROLL
        for (int v = 0; v < NV; v++) {
            float *f = acc[r] + v * LANES;
            vf_store(f, vf_fnma(vf_mul(vf_load(p->dmin[v]), dx), vf_from_int(dot_sum(m[r][v])), vf_load(f)));
        }
    }
}

/* Per block: acc = fma(dw * dx, sum, acc). */
static INLINE void multiply(struct mm_class c, const struct panel *p, const struct mm_row *row, int at, int n_blocks,
                            float acc[][NR], int R)
{
    for (int b = 0; b < n_blocks; b++) {
        const int16_t *q[MR];
        vi sum[MR][NV];
        UNROLL
        for (int r = 0; r < R; r++)
            q[r] = row[r].q.q + at + c.block * b;
        sum_block(p, c.block / 2 * b, q, c.block / 2, sum, R);
        UNROLL
        for (int r = 0; r < R; r++) {
            vf dx = vf_set(row[r].q.d[at / c.block + b]);
            UNROLL
            for (int v = 0; v < NV; v++) {
                float *f = acc[r] + v * LANES;
                vf_store(f, vf_fma(vf_mul(vf_load(p->d[b][v]), dx), vf_from_int(sum[r][v]), vf_load(f)));
            }
        }
    }
    if (c.mins)
        subtract_minima(p, row, at, acc, R);
}

static INLINE void multiply_all(struct mm_class c, const struct panel *p, const struct mm_row *row, int n_rows, int at,
                                int n_blocks, float acc[][NR])
{
    int r = 0;
    for (; r + MR <= n_rows; r += MR)
        multiply(c, p, row + r, at, n_blocks, acc + r, MR);
    if (MR > 4 && n_rows - r >= 4) {
        multiply(c, p, row + r, at, n_blocks, acc + r, 4);
        r += 4;
    }
    if (MR > 2 && n_rows - r >= 2) {
        multiply(c, p, row + r, at, n_blocks, acc + r, 2);
        r += 2;
    }
    if (r < n_rows)
        multiply(c, p, row + r, at, n_blocks, acc + r, 1);
}

/* ---- the kernels ---- */

/* LANES weight rows by R <= MD input rows, results in f. */
static INLINE void multiply_direct(struct mm_class c, unpack_fn *unpack, size_t block_bytes, const uint8_t *const wrow[LANES],
                                   int n_in, const struct mm_row *row, vf f[MD], int R)
{
    UNROLL
    for (int r = 0; r < R; r++)
        f[r] = vf_zero();
    size_t offset = 0;
    for (int at = 0; at < n_in; at += c.block, offset += block_bytes) {
        struct sink s = {.n_direct = R};
        UNROLL
        for (int r = 0; r < R; r++) {
            s.q[r] = row[r].q.q + at;
            s.bsum[r] = row[r].q.bsum + at / 16;
            s.sum[0][r] = s.sum[1][r] = s.min[r] = dot_zero();
        }
        unpack(&s, wrow, offset, 1);
        UNROLL
        for (int r = 0; r < R; r++) {
            vf dx = vf_set(row[r].q.d[at / c.block]);
            f[r] = vf_fma(vf_mul(s.d, dx), vf_from_int(v_add(dot_sum(s.sum[0][r]), dot_sum(s.sum[1][r]))), f[r]);
            if (c.mins)
                f[r] = vf_fnma(vf_mul(s.dmin, dx), vf_from_int(dot_sum(s.min[r])), f[r]);
        }
    }
}

/* Rows [o, o + count) of the matrix; beyond `end` the last one again. */
static INLINE void weight_rows(const struct mm_weight *w, int64_t o, int64_t end, int count, const uint8_t **wrow)
{
    for (int i = 0; i < count; i++)
        wrow[i] = w->data + (size_t)(o + i < end ? o + i : end - 1) * w->row_bytes;
}

static INLINE void put_outputs(float *y, const float *v, int n, bool accumulate)
{
    for (int i = 0; i < n; i++)
        y[i] = accumulate ? y[i] + v[i] : v[i];
}

static INLINE void mm_direct(struct mm_class c, unpack_fn *unpack, size_t block_bytes, const struct mm_weight *w,
                             const struct mm_row *row, bool accumulate, int64_t begin, int64_t end, int R)
{
    for (int64_t o = begin; o < end; o += LANES) {
        const uint8_t *wrow[LANES];
        vf f[MD];
        weight_rows(w, o, end, LANES, wrow);
        multiply_direct(c, unpack, block_bytes, wrow, w->n_in, row, f, R);
        UNROLL
        for (int r = 0; r < R; r++) {
            float v[LANES];
            vf_store(v, f[r]);
            put_outputs(row[r].y + o, v, end - o < LANES ? (int)(end - o) : LANES, accumulate);
        }
    }
}

static INLINE void mm_panel(struct mm_class c, unpack_fn *unpack, size_t block_bytes, const struct mm_weight *w,
                            const struct mm_row *row, int n_rows, bool accumulate, int64_t begin, int64_t end)
{
    struct panel p;
    _Alignas(64) float acc[MM_ROWS][NR];
    for (int64_t o = begin; o < end; o += NR) {
        const uint8_t *wrow[NR];
        weight_rows(w, o, end, NR, wrow);
        memset(acc, 0, sizeof acc[0] * (size_t)n_rows);
        for (int at = 0; at < w->n_in; at += PANEL_VALUES) {
            int n_blocks = (w->n_in - at < PANEL_VALUES ? w->n_in - at : PANEL_VALUES) / c.block;
            for (int v = 0; v < NV; v++) {
                struct sink s = {.panel = &p, .v = v};
                unpack(&s, wrow + v * LANES, (size_t)(at / c.block) * block_bytes, n_blocks);
            }
            multiply_all(c, &p, row, n_rows, at, n_blocks, acc);
        }
        for (int r = 0; r < n_rows; r++)
            put_outputs(row[r].y + o, acc[r], end - o < NR ? (int)(end - o) : NR, accumulate);
    }
}

static INLINE void mm_quant(struct mm_class c, uint32_t type, unpack_fn *unpack, const struct mm_weight *w,
                            const struct mm_row *row, int n_rows, bool accumulate, int64_t begin, int64_t end)
{
    size_t block_bytes = qtype_info(type)->block_bytes;
    if (n_rows == 1)
        mm_direct(c, unpack, block_bytes, w, row, accumulate, begin, end, 1);
    else if (n_rows == 2 && MD >= 2)
        mm_direct(c, unpack, block_bytes, w, row, accumulate, begin, end, MD >= 2 ? 2 : 1);
    else if (n_rows == 3 && MD >= 3)
        mm_direct(c, unpack, block_bytes, w, row, accumulate, begin, end, MD >= 3 ? 3 : 1);
    else if (n_rows == 4 && MD >= 4)
        mm_direct(c, unpack, block_bytes, w, row, accumulate, begin, end, MD >= 4 ? 4 : 1);
    else
        mm_panel(c, unpack, block_bytes, w, row, n_rows, accumulate, begin, end);
}

#define MM_QUANT_KERNEL(name, type, ...) \
    static void mm_##name(const struct mm_weight *w, const struct mm_row *row, int n_rows, bool accumulate, int64_t begin, \
                          int64_t end) \
    { \
        mm_quant((struct mm_class){__VA_ARGS__}, type, unpack_##name, w, row, n_rows, accumulate, begin, end); \
    }

MM_QUANT_KERNEL(q8_0, QTYPE_Q8_0, .block = 32)
MM_QUANT_KERNEL(q4_0, QTYPE_Q4_0, .block = 32)
MM_QUANT_KERNEL(q4_k, QTYPE_Q4_K, .block = 256, .mins = true)
MM_QUANT_KERNEL(q5_k, QTYPE_Q5_K, .block = 256, .mins = true)
MM_QUANT_KERNEL(q6_k, QTYPE_Q6_K, .block = 256)

#endif
