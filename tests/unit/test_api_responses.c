/* The writer of /v1/responses: exact bytes for chosen answers; and for random ones the order of events (spec/api.md 9.4), checked by a
 * reader that knows nothing of the writer, the stream put together again against the whole body, and memory running out at each
 * allocation. */
#include "api_script.h"
#include "base/json.h"

static json_t *echo;
static struct api_tool tools[] = {{.name = "files.read", .ns = "files", .bare = "read"},
                                  {.name = "read"},
                                  {.name = "patch", .custom = true}};
static const struct api_env env = {.model_id = "skua-test"};

static struct api_request request(bool stream)
{
    struct api_request r = {.family = API_RESPONSES, .stream = stream, .echo_fields = echo, .tools = tools, .n_tools = 3};
    snprintf(r.model, sizeof r.model, "skua-test");
    return r;
}

static void expect(int line, const struct script *s, const struct api_request *r, const char *want)
{
    struct strbuf got = {0};
    int rc = script_play(responses_writer_new(), s, &env, r, &got);
    CHECK(rc == 0, "line %d: %d", line, rc);
    CHECK(strcmp(strbuf_str(&got), want) == 0, "line %d:\n%s\nshould be\n%s", line, strbuf_str(&got), want);
    strbuf_free(&got);
}
#define EXPECT(s, r, want) expect(__LINE__, s, r, want)

#define RESPONSE(done_at, status, error, details, output, usage)                                                              \
    "{\"id\":\"resp_test\",\"object\":\"response\",\"created_at\":1700000000,\"completed_at\":" done_at ",\"status\":\"" status   \
    "\",\"background\":false,\"error\":" error ",\"incomplete_details\":" details ",\"model\":\"skua-test\",\"output\":[" output \
    "],\"usage\":" usage ",\"temperature\":0.7,\"tools\":[]}"
#define USAGE(out, thinking, total)                                                                                                   \
    "{\"input_tokens\":30,\"input_tokens_details\":{\"cached_tokens\":20,\"cache_write_tokens\":0},\"output_tokens\":" out            \
    ",\"output_tokens_details\":{\"reasoning_tokens\":" thinking "},\"total_tokens\":" total "}"
#define EVENT(name, seq, rest) "event: " name "\ndata: {\"type\":\"" name "\",\"sequence_number\":" seq "," rest "}\n\n"
#define RUNNING RESPONSE("null", "in_progress", "null", "null", "", "null")
#define BEGIN                                                                \
    EVENT("response.created", "0", "\"response\":" RUNNING)                  \
    EVENT("response.in_progress", "1", "\"response\":" RUNNING)
#define COMPLETED(output, usage) RESPONSE("1700000003", "completed", "null", "null", output, usage)
#define CUT(output, usage) RESPONSE("null", "incomplete", "null", "{\"reason\":\"max_output_tokens\"}", output, usage)

#define MESSAGE(id, status, part) \
    "{\"type\":\"message\",\"id\":\"" id "\",\"status\":\"" status "\",\"role\":\"assistant\",\"content\":[" part "]}"
#define PART(text) "{\"type\":\"output_text\",\"text\":\"" text "\",\"annotations\":[],\"logprobs\":[]}"
#define FUNCTION(id, status, rest) "{\"type\":\"function_call\",\"id\":\"" id "\",\"status\":\"" status "\"," rest "}"

/* Events 2 to 4 and 5 to 8 of an answer that is one message "Hi\"" "!". */
#define AT(id, index) "\"item_id\":\"" id "\",\"output_index\":" index
#define TEXT_EVENTS(status)                                                                                                          \
    EVENT("response.output_item.added", "2", "\"output_index\":0,\"item\":" MESSAGE("msg_#1", "in_progress", ""))                    \
    EVENT("response.content_part.added", "3", AT("msg_#1", "0") ",\"content_index\":0,\"part\":" PART(""))                          \
    EVENT("response.output_text.delta", "4", AT("msg_#1", "0") ",\"content_index\":0,\"delta\":\"Hi\\\"\",\"logprobs\":[]")          \
    EVENT("response.output_text.delta", "5", AT("msg_#1", "0") ",\"content_index\":0,\"delta\":\"!\",\"logprobs\":[]")               \
    EVENT("response.output_text.done", "6", AT("msg_#1", "0") ",\"content_index\":0,\"text\":\"Hi\\\"!\",\"logprobs\":[]")           \
    EVENT("response.content_part.done", "7", AT("msg_#1", "0") ",\"content_index\":0,\"part\":" PART("Hi\\\"!"))                    \
    EVENT("response.output_item.done", "8", "\"output_index\":0,\"item\":" MESSAGE("msg_#1", status, PART("Hi\\\"!")))

