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

#endif
