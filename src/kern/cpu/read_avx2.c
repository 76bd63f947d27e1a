/* Reading memory with the registers of AVX2. */
#define READ_BYTES 32
#define READ_MEMORY kern_read_memory_avx2
#include "kern/cpu/read_impl.h"
