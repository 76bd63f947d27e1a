/* A body of /v1/responses to a request: spec/api.md 9.1. Tools are in responses_tools.c, the input in responses_input.c. */
#include "api/api.h"
#include "api/common.h"
#include "api/responses.h"
#include "base/json.h"

/* Fields that ask for what this server does not do. */
static int refuse_unsupported(const json_t *body, struct api_error *e)
{
    bool background = false;
    if (api_field(body, "conversation"))
        return api_fail(e, "previous_response_not_found", API_KEY(NULL, "conversation"),
                        "conversations are not kept here; send the whole conversation as input");
    if (api_get_bool(body, NULL, "background", &background, e))
        return -1;
    if (background)
        return api_fail(e, "unsupported_parameter", API_KEY(NULL, "background"), "answers are not made in the background; use \"stream\"");
    if (api_field(body, "prompt"))
        return api_fail(e, "unsupported_parameter", API_KEY(NULL, "prompt"),
                        "there are no stored prompts; use \"instructions\" and \"input\"");
    return 0;
}

/* include and top_logprobs. */
static int parse_include(struct api_request *r, struct api_error *e)
{
    json_t *include = NULL, *what;
    int32_t top = -1;
    size_t i;
    if (api_get_int32(r->body, NULL, "top_logprobs", 0, 20, &top, e) || api_get_array(r->body, NULL, "include", &include, e))
        return -1;
    r->n_logprobs = top > 0 ? top : -1;
    json_array_foreach(include, i, what) {
        r->encrypted_reasoning |= api_is(what, "reasoning.encrypted_content");
        if (api_is(what, "message.output_text.logprobs"))
            r->n_logprobs = top > 0 ? top : 0;
    }
    return 0;
}

static int parse_reasoning(const struct api_env *env, struct api_request *r, struct api_error *e)
{
    static const char *const summaries[] = {"none", "auto", "concise", "detailed"};
    const struct api_path *at = API_KEY(NULL, "reasoning");
    json_t *reasoning = NULL;
    int summary = 0;
    if (api_get_object(r->body, NULL, "reasoning", &reasoning, e) || api_get_choice(reasoning, at, "summary", summaries, 4, &summary, e))
        return -1;
    r->summary = summary > 0;
    return api_thinking_parse(env, r, api_field(reasoning, "effort"), API_KEY(at, "effort"), false, e);
}

static int parse_rest(struct api_request *r, bool *store, struct api_error *e)
{
    static const char *const truncations[] = {"disabled", "auto"};
    const struct api_path *at = API_KEY(NULL, "text");
    json_t *text = NULL;
    int truncation = 0;
    if (api_get_object(r->body, NULL, "text", &text, e) ||
        api_structure_parse(r, api_field(text, "format"), API_KEY(at, "format"), true, e) ||
        api_get_choice(r->body, NULL, "truncation", truncations, 2, &truncation, e) || api_get_bool(r->body, NULL, "store", store, e))
        return -1;
    r->truncate = truncation == 1;
    return 0;
}

/* ---- what the response object repeats ---- */

/* value is taken over; NULL: out of memory. */
static int echo(struct api_request *r, const char *key, json_t *value) { return json_object_set_new(r->echo_fields, key, value); }

/* A member of what the client sent, null if it is absent. */
static json_t *given(const json_t *object, const char *key)
{
    json_t *v = api_field(object, key);
    return v ? json_incref(v) : json_null();
}

/* The field as it came, or what stands for an absent one. */
static int echo_or(struct api_request *r, const char *key, json_t *absent)
{
    json_t *v = api_field(r->body, key);
    if (!v)
        return echo(r, key, absent);
    json_decref(absent);
    return echo(r, key, json_incref(v));
}

static int echo_reasoning(struct api_request *r)
{
    const json_t *reasoning = api_field(r->body, "reasoning");
    return echo(r, "reasoning", json_pack("{s:o, s:o}", "effort", given(reasoning, "effort"), "summary", given(reasoning, "summary")));
}

static int echo_text(struct api_request *r)
{
    json_t *text = api_field(r->body, "text"), *v = text ? json_copy_whole(text) : json_object();
    int failed = !v;
    if (!api_field(text, "format"))
        failed |= json_object_set_new(v, "format", json_pack("{s:s}", "type", "text"));
    if (!api_field(text, "verbosity"))
        failed |= json_object_set_new(v, "verbosity", json_string("medium"));
    if (failed) {
        json_decref(v);
        return -1;
    }
    return echo(r, "text", v);
}

static int echo_request(struct api_request *r, bool store, struct api_error *e)
{
    static const char *const as_given[] = {"instructions", "max_output_tokens", "max_tool_calls", "previous_response_id",
                                           "prompt_cache_key", "safety_identifier", "user"};
    int failed = !(r->echo_fields = json_object());
    for (size_t i = 0; i < sizeof as_given / sizeof *as_given && !failed; i++)
        failed = echo(r, as_given[i], given(r->body, as_given[i]));
    failed = failed || echo_or(r, "service_tier", json_string("default")) || echo_or(r, "tool_choice", json_string("auto"))
        || echo_or(r, "truncation", json_string("disabled")) || echo_or(r, "tools", json_array()) || echo_or(r, "metadata", json_object())
        || echo(r, "store", json_boolean(store)) || echo(r, "parallel_tool_calls", json_boolean(r->parallel_calls)) || echo_reasoning(r)
        || echo_text(r) || echo(r, "temperature", json_real(r->sampling.temperature)) || echo(r, "top_p", json_real(r->sampling.top_p))
        || echo(r, "top_logprobs", json_integer(r->n_logprobs > 0 ? r->n_logprobs : 0));
    return failed ? api_fail_nomem(e) : 0;
}

/* The extension continue_final_message: an assistant's message at the end is gone on with. */
static int parse_continue(struct api_request *r, struct api_error *e)
{
    bool go_on = false;
    if (api_get_bool(r->body, NULL, "continue_final_message", &go_on, e))
        return -1;
    const json_t *last = json_array_get(r->messages, json_array_size(r->messages) - 1);
    r->continue_final = go_on && api_is(json_object_get(last, "role"), "assistant") && !json_object_get(last, "tool_calls");
    return 0;
}

int responses_parse(const struct api_env *env, const struct response_access *kept, json_t *body, api_header_fn *header, void *user,
                    struct api_request *r, struct api_error *error)
{
    bool store = kept && kept->store; /* as in the public API, unless the client does not want it */
    api_request_init(r, API_RESPONSES, env, body);
    if (refuse_unsupported(body, error) || api_common_parse(env, r, 1, header, user, error) || api_stop_parse(r, "stop", error) ||
        parse_include(r, error) || parse_reasoning(env, r, error) || parse_rest(r, &store, error) || responses_tools_parse(r, error) ||
        responses_input_parse(r, kept, store, error) || parse_continue(r, error) || echo_request(r, store, error)) {
        r->body = NULL; /* the caller's again */
        api_request_free(r);
        return -1;
    }
    if (strbuf_failed(&r->warnings))
        strbuf_clear(&r->warnings); /* the answer matters more */
    return 0;
}
