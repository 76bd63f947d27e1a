/* The scheduler; see sched.h. */
#include "spec/sched.h"

#include <math.h>
#include <string.h>

#define CHANGE_GAIN 1.05   /* the incumbent changes at once; */
#define CHANGE_TIMES 6     /* below that when so many decisions in a row say the same */
#define PROBE_GAIN 1.02    /* what an arm must be able to be better */
/* Credit at the begin of a session: trials, and the steps of plain decoding that one of them may take at most. */
#define FIRST_TRIALS 2
#define FIRST_STEPS 1.0
#define PROBE_SHARE 0.01   /* of the time that pays for probes */
#define CREDIT_CAP 1.5     /* passes of two rows */
#define RATE_FADE 0.98
#define FIRST_MEAN 0.6     /* acceptance at depth 1 of a model drafter that nothing is known of */
#define PAUSE 32           /* tokens without a draft */
#define KNOWN_TESTED 2     /* first drafts, for their acceptance to be more than a guess */
#define POOR_TESTED 64
#define POOR_MEAN 0.2

struct arm {
    int32_t source, k;
    double tokens, seconds, upper; /* expected; upper: the rate that it may well have */
    double hoped;                  /* the rate if its pass, hardly ever timed, takes as little as it may */
};

int32_t sched_match_bucket(int32_t match) { return match < 6 ? 0 : match < 8 ? 1 : match < 12 ? 2 : match < 16 ? 3 : 4; }

static bool now_and_then(enum sched_kind kind) { return kind == SCHED_LOOKUP || kind == SCHED_COMBINED; }

static int32_t min_i(int32_t a, int32_t b) { return a < b ? a : b; }

void sched_init(struct sched *s, const struct sched_config *config)
{
    static const double by_match[SCHED_BUCKETS_MATCH] = {0.3, 0.45, 0.6, 0.75, 0.85};
    memset(s, 0, sizeof *s);
    s->config = *config;
    s->source = s->other_source = SCHED_NONE;
    for (int32_t i = 0; i < config->n_sources; i++)
        for (int32_t b = 0; b < SCHED_BUCKETS_MATCH; b++) {
            bool known = config->memory && config->memory->known[i][b];
            sched_accept_init(&s->accept[i][b], now_and_then(config->kinds[i]) ? by_match[b] : FIRST_MEAN,
                              known ? config->memory->mean[i][b] : NULL);
        }
    s->config.memory = NULL;
}

/* ---- arms ---- */

static struct arm serial_arm(const struct sched *s, int32_t ctx)
{
    double seconds = sched_costs_verify(s->config.costs, 1, ctx);
    return (struct arm){SCHED_NONE, 0, 1, seconds, 1 / seconds, 1 / seconds};
}

/* The arms of one source with 1..k_max drafts into arms. */
static void list_arms(const struct sched *s, int32_t source, int32_t match, int32_t k_max, int32_t ctx, struct arm *arms)
{
    const struct sched_accept *a = &s->accept[source][sched_match_bucket(match)];
    double mean = 1, upper = 1, tokens = 1, most = 1;
    for (int32_t k = 1; k <= k_max; k++) {
        mean *= sched_accept_mean(a, k);
        upper *= sched_accept_upper(a, k);
        tokens += mean;
        most += upper;
        const double draft = sched_costs_draft(s->config.costs, source, k);
        const double seconds = draft + sched_costs_verify(s->config.costs, k + 1, ctx);
        const double hoped = tokens / (draft + sched_costs_verify_hoped(s->config.costs, k + 1, ctx));
        arms[k - 1] = (struct arm){source, k, tokens, seconds, most / seconds, hoped};
    }
}

static int32_t most_drafts(const struct sched *s, const struct sched_ask *ask, int32_t source)
{
    int32_t k = s->removed[source] ? 0 : min_i(min_i(ask->offers[source].n, DRAFT_MAX), min_i(ask->remaining - 1, ask->k_limit));
    return k > 0 ? k : 0;
}

static double rate_of(const struct arm *a) { return a->tokens / a->seconds; }

