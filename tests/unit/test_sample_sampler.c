/* The sampler against a plain implementation of the definition in sampler.h: full sort, fresh arrays, the C library's exp. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "sample/exp.h"
#include "sample/sampler.h"

static unsigned long checks;
#define CHECK(x) (checks++, assert_true(x))
#define MAX_N 1000
#define BIG_N 248320

static const skua_sampling plain = {.temperature = 1, .top_p = 1, .repetition_penalty = 1};

static uint32_t below(uint64_t *rng, uint32_t n) { return (uint32_t)(rng_next(rng) % n); }
static double unit(uint64_t *rng) { return (double)(rng_next(rng) >> 11) * 0x1p-53; }

/* ---- the plain implementation ---- */

struct item {
    float z;
    int id;
    double w;
    bool keep;
};

static int by_rank(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    return x->z != y->z ? (x->z > y->z ? -1 : 1) : x->id - y->id;
}

static int by_id(const void *a, const void *b) { return ((const struct item *)a)->id - ((const struct item *)b)->id; }

static bool bit(const uint64_t *map, int i) { return !map || (map[i / 64] >> (i % 64) & 1); }

struct text {
    int ids[512], n, n_prompt;
};

static double naive_penalty(const skua_sampling *p, const struct text *t, int id, double z)
{
    int window = p->penalty_last_n < 0 || p->penalty_last_n > t->n ? t->n : p->penalty_last_n, count = 0;
    bool repeated = false;
    for (int i = 0; i < t->n; i++) {
        repeated = repeated || (t->ids[i] == id && i >= t->n - window);
        count += t->ids[i] == id && i >= t->n_prompt;
    }
    if (repeated)
        z = z > 0 ? z / p->repetition_penalty : z * p->repetition_penalty;
    if (count)
        z = z - p->frequency_penalty * count - p->presence_penalty;
    return z;
}

static double sum_kept(struct item *items, size_t m) /* by rising id; leaves rank order */
{
    double sum = 0;
    qsort(items, m, sizeof *items, by_id);
    for (size_t i = 0; i < m; i++)
        sum += items[i].keep ? items[i].w : 0;
    qsort(items, m, sizeof *items, by_rank);
    return sum;
}

/* Steps 3 to 7 on the candidates; sets keep. */
static int naive_choose(const skua_sampling *p, struct item *items, size_t m, uint64_t position)
{
    qsort(items, m, sizeof *items, by_rank);
    if (p->temperature == 0)
        return items[0].id;
    for (size_t i = 0; i < m; i++) {
        items[i].w = exp(((double)items[i].z - items[0].z) / p->temperature);
        items[i].keep = p->top_k <= 0 || i < (size_t)p->top_k;
    }
    if (p->top_p < 1) {
        double sum = sum_kept(items, m), reached = 0;
        for (size_t i = 0; i < m; i++) {
            items[i].keep = items[i].keep && !(i && reached >= p->top_p * sum);
            reached += items[i].keep ? items[i].w : 0;
        }
    }
    for (size_t i = 0; i < m; i++)
        items[i].keep = items[i].keep && items[i].w >= p->min_p;
    double target = rng_uniform(p->seed, position, 0) * sum_kept(items, m), run = 0;
    qsort(items, m, sizeof *items, by_id);
    for (size_t i = 0; i < m; i++)
        if (items[i].keep && (run += items[i].w) > target)
            return items[i].id;
    return -1;
}

