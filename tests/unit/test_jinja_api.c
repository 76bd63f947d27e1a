/* The chat-template interpreter's own contract: limits, errors with positions, what is refused by name, allocation failures,
 * rendering from several threads, conversations, and the templates of the shared models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "jinja/chat.h"
#include "jinja/jinja.h"
#include "support/support.h"

static json_t *parse(const char *text)
{
    json_error_t e;
    json_t *j = json_loads(text, JSON_DECODE_ANY, &e);
    if (!j)
        fail_msg("%s in %s", e.text, text);
    return j;
}

/* Render src with context (JSON text): the output or the error message, in a static buffer. */
static const char *render(const char *src, const char *context, const struct jinja_limits *limits, int *code)
{
    static char text[100000];
    struct jinja_template *t;
    struct strbuf out = {0};
    skua_error err = {0};
    json_t *c = parse(context);
    *code = jinja_compile(src, strlen(src), limits, &t, &err);
    if (!*code)
        *code = jinja_render(t, c, &(struct jinja_render_options){.time = 1700000000}, &out, &err);
    snprintf(text, sizeof text, "%s", *code ? err.message : strbuf_str(&out));
    CHECK(*code || err.code == 0, "no error code on success");
    CHECK(!*code || !out.len, "nothing is put out on failure");
    CHECK(!*code || err.code == *code, "the code is also in the error");
    strbuf_free(&out);
    jinja_free(t);
    json_decref(c);
    return text;
}

static void wants(const char *src, const char *context, const char *output)
{
    int code;
    const char *got = render(src, context, NULL, &code);
    CHECK(!code && !strcmp(got, output), "%s\n   gives  %s\n   wanted %s", src, got, output);
}

static void refuses(const char *src, const struct jinja_limits *limits, const char *message)
{
    int code;
    const char *got = render(src, "{}", limits, &code);
    CHECK(code == SKUA_ETEMPLATE && !strcmp(got, message), "%.200s\n   gives  %s\n   wanted %s", src, got, message);
}

static void test_unsupported(void **state)
{
    (void)state;
    static const char *const tags[] = {"extends 'x'", "block x", "include 'x'", "import 'x' as y", "from 'x' import y", "autoescape true"};
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++) {
        char src[100], message[200];
        snprintf(src, sizeof src, "a\n {%% %s %%}", tags[i]);
        snprintf(message, sizeof message, "chat template: line 2, column 5: the tag '%.*s' is not supported in chat templates",
                 (int)strcspn(tags[i], " "), tags[i]);
        refuses(src, NULL, message);
    }
    refuses("{% for x in y recursive %}{% endfor %}", NULL, "chat template: line 1, column 15: recursive loops are not supported");
    refuses("{{ 1 | random }}", NULL, "chat template: line 1, column 8: No filter named 'random'.");
    refuses("{{ lipsum() }}", NULL, "chat template: line 1, column 10: the function lipsum is not supported");
    refuses("{{ 'a'.encode() }}", NULL, "chat template: line 1, column 14: the method str.encode is not supported");
    refuses("{{ '\\N{DASH}' }}", NULL, "chat template: line 1, column 4: escapes by character name (\\N{...}) are not supported");
    refuses("{{ '\\ud800' }}", NULL, "chat template: line 1, column 4: an escape for a lone surrogate is not supported");
    refuses("{{ 9223372036854775808 }}", NULL, "chat template: line 1, column 4: integer literal beyond 64 bits");
    refuses("{{ 9223372036854775807 + 1 }}", NULL, "chat template: line 1, column 4: integer result beyond 64 bits");
    refuses("{{ 3 ** 99 }}", NULL, "chat template: line 1, column 4: integer result beyond 64 bits");
    refuses("{{ -(-9223372036854775807 - 1) }}", NULL, "chat template: line 1, column 4: integer result beyond 64 bits");
    refuses("{{ (-9223372036854775807 - 1) // -1 }}", NULL, "chat template: line 1, column 4: integer result beyond 64 bits");
    refuses("{{ (-9223372036854775807 - 1) | abs }}", NULL, "chat template: line 1, column 33: integer result beyond 64 bits");
    refuses("\xff", NULL, "chat template: line 1, column 1: the template is not valid UTF-8 (byte 0)");
    refuses("{% break %}", NULL, "chat template: line 1, column 4: 'break' outside loop");
    refuses("{% for x in [1] %}{% macro m() %}{% continue %}{% endmacro %}{% endfor %}", NULL,
            "chat template: line 1, column 37: 'continue' outside loop");
    refuses("{{ d[1:2, 3] }}", NULL, "chat template: line 1, column 5: slices of several dimensions are not supported");
}

