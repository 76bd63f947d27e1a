/* Requests and their answers: what other threads call; see http.h. Everything that leaves is put together in the caller's thread and
 * reaches the connection through request.out. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "http/http_internal.h"

/* ---- life ---- */

struct http_request *http_request_new(struct http_conn *c)
{
    struct http_request *r = mem_calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->server = c->server;
    r->conn = c;
    r->refs = 1;
    memcpy(r->peer, c->peer, sizeof r->peer);
    http_parser_init(&r->parser, &c->server->limits);
    return r;
}

/* Under the lock: is this the last one? */
static bool drop_reference(struct http_request *r) { return --r->refs == 0; }

static void destroy(struct http_request *r)
{
    r->server->body_bytes -= r->counted;
    http_parser_free(&r->parser);
    strbuf_free(&r->out);
    mem_free(r);
}

void http_request_unref(struct http_request *r)
{
    struct http_server *s = r->server;
    pthread_mutex_lock(&s->lock);
    bool last = drop_reference(r);
    pthread_mutex_unlock(&s->lock);
    if (last)
        destroy(r);
}

/* "req_" and 24 characters that nobody can guess. */
static void make_id(char *out)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    unsigned char bytes[32];
    size_t n = 4;
    memcpy(out, "req_", 4);
    while (n < 28) {
        ssize_t got = getrandom(bytes, sizeof bytes, 0);
        for (ssize_t i = 0; i < got && n < 28; i++)
            if (bytes[i] < 4 * 62) /* so that all are equally likely */
                out[n++] = alphabet[bytes[i] % 62];
    }
    out[n] = '\0';
}

void http_request_prepare(struct http_request *r)
{
    const char *id = http_parser_field(&r->parser, "x-request-id", NULL);
    size_t n = id ? strlen(id) : 0, printable = 0;
    while (printable < n && id[printable] >= 0x20 && id[printable] < 0x7f)
        printable++;
    if (n && n <= 128 && printable == n)
        memcpy(r->id, id, n + 1);
    else
        make_id(r->id);
    r->received = clock_seconds();
    r->head_only = !strcmp(http_parser_method(&r->parser), "HEAD");
}

/* ---- what a request says ---- */

const char *http_method(const struct http_request *r) { return http_parser_method(&r->parser); }
const char *http_path(const struct http_request *r) { return http_parser_path(&r->parser); }
const char *http_raw_path(const struct http_request *r) { return http_parser_raw_path(&r->parser); }
const char *http_query(const struct http_request *r) { return http_parser_query(&r->parser); }
const char *http_peer(const struct http_request *r) { return r->peer; }
const char *http_request_id(const struct http_request *r) { return r->id; }
double http_received(const struct http_request *r) { return r->received; }

const char *http_header(const struct http_request *r, const char *name) { return http_parser_field(&r->parser, name, NULL); }

const char *http_body(const struct http_request *r, size_t *n)
{
    *n = r->parser.body.len;
    return strbuf_str(&r->parser.body);
}

/* ---- heads ---- */

static const char *reason(int status)
{
    static const struct { int status; const char *text; } known[] = {
        {200, "OK"}, {201, "Created"}, {202, "Accepted"}, {204, "No Content"}, {301, "Moved Permanently"}, {302, "Found"},
        {304, "Not Modified"}, {307, "Temporary Redirect"}, {308, "Permanent Redirect"}, {400, "Bad Request"}, {401, "Unauthorized"},
        {403, "Forbidden"}, {404, "Not Found"}, {405, "Method Not Allowed"}, {406, "Not Acceptable"}, {408, "Request Timeout"},
        {409, "Conflict"}, {411, "Length Required"}, {413, "Content Too Large"}, {415, "Unsupported Media Type"},
        {417, "Expectation Failed"}, {422, "Unprocessable Content"}, {426, "Upgrade Required"},
        {429, "Too Many Requests"}, {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"}, {501, "Not Implemented"}, {503, "Service Unavailable"}, {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"}, {529, "Overloaded"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].status == status)
            return known[i].text;
    return status < 400 ? "OK" : "Error";
}

