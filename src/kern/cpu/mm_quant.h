/* Matrix products of quantised weights: one template for all SIMD tiers. Included once by each file of kernels (mm_b32.h,
 * mm_k.h), after the tier's vector vocabulary (vec_<isa>.h). A new weight format needs one unpack function and one line.
 *
 * A tile is NR = NV * LANES rows of weights ("columns"), one 32-bit lane each. 256 values of every row at a time are unpacked
 * into a panel in the first-level cache: 16-bit integers with the offset subtracted and the scales of sub-blocks multiplied
 * in (at most 4096 in magnitude), transposed, so that vector (t, v) holds values 2t and 2t + 1 of the rows of group v. Then
 * each input row is multiplied with the panel: a pair of activations is broadcast against all lanes, so no horizontal sums
 * exist anywhere, and the float work of a block (one conversion, one fma) is done for all lanes at once. Up to MR input rows
 * share the loads of the panel. Running sums of all input rows of the call wait in `acc` between panels.
 *
 * Few input rows (up to 4) do without the panel: every vector is multiplied as soon as it is unpacked; scales are applied
 * to the integer sum of a sub-block and offsets to the sums of activations. An unpack function puts what it finds into a
 * `sink`, which is one or the other.
 *
 * Every lane performs exactly the float operations of kern/ref/scalar_matmul.c, in the same order. Integer sums are exact
 * in any order: they fit int32, and parts of them that do not wrap around and back. So which rows share a tile or a call
 * cannot matter. Lanes beyond the last column repeat it and are not stored.
 *
 * From the tier: NV, MR (4 or 8), LANES, vi, vf, v_*, vf_*, and dot_acc with dot_zero, dot_add, dot_sum: the accumulator of
 * one vector of outputs. From the file of kernels: BLOCK, the weights that share a float scale (16, 32
 * or 256), and OFFSETS: whether each block has a float offset besides (1 only for BLOCK 32).
 */
#ifndef SKUA_KERN_CPU_MM_QUANT_H
#define SKUA_KERN_CPU_MM_QUANT_H

#include "kern/cpu/mm_tile.h"

#define MD 4 /* input rows that are multiplied directly */

#define NR (NV * LANES)
#define PANEL_VALUES 256
#define ACT_BLOCK (BLOCK == 256 ? 256 : 32) /* values per scale of the activations */

struct panel {
    _Alignas(64) int16_t w[PANEL_VALUES / 2][NV][2 * LANES];
    float d[PANEL_VALUES / BLOCK][NV][LANES];
#if OFFSETS
    float m[PANEL_VALUES / BLOCK][NV][LANES];
#endif
    float dmin[NV][LANES];
    int32_t min[8][NV][LANES]; /* the minima that go with bsum[2j] and bsum[2j + 1], in the halves of a lane */
};

struct sink {
    int n_direct; /* input rows to multiply with at once; 0: store to the panel. Known at compile time */
    struct panel *panel;
    int v;
    const int16_t *q[MD], *bsum[MD];           /* of the current stored block */
    const float *dx[MD];
    dot_acc part[2][MD], offset[MD], min[MD]; /* part: of the current sub-blocks */
    vi sum[MD];
    vf d, dmin, m;
    vf f[MD]; /* the outputs so far */
    struct ahead ahead;
};

/* Unpacks n_blocks consecutive stored blocks (as the file keeps them: 32, 64 or 256 values) at `offset` of LANES rows; 1 if the
   sink multiplies directly, or if a block is 256. */
typedef void unpack_fn(struct sink *s, struct tile_rows row, size_t offset, int n_blocks);

/* Codes of values 2t and 2t + 1 of the panel, or of the current block; k (0 or 1) tells which of two sub-blocks that are
   unpacked together they belong to. The weight is (code - offset) * scale, both in both halves of a lane; NULL: 0 and 1. */