/* Everything that could be done in this round. arms has room for all; serial is the first. */
static int32_t all_arms(const struct sched *s, const struct sched_ask *ask, struct arm *arms)
{
    int32_t n = 1;
    arms[0] = serial_arm(s, ask->ctx);
    for (int32_t i = 0; i < s->config.n_sources; i++) {
        int32_t k = most_drafts(s, ask, i);
        list_arms(s, i, ask->offers[i].match, k, ask->ctx, arms + n);
        n += k;
    }
    return n;
}

/* ---- the incumbent ---- */

static const struct arm *find_arm(const struct arm *arms, int32_t n, int32_t source, int32_t k)
{
    const struct arm *found = &arms[0]; /* the deepest allowed one of the source; serial when it has none */
    for (int32_t i = 1; i < n; i++)
        if (arms[i].source == source && arms[i].k <= k && (found->source != source || arms[i].k > found->k))
            found = &arms[i];
    return found;
}

static void set_incumbent(struct sched *s, const struct arm *a)
{
    s->stats.changes += s->decided && (s->source != a->source || s->k != a->k);
    s->source = s->other_source = a->source;
    s->k = s->other_k = a->k;
    s->decided = true;
}

/* Keep or change the incumbent; its arm as far as this round allows it. */
static const struct arm *decide(struct sched *s, const struct arm *arms, int32_t n, bool limited)
{
    double bar = rate_of(&arms[0]) * (1 + s->config.min_gain);
    const struct arm *best = &arms[0];
    for (int32_t i = 1; i < n; i++)
        if (!now_and_then(s->config.kinds[arms[i].source]) && rate_of(&arms[i]) > rate_of(best) && rate_of(&arms[i]) >= bar)
            best = &arms[i];
    const struct arm *now = find_arm(arms, n, s->source, s->k);
    if (!s->decided) {
        set_incumbent(s, best);
        return best;
    }
    if (limited) /* the end of the answer is near: take what is best, change nothing */
        return best;
    bool below = now->k > 0 && rate_of(now) < bar;
    if (best == now) {
        s->other_source = s->source;
        s->other_k = s->k;
    } else {
        s->other_times = s->other_source == best->source && s->other_k == best->k ? s->other_times + 1 : 1;
        s->other_source = best->source;
        s->other_k = best->k;
        if (below || rate_of(best) >= CHANGE_GAIN * rate_of(now) || s->other_times >= CHANGE_TIMES) {
            set_incumbent(s, best);
            return best;
        }
    }
    return now;
}

/* ---- choices ---- */

/* Draft whether it pays or not. */
static bool forced(const struct sched *s) { return s->config.min_gain < 0; }

/* The best arm that drafts; serial when there is none. */
static const struct arm *best_drafting(const struct arm *arms, int32_t n)
{
    const struct arm *best = &arms[0];
    for (int32_t i = 1; i < n; i++)
        if (i == 1 || rate_of(&arms[i]) > rate_of(best))
            best = &arms[i];
    return best;
}

/* The arm of a source that drafts now and then whose gain over its time at the going rate is largest; NULL: none gains. */
static const struct arm *opportunity(const struct sched *s, const struct arm *arms, int32_t n, const struct arm *now)
{
    double rate = s->sum_seconds > 0 ? fmax(rate_of(now), s->sum_tokens / s->sum_seconds) : rate_of(now), most = 0;
    double bar = rate_of(&arms[0]) * (1 + s->config.min_gain);
    const struct arm *best = NULL;
    for (int32_t i = 1; i < n; i++) {
        double gain = arms[i].tokens - rate * arms[i].seconds;
        if (now_and_then(s->config.kinds[arms[i].source]) && rate_of(&arms[i]) > fmax(rate_of(now), bar) && (!best || gain > most)) {
            best = &arms[i];
            most = gain;
        }
    }
    return best;
}

/* The cheapest arm that may be better than the incumbent; forced: of those that draft. NULL: none. */
static const struct arm *candidate(const struct arm *arms, int32_t n, const struct arm *now, bool forced, double *excess)
{
    double rate = rate_of(now);
    const struct arm *best = NULL;
    for (int32_t i = forced ? 1 : 0; i < n; i++) {
        bool known = arms[i].source == now->source && arms[i].k <= now->k; /* every round tests what this would test */
        if (known || !(arms[i].upper > PROBE_GAIN * rate))
            continue;
        double cost = fmax(0, arms[i].seconds - arms[i].tokens / rate);
        if (!best || cost < *excess) {
            best = &arms[i];
            *excess = cost;
        }
    }
    return best;
}

