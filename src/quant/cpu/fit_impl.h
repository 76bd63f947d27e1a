/* The searches of quant/fit.h for sixteen sub-blocks at a time, one per lane: x[i] holds element i of all of them. Each lane
   does the operations of the scalar function in the same order; where that one branches, both sides are computed and chosen
   from, and where it leaves early, the lane goes on without a say. Codes and levels are kept as floats, which are exact.
   Included by the *_impl.h files behind a lanes_<isa>.h. */
#ifndef SKUA_QUANT_CPU_FIT_IMPL_H
#define SKUA_QUANT_CPU_FIT_IMPL_H

#include "quant/fit.h"

#define FIT_MAX    32 /* elements of the largest sub-block */
#define FIT_SWEEPS 5

/* fit_rne as an integer. */
static INLINE vi lanes_rne(vf x)
{
    return vi_sub(vi_and(vf_bits(vf_add(x, vf_set(RNE_MAGIC))), vi_set(RNE_MASK)), vi_set(RNE_ZERO));
}

/* fit_rne_clamped as a float. */
static INLINE vf lanes_rne_clamped(vf x, int low, int high)
{
    vi bits = vi_and_or(vf_bits(vf_add(x, vf_set(RNE_MAGIC))), vi_set(RNE_MASK), vi_set(RNE_HIGH));
    bits = vi_min(vi_max(bits, vi_set((RNE_HIGH | RNE_ZERO) + low)), vi_set((RNE_HIGH | RNE_ZERO) + high));
    return vf_sub(vf_from_bits(bits), vf_set(RNE_MAGIC));
}

/* fit_trunc_clamped and fit_haz_clamped as floats. */
static INLINE vf lanes_trunc_clamped(vf x, int low, int high)
{
    return vi_to_float(vf_trunc(vf_min(vf_max(x, vf_set((float)low)), vf_set((float)high))));
}

static INLINE vf lanes_haz_clamped(vf x, int low, int high)
{
    vf clamped = vf_min(vf_max(x, vf_set((float)low)), vf_set((float)high));
    vf whole = vi_to_float(vf_trunc(clamped)), rest = vf_sub(clamped, whole); /* exact */
    whole = vf_select(vf_ge(rest, vf_set(0.5f)), vf_add(whole, vf_set(1.0f)), whole);
    return vf_select(vf_ge(vf_neg(rest), vf_set(0.5f)), vf_sub(whole, vf_set(1.0f)), whole);
}

/* fit_signed_max; NaN wins over all, the first of them. */
static INLINE vf lanes_signed_max(int n, const vf *x)
{
    vf magnitude = vf_zero(), max = vf_zero();
    for (int i = 0; i < n; i++) {
        vf a = vf_abs(x[i]);
        vm more = vf_gt(a, magnitude);
        magnitude = vf_select(more, a, magnitude);
        max = vf_select(more, x[i], max);
    }
    for (int i = n - 1; i >= 0; i--)
        max = vf_select(vf_eq(x[i], x[i]), max, x[i]);
    return max;
}

static INLINE vf lanes_max(int n, const vf *x, vf start)
{
    for (int i = 0; i < n; i++)
        start = vf_max(x[i], start);
    return start;
}

static INLINE vf lanes_min(int n, const vf *x, vf start)
{
    for (int i = 0; i < n; i++)
        start = vf_min(x[i], start);
    return start;
}

static INLINE vf lanes_sum(int n, const vf *x)
{
    vf sum = vf_zero();
    for (int i = 0; i < n; i++)
        sum = vf_add(sum, x[i]);
    return sum;
}

static INLINE vf lanes_sum_squares(int n, const vf *x)
{
    vf sum = vf_zero();
    for (int i = 0; i < n; i++)
        sum = vf_add(sum, vf_mul(x[i], x[i]));
    return sum;
}

/* w[i] comes as the importance and becomes the weight: fit_weights. */
static INLINE void lanes_weights(int n, const vf *x, vf sigma2, vf *w)
{
    for (int i = 0; i < n; i++)
        w[i] = vf_mul(w[i], vf_sqrt(vf_add(sigma2, vf_mul(x[i], x[i]))));
}

static INLINE void lanes_squares(int n, const vf *x, vf *w)
{
    for (int i = 0; i < n; i++)
        w[i] = vf_mul(x[i], x[i]);
}

