/* The scheduler's rules one by one: limits, evidence, fixed and scripted schedules, sources that come and go, lookup, hindsight, cutting
 * by confidence, several sessions in a pass, the cost table. Whole runs are in test_spec_sched_sim.c. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "spec/sched.h"
#include "support/support.h"

static const int32_t zeros[DRAFT_MAX + 1];

static struct sched_costs costs;
static struct sched sched;

static double flat(int32_t width) { return 30 + width; }

static void start(int32_t n_sources, const enum sched_kind *kinds, double min_gain)
{
    struct sched_config config = {.costs = &costs, .n_sources = n_sources, .min_gain = min_gain};
    struct sched_prior prior = {.bytes = 30, .bytes_row = 1, .bandwidth = 1, .mac_rate = 1};
    sched_costs_init(&costs, &prior);
    for (int32_t i = 0; i < n_sources; i++) {
        config.kinds[i] = kinds[i];
        sched_costs_source(&costs, i, kinds[i] == SCHED_BLOCK ? 2 : 0, kinds[i] == SCHED_CHAIN ? 0.5 : 0);
    }
    for (int i = 0; i < 3; i++)
        sched_costs_add_verify(&costs, 1, 1000, flat(1));
    sched_init(&sched, &config);
}

static struct sched_ask ask_for(int32_t remaining, int32_t n)
{
    struct sched_ask a = {.ctx = 1000, .remaining = remaining, .k_limit = DRAFT_MAX};
    for (int32_t i = 0; i < SCHED_MAX_SOURCES; i++)
        a.offers[i].n = n;
    return a;
}

/* A round with the first `accepted` drafts accepted; its choice. */
static struct sched_choice play(const struct sched_ask *a, int32_t accepted)
{
    struct sched_round r = {.choice = sched_choose(&sched, a), .ctx = a->ctx, .ids = zeros};
    int32_t k = r.choice.k;
    accepted = accepted < k ? accepted : k;
    r.match = k ? a->offers[r.choice.source].match : 0;
    r.n_drafted = r.n_verified = k;
    r.n_tested = accepted < k ? accepted + 1 : k;
    r.n_accepted = accepted;
    r.n_ids = accepted + 1;
    r.t_draft = k ? sched_costs_draft(&costs, r.choice.source, k) : 0;
    r.t_verify = flat(k + 1);
    sched_observe(&sched, &r);
    return r.choice;
}

static const enum sched_kind one_chain[] = {SCHED_CHAIN}, one_block[] = {SCHED_BLOCK};

/* Never more drafts than may be published, than offered, than the pass has rows for. */
static void test_limits(void)
{
    start(1, one_chain, 0);
    for (int i = 0; i < 60; i++)
        play(&(struct sched_ask){.ctx = 1000, .remaining = 500, .k_limit = 7, .offers = {{.n = 7}}}, 7);
    CHECK(sched.k == 7, "all accepted: K %d", sched.k);
    for (int32_t remaining = 1; remaining <= 9; remaining++) {
        struct sched_ask a = ask_for(remaining, 7);
        struct sched_choice c = sched_choose(&sched, &a);
        int32_t want = remaining - 1 < 7 ? remaining - 1 : 7;
        CHECK(c.k == want && (c.source == SCHED_NONE) == (want == 0), "%d remain: K %d", remaining, c.k);
    }
    struct sched_ask narrow = ask_for(100, 7);
    narrow.k_limit = 3;
    CHECK(sched_choose(&sched, &narrow).k == 3 && sched.k == 7, "K limit 3");
    narrow.offers[0].n = 2;
    CHECK(sched_choose(&sched, &narrow).k == 2, "offer 2");
    narrow.offers[0].n = 0;
    CHECK(sched_choose(&sched, &narrow).source == SCHED_NONE, "no offer");
}

