/* v16, the sixteen float lanes of kern/kern.h's canonical arithmetic, as one AVX-512 register. For files compiled with
 * AVX-512 F, BW, VL and DQ only. The set of functions is the same in v16_avx2.h and v16_neon.h; what they mean is described
 * here once. Pointers need no alignment beyond that of their type.
 */
#ifndef SKUA_KERN_CPU_V16_AVX512_H
#define SKUA_KERN_CPU_V16_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef __m512 v16;

/* How many v16 a kernel may hold as accumulators without running out of registers. */
#define V16_TILE_HEADS 4
#define V16_TILE_POSITIONS 4
#define V16_TILE_COLUMNS 4

static inline v16 v16_set1(float x) { return _mm512_set1_ps(x); }
static inline v16 v16_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v16_store(float *p, v16 a) { _mm512_storeu_ps(p, a); }

static inline __mmask16 v16_first(int n) { return (__mmask16)((1u << n) - 1); }

/* Lanes 0 .. n-1 only, 0 <= n < 16: the others are zero, or not written. */
static inline v16 v16_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(v16_first(n), p); }
static inline void v16_store_n(float *p, v16 a, int n) { _mm512_mask_storeu_ps(p, v16_first(n), a); }

static inline v16 v16_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
static inline v16 v16_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
static inline v16 v16_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
static inline v16 v16_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
static inline v16 v16_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); } /* a * b + c */
static inline v16 v16_neg(v16 a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
static inline v16 v16_abs(v16 a) { return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a); }
static inline v16 v16_rint(v16 a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

/* a > b ? a : b, and a < b ? a : b: b when one is NaN. */
static inline v16 v16_max(v16 a, v16 b) { return _mm512_max_ps(a, b); }
static inline v16 v16_min(v16 a, v16 b) { return _mm512_min_ps(a, b); }

/* x > limit ? yes : no, and x < limit ? yes : no, and x is NaN ? yes : no */
static inline v16 v16_if_gt(v16 x, v16 limit, v16 yes, v16 no)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, limit, _CMP_GT_OQ), no, yes);
}
static inline v16 v16_if_lt(v16 x, v16 limit, v16 yes, v16 no)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, limit, _CMP_LT_OQ), no, yes);
}
static inline v16 v16_if_nan(v16 x, v16 yes, v16 no)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), no, yes);
}
static inline bool v16_any_nan(v16 x) { return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q) != 0; }

/* p * 2^n for integral n = -150 .. 128 and 0.5 < p < 2, rounded once (kern_expf's two steps: the first is exact). */
static inline v16 v16_scale2(v16 p, v16 n) { return _mm512_scalef_ps(p, n); }

/* The sum in the canonical order: lanes l and l + 8, then 4, 2, 1 apart. */
static inline __m128 v16_fold4(v16 a)
{
    const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}
static inline float v16_reduce(v16 a)
{
    const __m128 x = v16_fold4(a), y = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
/* out[i] = scale * v16_reduce(a[i]) */
static inline void v16_reduce4(const v16 a[4], float scale, float out[4])
{
    const __m128 w = v16_fold4(a[0]), x = v16_fold4(a[1]), y = v16_fold4(a[2]), z = v16_fold4(a[3]);
    const __m128 wx = _mm_add_ps(_mm_movelh_ps(w, x), _mm_movehl_ps(x, w));
    const __m128 yz = _mm_add_ps(_mm_movelh_ps(y, z), _mm_movehl_ps(z, y));
    const __m128 sum = _mm_add_ps(_mm_shuffle_ps(wx, yz, 0x88), _mm_shuffle_ps(wx, yz, 0xDD));
    _mm_storeu_ps(out, _mm_mul_ps(sum, _mm_set1_ps(scale)));
}
/* out[h * stride + i] = scale * v16_reduce(a[h][i]): sixteen sums at once, each step adding halves of two registers. Only here, where
   tiles are that large. */
static inline void v16_reduce4x4(const v16 a[4][4], float scale, float *out, size_t stride)
{
    v16 s[4];
    for (int i = 0; i < 4; i++) {
        const v16 x = a[0][i], y = a[1][i], z = a[2][i], w = a[3][i];
        const v16 xy = _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xEE));
        const v16 zw = _mm512_add_ps(_mm512_shuffle_f32x4(z, w, 0x44), _mm512_shuffle_f32x4(z, w, 0xEE));
        s[i] = _mm512_add_ps(_mm512_shuffle_f32x4(xy, zw, 0x88), _mm512_shuffle_f32x4(xy, zw, 0xDD)); /* four lanes of each h */
    }
    const v16 s01 = _mm512_add_ps(_mm512_shuffle_ps(s[0], s[1], 0x44), _mm512_shuffle_ps(s[0], s[1], 0xEE));
    const v16 s23 = _mm512_add_ps(_mm512_shuffle_ps(s[2], s[3], 0x44), _mm512_shuffle_ps(s[2], s[3], 0xEE));
    const v16 sum = _mm512_add_ps(_mm512_shuffle_ps(s01, s23, 0x88), _mm512_shuffle_ps(s01, s23, 0xDD));
    const v16 scaled = _mm512_mul_ps(sum, _mm512_set1_ps(scale));
    _mm_storeu_ps(out, _mm512_castps512_ps128(scaled));
    _mm_storeu_ps(out + stride, _mm512_extractf32x4_ps(scaled, 1));
    _mm_storeu_ps(out + 2 * stride, _mm512_extractf32x4_ps(scaled, 2));
    _mm_storeu_ps(out + 3 * stride, _mm512_extractf32x4_ps(scaled, 3));
}
static inline float v16_reduce_max(v16 a) { return _mm512_reduce_max_ps(a); } /* no NaN among the lanes */

/* Sixteen values widened. */
static inline v16 v16_load_f16(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256(p)); }
static inline v16 v16_load_bf16(const void *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}
static inline v16 v16_load_i8(const void *p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p))); }

/* Sixteen values rounded to nearest even; no lane may be NaN. v16_store_i8: integral lanes within -128 .. 127. */
static inline void v16_store_f16(void *p, v16 a) { _mm256_storeu_si256(p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT)); }
static inline void v16_store_bf16(void *p, v16 a)
{
    const __m512i bits = _mm512_castps_si512(a);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    _mm256_storeu_si256(p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(sum, 16)));
}
static inline void v16_store_i8(void *p, v16 a) { _mm_storeu_si128(p, _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(a))); }

/* out[j] lane c = p[4 * c + j] */
static inline void v16_load_transpose4(const float *p, v16 out[4])
{
    const __m512i taps01 = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    const __m512i taps23 = _mm512_add_epi32(taps01, _mm512_set1_epi32(2));
    const v16 a = v16_load(p), b = v16_load(p + 16), c = v16_load(p + 32), d = v16_load(p + 48);
    const v16 ab01 = _mm512_permutex2var_ps(a, taps01, b), cd01 = _mm512_permutex2var_ps(c, taps01, d);
    const v16 ab23 = _mm512_permutex2var_ps(a, taps23, b), cd23 = _mm512_permutex2var_ps(c, taps23, d);
    out[0] = _mm512_shuffle_f32x4(ab01, cd01, 0x44);
    out[1] = _mm512_shuffle_f32x4(ab01, cd01, 0xEE);
    out[2] = _mm512_shuffle_f32x4(ab23, cd23, 0x44);
    out[3] = _mm512_shuffle_f32x4(ab23, cd23, 0xEE);
}

#endif
