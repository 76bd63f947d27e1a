/* One connection: idle, reading a request, answering it, and again; see http_internal.h. Everything here runs on the socket thread. A
 * function that may end the connection is the last thing its caller does with it. */
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "http/http_internal.h"

enum { SEND_BYTES = 256 << 10, NOT_SENT_BYTES = 128 << 10 }; /* of one send; most that the kernel keeps back per socket */

/* After the last answer the peer is given time to read it: closing a socket that has unread bytes would destroy it. */
#define LINGER_IDLE_S 5.0
#define LINGER_S 30.0

/* ---- ending ---- */

void http_conn_free(struct http_conn *c)
{
    struct http_server *s = c->server;
    struct http_request *r = c->request;
    if (r) {
        pthread_mutex_lock(&s->lock);
        r->gone = true;
        r->conn = NULL;
        s->pending_bytes -= r->unsent;
        r->unsent = 0;
        pthread_mutex_unlock(&s->lock);
        if (c->answering)
            s->requests_open--;
        http_request_unref(r);
    }
    event_del(&c->readable);
    event_del(&c->writable);
    event_del(&c->timer);
    close(c->fd);
    *(c->prev ? &c->prev->next : &s->conns) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    strbuf_free(&c->in);
    strbuf_free(&c->out);
    mem_free(c);
    s->n_conns--;
    s->connections = s->n_conns;
    http_conn_gone(s);
}

void http_conn_lost(struct http_conn *c)
{
    static const struct linger reset = {.l_onoff = 1}; /* the peer can tell a cut answer from a complete one */
    struct http_server *s = c->server;
    struct http_request *r = c->request;
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    if (r) {
        void (*fn)(void *arg) = NULL;
        pthread_mutex_lock(&s->lock);
        r->gone = true;
        if (r->answer != HTTP_ANSWERED)
            fn = r->on_close;
        void *arg = r->on_close_arg;
        r->on_close = NULL;
        r->closing = fn != NULL;
        pthread_mutex_unlock(&s->lock);
        if (fn) {
            fn(arg);
            pthread_mutex_lock(&s->lock);
            r->closing = false;
            pthread_cond_broadcast(&s->closed);
            pthread_mutex_unlock(&s->lock);
        }
    }
    http_conn_free(c);
}

/* The answers are out: say so, and wait for the peer to close. */
static void linger(struct http_conn *c)
{
    c->lingering = true;
    c->deadline = clock_seconds() + LINGER_S;
    http_timer(&c->timer, LINGER_IDLE_S);
    if (shutdown(c->fd, SHUT_WR) || event_add(&c->readable, NULL))
        http_conn_free(c);
}

/* ---- reading requests ---- */

/* From now on nothing is read; the watch looks after the peer. */
static void start_answering(struct http_conn *c)
{
    struct http_server *s = c->server;
    event_del(&c->readable);
    http_timer(&c->timer, event_pending(&c->writable, EV_WRITE, NULL) ? s->params.send_stall_timeout_s : HTTP_NEVER);
    c->answering = true;
    c->looks = 0;
    if (!s->requests_open++)
        http_timer(&s->watch, HTTP_WATCH_S);
    http_request_prepare(c->request);
}

static void refuse(struct http_conn *c, int status, const char *code, const char *message)
{
    start_answering(c);
    http_refuse(c->request, status, code, message);
}

/* The request is complete: the handler's. What came behind it waits. */
static void dispatch(struct http_conn *c, const char *rest, size_t n)
{
    struct http_server *s = c->server;
    struct http_request *r = c->request;
    strbuf_append(&c->in, rest, n);
    if (c->in.failed) {
        http_conn_free(c);
        return;
    }
    start_answering(c);
    s->requests++;
    r->refs++; /* the user's; nobody else knows the request yet */
    s->params.handler(s->params.user, r);
}

static double earlier(double a, double b) { return a < b ? a : b; }

/* The request goes on: what may it wait for? */
static void set_read_timer(struct http_conn *c, bool was_begun, bool had_head)
{
    const struct http_params *params = &c->server->params;
    const struct http_parser *p = &c->request->parser;
    if (p->head_complete) {
        double now = clock_seconds();
        if (!had_head)
            c->deadline = now + params->body_timeout_s;
        double left = c->deadline - now;
        http_timer(&c->timer, earlier(params->body_idle_timeout_s, left > 0 ? left : 0));
    } else if (!was_begun && http_parser_begun(p)) {
        http_timer(&c->timer, params->header_timeout_s);
    }
}

