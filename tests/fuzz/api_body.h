/* What the fuzz targets of the Responses and Messages parsers share: any bytes as a body. A refusal must be one line of UTF-8 and leave
 * nothing behind; an accepted body must be a request that everything behind the parser can rely on, and its empty answer must be JSON. */
#ifndef SKUA_TESTS_FUZZ_API_BODY_H
#define SKUA_TESTS_FUZZ_API_BODY_H

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/common.h"
#include "api/writer.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"

#define MUST(c)      \
    do {             \
        if (!(c))    \
            abort(); \
    } while (0)

typedef int parse_fn(const struct api_env *env, json_t *body, struct api_request *r, struct api_error *e);

static inline void check_error(const struct api_error *e)
{
    uint32_t cp;
    MUST(e->status == 400 && *e->code && *e->message && !strpbrk(e->message, "\r\n"));
    for (const char *s = e->message, *end = s + strlen(s); s < end;) {
        int n = utf8_decode(s, (size_t)(end - s), &cp);
        MUST(n > 0);
        s += n;
    }
}

static inline void check_calls(const json_t *calls)
{
    size_t i;
    json_t *call;
    MUST(!calls || json_array_size(calls) > 0);
    json_array_foreach(calls, i, call) {
        const json_t *function = json_object_get(call, "function");
        MUST(json_is_string(json_object_get(function, "name")) && json_object_get(function, "arguments"));
    }
}

static inline void check_request(const struct api_request *r)
{
    size_t i;
    json_t *m;
    MUST(json_array_size(r->messages) > 0);
    json_array_foreach(r->messages, i, m) {
        const json_t *role = json_object_get(m, "role"), *thinking = json_object_get(m, "reasoning_content");
        MUST(api_is(role, "system") || api_is(role, "user") || api_is(role, "assistant") || api_is(role, "tool"));
        MUST(json_is_string(json_object_get(m, "content")) && (!thinking || json_is_string(thinking)));
        MUST(!json_object_get(m, "tool_calls") || api_is(role, "assistant"));
        check_calls(json_object_get(m, "tool_calls"));
    }
    MUST(!r->continue_final || api_is(json_object_get(json_array_get(r->messages, json_array_size(r->messages) - 1), "role"), "assistant"));
    MUST(json_array_size(r->template_tools) == r->n_tools && (r->n_tools || r->tool_choice == API_TOOLS_NONE));
    for (i = 0; i < r->n_tools; i++) {
        MUST(api_tool_find(r, r->tools[i].name) == &r->tools[i]);
        MUST(!r->tools[i].parameters || json_is_object(r->tools[i].parameters));
    }
    for (i = 0; i < r->n_allowed_tools; i++)
        MUST(api_tool_find(r, r->allowed_tools[i]));
}

static inline void check_answer(const struct api_env *env, const struct api_request *r)
{
    struct api_writer *w;
    const struct api_usage usage = {.n_prompt = 1};
    const struct api_choice_end end = {.finish = API_FINISH_STOP};
    MUST(api_writer_new(env, r, "req_fuzz", &w, NULL) == 0);
    MUST(!w->ops->begin(w, &usage) && !w->ops->choice_end(w, 0, &end) && !w->ops->end(w, &usage));
    if (!r->stream) {
        json_t *answer = json_loadb(w->out.data, w->out.len, JSON_ALLOW_NUL, NULL);
        MUST(json_is_object(answer));
        json_decref(answer);
    }
    api_writer_free(w);
}

static inline int fuzz_body(parse_fn *parse, const uint8_t *data, size_t size)
{
    const struct api_env env = {.model_id = "fuzz", .n_ctx = 4096, .thinking_budget = -1,
                                .defaults = {.temperature = 1, .top_p = 1, .repetition_penalty = 1}};
    struct api_request r = {0};
    struct api_error e = {0};
    json_t *body;
    size_t live = mem_live_blocks();
    if (api_body_parse((const char *)data, size, &body, &e)) {
        check_error(&e);
        MUST(!body && mem_live_blocks() == live);
        return 0;
    }
    json_object_del(body, "logit_bias"); /* these two ask the engine, and there is none */
    json_object_del(body, "engine_info");
    if (parse(&env, body, &r, &e)) {
        check_error(&e);
        json_decref(body);
    } else {
        check_request(&r);
        check_answer(&env, &r);
        api_request_free(&r);
    }
    MUST(mem_live_blocks() == live);
    return 0;
}

#endif
