/* Q4_K, avx2. */
#include "kern/cpu/vec_avx2.h"

#define MM_ISA avx2
#define NV 1
#include "kern/cpu/mm_k4.h"
