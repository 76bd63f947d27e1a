/* Quantizers of the types of 32 and 64 elements a block for NEON. */
#include "quant/cpu/lanes_neon.h"

#include "quant/cpu/quantize_simple_impl.h"
