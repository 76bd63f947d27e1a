/* Quantizers of the super-block types for AVX-512. */
#include "quant/cpu/lanes_avx512.h"

#include "quant/cpu/quantize_k_impl.h"
