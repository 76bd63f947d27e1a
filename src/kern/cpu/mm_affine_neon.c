/* Weights in blocks of 32 or 64 values with an offset, with NEON. Tile: 8 weight rows by up to 4 input rows. */
#include "kern/cpu/vec_neon.h"

#define MM_ISA neon
#define NV 2
#define MR 4
#include "kern/cpu/mm_affine.h"