/* A run cut by a stop token tells only of the depths that were tested. */
static void test_evidence(void)
{
    start(1, one_chain, 0);
    struct sched_accept before = sched.accept[0][0], *after = &sched.accept[0][0];
    struct sched_round r = {.choice = {.source = 0, .k = 7, .hindsight = SCHED_NONE}, .ctx = 1000, .n_drafted = 7, .n_verified = 7,
                            .n_tested = 3, .n_accepted = 3, .ids = zeros, .n_ids = 3, .t_verify = 1};
    sched_observe(&sched, &r);
    for (int32_t d = 0; d < DRAFT_MAX; d++) {
        bool same = after->good[d] == before.good[d] && after->bad[d] == before.bad[d];
        CHECK(same == (d >= 3), "cut after 3: depth %d", d + 1);
        CHECK(after->tested_at[d] == (d < 3 ? 3 : 0), "depth %d tested at %d", d + 1, (int)after->tested_at[d]);
    }
    before = *after;
    r.n_tested = 3; /* two accepted, the third not */
    r.n_accepted = 2;
    sched_observe(&sched, &r);
    CHECK(after->good[1] > before.good[1] && after->bad[2] > before.bad[2] && after->bad[3] == before.bad[3], "2 of 3");
    CHECK(sched.stats.rounds == 2 && sched.stats.tokens == 6 && sched.stats.depth[7] == 2 && sched.stats.used[0] == 2, "counts");
    CHECK(sched.stats.tested[0][2] == 2 && sched.stats.accepted[0][2] == 1 && sched.stats.tested[0][3] == 0, "depth 3");
}

/* Two surprises of a kind in a row make the past count less; one does not. */
static void test_surprise(void)
{
    struct sched_accept a;
    sched_accept_init(&a, 0.6, NULL);
    for (int i = 0; i < 60; i++)
        sched_accept_observe(&a, 2, 2, NULL);
    CHECK(sched_accept_mean(&a, 1) > 0.94 && a.good[0] + a.bad[0] <= 50, "mean %g", sched_accept_mean(&a, 1));
    sched_accept_observe(&a, 1, 0, NULL);
    CHECK(a.good[0] + a.bad[0] > 30 && a.low == 1, "one surprise");
    sched_accept_observe(&a, 2, 2, NULL);
    sched_accept_observe(&a, 1, 0, NULL);
    CHECK(a.good[0] + a.bad[0] > 30, "not in a row");
    for (int i = 0; i < 60; i++)
        sched_accept_observe(&a, 2, 2, NULL);
    sched_accept_observe(&a, 1, 0, NULL);
    sched_accept_observe(&a, 1, 0, NULL);
    CHECK(a.good[1] + a.bad[1] <= 4, "two in a row: weight %g", (double)a.good[1] + a.bad[1]);
    for (int i = 0; i < 40; i++)
        sched_accept_observe(&a, 1, 0, NULL);
    double upper = sched_accept_upper(&a, 1);
    sched_accept_advance(&a, 300);
    CHECK(sched_accept_upper(&a, 1) > upper + 0.3 && sched_accept_mean(&a, 1) < 0.1, "what is not tested for long may have changed");
}

static void test_schedules(void)
{
    static const int32_t script[] = {0, 7, 1, 0, 3, 15}, fixed[] = {5};
    struct sched_config config = {.costs = &costs, .n_sources = 2, .kinds = {SCHED_LOOKUP, SCHED_BLOCK}, .mode = SCHED_SCRIPT,
                                  .script = script, .n_script = 6};
    start(1, one_chain, 0);
    sched_init(&sched, &config);
    for (int i = 0; i < 15; i++) {
        struct sched_ask a = ask_for(100, 7);
        int32_t want = script[i % 6] < 7 ? script[i % 6] : 7;
        a.offers[0].n = i % 2 ? 0 : 7; /* lookup has something now and then: the next source drafts */
        struct sched_choice c = play(&a, 0);
        CHECK(c.k == want && c.source == (want ? i % 2 : SCHED_NONE) && c.full_block == (want > 0) && !c.probe,
              "round %d: K %d of source %d", i, c.k, c.source);
    }
    config.mode = SCHED_FIXED;
    config.script = fixed;
    config.n_script = 1;
    sched_init(&sched, &config);
    for (int i = 0; i < 200; i++) {
        struct sched_ask a = ask_for(i < 199 ? 100 : 3, 7);
        CHECK(play(&a, 0).k == (i < 199 ? 5 : 2), "fixed");
    }
}

/* What is accepted too seldom for the gain that was asked for is not used; a little more, and it is. */
static void test_min_gain(void)
{
    for (int high = 0; high < 2; high++) {
        uint64_t rng = 3;
        int used = 0;
        start(1, one_chain, high ? 0.05 : 0.6);
        for (int i = 0; i < 600; i++) {
            struct sched_ask a = ask_for(1000, 1);
            struct sched_choice c = play(&a, rng_next(&rng) % 100 < 50);
            used += i >= 300 && c.k > 0 && !c.probe;
        }
        CHECK(high ? used > 290 : used == 0, "gain of 43 %%, %s: drafted in %d of 300 rounds", high ? "5 asked" : "60 asked", used);
    }
}

