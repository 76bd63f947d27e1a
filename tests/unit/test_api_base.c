/* What all APIs stand on: bodies to JSON, errors to bodies, JSON text, paths, ids. */
#include "api_parse.h"

#include <float.h>
#include <math.h>

#include "api/field.h"
#include "base/rng.h"

/* ---- bodies ---- */

static void expect_body(int line, const char *bytes, size_t n, const char *want)
{
    json_t *v = NULL;
    struct api_error e = {0};
    struct strbuf b = {0};
    size_t live = mem_live_blocks();
    int rc = api_body_parse(bytes, n, &v, &e);
    if (rc)
        strbuf_printf(&b, "%d %s: %s", e.status, e.code, e.message);
    else
        api_json_value(&b, v);
    CHECK((rc != 0) == (v == NULL), "line %d: a value and %d", line, rc);
    check_text(line, "bodies", strbuf_str(&b), want);
    json_decref(v);
    strbuf_free(&b);
    CHECK(mem_live_blocks() == live, "line %d leaves memory behind", line);
}
#define BODY(text, want) expect_body(__LINE__, text, sizeof text - 1, want)

static void test_bodies(void)
{
    BODY("{}", "{}");
    BODY("\xEF\xBB\xBF {\"a\": 1}\n", "{\"a\":1}");
    BODY("{\"a\":1,\"b\":2,\"a\":[3]}", "{\"a\":[3],\"b\":2}");
    BODY("{\"a\":\"\\ud83d\\ude00\"}", "{\"a\":\"\xF0\x9F\x98\x80\"}");
    BODY("{\"a\":\"x\\ud83d\",\"b\":\"\\udE00\\ud800\\ud800\\udc00y\"}",
        "{\"a\":\"x\xEF\xBF\xBD\",\"b\":\"\xEF\xBF\xBD\xEF\xBF\xBD\xF0\x90\x80\x80y\"}");
    BODY("{\"a\":\"\\\\ud83d \\\"\\u0000\\u2028\"}", "{\"a\":\"\\\\ud83d \\\"\\u0000\\u2028\"}");
    BODY("{\"a\":[9223372036854775807,-9223372036854775808,9223372036854775808,-123456789012345678901234567890]}",
         "{\"a\":[9223372036854775807,-9223372036854775808,9.223372036854776e+18,-1.2345678901234568e+29]}");
    BODY("{\"a\":[0.1234567890123456789012,1e-7,1.5E300,\"123456789012345678901234567890\"]}",
         "{\"a\":[0.12345678901234568,1e-07,1.5e+300,\"123456789012345678901234567890\"]}");
    BODY("", "400 invalid_json: body: empty; expected a JSON object");
    BODY("[1]", "400 invalid_type: body: expected a JSON object, got [1]");
    BODY("\"x\"", "400 invalid_type: body: expected a JSON object, got \"x\"");
    BODY("{\"a\":\"\xC3\"}", "400 invalid_json: body: invalid UTF-8 at byte 6");
    BODY("{\"a\":\"\xED\xA0\x80\"}", "400 invalid_json: body: invalid UTF-8 at byte 6");
    BODY("{\"a\":1", "400 invalid_json: body: not valid JSON: '}' expected near end of file (line 1, column 6)");
    BODY("{\"a\":1} x", "400 invalid_json: body: not valid JSON: end of file expected near 'x' (line 1, column 9)");
    BODY("{\"a\":1e999}", "400 invalid_json: body: not valid JSON: real number overflow near '1e999' (line 1, column 10)");
    struct strbuf deep = {0};
    strbuf_puts(&deep, "{\"a\":");
    for (int i = 0; i < 127; i++)
        strbuf_putc(&deep, '[');
    struct strbuf deeper = {0};
    strbuf_append(&deeper, deep.data, deep.len);
    strbuf_putc(&deeper, '[');
    for (int i = 0; i < 127; i++)
        strbuf_putc(&deep, ']');
    strbuf_putc(&deep, '}');
    json_t *v = NULL;
    struct api_error e = {0};
    CHECK(api_body_parse(deep.data, deep.len, &v, &e) == 0, "128 levels: %s", e.message);
    json_decref(v);
    expect_body(__LINE__, deeper.data, deeper.len, "400 invalid_json: body: JSON nested deeper than 128 levels at byte 132");
    strbuf_free(&deep);
    strbuf_free(&deeper);
}

