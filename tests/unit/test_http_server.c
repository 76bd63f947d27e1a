/* The HTTP server over real sockets: requests and answers byte for byte, refusals, time-outs, peers that go away in every way, many
 * threads, stopping, and every allocation failing. */
#include "http_fixture.h"

#define H "Host: h\r\n"
#define LAST H "Connection: close\r\n\r\n"
#define PLAIN_HEAD ANSWER_HEAD "Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"

static void test_answers(struct fixture *f)
{
    exchange(f, "GET /echo?a=b HTTP/1.1\r\n" LAST, TEXT_HEAD "Content-Length: 17\r\nConnection: close\r\n\r\nGET /echo ?a=b 0:");
    exchange(f, "HEAD /echo HTTP/1.1\r\n" LAST, TEXT_HEAD "Content-Length: 15\r\nConnection: close\r\n\r\n");
    exchange(f, "GET /echo HTTP/1.0\r\n\r\n", TEXT_HEAD "Content-Length: 14\r\nConnection: close\r\n\r\nGET /echo ? 0:");
    exchange(f, "GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
             TEXT_HEAD "Content-Length: 14\r\nConnection: close\r\n\r\nGET /echo ? 0:");
    exchange(f, "POST /echo/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" LAST "3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\n",
             TEXT_HEAD "Content-Length: 21\r\nConnection: close\r\n\r\nPOST /echo/ ? 5:abcde");
    exchange(f, "GET /stream HTTP/1.1\r\n" LAST, STREAM_HEAD "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
             "9\r\ndata: 1\n\n\r\n13\r\n0123456789abcdefXYZ\r\n0\r\n\r\n");
    exchange(f, "HEAD /stream HTTP/1.1\r\n" LAST, STREAM_HEAD "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
    exchange(f, "GET /stream HTTP/1.0\r\n\r\n", STREAM_HEAD "Connection: close\r\n\r\ndata: 1\n\n0123456789abcdefXYZ");
    exchange(f, "GET /cut HTTP/1.1\r\n" H "\r\n", STREAM_HEAD "Transfer-Encoding: chunked\r\n\r\n"
             "9\r\ndata: 1\n\n\r\n13\r\n0123456789abcdefXYZ\r\n");
    exchange(f, "GET /late HTTP/1.1\r\n" LAST, TEXT_HEAD "Content-Length: 4\r\nConnection: close\r\n\r\nlate");
    exchange(f, "GET /none HTTP/1.1\r\n" LAST, "HTTP/1.1 500 Internal Server Error\r\nServer: test/1\r\nx-request-id: req_\r\n"
             "Content-Type: application/json; charset=utf-8\r\nContent-Length: 53\r\nConnection: close\r\n\r\n"
             "/none|500|internal_error|the request was not answered");
}

/* One connection: one after the other, all at once, byte by byte. The last one closes it. */
static void test_persistence(struct fixture *f)
{
    static const char first[] = "POST /echo HTTP/1.1\r\n" H "Content-Length: 2\r\n\r\nab";
    static const char first_answer[] = TEXT_HEAD "Content-Length: 17\r\n\r\nPOST /echo ? 2:ab";
    static const char all[] = "POST /echo HTTP/1.1\r\n" H "Content-Length: 2\r\n\r\nab"
                              "GET /late HTTP/1.1\r\n" H "\r\n\r\n"
                              "GET /stream HTTP/1.1\r\n" H "\r\n"
                              "GET /echo HTTP/1.1\r\n" LAST "GET /never HTTP/1.1\r\n" H "\r\n";
    static const char answers[] = TEXT_HEAD "Content-Length: 17\r\n\r\nPOST /echo ? 2:ab"
                                  TEXT_HEAD "Content-Length: 4\r\n\r\nlate"
                                  STREAM_HEAD "Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n13\r\n0123456789abcdefXYZ\r\n0\r\n\r\n"
                                  TEXT_HEAD "Content-Length: 14\r\nConnection: close\r\n\r\nGET /echo ? 0:";
    int fd = client(f);
    for (int i = 0; i < 3; i++) {
        put(fd, first);
        expect_next(fd, "one after the other", first_answer, "2:ab");
    }
    put(fd, all);
    expect_all(fd, "pipelined", answers);
    fd = client(f);
    for (size_t i = 0; i < sizeof all - 1; i++)
        put_bytes(fd, all + i, 1);
    expect_all(fd, "byte by byte", answers);
    for (size_t cut = 1; cut < sizeof all - 1; cut += 7) {
        fd = client(f);
        put_bytes(fd, all, cut);
        put_bytes(fd, all + cut, sizeof all - 1 - cut);
        expect_all(fd, "cut in two", answers);
    }
}

static void test_continue(struct fixture *f)
{
    static const char head[] = "POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n" LAST;
    static const char answer[] = TEXT_HEAD "Content-Length: 17\r\nConnection: close\r\n\r\nPOST /echo ? 2:ab";
    int fd = client(f);
    put(fd, head);
    expect_next(fd, "100", "HTTP/1.1 100 Continue\r\n\r\n", "\r\n\r\n");
    put(fd, "a");
    put(fd, "b");
    expect_all(fd, "after 100", answer);
    fd = client(f);
    put(fd, "POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n" LAST "ab");
    expect_all(fd, "a client that does not wait", answer);
}

#define REFUSED(status, length, body) "HTTP/1.1 " status "\r\nServer: test/1\r\nx-request-id: req_\r\n" \
    "Content-Type: application/json; charset=utf-8\r\nContent-Length: " length "\r\nConnection: close\r\n\r\n" body
#define REFUSED_FOR_GOOD(status, length, body) "HTTP/1.1 " status "\r\nServer: test/1\r\nx-request-id: req_\r\nx-should-retry: false\r\n" \
    "Content-Type: application/json; charset=utf-8\r\nContent-Length: " length "\r\nConnection: close\r\n\r\n" body

/* The server's limits here: 1000 bytes of head, 6 fields, 100 bytes of body. What follows a refused head is not read as a request. */
static void test_refusals(struct fixture *f)
{
    static const char *const cases[][2] = {
        {"what\r\n\r\n", REFUSED("400 Bad Request", "59", "|400|bad_request|the first line is not an HTTP request line")},
        {"GET /a HTTP/1.1\r\n\r\n", REFUSED("400 Bad Request", "54", "/a|400|bad_request|exactly one Host field was expected")},
        {"GET /a HTTP/3.0\r\n", REFUSED_FOR_GOOD("505 HTTP Version Not Supported", "76",
                                                 "|505|http_version_not_supported|HTTP version 3 is not supported; HTTP/1.1 is")},
        {"POST /v1/x HTTP/1.1\r\n" H "\r\nGET /echo HTTP/1.1\r\n" H "\r\n",
         REFUSED("411 Length Required", "94",
                 "/v1/x|411|length_required|POST needs a Content-Length (0 without a body) or the chunked coding")},
        {"POST /a HTTP/1.1\r\nContent-Length: 101\r\nExpect: 100-continue\r\n" H "\r\n",
         REFUSED("413 Content Too Large", "86", "/a|413|request_too_large|the request body is too large; at most 100 bytes are accepted")},
        {"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" H "\r\n1\r\na\r\n64\r\n",
         REFUSED("413 Content Too Large", "86", "/a|413|request_too_large|the request body is too large; at most 100 bytes are accepted")},
        {"POST /a HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n" H "\r\nx",
         REFUSED("415 Unsupported Media Type",
                 "84", "/a|415|unsupported_media_type|Content-Encoding is 'gzip'; only identity is supported")},
        {"POST /a HTTP/1.1\r\nExpect: x\r\nContent-Length: 1\r\n" H "\r\nx",
         REFUSED("417 Expectation Failed", "67", "/a|417|expectation_failed|Expect is 'x'; only 100-continue is known")},
        {"GET /a HTTP/1.1\r\n" H "a:\r\nb:\r\nc:\r\nd:\r\ne:\r\nf:\r\n\r\n",
         REFUSED("431 Request Header Fields Too Large", "60", "/a|431|headers_too_large|there are more than 6 header fields")},
        {"POST /a HTTP/1.1\r\nTransfer-Encoding: gzip\r\n" H "\r\n",
         REFUSED_FOR_GOOD("501 Not Implemented", "91",
                          "/a|501|unsupported_transfer_encoding|Transfer-Encoding is 'gzip'; only chunked is supported")},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        exchange(f, cases[i][0], cases[i][1]);
    char head[1200] = "GET /";
    memset(head + 5, 'x', 1100);
    exchange(f, head, REFUSED("431 Request Header Fields Too Large", "73",
                              "|431|headers_too_large|request line and headers have more than 1000 bytes"));
    f->mute = true;
    exchange(f, "x\r\n", REFUSED("400 Bad Request", "0", ""));
    f->mute = false;
}

/* A refusal is read by a client that sends all of a large body first: the connection is not reset under it. */
static void test_refusal_of_upload(struct fixture *f)
{
    static char body[1 << 20];
    int fd = client(f);
    put(fd, "POST /a HTTP/1.1\r\nContent-Length: 67108864\r\n" H "\r\n");
    for (int i = 0; i < 64; i++)
        if (!CHECK(put_bytes(fd, body, sizeof body), "sending the body: %s", strerror(errno)))
            break;
    shutdown(fd, SHUT_WR);
    expect_all(fd, "a large body",
               REFUSED("413 Content Too Large",
                   "86", "/a|413|request_too_large|the request body is too large; at most 100 bytes are accepted"));
}

static void test_request_ids(struct fixture *f)
{
    char request[400], expected[600], id[130];
    memset(id, 'i', sizeof id);
    for (int n = 128; n <= 129; n++) { /* the longest that is echoed, and one more */
        snprintf(request, sizeof request, "GET /echo HTTP/1.1\r\nX-Request-ID: %.*s\r\n" LAST, n, id);
        snprintf(expected, sizeof expected, "HTTP/1.1 200 OK\r\nServer: test/1\r\nx-request-id: %s%.*s\r\ncontent-type: text/plain\r\n"
                 "Content-Length: 14\r\nConnection: close\r\n\r\nGET /echo ? 0:", n == 128 ? "" : "req_", n == 128 ? n : 0, id);
        exchange(f, request, expected);
    }
    exchange(f, "GET /echo HTTP/1.1\r\nx-request-id: \xc3\xa9\r\n" LAST,
             TEXT_HEAD "Content-Length: 14\r\nConnection: close\r\n\r\nGET /echo ? 0:");
    exchange(f, "x-y\r\nx-request-id: mine\r\n",
             REFUSED("400 Bad Request", "59", "|400|bad_request|the first line is not an HTTP request line"));
    exchange(f, "GET /a HTTP/1.1\r\nx-request-id: mine\r\n\r\n",
             "HTTP/1.1 400 Bad Request\r\nServer: test/1\r\nx-request-id: mine\r\nContent-Type: application/json; charset=utf-8\r\n"
             "Content-Length: 61\r\nConnection: close\r\n\r\n/a|400|bad_request|exactly one Host field was expected|own id");
}

/* What the handler's side may and may not do with a request. */
static void test_request(struct fixture *f)
{
    const struct http_header extra[] = {{"X-A", "b\r\nX-Evil: 1"}, {"Content-Length", "7"}, {"Connection", "keep-alive"}, {"X-B", ""},
                                         {"content-type", "text/html"}};
    struct sockaddr_in own;
    socklen_t length = sizeof own;
    char peer[40];
    size_t n;
    int fd = client(f);
    getsockname(fd, (struct sockaddr *)&own, &length);
    snprintf(peer, sizeof peer, "127.0.0.1:%d", ntohs(own.sin_port));
    put(fd, "POST /hold/%20x/?q=%20 HTTP/1.1\r\nA: 1\r\na: 2\r\nContent-Length: 3\r\n" LAST);
    put_bytes(fd, "a\0b", 3);
    struct http_request *r = take_held(f);
    CHECK(!strcmp(http_method(r), "POST") && !strcmp(http_path(r), "/hold/ x") && !strcmp(http_raw_path(r), "/hold/%20x/"), "the path");
    CHECK(!strcmp(http_query(r), "q=%20") && !strcmp(http_header(r, "a"), "1") && !http_header(r, "b"), "query and header");
    CHECK(!memcmp(http_body(r, &n), "a\0b", 4) && n == 3, "the body");
    CHECK(!strcmp(http_peer(r), peer) && http_received(r) > 0 && strlen(http_request_id(r)) == 28, "peer, time, id");
    CHECK(!http_began(r) && http_send(r, "x", 1) == SKUA_ESTATE, "sending before the beginning");
    http_end(r, true);
    http_begin(r, 201, "text/plain", extra, 5);
    http_begin(r, 200, "text/plain", NULL, 0);
    http_respond(r, 200, NULL, 0, "y", 1);
    CHECK(http_began(r) && http_send(r, "x", 1) == 0, "sending");
    http_end(r, true);
    http_end(r, false);
    CHECK(http_send(r, "x", 1) < 0, "sending after the end");
    http_release(r);
    expect_all(fd, "answers to a request", "HTTP/1.1 201 Created\r\nServer: test/1\r\nx-request-id: req_\r\nX-A: b  X-Evil: 1\r\nX-B: \r\n"
               "Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\nx\r\n0\r\n\r\n");
    fd = client(f);
    put(fd, "OPTIONS * HTTP/1.1\r\n" LAST);
    r = take_held(f);
    http_respond(r, 204, NULL, 0, "y", 1);
    http_release(r);
    expect_all(fd, "no content", "HTTP/1.1 204 No Content\r\nServer: test/1\r\nx-request-id: req_\r\nConnection: close\r\n\r\n");
    CHECK(f->closed == 0, "on_close for answered requests");
}

/* A client that has finished sending gets its answer, whether that has begun or not. */
static void test_half_close(struct fixture *f)
{
    int closed = f->closed, fd = client(f);
    put(fd, "GET /hold HTTP/1.1\r\n" H "\r\n");
    shutdown(fd, SHUT_WR);
    struct http_request *r = take_held(f);
    for (int i = 0; i < 3; i++)
        expect_next(fd, "a half-closed client is asked", "HTTP/1.1 100 Continue\r\n\r\n", "\r\n\r\n");
    respond_text(r, "here");
    expect_all(fd, "a half-closed client", TEXT_HEAD "Content-Length: 4\r\n\r\nhere");

    fd = client(f);
    put(fd, "GET /hold HTTP/1.1\r\n" H "\r\nGET /echo HTTP/1.1\r\n" H "\r\nGET /incomplete");
    r = take_held(f);
    http_begin(r, 200, "text/plain", NULL, 0);
    expect_next(fd, "a stream's head", PLAIN_HEAD, "\r\n\r\n");
    shutdown(fd, SHUT_WR);
    expect_next(fd, "a half-closed client of a stream is asked", "000", "000");
    CHECK(!http_send(r, "abc", 3) && !http_send(r, "d", 1), "sending to a half-closed client");
    http_end(r, true);
    http_release(r);
    expect_all(fd, "the rest of the stream", "3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n" TEXT_HEAD "Content-Length: 14\r\n\r\nGET /echo ? 0:");

    fd = client(f);
    put(fd, "GET /hold HTTP/1.0\r\n\r\n");
    shutdown(fd, SHUT_WR);
    r = take_held(f);
    CHECK(!poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 60), "an HTTP/1.0 client is asked");
    respond_text(r, "here");
    expect_all(fd, "a half-closed HTTP/1.0 client", TEXT_HEAD "Content-Length: 4\r\nConnection: close\r\n\r\nhere");
    CHECK(f->closed == closed, "on_close for half-closed clients");
}

static void hang_up(int fd, bool reset)
{
    struct linger now = {.l_onoff = 1};
    if (reset)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
}

/* Close and reset, before the answer and in it, with and without bytes that neither side has read. */
static void test_close(struct fixture *f)
{
    for (int i = 0; i < 16; i++) {
        bool reset = i & 1, streams = i & 2, pipelined = i & 4, unread = i & 8;
        int closed = f->closed, fd = client(f);
        put(fd, "GET /hold HTTP/1.1\r\n" H "\r\n");
        struct http_request *r = take_held(f);
        if (pipelined)
            put(fd, "GET /echo HTTP/1.1\r\n");
        if (streams) {
            http_begin(r, 200, "text/plain", NULL, 0);
            if (!unread)
                expect_next(fd, "a head", PLAIN_HEAD, "\r\n\r\n");
        }
        hang_up(fd, reset);
        await(f, &f->closed, closed + 1);
        CHECK(http_send(r, "x", 1) == SKUA_ECANCELED, "case %d: sending to a client that is gone", i);
        http_end(r, true);
        http_release(r);
        CHECK(f->closed == closed + 1, "case %d: on_close once", i);
    }
    /* HTTP/1.0: a close is found by the answer's bytes. */
    int closed = f->closed, fd = client(f);
    put(fd, "GET /hold HTTP/1.0\r\n\r\n");
    struct http_request *r = take_held(f);
    hang_up(fd, false);
    http_begin(r, 200, "text/plain", NULL, 0);
    while (http_send(r, "x", 1) != SKUA_ECANCELED)
        usleep(1000);
    await(f, &f->closed, closed + 1);
    http_release(r);
    /* Requests that are not complete end with the connection, and nobody hears of them. */
    static const char *const parts[] = {"", "\r\n", "GET", "GET / HTTP/1.1\r\nHost", "POST / HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\na"};
    for (size_t i = 0; i < 2 * sizeof parts / sizeof *parts; i++) {
        fd = client(f);
        put(fd, parts[i / 2]);
        if (i % 2) {
            shutdown(fd, SHUT_WR);
            expect_all(fd, "an incomplete request", "");
        } else {
            hang_up(fd, true);
        }
    }
    CHECK(f->closed == closed + 1 && !f->n_held, "an incomplete request reaches nobody");
}
/* A relay as port forwarders are: each direction until its end, which is passed on. */
struct relay { int from, to; pthread_t thread; };

static void *relay(void *arg)
{
    struct relay *r = arg;
    char bytes[1000];
    ssize_t n;
    while ((n = recv(r->from, bytes, sizeof bytes, 0)) > 0 && put_bytes(r->to, bytes, (size_t)n))
        ;
    shutdown(r->to, SHUT_WR);
    shutdown(r->from, SHUT_RD);
    return NULL;
}

/* A client that closes behind a relay. */
static void test_relayed_close(struct fixture *f)
{
    for (int streams = 0; streams < 2; streams++) {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t length = sizeof a;
        int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), closed = f->closed;
        if (bind(listener, (struct sockaddr *)&a, sizeof a) || listen(listener, 1) || getsockname(listener, (struct sockaddr *)&a, &length))
            abort();
        int fd = connect_to("127.0.0.1", ntohs(a.sin_port)), front = accept(listener, NULL, NULL), back = client(f);
        struct relay ways[2] = {{.from = front, .to = back}, {.from = back, .to = front}};
        for (int i = 0; i < 2; i++)
            if (pthread_create(&ways[i].thread, NULL, relay, &ways[i]))
                abort();
        put(fd, "GET /hold HTTP/1.1\r\n" H "\r\n");
        struct http_request *r = take_held(f);
        if (streams) {
            http_begin(r, 200, "text/plain", NULL, 0);
            expect_next(fd, "a relayed head", PLAIN_HEAD, "\r\n\r\n");
        }
        close(fd);
        pthread_join(ways[1].thread, NULL); /* found by writing to the client */
        pthread_join(ways[0].thread, NULL);
        close(front);
        close(back);
        close(listener);
        await(f, &f->closed, closed + 1);
        http_release(r);
    }
}

