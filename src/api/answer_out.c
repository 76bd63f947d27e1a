/* What the parser finds becomes events: stop strings on visible text, the ways that thinking is shown, ids of calls. */
#include <string.h>

#include "api/answer_internal.h"
#include "api/json_text.h"

static int out(struct answer *a, struct api_event *e)
{
    bool all = a->plan->r->logprobs_all;
    size_t n = 0;
    int rc = a->n_held && (all || e->kind == API_EVENT_TEXT) ? held_take(a, all, a->n_released, &n) : 0;
    if (rc)
        return rc;
    e->logprobs = n ? a->sent : NULL;
    e->n_logprobs = n;
    rc = a->sink(a->user, e, a->err);
    held_sent(a, n);
    return rc;
}

static int put_piece(struct answer *a, enum api_event_kind kind, const char *text, size_t n)
{
    return n ? out(a, &(struct api_event){.kind = kind, .text = text, .n = n}) : 0;
}

static int release_text(struct answer *a)
{
    a->n_released += a->text.len;
    int rc = put_piece(a, API_EVENT_TEXT, strbuf_str(&a->text), a->text.len);
    strbuf_clear(&a->text);
    return rc;
}

static int on_text(struct answer *a, const struct parse_event *e)
{
    held_mark(a, e->source, e->n_source, a->n_pushed);
    a->n_pushed += e->n;
    a->visible_begun = true;
    int rc = 0;
    if (a->n_tokens < a->plan->r->min_tokens) { /* the token is one of the first: stop strings wait as end tokens do */
        strbuf_append(&a->text, e->text, e->n);
        if (strbuf_failed(&a->text))
            return error_nomem(a->err, "text of an answer", e->n);
    } else {
        rc = stop_push(&a->stop, e->text, e->n, &a->text, a->err);
    }
    if (rc < 0)
        return rc;
    bool stopped = rc == 1;
    rc = release_text(a);
    if (stopped) {
        a->stop_found = a->stop.found;
        a->closed = true;
    }
    return rc;
}

int answer_flush_text(struct answer *a)
{
    int rc = stop_finish(&a->stop, &a->text, a->err);
    if (rc)
        return rc;
    stop_reset(&a->stop);
    rc = release_text(a);
    if (!rc && a->finishing && a->plan->r->logprobs_all && a->n_held) /* they have no text to go with */
        rc = out(a, &(struct api_event){.kind = API_EVENT_TEXT, .text = ""});
    return rc;
}

static int on_thinking(struct answer *a, const struct parse_event *e)
{
    static const char begin[] = "<think>\n", end[] = "\n</think>\n\n";
    bool is_end = e->kind == API_EVENT_THINKING_END;
    if (a->plan->r->reasoning_format == API_REASONING_HIDDEN)
        return 0;
    if (a->plan->r->reasoning_format == API_REASONING_SEPARATE)
        return out(a, &(struct api_event){.kind = e->kind, .text = e->text, .n = e->n});
    int rc = 0;
    if (!is_end && !a->inline_open)
        rc = put_piece(a, API_EVENT_TEXT, begin, sizeof begin - 1);
    a->inline_open = true;
    if (!rc && !(is_end && a->finishing))
        rc = put_piece(a, API_EVENT_TEXT, is_end ? end : e->text, is_end ? sizeof end - 1 : e->n);
    return rc;
}

/* To be rendered again as it is when the client sends it back. For want of memory it is not remembered, that is all. */
static void remember(struct answer *a, const struct parse_event *e)
{
    struct strbuf input = {0};
    if (!a->plan->shared->replay || !e->complete || !e->raw)
        return;
    if (e->def->custom) {
        strbuf_puts(&input, "{\"input\":");
        api_json_string(&input, e->text, e->n);
        strbuf_puts(&input, "}");
    }
    if (!strbuf_failed(&input))
        replay_put(a->plan->shared->replay, a->call_id, e->def->name, e->def->custom ? strbuf_str(&input) : e->text, e->raw, e->n_raw,
                   NULL);
    strbuf_free(&input);
}

static int on_call(struct answer *a, const struct parse_event *e)
{
    int rc = 0;
    if (e->kind == API_EVENT_CALL_BEGIN) {
        rc = answer_flush_text(a);
        api_id(a->plan->r->family == API_MESSAGES ? "toolu_" : "call_", a->call_id);
    }
    if (!rc)
        rc = out(a, &(struct api_event){.kind = e->kind, .text = e->text, .n = e->n, .call = e->call, .id = a->call_id,
                                        .name = e->def->name, .custom = e->def->custom, .complete = e->complete});
    if (rc || e->kind != API_EVENT_CALL_END || !e->complete)
        return rc;
    atomic_fetch_add(&a->plan->shared->calls, 1);
    remember(a, e);
    a->n_complete++;
    a->closed |= a->plan->max_calls && a->n_complete >= a->plan->max_calls;
    return 0;
}

int answer_on_event(void *answer, const struct parse_event *e)
{
    struct answer *a = answer;
    if (a->closed)
        return 0;
    switch (e->kind) {
    case API_EVENT_TEXT: return on_text(a, e);
    case API_EVENT_THINKING:
    case API_EVENT_THINKING_END: return on_thinking(a, e);
    default: return on_call(a, e);
    }
}
