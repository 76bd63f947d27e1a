/* One step: a round of every running answer and a piece of the prompts, in one pass; see batcher_internal.h. */
#include <string.h>

#include "base/clock.h"
#include "engine/batcher_internal.h"
#include "spec/sched.h"

#define QUANTUM 512

/* A step under construction: the feeds of decoding seats first, then those of prompts. */
struct step {
    int32_t n_decode, n_prefill;  /* seats in these phases */
    int32_t n_feeds, n_rounds;    /* feeds so far, those of them that are rounds */
    int32_t rows, round_rows;
    int64_t ctx;                  /* sum over rounds */
    double seconds;
};

static void fail(struct batch_job *job, int rc) { job->rc = job->rc ? job->rc : rc; }

static int32_t min_i(int32_t a, int32_t b) { return a < b ? a : b; }

/* Add a feed unless what it needs cannot be had, which is its job's failure alone. */
static void add_feed(struct batcher *b, struct step *st, struct batch_seat *seat, const skua_feed *feed)
{
    const int rc = engine_prepare_feed(feed, &seat->job->err);
    if (rc) {
        fail(seat->job, rc);
        return;
    }
    b->feeds[st->n_feeds] = *feed;
    b->feed_seats[st->n_feeds++] = seat;
    st->rows += feed->n_ids;
}

/* ---- rounds ---- */

/* Drafts of several answers compete for the rows of their pass. With a prompt's piece in it a row is cheap beside what is there, and what
   pays alone pays. */
static void admit_drafts(struct batcher *b, const struct step *st)
{
    const struct engine_draft *d = b->engine->draft;
    int32_t n = 0;
    if (!d || d->mode != SCHED_ADAPT || d->min_gain < 0 || st->n_decode < 2 || st->n_prefill)
        return;
    for (int32_t i = 0; i < b->p.n_parallel; i++) {
        struct generation *g = &b->seats[i].generation;
        if (b->seats[i].phase == BATCH_DECODE)
            b->members[n++] = (struct sched_member){&g->session->draft->sched, &g->round.choice, g->round.match, g->round.ctx};
    }
    const int rc = sched_admit(&d->shared_costs, &d->costs, b->members, n, NULL);
    for (int32_t i = 0; i < n; i++) {
        struct sched_choice *c = b->members[i].choice;
        if (rc) {
            c->k = 0;
            c->source = SCHED_NONE;
        }
        c->probe = c->probe && c->k > 0;
    }
}

/* Rows behind the anchor that each answer may have, so that all fit one pass and each prompt goes on by a token at least. */
static int32_t room_of(const struct batcher *b, const struct step *st)
{
    const int32_t n = st->n_decode, left = b->engine->max_rows - n - st->n_prefill;
    if (!n || left < n || n + st->n_prefill > ENGINE_PASS_SESSIONS)
        return 0;
    return min_i(left / n, DRAFT_MAX);
}

static void add_rounds(struct batcher *b, struct step *st)
{
    const int32_t room = room_of(b, st), together = st->n_decode + st->n_prefill;
    for (int32_t i = 0; i < b->p.n_parallel; i++)
        if (b->seats[i].phase == BATCH_DECODE)
            generation_choose(&b->seats[i].generation, room, together);
    admit_drafts(b, st);
    for (int32_t i = 0; i < b->p.n_parallel; i++) {
        struct batch_seat *seat = &b->seats[i];
        skua_feed feed;
        if (seat->phase != BATCH_DECODE || seat->job->rc)
            continue;
        generation_draft(&seat->generation);
        seat->drafting = seat->generation.round.n_drafted > 0;
        const int rc = generation_feed(&seat->generation, &feed, &seat->job->err);
        if (rc)
            fail(seat->job, rc);
        else
            add_feed(b, st, seat, &feed);
        st->ctx += seat->generation.round.ctx;
    }
    st->n_rounds = st->n_feeds;
    st->round_rows = st->rows;
}

static void end_rounds(struct batcher *b, struct step *st)
{
    const bool shared = st->n_feeds > 1;
    double commits = 0;
    for (int32_t i = 0; i < st->n_rounds; i++) {
        struct batch_seat *seat = b->feed_seats[i];
        struct generation *g = &seat->generation;
        const int32_t before = g->n_generated;
        if (seat->job->rc) /* another choice of it failed; what is held is forgotten at its end */
            continue;
        const int rc = generation_results(g, st->seconds * b->feeds[i].n_ids / st->rows, shared, &seat->job->err);
        if (rc)
            fail(seat->job, rc);
        commits += g->round.t_commit;
        b->count.generated_tokens += (uint64_t)(g->n_generated - before);
    }
    if (b->engine->draft && st->n_rounds > 1 && st->n_rounds == st->n_feeds)
        sched_costs_add_verify(&b->engine->draft->shared_costs, st->rows, (int32_t)(st->ctx / st->n_rounds), st->seconds + commits);
}

/* ---- prompts ---- */

/* Where the evaluation of the seat's prompt pauses next. */
static int32_t next_place(const struct batcher *b, const struct batch_seat *seat)
{
    const struct batch_params *p = &seat->job->p;
    if (!b->p.cache || p->no_cache)
        return p->n_prompt;
    return prefix_cache_next(b->p.cache, seat->prompt_done, p->n_prompt, p->marks, p->n_marks);
}

