/* Promise P1 for many answers at once: whatever else runs, whatever drafts, however the jobs arrive and wherever a prompt's beginning comes
 * from, each job hears the tokens, log-probabilities and ends that it hears alone, with memcmp.
 *
 * Sixteen mixed jobs (greedy, sampled, penalties, bias, log-probabilities, masks, forced and replaced tokens, several choices, lengths,
 * contexts that fill up, jobs that are canceled) are answered alone without drafts, then together by engines with different drafters,
 * numbers of sessions and rows of a pass, in orders drawn by SKUA_TEST_SEED (default 1). SKUA_TEST_QUICK=1: fewer. */
#include "unit/batcher_jobs.h"

#define N_JOBS 16
#define N_CTX 420

static const char *const questions[N_JOBS] = {
    "What is the capital of France?", "Tell me a story about a small dog.", "What is 12 plus 7?", "Count from 3 to 40.",
    "Give me JSON for a person named Leo, age 31, from Rome.", "What does \"river\" mean?", "Count from 3 to 40.", "Hi",
    "Tell me a story about a wolf.", "Tell me a story about a small dog.", "What is the capital of Japan?", "Name three colors.",
    "Write a Python function that reverses a string.", "Why is the sky blue?", "Count from 5 to 30.", "What is 9 plus 30?"};
static int32_t prompts[N_JOBS][512], n_prompts[N_JOBS];
static struct job alone[N_JOBS], jobs[N_JOBS], plain;

static skua_engine *open_engine(const char *source, int fixed, int threads, int rows)
{
    skua_engine *e = model_open(support_model("tiny-q8_0.gguf"), &(skua_engine_params){.n_threads = threads, .max_rows = rows});
    skua_draft_params p = SKUA_DRAFT_DEFAULTS;
    skua_error err = {0};
    p.source = source && strchr(source, '.') ? support_model(source) : source;
    p.fixed = fixed;
    p.force = fixed == -1 && threads == 2;
    CHECK(!source || !skua_engine_draft(e, &p, NULL, &err), "%s", err.message);
    return e;
}

/* Every second prompt is long: random tokens, the same for some of them, and a question behind. */
static void make_prompts(const skua_engine *e, uint64_t seed)
{
    for (int i = 0; i < N_JOBS; i++) {
        char text[512];
        int32_t *ids = NULL, n = 0;
        size_t n_ids = 0;
        skua_error err = {0};
        uint64_t state = seed + (uint64_t)(i % 4);
        snprintf(text, sizeof text, "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n", questions[i]);
        CHECK(!skua_tokenize(e, text, strlen(text), true, &ids, &n_ids, &err), "%s", err.message);
        for (; i % 2 && n < 40 + 60 * (i % 4); n++)
            prompts[i][n] = (int32_t)(rng_next(&state) % 8000);
        memcpy(prompts[i] + n, ids, n_ids * sizeof *ids);
        n_prompts[i] = n + (int32_t)n_ids;
        skua_free(ids);
    }
}

static void make_job(struct job *j, const skua_engine *e, int i)
{
    job_init(j, e, prompts[i], n_prompts[i], 40);
    skua_sampling *s = &j->p.sampling;
    s->seed = 1000 + (uint64_t)i;
    j->p.owner = (uint64_t)(i % 3);
    j->p.priority = i % 5 == 4;
    j->marks[0] = 20;
    j->p.n_marks = n_prompts[i] > 20;
    switch (i) {
    case 1: s->temperature = 0.9, s->top_k = 40; break;
    case 2: j->p.n_logprobs = 3; break;
    case 3: s->temperature = 1.2, s->top_p = 0.9, j->p.n_choices = 4; break;
    case 4: j->masks = 60; break;
    case 5: s->repetition_penalty = 1.2, s->penalty_last_n = 64, j->p.n_logprobs = 0; break;
    case 6: j->forced_at = 5, j->masks = 4, j->masks_from = 12; break;
    case 7: j->p.min_tokens = 25, j->p.max_tokens = 30; break;
    case 8: s->temperature = 0.7, j->p.n_logprobs = 4, j->masks = 10, j->masks_from = 3, j->p.n_choices = 3; break;
    case 9: s->presence_penalty = 0.7, s->frequency_penalty = 0.4, s->temperature = 1, j->forced_at = 9, j->replace_at = 20; break;
    case 10: j->p.ignore_end = true; break;
    case 11: j->replace_at = 2, j->p.n_logprobs = 1, j->forced_at = 4; break;
    case 12: s->n_bias = 2, j->bias[0] = (skua_logit_bias){300, 4}, j->bias[1] = (skua_logit_bias){11, -100}; break;
    case 13: j->finish_at = 11, j->p.no_draft = true; break;
    case 14: j->p.n_choices = 2, j->p.no_cache = true, j->p.max_tokens = 60; break;
    case 15: s->temperature = 1, s->min_p = 0.05, j->p.draft_max = 2, j->p.score_prompt = true; break;
    default: break;
    }
    j->forced[0] = 77;
    j->forced[1] = 1234;
    j->forced[2] = 9 + i;
}

