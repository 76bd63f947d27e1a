/* Q2_K .. Q6_K, sixteen sub-blocks at a time. Up to sixteen super-blocks are a batch: their sub-blocks are fitted in groups,
   then the scales of all of them, one super-block per lane. Included once by quantize_k_<isa>.c, behind lanes_<isa>.h. The same
   procedures in plain C: quant/quantize_k.c. */
#include "quant/codec.h"
#include "quant/cpu/fit_impl.h"
#include "quant/cpu/group_impl.h"
#include "quant/cpu/quant_tiers.h"
#include "quant/half.h"
#include "quant/superblock.h"

struct batch {
    int blocks, subs, size; /* super-blocks 1..16, sub-blocks of one and their elements */
    vf x[QK256];            /* sub-block s in lane s % 16, its element i in x[s / 16 * size + i] */
    uint8_t codes[QK256][LANES];
    float scales[QK256], minus[QK256], weight[QK256]; /* by sub-block; weight: sum of the weights in it */
};

static INLINE int batch_groups(const struct batch *b)
{
    return (b->blocks * b->subs + LANES - 1) / LANES;
}

/* Sub-blocks of group g. */
static INLINE int group_count(const struct batch *b, int g)
{
    int rest = b->blocks * b->subs - g * LANES;
    return rest < LANES ? rest : LANES;
}

/* Load group g; with importance also its weights, for which sigma2 holds a value per super-block. */
static void batch_load(struct batch *b, int g, const float *x, const float *imp, const float *sigma2, vf *w)
{
    const int at = g * LANES * b->size, count = group_count(b, g);
    vf *xs = b->x + g * b->size;
    lanes_gather(x + at, b->size, count, xs);
    if (!imp)
        return;
    lanes_gather(imp + at, b->size, count, w);
    if (!sigma2)
        return;
    float lanes[LANES];
    for (int k = 0; k < LANES; k++)
        lanes[k] = sigma2[(g * LANES + k) / b->subs % LANES];
    lanes_weights(b->size, xs, vf_load(lanes), w);
}

/* sigma2[i] = factor * sum x^2 / 256 of super-block i; zeros behind the last. */
static void batch_sigma(int blocks, const float *x, float factor, float *sigma2)
{
    float sums[LANES] = {0};
    for (int i = 0; i + 4 <= blocks; i += 4) { /* four chains of additions at a time */
        const float *p = x + i * QK256;
        float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
        for (int j = 0; j < QK256; j++) {
            a += p[j] * p[j];
            b += p[QK256 + j] * p[QK256 + j];
            c += p[2 * QK256 + j] * p[2 * QK256 + j];
            d += p[3 * QK256 + j] * p[3 * QK256 + j];
        }
        sums[i] = a;
        sums[i + 1] = b;
        sums[i + 2] = c;
        sums[i + 3] = d;
    }
    for (int i = blocks & ~3; i < blocks; i++)
        sums[i] = fit_sum_squares(QK256, x + i * QK256);
    for (int i = 0; i < LANES; i++)
        sigma2[i] = factor * sums[i] / (float)QK256;
}

/* Codes of one super-block in element order. */
static void batch_codes(const struct batch *b, int block, uint8_t *codes)
{
    for (int j = 0; j < b->subs; j++) {
        int s = block * b->subs + j;
        const uint8_t(*from)[LANES] = b->codes + s / LANES * b->size;
        for (int i = 0; i < b->size; i++)
            codes[j * b->size + i] = from[i][s % LANES];
    }
}

/* ---- affine types ---- */

static void affine_group(const struct affine_format *f, struct batch *b, int g, const float *x, const float *imp,
                         const float *sigma2)
{
    vf w[32], codes[32], minus, *xs = b->x + g * f->size;
    batch_load(b, g, x, imp, sigma2, w);
    if (!imp) {
        vf base = f->size == 32 ? vf_sqrt(vf_div(lanes_sum_squares(32, xs), vf_set(32.0f))) : vf_zero();
        for (int i = 0; i < f->size; i++)
            w[i] = vf_add(base, vf_abs(xs[i]));
    }
    vf_store(b->weight + g * LANES, lanes_sum(f->size, w));
    vf scales = lanes_affine(f->size, f->top, xs, w, imp ? &fit_weighted_search : &f->plain, codes, &minus);
    vf_store(b->scales + g * LANES, scales);
    vf_store(b->minus + g * LANES, minus);
    lanes_bytes(f->size, codes, b->codes + g * f->size);
}

