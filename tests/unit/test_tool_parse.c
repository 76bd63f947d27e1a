/* The parser of a model's output: the rules' cases, independence of cutting, exact white space, linear work, memory running out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "api/tool_parse.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "support/support.h"
#include "unit/tool_cases.h"

static struct tool_set tools, none;
static struct api_request request;
static json_t *request_json;
static bool quick; /* under sanitizers */

struct run {
    struct tool_transcript t;
    struct strbuf args, raw;
    uint64_t next_source;
    bool args_differ, cut_character, source_back, raw_missing;
};

static int on_event(void *user, const struct parse_event *e)
{
    struct run *r = user;
    if (e->kind == API_EVENT_CALL_BEGIN)
        r->args.len = 0;
    if (e->kind == API_EVENT_CALL_ARGS)
        strbuf_append(&r->args, e->text, e->n);
    if (e->kind == API_EVENT_CALL_END) {
        bool begins = e->n >= r->args.len && memcmp(e->text, strbuf_str(&r->args), r->args.len) == 0;
        r->args_differ |= !begins || (e->complete && e->n != r->args.len);
        if (e->raw)
            strbuf_append(&r->raw, e->raw, e->n_raw);
    }
    if (e->kind == API_EVENT_TEXT && e->n_source) {
        r->source_back |= e->source < r->next_source;
        r->next_source = e->source + e->n_source;
    }
    for (size_t i = 0; i < e->n && e->kind != API_EVENT_CALL_END; i++) /* valid UTF-8 in every piece */
        r->cut_character |= i == 0 ? ((unsigned char)e->text[0] & 0xC0) == 0x80 : i == e->n - 1 && (unsigned char)e->text[i] >= 0xC0;
    transcript_add(&r->t, e->kind, e->text, e->n, e->def ? e->def->name : "", e->complete);
    return 0;
}

static void run_free(struct run *r)
{
    strbuf_free(&r->t.text);
    strbuf_free(&r->args);
    strbuf_free(&r->raw);
}

/* Parse, cut before each of the n_cuts rising places; with flushes at every cut. */
static int parse(struct run *r, int flags, const char *s, size_t n, const size_t *cuts, size_t n_cuts)
{
    struct tool_parser p;
    size_t at = 0;
    *r = (struct run){.t.open = -1};
    tool_parse_init(&p, flags & CASE_NO_TOOLS ? &none : &tools,
                    tool_case_begin(flags), on_event, r);
    int rc = 0;
    for (size_t i = 0; i <= n_cuts && !rc; i++) {
        size_t to = i < n_cuts ? cuts[i] : n;
        rc = tool_parse_push(&p, s + at, to - at);
        if (!rc)
            rc = tool_parse_flush(&p);
        at = to;
    }
    if (!rc)
        rc = tool_parse_finish(&p, flags & CASE_CUT);
    transcript_close(&r->t);
    tool_parse_free(&p);
    return rc;
}

static bool same(struct run *r, int flags, const char *s, size_t n, const size_t *cuts, size_t n_cuts, const char *expected)
{
    int rc = parse(r, flags, s, n, cuts, n_cuts);
    return rc == 0 && strcmp(strbuf_str(&r->t.text), expected) == 0 && !r->args_differ && !r->cut_character && !r->source_back;
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t c = 0; c < TOOL_CASES; c++) {
        const struct tool_case *k = &tool_cases[c];
        size_t n = strlen(k->output), bytes[1024];
        struct run r;
        bool ok = same(&r, k->flags, k->output, n, NULL, 0, k->expected);
        CHECK(ok, "%s: got %s\n expected %s%s%s%s", k->name, strbuf_str(&r.t.text),
              k->expected, r.args_differ ? " (fragments differ)" : "", r.cut_character ? " (cut character)" : "",
              r.source_back ? " (sources)" : "");
        run_free(&r);
        for (size_t i = 0; i < n; i++)
            bytes[i] = i;
        bool bytewise = same(&r, k->flags, k->output, n, bytes, n, k->expected);
        CHECK(bytewise, "%s, byte by byte: got %s", k->name, strbuf_str(&r.t.text));
        run_free(&r);
        ok &= bytewise;
        size_t step = quick ? 7 : 1; /* of the second cut */
        for (size_t i = 0; i <= n && ok; i++)
            for (size_t j = i; j <= n && ok; j += step) {
                ok = same(&r, k->flags, k->output, n, (size_t[]){i, j}, 2, k->expected);
                CHECK(ok, "%s, cut at %zu and %zu: got %s", k->name, i, j, strbuf_str(&r.t.text));
                run_free(&r);
            }
    }
}

static const char *const pieces[] = {
    "<tool_call>", "</tool_call>", "<function=get>", "<function=get_all>", "<function=nope>", "</function>", "<parameter=city>",
    "<parameter=n>",
    "<parameter=zz>", "</parameter>", "<think>", "</think>", "\n", "\n", "\r\n", "\r", " ", "x", "null", "1", "true", "[1]", "<", "</",
    "\xC3\xA9",
    "\xE2\x82", "\xF0\x9F\x98\x80", "\xFF", "\"", "text ", "<tool_call>\n<function=get>\n", "</function>\n</tool_call>",
    "</parameter>\n<parameter=note>\n",
};

