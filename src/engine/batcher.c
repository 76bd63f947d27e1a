/* Many answers at once: the public side and the loop; see batcher.h. */
#include "engine/batcher.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/batcher_internal.h"
#include "engine/draft.h"
#include "sample/params.h"

const char *const batch_source_names[] = {"none", "live", "ram", "disk"};

/* ---- making and freeing ---- */

static int check_params(const skua_engine *e, const struct batcher_params *p, skua_error *err)
{
    const int32_t n_ctx = e->config.n_ctx_train;
    if (p->n_parallel < 1 || p->n_parallel > 1024)
        return error_set(err, SKUA_EARG, "%d sessions in parallel; expected 1 to 1024", p->n_parallel);
    if (p->n_ctx < 0)
        return error_set(err, SKUA_EARG, "context length %d; expected 1 or more, or 0 for the model's own (%d)", p->n_ctx, n_ctx);
    if (p->queue_max < 0 || p->quantum < 0 || !(p->queue_timeout_s >= 0))
        return error_set(err, SKUA_EARG, "a queue of %d jobs, quanta of %d tokens, %g seconds to wait; expected 0 or more", p->queue_max,
                         p->quantum, p->queue_timeout_s);
    return 0;
}

static int make_seats(struct batcher *b, skua_error *err)
{
    const size_t n = (size_t)b->p.n_parallel;
    b->seats = mem_calloc(n, sizeof *b->seats);
    b->feeds = mem_calloc(n, sizeof *b->feeds);
    b->feed_seats = mem_calloc(n, sizeof *b->feed_seats);
    b->members = mem_calloc(n, sizeof *b->members);
    b->view = mem_calloc(n, sizeof *b->view);
    if (!b->seats || !b->feeds || !b->feed_seats || !b->members || !b->view)
        return error_nomem(err, "sessions of a batch", n * sizeof *b->seats);
    int rc = sampler_workspace_init(&b->workspace, b->engine->config.n_vocab, err);
    for (int32_t i = 0; i < b->p.n_parallel && !rc; i++)
        rc = skua_session_create(b->engine, b->n_ctx, &b->seats[i].session, err);
    return rc;
}

static void publish(struct batcher *b);

int batcher_create(skua_engine *e, const struct batcher_params *p, struct batcher **out, skua_error *err)
{
    *out = NULL;
    int rc = check_params(e, p, err);
    if (rc)
        return rc;
    struct batcher *b = mem_calloc(1, sizeof *b);
    if (!b)
        return error_nomem(err, "batcher", sizeof *b);
    b->engine = e;
    b->p = *p;
    b->n_ctx = p->n_ctx ? p->n_ctx : e->config.n_ctx_train;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    rc = make_seats(b, err);
    if (rc) {
        batcher_free(b);
        return rc;
    }
    publish(b);
    *out = b;
    return 0;
}

/* Every job that there is, waiting or running. */
static void end_all(struct batcher *b, const char *why)
{
    skua_error err;
    error_set(&err, SKUA_ECANCELED, "%s", why);
    for (;;) {
        pthread_mutex_lock(&b->lock);
        struct batch_job *job = b->all;
        b->queue = NULL;
        b->n_waiting = 0;
        pthread_mutex_unlock(&b->lock);
        if (!job)
            return;
        batch_job_end(b, job, err.code, &err);
    }
}

/* With the lock: the first task that can be run now, taken out. all: any. */
static struct batch_task *take_task(struct batcher *b, bool all)
{
    for (struct batch_task **at = &b->tasks; *at; at = &(*at)->next)
        if (all || (*at)->slot < 0 || !b->seats[(*at)->slot].job) {
            struct batch_task *t = *at;
            *at = t->next;
            return t;
        }
    return NULL;
}

static void run_task(struct batcher *b, struct batch_task *t, bool run)
{
    t->fn(t->user, run, run && t->slot >= 0 ? &b->seats[t->slot].session : NULL);
    mem_free(t);
}

/* After the last step: nobody will run these. */
static void drop_tasks(struct batcher *b)
{
    struct batch_task *t;
    pthread_mutex_lock(&b->lock);
    b->ended = true;
    while ((t = take_task(b, true))) {
        pthread_mutex_unlock(&b->lock);
        run_task(b, t, false);
        pthread_mutex_lock(&b->lock);
    }
    pthread_mutex_unlock(&b->lock);
}

