/* The scheduler against simulated machines and drafters: made-up clock, drafts accepted by chance, 40 seeds of every case. The figures are
 * tokens per time relative to an oracle that knows costs and acceptance and always takes the best depth. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "spec/sched.h"
#include "support/support.h"

#define SEEDS 40

static const double ds4_curve[] = {1, 1.30, 1.90, 2.50, 3.25, 4.02, 4.65, 5.27};
static const double flat_curve[] = {31, 32, 33, 34, 35, 36, 37, 38};
static const double jagged_curve[] = {1, 1.1, 1.15, 1.2, 1.2, 1.2, 1.2, 1.2, 2.4, 2.4};
static const double steep_curve[] = {1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5};

struct source {
    enum sched_kind kind;
    int32_t n_max;
    double alpha[2]; /* before and from the switch */
    double fixed, each;
};

struct sim {
    const double *curve;
    int32_t n_tokens, k_max, switch_at; /* 0: no switch */
    struct source sources[2];
    int32_t n_sources;
    double slower;    /* factor of all costs (wide_only: of passes of several rows) from slower_at on */
    int32_t slower_at;
    bool wide_only;
    bool noise;
    bool cold; /* no width was timed before */
};

struct outcome {
    double time, oracle_time; /* for the same tokens */
    int32_t changes_late;     /* changes of the incumbent behind slower_at */
    int32_t resumed;          /* tokens behind the switch until drafts were taken, not probed */
    int32_t by_source[2], late_tokens; /* tokens behind the first 100, by source */
    int32_t widest_unpaid;    /* deepest K that was no probe, behind 100 tokens */
};

static double expected(double alpha, int32_t k)
{
    double e = 1, p = 1;
    for (int32_t d = 0; d < k; d++)
        e += p *= alpha;
    return e;
}

static double slowdown(const struct sim *m, int32_t tokens, int32_t k)
{
    return m->slower_at && tokens >= m->slower_at && !(m->wide_only && k == 0) ? m->slower : 1;
}

static double oracle_rate(const struct sim *m, int part, int32_t tokens)
{
    double best = 1 / (m->curve[0] * slowdown(m, tokens, 0));
    for (int32_t i = 0; i < m->n_sources; i++)
        for (int32_t k = 1; k <= m->sources[i].n_max; k++)
            best = fmax(best, expected(m->sources[i].alpha[part], k) /
                                   (slowdown(m, tokens, k) * (m->curve[k] + m->sources[i].fixed + k * m->sources[i].each)));
    return best;
}

static double uniform(uint64_t *rng) { return (double)(rng_next(rng) >> 11) * 0x1p-53; }

/* Drafts accepted of k, by chance. */
static int32_t accept(double alpha, int32_t k, uint64_t *rng)
{
    int32_t a = 0;
    while (a < k && uniform(rng) < alpha)
        a++;
    return a;
}

static double stretch(const struct sim *m, int32_t tokens, int32_t k, uint64_t *rng)
{
    double f = slowdown(m, tokens, k);
    if (m->noise)
        f *= (0.8 + 0.4 * uniform(rng)) * (uniform(rng) < 0.01 ? 10 : 1);
    return f;
}

/* A block drafter's proposal for hindsight: the sim's text is all zeros, a wrong draft is 1. */
static void shadow(struct sched *s, int32_t source, int32_t n, double alpha, uint64_t *rng)
{
    struct draft d = {.n = n};
    for (int32_t i = 0; i < n; i++) {
        d.ids[i] = uniform(rng) >= alpha;
        d.confidence[i] = -1;
    }
    sched_shadow(s, source, &d);
}

