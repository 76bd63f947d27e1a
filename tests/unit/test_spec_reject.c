/* Rejection sampling: whatever the proposal, tokens have the target's distribution. Chi-square tests of single tokens and of pairs over
 * rounds with fixed seeds, a control that must fail, the cases that need no statistics, and sample-and-compare against serial sampling. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "spec/reject.h"
#include "support/support.h"

#define V 8
#define ROUNDS 200000

enum proposal { FULL, SPARSE, POINT, DISJOINT, EQUAL, BROKEN, ABSENT, N_PROPOSALS, ARGMAX };
static const char *const names[] = {"full", "sparse", "point mass", "disjoint", "equal", "broken", "absent", "", "argmax with softmax"};

static const double p_first[V] = {0.30, 0.02, 0.25, 0, 0.13, 0.05, 0.2, 0.05};
static const uint32_t all_ids[V] = {0, 1, 2, 3, 4, 5, 6, 7};

/* The target behind token y. */
static void p_second(int32_t y, double *p)
{
    double sum = 0;
    for (int i = 0; i < V; i++)
        sum += p[i] = (i + y) % 3 ? 1.0 + (i * 5 + y * 3) % 7 : 0;
    for (int i = 0; i < V; i++)
        p[i] /= sum;
}

static struct sampler_distribution distribution(const double *p)
{
    struct sampler_distribution d = {.ids = all_ids, .weights = p, .n = V};
    for (int i = 0; i < V; i++)
        d.sum += p[i];
    return d;
}

/* What a drafter makes of p: draft number at of d, drawn for this position. y: the token before, so that proposals differ. */
static void propose(enum proposal kind, const double *p, int32_t y, struct draft *d, int32_t at, uint64_t seed, uint64_t position)
{
    double q[V] = {0}, run = 0, u = rng_uniform(seed, position, REJECT_DRAW_DRAFT), sum = 0;
    for (int i = 0; i < V; i++)
        q[i] = kind == EQUAL ? p[i] : kind == SPARSE || kind == ARGMAX ? (i % 3 == y % 3) * (i + 1.0) : kind == DISJOINT ? p[i] == 0 :
               1.0 + (i * 3 + y) % 5;
    for (int i = 0; i < V; i++)
        sum += q[i];
    d->n_top[at] = 0;
    d->ids[at] = -1;
    for (int i = 0; i < V; i++) {
        run += q[i] / sum;
        if (d->ids[at] < 0 && run > u)
            d->ids[at] = i;
        if (q[i] > 0 && kind != POINT) { /* best first, as drafters give them: any order must do */
            int32_t k = d->n_top[at]++;
            memmove(d->top_ids[at] + 1, d->top_ids[at], (size_t)k * sizeof d->top_ids[at][0]);
            memmove(d->top_p[at] + 1, d->top_p[at], (size_t)k * sizeof d->top_p[at][0]);
            d->top_ids[at][0] = i;
            d->top_p[at][0] = (float)(q[i] / sum);
        }
    }
    if (kind == POINT || kind == ARGMAX) /* a choice without chance */
        d->ids[at] = kind == POINT ? (2 + y) % V : d->top_ids[at][0];
    if (kind == BROKEN)
        d->top_p[at][2] = (float)NAN;
    if (kind == ABSENT)
        d->ids[at] = 100 + y;
}

static double chi_square(const int *count, const double *p, int n, double rounds, int *freedom)
{
    double x = 0;
    *freedom = -1;
    for (int i = 0; i < n; i++) {
        double expect = p[i] * rounds;
        if (expect == 0 && count[i])
            return INFINITY;
        x += expect > 0 ? (count[i] - expect) * (count[i] - expect) / expect : 0;
        *freedom += expect > 0;
    }
    return x;
}