/* Whatever a body is cut to, it is refused or read, and every allocation may fail. */
static void test_cuts(void)
{
    static const char body[] = "{\"a\":[1,2.5,\"\\ud83d\\ude00\\u00e9\"],\"b\":{\"c\":null,\"d\":12345678901234567890}}";
    for (size_t n = 0; n <= sizeof body - 1; n++) {
        json_t *v = NULL;
        struct api_error e = {0};
        char *exact = mem_strndup(body, n);
        CHECK((api_body_parse(exact, n, &v, &e) == 0) == (n == sizeof body - 1), "%zu bytes", n);
        json_decref(v);
        mem_free(exact);
    }
    size_t live = mem_live_blocks();
    for (uint64_t n = 1, done = 0; !done; n++) {
        json_t *v = NULL;
        struct api_error e = {0};
        fault_set_alloc(n, true);
        int rc = api_body_parse(body, sizeof body - 1, &v, &e);
        done = fault_alloc_count() < n;
        fault_set_alloc(0, false);
        CHECK(done ? rc == 0 : rc == -1 && e.status == 503 && e.retry_after_s == 1, "allocation %d: %d %s", (int)n, rc, e.message);
        json_decref(v);
        CHECK(mem_live_blocks() == live, "allocation %d leaves memory behind", (int)n);
    }
}

static void test_copies(void)
{
    json_t *v = parse_json("{'a':1,'b':[2],'c':{},'d':null}");
    for (uint64_t n = 1, done = 0; !done; n++) {
        fault_set_alloc(n, true);
        json_t *copy = json_copy_whole(v);
        done = fault_alloc_count() < n;
        fault_set_alloc(0, false);
        CHECK(copy ? json_equal(copy, v) : !done, "allocation %d", (int)n);
        json_decref(copy);
    }
    json_decref(v);
}

/* ---- errors ---- */

static void expect_error(int line, enum api_family family, const struct api_error *e, const char *want)
{
    struct strbuf b = {0};
    api_error_body(family, e, "req_1", &b);
    check_text(line, "errors", strbuf_str(&b), want);
    strbuf_free(&b);
}

static void test_errors(void)
{
    struct api_error e;
    static const struct {
        int status;
        const char *openai, *anthropic;
    } types[] = {
        {400, "invalid_request_error", "invalid_request_error"}, {401, "authentication_error", "authentication_error"},
        {403, "permission_error", "permission_error"}, {404, "not_found_error", "not_found_error"},
        {405, "invalid_request_error", "invalid_request_error"}, {408, "invalid_request_error", "invalid_request_error"},
        {413, "invalid_request_error", "request_too_large"}, {429, "rate_limit_error", "rate_limit_error"},
        {500, "server_error", "api_error"}, {503, "server_error", "overloaded_error"}, {504, "server_error", "timeout_error"},
        {529, "server_error", "overloaded_error"},
    };
    CHECK(api_error_set(&e, 400, "c", "p[0]", "a %s\n\x80\"", "b") == -1, "-1");
    expect_error(__LINE__, API_CHAT, &e,
                 "{\"error\":{\"message\":\"a b\\\\n\\\\x80\\\"\",\"type\":\"invalid_request_error\",\"param\":\"p[0]\",\"code\":\"c\"}}");
    expect_error(__LINE__, API_MESSAGES, &e,
                 "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"a b\\\\n\\\\x80\\\"\"},"
                     "\"request_id\":\"req_1\"}");
    api_error_context(&e, API_RESPONSES, 100, 120, 0);
    expect_error(__LINE__, API_RESPONSES, &e,
                 "{\"error\":{\"message\":\"input: this model's maximum context length is 100 tokens, but the prompt has 120; at most "
                     "99 leave room "
                 "for an answer\",\"type\":\"invalid_request_error\",\"param\":\"input\",\"code\":\"context_length_exceeded\","
                     "\"n_ctx\":100,"
                 "\"n_prompt_tokens\":120}}");
    api_error_context(&e, API_CHAT, 100, 90, 20);
    CHECK(!strcmp(e.message, "messages: this model's maximum context length is 100 tokens, but 110 were requested: 90 of the prompt and "
        "20 for the "
                             "answer"), "%s", e.message);
    api_error_context(&e, API_MESSAGES, 100, 120, 0);
    CHECK(!strcmp(e.message, "prompt is too long: 120 tokens > 100 maximum"), "%s", e.message);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        api_error_set(&e, types[i].status, NULL, NULL, "x");
        CHECK(!strcmp(api_error_type(API_CHAT, &e), types[i].openai) && !strcmp(api_error_type(API_MESSAGES, &e), types[i].anthropic), "%d",
              types[i].status);
    }
    api_error_set(&e, 500, NULL, NULL, "x");
    expect_error(__LINE__, API_COMPLETIONS, &e, "{\"error\":{\"message\":\"x\",\"type\":\"server_error\",\"param\":null,\"code\":null}}");
    static const struct {
        int code, status;
    } codes[] = {{SKUA_ENOMEM, 503}, {SKUA_EARG, 400}, {SKUA_EUNSUPPORTED, 400}, {SKUA_ELIMIT, 503}, {SKUA_ETEMPLATE, 400},
                 {SKUA_ECANCELED, 503}, {SKUA_ESTATE, 503}, {SKUA_EIO, 500}, {SKUA_EFORMAT, 500}};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        skua_error err = {.code = codes[i].code, .message = "m"};
        api_error_from(&err, &e);
        CHECK(e.status == codes[i].status && *e.code && !strcmp(e.message, "m") && (e.status == 503) == (e.retry_after_s > 0), "%d",
            err.code);
    }
}

