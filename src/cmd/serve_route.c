/* Requests to routes: who may ask, and what is there. On the socket thread. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "cmd/serve.h"

static const struct serve_route routes[] = {
    /* path, /v1, bare, method, family, open, on_worker, loaded, handle */
    {"/chat/completions", true, true, "POST", API_CHAT, false, true, true, serve_chat},
    {"/chat/completions/control", true, true, "POST", API_OTHER, false, false, true, serve_control},
    {"/completions", true, true, "POST", API_COMPLETIONS, false, true, true, serve_completions},
    {"/responses", true, true, "POST", API_RESPONSES, false, true, true, serve_responses},
    {"/responses/input_tokens", true, true, "POST", API_RESPONSES, false, true, true, serve_input_tokens},
    {"/responses/", true, true, "GET", API_RESPONSES, false, true, true, serve_response},
    {"/responses/", true, true, "DELETE", API_RESPONSES, false, true, true, serve_response_delete},
    {"/messages", true, true, "POST", API_MESSAGES, false, true, true, serve_messages},
    {"/messages/count_tokens", true, true, "POST", API_MESSAGES, false, true, true, serve_count_tokens},
    {"/embeddings", true, true, "POST", API_EMBEDDINGS, false, false, true, serve_embeddings},
    {"/models", true, true, "GET", API_OTHER, true, false, true, serve_models},
    {"/models/", true, true, "GET", API_OTHER, true, false, true, serve_model},
    {"/tokenize", false, true, "POST", API_OTHER, false, true, true, serve_tokenize},
    {"/detokenize", false, true, "POST", API_OTHER, false, true, true, serve_detokenize},
    {"/apply-template", false, true, "POST", API_OTHER, false, true, true, serve_apply_template},
    {"/health", true, true, "GET", API_OTHER, true, false, false, serve_health},
    {"/health/live", true, true, "GET", API_OTHER, true, false, false, serve_live},
    {"/ready", true, true, "GET", API_OTHER, true, false, false, serve_ready},
    {"/metrics", false, true, "GET", API_OTHER, false, false, true, serve_metrics_get},
    {"/stats", false, true, "GET", API_OTHER, false, false, true, serve_stats},
    {"/slots", false, true, "GET", API_OTHER, false, false, true, serve_slots},
    {"/slots/", false, true, "POST", API_OTHER, false, true, true, serve_slot_action},
    {"/props", false, true, "GET", API_OTHER, false, true, true, serve_props},
    {"/props", false, true, "POST", API_OTHER, false, true, true, serve_props_set},
    {"/requests/", true, false, "POST", API_OTHER, false, false, true, serve_cancel},
    {"/cache/flush", false, true, "POST", API_OTHER, false, true, true, serve_cache_flush},
    {"/cache/clear", false, true, "POST", API_OTHER, false, true, true, serve_cache_clear},
    {"/", false, true, "GET", API_OTHER, true, false, false, serve_page},
    {"/ui/", false, true, "GET", API_OTHER, true, false, false, serve_page},
};
#define N_ROUTES (sizeof routes / sizeof *routes)

static bool below(const char *path, const char *top)
{
    const size_t n = strlen(top);
    return !strncmp(path, top, n) && (path[n] == '\0' || path[n] == '/');
}

enum api_family serve_family(const char *path)
{
    return below(path, "/v1/messages") || below(path, "/messages") ? API_MESSAGES : API_OTHER;
}

char *serve_error_body(void *user, const char *path, int status, const char *code, const char *message, const char *request_id, size_t *n)
{
    struct serve *s = user;
    struct api_error e;
    struct strbuf body = {0};
    api_error_set(&e, status, code, NULL, "%s", message);
    api_error_body(serve_family(path), &e, request_id, &body);
    metrics_reason(&s->metrics, &s->metrics.rejected, "transport", 1);
    return strbuf_take(&body, n);
}

/* ---- who may ask ---- */

/* Equal, in a time that tells nothing about where they differ. */
static bool same_secret(const char *key, const char *given, size_t n_given)
{
    const size_t n = strlen(key);
    unsigned char differ = n != n_given;
    for (size_t i = 0; i < n; i++)
        differ |= (unsigned char)(key[i] ^ (n_given ? given[i % n_given] : 0));
    return !differ;
}

