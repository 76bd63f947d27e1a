/* Answers in the manner of /v1/messages (spec/api.md 10.2 to 10.4): content blocks of which one at most is open. Streamed, each block is
 * three kinds of events; whole, the blocks are gathered as JSON. */
#include "api/api.h"
#include "api/json_text.h"
#include "api/seal.h"
#include "api/sse.h"
#include "api/usage.h"
#include "base/json.h"
#include "base/mem.h"

enum block_kind { BLOCK_NONE, BLOCK_THINKING, BLOCK_TEXT, BLOCK_TOOL };

struct messages_writer {
    struct api_writer base;
    struct strbuf event;        /* being put together */
    struct strbuf content;      /* not streaming: the closed blocks, JSON with commas between */
    int32_t n_blocks;           /* closed */
    bool begun;
    enum api_finish finish;
    struct strbuf stop_string;  /* as JSON: null or a string */
    enum block_kind open;
    struct strbuf text;         /* of the open block */
    struct strbuf call;         /* the members that name a call, as JSON */
};

static bool streams(const struct messages_writer *w) { return w->base.request->stream; }

/* ---- events ---- */

static struct strbuf *event_begin(struct messages_writer *w, const char *name)
{
    sse_begin(&w->event, name);
    strbuf_printf(&w->event, "{\"type\":\"%s\"", name);
    return &w->event;
}

static struct strbuf *block_event(struct messages_writer *w, const char *name)
{
    struct strbuf *b = event_begin(w, name);
    strbuf_printf(b, ",\"index\":%d", w->n_blocks);
    return b;
}

static int event_end(struct messages_writer *w)
{
    strbuf_putc(&w->event, '}');
    return sse_end(&w->event, &w->base.out);
}

static int ping(struct messages_writer *w)
{
    event_begin(w, "ping");
    return event_end(w);
}

static int delta(struct messages_writer *w, const char *type, const char *member, const char *text, size_t n)
{
    struct strbuf *b = block_event(w, "content_block_delta");
    strbuf_printf(b, ",\"delta\":{\"type\":\"%s\",\"%s\":", type, member);
    api_json_string(b, text, n);
    strbuf_putc(b, '}');
    return event_end(w);
}

/* ---- the message ---- */

/* whole: with the members that only a message has. */
static void put_usage(struct strbuf *b, const struct api_usage *u, bool whole)
{
    strbuf_printf(b, "{\"input_tokens\":%d,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%d,", u->n_prompt - u->n_cached,
                  u->n_cached);
    if (whole)
        strbuf_puts(b, "\"cache_creation\":{\"ephemeral_5m_input_tokens\":0,\"ephemeral_1h_input_tokens\":0},");
    strbuf_printf(b, "\"output_tokens\":%d,\"output_tokens_details\":{\"thinking_tokens\":%d}", u->n_generated, u->n_thinking);
    if (whole)
        strbuf_puts(b, ",\"service_tier\":\"standard\"");
    strbuf_putc(b, '}');
}

static const char *stop_reason(const struct messages_writer *w)
{
    switch (w->finish) {
    case API_FINISH_CALLS:
        return "tool_use";
    case API_FINISH_STOP_STRING:
        return "stop_sequence";
    case API_FINISH_CONTEXT:
        if (w->base.request->knows_context_stop)
            return "model_context_window_exceeded";
        return "max_tokens";
    case API_FINISH_LENGTH:
        return "max_tokens";
    case API_FINISH_STOP:
    case API_FINISH_CANCELED: /* ends as an error */
        break;
    }
    return "end_turn";
}

static void put_stop(const struct messages_writer *w, struct strbuf *b)
{
    strbuf_printf(b, "\"stop_reason\":\"%s\",\"stop_sequence\":", stop_reason(w));
    if (w->finish == API_FINISH_STOP_STRING)
        strbuf_append(b, w->stop_string.data, w->stop_string.len);
    else
        strbuf_puts(b, "null");
}

static void put_engine(const struct messages_writer *w, struct strbuf *b, const struct api_usage *u)
{
    if (!w->base.request->engine_info)
        return;
    strbuf_puts(b, ",\"engine\":");
    api_engine_json(b, w->base.env, w->base.request, u);
}

