/* The lanes in AVX-512 F, BW, VL and DQ: one register. Included only by files that are compiled for these instruction sets. */
#ifndef SKUA_QUANT_CPU_LANES_AVX512_H
#define SKUA_QUANT_CPU_LANES_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "quant/cpu/lanes.h"

#define LANES_OP(name) name##_avx512

typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

static INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static INLINE void vf_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
static INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
static INLINE vf vf_set(float x) { return _mm512_set1_ps(x); }
static INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
static INLINE vf vf_sqrt(vf a) { return _mm512_sqrt_ps(a); }
static INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
static INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static INLINE vf vf_abs(vf a) { return _mm512_abs_ps(a); }
static INLINE vf vf_neg(vf a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
static INLINE vm vf_lt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
static INLINE vm vf_ge(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
static INLINE vm vf_gt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
static INLINE vm vf_eq(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
static INLINE vf vf_select(vm m, vf yes, vf no) { return _mm512_mask_blend_ps(m, no, yes); }

static INLINE vm vm_all(void) { return (vm)0xFFFF; }
static INLINE vm vm_and(vm a, vm b) { return (vm)(a & b); }
static INLINE vm vm_or(vm a, vm b) { return (vm)(a | b); }
static INLINE vm vm_not(vm a) { return (vm)~a; }
static INLINE bool vm_any(vm a) { return a != 0; }

static INLINE vi vi_set(int32_t x) { return _mm512_set1_epi32(x); }
static INLINE vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
static INLINE vi vi_sub(vi a, vi b) { return _mm512_sub_epi32(a, b); }
static INLINE vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
static INLINE vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
static INLINE vi vi_srl(vi a, int n) { return _mm512_srli_epi32(a, (unsigned)n); }
static INLINE vi vi_sll(vi a, int n) { return _mm512_slli_epi32(a, (unsigned)n); }
static INLINE vi vi_min(vi a, vi b) { return _mm512_min_epi32(a, b); }
static INLINE vi vi_max(vi a, vi b) { return _mm512_max_epi32(a, b); }
static INLINE vm vi_eq(vi a, vi b) { return _mm512_cmpeq_epi32_mask(a, b); }
static INLINE vi vi_select(vm m, vi yes, vi no) { return _mm512_mask_blend_epi32(m, no, yes); }
static INLINE vi vi_lanes(void) { return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
static INLINE vi vi_load(const int32_t *p) { return _mm512_loadu_si512(p); }
static INLINE void vi_store(int32_t *p, vi a) { _mm512_storeu_si512(p, a); }

static INLINE vi vi_load_u8(const uint8_t *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p)); }
static INLINE vi vi_load_u16(const uint16_t *p) { return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)); }
static INLINE void vi_store_u8(uint8_t *p, vi a) { _mm_storeu_si128((void *)p, _mm512_cvtepi32_epi8(a)); } /* lanes 0..255 */

static INLINE vi vf_bits(vf a) { return _mm512_castps_si512(a); }
static INLINE vf vf_from_bits(vi a) { return _mm512_castsi512_ps(a); }
static INLINE vf vi_to_float(vi a) { return _mm512_cvtepi32_ps(a); }
static INLINE vi vf_trunc(vf a) { return _mm512_cvttps_epi32(a); } /* lanes that fit */

/* table[lane of at], at 0..15 */
static INLINE vf vf_lookup(vf table, vi at) { return _mm512_permutexvar_ps(at, table); }

/* table[low two bits of the lane of at], for a table that repeats every four lanes */
static INLINE vf vf_lookup4(vf table, vi at) { return _mm512_permutevar_ps(table, at); }

static INLINE float vf_least(vf a) { return _mm512_reduce_min_ps(a); } /* no NaN */
static INLINE int32_t vi_least(vi a) { return _mm512_reduce_min_epi32(a); }

/* (bits & mask) | set */
static INLINE vi vi_and_or(vi bits, vi mask, vi set) { return _mm512_ternarylogic_epi32(bits, mask, set, 0xEA); }

#endif
