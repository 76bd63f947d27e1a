/* MATMUL and MOE_MATMUL with AVX-512 BW. Tile: 32 weight rows by up to 6 input rows (integers), 4 by 4 (floats). */
#include "kern/cpu/vec_avx512.h"

#define NV 2
#define MR 6
#define MD 4
#define FW 4
#define FX 4
#include "kern/cpu/mm_tier.h"

MM_TIER(avx512)
