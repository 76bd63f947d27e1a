/* The writer of chat completions: exact bytes, streamed and whole; random answers whose streams, put together as a client does, are the
 * whole
 * answer; memory running out at each allocation. */
#include "api_script.h"

#include "api/usage.h"
#include "base/json.h"

static skua_engine *engine;
static struct api_env env = {.model_id = "m", .fingerprint = "fp_0123456789", .n_ctx = 100, .numeric_mode = "fast"};

static struct api_request request(bool stream)
{
    struct api_request r = {.family = API_CHAT, .stream = stream, .n = 1, .best_of = 1, .n_logprobs = -1};
    snprintf(r.model, sizeof r.model, "m");
    return r;
}

static const struct api_usage usage_of_end = {.looked_up = true, .n_prompt = 30, .n_cached = 20, .n_generated = 5, .n_thinking = 2,
    .queue_s = 0.5, .prompt_s = 0.25,
                                              .generate_s = 2};

/* Events of one choice, or of two that take turns. */
static int play(const struct script *s, const struct api_request *r, struct strbuf *out)
{
    struct api_usage end = usage_of_end;
    struct api_writer *w = chat_writer_new();
    if (!w)
        return SKUA_ENOMEM;
    api_writer_init(w, &env, r, "req_test");
    w->created = 7;
    snprintf(w->id, sizeof w->id, "chatcmpl-x");
    w->now = &end;
    int rc = w->ops->begin(w, &end);
    for (size_t i = 0; !rc && i < s->n; i++) {
        rc = i == s->keepalive_at ? w->ops->keepalive(w) : 0;
        for (int32_t k = 0; k < r->n && !rc; k++)
            rc = w->ops->event(w, k, &s->events[i]);
    }
    if (!rc && s->fail.status)
        rc = w->ops->fail(w, &s->fail);
    for (int32_t k = 0; k < r->n && !rc && !s->fail.status; k++)
        rc = w->ops->choice_end(w, k, &s->end);
    if (!rc && !s->fail.status)
        rc = w->ops->end(w, &end);
    strbuf_append(out, w->out.data, w->out.len);
    rc = rc ? rc : out->failed ? SKUA_ENOMEM : 0;
    api_writer_free(w);
    return rc;
}

static void expect(int line, const struct script *s, const struct api_request *r, const char *want)
{
    struct strbuf got = {0};
    int rc = play(s, r, &got);
    CHECK(rc == 0, "line %d: %d", line, rc);
    CHECK(strcmp(strbuf_str(&got), want) == 0, "line %d:\n%s\nshould be\n%s", line, strbuf_str(&got), want);
    strbuf_free(&got);
}
#define EXPECT(s, r, want) expect(__LINE__, s, r, want)

#define HEAD(object) "{\"id\":\"chatcmpl-x\",\"object\":\"" object "\",\"created\":7,\"model\":\"m\"," \
    "\"system_fingerprint\":\"fp_0123456789\""
#define CHUNK_OF(index, delta, logprobs, rest) \
    "data: " HEAD("chat.completion.chunk") ",\"choices\":[{\"index\":" index ",\"delta\":" delta ",\"logprobs\":" logprobs rest "}\n\n"
#define CHUNK(delta) CHUNK_OF("0", delta, "null", ",\"finish_reason\":null}]")
#define TIMINGS                                                                                                                      \
    ",\"timings\":{\"cache_n\":20,\"prompt_n\":10,\"prompt_ms\":250.0,\"prompt_per_token_ms\":25.0,\"prompt_per_second\":40.0,"     \
    "\"predicted_n\":5,\"predicted_ms\":2000.0,\"predicted_per_token_ms\":400.0,\"predicted_per_second\":2.5,\"queue_ms\":500.0,"    \
    "\"draft_n\":0,\"draft_n_accepted\":0}"
#define LAST(reason, stop) CHUNK_OF("0", "{}", "null", ",\"finish_reason\":\"" reason "\",\"stop_reason\":" stop "}]" TIMINGS)
#define ROLE CHUNK("{\"role\":\"assistant\",\"content\":\"\"}")
#define DONE "data: [DONE]\n\n"
#define USAGE                                                                                                                        \
    "\"usage\":{\"prompt_tokens\":30,\"completion_tokens\":5,\"total_tokens\":35,\"prompt_tokens_details\":{\"cached_tokens\":20},"  \
    "\"completion_tokens_details\":{\"reasoning_tokens\":2,\"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}}"
