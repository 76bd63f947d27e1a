/* The two entry points of a tier: kern_matmul_<tier> and kern_moe_matmul_<tier>, which use the kernels of the instruction set
   `byte_isa` for quantised weights that
   meet 8-bit activations, those of `isa` for the other quantised ones and those of `float_isa` for float weights. */
#ifndef SKUA_KERN_CPU_MM_TIER_H
#define SKUA_KERN_CPU_MM_TIER_H

#include "kern/cpu/kern_tiers.h"
#include "kern/cpu/mm_types.h"

/* NULL never reaches a caller: kern_act_kind() is -1 for other types, so no op list contains them. */
#define MM_TIER(tier, byte_isa, isa, float_isa) \
    static mm_fn *mm_for(uint32_t type) \
    { \
        switch (type) { \
            MM_FLOAT_TYPES(MM_CASE_##float_isa) \
            MM_QUANT_TYPES(MM_CASE_##isa) \
            MM_BYTE_TYPES(MM_CASE_##byte_isa) \
        default: return NULL; \
        } \
    } \
    void kern_matmul_##tier(const struct op_matmul *op, const struct kern_batch *batch, int64_t begin, int64_t end) \
    { \
        (void)batch; \
        mm_run(op, begin, end, mm_for(op->w.type)); \
    } \
    void kern_moe_matmul_##tier(const struct op_moe_matmul *op, const struct kern_batch *batch, int64_t begin, int64_t end) \
    { \
        (void)batch; \
        mm_run_moe(op, begin, end, mm_for(op->w.type)); \
    }

#define MM_CASE_avx2(TYPE, name) case QTYPE_##TYPE: return mm_##name##_avx2;
#define MM_CASE_avxvnni(TYPE, name) case QTYPE_##TYPE: return mm_##name##_avxvnni;
#define MM_CASE_avx512(TYPE, name) case QTYPE_##TYPE: return mm_##name##_avx512;
#define MM_CASE_avx512vnni(TYPE, name) case QTYPE_##TYPE: return mm_##name##_avx512vnni;
#define MM_CASE_neon(TYPE, name) case QTYPE_##TYPE: return mm_##name##_neon;
#define MM_CASE_dotprod(TYPE, name) case QTYPE_##TYPE: return mm_##name##_dotprod;
#define MM_CASE_i8mm(TYPE, name) case QTYPE_##TYPE: return mm_##name##_i8mm;

#endif
