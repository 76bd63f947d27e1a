/* Quantizers of IQ2_XXS and IQ2_S for NEON. */
#include "quant/cpu/lanes_neon.h"

#include "quant/cpu/quantize_iq2_impl.h"
