/* The HTTP request parser: every request of a table, whole, cut at every byte and byte by byte, gives the same request or the same
 * refusal, and reads exactly its own bytes; limits to the byte; every allocation failing. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "http/http_parse.h"
#include "support/support.h"

static const struct http_limits limits = {.max_head_bytes = 300, .max_fields = 5, .max_body_bytes = 20};

struct sample {
    const char *in;
    int status;         /* 0: accepted */
    const char *expect; /* accepted: method, raw path, path, query, minor, flags, body; refused: code: message */
    const char *rest;   /* what is left of in */
};

#define H "Host: h\r\n"
#define GET "GET / HTTP/1.1\r\n" H
#define POST "POST / HTTP/1.1\r\n" H
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

static const struct sample samples[] = {
    /* requests */
    {GET "\r\n", 0, "GET / / '' 1 k ''", ""},
    {"GET / HTTP/1.1\nHost: h\n\n", 0, "GET / / '' 1 k ''", ""},
    {"\r\n\n\r\nGET /a?b?c=d HTTP/1.1\r\nhOSt:h \t \r\n\r\nGET", 0, "GET /a /a 'b?c=d' 1 k ''", "GET"},
    {"GET /v1/models/ HTTP/1.1\r\n" H "\r\n", 0, "GET /v1/models/ /v1/models '' 1 k ''", ""},
    {"GET // HTTP/1.1\r\n" H "\r\n", 0, "GET // / '' 1 k ''", ""},
    {"GET /%41%c3%A9%2f%2F?%41 HTTP/1.1\r\n" H "\r\n", 0, "GET /%41%c3%A9%2f%2F /A\xc3\xa9/ '%41' 1 k ''", ""},
    {"GET /? HTTP/1.1\r\n" H "\r\n", 0, "GET / / '' 1 k ''", ""},
    {"GET http://h:80/x/?q HTTP/1.1\r\n" H "\r\n", 0, "GET /x/ /x 'q' 1 k ''", ""},
    {"GET HTTPS://h?q HTTP/1.1\r\n" H "\r\n", 0, "GET / / 'q' 1 k ''", ""},
    {"GET http://h HTTP/1.1\r\n" H "\r\n", 0, "GET / / '' 1 k ''", ""},
    {"OPTIONS * HTTP/1.1\r\n" H "\r\n", 0, "OPTIONS * * '' 1 k ''", ""},
    {"GET / HTTP/1.0\r\n\r\n", 0, "GET / / '' 0  ''", ""},
    {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 0, "GET / / '' 0  ''", ""},
    {"GET / HTTP/1.9\r\n" H "\r\n", 0, "GET / / '' 1 k ''", ""},
    {GET "Connection: Close\r\n\r\n", 0, "GET / / '' 1  ''", ""},
    {GET "Connection: foo , close,\r\n\r\n", 0, "GET / / '' 1  ''", ""},
    {GET "Connection: closed\r\nConnection: x\r\n\r\n", 0, "GET / / '' 1 k ''", ""},
    {GET "Connection: x\r\nConnection: close\r\n\r\n", 0, "GET / / '' 1  ''", ""},
    {GET "A:\r\nB: \t\r\nC: x\ty \xff\r\n\r\n", 0, "GET / / '' 1 k ''", ""},
    /* lengths */
    {POST "Content-Length: 3\r\n\r\nabcdef", 0, "POST / / '' 1 k 'abc'", "def"},
    {POST "Content-Length: 0\r\n\r\nabc", 0, "POST / / '' 1 k ''", "abc"},
    {POST "Content-Length: 03\r\nContent-Length: 3\r\n\r\nabc", 0, "POST / / '' 1 k 'abc'", ""},
    {GET "Content-Length: 3\r\n\r\nabcd", 0, "GET / / '' 1 k 'abc'", "d"},
    {"POST / HTTP/1.0\r\nContent-Length: 1\r\n\r\na", 0, "POST / / '' 0  'a'", ""},
    {POST "Content-Length: 20\r\n\r\n12345678901234567890", 0, "POST / / '' 1 k '12345678901234567890'", ""},
    {POST "Expect: 100-Continue\r\nContent-Length: 2\r\n\r\nab", 0, "POST / / '' 1 ek 'ab'", ""},
    {POST "Expect: 100-continue\r\nContent-Length: 0\r\n\r\n", 0, "POST / / '' 1 k ''", ""},
    {"POST / HTTP/1.0\r\nExpect: anything\r\nContent-Length: 1\r\n\r\na", 0, "POST / / '' 0  'a'", ""},
    {POST "Content-Encoding: Identity\r\nContent-Length: 1\r\n\r\na", 0, "POST / / '' 1 k 'a'", ""},
    {"DELETE /x HTTP/1.1\r\n" H "\r\n", 0, "DELETE /x /x '' 1 k ''", ""},
    /* the chunked coding */
    {CHUNKED "0\r\n\r\nX", 0, "POST / / '' 1 ck ''", "X"},
    {CHUNKED "3\r\nabc\r\n0A;x=\"y\"\r\n0123456789\r\n00\r\n\r\n", 0, "POST / / '' 1 ck 'abc0123456789'", ""},
    {CHUNKED "1 \r\na\r\n0\r\nT: v\r\nU: w\r\n\r\nGET", 0, "POST / / '' 1 ck 'a'", "GET"},
    {CHUNKED "14\r\n12345678901234567890\r\n0000000000000000\r\n\r\n", 0, "POST / / '' 1 ck '12345678901234567890'", ""},
    {POST "Transfer-Encoding: CHUNKED\r\nExpect: 100-continue\r\n\r\n0\r\n\r\n", 0, "POST / / '' 1 cek ''", ""},
    /* refusals: the request line */
    {"\x16\x03\x01", 400, "bad_request: the first line is not an HTTP request line", "\x03\x01"},
    {" GET", 400, "bad_request: the first line is not an HTTP request line", "GET"},
    {"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456", 400, "bad_request: the first line is not an HTTP request line", ""},
    {"GET\r", 400, "bad_request: the first line is not an HTTP request line", ""},
    {"GET  ", 400, "bad_request: the request line is not METHOD TARGET HTTP/1.1", ""},
    {"GET /\r", 400, "bad_request: the request line is not METHOD TARGET HTTP/1.1", ""},
    {"GET /\x7f", 400, "bad_request: the request line is not METHOD TARGET HTTP/1.1", ""},
    {"GET / http", 400, "bad_request: the request line does not end in an HTTP version", "ttp"},
    {"GET / HTTP/1.x", 400, "bad_request: the request line does not end in an HTTP version", ""},
    {"GET / HTTP/1.1 ", 400, "bad_request: the request line does not end in an HTTP version", ""},
    {"GET / HTTP/1.1\r\r", 400, "bad_request: the request line does not end in an HTTP version", ""},
    {"GET / HTTP/1.12", 400, "bad_request: the request line does not end in an HTTP version", ""},
    {"PRI * HTTP/2.0\r\n", 505, "http_version_not_supported: HTTP version 2 is not supported; HTTP/1.1 is", ".0\r\n"},
    {"GET * HTTP/1.1\r\n", 400, "bad_request: the request target is not a path", ""},
    {"GET x HTTP/1.1\r\n", 400, "bad_request: the request target is not a path", ""},
    {"CONNECT h:80 HTTP/1.1\r\n", 400, "bad_request: the request target is not a path", ""},
    {"GET /#x HTTP/1.1\r\n", 400, "bad_request: the request target is not a path", ""},
    {"GET /%4 HTTP/1.1\r\n", 400, "bad_request: the path is not percent-encoded UTF-8", ""},
    {"GET /% HTTP/1.1\r\n", 400, "bad_request: the path is not percent-encoded UTF-8", ""},
    {"GET /%4g HTTP/1.1\r\n", 400, "bad_request: the path is not percent-encoded UTF-8", ""},
    {"GET /%00 HTTP/1.1\r\n", 400, "bad_request: the path is not percent-encoded UTF-8", ""},
    {"GET /%0a HTTP/1.1\r\n", 400, "bad_request: the path is not percent-encoded UTF-8", ""},
    {"GET /%ff HTTP/1.1\r\n", 400, "bad_request: the path is not percent-encoded UTF-8", ""},
    {"GET /\xc3 HTTP/1.1\r\n", 400, "bad_request: the path is not percent-encoded UTF-8", ""},
    /* fields */
    {"GET / HTTP/1.1\r\n x", 400, "bad_request: a header line is not NAME: VALUE", "x"},
    {"GET / HTTP/1.1\r\n:", 400, "bad_request: a header line is not NAME: VALUE", ""},
    {GET " folded: x\r\n", 400, "bad_request: a header line is not NAME: VALUE", "folded: x\r\n"},
    {"GET / HTTP/1.1\r\nHost : h\r\n", 400, "bad_request: a header line is not NAME: VALUE", ": h\r\n"},
    {"GET / HTTP/1.1\r\nHost\r\n", 400, "bad_request: a header line is not NAME: VALUE", "\n"},
    {"GET / HTTP/1.1\r\nA: b\rc", 400, "bad_request: a carriage return without a line feed", ""},
    {GET "\rx", 400, "bad_request: a carriage return without a line feed", ""},
    {"GET / HTTP/1.1\r\nA: b\x01", 400, "bad_request: a header field has a control character", ""},
    {"GET / HTTP/1.1\r\nA:\x7f", 400, "bad_request: a header field has a control character", ""},
    {"GET / HTTP/1.1\r\n\r\n", 400, "bad_request: exactly one Host field was expected", ""},
    {GET H "\r\n", 400, "bad_request: exactly one Host field was expected", ""},
    {"GET / HTTP/1.0\r\n" H H "\r\n", 400, "bad_request: exactly one Host field was expected", ""},
    {GET "A:\r\nB:\r\nC:\r\nD:\r\nE:\r\n\r\n", 431, "headers_too_large: there are more than 5 header fields", ":\r\n\r\n"},
    /* lengths */
    {POST "\r\n", 411, "length_required: POST needs a Content-Length (0 without a body) or the chunked coding", ""},
    {"PUT / HTTP/1.0\r\n\r\n", 411, "length_required: PUT needs a Content-Length (0 without a body) or the chunked coding", ""},
    {"PATCH / HTTP/1.1\r\n" H "\r\n", 411, "length_required: PATCH needs a Content-Length (0 without a body) or the chunked coding", ""},
    {POST "Content-Length: 21\r\n\r\n", 413, "request_too_large: the request body is too large; at most 20 bytes are accepted", ""},
    {POST "Content-Length: 18446744073709551616\r\n\r\n", 413,
     "request_too_large: the request body is too large; at most 20 bytes are accepted", ""},
    {POST "Content-Length: 99999999999999999999999999999999\r\n\r\n", 413,
     "request_too_large: the request body is too large; at most 20 bytes are accepted", ""},
    {POST "Content-Length:\r\n\r\n", 400, "bad_request: Content-Length is ''; a number of bytes was expected", ""},
    {POST "Content-Length: -1\r\n\r\n", 400, "bad_request: Content-Length is '-1'; a number of bytes was expected", ""},
    {POST "Content-Length: +1\r\n\r\n", 400, "bad_request: Content-Length is '+1'; a number of bytes was expected", ""},
    {POST "Content-Length: 1, 1\r\n\r\n", 400, "bad_request: Content-Length is '1, 1'; a number of bytes was expected", ""},
    {POST "Content-Length: 0x1\r\n\r\n", 400, "bad_request: Content-Length is '0x1'; a number of bytes was expected", ""},
    {POST "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, "bad_request: there are Content-Length fields that differ", ""},
    {POST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400,
     "bad_request: there are both Content-Length and Transfer-Encoding", ""},
    {POST "Transfer-Encoding: gzip\r\n\r\n", 501,
     "unsupported_transfer_encoding: Transfer-Encoding is 'gzip'; only chunked is supported", ""},
    {POST "Transfer-Encoding: gzip, chunked\r\n\r\n", 501,
     "unsupported_transfer_encoding: Transfer-Encoding is 'gzip, chunked'; only chunked is supported", ""},
    {POST "Transfer-Encoding: chunked, chunked\r\n\r\n", 400, "bad_request: the body is chunked more than once", ""},
    {POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "bad_request: the body is chunked more than once", ""},
    {POST "Transfer-Encoding: xchunked\r\n\r\n", 501,
     "unsupported_transfer_encoding: Transfer-Encoding is 'xchunked'; only chunked is supported", ""},
    {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "bad_request: HTTP/1.0 knows no Transfer-Encoding", ""},
    {POST "Expect: x\r\nContent-Length: 1\r\n\r\n", 417, "expectation_failed: Expect is 'x'; only 100-continue is known", ""},
    {POST "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\n", 415,
     "unsupported_media_type: Content-Encoding is 'gzip'; only identity is supported", ""},
    {POST "Content-Encoding: identity, br\r\nContent-Length: 1\r\n\r\n", 415,
     "unsupported_media_type: Content-Encoding is 'identity, br'; only identity is supported", ""},
    /* the chunked coding */
    {CHUNKED "\r\n", 400, "bad_request: the chunked coding is broken", "\n"},
    {CHUNKED "x", 400, "bad_request: the chunked coding is broken", ""},
    {CHUNKED "-1", 400, "bad_request: the chunked coding is broken", "1"},
    {CHUNKED ";", 400, "bad_request: the chunked coding is broken", ""},
    {CHUNKED "1\n", 400, "bad_request: the chunked coding is broken", ""},
    {CHUNKED "1\rx", 400, "bad_request: the chunked coding is broken", ""},
    {CHUNKED "1;\x01", 400, "bad_request: the chunked coding is broken", ""},
    {CHUNKED "1\r\nab", 400, "bad_request: the chunked coding is broken", ""},
    {CHUNKED "1\r\na\rx", 400, "bad_request: the chunked coding is broken", ""},
    {CHUNKED "0\r\n\rx", 400, "bad_request: the chunked coding is broken", ""},
    {CHUNKED "0\r\nT: v\n", 400, "bad_request: the chunked coding is broken", ""},
    {CHUNKED "0\r\nT: v\rx", 400, "bad_request: the chunked coding is broken", ""},
    {CHUNKED "00000000000000000", 400, "bad_request: the chunked coding is broken", ""},
    {CHUNKED "15", 413, "request_too_large: the request body is too large; at most 20 bytes are accepted", ""},
    {CHUNKED "14\r\n12345678901234567890\r\n1", 413, "request_too_large: the request body is too large; at most 20 bytes are accepted", ""},
    {CHUNKED "FFFFFFFFFFFFFFFF", 413, "request_too_large: the request body is too large; at most 20 bytes are accepted",
     "FFFFFFFFFFFFFF"},
};

static void describe(const struct http_parser *p, char *out, size_t n)
{
    if (p->status == HTTP_PARSE_FAILED)
        snprintf(out, n, "%s: %s", p->error_code, p->message);
    else
        snprintf(out, n, "%s %s %s '%s' %d %s%s%s '%s'", http_parser_method(p), http_parser_raw_path(p), http_parser_path(p),
                 http_parser_query(p), p->minor, p->chunked ? "c" : "", p->expect_continue ? "e" : "", p->keep_alive ? "k" : "",
                 strbuf_str(&p->body));
}

/* Feed in with cuts before a and b (step 1: before every byte), each piece in memory of its own size. */
static size_t feed_cut(struct http_parser *p, const char *in, size_t n, size_t a, size_t b, bool each)
{
    size_t done = 0;
    while (done < n && p->status == HTTP_PARSE_MORE) {
        size_t end = each ? done + 1 : done < a ? a : done < b ? b : n;
        char *piece = malloc(end - done);
        memcpy(piece, in + done, end - done);
        size_t used = http_parser_feed(p, piece, end - done);
        CHECK(p->status != HTTP_PARSE_MORE || used == end - done, "'%s': %zu of %zu bytes used, and more wanted", in, used, end - done);
        done += used;
        free(piece);
    }
    return done;
}

static void check_sample(const struct sample *s, size_t a, size_t b, bool each)
{
    struct http_parser p;
    char text[400];
    size_t n = strlen(s->in);
    http_parser_init(&p, &limits);
    size_t used = feed_cut(&p, s->in, n, a, b, each);
    describe(&p, text, sizeof text);
    CHECK(p.status == (s->status ? HTTP_PARSE_FAILED : HTTP_PARSE_DONE), "'%s' cut at %zu, %zu: status %d", s->in, a, b, (int)p.status);
    CHECK(p.error_status == s->status && !strcmp(text, s->expect), "'%s' cut at %zu, %zu: %d '%s'", s->in, a, b, p.error_status, text);
    CHECK(!strcmp(s->in + used, s->rest), "'%s' cut at %zu, %zu: '%s' is left", s->in, a, b, s->in + used);
    http_parser_free(&p);
}

static void test_samples(void)
{
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        size_t n = strlen(samples[i].in);
        check_sample(&samples[i], 0, 0, true);
        for (size_t a = 0; a <= n; a++)
            check_sample(&samples[i], a, a + 1 + a % 7 < n ? a + 1 + a % 7 : n, false);
    }
}

