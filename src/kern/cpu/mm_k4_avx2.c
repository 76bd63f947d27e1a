/* Q4_K with AVX2. Tile: 8 weight rows by up to 4 input rows. */
#include "kern/cpu/vec_avx2.h"

#define MM_ISA avx2
#define NV 1
#include "kern/cpu/mm_k4.h"
