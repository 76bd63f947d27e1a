/* Conversations that nobody would write, by both APIs, down to the prompt: parsers and renderer take them or refuse them as the client's
 * fault, never as the server's; counting gives the number of tokens that answering gives; what an answer was sent as comes back as what it
 * was. */
#include "api_script.h"
#include "api/common.h"
#include "api/template.h"
#include "base/json.h"

static struct api_env env;

/* ---- random bodies ---- */

static json_t *random_text(uint64_t *state)
{
    static const char *const texts[] = {"", " ", "hi", "\n\n", "<|im_end|>", "<think>", "</think>", "<tool_call>", "\xC3\xA9\xE2\x82\xAC",
                                        "a\nb", "x-anthropic-billing-header: 1", "<tool_response>\n1\n</tool_response>"};
    return json_string(texts[script_below(state, sizeof texts / sizeof *texts)]);
}

static json_t *pick(uint64_t *state, const char *const *names, size_t n) { return json_string(names[script_below(state, n)]); }

static json_t *random_block(uint64_t *state)
{
    static const char *const types[] = {"text", "thinking", "redacted_thinking", "tool_use", "tool_result", "search_result", "document",
                                        "mid_conv_system", "server_tool_use", "strange"};
    json_t *b = json_object();
    json_object_set_new(b, "type", pick(state, types, sizeof types / sizeof *types));
    json_object_set_new(b, "text", random_text(state));
    json_object_set_new(b, "thinking", random_text(state));
    json_object_set_new(b, "signature", random_text(state));
    json_object_set_new(b, "id", json_string("t"));
    json_object_set_new(b, "tool_use_id", json_string("t"));
    json_object_set_new(b, "name", json_string("f"));
    json_object_set_new(b, "input", json_pack("{s:o}", "k", random_text(state)));
    json_object_set_new(b, "source", json_pack("{s:s, s:o}", "type", "text", "data", random_text(state)));
    if (script_below(state, 2))
        json_object_set_new(b, "content", random_text(state));
    if (script_below(state, 4) == 0)
        json_object_set_new(b, "cache_control", json_pack("{s:s}", "type", "ephemeral"));
    return b;
}

static json_t *random_messages_body(uint64_t *state)
{
    static const char *const roles[] = {"user", "assistant", "system"};
    json_t *body = json_pack("{s:i}", "max_tokens", 5), *messages = json_array();
    if (script_below(state, 2))
        json_object_set_new(body, "system", random_text(state));
    if (script_below(state, 3) == 0)
        json_object_set_new(body, "tools", json_pack("[{s:s}]", "name", "f"));
    for (uint64_t n = script_below(state, 6); n > 0; n--) {
        json_t *m = json_object(), *content = script_below(state, 3) ? json_array() : random_text(state);
        for (uint64_t k = json_is_array(content) ? script_below(state, 5) : 0; k > 0; k--)
            json_array_append_new(content, random_block(state));
        json_object_set_new(m, "role", pick(state, roles, 3));
        json_object_set_new(m, "content", content);
        json_array_append_new(messages, m);
    }
    json_object_set_new(body, "messages", messages);
    return body;
}

static json_t *random_item(uint64_t *state)
{
    static const char *const types[] = {"message", "reasoning", "function_call", "function_call_output", "custom_tool_call",
                                        "custom_tool_call_output", "web_search_call", "strange_output"};
    static const char *const roles[] = {"user", "assistant", "system", "developer"};
    json_t *i = json_object();
    json_object_set_new(i, "type", pick(state, types, sizeof types / sizeof *types));
    json_object_set_new(i, "role", pick(state, roles, 4));
    json_object_set_new(i, "call_id", json_string("c"));
    json_object_set_new(i, "name", json_string("f"));
    json_object_set_new(i, "arguments", script_below(state, 2) ? json_string("{\"k\": [1]}") : random_text(state));
    json_object_set_new(i, "input", random_text(state));
    json_object_set_new(i, "output", random_text(state));
    json_object_set_new(i, "content", script_below(state, 2) ? random_text(state)
                                          : json_pack("[{s:s, s:o}]", "type", "output_text", "text", random_text(state)));
    json_object_set_new(i, "summary", json_pack("[{s:o}]", "text", random_text(state)));
    return i;
}

static json_t *random_responses_body(uint64_t *state)
{
    json_t *body = json_object(), *items = json_array();
    if (script_below(state, 2))
        json_object_set_new(body, "instructions", random_text(state));
    if (script_below(state, 3) == 0)
        json_object_set_new(body, "tools", json_pack("[{s:s, s:s}]", "type", "custom", "name", "f"));
    for (uint64_t n = script_below(state, 7); n > 0; n--)
        json_array_append_new(items, random_item(state));
    json_object_set_new(body, "input", items);
    return body;
}

/* ---- prompts ---- */

/* Tokens of the prompt of a body (kept by the caller), -1 when it is refused as it may be. */
static int32_t prompt_tokens(uint64_t seed, json_t *body, bool messages, bool count_only)
{
    struct api_request r;
    struct api_error e = {0};
    int32_t n = -1;
    int rc = messages ? messages_parse(&env, json_incref(body), count_only, NULL, NULL, &r, &e)
                      : responses_parse(&env, NULL, json_incref(body), NULL, NULL, &r, &e);
    if (rc) {
        json_decref(body);
    } else {
        rc = api_prompt_build(&env, NULL, &r, &e);
        n = rc ? -1 : r.prompts[0].n;
        api_request_free(&r);
    }
    CHECK(rc ? e.status == 400 && *e.message && !strchr(e.message, '\n') : n > 0, "seed %d: %d, status %d %s", (int)seed, rc, e.status,
          e.message);
    return n;
}

