/* Scoring of predictions; see score.h. */
#include "engine/score.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sample/exp.h"
#include "sample/logprob.h"

#define MAX_CODE 65535
#define HEAD_BYTES 12u

/* ---- means ---- */

void score_add(struct score_mean *m, double x)
{
    double before = x - m->mean;
    m->n++;
    m->mean += before / (double)m->n;
    m->squares += before * (x - m->mean);
}

double score_error(const struct score_mean *m)
{
    return m->n < 2 ? (double)NAN : sqrt(m->squares / (double)(m->n - 1) / (double)m->n);
}

double score_percentile(const double *sorted, int64_t n, double p)
{
    double at = p * (double)(n - 1);
    int64_t i = (int64_t)at;
    double part = at - (double)i;
    return i + 1 < n ? sorted[i] + part * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}

/* ---- rows ---- */

size_t score_row_bytes(int32_t n_vocab)
{
    return (HEAD_BYTES + 2 * (size_t)n_vocab + 3) & ~(size_t)3;
}

static int32_t best_of(const float *logits, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

void score_encode(const float *logits, int32_t n_vocab, double norm, int32_t next, uint8_t *out)
{
    int32_t best = best_of(logits, n_vocab);
    double top = logits[best], range = 0;
    for (int32_t i = 0; i < n_vocab; i++)
        range = fmax(range, top - logits[i]);
    range = fmin(range, SCORE_MAX_RANGE);
    float step = (float)(range / MAX_CODE), target = (float)fmin(logprob_of(logits[next], norm), 0);
    double inverse = step > 0 ? 1 / (double)step : 0;
    memset(out, 0, score_row_bytes(n_vocab));
    memcpy(out, &step, sizeof step);
    memcpy(out + 4, &target, sizeof target);
    memcpy(out + 8, &best, sizeof best);
    for (int32_t i = 0; i < n_vocab && inverse > 0; i++) {
        uint16_t q = (uint16_t)lrint(fmin((top - logits[i]) * inverse, MAX_CODE));
        memcpy(out + HEAD_BYTES + 2 * (size_t)i, &q, sizeof q);
    }
}

int score_decode(const uint8_t *in, int32_t n_vocab, struct score_row *row, skua_error *err)
{
    memcpy(&row->step, in, sizeof row->step);
    memcpy(&row->target, in + 4, sizeof row->target);
    memcpy(&row->best, in + 8, sizeof row->best);
    row->q = in + HEAD_BYTES;
    if (!(row->step >= 0 && row->step <= SCORE_MAX_RANGE / MAX_CODE * 1.001))
        return error_set(err, SKUA_EFORMAT, "a step of %g, expected 0 to %g", (double)row->step, SCORE_MAX_RANGE / MAX_CODE);
    if (!(row->target <= 0 && row->target >= LOGPROB_FLOOR))
        return error_set(err, SKUA_EFORMAT, "a log-probability of %g, expected %g to 0", (double)row->target, LOGPROB_FLOOR);
    if (row->best < 0 || row->best >= n_vocab)
        return error_set(err, SKUA_EFORMAT, "token %d as the most likely one of %d", row->best, n_vocab);
    return 0;
}

/* ---- pairs ---- */

struct score_pair score_compare(const struct score_row *base, const float *logits, int32_t n_vocab, double norm, int32_t next)
{
    double sum = 0, weighted = 0, step = base->step;
    for (int32_t i = 0; i < n_vocab; i++) {
        uint16_t q;
        memcpy(&q, base->q + 2 * (size_t)i, sizeof q);
        double l = -step * q, e = sample_exp(l);
        sum += e;
        weighted += e * (l - logprob_of(logits[i], norm));
    }
    double own = logprob_of(logits[next], norm);
    return (struct score_pair){.kl = fmax(weighted / sum - log(sum), 0), .nll = -own, .base_nll = -(double)base->target,
                               .delta_p = exp(own) - exp(base->target), .same_best = best_of(logits, n_vocab) == base->best};
}

int score_pairs_add(struct score_pairs *s, const struct score_pair *p, skua_error *err)
{
    if (s->kl.n == s->cap) {
        int64_t cap = s->cap ? s->cap * 2 : 1024;
        double *kls = mem_realloc_array(s->kls, (size_t)cap, sizeof *kls);
        if (!kls)
            return error_nomem(err, "divergences", (size_t)cap * sizeof *kls);
        s->kls = kls;
        s->cap = cap;
    }
    s->kls[s->kl.n] = p->kl;
    score_add(&s->kl, p->kl);
    score_add(&s->base_nll, p->base_nll);
    score_add(&s->ratio, p->nll - p->base_nll);
    score_add(&s->delta_p, p->delta_p);
    score_add(&s->delta_p2, p->delta_p * p->delta_p);
    score_add(&s->same_best, p->same_best);
    return 0;
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void score_pairs_sort(struct score_pairs *s)
{
    if (s->kl.n)
        qsort(s->kls, (size_t)s->kl.n, sizeof *s->kls, rising);
}

void score_pairs_free(struct score_pairs *s)
{
    mem_free(s->kls);
    *s = (struct score_pairs){0};
}
