/* The writer of /v1/messages: exact bytes for chosen answers; and for random ones the order of events (spec/api.md 10.4), checked by a
 * reader that puts the message together as a client does, against the whole body; memory running out at each allocation; seals. */
#include "api/seal.h"
#include "api_script.h"
#include "base/json.h"

static const struct api_env env = {.model_id = "skua-test"};

static struct api_request request(bool stream)
{
    struct api_request r = {.family = API_MESSAGES, .stream = stream};
    snprintf(r.model, sizeof r.model, "test-model");
    return r;
}

static void expect(int line, const struct script *s, const struct api_request *r, const char *want)
{
    struct strbuf got = {0};
    int rc = script_play(messages_writer_new(), s, &env, r, &got);
    CHECK(rc == 0, "line %d: %d", line, rc);
    CHECK(strcmp(strbuf_str(&got), want) == 0, "line %d:\n%s\nshould be\n%s", line, strbuf_str(&got), want);
    strbuf_free(&got);
}
#define EXPECT(s, r, want) expect(__LINE__, s, r, want)

#define USAGE(out, thinking)                                                                                                         \
    "{\"input_tokens\":10,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":20,\"cache_creation\":"                      \
    "{\"ephemeral_5m_input_tokens\":0,\"ephemeral_1h_input_tokens\":0},\"output_tokens\":" out                                       \
    ",\"output_tokens_details\":{\"thinking_tokens\":" thinking "},\"service_tier\":\"standard\"}"
#define MESSAGE(content, stop, sequence, usage)                                                                                     \
    "{\"id\":\"msg_test\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"test-model\",\"content\":[" content            \
    "],\"stop_reason\":" stop ",\"stop_sequence\":" sequence ",\"usage\":" usage "}"
#define EVENT(name, rest) "event: " name "\ndata: {\"type\":\"" name "\"" rest "}\n\n"
#define PING EVENT("ping", "")
#define BEGIN EVENT("message_start", ",\"message\":" MESSAGE("", "null", "null", USAGE("0", "0"))) PING
#define START(i, block) EVENT("content_block_start", ",\"index\":" i ",\"content_block\":" block)
#define DELTA(i, type, rest) EVENT("content_block_delta", ",\"index\":" i ",\"delta\":{\"type\":\"" type "\"," rest "}")
#define STOP(i) EVENT("content_block_stop", ",\"index\":" i)
#define END(stop, sequence, out, thinking)                                                                                           \
    EVENT("message_delta", ",\"delta\":{\"stop_reason\":" stop ",\"stop_sequence\":" sequence                                       \
          "},\"usage\":{\"input_tokens\":10,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":20,\"output_tokens\":" out  \
          ",\"output_tokens_details\":{\"thinking_tokens\":" thinking "}}")                                                          \
    EVENT("message_stop", "")
#define TEXT_BLOCK(text) "{\"type\":\"text\",\"text\":\"" text "\",\"citations\":null}"
#define TEXT_EVENTS(i)                              \
    START(i, "{\"type\":\"text\",\"text\":\"\"}")   \
    DELTA(i, "text_delta", "\"text\":\"Hi\\\"\"")   \
    DELTA(i, "text_delta", "\"text\":\"!\"")        \
    STOP(i)

