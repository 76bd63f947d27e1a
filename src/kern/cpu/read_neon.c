/* Reading memory with the registers of NEON. */
#define READ_BYTES 16
#define READ_MEMORY kern_read_memory_neon
#include "kern/cpu/read_impl.h"
