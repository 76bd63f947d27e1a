/* The input of /v1/responses as a conversation: spec/api.md 9.2. Reasoning, text and calls that follow each other are one turn of the
 * assistant; reasoning behind text or calls begins the next one. */
#include <string.h>

#include "api/common.h"
#include "api/json_text.h"
#include "api/message.h"
#include "api/responses.h"
#include "api/seal.h"
#include "base/json.h"
#include "base/mem.h"

struct input {
    struct api_request *r;
    const struct response_access *kept; /* NULL: nothing is */
    json_t *before, *items;  /* lists: what was said up to previous_response_id; the input, with items for references */
    json_t *call_ids;        /* an object: every id that a call of these has */
    json_t *turn;            /* the assistant's message that is being made (of r->messages), NULL */
    struct strbuf thinking;  /* of it, or of the one that may follow */
    struct strbuf text;      /* of it */
};

/* ---- turns of the assistant ---- */

/* End the turn. Reasoning that nothing followed is nobody's. */
static int turn_end(struct input *in, struct api_error *e)
{
    json_t *m = in->turn;
    in->turn = NULL;
    int rc = strbuf_failed(&in->text) || strbuf_failed(&in->thinking) ? api_fail_nomem(e) : 0;
    if (!rc && m && json_object_set_new(m, "content", json_stringn_nocheck(strbuf_str(&in->text), in->text.len)))
        rc = api_fail_nomem(e);
    if (!rc && m && in->thinking.len)
        rc = api_message_thinking(m, in->thinking.data, in->thinking.len, e);
    strbuf_clear(&in->text);
    strbuf_clear(&in->thinking);
    return rc;
}

static int turn_begin(struct input *in, const struct api_path *at, struct api_error *e)
{
    return in->turn ? 0 : api_message_add(in->r, at, "assistant", "", 0, &in->turn, e);
}

/* Append to a text that may hold something already, as a paragraph of its own. */
static void add_paragraph(struct strbuf *b, const char *text, size_t n)
{
    if (b->len && n)
        strbuf_puts(b, "\n\n");
    strbuf_append(b, text, n);
}

static int turn_text(struct input *in, const struct api_path *at, const struct strbuf *text, struct api_error *e)
{
    if (turn_begin(in, at, e))
        return -1;
    add_paragraph(&in->text, text->data, text->len);
    return 0;
}

/* Somebody else's message. */
static int other_turn(struct input *in, const struct api_path *at, const char *role, const struct strbuf *text, struct api_error *e)
{
    return turn_end(in, e) || api_message_add(in->r, at, role, text->data, text->len, NULL, e) ? -1 : 0;
}

/* ---- items ---- */

static int message_item(struct input *in, const struct api_path *at, const json_t *item, struct api_error *e)
{
    static const char *const roles[] = {"user", "system", "developer", "assistant"};
    struct strbuf text = {0};
    int role = -1;
    if (api_get_choice(item, at, "role", roles, 4, &role, e))
        return -1;
    if (role < 0)
        return api_fail_missing(e, API_KEY(at, "role"), "\"user\", \"system\", \"developer\" or \"assistant\"");
    bool assistant = role == 3;
    int rc = api_content_text(in->r, api_field(item, "content"), API_KEY(at, "content"), &text, assistant ? &in->thinking : NULL, NULL, e);
    if (!rc)
        rc = assistant ? turn_text(in, at, &text, e) : other_turn(in, at, role == 0 ? "user" : "system", &text, e);
    strbuf_free(&text);
    return rc;
}

/* The texts of a list of parts, as paragraphs; whatever has no text is passed over. */
static void parts_text(const json_t *parts, struct strbuf *out)
{
    size_t i;
    json_t *part;
    if (json_is_string(parts))
        add_paragraph(out, json_string_value(parts), json_string_length(parts));
    json_array_foreach(parts, i, part) {
        const json_t *text = api_field(part, "text");
        if (json_is_string(text))
            add_paragraph(out, json_string_value(text), json_string_length(text));
    }
}

