/* Quantizers of IQ4_NL and IQ4_XS for AVX2. */
#include "quant/cpu/lanes_avx2.h"

#include "quant/cpu/quantize_iq4_impl.h"
