/* v16, the sixteen float lanes of kern/kern.h's canonical arithmetic, as four NEON registers of the arm64 base architecture.
 * What the functions mean: v16_avx512.h.
 */
#ifndef SKUA_KERN_CPU_V16_NEON_H
#define SKUA_KERN_CPU_V16_NEON_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    float32x4_t a, b, c, d; /* lanes 0-3, 4-7, 8-11, 12-15 */
} v16;

#define V16_TILE_HEADS 2
#define V16_TILE_POSITIONS 2
#define V16_TILE_COLUMNS 2

#define V16(a, b, c, d) ((v16){a, b, c, d})
#define V16_MAP1(f, x) V16(f((x).a), f((x).b), f((x).c), f((x).d))
#define V16_MAP2(f, x, y) V16(f((x).a, (y).a), f((x).b, (y).b), f((x).c, (y).c), f((x).d, (y).d))

static inline v16 v16_set1(float x)
{
    const float32x4_t v = vdupq_n_f32(x);
    return V16(v, v, v, v);
}
static inline v16 v16_load(const float *p) { return V16(vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)); }
static inline void v16_store(float *p, v16 x)
{
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
    vst1q_f32(p + 8, x.c);
    vst1q_f32(p + 12, x.d);
}
static inline v16 v16_load_n(const float *p, int n)
{
    float lanes[16] = {0};
    for (int i = 0; i < n; i++)
        lanes[i] = p[i];
    return v16_load(lanes);
}
static inline void v16_store_n(float *p, v16 x, int n)
{
    float lanes[16];
    v16_store(lanes, x);
    for (int i = 0; i < n; i++)
        p[i] = lanes[i];
}

static inline v16 v16_add(v16 x, v16 y) { return V16_MAP2(vaddq_f32, x, y); }
static inline v16 v16_sub(v16 x, v16 y) { return V16_MAP2(vsubq_f32, x, y); }
static inline v16 v16_mul(v16 x, v16 y) { return V16_MAP2(vmulq_f32, x, y); }
static inline v16 v16_div(v16 x, v16 y) { return V16_MAP2(vdivq_f32, x, y); }
static inline v16 v16_fma(v16 x, v16 y, v16 z)
{
    return V16(vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c), vfmaq_f32(z.d, x.d, y.d));
}
static inline v16 v16_neg(v16 x) { return V16_MAP1(vnegq_f32, x); }
static inline v16 v16_abs(v16 x) { return V16_MAP1(vabsq_f32, x); }
static inline v16 v16_rint(v16 x) { return V16_MAP1(vrndnq_f32, x); }

static inline v16 v16_if_gt(v16 x, v16 limit, v16 yes, v16 no)
{
    return V16(vbslq_f32(vcgtq_f32(x.a, limit.a), yes.a, no.a), vbslq_f32(vcgtq_f32(x.b, limit.b), yes.b, no.b),
               vbslq_f32(vcgtq_f32(x.c, limit.c), yes.c, no.c), vbslq_f32(vcgtq_f32(x.d, limit.d), yes.d, no.d));
}
static inline v16 v16_if_lt(v16 x, v16 limit, v16 yes, v16 no) { return v16_if_gt(limit, x, yes, no); }
static inline v16 v16_if_nan(v16 x, v16 yes, v16 no)
{
    return V16(vbslq_f32(vceqq_f32(x.a, x.a), no.a, yes.a), vbslq_f32(vceqq_f32(x.b, x.b), no.b, yes.b),
               vbslq_f32(vceqq_f32(x.c, x.c), no.c, yes.c), vbslq_f32(vceqq_f32(x.d, x.d), no.d, yes.d));
}
static inline bool v16_any_nan(v16 x)
{
    const uint32x4_t ok = vandq_u32(vandq_u32(vceqq_f32(x.a, x.a), vceqq_f32(x.b, x.b)),
                                    vandq_u32(vceqq_f32(x.c, x.c), vceqq_f32(x.d, x.d)));
    return vminvq_u32(ok) == 0;
}
/* NEON's own minimum and maximum treat NaN otherwise. */
static inline v16 v16_max(v16 x, v16 y) { return v16_if_gt(x, y, x, y); }
static inline v16 v16_min(v16 x, v16 y) { return v16_if_lt(x, y, x, y); }

static inline float32x4_t v16_scale2_quarter(float32x4_t p, float32x4_t n)
{
    const int32x4_t i = vcvtq_s32_f32(n), half = vshrq_n_s32(i, 1), rest = vsubq_s32(i, half), bias = vdupq_n_s32(127);
    p = vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23)));
    return vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23)));
}
static inline v16 v16_scale2(v16 p, v16 n) { return V16_MAP2(v16_scale2_quarter, p, n); }

