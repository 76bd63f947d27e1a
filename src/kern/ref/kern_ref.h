/* Declarations of the plain C implementations: kern_<op>_scalar (the production arithmetic, which defines the bits) and
 * kern_<op>_refd (float32 activations in and out, double accumulation, the C library's double functions).
 *
 * Ops without arithmetic of their own to choose (EMBED, GET_ROWS, MOE_GROUP, GDN_CONV_COMMIT) and those whose production arithmetic is
 * double already (ROPE_TABLE, GDN_GATES) have one function for both tables; their _refd names are declared and never defined.
 */
#ifndef SKUA_KERN_REF_KERN_REF_H
#define SKUA_KERN_REF_KERN_REF_H

#include "kern/kern.h"

#define X(CODE, name) \
    kern_##name##_fn kern_##name##_scalar; \
    kern_##name##_fn kern_##name##_refd;
KERN_OPS(X)
#undef X

kern_read_fn kern_read_memory_scalar;

#endif
