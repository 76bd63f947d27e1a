/* The server: creation, the socket thread's loop, calls from other threads, stopping; see http.h. */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"
#include "http/http_internal.h"

#define ACCEPT_AGAIN_S 0.1    /* after the system had no descriptor or memory for a connection */

/* ---- libevent ---- */

static void quiet(int severity, const char *message)
{
    (void)severity;
    (void)message;
}

static void use_mem(void)
{
    event_set_mem_functions(mem_alloc, mem_realloc, mem_free);
    event_set_log_callback(quiet);
}

static struct timeval interval(double seconds)
{
    time_t whole = (time_t)seconds;
    return (struct timeval){.tv_sec = whole, .tv_usec = (suseconds_t)((seconds - (double)whole) * 1e6)};
}

void http_timer(struct event *timer, double seconds)
{
    struct timeval tv = interval(seconds);
    event_add(timer, &tv); /* pending: nothing that can fail */
}

/* A timer that is pending from now on. */
static bool timer_start(struct http_server *s, struct event *timer, event_callback_fn fn, void *arg, double seconds)
{
    struct timeval tv = interval(seconds);
    event_assign(timer, s->base, -1, EV_PERSIST, fn, arg);
    return !event_add(timer, &tv);
}

/* ---- accepting ---- */

static void accepting(struct http_server *s, bool on)
{
    on = on && !s->draining && s->n_conns < s->params.max_connections;
    for (int i = 0; i < s->n_listeners && on != s->accepting; i++) {
        if (on && event_add(&s->listeners[i].event, NULL))
            http_timer(&s->accept_again, ACCEPT_AGAIN_S);
        else if (!on)
            event_del(&s->listeners[i].event);
    }
    s->accepting = on;
}

static void on_accept_again(evutil_socket_t fd, short what, void *arg)
{
    struct http_server *s = arg;
    (void)fd;
    (void)what;
    http_timer(&s->accept_again, HTTP_NEVER);
    s->accepting = false; /* one listener of several may be missing */
    accepting(s, true);
}

static void on_accept(evutil_socket_t listener, short what, void *arg)
{
    struct http_server *s = arg;
    (void)what;
    while (s->accepting) {
        struct sockaddr_storage peer = {0};
        socklen_t length = sizeof peer;
        int fd = accept4(listener, (struct sockaddr *)&peer, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            s->accepted++;
            http_conn_accept(s, fd, &peer);
            accepting(s, true);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            accepting(s, false);
            http_timer(&s->accept_again, ACCEPT_AGAIN_S);
        } else if (errno == EAGAIN) {
            return;
        }
    }
}

void http_conn_gone(struct http_server *s)
{
    accepting(s, true);
    if (s->draining && !s->n_conns)
        event_base_loopbreak(s->base);
}

/* ---- waking ---- */