/* Before its last byte no accepted request is complete, and none is refused. */
static void test_prefixes(void)
{
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        const struct sample *s = &samples[i];
        size_t n = strlen(s->in) - strlen(s->rest);
        struct http_parser p;
        http_parser_init(&p, &limits);
        CHECK(http_parser_feed(&p, s->in, n - 1) == n - 1 && p.status == HTTP_PARSE_MORE, "'%s': decided before byte %zu", s->in, n);
        http_parser_free(&p);
    }
}

/* Limits of the head and of what surrounds chunks: one byte less is accepted. */
static void test_limits(void)
{
    for (int kind = 0; kind < 3; kind++) {
        for (size_t over = 0; over < 2; over++) {
            struct http_parser p;
            char in[1000], filler[400];
            memset(filler, 'x', sizeof filler);
            http_parser_init(&p, &limits);
            if (kind == 0) /* a long value, a long path */
                snprintf(in, sizeof in, "GET / HTTP/1.1\r\nHost: %.*s\r\n\r\n", (int)(limits.max_head_bytes - 26 + over), filler);
            else if (kind == 1)
                snprintf(in, sizeof in, "GET /%.*s HTTP/1.1\r\nHost: \r\n\r\n", (int)(limits.max_head_bytes - 26 + over), filler);
            else
                snprintf(in, sizeof in, CHUNKED "0;%.*s\r\nT%.*s\r\n\r\n", 100, filler, (int)(limits.max_head_bytes - 101 + over), filler);
            http_parser_feed(&p, in, strlen(in));
            CHECK(p.status == (over ? HTTP_PARSE_FAILED : HTTP_PARSE_DONE), "limit %d, %zu over: %d %s", kind, over, p.status, p.message);
            CHECK(p.error_status == (over ? 431 : 0), "limit %d, %zu over: status %d", kind, over, p.error_status);
            http_parser_free(&p);
        }
    }
}