/* Two tokens per round: a proposal of two drafts; behind a rejection a proposal of its own for the second. Accepted of 2 * ROUNDS. */
static int run(enum proposal kind, double *first, double *pairs, int *freedom_first, int *freedom_pairs)
{
    static int count[V], pair[V * V];
    static double p_pair[V * V], second[V][V];
    struct draft d;
    int accepted = 0;
    memset(count, 0, sizeof count);
    memset(pair, 0, sizeof pair);
    for (int32_t y = 0; y < V; y++) {
        p_second(y, second[y]);
        for (int i = 0; i < V; i++)
            p_pair[y * V + i] = p_first[y] * second[y][i];
    }
    for (uint64_t seed = 0; seed < ROUNDS; seed++) {
        struct sampler_distribution p = distribution(p_first);
        int32_t y, z;
        propose(kind, p_first, 0, &d, 0, seed, 10);
        propose(kind, second[d.ids[0] % V], d.ids[0] % V, &d, 1, seed, 11);
        bool ok = reject_test(&p, &d, 0, seed, 10, &y);
        if (!ok)
            propose(kind, second[y], y, &d, 1, seed, 11);
        p = distribution(second[y]);
        accepted += ok + reject_test(&p, &d, 1, seed, 11, &z);
        count[y]++;
        pair[y * V + z]++;
    }
    *first = chi_square(count, p_first, V, ROUNDS, freedom_first);
    *pairs = chi_square(pair, p_pair, V * V, ROUNDS, freedom_pairs);
    return accepted;
}

/* Six standard deviations of chi-square: with fixed seeds it holds or it does not. */
static double bound(int freedom) { return freedom + 6 * sqrt(2.0 * freedom); }

static void test_distributions(void)
{
    for (int kind = 0; kind < N_PROPOSALS; kind++) {
        double first, pairs;
        int freedom_first, freedom_pairs, accepted = run(kind, &first, &pairs, &freedom_first, &freedom_pairs);
        CHECK(first < bound(freedom_first), "%s: chi-square %.1f with %d degrees of freedom", names[kind], first, freedom_first);
        CHECK(pairs < bound(freedom_pairs), "%s: pairs: chi-square %.1f with %d degrees of freedom", names[kind], pairs, freedom_pairs);
        CHECK((accepted == 2 * ROUNDS) == (kind == EQUAL) && (accepted == 0) == (kind == DISJOINT || kind == ABSENT), "%s: %d accepted",
              names[kind], accepted);
    }
    double first, pairs;
    int freedom_first, freedom_pairs;
    run(ARGMAX, &first, &pairs, &freedom_first, &freedom_pairs);
    CHECK(first > 10 * bound(freedom_first) && pairs > 10 * bound(freedom_pairs), "a wrong q is not noticed: %.1f, %.1f", first, pairs);
}

/* The share of accepted drafts is sum min(p, q). */
static void test_acceptance(void)
{
    struct draft d;
    struct sampler_distribution p = distribution(p_first);
    int accepted = 0;
    double expect = 0;
    int32_t y;
    for (uint64_t seed = 0; seed < ROUNDS; seed++) {
        propose(FULL, p_first, 1, &d, 0, seed, 3);
        accepted += reject_test(&p, &d, 0, seed, 3, &y);
    }
    for (int k = 0; k < d.n_top[0]; k++)
        expect += fmin(p_first[d.top_ids[0][k]], (double)d.top_p[0][k]);
    CHECK(fabs(accepted / (double)ROUNDS - expect) < 0.005, "accepted %g, expected %g", accepted / (double)ROUNDS, expect);
}

/* Nothing is left over but rounding: the target's own distribution. Weights need not be normalised, nor q. */
static void test_corners(void)
{
    static const uint32_t ids[2] = {3, 9};
    static const double weights[2] = {4, 0};
    struct sampler_distribution p = {.ids = ids, .weights = weights, .n = 2, .sum = 4};
    struct draft d = {.n = 1, .ids = {7}, .n_top = {2}, .top_ids = {{7, 3}}, .top_p = {{1e-30f, 1}}};
    int32_t id = -1;
    CHECK(!reject_test(&p, &d, 0, 1, 2, &id) && id == 3, "nothing left over: %d", id);
    d.ids[0] = 9; /* a candidate that was dropped is never accepted */
    d.n_top[0] = 0;
    CHECK(!reject_test(&p, &d, 0, 1, 2, &id) && id == 3, "dropped: %d", id);
    d.ids[0] = 3;
    CHECK(reject_test(&p, &d, 0, 1, 2, &id) && id == 3, "certain: %d", id);
    d.n_top[0] = 1;
    d.top_ids[0][0] = 3;
    d.top_p[0][0] = 0.25f;
    for (uint64_t seed = 0; seed < 100; seed++)
        CHECK(reject_test(&p, &d, 0, seed, 2, &id) && id == 3, "q of sum 0.25");
    d.n_top[0] = 2;
    d.top_ids[0][1] = 3; /* an id twice: not used */
    d.top_p[0][1] = 0.75f;
    CHECK(reject_test(&p, &d, 0, 1, 2, &id) && id == 3, "twice: %d", id);
}