/* The number of the key that the request carries, from 1; 0: none that is known. */
static uint64_t key_of(const struct serve *s, struct http_request *r)
{
    const char *bearer = http_header(r, "authorization"), *given = http_header(r, "x-api-key");
    const char *candidates[2] = {given, NULL};
    uint64_t found = 0;
    if (bearer && !strncasecmp(bearer, "bearer", 6) && (bearer[6] == ' ' || bearer[6] == '\t')) {
        candidates[1] = bearer + 7;
        while (*candidates[1] == ' ' || *candidates[1] == '\t')
            candidates[1]++;
    }
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; candidates[i] && k < s->opt.keys.n; k++)
            if (same_secret(s->opt.keys.name[k], candidates[i], strlen(candidates[i])))
                found = k + 1;
    return found;
}

/* Does HOST[:PORT] name this host? */
static bool host_is(const char *value, const char *name)
{
    const size_t n = strlen(name);
    if (strncasecmp(value, name, n))
        return false;
    value += n;
    return !*value || (*value == ':' && !value[1 + strspn(value + 1, "0123456789")]);
}

static bool host_allowed(const struct serve *s, const char *host)
{
    static const char *const own[] = {"localhost", "127.0.0.1", "[::1]"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (host_is(host, own[i]))
            return true;
    if (host_is(host, s->opt.host))
        return true;
    for (size_t i = 0; i < s->opt.hosts.n; i++)
        if (host_is(host, s->opt.hosts.name[i]))
            return true;
    return false;
}

static bool origin_allowed(const struct serve *s, struct http_request *r, const char *origin)
{
    const char *host = http_header(r, "host"), *name = strstr(origin, "://");
    if (s->opt.cors_all || (name && host && !strcasecmp(name + 3, host)))
        return true;
    for (size_t i = 0; i < s->opt.origins.n; i++)
        if (!strcmp(s->opt.origins.name[i], origin))
            return true;
    return false;
}

static int check_origin(struct serve_call *c, struct api_error *e)
{
    const struct serve *s = c->s;
    const char *host = http_header(c->http, "host"), *origin = http_header(c->http, "origin"), *method = http_method(c->http);
    if (host && serve_host_is_loopback(s->opt.host) && !host_allowed(s, host))
        return api_error_set(e, 403, "host_not_allowed", NULL,
                             "the Host '%.80s' is no name of this machine; expected localhost, 127.0.0.1, [::1] or an --allow-host", host);
    if (origin && strcmp(method, "GET") && strcmp(method, "HEAD") && strcmp(method, "OPTIONS") && !origin_allowed(s, c->http, origin))
        return api_error_set(e, 403, "origin_not_allowed", NULL,
                             "web pages of '%.80s' may not ask here; expected an origin of --cors", origin);
    return 0;
}

static int check_key(struct serve_call *c, struct api_error *e)
{
    const struct serve *s = c->s;
    const bool public = c->route && (c->route->open || (c->route->handle == serve_metrics_get && s->opt.public_metrics));
    if (!s->opt.keys.n)
        return 0;
    c->owner = key_of(s, c->http);
    if (c->owner || public)
        return 0;
    return api_error_set(e, 401, "invalid_api_key", NULL,
                         http_header(c->http, "authorization") || http_header(c->http, "x-api-key")
                             ? "the API key is not one of this server's"
                             : "this server needs an API key: 'Authorization: Bearer KEY' or 'x-api-key: KEY'");
}

/* ---- what is there ---- */

static bool matches(const struct serve_route *route, const char *path, const char **tail)
{
    const bool under_v1 = !strncmp(path, "/v1/", 4);
    const char *rest = under_v1 && route->v1 ? path + 3 : path;
    if (!(under_v1 ? route->v1 : route->bare))
        return false;
    const size_t n = strlen(route->path);
    *tail = rest + n;
    if (n > 1 && route->path[n - 1] == '/')
        return !strncmp(rest, route->path, n) && rest[n];
    return !strcmp(rest, route->path);
}

/* The route of the method, else NULL; methods: those that the path has. A path with a route of its own is none of those below another. */
static const struct serve_route *find(struct serve_call *c, const char *path, const char *method, char *methods, size_t size)
{
    const struct serve_route *found = NULL;
    const char *tail;
    bool own = false;
    if (!strcmp(method, "HEAD"))
        method = "GET";
    for (size_t i = 0; i < N_ROUTES; i++)
        own = own || (matches(&routes[i], path, &tail) && !*tail);
    for (size_t i = 0; i < N_ROUTES; i++) {
        if (!matches(&routes[i], path, &tail) || (own && *tail))
            continue;
        const size_t n = strlen(methods);
        snprintf(methods + n, size - n, "%s%s", n ? ", " : "", strcmp(routes[i].method, "GET") ? routes[i].method : "GET, HEAD");
        if (!strcmp(routes[i].method, method)) {
            found = &routes[i];
            c->tail = tail;
        }
    }
    return found;
}

/* OPTIONS: what a page may do here, or what the path knows. */
static void preflight(struct serve_call *c, const char *methods)
{
    const struct serve_options *o = &c->s->opt;
    const char *asked = http_header(c->http, "access-control-request-headers"), *origin = http_header(c->http, "origin");
    struct http_header extra[SERVE_HEADERS + 5];
    struct serve_header_values values;
    char allow[80];
    size_t n = serve_headers(c, NULL, extra, &values);
    snprintf(allow, sizeof allow, "%s%sOPTIONS", methods, *methods ? ", " : "");
    extra[n++] = (struct http_header){"Allow", *methods ? allow : "GET, HEAD, POST, OPTIONS"};
    if ((o->cors_all || o->origins.n) && origin && origin_allowed(c->s, c->http, origin)) {
        extra[n++] = (struct http_header){"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"};
        extra[n++] = (struct http_header){"Access-Control-Allow-Headers",
                                          asked ? asked
                                                : "authorization, content-type, x-api-key, anthropic-version, anthropic-beta, "
                                                  "anthropic-dangerous-direct-browser-access"};
        extra[n++] = (struct http_header){"Access-Control-Max-Age", "600"};
    }
    c->status = 204;
    http_respond(c->http, 204, extra, n, "", 0);
}

/* What else may be posted below an answer elsewhere (compact, ID/cancel) is no path here, though reading it is one. */
static bool is_order(const char *path, const char *method)
{
    return !strcmp(method, "POST") && (below(path, "/v1/responses") || below(path, "/responses"));
}

static void wrong_method(struct serve_call *c, const char *methods)
{
    struct http_header extra[SERVE_HEADERS + 1];
    struct serve_header_values values;
    struct strbuf body = {0};
    struct api_error e;
    const char *path = http_path(c->http);
    if (http_header(c->http, "upgrade") && (!strcmp(path, "/v1/responses") || !strcmp(path, "/responses")))
        api_error_set(&e, 426, "upgrade_not_supported", NULL, "no WebSocket here; expected a POST, with \"stream\": true for events");
    else
        api_error_set(&e, 405, "method_not_allowed", NULL, "%s has no method %.16s; expected %s", path, http_method(c->http), methods);
    size_t n = serve_headers(c, &e, extra, &values);
    extra[n++] = (struct http_header){"Allow", methods};
    c->status = e.status;
    api_error_body(serve_family(path), &e, http_request_id(c->http), &body);
    http_respond(c->http, e.status, extra, n, strbuf_str(&body), strbuf_failed(&body) ? 0 : body.len);
    strbuf_free(&body);
}

static int check_state(struct serve_call *c, struct api_error *e)
{
    const int state = atomic_load(&c->s->state), unready = serve_family(http_path(c->http)) == API_MESSAGES ? 529 : 503;
    if (!c->route->loaded || state == SERVE_READY)
        return 0;
    if (state == SERVE_DRAINING)
        api_error_set(e, unready, "shutting_down", NULL, "the server is stopping");
    else
        api_error_set(e, unready, "model_loading", NULL, "the model is being loaded");
    e->retry_after_s = state == SERVE_DRAINING ? 5 : 1;
    return -1;
}

void serve_handle(void *user, struct http_request *r)
{
    struct serve *s = user;
    struct serve_call *c = serve_call_new(s, r);
    char methods[64] = "";
    struct api_error e = {0};
    if (!c) {
        http_release(r);
        return;
    }
    const char *path = http_path(r), *method = http_method(r);
    c->route = find(c, path, method, methods, sizeof methods);
    if (check_origin(c, &e)) {
        serve_fail(c, &e);
    } else if (!strcmp(method, "OPTIONS")) {
        preflight(c, methods);
    } else if (check_key(c, &e)) {
        serve_fail(c, &e);
    } else if (!c->route && *methods && !is_order(path, method)) {
        wrong_method(c, methods);
    } else if (!c->route) {
        api_error_set(&e, 404, "not_found", NULL, "%.200s is no path of this server", path);
        serve_fail(c, &e);
    } else if (check_state(c, &e)) {
        serve_fail(c, &e);
    } else if (c->route->on_worker) {
        serve_worker_push(c);
        return;
    } else {
        c->route->handle(c);
    }
    serve_call_unref(c);
}

void serve_put_endpoints(struct strbuf *b)
{
    strbuf_putc(b, '[');
    for (size_t i = 0; i < N_ROUTES; i++)
        strbuf_printf(b, "%s\"%s %s%s\"", i ? "," : "", routes[i].method, routes[i].v1 ? "/v1" : "", routes[i].path);
    strbuf_putc(b, ']');
}
