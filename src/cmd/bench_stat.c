/* Statistics; see bench_stat.h. */
#include "cmd/bench_stat.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double middle(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* The median of |x - m| over sorted x, without changing them: the deviations fall towards m and rise behind it, so they are merged from
   the middle outwards. */
static double deviation(const double *x, int n, double m)
{
    int right = 0;
    while (right < n && x[right] < m)
        right++;
    double before = 0, last = 0;
    for (int left = right - 1, taken = 0; taken <= n / 2; taken++) {
        before = last;
        last = left < 0 || (right < n && x[right] - m < m - x[left]) ? x[right++] - m : m - x[left--];
    }
    return n % 2 ? last : (before + last) / 2;
}

struct bench_stat bench_stat_of(double *values, int n)
{
    struct bench_stat s = {.n = n, .median = middle(values, n)};
    s.min = values[0];
    s.max = values[n - 1];
    s.mad = deviation(values, n, s.median);
    return s;
}
