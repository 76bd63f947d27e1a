/* Q4_K with AVX-512. Tile: 32 weight rows by up to 4 input rows. */
#include "kern/cpu/vec_avx512.h"

#define MM_ISA avx512
#define NV 2
#include "kern/cpu/mm_k4.h"