static void test_positions(void **state)
{
    (void)state;
    refuses("{{ a.b }}", NULL, "chat template: line 1, column 5: 'a' is undefined");
    refuses("\n\n  {{ 'é' ~ a.b }}", NULL, "chat template: line 3, column 13: 'a' is undefined");
    refuses("{{ [1,\n2,\n  raise_exception('x\ny')] }}", NULL, "chat template: line 3, column 18: x y");
    refuses("{{ 1 +\n  }}", NULL, "chat template: line 2, column 3: unexpected 'end of print statement'");
    refuses("é {% if x %}", NULL, "chat template: line 1, column 11: Unexpected end of template. Jinja was looking for the "
                                  "following tags: 'elif' or 'else' or 'endif'. The innermost block that needs to be closed is 'if'.");
}

static void test_limits(void **state)
{
    (void)state;
    char deep[4000] = "{{ ";
    refuses("{{ 1 }}", &(struct jinja_limits){.max_source_bytes = 6},
            "chat template: line 1, column 1: the template has 7 bytes, the limit is 6");
    refuses("{{ 'abc' * 10 }}", &(struct jinja_limits){.max_output_bytes = 29},
            "chat template: line 1, column 4: the output is larger than the limit of 29 bytes");
    refuses("{{ 'abc' * 1000000 * 1000 }}", NULL,
            "chat template: line 1, column 20: rendering needs more than the limit of 268435456 bytes of memory");
    refuses("{{ 'abcdefghijklmnop' * 20000000 }}", NULL,
            "chat template: line 1, column 4: rendering needs more than the limit of 268435456 bytes of memory");
    refuses("{% for x in range(100000) %}{% for y in range(100000) %}{% endfor %}{% endfor %}", NULL,
            "chat template: line 1, column 57: rendering takes more than the limit of 10000000 steps");
    refuses("{{ range(11) }}", &(struct jinja_limits){.max_range = 10},
            "chat template: line 1, column 9: Range too big. The sandbox blocks ranges larger than MAX_RANGE (10).");
    refuses("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", NULL,
            "chat template: line 1, column 16: evaluation nested deeper than 1200 levels");
    refuses("{% set ns = namespace(x=1) %}{% for i in range(400) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}", NULL,
            "chat template: line 1, column 95: a value is nested deeper than 250 levels");
    for (int i = 0; i < 300; i++)
        strcat(deep, "(");
    int code;
    const char *got = render(deep, "{}", NULL, &code);
    CHECK(code == SKUA_ETEMPLATE && strstr(got, "deeper than"), "parentheses: %s", got);
    strcpy(deep, "{{ 1");
    for (int i = 0; i < 300; i++)
        strcat(deep, " + 1");
    strcat(deep, " }}");
    refuses(deep, NULL, "chat template: line 1, column 802: an expression deeper than 200 operations");
    strcpy(deep, "");
    for (int i = 0; i < 300; i++)
        strcat(deep, "{% if 1 %}");
    got = render(deep, "{}", NULL, &code);
    CHECK(code == SKUA_ETEMPLATE && strstr(got, "deeper than"), "tags: %s", got);
    wants("{% for x in range(100000) %}{% endfor %}ok", "{}", "ok");
    json_t *j = json_integer(1); /* a context that is nested too deeply */
    for (int i = 0; i < 300; i++) {
        json_t *list = json_array();
        json_array_append_new(list, j);
        j = list;
    }
    json_t *context = json_pack("{s:o}", "x", j);
    struct jinja_template *t;
    struct strbuf out = {0};
    skua_error err;
    CHECK(jinja_compile("{{ x }}", 7, NULL, &t, &err) == 0, "compiles");
    CHECK(jinja_render(t, context, NULL, &out, &err) == SKUA_ETEMPLATE && strstr(err.message, "nested deeper than 250"), "%s", err.message);
    CHECK(jinja_render(t, j, NULL, &out, &err) == SKUA_EARG, "a context that is no object");
    jinja_free(t);
    json_decref(context);
}

static void test_variables(void **state)
{
    (void)state;
    struct jinja_template *t;
    const char *src = "{% set own = 1 %}{{ own }}{% for m in messages %}{{ m.x }}{% endfor %}{% if enable_thinking is defined %}{% endif %}"
                      "{% macro f(a) %}{{ a }}{{ inside }}{% endmacro %}";
    CHECK(jinja_compile(src, strlen(src), NULL, &t, NULL) == 0, "compiles");
    CHECK(jinja_uses_variable(t, "messages") && jinja_uses_variable(t, "enable_thinking") && jinja_uses_variable(t, "inside"), "read");
    CHECK(!jinja_uses_variable(t, "own") && !jinja_uses_variable(t, "m") && !jinja_uses_variable(t, "a") &&
              !jinja_uses_variable(t, "tools"),
          "not read");
    jinja_free(t);
    jinja_free(NULL);
}