static inline float32x4_t v16_fold4(v16 x) { return vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d)); }
static inline float v16_reduce(v16 x)
{
    const float32x4_t y = v16_fold4(x);
    const float32x2_t z = vadd_f32(vget_low_f32(y), vget_high_f32(y));
    return vget_lane_f32(z, 0) + vget_lane_f32(z, 1);
}
/* Lanes x0 + x2, x1 + x3, y0 + y2, y1 + y3. */
static inline float32x4_t v16_fold2(float32x4_t x, float32x4_t y)
{
    return vaddq_f32(vcombine_f32(vget_low_f32(x), vget_low_f32(y)), vcombine_f32(vget_high_f32(x), vget_high_f32(y)));
}
static inline void v16_reduce4(const v16 x[4], float scale, float out[4])
{
    const float32x4_t lo = v16_fold2(v16_fold4(x[0]), v16_fold4(x[1])), hi = v16_fold2(v16_fold4(x[2]), v16_fold4(x[3]));
    vst1q_f32(out, vmulq_f32(vpaddq_f32(lo, hi), vdupq_n_f32(scale)));
}
static inline float v16_reduce_max(v16 x) { return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.a, x.b), vmaxq_f32(x.c, x.d))); }

static inline float32x4_t v16_widen_f16(uint16x4_t h) { return vcvt_f32_f16(vreinterpret_f16_u16(h)); }
static inline v16 v16_load_f16(const void *p)
{
    const uint16_t *h = p;
    return V16(v16_widen_f16(vld1_u16(h)), v16_widen_f16(vld1_u16(h + 4)), v16_widen_f16(vld1_u16(h + 8)),
               v16_widen_f16(vld1_u16(h + 12)));
}
static inline float32x4_t v16_widen_bf16(uint16x4_t h) { return vreinterpretq_f32_u32(vshll_n_u16(h, 16)); }
static inline v16 v16_load_bf16(const void *p)
{
    const uint16_t *h = p;
    return V16(v16_widen_bf16(vld1_u16(h)), v16_widen_bf16(vld1_u16(h + 4)), v16_widen_bf16(vld1_u16(h + 8)),
               v16_widen_bf16(vld1_u16(h + 12)));
}
static inline v16 v16_load_i8(const void *p)
{
    const int8x16_t b = vld1q_s8(p);
    const int16x8_t lo = vmovl_s8(vget_low_s8(b)), hi = vmovl_s8(vget_high_s8(b));
    return V16(vcvtq_f32_s32(vmovl_s16(vget_low_s16(lo))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(lo))),
               vcvtq_f32_s32(vmovl_s16(vget_low_s16(hi))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(hi))));
}

static inline void v16_store_f16(void *p, v16 x)
{
    uint16_t *h = p;
    vst1_u16(h, vreinterpret_u16_f16(vcvt_f16_f32(x.a)));
    vst1_u16(h + 4, vreinterpret_u16_f16(vcvt_f16_f32(x.b)));
    vst1_u16(h + 8, vreinterpret_u16_f16(vcvt_f16_f32(x.c)));
    vst1_u16(h + 12, vreinterpret_u16_f16(vcvt_f16_f32(x.d)));
}
static inline uint16x4_t v16_narrow_bf16(float32x4_t x)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(x);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    return vshrn_n_u32(vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7FFF))), 16);
}
static inline void v16_store_bf16(void *p, v16 x)
{
    uint16_t *h = p;
    vst1_u16(h, v16_narrow_bf16(x.a));
    vst1_u16(h + 4, v16_narrow_bf16(x.b));
    vst1_u16(h + 8, v16_narrow_bf16(x.c));
    vst1_u16(h + 12, v16_narrow_bf16(x.d));
}
static inline void v16_store_i8(void *p, v16 x)
{
    const int16x8_t lo = vcombine_s16(vmovn_s32(vcvtq_s32_f32(x.a)), vmovn_s32(vcvtq_s32_f32(x.b)));
    const int16x8_t hi = vcombine_s16(vmovn_s32(vcvtq_s32_f32(x.c)), vmovn_s32(vcvtq_s32_f32(x.d)));
    vst1q_s8(p, vcombine_s8(vmovn_s16(lo), vmovn_s16(hi)));
}

static inline void v16_load_transpose4(const float *p, v16 out[4])
{
    const float32x4x4_t a = vld4q_f32(p), b = vld4q_f32(p + 16), c = vld4q_f32(p + 32), d = vld4q_f32(p + 48);
    for (int j = 0; j < 4; j++)
        out[j] = V16(a.val[j], b.val[j], c.val[j], d.val[j]);
}

#endif
