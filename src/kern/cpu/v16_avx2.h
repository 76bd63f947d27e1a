/* v16, the sixteen float lanes of kern/kern.h's canonical arithmetic, as two AVX registers: lo lanes 0-7, hi lanes 8-15.
 * For files compiled with AVX2, FMA and F16C only. What the functions mean: v16_avx512.h.
 */
#ifndef SKUA_KERN_CPU_V16_AVX2_H
#define SKUA_KERN_CPU_V16_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    __m256 lo, hi;
} v16;

#define V16_TILE_HEADS 2
#define V16_TILE_POSITIONS 2
#define V16_TILE_COLUMNS 2

#define V16(lo, hi) ((v16){lo, hi})

static inline v16 v16_set1(float x) { return V16(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
static inline v16 v16_load(const float *p) { return V16(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)); }
static inline void v16_store(float *p, v16 a)
{
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}

/* All ones in the lanes first .. first + 7 that are below n. */
static inline __m256i v16_first(int n, int first)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n - first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline v16 v16_load_n(const float *p, int n)
{
    return V16(_mm256_maskload_ps(p, v16_first(n, 0)), n > 8 ? _mm256_maskload_ps(p + 8, v16_first(n, 8)) : _mm256_setzero_ps());
}
static inline void v16_store_n(float *p, v16 a, int n)
{
    _mm256_maskstore_ps(p, v16_first(n, 0), a.lo);
    if (n > 8)
        _mm256_maskstore_ps(p + 8, v16_first(n, 8), a.hi);
}

#define V16_MAP2(f, a, b) V16(f((a).lo, (b).lo), f((a).hi, (b).hi))
static inline v16 v16_add(v16 a, v16 b) { return V16_MAP2(_mm256_add_ps, a, b); }
static inline v16 v16_sub(v16 a, v16 b) { return V16_MAP2(_mm256_sub_ps, a, b); }
static inline v16 v16_mul(v16 a, v16 b) { return V16_MAP2(_mm256_mul_ps, a, b); }
static inline v16 v16_div(v16 a, v16 b) { return V16_MAP2(_mm256_div_ps, a, b); }
static inline v16 v16_max(v16 a, v16 b) { return V16_MAP2(_mm256_max_ps, a, b); }
static inline v16 v16_min(v16 a, v16 b) { return V16_MAP2(_mm256_min_ps, a, b); }
static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
    return V16(_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi));
}
static inline v16 v16_neg(v16 a) { return V16_MAP2(_mm256_xor_ps, a, v16_set1(-0.0f)); }
static inline v16 v16_abs(v16 a) { return V16_MAP2(_mm256_andnot_ps, v16_set1(-0.0f), a); }
static inline v16 v16_rint(v16 a)
{
    return V16(_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
               _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline v16 v16_if_gt(v16 x, v16 limit, v16 yes, v16 no)
{
    return V16(_mm256_blendv_ps(no.lo, yes.lo, _mm256_cmp_ps(x.lo, limit.lo, _CMP_GT_OQ)),
               _mm256_blendv_ps(no.hi, yes.hi, _mm256_cmp_ps(x.hi, limit.hi, _CMP_GT_OQ)));
}
static inline v16 v16_if_lt(v16 x, v16 limit, v16 yes, v16 no) { return v16_if_gt(limit, x, yes, no); }
static inline v16 v16_if_nan(v16 x, v16 yes, v16 no)
{
    return V16(_mm256_blendv_ps(no.lo, yes.lo, _mm256_cmp_ps(x.lo, x.lo, _CMP_UNORD_Q)),
               _mm256_blendv_ps(no.hi, yes.hi, _mm256_cmp_ps(x.hi, x.hi, _CMP_UNORD_Q)));
}
static inline bool v16_any_nan(v16 x)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(x.lo, x.lo, _CMP_UNORD_Q)) != 0 ||
           _mm256_movemask_ps(_mm256_cmp_ps(x.hi, x.hi, _CMP_UNORD_Q)) != 0;
}

static inline __m256 v16_scale2_half(__m256 p, __m256 n)
{
    const __m256i i = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(i, 1), rest = _mm256_sub_epi32(i, half);
    const __m256i bias = _mm256_set1_epi32(127);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
}
static inline v16 v16_scale2(v16 p, v16 n) { return V16_MAP2(v16_scale2_half, p, n); }

static inline __m128 v16_fold4(v16 a)
{
    const __m256 h = _mm256_add_ps(a.lo, a.hi);
    return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}
