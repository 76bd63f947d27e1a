/* What the batcher tells of a call's jobs becomes its answer. On the engine's thread. */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "cmd/serve.h"

void serve_flush(struct serve_call *c)
{
    struct strbuf *out = &c->writer->out;
    if (!c->streaming || !out->len)
        return;
    if (http_send(c->http, out->data, out->len) == SKUA_ELIMIT)
        serve_call_cancel(c, SERVE_OVERFLOW);
    strbuf_clear(out);
    c->last_sent = clock_seconds();
    c->quiet = false;
}

/* The body of an answer that is not streamed. */
static void send_whole(struct serve_call *c)
{
    struct strbuf *out = &c->writer->out;
    if (http_began(c->http)) { /* blanks were sent */
        http_send(c->http, out->data, out->len);
        http_end(c->http, true);
    } else {
        serve_reply(c, 200, NULL, out);
    }
}

void serve_end_failed(struct serve_call *c)
{
    if (c->answered)
        return;
    if (c->streaming) {
        const enum api_family family = c->route->family;
        c->writer->ops->fail(c->writer, &c->error);
        serve_flush(c);
        http_end(c->http, family == API_RESPONSES || family == API_MESSAGES); /* their events tell that the stream has ended */
    } else if (http_began(c->http)) {
        strbuf_clear(&c->writer->out);
        api_error_body(c->route->family, &c->error, http_request_id(c->http), &c->writer->out);
        send_whole(c);
    } else {
        serve_fail(c, &c->error);
    }
    c->answered = true;
}

/* Why the call could not go on, as its client is told. */
static void failure(struct serve_call *c, const struct batch_result *r)
{
    struct api_error *e = &c->error;
    const enum serve_why why = (enum serve_why)atomic_load(&c->why);
    c->failed = true;
    c->canceled = why != SERVE_GOES_ON && why != SERVE_NO_MEMORY;
    switch (why) {
    case SERVE_CLIENT_GONE: api_error_set(e, 499, "client_gone", NULL, "the client closed the connection"); return;
    case SERVE_OVERFLOW: api_error_set(e, 499, "client_stalled", NULL, "the client does not read"); return;
    case SERVE_CANCELED: api_error_set(e, 400, "request_cancelled", NULL, "the request was cancelled"); return;
    case SERVE_DEADLINE: api_error_set(e, 504, "deadline_exceeded", NULL, "the request's time limit is over"); return;
    case SERVE_NO_MEMORY:
        api_error_set(e, 503, "out_of_memory", NULL, "out of memory for the answer");
        e->retry_after_s = 1;
        return;
    case SERVE_GOES_ON: break;
    }
    api_error_from(&r->err, e);
    if (r->rc == SKUA_ELIMIT && !r->started)
        api_error_set(e, 503, "no_slot", NULL, "the request waited too long for its turn: %s", r->err.message);
    if (r->rc == SKUA_ELIMIT && !r->started)
        e->retry_after_s = 1;
}

/* ---- callbacks ---- */

static void on_start(void *user, const struct batch_start *start)
{
    struct serve_part *p = user;
    struct serve_call *c = p->call;
    struct serve_metrics *m = &c->s->metrics;
    pthread_mutex_lock(&c->lock);
    p->start = *start;
    if (start->n_diverged_from > 0)
        memcpy(p->diverged_from, start->diverged_from, (size_t)start->n_diverged_from * sizeof *p->diverged_from);
    p->start.diverged_from = p->diverged_from;
    p->begun = true;
    c->usage.n_cached += start->n_cached;
    c->usage.looked_up = true;
    if (start->queue_seconds > c->usage.queue_s)
        c->usage.queue_s = start->queue_seconds;
    c->usage.start = &c->parts[0].start;
    pthread_mutex_unlock(&c->lock);
    metrics_observe(m, &m->queue, start->queue_seconds);
    metrics_reason(m, &m->cache_source, batch_source_names[start->source], (uint64_t)start->n_cached);
    if (*start->miss_reason)
        metrics_reason(m, &m->reprocessed, start->miss_reason, (uint64_t)(start->n_prompt - start->n_cached));
}

static int on_first(void *user, int32_t choice, struct batch_next *next, skua_error *err)
{
    struct serve_part *p = user;
    pthread_mutex_lock(&p->call->lock);
    const int rc = answer_first(p->answers[choice], next, err);
    pthread_mutex_unlock(&p->call->lock);
    return rc;
}

static void on_progress(void *user, int32_t n_done, int32_t n_total)
{
    struct serve_part *p = user;
    struct serve_call *c = p->call;
    pthread_mutex_lock(&c->lock);
    c->usage.prompt_s = clock_seconds() - http_received(c->http) - c->usage.queue_s;
    if (c->writer->ops->progress(c->writer, &c->usage, n_done, n_total))
        serve_call_cancel(c, SERVE_NO_MEMORY);
    serve_flush(c);
    pthread_mutex_unlock(&c->lock);
}