/* ---- alone ---- */

static bool listen(void *user, const skua_event *event)
{
    struct job *j = user;
    if (event->id >= 0)
        j->heard[0].ids[j->heard[0].n++] = event->id;
    return true;
}

/* What skua_generate can do too comes out the same. */
static void check_generate(skua_engine *e, const struct job *j, int i)
{
    skua_session *s = session_open(e, N_CTX);
    skua_generate_params p = {.sampling = j->p.sampling, .max_tokens = j->p.max_tokens};
    skua_result r;
    skua_error err = {0};
    memset(&plain, 0, sizeof plain);
    p.sampling.bias = j->bias;
    const int rc = skua_generate(s, prompts[i], n_prompts[i], &p, listen, NULL, &plain, &r, &err);
    const struct heard_choice *a = &j->heard[0], *b = &plain.heard[0];
    CHECK(!rc && r.n_generated == a->n && !memcmp(a->ids, b->ids, (size_t)b->n * sizeof *b->ids) && r.finish == a->finish,
          "job %d: %d tokens, by skua_generate %d %s", i, a->n, r.n_generated, err.message);
    skua_session_free(s);
}

static double prompt_scores[512];

static void answer_alone(void)
{
    skua_engine *e = open_engine(NULL, -1, 1, 0);
    make_prompts(e, 5);
    for (int i = 0; i < N_JOBS; i++) {
        make_job(&alone[i], e, i);
        for (int32_t c = 0; c < alone[i].p.n_choices; c++)
            job_alone(&alone[i], e, N_CTX, c);
        if (!alone[i].masks && !alone[i].forced_at && !alone[i].replace_at && !alone[i].p.min_tokens && !alone[i].p.ignore_end &&
            !alone[i].finish_at)
            check_generate(e, &alone[i], i);
    }
    const int32_t n = n_prompts[15];
    float *logits = malloc(sizeof *logits * (size_t)n * (size_t)e->config.n_vocab);
    skua_session *s = session_open(e, N_CTX);
    skua_feed f = {.session = s, .ids = prompts[15], .n_ids = n, .want = SKUA_LOGITS_ALL, .logits = logits};
    CHECK(!skua_eval(e, &f, 1, NULL, NULL, NULL), "scores");
    for (int32_t i = 1; i < n; i++) {
        const float *row = logits + (size_t)(i - 1) * (size_t)e->config.n_vocab;
        double norm;
        logprob_norm(row, e->config.n_vocab, &norm, NULL);
        prompt_scores[i - 1] = logprob_of(row[prompts[15][i]], norm);
    }
    free(logits);
    skua_session_free(s);
    skua_engine_close(e);
}

/* ---- together ---- */

static struct batcher *batcher;
static int32_t order[N_JOBS], n_submitted, tokens_heard;
static uint64_t n_cached; /* tokens that the last run had from the cache */

static void submit_more(struct job *unused)
{
    (void)unused;
    tokens_heard++;
    while (n_submitted < N_JOBS && (tokens_heard >= jobs[order[n_submitted]].queued_behind || n_submitted < 2)) {
        skua_error err = {0};
        CHECK(!job_submit(&jobs[order[n_submitted]], batcher, &err), "%s", err.message);
        if (++n_submitted == N_JOBS)
            batcher_stop(batcher, true);
    }
}