static void test_text(void)
{
    struct script s = {.events = {TEXT("Hi\""), TEXT(""), TEXT("!")}, .n = 3, .end = {.n_tokens = 3}, .keepalive_at = SIZE_MAX};
    struct api_request stream = request(true), whole = request(false);
    EXPECT(&s, &stream, BEGIN TEXT_EVENTS("completed") EVENT("response.completed", "9", "\"response\":"
           COMPLETED(MESSAGE("msg_#1", "completed", PART("Hi\\\"!")), USAGE("3", "0", "33"))));
    EXPECT(&s, &whole, COMPLETED(MESSAGE("msg_#1", "completed", PART("Hi\\\"!")), USAGE("3", "0", "33")));
    s.end.finish = API_FINISH_STOP_STRING;
    s.end.stop_string = "END";
    EXPECT(&s, &whole, COMPLETED(MESSAGE("msg_#1", "completed", PART("Hi\\\"!")), USAGE("3", "0", "33")));
    s.end.finish = API_FINISH_LENGTH;
    EXPECT(&s, &stream, BEGIN TEXT_EVENTS("incomplete") EVENT("response.incomplete", "9", "\"response\":"
           CUT(MESSAGE("msg_#1", "incomplete", PART("Hi\\\"!")), USAGE("3", "0", "33"))));
    s.end.finish = API_FINISH_CONTEXT;
    EXPECT(&s, &whole, CUT(MESSAGE("msg_#1", "incomplete", PART("Hi\\\"!")), USAGE("3", "0", "33")));
    s.end.finish = API_FINISH_CANCELED;
    EXPECT(&s, &stream, BEGIN TEXT_EVENTS("incomplete") EVENT("response.incomplete", "9", "\"response\":"
           RESPONSE("null", "cancelled", "null", "null", MESSAGE("msg_#1", "incomplete", PART("Hi\\\"!")), USAGE("3", "0", "33"))));
    s.n = 0;
    s.end.finish = API_FINISH_STOP;
    EXPECT(&s, &stream, BEGIN EVENT("response.completed", "2", "\"response\":" COMPLETED("", USAGE("3", "0", "33"))));
}

static void test_errors(void)
{
    struct script s = {.events = {TEXT("Hi\""), TEXT("!")}, .n = 2, .keepalive_at = SIZE_MAX};
    struct api_request stream = request(true), whole = request(false);
    api_error_set(&s.fail, 500, "backend_error", NULL, "the device said \"no\"");
    EXPECT(&s, &stream, BEGIN TEXT_EVENTS("incomplete") EVENT("response.failed", "9", "\"response\":"
           RESPONSE("null", "failed", "{\"code\":\"server_error\",\"message\":\"the device said \\\"no\\\"\"}", "null",
                    MESSAGE("msg_#1", "incomplete", PART("Hi\\\"!")), "null")));
    EXPECT(&s, &whole, "{\"error\":{\"message\":\"the device said \\\"no\\\"\",\"type\":\"server_error\",\"param\":null,"
           "\"code\":\"backend_error\"}}");
    s.n = 0;
    api_error_set(&s.fail, 429, "queue_full", NULL, "64 requests wait.");
    s.fail.retry_after_s = 7;
    EXPECT(&s, &stream, BEGIN EVENT("response.failed", "2", "\"response\":" RESPONSE("null", "failed",
           "{\"code\":\"rate_limit_exceeded\",\"message\":\"64 requests wait. Please try again in 7s.\"}", "null", "", "null")));
    api_error_set(&s.fail, 400, "context_length_exceeded", "input", "too long");
    EXPECT(&s, &stream, BEGIN EVENT("response.failed", "2", "\"response\":" RESPONSE("null", "failed",
           "{\"code\":\"context_length_exceeded\",\"message\":\"too long\"}", "null", "", "null")));
    api_error_set(&s.fail, 400, "invalid_value", "input", "wrong");
    EXPECT(&s, &stream, BEGIN EVENT("response.failed", "2", "\"response\":" RESPONSE("null", "failed",
           "{\"code\":\"invalid_prompt\",\"message\":\"wrong\"}", "null", "", "null")));
    /* before there is a response object */
    struct api_writer *w = responses_writer_new();
    w->env = &env;
    w->request = &stream;
    CHECK(w->ops->keepalive(w) == 0 && w->ops->fail(w, &s.fail) == 0, "fail");
    CHECK(strcmp(strbuf_str(&w->out), ": keep-alive\n\nevent: error\ndata: {\"type\":\"error\",\"sequence_number\":0,"
                 "\"code\":\"invalid_value\",\"message\":\"wrong\",\"param\":\"input\"}\n\n") == 0, "%s", strbuf_str(&w->out));
    strbuf_free(&w->out);
    w->ops->free(w);
}

