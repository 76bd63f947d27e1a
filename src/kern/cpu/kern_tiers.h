/* Declarations of every SIMD version of every op: kern_<op>_<tier>, e.g. kern_attn_avx512. A declaration does not mean that
 * the function exists; which ones do is written in one place, the tables of dispatch.c.
 *
 * A file src/kern/cpu/<op>_<isa>.c includes this and defines its functions; it is the only kind of file that may be compiled
 * for more than the base machine, so nothing in it may run before kern_select has checked the CPU.
 */
#ifndef SKUA_KERN_CPU_KERN_TIERS_H
#define SKUA_KERN_CPU_KERN_TIERS_H

#include "kern/kern.h"

#define X(CODE, name) \
    kern_##name##_fn kern_##name##_avx2; \
    kern_##name##_fn kern_##name##_avxvnni; \
    kern_##name##_fn kern_##name##_avx512; \
    kern_##name##_fn kern_##name##_avx512vnni; \
    kern_##name##_fn kern_##name##_neon; \
    kern_##name##_fn kern_##name##_dotprod; \
    kern_##name##_fn kern_##name##_i8mm;
KERN_OPS(X)
#undef X

kern_read_fn kern_read_memory_avx2, kern_read_memory_avx512, kern_read_memory_neon;

#endif
