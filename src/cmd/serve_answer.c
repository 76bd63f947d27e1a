/* Requests that generate: read, rendered, compiled and given to the batcher, on the worker. */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "cmd/serve.h"

static const char *header_of(void *user, const char *name)
{
    return http_header(user, name);
}

static int read_request(struct serve_call *c, struct api_error *e)
{
    const struct api_env *env = &c->s->env;
    const struct response_access kept = {c->s->responses, c->owner};
    struct api_request *r = &c->request;
    json_t *body = serve_body(c);
    if (!body)
        return 1; /* answered */
    int rc;
    switch (c->route->family) {
    case API_CHAT: rc = chat_parse(env, body, header_of, c->http, r, e); break;
    case API_COMPLETIONS: rc = completions_parse(env, body, header_of, c->http, r, e); break;
    case API_RESPONSES: rc = responses_parse(env, &kept, body, header_of, c->http, r, e); break;
    default: rc = messages_parse(env, body, false, header_of, c->http, r, e);
    }
    if (rc) {
        json_decref(body);
        *r = (struct api_request){0};
        return -1;
    }
    if (r->family != API_COMPLETIONS && api_prompt_build(env, c->s->replay, r, e))
        return -1;
    return answer_plan_new(c->s->answers, r, &c->plan, e);
}

static int32_t n_choices(const struct api_request *r) { return r->best_of > r->n ? r->best_of : r->n > 0 ? r->n : 1; }

static int on_event(void *user, const struct api_event *event, skua_error *err)
{
    const struct serve_sink *sink = user;
    struct serve_call *c = sink->part->call;
    const int32_t choice = sink->part->prompt * n_choices(&c->request) + sink->choice;
    const int rc = c->writer->ops->event(c->writer, choice, event);
    return rc ? error_set(err, rc, "out of memory for the answer") : 0;
}

static int make_answers(struct serve_call *c, skua_error *err)
{
    const int32_t n = n_choices(&c->request);
    int rc = api_writer_new(&c->s->env, &c->request, http_request_id(c->http), &c->writer, err);
    if (rc)
        return rc;
    c->writer->now = &c->usage;
    c->parts = mem_calloc(c->request.n_prompts, sizeof *c->parts);
    if (!c->parts)
        return error_nomem(err, "answers", c->request.n_prompts * sizeof *c->parts);
    c->n_parts = c->request.n_prompts;
    for (size_t i = 0; i < c->n_parts; i++) {
        struct serve_part *p = &c->parts[i];
        p->call = c;
        p->prompt = (int32_t)i;
        c->usage.n_prompt += c->request.prompts[i].n;
        for (int32_t k = 0; !rc && k < n; k++) {
            p->sinks[k] = (struct serve_sink){p, k};
            rc = answer_new(c->plan, on_event, &p->sinks[k], &p->answers[k], err);
        }
    }
    return rc;
}

static int submit_part(struct serve_call *c, struct serve_part *part, skua_error *err)
{
    const struct api_request *r = &c->request;
    const struct api_prompt *prompt = &r->prompts[part->prompt];
    const struct batch_params p = {
        .prompt = prompt->ids, .n_prompt = prompt->n, .marks = prompt->marks, .n_marks = prompt->n_marks, .n_choices = n_choices(r),
        .sampling = r->sampling, .max_tokens = r->max_tokens, .min_tokens = r->min_tokens, .ignore_end = r->ignore_end,
        .n_logprobs = r->n_logprobs, .score_prompt = r->echo && r->n_logprobs >= 0 && !r->hide_logprobs, .no_cache = r->no_cache,
        .no_draft = r->no_draft, .draft_max = r->draft_max, .priority = r->priority, .owner = c->owner, .callbacks = &serve_callbacks,
        .user = part};
    uint64_t id = 0;
    atomic_fetch_add(&c->refs, 1);
    const int rc = batcher_submit(c->s->batcher, &p, &id, err);
    if (rc) {
        atomic_fetch_sub(&c->refs, 1); /* the worker has another one */
        return rc;
    }
    pthread_mutex_lock(&c->ids_lock);
    c->ids[c->n_ids++] = id;
    const bool canceled = atomic_load(&c->why) != SERVE_GOES_ON;
    pthread_mutex_unlock(&c->ids_lock);
    if (canceled)
        batcher_cancel(c->s->batcher, id);
    return 0;
}

static void submit_error(const skua_error *err, struct api_error *e)
{
    api_error_from(err, e);
    if (err->code == SKUA_ELIMIT) {
        api_error_set(e, 429, "queue_full", NULL, "%s; try again in 1s", err->message);
        e->retry_after_s = 1;
    }
}

static int begin_stream(struct serve_call *c)
{
    struct http_header extra[SERVE_HEADERS + 2];
    struct serve_header_values values;
    size_t n = serve_headers(c, NULL, extra, &values);
    extra[n++] = (struct http_header){"Cache-Control", "no-cache"};
    extra[n++] = (struct http_header){"X-Accel-Buffering", "no"};
    c->streaming = true;
    c->status = 200;
    http_begin(c->http, 200, "text/event-stream; charset=utf-8", extra, n);
    return 0;
}

/* With the call's lock, which the callbacks wait for: all prompts are in the queue, or the call has failed. */
static void submit(struct serve_call *c)
{
    skua_error err = {0};
    int rc = 0;
    c->submitted = true;
    for (size_t i = 0; !rc && i < c->n_parts; i++) {
        rc = submit_part(c, &c->parts[i], &err);
        if (rc)
            c->n_done += c->n_parts - i; /* these will not come */
    }
    if (rc) {
        submit_error(&err, &c->error);
        c->failed = true;
        serve_end_failed(c);
        serve_call_cancel(c, SERVE_CANCELED);
        return;
    }
    if (c->request.stream)
        begin_stream(c);
    c->last_sent = clock_seconds();
    if (c->writer->ops->begin(c->writer, &c->usage))
        serve_call_cancel(c, SERVE_NO_MEMORY);
    serve_flush(c);
}

static double deadline_of(const struct serve_call *c)
{
    const double own = c->request.timeout_s, all = c->s->opt.request_timeout_s;
    const double s = own > 0 && (all <= 0 || own < all) ? own : all;
    return s > 0 ? http_received(c->http) + s : 0;
}

static void generate(struct serve_call *c)
{
    struct api_error e = {0};
    skua_error err = {0};
    int rc = read_request(c, &e);
    if (rc > 0)
        return;
    if (!rc) {
        c->deadline = deadline_of(c);
        rc = make_answers(c, &err);
        if (rc)
            api_error_from(&err, &e);
    }
    if (rc) {
        serve_fail(c, &e);
        c->answered = true;
        return;
    }
    pthread_mutex_lock(&c->lock);
    submit(c);
    pthread_mutex_unlock(&c->lock);
}

void serve_chat(struct serve_call *c) { generate(c); }
void serve_completions(struct serve_call *c) { generate(c); }
void serve_responses(struct serve_call *c) { generate(c); }
void serve_messages(struct serve_call *c) { generate(c); }
