/* Matrix products of quantised weights with 8-bit activations: one template for all SIMD tiers, for formats of 256-value blocks whose
 * sub-blocks ("parts") of PART = 16 or 32 values have integer scales. Included once by each file of kernels (mm_k4.h), after the
 * tier's vector vocabulary (vec_<isa>.h). A new weight format needs one unpack function and one line.
 *
 * The plan is that of mm_quant.h: a tile is NR = NV * LANES rows of weights, one 32-bit lane each, so that no horizontal sums exist.
 * Here a lane takes four codes at a time, a byte each, and four activations are broadcast against them. Scales cannot be multiplied
 * into bytes; they are applied to the integer sum of a part. With many input rows the codes of 256 values of every weight row are
 * first written to a panel in the first-level cache; few input rows are multiplied as the codes are unpacked.
 *
 * Every lane performs exactly the operations of kern/ref/scalar_dot_*.c; integer sums are exact in any order.
 *
 * From the tier: NV, LANES, vi, vf, v_*, vf_*, dot_acc (16-bit pairs) and dot4_acc (bytes) with their dot_zero, dot_add, dot_sum.
 */
#ifndef SKUA_KERN_CPU_MM_BYTE_H
#define SKUA_KERN_CPU_MM_BYTE_H

#include "kern/cpu/mm_tile.h"

#define NR (NV * LANES)
#define MD 8 /* most input rows that are multiplied directly */
#define MR 4 /* with a panel */
#define N_PARTS (256 / PART)

struct panel {
    _Alignas(64) uint8_t w[64][NV][4 * LANES]; /* codes 4t to 4t + 3 of every row */
    int32_t scale[N_PARTS][NV][LANES];
    int32_t min[4][NV][LANES]; /* the minima that go with bsum[2j] and bsum[2j + 1], in the halves of a lane */
    float d[NV][LANES], dmin[NV][LANES];
};

/* Input rows at equal distances: every part of row r is r * stride bytes behind that of row 0. */
struct inputs {
    const int8_t *q; /* of the current block, as the others */
    const int16_t *bsum;
    const float *d;
    ptrdiff_t stride, stride3; /* bytes; stride3 = 3 * stride, so that four rows are addressed with three registers */
};

static INLINE const void *input_at(const struct inputs *x, const void *first, int r)
{
    const char *p = (const char *)first + (r >= 4 ? 4 * x->stride : 0);
    return r % 4 == 3 ? p + x->stride3 : p + r % 4 * x->stride;
}

struct sink {
    int n_direct; /* input rows to multiply with at once; 0: store to the panel. Known at compile time */
    struct panel *panel;
    int v;
    struct inputs x;
    dot4_acc part[MD][2]; /* of the current part; with few input rows one accumulator alone would wait for its own latency */
    dot_acc min[MD];
    vi sum[MD];
    vf d, dmin;
    vf f[MD]; /* the outputs so far */
    struct ahead ahead;
};

/* Unpacks the block at `offset` of LANES rows. */
typedef void unpack_fn(struct sink *s, struct tile_rows row, size_t offset);

/* Codes 4t to 4t + 3 of the rows of group v. */
static INLINE void store_codes(struct panel *p, int t, int v, vi codes)
{
#if defined(V_ROWS_IN_PAIRS)
    if (t % 2 == 1) { /* the eight codes of a row side by side: rows 0 and 1 in the first vector, 2 and 3 in the second */
        vi pair[2] = {v_load(p->w[t - 1][v]), codes};
        pair_up(pair);
        v_store(p->w[t - 1][v], pair[0]);
        codes = pair[1];
    }
#endif
    v_store(p->w[t][v], codes);
}

/* Codes 4t to 4t + 3 of the block, at most 127. Parts are put one after the other. */
static INLINE void put_quad(struct sink *s, int t, vi codes)
{
    const int k = s->n_direct <= 2 ? t & 1 : 0;
    UNROLL
    for (int r = 0; r < MD; r++)
        if (r < s->n_direct)
            s->part[r][k] = dot4_add(s->part[r][k], codes, broadcast32((const int8_t *)input_at(&s->x, s->x.q, r) + 4 * t));
    if (s->n_direct == 0)
        store_codes(s->panel, t, s->v, codes);
}

