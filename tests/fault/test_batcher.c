/* Faults while several answers run at once: a job that cannot go on ends with an error, the others with what they say alone. */
#include "fault/sweep.h"

#include "base/mem.h"
#include "unit/batcher_jobs.h"

#define N_JOBS 5
#define N_CTX 320

struct context {
    skua_engine *e;
    bool cache;
    int32_t ids[N_CTX];
};

static struct job jobs[N_JOBS], alone[N_JOBS];
static int n_failed; /* jobs of the last run */

static void make_job(const struct context *c, struct job *j, int i)
{
    job_init(j, c->e, c->ids, 20 + 60 * i, 12); /* the last ones cross a page of the KV cache */
    j->p.n_choices = i == 2 ? 3 : 1;
    j->p.n_logprobs = i == 1 ? 2 : -1;
    j->p.score_prompt = i == 1;
    j->p.sampling.temperature = i == 3 ? 1 : 0;
    j->masks = i == 0 ? 5 : 0;
    j->p.min_tokens = i == 4 ? 6 : 0;
    j->forced_at = i == 2 ? 3 : 0;
    j->forced[0] = j->forced[1] = j->forced[2] = 100;
}

/* What a job heard, if it heard the whole; else a beginning of it. */
static int check_job(const struct job *j, const struct job *a, int i)
{
    char where[40];
    struct job copy = *j;
    snprintf(where, sizeof where, "job %d", i);
    copy.cancel_at = j->result.rc; /* a beginning */
    job_equals(&copy, a, where);
    CHECK(!j->result.rc || j->result.rc == SKUA_ENOMEM, "%s: %s", where, j->result.err.message);
    return j->result.rc;
}

static int together(void *user, skua_error *err)
{
    const struct context *c = user;
    struct prefix_cache *cache = NULL;
    struct batcher *b = NULL;
    int n_submitted = 0, rc = 0;
    n_failed = 0;
    if (c->cache)
        rc = prefix_cache_create(c->e, &(struct prefix_cache_params){.ram_bytes = 64 << 20, .every = 50}, &cache, err);
    if (!rc)
        rc = batcher_create(c->e, &(struct batcher_params){.n_parallel = 3, .n_ctx = N_CTX, .queue_max = 8, .cache = cache}, &b, err);
    if (rc) {
        prefix_cache_free(cache);
        return rc;
    }
    for (int i = 0; i < N_JOBS; i++) {
        make_job(c, &jobs[i], i);
        rc = job_submit(&jobs[i], b, err);
        if (rc)
            break;
        n_submitted++;
    }
    batcher_stop(b, true);
    batcher_run(b);
    sweep_disarm();
    for (int i = 0; i < n_submitted; i++)
        if (check_job(&jobs[i], &alone[i], i)) {
            rc = jobs[i].result.rc;
            *err = jobs[i].result.err;
            n_failed++;
        }
    CHECK(!c->e->n_pending, "held tokens are left");
    batcher_free(b);
    prefix_cache_free(cache);
    CHECK(!c->e->n_sessions, "%d sessions are left", c->e->n_sessions);
    return rc;
}

int main(void)
{
    static struct context c;
    const char *model = support_model("tiny-q8_0.gguf");
    skua_draft_params p = SKUA_DRAFT_DEFAULTS;
    skua_error err = {0};
    sweep_init();
    if (!model)
        return support_finish("test_batcher");
    for (int i = 0; i < N_CTX; i++)
        c.ids[i] = (i * 7919 + 13) % 8000;
    c.e = model_open(model, &(skua_engine_params){.n_threads = 1, .max_rows = 64});
    for (int i = 0; i < N_JOBS; i++) {
        make_job(&c, &alone[i], i);
        for (int32_t k = 0; k < alone[i].p.n_choices; k++)
            job_alone(&alone[i], c.e, N_CTX, k);
    }
    sweep("answers together", together, &c, 30);
    for (uint64_t n = 2; n < 1000; n += 3) { /* one failure is one job's */
        fault_set_alloc(n, true);
        const int rc = together(&c, &err);
        CHECK(n_failed <= 1, "allocation %d: %d jobs failed", (int)n, n_failed);
        if (!rc)
            break;
    }
    skua_engine_close(c.e);
    c.e = model_open(model, &(skua_engine_params){.n_threads = 1, .max_rows = 64});
    p.source = support_model("tiny-dflash2-q8_0.gguf");
    p.fixed = 3;
    CHECK(!skua_engine_draft(c.e, &p, NULL, &err), "%s", err.message);
    c.cache = true;
    for (int i = 0; i < N_JOBS; i++)
        alone[i].engine = c.e;
    sweep("answers together, with drafts and a cache", together, &c, 24);
    skua_engine_close(c.e);
    return support_finish("test_batcher");
}
