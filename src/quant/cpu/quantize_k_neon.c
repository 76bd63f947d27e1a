/* Quantizers of the super-block types for NEON. */
#include "quant/cpu/lanes_neon.h"

#include "quant/cpu/quantize_k_impl.h"
