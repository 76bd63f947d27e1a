/* Fuzzing the parser of a model's output: byte 0 says what the output begins in and whether it was cut, the rest is the output. Read at
 * once and byte by byte it must give the same, the pieces of arguments must be the whole, and whole arguments must be JSON. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "unit/tool_cases.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct run {
    struct tool_transcript t;
    struct strbuf args;
};

static int on_event(void *user, const struct parse_event *e)
{
    struct run *r = user;
    if (e->kind == API_EVENT_CALL_BEGIN)
        strbuf_clear(&r->args);
    if (e->kind == API_EVENT_CALL_ARGS)
        strbuf_append(&r->args, e->text, e->n);
    if (e->kind == API_EVENT_CALL_END) {
        json_t *v = e->def->custom ? json_object() : json_loadb(e->text, e->n, JSON_ALLOW_NUL, NULL);
        /* what is nested too deeply for a reader was made a string, so this always parses */
        bool begins = e->n >= r->args.len && memcmp(e->text, strbuf_str(&r->args), r->args.len) == 0;
        if (!json_is_object(v) || !begins || (e->complete && e->n != r->args.len))
            abort();
        json_decref(v);
    }
    transcript_add(&r->t, e->kind, e->text, e->n, e->def ? e->def->name : "", e->complete);
    return 0;
}

static void parse(struct run *r, const struct tool_set *tools, const char *s, size_t n, int flags, size_t step)
{
    struct tool_parser p;
    *r = (struct run){.t.open = -1};
    tool_parse_init(&p, tools, tool_case_begin(flags), on_event, r);
    for (size_t at = 0; at < n; at += step)
        if (tool_parse_push(&p, s + at, step < n - at ? step : n - at) || tool_parse_flush(&p))
            abort();
    if (tool_parse_finish(&p, flags & CASE_CUT) || tool_parse_decided(&p) > n)
        abort();
    transcript_close(&r->t);
    tool_parse_free(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tool_set tools;
    static const struct tool_set none;
    static struct api_request request;
    static json_t *json;
    skua_error err;
    if (!json && (tool_case_request(&request, &json) || tool_set_init(&tools, &request, &err)))
        abort();
    if (!size)
        return 0;
    const struct tool_set *set = data[0] & CASE_NO_TOOLS ? &none : &tools;
    struct run whole, cut;
    parse(&whole, set, (const char *)data + 1, size - 1, data[0], size);
    for (size_t step = 1; step < 8; step += 3) {
        parse(&cut, set, (const char *)data + 1, size - 1, data[0], step);
        if (whole.t.text.len != cut.t.text.len || memcmp(strbuf_str(&whole.t.text), strbuf_str(&cut.t.text), cut.t.text.len) != 0)
            abort();
        strbuf_free(&cut.t.text);
        strbuf_free(&cut.args);
    }
    strbuf_free(&whole.t.text);
    strbuf_free(&whole.args);
    return 0;
}