static int naive_sample(const skua_sampling *p, const uint64_t *samplable, const uint64_t *mask, const struct text *t,
                        const float *logits, int n, uint64_t position)
{
    struct item *items = malloc((size_t)n * sizeof *items);
    size_t m = 0;
    bool forced = false;
    for (size_t b = 0; b < p->n_bias; b++)
        forced = forced || (p->bias[b].bias == 100 && bit(samplable, p->bias[b].id) && bit(mask, p->bias[b].id) &&
                            logits[p->bias[b].id] > -INFINITY);
    for (int id = 0; id < n; id++) {
        double z = logits[id], bias = 0;
        for (size_t b = 0; b < p->n_bias; b++)
            bias += p->bias[b].id == id ? (double)p->bias[b].bias : 0;
        if (!bit(samplable, id) || !bit(mask, id) || bias == -100 || logits[id] == -INFINITY || (forced && bias != 100))
            continue;
        z = (float)(z + bias);
        items[m++] = (struct item){.z = (float)(t ? naive_penalty(p, t, id, z) : z), .id = id};
    }
    int id = m ? naive_choose(p, items, m, position) : -2;
    free(items);
    return id;
}

/* ---- tests ---- */

static void test_exp(void **state)
{
    (void)state;
    uint64_t rng = 1;
    double worst = 0;
    for (int i = 0; i < 200000; i++) {
        double x = -unit(&rng) * (i & 1 ? 708 : 3), e = exp(x), rel = fabs(sample_exp(x) - e) / e;
        worst = rel > worst ? rel : worst;
    }
    CHECK(worst < 4e-16);
    CHECK(sample_exp(0) == 1 && sample_exp(-0.0) == 1 && sample_exp(-708.5) == 0 && sample_exp(-INFINITY) == 0);
    printf("exp: worst relative error %.2g\n", worst);
}

static void random_params(skua_sampling *p, uint64_t *rng, int n)
{
    static const double temps[] = {0, 0.3, 0.7, 1, 1.5, 2, 1e-3}, ps[] = {1, 0.95, 0.5, 0.8, 0, 0.1, 1 - 1e-16, 1 - 1e-9};
    *p = plain;
    p->temperature = temps[below(rng, 7)];
    p->top_k = (int32_t)(below(rng, 2) ? below(rng, (uint32_t)n + 3) : 0) - 1;
    p->top_p = ps[below(rng, 8)];
    p->min_p = below(rng, 2) ? 0 : below(rng, 8) ? unit(rng) * unit(rng) : 1;
    p->seed = rng_next(rng);
    if (below(rng, 2)) {
        p->repetition_penalty = 0.5 + unit(rng);
        p->presence_penalty = unit(rng) * 4 - 2;
        p->frequency_penalty = below(rng, 2) ? unit(rng) * 4 - 2 : 0;
        p->penalty_last_n = (int32_t)below(rng, 40) - 1;
    }
}

static void random_logits(float *logits, int n, uint64_t *rng)
{
    bool coarse = below(rng, 2); /* many ties */
    bool negative = below(rng, 3) == 0;
    for (int i = 0; i < n; i++) {
        double v = (unit(rng) + unit(rng) + unit(rng) - (negative ? 3 : 1.5)) * 8;
        logits[i] = coarse ? (float)(below(rng, 4) ? floor(v / 4) : 0) : (float)v;
        if (below(rng, 50) == 0)
            logits[i] = below(rng, 2) ? -0.0f : -INFINITY;
    }
}

static void random_map(uint64_t *map, uint64_t *rng, bool dense)
{
    for (int i = 0; i < MAX_N / 64 + 1; i++)
        map[i] = dense && below(rng, 2) ? UINT64_MAX : rng_next(rng) | (dense ? rng_next(rng) : 0);
}

static size_t random_bias(skua_logit_bias *bias, int n, uint64_t *rng)
{
    static const float extreme[] = {-100, 100, -99.5f, 99.5f};
    size_t count = below(rng, 2) ? below(rng, n < 6 ? (uint32_t)n : 6) : 0;
    int first = (int)below(rng, (uint32_t)n);
    for (size_t i = 0; i < count; i++) {
        bias[i].id = (first + (int)i * (n > 30 ? 5 : 1)) % n;
        bias[i].bias = below(rng, 4) ? (float)(unit(rng) * 6 - 3) : extreme[below(rng, 4)];
    }
    return count;
}

