/* MATMUL and MOE_MATMUL with AVX2, FMA and F16C. Tile: 16 weight rows by up to 4 input rows (integers), 2 by 2 (floats). */
#include "kern/cpu/vec_avx2.h"

#define NV 2
#define MR 4
#define MD 2
#define FW 2
#define FX 2
#include "kern/cpu/mm_tier.h"

MM_TIER(avx2)
