/* The batcher's manners: who is next, limits, every way for a job to end, what is reused, what the owner is told. That answers are what
 * they are alone is tests/model/test_batch_answers. */
#include "batcher_jobs.h"
#include "fake_prefix_cache.h"

#include <pthread.h>

#include "base/error.h"

#define N_CTX 200

static skua_engine *e;
static int32_t capital[64], n_capital, noise[N_CTX + 1]; /* prompts: a question, random tokens */
static struct job jobs[24], alone, paris;                /* paris: the answer to the question, alone */
static struct prefix_cache cache;

static struct batcher *make(const struct batcher_params *p)
{
    struct batcher *b = NULL;
    skua_error err = {0};
    if (!CHECK(!batcher_create(e, p, &b, &err), "%s", err.message))
        exit(1);
    return b;
}

static void submit(struct batcher *b, struct job *j)
{
    skua_error err = {0};
    CHECK(!job_submit(j, b, &err), "%s", err.message);
}

static void finish(struct batcher *b)
{
    batcher_stop(b, true);
    batcher_run(b);
}

/* ---- arguments ---- */

static void test_arguments(void)
{
    static const struct batcher_params bad[] = {{.n_parallel = 0}, {.n_parallel = 1, .n_ctx = -1}, {.n_parallel = 1, .queue_max = -1},
                                                {.n_parallel = 1, .quantum = -5}, {.n_parallel = 1, .queue_timeout_s = -1}};
    static const char *const words[] = {"0 sessions", "length -1", "queue of -1", "-5 tokens", "-1 seconds"};
    struct batcher *b;
    skua_error err = {0};
    for (int i = 0; i < 5; i++)
        CHECK(batcher_create(e, &bad[i], &b, &err) == SKUA_EARG && !b && SAYS(&err, SKUA_EARG, words[i]), "parameters %d", i);
    b = make(&(struct batcher_params){.n_parallel = 1, .n_ctx = N_CTX, .queue_max = 5});
    int32_t outside[] = {5, 8192};
    struct job *j = &jobs[0];
#define REFUSED(code, change, ...) \
    do { \
        job_init(j, e, capital, n_capital, 3); \
        change; \
        CHECK(job_submit(j, b, &err) == (code) && SAYS(&err, code, __VA_ARGS__) && !j->id && !j->n_done, "%s", #change); \
    } while (0)
    REFUSED(SKUA_EARG, j->p.n_prompt = 0, "0 tokens");
    REFUSED(SKUA_EARG, (j->p.prompt = outside, j->p.n_prompt = 2), "8192", "number 1");
    REFUSED(SKUA_ELIMIT, (j->p.prompt = noise, j->p.n_prompt = N_CTX + 1), "201", "room for 200");
    REFUSED(SKUA_EARG, j->p.n_choices = 17, "choices", "17", "1 to 16");
    REFUSED(SKUA_EARG, j->p.n_choices = 0, "choices");
    REFUSED(SKUA_EARG, j->p.max_tokens = -2, "max_tokens", "-2");
    REFUSED(SKUA_EARG, j->p.min_tokens = -1, "min_tokens");
    REFUSED(SKUA_EARG, j->p.n_logprobs = 21, "logprobs", "20");
    REFUSED(SKUA_EARG, j->p.draft_max = 32, "draft_max", "31");
    REFUSED(SKUA_EARG, j->p.priority = 11, "priority");
    REFUSED(SKUA_EARG, (j->p.n_marks = 2, j->marks[0] = 4, j->marks[1] = 4), "mark 1", "4");
    REFUSED(SKUA_EARG, (j->p.n_marks = 1, j->marks[0] = n_capital + 1), "mark 0");
    REFUSED(SKUA_EARG, j->p.sampling.temperature = 3, "temperature");
    REFUSED(SKUA_EARG, j->p.callbacks = &(struct batch_callbacks){.done = job_done}, "callbacks");
    batcher_cancel(b, 77); /* nobody */
    batcher_free(b);
    batcher_free(NULL);
}

/* ---- the queue ---- */

static int32_t started[24], n_started_jobs;

static void note_start(void *user, const struct batch_start *start)
{
    job_start(user, start);
    started[n_started_jobs++] = (int32_t)((struct job *)user - jobs);
}

static const struct batch_callbacks noting = {note_start, job_first, job_progress, job_token, job_prompt_token, job_choice_end, job_done};

struct order {
    int32_t n;
    uint64_t owners[12];
    int32_t priorities[12], begin[12]; /* begin: tokens of the prompt that are kept already */
    int32_t expected[12];
};

static void check_order(const struct order *o, const char *what)
{
    const bool cached = o->begin[0] || o->begin[o->n - 1];
    struct batcher *b = make(&(struct batcher_params){.n_parallel = 1, .n_ctx = N_CTX, .queue_max = 12, .cache = cached ? &cache : NULL});
    int32_t prompts[12][12];
    n_started_jobs = 0;
    for (int32_t i = 0; i < o->n; i++) {
        for (int32_t k = 0; k < 12; k++)
            prompts[i][k] = k < o->begin[i] ? noise[k] : 400 + 20 * i + k;
        job_init(&jobs[i], e, prompts[i], 12, 1);
        jobs[i].p.callbacks = &noting;
        jobs[i].p.owner = o->owners[i];
        jobs[i].p.priority = o->priorities[i];
        submit(b, &jobs[i]);
    }
    finish(b);
    for (int32_t i = 0; i < o->n; i++)
        CHECK(started[i] == o->expected[i], "%s: job %d is number %d, expected %d", what, started[i], i, o->expected[i]);
    batcher_free(b);
}

static void test_order(void)
{
    static const struct order owners = {7, {1, 1, 1, 1, 2, 2, 3}, {0}, {0}, {0, 4, 6, 1, 5, 2, 3}},
                              priorities = {6, {1, 1, 2, 1, 1, 1}, {0, 0, 0, 5, -3, 5}, {0}, {3, 5, 0, 2, 1, 4}},
                              /* the last ones are known: each passes four at most, and nobody is passed more than four times */
                              near = {4, {1, 1, 1, 1}, {0}, {0, 0, 0, 8}, {3, 0, 1, 2}},
                              far = {7, {1, 1, 1, 1, 1, 1, 1}, {0}, {0, 0, 0, 0, 0, 0, 8}, {0, 1, 6, 2, 3, 4, 5}},
                              many = {8, {1, 1, 1, 1, 1, 1, 1, 1}, {0}, {0, 0, 8, 8, 8, 8, 8, 8}, {2, 3, 4, 5, 0, 1, 6, 7}},
                              higher = {4, {1, 1, 1, 1}, {1, 0, 0, 0}, {0, 0, 0, 8}, {0, 3, 1, 2}};
    check_order(&owners, "owners take turns");
    check_order(&priorities, "priorities");
    skua_session *s = session_open(e, N_CTX);
    skua_feed f = {.session = s, .ids = noise, .n_ids = 8};
    cache = (struct prefix_cache){.engine = e, .n_ctx = N_CTX, .every = 1000};
    CHECK(!skua_eval(e, &f, 1, NULL, NULL, NULL) && !prefix_cache_keep(&cache, s, PREFIX_BORDER, NULL), "a kept beginning");
    const struct order *const bypass[] = {&near, &far, &many, &higher};
    for (int i = 0; i < 4; i++) {
        check_order(bypass[i], i == 0 ? "near" : i == 1 ? "far" : i == 2 ? "many" : "higher");
        while (cache.n > 1) /* only the beginning */
            skua_session_free(cache.kept[--cache.n]);
    }
    fake_clear(&cache);
    skua_session_free(s);
}

/* An owner who has one job at a time and comes back at once takes turns with one whose jobs all wait. */
static void come_back(struct job *j)
{
    if (j == &jobs[9]) {
        batcher_stop(j->batcher, true);
    } else if (j >= &jobs[5]) {
        job_init(j + 1, e, capital, n_capital, 1);
        j[1].p.callbacks = &noting;
        j[1].p.owner = 2;
        j[1].on_token = come_back;
        submit(j->batcher, j + 1);
    }
}

static void test_coming_back(void)
{
    struct batcher *b = make(&(struct batcher_params){.n_parallel = 1, .n_ctx = N_CTX, .queue_max = 30});
    n_started_jobs = 0;
    for (int i = 0; i < 6; i++) {
        job_init(&jobs[i], e, capital, n_capital, 1);
        jobs[i].p.callbacks = &noting;
        jobs[i].p.owner = i < 5 ? 1 : 2;
        jobs[i].on_token = come_back;
        submit(b, &jobs[i]);
    }
    batcher_run(b);
    for (int32_t i = 0; i < 10; i++)
        CHECK(started[i] == i / 2 + 5 * (i % 2), "job %d is number %d", started[i], i);
    batcher_free(b);
}

static void test_full(void)
{
    skua_error err = {0};
    for (int32_t queue = 0; queue < 3; queue++) {
        struct batcher *b = make(&(struct batcher_params){.n_parallel = 2, .n_ctx = N_CTX, .queue_max = queue});
        for (int32_t i = 0; i < 2 + queue; i++) {
            job_init(&jobs[i], e, capital, n_capital, 2);
            submit(b, &jobs[i]);
        }
        job_init(&jobs[9], e, capital, n_capital, 2);
        CHECK(job_submit(&jobs[9], b, &err) == SKUA_ELIMIT && SAYS(&err, SKUA_ELIMIT, "queue is full", "0 of 2") && !jobs[9].id,
              "one too many");
        struct batch_stats stats;
        batcher_stats(b, &stats);
        CHECK(stats.waiting == 2 + queue && !stats.running, "%d wait", stats.waiting);
        finish(b);
        CHECK(job_submit(&jobs[9], b, &err) == SKUA_ESTATE && SAYS(&err, SKUA_ESTATE, "stopping"), "after the end");
        for (int32_t i = 0; i < 2 + queue; i++)
            CHECK(!jobs[i].result.rc && jobs[i].n_done == 1, "%s", jobs[i].result.err.message);
        CHECK(!jobs[9].n_done, "a job that was refused");
        batcher_free(b);
    }
    /* nobody gets a session within no time */
    struct batcher *b = make(&(struct batcher_params){.n_parallel = 1, .n_ctx = N_CTX, .queue_max = 4, .queue_timeout_s = 1e-9});
    for (int i = 0; i < 3; i++) {
        job_init(&jobs[i], e, capital, n_capital, 2);
        submit(b, &jobs[i]);
    }
    finish(b);
    for (int i = 0; i < 3; i++)
        CHECK(jobs[i].n_done == 1 && SAYS(&jobs[i].result.err, SKUA_ELIMIT, "no session") && jobs[i].result.rc == SKUA_ELIMIT &&
                  !jobs[i].result.started && !jobs[i].n_started && jobs[i].result.queue_seconds > 0,
              "late");
    batcher_free(b);
}

/* ---- ends ---- */

static void test_cancel(void)
{
    static const int32_t at[] = {-3, -1, -2, 1, 4}; /* waiting, started, in the prompt, behind tokens */
    for (int i = 0; i < 5; i++) {
        struct batcher *b = make(&(struct batcher_params){.n_parallel = 2, .n_ctx = N_CTX, .queue_max = 4, .quantum = 20, .cache = &cache});
        cache = (struct prefix_cache){.engine = e, .n_ctx = N_CTX, .every = 1000};
        job_init(&jobs[0], e, capital, n_capital, 30);
        job_init(&jobs[1], e, noise, 150, 30);
        jobs[1].p.sampling.temperature = 1;
        jobs[1].cancel_at = at[i];
        jobs[1].p.n_marks = 1;
        jobs[1].marks[0] = 140;
        jobs[2] = jobs[1];
        jobs[2].cancel_at = 0;
        submit(b, &jobs[0]);
        submit(b, &jobs[1]);
        if (at[i] == -3) {
            batcher_cancel(b, jobs[1].id);
            batcher_cancel(b, jobs[1].id);
        }
        submit(b, &jobs[2]); /* the same again */
        finish(b);
        job_equals(&jobs[0], &paris, "beside one that is canceled");
        job_equals(&jobs[1], &alone, "canceled");
        job_equals(&jobs[2], &alone, "the same again");
        const struct batch_result *r = &jobs[1].result;
        CHECK(r->rc == SKUA_ECANCELED && SAYS(&r->err, SKUA_ECANCELED, "canceled") && r->started == (at[i] != -3) &&
                  !jobs[1].heard[0].ended && jobs[1].heard[0].n == (at[i] > 0 ? at[i] : 0) && r->finish[0] == SKUA_FINISH_NONE,
              "canceled at %d: %d tokens", at[i], jobs[1].heard[0].n);
        const int32_t kept = cache.n ? jobs[2].start.n_cached : -1;
        CHECK(at[i] == -2 || at[i] > 0 ? kept > 0 : kept == 0, "canceled at %d: %d tokens are not read again", at[i], kept);
        CHECK(at[i] < -2 || at[i] == -1 || kept == (at[i] == -2 ? jobs[1].progress : 140), "%d tokens kept of %d", kept, jobs[1].progress);
        batcher_free(b);
        fake_clear(&cache);
    }
}

static void stop_now(struct job *j)
{
    if (j->heard[0].n == 3)
        batcher_stop(j->batcher, false);
}

static void test_stop(void)
{
    /* before it runs; while it runs; jobs that nobody ever ran */
    for (int way = 0; way < 3; way++) {
        struct batcher *b = make(&(struct batcher_params){.n_parallel = 2, .n_ctx = N_CTX, .queue_max = 4});
        for (int i = 0; i < 4; i++) {
            job_init(&jobs[i], e, capital, n_capital, 30);
            jobs[i].on_token = way == 1 ? stop_now : NULL;
            submit(b, &jobs[i]);
        }
        if (way == 0) {
            batcher_stop(b, true);
            batcher_stop(b, false);
            batcher_stop(b, true); /* too late */
        }
        if (way < 2)
            batcher_run(b);
        for (int i = 0; i < 4 && way < 2; i++)
            CHECK(jobs[i].n_done == 1 && jobs[i].result.rc == SKUA_ECANCELED && SAYS(&jobs[i].result.err, SKUA_ECANCELED, "stopping"),
                  "way %d, job %d: %d", way, i, jobs[i].result.rc);
        batcher_free(b);
        for (int i = 0; i < 4; i++)
            CHECK(jobs[i].n_done == 1 && jobs[i].result.rc == SKUA_ECANCELED && jobs[i].heard[0].n == (way == 1 && i < 2 ? 3 : 0),
                  "way %d, job %d: %d tokens", way, i, jobs[i].heard[0].n);
    }
}

static void test_context_full(void)
{
    for (int32_t n = N_CTX - 3; n <= N_CTX; n++)
        for (int32_t choices = 1; choices <= 3; choices += 2) {
            struct batcher *b = make(&(struct batcher_params){.n_parallel = 2, .n_ctx = N_CTX, .queue_max = 4});
            job_init(&jobs[0], e, noise, n, choices == 1 ? -1 : 1000);
            jobs[0].p.n_choices = choices;
            jobs[0].p.sampling.temperature = 2;
            jobs[0].p.sampling.seed = 9;
            alone = jobs[0];
            for (int32_t c = 0; c < choices; c++)
                job_alone(&alone, e, N_CTX, c);
            submit(b, &jobs[0]);
            finish(b);
            job_equals(&jobs[0], &alone, "a full context");
            CHECK(jobs[0].heard[0].finish == SKUA_FINISH_MAX_TOKENS && jobs[0].heard[0].n == N_CTX - n + 1, "%d tokens: %d more", n,
                  jobs[0].heard[0].n);
            batcher_free(b);
        }
}

static void test_prompt_only(void)
{
    cache = (struct prefix_cache){.engine = e, .n_ctx = N_CTX, .every = 1000};
    struct batcher *b = make(&(struct batcher_params){.n_parallel = 2, .n_ctx = N_CTX, .queue_max = 4, .cache = &cache});
    job_init(&jobs[0], e, noise, 100, 0);
    jobs[0].p.n_choices = 2;
    jobs[0].p.n_marks = 2;
    jobs[0].marks[0] = 31;
    jobs[0].marks[1] = 64;
    submit(b, &jobs[0]);
    finish(b);
    const struct job *j = &jobs[0];
    CHECK(!j->result.rc && j->n_done == 1 && j->heard[0].ended && j->heard[1].ended && j->heard[1].finish == SKUA_FINISH_MAX_TOKENS &&
              !j->heard[0].n && !j->result.n_generated[0] && j->result.finish[1] == SKUA_FINISH_MAX_TOKENS && j->progress == 100,
          "only the prompt");
    CHECK(cache.n == 3 && skua_session_length(cache.kept[0]) == 31 && skua_session_length(cache.kept[1]) == 64 &&
              skua_session_length(cache.kept[2]) == 100,
          "%d kept", cache.n);
    batcher_free(b);
    fake_clear(&cache);
}

/* ---- errors ---- */

static int failing_token(void *user, const struct batch_token *t, int32_t *replace, struct batch_next *next, skua_error *err)
{
    struct job *j = user;
    const int32_t n = j->heard[t->choice].n;
    if (n == 2 && t->choice == j->p.n_choices - 1)
        switch (j->masks) {
        case -1: return error_set(err, SKUA_ENOMEM, "no memory for the answer");
        case -2: *replace = 5; return 0; /* again and again */
        case -3: *replace = 99999; return 0;
        default: break;
        }
    return job_token(user, t, replace, next, err);
}

static int failing_first(void *user, int32_t choice, struct batch_next *next, skua_error *err)
{
    static const uint64_t nothing[8192 / 64];
    const struct job *j = user;
    if (j->masks == -4 && choice == j->p.n_choices - 1)
        return error_set(err, SKUA_ESTATE, "no first token");
    if (j->masks == -5)
        next->mask = nothing;
    return 0;
}

/* An owner's mistake ends its job, and no other. */
static void test_errors(void)
{
    static const struct batch_callbacks failing = {.first = failing_first, .token = failing_token, .done = job_done};
    static const char *const words[] = {"no memory for the answer", "5 in place of 5", "99999 in place", "no first token", "position",
                                        "is forced"};
    static const int codes[] = {SKUA_ENOMEM, SKUA_EARG, SKUA_EARG, SKUA_ESTATE, SKUA_ESTATE, SKUA_EARG};
    for (int way = 0; way < 6; way++)
        for (int32_t choices = 1; choices <= 4; choices += 3) {
            struct batcher *b = make(&(struct batcher_params){.n_parallel = 3, .n_ctx = N_CTX, .queue_max = 4});
            job_init(&jobs[0], e, capital, n_capital, 30);
            jobs[1] = jobs[2] = jobs[0];
            jobs[1].p.callbacks = &failing;
            jobs[1].masks = -1 - way;
            jobs[1].p.n_choices = choices;
            jobs[1].forced_at = way == 5 ? 2 : 0;
            jobs[1].forced[0] = 8192;
            for (int i = 0; i < 3; i++)
                submit(b, &jobs[i]);
            finish(b);
            job_equals(&jobs[0], &paris, "beside one that fails");
            job_equals(&jobs[2], &paris, "behind one that fails");
            CHECK(jobs[1].n_done == 1 && jobs[1].result.rc == codes[way] && SAYS(&jobs[1].result.err, codes[way], words[way]),
                  "way %d: %d '%s'", way, jobs[1].result.rc, jobs[1].result.err.message);
            CHECK(!e->n_pending, "held tokens");
            batcher_free(b);
        }
}

/* A mask that allows nothing but the end wins over ignore_end and min_tokens. */
static int only_end(void *user, const struct batch_token *t, int32_t *replace, struct batch_next *next, skua_error *err)
{
    static uint64_t mask[8192 / 64];
    struct job *j = user;
    for (int32_t id = 0; id < 8192; id++)
        if (skua_token_ends(e, id))
            mask[id / 64] |= (uint64_t)1 << id % 64;
    int rc = job_token(user, t, replace, next, err);
    if (j->heard[0].n == 5)
        next->mask = mask;
    return rc;
}

static void test_forced_end(void)
{
    static const struct batch_callbacks ending = {.token = only_end, .done = job_done, .choice_end = job_choice_end};
    for (int way = 0; way < 3; way++) {
        struct batcher *b = make(&(struct batcher_params){.n_parallel = 1, .n_ctx = N_CTX});
        job_init(&jobs[0], e, capital, n_capital, 30);
        jobs[0].p.callbacks = &ending;
        jobs[0].p.ignore_end = way == 1;
        jobs[0].p.min_tokens = way == 2 ? 20 : 0;
        submit(b, &jobs[0]);
        finish(b);
        const struct heard_choice *h = &jobs[0].heard[0];
        CHECK(h->n == 6 && h->finish == SKUA_FINISH_END_TOKEN && skua_token_ends(e, h->ids[5]) &&
                  !memcmp(h->ids, paris.heard[0].ids, 5 * sizeof *h->ids),
              "way %d: %d tokens, %s", way, h->n, skua_finish_name(h->finish));
        batcher_free(b);
    }
}

/* ---- several choices, forced tokens ---- */

static void first_is_not_done(struct job *j)
{
    CHECK(j == &jobs[0] || !jobs[0].n_done, "a job waited for all choices of another one");
}

static void test_room(void)
{
    struct batcher *b = make(&(struct batcher_params){.n_parallel = 2, .n_ctx = N_CTX, .queue_max = 4});
    for (int i = 0; i < 2; i++) {
        job_init(&jobs[i], e, capital, n_capital, 30);
        jobs[i].on_token = first_is_not_done;
    }
    jobs[0].p.n_choices = 7;
    submit(b, &jobs[0]);
    submit(b, &jobs[1]);
    finish(b);
    job_equals(&jobs[1], &paris, "beside seven choices");
    for (int c = 0; c < 7; c++)
        CHECK(jobs[0].heard[c].n == paris.heard[0].n && jobs[0].heard[c].ended, "choice %d: %d tokens", c, jobs[0].heard[c].n);
    batcher_free(b);
}

/* Tokens that are forced together are evaluated together. */
static void test_forced(void)
{
    struct batcher *b = make(&(struct batcher_params){.n_parallel = 1, .n_ctx = N_CTX});
    struct batch_stats stats;
    job_init(&jobs[0], e, capital, n_capital, 10);
    jobs[0].forced_at = 1;
    for (int i = 0; i < 3; i++)
        jobs[0].forced[i] = 900 + i;
    submit(b, &jobs[0]);
    finish(b);
    batcher_stats(b, &stats);
    const uint64_t n = (uint64_t)jobs[0].heard[0].n;
    CHECK(n > 5 && stats.steps == n - 3 && stats.generated_tokens == n && stats.prompt_tokens == (uint64_t)n_capital,
          "%d steps, %d of %d tokens", (int)stats.steps, (int)stats.generated_tokens, (int)n);
    CHECK(!memcmp(jobs[0].heard[0].ids + 1, jobs[0].forced, 3 * sizeof(int32_t)), "forced tokens");
    batcher_free(b);
}

/* ---- what is reused ---- */

/* A second turn goes on in the session of the first, if it is still there. */
static void test_live(void)
{
    for (int way = 0; way < 4; way++) { /* as it should be; no_cache in either turn; a session that another job had meanwhile */
        struct batcher *b = make(&(struct batcher_params){.n_parallel = 1, .n_ctx = N_CTX, .queue_max = 4});
        int32_t turn[128], n = n_capital;
        job_init(&jobs[0], e, capital, n_capital, 30);
        jobs[0].p.no_cache = way == 1;
        memcpy(turn, capital, (size_t)n * sizeof *turn);
        memcpy(turn + n, paris.heard[0].ids, (size_t)paris.heard[0].n * sizeof *turn);
        n += paris.heard[0].n;
        memcpy(turn + n, capital, (size_t)n_capital * sizeof *turn);
        n += n_capital;
        job_init(&jobs[1], e, turn, n, 20);
        jobs[1].p.no_cache = way == 2;
        job_init(&jobs[2], e, noise, 10, 2);
        jobs[2].p.priority = 1; /* else what is known passes it */
        jobs[0].p.priority = 2;
        job_init(&alone, e, turn, n, 20);
        job_alone(&alone, e, N_CTX, 0);
        submit(b, &jobs[0]);
        if (way == 3)
            submit(b, &jobs[2]);
        submit(b, &jobs[1]);
        finish(b);
        job_equals(&jobs[1], &alone, "the second turn");
        const struct batch_start *s = &jobs[1].start;
        if (way == 0)
            CHECK(s->source == BATCH_SOURCE_LIVE && s->n_cached == n_capital + paris.heard[0].n - 1 && !strcmp(jobs[1].miss_reason, "cold"),
                  "%d of %d tokens, %s", s->n_cached, n, batch_source_names[s->source]);
        else
            CHECK(s->source == BATCH_SOURCE_NONE && !s->n_cached && !strcmp(jobs[1].miss_reason, way == 2 ? "disabled" : "cold"),
                  "way %d: %d of %d tokens, %s", way, s->n_cached, n, batch_source_names[s->source]);
        CHECK(jobs[1].result.n_cached == s->n_cached && s->diverged_at == -1, "the result");
        struct batch_stats stats;
        batcher_stats(b, &stats);
        CHECK(stats.cached_tokens[BATCH_SOURCE_LIVE] == (uint64_t)(way ? 0 : s->n_cached) && !stats.running && !stats.waiting, "counted");
        batcher_free(b);
    }
}

static void test_slots(void)
{
    struct batcher *b = make(&(struct batcher_params){.n_parallel = 3, .n_ctx = N_CTX});
    struct batch_slot slots[4];
    CHECK(batcher_slots(b, slots, 2) == 3 && batcher_slots(b, slots, 4) == 3, "three");
    CHECK(!slots[2].job && slots[2].n_ctx == N_CTX && !slots[2].n_tokens && !strcmp(slots[2].phase, "idle"), "idle");
    job_init(&jobs[0], e, capital, n_capital, 30);
    submit(b, &jobs[0]);
    finish(b);
    batcher_slots(b, slots, 4);
    CHECK(slots[0].n_tokens == n_capital + paris.heard[0].n - 1 && !slots[0].job && slots[0].last_used > 0, "%d tokens", slots[0].n_tokens);
    batcher_free(b);
}

/* ---- tasks ---- */

struct note {
    int32_t n, n_run, n_tokens; /* calls, those that may do something; the session's tokens then */
    bool had_session;
};

static void on_task(void *user, bool run, skua_session **session)
{
    struct note *n = user;
    n->n++;
    n->n_run += run;
    n->had_session = session != NULL;
    if (session) {
        n->n_tokens = skua_session_length(*session);
        skua_session_reset(*session);
    }
}

/* A slot's task waits until the slot is idle; one of no slot does not; all are told when it is too late. */
static void test_tasks(void)
{
    struct batcher *b = make(&(struct batcher_params){.n_parallel = 1, .n_ctx = N_CTX, .queue_max = 4});
    struct note of_slot = {0}, of_none = {0}, late = {0};
    skua_error err = {0};
    CHECK(batcher_call(b, 1, on_task, &late, &err) == SKUA_EARG && strstr(err.message, "slot 1"), "%s", err.message);
    CHECK(batcher_call(b, -2, on_task, &late, &err) == SKUA_EARG && !late.n, "%s", err.message);
    CHECK(!batcher_call(b, -1, on_task, &of_none, &err) && !batcher_call(b, 0, on_task, &of_slot, &err), "%s", err.message);
    job_init(&jobs[0], e, capital, n_capital, 30);
    submit(b, &jobs[0]);
    finish(b);
    job_equals(&jobs[0], &paris, "with tasks");
    CHECK(of_none.n_run == 1 && !of_none.had_session && of_slot.n_run == 1 && of_slot.had_session && !of_slot.n_tokens, "before the job");
    CHECK(batcher_call(b, 0, on_task, &late, &err) == SKUA_ESTATE && !late.n, "%s", err.message);
    batcher_free(b);
    b = make(&(struct batcher_params){.n_parallel = 1, .n_ctx = N_CTX});
    batcher_stop(b, false);
    CHECK(!batcher_call(b, 0, on_task, &late, &err), "%s", err.message);
    batcher_run(b);
    CHECK(late.n == 1 && late.n_run <= 1, "told once");
    batcher_free(b);
    late = (struct note){0};
    b = make(&(struct batcher_params){.n_parallel = 1, .n_ctx = N_CTX});
    CHECK(!batcher_call(b, 0, on_task, &late, &err), "%s", err.message);
    batcher_free(b);
    CHECK(late.n == 1 && !late.n_run, "told by the batcher's end");
}

/* ---- threads ---- */

struct submitter {
    struct batcher *b;
    struct job *jobs;
    pthread_t thread;
    int rc; /* checks are counted by one thread at a time: the engine's */
};

static void *submit_some(void *user)
{
    struct submitter *s = user;
    struct batch_stats stats;
    struct batch_slot slots[2];
    for (int i = 0; i < 6; i++) {
        skua_error err = {0};
        job_init(&s->jobs[i], e, capital, n_capital, 30);
        s->jobs[i].cancel_at = i == 2 ? 1 + i : 0;
        s->rc = s->rc ? s->rc : job_submit(&s->jobs[i], s->b, &err);
        batcher_stats(s->b, &stats);
        batcher_slots(s->b, slots, 2);
        if (i == 4) {
            s->jobs[i].cancel_at = 99;
            batcher_cancel(s->b, s->jobs[i].id);
        }
    }
    return NULL;
}

static void *run_it(void *user)
{
    batcher_run(user);
    return NULL;
}

static void test_threads(void)
{
    struct batcher *b = make(&(struct batcher_params){.n_parallel = 2, .n_ctx = N_CTX, .queue_max = 40});
    struct submitter s[3];
    pthread_t engine;
    int failed = pthread_create(&engine, NULL, run_it, b);
    for (int i = 0; i < 3; i++) {
        s[i] = (struct submitter){.b = b, .jobs = jobs + 6 * i};
        failed |= pthread_create(&s[i].thread, NULL, submit_some, &s[i]);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(s[i].thread, NULL);
    batcher_stop(b, true);
    pthread_join(engine, NULL);
    CHECK(!failed && !s[0].rc && !s[1].rc && !s[2].rc, "threads");
    for (int i = 0; i < 18; i++)
        job_equals(&jobs[i], &paris, "from three threads");
    batcher_free(b);
}

int main(void)
{
    const char *model = support_model("tiny-q8_0.gguf");
    skua_error err = {0};
    size_t n;
    int32_t *ids;
    uint64_t state = 3;
    if (!model)
        return support_finish("test_batcher");
    e = model_open(model, &(skua_engine_params){.n_threads = 1, .max_rows = 48});
    if (!CHECK(!skua_chat_prompt(e, "[{\"role\": \"user\", \"content\": \"What is the capital of France?\"}]", NULL,
                                 "{\"enable_thinking\": false}", &ids, &n, NULL, &err) && n < 64, "%s", err.message))
        return support_finish("test_batcher");
    n_capital = (int32_t)n;
    memcpy(capital, ids, n * sizeof *ids);
    skua_free(ids);
    for (int32_t i = 0; i <= N_CTX; i++)
        noise[i] = (int32_t)(rng_next(&state) % 8000);
    job_init(&paris, e, capital, n_capital, 30);
    job_alone(&paris, e, N_CTX, 0);
    job_init(&alone, e, noise, 150, 30);
    alone.p.sampling.temperature = 1;
    job_alone(&alone, e, N_CTX, 0);
    test_arguments();
    test_order();
    test_coming_back();
    test_full();
    test_cancel();
    test_stop();
    test_context_full();
    test_prompt_only();
    test_errors();
    test_forced_end();
    test_room();
    test_forced();
    test_live();
    test_slots();
    test_tasks();
    test_threads();
    skua_engine_close(e);
    return support_finish("test_batcher");
}