/* Part j is complete. */
static INLINE void end_part(struct sink *s, int j, vi scale)
{
    if (s->n_direct == 0)
        v_store(s->panel->scale[j][s->v], scale);
    UNROLL
    for (int r = 0; r < MD; r++)
        if (r < s->n_direct) {
            vi part = dot4_sum(s->part[r][0]);
            if (s->n_direct <= 2)
                part = v_add(part, dot4_sum(s->part[r][1]));
            s->sum[r] = v_add(s->sum[r], v_mul(part, scale));
            s->part[r][0] = s->part[r][1] = dot4_zero();
        }
}

/* The minima that bsum[2j] and bsum[2j + 1] are multiplied with, in the halves of a lane. */
static INLINE void put_min(struct sink *s, int j, vi min)
{
    if (s->n_direct == 0)
        v_store(s->panel->min[j][s->v], min);
    UNROLL
    for (int r = 0; r < MD; r++)
        if (r < s->n_direct)
            s->min[r] = dot_add(s->min[r], min, broadcast32((const int16_t *)input_at(&s->x, s->x.bsum, r) + 2 * j));
}

static INLINE void put_d(struct sink *s, vf d, vf dmin)
{
    s->d = d;
    s->dmin = dmin;
    if (s->n_direct == 0) {
        vf_store(s->panel->d[s->v], d);
        vf_store(s->panel->dmin[s->v], dmin);
    }
}

/* ---- input rows and the panel of values `at` to `at` + 255 ---- */

/* The integer sums of part j for R input rows. */
#if defined(V_ROWS_IN_PAIRS)
static INLINE void multiply_part(const struct panel *p, int j, const int8_t *const q[MR], vi part[MR][NV], int R)
{
    pair_acc acc[MR / 2][NV];
    UNROLL
    for (int r = 0; r < R; r += 2)
        UNROLL
        for (int v = 0; v < NV; v++)
            acc[r / 2][v] = pair_zero();
    UNROLL
    for (int i = 0; i < PART / 4; i += 2)
        UNROLL
        for (int r = 0; r < R; r += 2)
            UNROLL
            for (int v = 0; v < NV; v++)
                acc[r / 2][v] = pair_add(acc[r / 2][v], p->w[PART / 4 * j + i][v], p->w[PART / 4 * j + i + 1][v],
                                         q[r] + PART * j + 4 * i, q[r + 1 < R ? r + 1 : r] + PART * j + 4 * i);
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
        for (int v = 0; v < NV; v++)
            part[r][v] = pair_sum(acc[r / 2][v], r % 2);
}
#else
static INLINE void multiply_part(const struct panel *p, int j, const int8_t *const q[MR], vi part[MR][NV], int R)
{
    dot4_acc acc[MR][NV];
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
        for (int v = 0; v < NV; v++)
            acc[r][v] = dot4_zero();
    UNROLL
    for (int i = 0; i < PART / 4; i++)
        UNROLL
        for (int r = 0; r < R; r++) {
            vi x = broadcast32(q[r] + PART * j + 4 * i);
            UNROLL
            for (int v = 0; v < NV; v++)
                acc[r][v] = dot4_add(acc[r][v], v_load(p->w[PART / 4 * j + i][v]), x);
        }
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
        for (int v = 0; v < NV; v++)
            part[r][v] = dot4_sum(acc[r][v]);
}
#endif

static INLINE void multiply(const struct panel *p, const struct mm_row *row, int at, float acc[][NR], int R)
{
    vi sum[MR][NV];
    const int8_t *q[MR];
    UNROLL
    for (int r = 0; r < R; r++) {
        q[r] = row[r].q.q8 + at;
        UNROLL
        for (int v = 0; v < NV; v++)
            sum[r][v] = v_zero();
    }
    ROLLED
    for (int j = 0; j < N_PARTS; j++) {
        vi part[MR][NV];
        multiply_part(p, j, q, part, R);
        UNROLL
        for (int r = 0; r < R; r++)
            UNROLL
            for (int v = 0; v < NV; v++)
                sum[r][v] = v_add(sum[r][v], v_mul(part[r][v], v_load(p->scale[j][v])));
    }
    dot_acc min[MR][NV];
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
        for (int v = 0; v < NV; v++)
            min[r][v] = dot_zero();
    UNROLL
    for (int j = 0; j < 4; j++)
        UNROLL
        for (int r = 0; r < R; r++) {
            vi b = broadcast32(row[r].q.bsum + at / 32 + 2 * j);
            UNROLL
            for (int v = 0; v < NV; v++)
                min[r][v] = dot_add(min[r][v], v_load(p->min[j][v]), b);
        }
    UNROLL
    for (int r = 0; r < R; r++) {
        vf dx = vf_set(row[r].q.d[at / 256]);
        UNROLL
        for (int v = 0; v < NV; v++) {
            float *f = acc[r] + v * LANES;
            vf y = vf_fma(vf_mul(vf_load(p->d[v]), dx), vf_from_int(sum[r][v]), vf_load(f));
            vf_store(f, vf_fnma(vf_mul(vf_load(p->dmin[v]), dx), vf_from_int(dot_sum(min[r][v])), y));
        }
    }
}