static void start(const struct sim *m, struct sched *s, struct sched_costs *costs)
{
    struct sched_config config = {.costs = costs, .n_sources = m->n_sources};
    /* A guess that is wrong in its level and knows nothing of the curve. */
    struct sched_prior prior = {.bytes = 0.5, .bytes_row = 0.1, .macs_row = 0.01, .bandwidth = 1, .mac_rate = 1};
    sched_costs_init(costs, &prior);
    for (int32_t i = 0; i < m->n_sources; i++) {
        config.kinds[i] = m->sources[i].kind;
        sched_costs_source(costs, i, m->sources[i].fixed, m->sources[i].each);
    }
    for (int32_t w = 1; !m->cold && w <= m->k_max + 1; w *= 2) /* what an engine times once while it is idle */
        for (int i = 0; i < 3; i++)
            sched_costs_add_verify(costs, w, 1000, m->curve[w - 1]);
    sched_init(s, &config);
}

static struct outcome run(const struct sim *m, uint64_t seed)
{
    struct sched s;
    struct sched_costs costs;
    struct outcome o = {.resumed = -1};
    static const int32_t zeros[DRAFT_MAX + 1];
    int32_t tokens = 0;
    int64_t changes = 0;
    uint64_t rng = seed;
    start(m, &s, &costs);
    while (tokens < m->n_tokens) {
        int part = m->switch_at && tokens >= m->switch_at;
        struct sched_ask ask = {.ctx = 1000 + tokens, .remaining = m->n_tokens - tokens, .k_limit = m->k_max};
        for (int32_t i = 0; i < m->n_sources; i++)
            ask.offers[i].n = m->sources[i].n_max;
        struct sched_round r = {.choice = sched_choose(&s, &ask), .ctx = ask.ctx, .ids = zeros};
        const struct source *q = r.choice.source == SCHED_NONE ? NULL : &m->sources[r.choice.source];
        int32_t k = r.choice.k, a = q ? accept(q->alpha[part], k, &rng) : 0;
        double f = stretch(m, tokens, k, &rng);
        if (r.choice.hindsight != SCHED_NONE) {
            const struct source *h = &m->sources[r.choice.hindsight];
            r.n_drafted = r.choice.n_hindsight;
            r.t_draft = f * (h->fixed + r.n_drafted * h->each);
            shadow(&s, r.choice.hindsight, r.n_drafted, h->alpha[part], &rng);
        } else if (q) {
            r.n_drafted = r.n_verified = k;
            r.n_tested = a < k ? a + 1 : k;
            r.n_accepted = a;
            r.t_draft = f * (q->fixed + k * q->each);
        }
        r.t_verify = f * m->curve[k];
        r.n_ids = a + 1;
        sched_observe(&s, &r);
        o.time += r.t_draft + r.t_verify;
        o.oracle_time += r.n_ids / oracle_rate(m, part, tokens);
        if (m->slower_at && tokens < m->slower_at)
            changes = s.stats.changes;
        if (tokens >= 100) {
            o.late_tokens += r.n_ids;
            if (q)
                o.by_source[r.choice.source] += r.n_ids;
            if (!r.choice.probe && k > o.widest_unpaid)
                o.widest_unpaid = k;
        }
        tokens += r.n_ids;
        if (part && k > 0 && !r.choice.probe && o.resumed < 0)
            o.resumed = tokens - m->switch_at;
    }
    o.changes_late = (int32_t)(s.stats.changes - changes);
    CHECK(tokens == m->n_tokens && s.stats.tokens == tokens, "%d tokens, expected %d", tokens, m->n_tokens);
    return o;
}

/* Mean over the seeds of the rate relative to the oracle's. */
static double sweep_seeds(const char *name, const struct sim *m, double bound, struct outcome *all)
{
    double time = 0, oracle = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct outcome o = run(m, seed * 7919 + 1);
        time += o.time;
        oracle += o.oracle_time;
        if (all)
            all[seed] = o;
    }
    CHECK(oracle / time >= bound, "%s: %.4f of the oracle's rate, expected at least %.3f", name, oracle / time, bound);
    return oracle / time;
}

