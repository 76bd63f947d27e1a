/* How probably the drafts of one source are accepted: by depth, each conditional on those before it. Counts that fade, a term for what has
 * not been tested for long, a reset when the text has changed its nature, and a calibration of the drafter's own confidences. */
#ifndef SKUA_SPEC_SCHED_ACCEPT_H
#define SKUA_SPEC_SCHED_ACCEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "spec/drafter.h"

#define SCHED_BINS 8 /* of confidences 0..1 */

/* Index d - 1 is depth d. A depth's mean leans on that of the depth before it, which weighs as much as two observations: what is true of
   tested depths is expected of deeper ones. */
struct sched_accept {
    float good[DRAFT_MAX], bad[DRAFT_MAX], mean[DRAFT_MAX];
    int64_t tokens, tested_at[DRAFT_MAX]; /* tokens so far; and when the depth was tested last */
    float bin_good[SCHED_BINS], bin_bad[SCHED_BINS];
    int32_t low, high;        /* consecutive surprises: far fewer, far more accepted than expected */
    int32_t promise;          /* tests to come soon, after surprises of the second kind */
    int32_t seen;             /* depth-1 drafts tested */
};

/* Nothing observed: first in 0..1 is expected of depth 1, and 0.02 less of each depth than of the one before. Or learned [DRAFT_MAX]: what
   is expected of each. Either weighs as much as two observations. */
void sched_accept_init(struct sched_accept *a, double first, const float *learned);

/* The estimate for a depth of 1..DRAFT_MAX; and what the rate may well be, from few or old tests. */
double sched_accept_mean(const struct sched_accept *a, int32_t depth);
double sched_accept_upper(const struct sched_accept *a, int32_t depth);

/* The probability that a draft with this confidence (negative: none) is accepted at this depth. */
double sched_accept_given(const struct sched_accept *a, int32_t depth, float confidence);

/* The last test went far better than expected: whoever tests rarely should test again soon. */
bool sched_accept_promising(const struct sched_accept *a);

/* The first accepted drafts of tested ones were accepted, and if fewer than tested, the next was not; what lies behind that was not tested.
   confidence: [tested], or NULL. */
void sched_accept_observe(struct sched_accept *a, int32_t tested, int32_t accepted, const float *confidence);
void sched_accept_advance(struct sched_accept *a, int32_t tokens); /* the session went on by so many tokens */

#endif