static void test_text(void)
{
    struct script s = {.events = {TEXT("Hi\""), TEXT(""), TEXT("!")}, .n = 3, .end = {.n_tokens = 3}, .keepalive_at = SIZE_MAX};
    struct api_request stream = request(true), whole = request(false);
    EXPECT(&s, &stream, BEGIN TEXT_EVENTS("0") END("\"end_turn\"", "null", "3", "0"));
    EXPECT(&s, &whole, MESSAGE(TEXT_BLOCK("Hi\\\"!"), "\"end_turn\"", "null", USAGE("3", "0")));
    s.end.finish = API_FINISH_STOP_STRING;
    s.end.stop_string = "\"E";
    EXPECT(&s, &stream, BEGIN TEXT_EVENTS("0") END("\"stop_sequence\"", "\"\\\"E\"", "3", "0"));
    EXPECT(&s, &whole, MESSAGE(TEXT_BLOCK("Hi\\\"!"), "\"stop_sequence\"", "\"\\\"E\"", USAGE("3", "0")));
    s.end.finish = API_FINISH_LENGTH;
    EXPECT(&s, &stream, BEGIN TEXT_EVENTS("0") END("\"max_tokens\"", "null", "3", "0"));
    s.end.finish = API_FINISH_CONTEXT;
    EXPECT(&s, &whole, MESSAGE(TEXT_BLOCK("Hi\\\"!"), "\"max_tokens\"", "null", USAGE("3", "0")));
    whole.knows_context_stop = true;
    EXPECT(&s, &whole, MESSAGE(TEXT_BLOCK("Hi\\\"!"), "\"model_context_window_exceeded\"", "null", USAGE("3", "0")));
    s.n = 0; /* max_tokens 0 */
    s.end = (struct api_choice_end){.finish = API_FINISH_LENGTH};
    s.keepalive_at = 0;
    EXPECT(&s, &stream, BEGIN PING END("\"max_tokens\"", "null", "0", "0"));
    EXPECT(&s, &whole, MESSAGE("", "\"max_tokens\"", "null", USAGE("0", "0")));
}

#define ERROR(type, message) \
    "{\"type\":\"error\",\"error\":{\"type\":\"" type "\",\"message\":\"" message "\"},\"request_id\":\"req_test\"}"

static void test_errors(void)
{
    struct script s = {.events = {TEXT("Hi\""), TEXT("!")}, .n = 2, .keepalive_at = SIZE_MAX};
    struct api_request stream = request(true), whole = request(false);
    api_error_set(&s.fail, 500, "backend_error", NULL, "the device said \"no\"");
    EXPECT(&s, &stream, BEGIN START("0", "{\"type\":\"text\",\"text\":\"\"}") DELTA("0", "text_delta", "\"text\":\"Hi\\\"\"")
           DELTA("0", "text_delta", "\"text\":\"!\"") "event: error\ndata: " ERROR("api_error", "the device said \\\"no\\\"") "\n\n");
    EXPECT(&s, &whole, ERROR("api_error", "the device said \\\"no\\\""));
    api_error_set(&s.fail, 429, "queue_full", NULL, "full");
    EXPECT(&s, &whole, ERROR("rate_limit_error", "full"));
    s.fail.status = 0;
    s.end.finish = API_FINISH_CANCELED;
    EXPECT(&s, &whole, ERROR("api_error", "the request was cancelled"));
    EXPECT(&s, &stream, BEGIN TEXT_EVENTS("0") "event: error\ndata: " ERROR("api_error", "the request was cancelled") "\n\n");
    struct api_writer *w = messages_writer_new();
    w->request = &stream;
    CHECK(w->ops->keepalive(w) == 0 && strcmp(strbuf_str(&w->out), ": keep-alive\n\n") == 0, "%s", strbuf_str(&w->out));
    api_writer_free(w);
}

