/* The cost table; see sched_cost.h. */
#include "spec/sched_cost.h"

#include <math.h>
#include <string.h>

#define UNMEASURED_WIDTH 1.10
#define OTHER_BUCKET 1.02 /* per bucket */
#define MEASURED 3        /* samples: the first pass of a process is slow */
#define DRIFT_RATE 0.06
#define DRIFT_CLIP 0.25   /* of the logarithm of one round's ratio: a stall is no drift */
#define DRIFT_SAMPLES 5   /* a cell tells of drift once it has so many */
#define OLD 40            /* passes after which a cell is old: it tells nothing of drift, and two samples more may change it */

void sched_costs_init(struct sched_costs *c, const struct sched_prior *prior)
{
    memset(c, 0, sizeof *c);
    c->prior = *prior;
    c->drift = 1;
}

void sched_costs_source(struct sched_costs *c, int32_t source, double fixed, double each)
{
    c->draft_fixed[source] = fixed;
    c->draft_each[source] = each;
}

static double prior_verify(const struct sched_costs *c, int32_t width, int32_t ctx)
{
    const struct sched_prior *p = &c->prior;
    double bytes = (p->bytes + width * p->bytes_row + ctx * p->bytes_pos) / p->bandwidth;
    double macs = width * (p->macs_row + ctx * p->macs_pos) / p->mac_rate;
    return fmax(fmax(bytes, macs), 1e-9);
}

static double prior_draft(const struct sched_costs *c, int32_t source, int32_t k)
{
    return c->draft_fixed[source] + k * c->draft_each[source];
}

static int32_t bucket_of(int32_t ctx)
{
    int32_t b = 0;
    while (b < SCHED_BUCKETS - 1 && ctx >> (b + 1))
        b++;
    return b;
}

/* The two newest samples only. */
static void cell_shorten(struct sched_cell *cell)
{
    if (cell->n <= 2)
        return;
    float a = cell->sample[(cell->n - 2) % SCHED_SAMPLES], b = cell->sample[(cell->n - 1) % SCHED_SAMPLES];
    cell->sample[0] = a;
    cell->sample[1] = b;
    cell->n = 2;
}