#define REASONING(id, status, summary, content, sealed)                                                                      \
    "{\"type\":\"reasoning\",\"id\":\"" id "\",\"status\":\"" status "\",\"summary\":[" summary "],\"content\":[" content       \
    "],\"encrypted_content\":" sealed "}"

static void test_reasoning(void)
{
    struct script s = {.events = {THINK("a"), THINK(""), THINK("b"), THINK_END()}, .n = 4, .end = {.n_tokens = 2, .n_thinking_tokens = 2},
                       .keepalive_at = 2};
    struct api_request stream = request(true), whole = request(false);
#define RAW(text) "{\"type\":\"reasoning_text\",\"text\":\"" text "\"}"
    EXPECT(&s, &stream, BEGIN
           EVENT("response.output_item.added", "2", "\"output_index\":0,\"item\":" REASONING("rs_#1", "in_progress", "", "", "null"))
           EVENT("response.content_part.added", "3", AT("rs_#1", "0") ",\"content_index\":0,\"part\":" RAW(""))
           EVENT("response.reasoning_text.delta", "4", AT("rs_#1", "0") ",\"content_index\":0,\"delta\":\"a\"")
           EVENT("response.in_progress", "5", "\"response\":"
                 RESPONSE("null", "in_progress", "null", "null", REASONING("rs_#1", "in_progress", "", RAW("a"), "null"), "null"))
           EVENT("response.reasoning_text.delta", "6", AT("rs_#1", "0") ",\"content_index\":0,\"delta\":\"b\"")
           EVENT("response.reasoning_text.done", "7", AT("rs_#1", "0") ",\"content_index\":0,\"text\":\"ab\"")
           EVENT("response.content_part.done", "8", AT("rs_#1", "0") ",\"content_index\":0,\"part\":" RAW("ab"))
           EVENT("response.output_item.done", "9", "\"output_index\":0,\"item\":" REASONING("rs_#1", "completed", "", RAW("ab"), "null"))
           EVENT("response.completed", "10", "\"response\":"
                 COMPLETED(REASONING("rs_#1", "completed", "", RAW("ab"), "null"), USAGE("2", "2", "32"))));
    s.keepalive_at = SIZE_MAX;
    stream.summary = whole.summary = true;
#define SUMMARY(text) "{\"type\":\"summary_text\",\"text\":\"" text "\"}"
    EXPECT(&s, &stream, BEGIN
           EVENT("response.output_item.added", "2", "\"output_index\":0,\"item\":" REASONING("rs_#1", "in_progress", "", "", "null"))
           EVENT("response.reasoning_summary_part.added", "3", AT("rs_#1", "0") ",\"summary_index\":0,\"part\":" SUMMARY(""))
           EVENT("response.reasoning_summary_text.delta", "4", AT("rs_#1", "0") ",\"summary_index\":0,\"delta\":\"a\"")
           EVENT("response.reasoning_summary_text.delta", "5", AT("rs_#1", "0") ",\"summary_index\":0,\"delta\":\"b\"")
           EVENT("response.reasoning_summary_text.done", "6", AT("rs_#1", "0") ",\"summary_index\":0,\"text\":\"ab\"")
           EVENT("response.reasoning_summary_part.done", "7", AT("rs_#1", "0") ",\"summary_index\":0,\"part\":" SUMMARY("ab"))
           EVENT("response.output_item.done", "8", "\"output_index\":0,\"item\":"
                 REASONING("rs_#1", "completed", SUMMARY("ab"), "", "null"))
           EVENT("response.completed", "9", "\"response\":"
                 COMPLETED(REASONING("rs_#1", "completed", SUMMARY("ab"), "", "null"), USAGE("2", "2", "32"))));
    EXPECT(&s, &whole, COMPLETED(REASONING("rs_#1", "completed", SUMMARY("ab"), "", "null"), USAGE("2", "2", "32")));
    whole.summary = false;
    whole.encrypted_reasoning = true;
    EXPECT(&s, &whole, COMPLETED(REASONING("rs_#1", "completed", "", RAW("ab"), "\"sk1t+26ojNoc4e2abwVuZSZ8n2Fi\""),
                              USAGE("2", "2", "32")));
    s.n = 3; /* thinking was cut off */
    s.end.finish = API_FINISH_LENGTH;
    whole.encrypted_reasoning = false;
    EXPECT(&s, &whole, CUT(REASONING("rs_#1", "incomplete", "", RAW("ab"), "null"), USAGE("2", "2", "32")));
}

