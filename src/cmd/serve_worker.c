/* The worker: one thread that does what takes longer than a socket thread may wait, one request after the other. */
#include <string.h>

#include "base/error.h"
#include "cmd/serve.h"

static void refuse(struct serve_call *c, const char *code, const char *message)
{
    struct api_error e;
    api_error_set(&e, 503, code, NULL, "%s", message);
    e.retry_after_s = 1;
    serve_fail(c, &e);
    serve_call_unref(c);
}

void serve_worker_push(struct serve_call *c)
{
    struct serve *s = c->s;
    pthread_mutex_lock(&s->queue_lock);
    const bool stop = s->worker_stop, full = s->n_queued >= SERVE_WORKER_QUEUE;
    if (!stop && !full) {
        c->queued = NULL;
        *(s->queue_first ? &s->queue_last->queued : &s->queue_first) = c;
        s->queue_last = c;
        s->n_queued++;
        pthread_cond_signal(&s->queue_wake);
    }
    pthread_mutex_unlock(&s->queue_lock);
    if (stop)
        refuse(c, "shutting_down", "the server is stopping");
    else if (full)
        refuse(c, "no_slot", "too many requests wait to be read; try again");
}

static struct serve_call *pop(struct serve *s)
{
    struct serve_call *c = s->queue_first;
    if (c) {
        s->queue_first = c->queued;
        s->n_queued--;
    }
    return c;
}

static void *work(void *arg)
{
    struct serve *s = arg;
    pthread_mutex_lock(&s->queue_lock);
    while (!s->worker_stop) {
        struct serve_call *c = pop(s);
        if (!c) {
            pthread_cond_wait(&s->queue_wake, &s->queue_lock);
            continue;
        }
        pthread_mutex_unlock(&s->queue_lock);
        if (atomic_load(&c->why) == SERVE_GOES_ON)
            c->route->handle(c);
        serve_call_unref(c);
        pthread_mutex_lock(&s->queue_lock);
    }
    pthread_mutex_unlock(&s->queue_lock);
    return NULL;
}

int serve_worker_start(struct serve *s, skua_error *err)
{
    const int rc = pthread_create(&s->worker_thread, NULL, work, s);
    return rc ? error_set(err, SKUA_ENOMEM, "cannot start a thread: %s", strerror(rc)) : 0;
}

void serve_worker_stop(struct serve *s)
{
    pthread_mutex_lock(&s->queue_lock);
    s->worker_stop = true;
    pthread_cond_signal(&s->queue_wake);
    pthread_mutex_unlock(&s->queue_lock);
    pthread_join(s->worker_thread, NULL);
    for (struct serve_call *c; (c = pop(s));)
        refuse(c, "shutting_down", "the server is stopping");
}
