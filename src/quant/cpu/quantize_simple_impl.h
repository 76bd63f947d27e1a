/* The types of 32 and 64 elements a block (but IQ4_NL), sixteen blocks at a time. Included once by quantize_simple_<isa>.c,
   behind lanes_<isa>.h. The same in plain C: quant/quantize_simple.c, quantize_fp4.c, quantize_affine.c. */
#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/cpu/fit_impl.h"
#include "quant/cpu/group_impl.h"
#include "quant/cpu/quant_tiers.h"
#include "quant/half.h"
#include "quant/pack.h"

/* Up to sixteen blocks. */
struct group {
    int count;
    vf x[QK64], w[QK32];
    float scale[LANES], min[LANES]; /* unrounded */
    uint8_t lanes[QK64][LANES];     /* codes by element ... */
    uint8_t codes[LANES * QK64];    /* ... and by block */
};

static INLINE int blocks_at(int64_t i, int64_t blocks)
{
    return blocks - i < LANES ? (int)(blocks - i) : LANES;
}

/* Blocks i, i + 1, ... of a row with `blocks` of them, each `size` long. */
static void group_load(struct group *g, int size, const float *x, int64_t i, int64_t blocks)
{
    g->count = blocks_at(i, blocks);
    lanes_gather(x + i * size, size, g->count, g->x);
}

static void group_weights(struct group *g, const float *imp, int64_t i, float sigma2)
{
    lanes_gather(imp + i * QK32, QK32, g->count, g->w);
    lanes_weights(QK32, g->x, vf_set(sigma2), g->w);
}

static void group_scatter(struct group *g, int size)
{
    lanes_scatter((const uint8_t(*)[LANES])g->lanes, size, g->count, g->codes);
}

/* ---- 32 elements ---- */

static float row_sigma2(const float *x, int64_t blocks, const float *imp)
{
    return imp ? fit_sum_squares(blocks * QK32, x) / (float)(blocks * QK32) : 0.0f;
}

/* Q4_0 (8 levels) and Q5_0 (16): codes 0 .. 2 * levels - 1 and the scale. */
static void symmetric_group(struct group *g, bool weighted, int levels)
{
    vf codes[QK32], d;
    if (weighted) {
        d = lanes_symmetric(QK32, levels, g->x, g->w, codes);
    } else {
        d = vf_div(lanes_signed_max(QK32, g->x), vf_set(-(float)levels));
        vf id = lanes_inverse(d);
        for (int j = 0; j < QK32; j++)
            codes[j] = lanes_trunc_clamped(vf_add(vf_mul(g->x[j], id), vf_set((float)levels + 0.5f)), 0, 2 * levels - 1);
    }
    vf_store(g->scale, d);
    lanes_bytes(QK32, codes, g->lanes);
    group_scatter(g, QK32);
}

/* Q4_1 (top 15) and Q5_1 (31): codes 0 .. top, scale and offset. */
static void affine_group(struct group *g, bool weighted, int top)
{
    vf codes[QK32], d, low;
    if (weighted) {
        d = lanes_affine(QK32, top, g->x, g->w, &fit_weighted_search, codes, &low);
        low = vf_neg(low);
    } else {
        low = lanes_min(QK32, g->x, g->x[0]);
        vf high = lanes_max(QK32, g->x, g->x[0]);
        d = vf_div(vf_sub(high, low), vf_set((float)top));
        vf id = lanes_inverse(d);
        for (int j = 0; j < QK32; j++)
            codes[j] = lanes_trunc_clamped(vf_add(vf_mul(vf_sub(g->x[j], low), id), vf_set(0.5f)), 0, top);
    }
    vf_store(g->scale, d);
    vf_store(g->min, low);
    lanes_bytes(QK32, codes, g->lanes);
    group_scatter(g, QK32);
}

/* A row of the types of 4 or 5 bits, with an offset or without; store writes block k of the group to `block`. */
static INLINE void quantize_row(const float *x, void *out, size_t block_bytes, int64_t blocks, const float *imp, int bits, bool offset,
                                void (*store)(const struct group *g, int k, void *block))
{
    const float sigma2 = row_sigma2(x, blocks, imp);
    char *to = out;
    struct group g;
    for (int64_t i = 0; i < blocks; i += LANES) {
        group_load(&g, QK32, x, i, blocks);
        if (imp)
            group_weights(&g, imp, i, sigma2);
        if (offset)
            affine_group(&g, imp, (1 << bits) - 1);
        else
            symmetric_group(&g, imp, 1 << (bits - 1));
        for (int k = 0; k < g.count; k++, to += block_bytes)
            store(&g, k, to);
    }
}