static void test_calls(void)
{
    struct script s = {.events = {CALL("call_1", "files.read"), ARGS("call_1", "files.read", "{\"a\":"), ARGS("call_1", "files.read", "1}"),
                                  CALL_END("call_1", "files.read", "{\"a\":1}"), CALL("call_2", "patch"), ARGS("call_2", "patch", "x\n"),
                                  CALL_END("call_2", "patch", "x\n")},
                       .n = 7, .end = {.finish = API_FINISH_CALLS, .n_tokens = 9}, .keepalive_at = SIZE_MAX};
    struct api_request stream = request(true), whole = request(false);
    for (int i = 4; i < 7; i++)
        s.events[i].custom = true;
#define READ_CALL(arguments) "\"call_id\":\"call_1\",\"name\":\"read\",\"namespace\":\"files\",\"arguments\":\"" arguments "\""
#define PATCH(status, input) \
    "{\"type\":\"custom_tool_call\",\"id\":\"ctc_#2\",\"status\":\"" status                    \
    "\",\"call_id\":\"call_2\",\"name\":\"patch\",\"input\":\"" input "\"}"
#define BOTH FUNCTION("fc_#1", "completed", READ_CALL("{\\\"a\\\":1}")) "," PATCH("completed", "x\\n")
    EXPECT(&s, &stream, BEGIN
           EVENT("response.output_item.added", "2", "\"output_index\":0,\"item\":" FUNCTION("fc_#1", "in_progress", READ_CALL("")))
           EVENT("response.function_call_arguments.delta", "3", AT("fc_#1", "0") ",\"delta\":\"{\\\"a\\\":\"")
           EVENT("response.function_call_arguments.delta", "4", AT("fc_#1", "0") ",\"delta\":\"1}\"")
           EVENT("response.function_call_arguments.done", "5", AT("fc_#1", "0") ",\"name\":\"read\",\"arguments\":\"{\\\"a\\\":1}\"")
           EVENT("response.output_item.done", "6", "\"output_index\":0,\"item\":"
                 FUNCTION("fc_#1", "completed", READ_CALL("{\\\"a\\\":1}")))
           EVENT("response.output_item.added", "7", "\"output_index\":1,\"item\":" PATCH("in_progress", ""))
           EVENT("response.custom_tool_call_input.delta", "8", AT("ctc_#2", "1") ",\"delta\":\"x\\n\"")
           EVENT("response.custom_tool_call_input.done", "9", AT("ctc_#2", "1") ",\"input\":\"x\\n\"")
           EVENT("response.output_item.done", "10", "\"output_index\":1,\"item\":" PATCH("completed", "x\\n"))
           EVENT("response.completed", "11", "\"response\":" COMPLETED(BOTH, USAGE("9", "0", "39"))));
    EXPECT(&s, &whole, COMPLETED(BOTH, USAGE("9", "0", "39")));
    /* cut off: the stream ends as it was sent, the body with what the parser made of it */
    s.events[2] = CALL_CUT("call_1", "files.read", "{\"a\":null}");
    s.n = 3;
    s.end.finish = API_FINISH_LENGTH;
    EXPECT(&s, &whole, CUT(FUNCTION("fc_#1", "incomplete", READ_CALL("{\\\"a\\\":null}")), USAGE("9", "0", "39")));
    EXPECT(&s, &stream, BEGIN
           EVENT("response.output_item.added", "2", "\"output_index\":0,\"item\":" FUNCTION("fc_#1", "in_progress", READ_CALL("")))
           EVENT("response.function_call_arguments.delta", "3", AT("fc_#1", "0") ",\"delta\":\"{\\\"a\\\":\"")
           EVENT("response.function_call_arguments.done", "4", AT("fc_#1", "0") ",\"name\":\"read\",\"arguments\":\"{\\\"a\\\":\"")
           EVENT("response.output_item.done", "5", "\"output_index\":0,\"item\":"
                 FUNCTION("fc_#1", "incomplete", READ_CALL("{\\\"a\\\":")))
           EVENT("response.incomplete", "6", "\"response\":"
                 CUT(FUNCTION("fc_#1", "incomplete", READ_CALL("{\\\"a\\\":")), USAGE("9", "0", "39"))));
}

