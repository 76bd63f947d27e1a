/* What the tests of the HTTP server share: a server in a thread whose handler answers by path, or hands the request to the test, and a
 * client of plain sockets. Included once per program. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "http/http.h"
#include "support/support.h"

enum { WAIT_MS = 60000, MAX_HELD = 64, MAX_LATE = 1000 }; /* WAIT_MS: only reached when a test fails */

struct fixture {
    struct http_params params;
    struct http_server *server;
    pthread_t thread;
    int rc;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct http_request *held[MAX_HELD]; /* of /hold, not yet taken by the test */
    int n_held, closed, called;          /* closed: calls of on_close */
    void (*on_close)(void *arg);         /* of held requests; counts */
    void *on_close_arg;
    bool mute;                           /* no error bodies */
    pthread_t late[MAX_LATE];            /* threads that answer; only the socket thread adds */
    int n_late;
};

static inline void signal_change(struct fixture *f, int *counter)
{
    pthread_mutex_lock(&f->lock);
    ++*counter;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

static inline void on_close(void *arg)
{
    struct fixture *f = arg;
    signal_change(f, &f->closed);
}

static inline void on_call(void *arg)
{
    struct fixture *f = arg;
    signal_change(f, &f->called);
}

/* Wait until a counter has that value or more. */
static inline void await(struct fixture *f, const int *counter, int value)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_MS / 1000;
    pthread_mutex_lock(&f->lock);
    while (*counter < value && !pthread_cond_timedwait(&f->changed, &f->lock, &until))
        ;
    CHECK(*counter >= value, "a counter is %d instead of %d", *counter, value);
    pthread_mutex_unlock(&f->lock);
}

static inline struct http_request *take_held(struct fixture *f)
{
    await(f, &f->n_held, 1);
    pthread_mutex_lock(&f->lock);
    struct http_request *r = f->n_held ? f->held[--f->n_held] : NULL;
    pthread_mutex_unlock(&f->lock);
    if (!r)
        abort();
    return r;
}

static inline void respond_text(struct http_request *r, const char *text)
{
    const struct http_header type = {"content-type", "text/plain"};
    http_respond(r, 200, &type, 1, text, strlen(text));
    http_release(r);
}

static inline void *respond_late(void *arg)
{
    respond_text(arg, "late");
    return NULL;
}

static inline void stream(struct http_request *r, bool complete)
{
    const struct http_header extra = {"Cache-Control", "no-cache"};
    http_begin(r, 200, "text/event-stream", &extra, 1);
    http_send(r, "data: 1\n\n", 9);
    http_send(r, "", 0);
    http_send(r, "0123456789abcdefXYZ", 19);
    http_end(r, complete);
    http_release(r);
}

/* /echo: what was asked; /stream, /cut: three pieces; /late: from a thread of its own; /none: no answer; /hold: the test answers. */
static inline void handler(void *user, struct http_request *r)
{
    struct fixture *f = user;
    const char *path = http_path(r);
    if (!strcmp(path, "/echo")) {
        struct strbuf b = {0};
        size_t n;
        const char *body = http_body(r, &n);
        strbuf_printf(&b, "%s %s ?%s %zu:", http_method(r), http_raw_path(r), http_query(r), n);
        strbuf_append(&b, body, n);
        respond_text(r, strbuf_str(&b));
        strbuf_free(&b);
    } else if (!strcmp(path, "/stream") || !strcmp(path, "/cut")) {
        stream(r, path[1] == 's');
    } else if (!strcmp(path, "/late")) {
        if (f->n_late == MAX_LATE || pthread_create(&f->late[f->n_late++], NULL, respond_late, r))
            abort();
    } else if (!strcmp(path, "/none")) {
        http_release(r);
    } else {
        http_on_close(r, f->on_close, f->on_close_arg);
        pthread_mutex_lock(&f->lock);
        f->held[f->n_held++] = r;
        pthread_cond_broadcast(&f->changed);
        pthread_mutex_unlock(&f->lock);
    }
}

static inline char *error_body(void *user, const char *path, int status, const char *code, const char *message, const char *request_id,
                               size_t *n)
{
    struct fixture *f = user;
    struct strbuf b = {0};
    if (f->mute)
        return NULL;
    strbuf_printf(&b, "%s|%d|%s|%s%s", path, status, code, message, strlen(request_id) == 28 ? "" : "|own id");
    return strbuf_take(&b, n);
}

static inline void *run_server(void *arg)
{
    struct fixture *f = arg;
    skua_error err;
    f->rc = http_server_run(f->server, &err);
    return NULL;
}

/* params.host NULL: 127.0.0.1. */
static inline void start(struct fixture *f, struct http_params params)
{
    skua_error err;
    *f = (struct fixture){.params = params, .on_close = on_close, .on_close_arg = f};
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    f->params.host = params.host ? params.host : "127.0.0.1";
    f->params.server_name = "test/1";
    f->params.handler = handler;
    f->params.error_body = error_body;
    f->params.user = f;
    if (!CHECK(!http_server_create(&f->params, &f->server, &err), "%s", err.message))
        abort();
    if (pthread_create(&f->thread, NULL, run_server, f))
        abort();
}

