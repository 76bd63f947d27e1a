/* The tables of the CPU tiers, and the choice of one. A tier uses the functions of its own instruction set where they exist
 * and those of a lower tier elsewhere: avx512vnni -> avx512 -> avx2 -> scalar, avxvnni -> avx2, i8mm -> dotprod -> neon -> scalar.
 * All give the same bits.
 */
#include <pthread.h>
#include <string.h>

#include "base/cpu.h"
#include "kern/argmax.h"
#include "kern/cpu/kern_tiers.h"
#include "kern/ref/kern_ref.h"

#define CPU_NEED_AVX2 (CPU_AVX2 | CPU_FMA | CPU_F16C | CPU_BMI2)
#define CPU_NEED_AVX512 (CPU_NEED_AVX2 | CPU_AVX512F | CPU_AVX512BW | CPU_AVX512VL | CPU_AVX512DQ)

/* A tier's table: `isa` for the ops with vector code, `mm` for the matrix products. Ops that only move data, and those whose
   arithmetic is in double, have one version. */
#define TIER_TABLE(tier, isa, mm, tile) \
    static void argmax_##tier(const struct op_argmax *op, const struct kern_batch *batch, int64_t begin, int64_t end) \
    { \
        kern_argmax_with(kern_matmul_##mm, op, batch, begin, end); \
    } \
    static void topk_##tier(const struct op_topk *op, const struct kern_batch *batch, int64_t begin, int64_t end) \
    { \
        kern_topk_with(kern_matmul_##mm, op, batch, begin, end); \
    } \
    static const struct kern_table table_##tier = { \
        .name = #tier, .tile_rows = tile, .read_memory = kern_read_memory_##isa, \
        .embed = kern_embed_scalar, .get_rows = kern_get_rows_scalar, .rms_norm = kern_rms_norm_##isa, \
        .quant_act = kern_quant_act_scalar, .matmul = kern_matmul_##mm, .moe_matmul = kern_moe_matmul_##mm, \
        .argmax = argmax_##tier, .argmax_merge = kern_argmax_merge_scalar, \
        .topk = topk_##tier, .topk_merge = kern_topk_merge_scalar, .block_conv = kern_block_conv_scalar, \
        .router = kern_router_##isa, .moe_group = kern_moe_group_scalar, .moe_combine = kern_moe_combine_##isa, \
        .swiglu = kern_swiglu_##isa, .rope_table = kern_rope_table_scalar, .attn_q = kern_attn_q_##isa, \
        .attn_kv = kern_attn_kv_##isa, .attn = kern_attn_##isa, .attn_pages = kern_attn_pages_##isa, \
        .attn_merge = kern_attn_merge_##isa, .gdn_conv = kern_gdn_conv_##isa, .gdn_qk = kern_gdn_qk_##isa, \
        .gdn_gates = kern_gdn_gates_scalar, .gdn_step = kern_gdn_step_##isa, .gdn_out = kern_gdn_out_##isa, \
        .gdn_commit = kern_gdn_commit_##isa, .gdn_conv_commit = kern_gdn_conv_commit_scalar, \
    };

#if defined(__x86_64__)
TIER_TABLE(avx2, avx2, avx2, 0)
TIER_TABLE(avxvnni, avx2, avxvnni, 0)
TIER_TABLE(avx512, avx512, avx512, 16)
TIER_TABLE(avx512vnni, avx512, avx512vnni, 16)
#elif defined(__aarch64__)
TIER_TABLE(neon, neon, neon, 0)
TIER_TABLE(dotprod, neon, dotprod, 0)
TIER_TABLE(i8mm, neon, i8mm, 0)
#endif

/* Best first. */
static const struct {
    const struct kern_table *table;
    uint32_t need; /* CPU_... flags */
} tiers[] = {
#if defined(__x86_64__)
    {&table_avx512vnni, CPU_NEED_AVX512 | CPU_AVX512VNNI},
    {&table_avx512, CPU_NEED_AVX512},
    {&table_avxvnni, CPU_NEED_AVX2 | CPU_AVXVNNI},
    {&table_avx2, CPU_NEED_AVX2},
#elif defined(__aarch64__)
    {&table_i8mm, CPU_NEON | CPU_DOTPROD | CPU_I8MM},
    {&table_dotprod, CPU_NEON | CPU_DOTPROD},
    {&table_neon, CPU_NEON},
#endif
    {&kern_scalar, 0},
};

#define N_TIERS (sizeof tiers / sizeof tiers[0])

const struct kern_table *kern_select(const char *tier)
{
    const uint32_t have = cpu_flags();
    for (size_t i = 0; i < N_TIERS; i++)
        if ((tiers[i].need & ~have) == 0 && (!tier || strcmp(tier, tiers[i].table->name) == 0))
            return tiers[i].table;
    return NULL;
}

static const char *names[N_TIERS + 1]; /* NULL behind the last */

static void list_names(void)
{
    const uint32_t have = cpu_flags();
    size_t n = 0;
    for (size_t i = 0; i < N_TIERS; i++)
        if ((tiers[i].need & ~have) == 0)
            names[n++] = tiers[i].table->name;
}

const char *const *kern_tiers(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, list_names);
    return names;
}