static void random_text(struct text *t, struct sampler_history *h, int n, uint64_t *rng)
{
    int span = n < 40 ? n : 40;
    t->n = (int)below(rng, 100);
    t->n_prompt = (int)below(rng, (uint32_t)t->n + 1);
    sampler_history_truncate(h, 0);
    for (int i = 0; i < t->n; i++) {
        t->ids[i] = (int)below(rng, (uint32_t)span);
        int rc = i < t->n_prompt ? sampler_history_push_prompt(h, t->ids[i], NULL) : sampler_history_push(h, t->ids[i], NULL);
        assert_int_equal(rc, 0);
    }
}

static void test_against_plain(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 7, 63, 64, 65, 128, 200, MAX_N};
    uint64_t rng = 7, samplable[MAX_N / 64 + 1], mask[MAX_N / 64 + 1];
    static float logits[MAX_N];
    skua_logit_bias bias[6];
    int empty = 0, drawn = 0;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int n = sizes[k];
        struct sampler_workspace ws;
        struct sampler_history h;
        assert_int_equal(sampler_workspace_init(&ws, n, NULL), 0);
        assert_int_equal(sampler_history_init(&h, n, NULL), 0);
        for (int trial = 0; trial < (n < 200 ? 3000 : 500); trial++) {
            skua_sampling p;
            struct sampler s;
            struct text t;
            skua_error err;
            random_params(&p, &rng, n);
            random_logits(logits, n, &rng);
            random_map(samplable, &rng, true);
            random_map(mask, &rng, false);
            random_text(&t, &h, n, &rng);
            p.bias = bias;
            p.n_bias = random_bias(bias, n, &rng);
            const uint64_t *sm = below(&rng, 2) ? samplable : NULL, *mk = below(&rng, 3) == 0 ? mask : NULL;
            assert_int_equal(sampler_init(&s, &p, sm, &ws, NULL), 0);
            s.mask = mk;
            for (uint64_t pos = 100; pos < 104; pos++) {
                int32_t id;
                int rc = sampler_sample(&s, &h, logits, n, pos, &id, &err);
                int want = naive_sample(&p, sm, mk, &t, logits, n, pos);
                CHECK(want == -2 ? rc == SKUA_ESTATE && id == -1 : rc == 0 && id == want);
                empty += want == -2;
                drawn += want >= 0;
            }
            sampler_free(&s);
        }
        sampler_workspace_free(&ws);
        sampler_history_free(&h);
    }
    CHECK(empty > 100 && drawn > 50000);
}

/* A full-size vocabulary, where the selection works on many more entries than it keeps. */
static void test_big_vocabulary(void **state)
{
    (void)state;
    static const struct {
        double t, top_p, min_p;
        int top_k;
    } cases[] = {{1, 1, 0, 0}, {1, 0.95, 0, 0}, {1, 0.95, 0, 20}, {0.7, 1, 0.05, 0}, {1, 0.999999, 0, 50000}, {0, 1, 0, 0}};
    float *logits = malloc(BIG_N * sizeof *logits);
    uint64_t rng = 3;
    struct sampler_workspace ws;
    assert_int_equal(sampler_workspace_init(&ws, BIG_N, NULL), 0);
    for (int flat = 0; flat < 2; flat++) {
        for (int i = 0; i < BIG_N; i++)
            logits[i] = flat ? (float)below(&rng, 3) * 0.25f
                             : (float)((unit(&rng) + unit(&rng) + unit(&rng) + unit(&rng) - 2) * 10);
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            skua_sampling p = plain;
            struct sampler s;
            int32_t id;
            p.temperature = cases[c].t;
            p.top_k = cases[c].top_k;
            p.top_p = cases[c].top_p;
            p.min_p = cases[c].min_p;
            assert_int_equal(sampler_init(&s, &p, NULL, &ws, NULL), 0);
            CHECK(sampler_sample(&s, NULL, logits, BIG_N, c, &id, NULL) == 0);
            CHECK(id == naive_sample(&p, NULL, NULL, NULL, logits, BIG_N, c));
            sampler_free(&s);
        }
    }
    sampler_workspace_free(&ws);
    free(logits);
}