static struct sim chain(const double *curve, int32_t n_tokens, double before, int32_t switch_at, double after)
{
    return (struct sim){.curve = curve, .n_tokens = n_tokens, .k_max = 7, .switch_at = switch_at, .n_sources = 1,
                        .sources = {{SCHED_CHAIN, 7, {before, after}, 0, 0}}};
}

static void test_constant(void)
{
    struct sim m;
    sweep_seeds("flat, all accepted, 500 tokens", (m = chain(flat_curve, 500, 1, 0, 0), &m), 0.95, NULL);
    sweep_seeds("flat, none accepted, 1000 tokens", (m = chain(flat_curve, 1000, 0, 0, 0), &m), 0.985, NULL);
    sweep_seeds("flat, none accepted, 128 tokens", (m = chain(flat_curve, 128, 0, 0, 0), &m), 0.97, NULL);
    sweep_seeds("ds4, none accepted, 1000 tokens", (m = chain(ds4_curve, 1000, 0, 0, 0), &m), 0.985, NULL);
    sweep_seeds("ds4, none accepted, 128 tokens", (m = chain(ds4_curve, 128, 0, 0, 0), &m), 0.975, NULL);
    sweep_seeds("ds4, 0.86", (m = chain(ds4_curve, 1000, 0.86, 0, 0), &m), 0.985, NULL);
    sweep_seeds("ds4, 0.95", (m = chain(ds4_curve, 1000, 0.95, 0, 0), &m), 0.985, NULL);
    sweep_seeds("ds4, 0.25", (m = chain(ds4_curve, 1000, 0.25, 0, 0), &m), 0.985, NULL);
    sweep_seeds("accepted but no gain", (m = chain(steep_curve, 1000, 0.3, 0, 0), &m), 0.985, NULL);
}

static void test_switches(void)
{
    struct sim m;
    struct outcome all[SEEDS];
    int resumed = 0;
    sweep_seeds("ds4, 0.05 then 0.95", (m = chain(ds4_curve, 1000, 0.05, 300, 0.95), &m), 0.96, all);
    for (int i = 0; i < SEEDS; i++)
        resumed += all[i].resumed >= 0 && all[i].resumed <= 64;
    CHECK(resumed * 10 >= SEEDS * 9, "drafting resumed within 64 tokens in %d of %d runs", resumed, SEEDS);
    sweep_seeds("flat, 0.05 then 0.95", (m = chain(flat_curve, 1000, 0.05, 300, 0.95), &m), 0.96, NULL);
    sweep_seeds("ds4, 0.95 then 0.05", (m = chain(ds4_curve, 1000, 0.95, 300, 0.05), &m), 0.97, NULL);
    sweep_seeds("flat, 0.95 then 0.05", (m = chain(flat_curve, 1000, 0.95, 300, 0.05), &m), 0.94, NULL);
}

static void test_costs(void)
{
    struct outcome all[SEEDS];
    struct sim m = chain(jagged_curve, 1000, 0.97, 0, 0);
    m.k_max = m.sources[0].n_max = 9;
    sweep_seeds("jagged", &m, 0.97, all);
    for (int i = 0; i < SEEDS; i++)
        CHECK(all[i].widest_unpaid <= 7, "seed %d: %d drafts, that was no probe", i, all[i].widest_unpaid);
    m = chain(ds4_curve, 1000, 0.86, 0, 0);
    m.noise = true;
    /* Time itself is noisy: its mean is 1.09 of the curve. */
    double rate = sweep_seeds("noise", &m, 0, NULL) * (1 + 0.01 * 9);
    CHECK(rate >= 0.96, "with noise %.4f, expected 0.96", rate);
    m = chain(ds4_curve, 1000, 0.86, 0, 0);
    m.slower = 1.5;
    m.slower_at = 500;
    sweep_seeds("all slower from token 500", &m, 0.97, all);
    int calm = 0; /* a run of lucky drafts may also change the depth */
    for (int i = 0; i < SEEDS; i++)
        calm += all[i].changes_late <= 6;
    CHECK(calm >= SEEDS * 9 / 10, "at most 6 changes after the slowdown in %d of %d runs", calm, SEEDS);
    m = chain(flat_curve, 2000, 0.6, 0, 0); /* drafting no longer pays, though the depth that runs is the only one that is measured */
    m.slower = 3;
    m.slower_at = 500;
    m.wide_only = true;
    sweep_seeds("wide passes slower from token 500", &m, 0.95, NULL);
    m.slower = 1.7;
    sweep_seeds("wide passes a little slower", &m, 0.95, NULL);
}

