/* The HTTP server's limits and life: time-outs, readers that do not read, many connections and threads, listening, stopping, and every
 * allocation failing. Time-outs are short where they are to pass; nothing is measured. */
#include <fcntl.h>
#include <sys/resource.h>

#include "http_fixture.h"

#define H "Host: h\r\n"
#define LAST H "Connection: close\r\n\r\n"
#define ECHO "GET /echo HTTP/1.1\r\n" H "\r\n"
#define ECHOED TEXT_HEAD "Content-Length: 14\r\n\r\nGET /echo ? 0:"
#define TIMED_OUT(length, body) "HTTP/1.1 408 Request Timeout\r\nServer: test/1\r\nx-request-id: req_\r\n" \
    "Content-Type: application/json; charset=utf-8\r\nContent-Length: " length "\r\nConnection: close\r\n\r\n" body
#define BODY_LATE TIMED_OUT("60", "/a|408|request_timeout|the request body did not come in time")

/* One byte after the other until the server says something. */
static void trickle(struct fixture *f, const char *request, const char *expected)
{
    int fd = client(f);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    put(fd, request);
    do
        put(fd, "x");
    while (!poll(&p, 1, 5));
    expect_all(fd, "a trickle", expected);
}

static void test_timeouts(void)
{
    struct fixture f;
    start(&f, (struct http_params){.header_timeout_s = 0.1, .body_idle_timeout_s = 0.1, .idle_timeout_s = 0.1});
    exchange(&f, "GET /a", TIMED_OUT("60", "|408|request_timeout|the request's head did not come in time"));
    exchange(&f, "POST /a HTTP/1.1\r\nContent-Length: 5\r\n" H "\r\nabc", BODY_LATE);
    exchange(&f, "", "");
    exchange(&f, "\r\n", "");
    exchange(&f, ECHO, ECHOED);
    trickle(&f, "GET /a HTTP/1.1\r\nA: ", TIMED_OUT("62", "/a|408|request_timeout|the request's head did not come in time"));
    stop(&f);
    start(&f, (struct http_params){.body_timeout_s = 0.2});
    trickle(&f, "POST /a HTTP/1.1\r\nContent-Length: 50000\r\n" H "\r\nabc", BODY_LATE);
    stop(&f);
}

/* Read exactly n bytes; how many there were. */
static size_t read_bytes(int fd, char *out, size_t n)
{
    size_t len = 0;
    ssize_t got = 1;
    while (len < n && got > 0) {
        got = recv(fd, out + len, n - len, 0);
        len += got > 0 ? (size_t)got : 0;
    }
    return len;
}

enum { PIECE = 1000, LARGE = 3 << 20 };

/* More than the kernel takes is refused until the client reads on; nothing is lost; others are served meanwhile. */
static void test_slow_reader(void)
{
    static char piece[PIECE], text[PIECE + 100];
    static const char head[] = ANSWER_HEAD "Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n";
    struct fixture f;
    struct http_server_stats stats;
    start(&f, (struct http_params){.max_pending_bytes = 20000});
    int fd = client(&f), pieces = 0, rc = 0;
    put(fd, "GET /hold HTTP/1.1\r\n" H "\r\n");
    struct http_request *r = take_held(&f);
    http_begin(r, 200, "text/plain", NULL, 0);
    for (int refused = 0; refused < 50; usleep(rc ? 1000 : 0)) { /* until the kernel has all that it takes, most likely */
        memset(piece, 'a' + pieces % 26, PIECE);
        rc = http_send(r, piece, PIECE);
        pieces += !rc;
        refused = rc ? refused + 1 : 0;
        http_server_get_stats(f.server, &stats);
        CHECK(stats.pending_bytes <= 21000, "%d bytes are pending", (int)stats.pending_bytes);
    }
    CHECK(rc == SKUA_ELIMIT && pieces > 18, "sending returns %d after %d pieces", rc, pieces);
    exchange(&f, "GET /echo HTTP/1.1\r\n" LAST, TEXT_HEAD "Content-Length: 14\r\nConnection: close\r\n\r\nGET /echo ? 0:");
    expect_next(fd, "a head", head, "\r\n\r\n");
    for (int i = 0; i < pieces; i++) {
        bool good = read_bytes(fd, text, PIECE + 7) == PIECE + 7 && !memcmp(text, "3e8\r\n", 5) && !memcmp(text + 5 + PIECE, "\r\n", 2);
        for (int k = 0; k < PIECE && good; k++)
            good = text[5 + k] == 'a' + i % 26;
        if (!CHECK(good, "piece %d", i))
            break;
    }
    CHECK(!http_send(r, "x", 1), "sending after the client has read on");
    http_end(r, true);
    http_release(r);
    expect_next(fd, "the end", "1\r\nx\r\n0\r\n\r\n", "0\r\n\r\n");
    close(fd);
    CHECK(!f.closed, "on_close for a slow reader");
    stop(&f);
}

