/* Counter-based random numbers: the value is a pure function of the key, so a sampled token depends on (seed, position)
   and on nothing that ran before it. */
#ifndef SKUA_BASE_RNG_H
#define SKUA_BASE_RNG_H

#include <stdint.h>

/* 64 mixed bits of (seed, position, draw). Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
   2011) with key = seed and counter = (position, draw); the first two output words. */
uint64_t rng_bits(uint64_t seed, uint64_t position, uint64_t draw);

/* The same as a double in [0, 1): the top 53 bits. */
double rng_uniform(uint64_t seed, uint64_t position, uint64_t draw);

/* A small sequential generator for tests and data (splitmix64, Steele et al. 2014): advances *state. */
uint64_t rng_next(uint64_t *state);

#endif
