/* Conversations in the template's form; see message.h. */
#include "api/message.h"

#include <string.h>

#include "base/json.h"

/* What a content part is, by its type. */
enum part { PART_TEXT, PART_THINKING, PART_MEDIA, PART_UNKNOWN };

static const struct {
    const char *type, *key; /* where its text is */
    enum part part;
} parts[] = {
    {"text", "text", PART_TEXT},
    {"input_text", "text", PART_TEXT},
    {"output_text", "text", PART_TEXT},
    {"refusal", "refusal", PART_TEXT},
    {"thinking", "thinking", PART_THINKING},
    {"reasoning", "text", PART_THINKING},
    {"reasoning_text", "text", PART_THINKING},
    {"image_url", NULL, PART_MEDIA},
    {"image", NULL, PART_MEDIA},
    {"input_image", NULL, PART_MEDIA},
    {"input_audio", NULL, PART_MEDIA},
    {"audio", NULL, PART_MEDIA},
    {"video", NULL, PART_MEDIA},
    {"video_url", NULL, PART_MEDIA},
    {"file", NULL, PART_MEDIA},
    {"input_file", NULL, PART_MEDIA},
};

static int part_text(const json_t *part, const struct api_path *at, struct strbuf *text, struct strbuf *thinking, struct api_error *e)
{
    static const char expected[] = "\"text\", \"input_text\", \"output_text\" or \"refusal\"";
    const json_t *type = api_field(part, "type");
    size_t i = 0, n = sizeof parts / sizeof *parts;
    if (!json_is_object(part))
        return api_fail_type(e, at, part, "a content part (an object)");
    if (type && !json_is_string(type))
        return api_fail_type(e, API_KEY(at, "type"), type, expected);
    while (type && i < n && !api_is(type, parts[i].type))
        i++;
    if (!type && !api_field(part, "text"))
        return api_fail_missing(e, API_KEY(at, "type"), expected);
    if (i < n && parts[i].part == PART_MEDIA)
        return api_fail(e, "unsupported_value", API_KEY(at, "type"), "\"%s\" is not supported: this model reads text only", parts[i].type);
    if (i == n || (parts[i].part == PART_THINKING && !thinking))
        return api_fail(e, "unsupported_value", API_KEY(at, "type"), "expected %s, got \"%.80s\"", expected, json_string_value(type));
    const char *key = parts[i].key;
    json_t *value = api_field(part, key);
    if (!value && parts[i].part == PART_THINKING)
        value = api_field(part, strcmp(key, "text") ? "text" : "reasoning");
    if (!value)
        return api_fail_missing(e, API_KEY(at, key), "a string");
    if (!json_is_string(value))
        return api_fail_type(e, API_KEY(at, key), value, "a string");
    strbuf_append(parts[i].part == PART_THINKING ? thinking : text, json_string_value(value), json_string_length(value));
    return 0;
}

int api_content_text(const struct api_request *r, const json_t *content, const struct api_path *at, struct strbuf *text,
                     struct strbuf *thinking, bool *has_hint, struct api_error *e)
{
    (void)r;
    size_t i;
    json_t *part;
    if (!content || json_is_null(content))
        return 0;
    if (json_is_string(content))
        strbuf_append(text, json_string_value(content), json_string_length(content));
    else if (!json_is_array(content))
        return api_fail_type(e, at, content, "a string or a list of content parts");
    json_array_foreach(content, i, part) {
        if (part_text(part, API_ITEM(at, i), text, thinking, e))
            return -1;
        if (has_hint && json_is_object(api_field(part, "cache_control")))
            *has_hint = true;
    }
    return strbuf_failed(text) || (thinking && strbuf_failed(thinking)) ? api_fail_nomem(e) : 0;
}

int api_message_add(struct api_request *r, const struct api_path *at, const char *role, const char *text, size_t n, json_t **message,
                    struct api_error *e)
{
    if (!r->messages)
        r->messages = json_array();
    if (json_array_size(r->messages) >= API_MAX_MESSAGES)
        return api_fail(e, "invalid_value", at, "expected at most %d messages", API_MAX_MESSAGES);
    json_t *m = json_object();
    int failed = json_object_set_new(m, "role", json_string(role));
    failed |= json_object_set_new(m, "content", json_stringn_nocheck(text ? text : "", n));
    failed |= json_array_append(r->messages, m);
    json_decref(m);
    if (message)
        *message = failed ? NULL : m;
    return failed ? api_fail_nomem(e) : 0;
}