/* Whatever the output, cutting does not matter, and nothing is lost but tags and breaks. */
static void test_random_outputs(void **state)
{
    uint64_t rng = 7;
    (void)state;
    for (int round = 0; round < 4000; round++) {
        struct strbuf s = {0};
        struct run whole, cut;
        size_t cuts[64], n_cuts = 0;
        int flags = (int)(rng_next(&rng) % 16);
        for (uint64_t k = rng_next(&rng) % 24; k; k--)
            strbuf_puts(&s, pieces[rng_next(&rng) % (sizeof pieces / sizeof *pieces)]);
        int rc = parse(&whole, flags, strbuf_str(&s), s.len, NULL, 0);
        for (size_t at = 0; s.len && n_cuts < 64 && at < s.len; at += rng_next(&rng) % 9)
            cuts[n_cuts++] = at;
        bool ok = same(&cut, flags, strbuf_str(&s), s.len, cuts, n_cuts, strbuf_str(&whole.t.text));
        CHECK(rc == 0 && ok, "flags %d: %s\n whole %s\n cut %s",
              flags, strbuf_str(&s), strbuf_str(&whole.t.text), strbuf_str(&cut.t.text));
        run_free(&whole);
        run_free(&cut);
        strbuf_free(&s);
    }
}

/* A value written as the template writes it is read as it was. */
static void test_round_trips(void **state)
{
    static const char *const parts[] = {"\n", "\r\n", "\t", "    ", "a", "\"", "\\", "</parameter>", "</function>", "<parameter=x>", "<",
                                        ">", "\xE2\x82\xAC",
                                        "\xF0\x9F\x98\x80", "if (a < b) {", "</tool_call>", "<tool_call>", "null", "\x7F", "\x02", " \n"};
    uint64_t rng = 11;
    (void)state;
    for (int round = 0; round < 3000; round++) {
        struct strbuf value = {0}, s = {0};
        struct run r;
        size_t cuts[256], n_cuts = 0;
        bool fits = true;
        for (uint64_t k = rng_next(&rng) % 12; k; k--)
            strbuf_puts(&value, parts[rng_next(&rng) % (sizeof parts / sizeof *parts)]);
        strbuf_printf(&s, "<tool_call>\n<function=write>\n<parameter=content>\n%s\n</parameter>\n</function>\n</tool_call>",
                      strbuf_str(&value));
        for (size_t i = 0; i < s.len && n_cuts < 256; i += 1 + rng_next(&rng) % 4)
            cuts[n_cuts++] = i;
        int rc = parse(&r, 0, strbuf_str(&s), s.len, cuts, n_cuts);
        /* tags that rules 4 and 5 say end the value: no round trip is promised */
        for (const char *at = strbuf_str(&value); (at = strchr(at, '<')); at++)
            if (strncmp(at, "</parameter>", 12) == 0 || strncmp(at, "</function>", 11) == 0) {
                const char *next = at + (at[2] == 'p' ? 12 : 11);
                next += strspn(next, " \t\r\n");
                fits &= *next && !(*next == '<' && (at[2] == 'p' || strncmp(next, "</t", 3) == 0));
            }
        json_t *args = json_loadb(strbuf_str(&r.args), r.args.len, 0, NULL);
        const char *got = json_string_value(json_object_get(args, "content"));
        CHECK(rc == 0 && args, "arguments are no JSON: %s", strbuf_str(&r.args));
        CHECK(!fits || (got && strcmp(got, strbuf_str(&value)) == 0 && strcmp(strbuf_str(&r.raw), strbuf_str(&s)) == 0),
              "%s\n got %s\n raw %s",
              strbuf_str(&s), strbuf_str(&r.args), strbuf_str(&r.raw));
        json_decref(args);
        run_free(&r);
        strbuf_free(&value);
        strbuf_free(&s);
    }
}