static void cell_add(struct sched_cell *cell, double value)
{
    float sorted[SCHED_SAMPLES];
    cell->sample[cell->n % SCHED_SAMPLES] = (float)value;
    cell->n = cell->n < INT32_MAX ? cell->n + 1 : cell->n - SCHED_SAMPLES + 1;
    int32_t n = cell->n < SCHED_SAMPLES ? cell->n : SCHED_SAMPLES;
    for (int32_t i = 0; i < n; i++) {
        int32_t j = i;
        for (; j > 0 && sorted[j - 1] > cell->sample[i]; j--)
            sorted[j] = sorted[j - 1];
        sorted[j] = cell->sample[i];
    }
    cell->median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* The level of a width in or near a bucket; 0: never measured. */
static double width_level(const struct sched_costs *c, int32_t width, int32_t bucket)
{
    const struct sched_cell *row = c->verify[width];
    for (int32_t d = 0; c->last[width] > 0 && d < SCHED_BUCKETS; d++)
        for (int32_t b = bucket - d; b <= bucket + d; b += d ? 2 * d : 1)
            if (b >= 0 && b < SCHED_BUCKETS && row[b].n)
                return row[b].median * (d ? pow(OTHER_BUCKET, d) : 1);
    return 0;
}

/* The time of a width that was never measured, on the line through its measured neighbours: the next below and above, or else the next two
   below; infinite when there are no two. */
static double on_line(const struct sched_costs *c, int32_t width, int32_t ctx)
{
    int32_t bucket = bucket_of(ctx), low = width <= SCHED_MAX_WIDTH ? width - 1 : SCHED_MAX_WIDTH, high = width + 1;
    while (low >= 1 && width_level(c, low, bucket) == 0)
        low--;
    while (high <= SCHED_MAX_WIDTH && width_level(c, high, bucket) == 0)
        high++;
    if (high > SCHED_MAX_WIDTH) {
        high = low--;
        while (low >= 1 && width_level(c, low, bucket) == 0)
            low--;
    }
    if (low < 1)
        return INFINITY;
    double t_low = prior_verify(c, low, ctx) * width_level(c, low, bucket);
    double t_high = prior_verify(c, high, ctx) * width_level(c, high, bucket);
    double slope = fmax(0, (t_high - t_low) / (high - low));
    return c->drift * (t_low + slope * (width - low));
}

double sched_costs_verify(const struct sched_costs *c, int32_t width, int32_t ctx)
{
    int32_t w = width < SCHED_MAX_WIDTH ? width : SCHED_MAX_WIDTH, bucket = bucket_of(ctx);
    double prior = prior_verify(c, width, ctx) * c->drift, level = width_level(c, w, bucket);
    if (level > 0)
        return prior * level;
    for (int32_t d = 1; d < SCHED_MAX_WIDTH; d++)
        for (int32_t v = w - d; v <= w + d; v += 2 * d) {
            level = v >= 1 && v <= SCHED_MAX_WIDTH ? width_level(c, v, bucket) : 0;
            if (level > 0)
                return fmin(prior * level, on_line(c, width, ctx)) * UNMEASURED_WIDTH;
        }
    return prior * UNMEASURED_WIDTH;
}

double sched_costs_verify_hoped(const struct sched_costs *c, int32_t width, int32_t ctx)
{
    const int32_t w = width < SCHED_MAX_WIDTH ? width : SCHED_MAX_WIDTH;
    const double expected = sched_costs_verify(c, width, ctx);
    int32_t n = 0;
    for (int32_t b = 0; b < SCHED_BUCKETS; b++)
        n += c->verify[w][b].n;
    return n > 1 ? expected : fmin(expected, prior_verify(c, width, ctx) * c->drift * width_level(c, 1, bucket_of(ctx)) * UNMEASURED_WIDTH);
}

double sched_costs_draft(const struct sched_costs *c, int32_t source, int32_t k)
{
    double prior = prior_draft(c, source, k) * c->drift;
    for (int32_t d = 0; d <= DRAFT_MAX; d++)
        for (int32_t v = k - d; v <= k + d; v += d ? 2 * d : 1)
            if (v >= 1 && v <= DRAFT_MAX && c->draft[source][v].n)
                return prior * c->draft[source][v].median;
    return prior;
}

void sched_costs_add_verify(struct sched_costs *c, int32_t width, int32_t ctx, double seconds)
{
    int32_t w = width < SCHED_MAX_WIDTH ? width : SCHED_MAX_WIDTH;
    struct sched_cell *cell = &c->verify[w][bucket_of(ctx)];
    double prior = prior_verify(c, width, ctx);
    if (!(seconds > 0) || isinf(seconds))
        return;
    bool old = ++c->clock - c->last[w] > OLD;
    c->last[w] = c->clock;
    if (old) {
        cell_shorten(cell);
    } else if (cell->n >= DRIFT_SAMPLES) {
        double off = log(seconds / (prior * c->drift * cell->median));
        c->drift *= exp(DRIFT_RATE * fmin(fmax(off, -DRIFT_CLIP), DRIFT_CLIP));
    }
    cell_add(cell, seconds / (prior * c->drift));
}

void sched_costs_add_draft(struct sched_costs *c, int32_t source, int32_t k, double seconds)
{
    double prior = prior_draft(c, source, k);
    if (prior > 0 && seconds > 0 && !isinf(seconds))
        cell_add(&c->draft[source][k], seconds / (prior * c->drift));
}

bool sched_costs_measured(const struct sched_costs *c, int32_t width)
{
    const struct sched_cell *row = c->verify[width < SCHED_MAX_WIDTH ? width : SCHED_MAX_WIDTH];
    int32_t n = 0;
    for (int32_t b = 0; b < SCHED_BUCKETS; b++)
        n += row[b].n < MEASURED ? row[b].n : MEASURED;
    return n >= MEASURED;
}
