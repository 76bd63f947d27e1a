/* Q4_K, avx512vnni. */
#include "kern/cpu/vec_avx512.h"

#define MM_ISA avx512vnni
#define NV 2
#include "kern/cpu/mm_k4.h"
