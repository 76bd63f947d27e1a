/* Body of a text completion to a request with its prompts: spec/api.md 7. */
#include <string.h>

#include "api/common.h"
#include "base/mem.h"

#define MAX_PROMPTS 64

static int fail_tokens(const skua_error *err, const struct api_path *at, struct api_error *e)
{
    api_error_from(err, e);
    api_path_text(at, e->param);
    return -1;
}

static int take_text(const struct api_env *env, const char *text, size_t n, struct api_prompt *p, const struct api_path *at,
                     struct api_error *e)
{
    static const char nothing[] = "<|endoftext|>"; /* an empty prompt begins a document */
    skua_error err = {0};
    size_t n_ids;
    if (skua_tokenize(env->engine, n ? text : nothing, n ? n : sizeof nothing - 1, true, &p->ids, &n_ids, &err))
        return fail_tokens(&err, at, e);
    p->n = (int32_t)n_ids;
    return 0;
}

static int take_ids(const struct api_env *env, const json_t *list, struct api_prompt *p, const struct api_path *at, struct api_error *e)
{
    int32_t n_vocab = skua_engine_get_info(env->engine).n_vocab;
    size_t i, n = json_array_size(list);
    json_t *id;
    if (n == 0)
        return api_fail_value(e, at, list, "at least one token id");
    if (n > INT32_MAX || !(p->ids = mem_alloc(n * sizeof *p->ids)))
        return api_fail_nomem(e);
    json_array_foreach(list, i, id) {
        if (!json_is_integer(id))
            return api_fail_type(e, API_ITEM(at, i), id, "a token id (an integer)");
        json_int_t v = json_integer_value(id);
        if (v < 0 || v >= n_vocab)
            return api_fail(e, "invalid_value", API_ITEM(at, i), "expected a token id from 0 to %d, got %" JSON_INTEGER_FORMAT,
                            (int)n_vocab - 1, v);
        p->ids[i] = (int32_t)v;
    }
    p->n = (int32_t)n;
    return 0;
}

static int take_prompt(const struct api_env *env, const json_t *v, struct api_prompt *p, const struct api_path *at, struct api_error *e)
{
    if (json_is_string(v))
        return take_text(env, json_string_value(v), json_string_length(v), p, at, e);
    if (json_is_array(v))
        return take_ids(env, v, p, at, e);
    return api_fail_type(e, at, v, "a string or a list of token ids");
}

static int parse_prompts(const struct api_env *env, struct api_request *r, struct api_error *e)
{
    const struct api_path *at = API_KEY(NULL, "prompt");
    const json_t *v = api_field(r->body, "prompt");
    bool several = json_is_array(v) && !json_is_integer(json_array_get(v, 0));
    size_t n = several ? json_array_size(v) : 1;
    if (v && !json_is_string(v) && !json_is_array(v))
        return api_fail_type(e, at, v, "a string, a list of strings, a list of token ids or a list of such lists");
    if (n == 0)
        return api_fail_value(e, at, v, "at least one prompt");
    if (n > MAX_PROMPTS)
        return api_fail(e, "invalid_value", at, "expected at most %d prompts, got %zu", MAX_PROMPTS, n);
    if (!(r->prompts = mem_calloc(n, sizeof *r->prompts)))
        return api_fail_nomem(e);
    r->n_prompts = n;
    for (size_t i = 0; i < n; i++) {
        const struct api_path *item = several ? API_ITEM(at, i) : at;
        struct api_prompt *p = &r->prompts[i];
        int rc = !v ? take_text(env, "", 0, p, at, e) : take_prompt(env, several ? json_array_get(v, i) : v, p, item, e);
        if (rc || api_prompt_check(env, r, p, e))
            return -1;
    }
    return 0;
}

static int parse_choices(struct api_request *r, struct api_error *e)
{
    if (api_choices_parse(r, e))
        return -1;
    r->best_of = r->n;
    if (api_get_int32(r->body, NULL, "best_of", 1, 16, &r->best_of, e))
        return -1;
    const struct api_path *at = API_KEY(NULL, "best_of");
    if (r->best_of < r->n)
        return api_fail(e, "invalid_value", at, "expected at least n (%d), got %d", (int)r->n, (int)r->best_of);
    if (r->best_of > r->n && r->stream)
        return api_fail(e, "invalid_value", at, "not possible with \"stream\": true");
    return 0;
}

static int parse_logprobs(struct api_request *r, struct api_error *e)
{
    if (api_get_int32(r->body, NULL, "logprobs", 0, 20, &r->n_logprobs, e))
        return -1;
    r->hide_logprobs = r->n_logprobs < 0 && r->best_of > r->n;
    r->n_logprobs = r->hide_logprobs ? 0 : r->n_logprobs;
    return 0;
}

static int parse(const struct api_env *env, struct api_request *r, api_header_fn *header, void *user, struct api_error *e)
{
    static const char *const limits[] = {"max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"};
    const char *suffix = NULL, *text = NULL;
    bool limited = false;
    if (api_common_parse(env, r, 0, header, user, e) || parse_choices(r, e) || api_stop_parse(r, "stop", e) ||
        api_stream_options_parse(r, e) || api_get_bool(r->body, NULL, "echo", &r->echo, e) || parse_logprobs(r, e) ||
        api_get_string(r->body, NULL, "suffix", &suffix, e) || api_get_string(r->body, NULL, "user", &text, e) ||
        api_structure_parse(r, api_field(r->body, "response_format"), API_KEY(NULL, "response_format"), false, e))
        return -1;
    if (suffix && *suffix)
        return api_fail(e, "unsupported_value", API_KEY(NULL, "suffix"), "this model cannot fill in before a suffix; leave it out");
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        limited |= api_field(r->body, limits[i]) != NULL;
    if (!limited)
        r->max_tokens = env->completions_max_tokens;
    return parse_prompts(env, r, e);
}

int completions_parse(const struct api_env *env, json_t *body, api_header_fn *header, void *user, struct api_request *r,
                      struct api_error *error)
{
    api_request_init(r, API_COMPLETIONS, env, body);
    int rc = parse(env, r, header, user, error);
    if (rc) {
        r->body = NULL; /* stays the caller's */
        api_request_free(r);
    }
    return rc;
}
