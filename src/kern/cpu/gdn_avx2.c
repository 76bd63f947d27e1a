/* GDN_CONV, GDN_QK, GDN_STEP, GDN_OUT for AVX2. */
#include "kern/cpu/v16_avx2.h"

#define V16_OP(op) kern_##op##_avx2
#include "kern/cpu/gdn_impl.h"
