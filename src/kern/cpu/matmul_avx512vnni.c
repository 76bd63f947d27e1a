/* MATMUL and MOE_MATMUL with AVX-512 VNNI. */
#include "kern/cpu/mm_tier.h"

MM_TIER(avx512vnni, avx512vnni, avx512vnni, avx512)
