/* IQ4_NL and IQ4_XS, sixteen sub-blocks at a time. Included once by quantize_iq4_<isa>.c, behind lanes_<isa>.h. The same in
   plain C: quant/quantize_iq4.c. */
#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/cpu/fit_impl.h"
#include "quant/cpu/group_impl.h"
#include "quant/cpu/quant_tiers.h"
#include "quant/half.h"
#include "quant/superblock.h"

struct nl4_tables {
    vf values;              /* nl4_values */
    vf middle, by4, by2, by1; /* boundary 7 in all lanes; boundaries k + 3, k + 1, k for an index k */
};

/* The boundary between codes k and k + 1 is halfway between their levels; every sum and difference around it is exact. */
static struct nl4_tables nl4_tables(void)
{
    float values[16], bounds[20] = {0};
    for (int k = 0; k < 16; k++)
        values[k] = (float)nl4_values[k];
    for (int k = 0; k < 15; k++)
        bounds[k] = 0.5f * (values[k] + values[k + 1]);
    return (struct nl4_tables){vf_load(values), vf_set(bounds[7]), vf_load(bounds + 3), vf_load(bounds + 1), vf_load(bounds)};
}

/* nearest_nl4: how many boundaries are not above x, by halving; 1 for NaN, as the definition has it. */
static INLINE vi lanes_nl4(const struct nl4_tables *t, vf x)
{
    vi k = vi_select(vf_ge(x, t->middle), vi_set(8), vi_set(0));
    k = vi_select(vf_ge(x, vf_lookup(t->by4, k)), vi_add(k, vi_set(4)), k);
    k = vi_select(vf_ge(x, vf_lookup(t->by2, k)), vi_add(k, vi_set(2)), k);
    k = vi_select(vf_ge(x, vf_lookup(t->by1, k)), vi_add(k, vi_set(1)), k);
    return vi_select(vf_eq(x, x), k, vi_set(1));
}

static NOINLINE vf lanes_nl4_scale(const struct nl4_tables *t, const vf *x, const vf *w)
{
    vf max = lanes_signed_max(32, x);
    vf scale = vf_zero(), best = vf_zero();
    for (int c = -8; c <= 7; c++) {
        const bool initial = c == -8;
        vf id = initial ? vf_div(vf_set(1.0f), vf_div(max, vf_set(127.0f))) : vf_div(vf_set((float)c - 127.0f), max);
        vf xq = vf_zero(), qq = vf_zero();
        for (int j = 0; j < 32; j++) {
            vf q = vf_lookup(t->values, lanes_nl4(t, vf_mul(id, x[j]))), wq = vf_mul(w[j], q);
            xq = vf_add(xq, vf_mul(wq, x[j]));
            qq = vf_add(qq, vf_mul(wq, q));
        }
        if (initial) {
            scale = vf_select(vf_ge(vf_zero(), qq), vf_zero(), vf_div(xq, qq));
            best = vf_mul(scale, xq);
            continue;
        }
        vm better = vm_and(vf_gt(qq, vf_zero()), vf_gt(vf_mul(xq, xq), vf_mul(best, qq)));
        if (!vm_any(better))
            continue;
        scale = vf_select(better, vf_div(xq, qq), scale);
        best = vf_select(better, vf_mul(scale, xq), best);
    }
    return vf_select(vf_lt(vf_abs(max), vf_set(FIT_EPS)), vf_zero(), scale);
}

/* Codes at the given scales, packed one sub-block after the other: 16 bytes each. */
static void nl4_codes(const struct nl4_tables *t, const vf *x, vf scale, int count, uint8_t (*qs)[16])
{
    uint8_t lanes[32][LANES], codes[LANES * 32];
    vf id = lanes_inverse(scale);
    for (int j = 0; j < 32; j++)
        vi_store_u8(lanes[j], lanes_nl4(t, vf_mul(x[j], id)));
    lanes_scatter((const uint8_t(*)[LANES])lanes, 32, count, codes);
    for (int k = 0; k < count; k++)
        pack_nibbles(codes + 32 * k, qs[k]);
}

void LANES_OP(quantize_iq4_nl)(const float *x, void *out, int64_t blocks, const float *imp)
{
    struct block_iq4_nl *b = out;
    const struct nl4_tables t = nl4_tables();
    for (int64_t i = 0; i < blocks; i += LANES) {
        const int count = blocks - i < LANES ? (int)(blocks - i) : LANES;
        vf xs[QK32], w[QK32];
        float scales[LANES];
        uint8_t qs[LANES][16];
        lanes_gather(x + i * QK32, QK32, count, xs);
        if (imp) {
            lanes_gather(imp + i * QK32, QK32, count, w);
            lanes_weights(QK32, xs, vf_mul(lanes_sum_squares(QK32, xs), vf_set(2.0f / 32.0f)), w);
        } else {
            lanes_squares(QK32, xs, w);
        }
        vf scale = lanes_nl4_scale(&t, xs, w);
        vf_store(scales, scale);
        nl4_codes(&t, xs, scale, count, qs);
        for (int k = 0; k < count; k++) {
            b[i + k].d = f32_to_f16(scales[k]);
            memcpy(b[i + k].qs, qs[k], sizeof qs[k]);
        }
    }
}

/* Two super-blocks are a group. */
void LANES_OP(quantize_iq4_xs)(const float *x, void *out, int64_t blocks, const float *imp)
{
    struct block_iq4_xs *b = out;
    const struct nl4_tables t = nl4_tables();
    for (int64_t i = 0; i < blocks; i += 2, x += 2 * QK256) {
        const int supers = blocks - i < 2 ? 1 : 2;
        vf xs[32], w[32];
        float scales[LANES] = {0};
        uint8_t qs[LANES][16];
        lanes_gather(x, 32, 8 * supers, xs);
        if (imp) {
            float sigma2[LANES] = {0};
            for (int k = 0; k < supers; k++)
                for (int g = 0; g < 8; g++)
                    sigma2[8 * k + g] = g ? sigma2[8 * k] : fit_sum_squares(QK256, x + k * QK256) * (2.0f / 256.0f);
            lanes_gather(imp + i * QK256, 32, 8 * supers, w);
            lanes_weights(32, xs, vf_load(sigma2), w);
        } else {
            lanes_squares(32, xs, w);
        }
        vf_store(scales, lanes_nl4_scale(&t, xs, w));
        for (int k = 0; k < supers; k++)
            iq4_xs_scales(scales + 8 * k, b + i + k);
        nl4_codes(&t, xs, vf_load(scales), 8 * supers, qs);
        for (int k = 0; k < supers; k++)
            memcpy(b[i + k].qs, qs[8 * k], sizeof b->qs);
    }
}