/* Thinking of what the assistant says next: the content, else what we sealed, else the summary. */
static int reasoning_item(struct input *in, const json_t *item, struct api_error *e)
{
    const json_t *sealed = api_field(item, "encrypted_content");
    struct strbuf text = {0};
    if (in->turn && turn_end(in, e))
        return -1;
    parts_text(api_field(item, "content"), &text);
    if (!text.len && json_is_string(sealed))
        seal_read(json_string_value(sealed), json_string_length(sealed), &text);
    if (!text.len)
        parts_text(api_field(item, "summary"), &text);
    add_paragraph(&in->thinking, text.data, text.len);
    int rc = strbuf_failed(&text) ? api_fail_nomem(e) : 0;
    strbuf_free(&text);
    return rc;
}

static int required_string(const json_t *item, const struct api_path *at, const char *key, const char **out, struct api_error *e)
{
    if (api_get_string(item, at, key, out, e))
        return -1;
    return *out ? 0 : api_fail_missing(e, API_KEY(at, key), "a string");
}

static int call_item(struct input *in, const struct api_path *at, const json_t *item, bool custom, struct api_error *e)
{
    const char *id = NULL, *name = NULL, *ns = NULL;
    const json_t *arguments = api_field(item, custom ? "input" : "arguments");
    if (required_string(item, at, "call_id", &id, e) || required_string(item, at, "name", &name, e) ||
        api_get_string(item, at, "namespace", &ns, e))
        return -1;
    if (arguments && !json_is_string(arguments) && (custom || !json_is_object(arguments)))
        return api_fail_type(e, API_KEY(at, custom ? "input" : "arguments"), arguments, custom ? "a string" : "JSON text (a string)");
    json_t *full = ns ? json_sprintf("%s.%s", ns, name) : json_string(name);
    if (!full)
        return api_fail_nomem(e);
    int rc = turn_begin(in, at, e);
    if (!rc)
        rc = (custom ? api_message_custom_call : api_message_call)(in->turn, id, json_string_value(full), arguments, e);
    json_decref(full);
    return rc;
}

static int output_item(struct input *in, const struct api_path *at, const json_t *item, struct api_error *e)
{
    const json_t *output = api_field(item, "output");
    const char *id = NULL;
    struct strbuf text = {0};
    if (required_string(item, at, "call_id", &id, e))
        return -1;
    if (!json_object_get(in->call_ids, id))
        return api_fail(e, "unknown_tool_call_id", API_KEY(at, "call_id"), "expected the call_id of a call in the input, got \"%.80s\"",
                        id);
    int rc = turn_end(in, e);
    if (!rc && json_is_object(output))
        api_json_value(&text, output);
    else if (!rc)
        rc = api_content_text(in->r, output, API_KEY(at, "output"), &text, NULL, NULL, e);
    if (!rc && strbuf_failed(&text))
        rc = api_fail_nomem(e);
    if (!rc)
        rc = api_message_tool(in->r, at, id, text.data, text.len, NULL, e);
    strbuf_free(&text);
    return rc;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

/* An item of a kind that this server does not make: its text, if it has any, as what the assistant said or as a result. */
static int foreign_item(struct input *in, const struct api_path *at, const json_t *item, const char *type, struct api_error *e)
{
    static const char *const keys[] = {"text", "content", "output", "result", "summary"};
    struct strbuf text = {0};
    int rc = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !text.len; i++)
        parts_text(api_field(item, keys[i]), &text);
    if (strbuf_failed(&text))
        rc = api_fail_nomem(e);
    else if (!text.len)
        api_warn(in->r, "input items of type \"%.80s\" mean nothing here: it is left out", type);
    else if (!ends_with(type, "_output"))
        rc = turn_text(in, at, &text, e);
    else if (!(rc = turn_end(in, e)))
        rc = api_message_tool(in->r, at, json_string_value(api_field(item, "call_id")), text.data, text.len, NULL, e);
    strbuf_free(&text);
    return rc;
}

