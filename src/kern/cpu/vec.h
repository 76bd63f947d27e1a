/* Compiler help that the kernel templates rely on: loops over rows and vectors have constant bounds and must be unrolled
   completely, and every building block must be inlined, or the arrays of accumulators would live in memory. Everything else
   is a real loop in a function of its own, so that the code stays small. */
#ifndef SKUA_KERN_CPU_VEC_H
#define SKUA_KERN_CPU_VEC_H

#define INLINE inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define ROLLED _Pragma("GCC unroll 1")
#endif

#endif
