/* Rows of numbers <-> rows of blocks. Row layouts: quant/blocks.h; ids and geometry: quant/type.h.

   Types: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ2_XXS, IQ2_S, IQ4_NL, IQ4_XS,
   MXFP4, NVFP4, Q4_64A, Q2_64A, and the activation blocks Q8_1 and Q8_K. Other ids: SKUA_EUNSUPPORTED.
   n is the number of elements of a row, n >= 0 and a multiple of the type's block, else SKUA_EARG. Input and output must
   not overlap; no pointer needs an alignment except x, out and imatrix as float arrays.
   All functions are pure, thread-safe, and give the same bits on every machine and compiler (no contraction). */
#ifndef SKUA_QUANT_QUANT_H
#define SKUA_QUANT_QUANT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "quant/type.h"

/* Is `type` a weight type that dequant_row expands? (False for Q8_1 and Q8_K, which dequant_row knows, but which are no
   types of weights.) */
bool dequant_supported(uint32_t type);

/* out[0..n-1] = the values of the row. Any bytes are decoded without undefined behaviour; infinite and NaN scales give
   what IEEE arithmetic gives. 0, SKUA_EUNSUPPORTED or SKUA_EARG. */
int dequant_row(uint32_t type, const void *row, float *out, int64_t n);

/* Encode x[0..n-1] with the reference quantizer of the type, in plain C, into out (qtype_row_bytes(type, n) bytes).
   imatrix: NULL, or n importance weights (mean squared activation per column, >= 0). IQ2_XXS requires it; F32, F16, BF16,
   Q8_0, Q8_1, Q8_K, MXFP4, NVFP4 and the affine types ignore its values. A block whose weights are all zero loses its
   content: callers floor the weights first.
   SKUA_EARG, with the index in the message, when x or imatrix holds a NaN or infinity or imatrix a negative value, and
   when the values are too large for the format (a scale overflowed); out is then unspecified. NVFP4 saturates at 2688,
   as the format has no factor per row; scale the tensor first. */
int quantize_row(uint32_t type, const float *x, void *out, int64_t n, const float *imatrix, skua_error *err);

/* The same quantizers in vector code: a tier is a set for one instruction set, "scalar" the reference itself. All tiers give
   the same bytes and the same errors as quantize_row; only the speed differs (bench/quantize.c). Rows of 4096 elements and
   more fill the vectors; from 1024 on little is lost. */
struct quant_tier;

/* The best tier of this machine (NULL), or the one that a kernel tier's name (kern/kern.h: "scalar", "avx2", ...) stands for.
   NULL: this machine or this build does not have it. */
const struct quant_tier *quant_select(const char *name);

/* The tiers of this machine, best first, and NULL. */
const struct quant_tier *const *quant_tiers(void);
const char *quant_tier_name(const struct quant_tier *tier);

/* quantize_row by a tier. */
int quantize_row_by(const struct quant_tier *tier, uint32_t type, const float *x, void *out, int64_t n, const float *imatrix,
                    skua_error *err);

/* Q4_64A and Q2_64A with scale and bias from a search for the least square error, weighted by imatrix where it is given, instead
   of from the extreme values: never worse than quantize_row in each block by that measure, with the same bytes to store, but some
   hundred times slower. Never what quantize_row does. Errors as there; other types: SKUA_EUNSUPPORTED. */
int quantize_row_fitted(uint32_t type, const float *x, void *out, int64_t n, const float *imatrix, skua_error *err);

/* Are all scales of the row usable: every f16, bf16 and f32 scale finite, no E8M0 byte 255, no E4M3 byte 127 or 255 (for F32, F16 and
   BF16: every element finite)? 0, or SKUA_EFORMAT with the element range of the first bad block in the message, or as dequant_row. */
int quant_row_check(uint32_t type, const void *row, int64_t n, skua_error *err);

#endif
