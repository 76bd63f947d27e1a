/* Chat completions, streamed and whole: spec/api.md 8.3, 8.4. */
#include <string.h>

#include "api/api.h"
#include "api/json_text.h"
#include "api/usage.h"
#include "api/writer.h"
#include "base/clock.h"
#include "base/mem.h"

struct choice {
    struct strbuf thinking, text;      /* whole answers */
    struct strbuf calls, logprobs;     /* JSON of finished ones, with commas between them; logprobs of the next chunk in streams */
    int32_t n_calls;
    bool thinks;                       /* inline thinking is open */
    bool ended;
    enum api_finish finish;
    char *stop_string;
};

struct chat_writer {
    struct api_writer base;
    struct choice *choices;            /* [n] */
    int32_t n, n_ended, held;          /* held: the last choice to end waits for the final numbers; -1: none */
    bool begun, comment;               /* comment: the next keep-alive is one */
    double begin_seconds;
};

static int status(const struct api_writer *w) { return strbuf_failed(&w->out) ? SKUA_ENOMEM : 0; }

static void put_head(struct api_writer *w, const char *object)
{
    struct strbuf *b = &w->out;
    strbuf_puts(b, "{\"id\":");
    api_json_text(b, w->id);
    strbuf_printf(b, ",\"object\":\"%s\",\"created\":%lld,\"model\":", object, (long long)w->created);
    api_json_text(b, w->request->model);
    strbuf_puts(b, ",\"system_fingerprint\":");
    api_json_text(b, w->env->fingerprint);
}

static void put_logprobs(struct strbuf *b, struct choice *c)
{
    if (!c->logprobs.len) {
        strbuf_puts(b, "null");
        return;
    }
    strbuf_puts(b, "{\"content\":[");
    strbuf_append(b, c->logprobs.data, c->logprobs.len);
    strbuf_puts(b, "],\"refusal\":null}");
}

static const char *finish_text(const struct api_writer *w, enum api_finish f)
{
    switch (f) {
    case API_FINISH_LENGTH:
    case API_FINISH_CONTEXT: return "length";
    case API_FINISH_CALLS: return w->request->legacy_functions ? "function_call" : "tool_calls";
    default: return "stop";
    }
}

static void put_finish(struct api_writer *w, const struct choice *c)
{
    strbuf_printf(&w->out, ",\"finish_reason\":\"%s\",\"stop_reason\":", finish_text(w, c->finish));
    api_json_text(&w->out, c->stop_string);
}

/* ---- chunks ---- */

/* A chunk up to its delta, which the caller appends; then end_chunk. */
static void begin_chunk(struct api_writer *w, int32_t choice)
{
    strbuf_puts(&w->out, "data: ");
    put_head(w, "chat.completion.chunk");
    strbuf_printf(&w->out, ",\"choices\":[{\"index\":%d,\"delta\":", choice);
}

/* final: numbers for the last chunk of all choices; NULL otherwise. */
static void end_chunk(struct chat_writer *cw, int32_t choice, bool last, const struct api_usage *final)
{
    struct api_writer *w = &cw->base;
    struct choice *c = &cw->choices[choice];
    strbuf_puts(&w->out, ",\"logprobs\":");
    put_logprobs(&w->out, c);
    strbuf_clear(&c->logprobs);
    if (last)
        put_finish(w, c);
    else
        strbuf_puts(&w->out, ",\"finish_reason\":null");
    strbuf_puts(&w->out, "}]");
    api_chunk_json(&w->out, w->env, w->request, w->now, final);
    strbuf_puts(&w->out, "}\n\n");
}

static void text_chunk(struct chat_writer *cw, int32_t choice, const char *key, const char *s, size_t n)
{
    begin_chunk(&cw->base, choice);
    strbuf_printf(&cw->base.out, "{\"%s\":", key);
    api_json_string(&cw->base.out, s, n);
    strbuf_putc(&cw->base.out, '}');
    end_chunk(cw, choice, false, NULL);
}

