/* The tables of the quantizer tiers, and the choice of one. */
#include <pthread.h>
#include <string.h>

#include "base/cpu.h"
#include "quant/cpu/quant_tiers.h"
#include "quant/quant.h"

#define NEED_AVX2 CPU_AVX2
#define NEED_AVX512 (CPU_AVX2 | CPU_FMA | CPU_F16C | CPU_BMI2 | CPU_AVX512F | CPU_AVX512BW | CPU_AVX512VL | CPU_AVX512DQ)

#define TIER_TABLE(isa) \
    static const struct quant_tier quant_##isa = { \
        .name = #isa, \
        .quantize = { \
            [QTYPE_Q4_0] = quantize_q4_0_##isa, [QTYPE_Q4_1] = quantize_q4_1_##isa, [QTYPE_Q5_0] = quantize_q5_0_##isa, \
            [QTYPE_Q5_1] = quantize_q5_1_##isa, [QTYPE_Q8_0] = quantize_q8_0_##isa, [QTYPE_Q2_K] = quantize_q2_k_##isa, \
            [QTYPE_Q3_K] = quantize_q3_k_##isa, [QTYPE_Q4_K] = quantize_q4_k_##isa, [QTYPE_Q5_K] = quantize_q5_k_##isa, \
            [QTYPE_Q6_K] = quantize_q6_k_##isa, [QTYPE_IQ4_NL] = quantize_iq4_nl_##isa, [QTYPE_IQ4_XS] = quantize_iq4_xs_##isa, \
            [QTYPE_MXFP4] = quantize_mxfp4_##isa, [QTYPE_NVFP4] = quantize_nvfp4_##isa, \
            [QTYPE_Q4_64A] = quantize_q4_64a_##isa, [QTYPE_Q2_64A] = quantize_q2_64a_##isa, \
            [QTYPE_IQ2_XXS] = quantize_iq2_xxs_##isa, [QTYPE_IQ2_S] = quantize_iq2_s_##isa, \
        }, \
    };

#if defined(__x86_64__)
TIER_TABLE(avx2)
TIER_TABLE(avx512)
#elif defined(__aarch64__)
TIER_TABLE(neon)
#endif

const struct quant_tier quant_scalar = {.name = "scalar"};

/* Best first. The kernels have more tiers than the quantizers. */
static const struct {
    const char *kern_tier;
    const struct quant_tier *tier;
    uint32_t need; /* CPU_... flags */
} tiers[] = {
#if defined(__x86_64__)
    {"avx512", &quant_avx512, NEED_AVX512},
    {"avx512vnni", &quant_avx512, NEED_AVX512 | CPU_AVX512VNNI},
    {"avx2", &quant_avx2, NEED_AVX2},
    {"avxvnni", &quant_avx2, NEED_AVX2 | CPU_AVXVNNI},
#elif defined(__aarch64__)
    {"neon", &quant_neon, CPU_NEON},
    {"dotprod", &quant_neon, CPU_NEON | CPU_DOTPROD},
    {"i8mm", &quant_neon, CPU_NEON | CPU_DOTPROD | CPU_I8MM},
#endif
    {"scalar", &quant_scalar, 0},
};

#define N_TIERS (sizeof tiers / sizeof tiers[0])

const struct quant_tier *quant_select(const char *name)
{
    const uint32_t have = cpu_flags();
    for (size_t i = 0; i < N_TIERS; i++)
        if ((tiers[i].need & ~have) == 0 && (!name || strcmp(name, tiers[i].kern_tier) == 0))
            return tiers[i].tier;
    return NULL;
}

static const struct quant_tier *list[N_TIERS + 1]; /* NULL behind the last */

static void make_list(void)
{
    const uint32_t have = cpu_flags();
    size_t n = 0;
    for (size_t i = 0; i < N_TIERS; i++)
        if ((tiers[i].need & ~have) == 0 && (n == 0 || list[n - 1] != tiers[i].tier))
            list[n++] = tiers[i].tier;
}

const struct quant_tier *const *quant_tiers(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_list);
    return list;
}

const char *quant_tier_name(const struct quant_tier *tier)
{
    return tier->name;
}
