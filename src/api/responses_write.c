/* Answers in the manner of /v1/responses (spec/api.md 9.3, 9.4). An answer is a list of output items of which one at most is open; what it
 * collects while it is open serves both the events that close it and the response object at the end, so that a stream put together
 * again is the whole answer. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/json_text.h"
#include "api/seal.h"
#include "api/sse.h"
#include "api/usage.h"
#include "base/mem.h"

enum item_kind { ITEM_NONE, ITEM_REASONING, ITEM_SUMMARY, ITEM_MESSAGE, ITEM_FUNCTION, ITEM_CUSTOM };

/* How the kinds of items differ on the wire. An item with parts has one. */
static const struct item_form {
    const char *type, *id_prefix;
    const char *part_type, *part_index;                 /* NULL: no parts */
    const char *part_added, *delta, *done, *part_done;  /* events, behind "response." */
    const char *content;                                /* member of the done event that holds everything */
} forms[] = {
    [ITEM_REASONING] = {"reasoning", "rs_", "reasoning_text", "content_index", "content_part.added", "reasoning_text.delta",
                        "reasoning_text.done", "content_part.done", "text"},
    [ITEM_SUMMARY] = {"reasoning", "rs_", "summary_text", "summary_index", "reasoning_summary_part.added", "reasoning_summary_text.delta",
                      "reasoning_summary_text.done", "reasoning_summary_part.done", "text"},
    [ITEM_MESSAGE] = {"message", "msg_", "output_text", "content_index", "content_part.added", "output_text.delta", "output_text.done",
                      "content_part.done", "text"},
    [ITEM_FUNCTION] = {"function_call", "fc_", NULL, NULL, NULL, "function_call_arguments.delta", "function_call_arguments.done", NULL,
                       "arguments"},
    [ITEM_CUSTOM] = {"custom_tool_call", "ctc_", NULL, NULL, NULL, "custom_tool_call_input.delta", "custom_tool_call_input.done", NULL,
                     "input"},
};

struct responses_writer {
    struct api_writer base;
    struct strbuf event;      /* being put together */
    struct strbuf items;      /* the closed items, JSON with commas between */
    int64_t sequence;
    int32_t n_items;
    bool begun;
    bool broken;              /* memory ran out: the open item cannot be closed in order */
    struct api_choice_end end;
    /* the open item */
    enum item_kind open;
    char item_id[48];
    struct strbuf text;       /* so far */
    struct strbuf logprobs;   /* of a message's tokens, JSON with commas between */
    struct strbuf call;       /* the members that name a call, as JSON */
    struct strbuf call_name;
};

static const char *const in_progress = "in_progress";

static bool streams(const struct responses_writer *w) { return w->base.request->stream; }

/* ---- JSON ---- */

static void put_string(struct strbuf *b, const struct strbuf *s) { api_json_string(b, strbuf_str(s), s->len); }

/* The part of the open item; filled: with what it holds. */
static void put_part(const struct responses_writer *w, struct strbuf *b, bool filled)
{
    strbuf_printf(b, "{\"type\":\"%s\",\"text\":", forms[w->open].part_type);
    if (filled)
        put_string(b, &w->text);
    else
        strbuf_puts(b, "\"\"");
    if (w->open == ITEM_MESSAGE)
        strbuf_printf(b, ",\"annotations\":[],\"logprobs\":[%s]", filled ? strbuf_str(&w->logprobs) : "");
    strbuf_putc(b, '}');
}

static void put_parts(const struct responses_writer *w, struct strbuf *b, const char *member, bool filled)
{
    strbuf_printf(b, ",\"%s\":[", member);
    if (filled)
        put_part(w, b, true);
    strbuf_putc(b, ']');
}

