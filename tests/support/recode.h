/* Test models made from others: every weight matrix re-encoded to a type. */
#ifndef SKUA_TESTS_RECODE_H
#define SKUA_TESTS_RECODE_H

#include <stdint.h>

/* Write the model src under `name` in the temporary folder (support_temp) with all weight matrices (not norms, vectors, convolution
   taps and routers) in `type`; RECODE_MIXED: a type per tensor, drawn from the eight that run, by seed. 0, or a negative code with a
   message printed. */
#define RECODE_MIXED (-1)
int recode_model(const char *src, const char *name, int type, uint64_t seed);

extern const int recode_types[8]; /* F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K, Q6_K */

#endif
