/* Jobs for tests of the batcher: what they ask for, what their owner does, what it hears, and the same answers made alone. Header only. */
#ifndef SKUA_TESTS_BATCHER_JOBS_H
#define SKUA_TESTS_BATCHER_JOBS_H

#include "engine_model.h"

#include "base/rng.h"
#include "engine/batcher.h"
#include "engine/generation.h"

#define JOB_MAX_TOKENS 96 /* of a choice */
#define JOB_TOP 4

/* What one choice heard. */
struct heard_choice {
    int32_t ids[JOB_MAX_TOKENS], n;
    double logprobs[JOB_MAX_TOKENS];
    struct token_logprob top[JOB_MAX_TOKENS][JOB_TOP];
    bool replacing;
    uint64_t mask[(1 << 14) / 64];
    enum skua_finish finish;
    bool ended;
};

/* A job, its owner's behaviour (0: not), and what came of it. */
struct job {
    struct batch_params p;
    skua_logit_bias bias[2];
    int32_t marks[2];
    int32_t masks;                       /* from the first token on, some tokens are forbidden; which depends on the last one. The number of
                                            tokens for which */
    int32_t masks_from;                  /* they begin behind so many */
    int32_t forced_at, replace_at, finish_at, cancel_at; /* behind so many tokens; cancel -1: when it starts, -2: in the prompt */
    int32_t forced[3];
    int32_t queued_behind;               /* submitted once so many tokens of any job were heard */

    struct batcher *batcher;             /* NULL: alone */
    const skua_engine *engine;
    void (*on_token)(struct job *job);   /* NULL */
    uint64_t id;
    struct heard_choice heard[BATCH_MAX_CHOICES];
    double prompt_logprobs[512];
    int32_t n_prompt_logprobs, progress, n_started, n_done;
    struct batch_start start;
    char miss_reason[32];
    struct batch_result result;
};

static void job_next(struct job *j, int32_t choice, struct batch_next *next)
{
    struct heard_choice *h = &j->heard[choice];
    if (j->forced_at && h->n == j->forced_at) {
        next->forced = j->forced;
        next->n_forced = 3;
    }
    if (h->n >= j->masks_from && h->n < j->masks_from + j->masks) {
        const int32_t last = h->n ? h->ids[h->n - 1] : 1;
        for (int32_t i = 0; i < (int32_t)(sizeof h->mask / sizeof *h->mask); i++)
            h->mask[i] = rng_bits((uint64_t)last, (uint64_t)i, 77);
        next->mask = h->mask;
    }
    if (j->finish_at && h->n == j->finish_at)
        next->finish = SKUA_FINISH_STOP_STRING;
}

static int job_token(void *user, const struct batch_token *t, int32_t *replace, struct batch_next *next, skua_error *err)
{
    struct job *j = user;
    struct heard_choice *h = &j->heard[t->choice];
    size_t n;
    (void)err;
    const char *bytes = skua_token_bytes(j->engine, t->id, false, &n);
    CHECK(n == t->n && !memcmp(bytes, t->bytes, n) && t->ends == skua_token_ends(j->engine, t->id), "token %d: other facts", t->id);
    CHECK(!h->ended && !j->n_done, "a token behind the end");
    if (j->replace_at && h->n == j->replace_at && !h->replacing) {
        h->replacing = true;
        *replace = (t->id + 7) % 4000;
        return 0;
    }
    h->replacing = false;
    if (!CHECK(h->n < JOB_MAX_TOKENS, "an answer without end"))
        return SKUA_ELIMIT;
    if (t->logprob) {
        h->logprobs[h->n] = t->logprob->logprob;
        memcpy(h->top[h->n], t->logprob->top, (size_t)t->logprob->n_top * sizeof *t->logprob->top);
    }
    CHECK(!t->logprob == (j->p.n_logprobs < 0), "log-probabilities");
    h->ids[h->n++] = t->id;
    job_next(j, t->choice, next);
    if (j->batcher && j->cancel_at > 0 && h->n == j->cancel_at)
        batcher_cancel(j->batcher, j->id);
    if (j->on_token)
        j->on_token(j);
    return 0;
}

static void job_start(void *user, const struct batch_start *start)
{
    struct job *j = user;
    j->start = *start;
    snprintf(j->miss_reason, sizeof j->miss_reason, "%s", start->miss_reason);
    CHECK(!j->n_started++ && !j->progress && start->n_prompt == j->p.n_prompt && start->n_cached < j->p.n_prompt, "a start of %d, %d",
          start->n_cached, start->n_prompt);
    if (j->cancel_at == -1)
        batcher_cancel(j->batcher, j->id);
}

static int job_first(void *user, int32_t choice, struct batch_next *next, skua_error *err)
{
    (void)err;
    job_next(user, choice, next);
    return 0;
}

static void job_progress(void *user, int32_t n_done, int32_t n_total)
{
    struct job *j = user;
    CHECK(n_done > j->progress && n_done <= n_total && n_total == j->p.n_prompt, "progress to %d of %d", n_done, n_total);
    j->progress = n_done;
    if (j->cancel_at == -2 && n_done < n_total)
        batcher_cancel(j->batcher, j->id);
}

static void job_prompt_token(void *user, int32_t i, const struct batch_logprob *row)
{
    struct job *j = user;
    CHECK(i == j->n_prompt_logprobs + 1, "the score of token %d behind %d", i, j->n_prompt_logprobs);
    j->prompt_logprobs[j->n_prompt_logprobs++] = row->logprob;
}

