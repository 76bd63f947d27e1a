/* The lanes in NEON of the arm64 base architecture: four registers. */
#ifndef SKUA_QUANT_CPU_LANES_NEON_H
#define SKUA_QUANT_CPU_LANES_NEON_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stdint.h>

#include "quant/cpu/lanes.h"

#define LANES_OP(name) name##_neon

typedef struct {
    float32x4_t a, b, c, d; /* lanes 0-3, 4-7, 8-11, 12-15 */
} vf;
typedef struct {
    int32x4_t a, b, c, d;
} vi;
typedef struct {
    uint32x4_t a, b, c, d; /* all bits of a lane or none */
} vm;

#define VF(a, b, c, d) ((vf){a, b, c, d})
#define VI(a, b, c, d) ((vi){a, b, c, d})
#define VM(a, b, c, d) ((vm){a, b, c, d})
#define MAP1(make, f, x) make(f((x).a), f((x).b), f((x).c), f((x).d))
#define MAP2(make, f, x, y) make(f((x).a, (y).a), f((x).b, (y).b), f((x).c, (y).c), f((x).d, (y).d))
#define MAP3(make, f, x, y, z) make(f((x).a, (y).a, (z).a), f((x).b, (y).b, (z).b), f((x).c, (y).c, (z).c), f((x).d, (y).d, (z).d))

static INLINE vf vf_load(const float *p) { return VF(vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)); }
static INLINE void vf_store(float *p, vf x)
{
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
    vst1q_f32(p + 8, x.c);
    vst1q_f32(p + 12, x.d);
}
static INLINE vf vf_set(float x) { return VF(vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x)); }
static INLINE vf vf_zero(void) { return vf_set(0.0f); }
static INLINE vf vf_add(vf x, vf y) { return MAP2(VF, vaddq_f32, x, y); }
static INLINE vf vf_sub(vf x, vf y) { return MAP2(VF, vsubq_f32, x, y); }
static INLINE vf vf_mul(vf x, vf y) { return MAP2(VF, vmulq_f32, x, y); }
static INLINE vf vf_div(vf x, vf y) { return MAP2(VF, vdivq_f32, x, y); }
static INLINE vf vf_sqrt(vf x) { return MAP1(VF, vsqrtq_f32, x); }
static INLINE vf vf_abs(vf x) { return MAP1(VF, vabsq_f32, x); }
static INLINE vf vf_neg(vf x) { return MAP1(VF, vnegq_f32, x); }
static INLINE vm vf_lt(vf x, vf y) { return MAP2(VM, vcltq_f32, x, y); }
static INLINE vm vf_ge(vf x, vf y) { return MAP2(VM, vcgeq_f32, x, y); }
static INLINE vm vf_gt(vf x, vf y) { return MAP2(VM, vcgtq_f32, x, y); }
static INLINE vm vf_eq(vf x, vf y) { return MAP2(VM, vceqq_f32, x, y); }
static INLINE vf vf_select(vm m, vf yes, vf no) { return MAP3(VF, vbslq_f32, m, yes, no); }
static INLINE vf vf_min(vf x, vf y) { return vf_select(vf_lt(x, y), x, y); }
static INLINE vf vf_max(vf x, vf y) { return vf_select(vf_gt(x, y), x, y); }

static INLINE vm vm_and(vm x, vm y) { return MAP2(VM, vandq_u32, x, y); }
static INLINE vm vm_or(vm x, vm y) { return MAP2(VM, vorrq_u32, x, y); }
static INLINE vm vm_all(void) { return vf_eq(vf_zero(), vf_zero()); }
static INLINE vm vm_not(vm x) { return MAP1(VM, vmvnq_u32, x); }
static INLINE bool vm_any(vm x) { return vmaxvq_u32(vorrq_u32(vorrq_u32(x.a, x.b), vorrq_u32(x.c, x.d))) != 0; }