/* Counts of draws at positions 0..rounds-1 against exact probabilities: chi-square of single draws, and of pairs at
   neighbouring positions. Seeds are fixed, so the outcome is too; the limits are the 99.9 % quantiles. */
static double chi_square(const long *counts, const double *p, int n, long total)
{
    double x = 0;
    for (int i = 0; i < n; i++) {
        double e = p[i] * (double)total;
        if (e == 0) {
            CHECK(counts[i] == 0);
            continue;
        }
        x += ((double)counts[i] - e) * ((double)counts[i] - e) / e;
    }
    return x;
}

static void check_distribution(skua_sampling p, const float *logits, const double *prob, double limit, double pair_limit)
{
    enum { ROUNDS = 80000 };
    for (uint64_t seed = 0; seed < 3; seed++) {
        struct sampler_workspace ws;
        struct sampler s;
        long counts[8] = {0}, pairs[64] = {0};
        double pair_prob[64];
        int32_t prev = 0, id;
        p.seed = seed;
        assert_int_equal(sampler_workspace_init(&ws, 8, NULL), 0);
        assert_int_equal(sampler_init(&s, &p, NULL, &ws, NULL), 0);
        for (int r = 0; r < ROUNDS; r++) {
            assert_int_equal(sampler_sample(&s, NULL, logits, 8, (uint64_t)r, &id, NULL), 0);
            counts[id]++;
            if (r & 1)
                pairs[prev * 8 + id]++;
            prev = id;
        }
        for (int i = 0; i < 64; i++)
            pair_prob[i] = prob[i / 8] * prob[i % 8];
        CHECK(chi_square(counts, prob, 8, ROUNDS) < limit);
        CHECK(chi_square(pairs, pair_prob, 64, ROUNDS / 2) < pair_limit);
        sampler_free(&s);
        sampler_workspace_free(&ws);
    }
}

static void test_distributions(void **state)
{
    (void)state;
    /* weights 1 2 4 8 16 1 2 4 (sum 38) as logits */
    static const double weight[8] = {1, 2, 4, 8, 16, 1, 2, 4};
    float logits[8];
    double prob[8];
    skua_sampling p = plain;
    for (int i = 0; i < 8; i++) {
        logits[i] = (float)log(weight[i]);
        prob[i] = weight[i] / 38;
    }
    check_distribution(p, logits, prob, 24.3, 103.4); /* 7 and 63 degrees of freedom */
    p.temperature = 0.5;                              /* squares: sum 362 */
    for (int i = 0; i < 8; i++)
        prob[i] = weight[i] * weight[i] / 362;
    check_distribution(p, logits, prob, 24.3, 103.4);
    p.temperature = 1;
    p.top_k = 3; /* 16, 8 and the first 4: the tie goes to the lower id */
    static const double top3[8] = {0, 0, 4.0 / 28, 8.0 / 28, 16.0 / 28, 0, 0, 0};
    check_distribution(p, logits, top3, 13.9, 26.2); /* 2 and 8 */
    p.top_k = 0;
    p.top_p = 0.75; /* 28.5 of 38: 16 + 8 + 4 = 28 is too little, the second 4 comes in */
    static const double nucleus[8] = {0, 0, 4.0 / 32, 8.0 / 32, 16.0 / 32, 0, 0, 4.0 / 32};
    check_distribution(p, logits, nucleus, 16.3, 37.7); /* 3 and 15 */
    p.top_p = 1;
    p.min_p = 0.4; /* 16 and 8 */
    static const double top2[8] = {0, 0, 0, 8.0 / 24, 16.0 / 24, 0, 0, 0};
    check_distribution(p, logits, top2, 10.9, 16.3); /* 1 and 3 */
}

