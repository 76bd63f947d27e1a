/* The chat page: / and what it needs under /ui/. It asks nobody but this server and needs no key; what it asks for does. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "cmd/serve.h"
#include "cmd/serve_web.h"

/* Scripts and styles from here only, none inside the page; no frames round it, no forms or pictures to elsewhere. */
static const char policy[] =
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'";

/* Does If-None-Match name this tag? */
static bool has_tag(const char *list, const char *tag)
{
    const char *at = list ? strstr(list, tag) : NULL;
    return (at && (at == list || strchr(" ,/", at[-1]))) || (list && !strcmp(list, "*"));
}

void serve_page(struct serve_call *c)
{
    struct http_header extra[SERVE_HEADERS + 8];
    struct serve_header_values values;
    struct serve_web_file file;
    char tag[24];
    if (!serve_web_find(*c->tail ? c->tail : "index.html", &file)) {
        struct api_error e;
        api_error_set(&e, 404, "not_found", NULL, "%.200s is no path of this server", http_path(c->http));
        serve_fail(c, &e);
        return;
    }
    snprintf(tag, sizeof tag, "\"%016" PRIx64 "\"", (uint64_t)XXH3_64bits(file.data, file.n));
    size_t n = serve_headers(c, NULL, extra, &values);
    extra[n++] = (struct http_header){"ETag", tag};
    extra[n++] = (struct http_header){"Cache-Control", "no-cache"}; /* kept, but asked for whether it has changed */
    extra[n++] = (struct http_header){"Content-Security-Policy", policy};
    extra[n++] = (struct http_header){"X-Content-Type-Options", "nosniff"};
    extra[n++] = (struct http_header){"X-Frame-Options", "DENY"};
    extra[n++] = (struct http_header){"Referrer-Policy", "no-referrer"};
    const bool same = has_tag(http_header(c->http, "if-none-match"), tag);
    if (!same)
        extra[n++] = (struct http_header){"Content-Type", file.content_type};
    c->status = same ? 304 : 200;
    http_respond(c->http, c->status, extra, n, same ? "" : (const char *)file.data, same ? 0 : file.n);
}