/* One piece may be larger than the limit; a whole answer too. */
static void test_large_answers(void)
{
    struct fixture f;
    char *large = malloc(LARGE), *got = malloc(LARGE + 1000), *body;
    for (size_t i = 0; i < LARGE; i++)
        large[i] = (char)(i * 7 + i / 1000);
    start(&f, (struct http_params){.max_pending_bytes = 1000});
    for (int streams = 0; streams < 2; streams++) {
        int fd = client(&f);
        put(fd, "GET /hold HTTP/1.0\r\n\r\n");
        struct http_request *r = take_held(&f);
        if (streams) {
            http_begin(r, 200, "text/plain", NULL, 0);
            while (http_send(r, large, LARGE) == SKUA_ELIMIT) /* until the head is with the kernel */
                usleep(1000);
            CHECK(http_send(r, "x", 1) == SKUA_ELIMIT, "more behind a large piece");
            http_end(r, true);
        } else {
            http_respond(r, 200, NULL, 0, large, LARGE);
        }
        http_release(r);
        size_t n = read_bytes(fd, got, LARGE + 1000);
        body = got + (n < LARGE ? 0 : n - LARGE);
        CHECK(n > LARGE && !memcmp(body, large, LARGE), "a large answer of %zu bytes, %zu came", (size_t)LARGE, n);
        close(fd);
    }
    stop(&f);
    free(large);
    free(got);
}

/* A reader that has stopped reading is cut. */
static void test_stalled_reader(void)
{
    struct fixture f;
    char piece[PIECE], text[100];
    memset(piece, 'x', sizeof piece);
    start(&f, (struct http_params){.send_stall_timeout_s = 0.2});
    int fd = client(&f);
    put(fd, "GET /hold HTTP/1.1\r\n" H "\r\n");
    struct http_request *r = take_held(&f);
    http_begin(r, 200, "text/plain", NULL, 0);
    while (!http_send(r, piece, PIECE))
        ;
    await(&f, &f.closed, 1);
    CHECK(http_send(r, "x", 1) == SKUA_ECANCELED, "sending to a stalled client");
    http_end(r, true);
    http_release(r);
    while (get(fd, text, sizeof text, NULL, 80) == 80)
        ;
    CHECK(strstr(text, "<reset>"), "a stalled client gets '%s'", text);
    close(fd);
    struct http_server_stats stats;
    http_server_get_stats(f.server, &stats);
    CHECK(!stats.pending_bytes, "%d bytes stay pending", (int)stats.pending_bytes);
    CHECK(f.closed == 1, "on_close once");
    stop(&f);
}

/* ---- many ---- */

enum { N_CLIENTS = 8, N_ROUNDS = 20, N_IDLE = 400 };

struct worker { struct fixture *f; pthread_t thread; int wrong; };

