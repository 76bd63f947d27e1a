/* MATMUL and MOE_MATMUL with NEON and its matrix products of bytes (FEAT_I8MM). */
#include "kern/cpu/mm_tier.h"

MM_TIER(i8mm, i8mm, neon, neon)