static void store_q4_0(const struct group *g, int k, void *block)
{
    struct block_q4_0 *b = block;
    b->d = f32_to_f16(g->scale[k]);
    pack_nibbles(g->codes + k * QK32, b->qs);
}

static void store_q5_0(const struct group *g, int k, void *block)
{
    struct block_q5_0 *b = block;
    b->d = f32_to_f16(g->scale[k]);
    b->qh = pack_fifth_bits(g->codes + k * QK32);
    pack_nibbles(g->codes + k * QK32, b->qs);
}

static void store_q4_1(const struct group *g, int k, void *block)
{
    struct block_q4_1 *b = block;
    b->d = f32_to_f16(g->scale[k]);
    b->m = f32_to_f16(g->min[k]);
    pack_nibbles(g->codes + k * QK32, b->qs);
}

static void store_q5_1(const struct group *g, int k, void *block)
{
    struct block_q5_1 *b = block;
    b->d = f32_to_f16(g->scale[k]);
    b->m = f32_to_f16(g->min[k]);
    b->qh = pack_fifth_bits(g->codes + k * QK32);
    pack_nibbles(g->codes + k * QK32, b->qs);
}

void LANES_OP(quantize_q4_0)(const float *x, void *out, int64_t blocks, const float *imp)
{
    quantize_row(x, out, sizeof(struct block_q4_0), blocks, imp, 4, false, store_q4_0);
}

void LANES_OP(quantize_q5_0)(const float *x, void *out, int64_t blocks, const float *imp)
{
    quantize_row(x, out, sizeof(struct block_q5_0), blocks, imp, 5, false, store_q5_0);
}

void LANES_OP(quantize_q4_1)(const float *x, void *out, int64_t blocks, const float *imp)
{
    quantize_row(x, out, sizeof(struct block_q4_1), blocks, imp, 4, true, store_q4_1);
}

void LANES_OP(quantize_q5_1)(const float *x, void *out, int64_t blocks, const float *imp)
{
    quantize_row(x, out, sizeof(struct block_q5_1), blocks, imp, 5, true, store_q5_1);
}

static INLINE vf lanes_abs_max(int n, const vf *x)
{
    vf max = vf_zero();
    for (int i = 0; i < n; i++)
        max = vf_max(vf_abs(x[i]), max);
    return max;
}

void LANES_OP(quantize_q8_0)(const float *x, void *out, int64_t blocks, const float *imp)
{
    (void)imp;
    struct block_q8_0 *b = out;
    struct group g;
    for (int64_t i = 0; i < blocks; i += LANES) {
        group_load(&g, QK32, x, i, blocks);
        vf d = vf_div(lanes_abs_max(QK32, g.x), vf_set(127.0f)), id = lanes_inverse(d);
        vf_store(g.scale, d);
        for (int j = 0; j < QK32; j++) {
            vi q = vf_trunc(lanes_haz_clamped(vf_mul(g.x[j], id), -127, 127));
            vi_store_u8(g.lanes[j], vi_and(q, vi_set(255)));
        }
        group_scatter(&g, QK32);
        for (int k = 0; k < g.count; k++, b++) {
            b->d = f32_to_f16(g.scale[k]);
            memcpy(b->qs, g.codes + k * QK32, QK32);
        }
    }
}

/* ---- FP4 ---- */

/* Codes of n elements a lane at the scales d. Code 8, minus zero, has the value of code 0 and so never the smaller error. */
static void fp4_codes(struct group *g, int n, vf d)
{
    vf values[16];
    for (int c = 0; c < 16; c++)
        values[c] = vf_mul(vf_set((float)fp4_values[c]), d);
    for (int j = 0; j < n; j++) {
        vf best = vf_zero(), best_error = vf_abs(vf_sub(values[0], g->x[j]));
        for (int c = 1; c < 16; c++) {
            vf error = vf_abs(vf_sub(values[c], g->x[j]));
            best = vf_select(vf_lt(error, best_error), vf_set((float)c), best);
            best_error = vf_min(error, best_error);
        }
        vi_store_u8(g->lanes[j], vf_trunc(best));
    }
    group_scatter(g, n);
}