/* RFC 9110, 5.6.7; not strftime, whose names depend on the locale. */
static void put_date(struct strbuf *b)
{
    static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    time_t now = time(NULL);
    struct tm t;
    gmtime_r(&now, &t);
    strbuf_printf(b, "Date: %.3s, %02d %.3s %d %02d:%02d:%02d GMT\r\n", days + 3 * t.tm_wday, t.tm_mday, months + 3 * t.tm_mon,
                  t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
}

/* The server's own; an answer's extra fields cannot replace them. */
static bool is_own_field(const char *name)
{
    static const char *const own[] = {"connection", "content-length", "date", "server", "transfer-encoding", "x-request-id"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strcasecmp(name, own[i]))
            return true;
    return false;
}

/* A field; what would break it, or begin another one, becomes a blank. */
static void put_field(struct strbuf *b, const char *name, const char *value)
{
    strbuf_printf(b, "%s: ", name);
    for (; *value; value++)
        strbuf_putc(b, (unsigned char)*value < 0x20 || *value == 0x7f ? ' ' : *value);
    strbuf_puts(b, "\r\n");
}

struct head {
    int status;
    const char *content_type; /* NULL: application/json unless extra has one */
    const struct http_header *extra;
    size_t n_extra;
    bool streamed, chunked, close;
    size_t length;            /* of an answer that is not streamed */
};

static void put_head(struct strbuf *b, const struct http_request *r, const struct head *h)
{
    bool bodyless = h->status == 204 || h->status == 304;
    const char *type = h->content_type ? h->content_type : "application/json; charset=utf-8";
    strbuf_printf(b, "HTTP/1.1 %d %s\r\n", h->status, reason(h->status));
    put_date(b);
    put_field(b, "Server", r->server->name);
    put_field(b, "x-request-id", r->id);
    for (size_t i = 0; i < h->n_extra; i++) {
        if (is_own_field(h->extra[i].name))
            continue;
        if (!strcasecmp(h->extra[i].name, "content-type")) {
            if (h->content_type)
                continue;
            type = NULL;
        }
        put_field(b, h->extra[i].name, h->extra[i].value);
    }
    if (type && !bodyless)
        put_field(b, "Content-Type", type);
    if (!h->streamed && !bodyless)
        strbuf_printf(b, "Content-Length: %zu\r\n", h->length);
    if (h->chunked)
        strbuf_puts(b, "Transfer-Encoding: chunked\r\n");
    if (h->close)
        strbuf_puts(b, "Connection: close\r\n");
    strbuf_puts(b, "\r\n");
}

/* ---- answers ---- */

/* Under the lock: the connection is to look at this request. True: the socket thread must be woken. */
static bool put_into_outbox(struct http_request *r)
{
    struct http_server *s = r->server;
    if (r->gone || r->in_outbox)
        return false;
    r->in_outbox = true;
    r->refs++;
    r->next = s->outbox;
    s->outbox = r;
    return !r->next; /* else whoever put that one there wakes it */
}

/* Under the lock: bytes for the connection; a piece that finds no memory breaks the answer. */
static void put_out(struct http_request *r, const void *data, size_t n)
{
    size_t before = r->out.len;
    strbuf_append(&r->out, data, n);
    r->broken |= r->out.failed;
    r->unsent += r->out.len - before;
    r->server->pending_bytes += r->out.len - before;
}

static void unlock_and_wake(struct http_server *s, bool wake)
{
    pthread_mutex_unlock(&s->lock);
    if (wake)
        http_server_wake(s);
}

/* The right to answer is given once. */
static bool begin_answer(struct http_request *r)
{
    pthread_mutex_lock(&r->server->lock);
    bool mine = r->answer == HTTP_UNANSWERED;
    if (mine) {
        r->answer = HTTP_ANSWERING;
        r->close = !r->parser.keep_alive || r->server->draining;
    }
    pthread_mutex_unlock(&r->server->lock);
    return mine;
}

void http_respond(struct http_request *r, int status, const struct http_header *extra, size_t n_extra, const void *body, size_t n)
{
    if (!begin_answer(r))
        return;
    struct strbuf head = {0};
    bool bodyless = r->head_only || status == 204 || status == 304;
    put_head(&head, r, &(struct head){.status = status, .extra = extra, .n_extra = n_extra, .close = r->close, .length = n});
    pthread_mutex_lock(&r->server->lock);
    r->broken |= head.failed;
    if (!r->gone) {
        put_out(r, strbuf_str(&head), head.len);
        put_out(r, body, bodyless ? 0 : n);
    }
    r->answer = HTTP_ANSWERED;
    unlock_and_wake(r->server, put_into_outbox(r));
    strbuf_free(&head);
}

void http_begin(struct http_request *r, int status, const char *content_type, const struct http_header *extra, size_t n_extra)
{
    if (!begin_answer(r))
        return;
    struct strbuf head = {0};
    bool chunked = r->parser.minor > 0;
    put_head(&head, r, &(struct head){.status = status, .content_type = content_type, .extra = extra, .n_extra = n_extra, .streamed = true,
                                      .chunked = chunked, .close = r->close});
    pthread_mutex_lock(&r->server->lock);
    r->broken |= head.failed;
    if (!r->gone)
        put_out(r, strbuf_str(&head), head.len);
    r->chunked = chunked && !r->head_only;
    unlock_and_wake(r->server, put_into_outbox(r));
    strbuf_free(&head);
}

int http_send(struct http_request *r, const void *data, size_t n)
{
    struct http_server *s = r->server;
    char size[24];
    int rc = 0;
    bool wake = false;
    pthread_mutex_lock(&s->lock);
    if (r->gone) {
        rc = SKUA_ECANCELED;
    } else if (r->answer != HTTP_ANSWERING) {
        rc = SKUA_ESTATE;
    } else if (r->unsent && (r->unsent >= s->params.max_pending_bytes || n > s->params.max_pending_bytes - r->unsent)) {
        rc = SKUA_ELIMIT;
    } else if (n && !r->head_only) { /* no bytes: that chunk would be the last */
        if (r->chunked)
            put_out(r, size, (size_t)snprintf(size, sizeof size, "%zx\r\n", n));
        put_out(r, data, n);
        if (r->chunked)
            put_out(r, "\r\n", 2);
        rc = r->broken ? SKUA_ENOMEM : 0;
        wake = put_into_outbox(r);
    }
    unlock_and_wake(s, wake);
    return rc;
}

void http_end(struct http_request *r, bool complete)
{
    struct http_server *s = r->server;
    bool wake = false;
    pthread_mutex_lock(&s->lock);
    if (r->answer == HTTP_ANSWERING) {
        if (complete && r->chunked && !r->gone)
            put_out(r, "0\r\n\r\n", 5);
        r->close |= !complete;
        r->answer = HTTP_ANSWERED;
        wake = put_into_outbox(r);
    }
    unlock_and_wake(s, wake);
}

bool http_began(const struct http_request *r)
{
    pthread_mutex_lock(&r->server->lock);
    bool began = r->answer != HTTP_UNANSWERED;
    pthread_mutex_unlock(&r->server->lock);
    return began;
}

void http_on_close(struct http_request *r, void (*fn)(void *arg), void *arg)
{
    pthread_mutex_lock(&r->server->lock);
    bool late = r->gone && r->answer != HTTP_ANSWERED;
    r->on_close = late ? NULL : fn;
    r->on_close_arg = arg;
    pthread_mutex_unlock(&r->server->lock);
    if (late && fn)
        fn(arg);
}

/* ---- the server's own answers ---- */

static void respond_error(struct http_request *r, int status, const char *code, const char *message)
{
    /* Clients repeat requests at 5xx; these would fail again. */
    static const struct http_header no_retry = {"x-should-retry", "false"}, later = {"retry-after", "1"};
    const struct http_params *p = &r->server->params;
    size_t n = 0;
    char *body = p->error_body(p->user, http_path(r), status, code, message, r->id, &n);
    http_respond(r, status, status == 503 ? &later : &no_retry, status == 501 || status == 503 || status == 505, body, body ? n : 0);
    mem_free(body);
}

void http_refuse(struct http_request *r, int status, const char *code, const char *message)
{
    r->parser.keep_alive = false; /* where the next request begins is not known */
    respond_error(r, status, code, message);
}

void http_release(struct http_request *r)
{
    struct http_server *s = r->server;
    if (!http_began(r))
        respond_error(r, 500, "internal_error", "the request was not answered");
    http_end(r, false);
    pthread_mutex_lock(&s->lock);
    r->on_close = NULL;
    while (r->closing && !pthread_equal(s->thread, pthread_self()))
        pthread_cond_wait(&s->closed, &s->lock);
    bool last = drop_reference(r);
    pthread_mutex_unlock(&s->lock);
    if (last)
        destroy(r);
}

void http_send_interim(struct http_request *r)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    pthread_mutex_lock(&r->server->lock);
    if (r->answer == HTTP_UNANSWERED && r->parser.minor)
        put_out(r, text, sizeof text - 1);
    pthread_mutex_unlock(&r->server->lock);
}

void http_send_probe(struct http_request *r)
{
    http_send_interim(r);
    pthread_mutex_lock(&r->server->lock);
    if (r->answer == HTTP_ANSWERING && r->chunked)
        put_out(r, "0", 1); /* leads the size of the next chunk */
    pthread_mutex_unlock(&r->server->lock);
}