static void *work(void *arg)
{
    static const char *const requests[][3] = {
        {ECHO, ECHOED, "? 0:"},
        {"GET /late HTTP/1.1\r\n" H "\r\n", TEXT_HEAD "Content-Length: 4\r\n\r\nlate", "late"},
        {"GET /stream HTTP/1.1\r\n" H "\r\n", STREAM_HEAD "Transfer-Encoding: chunked\r\n\r\n"
         "9\r\ndata: 1\n\n\r\n13\r\n0123456789abcdefXYZ\r\n0\r\n\r\n", "0\r\n\r\n"},
    };
    struct worker *w = arg;
    char text[1000];
    int fd = connect_to("127.0.0.1", http_server_port(w->f->server));
    for (int i = 0; i < N_ROUNDS; i++) {
        const char *const *q = requests[i % 3];
        put(fd, q[0]);
        get(fd, text, sizeof text, q[2], 0);
        w->wrong += !normalise(text) || strcmp(text, q[1]);
    }
    close(fd);
    return NULL;
}

static void test_many_clients(struct fixture *f)
{
    struct worker w[N_CLIENTS];
    for (int i = 0; i < N_CLIENTS; i++) {
        w[i] = (struct worker){.f = f};
        if (pthread_create(&w[i].thread, NULL, work, &w[i]))
            abort();
    }
    for (int i = 0; i < N_CLIENTS; i++) {
        pthread_join(w[i].thread, NULL);
        CHECK(!w[i].wrong, "client %d: %d of %d answers are wrong", i, w[i].wrong, N_ROUNDS);
    }
}

/* Connections that do nothing; each of them still works. */
static void test_idle_connections(struct fixture *f)
{
    static int fds[N_IDLE];
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < 2 * N_IDLE + 50) {
        printf("skipped: %d idle connections need more open files\n", N_IDLE);
        support_skipped++;
        return;
    }
    for (int i = 0; i < N_IDLE; i++)
        fds[i] = client(f);
    for (int i = N_IDLE - 1; i >= 0; i--) {
        put(fds[i], ECHO);
        expect_next(fds[i], "an idle connection", ECHOED, "? 0:");
    }
    struct http_server_stats stats;
    http_server_get_stats(f->server, &stats);
    CHECK(stats.connections >= N_IDLE, "%d connections", stats.connections);
    for (int i = 0; i < N_IDLE; i++)
        close(fds[i]);
}

/* At the most connections further ones wait until one ends. */
static void test_most_connections(void)
{
    enum { MOST = 3 };
    struct fixture f;
    int fds[MOST], fd;
    struct http_server_stats stats;
    start(&f, (struct http_params){.max_connections = MOST});
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MOST; i++) {
            fds[i] = client(&f);
            put(fds[i], ECHO);
            expect_next(fds[i], "one of the connections", ECHOED, "? 0:");
        }
        fd = client(&f);
        put(fd, "GET /echo HTTP/1.1\r\n" LAST);
        CHECK(!poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 50), "an answer on a connection too many");
        http_server_get_stats(f.server, &stats);
        CHECK(stats.connections == MOST && stats.accepted == (uint64_t)(MOST + 1) * (unsigned)round + MOST, "%d connections, %d accepted",
              stats.connections, (int)stats.accepted);
        close(fds[round]);
        expect_all(fd, "one that waited", TEXT_HEAD "Content-Length: 14\r\nConnection: close\r\n\r\nGET /echo ? 0:");
        for (int i = 0; i < MOST; i++)
            if (i != round)
                close(fds[i]);
    }
    stop(&f);
}

/* No descriptor for a connection: it waits until there is one. */
static void test_no_descriptors(void)
{
    enum { MOST = 64 };
    struct fixture f;
    struct rlimit old, low;
    int holes[MOST], n = 0, fd;
    start(&f, (struct http_params){0});
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)http_server_port(f.server)),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    while (n < MOST && (n == 0 || holes[n - 1] < fd)) /* no number below fd stays free */
        holes[n++] = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    getrlimit(RLIMIT_NOFILE, &old);
    low = old;
    low.rlim_cur = (rlim_t)fd + 1;
    setrlimit(RLIMIT_NOFILE, &low);
    CHECK(!connect(fd, (struct sockaddr *)&a, sizeof a), "connecting: %s", strerror(errno));
    put(fd, "GET /echo HTTP/1.1\r\n" LAST);
    CHECK(!poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 50), "an answer without a descriptor");
    setrlimit(RLIMIT_NOFILE, &old);
    while (n)
        close(holes[--n]);
    expect_all(fd, "one that waited", TEXT_HEAD "Content-Length: 14\r\nConnection: close\r\n\r\nGET /echo ? 0:");
    stop(&f);
}