#define WHOLE(message, logprobs, reason, stop)                                                                                       \
    HEAD("chat.completion") ",\"service_tier\":\"default\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\"," message  \
    "},\"logprobs\":" logprobs ",\"finish_reason\":\"" reason "\",\"stop_reason\":" stop "}]," USAGE TIMINGS "}"
#define MESSAGE(content) "\"content\":" content ",\"refusal\":null,\"annotations\":[]"

static void test_text(void)
{
    struct script s = {.events = {TEXT("H\xC3\xA9\"\n"), TEXT(""), TEXT("\xE2\x80\xA8!")}, .n = 3, .keepalive_at = SIZE_MAX};
    struct api_request stream = request(true), whole = request(false);
    EXPECT(&s, &stream, ROLE CHUNK("{\"content\":\"H\xC3\xA9\\\"\\n\"}") CHUNK("{\"content\":\"\\u2028!\"}") LAST("stop", "null") DONE);
    EXPECT(&s, &whole, WHOLE(MESSAGE("\"H\xC3\xA9\\\"\\n\\u2028!\""), "null", "stop", "null"));
    s.end = (struct api_choice_end){.finish = API_FINISH_STOP_STRING, .stop_string = "E"};
    EXPECT(&s, &whole, WHOLE(MESSAGE("\"H\xC3\xA9\\\"\\n\\u2028!\""), "null", "stop", "\"E\""));
    s.end = (struct api_choice_end){.finish = API_FINISH_CONTEXT};
    s.n = 0;
    EXPECT(&s, &whole, WHOLE(MESSAGE("null"), "null", "length", "null"));
    EXPECT(&s, &stream, ROLE LAST("length", "null") DONE);
    s.n = 1;
    s.keepalive_at = 0;
    EXPECT(&s, &stream, ROLE ": keep-alive\n\n" CHUNK("{\"content\":\"H\xC3\xA9\\\"\\n\"}") LAST("length", "null") DONE);
    env.chat_keepalive = API_KEEPALIVE_CHUNK;
    EXPECT(&s, &stream, ROLE CHUNK("{}") CHUNK("{\"content\":\"H\xC3\xA9\\\"\\n\"}") LAST("length", "null") DONE);
    env.chat_keepalive = API_KEEPALIVE_BOTH;
}

static void test_usage(void)
{
#define USAGE_CHUNK(index, delta, rest) CHUNK_OF(index, delta, "null", rest)
    struct script s = {.events = {TEXT("a")}, .n = 1, .keepalive_at = SIZE_MAX};
    struct api_request r = request(true);
    r.include_usage = true;
    r.n = 2;
#define NULL_USAGE ",\"finish_reason\":null}],\"usage\":null"
#define STOP_USAGE ",\"finish_reason\":\"stop\",\"stop_reason\":null}],\"usage\":null"
    EXPECT(&s, &r, CHUNK_OF("0", "{\"role\":\"assistant\",\"content\":\"\"}", "null", NULL_USAGE)
           CHUNK_OF("1", "{\"role\":\"assistant\",\"content\":\"\"}", "null", NULL_USAGE) CHUNK_OF("0", "{\"content\":\"a\"}", "null",
               NULL_USAGE)
           CHUNK_OF("1", "{\"content\":\"a\"}", "null", NULL_USAGE) CHUNK_OF("0", "{}", "null", STOP_USAGE)
           CHUNK_OF("1", "{}", "null", STOP_USAGE TIMINGS) "data: " HEAD("chat.completion.chunk") ",\"choices\":[]," USAGE "}\n\n" DONE);
}

