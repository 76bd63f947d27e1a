/* skua serve: the HTTP server. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "cmd/cmd.h"
#include "cmd/opts.h"
#include "cmd/serve_start.h"

#define TICK_S 0.1
#define LAST_WORDS_S 2.0 /* for the errors of streams that the end of the drain cuts */

/* Guards what the signals' thread and the main one do to each other. */
static pthread_mutex_t stop_lock = PTHREAD_MUTEX_INITIALIZER;

static void stop_work(struct serve *s, bool drain)
{
    pthread_mutex_lock(&stop_lock);
    if (s->batcher)
        batcher_stop(s->batcher, drain);
    pthread_mutex_unlock(&stop_lock);
}

/* A terminal that goes away stops the server as SIGTERM does, unless it was started to outlive it (nohup). */
static bool hangup_counts;

/* ---- threads ---- */

static void *socket_thread(void *arg)
{
    struct serve *s = arg;
    if (http_server_run(s->http, &s->socket_error)) {
        atomic_store(&s->state, SERVE_FAILED);
        stop_work(s, false);
    }
    return NULL;
}

static void wanted_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    if (hangup_counts)
        sigaddset(set, SIGHUP);
    sigaddset(set, SIGUSR2); /* from the main thread: it is over */
}

static void *signal_thread(void *arg)
{
    struct serve *s = arg;
    const double drain = s->opt.drain_timeout_s;
    sigset_t set;
    int got = 0;
    wanted_signals(&set);
    while (sigwait(&set, &got))
        continue;
    if (got == SIGUSR2)
        return NULL;
    serve_log(s, "stopping: running answers have %.0f s", drain);
    atomic_store(&s->state, SERVE_DRAINING);
    http_server_stop(s->http, drain + LAST_WORDS_S);
    stop_work(s, true);
    const struct timespec limit = {.tv_sec = (time_t)drain, .tv_nsec = (long)((drain - (double)(time_t)drain) * 1e9)};
    while ((got = sigtimedwait(&set, NULL, &limit)) < 0 && errno == EINTR)
        continue;
    if (got == SIGUSR2)
        return NULL;
    stop_work(s, false);
    http_server_stop(s->http, got > 0 ? 0.2 : LAST_WORDS_S);
    while (got != SIGUSR2)
        sigwait(&set, &got);
    return NULL;
}

/* ---- from start to end ---- */

static int start_listening(struct serve *s, skua_error *err)
{
    const struct serve_options *o = &s->opt;
    const struct http_params p = {.host = o->host, .port = (int)o->port, .max_connections = (int)o->max_connections,
                                  .max_body_bytes = (size_t)o->max_body_mb << 20,
                                  .max_bodies_bytes = (size_t)o->max_bodies_mb << 20, .send_stall_timeout_s = o->send_stall_timeout_s,
                                  .server_name = "skua/" SKUA_VERSION, .handler = serve_handle, .error_body = serve_error_body, .user = s};
    int rc = http_server_create(&p, &s->http, err);
    if (!rc)
        rc = http_server_every(s->http, TICK_S, serve_call_tick, s, err);
    return rc;
}

static int start_thread(pthread_t *t, void *(*fn)(void *), struct serve *s, skua_error *err)
{
    const int rc = pthread_create(t, NULL, fn, s);
    return rc ? error_set(err, SKUA_ENOMEM, "cannot start a thread: %s", strerror(rc)) : 0;
}

/* Load, serve until told to stop. The socket thread runs. */
static int serve_all(struct serve *s, skua_error *err)
{
    int loading = SERVE_LOADING;
    int rc = serve_load(s, err);
    if (!rc)
        rc = serve_worker_start(s, err);
    if (rc)
        return rc;
    pthread_mutex_lock(&stop_lock); /* a signal that came before had no batcher to stop */
    const bool go = atomic_compare_exchange_strong(&s->state, &loading, SERVE_READY);
    pthread_mutex_unlock(&stop_lock);
    if (go)
        serve_say(s);
    else
        batcher_stop(s->batcher, false);
    batcher_run(s->batcher);
    serve_worker_stop(s);
    return 0;
}

static int run(struct serve *s, skua_error *err)
{
    sigset_t set;
    struct sigaction hangup;
    int rc = start_listening(s, err);
    if (rc)
        return rc;
    hangup_counts = !sigaction(SIGHUP, NULL, &hangup) && hangup.sa_handler != SIG_IGN;
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is a write that failed, and said */
    wanted_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL); /* in all threads that are started from here */
    rc = start_thread(&s->socket_thread, socket_thread, s, err);
    if (rc)
        return rc;
    rc = start_thread(&s->signal_thread, signal_thread, s, err);
    const bool signals = !rc;
    if (!rc)
        rc = serve_all(s, err);
    if (atomic_load(&s->state) != SERVE_DRAINING || rc)
        http_server_stop(s->http, 0);
    pthread_join(s->socket_thread, NULL);
    if (signals) {
        pthread_kill(s->signal_thread, SIGUSR2);
        pthread_join(s->signal_thread, NULL);
    }
    if (!rc && s->socket_error.code) {
        *err = s->socket_error;
        rc = err->code;
    }
    return rc;
}

static int open_log(struct serve *s, skua_error *err)
{
    s->log = s->opt.log ? fopen(s->opt.log, "a") : stderr;
    return s->log ? 0 : error_set(err, SKUA_EIO, "%s: cannot be written: %s", s->opt.log, strerror(errno));
}

int cmd_serve(int argc, char **argv)
{
    static struct serve s; /* one per process */
    skua_error err = {0};
    int rc = serve_options_parse(argc, argv, &s.opt, &err);
    if (rc) {
        serve_options_free(&s.opt);
        return rc > 0 ? OPTS_OK : opts_fail("serve", OPTS_USAGE, &err);
    }
    s.started = clock_seconds();
    pthread_mutex_init(&s.log_lock, NULL);
    pthread_mutex_init(&s.calls_lock, NULL);
    pthread_mutex_init(&s.queue_lock, NULL);
    pthread_cond_init(&s.queue_wake, NULL);
    metrics_init(&s.metrics);
    rc = open_log(&s, &err);
    if (!rc)
        rc = run(&s, &err);
    http_server_free(s.http);
    serve_unload(&s);
    if (!rc)
        serve_log(&s, "stopped");
    if (s.log && s.log != stderr)
        fclose(s.log);
    serve_options_free(&s.opt);
    metrics_free(&s.metrics);
    return rc ? opts_fail("serve", OPTS_FAILED, &err) : OPTS_OK;
}
