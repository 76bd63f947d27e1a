/* Exact scalar conversions between binary32 and the short number formats of weights: f16, bf16, E8M0 and UE4M3 scales.
   Everything is integer work plus at most one exact binary32 operation, so results do not depend on compiler, machine or
   flush-to-zero mode. Cheap enough for scalar inner loops: selects, no data-dependent branches on the way f16 -> f32. */
#ifndef SKUA_QUANT_HALF_H
#define SKUA_QUANT_HALF_H

#include <stdint.h>
#include <string.h>

static inline float f32_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t f32_to_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* IEEE binary16 -> binary32. Signed zeros and subnormals are exact; a NaN keeps sign and payload and becomes quiet. */
static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t magnitude = h & 0x7FFFu;
    /* Normal: shift the fields into place and rebias the exponent (127 - 15 = 112); infinity and NaN need another 112. */
    uint32_t normal = (magnitude << 13) + (112u << 23);
    normal += magnitude >= 0x7C00u ? 112u << 23 : 0;
    normal |= magnitude > 0x7C00u ? 0x00400000u : 0;
    /* Subnormal and zero: 0.5 has an ulp of 2^-24, so putting m into its mantissa adds m * 2^-24. */
    uint32_t small = f32_to_bits(f32_from_bits(0x3F000000u + magnitude) - 0.5f);
    return f32_from_bits(sign | (magnitude < 0x0400u ? small : normal));
}

/* binary32 -> IEEE binary16, nearest even: |x| >= 65520 gives infinity, |x| <= 2^-25 gives zero, subnormals are exactly
   rounded, any NaN becomes 0x7E00 with the sign of x. */
static inline uint16_t f32_to_f16(float x)
{
    uint32_t bits = f32_to_bits(x);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7FFFFFFFu;
    uint32_t half;
    if (magnitude >= 0x47800000u) /* 65536 and up, infinity, NaN */
        half = magnitude > 0x7F800000u ? 0x7E00u : 0x7C00u;
    else if (magnitude < 0x38800000u) /* below 2^-14: adding 0.5 rounds at 2^-24 */
        half = f32_to_bits(f32_from_bits(magnitude) + 0.5f) - 0x3F000000u;
    else
        half = (magnitude - (112u << 23) + 0x0FFFu + ((magnitude >> 13) & 1u)) >> 13;
    return (uint16_t)(sign | half);
}

static inline float bf16_to_f32(uint16_t h)
{
    return f32_from_bits((uint32_t)h << 16);
}

/* binary32 -> bf16, nearest even (large finite values may become infinity); a NaN keeps its upper half, made quiet. */
static inline uint16_t f32_to_bf16(float x)
{
    uint32_t bits = f32_to_bits(x);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

/* binary32 -> bf16 toward zero: what the 64-element affine types store. */
static inline uint16_t f32_to_bf16_trunc(float x)
{
    return (uint16_t)(f32_to_bits(x) >> 16);
}

/* Block scale of MXFP4 for value tables that are stored doubled: 2^(e - 128), subnormal for e = 0 and 1.
   e = 255 is NaN by the OCP rule and invalid in a file (quant_row_check refuses it); here it follows the formula. */
static inline float e8m0_half_to_f32(uint8_t e)
{
    return f32_from_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

/* Group scale of NVFP4 for doubled value tables: half of the unsigned E4M3 value. 0x00 and 0x7F mean 0; bit 7 is ignored
   otherwise (so 0xFF is 240). */
static inline float ue4m3_half_to_f32(uint8_t b)
{
    uint32_t code = b & 0x7Fu;
    float small = (float)code * 0x1p-10f;                      /* exponent field 0: code / 512 / 2 */
    float normal = f32_from_bits((code << 20) + (119u << 23)); /* rebias 7 -> 127, one less for the half */
    float value = code < 8 ? small : normal;
    return b == 0x7Fu ? 0.0f : value;
}

/* binary32 -> unsigned E4M3 (the full value, not the half): half up, zero for x <= 0 and NaN, saturating to 448 = 0x7E.
   Whatever reaches the exponent of 448 becomes 0x7E, so 0x78..0x7D are never produced, nor anything above 0x7E. */
static inline uint8_t f32_to_ue4m3(float x)
{
    if (!(x > 0.0f))
        return 0;
    uint32_t bits = f32_to_bits(x > 448.0f ? 448.0f : x);
    int exponent = (int)(bits >> 23) - 120;
    if (exponent <= 0) {
        int v = (int)(x * 512.0f + 0.5f);
        return (uint8_t)(v > 7 ? 7 : v);
    }
    uint32_t mantissa = ((bits >> 20) & 7u) + ((bits >> 19) & 1u);
    if (mantissa == 8) {
        mantissa = 0;
        exponent++;
    }
    return exponent >= 15 ? 0x7E : (uint8_t)((uint32_t)exponent << 3 | mantissa);
}

#endif
