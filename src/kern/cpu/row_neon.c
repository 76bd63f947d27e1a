/* RMS_NORM, SWIGLU, ROUTER, MOE_COMBINE for NEON. */
#include "kern/cpu/v16_neon.h"

#define V16_OP(op) kern_##op##_neon
#include "kern/cpu/row_impl.h"
