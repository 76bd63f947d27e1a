/* Reading memory with the registers of AVX-512. */
#define READ_BYTES 64
#define READ_MEMORY kern_read_memory_avx512
#include "kern/cpu/read_impl.h"
