/* The exponential of checkpoint converters. */
#ifndef SKUA_CONVERT_HF_EXP_H
#define SKUA_CONVERT_HF_EXP_H

/* e^x as NumPy's vectorised float32 exp gives it, within 2 units of the last place: converters use it for -exp(A_log), so a file made
   here has the bits of theirs. Any x: infinity above 88.72, 0 below -104, NaN for NaN. */
float hf_exp(float x);

#endif
