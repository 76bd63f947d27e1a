/* MATMUL and MOE_MATMUL with NEON and its dot products of bytes (FEAT_DotProd). */
#include "kern/cpu/mm_tier.h"

MM_TIER(dotprod, dotprod, neon, neon)
