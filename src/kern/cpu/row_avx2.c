/* RMS_NORM, SWIGLU, ROUTER, MOE_COMBINE for AVX2. */
#include "kern/cpu/v16_avx2.h"

#define V16_OP(op) kern_##op##_avx2
#include "kern/cpu/row_impl.h"