/* 1 / d, 0 for 0 */
static INLINE vf lanes_inverse(vf d)
{
    return vf_select(vf_eq(d, vf_zero()), vf_zero(), vf_div(vf_set(1.0f), d));
}

struct lanes_sums {
    vf xl, ll;
};

static INLINE struct lanes_sums symmetric_sums(int n, int levels, const vf *x, const vf *w, vf iscale)
{
    struct lanes_sums s = {vf_zero(), vf_zero()};
    for (int i = 0; i < n; i++) {
        vf l = lanes_rne_clamped(vf_mul(iscale, x[i]), -levels, levels - 1);
        s.xl = vf_add(s.xl, vf_mul(vf_mul(w[i], x[i]), l));
        s.ll = vf_add(s.ll, vf_mul(vf_mul(w[i], l), l));
    }
    return s;
}

static NOINLINE vf lanes_symmetric(int n, int levels, const vf *x, const vf *w, vf *codes)
{
    vf max = lanes_signed_max(n, x);
    vm zero = vf_lt(vf_abs(max), vf_set(FIT_EPS));
    vf iscale = vf_div(vf_set(-(float)levels), max);
    struct lanes_sums s = symmetric_sums(n, levels, x, w, iscale);
    vf scale = vf_select(vf_eq(s.ll, vf_zero()), vf_zero(), vf_div(s.xl, s.ll));
    vf best = vf_mul(scale, s.xl), best_iscale = iscale;
    for (int k = -9; k <= 9; k++) {
        if (k == 0)
            continue;
        iscale = vf_div(vf_set(-((float)levels + 0.1f * (float)k)), max);
        s = symmetric_sums(n, levels, x, w, iscale);
        vm better = vm_and(vf_gt(s.ll, vf_zero()), vf_gt(vf_mul(s.xl, s.xl), vf_mul(best, s.ll)));
        if (!vm_any(better))
            continue;
        scale = vf_select(better, vf_div(s.xl, s.ll), scale);
        best = vf_select(better, vf_mul(scale, s.xl), best);
        best_iscale = vf_select(better, iscale, best_iscale);
    }
    for (int i = 0; i < n; i++) {
        vf l = lanes_rne_clamped(vf_mul(best_iscale, x[i]), -levels, levels - 1);
        codes[i] = vf_select(zero, vf_zero(), vf_add(l, vf_set((float)levels)));
    }
    return vf_select(zero, vf_zero(), scale);
}

static INLINE vf affine_code(vf x, vf iscale, vf min, int top)
{
    return lanes_rne_clamped(vf_mul(iscale, vf_sub(x, min)), 0, top);
}

static INLINE vf lanes_affine_error(int n, const vf *x, const vf *w, const vf *codes, vf scale, vf min, bool absolute)
{
    vf error = vf_zero();
    for (int i = 0; i < n; i++) {
        vf d = vf_sub(vf_add(vf_mul(scale, codes[i]), min), x[i]);
        error = vf_add(error, vf_mul(w[i], absolute ? vf_abs(d) : vf_mul(d, d)));
    }
    return error;
}

/* The codes of one candidate, and the least squares for them; the lanes that have a solution. */
static INLINE vm lanes_affine_solve(int n, int top, const vf *x, const vf *w, vf iscale, vf min, const vf sums[2], vf *codes,
                                    vf solution[2])
{
    vf sl = vf_zero(), sl2 = vf_zero(), sxl = vf_zero();
    for (int i = 0; i < n; i++) {
        vf l = affine_code(x[i], iscale, min, top), wl = vf_mul(w[i], l);
        codes[i] = l;
        sl = vf_add(sl, wl);
        sl2 = vf_add(sl2, vf_mul(wl, l));
        sxl = vf_add(sxl, vf_mul(wl, x[i]));
    }
    vf sw = sums[0], sx = sums[1];
    vf det = vf_sub(vf_mul(sw, sl2), vf_mul(sl, sl));
    vf scale = vf_div(vf_sub(vf_mul(sw, sxl), vf_mul(sx, sl)), det);
    vf offset = vf_div(vf_sub(vf_mul(sl2, sx), vf_mul(sl, sxl)), det);
    vm positive = vf_gt(offset, vf_zero());
    solution[0] = vf_select(positive, vf_div(sxl, sl2), scale);
    solution[1] = vf_select(positive, vf_zero(), offset);
    return vf_gt(det, vf_zero());
}

