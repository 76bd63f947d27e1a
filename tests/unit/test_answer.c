/* The answer machine under a batcher that gives scripted or random tokens: channels, budgets, stop strings, log-probabilities, calls, and
 * answers that are bound: whatever the tokens, they parse and fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/mem.h"
#include "unit/answer_driver.h"

static struct tokenizer *tokenizer;
static struct replay *replay;
static struct api_env env = {.budget_message = "Enough."};
static struct answer_shared *shared;
static struct api_request base;
static json_t *base_json;

/* A plan for the request, or the test ends. */
static struct answer_plan *plan_of(struct api_request *r)
{
    struct answer_plan *p = NULL;
    struct api_error e = {0};
    if (answer_plan_new(shared, r, &p, &e))
        fail_msg("plan: %s", e.message);
    return p;
}

static void test_channels(void **state)
{
    uint64_t rng = 5;
    (void)state;
    for (size_t c = 0; c < TOOL_CASES; c++) {
        const struct tool_case *k = &tool_cases[c];
        struct api_request r = base;
        r.opens_thinking = k->flags & CASE_THINKS;
        if (k->flags & CASE_NO_TOOLS)
            r.n_tools = 0;
        struct answer_plan *p = plan_of(&r);
        for (int round = 0; round < 20; round++) {
            struct driver d;
            driver_begin(&d, tokenizer, p);
            driver_script(&d, k->output, strlen(k->output), k->flags & CASE_CUT, &rng);
            driver_end(&d, k->flags & CASE_CUT ? SKUA_FINISH_MAX_TOKENS : SKUA_FINISH_END_TOKEN);
            const char *got = strbuf_str(&d.transcript.text);
            bool calls = strstr(k->expected, "done(");
            enum api_finish how = k->flags & CASE_CUT ? API_FINISH_CONTEXT : calls ? API_FINISH_CALLS : API_FINISH_STOP;
            CHECK(d.rc == 0 && strcmp(got, k->expected) == 0 && !d.bad_json, "%s: got %s, expected %s", k->name, got,
                  k->expected);
            CHECK(d.end.finish == how && d.end.n_tokens == d.n_tokens, "%s: finish %d, expected %d", k->name, (int)d.end.finish, (int)how);
            driver_free(&d);
        }
        answer_plan_free(p);
    }
}

/* What an answer to a request is. */
static void expect(const char *what, struct api_request *r, const char *script, bool cut, const char *expected, enum api_finish finish,
                   int32_t thinking)
{
    uint64_t rng = 77;
    struct answer_plan *p = plan_of(r);
    for (int round = 0; round < 30; round++) {
        struct driver d;
        driver_begin(&d, tokenizer, p);
        driver_script(&d, script, strlen(script), cut, &rng);
        driver_end(&d, cut ? SKUA_FINISH_MAX_TOKENS : SKUA_FINISH_END_TOKEN);
        const char *got = strbuf_str(&d.transcript.text);
        CHECK(d.rc == 0 && strcmp(got, expected) == 0, "%s: got %s, expected %s %s", what, got, expected, d.rc ? d.err.message : "");
        CHECK(d.end.finish == finish, "%s: finish %d, expected %d", what, (int)d.end.finish, (int)finish);
        CHECK(thinking < 0 || d.end.n_thinking_tokens == thinking, "%s: %d tokens of thinking, expected %d", what,
              (int)d.end.n_thinking_tokens,
              (int)thinking);
        driver_free(&d);
    }
    answer_plan_free(p);
}

static void test_stop_strings(void **state)
{
    struct api_request r = base;
    (void)state;
    r.n_stop = 2;
    r.stop[0] = (char *)(uintptr_t)"STOP";
    r.stop[1] = (char *)(uintptr_t)"\xE2\x82\xAC!";
    expect("stop", &r, "a STOxSTSTOP b", false, "text(a STOxST)", API_FINISH_STOP_STRING, -1);
    expect("stop of several bytes", &r, "a \xE2\x82\xAC? \xE2\x82\xAC! b", false, "text(a \xE2\x82\xAC? )", API_FINISH_STOP_STRING, -1);
    expect("beginning of a stop at the end", &r, "a STO", false, "text(a STO)", API_FINISH_STOP, -1);
    expect("not across a call", &r, "a ST<tool_call>\n<function=get></function></tool_call>OP", false,
           "text(a ST)call get args({})done({})text(OP)", API_FINISH_CALLS, -1);
    expect("not inside a call", &r, "<tool_call>\n<function=get><parameter=city>STOP</parameter></function></tool_call>", false,
           "call get args({\"city\":\"STOP\"})done({\"city\":\"STOP\"})", API_FINISH_CALLS, -1);
    r.opens_thinking = true;
    expect("not in thinking", &r, "STOP</think>\n\nxSTOPy", false, "think(STOP)end text(x)", API_FINISH_STOP_STRING, -1);
}

