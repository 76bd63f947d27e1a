/* Matrix products of float weights (F32, F16, BF16) in LANES order: one template for all SIMD tiers. Included once by each
 * mm_float_<isa>.c after the tier's vocabulary (vec_<isa>.h).
 *
 * The sixteen accumulators of an output are 16 / LANES vectors. FW weight rows times up to FX input rows are computed
 * together, so that a load (and the widening of a weight) serves several products and the chains of fma overlap. All input
 * rows meet a strip of weight rows that stays in the second-level cache before the next strip is taken. The last
 * n % 16 values are done by scalar fma on the stored accumulators: adding a zero product instead could turn -0 into +0.
 */
#ifndef SKUA_KERN_CPU_MM_FLOAT_H
#define SKUA_KERN_CPU_MM_FLOAT_H

#include <math.h>
#include <string.h>

#include "kern/cpu/mm_types.h"
#include "quant/half.h"

#define PARTS (16 / LANES)
#define STRIP_BYTES ((size_t)256 << 10)

static INLINE vf load_widened(uint32_t type, const uint8_t *w, int i)
{
    if (type == QTYPE_F32)
        return vf_load((const float *)(const void *)(w + 4 * (size_t)i));
    return type == QTYPE_F16 ? vf_load_f16(w + 2 * (size_t)i) : vf_load_bf16(w + 2 * (size_t)i);
}

static INLINE float widened(uint32_t type, const uint8_t *w, int i)
{
    if (type == QTYPE_F32) {
        float f;
        memcpy(&f, w + 4 * (size_t)i, sizeof f);
        return f;
    }
    uint16_t h;
    memcpy(&h, w + 2 * (size_t)i, sizeof h);
    return type == QTYPE_F16 ? f16_to_f32(h) : bf16_to_f32(h);
}

static INLINE void tail16(uint32_t type, vf acc[PARTS], const uint8_t *w, const float *x, int n)
{
    float lane[16];
    for (int p = 0; p < PARTS; p++)
        vf_store(lane + p * LANES, acc[p]);
    for (int i = n / 16 * 16; i < n; i++)
        lane[i % 16] = fmaf(widened(type, w, i), x[i], lane[i % 16]);
    for (int p = 0; p < PARTS; p++)
        acc[p] = vf_load(lane + p * LANES);
}

/* Outputs y[r][o .. o + n_cols) of R input rows, times scale. The next tile is prefetched from the address `next` on, unless `fresh` is
   false: these weights were read before. */
static INLINE void float_tile(uint32_t type, const uint8_t *const wrow[FW], bool fresh, uintptr_t next, const struct mm_row *row,
                              int n, float scale, int64_t o, int n_cols, bool accumulate, int R)
{
    const size_t width = type == QTYPE_F32 ? 4 : 2;
    vf acc[FX][FW][PARTS];
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
        for (int c = 0; c < FW; c++)
            UNROLL
            for (int p = 0; p < PARTS; p++)
                acc[r][c][p] = vf_zero();
    for (int i = 0; i + 16 <= n; i += 16) {
        vf w[FW][PARTS];
        if (fresh)
            for (size_t line = 0; line < 16 * FW * width; line += 64)
                __builtin_prefetch((const void *)(next + FW * width * (size_t)i + line), 0, 2);
        UNROLL
        for (int c = 0; c < FW; c++)
            UNROLL
            for (int p = 0; p < PARTS; p++)
                w[c][p] = load_widened(type, wrow[c], i + p * LANES);
        UNROLL
        for (int r = 0; r < R; r++)
            UNROLL
            for (int p = 0; p < PARTS; p++) {
                vf x = vf_load(row[r].x + i + p * LANES);
                UNROLL
                for (int c = 0; c < FW; c++)
                    acc[r][c][p] = vf_fma(w[c][p], x, acc[r][c][p]);
            }
    }
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
        for (int c = 0; c < FW; c++) {
            if (n % 16)
                tail16(type, acc[r][c], wrow[c], row[r].x, n);
            float v = vf_reduce16(acc[r][c]) * scale;
            if (c < n_cols)
                row[r].y[o + c] = accumulate ? row[r].y[o + c] + v : v;
        }
}

/* Outputs [begin, end) of R input rows. */
static INLINE void float_columns(uint32_t type, const struct mm_weight *w, bool fresh, const struct mm_row *row, bool accumulate,
                                 int64_t begin, int64_t end, int R)
{
    for (int64_t o = begin; o < end; o += FW) {
        int n_cols = end - o < FW ? (int)(end - o) : FW;
        const uint8_t *wrow[FW];
        for (int i = 0; i < FW; i++)
            wrow[i] = w->data + (size_t)(o + (i < n_cols ? i : n_cols - 1)) * w->row_bytes;
        uintptr_t next = (uintptr_t)wrow[0] + (o + FW < end ? FW * w->row_bytes : 0);
        float_tile(type, wrow, fresh, next, row, w->n_in, w->scale, o, n_cols, accumulate, R);
    }
}

static INLINE void mm_float(uint32_t type, const struct mm_weight *w, const struct mm_row *row, int n_rows, bool accumulate,
                            int64_t begin, int64_t end)
{
    int64_t strip = (int64_t)(STRIP_BYTES / w->row_bytes) / FW * FW;
    strip = strip > FW ? strip : FW;
    for (int64_t o = begin; o < end; o += strip) {
        int64_t last = o + strip < end ? o + strip : end;
        int first = (n_rows - 1) % FX + 1; /* rows that bring the strip from memory */
        if (first == 1)
            float_columns(type, w, true, row, accumulate, o, last, 1);
        else if (first == 2 && FX > 2)
            float_columns(type, w, true, row, accumulate, o, last, 2);
        else if (first == 3 && FX > 2)
            float_columns(type, w, true, row, accumulate, o, last, FX > 2 ? 3 : 1);
        else
            float_columns(type, w, true, row, accumulate, o, last, FX);
        for (int r = first; r < n_rows; r += FX)
            float_columns(type, w, false, row + r, accumulate, o, last, FX);
    }
}

#define X(TYPE, name) \
    void MM_NAME(name)(const struct mm_weight *w, const struct mm_row *row, int n_rows, bool accumulate, int64_t begin, \
                       int64_t end) \
    { \
        mm_float(QTYPE_##TYPE, w, row, n_rows, accumulate, begin, end); \
    }
MM_FLOAT_TYPES(X)
#undef X

#endif