/* ---- listening ---- */

static void exchange_at(const char *address, struct fixture *f)
{
    int fd = connect_to(address, http_server_port(f->server));
    if (!CHECK(fd >= 0, "connecting to %s: %s", address, strerror(errno)))
        return;
    put(fd, "GET /echo HTTP/1.1\r\n" LAST);
    expect_all(fd, address, TEXT_HEAD "Content-Length: 14\r\nConnection: close\r\n\r\nGET /echo ? 0:");
}

static bool has_ipv6(void)
{
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    bool has = fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a);
    close(fd);
    if (!has) {
        printf("skipped: this machine has no ::1\n");
        support_skipped++;
    }
    return has;
}

static void test_listening(void)
{
    struct fixture f;
    start(&f, (struct http_params){.host = "localhost"});
    exchange_at("127.0.0.1", &f);
    stop(&f);
    if (!has_ipv6())
        return;
    start(&f, (struct http_params){.host = "::1"});
    exchange_at("::1", &f);
    CHECK(connect_to("127.0.0.1", http_server_port(f.server)) < 0, "::1 answers at 127.0.0.1");
    stop(&f);
    start(&f, (struct http_params){.host = "::"});
    exchange_at("::1", &f);
    exchange_at("127.0.0.1", &f);
    for (int i = 0; i < 2; i++) {
        int fd = connect_to(i ? "::1" : "127.0.0.1", http_server_port(f.server));
        put(fd, "GET /hold HTTP/1.0\r\n\r\n");
        struct http_request *r = take_held(&f);
        CHECK(!strncmp(http_peer(r), i ? "[::1]:" : "127.0.0.1:", 6), "the peer is %s", http_peer(r));
        http_release(r);
        close(fd);
    }
    stop(&f);
}

static void refuse_to_create(struct http_params p, int code, const char *message)
{
    struct http_server *s = (struct http_server *)&p;
    skua_error err;
    size_t live = mem_live_blocks();
    p.server_name = "test/1";
    p.handler = handler;
    p.error_body = error_body;
    CHECK(http_server_create(&p, &s, &err) == code && !s, "a server that cannot be");
    CHECK(err.code == code && !strncmp(err.message, message, strlen(message)), "it says '%s'", err.message);
    CHECK(mem_live_blocks() == live, "memory left behind");
}

/* Without a server that runs at the same time, so that memory can be counted. */
static void test_not_listening(void)
{
    char text[100];
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool listens = !bind(fd, (struct sockaddr *)&a, sizeof a) && !listen(fd, 1) && !getsockname(fd, (struct sockaddr *)&a, &length);
    CHECK(listens, "a port in use: %s", strerror(errno));
    snprintf(text, sizeof text, "cannot listen on 127.0.0.1:%d: Address already in use", ntohs(a.sin_port));
    refuse_to_create((struct http_params){.host = "127.0.0.1", .port = ntohs(a.sin_port)}, SKUA_EIO, text);
    close(fd);
    refuse_to_create((struct http_params){.host = "192.0.2.1"}, SKUA_EIO,
                     "cannot listen on '192.0.2.1': it is no address of this machine");
    refuse_to_create((struct http_params){.host = "not a name"}, SKUA_EIO, "cannot listen on 'not a name': ");
    refuse_to_create((struct http_params){.host = "127.0.0.1", .port = 70000}, SKUA_EARG,
                     "a server needs a host, a port from 0 to 65535, a name and its functions");
    http_server_free(NULL);
    /* One that never runs, with a call that waits for it. */
    const struct http_params p = {.host = "127.0.0.1", .server_name = "test/1", .handler = handler, .error_body = error_body};
    struct http_server *s;
    skua_error err;
    size_t live = mem_live_blocks();
    CHECK(!http_server_create(&p, &s, &err) && !http_server_call(s, on_call, NULL), "a server that does not run");
    http_server_free(s);
    CHECK(mem_live_blocks() == live, "memory left behind");
}