void batcher_free(struct batcher *b)
{
    if (!b)
        return;
    if (b->seats)
        end_all(b, "the batcher is gone");
    drop_tasks(b);
    for (int32_t i = 0; b->seats && i < b->p.n_parallel; i++)
        skua_session_free(b->seats[i].session);
    sampler_workspace_free(&b->workspace);
    pthread_cond_destroy(&b->wake);
    pthread_mutex_destroy(&b->lock);
    mem_free(b->owners);
    mem_free(b->seats);
    mem_free(b->feeds);
    mem_free(b->feed_seats);
    mem_free(b->members);
    mem_free(b->view);
    mem_free(b);
}

/* ---- jobs come ---- */

static int check_prompt(const struct batcher *b, const struct batch_params *p, skua_error *err)
{
    const int32_t n_vocab = b->engine->config.n_vocab;
    if (p->n_prompt < 1)
        return error_set(err, SKUA_EARG, "a prompt of %d tokens; expected one at least", p->n_prompt);
    if (p->n_prompt > b->n_ctx)
        return error_set(err, SKUA_ELIMIT, "a prompt of %d tokens; the context has room for %d", p->n_prompt, b->n_ctx);
    for (int32_t i = 0; i < p->n_prompt; i++)
        if (p->prompt[i] < 0 || p->prompt[i] >= n_vocab)
            return error_set(err, SKUA_EARG, "token id %d (number %d) is outside the vocabulary of %d tokens", p->prompt[i], i, n_vocab);
    for (int32_t i = 0; i < p->n_marks; i++)
        if (p->marks[i] <= (i ? p->marks[i - 1] : 0) || p->marks[i] > p->n_prompt)
            return error_set(err, SKUA_EARG, "mark %d at token %d; expected rising ones from 1 to %d", i, p->marks[i], p->n_prompt);
    return 0;
}

