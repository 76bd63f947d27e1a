/* Weights in blocks of 16 values, with AVX-512 BW. Tile: 32 weight rows by up to 8 input rows. */
#include "kern/cpu/vec_avx512.h"

#define MM_ISA avx512
#define NV 2
#define MR 8
#include "kern/cpu/mm_b16.h"