static INLINE vi vi_set(int32_t x) { return VI(vdupq_n_s32(x), vdupq_n_s32(x), vdupq_n_s32(x), vdupq_n_s32(x)); }
static INLINE vi vi_add(vi x, vi y) { return MAP2(VI, vaddq_s32, x, y); }
static INLINE vi vi_sub(vi x, vi y) { return MAP2(VI, vsubq_s32, x, y); }
static INLINE vi vi_and(vi x, vi y) { return MAP2(VI, vandq_s32, x, y); }
static INLINE vi vi_or(vi x, vi y) { return MAP2(VI, vorrq_s32, x, y); }
static INLINE vi vi_sll(vi x, int n) { return MAP2(VI, vshlq_s32, x, vi_set(n)); }
static INLINE int32x4_t srl_quarter(int32x4_t x, int32x4_t n)
{
    return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(x), vnegq_s32(n)));
}
static INLINE vi vi_srl(vi x, int n) { return MAP2(VI, srl_quarter, x, vi_set(n)); }
static INLINE vi vi_min(vi x, vi y) { return MAP2(VI, vminq_s32, x, y); }
static INLINE vi vi_max(vi x, vi y) { return MAP2(VI, vmaxq_s32, x, y); }
static INLINE vm vi_eq(vi x, vi y) { return MAP2(VM, vceqq_s32, x, y); }
static INLINE vi vi_select(vm m, vi yes, vi no) { return MAP3(VI, vbslq_s32, m, yes, no); }
static INLINE vi vi_load(const int32_t *p) { return VI(vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)); }
static INLINE void vi_store(int32_t *p, vi x)
{
    vst1q_s32(p, x.a);
    vst1q_s32(p + 4, x.b);
    vst1q_s32(p + 8, x.c);
    vst1q_s32(p + 12, x.d);
}
static INLINE vi vi_lanes(void)
{
    const int32x4_t first = {0, 1, 2, 3};
    return VI(first, vaddq_s32(first, vdupq_n_s32(4)), vaddq_s32(first, vdupq_n_s32(8)), vaddq_s32(first, vdupq_n_s32(12)));
}

static INLINE int32x4_t widen_quarter(uint16x4_t x) { return vreinterpretq_s32_u32(vmovl_u16(x)); }
static INLINE vi widen_words(uint16x8_t low, uint16x8_t high)
{
    return VI(widen_quarter(vget_low_u16(low)), widen_quarter(vget_high_u16(low)), widen_quarter(vget_low_u16(high)),
              widen_quarter(vget_high_u16(high)));
}
static INLINE vi vi_load_u16(const uint16_t *p) { return widen_words(vld1q_u16(p), vld1q_u16(p + 8)); }
static INLINE vi vi_load_u8(const uint8_t *p)
{
    uint8x16_t bytes = vld1q_u8(p);
    return widen_words(vmovl_u8(vget_low_u8(bytes)), vmovl_u8(vget_high_u8(bytes)));
}
static INLINE void vi_store_u8(uint8_t *p, vi x) /* lanes 0..255 */
{
    uint16x8_t low = vcombine_u16(vqmovun_s32(x.a), vqmovun_s32(x.b)), high = vcombine_u16(vqmovun_s32(x.c), vqmovun_s32(x.d));
    vst1q_u8(p, vcombine_u8(vmovn_u16(low), vmovn_u16(high)));
}

static INLINE vi vf_bits(vf x) { return MAP1(VI, vreinterpretq_s32_f32, x); }
static INLINE vf vf_from_bits(vi x) { return MAP1(VF, vreinterpretq_f32_s32, x); }
static INLINE vf vi_to_float(vi x) { return MAP1(VF, vcvtq_f32_s32, x); }
static INLINE vi vf_trunc(vf x) { return MAP1(VI, vcvtq_s32_f32, x); } /* lanes that fit */

/* table[lane of at], at 0..15: the bytes 4 * at .. 4 * at + 3 of the table's 64. */
static INLINE float32x4_t lookup_quarter(vf table, int32x4_t at)
{
    const uint8x16x4_t bytes = {{vreinterpretq_u8_f32(table.a), vreinterpretq_u8_f32(table.b), vreinterpretq_u8_f32(table.c),
                                 vreinterpretq_u8_f32(table.d)}};
    int32x4_t index = vaddq_s32(vmulq_s32(at, vdupq_n_s32(0x04040404)), vdupq_n_s32(0x03020100));
    return vreinterpretq_f32_u8(vqtbl4q_u8(bytes, vreinterpretq_u8_s32(index)));
}
static INLINE vf vf_lookup(vf table, vi at)
{
    return VF(lookup_quarter(table, at.a), lookup_quarter(table, at.b), lookup_quarter(table, at.c), lookup_quarter(table, at.d));
}

/* table[low two bits of the lane of at], for a table that repeats every four lanes */
static INLINE vf vf_lookup4(vf table, vi at) { return vf_lookup(table, vi_and(at, vi_set(3))); }

static INLINE float vf_least(vf x) { return vminvq_f32(vminq_f32(vminq_f32(x.a, x.b), vminq_f32(x.c, x.d))); } /* no NaN */
static INLINE int32_t vi_least(vi x) { return vminvq_s32(vminq_s32(vminq_s32(x.a, x.b), vminq_s32(x.c, x.d))); }

/* (bits & mask) | set */
static INLINE vi vi_and_or(vi bits, vi mask, vi set) { return vi_or(vi_and(bits, mask), set); }

#endif
