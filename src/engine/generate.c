/* The public generation loop: one answer's rounds, alone (generation.h), its tokens made text; see skua.h. */
#include <string.h>

#include "base/clock.h"
#include "base/strbuf.h"
#include "engine/generation.h"
#include "sample/stop.h"
#include "tok/detok.h"

const char *skua_finish_name(enum skua_finish r)
{
    static const char *const names[] = {"none", "end token", "stop string", "token limit", "canceled"};
    return r <= SKUA_FINISH_CANCELED ? names[r] : "unknown";
}

struct run {
    skua_session *session;
    const skua_generate_params *params;
    skua_event_callback *callback;
    void *user;
    enum skua_finish finish; /* what the token that is being delivered came to */
    struct sampler_workspace workspace;
    struct generation generation;
    struct stop_matcher stop;
    struct detok detok;
    struct strbuf text, out; /* complete UTF-8; what may be shown */
};

/* Give r->out to the callback. */
static void deliver(struct run *r, int32_t id)
{
    skua_event event = {.id = id, .text = strbuf_str(&r->out), .n = r->out.len};
    if (!r->callback(r->user, &event) && r->finish == SKUA_FINISH_NONE)
        r->finish = SKUA_FINISH_CANCELED;
    strbuf_clear(&r->out);
}

/* Memory for the text of n more bytes and for what may be held back then, so that publishing them, and the rest after an error later
   on, cannot fail: a token counts only if it can be delivered. */
static int reserve_text(struct run *r, size_t n, skua_error *err)
{
    size_t text = 3 * (n + sizeof r->detok.pending); /* a malformed byte becomes three */
    if (strbuf_reserve(&r->text, text) && strbuf_reserve(&r->out, stop_held(&r->stop) + 2 * text))
        return 0;
    strbuf_clear(&r->text); /* usable again for the rest */
    strbuf_clear(&r->out);
    return error_nomem(err, "output text", text);
}

/* A token's bytes through the detokenizer and the stop strings to the callback. */
static int publish(struct run *r, int32_t id, const char *bytes, size_t n, skua_error *err)
{
    strbuf_clear(&r->text);
    detok_push(&r->detok, bytes, n, &r->text);
    int rc = stop_push(&r->stop, strbuf_str(&r->text), r->text.len, &r->out, err);
    if (rc < 0)
        return rc;
    if (rc == 1)
        r->finish = SKUA_FINISH_STOP_STRING;
    deliver(r, id);
    return 0;
}

/* Whatever is still held back. Nothing is held after a stop string. */
static int publish_rest(struct run *r, skua_error *err)
{
    strbuf_clear(&r->text);
    detok_finish(&r->detok, &r->text);
    int rc = 0;
    if (r->stop.found < 0)
        rc = stop_push(&r->stop, strbuf_str(&r->text), r->text.len, &r->out, err);
    if (rc >= 0)
        rc = stop_finish(&r->stop, &r->out, err);
    if (rc < 0)
        return rc;
    deliver(r, -1);
    return 0;
}

/* ---- the answer ---- */

static int on_token(void *user, const struct batch_token *t, int32_t *replace, struct batch_next *next, skua_error *err)
{
    struct run *r = user;
    (void)replace;
    int rc = reserve_text(r, t->n, err);
    if (rc)
        return rc;
    r->finish = t->ends ? SKUA_FINISH_END_TOKEN : SKUA_FINISH_NONE;
    if (!t->ends || r->params->special)
        rc = publish(r, t->id, t->bytes, t->n, err);
    next->finish = r->finish;
    return rc;
}

static void on_round(void *user, const skua_draft_round *round)
{
    struct run *r = user;
    if (r->params->on_round)
        r->params->on_round(r->user, round);
}

static int setup(struct run *r, const int32_t *prompt, int32_t n_prompt, skua_error *err)
{
    const skua_generate_params *p = r->params;
    const struct generation_params g = {.sampling = p->sampling, .max_tokens = p->max_tokens, .n_logprobs = -1, .special = p->special,
                                        .no_draft = p->no_draft, .rejection = p->rejection, .token = on_token, .round = on_round,
                                        .user = r};
    size_t lengths[STOP_MAX_STRINGS];
    for (size_t i = 0; i < p->n_stop && i < STOP_MAX_STRINGS; i++)
        lengths[i] = strlen(p->stop[i]);
    int rc = sampler_workspace_init(&r->workspace, r->session->engine->config.n_vocab, err);
    if (!rc)
        rc = stop_init(&r->stop, p->stop, lengths, p->n_stop, err);
    if (!rc)
        rc = generation_init(&r->generation, r->session, &g, &r->workspace, prompt, n_prompt, NULL, err);
    return rc;
}

static void teardown(struct run *r)
{
    generation_free(&r->generation);
    strbuf_free(&r->text);
    strbuf_free(&r->out);
    stop_free(&r->stop);
    sampler_workspace_free(&r->workspace);
}

static int round_of(struct run *r, skua_error *err)
{
    struct generation *g = &r->generation;
    skua_feed feed;
    char note[512];
    generation_choose(g, DRAFT_MAX, 0);
    generation_draft(g);
    int rc = generation_feed(g, &feed, err);
    const double begin = clock_seconds();
    if (!rc)
        rc = skua_eval(r->session->engine, &feed, 1, NULL, NULL, err);
    if (rc)
        return rc;
    rc = generation_results(g, clock_seconds() - begin, false, err);
    while (r->params->on_note && session_draft_note(r->session, note, sizeof note))
        r->params->on_note(r->user, note);
    return rc;
}

int skua_generate(skua_session *s, const int32_t *prompt, int32_t n_prompt, const skua_generate_params *p, skua_event_callback *callback,
                  skua_progress *progress, void *user, skua_result *result, skua_error *err)
{
    struct run r = {.session = s, .params = p, .callback = callback, .user = user};
    struct generation *g = &r.generation;
    double start = clock_seconds();
    int rc = setup(&r, prompt, n_prompt, err);
    const bool argmax = !rc && !generation_needs_logits(&g->params, NULL);
    skua_feed feed = {.session = s, .ids = prompt, .n_ids = n_prompt, .want = argmax ? SKUA_LOGITS_ARGMAX : SKUA_LOGITS_LAST,
                      .logits = g->logits};
    if (!rc)
        rc = skua_eval(s->engine, &feed, 1, progress, user, err);
    double begin = clock_seconds();
    if (!rc && p->max_tokens == 0)
        g->finish = SKUA_FINISH_MAX_TOKENS;
    else if (!rc)
        rc = generation_first(g, &feed, err);
    while (!rc && g->finish == SKUA_FINISH_NONE)
        rc = round_of(&r, err);
    *result = (skua_result){.n_prompt = n_prompt, .n_generated = g->n_generated, .prompt_seconds = begin - start};
    r.finish = g->finish;
    if (g->n_generated) { /* also after an error: what was generated is not lost */
        skua_error *rest_err = rc ? NULL : err;
        int rest = publish_rest(&r, rest_err);
        rc = rc ? rc : rest;
    }
    result->finish = r.finish;
    result->generate_seconds = clock_seconds() - begin;
    teardown(&r);
    return rc;
}
