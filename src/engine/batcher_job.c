/* A job's way through prompt, choices and end; see batcher_internal.h. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/batcher_internal.h"

uint64_t batch_seed(uint64_t seed, int32_t choice)
{
    return choice ? rng_bits(seed, UINT64_MAX, (uint64_t)choice) : seed; /* no token stands at that position */
}

static struct generation_params generation_params(const struct batcher *b, const struct batch_job *job, int32_t choice)
{
    const struct batch_params *p = &job->p;
    const int32_t left = b->n_ctx - p->n_prompt + 1; /* the last token need not be evaluated */
    struct generation_params g = {.sampling = p->sampling, .max_tokens = p->max_tokens >= 0 && p->max_tokens < left ? p->max_tokens : left,
                                  .min_tokens = p->min_tokens, .ignore_end = p->ignore_end, .n_logprobs = p->n_logprobs,
                                  .no_draft = p->no_draft, .draft_max = p->draft_max, .choice = choice, .token = p->callbacks->token,
                                  .user = p->user};
    g.sampling.seed = batch_seed(p->sampling.seed, choice);
    return g;
}

static void set_busy(struct batcher *b, int32_t change)
{
    pthread_mutex_lock(&b->lock);
    b->n_busy += change;
    pthread_mutex_unlock(&b->lock);
}

static void seat_take(struct batcher *b, struct batch_seat *seat, struct batch_job *job, enum batch_phase phase)
{
    seat->job = job;
    seat->phase = phase;
    seat->drafting = false;
    set_busy(b, 1);
}

static void seat_free(struct batcher *b, struct batch_seat *seat)
{
    if (seat->job->p.no_cache || engine_session_settled(seat->session, "reuse", NULL))
        skua_session_reset(seat->session);
    generation_free(&seat->generation);
    seat->job = NULL;
    seat->phase = BATCH_IDLE;
    seat->last_used = clock_seconds();
    set_busy(b, -1);
}

void batch_job_keep(struct batcher *b, struct batch_seat *seat, enum prefix_worth worth)
{
    if (b->p.cache && !seat->job->p.no_cache && skua_session_length(seat->session))
        prefix_cache_keep(b->p.cache, seat->session, worth, NULL); /* what cannot be kept is evaluated again some day */
}

/* ---- the beginning ---- */

/* The idle seat that has been so for longest; an empty session goes first. */
static struct batch_seat *oldest_seat(const struct batcher *b)
{
    struct batch_seat *best = NULL;
    for (int32_t i = 0; i < b->p.n_parallel; i++) {
        struct batch_seat *s = &b->seats[i];
        const bool empty = !skua_session_length(s->session);
        if (s->job)
            continue;
        if (!best || (empty && skua_session_length(best->session)) ||
            (empty == !skua_session_length(best->session) && s->last_used < best->last_used))
            best = s;
    }
    return best;
}

/* A seat, with as much of the prompt in its session as is known. */
static struct batch_seat *find_seat(struct batcher *b, const struct batch_job *job, struct prefix_hit *hit, struct batch_start *start)
{
    struct batch_seat *live = NULL;
    const struct batch_params *p = &job->p;
    const bool fresh = p->no_cache || p->score_prompt;
    const int32_t n_live = fresh ? 0 : batch_live_match(b, job, &live);
    const int32_t n_kept = fresh || !b->p.cache ? 0 : prefix_cache_resident(b->p.cache, p->prompt, p->n_prompt);
    *hit = (struct prefix_hit){.miss_reason = fresh ? "disabled" : "cold", .diverged_at = -1};
    if (n_live && n_live >= n_kept) {
        hit->n_tokens = n_live;
        hit->miss_reason = n_live == p->n_prompt - 1 ? "" : "cold";
        start->source = BATCH_SOURCE_LIVE;
        return live;
    }
    struct batch_seat *seat = oldest_seat(b);
    skua_session_reset(seat->session);
    if (fresh || !b->p.cache)
        return seat;
    if (prefix_cache_take(b->p.cache, seat->session, p->prompt, p->n_prompt, hit, NULL)) {
        skua_session_reset(seat->session);
        *hit = (struct prefix_hit){.miss_reason = "evicted", .diverged_at = -1}; /* known, but there is no memory to bring it back */
    }
    if (hit->n_tokens)
        start->source = hit->tier == PREFIX_RAM ? BATCH_SOURCE_RAM : BATCH_SOURCE_DISK;
    return seat;
}