/* What each chunk tells of the cost so far, when it is asked to. */
static void test_running_numbers(void)
{
    struct script s = {.events = {TEXT("a")}, .n = 1, .keepalive_at = SIZE_MAX};
    struct api_request r = request(true);
    r.timings_per_token = true;
#define TIMED(delta) CHUNK_OF("0", delta, "null", ",\"finish_reason\":null}]" TIMINGS)
    EXPECT(&s, &r, TIMED("{\"role\":\"assistant\",\"content\":\"\"}") TIMED("{\"content\":\"a\"}") LAST("stop", "null") DONE);
    r.continuous_usage = true; /* of no effect alone */
    EXPECT(&s, &r, TIMED("{\"role\":\"assistant\",\"content\":\"\"}") TIMED("{\"content\":\"a\"}") LAST("stop", "null") DONE);
    r.include_usage = true;
    r.timings_per_token = false;
#define USED(delta) CHUNK_OF("0", delta, "null", ",\"finish_reason\":null}]," USAGE)
    EXPECT(&s, &r, USED("{\"role\":\"assistant\",\"content\":\"\"}") USED("{\"content\":\"a\"}")
           CHUNK_OF("0", "{}", "null", ",\"finish_reason\":\"stop\",\"stop_reason\":null}]," USAGE TIMINGS)
           "data: " HEAD("chat.completion.chunk") ",\"choices\":[]," USAGE "}\n\n" DONE);
}

static void test_thinking(void)
{
    struct script s = {.events = {THINK("wh"), THINK("y"), THINK_END(), TEXT("A")}, .n = 4, .keepalive_at = SIZE_MAX};
    struct api_request stream = request(true), whole = request(false);
    EXPECT(&s, &stream, ROLE CHUNK("{\"reasoning_content\":\"wh\"}") CHUNK("{\"reasoning_content\":\"y\"}") CHUNK("{\"content\":\"A\"}")
           LAST("stop", "null") DONE);
    EXPECT(&s, &whole, WHOLE(MESSAGE("\"A\"") ",\"reasoning_content\":\"why\"", "null", "stop", "null"));
    stream.reasoning_format = whole.reasoning_format = API_REASONING_INLINE;
    EXPECT(&s, &stream, ROLE CHUNK("{\"content\":\"<think>\\n\"}") CHUNK("{\"content\":\"wh\"}") CHUNK("{\"content\":\"y\"}")
           CHUNK("{\"content\":\"\\n</think>\\n\\n\"}") CHUNK("{\"content\":\"A\"}") LAST("stop", "null") DONE);
    EXPECT(&s, &whole, WHOLE(MESSAGE("\"<think>\\nwhy\\n</think>\\n\\nA\""), "null", "stop", "null"));
    stream.reasoning_format = whole.reasoning_format = API_REASONING_HIDDEN;
    EXPECT(&s, &stream, ROLE CHUNK("{\"content\":\"A\"}") LAST("stop", "null") DONE);
    EXPECT(&s, &whole, WHOLE(MESSAGE("\"A\""), "null", "stop", "null"));
}

static struct api_event numbered(struct api_event e, int32_t call, bool custom)
{
    e.call = call;
    e.custom = custom;
    return e;
}

static void test_calls(void)
{
    struct script s = {.events = {numbered(CALL("call_a", "f"), 0, false), numbered(ARGS("call_a", "f", "{\"k\":"), 0, false),
                                  numbered(ARGS("call_a", "f", "1}"), 0, false), numbered(CALL_END("call_a", "f", "{\"k\":1}"), 0, false),
                                  numbered(CALL("call_b", "c"), 1, true), numbered(ARGS("call_b", "c", "x\""), 1, true),
                                  numbered(CALL_END("call_b", "c", "x\""), 1, true)},
                       .n = 7, .end = {.finish = API_FINISH_CALLS}, .keepalive_at = SIZE_MAX};
    struct api_request stream = request(true), whole = request(false);
    EXPECT(&s, &stream, ROLE
           CHUNK("{\"tool_calls\":[{\"index\":0,\"id\":\"call_a\",\"type\":\"function\",\"function\":{\"name\":\"f\","
               "\"arguments\":\"\"}}]}")
           CHUNK("{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"k\\\":\"}}]}")
           CHUNK("{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"1}\"}}]}")
           CHUNK("{\"tool_calls\":[{\"index\":1,\"id\":\"call_b\",\"type\":\"custom\",\"custom\":{\"name\":\"c\",\"input\":\"\"}}]}")
           CHUNK("{\"tool_calls\":[{\"index\":1,\"custom\":{\"input\":\"x\\\"\"}}]}") LAST("tool_calls", "null") DONE);
    EXPECT(&s, &whole, WHOLE(MESSAGE("null") ",\"tool_calls\":[{\"id\":\"call_a\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":"
                             "\"{\\\"k\\\":1}\"}},{\"id\":\"call_b\",\"type\":\"custom\",\"custom\":{\"name\":\"c\",\"input\":\"x\\\"\"}}]",
                             "null", "tool_calls", "null"));
    stream.legacy_functions = whole.legacy_functions = true;
    EXPECT(&s, &stream, ROLE CHUNK("{\"function_call\":{\"name\":\"f\",\"arguments\":\"\"}}")
           CHUNK("{\"function_call\":{\"arguments\":\"{\\\"k\\\":\"}}") CHUNK("{\"function_call\":{\"arguments\":\"1}\"}}")
           LAST("function_call", "null") DONE);
    EXPECT(&s, &whole, WHOLE(MESSAGE("null") ",\"function_call\":{\"name\":\"f\",\"arguments\":\"{\\\"k\\\":1}\"}", "null",
        "function_call", "null"));
}

