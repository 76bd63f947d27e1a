/* Whole answers and their header. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cmd/serve.h"

static bool names_hold(const struct serve_names *names, const char *s)
{
    for (size_t i = 0; i < names->n; i++)
        if (!strcmp(names->name[i], s))
            return true;
    return false;
}

static size_t cors_headers(struct serve_call *c, struct http_header *out)
{
    const struct serve_options *o = &c->s->opt;
    const char *origin = http_header(c->http, "origin");
    size_t n = 0;
    if (o->cors_all) {
        out[n++] = (struct http_header){"Access-Control-Allow-Origin", "*"};
    } else if (o->origins.n) {
        out[n++] = (struct http_header){"Vary", "Origin"};
        if (origin && names_hold(&o->origins, origin))
            out[n++] = (struct http_header){"Access-Control-Allow-Origin", origin};
    }
    if (n && origin)
        out[n++] = (struct http_header){"Access-Control-Expose-Headers", "x-request-id, request-id, retry-after"};
    return n;
}

size_t serve_headers(struct serve_call *c, const struct api_error *e, struct http_header *out, struct serve_header_values *values)
{
    size_t n = cors_headers(c, out);
    if (serve_family(http_path(c->http)) == API_MESSAGES)
        out[n++] = (struct http_header){"request-id", http_request_id(c->http)};
    if (!e)
        return n;
    if (e->status == 401)
        out[n++] = (struct http_header){"WWW-Authenticate", "Bearer"};
    if (e->retry_after_s > 0) {
        snprintf(values->retry_s, sizeof values->retry_s, "%d", (int)e->retry_after_s);
        snprintf(values->retry_ms, sizeof values->retry_ms, "%d000", (int)e->retry_after_s);
        out[n++] = (struct http_header){"retry-after", values->retry_s};
        out[n++] = (struct http_header){"retry-after-ms", values->retry_ms};
    } else if (e->status >= 500) { /* clients would ask again, to the same end */
        out[n++] = (struct http_header){"x-should-retry", "false"};
    }
    return n;
}

void serve_reply(struct serve_call *c, int status, const char *content_type, const struct strbuf *body)
{
    struct http_header extra[SERVE_HEADERS + 1];
    struct serve_header_values values;
    struct api_error e = {0};
    if (body && strbuf_failed(body)) {
        api_error_set(&e, 503, "out_of_memory", NULL, "out of memory for the answer");
        e.retry_after_s = 1;
        serve_fail(c, &e);
        return;
    }
    size_t n = serve_headers(c, NULL, extra, &values);
    if (content_type)
        extra[n++] = (struct http_header){"Content-Type", content_type};
    c->status = status;
    http_respond(c->http, status, extra, n, body ? strbuf_str(body) : "", body ? body->len : 0);
}

void serve_fail(struct serve_call *c, const struct api_error *e)
{
    struct http_header extra[SERVE_HEADERS];
    struct serve_header_values values;
    struct strbuf body = {0};
    const size_t n = serve_headers(c, e, extra, &values);
    api_error_body(serve_family(http_path(c->http)), e, http_request_id(c->http), &body);
    c->status = e->status;
    if (e->status == 429 || e->status == 503)
        metrics_reason(&c->s->metrics, &c->s->metrics.rejected, e->status == 429 ? "queue_full" : "unavailable", 1);
    http_respond(c->http, e->status, extra, n, strbuf_str(&body), strbuf_failed(&body) ? 0 : body.len);
    strbuf_free(&body);
}

json_t *serve_body(struct serve_call *c)
{
    struct api_error e = {0};
    json_t *body = NULL;
    size_t n;
    const char *bytes = http_body(c->http, &n);
    if (!api_body_parse(bytes, n, &body, &e) && !json_is_object(body)) {
        json_decref(body);
        body = NULL;
        api_error_set(&e, 400, "invalid_type", NULL, "the body is no JSON object");
    }
    if (!body)
        serve_fail(c, &e);
    return body;
}