/* Visible text, or inline thinking. */
static void put_text(struct chat_writer *cw, int32_t choice, const char *s, size_t n)
{
    if (cw->base.request->stream)
        text_chunk(cw, choice, "content", s, n);
    else
        strbuf_append(&cw->choices[choice].text, s, n);
}

static void put_thinking(struct chat_writer *cw, int32_t choice, const struct api_event *e)
{
    struct choice *c = &cw->choices[choice];
    switch (cw->base.request->reasoning_format) {
    case API_REASONING_HIDDEN: break;
    case API_REASONING_INLINE:
        if (!c->thinks)
            put_text(cw, choice, "<think>\n", 8);
        c->thinks = true;
        put_text(cw, choice, e->text, e->n);
        break;
    case API_REASONING_SEPARATE:
        if (cw->base.request->stream)
            text_chunk(cw, choice, "reasoning_content", e->text, e->n);
        else
            strbuf_append(&c->thinking, e->text, e->n);
    }
}

static void end_thinking(struct chat_writer *cw, int32_t choice)
{
    struct choice *c = &cw->choices[choice];
    if (c->thinks)
        put_text(cw, choice, "\n</think>\n\n", 11);
    c->thinks = false;
}

/* The beginning of a call's object, up to the quote that its arguments follow. */
static void put_call(struct strbuf *b, const struct api_event *e)
{
    strbuf_puts(b, "\"id\":");
    api_json_text(b, e->id);
    strbuf_puts(b, e->custom ? ",\"type\":\"custom\",\"custom\":{\"name\":" : ",\"type\":\"function\",\"function\":{\"name\":");
    api_json_text(b, e->name);
    strbuf_puts(b, e->custom ? ",\"input\":\"" : ",\"arguments\":\"");
}

static void call_chunk(struct chat_writer *cw, int32_t choice, const struct api_event *e)
{
    struct strbuf *b = &cw->base.out;
    bool begins = e->kind == API_EVENT_CALL_BEGIN;
    if (cw->base.request->legacy_functions && e->call > 0) /* there is room for one */
        return;
    begin_chunk(&cw->base, choice);
    if (cw->base.request->legacy_functions) {
        strbuf_puts(b, "{\"function_call\":{");
        if (begins) {
            strbuf_puts(b, "\"name\":");
            api_json_text(b, e->name);
            strbuf_putc(b, ',');
        }
        strbuf_puts(b, "\"arguments\":\"");
        api_json_chars(b, e->text, begins ? 0 : e->n);
        strbuf_puts(b, "\"}}");
    } else {
        strbuf_printf(b, "{\"tool_calls\":[{\"index\":%d,", e->call);
        if (begins)
            put_call(b, e);
        else
            strbuf_puts(b, e->custom ? "\"custom\":{\"input\":\"" : "\"function\":{\"arguments\":\"");
        api_json_chars(b, e->text, begins ? 0 : e->n);
        strbuf_puts(b, "\"}}]}");
    }
    end_chunk(cw, choice, false, NULL);
}

static void keep_call(struct chat_writer *cw, struct choice *c, const struct api_event *e)
{
    struct strbuf *b = &c->calls;
    if (cw->base.request->legacy_functions) {
        if (c->n_calls++ > 0)
            return;
        strbuf_puts(b, "{\"name\":");
        api_json_text(b, e->name);
        strbuf_puts(b, ",\"arguments\":");
        api_json_string(b, e->text, e->n);
        strbuf_putc(b, '}');
        return;
    }
    strbuf_puts(b, c->n_calls++ ? ",{" : "{");
    put_call(b, e);
    api_json_chars(b, e->text, e->n);
    strbuf_puts(b, "\"}}");
}

/* ---- operations ---- */