void LANES_OP(quantize_mxfp4)(const float *x, void *out, int64_t blocks, const float *imp)
{
    (void)imp;
    struct block_mxfp4 *b = out;
    struct group g;
    for (int64_t i = 0; i < blocks; i += LANES) {
        uint8_t e[LANES];
        group_load(&g, QK32, x, i, blocks);
        vi exponent = vi_sub(vi_srl(vf_bits(lanes_abs_max(QK32, g.x)), 23), vi_set(2));
        vi_store_u8(e, vi_max(exponent, vi_set(0)));
        for (int k = 0; k < LANES; k++)
            g.scale[k] = e8m0_half_to_f32(e[k]);
        fp4_codes(&g, QK32, vf_load(g.scale));
        for (int k = 0; k < g.count; k++, b++) {
            b->e = e[k];
            pack_nibbles(g.codes + k * QK32, b->qs);
        }
    }
}

void LANES_OP(quantize_nvfp4)(const float *x, void *out, int64_t blocks, const float *imp)
{
    (void)imp;
    struct block_nvfp4 *b = out;
    struct group g;
    for (int64_t i = 0; i < 4 * blocks; i += LANES) { /* four groups of sixteen a block */
        group_load(&g, 16, x, i, 4 * blocks);
        vf_store(g.scale, vf_div(lanes_abs_max(16, g.x), vf_set(6.0f)));
        uint8_t s[LANES];
        for (int k = 0; k < LANES; k++) {
            s[k] = f32_to_ue4m3(g.scale[k]);
            g.scale[k] = ue4m3_half_to_f32(s[k]);
        }
        fp4_codes(&g, 16, vf_load(g.scale));
        for (int k = 0; k < g.count; k++) {
            struct block_nvfp4 *to = b + (i + k) / 4;
            const uint8_t *codes = g.codes + 16 * k;
            to->s[k % 4] = s[k];
            for (int j = 0; j < 8; j++)
                to->qs[8 * (k % 4) + j] = (uint8_t)(codes[j] | codes[j + 8] << 4);
        }
    }
}

/* ---- affine blocks of 64 ---- */

/* Codes 0..top; scale and offset become what the block stores, truncated to bf16. */
static void affine_64_group(struct group *g, int top, uint16_t *scale, uint16_t *bias)
{
    vf low = lanes_min(QK64, g->x, g->x[0]), high = lanes_max(QK64, g->x, g->x[0]);
    vf d = vf_div(vf_sub(high, low), vf_set((float)top));
    vf_store(g->scale, vf_select(vf_eq(high, low), vf_zero(), d));
    vf_store(g->min, low);
    for (int k = 0; k < LANES; k++) {
        scale[k] = f32_to_bf16_trunc(g->scale[k]);
        bias[k] = f32_to_bf16_trunc(g->min[k]);
        g->scale[k] = bf16_to_f32(scale[k]);
        g->min[k] = bf16_to_f32(bias[k]);
    }
    vf s = vf_load(g->scale), b = vf_load(g->min);
    vm flat = vf_eq(s, vf_zero());
    for (int j = 0; j < QK64; j++) {
        vf code = lanes_haz_clamped(vf_div(vf_sub(g->x[j], b), s), 0, top);
        vi_store_u8(g->lanes[j], vf_trunc(vf_select(flat, vf_zero(), code)));
    }
    group_scatter(g, QK64);
}

void LANES_OP(quantize_q4_64a)(const float *x, void *out, int64_t blocks, const float *imp)
{
    (void)imp;
    struct block_q4_64a *b = out;
    struct group g;
    for (int64_t i = 0; i < blocks; i += LANES) {
        uint16_t scale[LANES], bias[LANES];
        group_load(&g, QK64, x, i, blocks);
        affine_64_group(&g, 15, scale, bias);
        for (int k = 0; k < g.count; k++)
            pack_q4_64a(scale[k], bias[k], g.codes + k * QK64, b + i + k);
    }
}

void LANES_OP(quantize_q2_64a)(const float *x, void *out, int64_t blocks, const float *imp)
{
    (void)imp;
    struct block_q2_64a *b = out;
    struct group g;
    for (int64_t i = 0; i < blocks; i += LANES) {
        uint16_t scale[LANES], bias[LANES];
        group_load(&g, QK64, x, i, blocks);
        affine_64_group(&g, 3, scale, bias);
        for (int k = 0; k < g.count; k++)
            pack_q2_64a(scale[k], bias[k], g.codes + k * QK64, b + i + k);
    }
}
