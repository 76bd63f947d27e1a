/* Quantizers of the super-block types for AVX2. */
#include "quant/cpu/lanes_avx2.h"

#include "quant/cpu/quantize_k_impl.h"
