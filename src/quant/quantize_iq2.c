/* Floats -> IQ2_XXS and IQ2_S: signs apart, magnitudes as codebook octets, a scale search per group around them. */
#include <math.h>
#include <string.h>

#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/half.h"
#include "quant/iq2_group.h"

#define IQ2_S_EPS 1e-8f

static void split_signs(struct iq2_group *g, const float *x)
{
    for (int o = 0; o < g->octets; o++) {
        g->signs[o] = 0;
        for (int i = 8 * o; i < 8 * o + 8; i++) {
            g->x[i] = fabsf(x[i]);
            g->signs[o] = (uint8_t)(g->signs[o] | (x[i] < 0.0f) << (i & 7));
        }
    }
    for (int i = 0; i < 8 * g->octets; i++)
        g->root_w[i] = sqrtf(g->w[i]);
}

static float group_max(const struct iq2_group *g)
{
    float max = g->x[0];
    for (int i = 1; i < 8 * g->octets; i++)
        max = g->x[i] > max ? g->x[i] : max;
    return max;
}

/* Sums for the best scale of the given entries: it is *xq / *qq. */
static void entry_sums(const struct iq2_group *g, const int *entry, float *xq, float *qq)
{
    *xq = 0.0f;
    *qq = 0.0f;
    for (int i = 0; i < 8 * g->octets; i++) {
        float q = (float)iq2_level(iq2_code(g->book, entry[i / 8]), i & 7);
        *xq += g->w[i] * g->x[i] * q;
        *qq += g->w[i] * q * q;
    }
}

static void search_scale(struct iq2_group *g, float max, int reach)
{
    float best = 0.0f;
    for (int t = -reach; t <= reach; t++) {
        int entry[4];
        bool exact[4];
        float id = (IQ2_TOP_LEVEL + (float)t * 0.1f) / max, xq, qq;
        for (int o = 0; o < g->octets; o++)
            entry[o] = iq2_nearest(g->book, g->x + 8 * o, g->root_w + 8 * o, id, 1.0f / id, &exact[o]);
        entry_sums(g, entry, &xq, &qq);
        if (qq > 0.0f && xq * xq > best * qq) {
            memcpy(g->entry, entry, sizeof entry);
            memcpy(g->exact, exact, sizeof exact);
            g->scale = xq / qq;
            best = g->scale * xq;
        }
    }
}

/* Choose entries again at the scale found (all, or those that were no exact match), then the scale for them. */
static void refine(const struct iq2_steps *steps, struct iq2_group *g, bool all)
{
    float id = 1.0f / g->scale, xq, qq;
    for (int o = 0; o < g->octets; o++) {
        bool exact;
        if (all || !g->exact[o])
            g->entry[o] = steps->nearest(g->book, g->x + 8 * o, g->root_w + 8 * o, id, g->scale, &exact);
    }
    entry_sums(g, g->entry, &xq, &qq);
    if (qq > 0.0f)
        g->scale = xq / qq;
}

/* Only possible when forced signs outweigh the rest. */
static void make_scale_positive(struct iq2_group *g, uint8_t sign_mask)
{
    if (g->scale >= 0.0f)
        return;
    g->scale = -g->scale;
    for (int o = 0; o < g->octets; o++)
        g->signs[o] = (uint8_t)(~g->signs[o] & sign_mask);
}

/* IQ2_XXS stores seven signs, the eighth makes the number of minus signs even: where it is odd, the element whose sign
   matters least is negated. */
static void force_even_signs(struct iq2_group *g, const float *x)
{
    for (int o = 0; o < g->octets; o++) {
        uint8_t seven = g->signs[o] & 127;
        int minus = __builtin_popcount(g->signs[o]), flip = 8 * o;
        if (minus & 1) {
            float least = g->w[flip] * x[flip] * x[flip];
            for (int i = 8 * o + 1; i < 8 * o + 8; i++)
                if (g->w[i] * x[i] * x[i] < least) {
                    flip = i;
                    least = g->w[i] * x[i] * x[i];
                }
            g->x[flip] = -g->x[flip];
            seven = (uint8_t)((g->signs[o] ^ 1 << (flip & 7)) & 127);
        }
        g->signs[o] = seven;
    }
}

/* Signs and weights apart from the magnitudes; the scale will be 0 for a zero group. */
static void prepare_xxs(struct iq2_group *g, const float *x)
{
    split_signs(g, x);
    force_even_signs(g, x);
    g->zero = group_max(g) < FIT_EPS;
}

static void first_scales(struct iq2_group *groups, int n)
{
    for (int k = 0; k < n; k++) {
        struct iq2_group *g = &groups[k];
        uint8_t codes[32];
        g->scale = g->zero ? 0.0f : fit_positive(32, 4, g->x, g->w, codes);
    }
}

static void finish_xxs(const struct iq2_steps *steps, struct iq2_group *g)
{
    if (g->zero || 3.0f * g->scale <= 0.0f) {
        g->scale = 0.0f;
        memset(g->signs, 0, sizeof g->signs);
        return;
    }
    steps->search(g, 3.0f * g->scale, 6);
    if (g->scale > 0.0f)
        refine(steps, g, true);
    make_scale_positive(g, 127);
}

