/* Quantizers of IQ2_XXS and IQ2_S for AVX2. */
#include "quant/cpu/lanes_avx2.h"

#include "quant/cpu/quantize_iq2_impl.h"