static void test_fields(void)
{
    static const char in[] = "GET / HTTP/1.1\r\nHost: h\r\nX-A:\r\nx-b:  one two \r\nX-B: three\r\n\r\n";
    struct http_parser p;
    http_parser_init(&p, &limits);
    CHECK(!http_parser_field(&p, "host", NULL) && !http_parser_begun(&p), "a field before any byte");
    http_parser_feed(&p, "\r\n", 2);
    CHECK(!http_parser_begun(&p), "blank lines begin a request");
    http_parser_feed(&p, in, 28);
    CHECK(http_parser_begun(&p) && !http_parser_field(&p, "x-a", NULL), "a field that is cut off in its name");
    http_parser_feed(&p, in + 28, sizeof in - 29);
    const char *b = http_parser_field(&p, "X-b", NULL);
    CHECK(!strcmp(http_parser_field(&p, "HOST", NULL), "h"), "any case");
    CHECK(!strcmp(http_parser_field(&p, "x-a", NULL), ""), "an empty value");
    CHECK(b && !strcmp(b, "one two"), "blanks around a value");
    b = http_parser_field(&p, "x-b", b);
    CHECK(b && !strcmp(b, "three") && !http_parser_field(&p, "x-b", b), "the next one");
    CHECK(!http_parser_field(&p, "h", NULL) && !http_parser_field(&p, "one", NULL) && !http_parser_field(&p, "x", NULL), "names are whole");
    http_parser_free(&p);
}

