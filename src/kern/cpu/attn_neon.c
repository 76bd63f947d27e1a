/* ATTN_Q, ATTN_KV, ATTN for NEON. */
#include "kern/cpu/v16_neon.h"

#define V16_OP(op) kern_##op##_neon
#include "kern/cpu/attn_impl.h"