/* In the text of the first min_tokens tokens nothing is looked for, nor does a stop string begin there. */
static void test_stop_after(void **state)
{
    static const struct { int32_t min; const char *text; } cases[] = {{0, "text()"}, {4, "text(STOPx)"}, {7, "text(STOPxSTOPy)"}};
    static const char script[] = "STOPxSTOPySTOPz";
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct api_request r = base;
        struct driver d;
        r.n_stop = 1;
        r.stop[0] = (char *)(uintptr_t)"STOP";
        r.min_tokens = cases[k].min;
        struct answer_plan *p = plan_of(&r);
        driver_begin(&d, tokenizer, p);
        for (size_t i = 0; script[i] && !d.finished && !d.rc; i++)
            driver_token(&d, (unsigned char)script[i]);
        driver_end(&d, SKUA_FINISH_STOP_STRING);
        const char *text = strbuf_str(&d.transcript.text);
        CHECK(d.rc == 0 && d.finished && strcmp(*text ? text : "text()", cases[k].text) == 0, "min_tokens %d: %s", cases[k].min, text);
        driver_free(&d);
        answer_plan_free(p);
    }
}

static void test_formats(void **state)
{
    struct api_request r = base;
    (void)state;
    r.opens_thinking = true;
    r.reasoning_format = API_REASONING_INLINE;
    expect("inline", &r, "a\nb\n</think>\n\nc", false, "text(<think>\na\nb\n</think>\n\nc)", API_FINISH_STOP, -1);
    expect("inline, cut", &r, "a\nb", true, "text(<think>\na\nb)", API_FINISH_CONTEXT, -1);
    expect("inline, nothing thought", &r, "\n</think>\n\nc", false, "text(c)", API_FINISH_STOP, -1);
    r.reasoning_format = API_REASONING_HIDDEN;
    expect("hidden", &r, "a\nb\n</think>\n\nc", false, "text(c)", API_FINISH_STOP, -1);
    r = base;
    r.family = API_COMPLETIONS;
    expect("raw", &r, "\n<think>a</think>\n<tool_call>\n<function=get></function>", false,
           "text(\n<think>a</think>\n<tool_call>\n<function=get></function>)", API_FINISH_STOP, 0);
}

static void test_counts(void **state)
{
    struct api_request r = base;
    const char two[] = "<tool_call>\n<function=get></function></tool_call>\n<tool_call>\n<function=get_all></function></tool_call>\nx";
    (void)state;
    struct answer_counters before, after;
    answer_get_counters(shared, &before);
    expect("openers of nothing", &r, "a <tool_call> b\n<tool_call>", false, "text(a <tool_call> b\n<tool_call>)", API_FINISH_STOP, 0);
    answer_get_counters(shared, &after);
    CHECK(after.parse_fallbacks == before.parse_fallbacks + 60 && after.calls == before.calls, "openers that were text are counted");
    expect("two calls", &r, two, false, "call get args({})done({})call get_all args({})done({})text(x)", API_FINISH_CALLS, -1);
    answer_get_counters(shared, &before);
    CHECK(before.calls == after.calls + 60, "calls are counted");
    r.parallel_calls = false;
    expect("one call", &r, two, false, "call get args({})done({})", API_FINISH_CALLS, -1);
    r.parallel_calls = true;
    r.max_calls = 2;
    expect("at most two calls", &r, two, false, "call get args({})done({})call get_all args({})done({})", API_FINISH_CALLS, -1);
}

