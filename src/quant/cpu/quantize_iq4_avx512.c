/* Quantizers of IQ4_NL and IQ4_XS for AVX-512. */
#include "quant/cpu/lanes_avx512.h"

#include "quant/cpu/quantize_iq4_impl.h"
