/* What the parsers of Responses and Messages make of a body, as text for comparisons; and memory running out at each allocation. */
#ifndef SKUA_TESTS_API_PARSE_H
#define SKUA_TESTS_API_PARSE_H

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/json_text.h"
#include "base/json.h"
#include "base/mem.h"
#include "support/support.h"

typedef int parse_fn(const struct api_env *env, json_t *body, struct api_request *r, struct api_error *e);

static inline struct api_env parse_env(void)
{
    return (struct api_env){.model_id = "skua-test", .n_ctx = 4096, .thinking_budget = -1,
                            .defaults = {.temperature = 1, .top_k = 20, .top_p = 0.95, .repetition_penalty = 1, .penalty_last_n = 64}};
}

/* The fields that are not what they are when nothing is said. */
static inline void print_request(const struct api_request *r, struct strbuf *b)
{
    static const char *const choices[] = {"none", "auto", "required"}, *const structures[] = {"", "object", "schema", "gbnf", "regex"};
    const struct {
        const char *name;
        bool is;
    } flags[] = {{"stream", r->stream}, {"one-call", !r->parallel_calls}, {"summary", r->summary}, {"encrypted", r->encrypted_reasoning},
                 {"omit", r->omit_thinking}, {"truncate", r->truncate}, {"continue", r->continue_final},
                 {"knows-context", r->knows_context_stop}, {"no-thinking", !r->thinking}, {"strict-schema", r->strict_schema}};
    const struct {
        const char *name;
        int is, usual;
    } numbers[] = {{"max", r->max_tokens, -1}, {"calls", r->max_calls, 0}, {"logprobs", r->n_logprobs, -1},
                   {"budget", r->thinking_budget, -1}, {"top-k", r->sampling.top_k, 20}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (flags[i].is)
            strbuf_printf(b, " %s", flags[i].name);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].is != numbers[i].usual)
            strbuf_printf(b, " %s=%d", numbers[i].name, numbers[i].is);
    if (r->sampling.temperature < 1 || r->sampling.temperature > 1)
        strbuf_printf(b, " temperature=%g", r->sampling.temperature);
    if (strcmp(r->model, "skua-test") != 0)
        strbuf_printf(b, " model=%s", r->model);
    if (r->n_tools)
        strbuf_printf(b, " choice=%s", choices[r->tool_choice]);
    for (size_t i = 0; i < r->n_allowed_tools; i++)
        strbuf_printf(b, " allow=%s", r->allowed_tools[i]);
    for (size_t i = 0; i < r->n_tools; i++) {
        const struct api_tool *t = &r->tools[i];
        strbuf_printf(b, " tool=%s", t->name);
        if (t->ns)
            strbuf_printf(b, "(%s+%s)", t->ns, t->bare);
        strbuf_printf(b, "%s%s%s%s", t->custom ? ":custom" : "", t->strict ? ":strict" : "", t->regex ? ":" : "", t->regex ? t->regex : "");
        if (t->parameters) {
            strbuf_putc(b, '=');
            api_json_value(b, t->parameters);
        }
    }
    for (size_t i = 0; i < r->n_stop; i++)
        strbuf_printf(b, " stop=%s", r->stop[i]);
    if (r->structure != API_FREE)
        strbuf_printf(b, " structure=%s", structures[r->structure]);
    if (r->warnings.len)
        strbuf_printf(b, " warnings=%s", r->warnings.data);
}

static inline void check_text(int line, const char *what, const char *got, const char *want)
{
    CHECK(strcmp(got, want) == 0, "line %d: %s are\n%s\nshould be\n%s", line, what, got, want);
}

static inline void check_json(int line, const char *what, const json_t *got, const char *want)
{
    struct strbuf b = {0};
    if (got)
        api_json_value(&b, got);
    check_text(line, what, strbuf_str(&b), want);
    strbuf_free(&b);
}

/* Single quotes stand for double ones. */
static inline json_t *parse_json(const char *text)
{
    char *s = mem_strdup(text);
    for (char *p = s; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    json_error_t at;
    json_t *j = json_loads(s, JSON_ALLOW_NUL, &at);
    if (!j)
        printf("%s: %s\n", at.text, s);
    mem_free(s);
    return j;
}

struct good_body {
    int line;
    const char *body, *messages, *tools, *fields; /* NULL: not compared */
};

struct bad_body {
    int line;
    const char *body, *code, *param, *message;
};

static inline char *with_quotes(const char *text)
{
    char *s = mem_strdup(text);
    for (char *p = s; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    return s;
}

static inline void check_good(parse_fn *parse, const struct api_env *env, const struct good_body *g)
{
    struct api_request r = {0};
    struct api_error e = {0};
    struct strbuf fields = {0};
    size_t live = mem_live_blocks();
    json_t *body = parse_json(g->body);
    int rc = parse(env, body, &r, &e);
    if (CHECK(rc == 0, "line %d: %s", g->line, e.message)) {
        char *messages = with_quotes(g->messages ? g->messages : ""), *tools = with_quotes(g->tools ? g->tools : "");
        if (g->messages)
            check_json(g->line, "messages", r.messages, messages);
        if (g->tools)
            check_json(g->line, "tools", r.template_tools, tools);
        print_request(&r, &fields);
        if (g->fields)
            check_text(g->line, "fields", strbuf_str(&fields), g->fields);
        mem_free(messages);
        mem_free(tools);
        strbuf_free(&fields);
        api_request_free(&r);
    } else {
        json_decref(body);
    }
    CHECK(mem_live_blocks() == live, "line %d: %zu blocks left behind", g->line, mem_live_blocks() - live);
}

static inline void check_bad(parse_fn *parse, const struct api_env *env, const struct bad_body *b)
{
    struct api_request r = {0};
    struct api_error e = {0};
    size_t live = mem_live_blocks();
    json_t *body = parse_json(b->body);
    int rc = parse(env, body, &r, &e);
    CHECK(rc == -1 && e.status == 400, "line %d: %d, status %d", b->line, rc, e.status);
    check_text(b->line, "code", e.code, b->code);
    check_text(b->line, "param", e.param, b->param);
    char *message = with_quotes(b->message);
    check_text(b->line, "message", e.message, message);
    mem_free(message);
    json_decref(body);
    CHECK(mem_live_blocks() == live, "line %d: %zu blocks left behind", b->line, mem_live_blocks() - live);
}

/* Each allocation fails in turn: out of memory is said, the body stays the caller's and nothing is left behind. */
static inline void check_memory(parse_fn *parse, const struct api_env *env, const char *text)
{
    json_t *body = parse_json(text);
    size_t live = mem_live_blocks();
    for (uint64_t n = 1, done = 0; !done; n++) {
        struct api_request r = {0};
        struct api_error e = {0};
        fault_set_alloc(n, true);
        int rc = parse(env, json_incref(body), &r, &e);
        done = fault_alloc_count() < n;
        fault_set_alloc(0, false);
        CHECK(rc == 0 || (rc == -1 && !done && e.status == 503 && strcmp(e.code, "out_of_memory") == 0), "allocation %d: %d, %d %s", (int)n,
              rc, e.status, e.message);
        if (rc)
            json_decref(body); /* of the call */
        else
            api_request_free(&r);
        CHECK(mem_live_blocks() == live, "allocation %d: %zu blocks left behind", (int)n, mem_live_blocks() - live);
    }
    json_decref(body);
}

#endif
