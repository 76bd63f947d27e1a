/* Questions that no engine is needed for: models, tokens, text, health. */
#include <string.h>

#include "api/info.h"
#include "base/mem.h"
#include "cmd/serve.h"

static const char *header_of(void *user, const char *name)
{
    return http_header(user, name);
}

/* The answer that was made, or the error. */
static void answer(struct serve_call *c, int rc, struct strbuf *out, const struct api_error *e)
{
    if (rc)
        serve_fail(c, e);
    else
        serve_reply(c, 200, NULL, out);
    strbuf_free(out);
}

void serve_models(struct serve_call *c)
{
    struct strbuf out = {0};
    struct api_error e = {0};
    const int rc = api_models(&c->s->env, http_header(c->http, "anthropic-version") != NULL, &out, &e);
    answer(c, rc, &out, &e);
}

void serve_model(struct serve_call *c)
{
    struct strbuf out = {0};
    struct api_error e = {0};
    const int rc = api_model(&c->s->env, c->tail, &out, &e);
    answer(c, rc, &out, &e);
}

void serve_tokenize(struct serve_call *c)
{
    struct strbuf out = {0};
    struct api_error e = {0};
    json_t *body = serve_body(c);
    if (!body)
        return;
    const int rc = api_tokenize(&c->s->env, c->s->replay, body, &out, &e);
    answer(c, rc, &out, &e);
    json_decref(body);
}

void serve_detokenize(struct serve_call *c)
{
    struct strbuf out = {0};
    struct api_error e = {0};
    json_t *body = serve_body(c);
    if (!body)
        return;
    const int rc = api_detokenize(&c->s->env, body, &out, &e);
    answer(c, rc, &out, &e);
    json_decref(body);
}

void serve_apply_template(struct serve_call *c)
{
    struct strbuf out = {0};
    struct api_error e = {0};
    json_t *body = serve_body(c);
    if (!body)
        return;
    const int rc = api_apply_template(&c->s->env, c->s->replay, body, &out, &e);
    answer(c, rc, &out, &e);
    json_decref(body);
}

void serve_embeddings(struct serve_call *c)
{
    struct strbuf out = {0};
    struct api_error e = {0};
    const int rc = api_embeddings_refuse(&e);
    answer(c, rc, &out, &e);
}

/* How many tokens the prompt of this body has; one that does not fit the context is counted too. */
static void count_prompt(struct serve_call *c, bool messages)
{
    const struct api_env *env = &c->s->env;
    const struct response_access kept = {c->s->responses, c->owner};
    struct strbuf out = {0};
    struct api_error e = {0};
    struct api_request r = {0};
    json_t *body = serve_body(c);
    if (!body)
        return;
    int rc = messages ? messages_parse(env, body, true, header_of, c->http, &r, &e)
                      : responses_parse(env, &kept, body, header_of, c->http, &r, &e);
    if (rc)
        json_decref(body);
    else
        rc = api_prompt_build(env, c->s->replay, &r, &e);
    if (rc && e.n_ctx && r.n_prompts)
        rc = 0;
    if (!rc)
        api_count_body(messages ? API_MESSAGES : API_RESPONSES, r.prompts[0].n, &out);
    answer(c, rc, &out, &e);
    if (r.body)
        api_request_free(&r);
}

void serve_input_tokens(struct serve_call *c) { count_prompt(c, false); }
void serve_count_tokens(struct serve_call *c) { count_prompt(c, true); }

/* ---- health ---- */

void serve_live(struct serve_call *c)
{
    struct strbuf out = {0};
    strbuf_puts(&out, "{\"status\":\"ok\"}");
    serve_reply(c, 200, NULL, &out);
    strbuf_free(&out);
}

/* status of a server that is not ready, with a usual error object. */
static void unwell(struct serve_call *c, const char *code, const char *status, const char *message)
{
    struct strbuf out = {0};
    struct api_error e;
    api_error_set(&e, 503, code, NULL, "%s", message);
    strbuf_puts(&out, "{\"error\":");
    api_error_object(API_OTHER, &e, &out);
    strbuf_printf(&out, ",\"status\":\"%s\"", status);
    if (!strcmp(status, "loading"))
        strbuf_printf(&out, ",\"progress\":%.3f", atomic_load(&c->s->loaded) / 1000.0);
    strbuf_putc(&out, '}');
    serve_reply(c, 503, NULL, &out);
    strbuf_free(&out);
}

void serve_health(struct serve_call *c)
{
    switch ((enum serve_state)atomic_load(&c->s->state)) {
    case SERVE_LOADING: unwell(c, "model_loading", "loading", "the model is being loaded"); return;
    case SERVE_FAILED: unwell(c, "backend_error", "failed", "the server has failed"); return;
    case SERVE_READY:
    case SERVE_DRAINING: serve_live(c); return;
    }
}

/* For balancers: is this a place to send new work to? */
void serve_ready(struct serve_call *c)
{
    if (atomic_load(&c->s->state) == SERVE_DRAINING)
        unwell(c, "shutting_down", "stopping", "the server is stopping");
    else
        serve_health(c);
}