static int parse_item(struct input *in, const struct api_path *at, const json_t *item, struct api_error *e)
{
    const char *type = NULL;
    if (!json_is_object(item))
        return api_fail_type(e, at, item, "an input item (an object)");
    if (api_get_string(item, at, "type", &type, e))
        return -1;
    if (!type && !api_field(item, "role"))
        return api_fail_missing(e, API_KEY(at, "type"), "the kind of item (a string)");
    if (!type || !strcmp(type, "message"))
        return message_item(in, at, item, e);
    if (!strcmp(type, "reasoning"))
        return reasoning_item(in, item, e);
    if (!strcmp(type, "function_call") || !strcmp(type, "custom_tool_call"))
        return call_item(in, at, item, *type == 'c', e);
    if (!strcmp(type, "function_call_output") || !strcmp(type, "custom_tool_call_output"))
        return output_item(in, at, item, e);
    return foreign_item(in, at, item, type, e);
}

static int collect_call_ids(struct input *in, const json_t *items, struct api_error *e)
{
    size_t i;
    json_t *item;
    json_array_foreach(items, i, item) {
        const char *type = json_string_value(api_field(item, "type")), *id = json_string_value(api_field(item, "call_id"));
        if (type && id && ends_with(type, "_call") && json_object_set_new_nocheck(in->call_ids, id, json_true()))
            return api_fail_nomem(e);
    }
    return 0;
}

/* ---- what is kept ---- */

/* Kept text is JSON; NULL: out of memory. */
static json_t *read_item(const char *text, size_t n)
{
    json_error_t at;
    bool no_memory;
    return json_read(text, n, JSON_ALLOW_NUL, &at, &no_memory);
}

/* All that a turn's conversation is, with its answer, to in->before. */
static int read_before(struct input *in, const struct response_turn *turn, struct api_error *e)
{
    struct response_item *item = NULL;
    size_t n = 0;
    int failed = response_turn_items(turn, true, &item, &n);
    for (size_t i = 0; i < n && !failed; i++)
        failed = json_array_append_new(in->before, read_item(item[i].text, item[i].n_text));
    mem_free(item);
    return failed ? api_fail_nomem(e) : 0;
}

/* The turn that the request goes on from, held: *turn, NULL if from none. */
static int find_before(struct input *in, struct response_turn **turn, struct api_error *e)
{
    const struct api_path *at = API_KEY(NULL, "previous_response_id");
    const char *id = NULL;
    if (api_get_string(in->r->body, NULL, "previous_response_id", &id, e))
        return -1;
    if (!id)
        return 0;
    if (!in->kept || !in->kept->store)
        return api_fail(e, "previous_response_not_found", at, "responses are not kept here; send the whole conversation as input");
    *turn = response_turn_find(in->kept, id);
    if (!*turn)
        return api_fail(e, "previous_response_not_found", at,
                        "no response \"%.80s\" is kept here, or no longer; send the whole conversation as input", id);
    return read_before(in, *turn, e);
}

/* What a reference stands for; *item is the caller's. */
static int find_item(const struct input *in, const struct api_path *at, const json_t *reference, json_t **item, struct api_error *e)
{
    struct strbuf text = {0};
    const char *id = NULL;
    if (!in->kept || !in->kept->store)
        return api_fail(e, "invalid_value", API_KEY(at, "type"), "items of earlier responses are not kept here; send the items themselves");
    if (required_string(reference, at, "id", &id, e))
        return -1;
    int rc = 0;
    if (!response_store_item(in->kept, id, &text))
        rc = api_fail(e, "invalid_value", API_KEY(at, "id"), "no item \"%.80s\" is kept here, or no longer; send the item itself", id);
    else if (text.failed || !(*item = read_item(text.data, text.len)))
        rc = api_fail_nomem(e);
    strbuf_free(&text);
    return rc;
}