/* Budgets: tokens of thinking are at most the budget and the closing text, and the answer goes on. */
static void test_budgets(void **state)
{
    static const int32_t budgets[] = {0, 1, 64, 512};
    uint64_t rng = 3;
    struct token_vec closing = {0};
    struct answer_counters before, after;
    (void)state;
    CHECK(tokenizer_encode_part(tokenizer, "\n\nEnough.\n</think>\n\n", 20, false, &closing, NULL) == 0, "closing text");
    answer_get_counters(shared, &before);
    for (size_t i = 0; i < 4; i++) {
        struct api_request r = base;
        struct driver d;
        r.opens_thinking = true;
        r.thinking_budget = budgets[i];
        struct answer_plan *p = plan_of(&r);
        driver_begin(&d, tokenizer, p);
        for (int32_t k = 0; k < budgets[i]; k++) {
            CHECK(d.n_forced == 0, "nothing is forced before the budget is spent");
            driver_token(&d, 'x');
        }
        CHECK(d.n_forced == (int32_t)closing.n, "%d tokens are forced behind the budget, expected %zu", (int)d.n_forced, closing.n);
        driver_script(&d, "yes", 3, false, &rng);
        driver_end(&d, SKUA_FINISH_END_TOKEN);
        CHECK(d.rc == 0 && strcmp(strbuf_str(&d.text), "yes") == 0 && strstr(strbuf_str(&d.transcript.text), "Enough.)end text(yes)"),
              "budget %d: %s",
              (int)budgets[i], strbuf_str(&d.transcript.text));
        CHECK(d.end.n_thinking_tokens <= budgets[i] + (int32_t)closing.n && d.end.n_thinking_tokens > budgets[i], "%d tokens of thinking",
              (int)d.end.n_thinking_tokens);
        driver_free(&d);
        answer_plan_free(p);
    }
    answer_get_counters(shared, &after);
    CHECK(after.budget_hits == before.budget_hits + 4, "counted");
    token_vec_free(&closing);
}

static void test_ends_of_thinking(void **state)
{
    struct api_request r = base;
    struct answer_counters before, after;
    struct driver d;
    uint64_t rng = 1;
    (void)state;
    answer_get_counters(shared, &before);
    r.opens_thinking = true;
    struct answer_plan *p = plan_of(&r);
    driver_begin(&d, tokenizer, p);
    driver_token(&d, 'x');
    driver_token(&d, END_TOKEN);
    CHECK(!d.finished && d.n_tokens == 2, "an end token in thinking is replaced");
    driver_token(&d, 'y');
    driver_token(&d, END_TOKEN);
    CHECK(d.finished, "the second one ends the answer");
    driver_end(&d, SKUA_FINISH_END_TOKEN);
    CHECK(strcmp(strbuf_str(&d.transcript.text), "think(x)end text(y)") == 0 && d.end.n_thinking_tokens == 2 && d.end.n_tokens == 3, "%s",
          strbuf_str(&d.transcript.text));
    driver_free(&d);
    answer_get_counters(shared, &after);
    CHECK(after.end_rescued == before.end_rescued + 1, "counted");
    /* at the limit inside thinking */
    r.max_tokens = 5;
    answer_plan_free(p);
    p = plan_of(&r);
    driver_begin(&d, tokenizer, p);
    for (int i = 0; i < 5; i++)
        driver_token(&d, 'x');
    driver_end(&d, SKUA_FINISH_MAX_TOKENS);
    CHECK(strcmp(strbuf_str(&d.transcript.text), "think(xxxxx)end ") == 0 && d.end.finish == API_FINISH_LENGTH, "%s",
          strbuf_str(&d.transcript.text));
    driver_free(&d);
    /* the control request */
    driver_begin(&d, tokenizer, p);
    driver_token(&d, 'x');
    answer_end_thinking(d.answer);
    driver_token(&d, 'y');
    driver_script(&d, "z", 1, false, &rng);
    driver_end(&d, SKUA_FINISH_END_TOKEN);
    CHECK(strcmp(strbuf_str(&d.transcript.text), "think(xy)end text(z)") == 0, "%s", strbuf_str(&d.transcript.text));
    driver_free(&d);
    answer_plan_free(p);
    /* room that is reserved for the answer */
    struct api_env reserving = env;
    struct answer_shared *own = NULL;
    struct api_error e;
    reserving.reserve_answer = 20;
    r.max_tokens = 30;
    CHECK(answer_shared_new(&reserving, tokenizer, NULL, &own, NULL) == 0 && answer_plan_new(own, &r, &p, &e) == 0, "plan");
    driver_begin(&d, tokenizer, p);
    for (int i = 0; i < 10; i++)
        driver_token(&d, 'x');
    CHECK(d.n_forced > 0, "forced 20 tokens before the limit");
    driver_script(&d, "z", 1, false, &rng);
    driver_end(&d, SKUA_FINISH_END_TOKEN);
    CHECK(strcmp(strbuf_str(&d.transcript.text), "think(xxxxxxxxxx)end text(z)") == 0, "%s", strbuf_str(&d.transcript.text));
    driver_free(&d);
    answer_plan_free(p);
    answer_shared_free(own);
}

