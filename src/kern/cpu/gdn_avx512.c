/* GDN_CONV, GDN_QK, GDN_STEP, GDN_OUT for AVX-512. */
#include "kern/cpu/v16_avx512.h"

#define V16_OP(op) kern_##op##_avx512
#include "kern/cpu/gdn_impl.h"