#define MULTIPLY(R) \
    static NOINLINE void multiply_##R(const struct panel *p, const struct mm_row *row, int at, float acc[][NR]) \
    { \
        multiply(p, row, at, acc, R); \
    }
MULTIPLY(1)
MULTIPLY(2)
MULTIPLY(4)

static void multiply_all(const struct panel *p, const struct mm_row *row, int n_rows, int at, float acc[][NR])
{
    int r = 0;
    for (; r + 4 <= n_rows; r += 4)
        multiply_4(p, row + r, at, acc + r);
    if (r + 2 <= n_rows) {
        multiply_2(p, row + r, at, acc + r);
        r += 2;
    }
    if (r < n_rows)
        multiply_1(p, row + r, at, acc + r);
}

/* ---- the kernels ---- */

/* One tile of LANES weight rows by R input rows; f takes the results. The next tile is `ahead` bytes further. */
typedef void direct_fn(struct tile_rows rows, size_t ahead, int n_in, struct inputs x, float f[MD][LANES]);

typedef void panel_fn(struct panel *p, int v, struct tile_rows rows, size_t ahead, size_t offset);

/* The code that is made for each weight type. */
struct mm_format {
    size_t block_bytes;
    panel_fn *unpack[2];          /* of rows as the file has them, and of tiles */
    direct_fn *direct[2][MD + 1]; /* likewise; by input rows */
};

static INLINE void multiply_direct(size_t block_bytes, unpack_fn *unpack, struct tile_rows rows, size_t ahead, int n_in,
                                   struct inputs x, float out[MD][LANES], int R)
{
    vf f[MD];
    UNROLL
    for (int r = 0; r < R; r++)
        f[r] = vf_zero();
    size_t offset = 0;
    ROLLED
    for (int at = 0; at < n_in; at += 256, offset += block_bytes) {
        struct sink s; /* member by member: an initialiser would clear all of it in memory, block after block */
        s.n_direct = R;
        s.x = x;
        s.ahead.next = (uintptr_t)rows.first + ahead + LANES * offset;
        s.x.q += at;
        s.x.bsum += at / 32;
        UNROLL
        for (int r = 0; r < R; r++) {
            s.part[r][0] = s.part[r][1] = dot4_zero();
            s.min[r] = dot_zero();
            s.sum[r] = v_zero();
        }
        unpack(&s, rows, offset);
        UNROLL
        for (int r = 0; r < R; r++) {
            vf dx = vf_set(((const float *)input_at(&s.x, s.x.d, r))[at / 256]);
            f[r] = vf_fma(vf_mul(s.d, dx), vf_from_int(s.sum[r]), f[r]);
            f[r] = vf_fnma(vf_mul(s.dmin, dx), vf_from_int(dot_sum(s.min[r])), f[r]);
        }
    }
    UNROLL
    for (int r = 0; r < R; r++)
        vf_store(out[r], f[r]);
}

/* How many of the next n input rows are at equal distances, and will be multiplied together: 1, 2, 3, 4, 6 or 8. */
static int next_inputs(const struct mm_row *row, int n, struct inputs *x)
{
    static const int size[MD + 1] = {0, 1, 2, 3, 4, 4, 6, 6, 8};
    ptrdiff_t stride = n > 1 ? row[1].q.q8 - row[0].q.q8 : 0;
    int equal = n < 2 ? n : 2;
    while (equal < n && equal < MD && row[equal].q.q8 - row[equal - 1].q.q8 == stride)
        equal++;
    *x = (struct inputs){row->q.q8, row->q.bsum, row->q.d, stride, 3 * stride};
    return size[equal];
}

