/* Body of a chat completion to a request: spec/api.md 8.1, 8.2. */
#include <string.h>

#include "api/common.h"
#include "api/message.h"
#include "base/json.h"

#define MAX_CALL_ID 256

/* ---- messages ---- */

/* A system content without billing lines: parts that begin with one, and the first line of a string. NULL: out of memory. */
static json_t *without_billing(const struct api_env *env, json_t *content)
{
    if (json_is_string(content)) {
        const char *s = json_string_value(content);
        size_t n = json_string_length(content);
        const char *end = api_is_billing_header(env, s, n) ? memchr(s, '\n', n) : s;
        return end == s ? json_incref(content) : end ? json_stringn_nocheck(end + 1, n - (size_t)(end + 1 - s)) : json_string("");
    }
    json_t *copy = json_is_array(content) ? json_copy_whole(content) : json_incref(content);
    for (size_t i = json_array_size(copy); i-- > 0;) {
        const json_t *text = json_object_get(json_array_get(copy, i), "text");
        if (json_is_string(text) && api_is_billing_header(env, json_string_value(text), json_string_length(text)))
            json_array_remove(copy, i);
    }
    return copy;
}

static int check_call_id(const json_t *owner, const struct api_path *at, const char *key, const char **id, struct api_error *e)
{
    if (api_get_string(owner, at, key, id, e))
        return -1;
    if (*id && (!**id || strlen(*id) > MAX_CALL_ID))
        return api_fail_value(e, API_KEY(at, key), api_field(owner, key), "an id of 1 to 256 bytes");
    return 0;
}

static int need_name(const json_t *owner, const struct api_path *at, const char **name, struct api_error *e)
{
    if (api_get_string(owner, at, "name", name, e))
        return -1;
    return *name && **name ? 0 : api_fail_missing(e, API_KEY(at, "name"), "the name of a tool");
}

static int parse_function(const json_t *function, const struct api_path *at, const char *id, json_t *message, struct api_error *e)
{
    const json_t *arguments = api_field(function, "arguments");
    const char *name = NULL;
    if (need_name(function, at, &name, e))
        return -1;
    if (arguments && !json_is_string(arguments) && !json_is_object(arguments))
        return api_fail_type(e, API_KEY(at, "arguments"), arguments, "JSON text or an object");
    return api_message_call(message, id, name, arguments, e);
}

static int parse_call(const json_t *call, const struct api_path *at, json_t *message, struct api_error *e)
{
    static const char *const types[] = {"function", "custom"};
    const char *id = NULL, *name = NULL, *input = NULL;
    json_t *inner = NULL;
    int type = 0;
    if (!json_is_object(call))
        return api_fail_type(e, at, call, "a tool call (an object)");
    if (check_call_id(call, at, "id", &id, e) || api_get_choice(call, at, "type", types, 2, &type, e) ||
        api_get_object(call, at, types[type], &inner, e))
        return -1;
    const struct api_path *inside = API_KEY(at, types[type]);
    if (!inner)
        return api_fail_missing(e, inside, type ? "an object with name and input" : "an object with name and arguments");
    if (type == 0)
        return parse_function(inner, inside, id, message, e);
    if (need_name(inner, inside, &name, e) || api_get_string(inner, inside, "input", &input, e))
        return -1;
    return api_message_custom_call(message, id, name, api_field(inner, "input"), e);
}

static int parse_calls(const json_t *m, const struct api_path *at, json_t *message, struct api_error *e)
{
    json_t *calls = NULL, *call, *legacy = NULL;
    size_t i;
    if (api_get_array(m, at, "tool_calls", &calls, e) || api_get_object(m, at, "function_call", &legacy, e))
        return -1;
    json_array_foreach(calls, i, call)
        if (parse_call(call, API_ITEM(API_KEY(at, "tool_calls"), i), message, e))
            return -1;
    return legacy ? parse_function(legacy, API_KEY(at, "function_call"), NULL, message, e) : 0;
}