struct slow { struct fixture *f; int entered, left; };

static void slow_on_close(void *arg)
{
    struct slow *slow = arg;
    signal_change(slow->f, &slow->entered);
    usleep(50000);
    slow->left = 1;
}

struct late_setting { struct fixture *f; struct http_request *r; };

static void set_late(void *arg)
{
    struct late_setting *late = arg;
    http_on_close(late->r, on_close, late->f);
}

/* http_release comes back only when on_close has: what it works on can be freed then. */
static void test_release_waits(struct fixture *f)
{
    struct slow *slow = malloc(sizeof *slow);
    *slow = (struct slow){.f = f};
    int fd = client(f);
    f->on_close = slow_on_close;
    f->on_close_arg = slow;
    put(fd, "GET /hold HTTP/1.1\r\n" H "\r\n");
    struct http_request *r = take_held(f);
    hang_up(fd, true);
    await(f, &slow->entered, 1);
    http_release(r);
    CHECK(slow->left == 1, "released while on_close is running");
    free(slow);
    /* Set when the client is gone already: called at once. */
    int closed = f->closed;
    f->on_close = NULL;
    fd = client(f);
    put(fd, "GET /hold HTTP/1.1\r\n" H "\r\n");
    struct late_setting late = {f, take_held(f)};
    hang_up(fd, true);
    while (http_send(late.r, "x", 1) != SKUA_ECANCELED)
        usleep(1000);
    CHECK(!http_server_call(f->server, set_late, &late), "calling");
    await(f, &f->closed, closed + 1);
    http_release(late.r);
    /* Released before: not called at all. */
    closed = f->closed;
    f->on_close = on_close;
    f->on_close_arg = f;
    fd = client(f);
    put(fd, "GET /hold HTTP/1.1\r\n" H "\r\n");
    http_release(take_held(f));
    hang_up(fd, true);
    exchange(f, "GET /echo HTTP/1.0\r\n\r\n", TEXT_HEAD "Content-Length: 14\r\nConnection: close\r\n\r\nGET /echo ? 0:");
    CHECK(f->closed == closed, "on_close after the release");
}

int main(void)
{
    struct fixture f;
    start(&f, (struct http_params){.max_head_bytes = 1000, .max_header_fields = 6, .max_body_bytes = 100});
    test_answers(&f);
    test_persistence(&f);
    test_continue(&f);
    test_refusals(&f);
    test_refusal_of_upload(&f);
    test_request_ids(&f);
    test_request(&f);
    test_half_close(&f);
    test_close(&f);
    test_relayed_close(&f);
    test_release_waits(&f);
    stop(&f);
    return support_finish("test_http_server");
}