/* Scales (or offsets) of all super-blocks to codes and factors. */
static void affine_scales(const struct affine_format *f, const struct batch *b, const float *scales, bool fit, uint8_t (*codes)[LANES],
                          float *factors)
{
    vf s[16], w[16], factor;
    lanes_gather(scales, f->subs, b->blocks, s);
    if (fit) {
        vi c[16];
        lanes_gather(b->weight, f->subs, b->blocks, w);
        factor = lanes_positive(f->subs, f->top_scale, s, w, c);
        for (int j = 0; j < f->subs; j++)
            vi_store_u8(codes[j], vi_min(c[j], vi_set(f->top_scale)));
    } else {
        vf top = vf_set((float)f->top_scale), max = lanes_max(f->subs, s, vf_zero());
        vm some = vf_gt(max, vf_zero());
        vf inv = vf_select(some, vf_div(top, max), vf_zero());
        factor = vf_select(some, vf_div(max, top), vf_zero());
        for (int j = 0; j < f->subs; j++)
            vi_store_u8(codes[j], vf_trunc(lanes_rne_clamped(vf_mul(inv, s[j]), 0, f->top_scale)));
    }
    vf_store(factors, factor);
}

/* Codes of group g again from the scales and offsets as they will be read back, by sub-block. */
static void affine_recode(const struct affine_format *f, struct batch *b, int g)
{
    vf scale = vf_load(b->scales + g * LANES), min = vf_load(b->minus + g * LANES);
    vm keep = vf_eq(scale, vf_zero());
    for (int i = g * f->size; i < (g + 1) * f->size; i++) {
        vf c = lanes_rne_clamped(vf_div(vf_add(b->x[i], min), scale), 0, f->top);
        vi_store_u8(b->codes[i], vi_select(keep, vi_load_u8(b->codes[i]), vf_trunc(c)));
    }
}

static void affine_batch(const struct affine_format *f, struct batch *b, const float *x, const float *imp, struct affine_codes *r)
{
    float sigma2[LANES], d[LANES], dmin[LANES];
    uint8_t sc[16][LANES], mn[16][LANES];
    if (imp)
        batch_sigma(b->blocks, x, f->sigma_factor, sigma2);
    for (int g = 0; g < batch_groups(b); g++)
        affine_group(f, b, g, x, imp, sigma2);
    affine_scales(f, b, b->scales, imp, sc, d);
    affine_scales(f, b, b->minus, imp, mn, dmin);
    for (int i = 0; i < b->blocks; i++) {
        r[i].d = f32_to_f16(d[i]);
        r[i].dmin = f32_to_f16(dmin[i]);
        for (int j = 0; j < f->subs; j++) {
            r[i].sc[j] = sc[j][i];
            r[i].mn[j] = mn[j][i];
            b->scales[i * f->subs + j] = f16_to_f32(r[i].d) * (float)sc[j][i];
            b->minus[i * f->subs + j] = f16_to_f32(r[i].dmin) * (float)mn[j][i];
        }
    }
    for (int g = 0; g < batch_groups(b); g++)
        affine_recode(f, b, g);
    for (int i = 0; i < b->blocks; i++)
        batch_codes(b, i, r[i].codes);
}

static INLINE void affine_row(const struct affine_format *f, const float *x, uint8_t *out, size_t block_bytes, int64_t blocks,
                              const float *imp, void (*pack)(const struct affine_codes *, void *))
{
    struct batch b = {.subs = f->subs, .size = f->size};
    struct affine_codes r[LANES];
    for (int64_t i = 0; i < blocks; i += LANES) {
        b.blocks = blocks - i < LANES ? (int)(blocks - i) : LANES;
        affine_batch(f, &b, x + i * QK256, imp ? imp + i * QK256 : NULL, r);
        for (int k = 0; k < b.blocks; k++)
            pack(&r[k], out + (size_t)(i + k) * block_bytes);
    }
}

void LANES_OP(quantize_q2_k)(const float *x, void *out, int64_t blocks, const float *imp)
{
    affine_row(&q2_k_format, x, out, sizeof(struct block_q2_k), blocks, imp, pack_q2_k);
}

void LANES_OP(quantize_q4_k)(const float *x, void *out, int64_t blocks, const float *imp)
{
    affine_row(&q4_k_format, x, out, sizeof(struct block_q4_k), blocks, imp, pack_q4_k);
}

void LANES_OP(quantize_q5_k)(const float *x, void *out, int64_t blocks, const float *imp)
{
    affine_row(&q5_k_format, x, out, sizeof(struct block_q5_k), blocks, imp, pack_q5_k);
}