static void test_logprobs(void)
{
    int32_t ids[2] = {0};
    size_t n, len;
    int32_t *all;
    CHECK(skua_tokenize(engine, "a", 1, false, &all, &n, NULL) == 0 && n == 1, "a token");
    ids[0] = all[0];
    skua_free(all);
    const char *bytes = skua_token_bytes(engine, ids[0], true, &len);
    const struct token_logprob top[] = {{ids[0], -0.25}};
    const struct api_token_logprob l[] = {{ids[0], bytes, len, -0.25, top, 1}, {ids[0], "\xC3", 1, -1e30, NULL, 0}};
    struct script s = {.events = {TEXT("a")}, .n = 1, .keepalive_at = SIZE_MAX};
    struct api_request stream = request(true), whole = request(false);
    s.events[0].logprobs = l;
    s.events[0].n_logprobs = 2;
    stream.n_logprobs = whole.n_logprobs = 1;
#define LOGPROBS                                                                                                                     \
    "{\"content\":[{\"token\":\"a\",\"logprob\":-0.25,\"bytes\":[97],\"top_logprobs\":[{\"token\":\"a\",\"logprob\":-0.25," \
        "\"bytes\":[97]}]}," \
    "{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-9999.0,\"bytes\":[195],\"top_logprobs\":[]}],\"refusal\":null}"
    EXPECT(&s, &stream, ROLE CHUNK_OF("0", "{\"content\":\"a\"}", LOGPROBS, ",\"finish_reason\":null}]") LAST("stop", "null") DONE);
    EXPECT(&s, &whole, WHOLE(MESSAGE("\"a\""), LOGPROBS, "stop", "null"));
}

static void test_failure(void)
{
#define ERROR "{\"error\":{\"message\":\"no \\\"device\\\"\",\"type\":\"server_error\",\"param\":null,\"code\":\"backend_error\"}}"
    struct script s = {.events = {TEXT("a")}, .n = 1, .keepalive_at = SIZE_MAX};
    struct api_request stream = request(true), whole = request(false);
    api_error_set(&s.fail, 500, "backend_error", NULL, "no \"device\"");
    EXPECT(&s, &stream, ROLE CHUNK("{\"content\":\"a\"}") "data: " ERROR "\n\n");
    EXPECT(&s, &whole, ERROR);
}