/* Tokens of visible text and no others carry log-probabilities, each once; with logprobs_all all do. */
static void test_logprobs(void **state)
{
    static const char output[] = "hm\n</think>\n\na \xE2\x82\xAC b\n\n<tool_call>\n<function=get></function></tool_call>\nc STx\xE2\x82";
    uint64_t rng = 9;
    (void)state;
    for (int all = 0; all < 2; all++) {
        struct api_request r = base;
        r.opens_thinking = true;
        r.n_logprobs = 1;
        r.logprobs_all = all;
        r.n_stop = 1;
        r.stop[0] = (char *)(uintptr_t)"STOP";
        struct answer_plan *p = plan_of(&r);
        for (int round = 0; round < 200; round++) {
            struct driver d;
            driver_begin(&d, tokenizer, p);
            driver_script(&d, output, sizeof output - 1, false, &rng);
            driver_end(&d, SKUA_FINISH_END_TOKEN);
            const char *got = strbuf_str(&d.logprobs);
            CHECK(d.rc == 0 && !d.logprob_wrong, "log-probabilities are those of the tokens");
            if (all) {
                CHECK(d.n_logprobs == d.n_tokens && strcmp(got, output) == 0, "%d of %d tokens: %s", (int)d.n_logprobs, (int)d.n_tokens,
                      got);
            } else { /* tokens of which a part is visible may bring more bytes along */
                CHECK(strstr(got, "a \xE2\x82\xAC b") && strstr(got, "c STx\xE2\x82") && !strstr(got, "hm") &&
                      !strstr(got, "<tool_call>") && !strstr(got, "unction"), "%s", got);
            }
            driver_free(&d);
        }
        answer_plan_free(p);
    }
}

static void test_no_choice(void **state)
{
    struct api_request r = base;
    struct driver d;
    uint64_t rng = 1;
    (void)state;
    r.tool_choice = API_TOOLS_NONE;
    struct answer_plan *p = plan_of(&r);
    driver_begin(&d, tokenizer, p);
    for (int i = 0; i < 5; i++) {
        CHECK(d.next.mask && !driver_allows(&d, CALL_TAG) && driver_allows(&d, 'x') && driver_allows(&d, END_TOKEN),
              "the call's start is masked");
        driver_token(&d, 'x');
    }
    driver_script(&d, "\n<function=get></function>", 26, false, &rng);
    driver_end(&d, SKUA_FINISH_END_TOKEN);
    CHECK(strcmp(strbuf_str(&d.transcript.text), "text(xxxxx\n<function=get></function>)") == 0, "%s", strbuf_str(&d.transcript.text));
    driver_free(&d);
    answer_plan_free(p);
}

/* ---- bound answers with random tokens ---- */

static const char strict_tools[] =
    "[{\"name\": \"get\", \"strict\": true, \"parameters\": {\"type\": \"object\", \"required\": [\"city\", \"n\"], \"properties\": {"
    "\"city\": {\"type\": \"string\"}, \"n\": {\"type\": \"integer\"}, \"on\": {\"type\": \"boolean\"}, \"unit\": {\"type\": \"string\","
    " \"enum\": [\"C\", \"F\"]}}}},"
    "{\"name\": \"get_all\", \"parameters\": {\"type\": \"object\", \"properties\": {\"content\": {\"type\": \"string\"}}}},"
    "{\"name\": \"patch\", \"custom\": true}]";
static const char schema_text[] = "{\"type\": \"object\", \"required\": [\"a\", \"b\"], \"properties\": {\"a\": {\"type\": \"boolean\"},"
                                  " \"b\": {\"type\": \"array\", \"items\": {\"type\": \"integer\"}, \"maxItems\": 3}}}";

enum { BIND_SCHEMA = 1, BIND_THINKS = 2, BIND_REQUIRED = 4, BIND_NAMED = 8, BIND_TOOLS = 16, BIND_START_CALL = 32 };

static int32_t any_allowed(const struct driver *d, uint64_t *rng)
{
    static const char *const closers[] = {"</parameter>", "\n</", "</", "}\n", "\"}", "]", "}", "<", "/", "\n", ">", ","};
    if (rng_next(rng) % 4 == 0 && driver_allows(d, END_TOKEN))
        return END_TOKEN;
    for (size_t i = 0; i < sizeof closers / sizeof *closers; i++) {
        int32_t id = tokenizer_find(d->t, closers[i], strlen(closers[i]));
        if (id >= 0 && driver_allows(d, id) && rng_next(rng) % 6 == 0)
            return id;
    }
    for (int tries = 0; tries < 400; tries++) { /* words more often than bytes */
        int32_t id = rng_next(rng) % 2 ? WORD + (int32_t)(rng_next(rng) % (DRIVER_VOCAB - WORD)) : (int32_t)(rng_next(rng) % WORD);
        if (driver_allows(d, id) && (d->next.mask || (id != END_TOKEN && id < THINK_TAG)))
            return id;
    }
    for (int32_t id = 0; id < DRIVER_VOCAB; id++)
        if (driver_allows(d, id) && d->next.mask)
            return id;
    return END_TOKEN;
}

