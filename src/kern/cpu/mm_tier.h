/* The two entry points of a tier over the kernels of mm_quant.h and mm_float.h; `tier` is the suffix of their names. */
#ifndef SKUA_KERN_CPU_MM_TIER_H
#define SKUA_KERN_CPU_MM_TIER_H

#include "kern/cpu/kern_tiers.h"
#include "kern/cpu/mm_float.h"
#include "kern/cpu/mm_quant.h"

static mm_fn *mm_for(uint32_t type)
{
    switch (type) {
    case QTYPE_F32:
        return mm_f32;
    case QTYPE_F16:
        return mm_f16;
    case QTYPE_BF16:
        return mm_bf16;
    case QTYPE_Q8_0:
        return mm_q8_0;
    case QTYPE_Q4_0:
        return mm_q4_0;
    case QTYPE_Q4_K:
        return mm_q4_k;
    case QTYPE_Q5_K:
        return mm_q5_k;
    case QTYPE_Q6_K:
        return mm_q6_k;
    default:
        return NULL; /* kern_act_kind() is -1 for these, so no op list contains them */
    }
}

#define MM_TIER(tier) \
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

#endif