static int sample_one(const skua_sampling *p, const uint64_t *samplable, const uint64_t *mask,
                      const struct sampler_history *h, const float *logits, int n, uint64_t pos, int32_t *id, skua_error *err)
{
    struct sampler_workspace ws;
    struct sampler s;
    assert_int_equal(sampler_workspace_init(&ws, n, NULL), 0);
    assert_int_equal(sampler_init(&s, p, samplable, &ws, NULL), 0);
    s.mask = mask;
    int rc = sampler_sample(&s, h, logits, n, pos, id, err);
    sampler_free(&s);
    sampler_workspace_free(&ws);
    return rc;
}

static void test_greedy_and_masks(void **state)
{
    (void)state;
    float logits[6] = {1, 5, 5, -1, 5, 9};
    uint64_t no_padding = 0x1f, even = 0x15;
    skua_sampling greedy = plain;
    int32_t id;
    greedy.temperature = 0;
    CHECK(sample_one(&greedy, NULL, NULL, NULL, logits, 6, 0, &id, NULL) == 0 && id == 5);
    CHECK(sample_one(&greedy, &no_padding, NULL, NULL, logits, 6, 0, &id, NULL) == 0 && id == 1);
    CHECK(sample_one(&greedy, &no_padding, &even, NULL, logits, 6, 0, &id, NULL) == 0 && id == 2);
    for (uint64_t pos = 0; pos < 2000; pos++) /* the padding row is the most likely by far and never comes */
        CHECK(sample_one(&plain, &no_padding, NULL, NULL, logits, 6, pos, &id, NULL) == 0 && id != 5);
    skua_logit_bias bias[3] = {{1, -100}, {3, 7}, {5, 1}};
    greedy.bias = bias;
    greedy.n_bias = 3;
    CHECK(sample_one(&greedy, &no_padding, NULL, NULL, logits, 6, 0, &id, NULL) == 0 && id == 3); /* -1 + 7 */
    bias[0].bias = 100;
    CHECK(sample_one(&greedy, NULL, NULL, NULL, logits, 6, 0, &id, NULL) == 0 && id == 1);
    CHECK(sample_one(&greedy, &no_padding, &even, NULL, logits, 6, 0, &id, NULL) == 0 && id == 2); /* the mask wins */
    float wide[3] = {-1e30f, 1e30f, 0}; /* forced whatever the distance, and clamped instead of infinite */
    skua_logit_bias force0 = {0, 100};
    skua_sampling p = plain;
    p.bias = &force0;
    p.n_bias = 1;
    CHECK(sample_one(&p, NULL, NULL, NULL, wide, 3, 1, &id, NULL) == 0 && id == 0);
    float largest[2] = {3.4e38f, 3.402823466e38f};
    skua_logit_bias up = {0, 50};
    p.bias = &up;
    CHECK(sample_one(&p, NULL, NULL, NULL, largest, 2, 1, &id, NULL) == 0 && (id == 0 || id == 1));
}