/* A negative gain: drafts in every round that has an offer and room for one, of whatever kind, though none is ever accepted. */
static void test_forced(void)
{
    static const enum sched_kind kinds[] = {SCHED_BLOCK, SCHED_CHAIN, SCHED_LOOKUP};
    for (int only = 0; only < 4; only++) {
        start(only < 3 ? 1 : 3, only < 3 ? kinds + only : kinds, -1);
        for (int32_t w = 1; w <= 8; w++)
            sched_costs_add_verify(&costs, w, 1000, 30.0 * w);
        for (int i = 0; i < 600; i++) {
            struct sched_ask a = ask_for(i % 50 == 49 ? 1 : 1000, i % 60 == 59 ? 0 : 7);
            const bool can = a.remaining > 1 && a.offers[0].n > 0;
            struct sched_choice c = play(&a, 0);
            CHECK((c.k > 0) == can && c.hindsight == SCHED_NONE, "kinds %d, round %d: %d drafts", only, i, c.k);
            struct draft d = {.n = 7, .confidence = {0.01f, 0.01f}};
            CHECK(!can || sched_truncate(&sched, &c, &d, 1, 1000, 2) == 1, "kinds %d, round %d: cut to nothing", only, i);
        }
    }
}

/* A source that failed is gone, and another takes over at once. */
static void test_removal(void)
{
    static const enum sched_kind two[] = {SCHED_CHAIN, SCHED_BLOCK};
    start(2, two, 0);
    for (int i = 0; i < 100; i++) {
        struct sched_ask a = ask_for(1000, 7);
        play(&a, 7);
    }
    int32_t source = sched.source;
    CHECK(source != SCHED_NONE, "drafting");
    sched_remove(&sched, source);
    for (int i = 0; i < 300; i++) {
        struct sched_ask a = ask_for(1000, 7);
        struct sched_choice c = play(&a, 7);
        CHECK(c.source != source && c.hindsight != source, "removed source drafts in round %d", i);
    }
    CHECK(sched.source == 1 - source, "incumbent is %d", sched.source);
    sched_remove(&sched, 1 - source);
    struct sched_ask a = ask_for(1000, 7);
    CHECK(play(&a, 0).source == SCHED_NONE, "none is left");
}

/* Lookup: good matches are used when they are there, bad ones are not, and both are known from rounds that did not use them. */
static void test_lookup(void)
{
    static const enum sched_kind two[] = {SCHED_LOOKUP, SCHED_CHAIN};
    uint64_t rng = 9;
    int offered[2] = {0}, used[2] = {0};
    start(2, two, 0);
    for (int i = 0; i < 1500; i++) {
        struct sched_ask a = ask_for(100000, 3);
        int good = i / 40 % 3 == 0, bad = i / 40 % 3 == 1;
        a.offers[0] = (struct sched_offer){.n = good ? 15 : bad ? 3 : 0, .match = good ? 20 : bad ? 5 : 0};
        struct sched_round r = {.choice = sched_choose(&sched, &a), .ctx = a.ctx, .ids = zeros};
        struct draft d = {.n = a.offers[0].n, .match = a.offers[0].match};
        int32_t accepted = 0, k = r.choice.k;
        while (accepted < k && rng_next(&rng) % 100 < (r.choice.source == 1 ? 30u : good ? 95 : 10))
            accepted++;
        for (int32_t j = 0; j < d.n; j++) /* the text is all zeros */
            d.ids[j] = rng_next(&rng) % 100 >= (good ? 95u : 10);
        if (r.choice.source != 0)
            sched_shadow(&sched, 0, &d);
        r.match = r.choice.source == 0 ? d.match : 0;
        r.n_drafted = r.n_verified = k;
        r.n_tested = accepted < k ? accepted + 1 : k;
        r.n_accepted = accepted;
        r.n_ids = accepted + 1;
        r.t_draft = k ? sched_costs_draft(&costs, r.choice.source, k) : 0;
        r.t_verify = flat(k + 1);
        sched_observe(&sched, &r);
        for (int b = 0; b < 2; b++)
            if (i >= 300 && (b ? bad : good)) {
                offered[b]++;
                used[b] += r.choice.source == 0 && !r.choice.probe;
            }
    }
    CHECK(used[0] > offered[0] * 9 / 10, "good matches used in %d of %d rounds", used[0], offered[0]);
    CHECK(used[1] < offered[1] / 10, "bad matches used in %d of %d rounds", used[1], offered[1]);
    CHECK(sched_accept_mean(&sched.accept[0][4], 3) > 0.85 && sched_accept_mean(&sched.accept[0][0], 1) < 0.25, "means %g %g",
          sched_accept_mean(&sched.accept[0][4], 3), sched_accept_mean(&sched.accept[0][0], 1));
}