static void test_logprobs(void)
{
    struct api_token_logprob l[] = {{.id = 1, .bytes = "H", .n = 1, .logprob = -0.5}, {.id = 2, .bytes = "i", .n = 1, .logprob = -20000}};
    struct script s = {.events = {TEXT("Hi"), TEXT("")}, .n = 2, .end = {.n_tokens = 2}, .keepalive_at = SIZE_MAX};
    struct api_request whole = request(false);
    s.events[0].logprobs = l;
    s.events[0].n_logprobs = 1;
    s.events[1].logprobs = l + 1;
    s.events[1].n_logprobs = 1;
#define PROBS "{\"token\":\"H\",\"logprob\":-0.5,\"bytes\":[72],\"top_logprobs\":[]}," \
              "{\"token\":\"i\",\"logprob\":-9999.0,\"bytes\":[105],\"top_logprobs\":[]}"
    EXPECT(&s, &whole, COMPLETED(MESSAGE("msg_#1", "completed",
           "{\"type\":\"output_text\",\"text\":\"Hi\",\"annotations\":[],\"logprobs\":[" PROBS "]}"), USAGE("2", "0", "32")));
}

/* With an engine: what it says about itself, and the texts of the tokens that were not chosen. */
static void test_engine(void)
{
    const char *model = support_model("tiny-q8_0.gguf");
    struct api_env served = env;
    struct token_logprob top[] = {{65, -0.25}, {66, -1.5}};
    struct api_token_logprob l = {.id = 65, .bytes = "x", .n = 1, .logprob = -0.25, .top = top, .n_top = 2};
    struct script s = {.events = {TEXT("x")}, .n = 1, .end = {.n_tokens = 1}, .keepalive_at = SIZE_MAX};
    skua_error err;
    if (!model || !CHECK(skua_engine_open(model, NULL, &served.engine, &err) == 0, "%s", err.message))
        return;
    s.events[0].logprobs = &l;
    s.events[0].n_logprobs = 1;
    for (int stream = 0; stream < 2; stream++) {
        struct api_request q = request(stream);
        struct strbuf got = {0};
        q.engine_info = true;
        CHECK(script_play(responses_writer_new(), &s, &served, &q, &got) == 0, "play");
        char *last = stream ? strstr(got.data, "event: response.completed\n") : got.data;
        json_t *answer = last ? json_loads(stream ? strchr(last, '{') : last, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
        const json_t *response = stream ? json_object_get(answer, "response") : answer;
        const json_t *message = json_array_get(json_object_get(response, "output"), 0);
        const json_t *tops = json_object_get(json_array_get(json_object_get(json_array_get(json_object_get(message, "content"), 0),
                                                                            "logprobs"), 0), "top_logprobs");
        CHECK(json_is_string(json_object_get(json_object_get(response, "engine"), "backend")), "%s", got.data);
        CHECK(json_array_size(tops) == 2 && json_is_string(json_object_get(json_array_get(tops, 1), "token")), "%s", got.data);
        CHECK(strstr(got.data, "\"engine\"") > last, "the engine before the end: %s", got.data);
        json_decref(answer);
        strbuf_free(&got);
    }
    skua_engine_close(served.engine);
}

/* ---- the order of events ---- */

struct reader {
    struct sse_event events[512];
    int n, at;
    json_int_t index; /* of the item being read */
    const char *id;
    const char *type; /* NULL: no item is open */
    bool summary;
    struct strbuf text;
    json_t *items;    /* that are finished */
    const char *why;  /* the first thing wrong; NULL */
};

static const char *member(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "(none)";
}

static bool fails(struct reader *r, const char *why)
{
    if (!r->why)
        r->why = why;
    return false;
}

/* The text that a item holds. */
static const char *item_text(const json_t *item, const char *type, bool summary)
{
    if (strcmp(type, "function_call") == 0)
        return member(item, "arguments");
    if (strcmp(type, "custom_tool_call") == 0)
        return member(item, "input");
    summary = summary && strcmp(type, "reasoning") == 0;
    return member(json_array_get(json_object_get(item, summary ? "summary" : "content"), 0), "text");
}

/* A keep-alive: its response has everything so far, as a client that begins with it must go on from there. */
static void check_running(struct reader *r, const json_t *response)
{
    const json_t *output = json_object_get(response, "output");
    size_t n = json_array_size(r->items);
    if (json_array_size(output) != n + (r->type != NULL))
        fails(r, "number of items of a running response");
    for (size_t i = 0; i < n; i++)
        if (!json_equal(json_array_get(output, i), json_array_get(r->items, i)))
            fails(r, "finished items of a running response");
    if (r->type && strcmp(item_text(json_array_get(output, n), r->type, r->summary), strbuf_str(&r->text)) != 0)
        fails(r, "open item of a running response");
}

/* Is the next event, keep-alives left out, called so (or, with a prefix, does its name begin so)? */
static bool next_is(struct reader *r, const char *name, size_t n)
{
    while (r->at < r->n && r->at > 1 && strcmp(r->events[r->at].name, "response.in_progress") == 0)
        check_running(r, json_object_get(r->events[r->at++].data, "response"));
    return r->at < r->n && strncmp(r->events[r->at].name, name, n) == 0;
}

/* Its data, if it is; else NULL and the reader stays. */
static const json_t *take(struct reader *r, const char *name)
{
    return next_is(r, name, strlen(name) + 1) ? r->events[r->at++].data : NULL;
}

/* The same for an event that belongs to the open item. */
static const json_t *take_of_item(struct reader *r, const char *name, const char *part_index)
{
    const json_t *d = take(r, name);
    if (d && (strcmp(member(d, "item_id"), r->id) != 0 || json_integer_value(json_object_get(d, "output_index")) != r->index
              || (part_index && (!json_is_integer(json_object_get(d, part_index)) || json_integer_value(json_object_get(d, part_index))))))
        fails(r, "an event of another item");
    return d;
}

/* A run of deltas and the done event: they must agree. */
static bool read_pieces(struct reader *r, const char *stem, const char *part_index, const char *key)
{
    char name[80];
    const json_t *d;
    snprintf(name, sizeof name, "response.%s.delta", stem);
    while ((d = take_of_item(r, name, part_index)) != NULL)
        strbuf_puts(&r->text, json_is_string(json_object_get(d, "delta")) ? member(d, "delta") : "\xFF");
    snprintf(name, sizeof name, "response.%s.done", stem);
    d = take_of_item(r, name, part_index);
    return (d && strcmp(member(d, key), strbuf_str(&r->text)) == 0) || fails(r, "deltas and done");
}

/* An item with one part. */
static bool read_part(struct reader *r, const char *part_stem, const char *stem, const char *part_index, const char *type)
{
    char name[80];
    snprintf(name, sizeof name, "response.%s.added", part_stem);
    const json_t *d = take_of_item(r, name, part_index);
    if (!d || *member(json_object_get(d, "part"), "text") || strcmp(member(json_object_get(d, "part"), "type"), type) != 0)
        return fails(r, "no part was added");
    if (!read_pieces(r, stem, part_index, "text"))
        return false;
    snprintf(name, sizeof name, "response.%s.done", part_stem);
    d = take_of_item(r, name, part_index);
    return (d && strcmp(member(json_object_get(d, "part"), "text"), strbuf_str(&r->text)) == 0) || fails(r, "part and text");
}

static bool read_item(struct reader *r)
{
    const json_t *added = take(r, "response.output_item.added"), *item = json_object_get(added, "item");
    const char *type = member(item, "type");
    r->index = (json_int_t)json_array_size(r->items);
    r->id = member(item, "id");
    r->type = type;
    strbuf_clear(&r->text);
    if (json_integer_value(json_object_get(added, "output_index")) != r->index || strcmp(member(item, "status"), "in_progress") != 0)
        fails(r, "output_item.added");
    if (strcmp(type, "message") == 0)
        read_part(r, "content_part", "output_text", "content_index", "output_text");
    else if (strcmp(type, "reasoning") == 0 && r->summary)
        read_part(r, "reasoning_summary_part", "reasoning_summary_text", "summary_index", "summary_text");
    else if (strcmp(type, "reasoning") == 0)
        read_part(r, "content_part", "reasoning_text", "content_index", "reasoning_text");
    else if (strcmp(type, "function_call") == 0)
        read_pieces(r, "function_call_arguments", NULL, "arguments");
    else if (strcmp(type, "custom_tool_call") == 0)
        read_pieces(r, "custom_tool_call_input", NULL, "input");
    else
        fails(r, "an item of no known type");
    const json_t *done = take(r, "response.output_item.done");
    item = json_object_get(done, "item");
    if (!done || strcmp(member(item, "id"), r->id) != 0 || strcmp(item_text(item, type, r->summary), strbuf_str(&r->text)) != 0
        || json_integer_value(json_object_get(done, "output_index")) != r->index || strcmp(member(item, "status"), "in_progress") == 0)
        fails(r, "output_item.done");
    json_array_append(r->items, (json_t *)item);
    r->type = NULL;
    return !r->why;
}

/* The whole stream. Returns the response object of its end (borrowed), or NULL with r->why. */
static const json_t *read_stream(struct reader *r, char *text, bool summary)
{
    const json_t *d = NULL;
    r->items = json_array();
    r->summary = summary;
    r->n = sse_read(text, r->events, 512);
    for (int i = 0; i < r->n; i++)
        if (json_integer_value(json_object_get(r->events[i].data, "sequence_number")) != i)
            fails(r, "sequence numbers");
    if (!take(r, "response.created") || !take(r, "response.in_progress"))
        fails(r, "the beginning");
    while (!r->why && next_is(r, "response.output_item.", 21))
        read_item(r);
    static const char *const ends[] = {"response.completed", "response.incomplete", "response.failed"};
    for (int i = 0; i < 3 && !d && !r->why; i++) {
        d = take(r, ends[i]);
        if (d && strcmp(member(json_object_get(d, "response"), "status"), ends[i] + strlen("response.")) != 0)
            fails(r, "status at the end");
    }
    d = json_object_get(d, "response");
    if (!d || r->at != r->n || !json_equal(json_object_get(d, "output"), r->items))
        fails(r, "the end");
    json_decref(r->items);
    strbuf_free(&r->text);
    return r->why ? NULL : d;
}

static void test_random(void)
{
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        uint64_t state = seed;
        struct script s;
        struct strbuf stream = {0}, body = {0};
        static struct reader r;
        r = (struct reader){0};
        script_random(&s, &state, true);
        struct api_request q = request(true);
        q.summary = script_below(&state, 2);
        q.encrypted_reasoning = script_below(&state, 2);
        int rc = script_play(responses_writer_new(), &s, &env, &q, &stream);
        const json_t *end = read_stream(&r, strbuf_str(&stream) == stream.data ? stream.data : (char[1]){0}, q.summary);
        CHECK(rc == 0 && end, "seed %d: %d, event %d of %d: %s", (int)seed, rc, r.at, r.n, r.why ? r.why : "");
        q.stream = false;
        rc = script_play(responses_writer_new(), &s, &env, &q, &body);
        json_t *whole = json_loads(strbuf_str(&body), 0, NULL);
        CHECK(rc == 0 && whole, "seed %d: %d", (int)seed, rc);
        if (!s.fail.status)
            CHECK(json_equal(whole, end), "seed %d: %s", (int)seed, strbuf_str(&body));
        json_decref(whole);
        sse_free(r.events, r.n);
        strbuf_free(&stream);
        strbuf_free(&body);
        script_free(&s);
    }
}

