/* Calls: requests from their handler to the end of their answer. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cmd/serve.h"

#define FIRST_SIGN_S 2.0    /* of life, at the latest */
#define JSON_FIRST_S 20.0   /* of answers that are not streamed */

static void client_gone(void *arg)
{
    serve_call_cancel(arg, SERVE_CLIENT_GONE);
}

struct serve_call *serve_call_new(struct serve *s, struct http_request *r)
{
    struct serve_call *c = mem_calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->s = s;
    c->http = r;
    atomic_store(&c->refs, 1);
    pthread_mutex_init(&c->ids_lock, NULL);
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_lock(&s->calls_lock);
    c->next = s->calls;
    if (s->calls)
        s->calls->prev = c;
    s->calls = c;
    pthread_mutex_unlock(&s->calls_lock);
    http_on_close(r, client_gone, c);
    return c;
}

static const char *phase_of(const struct serve_call *c)
{
    return !c->submitted || !c->parts[0].begun ? "queued" : c->usage.n_generated ? "decode" : "prefill";
}

static void count(struct serve_call *c)
{
    struct serve_metrics *m = &c->s->metrics;
    if (c->canceled || (!c->status && c->route))
        metrics_reason(m, &m->cancelled, phase_of(c), 1);
    if (c->submitted)
        metrics_observe(m, &m->request, clock_seconds() - http_received(c->http));
    if (!c->status)
        c->status = 499; /* nobody was there to be answered */
    metrics_request(m, c->route ? c->route->path : "none", c->status);
    if (c->submitted)
        serve_log_answer(c);
    else if (c->s->opt.verbose)
        serve_log(c->s, "%s %s %s %d, %.3f s, from %s", http_request_id(c->http), http_method(c->http), http_path(c->http), c->status,
                  clock_seconds() - http_received(c->http), http_peer(c->http));
}

static void call_free(struct serve_call *c)
{
    count(c);
    for (size_t i = 0; i < c->n_parts; i++)
        for (int k = 0; k < BATCH_MAX_CHOICES; k++)
            if (c->parts[i].answers[k])
                answer_free(c->parts[i].answers[k]);
    mem_free(c->parts);
    api_writer_free(c->writer);
    if (c->plan)
        answer_plan_free(c->plan);
    api_request_free(&c->request);
    http_release(c->http);
    pthread_mutex_destroy(&c->ids_lock);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

void serve_call_unref(struct serve_call *c)
{
    struct serve *s = c->s;
    pthread_mutex_lock(&s->calls_lock);
    const bool last = atomic_fetch_sub(&c->refs, 1) == 1;
    if (last) {
        *(c->prev ? &c->prev->next : &s->calls) = c->next;
        if (c->next)
            c->next->prev = c->prev;
    }
    pthread_mutex_unlock(&s->calls_lock);
    if (last)
        call_free(c);
}

void serve_call_cancel(struct serve_call *c, enum serve_why why)
{
    int none = SERVE_GOES_ON;
    if (!atomic_compare_exchange_strong(&c->why, &none, (int)why))
        return;
    pthread_mutex_lock(&c->ids_lock);
    for (size_t i = 0; i < c->n_ids; i++)
        batcher_cancel(c->s->batcher, c->ids[i]);
    pthread_mutex_unlock(&c->ids_lock);
}

struct serve_call *serve_call_find(struct serve *s, const char *id)
{
    struct serve_call *c;
    pthread_mutex_lock(&s->calls_lock);
    for (c = s->calls; c; c = c->next) {
        pthread_mutex_lock(&c->lock);
        const bool found = c->submitted && !c->answered && (!strcmp(http_request_id(c->http), id) || !strcmp(c->writer->id, id));
        pthread_mutex_unlock(&c->lock);
        if (found)
            break;
    }
    if (c)
        atomic_fetch_add(&c->refs, 1);
    pthread_mutex_unlock(&s->calls_lock);
    return c;
}

/* With the call's lock. */
static void sign_of_life(struct serve_call *c, double now)
{
    const struct serve_options *o = &c->s->opt;
    if (o->sse_keepalive_s <= 0)
        return;
    if (c->streaming) {
        const double due = c->quiet || o->sse_keepalive_s < FIRST_SIGN_S ? o->sse_keepalive_s : FIRST_SIGN_S;
        if (now - c->last_sent < due)
            return;
        if (c->writer->ops->keepalive(c->writer))
            serve_call_cancel(c, SERVE_NO_MEMORY);
        serve_flush(c);
        c->quiet = true;
    } else if (o->json_keepalive) {
        const bool began = http_began(c->http);
        if (now - (began ? c->last_sent : http_received(c->http)) < (began ? o->sse_keepalive_s : JSON_FIRST_S))
            return;
        if (!began) {
            struct http_header extra[SERVE_HEADERS];
            struct serve_header_values values;
            http_begin(c->http, 200, "application/json; charset=utf-8", extra, serve_headers(c, NULL, extra, &values));
            c->status = 200;
        }
        http_send(c->http, " ", 1);
        c->last_sent = now;
    }
}

void serve_call_tick(void *serve)
{
    struct serve *s = serve;
    const double now = clock_seconds();
    pthread_mutex_lock(&s->calls_lock);
    for (struct serve_call *c = s->calls; c; c = c->next) {
        pthread_mutex_lock(&c->lock);
        if (c->submitted && !c->answered) {
            if (c->deadline > 0 && now >= c->deadline)
                serve_call_cancel(c, SERVE_DEADLINE);
            sign_of_life(c, now);
        }
        pthread_mutex_unlock(&c->lock);
    }
    pthread_mutex_unlock(&s->calls_lock);
}
