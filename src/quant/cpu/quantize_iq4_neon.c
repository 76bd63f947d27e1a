/* Quantizers of IQ4_NL and IQ4_XS for NEON. */
#include "quant/cpu/lanes_neon.h"

#include "quant/cpu/quantize_iq4_impl.h"