/* The open item; filled: with what it holds. */
static void put_item(const struct responses_writer *w, struct strbuf *b, const char *status, bool filled)
{
    strbuf_printf(b, "{\"type\":\"%s\",\"id\":\"%s\",\"status\":\"%s\"", forms[w->open].type, w->item_id, status);
    switch (w->open) {
    case ITEM_REASONING:
    case ITEM_SUMMARY:
        put_parts(w, b, "summary", filled && w->open == ITEM_SUMMARY);
        put_parts(w, b, "content", filled && w->open == ITEM_REASONING);
        strbuf_puts(b, ",\"encrypted_content\":");
        if (status != in_progress && w->base.request->encrypted_reasoning) {
            strbuf_putc(b, '"');
            seal_write(b, w->text.data, w->text.len, true);
            strbuf_putc(b, '"');
        } else {
            strbuf_puts(b, "null");
        }
        break;
    case ITEM_MESSAGE:
        strbuf_puts(b, ",\"role\":\"assistant\"");
        put_parts(w, b, "content", filled);
        break;
    case ITEM_FUNCTION:
    case ITEM_CUSTOM:
        strbuf_append(b, w->call.data, w->call.len);
        strbuf_printf(b, ",\"%s\":", forms[w->open].content);
        if (filled)
            put_string(b, &w->text);
        else
            strbuf_puts(b, "\"\"");
        break;
    case ITEM_NONE:
        break;
    }
    strbuf_putc(b, '}');
}

static void put_usage(struct strbuf *b, const struct api_usage *u)
{
    if (!u) {
        strbuf_puts(b, "null");
        return;
    }
    strbuf_printf(b, "{\"input_tokens\":%d,\"input_tokens_details\":{\"cached_tokens\":%d,\"cache_write_tokens\":0},\"output_tokens\":%d,"
                  "\"output_tokens_details\":{\"reasoning_tokens\":%d},\"total_tokens\":%lld}", u->n_prompt, u->n_cached, u->n_generated,
                  u->n_thinking, (long long)u->n_prompt + u->n_generated);
}

/* The code of a failed response: the few that clients know. */
static const char *failure_code(const struct api_error *e)
{
    if (strcmp(e->code, "context_length_exceeded") == 0)
        return e->code;
    return e->status == 429 ? "rate_limit_exceeded" : e->status >= 500 ? "server_error" : "invalid_prompt";
}

static void put_failure(struct strbuf *b, const struct api_error *e)
{
    strbuf_printf(b, "{\"code\":\"%s\",\"message\":", failure_code(e));
    struct strbuf message = {0};
    strbuf_puts(&message, e->message);
    if (e->status == 429) /* agents read the waiting time from these words */
        strbuf_printf(&message, " Please try again in %ds.", e->retry_after_s > 0 ? e->retry_after_s : 1);
    put_string(b, &message);
    b->failed |= message.failed;
    strbuf_free(&message);
    strbuf_putc(b, '}');
}

/* What there is so far: clients take the output of every response object for all of it, also in the midst of an item. */
static void put_output(const struct responses_writer *w, struct strbuf *b)
{
    strbuf_puts(b, ",\"output\":[");
    strbuf_append(b, w->items.data, w->items.len);
    if (w->open != ITEM_NONE) {
        strbuf_puts(b, w->n_items ? "," : "");
        put_item(w, b, in_progress, true);
    }
    strbuf_putc(b, ']');
}

/* The response object. usage: NULL while it is not known; failure: NULL unless it failed. */
static void put_response(const struct responses_writer *w, struct strbuf *b, const char *status, const struct api_usage *usage,
                         const struct api_error *failure)
{
    const struct api_writer *base = &w->base;
    strbuf_printf(b, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,\"completed_at\":", base->id, (long long)base->created);
    if (strcmp(status, "completed") == 0)
        strbuf_printf(b, "%lld", (long long)base->created + (long long)(usage->queue_s + usage->prompt_s + usage->generate_s));
    else
        strbuf_puts(b, "null");
    strbuf_printf(b, ",\"status\":\"%s\",\"background\":false,\"error\":", status);
    if (failure)
        put_failure(b, failure);
    else
        strbuf_puts(b, "null");
    strbuf_printf(b, ",\"incomplete_details\":%s,\"model\":",
                  strcmp(status, "incomplete") == 0 ? "{\"reason\":\"max_output_tokens\"}" : "null");
    api_json_text(b, base->request->model);
    put_output(w, b);
    strbuf_puts(b, ",\"usage\":");
    put_usage(b, usage);
    const char *key;
    json_t *value;
    json_object_foreach(base->request->echo_fields, key, value) {
        strbuf_printf(b, ",\"%s\":", key);
        api_json_value(b, value);
    }
    if (usage && base->request->engine_info) {
        strbuf_puts(b, ",\"engine\":");
        api_engine_json(b, base->env, base->request, usage);
    }
    strbuf_putc(b, '}');
}