static bool fits_schema(const char *text, size_t n)
{
    json_t *v = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *b = json_object_get(v, "b");
    bool ok = json_is_boolean(json_object_get(v, "a")) && json_is_array(b) && json_array_size(b) <= 3;
    for (size_t i = 0; i < json_array_size(b); i++)
        ok &= json_is_integer(json_array_get(b, i));
    json_decref(v);
    return ok;
}

static bool fits_get(const char *line)
{
    json_t *v = json_loads(line, JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, NULL);
    const char *unit = json_string_value(json_object_get(v, "unit"));
    const json_t *on = json_object_get(v, "on");
    bool ok = json_is_string(json_object_get(v, "city")) && json_is_number(json_object_get(v, "n")) && (!on || json_is_boolean(on)) &&
              (!unit || strcmp(unit, "C") == 0 || strcmp(unit, "F") == 0);
    json_decref(v);
    return ok;
}

static const char *const think_ends[] = {"x</think>", "y\n</think>", "<\n</think>", "\n</think>"};

static void run_bound(int flags, struct answer_plan *p, uint64_t *rng, int32_t *n_texts, int32_t *n_calls)
{
    struct driver d;
    driver_begin(&d, tokenizer, p);
    if (flags & BIND_THINKS) { /* up to its end, then whatever a token brings along */
        const char *script = think_ends[rng_next(rng) % 4];
        if (rng_next(rng) % 2) {
            driver_script(&d, script, strlen(script), true, rng);
        } else {
            driver_script(&d, "x\n</thi", 7, true, rng);
            driver_token(&d, WORD + 7 + (int32_t)(rng_next(rng) % 2)); /* "nk>" and more, which may not be allowed */
        }
    }
    if (flags & BIND_START_CALL && driver_allows(&d, CALL_TAG) && !d.n_forced)
        driver_token(&d, CALL_TAG);
    while (!d.finished && !d.rc && d.n_tokens < 3000)
        driver_token(&d, any_allowed(&d, rng));
    bool ended = d.finished;
    driver_end(&d, ended ? SKUA_FINISH_END_TOKEN : SKUA_FINISH_MAX_TOKENS);
    const char *got = strbuf_str(&d.transcript.text);
    CHECK(d.rc == 0 && !d.bad_json && !d.not_allowed, "flags %d: %s %s", flags, d.rc ? d.err.message : "", strbuf_str(&d.tokens));
    bool call = strstr(got, "call ") != NULL;
    if (ended && flags & BIND_SCHEMA && (d.text.len || !call)) {
        CHECK(fits_schema(strbuf_str(&d.text), d.text.len), "flags %d: text %s of %s", flags, strbuf_str(&d.text), strbuf_str(&d.tokens));
        ++*n_texts;
    }
    if (flags & BIND_REQUIRED) {
        const char *first = flags & BIND_THINKS && strstr(got, "end ") ? strstr(got, "end ") + 4 : got;
        CHECK(strncmp(first, "call ", 5) == 0, "flags %d: a call comes first: %s", flags, got);
    }
    if (flags & BIND_NAMED)
        CHECK(strstr(got, "call get_all ") != NULL, "flags %d: the named tool: %s", flags, got);
    for (const char *at = got; ended && (at = strstr(at, "call get args({\"")); at++) { /* of the strict tool */
        const char *done = strstr(at, "done(");
        CHECK(done && fits_get(done + 5), "flags %d: %s\n of %s", flags, at, strbuf_str(&d.tokens));
        ++*n_calls;
    }
    driver_free(&d);
}