/* The last test of a source went far better than expected: the next probe of it need not wait for its credit. */
static bool promising(const struct sched *s, const struct sched_ask *ask, int32_t source)
{
    return source != SCHED_NONE && s->credit > -s->credit_cap &&
           sched_accept_promising(&s->accept[source][sched_match_bucket(ask->offers[source].match)]);
}

/* While the incumbent is serial: the block drafter that may be better than that and whose drafts the credit pays for. */
static bool hindsight(const struct sched *s, const struct sched_ask *ask, const struct arm *arms, int32_t n, struct sched_choice *c)
{
    for (int32_t i = 1; i < n; i++) {
        int32_t source = arms[i].source, k = ask->offers[source].n;
        if (s->config.kinds[source] != SCHED_BLOCK || s->shadow[source].active ||
            !(arms[i].upper > PROBE_GAIN * rate_of(&arms[0])))
            continue;
        if (s->credit < sched_costs_draft(s->config.costs, source, min_i(k, DRAFT_MAX)) && !promising(s, ask, source))
            continue;
        c->hindsight = source;
        c->n_hindsight = min_i(k, DRAFT_MAX);
        return true;
    }
    return false;
}

/* While the incumbent is serial: the arm whose drafts are known to be good enough if only its pass is not as dear as its one timing said;
   NULL: none. */
static const struct arm *untimed(const struct sched *s, const struct sched_ask *ask, const struct arm *arms, int32_t n)
{
    const struct arm *best = NULL;
    for (int32_t i = 1; i < n; i++) {
        const struct sched_accept *a = &s->accept[arms[i].source][sched_match_bucket(ask->offers[arms[i].source].match)];
        if (a->seen >= KNOWN_TESTED && arms[i].hoped > CHANGE_GAIN * rate_of(&arms[0]) && rate_of(&arms[i]) < arms[i].hoped &&
            (!best || arms[i].hoped > best->hoped))
            best = &arms[i];
    }
    return best;
}

/* What a session is given to begin with: trials of the dearest block drafter, judged by hindsight. Two tell a good drafter from a bad one
   well enough to go on with it, and cost a useless one about two steps. */
static void grant(struct sched *s, const struct sched_ask *ask)
{
    double most = 0;
    for (int32_t i = 0; i < s->config.n_sources; i++)
        if (s->config.kinds[i] == SCHED_BLOCK && ask->offers[i].n > 0)
            most = fmax(most, sched_costs_draft(s->config.costs, i, min_i(ask->offers[i].n, DRAFT_MAX)));
    s->granted = true;
    s->credit += FIRST_TRIALS * fmin(most, FIRST_STEPS * sched_costs_verify(s->config.costs, 1, ask->ctx));
}

static struct sched_choice adapt(struct sched *s, const struct sched_ask *ask)
{
    struct arm arms[1 + SCHED_MAX_SOURCES * DRAFT_MAX];
    struct sched_choice c = {.source = SCHED_NONE, .hindsight = SCHED_NONE};
    if (!sched_costs_measured(s->config.costs, 1) && !forced(s)) { /* what everything is compared with */
        s->rate = rate_of(&(struct arm){.tokens = 1, .seconds = sched_costs_verify(s->config.costs, 1, ask->ctx)});
        return c;
    }
    if (!s->granted)
        grant(s, ask);
    int32_t n = all_arms(s, ask, arms), widest = min_i(ask->remaining - 1, ask->k_limit);
    const struct arm *now = decide(s, arms, n, s->decided && s->k > widest), *chance = opportunity(s, arms, n, now);
    if (forced(s) && now->k == 0)
        now = best_drafting(arms, n);
    const struct arm *take = now;
    s->rate = rate_of(now);
    if (chance) {
        take = chance;
    } else {
        double excess = 0;
        const struct arm *again = now->k == 0 ? untimed(s, ask, arms, n) : NULL;
        if (again && (s->credit >= again->seconds - again->tokens / rate_of(now) || promising(s, ask, again->source))) {
            c.source = again->source;
            c.k = again->k;
            c.probe = true;
            return c;
        }
        const struct arm *probe = candidate(arms, n, now, forced(s) && n > 1, &excess);
        bool block = probe && probe->source != SCHED_NONE && s->config.kinds[probe->source] == SCHED_BLOCK;
        if (now->k == 0 && hindsight(s, ask, arms, n, &c))
            return c;
        if (probe && !(now->k == 0 && block) && (s->credit >= excess || (now->k == 0 && promising(s, ask, probe->source)))) {
            take = probe;
            c.probe = true;
        }
    }
    c.source = take->source;
    c.k = take->k;
    return c;
}

