/* Reading and deleting kept answers; see response_read.h. */
#include "api/response_read.h"

#include <string.h>

#include "api/field.h"
#include "api/json_text.h"
#include "base/json.h"
#include "base/mem.h"

static int unknown(const struct response_access *a, const char *id, struct api_error *e)
{
    if (!a->store)
        return api_error_set(e, 404, "response_not_found", NULL, "responses are not kept here: --response-store is 0");
    return api_error_set(e, 404, "response_not_found", NULL, "no response \"%.80s\" is kept here, or no longer", id);
}

static int no_memory(struct api_error *e)
{
    api_error_set(e, 503, "out_of_memory", NULL, "out of memory for the answer");
    e->retry_after_s = 1;
    return -1;
}

int response_read(const struct response_access *a, const char *id, struct strbuf *out, struct api_error *e)
{
    return response_store_answer(a, id, out) ? 0 : unknown(a, id, e);
}

int response_delete(const struct response_access *a, const char *id, struct strbuf *out, struct api_error *e)
{
    if (!response_store_delete(a, id))
        return unknown(a, id, e);
    strbuf_puts(out, "{\"id\":");
    api_json_text(out, id);
    strbuf_puts(out, ",\"object\":\"response\",\"deleted\":true}");
    return 0;
}

/* A message whose content was sent as a string, as clients expect it: a list of parts. */
static int in_parts(json_t *item)
{
    json_t *content = api_field(item, "content");
    if (!api_is(api_field(item, "type"), "message") || !json_is_string(content))
        return 0;
    const bool assistant = api_is(api_field(item, "role"), "assistant");
    json_t *part = json_object(), *parts = json_array();
    int failed = json_object_set_new(part, "type", json_string(assistant ? "output_text" : "input_text"));
    failed |= json_object_set(part, "text", content);
    if (assistant)
        failed |= json_object_set_new(part, "annotations", json_array());
    failed |= json_array_append(parts, part);
    json_decref(part);
    failed |= json_object_set(item, "content", parts);
    json_decref(parts);
    return failed;
}

static int put_item(struct strbuf *out, const struct response_item *item, bool first)
{
    json_error_t at;
    bool memory;
    json_t *v = json_read(item->text, item->n_text, JSON_ALLOW_NUL, &at, &memory);
    int failed = !v || in_parts(v);
    if (!first)
        strbuf_putc(out, ',');
    if (!failed)
        api_json_value(out, v);
    json_decref(v);
    return failed;
}

/* n items in the order of the conversation. */
static int put_page(const struct response_item *items, size_t n, const struct response_page *page, struct strbuf *out, struct api_error *e)
{
    const size_t limit = (size_t)page->limit;
    size_t begin = 0, i = 0;
    if (page->after && *page->after) {
        while (i < n && strcmp(items[page->ascending ? i : n - 1 - i].id, page->after))
            i++;
        if (i == n)
            return api_error_set(e, 400, "invalid_value", "after", "after: expected the id of an item of this list, got \"%.80s\"",
                                 page->after);
        begin = i + 1;
    }
    const size_t end = n - begin > limit ? begin + limit : n;
    const char *first = NULL, *last = NULL;
    strbuf_puts(out, "{\"object\":\"list\",\"data\":[");
    for (i = begin; i < end; i++) {
        const struct response_item *item = &items[page->ascending ? i : n - 1 - i];
        if (put_item(out, item, i == begin))
            return no_memory(e);
        first = first ? first : item->id;
        last = item->id;
    }
    strbuf_puts(out, "],\"first_id\":");
    api_json_text(out, first);
    strbuf_puts(out, ",\"last_id\":");
    api_json_text(out, last);
    strbuf_printf(out, ",\"has_more\":%s}", end < n ? "true" : "false");
    return 0;
}

int response_input_items(const struct response_access *a, const char *id, const struct response_page *page, struct strbuf *out,
                         struct api_error *e)
{
    struct response_turn *turn = response_turn_find(a, id);
    struct response_item *items = NULL;
    size_t n = 0;
    if (!turn)
        return unknown(a, id, e);
    int rc = response_turn_items(turn, false, &items, &n) ? no_memory(e) : put_page(items, n, page, out, e);
    mem_free(items);
    response_turn_drop(turn);
    return rc;
}