static INLINE vf affine_search(int n, int top, const vf *x, const vf *w, const struct fit_affine_search *search, bool absolute,
                               vf *codes, vf *minus)
{
    vf sums[2] = {lanes_sum(n, w), vf_zero()};
    for (int i = 0; i < n; i++)
        sums[1] = vf_add(sums[1], vf_mul(w[i], x[i]));
    vf min = lanes_min(n, x, x[0]), max = lanes_max(n, x, x[0]);
    min = vf_select(vf_gt(min, vf_zero()), vf_zero(), min);
    vm live = vf_gt(max, min);

    /* The codes are those that best_iscale and best_min give. */
    vf best_iscale = vf_div(vf_set((float)top), vf_sub(max, min)), best_min = min;
    vf scale = vf_div(vf_set(1.0f), best_iscale);
    for (int i = 0; i < n; i++)
        codes[i] = affine_code(x[i], best_iscale, min, top);
    vf best = lanes_affine_error(n, x, w, codes, scale, min, absolute);
    for (int k = 0; k <= search->steps; k++) {
        vf trial[FIT_MAX], solution[2];
        vf iscale = vf_div(vf_set(search->first + search->step * (float)k + (float)top), vf_sub(max, min));
        vm better = vm_and(live, lanes_affine_solve(n, top, x, w, iscale, min, sums, trial, solution));
        vf error = lanes_affine_error(n, x, w, trial, solution[0], solution[1], absolute);
        better = vm_and(better, vf_lt(error, best));
        if (!vm_any(better))
            continue;
        best = vf_select(better, error, best);
        best_iscale = vf_select(better, iscale, best_iscale);
        best_min = vf_select(better, min, best_min);
        scale = vf_select(better, solution[0], scale);
        min = vf_select(better, solution[1], min);
    }
    for (int i = 0; i < n; i++)
        codes[i] = vf_select(live, affine_code(x[i], best_iscale, best_min, top), vf_zero());
    *minus = vf_neg(min);
    return vf_select(live, scale, vf_zero());
}

/* fit_affine */
static NOINLINE vf lanes_affine(int n, int top, const vf *x, const vf *w, const struct fit_affine_search *search, vf *codes,
                                vf *minus)
{
    if (search->absolute)
        return affine_search(n, top, x, w, search, true, codes, minus);
    return affine_search(n, top, x, w, search, false, codes, minus);
}

/* A lane that a sweep does not change stays as it is in further ones, so no lane needs to be stopped. */
static INLINE vm lanes_positive_sweep(int n, int top, const vf *x, const vf *w, vi *codes, struct lanes_sums *s)
{
    vm moved = vm_not(vm_all());
    for (int i = 0; i < n; i++) {
        vf l = vi_to_float(codes[i]), wx = vf_mul(w[i], x[i]);
        struct lanes_sums t = {vf_sub(s->xl, vf_mul(wx, l)), vf_sub(s->ll, vf_mul(vf_mul(w[i], l), l))};
        vm better = vm_and(vf_gt(t.xl, vf_zero()), vf_gt(t.ll, vf_zero()));
        vi next = vi_min(lanes_rne(vf_div(vf_mul(x[i], t.ll), t.xl)), vi_set(top));
        better = vm_and(better, vm_not(vi_eq(next, codes[i])));
        l = vi_to_float(next);
        t.xl = vf_add(t.xl, vf_mul(wx, l));
        t.ll = vf_add(t.ll, vf_mul(vf_mul(w[i], l), l));
        better = vm_and(better, vf_gt(vf_mul(vf_mul(t.xl, t.xl), s->ll), vf_mul(vf_mul(s->xl, s->xl), t.ll)));
        codes[i] = vi_select(better, vi_and(next, vi_set(255)), codes[i]);
        s->xl = vf_select(better, t.xl, s->xl);
        s->ll = vf_select(better, t.ll, s->ll);
        moved = vm_or(moved, better);
    }
    return moved;
}

