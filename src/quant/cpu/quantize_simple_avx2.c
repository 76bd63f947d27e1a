/* Quantizers of the types of 32 and 64 elements a block for AVX2. */
#include "quant/cpu/lanes_avx2.h"

#include "quant/cpu/quantize_simple_impl.h"
