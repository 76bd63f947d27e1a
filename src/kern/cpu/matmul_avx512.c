/* MATMUL and MOE_MATMUL with AVX-512. */
#include "kern/cpu/mm_tier.h"

MM_TIER(avx512, avx512, avx512, avx512)
