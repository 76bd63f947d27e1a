/* The incremental parser of HTTP/1.x requests (RFC 9112): bytes in, cut anywhere, one request or one refusal out. No sockets.
 *
 * Strict where leniency would let two programs disagree about where a message ends: one space between the parts of the request line, no
 * blank before a colon, no folded lines, no bare carriage return, one meaning of the length, CR LF within the chunked coding. Lines of the
 * head may end in LF alone. The result does not depend on how the bytes are cut. Memory: the head (at most max_head_bytes, the target
 * twice more), and the bytes of the body that have come, doubled at most. */
#ifndef SKUA_HTTP_HTTP_PARSE_H
#define SKUA_HTTP_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

struct http_limits {
    size_t max_head_bytes; /* request line and header fields with their line ends; again for chunk extensions and trailer fields */
    int max_fields;
    size_t max_body_bytes; /* decoded */
};

enum http_parse_status { HTTP_PARSE_MORE, HTTP_PARSE_DONE, HTTP_PARSE_FAILED };

struct http_parser {
    enum http_parse_status status;
    bool head_complete;      /* everything but the body is there and was accepted */
    bool expect_continue;    /* the client waits for 100 (Continue) before it sends the body */
    bool chunked;            /* the body's coding */
    bool keep_alive;         /* HTTP/1.1 without "Connection: close" */
    int minor;               /* of the version: 0 or 1 (later ones are answered as 1) */
    struct strbuf body;      /* the content as far as it has come, without coding */
    /* HTTP_PARSE_FAILED: status code, a word for programs and a sentence. */
    int error_status;
    const char *error_code;
    char message[160];
    /* Inner state. text: method, target, raw path, path, query, then name and value of each field, each zero-terminated. */
    struct http_limits limits;
    int state, version_at, n_fields, n_digits;
    struct strbuf text;
    size_t target_at, raw_path_at, path_at, query_at, fields_at, value_at;
    size_t head_bytes, extra_bytes; /* read of the head; of chunk extensions and trailer fields */
    uint64_t remaining;             /* bytes of the body or chunk still to come */
};

/* Ready for one request; allocates nothing. */
void http_parser_init(struct http_parser *p, const struct http_limits *limits);
void http_parser_free(struct http_parser *p); /* zeroed ones allowed */

/* Read on. Returns how many of the n bytes belong to this request: all of them while status is HTTP_PARSE_MORE; with HTTP_PARSE_DONE the
   rest is the next request; after HTTP_PARSE_FAILED what follows has no meaning. A failed allocation is a failure with status 503. */
size_t http_parser_feed(struct http_parser *p, const char *data, size_t n);

/* A byte of a request has come, blank lines before it aside. */
bool http_parser_begun(const struct http_parser *p);

/* What was read; "" where the request has not come so far. */
const char *http_parser_method(const struct http_parser *p);
const char *http_parser_raw_path(const struct http_parser *p); /* as sent, without the query */
const char *http_parser_path(const struct http_parser *p);     /* decoded: valid UTF-8 without control characters; no trailing slash */
const char *http_parser_query(const struct http_parser *p);    /* as sent, without the question mark */
/* The value of the field of that name (any case) behind the given one (NULL: the first); NULL: no more. */
const char *http_parser_field(const struct http_parser *p, const char *name, const char *after);

#endif