/* ---- stopping ---- */

static void test_drain(void)
{
    struct fixture f;
    start(&f, (struct http_params){0});
    int idle = client(&f), held = client(&f), begun = client(&f), port = http_server_port(f.server);
    put(idle, ECHO "\r\n");
    expect_next(idle, "before the stop", ECHOED, "? 0:");
    put(begun, ECHO "GET /ec");
    expect_next(begun, "before the stop", ECHOED, "? 0:");
    put(held, "GET /hold HTTP/1.1\r\n" H "\r\n" ECHO);
    struct http_request *r = take_held(&f);
    http_server_stop(f.server, 1000);
    expect_all(idle, "an idle connection at the stop", "");
    CHECK(connect_to("127.0.0.1", port) < 0, "connecting after the stop");
    put(begun, "ho HTTP/1.1\r\n" H "\r\n");
    expect_all(begun, "a request that was under way", TEXT_HEAD "Content-Length: 14\r\nConnection: close\r\n\r\nGET /echo ? 0:");
    respond_text(r, "held");
    expect_all(held, "a request that was open", TEXT_HEAD "Content-Length: 4\r\nConnection: close\r\n\r\nheld");
    join(&f);
    CHECK(!f.closed, "on_close for drained requests");
}

/* What is not answered in time is cut. Requests may outlive the loop. */
static void test_drain_ends(void)
{
    for (int i = 0; i < 3; i++) {
        struct fixture f;
        char text[100];
        start(&f, (struct http_params){0});
        int fd = client(&f);
        put(fd, "GET /hold HTTP/1.1\r\n" H "\r\n");
        struct http_request *r = take_held(&f);
        http_server_stop(f.server, i ? 1000 : 0.05);
        if (i == 1)
            http_server_stop(f.server, 0);
        if (i == 2)
            close(fd);
        await(&f, &f.closed, 1);
        if (i < 2)
            CHECK(!get(fd, text, sizeof text, NULL, 0) && !strcmp(text, "<reset>"), "a cut request gets '%s'", text);
        CHECK(http_send(r, "x", 1) == SKUA_ECANCELED, "sending after the stop");
        if (i < 2)
            close(fd);
        pthread_join(f.thread, NULL);
        http_release(r);
        CHECK(f.closed == 1 && !f.rc, "on_close %d times, the loop returned %d", f.closed, f.rc);
        http_server_free(f.server);
    }
}

static void test_calls(struct fixture *f)
{
    struct fixture g;
    skua_error err;
    int called = f->called;
    CHECK(!http_server_call(f->server, on_call, f) && !http_server_call(f->server, on_call, f), "calling");
    await(f, &f->called, called + 2);
    fault_set_alloc(1, true);
    CHECK(http_server_call(f->server, on_call, f) == SKUA_ENOMEM, "calling without memory");
    fault_set_alloc(0, false);
    g = (struct fixture){.params = f->params};
    g.params.port = 0;
    pthread_mutex_init(&g.lock, NULL);
    pthread_cond_init(&g.changed, NULL);
    if (!CHECK(!http_server_create(&g.params, &g.server, &err), "%s", err.message))
        return;
    for (uint64_t n = 1, hit = 1; hit; n++) {
        fault_set_alloc(n, true);
        int rc = http_server_every(g.server, n == 1 ? 0.001 : 100, on_call, &g, &err);
        hit = fault_alloc_count() >= n;
        fault_set_alloc(0, false);
        CHECK(rc == (hit ? SKUA_ENOMEM : 0) && (!rc || err.code == rc), "allocation %d of a timer: %d", (int)n, rc);
    }
    CHECK(!http_server_every(g.server, 0.001, on_call, &g, &err), "a timer");
    if (pthread_create(&g.thread, NULL, run_server, &g))
        abort();
    await(&g, &g.called, 3);
    stop(&g);
}