static inline float v16_reduce(v16 a)
{
    const __m128 x = v16_fold4(a), y = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
static inline void v16_reduce4(const v16 a[4], float scale, float out[4])
{
    const __m128 w = v16_fold4(a[0]), x = v16_fold4(a[1]), y = v16_fold4(a[2]), z = v16_fold4(a[3]);
    const __m128 wx = _mm_add_ps(_mm_movelh_ps(w, x), _mm_movehl_ps(x, w));
    const __m128 yz = _mm_add_ps(_mm_movelh_ps(y, z), _mm_movehl_ps(z, y));
    const __m128 sum = _mm_add_ps(_mm_shuffle_ps(wx, yz, 0x88), _mm_shuffle_ps(wx, yz, 0xDD));
    _mm_storeu_ps(out, _mm_mul_ps(sum, _mm_set1_ps(scale)));
}
static inline float v16_reduce_max(v16 a)
{
    const __m256 h = _mm256_max_ps(a.lo, a.hi);
    const __m128 x = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    const __m128 y = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}

static inline v16 v16_load_f16(const void *p)
{
    const __m256i h = _mm256_loadu_si256(p);
    return V16(_mm256_cvtph_ps(_mm256_castsi256_si128(h)), _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1)));
}
static inline __m256 v16_bf16_half(__m128i h) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)); }
static inline v16 v16_load_bf16(const void *p)
{
    const __m256i h = _mm256_loadu_si256(p);
    return V16(v16_bf16_half(_mm256_castsi256_si128(h)), v16_bf16_half(_mm256_extracti128_si256(h, 1)));
}
static inline v16 v16_load_i8(const void *p)
{
    const __m128i b = _mm_loadu_si128(p);
    return V16(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b)), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(b, 8))));
}

static inline void v16_store_f16(void *p, v16 a)
{
    const __m128i lo = _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT), hi = _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256(p, _mm256_set_m128i(hi, lo));
}
static inline __m256i v16_round_bf16_half(__m256 a)
{
    const __m256i bits = _mm256_castps_si256(a);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);
}
static inline void v16_store_bf16(void *p, v16 a)
{
    const __m256i packed = _mm256_packus_epi32(v16_round_bf16_half(a.lo), v16_round_bf16_half(a.hi));
    _mm256_storeu_si256(p, _mm256_permute4x64_epi64(packed, 0xD8));
}
static inline void v16_store_i8(void *p, v16 a)
{
    const __m256i w = _mm256_packs_epi32(_mm256_cvttps_epi32(a.lo), _mm256_cvttps_epi32(a.hi)); /* 0-3 8-11 | 4-7 12-15 */
    const __m256i ordered = _mm256_permute4x64_epi64(w, 0xD8);
    _mm_storeu_si128(p, _mm_packs_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1)));
}

/* Eight groups of four values -> four vectors of eight. */
static inline void v16_transpose4_half(const float *p, __m256 out[4])
{
    const __m256 r0 = _mm256_loadu_ps(p), r1 = _mm256_loadu_ps(p + 8), r2 = _mm256_loadu_ps(p + 16), r3 = _mm256_loadu_ps(p + 24);
    const __m256 a = _mm256_permute2f128_ps(r0, r2, 0x20), b = _mm256_permute2f128_ps(r0, r2, 0x31);
    const __m256 c = _mm256_permute2f128_ps(r1, r3, 0x20), d = _mm256_permute2f128_ps(r1, r3, 0x31);
    const __m256 ab01 = _mm256_unpacklo_ps(a, b), ab23 = _mm256_unpackhi_ps(a, b);
    const __m256 cd01 = _mm256_unpacklo_ps(c, d), cd23 = _mm256_unpackhi_ps(c, d);
    out[0] = _mm256_shuffle_ps(ab01, cd01, 0x44);
    out[1] = _mm256_shuffle_ps(ab01, cd01, 0xEE);
    out[2] = _mm256_shuffle_ps(ab23, cd23, 0x44);
    out[3] = _mm256_shuffle_ps(ab23, cd23, 0xEE);
}
static inline void v16_load_transpose4(const float *p, v16 out[4])
{
    __m256 lo[4], hi[4];
    v16_transpose4_half(p, lo);
    v16_transpose4_half(p + 32, hi);
    for (int j = 0; j < 4; j++)
        out[j] = V16(lo[j], hi[j]);
}

#endif
