/* The small vector vocabulary of mm_quant.h and mm_float.h in NEON of the arm64 base architecture: one vector is 4 lanes of 32
   bits. What the functions mean: vec_avx2.h. Shift counts are constants after inlining. */
#ifndef SKUA_KERN_CPU_VEC_NEON_H
#define SKUA_KERN_CPU_VEC_NEON_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

#include "kern/cpu/vec.h"

#define LANES 4
typedef uint32x4_t vi;
typedef float32x4_t vf;

#define V_U8(a) vreinterpretq_u8_u32(a)
#define V_U16(a) vreinterpretq_u16_u32(a)
#define V_S16(a) vreinterpretq_s16_u32(a)
#define V_S32(a) vreinterpretq_s32_u32(a)

static INLINE vi v_load(const void *p) { return vreinterpretq_u32_u8(vld1q_u8(p)); }
static INLINE void v_store(void *p, vi a) { vst1q_u8(p, V_U8(a)); }
static INLINE vi v_zero(void) { return vdupq_n_u32(0); }
static INLINE vi v_set(int32_t x) { return vdupq_n_u32((uint32_t)x); }
static INLINE vi v_add(vi a, vi b) { return vaddq_u32(a, b); }
static INLINE vi v_mul(vi a, vi b) { return vmulq_u32(a, b); }
static INLINE vi v_and(vi a, vi b) { return vandq_u32(a, b); }
static INLINE vi v_or(vi a, vi b) { return vorrq_u32(a, b); }
static INLINE vi v_xor(vi a, vi b) { return veorq_u32(a, b); }
static INLINE vi v_sub(vi a, vi b) { return vsubq_u32(a, b); }
static INLINE vi v_clear_equal(vi a, int32_t x) { return vbicq_u32(a, vceqq_u32(a, v_set(x))); }
static INLINE vi v_lookup(const int8_t table[16], vi index) { return vreinterpretq_u32_s8(vqtbl1q_s8(vld1q_s8(table), V_U8(index))); }
static INLINE vi v_gather16(const uint16_t *table, vi index)
{
    return (vi){table[vgetq_lane_u32(index, 0)], table[vgetq_lane_u32(index, 1)], table[vgetq_lane_u32(index, 2)],
                table[vgetq_lane_u32(index, 3)]};
}
static INLINE vi v_sll(vi a, int n) { return vshlq_u32(a, vdupq_n_s32(n)); }
static INLINE vi v_srl(vi a, int n) { return vshlq_u32(a, vdupq_n_s32(-n)); }
static INLINE vi v_sra(vi a, int n) { return vreinterpretq_u32_s32(vshlq_s32(V_S32(a), vdupq_n_s32(-n))); }
static INLINE vi v_mul16(vi a, vi b) { return vreinterpretq_u32_u16(vmulq_u16(V_U16(a), V_U16(b))); }
static INLINE vi v_sub16(vi a, vi b) { return vreinterpretq_u32_u16(vsubq_u16(V_U16(a), V_U16(b))); }
static INLINE vi v_srl16(vi a, int n) { return vreinterpretq_u32_u16(vshlq_u16(V_U16(a), vdupq_n_s16((int16_t)-n))); }
static INLINE vi v_sll16(vi a, int n) { return vreinterpretq_u32_u16(vshlq_u16(V_U16(a), vdupq_n_s16((int16_t)n))); }

/* Products of 16-bit elements 0 to 3 and 4 to 7 are kept apart; neighbours are added once, at the end. */
typedef struct {
    int32x4_t low, high;
} dot_acc;

static INLINE dot_acc dot_zero(void)
{
    return (dot_acc){vdupq_n_s32(0), vdupq_n_s32(0)};
}

static INLINE vi dot_sum(dot_acc a)
{
    return vreinterpretq_u32_s32(vpaddq_s32(a.low, a.high));
}

static INLINE dot_acc dot_add(dot_acc a, vi w, vi x)
{
    a.low = vmlal_s16(a.low, vget_low_s16(V_S16(w)), vget_low_s16(V_S16(x)));
    a.high = vmlal_high_s16(a.high, V_S16(w), V_S16(x));
    return a;
}

#if defined(__ARM_FEATURE_DOTPROD)
typedef int32x4_t dot4_acc;
static INLINE dot4_acc dot4_zero(void) { return vdupq_n_s32(0); }
static INLINE vi dot4_sum(dot4_acc a) { return vreinterpretq_u32_s32(a); }
static INLINE dot4_acc dot4_add(dot4_acc a, vi w, vi x) { return vdotq_s32(a, vreinterpretq_s8_u32(w), vreinterpretq_s8_u32(x)); }
#else
/* Products of bytes 0 to 7 and 8 to 15 are kept apart likewise. */
typedef dot_acc dot4_acc;
static INLINE dot4_acc dot4_zero(void) { return dot_zero(); }
static INLINE vi dot4_sum(dot4_acc a) { return dot_sum(a); }
static INLINE dot4_acc dot4_add(dot4_acc a, vi w, vi x)
{
    const int8x16_t v = vreinterpretq_s8_u32(w), y = vreinterpretq_s8_u32(x);
    a.low = vpadalq_s16(a.low, vmull_s8(vget_low_s8(v), vget_low_s8(y)));
    a.high = vpadalq_s16(a.high, vmull_high_s8(v, y));
    return a;
}
#endif