static int parse_assistant(struct api_request *r, const json_t *m, const struct api_path *at, struct strbuf *text, json_t **message,
                           struct api_error *e)
{
    struct strbuf thinking = {0};
    const char *given = NULL, *refusal = NULL;
    bool hint = false;
    const char *key = api_field(m, "reasoning_content") ? "reasoning_content" : "reasoning";
    int rc = api_content_text(r, json_object_get(m, "content"), API_KEY(at, "content"), text, &thinking, &hint, e) ||
             api_get_string(m, at, key, &given, e) || api_get_string(m, at, "refusal", &refusal, e);
    if (given)
        strbuf_clear(&thinking);
    strbuf_puts(&thinking, given ? given : "");
    strbuf_puts(text, refusal && !text->len ? refusal : "");
    if (!rc && (strbuf_failed(&thinking) || strbuf_failed(text)))
        rc = api_fail_nomem(e);
    rc = rc || api_message_add(r, at, "assistant", text->data, text->len, message, e) ||
         ((given || thinking.len) && api_message_thinking(*message, thinking.data, thinking.len, e)) ||
         parse_calls(m, at, *message, e) || (hint && api_message_hint(*message, e));
    strbuf_free(&thinking);
    return rc ? -1 : 0;
}

/* Messages that only have a text. */
static int parse_plain(const struct api_env *env, struct api_request *r, const json_t *m, const struct api_path *at, const char *role,
                       struct strbuf *text, json_t **message, struct api_error *e)
{
    bool system = !strcmp(role, "system"), hint = false;
    const char *id = NULL, *name = NULL;
    json_t *content = json_object_get(m, "content");
    content = system && content ? without_billing(env, content) : json_incref(content);
    int rc = !content && json_object_get(m, "content") ? api_fail_nomem(e) : 0;
    rc = rc || api_content_text(r, content, API_KEY(at, "content"), text, NULL, &hint, e) || api_get_string(m, at, "name", &name, e);
    if (!rc && !strcmp(role, "tool")) {
        bool legacy = api_is(json_object_get(m, "role"), "function");
        rc = check_call_id(m, at, "tool_call_id", &id, e);
        if (!rc && !id && !legacy)
            rc = api_fail_missing(e, API_KEY(at, "tool_call_id"), "the id of the call that this answers");
        rc = rc || api_message_tool(r, at, id, text->data, text->len, message, e);
    } else if (!rc) {
        rc = api_message_add(r, at, role, text->data, text->len, message, e);
    }
    json_decref(content);
    return rc || (hint && api_message_hint(*message, e)) ? -1 : 0;
}

static int parse_message(const struct api_env *env, struct api_request *r, const json_t *m, const struct api_path *at, struct strbuf *text,
                         struct api_error *e)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
    static const char *const forms[] = {"system", "system", "user", "assistant", "tool", "tool"};
    json_t *message = NULL;
    int role = -1;
    if (!json_is_object(m))
        return api_fail_type(e, at, m, "a message (an object)");
    if (api_get_choice(m, at, "role", roles, 6, &role, e))
        return -1;
    if (role < 0)
        return api_fail_missing(e, API_KEY(at, "role"), "\"system\", \"developer\", \"user\", \"assistant\" or \"tool\"");
    strbuf_clear(text);
    int rc = role == 3 ? parse_assistant(r, m, at, text, &message, e) : parse_plain(env, r, m, at, forms[role], text, &message, e);
    if (!rc && json_is_object(api_field(m, "cache_control")))
        rc = api_message_hint(message, e);
    return rc;
}

