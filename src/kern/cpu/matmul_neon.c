/* MATMUL and MOE_MATMUL with NEON. */
#include "kern/cpu/mm_tier.h"

MM_TIER(neon, neon, neon, neon)