/* Count what came of the body. False: all bodies together have more than they may. */
static bool count_body(struct http_request *r)
{
    struct http_server *s = r->server;
    const size_t more = r->parser.body.len - r->counted;
    r->counted += more;
    s->body_bytes += more;
    if (!more || s->body_bytes <= s->params.max_bodies_bytes)
        return true;
    s->bodies_refused++;
    s->body_bytes -= r->counted;
    r->counted = 0;
    strbuf_free(&r->parser.body);
    return false;
}

/* n > 0 bytes for an idle or reading connection. */
static void feed(struct http_conn *c, const char *data, size_t n)
{
    if (!c->request && !(c->request = http_request_new(c))) {
        http_conn_free(c);
        return;
    }
    struct http_parser *p = &c->request->parser;
    bool was_begun = http_parser_begun(p), had_head = p->head_complete;
    size_t used = http_parser_feed(p, data, n);
    if (p->status != HTTP_PARSE_FAILED && !count_body(c->request)) {
        refuse(c, 503, "out_of_memory", "the requests that are here take all the memory that there is for them; try again");
    } else if (p->status == HTTP_PARSE_FAILED) {
        refuse(c, p->error_status, p->error_code, p->message);
    } else if (p->status == HTTP_PARSE_DONE) {
        dispatch(c, data + used, n - used);
    } else {
        set_read_timer(c, was_begun, had_head);
        if (p->expect_continue && !c->sent_continue) {
            c->sent_continue = true;
            if (!p->body.len) { /* else the client did not wait */
                http_send_interim(c->request);
                http_conn_flush(c);
            }
        }
    }
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct http_conn *c = arg;
    char *buffer = c->server->read_buffer;
    (void)what;
    ssize_t n = recv(fd, buffer, HTTP_READ_BYTES, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) { /* the end before a request is complete: nobody waits for an answer */
        http_conn_free(c);
    } else if (c->lingering) {
        double left = c->deadline - clock_seconds();
        http_timer(&c->timer, earlier(LINGER_IDLE_S, left > 0 ? left : 0));
    } else {
        feed(c, buffer, (size_t)n);
    }
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct http_conn *c = arg;
    (void)fd;
    (void)what;
    if (c->answering)
        http_conn_lost(c); /* it has not read for so long */
    else if (!c->request || !http_parser_begun(&c->request->parser) || c->lingering)
        http_conn_free(c);
    else
        refuse(c, 408, "request_timeout", c->request->parser.head_complete ? "the request body did not come in time"
                                                                            : "the request's head did not come in time");
}

/* ---- sending ---- */

/* The answer is with the kernel. */
static void answered(struct http_conn *c)
{
    struct http_server *s = c->server;
    struct http_request *r = c->request;
    bool ends = r->close || s->draining;
    struct strbuf in = c->in;
    pthread_mutex_lock(&s->lock);
    r->gone = true;
    r->conn = NULL;
    pthread_mutex_unlock(&s->lock);
    http_request_unref(r);
    c->request = NULL;
    c->in = (struct strbuf){0};
    strbuf_free(&c->out);
    c->answering = c->sent_continue = false;
    s->requests_open--;
    http_timer(&c->timer, s->params.idle_timeout_s);
    if (ends)
        linger(c);
    else if (event_add(&c->readable, NULL))
        http_conn_free(c);
    else if (in.len)
        feed(c, in.data, in.len);
    strbuf_free(&in);
}

/* Swap buffers with the request. *end: nothing comes any more. False: the answer is broken. */
static bool take_output(struct http_conn *c, bool *end)
{
    struct http_request *r = c->request;
    struct strbuf empty = c->out;
    strbuf_clear(&empty);
    pthread_mutex_lock(&c->server->lock);
    c->out = r->out;
    r->out = empty;
    *end = r->answer == HTTP_ANSWERED;
    bool whole = !r->broken;
    pthread_mutex_unlock(&c->server->lock);
    c->out_at = 0;
    return whole;
}