static void test_bound(void **state)
{
    static const int kinds[] = {
        BIND_SCHEMA, BIND_SCHEMA | BIND_THINKS, BIND_TOOLS | BIND_REQUIRED, BIND_TOOLS | BIND_REQUIRED | BIND_THINKS,
        BIND_TOOLS | BIND_REQUIRED | BIND_NAMED, BIND_TOOLS | BIND_REQUIRED | BIND_NAMED | BIND_THINKS, BIND_TOOLS | BIND_START_CALL,
        BIND_TOOLS | BIND_SCHEMA, BIND_TOOLS | BIND_SCHEMA | BIND_THINKS | BIND_START_CALL, BIND_TOOLS | BIND_SCHEMA | BIND_REQUIRED,
    };
    const char *named = "get_all";
    json_t *json = json_loads(strict_tools, 0, NULL), *schema = json_loads(schema_text, 0, NULL);
    struct api_tool list[3];
    uint64_t rng = 21;
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        const json_t *t = json_array_get(json, i);
        list[i] = (struct api_tool){.name = json_string_value(json_object_get(t, "name")),
                                    .custom = json_is_true(json_object_get(t, "custom")),
                                    .strict = json_is_true(json_object_get(t, "strict")), .parameters = json_object_get(t, "parameters")};
    }
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct api_request r = base;
        int32_t n_texts = 0, n_calls = 0;
        r.tools = list;
        r.n_tools = kinds[k] & BIND_TOOLS ? 3 : 0;
        r.opens_thinking = kinds[k] & BIND_THINKS;
        r.tool_choice = kinds[k] & BIND_REQUIRED ? API_TOOLS_REQUIRED : API_TOOLS_AUTO;
        if (kinds[k] & BIND_NAMED) {
            r.allowed_tools = &named;
            r.n_allowed_tools = 1;
        }
        if (kinds[k] & BIND_SCHEMA) {
            r.structure = API_JSON_SCHEMA;
            r.schema = schema;
            r.strict_schema = true;
        }
        struct answer_plan *p = plan_of(&r);
        for (int round = 0; round < 60; round++)
            run_bound(kinds[k], p, &rng, &n_texts, &n_calls);
        CHECK(!(kinds[k] & BIND_SCHEMA) || kinds[k] & BIND_TOOLS || n_texts > 20, "flags %d: %d structured texts came to an end", kinds[k],
              (int)n_texts);
        CHECK(!(kinds[k] & (BIND_REQUIRED | BIND_START_CALL)) || kinds[k] & BIND_NAMED || n_calls > 3, "flags %d: %d calls", kinds[k],
              (int)n_calls);
        answer_plan_free(p);
        strbuf_free(&r.warnings);
    }
    json_decref(json);
    json_decref(schema);
}

/* The name of a tool that is not strict ends in the token that models write there, ">" with the line break. */
static void test_bound_name(void **state)
{
    static const char begin[] = "\n<function=get_all";
    struct api_tool list[] = {{.name = "get_all"}};
    struct api_request r = base;
    struct driver d;
    (void)state;
    r.tools = list;
    r.n_tools = 1;
    r.tool_choice = API_TOOLS_REQUIRED;
    struct answer_plan *p = plan_of(&r);
    driver_begin(&d, tokenizer, p);
    while (d.n_forced && !d.rc)
        driver_token(&d, 0);
    for (size_t i = 0; i + 1 < sizeof begin && !d.rc; i++)
        driver_token(&d, (unsigned char)begin[i]);
    const int32_t end = tokenizer_find(tokenizer, ">\n", 2);
    CHECK(driver_allows(&d, end) && driver_allows(&d, '>') && !driver_allows(&d, 'x'), "end of the name");
    driver_token(&d, end);
    CHECK(d.rc == 0 && !d.next.mask, "what follows is free");
    driver_end(&d, SKUA_FINISH_MAX_TOKENS);
    driver_free(&d);
    answer_plan_free(p);
}

/* A long value of a strict tool, and what may not be in it: depth does not grow, and the end is found. */
static void test_long_value(void **state)
{
    static const char begin[] = "\n<function=get>\n<parameter=city>\n",
    end[] = "\n</parameter>\n<parameter=n>\n7\n</parameter>\n</function>\n"
                                                                             "</tool_call>";
    json_t *json = json_loads(strict_tools, 0, NULL);
    const json_t *t = json_array_get(json, 0);
    struct api_tool list[] = {{.name = "get", .strict = true, .parameters = json_object_get(t, "parameters")}};
    struct api_request r = base;
    struct strbuf script = {0};
    struct driver d;
    (void)state;
    r.tools = list;
    r.n_tools = 1;
    r.tool_choice = API_TOOLS_REQUIRED;
    struct answer_plan *p = plan_of(&r);
    strbuf_puts(&script, begin);
    for (int i = 0; i < 2000; i++)
        strbuf_puts(&script, i % 2 ? "a</p\n" : "<\xE2\x82\xAC");
    strbuf_puts(&script, end);
    driver_begin(&d, tokenizer, p);
    while (d.n_forced && !d.rc)
        driver_token(&d, 0);
    for (size_t i = 0; i < script.len && !d.rc; i++) {
        if (i == sizeof begin - 1 + 30) /* in the value, at the beginning of a line or not */
            CHECK(!driver_allows(&d, END_CALL_TAG) && !driver_allows(&d, CALL_TAG) && !driver_allows(&d, END_TOKEN),
                  "no tag inside a value");
        driver_token(&d, (unsigned char)script.data[i]);
    }
    driver_token(&d, END_TOKEN);
    driver_end(&d, SKUA_FINISH_END_TOKEN);
    CHECK(d.rc == 0 && !d.not_allowed && fits_get(strbuf_str(&d.args)) && d.args.len > 8000, "%s %zu bytes", d.rc ? d.err.message : "",
          d.args.len);
    driver_free(&d);
    answer_plan_free(p);
    strbuf_free(&script);
    json_decref(json);
}