static INLINE void put_pair(struct sink *s, int t, int k, vi code, const vi *offset, const vi *scale)
{
    UNROLL
    for (int r = 0; r < MD; r++)
        if (r < s->n_direct)
            s->part[k][r] = dot_add(s->part[k][r], code, broadcast32(s->q[r] + 2 * t));
    if (s->n_direct > 0)
        return;
    if (offset)
        code = v_sub16(code, *offset);
    if (scale)
        code = v_mul16(code, *scale);
    v_store(s->panel->w[t][s->v], code);
}

/* Sub-block k is complete. */
static INLINE void end_part(struct sink *s, int k, const vi *scale)
{
    UNROLL
    for (int r = 0; r < MD; r++) {
        if (r >= s->n_direct)
            break;
        vi part = dot_sum(s->part[k][r]);
        s->sum[r] = v_add(s->sum[r], scale ? v_mul(part, v_sra(*scale, 16)) : part);
        s->part[k][r] = dot_zero();
    }
}

/* Adds w.lo * bsum[2j] + w.hi * bsum[2j + 1] to the integer sum, which is what the offsets of 32 values come to. */
static INLINE void put_offset(struct sink *s, int j, vi w)
{
    UNROLL
    for (int r = 0; r < MD; r++)
        if (r < s->n_direct)
            s->offset[r] = dot_add(s->offset[r], w, broadcast32(s->bsum[r] + 2 * j));
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

#if OFFSETS
/* The offset of block b. */
static INLINE void put_m(struct sink *s, int b, vf m)
{
    if (s->n_direct == 0)
        vf_store(s->panel->m[b][s->v], m);
    else
        s->m = m;
}
#endif

/* The minima that bsum[2j] and bsum[2j + 1] are multiplied with, in the halves of a lane. */
static INLINE void put_min(struct sink *s, int j, vi min)
{
    if (s->n_direct == 0)
        v_store(s->panel->min[j][s->v], min);
    UNROLL
    for (int r = 0; r < MD; r++)
        if (r < s->n_direct)
            s->min[r] = dot_add(s->min[r], min, broadcast32(s->bsum[r] + 2 * j));
}

/* Block b is complete; `mins`: its format has minima. */
static INLINE void end_block(struct sink *s, int b, bool mins)
{
    UNROLL
    for (int r = 0; r < MD; r++) {
        if (r >= s->n_direct)
            break;
        vf dx = vf_set(s->dx[r][b * BLOCK / ACT_BLOCK]);
        s->f[r] = vf_fma(vf_mul(s->d, dx), vf_from_int(v_add(s->sum[r], dot_sum(s->offset[r]))), s->f[r]);
        if (mins)
            s->f[r] = vf_fnma(vf_mul(s->dmin, dx), vf_from_int(dot_sum(s->min[r])), s->f[r]);
#if OFFSETS
        s->f[r] = vf_fma(vf_mul(s->m, dx), vf_set((float)(s->bsum[r][2 * b] + s->bsum[r][2 * b + 1])), s->f[r]);
#endif
        s->sum[r] = v_zero();
        s->offset[r] = s->min[r] = dot_zero();
    }
}

/* ---- what unpack functions share ---- */

/* Four codes per lane, a byte each, at t and t + 1. */
static INLINE void put_bytes(struct sink *s, int t, int k, vi codes, const vi *offset, const vi *scale)
{
    vi pair[2];
    v_widen(codes, pair);
    put_pair(s, t, k, pair[0], offset, scale);
    put_pair(s, t + 1, k, pair[1], offset, scale);
}

/* Eight codes per lane: low nibbles at t and t + 1 for sub-block `low`, high ones 2 * dist values later for sub-block `high`. */
static INLINE void put_nibbles(struct sink *s, int t, int dist, int low, int high, vi codes, const vi *offset,
                               const vi *low_scale, const vi *high_scale)
{
    vi pair[2];
    v_widen(codes, pair);
    UNROLL
    for (int i = 0; i < 2; i++) {
        put_pair(s, t + i, low, v_and(pair[i], v_set(0x000F000F)), offset, low_scale);
        put_pair(s, t + dist + i, high, v_srl16(pair[i], 4), offset, high_scale);
    }
}

/* The same for four signed bytes per lane. */
static INLINE void put_signed_bytes(struct sink *s, int t, int k, vi values, const vi *scale)
{
    vi pair[2];
    v_widen_signed(values, pair);
    put_pair(s, t, k, pair[0], NULL, scale);
    put_pair(s, t + 1, k, pair[1], NULL, scale);
}

/* ---- multiplying R input rows with a panel whose first value is value `at` of the rows ---- */

/* sum[r][v] = the integer sums of one block: weights from panel pair t on, activations from q[r] on. With one or two input
   rows several accumulators per output hide the latency of the products. */
static INLINE void sum_block(const struct panel *p, int t, const int16_t *const q[MR], vi sum[MR][NV], int R)
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
    ROLLED
    for (int i = 0; i < BLOCK / 2; i += 4)
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

/* Per block: acc = fma(dw * dx, sum, acc); with OFFSETS then fma(m * dx, sum of the activations, acc). */
static INLINE void multiply(const struct panel *p, const struct mm_row *row, int at, int n_blocks, float acc[][NR], int R)
{
    ROLLED
    for (int b = 0; b < n_blocks; b++) {
        const int16_t *q[MR];
        vi sum[MR][NV];
        UNROLL
        for (int r = 0; r < R; r++)
            q[r] = row[r].q.q + at + BLOCK * b;
        sum_block(p, BLOCK / 2 * b, q, sum, R);
        UNROLL
        for (int r = 0; r < R; r++) {
            vf dx = vf_set(row[r].q.d[(at + BLOCK * b) / ACT_BLOCK]);
#if OFFSETS
            const int16_t *bsum = row[r].q.bsum + at / 16 + 2 * b;
            vf all = vf_set((float)(bsum[0] + bsum[1]));
#endif
            UNROLL
            for (int v = 0; v < NV; v++) {
                float *f = acc[r] + v * LANES;
                vf y = vf_fma(vf_mul(vf_load(p->d[b][v]), dx), vf_from_int(sum[r][v]), vf_load(f));
#if OFFSETS
                y = vf_fma(vf_mul(vf_load(p->m[b][v]), dx), all, y);
#endif
                vf_store(f, y);
            }
        }
    }
}

typedef void multiply_fn(const struct panel *p, const struct mm_row *row, int at, int n_blocks, float acc[][NR]);

#define MULTIPLY(R) \
    static NOINLINE void multiply_##R(const struct panel *p, const struct mm_row *row, int at, int n_blocks, float acc[][NR]) \
    { \
        multiply(p, row, at, n_blocks, acc, R); \
    }
MULTIPLY(1)
MULTIPLY(2)
MULTIPLY(4)
#if MR == 8
MULTIPLY(6)
MULTIPLY(8)
#endif

/* acc = fma(-(dmin * dx), sum_j min_j * (bsum[2j] + bsum[2j + 1]), acc). */
static NOINLINE void subtract_minima(const struct panel *p, const struct mm_row *row, int n_rows, int at, float acc[][NR])
{
    for (int r = 0; r < n_rows; r++) {
        dot_acc m[NV];
        UNROLL
        for (int v = 0; v < NV; v++)
            m[v] = dot_zero();
        UNROLL
        for (int j = 0; j < 8; j++) {
            vi b = broadcast32(row[r].q.bsum + at / 16 + 2 * j);
            UNROLL
            for (int v = 0; v < NV; v++)
                m[v] = dot_add(m[v], v_load(p->min[j][v]), b);
        }
        vf dx = vf_set(row[r].q.d[at / 256]);
        UNROLL
        for (int v = 0; v < NV; v++) {
            float *f = acc[r] + v * LANES;
            vf_store(f, vf_fnma(vf_mul(vf_load(p->dmin[v]), dx), vf_from_int(dot_sum(m[v])), vf_load(f)));
        }
    }
}

static void multiply_all(const struct panel *p, const struct mm_row *row, int n_rows, int at, int n_blocks, float acc[][NR])
{
    int r = 0;
#if MR == 8
    for (; r + 8 <= n_rows; r += 8)
        multiply_8(p, row + r, at, n_blocks, acc + r);
    if (r + 6 <= n_rows) {
        multiply_6(p, row + r, at, n_blocks, acc + r);
        r += 6;
    }
#endif
    for (; r + 4 <= n_rows; r += 4)
        multiply_4(p, row + r, at, n_blocks, acc + r);
    for (; r + 2 <= n_rows; r += 2)
        multiply_2(p, row + r, at, n_blocks, acc + r);
    for (; r < n_rows; r++)
        multiply_1(p, row + r, at, n_blocks, acc + r);
}

/* ---- the kernels ---- */

/* One tile of LANES weight rows by up to MD input rows; f takes the results. The next tile is `ahead` bytes further. */
typedef void direct_fn(struct tile_rows rows, size_t ahead, int n_in, const struct mm_row *const row[MD],
                       float f[MD][LANES]);

typedef void panel_fn(struct panel *p, int v, struct tile_rows rows, size_t ahead, size_t offset, int n_blocks);

/* The code that is made for each weight type. */
struct mm_format {
    int values;         /* of a stored block */
    size_t block_bytes; /* likewise */
    bool mins;
    panel_fn *unpack[2];     /* of rows as the file has them, and of tiles (NULL: none of this type) */
    direct_fn *direct[2][3]; /* likewise; for 1, 2 and 4 input rows */
};

static INLINE void multiply_direct(int values, size_t block_bytes, unpack_fn *unpack, struct tile_rows rows, size_t ahead,
                                   int n_in, const struct mm_row *const row[MD], float out[MD][LANES], int R)
{
    vf f[MD];
    UNROLL
    for (int r = 0; r < R; r++)
        f[r] = vf_zero();
    size_t offset = 0;
    ROLLED
    for (int at = 0; at < n_in; at += values, offset += block_bytes) {
        struct sink s; /* member by member: an initialiser would clear all of it in memory, block after block */
        s.n_direct = R;
        s.ahead.next = (uintptr_t)rows.first + ahead + LANES * offset;
        UNROLL
        for (int r = 0; r < R; r++) {
            s.q[r] = row[r]->q.q + at;
            s.bsum[r] = row[r]->q.bsum + at / 16;
            s.dx[r] = row[r]->q.d + at / ACT_BLOCK;
            s.part[0][r] = s.part[1][r] = s.offset[r] = s.min[r] = dot_zero();
            s.sum[r] = v_zero();
            s.f[r] = f[r];
        }
        unpack(&s, rows, offset, 1);
        UNROLL
        for (int r = 0; r < R; r++)
            f[r] = s.f[r];
    }
    UNROLL
    for (int r = 0; r < R; r++)
        vf_store(out[r], f[r]);
}

/* Input rows in groups of up to MD, all of them for one tile before the next. direct[i] takes 2^i rows; a group of another size repeats
   its last row. */
static void mm_direct(direct_fn *const direct[], const struct mm_weight *w, const struct mm_row *row, int n_rows, bool accumulate,
                      int64_t begin, int64_t end)
{
    int skip, n;
    for (int64_t o = begin; o < end; o += n) {
        struct tile_rows rows = tile_at(w, o, end, LANES, &skip, &n);
        const size_t ahead = to_next_tile(w, o + n, end, n);
        for (int first = 0; first < n_rows; first += MD) {
            const int count = n_rows - first < MD ? n_rows - first : MD;
            const struct mm_row *inputs[MD];
            float f[MD][LANES];
            int log2_rows = 0;
            while (1 << log2_rows < count)
                log2_rows++;
            for (int r = 0; r < MD; r++)
                inputs[r] = row + first + (r < count ? r : count - 1);
            direct[log2_rows](rows, ahead, w->n_in, inputs, f);
            for (int r = 0; r < count; r++)
                put_outputs(row[first + r].y + o, f[r] + skip, n, w->scale, accumulate);
        }
    }
}

static void mm_panel(const struct mm_format *format, const struct mm_weight *w, const struct mm_row *row, int n_rows,
                     bool accumulate, int64_t begin, int64_t end)
{
    struct panel p;
    _Alignas(64) float acc[MM_ROWS][NR];
    int skip, n;
    for (int64_t o = begin; o < end; o += n) {
        struct tile_rows tile = tile_at(w, o, end, NR, &skip, &n);
        const size_t ahead = to_next_tile(w, o + n, end, n);
        memset(acc, 0, (size_t)n_rows * sizeof acc[0]);
        for (int at = 0; at < w->n_in; at += PANEL_VALUES) {
            int values = w->n_in - at < PANEL_VALUES ? w->n_in - at : PANEL_VALUES;
            size_t offset = (size_t)(at / format->values) * format->block_bytes;
            for (int v = 0; v < NV; v++) {
                struct tile_rows rows = {tile.first + (size_t)(v * LANES) * tile.stride, tile.stride, tile.tiled};
                format->unpack[tile.tiled](&p, v, rows, ahead, offset, values / format->values);
            }
            multiply_all(&p, row, n_rows, at, values / BLOCK, acc);
            if (format->mins)
                subtract_minima(&p, row, n_rows, at, acc);
        }
        for (int r = 0; r < n_rows; r++)
            put_outputs(row[r].y + o, acc[r] + skip, n, w->scale, accumulate);
    }
}

#define MM_DIRECT(name, R, values, bytes, prefix, is_tiled) \
    static NOINLINE void prefix##_##name##_##R(struct tile_rows rows, size_t ahead, int n_in, \
                                               const struct mm_row *const row[MD], float f[MD][LANES]) \
    { \
        rows.tiled = is_tiled; \
        multiply_direct(values, bytes, unpack_##name, rows, ahead, n_in, row, f, R); \
    }
#define MM_LAYOUT(name, values, bytes, prefix, is_tiled) \
    MM_DIRECT(name, 1, values, bytes, prefix, is_tiled) \
    MM_DIRECT(name, 2, values, bytes, prefix, is_tiled) \
    MM_DIRECT(name, 4, values, bytes, prefix, is_tiled) \
    static NOINLINE void prefix##_panel_##name(struct panel *p, int v, struct tile_rows rows, size_t ahead, size_t offset, \
                                               int n_blocks) \
    { \
        struct sink s; \
        s.n_direct = 0; \
        s.panel = p; \
        s.v = v; \
        s.ahead.next = (uintptr_t)rows.first + ahead + LANES * offset; \
        rows.tiled = is_tiled; \
        unpack_##name(&s, rows, offset, n_blocks); \
    }