/* ---- events ---- */

static struct strbuf *event_begin(struct responses_writer *w, const char *name)
{
    struct strbuf *b = &w->event;
    char type[64];
    snprintf(type, sizeof type, "response.%s", name);
    sse_begin(b, type);
    strbuf_printf(b, "{\"type\":\"%s\",\"sequence_number\":%lld", type, (long long)w->sequence);
    return b;
}

static int event_end(struct responses_writer *w)
{
    strbuf_putc(&w->event, '}');
    int rc = sse_end(&w->event, &w->base.out);
    if (!rc)
        w->sequence++;
    return rc;
}

/* An event of the open item: where it belongs. */
static struct strbuf *item_event(struct responses_writer *w, const char *name)
{
    struct strbuf *b = event_begin(w, name);
    strbuf_printf(b, ",\"item_id\":\"%s\",\"output_index\":%d", w->item_id, w->n_items);
    if (forms[w->open].part_index)
        strbuf_printf(b, ",\"%s\":0", forms[w->open].part_index);
    return b;
}

static int item_output(struct responses_writer *w, const char *name, const char *status)
{
    struct strbuf *b = event_begin(w, name);
    strbuf_printf(b, ",\"output_index\":%d,\"item\":", w->n_items);
    put_item(w, b, status, status != in_progress);
    return event_end(w);
}

static int part_event(struct responses_writer *w, const char *name, bool filled)
{
    if (!name)
        return 0;
    struct strbuf *b = item_event(w, name);
    strbuf_puts(b, ",\"part\":");
    put_part(w, b, filled);
    return event_end(w);
}

static int response_event(struct responses_writer *w, const char *name, const char *status, const struct api_usage *usage,
                          const struct api_error *failure)
{
    struct strbuf *b = event_begin(w, name);
    strbuf_puts(b, ",\"response\":");
    put_response(w, b, status, usage, failure);
    return event_end(w);
}

/* ---- items ---- */

static int open_item(struct responses_writer *w, enum item_kind kind)
{
    w->open = kind;
    api_id(forms[kind].id_prefix, w->item_id);
    strbuf_clear(&w->text);
    strbuf_clear(&w->logprobs);
    if (!streams(w))
        return 0;
    int rc = item_output(w, "output_item.added", in_progress);
    return rc ? rc : part_event(w, forms[kind].part_added, false);
}

static int done_events(struct responses_writer *w, const char *status)
{
    const struct item_form *f = &forms[w->open];
    struct strbuf *b = item_event(w, f->done);
    if (w->open == ITEM_FUNCTION) {
        strbuf_puts(b, ",\"name\":");
        put_string(b, &w->call_name);
    }
    strbuf_printf(b, ",\"%s\":", f->content);
    put_string(b, &w->text);
    if (w->open == ITEM_MESSAGE)
        strbuf_printf(b, ",\"logprobs\":[%s]", strbuf_str(&w->logprobs));
    int rc = event_end(w);
    if (!rc)
        rc = part_event(w, f->part_done, true);
    return rc ? rc : item_output(w, "output_item.done", status);
}

static int close_item(struct responses_writer *w, bool complete)
{
    if (w->open == ITEM_NONE)
        return 0;
    const char *status = complete ? "completed" : "incomplete";
    if (w->text.failed || w->logprobs.failed || w->call.failed || w->call_name.failed)
        return SKUA_ENOMEM;
    int rc = streams(w) ? done_events(w, status) : 0;
    size_t before = w->items.len;
    if (w->n_items)
        strbuf_putc(&w->items, ',');
    put_item(w, &w->items, status, true);
    if (w->items.failed) { /* what is closed stays whole */
        w->items.len = before;
        w->items.failed = false;
        return SKUA_ENOMEM;
    }
    w->n_items++;
    w->open = ITEM_NONE;
    return rc;
}

