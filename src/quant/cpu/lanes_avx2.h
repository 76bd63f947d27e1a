/* The lanes in AVX2: two registers. Included only by files that are compiled for it. */
#ifndef SKUA_QUANT_CPU_LANES_AVX2_H
#define SKUA_QUANT_CPU_LANES_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "quant/cpu/lanes.h"

#define LANES_OP(name) name##_avx2

typedef struct {
    __m256 a, b; /* lanes 0-7, 8-15 */
} vf;
typedef struct {
    __m256i a, b;
} vi;
typedef struct {
    __m256 a, b; /* all bits of a lane or none */
} vm;

#define VF(a, b) ((vf){a, b})
#define VI(a, b) ((vi){a, b})
#define VM(a, b) ((vm){a, b})
#define MAP2(make, f, x, y) make(f((x).a, (y).a), f((x).b, (y).b))
#define COMPARE(x, y, how) VM(_mm256_cmp_ps((x).a, (y).a, how), _mm256_cmp_ps((x).b, (y).b, how))

static INLINE vf vf_load(const float *p) { return VF(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)); }
static INLINE void vf_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
static INLINE vf vf_set(float x) { return VF(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
static INLINE vf vf_zero(void) { return VF(_mm256_setzero_ps(), _mm256_setzero_ps()); }
static INLINE vf vf_add(vf x, vf y) { return MAP2(VF, _mm256_add_ps, x, y); }
static INLINE vf vf_sub(vf x, vf y) { return MAP2(VF, _mm256_sub_ps, x, y); }
static INLINE vf vf_mul(vf x, vf y) { return MAP2(VF, _mm256_mul_ps, x, y); }
static INLINE vf vf_div(vf x, vf y) { return MAP2(VF, _mm256_div_ps, x, y); }
static INLINE vf vf_sqrt(vf x) { return VF(_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)); }
static INLINE vf vf_min(vf x, vf y) { return MAP2(VF, _mm256_min_ps, x, y); }
static INLINE vf vf_max(vf x, vf y) { return MAP2(VF, _mm256_max_ps, x, y); }
static INLINE vf vf_abs(vf x) { return MAP2(VF, _mm256_andnot_ps, vf_set(-0.0f), x); }
static INLINE vf vf_neg(vf x) { return MAP2(VF, _mm256_xor_ps, x, vf_set(-0.0f)); }
static INLINE vm vf_lt(vf x, vf y) { return COMPARE(x, y, _CMP_LT_OQ); }
static INLINE vm vf_ge(vf x, vf y) { return COMPARE(x, y, _CMP_GE_OQ); }
static INLINE vm vf_gt(vf x, vf y) { return COMPARE(x, y, _CMP_GT_OQ); }
static INLINE vm vf_eq(vf x, vf y) { return COMPARE(x, y, _CMP_EQ_OQ); }
static INLINE vf vf_select(vm m, vf yes, vf no)
{
    return VF(_mm256_blendv_ps(no.a, yes.a, m.a), _mm256_blendv_ps(no.b, yes.b, m.b));
}

static INLINE vm vm_and(vm x, vm y) { return MAP2(VM, _mm256_and_ps, x, y); }
static INLINE vm vm_or(vm x, vm y) { return MAP2(VM, _mm256_or_ps, x, y); }
static INLINE vm vm_all(void) { return vf_eq(vf_zero(), vf_zero()); }
static INLINE vm vm_not(vm x) { return MAP2(VM, _mm256_xor_ps, x, vm_all()); }
static INLINE bool vm_any(vm x) { return _mm256_movemask_ps(_mm256_or_ps(x.a, x.b)) != 0; }

static INLINE vi vi_set(int32_t x) { return VI(_mm256_set1_epi32(x), _mm256_set1_epi32(x)); }
static INLINE vi vi_add(vi x, vi y) { return MAP2(VI, _mm256_add_epi32, x, y); }
static INLINE vi vi_sub(vi x, vi y) { return MAP2(VI, _mm256_sub_epi32, x, y); }
static INLINE vi vi_and(vi x, vi y) { return MAP2(VI, _mm256_and_si256, x, y); }
static INLINE vi vi_or(vi x, vi y) { return MAP2(VI, _mm256_or_si256, x, y); }
static INLINE vi vi_srl(vi x, int n) { return VI(_mm256_srli_epi32(x.a, n), _mm256_srli_epi32(x.b, n)); }
static INLINE vi vi_sll(vi x, int n) { return VI(_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)); }
static INLINE vi vi_min(vi x, vi y) { return MAP2(VI, _mm256_min_epi32, x, y); }
static INLINE vi vi_max(vi x, vi y) { return MAP2(VI, _mm256_max_epi32, x, y); }
static INLINE vm vi_eq(vi x, vi y)
{
    return VM(_mm256_castsi256_ps(_mm256_cmpeq_epi32(x.a, y.a)), _mm256_castsi256_ps(_mm256_cmpeq_epi32(x.b, y.b)));
}
static INLINE vi vi_select(vm m, vi yes, vi no)
{
    return VI(_mm256_blendv_epi8(no.a, yes.a, _mm256_castps_si256(m.a)), _mm256_blendv_epi8(no.b, yes.b, _mm256_castps_si256(m.b)));
}
static INLINE vi vi_lanes(void)
{
    return VI(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15));
}
static INLINE vi vi_load(const int32_t *p)
{
    return VI(_mm256_loadu_si256((const void *)p), _mm256_loadu_si256((const void *)(p + 8)));
}
static INLINE void vi_store(int32_t *p, vi x)
{
    _mm256_storeu_si256((void *)p, x.a);
    _mm256_storeu_si256((void *)(p + 8), x.b);
}

