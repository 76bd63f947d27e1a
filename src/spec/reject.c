/* Rejection sampling; see reject.h. */
#include "spec/reject.h"

#include <math.h>

#include "base/rng.h"

/* q in units of p's weights, by rising id. */
struct proposal {
    int32_t n;
    uint32_t ids[DRAFT_MAX_TOP];
    double mass[DRAFT_MAX_TOP]; /* sums to p's sum */
};

/* False: no distribution that the draft can come from. */
static bool read_proposal(const struct draft *d, int32_t at, double sum, struct proposal *q)
{
    double total = 0;
    bool drawn = false;
    q->n = 0;
    if (d->n_top[at] == 0) {
        *q = (struct proposal){.n = 1, .ids = {(uint32_t)d->ids[at]}, .mass = {sum}};
        return true;
    }
    for (int32_t k = 0; k < d->n_top[at]; k++) {
        float mass = d->top_p[at][k];
        uint32_t id = (uint32_t)d->top_ids[at][k];
        if (!(mass >= 0) || isinf(mass))
            return false;
        int32_t i = q->n++;
        for (; i > 0 && q->ids[i - 1] > id; i--) {
            q->ids[i] = q->ids[i - 1];
            q->mass[i] = q->mass[i - 1];
        }
        q->ids[i] = id;
        q->mass[i] = mass;
        total += mass;
        drawn = drawn || (d->top_ids[at][k] == d->ids[at] && mass > 0);
    }
    for (int32_t i = 0; i < q->n; i++) {
        if (i > 0 && q->ids[i] == q->ids[i - 1])
            return false;
        q->mass[i] *= sum / total;
    }
    return drawn;
}

/* What of candidate i's weight is left over the proposal; *at walks along it with rising i. */
static double left_over(const struct sampler_distribution *p, size_t i, const struct proposal *q, int32_t *at)
{
    while (*at < q->n && q->ids[*at] < p->ids[i])
        ++*at;
    double taken = *at < q->n && q->ids[*at] == p->ids[i] ? q->mass[*at] : 0;
    return p->weights[i] > taken ? p->weights[i] - taken : 0;
}

static int32_t draw_left_over(const struct sampler_distribution *p, const struct proposal *q, double u)
{
    double sum = 0, run = 0;
    int32_t at = 0, last = -1;
    for (size_t i = 0; i < p->n; i++)
        sum += left_over(p, i, q, &at);
    if (!(sum > 0) || isinf(sum))
        return sampler_draw(p, u);
    at = 0;
    for (size_t i = 0; i < p->n; i++) {
        double w = left_over(p, i, q, &at);
        run += w;
        last = w > 0 ? (int32_t)p->ids[i] : last;
        if (run > u * sum)
            break;
    }
    return last;
}

static double weight_of(const uint32_t *ids, const double *weights, size_t n, uint32_t id)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (ids[mid] < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n && ids[low] == id ? weights[low] : 0;
}

bool reject_test(const struct sampler_distribution *p, const struct draft *draft, int32_t i, uint64_t seed, uint64_t position, int32_t *id)
{
    struct proposal q;
    uint32_t x = (uint32_t)draft->ids[i];
    double instead = rng_uniform(seed, position, REJECT_DRAW_INSTEAD);
    *id = draft->ids[i];
    if (!read_proposal(draft, i, p->sum, &q)) {
        *id = sampler_draw(p, instead);
        return *id == draft->ids[i];
    }
    double q_x = weight_of(q.ids, q.mass, (size_t)q.n, x), p_x = weight_of(p->ids, p->weights, p->n, x);
    if (rng_uniform(seed, position, REJECT_DRAW_TEST) * q_x < p_x)
        return true;
    *id = draw_left_over(p, &q, instead);
    return false;
}
