/* `skua bench` while it measures: what the files of measurements share. */
#ifndef SKUA_CMD_BENCH_RUN_H
#define SKUA_CMD_BENCH_RUN_H

#include "cmd/bench.h"

#define BENCH_STEP_UNITS 8 /* of progress: about what a step costs in tokens of prefill */

struct bench_run {
    struct bench *b;
    skua_session *session;
    skua_session **others;   /* [n_others], for --seqs */
    int n_others;
    skua_snapshot *snapshot; /* of session, at `depth` */
    int32_t depth;
    int32_t *ids;            /* [n_ids], by position */
    int32_t n_ids;
    float *logits;
    double *samples;         /* [n_samples] */
    double *ratios;          /* [n_samples] */
    struct membw_reader *reader; /* for --tg */
    double *sorted;          /* [n_samples] */
    struct progress progress;
    uint64_t done;           /* units of progress */
};

int  bench_run_stopped(const struct bench_run *r, skua_error *err); /* SKUA_ECANCELED when *stop is set */
void bench_run_advance(struct bench_run *r, int32_t steps);         /* so many steps are done */

/* --spec-sim at the depth where the session stands. */
int bench_speculate(struct bench_run *r, skua_error *err);
uint64_t bench_speculate_units(const struct bench_options *o); /* steps */
int32_t  bench_speculate_tokens(const struct bench_options *o); /* most tokens behind that depth, 0 without --spec-sim */

#endif