int api_message_thinking(json_t *message, const char *text, size_t n, struct api_error *e)
{
    return json_object_set_new(message, "reasoning_content", json_stringn_nocheck(text ? text : "", n)) ? api_fail_nomem(e) : 0;
}

/* Arguments as the template takes them: an object, or text that is none. NULL: out of memory. */
static json_t *call_arguments(const json_t *arguments)
{
    json_error_t at;
    bool no_memory = false;
    if (!arguments || json_is_null(arguments) || (json_is_string(arguments) && json_string_length(arguments) == 0))
        return json_object();
    if (!json_is_string(arguments))
        return json_incref((json_t *)(uintptr_t)arguments);
    json_t *v = json_read(json_string_value(arguments), json_string_length(arguments), JSON_ALLOW_NUL, &at, &no_memory);
    if (no_memory)
        return NULL;
    if (json_is_object(v))
        return v;
    json_decref(v);
    return json_incref((json_t *)(uintptr_t)arguments);
}

static int add_call(json_t *message, const char *id, const char *name, json_t *arguments, struct api_error *e)
{
    json_t *calls = json_object_get(message, "tool_calls"), *call = json_object(), *function = json_object();
    int failed = 0;
    if (!calls) {
        calls = json_array();
        failed = json_object_set_new(message, "tool_calls", calls);
    }
    if (id)
        failed |= json_object_set_new(call, "id", json_string(id));
    failed |= json_object_set_new(call, "type", json_string("function"));
    failed |= json_object_set_new(function, "name", json_string(name));
    failed |= json_object_set_new(function, "arguments", arguments);
    failed |= json_object_set_new(call, "function", function);
    if (failed)
        json_decref(call);
    else
        failed = json_array_append_new(calls, call);
    return failed ? api_fail_nomem(e) : 0;
}

int api_message_call(json_t *message, const char *id, const char *name, const json_t *arguments, struct api_error *e)
{
    return add_call(message, id, name, call_arguments(arguments), e);
}

int api_message_custom_call(json_t *message, const char *id, const char *name, const json_t *input, struct api_error *e)
{
    json_t *arguments = json_object();
    int failed = input && !json_is_null(input) ? json_object_set(arguments, "input", (json_t *)(uintptr_t)input)
                                               : json_object_set_new(arguments, "input", json_string(""));
    if (failed) {
        json_decref(arguments);
        return api_fail_nomem(e);
    }
    return add_call(message, id, name, arguments, e);
}

int api_message_tool(struct api_request *r, const struct api_path *at, const char *call_id, const char *text, size_t n,
                     json_t **message, struct api_error *e)
{
    json_t *m = NULL;
    if (api_message_add(r, at, "tool", text, n, &m, e))
        return -1;
    if (message)
        *message = m;
    return call_id && json_object_set_new(m, "tool_call_id", json_string(call_id)) ? api_fail_nomem(e) : 0;
}

int api_message_hint(json_t *message, struct api_error *e)
{
    return json_object_set_new(message, "cache_hint", json_true()) ? api_fail_nomem(e) : 0;
}

bool api_is_billing_header(const struct api_env *env, const char *text, size_t n)
{
    static const char line[] = "x-anthropic-billing-header:";
    return !env->keep_billing_header && n >= sizeof line - 1 && !memcmp(text, line, sizeof line - 1);
}

int api_conversation_finish(struct api_request *r, struct api_error *e)
{
    struct strbuf joined = {0};
    size_t n = 0;
    bool hint = false;
    for (; api_is(json_object_get(json_array_get(r->messages, n), "role"), "system"); n++) {
        const json_t *m = json_array_get(r->messages, n), *content = json_object_get(m, "content");
        if (joined.len && json_string_length(content))
            strbuf_puts(&joined, "\n\n");
        strbuf_append(&joined, json_string_value(content), json_string_length(content));
        hint |= json_object_get(m, "cache_hint") != NULL;
    }
    int rc = 0;
    if (n > 1) {
        json_t *first = json_array_get(r->messages, 0);
        json_t *text = strbuf_failed(&joined) ? NULL : json_stringn_nocheck(strbuf_str(&joined), joined.len);
        rc = json_object_set_new(first, "content", text) ? api_fail_nomem(e) : hint ? api_message_hint(first, e) : 0;
        for (; !rc && n > 1; n--)
            json_array_remove(r->messages, n - 1);
    }
    strbuf_free(&joined);
    return rc;
}