static void test_thinking(void)
{
    struct script s = {.events = {THINK("a"), THINK(""), THINK("b"), THINK_END(), TEXT("Hi\""), TEXT("!")}, .n = 6,
                       .end = {.n_tokens = 5, .n_thinking_tokens = 2}, .keepalive_at = 2};
    struct api_request stream = request(true), whole = request(false);
#define THINKING(text, seal) "{\"type\":\"thinking\",\"thinking\":\"" text "\",\"signature\":\"" seal "\"}"
#define SEAL "sk1h+26ojNoc4e2abwVuZSZ8nw=="
#define CARRIED "sk1t+26ojNoc4e2abwVuZSZ8n2Fi"
    EXPECT(&s, &stream, BEGIN START("0", THINKING("", "")) DELTA("0", "thinking_delta", "\"thinking\":\"a\"") PING
           DELTA("0", "thinking_delta", "\"thinking\":\"b\"") DELTA("0", "signature_delta", "\"signature\":\"" SEAL "\"") STOP("0")
           TEXT_EVENTS("1") END("\"end_turn\"", "null", "5", "2"));
    EXPECT(&s, &whole, MESSAGE(THINKING("ab", SEAL) "," TEXT_BLOCK("Hi\\\"!"), "\"end_turn\"", "null", USAGE("5", "2")));
    stream.omit_thinking = whole.omit_thinking = true;
    EXPECT(&s, &stream, BEGIN START("0", THINKING("", "")) PING DELTA("0", "signature_delta", "\"signature\":\"" CARRIED "\"") STOP("0")
           TEXT_EVENTS("1") END("\"end_turn\"", "null", "5", "2"));
    EXPECT(&s, &whole, MESSAGE(THINKING("", CARRIED) "," TEXT_BLOCK("Hi\\\"!"), "\"end_turn\"", "null", USAGE("5", "2")));
    s.n = 2; /* cut off while thinking */
    s.keepalive_at = SIZE_MAX;
    s.end.finish = API_FINISH_LENGTH;
    stream.omit_thinking = false;
    EXPECT(&s, &stream, BEGIN START("0", THINKING("", "")) DELTA("0", "thinking_delta", "\"thinking\":\"a\"")
           DELTA("0", "signature_delta", "\"signature\":\"sk1hyA/9KeGT9YZYgZh/gozo8g==\"") STOP("0")
           END("\"max_tokens\"", "null", "5", "2"));
}

static void test_calls(void)
{
    struct script s = {.events = {CALL("toolu_1", "read"), ARGS("toolu_1", "read", "{\"a\":"), ARGS("toolu_1", "read", "[1, 2]}"),
                                  CALL_END("toolu_1", "read", "{\"a\":[1, 2]}"), CALL("toolu_2", "now"), CALL_END("toolu_2", "now", "{}")},
                       .n = 6, .end = {.finish = API_FINISH_CALLS, .n_tokens = 9}, .keepalive_at = SIZE_MAX};
    struct api_request stream = request(true), whole = request(false);
#define TOOL(id, name, input) "{\"type\":\"tool_use\",\"id\":\"" id "\",\"name\":\"" name "\",\"input\":" input "}"
    EXPECT(&s, &stream, BEGIN START("0", TOOL("toolu_1", "read", "{}")) DELTA("0", "input_json_delta", "\"partial_json\":\"{\\\"a\\\":\"")
           DELTA("0", "input_json_delta", "\"partial_json\":\"[1, 2]}\"") STOP("0") START("1", TOOL("toolu_2", "now", "{}"))
           DELTA("1", "input_json_delta", "\"partial_json\":\"{}\"") STOP("1") END("\"tool_use\"", "null", "9", "0"));
    EXPECT(&s, &whole, MESSAGE(TOOL("toolu_1", "read", "{\"a\":[1, 2]}") "," TOOL("toolu_2", "now", "{}"), "\"tool_use\"", "null",
           USAGE("9", "0")));
    /* cut off: what the parser made of it; text that is no object is no input */
    s.events[2] = CALL_CUT("toolu_1", "read", "{\"a\":null}");
    s.n = 3;
    s.end.finish = API_FINISH_LENGTH;
    EXPECT(&s, &whole, MESSAGE(TOOL("toolu_1", "read", "{\"a\":null}"), "\"max_tokens\"", "null", USAGE("9", "0")));
    EXPECT(&s, &stream, BEGIN START("0", TOOL("toolu_1", "read", "{}")) DELTA("0", "input_json_delta", "\"partial_json\":\"{\\\"a\\\":\"")
           STOP("0") END("\"max_tokens\"", "null", "9", "0"));
    s.events[2] = CALL_CUT("toolu_1", "read", "[1]");
    EXPECT(&s, &whole, MESSAGE(TOOL("toolu_1", "read", "{}"), "\"max_tokens\"", "null", USAGE("9", "0")));
    s.events[2] = CALL_CUT("toolu_1", "read", "{\"a\":\"\\u0000\",\"b\":1,\"b\":2}"); /* as it is, whatever a reader makes of it */
    EXPECT(&s, &whole, MESSAGE(TOOL("toolu_1", "read", "{\"a\":\"\\u0000\",\"b\":1,\"b\":2}"), "\"max_tokens\"", "null", USAGE("9", "0")));
    s.n = 2; /* and one whose end nobody told */
    EXPECT(&s, &whole, MESSAGE(TOOL("toolu_1", "read", "{}"), "\"max_tokens\"", "null", USAGE("9", "0")));
    s.events[1] = ARGS("toolu_1", "read", "{\"a\":1}");
    EXPECT(&s, &whole, MESSAGE(TOOL("toolu_1", "read", "{\"a\":1}"), "\"max_tokens\"", "null", USAGE("9", "0")));
}