static int chat_begin(struct api_writer *w, const struct api_usage *u)
{
    struct chat_writer *cw = (struct chat_writer *)w;
    (void)u;
    if (cw->begun)
        return 0;
    cw->n = w->request->n;
    cw->choices = mem_calloc((size_t)cw->n, sizeof *cw->choices);
    if (!cw->choices)
        return SKUA_ENOMEM;
    cw->begun = true;
    cw->begin_seconds = clock_seconds();
    for (int32_t i = 0; i < cw->n && w->request->stream; i++) {
        begin_chunk(w, i);
        strbuf_puts(&w->out, "{\"role\":\"assistant\",\"content\":\"\"}");
        end_chunk(cw, i, false, NULL);
    }
    return status(w);
}

static int chat_progress(struct api_writer *w, const struct api_usage *u, int32_t n_done, int32_t n_total)
{
    struct chat_writer *cw = (struct chat_writer *)w;
    if (!w->request->stream || !w->request->return_progress)
        return 0;
    strbuf_puts(&w->out, "data: ");
    put_head(w, "chat.completion.chunk");
    strbuf_puts(&w->out, ",\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":null}]");
    strbuf_puts(&w->out, w->request->include_usage ? ",\"usage\":null" : "");
    api_progress_json(&w->out, u, n_done, n_total, clock_seconds() - cw->begin_seconds);
    strbuf_puts(&w->out, "}\n\n");
    return status(w);
}

static int chat_event(struct api_writer *w, int32_t choice, const struct api_event *e)
{
    struct chat_writer *cw = (struct chat_writer *)w;
    struct choice *c = &cw->choices[choice];
    if (e->n_logprobs && w->request->n_logprobs >= 0) {
        strbuf_puts(&c->logprobs, c->logprobs.len ? "," : "");
        api_json_logprobs(&c->logprobs, w->env, e->logprobs, e->n_logprobs);
        if (strbuf_failed(&c->logprobs)) /* a chunk clears it */
            return SKUA_ENOMEM;
    }
    switch (e->kind) {
    case API_EVENT_THINKING:
        if (e->n)
            put_thinking(cw, choice, e);
        break;
    case API_EVENT_THINKING_END: end_thinking(cw, choice); break;
    case API_EVENT_TEXT:
        if (e->n || e->n_logprobs)
            put_text(cw, choice, e->text, e->n);
        break;
    case API_EVENT_CALL_BEGIN:
    case API_EVENT_CALL_ARGS:
        if (w->request->stream && (e->n || e->kind == API_EVENT_CALL_BEGIN))
            call_chunk(cw, choice, e);
        break;
    case API_EVENT_CALL_END:
        if (!w->request->stream)
            keep_call(cw, c, e);
    }
    return strbuf_failed(&c->thinking) || strbuf_failed(&c->text) || strbuf_failed(&c->calls) ? SKUA_ENOMEM : status(w);
}

static int chat_choice_end(struct api_writer *w, int32_t choice, const struct api_choice_end *end)
{
    struct chat_writer *cw = (struct chat_writer *)w;
    struct choice *c = &cw->choices[choice];
    c->ended = true;
    c->finish = end->finish;
    if (end->stop_string && !(c->stop_string = mem_strdup(end->stop_string)))
        return SKUA_ENOMEM;
    if (!w->request->stream)
        return 0;
    if (++cw->n_ended == cw->n) {
        cw->held = choice;
        return 0;
    }
    begin_chunk(w, choice);
    strbuf_puts(&w->out, "{}");
    end_chunk(cw, choice, true, NULL);
    return status(w);
}

static int chat_keepalive(struct api_writer *w)
{
    struct chat_writer *cw = (struct chat_writer *)w;
    enum api_keepalive how = w->env->chat_keepalive;
    if (!w->request->stream)
        return 0;
    cw->comment = how == API_KEEPALIVE_BOTH ? !cw->comment : how == API_KEEPALIVE_COMMENT;
    if (cw->comment || !cw->begun || cw->choices[0].ended) {
        strbuf_puts(&w->out, ": keep-alive\n\n");
    } else {
        begin_chunk(w, 0);
        strbuf_puts(&w->out, "{}");
        end_chunk(cw, 0, false, NULL);
    }
    return status(w);
}

