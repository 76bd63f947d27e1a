/* ATTN_Q, ATTN_KV, ATTN for AVX-512. */
#include "kern/cpu/v16_avx512.h"

#define V16_OP(op) kern_##op##_avx512
#include "kern/cpu/attn_impl.h"
