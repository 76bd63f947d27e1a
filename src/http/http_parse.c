/* The request parser; see http_parse.h. The head is read byte by byte by one state machine, so that a cut cannot matter; bodies are
 * copied in runs. */
#include "http/http_parse.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/utf8.h"

enum state {
    START, METHOD, TARGET, VERSION, LINE_END,       /* the request line */
    FIELD_START, NAME, VALUE_START, VALUE, VALUE_LF, HEAD_LF,
    BODY,
    SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF, /* the chunked coding */
    TRAILER_START, TRAILER, TRAILER_LF, END_LF
};

enum { MAX_METHOD = 32, MAX_SIZE_DIGITS = 16 };

void http_parser_init(struct http_parser *p, const struct http_limits *limits)
{
    *p = (struct http_parser){.limits = *limits, .minor = 1};
}

void http_parser_free(struct http_parser *p)
{
    strbuf_free(&p->text);
    strbuf_free(&p->body);
}

static void fail(struct http_parser *p, int status, const char *code, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static void fail(struct http_parser *p, int status, const char *code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->message, sizeof p->message, fmt, ap);
    va_end(ap);
    p->status = HTTP_PARSE_FAILED;
    p->error_status = status;
    p->error_code = code;
}

static void malformed(struct http_parser *p, const char *what) { fail(p, 400, "bad_request", "%s", what); }

/* ---- characters ---- */

static bool is_digit(unsigned char c) { return c >= '0' && c <= '9'; }

