/* The generation loop; see skua.h. A round evaluates the token that was chosen last (the anchor), with drafts behind it if there are any,
 * and chooses from each row of logits at the position that the token will take: first behind the anchor, and so on as long as what is
 * chosen is what was drafted. Every chosen token is published at once. The session keeps the rows up to the last one that was chosen from,
 * so it is what it would be without drafts: all tokens but the last one chosen are evaluated. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "engine/draft.h"
#include "engine/engine.h"
#include "sample/history.h"
#include "sample/sampler.h"
#include "sample/stop.h"
#include "spec/reject.h"
#include "tok/detok.h"
#include "tok/tokenizer.h"

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
    skua_result *result;

    int32_t n_rows;  /* rows of logits, most of a round */
    float *logits;   /* [n_rows][n_vocab]; only the first row with argmax */
    bool argmax;     /* only the best token of each row is asked for, not the logits */
    int32_t best_ids[DRAFT_MAX + 1];
    float best_logits[DRAFT_MAX + 1];
    int32_t anchor;  /* chosen last */
    struct sampler_workspace workspace;
    struct sampler sampler;
    struct sampler_history history;
    struct stop_matcher stop;
    struct detok detok;
    struct strbuf text, out; /* complete UTF-8; what may be shown */
};

/* Is the answer always the token with the largest logit? */
static bool greedy_only(const skua_sampling *p)
{
    return p->temperature == 0 && p->n_bias == 0 && (p->repetition_penalty == 1 || p->penalty_last_n == 0) && p->presence_penalty == 0
           && p->frequency_penalty == 0;
}

static int setup(struct run *r, const int32_t *prompt, int32_t n_prompt, skua_error *err)
{
    const skua_engine *e = r->session->engine;
    int n_vocab = e->config.n_vocab;
    size_t lengths[STOP_MAX_STRINGS];
    r->argmax = greedy_only(&r->params->sampling);
    r->n_rows = !r->argmax && r->session->draft && !r->params->no_draft ? DRAFT_MAX + 1 : 1;
    r->logits = mem_alloc((size_t)r->n_rows * (size_t)n_vocab * sizeof *r->logits);
    if (!r->logits)
        return error_nomem(err, "rows of logits", (size_t)r->n_rows * (size_t)n_vocab * sizeof *r->logits);
    for (size_t i = 0; i < r->params->n_stop && i < STOP_MAX_STRINGS; i++)
        lengths[i] = strlen(r->params->stop[i]);
    int rc = sampler_workspace_init(&r->workspace, n_vocab, err);
    if (!rc)
        rc = sampler_init(&r->sampler, &r->params->sampling, e->samplable, &r->workspace, err);
    if (!rc)
        rc = stop_init(&r->stop, r->params->stop, lengths, r->params->n_stop, err);
    if (!rc)
        rc = sampler_history_init(&r->history, n_vocab, err);
    for (int32_t i = 0; i < r->session->seq.n_pos && !rc; i++)
        rc = sampler_history_push_prompt(&r->history, r->session->tokens[i], err);
    for (int32_t i = 0; i < n_prompt && !rc; i++)
        rc = sampler_history_push_prompt(&r->history, prompt[i], err);
    return rc;
}

static void teardown(struct run *r)
{
    strbuf_free(&r->text);
    strbuf_free(&r->out);
    stop_free(&r->stop);
    sampler_history_free(&r->history);
    sampler_free(&r->sampler);
    sampler_workspace_free(&r->workspace);
    mem_free(r->logits);
}

