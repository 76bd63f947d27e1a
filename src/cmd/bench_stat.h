/* Statistics of repeated measurements. */
#ifndef SKUA_CMD_BENCH_STAT_H
#define SKUA_CMD_BENCH_STAT_H

struct bench_stat {
    int n;
    double median, min, max;
    double mad; /* median absolute deviation from the median: half of the values are nearer than this */
};

/* Of n >= 1 values, which are put in order. The median of an even number of values is the mean of the two in the middle. */
struct bench_stat bench_stat_of(double *values, int n);

/* Tokens that a round of rows >= 1 rows is expected to yield when each of its rows - 1 drafts is accepted with probability p (0..1) once
   all before it are: 1 + p + ... + p^(rows - 1). */
double bench_expected_tokens(double p, int rows);

#endif