static int parse_messages(const struct api_env *env, struct api_request *r, struct api_error *e)
{
    const struct api_path *at = API_KEY(NULL, "messages");
    struct strbuf text = {0};
    json_t *list = NULL, *m;
    size_t i;
    int rc = api_get_array(r->body, NULL, "messages", &list, e);
    if (!rc && !list)
        rc = api_fail_missing(e, at, "a list of messages that is not empty");
    else if (!rc && json_array_size(list) == 0)
        rc = api_fail_value(e, at, list, "a list of messages that is not empty");
    else if (!rc && json_array_size(list) > API_MAX_MESSAGES)
        rc = api_fail(e, "invalid_value", at, "expected at most %d messages, got %zu", API_MAX_MESSAGES, json_array_size(list));
    for (i = 0; !rc && i < json_array_size(list); i++) {
        m = json_array_get(list, i);
        rc = parse_message(env, r, m, API_ITEM(at, i), &text, e);
    }
    strbuf_free(&text);
    if (!rc && r->continue_final && !api_is(json_object_get(json_array_get(r->messages, i - 1), "role"), "assistant"))
        rc = api_fail(e, "invalid_value", API_KEY(NULL, "continue_final_message"),
                      "only allowed when the last message has the role \"assistant\"");
    return rc ? rc : api_conversation_finish(r, e);
}

/* ---- tools ---- */

static int parse_tool(struct api_request *r, json_t *tool, const struct api_path *at, bool legacy, struct api_error *e)
{
    static const char *const types[] = {"function", "custom"};
    json_t *inner = tool, *parameters = NULL, *text = NULL;
    struct api_path inside = *at;
    const char *name = NULL, *description = NULL, *regex = NULL;
    bool strict = false;
    int type = 0;
    if (!json_is_object(tool))
        return api_fail_type(e, at, tool, "a tool (an object)");
    if (!legacy) {
        const json_t *given = api_field(tool, "type");
        if (!given)
            return api_fail_missing(e, API_KEY(at, "type"), "\"function\" or \"custom\"");
        if (json_is_string(given) && !api_is(given, types[0]) && !api_is(given, types[1]))
            return api_fail(e, "unsupported_value", API_KEY(at, "type"), "expected \"function\" or \"custom\", got \"%.80s\"",
                            json_string_value(given));
        inner = NULL;
        if (api_get_choice(tool, at, "type", types, 2, &type, e) || api_get_object(tool, at, types[type], &inner, e))
            return -1;
        inside = (struct api_path){at, types[type], 0};
        if (!inner)
            return api_fail_missing(e, &inside, "an object with a name");
    }
    if (need_name(inner, &inside, &name, e) || api_get_string(inner, &inside, "description", &description, e) ||
        api_get_bool(inner, &inside, "strict", &strict, e) ||
        (type == 0 && api_get_object(inner, &inside, "parameters", &parameters, e)) ||
        (type == 1 && api_tool_format(r, inner, &inside, "grammar", &regex, &text, e)))
        return -1;
    json_t *shown = tool;
    if (type || legacy)
        shown = api_tool_template(name, type ? text : api_field(inner, "description"), legacy ? parameters : NULL);
    else
        json_incref(tool);
    json_decref(text);
    if (api_tool_add(r, &inside, name, type == 1, strict, parameters, shown, e))
        return -1;
    r->tools[r->n_tools - 1].regex = regex;
    return 0;
}

static int parse_tools(struct api_request *r, struct api_error *e)
{
    json_t *tools = NULL, *functions = NULL, *tool;
    size_t i;
    if (api_get_array(r->body, NULL, "tools", &tools, e) || api_get_array(r->body, NULL, "functions", &functions, e))
        return -1;
    if (json_array_size(tools) && json_array_size(functions))
        return api_fail(e, "invalid_value", API_KEY(NULL, "functions"), "expected either tools or functions, got both");
    r->legacy_functions = json_array_size(functions) > 0;
    const char *key = r->legacy_functions ? "functions" : "tools";
    json_array_foreach(r->legacy_functions ? functions : tools, i, tool)
        if (parse_tool(r, tool, API_ITEM(API_KEY(NULL, key), i), r->legacy_functions, e))
            return -1;
    return 0;
}

static int need_tools(struct api_request *r, const struct api_path *at, struct api_error *e)
{
    return r->n_tools ? 0 : api_fail(e, "invalid_value", at, "only allowed with tools");
}