static const char chat_template[] =
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}{% set f = c.function or c %}"
    "{{ f.name }}:{% if f.arguments is string %}str{% else %}{{ f.arguments | tojson }}{% endif %};{% endfor %}{{ eos_token }}{% endfor %}"
    "{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ enable_thinking }}";

static void chat(const char *messages, const char *tools, const char *extra, const char *bos, const char *wanted)
{
    struct jinja_template *t;
    struct strbuf out = {0};
    skua_error err = {0};
    json_t *m = parse(messages), *before = json_deep_copy(m), *tl = tools ? parse(tools) : NULL, *x = extra ? parse(extra) : NULL;
    CHECK(jinja_compile(chat_template, strlen(chat_template), NULL, &t, &err) == 0, "%s", err.message);
    int code = chat_render(t, m, tl, true, x, bos, "</s>", &out, &err);
    CHECK(!strcmp(code ? err.message : strbuf_str(&out), wanted), "%s\n   gives  %s\n   wanted %s", messages,
          code ? err.message : strbuf_str(&out), wanted);
    CHECK(json_equal(m, before), "the messages are unchanged");
    strbuf_free(&out);
    jinja_free(t);
    json_decref(m);
    json_decref(before);
    json_decref(tl);
    json_decref(x);
}

static void test_chat(void **state)
{
    (void)state;
    chat("[{\"role\":\"user\",\"content\":\"hi\"}]", NULL, NULL, "<s>", "<s>[user]hi</s>TrueTrueTrue");
    chat("[{\"role\":\"user\",\"content\":\"hi\"}]", "[]", "{\"enable_thinking\":false,\"add_generation_prompt\":5}", NULL,
         "[user]hi</s>FalseTrue5False");
    chat("[{\"role\":\"a\",\"content\":\"\",\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"z\\\":"
         " 1, \\\"a\\\": [1.50, true]}\"}},"
         "{\"function\":{\"name\":\"g\",\"arguments\":{\"k\":null}}},{\"name\":\"h\",\"arguments\":\"{}\"},{\"function\":{\"name\":\"i\","
         "\"arguments\":\"[1]\"}},"
         "{\"function\":{\"name\":\"j\",\"arguments\":\"oops\"}},{\"function\":{\"name\":\"k\",\"arguments\":\"\"}}]}]",
         NULL, NULL, NULL, "[a]f:{\"z\": 1, \"a\": [1.5, true]};g:{\"k\": null};h:{};i:str;j:str;k:str;</s>TrueTrueTrue");
    chat("{}", NULL, NULL, NULL, "chat template: messages must be a JSON array");
    chat("[]", "{}", NULL, NULL, "chat template: tools must be a JSON array");
    chat("[]", NULL, "[]", NULL, "chat template: the template arguments must be a JSON object");
    chat("[1]", NULL, NULL, NULL, "[]</s>TrueTrueTrue");
    chat("[]", NULL, NULL, "\xff", "out of memory: the variables of the chat template (or a token that is not UTF-8)");
}

/* Every allocation of compiling and rendering fails once: an error, no leak (the sanitizer watches), no partial output. */
static void test_allocation_failures(void **state)
{
    (void)state;
    const char *src = "{% macro m(a, b=[1]) %}{{ a ~ b }}{{ caller() }}{% endmacro %}{% for x in xs | sort if x %}{% call m(x, *[2]) %}"
                      "{{ loop.length }}{{ xs | tojson(indent=2) | upper }}{% endcall %}{% endfor %}{{ 'x' * 90000 }}{{ '%5d' % 3 }}"
                      "{% set ns = namespace(a={'k': 1}) %}{{ ns.a.items() | list }}{{ range(3000) | map('string') | join }}";
    json_t *context = parse("{\"xs\": [3, 1, 2]}");
    size_t wanted = 0;
    uint64_t n = 1;
    for (bool done = false; !done && n < 500; n++) {
        struct jinja_template *t = NULL;
        struct strbuf out = {0};
        skua_error err = {0};
        strbuf_puts(&out, "before");
        fault_set_alloc(n, n % 2);
        int code = jinja_compile(src, strlen(src), NULL, &t, &err);
        if (!code)
            code = jinja_render(t, context, NULL, &out, &err);
        done = fault_alloc_count() < n;
        fault_set_alloc(0, false);
        wanted = done ? out.len : 0;
        CHECK(done ? code == 0 : code == SKUA_ENOMEM && err.code == code && !strcmp(strbuf_str(&out), "before"),
              "allocation %llu: code %d, %s", (unsigned long long)n, code, err.message);
        strbuf_free(&out);
        jinja_free(t);
    }
    CHECK(wanted > 90000 && n > 8, "the loop ended with a rendering (%zu bytes, %llu allocations)", wanted, (unsigned long long)n);
    json_decref(context);
}