/* ---- symmetric types: sixteen sub-blocks of sixteen, so a group is a super-block ---- */

static void symmetric_recode(struct batch *b, int g, int levels)
{
    vf scale = vf_load(b->scales + g * LANES);
    vm keep = vf_eq(scale, vf_zero());
    for (int i = g * 16; i < (g + 1) * 16; i++) {
        vf l = lanes_rne_clamped(vf_div(b->x[i], scale), -levels, levels - 1);
        vf c = vf_add(l, vf_set((float)levels));
        vi_store_u8(b->codes[i], vi_select(keep, vi_load_u8(b->codes[i]), vf_trunc(c)));
    }
}

static void q3_k_group(struct batch *b, int g, const float *x, const float *imp, const float *sigma2)
{
    vf w[16], codes[16], scales, *xs = b->x + g * 16;
    batch_load(b, g, x, imp, sigma2, w);
    if (imp) {
        vf_store(b->weight + g * LANES, lanes_sum(16, w));
        scales = lanes_symmetric(16, 4, xs, w, codes);
    } else {
        scales = lanes_three_bits(16, xs, codes);
    }
    vf_store(b->scales + g * LANES, scales);
    lanes_bytes(16, codes, b->codes + g * 16);
}

/* Scale codes and factors with importance weights: codes[super-block][sub-block]. */
static void q3_k_fitted_scales(const struct batch *b, uint8_t (*codes)[16], uint16_t *d)
{
    vf s[16], w[16], c[16];
    uint8_t bytes[16][LANES];
    float factors[LANES];
    lanes_gather(b->scales, 16, b->blocks, s);
    lanes_gather(b->weight, 16, b->blocks, w);
    vf_store(factors, lanes_symmetric(16, 32, s, w, c));
    lanes_bytes(16, c, bytes);
    lanes_scatter(bytes, 16, b->blocks, codes[0]);
    for (int i = 0; i < b->blocks; i++)
        d[i] = f32_to_f16(factors[i]);
}

void LANES_OP(quantize_q3_k)(const float *x, void *out, int64_t blocks, const float *imp)
{
    struct block_q3_k *to = out;
    struct batch b = {.subs = 16, .size = 16};
    for (int64_t i = 0; i < blocks; i += LANES, x += LANES * QK256) {
        float sigma2[LANES];
        uint8_t codes[QK256], ls[LANES][16];
        uint16_t d[LANES];
        b.blocks = blocks - i < LANES ? (int)(blocks - i) : LANES;
        if (imp)
            batch_sigma(b.blocks, x, 2.0f, sigma2);
        for (int g = 0; g < b.blocks; g++)
            q3_k_group(&b, g, x, imp ? imp + i * QK256 : NULL, sigma2);
        if (imp)
            q3_k_fitted_scales(&b, ls, d);
        for (int g = 0; g < b.blocks; g++) {
            if (!imp)
                d[g] = q3_k_plain_scales(b.scales + g * 16, ls[g]);
            for (int j = 0; j < 16; j++)
                b.scales[g * 16 + j] = f16_to_f32(d[g]) * (float)(ls[g][j] - 32);
            symmetric_recode(&b, g, 4);
            batch_codes(&b, g, codes);
            pack_q3_k(d[g], ls[g], codes, to + i + g);
        }
    }
}

void LANES_OP(quantize_q6_k)(const float *x, void *out, int64_t blocks, const float *imp)
{
    struct block_q6_k *to = out;
    struct batch b = {.blocks = 1, .subs = 16, .size = 16};
    for (int64_t i = 0; i < blocks; i++, x += QK256) {
        vf w[16], fitted[16];
        uint8_t codes[QK256];
        int8_t s[16];
        uint16_t d;
        batch_load(&b, 0, x, imp ? imp + i * QK256 : NULL, NULL, w);
        if (!imp)
            lanes_squares(16, b.x, w);
        vf_store(b.scales, lanes_symmetric(16, 32, b.x, w, fitted));
        if (!q6_k_scales(b.scales, s, &d)) {
            memset(to + i, 0, sizeof to[i]);
            continue;
        }
        lanes_bytes(16, fitted, b.codes);
        for (int j = 0; j < 16; j++)
            b.scales[j] = f16_to_f32(d) * (float)s[j];
        symmetric_recode(&b, 0, 32);
        batch_codes(&b, 0, codes);
        pack_q6_k(d, s, codes, to + i);
    }
}
