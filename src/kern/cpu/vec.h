/* Compiler help that the kernel templates rely on: loops over rows and vectors have constant bounds and must be unrolled
   completely, and every building block must be inlined, or the arrays of accumulators would live in memory. */
#ifndef SKUA_KERN_CPU_VEC_H
#define SKUA_KERN_CPU_VEC_H

#define INLINE inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