static void count_sent(struct http_conn *c, size_t n)
{
    pthread_mutex_lock(&c->server->lock);
    c->request->unsent -= n;
    pthread_mutex_unlock(&c->server->lock);
    c->server->pending_bytes -= n;
    c->out_at += n;
}

void http_conn_flush(struct http_conn *c)
{
    bool end = false, blocked = event_pending(&c->writable, EV_WRITE, NULL);
    for (;;) {
        if (c->out_at == c->out.len) {
            if (!take_output(c, &end)) {
                http_conn_lost(c);
                return;
            }
            if (!c->out.len)
                break;
        }
        size_t left = c->out.len - c->out_at;
        ssize_t n = send(c->fd, c->out.data + c->out_at, left < SEND_BYTES ? left : SEND_BYTES, MSG_NOSIGNAL);
        if (n >= 0) {
            count_sent(c, (size_t)n);
            if (blocked) /* it reads */
                http_timer(&c->timer, c->server->params.send_stall_timeout_s);
        } else if (errno == EAGAIN) {
            if (!blocked) {
                http_timer(&c->timer, c->server->params.send_stall_timeout_s);
                if (event_add(&c->writable, NULL))
                    http_conn_lost(c);
            }
            return;
        } else if (errno != EINTR) {
            http_conn_lost(c);
            return;
        }
    }
    if (blocked) {
        event_del(&c->writable);
        http_timer(&c->timer, c->answering ? HTTP_NEVER : c->server->params.body_idle_timeout_s);
    }
    if (end)
        answered(c);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    http_conn_flush(arg);
}

/* ---- peers that are gone ---- */

void http_conn_watch(struct http_server *s)
{
    nfds_t n = 0;
    for (struct http_conn *c = s->conns; c; c = c->next) {
        if (!c->answering)
            continue;
        s->polls[n] = (struct pollfd){.fd = c->fd, .events = POLLRDHUP};
        s->polled[n++] = c;
    }
    if (!n) {
        http_timer(&s->watch, HTTP_NEVER);
        return;
    }
    if (poll(s->polls, n, 0) <= 0)
        return;
    for (nfds_t i = 0; i < n; i++) {
        struct http_conn *c = s->polled[i];
        if (s->polls[i].revents & (POLLERR | POLLHUP)) {
            http_conn_lost(c);
        } else if ((s->polls[i].revents & POLLRDHUP) && c->looks < HTTP_PROBES * HTTP_PROBE_LOOKS && c->looks++ % HTTP_PROBE_LOOKS == 0) {
            http_send_probe(c->request);
            http_conn_flush(c);
        }
    }
}

/* ---- beginning ---- */

static void set_options(int fd, const struct http_params *params)
{
    /* Besides TCP_NODELAY: find peers that vanished without a word, and keep the unsent bytes here, where they are counted. Refusals
       of these do no harm. */
    static const int one = 1, idle_s = 15, interval_s = 5, probes = 3, not_sent = NOT_SENT_BYTES;
    unsigned int stall_ms = (unsigned int)(earlier(params->send_stall_timeout_s, 1e6) * 1e3) + 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &stall_ms, sizeof stall_ms);
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &not_sent, sizeof not_sent);
}

void http_conn_accept(struct http_server *s, int fd, const struct sockaddr_storage *peer)
{
    struct http_conn *c = mem_calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return;
    }
    c->server = s;
    c->fd = fd;
    http_address_text(peer, c->peer, sizeof c->peer);
    set_options(fd, &s->params);
    event_assign(&c->readable, s->base, fd, EV_READ | EV_PERSIST, on_readable, c);
    event_assign(&c->writable, s->base, fd, EV_WRITE | EV_PERSIST, on_writable, c);
    event_assign(&c->timer, s->base, -1, EV_PERSIST, on_timer, c);
    c->next = s->conns;
    if (c->next)
        c->next->prev = c;
    s->conns = c;
    s->n_conns++;
    s->connections = s->n_conns;
    struct timeval tv = {.tv_sec = 1};
    if (event_add(&c->timer, &tv) || event_add(&c->readable, NULL))
        http_conn_free(c);
    else
        http_timer(&c->timer, s->params.idle_timeout_s);
}
