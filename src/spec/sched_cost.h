/* What rounds cost, in seconds: one table per engine, shared by its sessions. Times come from the caller.
 *
 * A cell holds the last 9 samples of one width (rows of the target's pass) in one bucket of context lengths (powers of two), each as a
 * multiple of what the prior says for that width and length, divided by the drift at its time; their median counts, so a stall does not.
 * The prior thus gives the shape and the samples the level: a cell without samples takes the level of the nearest bucket of its width (2 %
 * dearer per bucket), or else of the nearest measured width (10 % dearer), but no more than the line through two measured widths gives:
 * what looks too dear for ever is never measured. Measured widths are not smoothed: cost is jagged.
 *
 * Drift: all cells are multiplied by one factor that follows measured / expected of the rounds that ran, so that cells that have not run
 * for long do not look cheap when the machine became slower. It follows slowly: whether one width or all became dearer cannot be told from
 * rounds of one width, and taking the one for the other would keep the scheduler from what has become better. A cell that has not run for
 * 40 passes keeps its two newest samples only, so that it is up to date after two more. */
#ifndef SKUA_SPEC_SCHED_COST_H
#define SKUA_SPEC_SCHED_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "spec/drafter.h"

#define SCHED_MAX_SOURCES 4
#define SCHED_MAX_WIDTH 64  /* rows of a pass with cells of their own; wider ones are reckoned from the last */
#define SCHED_BUCKETS 21    /* context lengths 1, 2..3, 4..7, ... */
#define SCHED_SAMPLES 9

/* A pass of w rows after n positions is expected to take the larger of (bytes + w * bytes_row + n * bytes_pos) / bandwidth and
   w * (macs_row + n * macs_pos) / mac_rate. */
struct sched_prior {
    double bytes;     /* read whatever the width: weights */
    double bytes_row; /* and per row: recurrent state, experts */
    double bytes_pos; /* and per position of the context: KV cache */
    double macs_row, macs_pos; /* multiply-adds per row; and per row and position */
    double bandwidth, mac_rate; /* per second, above 0 */
};

struct sched_cell {
    float sample[SCHED_SAMPLES];
    float median;
    int32_t n; /* samples so far */
};

struct sched_costs {
    struct sched_prior prior;
    double drift;
    int64_t clock, last[SCHED_MAX_WIDTH + 1]; /* passes so far; the last one of a width, 0: never */
    struct sched_cell verify[SCHED_MAX_WIDTH + 1][SCHED_BUCKETS];
    struct sched_cell draft[SCHED_MAX_SOURCES][DRAFT_MAX + 1]; /* by drafts asked for; as multiples of the prior */
    double draft_fixed[SCHED_MAX_SOURCES], draft_each[SCHED_MAX_SOURCES];
};

/* Nothing measured yet; the prior is copied. */
void sched_costs_init(struct sched_costs *c, const struct sched_prior *prior);

/* Prior of a source's drafts: k drafts take fixed + k * each seconds. Both 0: drafting is free (lookup), and samples are not kept. */
void sched_costs_source(struct sched_costs *c, int32_t source, double fixed, double each);

/* Expected seconds. width 1 and more, ctx = positions before the pass; k 1..DRAFT_MAX. */
double sched_costs_verify(const struct sched_costs *c, int32_t width, int32_t ctx);
/* The least that it may be: of a width that ran no more than once, whose only sample may have met memory that was never touched, what the
   prior makes of a pass of one row. */
double sched_costs_verify_hoped(const struct sched_costs *c, int32_t width, int32_t ctx);
double sched_costs_draft(const struct sched_costs *c, int32_t source, int32_t k);

/* A pass (with its commit and what the host did) and a draft that ran. Times that are not above 0 are ignored. */
void sched_costs_add_verify(struct sched_costs *c, int32_t width, int32_t ctx, double seconds);
void sched_costs_add_draft(struct sched_costs *c, int32_t source, int32_t k, double seconds);

bool sched_costs_measured(const struct sched_costs *c, int32_t width); /* often enough, in any bucket */

#endif