struct sched_choice sched_choose(struct sched *s, const struct sched_ask *ask)
{
    if (s->config.mode == SCHED_ADAPT)
        return adapt(s, ask);
    struct sched_choice c = {.source = SCHED_NONE, .hindsight = SCHED_NONE};
    int32_t want = s->config.n_script ? s->config.script[s->at % s->config.n_script] : 0;
    s->at = s->at + 1 < s->config.n_script ? s->at + 1 : 0;
    for (int32_t i = 0; want > 0 && c.k == 0 && i < s->config.n_sources; i++) {
        c.k = min_i(want, most_drafts(s, ask, i));
        c.source = c.k ? i : SCHED_NONE;
    }
    c.full_block = c.k > 0;
    return c;
}

int32_t sched_truncate(const struct sched *s, const struct sched_choice *choice, const struct draft *draft, int32_t n, int32_t ctx,
                       double t_draft)
{
    if (s->config.mode != SCHED_ADAPT || choice->probe || choice->source == SCHED_NONE || n < 1 || draft->confidence[0] < 0)
        return n;
    const struct sched_accept *a = &s->accept[choice->source][sched_match_bucket(draft->match)];
    double survive = 1, tokens = 1, best = 1 / (t_draft + sched_costs_verify(s->config.costs, 1, ctx));
    int32_t k = forced(s) ? 1 : 0;
    for (int32_t d = 1; d <= n; d++) {
        survive *= sched_accept_given(a, d, draft->confidence[d - 1]);
        tokens += survive;
        double rate = tokens / (t_draft + sched_costs_verify(s->config.costs, d + 1, ctx));
        if (rate > best) {
            best = rate;
            k = d;
        }
    }
    return k;
}

/* ---- what happened ---- */

void sched_shadow(struct sched *s, int32_t source, const struct draft *draft)
{
    struct sched_shadow *w = &s->shadow[source];
    if (w->active || draft->n < 1 || s->removed[source])
        return;
    *w = (struct sched_shadow){.active = true, .bucket = sched_match_bucket(draft->match), .n = draft->n};
    memcpy(w->ids, draft->ids, (size_t)draft->n * sizeof *w->ids);
    memcpy(w->confidence, draft->confidence, (size_t)draft->n * sizeof *w->confidence);
}

static void judge(struct sched *s, int32_t source, const int32_t *ids, int32_t n)
{
    struct sched_shadow *w = &s->shadow[source];
    for (int32_t i = 0; w->active && i < n; i++) {
        bool same = w->ids[w->at] == ids[i];
        w->at += same;
        if (!same || w->at == w->n) {
            sched_accept_observe(&s->accept[source][w->bucket], w->at + !same, w->at, w->confidence);
            w->active = false;
        }
    }
}

void sched_forget_shadows(struct sched *s)
{
    for (int32_t i = 0; i < SCHED_MAX_SOURCES; i++) {
        struct sched_shadow *w = &s->shadow[i];
        if (w->active)
            sched_accept_observe(&s->accept[i][w->bucket], w->at, w->at, w->confidence);
        w->active = false;
    }
}

static void count_round(struct sched_stats *t, const struct sched_round *r)
{
    t->rounds++;
    t->tokens += r->n_ids;
    t->depth[r->n_verified]++;
    t->probes += r->choice.probe;
    t->hindsights += r->choice.hindsight != SCHED_NONE;
    t->t_draft += r->t_draft;
    t->t_verify += r->t_verify;
    t->t_commit += r->t_commit;
    t->t_other += r->t_other;
    if (r->choice.source == SCHED_NONE)
        return;
    t->used[r->choice.source]++;
    for (int32_t d = 0; d < r->n_tested && d <= r->n_accepted; d++) {
        t->tested[r->choice.source][d]++;
        t->accepted[r->choice.source][d] += d < r->n_accepted;
    }
}