/* A piece of the open item, with the log-probabilities of its tokens if it is a message. */
static int add_piece(struct responses_writer *w, const struct api_event *e)
{
    struct strbuf logprobs = {0};
    if (w->open == ITEM_MESSAGE && e->n_logprobs) {
        api_json_logprobs(&logprobs, w->base.env, e->logprobs, e->n_logprobs);
        if (w->logprobs.len)
            strbuf_putc(&w->logprobs, ',');
        strbuf_append(&w->logprobs, logprobs.data, logprobs.len);
    }
    strbuf_append(&w->text, e->text, e->n);
    int rc = w->text.failed || w->logprobs.failed || logprobs.failed ? SKUA_ENOMEM : 0;
    if (!rc && streams(w)) {
        struct strbuf *b = item_event(w, forms[w->open].delta);
        strbuf_puts(b, ",\"delta\":");
        api_json_string(b, e->text, e->n);
        if (w->open == ITEM_MESSAGE)
            strbuf_printf(b, ",\"logprobs\":[%s]", strbuf_str(&logprobs));
        rc = event_end(w);
    }
    strbuf_free(&logprobs);
    return rc;
}

static int add_text(struct responses_writer *w, enum item_kind kind, const struct api_event *e)
{
    if (!e->n && !(e->n_logprobs && kind == ITEM_MESSAGE && w->open == kind)) /* the last log-probabilities may come without text */
        return 0;
    int rc = 0;
    if (w->open != kind) {
        rc = close_item(w, true);
        if (!rc)
            rc = open_item(w, kind);
    }
    return rc ? rc : add_piece(w, e);
}

/* Name and id of a call, as the client knows the tool: a namespace is told apart again. */
static int call_begin(struct responses_writer *w, const struct api_event *e)
{
    const struct api_request *r = w->base.request;
    const char *name = e->name, *ns = NULL;
    int rc = close_item(w, true);
    if (rc)
        return rc;
    for (size_t i = 0; i < r->n_tools; i++) {
        if (r->tools[i].ns && strcmp(r->tools[i].name, e->name) == 0) {
            name = r->tools[i].bare;
            ns = r->tools[i].ns;
        }
    }
    strbuf_clear(&w->call_name);
    strbuf_puts(&w->call_name, name);
    strbuf_clear(&w->call);
    strbuf_puts(&w->call, ",\"call_id\":");
    api_json_text(&w->call, e->id);
    strbuf_puts(&w->call, ",\"name\":");
    api_json_text(&w->call, name);
    if (ns) {
        strbuf_puts(&w->call, ",\"namespace\":");
        api_json_text(&w->call, ns);
    }
    if (w->call.failed || w->call_name.failed)
        return SKUA_ENOMEM;
    return open_item(w, e->custom ? ITEM_CUSTOM : ITEM_FUNCTION);
}

/* A call that was cut off is given as it was streamed, or, in one piece, with what the parser made of it. */
static int call_end(struct responses_writer *w, const struct api_event *e)
{
    if (e->text && !streams(w)) {
        strbuf_clear(&w->text);
        strbuf_append(&w->text, e->text, e->n);
    }
    return close_item(w, e->complete);
}

static int take_event(struct responses_writer *w, const struct api_event *e)
{
    switch (e->kind) {
    case API_EVENT_THINKING:
        return add_text(w, w->base.request->summary ? ITEM_SUMMARY : ITEM_REASONING, e);
    case API_EVENT_THINKING_END:
        return close_item(w, true);
    case API_EVENT_TEXT:
        return add_text(w, ITEM_MESSAGE, e);
    case API_EVENT_CALL_BEGIN:
        return call_begin(w, e);
    case API_EVENT_CALL_ARGS:
        return e->n ? add_piece(w, e) : 0;
    case API_EVENT_CALL_END:
        return call_end(w, e);
    }
    return 0;
}

static int responses_event(struct api_writer *base, int32_t choice, const struct api_event *e)
{
    struct responses_writer *w = (struct responses_writer *)base;
    (void)choice; /* there is one */
    int rc = take_event(w, e);
    w->broken |= rc != 0;
    return rc;
}

/* ---- the answer as a whole ---- */

static int responses_begin(struct api_writer *base, const struct api_usage *u)
{
    struct responses_writer *w = (struct responses_writer *)base;
    (void)u;
    if (!streams(w))
        return 0;
    int rc = response_event(w, "created", in_progress, NULL, NULL);
    w->begun = !rc;
    return rc ? rc : response_event(w, "in_progress", in_progress, NULL, NULL);
}

