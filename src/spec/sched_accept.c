/* Acceptance by depth; see sched_accept.h. */
#include "spec/sched_accept.h"

#include <math.h>
#include <string.h>

#define PRIOR_WEIGHT 2.0
#define LEAN_WEIGHT 2.0
#define LESS_PER_DEPTH 0.02
#define FADE 0.98
#define MAX_WEIGHT 50.0
#define UPPER_MAX 0.98
#define UPPER_Z 1.28
#define STALE_VARIANCE 0.0015 /* per token: the unknown rate walks */
#define SURPRISE 0.08
#define SURPRISE_WEIGHT 3.0   /* what the counts are worth after two surprises */
#define PROMISE 3
#define BIN_WEIGHT 4.0        /* of the depth's mean against a bin's counts */

/* What depth i + 1 is expected to have by the depth before it, as counts. */
static double lean(int32_t i) { return i > 0 ? LEAN_WEIGHT : 0; }

static void refresh(struct sched_accept *a)
{
    double before = 0;
    for (int32_t i = 0; i < DRAFT_MAX; i++) {
        double expect = fmax(before - LESS_PER_DEPTH, 0.02);
        before = (a->good[i] + lean(i) * expect) / ((double)a->good[i] + a->bad[i] + lean(i));
        a->mean[i] = (float)before;
    }
}

void sched_accept_init(struct sched_accept *a, double first, const float *learned)
{
    memset(a, 0, sizeof *a);
    for (int32_t i = 0; i < (learned ? DRAFT_MAX : 1); i++) {
        double m = fmin(fmax(learned ? learned[i] : first, 0.02), 0.98);
        a->good[i] = (float)(PRIOR_WEIGHT * m);
        a->bad[i] = (float)(PRIOR_WEIGHT * (1 - m));
    }
    refresh(a);
}

double sched_accept_mean(const struct sched_accept *a, int32_t depth) { return a->mean[depth - 1]; }

double sched_accept_upper(const struct sched_accept *a, int32_t depth)
{
    double n = (double)a->good[depth - 1] + a->bad[depth - 1] + lean(depth - 1), m = a->mean[depth - 1];
    return fmin(UPPER_MAX, m + UPPER_Z * sqrt(m * (1 - m) / (n + 1) + STALE_VARIANCE * (double)(a->tokens - a->tested_at[depth - 1])));
}

static int32_t bin_of(float confidence)
{
    int32_t b = (int32_t)(confidence * SCHED_BINS);
    return b < SCHED_BINS ? b : SCHED_BINS - 1;
}

double sched_accept_given(const struct sched_accept *a, int32_t depth, float confidence)
{
    double m = sched_accept_mean(a, depth);
    if (!(confidence >= 0))
        return m;
    int32_t b = bin_of(confidence);
    return (a->bin_good[b] + BIN_WEIGHT * m) / ((double)a->bin_good[b] + a->bin_bad[b] + BIN_WEIGHT);
}

static void count(float *good, float *bad, bool ok)
{
    double g = *good * FADE + ok, b = *bad * FADE + !ok, n = g + b, scale = n > MAX_WEIGHT ? MAX_WEIGHT / n : 1;
    *good = (float)(g * scale);
    *bad = (float)(b * scale);
}

/* P(at most accepted) and P(at least accepted) of so many tested depths: two surprises of a kind in a row, and the past counts less. */
static void check_surprise(struct sched_accept *a, int32_t depth, int32_t accepted)
{
    double survive = 1, at_least = 1;
    for (int32_t d = 1; d <= depth && d <= accepted + 1; d++) {
        if (d == accepted + 1)
            at_least = survive;
        survive *= sched_accept_mean(a, d);
    }
    if (accepted == depth)
        at_least = survive;
    double at_most = accepted == depth ? 1 : 1 - survive;
    a->low = at_most < SURPRISE ? a->low + 1 : 0;
    a->high = accepted > 0 && at_least < SURPRISE ? a->high + 1 : 0;
    a->promise = accepted == 0 ? 0 : a->high == 2 ? PROMISE : a->promise > 0 ? a->promise - 1 : 0;
    if (a->low < 2 && a->high < 2)
        return;
    a->low = a->high = 0;
    for (int32_t i = 0; i < DRAFT_MAX; i++) {
        double n = (double)a->good[i] + a->bad[i], scale = n > SURPRISE_WEIGHT ? SURPRISE_WEIGHT / n : 1;
        a->good[i] = (float)(a->good[i] * scale);
        a->bad[i] = (float)(a->bad[i] * scale);
    }
    for (int32_t b = 0; b < SCHED_BINS; b++) {
        a->bin_good[b] = 0;
        a->bin_bad[b] = 0;
    }
}

void sched_accept_observe(struct sched_accept *a, int32_t tested, int32_t accepted, const float *confidence)
{
    int32_t decided = tested < accepted + 1 ? tested : accepted + 1; /* depths with evidence */
    if (tested > 0)
        check_surprise(a, tested, accepted);
    for (int32_t d = 1; d <= decided; d++) {
        count(&a->good[d - 1], &a->bad[d - 1], d <= accepted);
        a->tested_at[d - 1] = a->tokens;
        if (confidence && confidence[d - 1] >= 0) {
            int32_t b = bin_of(confidence[d - 1]);
            count(&a->bin_good[b], &a->bin_bad[b], d <= accepted);
        }
    }
    a->seen += tested > 0;
    if (tested > 0)
        refresh(a);
}

bool sched_accept_promising(const struct sched_accept *a) { return a->high > 0 || a->promise > 0; }

void sched_accept_advance(struct sched_accept *a, int32_t tokens) { a->tokens += tokens; }