#if defined(__ARM_FEATURE_MATMUL_INT8)
/* Products of matrices of bytes: two rows of eight weights times two input rows, four sums. mm_byte.h uses them for panels. */
#define V_ROWS_IN_PAIRS
typedef struct {
    int32x4_t rows01, rows23; /* lane 2i + k: weight row i (or 2 + i) with input row k */
} pair_acc;
static INLINE pair_acc pair_zero(void) { return (pair_acc){vdupq_n_s32(0), vdupq_n_s32(0)}; }
static INLINE void pair_up(vi quads[2])
{
    vi first = vzip1q_u32(quads[0], quads[1]);
    quads[1] = vzip2q_u32(quads[0], quads[1]);
    quads[0] = first;
}
static INLINE pair_acc pair_add(pair_acc a, const uint8_t *w01, const uint8_t *w23, const int8_t *x0, const int8_t *x1)
{
    const int8x16_t x = vcombine_s8(vld1_s8(x0), vld1_s8(x1));
    a.rows01 = vmmlaq_s32(a.rows01, vreinterpretq_s8_u8(vld1q_u8(w01)), x);
    a.rows23 = vmmlaq_s32(a.rows23, vreinterpretq_s8_u8(vld1q_u8(w23)), x);
    return a;
}
static INLINE vi pair_sum(pair_acc a, int k)
{
    return vreinterpretq_u32_s32(k ? vuzp2q_s32(a.rows01, a.rows23) : vuzp1q_s32(a.rows01, a.rows23));
}
#endif

/* Bytes of `a` by index; 0 where the index is 255. */
static INLINE vi v_bytes(vi a, uint8x16_t index)
{
    return vreinterpretq_u32_u8(vqtbl1q_u8(V_U8(a), index));
}

static INLINE void v_widen(vi a, vi pair[2])
{
    pair[0] = v_bytes(a, (uint8x16_t){0, 255, 1, 255, 4, 255, 5, 255, 8, 255, 9, 255, 12, 255, 13, 255});
    pair[1] = v_bytes(a, (uint8x16_t){2, 255, 3, 255, 6, 255, 7, 255, 10, 255, 11, 255, 14, 255, 15, 255});
}

static INLINE vi v_high_bytes_signed(vi a) /* the high byte of every 16-bit element, sign extended */
{
    return vreinterpretq_u32_s16(vshrq_n_s16(V_S16(a), 8));
}

static INLINE void v_widen_signed(vi a, vi pair[2])
{
    pair[0] = v_high_bytes_signed(v_bytes(a, (uint8x16_t){255, 0, 255, 1, 255, 4, 255, 5, 255, 8, 255, 9, 255, 12, 255, 13}));
    pair[1] = v_high_bytes_signed(v_bytes(a, (uint8x16_t){255, 2, 255, 3, 255, 6, 255, 7, 255, 10, 255, 11, 255, 14, 255, 15}));
}

static INLINE vi v_byte_twice(vi a, int i)
{
    const uint8_t k = (uint8_t)i;
    const uint8x16_t at = {0, 240, 0, 240, 4, 240, 4, 240, 8, 240, 8, 240, 12, 240, 12, 240};
    return v_bytes(a, vaddq_u8(at, vdupq_n_u8(k)));
}

static INLINE vi v_byte_twice_signed(vi a, int i)
{
    const uint8_t k = (uint8_t)i;
    const uint8x16_t at = {240, 0, 240, 0, 240, 4, 240, 4, 240, 8, 240, 8, 240, 12, 240, 12};
    return v_high_bytes_signed(v_bytes(a, vaddq_u8(at, vdupq_n_u8(k))));
}

static INLINE vf vf_load(const float *p) { return vld1q_f32(p); }
static INLINE void vf_store(float *p, vf a) { vst1q_f32(p, a); }
static INLINE vf vf_zero(void) { return vdupq_n_f32(0.0f); }
static INLINE vf vf_set(float x) { return vdupq_n_f32(x); }
static INLINE vf vf_mul(vf a, vf b) { return vmulq_f32(a, b); }
static INLINE vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
static INLINE vf vf_fnma(vf a, vf b, vf c) { return vfmsq_f32(c, a, b); }
static INLINE vf vf_from_int(vi a) { return vcvtq_f32_s32(V_S32(a)); }
static INLINE vf vf_from_bits(vi a) { return vreinterpretq_f32_u32(a); }

static INLINE vf vf_from_low_f16(vi a) { return vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(a))); }

static INLINE vf vf_load_f16(const void *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

static INLINE vf vf_load_bf16(const void *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16));
}

static INLINE void v_transpose(const uint8_t *first, size_t stride, vi out[4])
{
    vi z[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        z[i] = v_load(first + (size_t)i * stride);
    vi a = vzip1q_u32(z[0], z[2]), b = vzip1q_u32(z[1], z[3]), c = vzip2q_u32(z[0], z[2]), d = vzip2q_u32(z[1], z[3]);
    out[0] = vzip1q_u32(a, b);
    out[1] = vzip2q_u32(a, b);
    out[2] = vzip1q_u32(c, d);
    out[3] = vzip2q_u32(c, d);
}

static INLINE float vf_reduce16(const vf acc[16 / LANES])
{
    vf eight[2] = {vaddq_f32(acc[0], acc[2]), vaddq_f32(acc[1], acc[3])};
    vf four = vaddq_f32(eight[0], eight[1]);
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

#endif
