/* Test models made from others: every weight matrix re-encoded to a type. */
#ifndef SKUA_TESTS_RECODE_H
#define SKUA_TESTS_RECODE_H

#include <stdint.h>

/* Write the model src under `name` in the temporary folder (support_temp) with all weight matrices (not norms, vectors, convolution
   taps and routers) in `type`; RECODE_MIXED: a type per tensor, drawn from all, by seed. 0, or a negative code with a
   message printed. */
#define RECODE_MIXED (-1)
int recode_model(const char *src, const char *name, int type, uint64_t seed);

/* Every type of weights that runs; Q8_0 is the fourth. */
#define N_RECODE_TYPES 21
extern const int recode_types[N_RECODE_TYPES];

#endif