/* ---- memory ---- */

static void test_creating_without_memory(void)
{
    const struct http_params p = {.host = "127.0.0.1", .server_name = "test/1", .handler = handler, .error_body = error_body};
    for (int once = 0; once < 2; once++) {
        for (uint64_t n = 1;; n++) {
            struct http_server *s;
            skua_error err = {0};
            size_t live = mem_live_blocks();
            fault_set_alloc(n, once);
            int rc = http_server_create(&p, &s, &err);
            bool hit = fault_alloc_count() >= n;
            fault_set_alloc(0, false);
            CHECK(rc == (hit ? SKUA_ENOMEM : 0) || (hit && once && !rc), "allocation %d: %d %s", (int)n, rc, err.message);
            CHECK(!rc == !!s && (!rc || !strncmp(err.message, "out of memory: ", 15)), "allocation %d: '%s'", (int)n, err.message);
            http_server_free(s);
            CHECK(mem_live_blocks() == live, "allocation %d: %d blocks left behind", (int)n, (int)(mem_live_blocks() - live));
            if (!hit) {
                CHECK(n > 10, "only %d allocations", (int)n - 1);
                break;
            }
        }
    }
}

/* A failed allocation ends at most the connection, whose client gets a beginning of what it would have got, or a 503. */
static void test_answering_without_memory(void)
{
    static const char request[] = "POST /stream HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n" H "\r\nab"
                                  "POST /stream?a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" LAST "2\r\nab\r\n0\r\n\r\n";
    static const char expected[] =
        STREAM_HEAD "Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n13\r\n0123456789abcdefXYZ\r\n0\r\n\r\n"
        STREAM_HEAD "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n9\r\ndata: 1\n\n\r\n13\r\n0123456789abcdefXYZ\r\n0\r\n\r\n";
    static const char refused[] = "HTTP/1.1 503 Service Unavailable\r\nServer: test/1\r\nx-request-id: req_\r\n";
    struct fixture f;
    size_t live = mem_live_blocks();
    start(&f, (struct http_params){0});
    f.mute = true;
    for (int once = 0; once < 2; once++) {
        for (uint64_t n = 1;; n++) {
            char text[2000];
            int fd = client(&f);
            fault_set_alloc(n, once);
            put(fd, request);
            get(fd, text, sizeof text, NULL, 0);
            bool hit = fault_alloc_count() >= n;
            fault_set_alloc(0, false);
            bool good = normalise(text), ends = strstr(text, "<eof>") || strstr(text, "<reset>");
            size_t length = strcspn(text, "<"), same = 0;
            while (same < length && text[same] == expected[same])
                same++;
            CHECK(good && ends && (same == length || strstr(text, refused)),
                  "allocation %d: '%s'", (int)n, text);
            CHECK(hit || same == sizeof expected - 1, "without a failure: '%s'", text);
            close(fd);
            exchange(&f, request, expected);
            if (!hit) {
                CHECK(n > 10, "only %d allocations", (int)n - 1);
                break;
            }
        }
    }
    stop(&f);
    CHECK(mem_live_blocks() == live, "%d blocks left behind", (int)(mem_live_blocks() - live));
}

int main(void)
{
    struct fixture f;
    test_timeouts();
    test_slow_reader();
    test_large_answers();
    test_stalled_reader();
    start(&f, (struct http_params){0});
    test_many_clients(&f);
    test_idle_connections(&f);
    test_calls(&f);
    stop(&f);
    test_most_connections();
    test_no_descriptors();
    test_not_listening();
    test_listening();
    test_drain();
    test_drain_ends();
    test_creating_without_memory();
    test_answering_without_memory();
    return support_finish("test_http_life");
}