static void test_shadow(void)
{
    static const int32_t text[] = {5, 6, 7, 8, 9, 10};
    start(1, one_block, 0);
    struct sched_accept *a = &sched.accept[0][0], before = *a;
    struct draft d = {.n = 5, .ids = {5, 6, 7, 1, 2}, .confidence = {-1, -1, -1, -1, -1}};
    struct sched_round r = {.choice = {.source = SCHED_NONE, .hindsight = 0, .n_hindsight = 5}, .ctx = 10, .n_drafted = 5, .ids = text,
                            .n_ids = 1, .t_draft = 1, .t_verify = 1}; /* less than expected */
    sched_shadow(&sched, 0, &d);
    for (int i = 0; i < 5; i++, r.ids++) {
        sched_observe(&sched, &r);
        r.choice.hindsight = SCHED_NONE;
        r.n_drafted = 0;
        bool judged = a->bad[3] > before.bad[3];
        CHECK(judged == (i >= 3), "token %d", i);
    }
    CHECK(a->good[2] > before.good[2] && a->bad[4] == before.bad[4] && a->seen == 1, "3 of 4");
    CHECK(costs.draft[0][5].n == 1 && sched.stats.hindsights == 1, "its time is known");
    before = *a;
    sched_shadow(&sched, 0, &d);
    r.ids = text;
    r.n_ids = 2;
    sched_observe(&sched, &r);
    sched_forget_shadows(&sched); /* what was right until then counts */
    CHECK(a->good[1] > before.good[1] && a->good[2] == before.good[2] && a->bad[2] == before.bad[2], "a shadow that was cut");
    r.ids = text + 2;
    sched_observe(&sched, &r);
    CHECK(a->good[2] == before.good[2], "forgotten");
}

/* Confidences that tell good drafts from bad ones cut proposals where verifying stops paying. */
static void test_truncate(void)
{
    uint64_t rng = 4;
    start(1, one_block, 0);
    for (int32_t w = 1; w <= 8; w++)
        sched_costs_add_verify(&costs, w, 1000, 10.0 * w + 20);
    struct sched_choice c = {.source = 0, .k = 7, .hindsight = SCHED_NONE};
    struct draft d = {.n = 7};
    for (int i = 0; i < 400; i++) {
        int32_t accepted = 0;
        for (int32_t j = 0; j < 7; j++)
            d.confidence[j] = rng_next(&rng) % 2 ? 0.95f : 0.2f;
        while (accepted < 7 && rng_next(&rng) % 100 < (d.confidence[accepted] > 0.5 ? 97u : 10))
            accepted++;
        struct sched_round r = {.choice = c, .ctx = 1000, .n_drafted = 7, .n_verified = 7, .n_tested = accepted < 7 ? accepted + 1 : 7,
                                .n_accepted = accepted, .confidence = d.confidence, .ids = zeros, .n_ids = accepted + 1, .t_draft = 2,
                                .t_verify = 100};
        sched_observe(&sched, &r);
    }
    for (int32_t good = 0; good <= 7; good++) {
        for (int32_t j = 0; j < 7; j++)
            d.confidence[j] = j < good ? 0.95f : 0.2f;
        int32_t k = sched_truncate(&sched, &c, &d, 7, 1000, 2);
        CHECK(k == good, "%d good drafts: %d verified", good, k);
    }
    c.probe = true;
    CHECK(sched_truncate(&sched, &c, &d, 7, 1000, 2) == 7, "a probe is not cut");
    c.probe = false;
    d.confidence[0] = -1;
    CHECK(sched_truncate(&sched, &c, &d, 7, 1000, 2) == 7, "no confidences");
}

