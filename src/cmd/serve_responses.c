/* Kept answers of /v1/responses: reading them, their input, and deleting them. On the worker: what they are is a copy under a lock, but it
 * may be a large one. */
#include <stdlib.h>
#include <string.h>

#include "api/response_read.h"
#include "base/mem.h"
#include "cmd/serve.h"

#define MAX_VALUE 256 /* bytes of a value in the query; ids are shorter */

static int hex_digit(char c) { return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1; }

/* The value of a name in the query, percent-decoded, "" if it is not there. One that is too long is cut: then it is no right one. */
static void query_value(const struct serve_call *c, const char *name, char out[MAX_VALUE])
{
    const size_t n = strlen(name);
    size_t length = 0;
    for (const char *q = http_query(c->http); q; q = strchr(q, '&')) {
        q += *q == '&';
        if (strncmp(q, name, n) || q[n] != '=')
            continue;
        for (q += n + 1; *q && *q != '&' && length < MAX_VALUE - 1; q++) {
            const int high = *q == '%' ? hex_digit(q[1]) : -1, low = high < 0 ? -1 : hex_digit(q[2]);
            out[length++] = low < 0 ? *q : (char)(high * 16 + low);
            q += low < 0 ? 0 : 2;
        }
        break;
    }
    out[length] = '\0';
}

static int read_page(const struct serve_call *c, struct response_page *page, char after[MAX_VALUE], struct api_error *e)
{
    char limit[MAX_VALUE], order[MAX_VALUE], *end;
    query_value(c, "limit", limit);
    query_value(c, "order", order);
    query_value(c, "after", after);
    const long n = *limit ? strtol(limit, &end, 10) : RESPONSE_PAGE;
    if (*limit && (*limit < '0' || *limit > '9' || *end || n < 1 || n > RESPONSE_PAGE_MAX))
        return api_error_set(e, 400, "invalid_value", "limit", "limit: expected an integer from 1 to %d, got \"%.80s\"", RESPONSE_PAGE_MAX,
                             limit);
    if (*order && strcmp(order, "asc") && strcmp(order, "desc"))
        return api_error_set(e, 400, "invalid_value", "order", "order: expected \"asc\" or \"desc\", got \"%.80s\"", order);
    *page = (struct response_page){.after = after, .limit = (int32_t)n, .ascending = !strcmp(order, "asc")};
    return 0;
}

static int no_path(const struct serve_call *c, struct api_error *e)
{
    return api_error_set(e, 404, "not_found", NULL, "%.200s is no path of this server", http_path(c->http));
}

static void answer(struct serve_call *c, int rc, struct strbuf *out, const struct api_error *e)
{
    if (rc)
        serve_fail(c, e);
    else
        serve_reply(c, 200, NULL, out);
    strbuf_free(out);
}

static int input_items(struct serve_call *c, const char *id, struct strbuf *out, struct api_error *e)
{
    const struct response_access kept = {c->s->responses, c->owner};
    struct response_page page;
    char after[MAX_VALUE];
    return read_page(c, &page, after, e) ? -1 : response_input_items(&kept, id, &page, out, e);
}

static int whole(struct serve_call *c, const char *id, struct strbuf *out, struct api_error *e)
{
    const struct response_access kept = {c->s->responses, c->owner};
    char stream[MAX_VALUE];
    query_value(c, "stream", stream);
    if (!strcmp(stream, "true"))
        return api_error_set(e, 400, "unsupported_parameter", "stream", "stream: a kept response is given whole only");
    return response_read(&kept, id, out, e);
}

/* GET /v1/responses/ID, /v1/responses/ID/input_items */
void serve_response(struct serve_call *c)
{
    const char *below = strchr(c->tail, '/');
    struct strbuf out = {0};
    struct api_error e = {0};
    char *id = mem_strndup(c->tail, below ? (size_t)(below - c->tail) : strlen(c->tail));
    int rc;
    if (!id)
        rc = api_error_set(&e, 503, "out_of_memory", NULL, "out of memory for the answer");
    else if (!below)
        rc = whole(c, id, &out, &e);
    else
        rc = strcmp(below, "/input_items") ? no_path(c, &e) : input_items(c, id, &out, &e);
    mem_free(id);
    answer(c, rc, &out, &e);
}

/* DELETE /v1/responses/ID */
void serve_response_delete(struct serve_call *c)
{
    const struct response_access kept = {c->s->responses, c->owner};
    struct strbuf out = {0};
    struct api_error e = {0};
    const int rc = strchr(c->tail, '/') ? no_path(c, &e) : response_delete(&kept, c->tail, &out, &e);
    answer(c, rc, &out, &e);
}
