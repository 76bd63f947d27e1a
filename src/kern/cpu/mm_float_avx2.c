/* Float weights with AVX2, FMA and F16C. Tile: 2 weight rows by up to 2 input rows. */
#include "kern/cpu/vec_avx2.h"

#define MM_ISA avx2
#define FW 2
#define FX 2
#include "kern/cpu/mm_float.h"