/* {"type": "function" | "custom", that: {"name"}}, or with the name beside the type. */
static int allow_named(struct api_request *r, const json_t *o, const struct api_path *at, struct api_error *e)
{
    static const char *const types[] = {"function", "custom"};
    json_t *inner = NULL;
    int type = 0;
    if (!json_is_object(o))
        return api_fail_type(e, at, o, "an object that names a tool");
    if (api_get_choice(o, at, "type", types, 2, &type, e) || api_get_object(o, at, types[type], &inner, e))
        return -1;
    if (!inner && api_field(o, "name"))
        return api_tool_allow(r, API_KEY(at, "name"), api_field(o, "name"), e);
    return api_tool_allow(r, API_KEY(API_KEY(at, types[type]), "name"), api_field(inner, "name"), e);
}

static int parse_allowed(struct api_request *r, const json_t *choice, const struct api_path *at, struct api_error *e)
{
    static const char *const modes[] = {"auto", "required"};
    const struct api_path *inside = API_KEY(at, "allowed_tools"), *list_at = API_KEY(inside, "tools");
    json_t *allowed = NULL, *list = NULL, *tool;
    int mode = 0;
    size_t i;
    if (api_get_object(choice, at, "allowed_tools", &allowed, e))
        return -1;
    if (!allowed)
        return api_fail_missing(e, inside, "an object with mode and tools");
    if (api_get_choice(allowed, inside, "mode", modes, 2, &mode, e) || api_get_array(allowed, inside, "tools", &list, e))
        return -1;
    if (json_array_size(list) == 0)
        return api_fail_missing(e, list_at, "a list of tools that is not empty");
    json_array_foreach(list, i, tool)
        if (allow_named(r, tool, API_ITEM(list_at, i), e))
            return -1;
    r->tool_choice = mode ? API_TOOLS_REQUIRED : API_TOOLS_AUTO;
    return 0;
}

static int parse_choice_text(struct api_request *r, const json_t *choice, const struct api_path *at, struct api_error *e)
{
    bool required = api_is(choice, "required");
    if (!required && !api_is(choice, "none") && !api_is(choice, "auto"))
        return api_fail_value(e, at, choice, "\"none\", \"auto\", \"required\" or an object");
    if (required && need_tools(r, at, e))
        return -1;
    if (!api_is(choice, "auto"))
        r->tool_choice = required ? API_TOOLS_REQUIRED : API_TOOLS_NONE;
    return 0;
}

static int parse_tool_choice(struct api_request *r, struct api_error *e)
{
    const json_t *choice = api_field(r->body, "tool_choice"), *call = api_field(r->body, "function_call");
    bool legacy = r->legacy_functions || (!choice && call);
    const struct api_path *at = API_KEY(NULL, legacy ? "function_call" : "tool_choice");
    choice = legacy ? call : choice;
    if (!choice)
        return 0;
    if (json_is_string(choice))
        return parse_choice_text(r, choice, at, e);
    if (!json_is_object(choice))
        return api_fail_type(e, at, choice, "\"none\", \"auto\", \"required\" or an object");
    if (need_tools(r, at, e))
        return -1;
    const json_t *type = api_field(choice, "type");
    if (choice != call && !type)
        return api_fail_missing(e, API_KEY(at, "type"), "\"function\", \"custom\" or \"allowed_tools\"");
    if (api_is(type, "allowed_tools"))
        return parse_allowed(r, choice, at, e);
    if (choice != call && !api_is(type, "function") && !api_is(type, "custom"))
        return api_fail_value(e, API_KEY(at, "type"), type, "\"function\", \"custom\" or \"allowed_tools\"");
    int rc = choice == call ? api_tool_allow(r, API_KEY(at, "name"), api_field(choice, "name"), e) : allow_named(r, choice, at, e);
    r->tool_choice = API_TOOLS_REQUIRED;
    return rc;
}

/* ---- the rest ---- */