static void count_token(struct serve_call *c)
{
    struct serve_metrics *m = &c->s->metrics;
    const double now = clock_seconds();
    if (!c->first_token) {
        c->first_token = now;
        metrics_observe(m, &m->first_token, now - http_received(c->http));
    } else {
        metrics_observe(m, &m->inter_token, now - c->last_token);
    }
    c->last_token = now;
}

static int on_token(void *user, const struct batch_token *t, int32_t *replace, struct batch_next *next, skua_error *err)
{
    struct serve_part *p = user;
    struct serve_call *c = p->call;
    const int32_t before = *replace;
    pthread_mutex_lock(&c->lock);
    count_token(c);
    c->usage.generate_s = c->last_token - c->first_token;
    c->usage.n_generated += !t->ends; /* a chunk that tells the usage counts the token that it shows */
    const int rc = answer_token(p->answers[t->choice], t, replace, next, err);
    if (!rc && *replace == before)
        p->n_generated[t->choice] += !t->ends;
    else
        c->usage.n_generated -= !t->ends;
    serve_flush(c);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

static void on_prompt_token(void *user, int32_t i, const struct batch_logprob *row)
{
    struct serve_part *p = user;
    struct serve_call *c = p->call;
    pthread_mutex_lock(&c->lock);
    if (c->writer->ops->prompt_token(c->writer, p->prompt, i, c->request.prompts[p->prompt].ids[i], row))
        serve_call_cancel(c, SERVE_NO_MEMORY);
    pthread_mutex_unlock(&c->lock);
}

static void on_choice_end(void *user, int32_t choice, enum skua_finish finish)
{
    struct serve_part *p = user;
    struct serve_call *c = p->call;
    const struct api_request *r = &c->request;
    const int32_t n = r->best_of > r->n ? r->best_of : r->n > 0 ? r->n : 1;
    struct api_choice_end end = {0};
    pthread_mutex_lock(&c->lock);
    int rc = answer_finish(p->answers[choice], finish, &end, NULL);
    c->usage.n_generated += end.n_tokens - p->n_generated[choice];
    rc = rc ? rc : c->writer->ops->choice_end(c->writer, p->prompt * n + choice, &end);
    if (rc)
        serve_call_cancel(c, SERVE_NO_MEMORY);
    c->usage.n_thinking += end.n_thinking_tokens;
    c->finish = end.finish;
    serve_flush(c);
    pthread_mutex_unlock(&c->lock);
}

static void add_stats(struct serve_call *c, const struct batch_result *r)
{
    struct api_usage *u = &c->usage;
    u->prompt_s = r->prompt_seconds > u->prompt_s || c->n_done == 1 ? r->prompt_seconds : u->prompt_s;
    u->generate_s = r->generate_seconds > u->generate_s ? r->generate_seconds : u->generate_s;
    u->result = &c->parts[0].result;
}

static void finish(struct serve_call *c)
{
    if (c->answered)
        return;
    if (!c->failed && atomic_load(&c->why) == SERVE_NO_MEMORY)
        failure(c, &c->parts[0].result);
    if (!c->failed && c->writer->ops->end(c->writer, &c->usage)) {
        atomic_store(&c->why, SERVE_NO_MEMORY);
        failure(c, &c->parts[0].result);
    }
    if (c->failed) {
        serve_end_failed(c);
        return;
    }
    if (c->streaming) {
        serve_flush(c);
        http_end(c->http, true);
    } else {
        send_whole(c);
    }
    c->answered = true;
}

static void on_done(void *user, const struct batch_result *r)
{
    struct serve_part *p = user;
    struct serve_call *c = p->call;
    pthread_mutex_lock(&c->lock);
    p->result = *r;
    p->done = true;
    c->n_done++;
    add_stats(c, r);
    if (r->rc && !c->failed) {
        failure(c, r);
        serve_call_cancel(c, SERVE_CANCELED); /* the other prompts */
    }
    const bool last = c->n_done == c->n_parts;
    metrics_answer(&c->s->metrics, r);
    if (last) {
        metrics_usage(&c->s->metrics, &c->usage); /* first: who has the answer may look at the figures */
        finish(c);
    }
    pthread_mutex_unlock(&c->lock);
    serve_call_unref(c);
}

const struct batch_callbacks serve_callbacks = {.start = on_start, .first = on_first, .progress = on_progress, .token = on_token,
                                                .prompt_token = on_prompt_token, .choice_end = on_choice_end, .done = on_done};
