/* MATMUL and MOE_MATMUL with AVX2 and AVX-VNNI. */
#include "kern/cpu/mm_tier.h"

MM_TIER(avxvnni, avxvnni, avx2, avx2)
