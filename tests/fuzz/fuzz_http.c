/* Fuzz target: any bytes as HTTP requests, one behind the other. The first byte of the input chooses how it is cut. The result must be
 * that of the uncut bytes, limits must hold, and what an accepted request says must keep its promises. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "http/http_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(c)      \
    do {             \
        if (!(c))    \
            abort(); \
    } while (0)

static const struct http_limits limits = {.max_head_bytes = 2000, .max_fields = 20, .max_body_bytes = 500};

static void check_text(const char *s, int printable)
{
    size_t n = strlen(s), i = 0;
    uint32_t cp;
    for (; i < n; i++)
        MUST(((unsigned char)s[i] >= 0x20 || s[i] == '\t') && s[i] != 0x7f);
    for (i = 0; printable && i < n;) {
        int used = utf8_decode(s + i, n - i, &cp);
        MUST(used);
        i += (size_t)used;
    }
}

static void check_request(const struct http_parser *p)
{
    const char *method = http_parser_method(p), *path = http_parser_path(p), *raw = http_parser_raw_path(p);
    MUST(*method && strlen(method) <= 32);
    MUST(*path == '/' || !strcmp(path, "*"));
    MUST(!path[1] || path[strlen(path) - 1] != '/' || (strlen(raw) > 1 && raw[strlen(raw) - 1] == '/') || strstr(raw, "%2"));
    MUST(strlen(path) <= strlen(raw) && !strpbrk(raw, "? #") && !strchr(http_parser_query(p), ' '));
    check_text(path, 1);
    check_text(raw, 0);
    check_text(http_parser_query(p), 0);
    const char *names[] = {"host", "content-length", "transfer-encoding", "a"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (const char *v = NULL; (v = http_parser_field(p, names[i], v));)
            check_text(v, 0);
    MUST(p->head_complete && p->body.len <= limits.max_body_bytes && (p->minor || !p->chunked));
    MUST(!(p->chunked && http_parser_field(p, "content-length", NULL)));
    MUST(!http_parser_field(p, "content-length", NULL) || strtoull(http_parser_field(p, "content-length", NULL), NULL, 10) == p->body.len);
}

static void check_same(const struct http_parser *a, const struct http_parser *b)
{
    MUST(a->status == b->status && a->error_status == b->error_status && !strcmp(a->message, b->message));
    MUST(a->head_complete == b->head_complete && a->keep_alive == b->keep_alive && a->expect_continue == b->expect_continue);
    MUST(a->body.len == b->body.len && (!a->body.len || !memcmp(a->body.data, b->body.data, a->body.len)));
    MUST(a->text.len == b->text.len && (!a->text.len || !memcmp(a->text.data, b->text.data, a->text.len)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    const char *s = (const char *)data + 1;
    size_t n = size - 1, step = data[0] % 32 + 1;
    enum http_parse_status status = HTTP_PARSE_DONE;
    while (n && status == HTTP_PARSE_DONE) {
        struct http_parser whole, cut;
        size_t used = 0;
        http_parser_init(&whole, &limits);
        http_parser_init(&cut, &limits);
        size_t all = http_parser_feed(&whole, s, n);
        while (used < n && cut.status == HTTP_PARSE_MORE)
            used += http_parser_feed(&cut, s + used, step < n - used ? step : n - used);
        MUST(all == used && (whole.status != HTTP_PARSE_MORE || all == n));
        check_same(&whole, &cut);
        if (whole.status == HTTP_PARSE_DONE)
            check_request(&whole);
        MUST(whole.status != HTTP_PARSE_FAILED || (whole.error_status >= 400 && whole.error_status != 503 && *whole.message));
        status = whole.status;
        http_parser_free(&whole);
        http_parser_free(&cut);
        s += all;
        n -= all;
    }
    return 0;
}