/* All input rows meet a tile of weights before the next. */
static void mm_direct(direct_fn *const direct[MD + 1], const struct mm_weight *w, const struct mm_row *row, int n_rows, bool accumulate,
                      int64_t begin, int64_t end)
{
    int skip, n;
    for (int64_t o = begin; o < end; o += n) {
        struct tile_rows rows = tile_at(w, o, end, LANES, &skip, &n);
        for (int first = 0, count; first < n_rows; first += count) {
            float f[MD][LANES];
            struct inputs x;
            count = next_inputs(row + first, n_rows - first, &x);
            direct[count](rows, to_next_tile(w, o + n, end, n), w->n_in, x, f);
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
        for (int at = 0; at < w->n_in; at += 256) {
            for (int v = 0; v < NV; v++) {
                struct tile_rows rows = {tile.first + (size_t)(v * LANES) * tile.stride, tile.stride, tile.tiled};
                format->unpack[tile.tiled](&p, v, rows, ahead, (size_t)at / 256 * format->block_bytes);
            }
            multiply_all(&p, row, n_rows, at, acc);
        }
        for (int r = 0; r < n_rows; r++)
            put_outputs(row[r].y + o, acc[r] + skip, n, w->scale, accumulate);
    }
}

/* The kernel mm_<name>_<isa> of a weight type, from unpack_<name>. */
#define MM_DIRECT(name, R, bytes, prefix, is_tiled) \
    static NOINLINE void prefix##_##name##_##R(struct tile_rows rows, size_t ahead, int n_in, struct inputs x, float f[MD][LANES]) \
    { \
        rows.tiled = is_tiled; \
        multiply_direct(bytes, unpack_##name, rows, ahead, n_in, x, f, R); \
    }
#define MM_LAYOUT(name, bytes, prefix, is_tiled) \
    MM_DIRECT(name, 1, bytes, prefix, is_tiled) \
    MM_DIRECT(name, 2, bytes, prefix, is_tiled) \
    MM_DIRECT(name, 3, bytes, prefix, is_tiled) \
    MM_DIRECT(name, 4, bytes, prefix, is_tiled) \
    MM_DIRECT(name, 6, bytes, prefix, is_tiled) \
    MM_DIRECT(name, 8, bytes, prefix, is_tiled) \
    static NOINLINE void prefix##_panel_##name(struct panel *p, int v, struct tile_rows rows, size_t ahead, size_t offset) \
    { \
        struct sink s; \
        s.n_direct = 0; \
        s.panel = p; \
        s.v = v; \
        s.ahead.next = (uintptr_t)rows.first + ahead + LANES * offset; \
        rows.tiled = is_tiled; \
        unpack_##name(&s, rows, offset); \
    }
#define MM_DIRECTS(name, prefix) \
    {[1] = prefix##_##name##_1, [2] = prefix##_##name##_2, [3] = prefix##_##name##_3, \
     [4] = prefix##_##name##_4, [6] = prefix##_##name##_6, [8] = prefix##_##name##_8}
#if defined(V_TILES)
#define MM_LAYOUTS(name, bytes) MM_LAYOUT(name, bytes, file, false) MM_LAYOUT(name, bytes, tiled, true)
#define MM_FORMAT(name, bytes) {bytes, {file_panel_##name, tiled_panel_##name}, {MM_DIRECTS(name, file), MM_DIRECTS(name, tiled)}}
#else
#define MM_LAYOUTS(name, bytes) MM_LAYOUT(name, bytes, file, false)
#define MM_FORMAT(name, bytes) {bytes, {file_panel_##name}, {MM_DIRECTS(name, file)}}
#endif
#define MM_BYTE_KERNEL(name, bytes) \
    MM_LAYOUTS(name, bytes) \
    void MM_NAME(name)(const struct mm_weight *w, const struct mm_row *row, int n_rows, bool accumulate, int64_t begin, \
                       int64_t end) \
    { \
        static const struct mm_format format = MM_FORMAT(name, bytes); \
        if (n_rows <= MD) \
            mm_direct(format.direct[w->tiled], w, row, n_rows, accumulate, begin, end); \
        else \
            mm_panel(&format, w, row, n_rows, accumulate, begin, end); \
    }

#endif
