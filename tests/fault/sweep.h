/* The fault sweep: run something with its N-th allocation or its N-th file operation failing, for every N until nothing fails any
   more. A failure must be reported (a negative code and one line), must leave no memory behind, and must not spoil what runs next. */
#ifndef SKUA_TESTS_FAULT_SWEEP_H
#define SKUA_TESTS_FAULT_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "skua.h"
#include "support/support.h"

/* The thing to run: 0 or a negative code with *err filled. It checks its own results: complete and right when it returns 0, right as
   far as they go otherwise; it may switch the faults off (sweep_disarm) to look around after a failure. */
typedef int sweep_fn(void *context, skua_error *err);

/* Sweep over allocations (every point alternately once and for good: the N-th alone, or that and all later ones), then over file
   operations. At most max_points of each, one drawn at random from each of as many equal stretches (the seed is printed; SKUA_SEED
   sets it), or all with SKUA_FAULT_ALL=1. */
void sweep(const char *name, sweep_fn *fn, void *context, int max_points);

/* Switch the faults off for the rest of the run. */
void sweep_disarm(void);

/* Call once: jansson's allocations count too. */
void sweep_init(void);

#endif