static void test_paths(void)
{
    char text[160];
    const struct api_path *at = API_KEY(API_ITEM(API_KEY(NULL, "messages"), 3), "content");
    api_path_text(at, text);
    check_text(__LINE__, "paths", text, "messages[3].content");
    api_path_text(NULL, text);
    check_text(__LINE__, "paths", text, "");
    char name[200];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    api_path_text(API_KEY(at, name), text);
    CHECK(strlen(text) == 159 && text[0] == 'x', "a long path: %s", text);
}

/* ---- JSON text ---- */

static void expect_double(double v, const char *want)
{
    struct strbuf b = {0};
    api_json_double(&b, v);
    check_text(0, "numbers", strbuf_str(&b), want);
    strbuf_free(&b);
}

static void test_json_text(void)
{
    struct strbuf b = {0};
    static const char text[] = "a\"\\/\b\f\n\r\t\x01\x7F\xC3\xA9\xE2\x80\xA8\xE2\x80\xA9\xF0\x9F\x98\x80\xC3\0z";
    api_json_string(&b, text, sizeof text - 1);
    check_text(__LINE__, "strings", strbuf_str(&b),
               "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\x7F\xC3\xA9\\u2028\\u2029\xF0\x9F\x98\x80\xEF\xBF\xBD\\u0000z\"");
    strbuf_free(&b);
    expect_double(0, "0.0");
    expect_double(-9999, "-9999.0");
    expect_double(0.1, "0.1");
    expect_double(1.0 / 3, "0.3333333333333333");
    expect_double(1e300, "1e+300");
    expect_double(NAN, "null");
    expect_double(HUGE_VAL, "1.7976931348623157e+308");
    expect_double(-HUGE_VAL, "-1.7976931348623157e+308");
    uint64_t state = 3;
    for (int i = 0; i < 1000; i++) {
        uint64_t bits = rng_next(&state);
        double v;
        memcpy(&v, &bits, sizeof v);
        api_json_double(&b, v);
        CHECK(isnan(v) || isinf(v) || fabs(strtod(b.data, NULL) - v) <= 0, "%s", b.data);
        strbuf_clear(&b);
    }
    strbuf_free(&b);
}

static void test_ids(void)
{
    char a[48], c[48];
    for (int i = 0; i < 200; i++) {
        api_id("chatcmpl-", a);
        api_id("chatcmpl-", c);
        CHECK(strlen(a) == 33 && !strncmp(a, "chatcmpl-", 9) && strcmp(a, c) != 0, "%s %s", a, c);
        CHECK(a[9 + strspn(a + 9, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")] == '\0', "%s", a);
    }
}

int main(void)
{
    json_use_mem();
    json_object_seed(1);
    test_bodies();
    test_cuts();
    test_copies();
    test_errors();
    test_paths();
    test_json_text();
    test_ids();
    return support_finish("test_api_base");
}