static void test_errors(void **state)
{
    (void)state;
    float logits[4] = {1, NAN, 2, 3};
    uint64_t without1 = 0xd, none = 0;
    int32_t id;
    skua_error err;
    CHECK(sample_one(&plain, NULL, NULL, NULL, logits, 4, 77, &id, &err) == SKUA_ESTATE && id == -1);
    CHECK(strcmp(err.message, "position 77: the logit of token 1 is NaN, expected a finite number") == 0);
    CHECK(sample_one(&plain, &without1, NULL, NULL, logits, 4, 77, &id, &err) == 0); /* not a candidate: no harm */
    logits[1] = INFINITY;
    CHECK(sample_one(&plain, NULL, NULL, NULL, logits, 4, 5, &id, &err) == SKUA_ESTATE);
    CHECK(strcmp(err.message, "position 5: the logit of token 1 is +inf, expected a finite number") == 0);
    logits[1] = -INFINITY;
    CHECK(sample_one(&plain, NULL, NULL, NULL, logits, 4, 5, &id, &err) == 0 && id != 1);
    CHECK(sample_one(&plain, NULL, &none, NULL, logits, 4, 9, &id, &err) == SKUA_ESTATE && id == -1);
    CHECK(strcmp(err.message, "position 9: no token is left to sample, all 4 are masked, banned or -inf") == 0);
    struct sampler_history h;
    assert_int_equal(sampler_history_init(&h, 5, NULL), 0);
    CHECK(sample_one(&plain, NULL, NULL, &h, logits, 4, 9, &id, &err) == SKUA_EARG);
    sampler_history_free(&h);
    struct sampler_workspace ws;
    struct sampler s;
    skua_sampling bad = plain;
    bad.top_p = 2;
    CHECK(sampler_workspace_init(&ws, 0, &err) == SKUA_EARG && sampler_history_init(&h, 0, &err) == SKUA_EARG);
    assert_int_equal(sampler_workspace_init(&ws, 4, NULL), 0);
    CHECK(sampler_init(&s, &bad, NULL, &ws, &err) == SKUA_EARG && s.ws == NULL);
    assert_int_equal(sampler_init(&s, &plain, NULL, &ws, NULL), 0);
    CHECK(sampler_sample(&s, NULL, logits, 3, 0, &id, &err) == SKUA_EARG);
    sampler_free(&s);
    sampler_workspace_free(&ws);
}

/* The draw belongs to (seed, position): the same whatever was sampled before, with the workspace shared and dirty. */
static void test_keyed(void **state)
{
    (void)state;
    enum { N = 300, POSITIONS = 200 };
    static float logits[POSITIONS][N];
    uint64_t rng = 11;
    int32_t first[POSITIONS], id;
    struct sampler_workspace ws;
    struct sampler a, b;
    skua_sampling p = plain, q = plain;
    p.seed = 5;
    p.top_p = 0.9;
    q.seed = 6;
    q.top_k = 40;
    for (int i = 0; i < POSITIONS; i++)
        random_logits(logits[i], N, &rng);
    assert_int_equal(sampler_workspace_init(&ws, N, NULL), 0);
    assert_int_equal(sampler_init(&a, &p, NULL, &ws, NULL), 0);
    assert_int_equal(sampler_init(&b, &q, NULL, &ws, NULL), 0);
    for (int i = 0; i < POSITIONS; i++)
        assert_int_equal(sampler_sample(&a, NULL, logits[i], N, (uint64_t)i, &first[i], NULL), 0);
    int differ = 0;
    for (int i = POSITIONS - 1; i >= 0; i--) {
        assert_int_equal(sampler_sample(&b, NULL, logits[i], N, (uint64_t)i, &id, NULL), 0);
        differ += id != first[i];
        assert_int_equal(sampler_sample(&a, NULL, logits[i], N, (uint64_t)i, &id, NULL), 0);
        CHECK(id == first[i]);
    }
    CHECK(differ > 20);
    sampler_free(&a);
    sampler_free(&b);
    sampler_workspace_free(&ws);
}

