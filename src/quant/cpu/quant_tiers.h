/* Inside src/quant: the vector versions of the quantizers, NAME_<isa>, and the tables that dispatch.c makes of them. */
#ifndef SKUA_QUANT_CPU_QUANT_TIERS_H
#define SKUA_QUANT_CPU_QUANT_TIERS_H

#include "quant/codec.h"
#include "quant/type.h"

struct quant_tier {
    const char *name;
    quantize_fn *quantize[QTYPE_END]; /* NULL: the reference's */
};

#define QUANT_DECLARE(isa) \
    quantize_fn quantize_q2_k_##isa, quantize_q3_k_##isa, quantize_q4_k_##isa, quantize_q5_k_##isa, quantize_q6_k_##isa; \
    quantize_fn quantize_q4_0_##isa, quantize_q4_1_##isa, quantize_q5_0_##isa, quantize_q5_1_##isa, quantize_q8_0_##isa; \
    quantize_fn quantize_mxfp4_##isa, quantize_nvfp4_##isa, quantize_q4_64a_##isa, quantize_q2_64a_##isa; \
    quantize_fn quantize_iq4_nl_##isa, quantize_iq4_xs_##isa, quantize_iq2_xxs_##isa, quantize_iq2_s_##isa;

extern const struct quant_tier quant_scalar;

QUANT_DECLARE(avx2)
QUANT_DECLARE(avx512)
QUANT_DECLARE(neon)

#endif