/* A piece of each prompt: what the pass has room for is divided evenly, what one does not need goes to the next. */
static void add_pieces(struct batcher *b, struct step *st)
{
    int32_t room = b->engine->max_rows - st->rows, left = st->n_prefill;
    if (st->n_rounds)
        room = min_i(room, b->p.quantum ? b->p.quantum : QUANTUM);
    for (int32_t i = 0; i < b->p.n_parallel; i++) {
        struct batch_seat *seat = &b->seats[i];
        if (seat->phase != BATCH_PREFILL || seat->job->rc)
            continue;
        struct batch_job *job = seat->job;
        const int32_t share = room / left > 1 ? room / left : 1;
        int32_t n = min_i(share, next_place(b, seat) - seat->prompt_done);
        if (job->p.score_prompt)
            n = min_i(n, BATCH_SCORE_ROWS);
        skua_feed feed = {.session = seat->session, .ids = job->p.prompt + seat->prompt_done, .n_ids = n, .logits = job->logits};
        if (job->p.score_prompt)
            feed.want = SKUA_LOGITS_ALL;
        else if (seat->prompt_done + n == job->p.n_prompt)
            feed.want = job->want;
        add_feed(b, st, seat, &feed);
        room -= n;
        left--;
    }
}

static int score_rows(struct batcher *b, struct batch_seat *seat, const skua_feed *feed, skua_error *err)
{
    struct batch_job *job = seat->job;
    const struct batch_params *p = &job->p;
    const int n_vocab = b->engine->config.n_vocab, want = p->n_logprobs > 0 ? p->n_logprobs : 0;
    struct token_logprob top[GENERATION_MAX_LOGPROBS];
    for (int32_t k = 0; k < feed->n_ids && seat->prompt_done + k + 1 < p->n_prompt; k++) {
        const int32_t i = seat->prompt_done + k + 1;
        const float *row = feed->logits + (size_t)k * (size_t)n_vocab;
        double norm;
        int rc = logprob_norm(row, n_vocab, &norm, err);
        if (rc)
            return rc;
        struct batch_logprob l = {.logprob = logprob_of(row[p->prompt[i]], norm), .top = top, .n_top = min_i(want, n_vocab)};
        logprob_top(row, n_vocab, norm, top, l.n_top);
        if (p->callbacks->prompt_token)
            p->callbacks->prompt_token(p->user, i, &l);
    }
    return 0;
}

static enum prefix_worth worth_of(const struct batch_params *p, int32_t place)
{
    bool border = place >= p->n_prompt - 1; /* the end: where the cache wants it */
    for (int32_t i = 0; i < p->n_marks; i++)
        border = border || p->marks[i] == place;
    return border ? PREFIX_BORDER : PREFIX_REGULAR;
}

static void end_piece(struct batcher *b, struct batch_seat *seat, const skua_feed *feed)
{
    struct batch_job *job = seat->job;
    const struct batch_params *p = &job->p;
    const int32_t place = next_place(b, seat), n = feed->n_ids;
    if (p->score_prompt && !job->rc)
        fail(job, score_rows(b, seat, feed, &job->err));
    if (job->rc)
        return;
    seat->prompt_done += n;
    b->count.prompt_tokens += (uint64_t)n;
    if (seat->prompt_done == place)
        batch_job_keep(b, seat, worth_of(p, place));
    if (p->callbacks->progress)
        p->callbacks->progress(p->user, seat->prompt_done, p->n_prompt);
    if (seat->prompt_done < p->n_prompt)
        return;
    job->prompt_feed = *feed;
    if (p->score_prompt) {
        job->prompt_feed.want = SKUA_LOGITS_LAST;
        job->prompt_feed.logits += (size_t)(n - 1) * (size_t)b->engine->config.n_vocab;
    }
    batch_job_prompt_end(b, seat);
}

/* ---- all together ---- */

/* Jobs that failed are ended; choices that reached their end make room for the next. */
static void end_what_ended(struct batcher *b)
{
    for (int32_t i = 0; i < b->p.n_parallel; i++) {
        struct batch_seat *seat = &b->seats[i];
        while (seat->job && (seat->job->rc || (seat->phase == BATCH_DECODE && seat->generation.finish != SKUA_FINISH_NONE))) {
            if (seat->job->rc)
                batch_job_end(b, seat->job, seat->job->rc, &seat->job->err);
            else
                batch_job_choice_end(b, seat);
        }
    }
}

static void evaluate(struct batcher *b, struct step *st)
{
    skua_error err = {0};
    const double begin = clock_seconds();
    const int rc = skua_eval(b->engine, b->feeds, st->n_feeds, NULL, NULL, &err);
    st->seconds = clock_seconds() - begin;
    for (int32_t i = 0; rc && i < st->n_feeds; i++) {
        b->feed_seats[i]->job->err = err;
        fail(b->feed_seats[i]->job, rc);
    }
    b->count.steps++;
    b->count.sessions_in_steps += (uint64_t)st->n_feeds;
    b->count.decode_seconds += st->seconds * st->round_rows / st->rows;
    b->count.prompt_seconds += st->seconds * (st->rows - st->round_rows) / st->rows;
}

void batch_step(struct batcher *b)
{
    struct step st = {0};
    for (int32_t i = 0; i < b->p.n_parallel; i++) {
        st.n_decode += b->seats[i].phase == BATCH_DECODE;
        st.n_prefill += b->seats[i].phase == BATCH_PREFILL;
    }
    add_rounds(b, &st);
    add_pieces(b, &st);
    if (st.n_feeds)
        evaluate(b, &st);
    end_rounds(b, &st);
    end_what_ended(b); /* before prompts: nothing is held any more when sessions are copied and kept */
    for (int32_t i = st.n_rounds; i < st.n_feeds; i++)
        if (b->feed_seats[i]->job && b->feed_seats[i]->phase == BATCH_PREFILL)
            end_piece(b, b->feed_seats[i], &b->feeds[i]);
    end_what_ended(b);
}