/* fit_positive; codes as integers 0..255 */
static NOINLINE vf lanes_positive(int n, int top, const vf *x, const vf *w, vi *codes)
{
    vf max = lanes_max(n, x, vf_zero());
    vm zero = vf_lt(max, vf_set(FIT_EPS));
    vf best_iscale = vf_zero(), best = vf_zero();
    for (int c = -5; c <= 4; c++) {
        if (c == 0)
            continue;
        const bool initial = c == -5;
        vf iscale = vf_div(vf_set(initial ? (float)top : 0.1f * (float)c + (float)top), max);
        vf scale = vf_div(vf_set(1.0f), iscale), error = vf_zero();
        for (int i = 0; i < n; i++) {
            vi l = lanes_rne(vf_mul(iscale, x[i]));
            l = initial ? vi_and(l, vi_set(255)) : vi_min(l, vi_set(top));
            vf d = vf_sub(x[i], vf_mul(scale, vi_to_float(l)));
            error = vf_add(error, vf_mul(vf_mul(w[i], d), d));
        }
        vm better = initial ? vm_all() : vf_lt(error, best);
        best = vf_select(better, error, best);
        best_iscale = vf_select(better, iscale, best_iscale);
    }
    struct lanes_sums s = {vf_zero(), vf_zero()};
    for (int i = 0; i < n; i++) {
        vi next = vi_min(lanes_rne(vf_mul(best_iscale, x[i])), vi_set(top));
        vf l = vi_to_float(next);
        codes[i] = vi_select(zero, vi_set(0), vi_and(next, vi_set(255)));
        s.xl = vf_add(s.xl, vf_mul(vf_mul(w[i], x[i]), l));
        s.ll = vf_add(s.ll, vf_mul(vf_mul(w[i], l), l));
    }
    for (int sweep = 0; sweep < FIT_SWEEPS; sweep++) {
        vm moved = lanes_positive_sweep(n, top, x, w, codes, &s);
        if (!vm_any(moved))
            break;
    }
    vm none = vf_ge(vf_zero(), s.ll);
    for (int i = 0; i < n; i++)
        codes[i] = vi_select(zero, vi_set(0), codes[i]);
    return vf_select(vm_or(zero, none), vf_zero(), vf_div(s.xl, s.ll));
}

static INLINE vm lanes_three_bits_sweep(int n, const vf *x, vf *levels, struct lanes_sums *s)
{
    vm moved = vm_not(vm_all());
    for (int i = 0; i < n; i++) {
        vf l = levels[i], w = vf_mul(x[i], x[i]), wx = vf_mul(w, x[i]);
        struct lanes_sums t = {vf_sub(s->xl, vf_mul(wx, l)), vf_sub(s->ll, vf_mul(vf_mul(w, l), l))};
        vm better = vf_gt(t.xl, vf_zero());
        vf next = lanes_rne_clamped(vf_div(vf_mul(x[i], t.ll), t.xl), -4, 3);
        better = vm_and(better, vm_not(vf_eq(next, l)));
        t.xl = vf_add(t.xl, vf_mul(wx, next));
        t.ll = vf_add(t.ll, vf_mul(vf_mul(w, next), next));
        better = vm_and(better, vf_gt(t.ll, vf_zero()));
        better = vm_and(better, vf_gt(vf_mul(vf_mul(t.xl, t.xl), s->ll), vf_mul(vf_mul(s->xl, s->xl), t.ll)));
        levels[i] = vf_select(better, next, l);
        s->xl = vf_select(better, t.xl, s->xl);
        s->ll = vf_select(better, t.ll, s->ll);
        moved = vm_or(moved, better);
    }
    return moved;
}

/* fit_three_bits */
static NOINLINE vf lanes_three_bits(int n, const vf *x, vf *codes)
{
    vf max = lanes_signed_max(n, x);
    vm zero = vf_lt(vf_abs(max), vf_set(FIT_EPS));
    vf iscale = vf_div(vf_set(-4.0f), max);
    struct lanes_sums s = {vf_zero(), vf_zero()};
    for (int i = 0; i < n; i++) {
        vf l = lanes_rne_clamped(vf_mul(iscale, x[i]), -4, 3), w = vf_mul(x[i], x[i]);
        codes[i] = l;
        s.xl = vf_add(s.xl, vf_mul(vf_mul(w, x[i]), l));
        s.ll = vf_add(s.ll, vf_mul(vf_mul(w, l), l));
    }
    for (int sweep = 0; sweep < FIT_SWEEPS; sweep++) {
        vm moved = lanes_three_bits_sweep(n, x, codes, &s);
        if (!vm_any(moved))
            break;
    }
    for (int i = 0; i < n; i++)
        codes[i] = vf_select(zero, vf_zero(), vf_add(codes[i], vf_set(4.0f)));
    return vf_select(zero, vf_zero(), vf_div(s.xl, s.ll));
}

#endif
