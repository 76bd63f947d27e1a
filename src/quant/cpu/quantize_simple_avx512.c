/* Quantizers of the types of 32 and 64 elements a block for AVX-512. */
#include "quant/cpu/lanes_avx512.h"

#include "quant/cpu/quantize_simple_impl.h"