#define MM_ENTRY(name, ...) \
    void MM_NAME(name)(const struct mm_weight *w, const struct mm_row *row, int n_rows, bool accumulate, int64_t begin, \
                       int64_t end) \
    { \
        static const struct mm_format format = {__VA_ARGS__}; \
        if (n_rows <= MD) \
            mm_direct(format.direct[w->tiled], w, row, n_rows, accumulate, begin, end); \
        else \
            mm_panel(&format, w, row, n_rows, accumulate, begin, end); \
    }

/* The kernel mm_<name>_<isa> of a weight type, from unpack_<name>: values and bytes of a stored block. */
#define MM_QUANT_KERNEL(name, values, bytes, has_mins) \
    MM_LAYOUT(name, values, bytes, file, false) \
    MM_ENTRY(name, values, bytes, has_mins, {file_panel_##name}, {{file_##name##_1, file_##name##_2, file_##name##_4}})

/* The same of a type that has a tiled layout (kern/tile.h) where the tier has one. */
#if defined(V_TILES)
#define MM_TILED_QUANT_KERNEL(name, values, bytes, has_mins) \
    MM_LAYOUT(name, values, bytes, file, false) \
    MM_LAYOUT(name, values, bytes, tiled, true) \
    MM_ENTRY(name, values, bytes, has_mins, {file_panel_##name, tiled_panel_##name}, \
             {{file_##name##_1, file_##name##_2, file_##name##_4}, {tiled_##name##_1, tiled_##name##_2, tiled_##name##_4}})
#else
#define MM_TILED_QUANT_KERNEL MM_QUANT_KERNEL
#endif

#endif