static int check_job(const struct batcher *b, const struct batch_params *p, skua_error *err)
{
    const struct {
        const char *what;
        int32_t value, least, most;
    } ranges[] = {{"choices", p->n_choices, 1, BATCH_MAX_CHOICES}, {"max_tokens", p->max_tokens, -1, INT32_MAX},
                  {"min_tokens", p->min_tokens, 0, INT32_MAX}, {"logprobs", p->n_logprobs, -1, GENERATION_MAX_LOGPROBS},
                  {"draft_max", p->draft_max, 0, DRAFT_MAX}, {"priority", p->priority, -10, 10}, {"marks", p->n_marks, 0, INT32_MAX}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (ranges[i].value < ranges[i].least || ranges[i].value > ranges[i].most)
            return error_set(err, SKUA_EARG, "%s: %d; expected %d to %d", ranges[i].what, ranges[i].value, ranges[i].least,
                             ranges[i].most);
    if (!p->callbacks || !p->callbacks->token || !p->callbacks->done)
        return error_set(err, SKUA_EARG, "a job without callbacks for its tokens and its end");
    int rc = check_prompt(b, p, err);
    return rc ? rc : sampler_params_check(&p->sampling, b->engine->config.n_vocab, err);
}

/* The job with copies of what it points to, in one piece of memory. */
static struct batch_job *copy_job(const struct batch_params *p, skua_error *err)
{
    const size_t prompt = (size_t)p->n_prompt * sizeof *p->prompt, marks = (size_t)p->n_marks * sizeof *p->marks;
    const size_t bias = p->sampling.n_bias * sizeof *p->sampling.bias, size = sizeof(struct batch_job) + prompt + marks + bias;
    struct batch_job *job = mem_calloc(1, size);
    if (!job) {
        error_nomem(err, "job", size);
        return NULL;
    }
    char *at = (char *)(job + 1);
    job->p = *p;
    job->p.prompt = memcpy(at, p->prompt, prompt);
    job->p.marks = p->n_marks ? memcpy(at + prompt, p->marks, marks) : NULL;
    job->p.sampling.bias = bias ? memcpy(at + prompt + marks, p->sampling.bias, bias) : NULL;
    return job;
}

/* With the lock. */
static int enqueue(struct batcher *b, struct batch_job *job, uint64_t *id, skua_error *err)
{
    if (b->stop != BATCH_RUN)
        return error_set(err, SKUA_ESTATE, "no new jobs are taken: stopping");
    if (b->n_waiting >= b->p.queue_max + b->p.n_parallel - b->n_busy)
        return error_set(err, SKUA_ELIMIT, "the queue is full: %d jobs wait, %d of %d sessions are in use", b->n_waiting, b->n_busy,
                         b->p.n_parallel);
    int rc = batch_queue_reserve(b, err);
    if (rc)
        return rc;
    *id = job->id = ++b->last_id;
    job->submitted = clock_seconds();
    batch_queue_put(b, job);
    job->next_all = b->all;
    b->all = job;
    pthread_cond_signal(&b->wake);
    return 0;
}

int batcher_submit(struct batcher *b, const struct batch_params *p, uint64_t *id, skua_error *err)
{
    *id = 0;
    int rc = check_job(b, p, err);
    if (rc)
        return rc;
    struct batch_job *job = copy_job(p, err);
    if (!job)
        return SKUA_ENOMEM;
    pthread_mutex_lock(&b->lock);
    rc = enqueue(b, job, id, err);
    pthread_mutex_unlock(&b->lock);
    if (rc)
        mem_free(job);
    return rc;
}

void batcher_cancel(struct batcher *b, uint64_t id)
{
    pthread_mutex_lock(&b->lock);
    struct batch_job *job = b->all;
    while (job && job->id != id)
        job = job->next_all;
    if (job && !job->canceled) {
        job->canceled = true;
        b->n_canceled++;
        pthread_cond_signal(&b->wake);
    }
    pthread_mutex_unlock(&b->lock);
}

void batcher_stop(struct batcher *b, bool drain)
{
    pthread_mutex_lock(&b->lock);
    if (b->stop != BATCH_STOP)
        b->stop = drain ? BATCH_DRAIN : BATCH_STOP;
    pthread_cond_signal(&b->wake);
    pthread_mutex_unlock(&b->lock);
}

int batcher_call(struct batcher *b, int32_t slot, batch_task_fn *fn, void *user, skua_error *err)
{
    if (slot < -1 || slot >= b->p.n_parallel)
        return error_set(err, SKUA_EARG, "slot %d does not exist; expected 0 to %d", slot, b->p.n_parallel - 1);
    struct batch_task *t = mem_alloc(sizeof *t);
    if (!t)
        return error_nomem(err, "task", sizeof *t);
    *t = (struct batch_task){NULL, slot, fn, user};
    pthread_mutex_lock(&b->lock);
    const bool ended = b->ended;
    struct batch_task **at = &b->tasks;
    while (*at)
        at = &(*at)->next;
    if (!ended)
        *at = t;
    pthread_cond_signal(&b->wake);
    pthread_mutex_unlock(&b->lock);
    if (ended)
        mem_free(t);
    return ended ? error_set(err, SKUA_ESTATE, "the batcher has ended") : 0;
}

/* ---- the loop ---- */

/* Running jobs that were canceled (all: every one), one at a time because callbacks may do anything. */
static void end_canceled(struct batcher *b, bool all)
{
    for (int32_t i = 0; i < b->p.n_parallel; i++) {
        struct batch_seat *seat = &b->seats[i];
        skua_error err;
        if (!seat->job)
            continue;
        pthread_mutex_lock(&b->lock);
        const bool canceled = seat->job->canceled;
        pthread_mutex_unlock(&b->lock);
        if (!canceled && !all)
            continue;
        for (int32_t k = i; k < b->p.n_parallel; k++)
            if (b->seats[k].job == seat->job)
                batch_job_keep(b, &b->seats[k], PREFIX_PASSING);
        error_set(&err, SKUA_ECANCELED, canceled ? "canceled" : "the server is stopping");
        batch_job_end(b, seat->job, err.code, &err);
    }
}

static struct batch_slot view_of(const struct batcher *b, const struct batch_seat *seat)
{
    static const char *const phases[] = {"idle", "prefill", "decode"};
    struct batch_slot v = {.n_ctx = b->n_ctx, .n_tokens = skua_session_length(seat->session), .phase = phases[seat->phase],
                           .draft_bytes = (int64_t)session_draft_bytes(seat->session),
                           .last_used = seat->job ? clock_seconds() : seat->last_used};
    if (!seat->job)
        return v;
    v.job = seat->job->id;
    v.prompt_done = seat->phase == BATCH_PREFILL ? seat->prompt_done : seat->job->p.n_prompt;
    v.prompt_total = seat->job->p.n_prompt;
    v.n_cached = seat->job->result.n_cached;
    v.n_generated = seat->generation.n_generated;
    v.drafting = seat->drafting;
    return v;
}

/* As they were, unless the cache has changed or the session is another conversation's now. */
static void list_checkpoints(struct batcher *b, struct batch_seat *seat, const struct batch_slot *before, struct batch_slot *v)
{
    if (!b->p.cache)
        return;
    if (seat->listed == prefix_cache_changes(b->p.cache) && before->job == v->job && before->n_tokens <= v->n_tokens) {
        v->n_checkpoints = before->n_checkpoints;
        memcpy(v->checkpoints, before->checkpoints, sizeof v->checkpoints);
        return;
    }
    seat->listed = prefix_cache_changes(b->p.cache);
    v->n_checkpoints = prefix_cache_list(b->p.cache, skua_session_tokens(seat->session), v->n_tokens, v->checkpoints,
                                         BATCH_SLOT_CHECKPOINTS);
}

static void publish(struct batcher *b)
{
    pthread_mutex_lock(&b->lock);
    b->stats = b->count;
    for (int32_t i = 0; i < b->p.n_parallel; i++) {
        const struct batch_slot before = b->view[i];
        b->view[i] = view_of(b, &b->seats[i]);
        list_checkpoints(b, &b->seats[i], &before, &b->view[i]);
        bool first = b->seats[i].job != NULL;
        for (int32_t k = 0; k < i; k++)
            first = first && b->seats[k].job != b->seats[i].job;
        b->stats.running += first;
    }
    pthread_mutex_unlock(&b->lock);
}

void batcher_stats(struct batcher *b, struct batch_stats *out)
{
    pthread_mutex_lock(&b->lock);
    *out = b->stats;
    out->waiting = b->n_waiting;
    pthread_mutex_unlock(&b->lock);
}

int32_t batcher_slots(struct batcher *b, struct batch_slot *out, int32_t max)
{
    const int32_t n = b->p.n_parallel < max ? b->p.n_parallel : max;
    pthread_mutex_lock(&b->lock);
    if (n > 0)
        memcpy(out, b->view, (size_t)n * sizeof *out);
    pthread_mutex_unlock(&b->lock);
    return b->p.n_parallel;
}

/* With the lock: wait until there may be something to do. */
static void sleep_until_woken(struct batcher *b)
{
    const double seconds = batch_queue_deadline(b, clock_seconds());
    if (seconds < 0) {
        pthread_cond_wait(&b->wake, &b->lock);
        return;
    }
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const int64_t ns = t.tv_nsec + (int64_t)((seconds < 1e6 ? seconds : 1e6) * 1e9);
    t.tv_sec += (time_t)(ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    pthread_cond_timedwait(&b->wake, &b->lock, &t);
}

/* Waiting jobs that are canceled or late, then those that can begin. What is left to do after that; false: the end. */
static bool attend(struct batcher *b)
{
    skua_error why;
    pthread_mutex_lock(&b->lock);
    for (;;) {
        struct batch_task *task = take_task(b, false);
        if (task) {
            pthread_mutex_unlock(&b->lock);
            run_task(b, task, true);
            publish(b);
            pthread_mutex_lock(&b->lock);
            continue;
        }
        struct batch_job *job = batch_queue_expired(b, clock_seconds(), &why);
        const bool expired = job != NULL;
        if (!job && b->stop != BATCH_STOP && b->n_busy < b->p.n_parallel)
            job = batch_queue_take(b);
        if (!job && (b->n_busy || b->stop == BATCH_STOP || b->stop == BATCH_DRAIN))
            break;
        if (!job) {
            sleep_until_woken(b);
            continue;
        }
        pthread_mutex_unlock(&b->lock);
        if (expired)
            batch_job_end(b, job, why.code, &why);
        else
            batch_job_start(b, job);
        publish(b);
        pthread_mutex_lock(&b->lock);
    }
    const bool more = b->stop != BATCH_STOP && b->n_busy;
    pthread_mutex_unlock(&b->lock);
    return more;
}

/* Drafting is compared with plain steps of one answer, which a busy server may never run: a few are timed before the first job. */
static void time_plain_steps(struct batcher *b)
{
    struct engine_draft *d = b->engine->draft;
    const int32_t id = 0;
    skua_feed f = {.session = b->seats[0].session, .ids = &id, .n_ids = 1, .want = SKUA_LOGITS_ARGMAX};
    for (int32_t i = 0; d && d->mode == SCHED_ADAPT && i < b->n_ctx && !sched_costs_measured(&d->costs, 1); i++) {
        const double begin = clock_seconds();
        if (skua_eval(b->engine, &f, 1, NULL, NULL, NULL))
            break;
        sched_costs_add_verify(&d->costs, 1, i, clock_seconds() - begin);
    }
    skua_session_reset(f.session);
}

void batcher_run(struct batcher *b)
{
    time_plain_steps(b);
    while (attend(b)) {
        end_canceled(b, false);
        batch_step(b);
        publish(b);
    }
    end_canceled(b, true);
    end_all(b, "the server is stopping");
    drop_tasks(b);
    publish(b);
}
