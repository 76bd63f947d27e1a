/* Weights in blocks of 16 values, with AVX2, FMA and F16C. Tile: 16 weight rows by up to 4 input rows. */
#include "kern/cpu/vec_avx2.h"

#define MM_ISA avx2
#define NV 2
#define MR 4
#include "kern/cpu/mm_b16.h"