/* The work on these would be years if it were quadratic: a megabyte each, byte by byte. */
static void test_long(void **state)
{
    static const struct { const char *before, *again, *after; int flags; } longs[] = {
        {"<tool_call>\n<function=write>\n<parameter=content>\n", "line <\n", "\n</parameter>\n</function>\n</tool_call>", 0},
        {"<tool_call>\n<function=write>\n<parameter=content>\n</parameter>", " \n", "x\n</parameter>\n</function>\n</tool_call>", 0},
        {"<tool_call>\n<function=write>\n<parameter=content>\n", "</parameter> ", "x\n</parameter>\n</function>\n</tool_call>", 0},
        {"", "<tool_call>\n", "", 0},
        {"a", "\n", "b", 0},
        {"a", "\n", "", CASE_THINKS},
        {"<tool_call>\n<function=get>\n", "</parameter>", "</function>", 0},
        {"<tool_call>\n<function=get>\n", "x ", "</function>", 0},
        {"<tool_call>\n<function=get></function>", " ", "x", 0},
        {" ", " ", "x", CASE_MAYBE},
        {"<tool_call>\n<function=get><parameter=", "k", ">", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof longs / sizeof *longs; i++) {
        struct strbuf s = {0};
        struct run r = {.t.open = -1};
        struct tool_parser p;
        strbuf_puts(&s, longs[i].before);
        while (s.len < (quick ? 1u << 18 : 1u << 20))
            strbuf_puts(&s, longs[i].again);
        strbuf_puts(&s, longs[i].after);
        tool_parse_init(&p, &tools, tool_case_begin(longs[i].flags), on_event, &r);
        int rc = 0;
        for (size_t k = 0; k < s.len && !rc; k++)
            rc = tool_parse_push(&p, s.data + k, 1) || tool_parse_flush(&p);
        CHECK(rc == 0 && tool_parse_finish(&p, false) == 0 && !r.args_differ, "long output %zu", i);
        CHECK(tool_parse_decided(&p) <= s.len, "long output %zu: decided %llu of %zu", i, (unsigned long long)tool_parse_decided(&p),
              s.len);
        tool_parse_free(&p);
        run_free(&r);
        strbuf_free(&s);
    }
}

/* Nothing is held that is decided: behind this, that is out. */
static void test_held(void **state)
{
    static const struct { int flags; const char *output; size_t held; } cases[] = {
        {0, "abc", 0}, {0, "abc\n", 1}, {0, "abc\n\n<tool", 7}, {0, "abc <b", 0}, {0, "<toolx", 0}, {0, "a <func", 0},
        {0, "a\n<function=ge", 13}, {0, "a\n<function=x", 0}, {CASE_NO_TOOLS, "abc\n<tool_call>", 0}, {CASE_THINKS, "abc\n</th", 5},
        {CASE_THINKS, "abc <tool_call>", 0}, {0, "<tool_call>\n<function=write>\n<parameter=content>\nabc", 0},
        {0, "<tool_call>\n<function=write>\n<parameter=content>\nabc\r", 1},
        {0, "<tool_call>\n<function=write>\n<parameter=content>\nabc</parameter> ", 13},
        {0, "<tool_call>\n<function=write>\n<parameter=content>\nabc</parameter> x", 0}, {0, "<tool_call>\n<function=write>", 0},
        {0, "\xE2\x82", 2}, {0, "<tool_call>\n<function=write>\n<parameter=content>\nabc\n<parameter=pa", 14},
        {0, "<tool_call>\n<function=write>\n<parameter=content>\nabc\n<parameter=q", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run r = {.t.open = -1};
        struct tool_parser p;
        size_t n = strlen(cases[i].output);
        tool_parse_init(&p, cases[i].flags & CASE_NO_TOOLS ? &none : &tools, tool_case_begin(cases[i].flags), on_event, &r);
        int rc = tool_parse_push(&p, cases[i].output, n);
        CHECK(rc == 0 && n - tool_parse_decided(&p) == cases[i].held, "%s: %zu held, expected %zu", cases[i].output,
              (size_t)(n - tool_parse_decided(&p)), cases[i].held);
        tool_parse_free(&p);
        run_free(&r);
    }
}

/* Every allocation fails once: the error is reported, and what came out is a beginning of the whole. */
static void test_memory(void **state)
{
    (void)state;
    for (size_t c = 0; c < TOOL_CASES; c++) {
        const struct tool_case *k = &tool_cases[c];
        size_t blocks = mem_live_blocks();
        for (uint64_t at = 1;; at++) {
            struct tool_parser p;
            struct run r = {.t.open = -1};
            size_t n = strlen(k->output);
            tool_parse_init(&p, k->flags & CASE_NO_TOOLS ? &none : &tools, tool_case_begin(k->flags), on_event, &r);
            fault_set_alloc(at, true);
            int rc = 0;
            for (size_t i = 0; i < n && !rc; i++)
                rc = tool_parse_push(&p, k->output + i, 1);
            if (!rc)
                rc = tool_parse_finish(&p, k->flags & CASE_CUT);
            bool hit = fault_alloc_count() >= at;
            fault_set_alloc(0, false);
            CHECK(rc == 0 || rc == SKUA_ENOMEM, "%s: error %d", k->name, rc);
            bool lost = strbuf_failed(&r.t.text) || strbuf_failed(&r.args) || strbuf_failed(&r.raw); /* the test's own */
            CHECK(!hit || rc || lost, "%s: allocation %llu failed unnoticed", k->name, (unsigned long long)at);
            tool_parse_free(&p);
            run_free(&r);
            CHECK(mem_live_blocks() == blocks, "%s: memory is left", k->name);
            if (!hit)
                break;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases), cmocka_unit_test(test_random_outputs), cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_long),  cmocka_unit_test(test_held),           cmocka_unit_test(test_memory),
    };
    skua_error err;
    quick = getenv("SKUA_TEST_QUICK") != NULL;
    json_use_mem();
    if (tool_case_request(&request, &request_json) || tool_set_init(&tools, &request, &err))
        return 1;
    cmocka_run_group_tests_name("tool_parse", tests, NULL, NULL);
    tool_set_free(&tools);
    json_decref(request_json);
    free(request.tools);
    return support_finish("test_tool_parse");
}
