/* Float weights with AVX-512 BW. Tile: 4 weight rows by up to 4 input rows. */
#include "kern/cpu/vec_avx512.h"

#define MM_ISA avx512
#define FW 4
#define FX 4
#include "kern/cpu/mm_float.h"
