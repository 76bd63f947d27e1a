/* Q4_K with NEON. Tile: 8 weight rows by up to 4 input rows. */
#include "kern/cpu/vec_neon.h"

#define MM_ISA neon
#define NV 2
#include "kern/cpu/mm_k4.h"