/* Nibbles s with value d * (2 * s + 1), d = *unit. All 0 and *unit = 0 for a zero super-block. */
static void scale_nibbles(int n, const float *scales, float *unit, uint8_t *nibbles)
{
    *unit = fit_signed_max(n, scales) / 31.0f;
    float id = *unit != 0.0f ? 1.0f / *unit : 0.0f;
    for (int j = 0; j < n; j++)
        nibbles[j] = (uint8_t)fit_rne_clamped(0.5f * (id * scales[j] - 1.0f), 0, 15);
}

static void pack_xxs(const struct iq2_group *groups, struct block_iq2_xxs *b)
{
    float scales[8], d;
    uint8_t nibbles[8];
    for (int k = 0; k < 8; k++)
        scales[k] = groups[k].scale;
    scale_nibbles(8, scales, &d, nibbles);
    memset(b, 0, sizeof *b);
    if (d == 0.0f)
        return;
    b->d = f32_to_f16(d);
    for (int k = 0; k < 8; k++) {
        uint32_t indices = 0, signs = 0;
        for (int o = 0; o < 4; o++) {
            indices |= (uint32_t)groups[k].entry[o] << 8 * o;
            signs |= (uint32_t)groups[k].signs[o] << 7 * o;
        }
        b->group[k].a = indices;
        b->group[k].b = signs | (uint32_t)nibbles[k] << 28;
    }
}

void iq2_xxs_row(const struct iq2_steps *steps, const float *x, struct block_iq2_xxs *out, int64_t blocks, const float *imp)
{
    for (int64_t i = 0; i < blocks; i += 2) {
        struct iq2_group groups[IQ2_GROUPS];
        const int n = blocks - i < 2 ? 8 : 16;
        float sigma2 = 0.0f;
        for (int k = 0; k < n; k++) {
            const int64_t at = i * QK256 + 32 * k;
            if (k % 8 == 0)
                sigma2 = fit_sum_squares(QK256, x + at) / 256.0f;
            groups[k] = (struct iq2_group){.book = iq2_book_xxs(), .octets = 4};
            fit_weights(32, x + at, imp + at, sigma2, groups[k].w);
            prepare_xxs(&groups[k], x + at);
        }
        steps->first_scales(groups, n);
        for (int k = 0; k < n; k++)
            finish_xxs(steps, &groups[k]);
        for (int k = 0; k < n; k += 8)
            pack_xxs(groups + k, &out[i + k / 8]);
    }
}

static void fit_group_s(const struct iq2_steps *steps, struct iq2_group *g, const float *x)
{
    split_signs(g, x);
    float max = group_max(g);
    if (max < IQ2_S_EPS) {
        memset(g->signs, 0, sizeof g->signs);
        return;
    }
    g->exact[0] = g->exact[1] = true;
    g->scale = max / IQ2_TOP_LEVEL;
    steps->search(g, max, 9);
    if (!(g->exact[0] && g->exact[1]) && g->scale > 0.0f)
        refine(steps, g, false);
    make_scale_positive(g, 255);
}

static void weights_s(const float *x, const float *imp, float sigma2, float *w)
{
    if (imp)
        fit_weights(16, x, imp, sigma2, w);
    else
        for (int i = 0; i < 16; i++)
            w[i] = 0.25f * sigma2 + x[i] * x[i];
}

void iq2_s_row(const struct iq2_steps *steps, const float *x, struct block_iq2_s *b, int64_t blocks, const float *imp)
{
    for (int64_t i = 0; i < blocks; i++, b++, x += QK256) {
        float scales[16], d;
        float sigma2 = 2.0f * fit_sum_squares(QK256, x) / 256.0f;
        uint8_t nibbles[16];
        memset(b, 0, sizeof *b);
        for (int j = 0; j < 16; j++) {
            struct iq2_group g = {.book = iq2_book_s(), .octets = 2};
            weights_s(x + 16 * j, imp ? imp + i * QK256 + 16 * j : NULL, sigma2, g.w);
            fit_group_s(steps, &g, x + 16 * j);
            for (int o = 0; o < 2; o++) {
                int at = 2 * j + o;
                b->idx[at] = (uint8_t)(g.entry[o] & 255);
                b->qh[at / 4] = (uint8_t)(b->qh[at / 4] | (g.entry[o] >> 8) << 2 * (at % 4));
                b->sign[at] = g.signs[o];
            }
            scales[j] = g.scale;
        }
        scale_nibbles(16, scales, &d, nibbles);
        b->d = f32_to_f16(d * 0.9875f); /* the nibbles belong to the unscaled factor */
        for (int j = 0; j < 16; j++)
            b->sc[j / 2] = (uint8_t)(b->sc[j / 2] | nibbles[j] << 4 * (j & 1));
    }
}

static const struct iq2_steps reference = {first_scales, search_scale, iq2_nearest};

void quantize_iq2_xxs(const float *x, void *out, int64_t blocks, const float *imp)
{
    iq2_xxs_row(&reference, x, out, blocks, imp);
}

void quantize_iq2_s(const float *x, void *out, int64_t blocks, const float *imp)
{
    iq2_s_row(&reference, x, out, blocks, imp);
}