/* After http_server_stop: wait until the server has stopped, and free it; all requests are released. */
static inline void join(struct fixture *f)
{
    pthread_join(f->thread, NULL);
    CHECK(!f->rc, "the loop returned %d", f->rc);
    for (int i = 0; i < f->n_late; i++)
        pthread_join(f->late[i], NULL);
    http_server_free(f->server);
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->changed);
}

static inline void stop(struct fixture *f)
{
    http_server_stop(f->server, 0);
    join(f);
}

/* ---- a client ---- */

static inline int connect_to(const char *address, int port)
{
    struct sockaddr_storage a = {0};
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&a;
    struct sockaddr_in *four = (struct sockaddr_in *)&a;
    bool is_six = strchr(address, ':');
    if (is_six)
        *six = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    else
        *four = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(a.ss_family, address, is_six ? (void *)&six->sin6_addr : (void *)&four->sin_addr);
    int fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small); /* so that a reader that does not read is soon felt */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (fd >= 0 && !connect(fd, (struct sockaddr *)&a, is_six ? sizeof *six : sizeof *four))
        return fd;
    close(fd);
    return -1;
}

static inline int client(struct fixture *f)
{
    int fd = connect_to("127.0.0.1", http_server_port(f->server));
    CHECK(fd >= 0, "connect: %s", strerror(errno));
    return fd;
}

static inline bool put_bytes(int fd, const char *s, size_t n)
{
    while (n) {
        ssize_t sent = send(fd, s, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        s += sent;
        n -= (size_t)sent;
    }
    return true;
}

static inline void put(int fd, const char *s) { put_bytes(fd, s, strlen(s)); }

/* Read until the text ends so, or n bytes are there, or the connection ends (end NULL, n 0: only then). How many bytes; the text ends in
   "<eof>", "<reset>" or "<timeout>" if one of these was met. */
static inline size_t get(int fd, char *out, size_t size, const char *end, size_t n)
{
    size_t len = 0, end_len = end ? strlen(end) : 0;
    const char *why = "";
    while (len < size - 16 && !(n && len >= n) && !(end && len >= end_len && !memcmp(out + len - end_len, end, end_len))) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, WAIT_MS) != 1) {
            why = "<timeout>";
            break;
        }
        ssize_t got = recv(fd, out + len, 1, 0);
        if (got <= 0) {
            why = got ? "<reset>" : "<eof>";
            break;
        }
        len++;
    }
    strcpy(out + len, why);
    return len;
}

/* Take out what differs from run to run: dates and the server's request ids. False: they are not well-formed. */
static inline bool normalise(char *text)
{
    static const char id[] = "x-request-id: req_", date[] = "Date: ";
    for (char *s = text; (s = strstr(s, date));) {
        char day[4], month[4];
        int d, y, h, m, sec, used = 0;
        if (sscanf(s, "Date: %3s, %2d %3s %4d %2d:%2d:%2d GMT\r\n%n", day, &d, month, &y, &h, &m, &sec, &used) != 7 || used != 37)
            return false;
        memmove(s, s + used, strlen(s + used) + 1);
    }
    for (char *s = text; (s = strstr(s, id));) {
        s += sizeof id - 1;
        size_t n = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789");
        if (n != 24 || s[n] != '\r')
            return false;
        memmove(s, s + n, strlen(s + n) + 1);
    }
    return true;
}

#define ANSWER_HEAD "HTTP/1.1 200 OK\r\nServer: test/1\r\nx-request-id: req_\r\n"
#define TEXT_HEAD ANSWER_HEAD "content-type: text/plain\r\n"
#define STREAM_HEAD ANSWER_HEAD "Cache-Control: no-cache\r\nContent-Type: text/event-stream\r\n"

/* What comes until the end of the connection, exactly. */
static inline void expect_all(int fd, const char *what, const char *expected)
{
    static char text[1 << 16];
    get(fd, text, sizeof text, NULL, 0);
    bool good = normalise(text);
    char *end = strstr(text, "<eof>");
    good = good && end && strlen(expected) == (size_t)(end - text) && !strncmp(text, expected, (size_t)(end - text));
    CHECK(good, "%s: got '%s'", what, text);
    close(fd);
}

/* What comes next, exactly; the connection stays. */
static inline void expect_next(int fd, const char *what, const char *expected, const char *end)
{
    static char text[1 << 16];
    get(fd, text, sizeof text, end, 0);
    bool good = normalise(text);
    CHECK(good && !strcmp(text, expected), "%s: got '%s'", what, text);
}

/* Send, read to the end, compare. */
static inline void exchange(struct fixture *f, const char *request, const char *expected)
{
    int fd = client(f);
    put(fd, request);
    expect_all(fd, request, expected);
}