/* Each allocation fails once: an error, nothing left behind, and what was written are whole events in order. */
static void test_no_memory(void)
{
    struct api_token_logprob l = {.id = 1, .bytes = "H", .n = 1, .logprob = -0.5};
    struct script s = {.events = {THINK("because"), THINK_END(), TEXT("Hi"), CALL("call_1", "files.read"),
                                  ARGS("call_1", "files.read", "{}"), CALL_END("call_1", "files.read", "{}")},
                       .n = 6, .end = {.finish = API_FINISH_CALLS}, .keepalive_at = 2};
    s.events[2].logprobs = &l;
    s.events[2].n_logprobs = 1;
    for (int kind = 0; kind < 2; kind++) {
        struct api_request q = request(kind == 0);
        struct strbuf want = {0};
        size_t live = mem_live_blocks();
        q.encrypted_reasoning = true;
        CHECK(script_play(responses_writer_new(), &s, &env, &q, &want) == 0, "without faults");
        for (uint64_t n = 1, done = 0; !done; n++) {
            struct strbuf got = {0};
            strbuf_reserve(&got, 1 << 16);
            fault_set_alloc(n, true);
            int rc = script_play(responses_writer_new(), &s, &env, &q, &got);
            done = fault_alloc_count() < n;
            fault_set_alloc(0, false);
            CHECK(rc == (done ? 0 : SKUA_ENOMEM), "allocation %d: %d", (int)n, rc);
            CHECK(got.len <= want.len && memcmp(strbuf_str(&got), strbuf_str(&want), got.len) == 0
                      && (!got.len || done || strcmp(got.data + got.len - 2, "\n\n") == 0), "allocation %d: %s", (int)n, strbuf_str(&got));
            strbuf_free(&got);
        }
        strbuf_free(&want);
        CHECK(mem_live_blocks() == live, "%zu blocks left behind", mem_live_blocks() - live);
    }
}