/* A body beyond what a string holds, in uneven pieces: chunk by chunk the same bytes. */
static void test_large_body(void)
{
    static const struct http_limits large = {.max_head_bytes = 1000, .max_fields = 5, .max_body_bytes = 1 << 20};
    struct strbuf in = {0}, body = {0};
    struct http_parser p;
    strbuf_puts(&in, CHUNKED);
    for (size_t i = 0; body.len + i <= large.max_body_bytes; i += 1 + i / 3) {
        if (i)
            strbuf_printf(&in, "%zX\r\n", i);
        for (size_t k = 0; k < i; k++) {
            strbuf_putc(&in, (char)(k * 7 + i));
            strbuf_putc(&body, (char)(k * 7 + i));
        }
        strbuf_puts(&in, i ? "\r\n" : "");
    }
    strbuf_puts(&in, "0\r\n\r\n");
    http_parser_init(&p, &large);
    for (size_t at = 0, step = 1; at < in.len; at += step, step = step * 5 % 4099)
        http_parser_feed(&p, in.data + at, at + step < in.len ? step : in.len - at);
    CHECK(p.status == HTTP_PARSE_DONE && p.body.len == body.len && !memcmp(p.body.data, body.data, body.len), "a large chunked body");
    http_parser_free(&p);
    strbuf_free(&in);
    strbuf_free(&body);
}