static void test_engine(void)
{
    static const int32_t from[] = {5, 6};
    int32_t ids[] = {1, 2, 3};
    struct api_prompt prompt = {.ids = ids, .n = 3};
    struct batch_start start = {.n_prompt = 3, .n_cached = 1, .source = BATCH_SOURCE_RAM, .miss_reason = "diverged", .diverged_at = 1,
                                .diverged_from = from, .n_diverged_from = 2};
    struct batch_result result = {.draft = {.n_sources = 1, .depth = {2, 0, 2}, .sources = {{.name = "mtp", .rounds = 2, .tested = {2, 1},
                                                                                             .accepted = {2}}}}};
    struct api_usage u = {.n_prompt = 3, .n_cached = 1, .start = &start, .result = &result};
    struct api_request r = request(false);
    struct strbuf b = {0};
    r.prompts = &prompt;
    r.n_prompts = 1;
    api_engine_json(&b, &env, &r, &u);
    json_t *v = json_loads(strbuf_str(&b), 0, NULL), *cache = json_object_get(v, "cache"), *spec = json_object_get(v, "speculation");
    CHECK(v && !strcmp(json_string_value(json_object_get(v, "numeric_mode")), "fast"), "%s", strbuf_str(&b));
    CHECK(json_integer_value(json_object_get(spec, "drafted")) == 3 && json_integer_value(json_object_get(spec, "accepted")) == 2 &&
              json_is_null(json_object_get(spec, "why_off")) && !strcmp(json_string_value(json_object_get(spec, "type")), "mtp"),
          "%s", strbuf_str(&b));
    CHECK(!strcmp(json_string_value(json_object_get(cache, "source")), "ram") && json_integer_value(json_object_get(cache,
        "hit_tokens")) == 1 &&
              !strcmp(json_string_value(json_object_get(cache, "miss_reason")), "diverged") &&
              json_integer_value(json_object_get(json_object_get(cache, "diverged_at"), "token")) == 1,
          "%s", strbuf_str(&b));
    json_decref(v);
    strbuf_free(&b);
}

/* ---- streams put together ---- */

static void add(json_t *o, const char *key, const json_t *text)
{
    const json_t *old = json_object_get(o, key);
    if (json_is_string(text))
        json_object_set_new(o, key, json_sprintf("%s%s", json_is_string(old) ? json_string_value(old) : "", json_string_value(text)));
}

static void add_call(json_t *message, const json_t *delta)
{
    json_t *calls = json_object_get(message, "tool_calls"), *call;
    size_t index = (size_t)json_integer_value(json_object_get(delta, "index"));
    if (!calls)
        json_object_set_new(message, "tool_calls", calls = json_array());
    if (index == json_array_size(calls)) {
        call = json_deep_copy(delta);
        json_object_del(call, "index");
        json_array_append_new(calls, call);
        return;
    }
    call = json_array_get(calls, index);
    bool custom = json_object_get(delta, "custom") != NULL;
    json_t *mine = json_object_get(call, custom ? "custom" : "function");
    const char *key = custom ? "input" : "arguments";
    CHECK(mine && index + 1 == json_array_size(calls), "a fragment of call %zu", index);
    add(mine, key, json_object_get(json_object_get(delta, custom ? "custom" : "function"), key));
}

/* The message that a client makes of a stream; NULL: it is not a stream. */
static json_t *assemble(char *text, const char **reason)
{
    json_t *message = json_object();
    bool done = false;
    for (char *end; (end = strstr(text, "\n\n")) != NULL; text = end + 2) {
        *end = '\0';
        if (*text == ':')
            continue;
        CHECK(!done && !strncmp(text, "data: ", 6) && !strchr(text, '\n'), "an event: %s", text);
        if ((done = !strcmp(text + 6, "[DONE]")))
            continue;
        json_t *chunk = json_loads(text + 6, 0, NULL), *delta;
        const json_t *choice = json_array_get(json_object_get(chunk, "choices"), 0), *finish = json_object_get(choice, "finish_reason");
        CHECK(choice && *reason[0] == '\0', "a chunk behind the last: %s", text);
        delta = json_object_get(choice, "delta");
        add(message, "content", json_object_get(delta, "content"));
        add(message, "reasoning_content", json_object_get(delta, "reasoning_content"));
        if (json_object_get(delta, "tool_calls"))
            add_call(message, json_array_get(json_object_get(delta, "tool_calls"), 0));
        if (json_is_string(finish))
            *reason = !strcmp(json_string_value(finish), "stop") ? "stop" : !strcmp(json_string_value(finish), "length") ? "length" :
                "tool_calls";
        json_decref(chunk);
    }
    CHECK(done && *text == '\0', "the stream ends in '%s'", text);
    if (json_string_length(json_object_get(message, "content")) == 0)
        json_object_set_new(message, "content", json_null());
    return message;
}