static int responses_progress(struct api_writer *base, const struct api_usage *u, int32_t n_done, int32_t n_total)
{
    (void)base, (void)u, (void)n_done, (void)n_total;
    return 0;
}

static int responses_keepalive(struct api_writer *base)
{
    struct responses_writer *w = (struct responses_writer *)base;
    return w->begun ? response_event(w, "in_progress", in_progress, NULL, NULL) : sse_comment(&base->out);
}

static bool cut(enum api_finish f) { return f == API_FINISH_LENGTH || f == API_FINISH_CONTEXT || f == API_FINISH_CANCELED; }

static int responses_choice_end(struct api_writer *base, int32_t choice, const struct api_choice_end *end)
{
    struct responses_writer *w = (struct responses_writer *)base;
    (void)choice;
    w->end = *end;
    int rc = close_item(w, !cut(end->finish));
    w->broken |= rc != 0;
    return rc;
}

/* Keep the answer, before its client may ask for it. When that fails the response object says so: there is no reason to fail the answer. */
static void keep_answer(struct responses_writer *w, const char *status, const struct api_usage *u)
{
    const struct api_request *r = w->base.request;
    if (!r->turn || w->end.finish == API_FINISH_CANCELED) /* nobody goes on from half an answer that nobody wanted */
        return;
    strbuf_clear(&w->event);
    put_response(w, &w->event, status, u, NULL);
    if (w->event.failed || !response_turn_keep(r->turn, w->base.id, &w->event, &w->items))
        json_object_set_new(r->echo_fields, "store", json_false());
}

static int responses_end(struct api_writer *base, const struct api_usage *u)
{
    struct responses_writer *w = (struct responses_writer *)base;
    enum api_finish f = w->end.finish;
    const char *status = !cut(f) ? "completed" : f == API_FINISH_CANCELED ? "cancelled" : "incomplete";
    keep_answer(w, status, u);
    if (streams(w))
        return response_event(w, cut(f) ? "incomplete" : "completed", status, u, NULL);
    strbuf_clear(&w->event);
    put_response(w, &w->event, status, u, NULL);
    return w->event.failed ? SKUA_ENOMEM : sse_append(&base->out, w->event.data, w->event.len);
}

/* Before there is a response object, the API's bare error event. */
static int bare_error(struct responses_writer *w, const struct api_error *e)
{
    struct strbuf *b = &w->event;
    sse_begin(b, "error");
    strbuf_printf(b, "{\"type\":\"error\",\"sequence_number\":%lld,\"code\":", (long long)w->sequence++);
    api_json_text(b, e->code);
    strbuf_puts(b, ",\"message\":");
    api_json_text(b, e->message);
    strbuf_puts(b, ",\"param\":");
    api_json_text(b, *e->param ? e->param : NULL);
    strbuf_putc(b, '}');
    return sse_end(b, &w->base.out);
}

static int responses_fail(struct api_writer *base, const struct api_error *e)
{
    struct responses_writer *w = (struct responses_writer *)base;
    if (!streams(w)) {
        strbuf_clear(&base->out);
        api_error_body(API_RESPONSES, e, base->request_id, &base->out);
        return base->out.failed ? SKUA_ENOMEM : 0;
    }
    if (!w->begun)
        return bare_error(w, e);
    int rc = w->broken ? 0 : close_item(w, false);
    w->open = ITEM_NONE;
    return rc ? rc : response_event(w, "failed", "failed", NULL, e);
}

static void responses_free(struct api_writer *base)
{
    struct responses_writer *w = (struct responses_writer *)base;
    strbuf_free(&w->event);
    strbuf_free(&w->items);
    strbuf_free(&w->text);
    strbuf_free(&w->logprobs);
    strbuf_free(&w->call);
    strbuf_free(&w->call_name);
    mem_free(w);
}

struct api_writer *responses_writer_new(void)
{
    static const struct api_writer_ops ops = {
        .begin = responses_begin,
        .progress = responses_progress,
        .event = responses_event,
        .choice_end = responses_choice_end,
        .keepalive = responses_keepalive,
        .end = responses_end,
        .fail = responses_fail,
        .free = responses_free,
    };
    struct responses_writer *w = mem_calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->base.ops = &ops;
    return &w->base;
}