/* Time passed pays into the credit, probes take out of it. */
static void pay(struct sched *s, const struct sched_round *r, double seconds)
{
    struct sched_costs *c = s->config.costs;
    double cap = CREDIT_CAP * sched_costs_verify(c, 2, r->ctx);
    if (s->config.mode != SCHED_ADAPT)
        return;
    const double before = s->credit; /* may be above the cap: what was granted is not taken back */
    for (int32_t i = 0; i < s->config.n_sources; i++)
        if (s->config.kinds[i] == SCHED_BLOCK && !s->removed[i])
            cap = fmax(cap, sched_costs_draft(c, i, DRAFT_MAX));
    s->credit_cap = cap;
    s->credit = fmax(before, fmin(before + PROBE_SHARE * seconds, cap));
    if (r->choice.hindsight != SCHED_NONE)
        s->credit -= r->t_draft;
    else if (r->choice.probe)
        s->credit -= seconds - r->n_ids / s->rate;
}

void sched_observe(struct sched *s, const struct sched_round *r)
{
    struct sched_costs *c = s->config.costs;
    double pass = r->t_verify + r->t_commit + r->t_other, seconds = pass + r->t_draft;
    int32_t drafter = r->choice.source != SCHED_NONE ? r->choice.source : r->choice.hindsight;
    count_round(&s->stats, r);
    pay(s, r, seconds);
    if (!r->shared)
        sched_costs_add_verify(c, r->n_verified + 1, r->ctx, pass);
    int32_t n_drafted = r->choice.source != SCHED_NONE ? r->n_drafted : r->choice.n_hindsight;
    if (drafter != SCHED_NONE && n_drafted > 0) {
        /* After a pause a drafter also catches up with the tokens since: then its time only says how much a draft costs at most. */
        bool pause = s->stats.tokens - r->n_ids - s->drafted_at[drafter] > PAUSE || !s->drafted_at[drafter];
        if (!r->choice.full_block && (!pause || r->t_draft < sched_costs_draft(c, drafter, n_drafted)))
            sched_costs_add_draft(c, drafter, n_drafted, r->t_draft);
        s->drafted_at[drafter] = s->stats.tokens;
    }
    for (int32_t i = 0; i < s->config.n_sources; i++) {
        for (int32_t b = 0; b < SCHED_BUCKETS_MATCH; b++)
            sched_accept_advance(&s->accept[i][b], r->n_ids);
        judge(s, i, r->ids, r->n_ids);
    }
    if (r->choice.source != SCHED_NONE && r->n_tested > 0)
        sched_accept_observe(&s->accept[r->choice.source][sched_match_bucket(r->match)], r->n_tested, r->n_accepted, r->confidence);
    s->sum_tokens = RATE_FADE * s->sum_tokens + r->n_ids;
    s->sum_seconds = RATE_FADE * s->sum_seconds + seconds;
}

void sched_remove(struct sched *s, int32_t source)
{
    s->removed[source] = true;
    s->shadow[source].active = false;
    if (s->source == source)
        s->decided = false;
}

bool sched_poor(struct sched *s, int32_t source)
{
    const struct sched_accept *a = &s->accept[source][0];
    if (s->told[source] || now_and_then(s->config.kinds[source]) || a->seen < POOR_TESTED || sched_accept_mean(a, 1) >= POOR_MEAN)
        return false;
    s->told[source] = true;
    return true;
}

void sched_remember(const struct sched *s, struct sched_memory *memory)
{
    for (int32_t i = 0; i < s->config.n_sources; i++)
        for (int32_t b = 0; b < SCHED_BUCKETS_MATCH; b++) {
            if (!s->accept[i][b].seen)
                continue;
            memory->known[i][b] = true;
            for (int32_t d = 1; d <= DRAFT_MAX; d++)
                memory->mean[i][b][d - 1] = (float)sched_accept_mean(&s->accept[i][b], d);
        }
}