#define N_VOCAB 200

static void make_logits(const int32_t *text, int32_t n, float *logits)
{
    uint64_t rng = (uint64_t)(n ? text[n - 1] : 0) * 31 + (uint64_t)(n > 1 ? text[n - 2] : 0);
    for (int i = 0; i < N_VOCAB; i++)
        logits[i] = (float)(rng_next(&rng) % 1000) / 100;
}

/* The distribution is what sampler_sample draws from, bit for bit; and drafts compared with samples leave the text as it is, penalties
   and all. */
static void test_sampler(void)
{
    static const skua_sampling settings[] = {
        {.temperature = 0.8, .top_k = 20, .top_p = 0.9, .min_p = 0.01, .repetition_penalty = 1.2, .penalty_last_n = 64,
         .presence_penalty = 0.5, .frequency_penalty = 0.3, .seed = 7},
        {.temperature = 1.5, .top_p = 1, .repetition_penalty = 1, .seed = 8},
        {.temperature = 0, .top_p = 1, .repetition_penalty = 1.1, .penalty_last_n = -1, .seed = 9},
    };
    struct sampler_workspace ws;
    CHECK(sampler_workspace_init(&ws, N_VOCAB, NULL) == 0, "workspace");
    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
        struct sampler s;
        struct sampler_history serial, checked;
        struct sampler_distribution d;
        int32_t text[300], id, accepted = 0;
        float logits[N_VOCAB];
        uint64_t rng = k;
        CHECK(sampler_init(&s, &settings[k], NULL, &ws, NULL) == 0, "sampler");
        CHECK(sampler_history_init(&serial, N_VOCAB, NULL) == 0 && sampler_history_init(&checked, N_VOCAB, NULL) == 0, "history");
        for (int32_t n = 0; n < 300; n++) {
            make_logits(text, n, logits);
            CHECK(sampler_sample(&s, &serial, logits, N_VOCAB, (uint64_t)n, &text[n], NULL) == 0, "sample");
            CHECK(sampler_distribution(&s, &serial, logits, N_VOCAB, (uint64_t)n, &d, NULL) == 0, "distribution");
            double sum = 0;
            for (size_t i = 0; i < d.n; i++)
                sum += d.weights[i];
            CHECK(sum == d.sum && sampler_draw(&d, rng_uniform(settings[k].seed, (uint64_t)n, 0)) == text[n], "position %d", n);
            CHECK(sampler_history_push(&serial, text[n], NULL) == 0, "push");
        }
        for (int32_t n = 0; n < 300;) { /* rounds of up to 7 drafts, right with probability 3/4 */
            int32_t rows = 1 + (int32_t)(rng_next(&rng) % 8), first = n;
            for (bool go = true; go && n < 300 && n - first < rows; n++) {
                int32_t draft = rng_next(&rng) % 4 ? text[n] : (int32_t)(rng_next(&rng) % N_VOCAB);
                make_logits(text, n, logits);
                CHECK(sampler_sample(&s, &checked, logits, N_VOCAB, (uint64_t)n, &id, NULL) == 0 && id == text[n], "position %d", n);
                CHECK(sampler_history_push(&checked, id, NULL) == 0, "push");
                go = id == draft;
                accepted += go;
            }
        }
        CHECK(accepted > 100, "%d accepted", accepted);
        sampler_history_free(&serial);
        sampler_history_free(&checked);
        sampler_free(&s);
    }
    sampler_workspace_free(&ws);
}

int main(void)
{
    test_distributions();
    test_acceptance();
    test_corners();
    test_sampler();
    return support_finish("spec_reject");
}