/* Means outlive the session; a bad drafter is said once. */
static void test_memory(void)
{
    static struct sched_memory memory;
    start(1, one_chain, 0);
    CHECK(!sched_poor(&sched, 0), "nothing is known yet");
    for (int i = 0; i < 100; i++)
        sched_accept_observe(&sched.accept[0][0], 2, 0, NULL);
    CHECK(sched_poor(&sched, 0) && !sched_poor(&sched, 0), "poor, once");
    double mean = sched_accept_mean(&sched.accept[0][0], 1);
    sched_remember(&sched, &memory);
    struct sched_config config = sched.config;
    config.memory = &memory;
    sched_init(&sched, &config);
    CHECK(fabs(sched_accept_mean(&sched.accept[0][0], 1) - fmax(mean, 0.02)) < 1e-6, "mean %g", sched_accept_mean(&sched.accept[0][0], 1));
    CHECK(sched.accept[0][0].good[0] + sched.accept[0][0].bad[0] < 2.01, "it weighs little");
    struct sched_ask a = ask_for(100, 7);
    CHECK(play(&a, 0).k == 0, "starts serial");
}

/* Four sessions in a pass, one easy and three hard: the easy one keeps its drafts, the others' are cut. */
static void test_admit(void)
{
    static struct sched s[4];
    struct sched_choice choices[4];
    struct sched_member members[4];
    start(1, one_chain, 0);
    for (int32_t w = 1; w <= 40; w++)
        sched_costs_add_verify(&costs, w, 1000, 20 + 4 * w);
    for (int i = 0; i < 4; i++) {
        sched_init(&s[i], &sched.config);
        for (int j = 0; j < 100; j++)
            sched_accept_observe(&s[i].accept[0][0], 7, i == 2 ? 7 : 0, NULL);
        choices[i] = (struct sched_choice){.source = 0, .k = 7, .hindsight = SCHED_NONE};
        members[i] = (struct sched_member){&s[i], &choices[i], 0, 1000};
    }
    size_t live = mem_live_blocks();
    skua_error err = {0};
    fault_set_alloc(1, true);
    CHECK(sched_admit(&costs, &costs, members, 4, &err) == SKUA_ENOMEM && choices[0].k == 7, "%s", err.message);
    fault_set_alloc(0, false);
    CHECK(sched_admit(&costs, &costs, members, 4, &err) == 0 && mem_live_blocks() == live, "%s", err.message);
    for (int i = 0; i < 4; i++)
        CHECK(choices[i].k == (i == 2 ? 7 : 0) && (choices[i].source == SCHED_NONE) == (i != 2), "session %d: K %d", i, choices[i].k);
    CHECK(sched_admit(&costs, &costs, members, 0, &err) == 0, "nobody");
}

