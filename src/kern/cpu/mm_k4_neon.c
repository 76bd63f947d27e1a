/* Q4_K, neon. */
#include "kern/cpu/vec_neon.h"

#define MM_ISA neon
#define NV 2
#include "kern/cpu/mm_k4.h"