static void run_together(skua_engine *e, const struct batcher_params *p, uint64_t seed, const char *where)
{
    skua_error err = {0};
    uint64_t state = seed;
    int32_t behind = 0;
    if (!CHECK(!batcher_create(e, p, &batcher, &err), "%s", err.message))
        return;
    for (int i = 0; i < N_JOBS; i++) { /* a random order, and random times */
        make_job(&jobs[i], e, i);
        jobs[i].on_token = submit_more;
        const int at = (int)(rng_next(&state) % (uint64_t)(i + 1));
        order[i] = order[at];
        order[at] = i;
    }
    for (int i = 0; i < N_JOBS; i++) {
        jobs[order[i]].queued_behind = behind;
        behind += (int32_t)(rng_next(&state) % 12);
        if (i > 3 && rng_next(&state) % 4 == 0)
            jobs[order[i]].cancel_at = (int32_t)(rng_next(&state) % 22) - 2;
    }
    n_submitted = tokens_heard = 0;
    submit_more(NULL);
    batcher_run(batcher);
    CHECK(n_submitted == N_JOBS, "%s: %d jobs submitted", where, n_submitted);
    for (int i = 0; i < N_JOBS; i++) {
        char label[200];
        snprintf(label, sizeof label, "%s, job %d", where, i);
        job_equals(&jobs[i], &alone[i], label);
        CHECK(jobs[i].result.rc == 0 || (jobs[i].cancel_at && jobs[i].result.rc == SKUA_ECANCELED), "%s: %d", label, jobs[i].result.rc);
        if (i == 15 && !jobs[i].cancel_at)
            CHECK(jobs[i].n_prompt_logprobs == n_prompts[i] - 1 &&
                      !memcmp(jobs[i].prompt_logprobs, prompt_scores, (size_t)(n_prompts[i] - 1) * sizeof *prompt_scores),
                  "%s: other scores of the prompt", label);
    }
    struct batch_stats stats;
    batcher_stats(batcher, &stats);
    n_cached = stats.cached_tokens[BATCH_SOURCE_RAM];
    batcher_free(batcher);
    CHECK(!e->n_pending, "%s: held tokens are left", where);
}

/* Eight equal greedy jobs give one text. */
static void run_equal(skua_engine *e, int32_t n_parallel, const char *where)
{
    skua_error err = {0};
    const struct batcher_params p = {.n_parallel = n_parallel, .n_ctx = N_CTX, .queue_max = 8, .quantum = 16};
    if (!CHECK(!batcher_create(e, &p, &batcher, &err), "%s", err.message))
        return;
    for (int i = 0; i < 8; i++) {
        make_job(&jobs[i], e, 0);
        CHECK(!job_submit(&jobs[i], batcher, &err), "%s", err.message);
    }
    batcher_stop(batcher, true);
    batcher_run(batcher);
    for (int i = 0; i < 8; i++)
        job_equals(&jobs[i], &alone[0], where);
    batcher_free(batcher);
}

int main(void)
{
    static const struct {
        const char *source;
        int fixed, threads, rows;
        int32_t n_parallel, quantum;
        bool cache;
    } ways[] = {{NULL, -1, 2, 0, 16, 64, false}, {"auto", -1, 2, 0, 5, 0, true}, {"tiny-dflash2-q8_0.gguf", 3, 1, 48, 6, 20, true},
                {"mtp", 2, 2, 24, 4, 7, false}, {"lookup", -1, 1, 8, 12, 3, true}, {"tiny-dflash2-q8_0.gguf", -1, 1, 0, 3, 0, false},
                {"auto", -1, 1, 64, 1, 32, true}, {NULL, -1, 1, 5, 3, 2, true}};
    const char *text = getenv("SKUA_TEST_SEED");
    const uint64_t seed = text ? strtoull(text, NULL, 10) : 1;
    const size_t n = sizeof ways / sizeof *ways;
    const bool quick = getenv("SKUA_TEST_QUICK");
    if (!support_model("tiny-q8_0.gguf"))
        return support_finish("batch_answers");
    printf("seed %llu\n", (unsigned long long)seed);
    answer_alone();
    for (size_t w = quick ? 2 : 0; w < n; w += quick ? 4 : 1) {
        char where[160];
        skua_engine *e = open_engine(ways[w].source, ways[w].fixed, ways[w].threads, ways[w].rows);
        struct prefix_cache *cache = NULL;
        if (ways[w].cache)
            CHECK(!prefix_cache_create(e, &(struct prefix_cache_params){.ram_bytes = 64 << 20, .every = 33}, &cache, NULL), "a cache");
        const struct batcher_params p = {.n_parallel = ways[w].n_parallel, .n_ctx = N_CTX, .queue_max = N_JOBS, .quantum = ways[w].quantum,
                                         .cache = cache};
        snprintf(where, sizeof where, "way %zu (%s, %d drafts, %d threads, %d rows, %d sessions)", w, ways[w].source ? ways[w].source : "-",
                 ways[w].fixed, ways[w].threads, ways[w].rows, ways[w].n_parallel);
        run_together(e, &p, seed + w, where);
        if (!quick)
            run_together(e, &p, seed + w + 100, where); /* with what the cache knows now */
        if (cache && !quick)
            CHECK(n_cached > 1000, "%s: %d tokens came from the cache", where, (int)n_cached);
        run_equal(e, ways[w].n_parallel, where);
        prefix_cache_free(cache);
        skua_engine_close(e);
    }
    return support_finish("batch_answers");
}