/* Whether logits are wanted behind the prompt, and the memory for them. */
static int prepare_prompt(struct batcher *b, struct batch_job *job, skua_error *err)
{
    const struct batch_params *p = &job->p;
    bool logits = false;
    for (int32_t i = 0; i < p->n_choices && p->max_tokens; i++) {
        const struct generation_params g = generation_params(b, job, i);
        logits = logits || generation_needs_logits(&g, &job->first[i]);
    }
    job->want = logits ? SKUA_LOGITS_LAST : SKUA_LOGITS_ARGMAX;
    const size_t rows = p->score_prompt ? BATCH_SCORE_ROWS : logits, size = rows * (size_t)b->engine->config.n_vocab * sizeof(float);
    if (!rows)
        return 0;
    job->logits = mem_alloc(size);
    return job->logits ? 0 : error_nomem(err, "rows of logits", size);
}

void batch_job_start(struct batcher *b, struct batch_job *job)
{
    const struct batch_callbacks *c = job->p.callbacks;
    struct prefix_hit hit;
    struct batch_start start = {.n_prompt = job->p.n_prompt};
    skua_error err = {0};
    struct batch_seat *seat = find_seat(b, job, &hit, &start);
    seat_take(b, seat, job, BATCH_PREFILL);
    job->started = clock_seconds();
    job->result.started = true;
    job->result.queue_seconds = start.queue_seconds = job->started - job->submitted;
    job->result.n_cached = start.n_cached = seat->prompt_done = hit.n_tokens;
    start.miss_reason = hit.miss_reason;
    start.diverged_at = hit.diverged_at;
    start.diverged_from = hit.diverged_from;
    start.n_diverged_from = hit.n_diverged_from;
    b->count.cached_tokens[start.source] += (uint64_t)hit.n_tokens;
    if (c->start)
        c->start(job->p.user, &start);
    int rc = 0;
    for (int32_t i = 0; i < job->p.n_choices && c->first && !rc; i++)
        rc = c->first(job->p.user, i, &job->first[i], &err);
    if (!rc)
        rc = prepare_prompt(b, job, &err);
    if (rc)
        batch_job_end(b, job, rc, &err);
}

/* ---- choices ---- */

/* The job's next choice on a seat whose session holds the prompt. An error is the job's (rc). */
static void begin_choice(struct batcher *b, struct batch_seat *seat)
{
    struct batch_job *job = seat->job;
    const int32_t choice = job->n_started++;
    const struct generation_params g = generation_params(b, job, choice);
    seat->phase = BATCH_DECODE;
    seat->choice = choice;
    seat->draft_before = skua_session_draft_stats(seat->session);
    job->rc = generation_init(&seat->generation, seat->session, &g, &b->workspace, NULL, 0, &job->first[choice], &job->err);
    if (!job->rc)
        job->rc = generation_first(&seat->generation, &job->prompt_feed, &job->err);
    b->count.generated_tokens += (uint64_t)seat->generation.n_generated;
}

/* Copies of the prompt for as many choices as there are idle seats, and a way back to it for the others. */
static int fork_choices(struct batcher *b, struct batch_seat *seat, struct batch_seat **seats, int32_t *n_seats, skua_error *err)
{
    struct batch_job *job = seat->job;
    int rc = 0;
    for (int32_t i = 0; i < b->p.n_parallel && *n_seats < job->p.n_choices && !rc; i++) {
        struct batch_seat *to = &b->seats[i];
        if (to->job)
            continue;
        rc = engine_session_copy(seat->session, to->session, err);
        if (!rc) {
            seat_take(b, to, job, BATCH_PREFILL); /* until its choice begins */
            seats[(*n_seats)++] = to;
        }
    }
    if (!rc && *n_seats < job->p.n_choices)
        rc = skua_snapshot_take(seat->session, &job->snapshot, err);
    return rc;
}

void batch_job_prompt_end(struct batcher *b, struct batch_seat *seat)
{
    struct batch_job *job = seat->job;
    struct batch_seat *seats[BATCH_MAX_CHOICES] = {seat};
    int32_t n_seats = 1;
    job->prompt_end = clock_seconds();
    job->result.prompt_seconds = job->prompt_end - job->started;
    if (!job->p.max_tokens) {
        for (int32_t i = 0; i < job->p.n_choices; i++) {
            job->result.finish[i] = SKUA_FINISH_MAX_TOKENS;
            if (job->p.callbacks->choice_end)
                job->p.callbacks->choice_end(job->p.user, i, SKUA_FINISH_MAX_TOKENS);
        }
        batch_job_end(b, job, 0, NULL);
        return;
    }
    if (job->p.n_choices > 1)
        job->rc = fork_choices(b, seat, seats, &n_seats, &job->err);
    for (int32_t i = 0; i < n_seats && !job->rc; i++)
        begin_choice(b, seats[i]);
}

