/* The small vector vocabulary of mm_quant.h and mm_float.h in AVX-512 F, BW, VL and DQ: one vector is 16 lanes of 32 bits.
   Included only by files that are compiled for these instruction sets. */
#ifndef SKUA_KERN_CPU_VEC_AVX512_H
#define SKUA_KERN_CPU_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#include "kern/cpu/vec.h"

#define LANES 16
#define V_TILES /* this tier has a tiled layout (kern/tile.h): the transposition below is half of what unpacking costs */
typedef __m512i vi;
typedef __m512 vf;

static INLINE vi v_load(const void *p) { return _mm512_loadu_si512(p); }
static INLINE void v_store(void *p, vi a) { _mm512_storeu_si512(p, a); }
static INLINE vi v_zero(void) { return _mm512_setzero_si512(); }
static INLINE vi v_set(int32_t x) { return _mm512_set1_epi32(x); }
static INLINE vi v_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
static INLINE vi v_mul(vi a, vi b) { return _mm512_mullo_epi32(a, b); } /* low halves */
static INLINE vi v_and(vi a, vi b) { return _mm512_and_si512(a, b); }
static INLINE vi v_or(vi a, vi b) { return _mm512_or_si512(a, b); }
static INLINE vi v_xor(vi a, vi b) { return _mm512_xor_si512(a, b); }
static INLINE vi v_sub(vi a, vi b) { return _mm512_sub_epi32(a, b); }
static INLINE vi v_sll(vi a, int n) { return _mm512_slli_epi32(a, (unsigned)n); }
static INLINE vi v_srl(vi a, int n) { return _mm512_srli_epi32(a, (unsigned)n); }
static INLINE vi v_sra(vi a, int n) { return _mm512_srai_epi32(a, (unsigned)n); }
/* Accumulator of products of 16-bit pairs: lane i of dot_add is a + w.lo16 * x.lo16 + w.hi16 * x.hi16, signed. */
typedef vi dot_acc;
static INLINE dot_acc dot_zero(void) { return v_zero(); }
static INLINE vi dot_sum(dot_acc a) { return a; }
static INLINE dot_acc dot_add(dot_acc a, vi w, vi x)
{
#if defined(__AVX512VNNI__)
    return _mm512_dpwssd_epi32(a, w, x);
#else
    return _mm512_add_epi32(a, _mm512_madd_epi16(w, x));
#endif
}
/* The same of four bytes a lane: w unsigned and at most 127, x signed and at least -127. */
typedef vi dot4_acc;
static INLINE dot4_acc dot4_zero(void) { return v_zero(); }
static INLINE vi dot4_sum(dot4_acc a) { return a; }
static INLINE dot4_acc dot4_add(dot4_acc a, vi w, vi x)
{
#if defined(__AVX512VNNI__)
    return _mm512_dpbusd_epi32(a, w, x);
#else
    return _mm512_add_epi32(a, _mm512_madd_epi16(_mm512_maddubs_epi16(w, x), _mm512_set1_epi16(1))); /* 2 * 127 * 127 fits 16 bits */
#endif
}
static INLINE vi v_mul16(vi a, vi b) { return _mm512_mullo_epi16(a, b); } /* 16-bit lanes, low halves */
static INLINE vi v_sub16(vi a, vi b) { return _mm512_sub_epi16(a, b); }
static INLINE vi v_srl16(vi a, int n) { return _mm512_srli_epi16(a, (unsigned)n); }
static INLINE vi v_sll16(vi a, int n) { return _mm512_slli_epi16(a, (unsigned)n); }

/* The four bytes of every lane as two lanes of 16-bit pairs, (0, 1) and (2, 3); zero or sign extended. */
static INLINE void v_widen(vi a, vi pair[2])
{
    pair[0] = _mm512_shuffle_epi8(
        a, _mm512_broadcast_i32x4(_mm_set_epi8(-1, 13, -1, 12, -1, 9, -1, 8, -1, 5, -1, 4, -1, 1, -1, 0)));
    pair[1] = _mm512_shuffle_epi8(
        a, _mm512_broadcast_i32x4(_mm_set_epi8(-1, 15, -1, 14, -1, 11, -1, 10, -1, 7, -1, 6, -1, 3, -1, 2)));
}

static INLINE void v_widen_signed(vi a, vi pair[2])
{
    vi low = _mm512_shuffle_epi8(
        a, _mm512_broadcast_i32x4(_mm_set_epi8(13, -1, 12, -1, 9, -1, 8, -1, 5, -1, 4, -1, 1, -1, 0, -1)));
    vi high = _mm512_shuffle_epi8(
        a, _mm512_broadcast_i32x4(_mm_set_epi8(15, -1, 14, -1, 11, -1, 10, -1, 7, -1, 6, -1, 3, -1, 2, -1)));
    pair[0] = _mm512_srai_epi16(low, 8);
    pair[1] = _mm512_srai_epi16(high, 8);
}