/* Nothing was timed before, and the prior is wrong. */
static void test_cold(void)
{
    struct sim m = chain(flat_curve, 500, 1, 0, 0);
    m.cold = true;
    sweep_seeds("cold: flat, all accepted, 500 tokens", &m, 0.95, NULL);
    m = chain(flat_curve, 1000, 0, 0, 0);
    m.cold = true;
    sweep_seeds("cold: flat, none accepted", &m, 0.985, NULL);
    m = chain(ds4_curve, 1000, 0.86, 0, 0);
    m.cold = true;
    sweep_seeds("cold: ds4, 0.86", &m, 0.98, NULL);
    m = chain(flat_curve, 1000, 0.05, 300, 0.95);
    m.cold = true;
    sweep_seeds("cold: flat, 0.05 then 0.95", &m, 0.96, NULL);
}

/* A block drafter is tried in hindsight while decoding is serial. */
static void test_block(void)
{
    struct sim m = chain(flat_curve, 1000, 0, 0, 0);
    m.sources[0] = (struct source){SCHED_BLOCK, 7, {0, 0}, 3, 0.1};
    sweep_seeds("block, none accepted", &m, 0.98, NULL);
    m = chain(flat_curve, 1000, 0.05, 300, 0.95);
    m.sources[0] = (struct source){SCHED_BLOCK, 7, {0.05, 0.95}, 3, 0.1};
    sweep_seeds("block, 0.05 then 0.95", &m, 0.95, NULL);
}

/* Two drafters, each better at one kind of text. */
static void test_two(void)
{
    static const double mild_curve[] = {1, 1.03, 1.06, 1.1, 1.14, 1.18, 1.22, 1.27};
    static const double alphas[2][2] = {{0.92, 0.75}, {0.5, 0.85}}; /* block, chain */
    for (int better = 0; better < 2; better++) {
        struct sim m = {.curve = mild_curve, .n_tokens = 1000, .k_max = 7, .n_sources = 2,
                        .sources = {{SCHED_BLOCK, 7, {alphas[better][0], 0}, 0.1, 0.005},
                                    {SCHED_CHAIN, 3, {alphas[better][1], 0}, 0, 0.05}}};
        struct outcome all[SEEDS];
        double used = 0, late = 0;
        sweep_seeds(better ? "two drafters, the chain is better" : "two drafters, the block is better", &m, 0.96, all);
        for (int i = 0; i < SEEDS; i++) {
            used += all[i].by_source[better];
            late += all[i].late_tokens;
        }
        CHECK(used / late >= 0.9, "the better drafter gave %.3f of the tokens", used / late);
    }
}

/* Drafts accepted in the rounds of real answers: seven prompts of the tiny DFlash and DFlash2 drafters, block 8. */
static const int8_t dflash_trace[] = {7, 0, 6, 2, 5, 0, 2, 3, 7, 0, 1, 7, 7, 1, 3, 1, 0, 0, 0, 2, 7, 7, 7, 7, 1, 7, 7, 3};
static const int8_t dflash2_trace[] = {7, 0, 6, 2, 5, 0, 4, 1, 7, 0, 1, 7, 7, 5, 2, 0, 0, 1, 7, 7, 7, 7, 4, 7, 7, 3};

/* Tokens that the drafter is right about from token `at` of a round on. A round of which all was accepted ended with its block, not with an
   error. */