static void test_random(void)
{
    int taken = 0;
    for (uint64_t seed = 1; seed <= 2500; seed++) {
        uint64_t state = seed;
        size_t live = mem_live_blocks();
        json_t *body = random_messages_body(&state);
        int32_t n = prompt_tokens(seed, body, true, false), counted = prompt_tokens(seed, body, true, true);
        CHECK(n == counted, "seed %d: %d tokens, counted %d", (int)seed, n, counted);
        json_decref(body);
        taken += n > 0;
        body = random_responses_body(&state);
        taken += prompt_tokens(seed, body, false, false) > 0;
        json_decref(body);
        CHECK(mem_live_blocks() == live, "seed %d: %zu blocks left behind", (int)seed, mem_live_blocks() - live);
    }
    CHECK(taken > 3000, "only %d conversations were taken", taken);
}

/* ---- there and back ---- */

/* The prompt's text for a body that is taken over. */
static void prompt_text(json_t *body, bool messages, struct strbuf *text)
{
    struct api_request r;
    struct api_error e = {0};
    int rc = messages ? messages_parse(&env, body, false, NULL, NULL, &r, &e) : responses_parse(&env, NULL, body, NULL, NULL, &r, &e);
    if (!CHECK(rc == 0, "%s", e.message)) {
        json_decref(body);
        return;
    }
    CHECK(api_prompt_text(&env, NULL, &r, text, &e) == 0, "%s", e.message);
    api_request_free(&r);
}

/* An answer with thinking, text and a call, sent back as the API gave it with a result of the call: the prompt has all of it, thinking too,
   also where the client never saw it. */
static void test_back(void)
{
    struct script s = {.events = {THINK("I must look."), THINK_END(), TEXT("Let me see."), CALL("c1", "f"),
                                  ARGS("c1", "f", "{\"k\":\"v\"}"), CALL_END("c1", "f", "{\"k\":\"v\"}")},
                       .n = 6, .end = {.finish = API_FINISH_CALLS}, .keepalive_at = SIZE_MAX};
    static const char want[] = "<think>\nI must look.\n</think>\n\nLet me see.\n<tool_call>\n<function=f>\n<parameter=k>\nv\n"
                               "</parameter>\n</function>\n</tool_call><|im_end|>\n"
                               "<|im_start|>user\n<tool_response>\nfound\n</tool_response><|im_end|>\n";
    for (int form = 0; form < 6; form++) { /* Messages shown and omitted; Responses with content, with summary, sealed only */
        bool messages = form < 2;
        json_t *echo = json_object();
        struct api_request q = {.family = messages ? API_MESSAGES : API_RESPONSES, .echo_fields = echo, .omit_thinking = form == 1,
                                .summary = form == 3, .encrypted_reasoning = form >= 4};
        struct strbuf answer = {0}, text = {0};
        CHECK(script_play(messages ? messages_writer_new() : responses_writer_new(), &s, &env, &q, &answer) == 0, "play");
        json_t *whole = json_loads(strbuf_str(&answer), 0, NULL), *body;
        if (messages) {
            body = json_pack("{s:i, s:[{s:s, s:s}, {s:s, s:O}, {s:s, s:[{s:s, s:s, s:s}]}], s:[{s:s}]}", "max_tokens", 5, "messages",
                             "role", "user", "content", "q", "role", "assistant", "content", json_object_get(whole, "content"), "role",
                             "user", "content", "type", "tool_result", "tool_use_id", "c1", "content", "found", "tools", "name", "f");
        } else {
            json_t *input = json_pack("[{s:s, s:s}]", "role", "user", "content", "q");
            if (form >= 4)
                json_object_del(json_array_get(json_object_get(whole, "output"), 0), "content");
            json_array_extend(input, json_object_get(whole, "output"));
            json_array_append_new(input, json_pack("{s:s, s:s, s:s}", "type", "function_call_output", "call_id", "c1", "output", "found"));
            body = json_pack("{s:o, s:[{s:s, s:s}]}", "input", input, "tools", "type", "function", "name", "f");
        }
        prompt_text(body, messages, &text);
        CHECK(strstr(strbuf_str(&text), want) != NULL, "form %d: %s", form, strbuf_str(&text));
        json_decref(whole);
        json_decref(echo);
        strbuf_free(&answer);
        strbuf_free(&text);
    }
}

int main(void)
{
    const char *path = support_model("tiny-q8_0.gguf");
    skua_engine *engine = NULL;
    struct api_template *chat = NULL;
    skua_error err;
    json_use_mem();
    json_object_seed(1);
    if (!path)
        return support_finish("test_api_conversations");
    if (CHECK(skua_engine_open(path, NULL, &engine, &err) == 0 && api_template_new(engine, &chat, &err) == 0, "%s", err.message)) {
        env = (struct api_env){.engine = engine, .chat = chat, .model_id = "tiny", .n_ctx = 4096, .thinking_budget = -1,
                               .defaults = {.temperature = 1, .top_p = 1, .repetition_penalty = 1}};
        test_random();
        test_back();
    }
    api_template_free(chat);
    skua_engine_close(engine);
    return support_finish("test_api_conversations");
}