/* A token that no mask let pass does not end the answer: it is not bound any more, and that is counted. */
static void test_relaxed(void **state)
{
    json_t *schema = json_loads(schema_text, 0, NULL);
    struct answer_counters before, after;
    struct api_request r = base;
    struct driver d;
    (void)state;
    r.n_tools = 0;
    r.structure = API_JSON_SCHEMA;
    r.schema = schema;
    struct answer_plan *p = plan_of(&r);
    answer_get_counters(shared, &before);
    driver_begin(&d, tokenizer, p);
    driver_token(&d, '{');
    CHECK(d.next.mask && !driver_allows(&d, 'x') && !driver_allows(&d, END_TOKEN), "bound");
    driver_token(&d, tokenizer_find(tokenizer, "x{", 2));
    CHECK(d.rc == 0 && !d.next.mask, "not bound any more");
    driver_token(&d, END_TOKEN);
    driver_end(&d, SKUA_FINISH_END_TOKEN);
    answer_get_counters(shared, &after);
    CHECK(strcmp(strbuf_str(&d.text), "{x{") == 0 && after.schema_relaxed == before.schema_relaxed + 1, "%s", strbuf_str(&d.text));
    driver_free(&d);
    answer_plan_free(p);
    strbuf_free(&r.warnings);
    json_decref(schema);
}

static void test_refusals(void **state)
{
    json_t *schema = json_loads("{\"type\": \"object\", \"not\": {}}", 0, NULL);
    struct api_request r = base;
    struct answer_plan *p;
    struct api_error e = {0};
    (void)state;
    r.structure = API_JSON_SCHEMA;
    r.schema = schema;
    r.strict_schema = true;
    CHECK(answer_plan_new(shared, &r, &p, &e) == -1 && e.status == 400 && strcmp(e.code, "unsupported_schema") == 0 && !p, "%d %s %s",
          e.status, e.code,
          e.message);
    r.strict_schema = false;
    for (int i = 0; i < 2; i++) { /* compiled, then remembered: the warning comes with both */
        strbuf_clear(&r.warnings);
        CHECK(answer_plan_new(shared, &r, &p, &e) == 0 && r.warnings.len, "a warning: %s", strbuf_str(&r.warnings));
        answer_plan_free(p);
    }
    r.structure = API_GBNF;
    r.grammar = "root ::= (";
    CHECK(answer_plan_new(shared, &r, &p, &e) == -1 && e.status == 400 && strcmp(e.code, "invalid_value") == 0, "%d %s", e.status,
          e.message);
    strbuf_free(&r.warnings);
    json_decref(schema);
}

/* What is remembered of a call is what was sampled. */
static void test_replay(void **state)
{
    static const char call[] = "<tool_call>\n<function=get>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>";
    struct api_request r = base;
    struct replay *own = replay;
    size_t before, after;
    uint64_t hits;
    (void)state;
    replay_get_stats(own, &before, &hits);
    expect("call", &r, call, false, "call get args({\"n\":1})done({\"n\":1})", API_FINISH_CALLS, -1);
    replay_get_stats(own, &after, &hits);
    CHECK(after == before + 30, "%zu calls are remembered, expected %zu", after, before + 30);
}

