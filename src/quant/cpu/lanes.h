/* What the three vocabularies (lanes_avx512.h, lanes_avx2.h, lanes_neon.h) have in common. Sixteen lanes everywhere, each of
   which does what the scalar reference does with one value: vf holds floats, vi 32-bit integers, vm truth values.

   Every operation is one IEEE binary32 operation per lane, so that a lane gets the bits of the scalar code. Comparisons are
   false for NaN. vf_min(a, b) is a < b ? a : b and vf_max(a, b) is a > b ? a : b, also for NaN and zeros of both signs. */
#ifndef SKUA_QUANT_CPU_LANES_H
#define SKUA_QUANT_CPU_LANES_H

#define LANES 16
#define INLINE inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline, unused)) /* not every file uses all of them */

/* fit_rne (quant/fit.h) in bits: adding the float RNE_MAGIC leaves the nearest integer, RNE_ZERO standing for 0, in the bits
   of RNE_MASK; beyond the range, and for NaN, whatever is there. RNE_HIGH are the other bits of a float in range. */
#define RNE_MAGIC 12582912.0f
#define RNE_MASK  0x007FFFFF
#define RNE_ZERO  0x00400000
#define RNE_HIGH  0x4B000000

#endif