/* With an engine: what it says about itself, at the end. */
static void test_engine(void)
{
    const char *model = support_model("tiny-q8_0.gguf");
    struct api_env served = env;
    struct script s = {.events = {TEXT("x")}, .n = 1, .end = {.n_tokens = 1}, .keepalive_at = SIZE_MAX};
    skua_error err;
    if (!model || !CHECK(skua_engine_open(model, NULL, &served.engine, &err) == 0, "%s", err.message))
        return;
    for (int stream = 0; stream < 2; stream++) {
        struct api_request q = request(stream);
        struct strbuf got = {0};
        q.engine_info = true;
        CHECK(script_play(messages_writer_new(), &s, &served, &q, &got) == 0, "play");
        char *last = stream ? strstr(got.data, "event: message_delta\n") : got.data;
        json_t *answer = last ? json_loads(stream ? strchr(last, '{') : last, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
        CHECK(json_is_string(json_object_get(json_object_get(answer, "engine"), "backend")), "%s", got.data);
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
    bool partial;    /* the input of a call is no complete JSON */
    const char *why; /* the first thing wrong; NULL */
};

static const char *member(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "(none)";
}

static void fails(struct reader *r, const char *why)
{
    if (!r->why)
        r->why = why;
}

/* The data of the next event that is no ping if it is called name, else NULL. */
static json_t *take(struct reader *r, const char *name)
{
    while (r->at < r->n && r->at > 1 && strcmp(r->events[r->at].name, "ping") == 0)
        r->at++;
    return r->at < r->n && strcmp(r->events[r->at].name, name) == 0 ? r->events[r->at++].data : NULL;
}

static void set_text(json_t *block, const char *key, const struct strbuf *text)
{
    json_object_set_new(block, key, json_stringn(strbuf_str(text), text->len));
}

/* What a block's deltas came to goes into the block. */
static void finish_block(struct reader *r, json_t *block, const struct strbuf *text, const char *signature, int signatures)
{
    const char *type = member(block, "type");
    bool thinking = strcmp(type, "thinking") == 0;
    if (signatures != thinking || (thinking && !*signature))
        fails(r, "not one signature, at the end of thinking");
    if (thinking) {
        set_text(block, "thinking", text);
        json_object_set_new(block, "signature", json_string(signature));
    } else if (strcmp(type, "text") == 0) {
        if (!text->len)
            fails(r, "an empty block");
        set_text(block, "text", text);
        json_object_set_new(block, "citations", json_null());
    } else {
        json_t *input = json_loads(strbuf_str(text), 0, NULL);
        r->partial |= !input;
        if (!text->len)
            fails(r, "no input");
        json_object_set_new(block, "input", input ? input : json_object());
    }
}

static void read_block(struct reader *r, json_t *content)
{
    static const char *const types[][3] = {{"text", "text_delta", "text"},
                                           {"thinking", "thinking_delta", "thinking"},
                                           {"tool_use", "input_json_delta", "partial_json"}};
    json_t *d = take(r, "content_block_start");
    json_t *block = json_deep_copy(json_object_get(d, "content_block"));
    json_int_t index = (json_int_t)json_array_size(content);
    struct strbuf text = {0};
    int k = 0, signatures = 0;
    const char *signature = "";
    while (k < 3 && strcmp(types[k][0], member(block, "type")) != 0)
        k++;
    if (k == 3)
        fails(r, "a block of no known type");
    do {
        if (json_integer_value(json_object_get(d, "index")) != index)
            fails(r, "an event of another block");
        const json_t *delta = json_object_get(d, "delta");
        if (delta && k < 3 && strcmp(member(delta, "type"), types[k][1]) == 0 && !signatures) {
            strbuf_puts(&text, member(delta, types[k][2]));
        } else if (delta) {
            if (strcmp(member(delta, "type"), "signature_delta") != 0)
                fails(r, "a delta of another kind");
            signature = member(delta, "signature");
            signatures++;
        }
    } while ((d = take(r, "content_block_delta")) != NULL);
    d = take(r, "content_block_stop");
    if (!d || json_integer_value(json_object_get(d, "index")) != index)
        fails(r, "no stop of the block");
    finish_block(r, block, &text, signature, signatures);
    json_array_append_new(content, block);
    strbuf_free(&text);
}

/* The message that the stream makes (to be freed), or NULL with r->why. failed: the stream ends with an error event. */
static json_t *read_stream(struct reader *r, char *text, bool failed)
{
    r->n = sse_read(text, r->events, 512);
    json_t *message = json_deep_copy(json_object_get(take(r, "message_start"), "message"));
    json_t *content = json_object_get(message, "content"), *d;
    const char *key;
    if (!take(r, "ping"))
        fails(r, "the beginning");
    if (!failed) {
        while (!r->why && take(r, "content_block_start")) {
            r->at--;
            read_block(r, content);
        }
        d = take(r, "message_delta");
        json_object_update(message, json_object_get(d, "delta"));
        json_t *usage = json_object_get(d, "usage"), *value;
        json_object_foreach(usage, key, value)
            json_object_set(json_object_get(message, "usage"), key, value);
        if (!take(r, "message_stop"))
            fails(r, "no message_stop");
    } else if (r->n < 1 || strcmp(r->events[r->n - 1].name, "error") != 0) {
        fails(r, "no error at the end");
    } else {
        r->at = r->n;
    }
    if (r->at != r->n)
        fails(r, "an event out of its place");
    return message;
}

static void test_random(void)
{
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        uint64_t state = seed;
        struct script s;
        struct strbuf stream = {0}, body = {0};
        static struct reader r;
        r = (struct reader){0};
        script_random(&s, &state, false);
        struct api_request q = request(true);
        q.omit_thinking = script_below(&state, 2);
        int rc = script_play(messages_writer_new(), &s, &env, &q, &stream);
        json_t *message = read_stream(&r, stream.data, s.fail.status != 0);
        CHECK(rc == 0 && message && !r.why, "seed %d: %d, event %d of %d: %s", (int)seed, rc, r.at, r.n, r.why ? r.why : "");
        q.stream = false;
        rc = script_play(messages_writer_new(), &s, &env, &q, &body);
        json_t *whole = json_loads(strbuf_str(&body), 0, NULL);
        CHECK(rc == 0 && whole, "seed %d: %d", (int)seed, rc);
        if (!s.fail.status)
            CHECK(json_equal(whole, message), "seed %d: %s", (int)seed, strbuf_str(&body));
        CHECK(!r.partial || s.end.finish == API_FINISH_LENGTH, "seed %d: input is no JSON", (int)seed);
        json_decref(whole);
        json_decref(message);
        sse_free(r.events, r.n);
        strbuf_free(&stream);
        strbuf_free(&body);
        script_free(&s);
    }
}

/* Each allocation fails once: an error, nothing left behind, and what was written are whole events in order. */
static void test_no_memory(void)
{
    struct script s = {.events = {THINK("because"), THINK_END(), TEXT("Hi"), CALL("toolu_1", "read"),
                                  ARGS("toolu_1", "read", "{\"a\":[1]}"), CALL_END("toolu_1", "read", "{\"a\":[1]}")},
                       .n = 6, .end = {.finish = API_FINISH_STOP_STRING, .stop_string = "x"}, .keepalive_at = 2};
    for (int kind = 0; kind < 2; kind++) {
        struct api_request q = request(kind == 0);
        struct strbuf want = {0};
        size_t live = mem_live_blocks();
        q.omit_thinking = true;
        CHECK(script_play(messages_writer_new(), &s, &env, &q, &want) == 0, "without faults");
        for (uint64_t n = 1, done = 0; !done; n++) {
            struct strbuf got = {0};
            strbuf_reserve(&got, 1 << 16);
            fault_set_alloc(n, true);
            int rc = script_play(messages_writer_new(), &s, &env, &q, &got);
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

/* The same, and then the answer fails with it: the stream ends with that error, each event whole. */
static void test_recovery(void)
{
    struct script s = {.events = {THINK("because"), THINK_END(), TEXT("Hi"), CALL("toolu_1", "read"), ARGS("toolu_1", "read", "{}"),
                                  CALL_END("toolu_1", "read", "{}")},
                       .n = 6, .end = {.finish = API_FINISH_CALLS}, .keepalive_at = 2, .recover = true};
    struct api_request q = request(true);
    for (uint64_t n = 2, rc = 1; rc; n++) { /* the first makes the writer */
        struct strbuf got = {0};
        struct sse_event events[64];
        strbuf_reserve(&got, 1 << 16);
        fault_set_alloc(n, true);
        rc = script_play(messages_writer_new(), &s, &env, &q, &got) != 0;
        fault_set_alloc(0, false);
        int count = sse_read(got.data, events, 64);
        CHECK(count > 0 && strcmp(events[count - 1].name, rc ? "error" : "message_stop") == 0, "allocation %d: %d events", (int)n, count);
        sse_free(events, count);
        strbuf_free(&got);
    }
}

/* ---- seals ---- */

static void test_seals(void)
{
    uint64_t state = 7;
    for (size_t n = 0; n < 200; n++) {
        char text[200];
        struct strbuf seal = {0}, hash = {0}, back = {0};
        for (size_t i = 0; i < n; i++)
            text[i] = (char)rng_next(&state);
        seal_write(&seal, text, n, true);
        seal_write(&hash, text, n, false);
        CHECK(seal_read(seal.data, seal.len, &back) && back.len == n && memcmp(strbuf_str(&back), text, n) == 0, "%zu bytes", n);
        CHECK(!seal_read(hash.data, hash.len, &back) && back.len == n, "%zu bytes: a hash carries nothing", n);
        for (size_t i = 0; i < seal.len; i++) {
            char c = seal.data[i];
            seal.data[i] = c == 'A' ? 'B' : 'A';
            CHECK(!seal_read(seal.data, seal.len, &back), "%zu bytes: letter %zu changed", n, i);
            seal.data[i] = c;
            CHECK(!seal_read(seal.data, i, &back), "%zu bytes: cut at %zu", n, i);
        }
        CHECK(back.len == n && !back.failed, "%zu bytes: something was appended", n);
        strbuf_free(&seal);
        strbuf_free(&hash);
        strbuf_free(&back);
    }
}

int main(void)
{
    json_use_mem();
    json_object_seed(1);
    test_text();
    test_errors();
    test_thinking();
    test_calls();
    test_engine();
    test_random();
    test_no_memory();
    test_recovery();
    test_seals();
    return support_finish("test_api_messages");
}
