/* The expensive steps of IQ2_XXS and IQ2_S: the lanes are groups for the first scales, candidate scales in the search around
   them, and codebook entries where the nearest is looked for. Included once by quantize_iq2_<isa>.c, behind lanes_<isa>.h. The
   same in plain C: quant/quantize_iq2.c, iq2_search.c. */
#include <math.h>

#include "quant/codec.h"
#include "quant/cpu/fit_impl.h"
#include "quant/cpu/group_impl.h"
#include "quant/cpu/quant_tiers.h"
#include "quant/iq2_group.h"

static void first_scales(struct iq2_group *groups, int n)
{
    float rows[2][IQ2_GROUPS * 32] = {{0}}, scales[LANES];
    vf x[32], w[32];
    vi codes[32];
    for (int k = 0; k < n; k++) {
        memcpy(rows[0] + 32 * k, groups[k].x, sizeof groups[k].x);
        memcpy(rows[1] + 32 * k, groups[k].w, sizeof groups[k].w);
    }
    lanes_gather(rows[0], 32, n, x);
    lanes_gather(rows[1], 32, n, w);
    vf_store(scales, lanes_positive(32, 4, x, w, codes));
    for (int k = 0; k < n; k++)
        groups[k].scale = groups[k].zero ? 0.0f : scales[k];
}

/* The entry for a tuple, as iq2_nearest finds it, sixteen neighbours at a time. Errors are NaN only where a scale overflows,
   which the check of the finished block refuses. */
static int nearest_to(const struct iq2_book *book, int tuple, const float *x, const float *root_w, float scale, bool *exact)
{
    static const float levels[LANES] = {1, 3, 5, 7, 1, 3, 5, 7, 1, 3, 5, 7, 1, 3, 5, 7};
    struct iq2_near near;
    const int entry = iq2_lookup(book, tuple, &near);
    *exact = entry >= 0;
    if (*exact)
        return entry;
    const vf values = vf_mul(vf_set(scale), vf_load(levels));
    vf best = vf_set(INFINITY);
    vi place = vi_lanes(), best_place = place;
    for (int c = 0; c < near.count; c += LANES) {
        vi digits = vi_load_u16(near.codes + c);
        vf error = vf_zero();
        for (int i = 0; i < 8; i++) {
            vf d = vf_sub(vf_lookup4(values, digits), vf_set(x[i]));
            error = vf_add(error, vf_mul(vf_mul(vf_set(root_w[i]), d), d));
            digits = vi_srl(digits, 2);
        }
        vm listed = vi_eq(vi_min(place, vi_set(near.count - 1)), place);
        vm better = vm_and(listed, vf_lt(error, best));
        best = vf_select(better, error, best);
        best_place = vi_select(better, place, best_place);
        place = vi_add(place, vi_set(LANES));
    }
    vm least = vf_eq(best, vf_set(vf_least(best)));
    return near.entries[vi_least(vi_select(least, best_place, vi_set(near.count - 1)))];
}

static int nearest(const struct iq2_book *book, const float *x, const float *root_w, float id, float scale, bool *exact)
{
    return nearest_to(book, iq2_tuple(x, id), x, root_w, scale, exact);
}

/* Candidates of a search: inverse scales first, first + 1, ... of the 2 * reach + 1, one a lane. */
struct candidates {
    int count;
    int entry[4][LANES];
    bool exact[4][LANES];
    float xq[LANES], qq[LANES];
};

static void try_candidates(const struct iq2_group *g, float max, int reach, int first, struct candidates *c)
{
    float lanes[LANES], scales[LANES];
    int32_t tuples[LANES], codes[LANES];
    vi digits[4];
    for (int k = 0; k < LANES; k++)
        lanes[k] = IQ2_TOP_LEVEL + (float)(first + k - reach) * 0.1f;
    const vf id = vf_div(vf_load(lanes), vf_set(max));
    vf_store(scales, vf_div(vf_set(1.0f), id));
    for (int o = 0; o < g->octets; o++) {
        const float *x = g->x + 8 * o, *root_w = g->root_w + 8 * o;
        vf tuple = vf_zero();
        for (int i = 7; i >= 0; i--) {
            vf digit = lanes_rne_clamped(vf_mul(vf_set(0.5f), vf_sub(vf_mul(id, vf_set(x[i])), vf_set(1.0f))), 0, 2);
            tuple = vf_add(vf_mul(vf_set(3.0f), tuple), digit);
        }
        vi_store(tuples, vf_trunc(tuple));
        for (int k = 0; k < LANES; k++)
            codes[k] = 0;
        for (int k = 0; k < c->count; k++) {
            c->entry[o][k] = nearest_to(g->book, tuples[k], x, root_w, scales[k], &c->exact[o][k]);
            codes[k] = iq2_code(g->book, c->entry[o][k]);
        }
        digits[o] = vi_load(codes);
    }
    vf xq = vf_zero(), qq = vf_zero();
    for (int i = 0; i < 8 * g->octets; i++) {
        vi digit = vi_and(digits[i / 8], vi_set(3));
        vf q = vi_to_float(vi_add(vi_sll(digit, 1), vi_set(1)));
        xq = vf_add(xq, vf_mul(vf_set(g->w[i] * g->x[i]), q));
        qq = vf_add(qq, vf_mul(vf_mul(vf_set(g->w[i]), q), q));
        digits[i / 8] = vi_srl(digits[i / 8], 2);
    }
    vf_store(c->xq, xq);
    vf_store(c->qq, qq);
}

static void search(struct iq2_group *g, float max, int reach)
{
    float best = 0.0f;
    for (int first = 0; first <= 2 * reach; first += LANES) {
        struct candidates c = {.count = 2 * reach + 1 - first};
        c.count = c.count < LANES ? c.count : LANES;
        try_candidates(g, max, reach, first, &c);
        for (int k = 0; k < c.count; k++) {
            if (!(c.qq[k] > 0.0f && c.xq[k] * c.xq[k] > best * c.qq[k]))
                continue;
            for (int o = 0; o < g->octets; o++) {
                g->entry[o] = c.entry[o][k];
                g->exact[o] = c.exact[o][k];
            }
            g->scale = c.xq[k] / c.qq[k];
            best = g->scale * c.xq[k];
        }
    }
}

static const struct iq2_steps steps = {first_scales, search, nearest};

void LANES_OP(quantize_iq2_xxs)(const float *x, void *out, int64_t blocks, const float *imp)
{
    iq2_xxs_row(&steps, x, out, blocks, imp);
}

void LANES_OP(quantize_iq2_s)(const float *x, void *out, int64_t blocks, const float *imp)
{
    iq2_s_row(&steps, x, out, blocks, imp);
}
