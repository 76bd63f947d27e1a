/* Float weights with NEON. Tile: 2 weight rows by up to 2 input rows. */
#include "kern/cpu/vec_neon.h"

#define MM_ISA neon
#define FW 2
#define FX 2
#include "kern/cpu/mm_float.h"