/* One answer from nothing on with allocation `at` failing (0: none); the transcript, "" if that was lost in the test itself. */
static int memory_run(int kind, const json_t *schema, uint64_t at, struct strbuf *transcript, bool *hit)
{
    static const char output[] = "hm\n</think>\n\na b\n<tool_call>\n<function=get>\n<parameter=city>\nx\n</parameter>\n</function>\n"
                                 "</tool_call>c";
    struct api_request r = base;
    struct answer_shared *own = NULL;
    struct answer_plan *p = NULL;
    struct api_error e = {0};
    struct driver d = {0};
    skua_error err;
    uint64_t rng = 4;
    r.opens_thinking = true;
    r.n_logprobs = 1;
    r.structure = kind ? API_JSON_SCHEMA : API_FREE;
    r.schema = (json_t *)(uintptr_t)schema;
    fault_set_alloc(at, true);
    int rc = answer_shared_new(&env, tokenizer, NULL, &own, &err);
    if (!rc)
        rc = answer_plan_new(own, &r, &p, &e);
    if (!rc)
        rc = driver_begin(&d, tokenizer, p);
    if (!rc && kind == 0)
        driver_script(&d, output, sizeof output - 1, false, &rng);
    if (!rc && kind == 1) {
        driver_token(&d, 'x');
        driver_token(&d, END_THINK_TAG);
        while (d.n_forced && !d.rc)
            driver_token(&d, 0);
        for (const char *s = "{\"a\":true,\"b\":[1]}"; *s && !d.rc; s++)
            driver_token(&d, (unsigned char)*s);
    }
    if (!rc)
        rc = driver_end(&d, SKUA_FINISH_END_TOKEN);
    *hit = fault_alloc_count() >= at;
    fault_set_alloc(0, false);
    bool lost = strbuf_failed(&d.transcript.text) || strbuf_failed(&d.text) || strbuf_failed(&d.args) || strbuf_failed(&d.tokens) ||
                strbuf_failed(&d.logprobs) || d.bad_json;
    strbuf_clear(transcript);
    strbuf_puts(transcript, lost ? "" : strbuf_str(&d.transcript.text));
    CHECK(rc == 0 || *hit, "no fault, no error: %s%s", d.err.message, e.message);
    driver_free(&d);
    answer_plan_free(p);
    answer_shared_free(own);
    strbuf_free(&r.warnings);
    return rc;
}

/* Every allocation fails once: an error, or one that does no harm (what is remembered for later); and no memory is left. */
static void test_memory(void **state)
{
    json_t *schema = json_loads(schema_text, 0, NULL);
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct strbuf expected = {0}, got = {0};
        bool hit = true, clean = true;
        memory_run(kind, schema, 0, &expected, &hit);
        CHECK(strstr(strbuf_str(&expected), kind ? "text({\"a\":true,\"b\":[1]})" : "call get args({\"city\":\"x\"})done("), "%s",
              strbuf_str(&expected));
        strbuf_reserve(&got, 4096);
        size_t blocks = mem_live_blocks();
        hit = true;
        for (uint64_t at = 1; hit && clean; at++) {
            int rc = memory_run(kind, schema, at, &got, &hit);
            CHECK(rc || !got.len || strcmp(strbuf_str(&got), strbuf_str(&expected)) == 0,
                  "kind %d, allocation %llu: no error, but %s", kind,
                  (unsigned long long)at, strbuf_str(&got));
            clean = CHECK(mem_live_blocks() == blocks, "kind %d, allocation %llu: memory is left", kind, (unsigned long long)at);
        }
        strbuf_free(&expected);
        strbuf_free(&got);
    }
    json_decref(schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_channels),         cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_stop_after), cmocka_unit_test(test_formats),
        cmocka_unit_test(test_counts),           cmocka_unit_test(test_budgets),      cmocka_unit_test(test_ends_of_thinking),
        cmocka_unit_test(test_logprobs),         cmocka_unit_test(test_no_choice),    cmocka_unit_test(test_bound),
        cmocka_unit_test(test_bound_name),
        cmocka_unit_test(test_long_value),       cmocka_unit_test(test_relaxed),
        cmocka_unit_test(test_refusals),         cmocka_unit_test(test_replay),       cmocka_unit_test(test_memory),
    };
    skua_error err;
    json_use_mem();
    tokenizer = driver_tokenizer();
    if (!tokenizer || tool_case_request(&base, &base_json) || replay_new(0, &replay, &err) ||
        answer_shared_new(&env, tokenizer, replay, &shared, &err)) {
        printf("%s\n", err.message);
        return 1;
    }
    cmocka_run_group_tests_name("answer", tests, NULL, NULL);
    answer_shared_free(shared);
    replay_free(replay);
    tokenizer_free(tokenizer);
    json_decref(base_json);
    free(base.tools);
    return support_finish("test_answer");
}