static void put_choice(struct api_writer *w, int32_t index, struct choice *c)
{
    struct strbuf *b = &w->out;
    strbuf_printf(b, "%s{\"index\":%d,\"message\":{\"role\":\"assistant\",\"content\":", index ? "," : "", index);
    if (c->text.len)
        api_json_string(b, c->text.data, c->text.len);
    else
        strbuf_puts(b, "null");
    strbuf_puts(b, ",\"refusal\":null,\"annotations\":[]");
    if (c->thinking.len) {
        strbuf_puts(b, ",\"reasoning_content\":");
        api_json_string(b, c->thinking.data, c->thinking.len);
    }
    if (c->n_calls) {
        bool legacy = w->request->legacy_functions;
        strbuf_puts(b, legacy ? ",\"function_call\":" : ",\"tool_calls\":[");
        strbuf_append(b, c->calls.data, c->calls.len);
        strbuf_puts(b, legacy ? "" : "]");
    }
    strbuf_puts(b, "},\"logprobs\":");
    put_logprobs(b, c);
    put_finish(w, c);
    strbuf_putc(b, '}');
}

static void put_body(struct chat_writer *cw, const struct api_usage *u)
{
    struct api_writer *w = &cw->base;
    put_head(w, "chat.completion");
    strbuf_puts(&w->out, ",\"service_tier\":\"default\",\"choices\":[");
    for (int32_t i = 0; i < cw->n; i++)
        put_choice(w, i, &cw->choices[i]);
    strbuf_puts(&w->out, "],\"usage\":");
    api_usage_json(&w->out, u);
    api_report_json(&w->out, w->env, w->request, u);
    strbuf_putc(&w->out, '}');
}

static int chat_end(struct api_writer *w, const struct api_usage *u)
{
    struct chat_writer *cw = (struct chat_writer *)w;
    if (!w->request->stream) {
        put_body(cw, u);
        return status(w);
    }
    if (cw->held >= 0) {
        begin_chunk(w, cw->held);
        strbuf_puts(&w->out, "{}");
        end_chunk(cw, cw->held, true, u);
    }
    if (w->request->include_usage) {
        strbuf_puts(&w->out, "data: ");
        put_head(w, "chat.completion.chunk");
        strbuf_puts(&w->out, ",\"choices\":[],\"usage\":");
        api_usage_json(&w->out, u);
        strbuf_puts(&w->out, "}\n\n");
    }
    strbuf_puts(&w->out, "data: [DONE]\n\n");
    return status(w);
}

static int chat_fail(struct api_writer *w, const struct api_error *e)
{
    bool streams = w->request->stream && ((struct chat_writer *)w)->begun;
    strbuf_puts(&w->out, streams ? "data: " : "");
    api_error_body(API_CHAT, e, w->request_id, &w->out);
    strbuf_puts(&w->out, streams ? "\n\n" : "");
    return status(w);
}

static void chat_free(struct api_writer *w)
{
    struct chat_writer *cw = (struct chat_writer *)w;
    for (int32_t i = 0; cw->choices && i < cw->n; i++) {
        struct choice *c = &cw->choices[i];
        strbuf_free(&c->thinking);
        strbuf_free(&c->text);
        strbuf_free(&c->calls);
        strbuf_free(&c->logprobs);
        mem_free(c->stop_string);
    }
    mem_free(cw->choices);
    mem_free(cw);
}

struct api_writer *chat_writer_new(void)
{
    static const struct api_writer_ops ops = {
        .begin = chat_begin, .progress = chat_progress, .event = chat_event, .choice_end = chat_choice_end, .keepalive = chat_keepalive,
        .end = chat_end, .fail = chat_fail, .free = chat_free,
    };
    struct chat_writer *w = mem_calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->base.ops = &ops;
    w->held = -1;
    return &w->base;
}
