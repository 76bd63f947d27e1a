/* The weight types that have kernels, the names of the kernels, and the file of kernels each belongs to: mm_float.h (F32, F16,
 * BF16), mm_k4.h (Q4_K), mm_b32.h (blocks of 32 values), mm_b16.h (16), mm_affine.h (32 or 64 with an offset), mm_k.h (256 with scaled
 * sub-blocks), mm_iq.h (256, codebooks). Each of these has one small source file per instruction set, mm_<file>_<isa>.c, which defines
 * MM_ISA and the sizes of its tiles.
 */
#ifndef SKUA_KERN_CPU_MM_TYPES_H
#define SKUA_KERN_CPU_MM_TYPES_H

#include "kern/mm.h"
#include "quant/type.h"

#define MM_FLOAT_TYPES(X) X(F32, f32) X(F16, f16) X(BF16, bf16)
#define MM_QUANT_TYPES(X) \
    X(Q8_0, q8_0) X(Q4_0, q4_0) X(Q5_0, q5_0) X(IQ4_NL, iq4_nl) X(MXFP4, mxfp4) X(NVFP4, nvfp4) \
    X(Q4_1, q4_1) X(Q5_1, q5_1) X(Q4_64A, q4_64a) X(Q2_64A, q2_64a) \
    X(Q2_K, q2_k) X(Q3_K, q3_k) X(Q5_K, q5_k) X(Q6_K, q6_k) \
    X(IQ4_XS, iq4_xs) X(IQ2_XXS, iq2_xxs) X(IQ2_S, iq2_s)
#define MM_BYTE_TYPES(X) X(Q4_K, q4_k) /* those that are multiplied with 8-bit activations */

#define MM_JOIN(name, isa) mm_##name##_##isa
#define MM_NAME_OF(name, isa) MM_JOIN(name, isa)
#define MM_NAME(name) MM_NAME_OF(name, MM_ISA)

/* A declaration does not mean that the kernel exists; which ones a tier uses is said by its MM_TIER (mm_tier.h). */
#define X(TYPE, name) mm_fn mm_##name##_avx2, mm_##name##_avx512, mm_##name##_avx512vnni, mm_##name##_neon;
MM_FLOAT_TYPES(X)
MM_QUANT_TYPES(X)
MM_BYTE_TYPES(X)
#undef X
#define X(TYPE, name) mm_fn mm_##name##_avxvnni, mm_##name##_dotprod, mm_##name##_i8mm;
MM_BYTE_TYPES(X)
#undef X

#endif