static void test_cost_table(void)
{
    struct sched_prior prior = {.bytes = 100, .bytes_row = 1, .bytes_pos = 0.01, .macs_row = 30, .macs_pos = 0.02, .bandwidth = 10,
                                .mac_rate = 10};
    sched_costs_init(&costs, &prior);
    CHECK(fabs(sched_costs_verify(&costs, 1, 0) - 1.1 * 10.1) < 1e-9, "from bytes: %g", sched_costs_verify(&costs, 1, 0));
    CHECK(fabs(sched_costs_verify(&costs, 8, 1000) - 1.1 * 8 * 5) < 1e-9, "from multiply-adds: %g", sched_costs_verify(&costs, 8, 1000));
    CHECK(!sched_costs_measured(&costs, 1), "measured");
    for (int i = 0; i < 9; i++) /* a stall every third time does not count */
        sched_costs_add_verify(&costs, 1, 1000, i % 3 == 1 ? 500 : 22.2);
    CHECK(fabs(sched_costs_verify(&costs, 1, 1000) / costs.drift - 22.2) < 1.5 && sched_costs_measured(&costs, 1), "measured: %g",
          sched_costs_verify(&costs, 1, 1000));
    double one = sched_costs_verify(&costs, 1, 1000), far = sched_costs_verify(&costs, 1, 4000);
    CHECK(far / one > 1.2 && far / one < 1.35, "four times the context: %g", far / one);
    double ratio = sched_costs_verify(&costs, 2, 0) / sched_costs_verify(&costs, 1, 0);
    CHECK(fabs(ratio - 1.1 * 10.2 / 10.1) < 0.05, "width 2 takes the level of 1: %g", ratio);
    CHECK(sched_costs_verify(&costs, 200, 1000) > sched_costs_verify(&costs, 100, 1000), "widths beyond the table");
    sched_costs_add_verify(&costs, 3, 1000, 1);
    CHECK(sched_costs_verify(&costs, 3, 1000) < 1.01 && sched_costs_verify(&costs, 2, 1000) > 0.5 * one, "jagged widths stay");
    sched_costs_add_verify(&costs, 5, 1000, 1.2);
    CHECK(fabs(sched_costs_verify(&costs, 4, 1000) - 1.1 * 1.1) < 0.01 && fabs(sched_costs_verify(&costs, 8, 1000) - 1.1 * 1.5) < 0.01,
          "on the line through 3 and 5: %g %g", sched_costs_verify(&costs, 4, 1000), sched_costs_verify(&costs, 8, 1000));
    sched_costs_add_verify(&costs, 3, 1000, 0);
    sched_costs_add_verify(&costs, 3, 1000, (double)NAN);
    sched_costs_add_verify(&costs, 3, 1000, (double)INFINITY);
    CHECK(sched_costs_verify(&costs, 3, 1000) < 1.01, "no times");
    sched_costs_source(&costs, 1, 2, 0.5);
    CHECK(sched_costs_draft(&costs, 0, 5) == 0, "free drafts");
    sched_costs_add_draft(&costs, 1, 4, 8 * costs.drift);
    double four = sched_costs_draft(&costs, 1, 4) / costs.drift, eight = sched_costs_draft(&costs, 1, 8) / costs.drift;
    CHECK(fabs(four - 8) < 1e-5 && fabs(eight - 12) < 1e-5, "4 and 8 drafts: %g and %g", four, eight);
}

/* Whatever happens, times that are none included, a choice keeps to what was offered. */
static void test_anything(void)
{
    static const enum sched_kind four[] = {SCHED_LOOKUP, SCHED_BLOCK, SCHED_CHAIN, SCHED_COMBINED};
    static const double times[] = {0, 1, 50, 1e9, (double)INFINITY, (double)NAN};
    uint64_t rng = 11;
    start(4, four, 0);
    for (int i = 0; i < 20000; i++) {
        struct sched_ask a = {.ctx = (int32_t)(rng_next(&rng) % 300000), .remaining = 1 + (int32_t)(rng_next(&rng) % 40),
                              .k_limit = (int32_t)(rng_next(&rng) % 40)};
        for (int s = 0; s < 4; s++)
            a.offers[s] = (struct sched_offer){(int32_t)(rng_next(&rng) % 40), (int32_t)(rng_next(&rng) % 30)};
        if (i == 15000)
            sched_remove(&sched, 2);
        struct sched_round r = {.choice = sched_choose(&sched, &a), .ctx = a.ctx, .ids = zeros};
        int32_t k = r.choice.k;
        bool none = r.choice.source == SCHED_NONE;
        CHECK(none == (k == 0) && k < a.remaining && k <= a.k_limit && k <= DRAFT_MAX && (none || k <= a.offers[r.choice.source].n),
              "round %d: K %d of source %d", i, k, r.choice.source);
        CHECK(i < 15000 || r.choice.source != 2, "round %d: a source that was removed", i);
        CHECK(r.choice.hindsight == SCHED_NONE || (r.choice.hindsight == 1 && none), "round %d: hindsight", i);
        r.n_accepted = (int32_t)(rng_next(&rng) % (uint64_t)(k + 1));
        r.n_tested = r.n_accepted < k ? r.n_accepted + 1 : k;
        r.n_drafted = none ? r.choice.n_hindsight : k;
        r.n_verified = k;
        r.match = none ? 0 : a.offers[r.choice.source].match;
        r.n_ids = r.n_accepted + 1;
        r.t_draft = times[rng_next(&rng) % 6];
        r.t_verify = times[rng_next(&rng) % 6];
        sched_observe(&sched, &r);
    }
    CHECK(sched.stats.rounds == 20000 && isfinite(costs.drift), "drift %g", costs.drift);
}

int main(void)
{
    test_limits();
    test_evidence();
    test_surprise();
    test_schedules();
    test_min_gain();
    test_forced();
    test_removal();
    test_lookup();
    test_shadow();
    test_truncate();
    test_memory();
    test_admit();
    test_cost_table();
    test_anything();
    return support_finish("spec_sched");
}