/* ---- the input as a list ---- */

/* The items, with those that references stand for, to in->items. */
static int take_items(struct input *in, const json_t *input, struct api_error *e)
{
    const struct api_path *at = API_KEY(NULL, "input");
    size_t i;
    json_t *value;
    json_array_foreach(input, i, value) {
        json_t *item = NULL;
        if (!api_is(api_field(value, "type"), "item_reference"))
            item = json_incref(value);
        else if (find_item(in, API_ITEM(at, i), value, &item, e))
            return -1;
        if (json_array_append_new(in->items, item))
            return api_fail_nomem(e);
    }
    return 0;
}

static int take_input(struct input *in, const json_t *input, struct api_error *e)
{
    const struct api_path *at = API_KEY(NULL, "input");
    if (!input)
        return api_fail_missing(e, at, "a string or a list of items");
    if (json_is_array(input)) {
        const size_t n = json_array_size(in->before) + json_array_size(input);
        return n > API_MAX_MESSAGES ? api_fail(e, "invalid_value", at, "expected at most %d items, got %zu", API_MAX_MESSAGES, n)
                                    : take_items(in, input, e);
    }
    if (!json_is_string(input))
        return api_fail_type(e, at, input, "a string or a list of items");
    json_t *m = json_object();
    int failed = json_object_set_new(m, "type", json_string("message")) || json_object_set_new(m, "role", json_string("user")) ||
                 json_object_set(m, "content", (json_t *)(uintptr_t)input);
    failed = json_array_append_new(in->items, failed ? NULL : json_incref(m)) || failed;
    json_decref(m);
    return failed ? api_fail_nomem(e) : 0;
}

static int parse_items(struct input *in, struct api_error *e)
{
    size_t i;
    json_t *item;
    if (collect_call_ids(in, in->before, e) || collect_call_ids(in, in->items, e))
        return -1;
    json_array_foreach(in->before, i, item)
        if (parse_item(in, API_KEY(NULL, "previous_response_id"), item, e))
            return -1;
    json_array_foreach(in->items, i, item)
        if (parse_item(in, API_ITEM(API_KEY(NULL, "input"), i), item, e))
            return -1;
    return turn_end(in, e);
}

/* Everything to r->messages, and what is to be kept to r->turn. */
static int parse_input(struct input *in, bool store, struct api_error *e)
{
    struct response_turn *turn = NULL;
    const json_t *input = api_field(in->r->body, "input");
    int rc = !in->before || !in->items || !in->call_ids ? api_fail_nomem(e) : find_before(in, &turn, e);
    if (!rc)
        rc = take_input(in, input, e);
    if (!rc)
        rc = parse_items(in, e);
    if (!rc && !in->r->messages)
        rc = api_fail_value(e, API_KEY(NULL, "input"), input, "at least one message");
    if (rc || !store || !in->kept || !in->kept->store) {
        response_turn_drop(turn);
        return rc;
    }
    in->r->turn = response_turn_new(in->kept, turn, in->items);
    return in->r->turn ? 0 : api_fail_nomem(e);
}

int responses_input_parse(struct api_request *r, const struct response_access *kept, bool store, struct api_error *e)
{
    const char *instructions = NULL;
    if (api_get_string(r->body, NULL, "instructions", &instructions, e))
        return -1;
    if (instructions && api_message_add(r, NULL, "system", instructions, strlen(instructions), NULL, e))
        return -1;
    struct input in = {.r = r, .kept = kept, .before = json_array(), .items = json_array(), .call_ids = json_object()};
    int rc = parse_input(&in, store, e);
    json_decref(in.before);
    json_decref(in.items);
    json_decref(in.call_ids);
    strbuf_free(&in.thinking);
    strbuf_free(&in.text);
    return rc ? rc : api_conversation_finish(r, e);
}
