/* GDN_CONV, GDN_QK, GDN_STEP, GDN_OUT for NEON. */
#include "kern/cpu/v16_neon.h"

#define V16_OP(op) kern_##op##_neon
#include "kern/cpu/gdn_impl.h"