static int parse_logprobs(struct api_request *r, struct api_error *e)
{
    bool logprobs = false;
    int32_t top = 0;
    if (api_get_bool(r->body, NULL, "logprobs", &logprobs, e) || api_get_int32(r->body, NULL, "top_logprobs", 0, 20, &top, e) ||
        api_get_bool(r->body, NULL, "logprobs_all", &r->logprobs_all, e))
        return -1;
    if (api_field(r->body, "top_logprobs") && top > 0 && !logprobs)
        return api_fail(e, "invalid_value", API_KEY(NULL, "top_logprobs"), "only allowed with \"logprobs\": true");
    r->n_logprobs = logprobs ? top : -1;
    return 0;
}

/* Fields without an effect, whose types are checked all the same, and those that ask for what this server cannot do. */
static int parse_others(const json_t *b, struct api_error *e)
{
    static const char *const texts[] = {"prompt_cache_key", "user", "safety_identifier", "service_tier", "verbosity", "session_id"};
    static const char *const refused[] = {"audio", "web_search_options"};
    json_t *modalities = NULL, *metadata = NULL, *prediction = NULL, *m;
    const char *text;
    bool store;
    int32_t slot;
    size_t i;
    for (i = 0; i < sizeof refused / sizeof *refused; i++)
        if (api_field(b, refused[i]))
            return api_fail(e, "unsupported_parameter", API_KEY(NULL, refused[i]), "not supported by this server; leave it out");
    for (i = 0; i < sizeof texts / sizeof *texts; i++)
        if (api_get_string(b, NULL, texts[i], &text, e))
            return -1;
    if (api_get_bool(b, NULL, "store", &store, e) || api_get_int32(b, NULL, "id_slot", -1, INT32_MAX, &slot, e) ||
        api_get_object(b, NULL, "prediction", &prediction, e) || api_get_object(b, NULL, "metadata", &metadata, e) ||
        api_get_array(b, NULL, "modalities", &modalities, e))
        return -1;
    if (json_object_size(metadata) > 16)
        return api_fail(e, "invalid_value", API_KEY(NULL, "metadata"), "expected at most 16 pairs, got %zu", json_object_size(metadata));
    json_array_foreach(modalities, i, m)
        if (!api_is(m, "text"))
            return api_fail(e, "unsupported_value", API_ITEM(API_KEY(NULL, "modalities"), i), "expected \"text\" only");
    return 0;
}

static int parse(const struct api_env *env, struct api_request *r, api_header_fn *header, void *user, struct api_error *e)
{
    bool generation = true;
    if (api_common_parse(env, r, 0, header, user, e) || api_choices_parse(r, e) || api_stop_parse(r, "stop", e) ||
        api_stream_options_parse(r, e) || api_get_bool(r->body, NULL, "parallel_tool_calls", &r->parallel_calls, e) ||
        api_get_bool(r->body, NULL, "continue_final_message", &r->continue_final, e) ||
        api_get_bool(r->body, NULL, "add_generation_prompt", &generation, e))
        return -1;
    r->no_generation_prompt = !generation;
    r->best_of = r->n;
    return api_thinking_parse(env, r, api_field(r->body, "reasoning_effort"), API_KEY(NULL, "reasoning_effort"), false, e) ||
                   parse_messages(env, r, e) || parse_tools(r, e) || parse_tool_choice(r, e) || parse_logprobs(r, e) ||
                   api_structure_parse(r, api_field(r->body, "response_format"), API_KEY(NULL, "response_format"), false, e) ||
                   parse_others(r->body, e)
               ? -1
               : 0;
}

int chat_parse(const struct api_env *env, json_t *body, api_header_fn *header, void *user, struct api_request *r, struct api_error *error)
{
    api_request_init(r, API_CHAT, env, body);
    int rc = parse(env, r, header, user, error);
    if (rc) {
        r->body = NULL; /* stays the caller's */
        api_request_free(r);
    }
    return rc;
}