static int hex_value(unsigned char c)
{
    return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool is_token(unsigned char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_blank(unsigned char c) { return c == ' ' || c == '\t'; }

static bool is_control(unsigned char c) { return c < 0x20 || c == 0x7f; }

/* ---- the request line ---- */

static const char *at(const struct http_parser *p, size_t offset) { return offset ? p->text.data + offset : ""; }

const char *http_parser_method(const struct http_parser *p) { return p->target_at ? p->text.data : ""; }
const char *http_parser_raw_path(const struct http_parser *p) { return at(p, p->raw_path_at); }
const char *http_parser_path(const struct http_parser *p) { return at(p, p->path_at); }
const char *http_parser_query(const struct http_parser *p) { return at(p, p->query_at); }

bool http_parser_begun(const struct http_parser *p) { return p->state != START; }

/* Append a piece of what text holds already, terminated; the room was reserved. */
static size_t copy_piece(struct http_parser *p, const char *s, size_t n)
{
    size_t begin = p->text.len;
    strbuf_append(&p->text, s, n);
    strbuf_putc(&p->text, '\0');
    return begin;
}

/* Percent-decode. Returns the place, 0: malformed. */
static size_t decode_path(struct http_parser *p, const char *s, size_t n)
{
    size_t begin = p->text.len;
    for (size_t i = 0; i < n; i++) {
        int c = (unsigned char)s[i];
        if (c == '%') {
            int high = i + 2 < n ? hex_value((unsigned char)s[i + 1]) : -1, low = i + 2 < n ? hex_value((unsigned char)s[i + 2]) : -1;
            if (high < 0 || low < 0)
                return 0;
            c = high * 16 + low;
            i += 2;
        }
        if (is_control((unsigned char)c))
            return 0;
        strbuf_putc(&p->text, (char)c);
    }
    for (size_t i = begin; i < p->text.len;) {
        uint32_t cp;
        int used = utf8_decode(p->text.data + i, p->text.len - i, &cp);
        if (!used)
            return 0;
        i += (size_t)used;
    }
    if (p->text.len > begin + 1 && p->text.data[p->text.len - 1] == '/')
        p->text.len--;
    strbuf_putc(&p->text, '\0');
    return begin;
}

/* The target: a path, "*" for OPTIONS, or a whole URL as proxies get it. */
static void take_target(struct http_parser *p)
{
    size_t length = p->text.len - 1 - p->target_at; /* its zero is there */
    if (!strbuf_reserve(&p->text, 2 * length + 8))
        return;
    const char *s = p->text.data + p->target_at;
    bool star = !strcmp(s, "*") && !strcmp(http_parser_method(p), "OPTIONS");
    size_t scheme = !strncasecmp(s, "http://", 7) ? 7 : !strncasecmp(s, "https://", 8) ? 8 : 0;
    if (scheme)
        s += scheme + strcspn(s + scheme, "/?");
    if (strchr(s, '#') || (!star && !scheme && *s != '/')) {
        malformed(p, "the request target is not a path");
        return;
    }
    size_t n = strcspn(s, "?");
    const char *query = s[n] ? s + n + 1 : s + n;
    size_t query_length = strlen(query);
    if (!n) {
        s = "/"; /* a URL without one */
        n = 1;
    }
    p->raw_path_at = copy_piece(p, s, n);
    p->path_at = decode_path(p, s, n);
    if (!p->path_at) {
        malformed(p, "the path is not percent-encoded UTF-8");
        return;
    }
    p->query_at = copy_piece(p, query, query_length);
    p->fields_at = p->text.len;
}

static void method_byte(struct http_parser *p, unsigned char c)
{
    if (c == ' ' && p->text.len) {
        strbuf_putc(&p->text, '\0');
        p->target_at = p->text.len;
        p->state = TARGET;
    } else if (!is_token(c) || p->text.len == MAX_METHOD) {
        malformed(p, "the first line is not an HTTP request line");
    } else {
        strbuf_putc(&p->text, (char)c);
    }
}

static void target_byte(struct http_parser *p, unsigned char c)
{
    if (c == ' ' && p->text.len > p->target_at) {
        strbuf_putc(&p->text, '\0');
        p->state = VERSION;
    } else if (c == ' ' || is_control(c)) {
        malformed(p, "the request line is not METHOD TARGET HTTP/1.1");
    } else {
        strbuf_putc(&p->text, (char)c);
    }
}

static void version_byte(struct http_parser *p, unsigned char c)
{
    static const char form[] = "HTTP/1.1";
    int i = p->version_at++;
    if (i == 5 || i == 7 ? !is_digit(c) : c != (unsigned char)form[i]) {
        malformed(p, "the request line does not end in an HTTP version");
        return;
    }
    if (i == 5 && c != '1')
        fail(p, 505, "http_version_not_supported", "HTTP version %c is not supported; HTTP/1.1 is", c);
    if (i == 7) {
        p->minor = c != '0';
        p->state = LINE_END;
    }
}

static void line_end_byte(struct http_parser *p, unsigned char c)
{
    if (c == '\n') {
        p->state = FIELD_START;
        take_target(p);
    } else if (c == '\r' && p->version_at == 8) {
        p->version_at++; /* a second CR is none */
    } else {
        malformed(p, "the request line does not end in an HTTP version");
    }
}

/* ---- fields ---- */

const char *http_parser_field(const struct http_parser *p, const char *name, const char *after)
{
    if (!p->fields_at)
        return NULL;
    const char *end = p->text.data + p->text.len, *s = after ? after + strlen(after) + 1 : p->text.data + p->fields_at;
    while (s < end) {
        const char *value = s + strlen(s) + 1;
        if (value >= end)
            return NULL; /* cut off in the name */
        if (!strcasecmp(s, name))
            return value;
        s = value + strlen(value) + 1;
    }
    return NULL;
}

/* Is word one of the comma-separated members of the fields of that name? *others: there are different ones too. */
static bool field_has(const struct http_parser *p, const char *name, const char *word, bool *others)
{
    bool found = false;
    *others = false;
    for (const char *v = NULL; (v = http_parser_field(p, name, v));) {
        for (const char *s = v; *s; s += *s == ',') {
            s += strspn(s, " \t");
            size_t n = strcspn(s, ","), length = n;
            while (length && is_blank((unsigned char)s[length - 1]))
                length--;
            bool same = length == strlen(word) && !strncasecmp(s, word, length);
            found |= same;
            *others |= length && !same;
            s += n;
        }
    }
    return found;
}

static void take_length(struct http_parser *p, bool *given)
{
    bool first = true;
    uint64_t length = 0;
    for (const char *v = NULL; (v = http_parser_field(p, "content-length", v)); first = false) {
        uint64_t n = 0;
        const char *s = v;
        for (; is_digit((unsigned char)*s); s++)
            n = n > UINT64_MAX / 10 - 1 ? UINT64_MAX : n * 10 + (uint64_t)(*s - '0'); /* more than any limit either way */
        if (s == v || *s) {
            fail(p, 400, "bad_request", "Content-Length is '%.40s'; a number of bytes was expected", v);
            return;
        }
        if (!first && n != length) {
            malformed(p, "there are Content-Length fields that differ");
            return;
        }
        length = n;
    }
    *given = !first;
    p->remaining = length;
}

static void take_coding(struct http_parser *p)
{
    bool others;
    const char *v = http_parser_field(p, "transfer-encoding", NULL);
    if (!v)
        return;
    if (!p->minor) {
        malformed(p, "HTTP/1.0 knows no Transfer-Encoding");
    } else if (!field_has(p, "transfer-encoding", "chunked", &others) || others) {
        fail(p, 501, "unsupported_transfer_encoding", "Transfer-Encoding is '%.40s'; only chunked is supported", v);
    } else if (http_parser_field(p, "transfer-encoding", v) || strcasecmp(v, "chunked")) {
        malformed(p, "the body is chunked more than once");
    }
    p->chunked = true;
}

static void too_large(struct http_parser *p)
{
    fail(p, 413, "request_too_large", "the request body is too large; at most %zu bytes are accepted", p->limits.max_body_bytes);
}

/* The head is read: does it make sense, and what follows? */
static void take_head(struct http_parser *p)
{
    const char *method = http_parser_method(p), *host = http_parser_field(p, "host", NULL);
    const char *coding = http_parser_field(p, "content-encoding", NULL), *expect = http_parser_field(p, "expect", NULL);
    bool has_length = false, others;
    bool needs_body = !strcmp(method, "POST") || !strcmp(method, "PUT") || !strcmp(method, "PATCH");
    p->keep_alive = p->minor && !field_has(p, "connection", "close", &others);
    take_length(p, &has_length);
    if (p->status == HTTP_PARSE_MORE)
        take_coding(p);
    if (p->status != HTTP_PARSE_MORE)
        return;
    if (has_length && p->chunked)
        malformed(p, "there are both Content-Length and Transfer-Encoding");
    else if ((p->minor && !host) || (host && http_parser_field(p, "host", host)))
        malformed(p, "exactly one Host field was expected");
    else if (expect && p->minor && (!field_has(p, "expect", "100-continue", &others) || others))
        fail(p, 417, "expectation_failed", "Expect is '%.40s'; only 100-continue is known", expect);
    else if (coding && (field_has(p, "content-encoding", "identity", &others), others))
        fail(p, 415, "unsupported_media_type", "Content-Encoding is '%.40s'; only identity is supported", coding);
    else if (needs_body && !has_length && !p->chunked)
        fail(p, 411, "length_required", "%s needs a Content-Length (0 without a body) or the chunked coding", method);
    else if (p->remaining > p->limits.max_body_bytes)
        too_large(p);
    if (p->status != HTTP_PARSE_MORE)
        return;
    p->head_complete = true;
    p->expect_continue = expect && p->minor && (p->chunked || p->remaining);
    p->state = p->chunked ? SIZE : BODY;
    if (!p->chunked && !p->remaining)
        p->status = HTTP_PARSE_DONE;
}

static void end_value(struct http_parser *p)
{
    while (p->text.len > p->value_at && is_blank((unsigned char)p->text.data[p->text.len - 1]))
        p->text.len--;
    strbuf_putc(&p->text, '\0');
    p->state = FIELD_START;
}

static void value_byte(struct http_parser *p, unsigned char c)
{
    if (c == '\n') {
        end_value(p);
    } else if (c == '\r') {
        p->state = VALUE_LF;
    } else if (is_control(c) && c != '\t') {
        malformed(p, "a header field has a control character");
    } else if (p->state == VALUE || !is_blank(c)) {
        p->state = VALUE;
        strbuf_putc(&p->text, (char)c);
    }
}

static void field_byte(struct http_parser *p, unsigned char c)
{
    if (p->state == FIELD_START && c == '\r') {
        p->state = HEAD_LF;
    } else if (p->state == FIELD_START && c == '\n') {
        take_head(p);
    } else if (p->state == NAME && c == ':') {
        strbuf_putc(&p->text, '\0');
        p->value_at = p->text.len;
        p->state = VALUE_START;
    } else if (!is_token(c)) {
        malformed(p, "a header line is not NAME: VALUE");
    } else if (p->state == FIELD_START && p->n_fields++ == p->limits.max_fields) {
        fail(p, 431, "headers_too_large", "there are more than %d header fields", p->limits.max_fields);
    } else {
        p->state = NAME;
        strbuf_putc(&p->text, (char)c);
    }
}

static void lf_byte(struct http_parser *p, unsigned char c)
{
    if (c != '\n')
        malformed(p, "a carriage return without a line feed");
    else if (p->state == HEAD_LF)
        take_head(p);
    else
        end_value(p);
}

static void head_byte(struct http_parser *p, unsigned char c)
{
    if (++p->head_bytes > p->limits.max_head_bytes) {
        fail(p, 431, "headers_too_large", "request line and headers have more than %zu bytes", p->limits.max_head_bytes);
        return;
    }
    switch (p->state) {
    case START:
        if (c == '\r' || c == '\n') /* a blank line behind the body before this request, which old clients send */
            return;
        p->state = METHOD; /* fall through */
    case METHOD:
        method_byte(p, c);
        break;
    case TARGET:
        target_byte(p, c);
        break;
    case VERSION:
        version_byte(p, c);
        break;
    case LINE_END:
        line_end_byte(p, c);
        break;
    case FIELD_START:
    case NAME:
        field_byte(p, c);
        break;
    case VALUE_START:
    case VALUE:
        value_byte(p, c);
        break;
    default:
        lf_byte(p, c);
    }
}

/* ---- the chunked coding ---- */

static void expect_byte(struct http_parser *p, unsigned char c, unsigned char wanted, int next)
{
    if (c != wanted)
        malformed(p, "the chunked coding is broken");
    else
        p->state = next;
}

static void size_byte(struct http_parser *p, unsigned char c)
{
    int digit = hex_value(c);
    if (digit >= 0 && p->n_digits < MAX_SIZE_DIGITS) {
        p->remaining = p->remaining * 16 + (unsigned)digit;
        p->n_digits++;
    } else if (p->n_digits && (c == ';' || is_blank(c))) {
        p->state = EXTENSION;
    } else if (p->n_digits && c == '\r') {
        p->state = SIZE_LF;
    } else {
        malformed(p, "the chunked coding is broken");
    }
    if (p->remaining > p->limits.max_body_bytes - p->body.len)
        too_large(p);
}

/* Chunk extensions and trailer fields mean nothing here; they are read, within the head's limit, and forgotten. */
static void ignored_byte(struct http_parser *p, unsigned char c, int next)
{
    if (c == '\r')
        p->state = next;
    else if (is_control(c) && c != '\t')
        malformed(p, "the chunked coding is broken");
    else if (++p->extra_bytes > p->limits.max_head_bytes)
        fail(p, 431, "headers_too_large", "chunk extensions and trailer fields have more than %zu bytes", p->limits.max_head_bytes);
}

static void chunk_byte(struct http_parser *p, unsigned char c)
{
    switch (p->state) {
    case SIZE:
        size_byte(p, c);
        break;
    case EXTENSION:
        ignored_byte(p, c, SIZE_LF);
        break;
    case SIZE_LF:
        expect_byte(p, c, '\n', p->remaining ? DATA : TRAILER_START);
        break;
    case DATA_CR:
        expect_byte(p, c, '\r', DATA_LF);
        break;
    case DATA_LF:
        expect_byte(p, c, '\n', SIZE);
        p->n_digits = 0;
        break;
    case TRAILER_START:
        p->state = TRAILER;
        ignored_byte(p, c, END_LF);
        break;
    case TRAILER:
        ignored_byte(p, c, TRAILER_LF);
        break;
    case TRAILER_LF:
        expect_byte(p, c, '\n', TRAILER_START);
        break;
    default:
        expect_byte(p, c, '\n', END_LF);
        if (p->status == HTTP_PARSE_MORE)
            p->status = HTTP_PARSE_DONE;
    }
}

size_t http_parser_feed(struct http_parser *p, const char *data, size_t n)
{
    size_t i = 0;
    while (i < n && p->status == HTTP_PARSE_MORE) {
        if (p->state == BODY || p->state == DATA) {
            size_t take = p->remaining < n - i ? (size_t)p->remaining : n - i;
            strbuf_append(&p->body, data + i, take);
            i += take;
            p->remaining -= take;
            if (!p->remaining && p->state == BODY)
                p->status = HTTP_PARSE_DONE;
            else if (!p->remaining)
                p->state = DATA_CR;
        } else if (p->state < BODY) {
            head_byte(p, (unsigned char)data[i++]);
        } else {
            chunk_byte(p, (unsigned char)data[i++]);
        }
        if (p->text.failed || p->body.failed)
            fail(p, 503, "out_of_memory", "out of memory for the request");
    }
    return i;
}