static INLINE vi vi_load_u8(const uint8_t *p)
{
    __m128i bytes = _mm_loadu_si128((const void *)p);
    return VI(_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)));
}
static INLINE vi vi_load_u16(const uint16_t *p)
{
    return VI(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)), _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(p + 8))));
}
static INLINE void vi_store_u8(uint8_t *p, vi x) /* lanes 0..255 */
{
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xD8);
    _mm_storeu_si128((void *)p, _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

static INLINE vi vf_bits(vf x) { return VI(_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)); }
static INLINE vf vf_from_bits(vi x) { return VF(_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)); }
static INLINE vf vi_to_float(vi x) { return VF(_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)); }
static INLINE vi vf_trunc(vf x) { return VI(_mm256_cvttps_epi32(x.a), _mm256_cvttps_epi32(x.b)); } /* lanes that fit */

/* table[lane of at], at 0..15: bit 3 chooses the half, as the sign of a blend's mask. */
static INLINE __m256 lookup_half(vf table, __m256i at)
{
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.a, at), _mm256_permutevar8x32_ps(table.b, at),
                            _mm256_castsi256_ps(_mm256_slli_epi32(at, 28)));
}
static INLINE vf vf_lookup(vf table, vi at) { return VF(lookup_half(table, at.a), lookup_half(table, at.b)); }

/* table[low two bits of the lane of at], for a table that repeats every four lanes */
static INLINE vf vf_lookup4(vf table, vi at) { return VF(_mm256_permutevar_ps(table.a, at.a), _mm256_permutevar_ps(table.b, at.b)); }

static INLINE float vf_least(vf x) /* no NaN */
{
    __m256 m = _mm256_min_ps(x.a, x.b);
    __m128 q = _mm_min_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    q = _mm_min_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_min_ss(q, _mm_movehdup_ps(q)));
}
static INLINE int32_t vi_least(vi x)
{
    __m256i m = _mm256_min_epi32(x.a, x.b);
    __m128i q = _mm_min_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    q = _mm_min_epi32(q, _mm_shuffle_epi32(q, 0x4E));
    return _mm_cvtsi128_si32(_mm_min_epi32(q, _mm_shuffle_epi32(q, 0xB1)));
}

/* (bits & mask) | set */
static INLINE vi vi_and_or(vi bits, vi mask, vi set) { return vi_or(vi_and(bits, mask), set); }

#endif