/* Give r->out to the callback. */
static void deliver(struct run *r, int32_t id)
{
    skua_event event = {.id = id, .text = strbuf_str(&r->out), .n = r->out.len};
    if (!r->callback(r->user, &event) && r->result->finish == SKUA_FINISH_NONE)
        r->result->finish = SKUA_FINISH_CANCELED;
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
        r->result->finish = SKUA_FINISH_STOP_STRING;
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

/* ---- rounds ---- */

/* Evaluate the prompt, and what the first token is chosen from. */
static int eval_prompt(struct run *r, const int32_t *ids, int32_t n, skua_progress *progress, skua_error *err)
{
    skua_feed feed = {.session = r->session, .ids = ids, .n_ids = n, .want = r->argmax ? SKUA_LOGITS_ARGMAX : SKUA_LOGITS_LAST,
                      .logits = r->logits};
    int rc = skua_eval(r->session->engine, &feed, 1, progress, r->user, err);
    r->best_ids[0] = feed.best_id;
    r->best_logits[0] = feed.best_logit;
    return rc;
}

/* Evaluate the anchor and n drafts, held if there are drafts. */
static int eval_round(struct run *r, const int32_t *ids, int32_t n, skua_error *err)
{
    skua_feed feed = {.session = r->session, .ids = ids, .n_ids = 1 + n, .want = r->argmax ? SKUA_LOGITS_ARGMAX_ALL : SKUA_LOGITS_ALL,
                      .hold = n > 0, .logits = r->logits, .best_ids = r->best_ids, .best_logits = r->best_logits};
    return skua_eval(r->session->engine, &feed, 1, NULL, r->user, err);
}

/* A draft that was drawn by its drafter, tested against the distribution of row i. */
static int test_draft(struct run *r, const float *row, const struct draft *draft, int32_t i, int64_t pos, int32_t *id, skua_error *err)
{
    struct sampler_distribution p;
    int rc = sampler_distribution(&r->sampler, &r->history, row, r->session->engine->config.n_vocab, (uint64_t)pos, &p, err);
    if (!rc)
        reject_test(&p, draft, i, r->params->sampling.seed, (uint64_t)pos, id);
    return rc;
}

/* The token behind row i, which will stand at position pos. draft: the round's drafts if they are to be tested by rejection, else NULL. */
static int choose(struct run *r, int32_t i, int64_t pos, const struct draft *draft, int32_t *id, skua_error *err)
{
    const int n_vocab = r->session->engine->config.n_vocab;
    if (r->argmax) {
        *id = r->best_ids[i];
        if (r->best_ids[i] >= 0 && r->best_logits[i] <= FLT_MAX)
            return 0;
        for (int k = 0; k < n_vocab; k++) /* the sampler says what is wrong */
            r->logits[k] = k == r->best_ids[i] ? r->best_logits[i] : -INFINITY;
    }
    const float *row = r->argmax ? r->logits : r->logits + (size_t)i * (size_t)n_vocab;
    if (draft)
        return test_draft(r, row, draft, i, pos, id, err);
    return sampler_sample(&r->sampler, &r->history, row, n_vocab, (uint64_t)pos, id, err);
}

/* Choose the token behind row i and publish it; it is the new anchor unless it ends the answer. */
static int next_token(struct run *r, int32_t i, int64_t pos, const struct draft *draft, int32_t *id, skua_error *err)
{
    skua_engine *e = r->session->engine;
    int rc = choose(r, i, pos, draft, id, err);
    if (rc)
        return rc;
    size_t n;
    const char *bytes = tokenizer_piece(e->tokenizer, (uint32_t)*id, r->params->special, &n);
    rc = reserve_text(r, n, err);
    if (rc)
        return rc;
    r->result->n_generated++;
    if (tokenizer_is_eog(e->tokenizer, (uint32_t)*id)) {
        r->result->finish = SKUA_FINISH_END_TOKEN;
        if (!r->params->special)
            return 0;
    }
    rc = publish(r, *id, bytes, n, err);
    if (rc || r->result->finish != SKUA_FINISH_NONE)
        return rc;
    if (r->params->max_tokens >= 0 && r->result->n_generated >= r->params->max_tokens) {
        r->result->finish = SKUA_FINISH_MAX_TOKENS;
        return 0;
    }
    r->anchor = *id;
    return sampler_history_push(&r->history, *id, err);
}

/* Tell what the round came to, and what is to be said of its drafter. */
static void tell(struct run *r, const struct draft_round *round, int32_t accepted)
{
    const skua_session *s = r->session;
    if (round->n > 0 && r->params->on_round)
        r->params->on_round(r->user, &(skua_draft_round){.drafter = s->engine->draft->sources[round->choice.source].kind_name,
                                                         .drafts = s->draft->offered[round->choice.source].ids,
                                                         .n_drafts = round->n_drafted, .n_verified = round->n, .n_accepted = accepted});
    char note[512];
    while (r->params->on_note && session_draft_note(r->session, note, sizeof note))
        r->params->on_note(r->user, note);
}

static int round_of(struct run *r, skua_error *err)
{
    skua_session *s = r->session;
    const skua_sampling *sampling = &r->params->sampling;
    const bool rejection = r->params->rejection && sampling->temperature > 0;
    const struct draft_terms terms = {
        .remaining = r->params->max_tokens >= 0 ? r->params->max_tokens - r->result->n_generated : INT32_MAX, .off = r->params->no_draft,
        .temperature = rejection ? sampling->temperature : 0, .seed = sampling->seed};
    const int64_t pos = s->seq.n_pos + 1;
    struct draft_round round;
    int32_t chosen[DRAFT_MAX + 1], n_chosen = 0;
    draft_round_begin(s, r->anchor, &terms, &round);
    const double begin = clock_seconds();
    int rc = eval_round(r, round.ids, round.n, err);
    round.t_verify = clock_seconds() - begin;
    if (rc)
        return rc;
    int32_t row = 0;
    for (;; row++) {
        const struct draft *tested = rejection && row < round.n ? &s->draft->offered[round.choice.source] : NULL;
        rc = next_token(r, row, pos + row, tested, &chosen[row], err);
        n_chosen += !rc;
        if (rc || r->result->finish != SKUA_FINISH_NONE || row == round.n || chosen[row] != round.ids[row + 1])
            break;
    }
    if (round.n > 0) { /* also after an error: the rows up to this one are evaluated, as without drafts */
        const double commit = clock_seconds();
        int failed = skua_commit(s, row + 1, rc ? NULL : err);
        rc = rc ? rc : failed;
        round.t_commit = clock_seconds() - commit;
    }
    draft_round_end(s, &round, chosen, n_chosen);
    tell(r, &round, row);
    return rc;
}

int skua_generate(skua_session *s, const int32_t *prompt, int32_t n_prompt, const skua_generate_params *p, skua_event_callback *callback,
                  skua_progress *progress, void *user, skua_result *result, skua_error *err)
{
    struct run r = {.session = s, .params = p, .callback = callback, .user = user, .result = result};
    *result = (skua_result){.n_prompt = n_prompt};
    double start = clock_seconds();
    int rc = setup(&r, prompt, n_prompt, err);
    if (!rc)
        rc = eval_prompt(&r, prompt, n_prompt, progress, err);
    double begin = clock_seconds();
    result->prompt_seconds = begin - start;
    if (!rc && p->max_tokens == 0)
        result->finish = SKUA_FINISH_MAX_TOKENS;
    int32_t first;
    if (!rc && result->finish == SKUA_FINISH_NONE)
        rc = next_token(&r, 0, s->seq.n_pos, NULL, &first, err);
    while (!rc && result->finish == SKUA_FINISH_NONE)
        rc = round_of(&r, err);
    if (result->n_generated) { /* also after an error: what was generated is not lost */
        skua_error *rest_err = rc ? NULL : err;
        int rest = publish_rest(&r, rest_err);
        rc = rc ? rc : rest;
    }
    result->generate_seconds = clock_seconds() - begin;
    teardown(&r);
    return rc;
}
