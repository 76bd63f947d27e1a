/* Speculation with real costs and simulated acceptance; see bench.h. Drafts are really drafted, verified in passes with the best token of
 * every row, and committed; only whether a draft counts as accepted is drawn, each with probability p as long as all before it were. The
 * session's scheduler sees nothing but that, as in an answer. In turns with it a session without drafters decodes as many tokens. */
#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"
#include "cmd/bench_run.h"
#include "engine/draft.h"

#define TURN_TOKENS 32 /* of speculation, then of plain decoding */

struct spec_run {
    struct bench_run *r;
    struct bench_spec *out;
    skua_session *spec, *plain;
    uint64_t draws;
    /* tokens that plain decoding will choose next, so that drafts judged by them count by chance too */
    int32_t truth[DRAFT_MAX], n_truth, at;
};

static bool accepted(struct spec_run *s)
{
    return rng_uniform(s->r->b->opt->seed, 1, s->draws++) < s->out->p;
}

/* What stands at a position. Nothing that stands before it: lookup must not find more than a drafter would. */
static int32_t token_at(const struct bench_run *r, int32_t pos) { return r->ids[pos]; }

/* What the model "chooses" in the coming plain steps: of a proposal that is judged by them the first tokens, as many as are accepted. */
static void foresee(struct spec_run *s, const struct draft *proposal)
{
    s->at = s->n_truth = 0;
    bool right = true;
    while (right && s->n_truth < proposal->n) {
        right = accepted(s);
        s->truth[s->n_truth] = proposal->ids[s->n_truth] + !right;
        s->n_truth++;
    }
}

static int spec_round(struct spec_run *s, skua_error *err)
{
    skua_engine *e = s->r->b->engine;
    struct draft_round round;
    int32_t best[DRAFT_MAX + 1], chosen[DRAFT_MAX + 1], a = 0;
    float logit[DRAFT_MAX + 1];
    const struct draft_terms terms = {.remaining = INT32_MAX};
    draft_round_begin(s->spec, token_at(s->r, skua_session_length(s->spec)), &terms, &round);
    if (round.choice.hindsight != SCHED_NONE)
        foresee(s, &s->spec->draft->offered[round.choice.hindsight]);
    const double begin = clock_seconds();
    skua_feed f = {.session = s->spec, .ids = round.ids, .n_ids = 1 + round.n, .want = SKUA_LOGITS_ARGMAX_ALL, .hold = round.n > 0,
                   .best_ids = best, .best_logits = logit};
    int rc = skua_eval(e, &f, 1, NULL, NULL, err);
    round.t_verify = clock_seconds() - begin;
    const struct draft *draft = round.n_drafted ? &s->spec->draft->offered[round.choice.source] : NULL;
    while (a < round.n && accepted(s)) {
        chosen[a] = draft->ids[a];
        a++;
    }
    /* the token behind the last accepted draft: what was drafted there was refused, or not verified and still as likely right */
    const bool right = draft && a == round.n && a < round.n_drafted && accepted(s);
    chosen[a] = draft && a < round.n_drafted ? draft->ids[a] + !right : s->at < s->n_truth ? s->truth[s->at++] : 0;
    if (round.n > 0)
        s->n_truth = 0;
    if (!rc && round.n > 0) {
        const double commit = clock_seconds();
        rc = skua_commit(s->spec, 1 + a, err);
        round.t_commit = clock_seconds() - commit;
    }
    if (rc)
        return rc;
    draft_round_end(s->spec, &round, chosen, a + 1);
    s->out->rounds++;
    s->out->drafted += round.n_drafted;
    s->out->verified += round.n;
    s->out->tokens += a + 1;
    return bench_run_stopped(s->r, err);
}

static int plain_step(struct spec_run *s, skua_error *err)
{
    int32_t best;
    float logit;
    const int32_t id = token_at(s->r, skua_session_length(s->plain));
    skua_feed f = {.session = s->plain, .ids = &id, .n_ids = 1, .want = SKUA_LOGITS_ARGMAX_ALL, .best_ids = &best, .best_logits = &logit};
    int rc = skua_eval(s->r->b->engine, &f, 1, NULL, NULL, err);
    s->out->plain_tokens++;
    return rc ? rc : bench_run_stopped(s->r, err);
}

/* One turn of both, appended to the times. */
static int turn(struct spec_run *s, double *ratio, skua_error *err)
{
    const int64_t until = s->out->tokens + TURN_TOKENS, before = s->out->tokens;
    int rc = 0;
    double begin = clock_seconds();
    while (!rc && s->out->tokens < until)
        rc = spec_round(s, err);
    const double spec = clock_seconds() - begin;
    begin = clock_seconds();
    for (int i = 0; !rc && i < TURN_TOKENS; i++)
        rc = plain_step(s, err);
    const double plain = clock_seconds() - begin;
    s->out->seconds += spec;
    s->out->plain_seconds += plain;
    *ratio = (double)(s->out->tokens - before) / spec * plain / TURN_TOKENS;
    bench_run_advance(s->r, 2 * TURN_TOKENS);
    return rc;
}

static int measure(struct bench_run *r, struct bench_spec *out, skua_error *err)
{
    struct spec_run s = {.r = r, .out = out};
    const int32_t room = r->depth + bench_speculate_tokens(r->b->opt);
    int rc = skua_session_create(r->b->engine, room, &s.spec, err);
    if (!rc)
        rc = skua_session_create(r->b->engine, room, &s.plain, err);
    if (!rc)
        rc = engine_session_copy(r->session, s.spec, err);
    if (!rc)
        rc = engine_session_copy(r->session, s.plain, err);
    if (!rc)
        session_draft_free(s.plain);
    if (!rc)
        rc = plain_step(&s, err); /* not timed: behind it the caches are as a step leaves them */
    out->plain_tokens = 0;
    for (int i = 0; !rc && i < r->b->opt->repeat; i++)
        rc = turn(&s, &r->ratios[i], err);
    if (!rc) {
        out->ratio = bench_stat_of(r->ratios, (int)r->b->opt->repeat).median;
        const skua_draft_stats st = skua_session_draft_stats(s.spec);
        out->draft_seconds = st.draft_seconds;
        out->verify_seconds = st.verify_seconds;
        out->commit_seconds = st.commit_seconds;
    }
    skua_session_free(s.spec);
    skua_session_free(s.plain);
    return rc;
}

int bench_speculate(struct bench_run *r, skua_error *err)
{
    struct bench *b = r->b;
    int rc = skua_session_restore(r->session, r->snapshot, err);
    for (int i = 0; !rc && i < b->opt->n_accept; i++) {
        b->specs[i] = (struct bench_spec){.p = b->opt->accept[i]};
        rc = measure(r, &b->specs[i], err);
        b->n_specs += !rc;
    }
    return rc;
}

uint64_t bench_speculate_units(const struct bench_options *o)
{
    return (uint64_t)o->n_accept * (uint64_t)o->repeat * 2 * TURN_TOKENS;
}

int32_t bench_speculate_tokens(const struct bench_options *o)
{
    return o->n_accept ? ((int32_t)o->repeat + 1) * (TURN_TOKENS + DRAFT_MAX + 1) + DRAFT_MAX + 1 : 0;
}