static void job_choice_end(void *user, int32_t choice, enum skua_finish finish)
{
    struct job *j = user;
    CHECK(!j->heard[choice].ended && !j->n_done && finish != SKUA_FINISH_NONE, "the end of choice %d", choice);
    j->heard[choice].ended = true;
    j->heard[choice].finish = finish;
}

static void job_done(void *user, const struct batch_result *r)
{
    struct job *j = user;
    j->n_done++;
    j->result = *r;
}

static const struct batch_callbacks job_callbacks = {job_start, job_first, job_progress, job_token, job_prompt_token, job_choice_end,
                                                     job_done};

/* A greedy job without limits but `max`. */
static inline void job_init(struct job *j, const skua_engine *e, const int32_t *prompt, int32_t n_prompt, int32_t max)
{
    memset(j, 0, sizeof *j);
    j->engine = e;
    j->p = (struct batch_params){.prompt = prompt, .n_prompt = n_prompt, .n_choices = 1, .max_tokens = max, .n_logprobs = -1,
                                 .sampling = {.top_p = 1, .repetition_penalty = 1, .penalty_last_n = -1},
                                 .callbacks = &job_callbacks, .user = j};
}

static inline int job_submit(struct job *j, struct batcher *b, skua_error *err)
{
    j->batcher = b;
    j->p.user = j;
    if (j->p.sampling.n_bias)
        j->p.sampling.bias = j->bias;
    if (j->p.n_marks)
        j->p.marks = j->marks;
    return batcher_submit(b, &j->p, &j->id, err);
}

/* The same choice alone, one token at a time, into a job that heard nothing yet. */
static inline void job_alone(struct job *j, skua_engine *e, int32_t n_ctx, int32_t choice)
{
    skua_session *s = session_open(e, n_ctx);
    struct sampler_workspace ws = {0};
    struct generation g;
    struct batch_next first = {0};
    skua_error err = {0};
    float *logits = malloc(sizeof *logits * (size_t)e->config.n_vocab);
    const int32_t left = skua_session_ctx(s) - j->p.n_prompt + 1;
    struct generation_params p = {.sampling = j->p.sampling, .max_tokens = j->p.max_tokens < 0 || j->p.max_tokens > left ? left :
                                  j->p.max_tokens, .min_tokens = j->p.min_tokens, .ignore_end = j->p.ignore_end,
                                  .n_logprobs = j->p.n_logprobs, .no_draft = true, .choice = choice, .token = job_token, .user = j};
    if (p.sampling.n_bias)
        p.sampling.bias = j->bias;
    p.sampling.seed = batch_seed(p.sampling.seed, choice);
    j->batcher = NULL;
    job_next(j, choice, &first);
    int rc = sampler_workspace_init(&ws, e->config.n_vocab, &err);
    rc = rc ? rc : generation_init(&g, s, &p, &ws, j->p.prompt, j->p.n_prompt, &first, &err);
    skua_feed feed = {.session = s, .ids = j->p.prompt, .n_ids = j->p.n_prompt, .want = SKUA_LOGITS_LAST, .logits = logits};
    rc = rc ? rc : skua_eval(e, &feed, 1, NULL, NULL, &err);
    rc = rc ? rc : generation_first(&g, &feed, &err);
    while (!rc && g.finish == SKUA_FINISH_NONE) {
        generation_choose(&g, 0, 1);
        generation_draft(&g);
        rc = generation_feed(&g, &feed, &err);
        CHECK(rc || (feed.n_ids == 1 && !feed.hold), "more than one token");
        rc = rc ? rc : skua_eval(e, &feed, 1, NULL, NULL, &err);
        rc = rc ? rc : generation_results(&g, 1e-3, false, &err);
    }
    CHECK(!rc, "alone: %s", err.message);
    job_choice_end(j, choice, g.finish);
    j->result.n_generated[choice] = g.n_generated;
    generation_free(&g);
    sampler_workspace_free(&ws);
    free(logits);
    skua_session_free(s);
}

/* Did every choice hear what it hears alone? A job that was canceled heard a beginning of it. */
static inline bool job_equals(const struct job *j, const struct job *alone, const char *where)
{
    bool ok = CHECK(j->n_done == 1, "%s: done %d times", where, j->n_done);
    if (j->result.rc && !j->cancel_at)
        return CHECK(false, "%s: %s", where, j->result.err.message);
    for (int32_t c = 0; c < j->p.n_choices && ok; c++) {
        const struct heard_choice *a = &j->heard[c], *b = &alone->heard[c];
        const size_t n = (size_t)a->n;
        ok = CHECK(a->n <= b->n && !memcmp(a->ids, b->ids, n * sizeof *a->ids), "%s, choice %d: other tokens (%d, alone %d)", where, c,
                   a->n, b->n) &&
             CHECK(!memcmp(a->logprobs, b->logprobs, n * sizeof *a->logprobs) && !memcmp(a->top, b->top, n * sizeof *a->top),
                   "%s, choice %d: other log-probabilities", where, c);
        if (j->result.rc)
            continue;
        ok = ok && CHECK(a->n == b->n && a->ended && a->finish == b->finish && j->result.finish[c] == b->finish &&
                             j->result.n_generated[c] == alone->result.n_generated[c],
                         "%s, choice %d: %d tokens (%s), alone %d (%s)", where, c, a->n, skua_finish_name(a->finish), b->n,
                         skua_finish_name(b->finish));
    }
    return ok;
}

#endif