static void add_draft_stats(skua_draft_stats *to, const skua_draft_stats *now, const skua_draft_stats *before)
{
    to->n_sources = now->n_sources;
    to->rounds += now->rounds - before->rounds;
    to->tokens += now->tokens - before->tokens;
    to->draft_seconds += now->draft_seconds - before->draft_seconds;
    to->verify_seconds += now->verify_seconds - before->verify_seconds;
    to->commit_seconds += now->commit_seconds - before->commit_seconds;
    to->other_seconds += now->other_seconds - before->other_seconds;
    for (int32_t d = 0; d <= SKUA_DRAFT_MAX; d++)
        to->depth[d] += now->depth[d] - before->depth[d];
    for (int32_t i = 0; i < now->n_sources; i++) {
        to->sources[i].name = now->sources[i].name;
        to->sources[i].lost = now->sources[i].lost;
        to->sources[i].rounds += now->sources[i].rounds - before->sources[i].rounds;
        for (int32_t d = 0; d < SKUA_DRAFT_MAX; d++) {
            to->sources[i].tested[d] += now->sources[i].tested[d] - before->sources[i].tested[d];
            to->sources[i].accepted[d] += now->sources[i].accepted[d] - before->sources[i].accepted[d];
        }
    }
}

/* What the seat's choice came to, into the job's result. */
static void count_choice(struct batcher *b, struct batch_seat *seat)
{
    struct batch_job *job = seat->job;
    const skua_draft_stats now = skua_session_draft_stats(seat->session);
    job->result.finish[seat->choice] = seat->generation.finish;
    job->result.n_generated[seat->choice] = seat->generation.n_generated;
    add_draft_stats(&job->result.draft, &now, &seat->draft_before);
    add_draft_stats(&b->count.draft, &now, &seat->draft_before);
}

/* Should a choice's seat go to another job? Choices that have not begun can wait for another seat of their job. */
static bool makes_room(struct batcher *b, const struct batch_job *job)
{
    int32_t n_seats = 0;
    for (int32_t i = 0; i < b->p.n_parallel; i++)
        n_seats += b->seats[i].job == job;
    pthread_mutex_lock(&b->lock);
    const bool wanted = b->n_waiting > 0;
    pthread_mutex_unlock(&b->lock);
    return n_seats > 1 && wanted;
}

void batch_job_choice_end(struct batcher *b, struct batch_seat *seat)
{
    struct batch_job *job = seat->job;
    const struct batch_callbacks *c = job->p.callbacks;
    const enum skua_finish finish = seat->generation.finish;
    count_choice(b, seat);
    if (c->choice_end)
        c->choice_end(job->p.user, seat->choice, finish);
    batch_job_keep(b, seat, PREFIX_BORDER);
    if (++job->n_ended == job->p.n_choices) {
        seat->phase = BATCH_IDLE; /* it is counted */
        batch_job_end(b, job, 0, NULL);
    } else if (job->n_started < job->p.n_choices && !makes_room(b, job)) {
        generation_free(&seat->generation);
        seat->phase = BATCH_IDLE;
        job->rc = skua_session_restore(seat->session, job->snapshot, &job->err);
        if (!job->rc)
            begin_choice(b, seat);
    } else
        seat_free(b, seat);
}

/* ---- the end ---- */

static void forget(struct batcher *b, struct batch_job *job)
{
    pthread_mutex_lock(&b->lock);
    struct batch_job **at = &b->all;
    while (*at != job)
        at = &(*at)->next_all;
    *at = job->next_all;
    b->n_canceled -= job->canceled;
    pthread_mutex_unlock(&b->lock);
}

void batch_job_end(struct batcher *b, struct batch_job *job, int rc, const skua_error *why)
{
    struct batch_result *r = &job->result;
    for (int32_t i = 0; i < b->p.n_parallel; i++) {
        struct batch_seat *seat = &b->seats[i];
        if (seat->job != job)
            continue;
        if (seat->phase == BATCH_DECODE)
            count_choice(b, seat);
        seat_free(b, seat);
    }
    const double now = clock_seconds();
    r->rc = rc;
    if (rc)
        r->err = *why;
    r->n_prompt = job->p.n_prompt;
    if (!r->started)
        r->queue_seconds = now - job->submitted;
    if (job->prompt_end > 0)
        r->generate_seconds = now - job->prompt_end;
    forget(b, job);
    job->p.callbacks->done(job->p.user, r);
    skua_snapshot_free(job->snapshot);
    mem_free(job->logits);
    mem_free(job);
}
