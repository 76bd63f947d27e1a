/* MATMUL and MOE_MATMUL with AVX2. */
#include "kern/cpu/mm_tier.h"

MM_TIER(avx2, avx2, avx2, avx2)