void http_server_wake(struct http_server *s)
{
    ssize_t written = write(s->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
    (void)written; /* the only failure is a full counter, which wakes as well */
}

int http_server_call(struct http_server *s, void (*fn)(void *arg), void *arg)
{
    struct http_call *call = mem_alloc(sizeof *call);
    if (!call)
        return SKUA_ENOMEM;
    *call = (struct http_call){fn, arg, NULL};
    pthread_mutex_lock(&s->lock);
    *s->calls_end = call;
    s->calls_end = &call->next;
    pthread_mutex_unlock(&s->lock);
    http_server_wake(s);
    return 0;
}

void http_server_stop(struct http_server *s, double drain_s)
{
    int saved = errno; /* this may be a signal handler */
    atomic_store(&s->drain_ms, drain_s > 0 ? (int64_t)(drain_s * 1e3) : 0);
    http_server_wake(s);
    errno = saved;
}

static void start_drain(struct http_server *s, double seconds)
{
    s->draining = true;
    accepting(s, false);
    for (int i = 0; i < s->n_listeners; i++)
        close(s->listeners[i].fd);
    s->n_listeners = 0;
    for (struct http_conn *c = s->conns, *next; c; c = next) {
        next = c->next;
        if (!c->lingering && (!c->request || !http_parser_begun(&c->request->parser)))
            http_conn_free(c);
    }
    http_timer(&s->drain, seconds);
    if (!s->n_conns)
        event_base_loopbreak(s->base);
}

static void on_drained(evutil_socket_t fd, short what, void *arg)
{
    struct http_server *s = arg;
    (void)fd;
    (void)what;
    if (!s->draining)
        return;
    while (s->conns)
        http_conn_lost(s->conns);
    event_base_loopbreak(s->base);
}

static void run_calls(struct http_call *call)
{
    for (struct http_call *next; call; call = next) {
        next = call->next;
        call->fn(call->arg);
        mem_free(call);
    }
}

static struct http_request *take_from_outbox(struct http_server *s)
{
    pthread_mutex_lock(&s->lock);
    struct http_request *r = s->outbox;
    if (r) {
        s->outbox = r->next;
        r->in_outbox = false;
    }
    pthread_mutex_unlock(&s->lock);
    return r;
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    struct http_server *s = arg;
    uint64_t count;
    (void)what;
    ssize_t got = read(fd, &count, sizeof count);
    (void)got;
    struct http_request *r;
    while ((r = take_from_outbox(s))) {
        if (r->conn)
            http_conn_flush(r->conn);
        http_request_unref(r);
    }
    pthread_mutex_lock(&s->lock);
    struct http_call *calls = s->calls;
    s->calls = NULL;
    s->calls_end = &s->calls;
    pthread_mutex_unlock(&s->lock);
    run_calls(calls);
    int64_t drain = atomic_exchange(&s->drain_ms, -1);
    if (drain >= 0)
        start_drain(s, (double)drain * 1e-3);
}

static void on_watch(evutil_socket_t fd, short what, void *arg)
{
    struct http_server *s = arg;
    (void)fd;
    (void)what;
    http_conn_watch(s);
}

/* ---- periodic calls ---- */

static void on_periodic(evutil_socket_t fd, short what, void *arg)
{
    struct http_periodic *p = arg;
    (void)fd;
    (void)what;
    p->fn(p->arg);
}

int http_server_every(struct http_server *s, double interval_s, void (*fn)(void *arg), void *arg, skua_error *err)
{
    struct http_periodic *p = mem_calloc(1, sizeof *p);
    if (!p)
        return error_nomem(err, "a timer", sizeof *p);
    p->fn = fn;
    p->arg = arg;
    if (!timer_start(s, &p->event, on_periodic, p, interval_s)) {
        mem_free(p);
        return error_nomem(err, "a timer", sizeof *p);
    }
    p->next = s->periodic;
    s->periodic = p;
    return 0;
}

/* ---- life ---- */

static double or_else(double value, double otherwise) { return value > 0 ? value : otherwise; }

static int take_params(struct http_server *s, const struct http_params *p, skua_error *err)
{
    struct http_params *q = &s->params;
    *q = *p;
    q->max_connections = p->max_connections > 0 ? p->max_connections : 512;
    q->header_timeout_s = or_else(p->header_timeout_s, 10);
    q->body_idle_timeout_s = or_else(p->body_idle_timeout_s, 30);
    q->body_timeout_s = or_else(p->body_timeout_s, 300);
    q->idle_timeout_s = or_else(p->idle_timeout_s, 120);
    q->send_stall_timeout_s = or_else(p->send_stall_timeout_s, 30);
    q->max_pending_bytes = p->max_pending_bytes ? p->max_pending_bytes : 4u << 20;
    s->limits.max_head_bytes = p->max_head_bytes ? p->max_head_bytes : 64u << 10;
    s->limits.max_fields = p->max_header_fields > 0 ? p->max_header_fields : 128;
    s->limits.max_body_bytes = p->max_body_bytes ? p->max_body_bytes : 64u << 20;
    q->max_bodies_bytes = p->max_bodies_bytes ? p->max_bodies_bytes : s->limits.max_body_bytes * 4;
    q->max_bodies_bytes = q->max_bodies_bytes > s->limits.max_body_bytes ? q->max_bodies_bytes : s->limits.max_body_bytes;
    s->port = p->port;
    if (!p->host || !p->handler || !p->error_body || !p->server_name || p->port < 0 || p->port > 65535)
        return error_set(err, SKUA_EARG, "a server needs a host, a port from 0 to 65535, a name and its functions");
    s->host = mem_strdup(p->host);
    s->name = mem_strdup(p->server_name);
    size_t n = (size_t)q->max_connections;
    s->polls = mem_realloc_array(NULL, n, sizeof *s->polls);
    s->polled = mem_realloc_array(NULL, n, sizeof *s->polled);
    s->read_buffer = mem_alloc(HTTP_READ_BYTES);
    if (!s->host || !s->name || !s->polls || !s->polled || !s->read_buffer)
        return error_nomem(err, "the server", sizeof *s + HTTP_READ_BYTES + n * (sizeof *s->polls + sizeof *s->polled));
    return 0;
}

static int start_events(struct http_server *s, skua_error *err)
{
    struct event_config *config = event_config_new();
    if (config && !event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV))
        s->base = event_base_new_with_config(config);
    if (config)
        event_config_free(config);
    if (!s->base)
        return error_nomem(err, "the event loop", 0);
    bool ok = timer_start(s, &s->watch, on_watch, s, HTTP_NEVER) && timer_start(s, &s->accept_again, on_accept_again, s, HTTP_NEVER) &&
              timer_start(s, &s->drain, on_drained, s, HTTP_NEVER);
    event_assign(&s->wake, s->base, s->wake_fd, EV_READ | EV_PERSIST, on_wake, s);
    ok = ok && !event_add(&s->wake, NULL);
    for (int i = 0; i < s->n_listeners; i++) {
        event_assign(&s->listeners[i].event, s->base, s->listeners[i].fd, EV_READ | EV_PERSIST, on_accept, s);
        ok = ok && !event_add(&s->listeners[i].event, NULL);
    }
    s->accepting = true;
    return ok ? 0 : error_nomem(err, "the event loop", 0);
}