static void number_calls(struct script *s)
{
    int32_t call = -1;
    for (size_t i = 0; i < s->n; i++) {
        call += s->events[i].kind == API_EVENT_CALL_BEGIN;
        s->events[i].call = call < 0 ? 0 : call;
    }
}

static void test_random(void)
{
    uint64_t state = 8;
    for (int i = 0; i < 400; i++) {
        struct script s;
        struct strbuf streamed = {0}, body = {0};
        struct api_request stream = request(true), whole = request(false);
        script_random(&s, &state, true);
        s.fail.status = 0;
        if (s.end.finish == API_FINISH_LENGTH && s.n && s.events[s.n - 1].kind == API_EVENT_CALL_ARGS) /* whole answers close what is cut */
            s.events[s.n - 1].kind = API_EVENT_CALL_END;
        number_calls(&s);
        for (size_t k = 1; k < s.n; k++)
            if (s.events[k].kind == API_EVENT_CALL_END && s.events[k - 1].kind != API_EVENT_CALL_BEGIN && !s.events[k].complete)
                s.n = k - 2; /* its text is not what was streamed: leave the call out */
        stream.reasoning_format = whole.reasoning_format = i % 3 == 0 ? API_REASONING_INLINE : API_REASONING_SEPARATE;
        CHECK(play(&s, &stream, &streamed) == 0 && play(&s, &whole, &body) == 0, "case %d", i);
        const char *reason = "";
        json_t *got = assemble(streamed.data, &reason), *v = json_loads(strbuf_str(&body), 0, NULL);
        json_t *choice = json_array_get(json_object_get(v, "choices"), 0), *message = json_object_get(choice, "message");
        json_object_del(message, "role");
        json_object_del(message, "refusal");
        json_object_del(message, "annotations");
        char *a = json_dumps(got, JSON_SORT_KEYS), *b = json_dumps(message, JSON_SORT_KEYS);
        CHECK(a && b && !strcmp(a, b), "case %d: streamed\n%s\nwhole\n%s", i, a, b);
        CHECK(!strcmp(reason, json_string_value(json_object_get(choice, "finish_reason"))), "case %d: %s", i, reason);
        json_free_t release;
        json_get_alloc_funcs(NULL, &release);
        release(a);
        release(b);
        json_decref(got);
        json_decref(v);
        strbuf_free(&streamed);
        strbuf_free(&body);
        script_free(&s);
    }
}

static void test_memory(void)
{
    struct script s = {.events = {THINK("why"), THINK_END(), TEXT("A"), CALL("call_a", "f"), ARGS("call_a", "f", "{}"),
        CALL_END("call_a", "f", "{}")},
                       .n = 6, .end = {.finish = API_FINISH_STOP_STRING, .stop_string = "E"}, .keepalive_at = 2};
    for (int streams = 0; streams < 2; streams++) {
        struct api_request r = request(streams);
        struct strbuf want = {0};
        CHECK(play(&s, &r, &want) == 0, "plays");
        size_t live = mem_live_blocks();
        for (uint64_t n = 1, done = 0; !done; n++) {
            struct strbuf got = {0};
            fault_set_alloc(n, true);
            int rc = play(&s, &r, &got);
            done = fault_alloc_count() < n;
            fault_set_alloc(0, false);
            CHECK(done ? rc == 0 && !strcmp(strbuf_str(&got), want.data) : rc == SKUA_ENOMEM, "allocation %d: %d", (int)n, rc);
            strbuf_free(&got);
            CHECK(mem_live_blocks() == live, "allocation %d leaves memory behind", (int)n);
        }
        strbuf_free(&want);
    }
}

int main(void)
{
    skua_error err = {0};
    const char *path = support_model("tiny-q8_0.gguf");
    json_use_mem();
    if (!path || skua_engine_open(path, NULL, &engine, &err)) {
        CHECK(!path, "%s", err.message);
        return support_finish("test_api_chat_write");
    }
    env.engine = engine;
    test_text();
    test_usage();
    test_running_numbers();
    test_thinking();
    test_calls();
    test_logprobs();
    test_failure();
    test_engine();
    test_random();
    test_memory();
    skua_engine_close(engine);
    return support_finish("test_api_chat_write");
}
