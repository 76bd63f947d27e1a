/* Conversations; see chat.h. Messages are copied only where string arguments must become objects. */
#include "jinja/chat.h"

#include "base/json.h"

/* Parse call.arguments, or call.function.arguments, when it is a string holding a JSON object. NULL: out of memory.
   Returns a new reference: to call itself when nothing changed. */
static json_t *call_with_object(json_t *call)
{
    json_t *function = json_object_get(call, "function"), *owner = json_is_object(function) ? function : call;
    json_t *arguments = json_object_get(owner, "arguments");
    if (!json_is_string(arguments))
        return json_incref(call);
    json_error_t at;
    bool no_memory;
    json_t *parsed = json_read(json_string_value(arguments), json_string_length(arguments), JSON_REJECT_DUPLICATES, &at, &no_memory);
    if (no_memory)
        return NULL;
    if (!json_is_object(parsed)) {
        json_decref(parsed);
        return json_incref(call);
    }
    json_t *result = json_copy_whole(owner);
    if (json_object_set_new(result, "arguments", parsed) != 0) {
        json_decref(result);
        return NULL;
    }
    if (owner == call)
        return result;
    json_t *outer = json_copy_whole(call);
    if (json_object_set_new(outer, "function", result) != 0) {
        json_decref(outer);
        return NULL;
    }
    return outer;
}

static json_t *message_with_objects(json_t *message)
{
    json_t *calls = json_object_get(message, "tool_calls"), *call;
    size_t i;
    if (!json_is_array(calls))
        return json_incref(message);
    json_t *copy = json_copy_whole(message), *list = json_array();
    bool ok = true;
    json_array_foreach(calls, i, call)
        ok = ok && json_array_append_new(list, call_with_object(call)) == 0;
    if (!ok) {
        json_decref(list);
        list = NULL;
    }
    if (json_object_set_new(copy, "tool_calls", list) != 0) { /* fails for a NULL value as well */
        json_decref(copy);
        return NULL;
    }
    return copy;
}

json_t *chat_parse_arguments(const json_t *messages)
{
    json_t *list = json_array(), *message;
    size_t i;
    json_array_foreach((json_t *)messages, i, message) {
        if (json_array_append_new(list, message_with_objects(message)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

int chat_render(const struct jinja_template *t, const json_t *messages, const json_t *tools, bool add_generation_prompt,
                const json_t *extra_kwargs, const char *bos_token, const char *eos_token, struct strbuf *out, skua_error *err)
{
    if (!json_is_array(messages))
        return error_set(err, SKUA_EARG, "chat template: messages must be a JSON array");
    if (tools && !json_is_array(tools) && !json_is_null(tools))
        return error_set(err, SKUA_EARG, "chat template: tools must be a JSON array");
    if (extra_kwargs && !json_is_object(extra_kwargs))
        return error_set(err, SKUA_EARG, "chat template: the template arguments must be a JSON object");
    json_t *context = json_object();
    int failed = json_object_set_new(context, "messages", chat_parse_arguments(messages));
    failed |= tools ? json_object_set(context, "tools", (json_t *)tools) : json_object_set_new(context, "tools", json_null());
    failed |= json_object_set_new(context, "documents", json_null());
    failed |= json_object_set_new(context, "add_generation_prompt", json_boolean(add_generation_prompt));
    if (bos_token)
        failed |= json_object_set_new(context, "bos_token", json_string(bos_token));
    if (eos_token)
        failed |= json_object_set_new(context, "eos_token", json_string(eos_token));
    if (extra_kwargs)
        failed |= json_object_update(context, (json_t *)extra_kwargs);
    int code = failed ? error_set(err, SKUA_ENOMEM, "out of memory: the variables of the chat template (or a token that is not UTF-8)")
                      : jinja_render(t, context, NULL, out, err);
    json_decref(context);
    return code;
}