static int32_t right_from(const int8_t *trace, int32_t n, int32_t round, int32_t at)
{
    int32_t left = trace[round] - at;
    for (; left < 7 && trace[round] == 7; left += 1 + trace[round])
        round = (round + 1) % n;
    return left;
}

/* The time of 1000 tokens of such answers, again and again. A round that begins inside a recorded one is taken to accept what was right
   from there on. k_fixed below 0: the scheduler decides. */
static double replay(const int8_t *trace, int32_t n_trace, int32_t k_fixed, const double *curve, double draft)
{
    struct sim m = {.curve = curve, .n_tokens = 1000, .k_max = 7, .n_sources = 1, .sources = {{SCHED_BLOCK, 7, {0, 0}, draft, 0}}};
    struct sched s;
    struct sched_costs costs;
    static const int32_t zeros[DRAFT_MAX + 1];
    int32_t round = 0, at = 0;
    double time = 0;
    start(&m, &s, &costs);
    for (int32_t tokens = 0; tokens < m.n_tokens;) {
        struct sched_ask ask = {.ctx = 1000 + tokens, .remaining = m.n_tokens, .k_limit = 7, .offers = {{.n = 7}}};
        struct sched_round r = {.choice = {.source = SCHED_NONE, .hindsight = SCHED_NONE}, .ctx = ask.ctx, .ids = zeros};
        if (k_fixed < 0)
            r.choice = sched_choose(&s, &ask);
        else
            r.choice.k = k_fixed;
        int32_t k = r.choice.k, left = right_from(trace, n_trace, round, at), a = left < k ? left : k;
        if (r.choice.hindsight != SCHED_NONE) {
            struct draft d = {.n = r.n_drafted = 7};
            for (int32_t i = 0; i < 7; i++) {
                d.ids[i] = i >= left;
                d.confidence[i] = -1;
            }
            sched_shadow(&s, 0, &d);
        } else if (k > 0) {
            r.n_drafted = r.n_verified = k;
            r.n_tested = a < k ? a + 1 : k;
            r.n_accepted = a;
        }
        r.n_ids = a + 1;
        r.t_draft = r.n_drafted > 0 ? draft : 0;
        r.t_verify = curve[k];
        time += r.t_draft + r.t_verify;
        if (k_fixed < 0)
            sched_observe(&s, &r);
        tokens += a + 1;
        at += a + 1;
        while (at > trace[round]) {
            at -= trace[round] + 1;
            round = (round + 1) % n_trace;
        }
    }
    return time;
}

static void test_traces(void)
{
    static const double cpu_curve[] = {1, 1.08, 1.16, 1.25, 1.33, 1.42, 1.5, 1.6};
    static const struct {
        const char *name;
        const int8_t *trace;
        int32_t n;
        const double *curve;
        double bound;
    } cases[] = {
        {"dflash, cpu", dflash_trace, sizeof dflash_trace, cpu_curve, 0.93},
        {"dflash2, cpu", dflash2_trace, sizeof dflash2_trace, cpu_curve, 0.98},
        {"dflash, ds4", dflash_trace, sizeof dflash_trace, ds4_curve, 0.97},
        {"dflash2, ds4", dflash2_trace, sizeof dflash2_trace, ds4_curve, 0.97},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double best = INFINITY, own = replay(cases[i].trace, cases[i].n, -1, cases[i].curve, 0.09);
        for (int32_t k = 0; k <= 7; k++)
            best = fmin(best, replay(cases[i].trace, cases[i].n, k, cases[i].curve, k ? 0.09 : 0));
        CHECK(best / own >= cases[i].bound, "%s: %.3f of the best fixed depth's rate", cases[i].name, best / own);
    }
}

int main(void)
{
    test_constant();
    test_switches();
    test_costs();
    test_cold();
    test_block();
    test_two();
    test_traces();
    return support_finish("spec_sched_sim");
}