/* Byte i of every lane as a 16-bit integer in both halves of the lane; zero or sign extended. */
static INLINE vi v_byte_twice(vi a, int i)
{
    const vi at = _mm512_set1_epi32((int32_t)(0x80008000u | 0x00010001u * (unsigned)i));
    return _mm512_shuffle_epi8(a,
                               _mm512_add_epi8(at, _mm512_broadcast_i32x4(_mm_set_epi8(0, 12, 0, 12, 0, 8, 0, 8, 0, 4, 0, 4, 0, 0, 0, 0))));
}

static INLINE vi v_byte_twice_signed(vi a, int i)
{
    const vi at = _mm512_set1_epi32((int32_t)(0x00800080u | 0x01000100u * (unsigned)i));
    const vi lane = _mm512_broadcast_i32x4(_mm_set_epi8(12, 0, 12, 0, 8, 0, 8, 0, 4, 0, 4, 0, 0, 0, 0, 0));
    return _mm512_srai_epi16(_mm512_shuffle_epi8(a, _mm512_add_epi8(at, lane)), 8);
}

/* Every byte (0 to 15) replaced by the entry of a table. */
static INLINE vi v_lookup(const int8_t table[16], vi index)
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const void *)table)), index);
}

/* table[index] of every lane, read in pairs of entries; see vec_avx2.h. */
static INLINE vi v_gather16(const uint16_t *table, vi index)
{
    vi pair = _mm512_i32gather_epi32(_mm512_srli_epi32(index, 1), (const void *)table, 4);
    vi shift = _mm512_slli_epi32(_mm512_and_si512(index, v_set(1)), 4);
    return _mm512_and_si512(_mm512_srlv_epi32(pair, shift), v_set(0xFFFF));
}

/* Lanes that equal x become 0. */
static INLINE vi v_clear_equal(vi a, int32_t x) { return _mm512_maskz_mov_epi32(_mm512_cmpneq_epi32_mask(a, v_set(x)), a); }

static INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static INLINE void vf_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
static INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
static INLINE vf vf_set(float x) { return _mm512_set1_ps(x); }
static INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }   /* a * b + c */
static INLINE vf vf_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); } /* -(a * b) + c */
static INLINE vf vf_from_int(vi a) { return _mm512_cvtepi32_ps(a); }
static INLINE vf vf_from_bits(vi a) { return _mm512_castsi512_ps(a); }

/* The f16 in the low half of every lane. */
static INLINE vf vf_from_low_f16(vi a) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)); }

static INLINE vf vf_load_f16(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256(p)); }
static INLINE vf vf_load_bf16(const void *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}

/* Sixteen bytes of LANES rows that are `stride` bytes apart, transposed: lane i of out[c] is the c-th 32-bit word of row i. */
static INLINE void v_transpose(const uint8_t *first, size_t stride, vi out[4])
{
    vi z[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        z[i] = _mm512_castsi128_si512(_mm_loadu_si128((const void *)(first + (size_t)i * stride)));
        z[i] = _mm512_inserti32x4(z[i], _mm_loadu_si128((const void *)(first + 4 * stride + (size_t)i * stride)), 1);
        z[i] = _mm512_inserti32x4(z[i], _mm_loadu_si128((const void *)(first + 8 * stride + (size_t)i * stride)), 2);
        z[i] = _mm512_inserti32x4(z[i], _mm_loadu_si128((const void *)(first + 12 * stride + (size_t)i * stride)), 3);
    }
    vi a = _mm512_unpacklo_epi32(z[0], z[1]), b = _mm512_unpacklo_epi32(z[2], z[3]);
    vi c = _mm512_unpackhi_epi32(z[0], z[1]), d = _mm512_unpackhi_epi32(z[2], z[3]);
    out[0] = _mm512_unpacklo_epi64(a, b);
    out[1] = _mm512_unpackhi_epi64(a, b);
    out[2] = _mm512_unpacklo_epi64(c, d);
    out[3] = _mm512_unpackhi_epi64(c, d);
}

/* Sixteen lanes: acc[l] += acc[l + s] for s = 8, 4, 2, 1; the result is acc[0]. */
static INLINE float vf_reduce16(const vf acc[16 / LANES])
{
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(acc[0]), _mm512_extractf32x8_ps(acc[0], 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#endif