struct job { const struct jinja_template *t; const json_t *context; int bad; };

static void *render_often(void *p)
{
    struct job *j = p;
    for (int i = 0; i < 50; i++) {
        struct strbuf out = {0};
        if (jinja_render(j->t, j->context, NULL, &out, NULL) || strcmp(strbuf_str(&out), "1:a,2:b;[\"a\", \"b\"]6"))
            j->bad++;
        strbuf_free(&out);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct jinja_template *t;
    const char *src = "{% set ns = namespace(n=0) %}{% for x in xs %}{{ loop.index }}:{{ x }}{{ ',' if not loop.last else ';' }}{% set "
                      "ns.n = ns.n + 3 %}{% endfor %}{{ xs | tojson }}{{ ns.n }}";
    json_t *context = parse("{\"xs\": [\"a\", \"b\"]}");
    struct job jobs[4];
    pthread_t threads[4];
    CHECK(jinja_compile(src, strlen(src), NULL, &t, NULL) == 0, "compiles");
    for (int i = 0; i < 4; i++) {
        jobs[i] = (struct job){t, context, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, &jobs[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK(!jobs[i].bad, "thread %d: %d wrong renderings", i, jobs[i].bad);
    }
    jinja_free(t);
    json_decref(context);
}

/* The template of the shared models, with the conversations of golden/template.json. */
static void test_golden(void **state)
{
    (void)state;
    const char *path = support_shared("hf/tiny-dense/tokenizer_config.json");
    json_t *config = path ? json_load_file(path, 0, NULL) : NULL;
    path = path ? support_shared("golden/template.json") : NULL;
    json_t *cases = path ? json_load_file(path, 0, NULL) : NULL, *c;
    if (!cases) {
        json_decref(config);
        return;
    }
    const char *src = json_string_value(json_object_get(config, "chat_template"));
    struct jinja_template *t;
    skua_error err = {0};
    size_t i;
    CHECK(jinja_compile(src, strlen(src), NULL, &t, &err) == 0, "%s", err.message);
    CHECK(jinja_uses_variable(t, "enable_thinking"), "uses enable_thinking");
    json_array_foreach(cases, i, c) {
        struct strbuf out = {0};
        json_t *in = json_object_get(c, "input"), *extra = json_copy(in);
        json_object_del(extra, "messages");
        json_object_del(extra, "tools");
        int code =
            chat_render(t, json_object_get(in, "messages"), json_object_get(in, "tools"), false, extra, NULL, "<|im_end|>", &out, &err);
        CHECK(!code && !strcmp(strbuf_str(&out), json_string_value(json_object_get(c, "output"))), "golden case %zu: %s", i,
              code ? err.message : strbuf_str(&out));
        strbuf_free(&out);
        json_decref(extra);
    }
    CHECK(i > 0, "golden/template.json has cases");
    jinja_free(t);
    json_decref(cases);
    json_decref(config);
}

static void test_text(void **state)
{
    (void)state;
    wants("{{ x }}", "{\"x\": \"a\"}", "a");
    wants("{{ x.f | tojson }}{{ x }}", "{\"x\": {\"f\": 1.10, \"a\": 1e100, \"n\": null}}", "1.1{'f': 1.1, 'a': 1e+100, 'n': None}");
    wants("{% set d = {} %}{% for i in range(40) %}{% set k = 'k' ~ i %}{% endfor %}{{ big.k39 }}{{ big.k0 }}{{ big.nope }}{{ big | length "
          "}}",
          "{\"big\": {\"k0\":0,\"k1\":1,\"k2\":2,\"k3\":3,\"k4\":4,\"k5\":5,\"k6\":6,\"k7\":7,\"k8\":8,\"k9\":9,\"k39\":39}}", "39011");
    wants("{{ strftime_now('%Y-%m-%d %H:%M') }}", "{}", "2023-11-14 22:13");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unsupported), cmocka_unit_test(test_positions), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_variables), cmocka_unit_test(test_chat), cmocka_unit_test(test_allocation_failures),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_golden), cmocka_unit_test(test_text),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return support_finish("test_jinja_api") || failed;
}
