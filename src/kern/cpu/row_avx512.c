/* RMS_NORM, SWIGLU, ROUTER, MOE_COMBINE for AVX-512. */
#include "kern/cpu/v16_avx512.h"

#define V16_OP(op) kern_##op##_avx512
#include "kern/cpu/row_impl.h"