/* at_start: of a stream, when nothing is generated. */
static void put_message(const struct messages_writer *w, struct strbuf *b, const struct api_usage *u, bool at_start)
{
    strbuf_printf(b, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", w->base.id);
    api_json_text(b, w->base.request->model);
    strbuf_puts(b, ",\"content\":[");
    strbuf_append(b, w->content.data, w->content.len);
    strbuf_puts(b, "],");
    if (at_start)
        strbuf_puts(b, "\"stop_reason\":null,\"stop_sequence\":null");
    else
        put_stop(w, b);
    strbuf_puts(b, ",\"usage\":");
    put_usage(b, u, true);
    if (!at_start)
        put_engine(w, b, u);
    strbuf_putc(b, '}');
}

/* ---- blocks ---- */

/* The open block as JSON, empty (as a stream begins it) or with what it holds. */
static void put_block(const struct messages_writer *w, struct strbuf *b, bool filled)
{
    const char *text = filled ? strbuf_str(&w->text) : "";
    size_t n = filled ? w->text.len : 0;
    switch (w->open) {
    case BLOCK_THINKING:
        strbuf_puts(b, "{\"type\":\"thinking\",\"thinking\":");
        api_json_string(b, text, w->base.request->omit_thinking ? 0 : n);
        strbuf_puts(b, ",\"signature\":\"");
        if (filled)
            seal_write(b, text, n, w->base.request->omit_thinking);
        strbuf_puts(b, "\"}");
        break;
    case BLOCK_TEXT:
        strbuf_puts(b, "{\"type\":\"text\",\"text\":");
        api_json_string(b, text, n);
        strbuf_puts(b, filled ? ",\"citations\":null}" : "}");
        break;
    case BLOCK_TOOL:
        strbuf_puts(b, "{\"type\":\"tool_use\"");
        strbuf_append(b, w->call.data, w->call.len);
        strbuf_puts(b, ",\"input\":");
        strbuf_puts(b, n ? text : "{}");
        strbuf_putc(b, '}');
        break;
    case BLOCK_NONE:
        break;
    }
}

static int open_block(struct messages_writer *w, enum block_kind kind)
{
    w->open = kind;
    strbuf_clear(&w->text);
    if (!streams(w))
        return 0;
    struct strbuf *b = block_event(w, "content_block_start");
    strbuf_puts(b, ",\"content_block\":");
    put_block(w, b, false);
    return event_end(w);
}

/* What ends a streamed block: the signature of thinking, an input of at least {}. */
static int last_delta(struct messages_writer *w)
{
    if (w->open == BLOCK_TOOL)
        return w->text.len ? 0 : delta(w, "input_json_delta", "partial_json", "{}", 2);
    if (w->open != BLOCK_THINKING)
        return 0;
    struct strbuf seal = {0};
    seal_write(&seal, w->text.data, w->text.len, w->base.request->omit_thinking);
    int rc = seal.failed ? SKUA_ENOMEM : delta(w, "signature_delta", "signature", seal.data, seal.len);
    strbuf_free(&seal);
    return rc;
}

static int close_block(struct messages_writer *w)
{
    int rc = 0;
    if (w->open == BLOCK_NONE)
        return 0;
    if (w->text.failed)
        return SKUA_ENOMEM;
    if (streams(w)) {
        rc = last_delta(w);
        if (!rc) {
            block_event(w, "content_block_stop");
            rc = event_end(w);
        }
    } else {
        if (w->n_blocks)
            strbuf_putc(&w->content, ',');
        put_block(w, &w->content, true);
        rc = w->content.failed ? SKUA_ENOMEM : 0;
    }
    w->n_blocks++;
    w->open = BLOCK_NONE;
    return rc;
}

static int add_piece(struct messages_writer *w, const struct api_event *e)
{
    static const struct {
        const char *type, *member;
    } forms[] = {[BLOCK_THINKING] = {"thinking_delta", "thinking"},
                 [BLOCK_TEXT] = {"text_delta", "text"},
                 [BLOCK_TOOL] = {"input_json_delta", "partial_json"}};
    strbuf_append(&w->text, e->text, e->n);
    if (w->text.failed)
        return SKUA_ENOMEM;
    if (!streams(w) || (w->open == BLOCK_THINKING && w->base.request->omit_thinking))
        return 0;
    return delta(w, forms[w->open].type, forms[w->open].member, e->text, e->n);
}

static int add_text(struct messages_writer *w, enum block_kind kind, const struct api_event *e)
{
    int rc = 0;
    if (!e->n)
        return 0;
    if (w->open != kind) {
        rc = close_block(w);
        if (!rc)
            rc = open_block(w, kind);
    }
    return rc ? rc : add_piece(w, e);
}

static int call_begin(struct messages_writer *w, const struct api_event *e)
{
    int rc = close_block(w);
    if (rc)
        return rc;
    strbuf_clear(&w->call);
    strbuf_puts(&w->call, ",\"id\":");
    api_json_text(&w->call, e->id);
    strbuf_puts(&w->call, ",\"name\":");
    api_json_text(&w->call, e->name);
    return w->call.failed ? SKUA_ENOMEM : open_block(w, BLOCK_TOOL);
}

/* The input of a whole message must be an object: of a call that was cut off, what the parser made of it, or else nothing. text may be what
   was gathered already. */
static int set_input(struct messages_writer *w, const char *text, size_t n)
{
    json_error_t at;
    bool no_memory;
    json_t *input = json_read(text, n, JSON_ALLOW_NUL, &at, &no_memory); /* a model may write zero characters */
    bool is_object = json_is_object(input);
    json_decref(input);
    if (!input && no_memory)
        return SKUA_ENOMEM;
    if (is_object && text == w->text.data)
        return 0;
    strbuf_clear(&w->text);
    if (is_object)
        strbuf_append(&w->text, text, n);
    return w->text.failed ? SKUA_ENOMEM : 0;
}

static int call_end(struct messages_writer *w, const struct api_event *e)
{
    int rc = streams(w) ? 0 : set_input(w, e->text, e->n);
    return rc ? rc : close_block(w);
}

static int messages_event(struct api_writer *base, int32_t choice, const struct api_event *e)
{
    struct messages_writer *w = (struct messages_writer *)base;
    (void)choice; /* there is one */
    switch (e->kind) {
    case API_EVENT_THINKING:
        return add_text(w, BLOCK_THINKING, e);
    case API_EVENT_THINKING_END:
        return close_block(w);
    case API_EVENT_TEXT:
        return add_text(w, BLOCK_TEXT, e);
    case API_EVENT_CALL_BEGIN:
        return call_begin(w, e);
    case API_EVENT_CALL_ARGS:
        return e->n ? add_piece(w, e) : 0;
    case API_EVENT_CALL_END:
        return call_end(w, e);
    }
    return 0;
}

/* ---- the answer as a whole ---- */

static int messages_begin(struct api_writer *base, const struct api_usage *u)
{
    struct messages_writer *w = (struct messages_writer *)base;
    if (!streams(w))
        return 0;
    struct strbuf *b = event_begin(w, "message_start");
    strbuf_puts(b, ",\"message\":");
    put_message(w, b, u, true);
    int rc = event_end(w);
    w->begun = !rc;
    return rc ? rc : ping(w);
}

static int messages_progress(struct api_writer *base, const struct api_usage *u, int32_t n_done, int32_t n_total)
{
    (void)base, (void)u, (void)n_done, (void)n_total;
    return 0;
}

static int messages_keepalive(struct api_writer *base)
{
    struct messages_writer *w = (struct messages_writer *)base;
    return w->begun ? ping(w) : sse_comment(&base->out);
}

static int messages_choice_end(struct api_writer *base, int32_t choice, const struct api_choice_end *end)
{
    struct messages_writer *w = (struct messages_writer *)base;
    (void)choice;
    w->finish = end->finish;
    strbuf_clear(&w->stop_string);
    api_json_text(&w->stop_string, end->stop_string);
    if (w->stop_string.failed)
        return SKUA_ENOMEM;
    if (w->open == BLOCK_TOOL && !streams(w)) { /* it never came to its end */
        int rc = set_input(w, strbuf_str(&w->text), w->text.len);
        if (rc)
            return rc;
    }
    return close_block(w);
}

static int messages_fail(struct api_writer *base, const struct api_error *e)
{
    struct messages_writer *w = (struct messages_writer *)base;
    struct strbuf *b = &w->event;
    if (streams(w))
        sse_begin(b, "error");
    else
        strbuf_clear(b);
    api_error_body(API_MESSAGES, e, base->request_id, b);
    if (streams(w))
        return sse_end(b, &base->out);
    strbuf_clear(&base->out);
    return b->failed ? SKUA_ENOMEM : sse_append(&base->out, b->data, b->len);
}

static int messages_end(struct api_writer *base, const struct api_usage *u)
{
    struct messages_writer *w = (struct messages_writer *)base;
    struct strbuf *b = &w->event;
    if (w->finish == API_FINISH_CANCELED) { /* no stop_reason says so */
        struct api_error e;
        api_error_set(&e, 500, "internal_error", NULL, "the request was cancelled");
        return messages_fail(base, &e);
    }
    if (!streams(w)) {
        strbuf_clear(b);
        put_message(w, b, u, false);
        return b->failed ? SKUA_ENOMEM : sse_append(&base->out, b->data, b->len);
    }
    event_begin(w, "message_delta");
    strbuf_puts(b, ",\"delta\":{");
    put_stop(w, b);
    strbuf_puts(b, "},\"usage\":");
    put_usage(b, u, false);
    put_engine(w, b, u);
    int rc = event_end(w);
    if (rc)
        return rc;
    event_begin(w, "message_stop");
    return event_end(w);
}

static void messages_free(struct api_writer *base)
{
    struct messages_writer *w = (struct messages_writer *)base;
    strbuf_free(&w->event);
    strbuf_free(&w->content);
    strbuf_free(&w->stop_string);
    strbuf_free(&w->text);
    strbuf_free(&w->call);
    mem_free(w);
}

struct api_writer *messages_writer_new(void)
{
    static const struct api_writer_ops ops = {
        .begin = messages_begin,
        .progress = messages_progress,
        .event = messages_event,
        .choice_end = messages_choice_end,
        .keepalive = messages_keepalive,
        .end = messages_end,
        .fail = messages_fail,
        .free = messages_free,
    };
    struct messages_writer *w = mem_calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->base.ops = &ops;
    return &w->base;
}