int http_server_create(const struct http_params *p, struct http_server **out, skua_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, use_mem);
    struct http_server *s = mem_calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return error_nomem(err, "the server", sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->closed, NULL);
    s->calls_end = &s->calls;
    s->drain_ms = -1;
    s->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int rc = s->wake_fd < 0 ? error_set(err, SKUA_EIO, "cannot make an eventfd: %s", strerror(errno)) : take_params(s, p, err);
    if (!rc)
        rc = http_listen(s, err);
    if (!rc)
        rc = start_events(s, err);
    if (rc)
        http_server_free(s);
    else
        *out = s;
    return rc;
}

int http_server_port(const struct http_server *s) { return s->port; }

int http_server_run(struct http_server *s, skua_error *err)
{
    s->thread = pthread_self();
    int rc = event_base_loop(s->base, EVLOOP_NO_EXIT_ON_EMPTY);
    if (rc < 0)
        rc = error_set(err, SKUA_EIO, "the event loop failed: %s", strerror(errno));
    s->draining = true;
    while (s->conns)
        http_conn_lost(s->conns);
    return rc < 0 ? rc : 0;
}

void http_server_free(struct http_server *s)
{
    if (!s)
        return;
    s->draining = true;
    while (s->conns)
        http_conn_free(s->conns);
    for (struct http_request *r; (r = take_from_outbox(s));)
        http_request_unref(r);
    for (struct http_call *c = s->calls, *next; c; c = next) {
        next = c->next;
        mem_free(c);
    }
    for (struct http_periodic *p = s->periodic, *next; p; p = next) {
        next = p->next;
        event_del(&p->event);
        mem_free(p);
    }
    for (int i = 0; i < s->n_listeners; i++)
        close(s->listeners[i].fd);
    if (s->base)
        event_base_free(s->base);
    if (s->wake_fd >= 0)
        close(s->wake_fd);
    mem_free(s->host);
    mem_free(s->name);
    mem_free(s->polls);
    mem_free(s->polled);
    mem_free(s->read_buffer);
    pthread_cond_destroy(&s->closed);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

void http_server_get_stats(struct http_server *s, struct http_server_stats *out)
{
    *out = (struct http_server_stats){.connections = s->connections, .requests_open = s->requests_open, .accepted = s->accepted,
                                      .requests = s->requests, .pending_bytes = s->pending_bytes, .body_bytes = s->body_bytes,
                                      .bodies_refused = s->bodies_refused};
}