/* Random pushes and roll-backs leave exactly what the surviving tokens pushed afresh give. */
static void test_rollback(void **state)
{
    (void)state;
    enum { N = 30 };
    uint64_t rng = 13;
    struct sampler_history h;
    struct text t = {.n = 0};
    assert_int_equal(sampler_history_init(&h, N, NULL), 0);
    for (int round = 0; round < 3000; round++) {
        if (t.n > 400 || below(&rng, 3) == 0) {
            t.n = t.n ? (int)below(&rng, (uint32_t)t.n + 1) : 0;
            t.n_prompt = t.n < t.n_prompt ? t.n : t.n_prompt;
            sampler_history_truncate(&h, (size_t)t.n);
        }
        for (uint32_t k = below(&rng, 9); k > 0; k--) {
            int id = (int)below(&rng, N);
            bool prompt = t.n == t.n_prompt && below(&rng, 2);
            assert_int_equal(prompt ? sampler_history_push_prompt(&h, id, NULL) : sampler_history_push(&h, id, NULL), 0);
            t.ids[t.n++] = id;
            t.n_prompt += prompt;
        }
        struct sampler_history fresh;
        assert_int_equal(sampler_history_init(&fresh, N, NULL), 0);
        for (int i = 0; i < t.n; i++)
            assert_int_equal(i < t.n_prompt ? sampler_history_push_prompt(&fresh, t.ids[i], NULL)
                                            : sampler_history_push(&fresh, t.ids[i], NULL), 0);
        CHECK(h.len == fresh.len && h.n_prompt == fresh.n_prompt && memcmp(h.last, fresh.last, N * sizeof *h.last) == 0);
        CHECK(!h.len || memcmp(h.entries, fresh.entries, h.len * sizeof *h.entries) == 0);
        int id = (int)below(&rng, N), count = 0;
        for (int i = t.n_prompt; i < t.n; i++)
            count += t.ids[i] == id;
        CHECK(sampler_history_count(&h, id) == count);
        sampler_history_free(&fresh);
    }
    skua_error err;
    CHECK(sampler_history_push(&h, N, &err) == SKUA_EARG && sampler_history_push(&h, -1, &err) == SKUA_EARG);
    CHECK(sampler_history_push(&h, 1, &err) == 0 && sampler_history_push_prompt(&h, 1, &err) == SKUA_ESTATE);
    CHECK(sampler_history_count(&h, -1) == 0 && sampler_history_count(&h, N) == 0);
    CHECK(sampler_history_reserve(&h, SIZE_MAX, &err) == SKUA_ELIMIT);
    sampler_history_free(&h);
}

static int whole_life(void)
{
    skua_logit_bias bias = {1, 2};
    skua_sampling p = plain;
    struct sampler_workspace ws = {0};
    struct sampler s = {0};
    struct sampler_history h = {0};
    float logits[70] = {0};
    int32_t id;
    p.bias = &bias;
    p.n_bias = 1;
    p.top_p = 0.5;
    int rc = sampler_workspace_init(&ws, 70, NULL);
    if (!rc)
        rc = sampler_history_init(&h, 70, NULL);
    if (!rc)
        rc = sampler_init(&s, &p, NULL, &ws, NULL);
    for (int i = 0; i < 600 && !rc; i++) {
        size_t len = h.len;
        rc = sampler_history_push(&h, i % 70, NULL);
        CHECK(h.len == len + (rc == 0));
    }
    if (!rc) {
        uint64_t before = fault_alloc_count();
        rc = sampler_sample(&s, &h, logits, 70, 1, &id, NULL);
        CHECK(fault_alloc_count() == before); /* sampling allocates nothing */
    }
    sampler_free(&s);
    sampler_history_free(&h);
    sampler_workspace_free(&ws);
    return rc;
}

static void test_allocation_failures(void **state)
{
    (void)state;
    int failed = 0, rc;
    for (uint64_t n = 1;; n++) {
        fault_set_alloc(n, true);
        rc = whole_life();
        fault_set_alloc(0, false);
        if (!rc)
            break;
        CHECK(rc == SKUA_ENOMEM);
        failed++;
    }
    CHECK(failed == 8); /* 4 workspace, 1 history, 1 bias, 2 growths (256, then 640 entries) */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),
        cmocka_unit_test(test_against_plain),
        cmocka_unit_test(test_big_vocabulary),
        cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_greedy_and_masks),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_keyed),
        cmocka_unit_test(test_rollback),
        cmocka_unit_test(test_allocation_failures),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("%lu checks\n", checks);
    return failed || !checks;
}
