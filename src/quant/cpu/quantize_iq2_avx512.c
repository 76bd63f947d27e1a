/* Quantizers of IQ2_XXS and IQ2_S for AVX-512. */
#include "quant/cpu/lanes_avx512.h"

#include "quant/cpu/quantize_iq2_impl.h"