/* The same, and then the answer fails with it: the stream still ends as it must, each event whole. */
static void test_recovery(void)
{
    struct script s = {.events = {THINK("because"), THINK_END(), TEXT("Hi"), CALL("call_1", "read"), ARGS("call_1", "read", "{}"),
                                  CALL_END("call_1", "read", "{}")},
                       .n = 6, .end = {.finish = API_FINISH_CALLS}, .keepalive_at = 2, .recover = true};
    struct api_request q = request(true);
    for (uint64_t n = 2, rc = 1; rc; n++) { /* the first makes the writer */
        struct strbuf got = {0};
        struct sse_event events[64];
        strbuf_reserve(&got, 1 << 16);
        fault_set_alloc(n, true);
        rc = script_play(responses_writer_new(), &s, &env, &q, &got) != 0;
        fault_set_alloc(0, false);
        int count = sse_read(got.data, events, 64);
        const char *last = count > 0 ? events[count - 1].name : "";
        CHECK(count > 0 && strcmp(last, !rc ? "response.completed" : count == 1 ? "error" : "response.failed") == 0,
              "allocation %d: %d events, %s", (int)n, count, last);
        for (int i = 0; i < count; i++)
            CHECK(json_integer_value(json_object_get(events[i].data, "sequence_number")) == i, "allocation %d: event %d", (int)n, i);
        sse_free(events, count);
        strbuf_free(&got);
    }
}

int main(void)
{
    json_use_mem();
    json_object_seed(1);
    echo = json_pack("{s:f, s:[]}", "temperature", 0.7, "tools");
    test_text();
    test_errors();
    test_reasoning();
    test_calls();
    test_logprobs();
    test_engine();
    test_random();
    test_no_memory();
    test_recovery();
    json_decref(echo);
    return support_finish("test_api_responses");
}