/* The N-th allocation fails: 503, nothing left behind. */
static void test_memory(void)
{
    static const char in[] =
        "POST /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/%41?bbbbbbbbbbbbbb HTTP/1.1\r\n"
        H "Transfer-Encoding: chunked\r\n\r\n14\r\n12345678901234567890\r\n0\r\n\r\n";
    size_t live = mem_live_blocks();
    for (uint64_t n = 1;; n++) {
        struct http_parser p;
        http_parser_init(&p, &limits);
        fault_set_alloc(n, true);
        feed_cut(&p, in, sizeof in - 1, 0, 0, true);
        bool hit = fault_alloc_count() >= n;
        fault_set_alloc(0, false);
        CHECK(p.status == (hit ? HTTP_PARSE_FAILED : HTTP_PARSE_DONE), "allocation %d: status %d", (int)n, (int)p.status);
        CHECK(p.error_status == (hit ? 503 : 0), "allocation %d: %d", (int)n, p.error_status);
        CHECK(strlen(http_parser_method(&p)) < 5 && strlen(http_parser_path(&p)) < 100, "allocation %d: the accessors", (int)n);
        http_parser_free(&p);
        CHECK(mem_live_blocks() == live, "allocation %d: memory left behind", (int)n);
        if (!hit) {
            CHECK(n > 3, "only %d allocations", (int)n - 1);
            return;
        }
    }
}

int main(void)
{
    test_samples();
    test_prefixes();
    test_limits();
    test_fields();
    test_large_body();
    test_memory();
    return support_finish("test_http_parse");
}
