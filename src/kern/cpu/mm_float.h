/* Matrix products of float weights (F32, F16, BF16) in LANES order: one template for all SIMD tiers. Included once by each
 * matmul_<isa>.c after the tier's vocabulary (vec_<isa>.h).
 *
 * The sixteen accumulators of an output are 16 / LANES vectors. FW weight rows times up to FX input rows are computed
 * together, so that a load (and the widening of a weight) serves several products and the chains of fma overlap. The last
 * n % 16 values are done by scalar fma on the stored accumulators: adding a zero product instead could turn -0 into +0.
 */
#ifndef SKUA_KERN_CPU_MM_FLOAT_H
#define SKUA_KERN_CPU_MM_FLOAT_H

#include <math.h>
#include <string.h>

#include "kern/mm.h"
#include "quant/half.h"
#include "quant/type.h"

#define PARTS (16 / LANES)

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

/* Outputs y[r][o .. o + n_cols) of R input rows. */
static INLINE void float_tile(uint32_t type, const uint8_t *const wrow[FW], const struct mm_row *row, int n, int64_t o,
                              int n_cols, bool accumulate, int R)
{
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
            float v = vf_reduce16(acc[r][c]);
            if (c < n_cols)
                row[r].y[o + c] = accumulate ? row[r].y[o + c] + v : v;
        }
}

static INLINE void mm_float(uint32_t type, const struct mm_weight *w, const struct mm_row *row, int n_rows, bool accumulate,
                            int64_t begin, int64_t end)
{
    for (int64_t o = begin; o < end; o += FW) {
        int n_cols = end - o < FW ? (int)(end - o) : FW;
        const uint8_t *wrow[FW];
        for (int i = 0; i < FW; i++)
            wrow[i] = w->data + (size_t)(o + (i < n_cols ? i : n_cols - 1)) * w->row_bytes;
        int r = 0;
        for (; r + FX <= n_rows; r += FX)
            float_tile(type, wrow, row + r, w->n_in, o, n_cols, accumulate, FX);
        if (FX > 3 && n_rows - r == 3)
            float_tile(type, wrow, row + r, w->n_in, o, n_cols, accumulate, 3);
        else if (FX > 2 && n_rows - r == 2)
            float_tile(type, wrow, row + r, w->n_in, o, n_cols, accumulate, 2);
        else if (FX > 1 && n_rows - r == 1)
            float_tile(type, wrow, row + r, w->n_in, o, n_cols, accumulate, 1);
    }
}

#define MM_FLOAT_KERNEL(name, type) \
    static void mm_##name(const struct mm_weight *w, const struct mm_row *row, int n_rows, bool accumulate, int64_t begin, \
                          int64_t end) \
    { \
        mm_float(type, w, row, n_rows, accumulate, begin, end); \
    }

MM_FLOAT_KERNEL(f32, QTYPE_F32)
MM_FLOAT_KERNEL(f16, QTYPE_F16)
MM_FLOAT_KERNEL(bf16, QTYPE_BF16)

#endif
