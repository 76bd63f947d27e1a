/* Inside src/quant: the functions behind quant.h, one pair per type, over whole blocks (arguments are checked in quant.c). */
#ifndef SKUA_QUANT_CODEC_H
#define SKUA_QUANT_CODEC_H

#include <stdint.h>

typedef void dequant_fn(const void *row, float *out, int64_t blocks);
/* imp: importance weights of the row or NULL; always present for IQ2_XXS. */
typedef void quantize_fn(const float *x, void *out, int64_t blocks, const float *imp);

dequant_fn dequant_f32, dequant_f16, dequant_bf16;
dequant_fn dequant_q4_0, dequant_q4_1, dequant_q5_0, dequant_q5_1, dequant_q8_0, dequant_q8_1, dequant_q8_k;
dequant_fn dequant_mxfp4, dequant_nvfp4, dequant_q4_64a, dequant_q2_64a;
dequant_fn dequant_q2_k, dequant_q3_k, dequant_q4_k, dequant_q5_k, dequant_q6_k;
dequant_fn dequant_iq4_nl, dequant_iq4_xs, dequant_iq2_xxs, dequant_iq2_s;

quantize_fn quantize_f32, quantize_f16, quantize_bf16;
quantize_fn quantize_q4_0, quantize_q4_1, quantize_q5_0, quantize_q5_1, quantize_q8_0, quantize_q8_1, quantize_q8_k;
quantize_fn quantize_mxfp4, quantize_nvfp4, quantize_q4_64a, quantize_q2_64a;
quantize_fn quantize_q4_64a_fitted, quantize_q2_64a_fitted;
quantize_fn quantize_q2_k, quantize_q3_k, quantize_q4_k, quantize_q5_k, quantize_q6_k;
quantize_fn quantize_iq4_nl, quantize_iq4_xs, quantize_iq2_xxs, quantize_iq2_s;

#endif
