/* The rounds of an answer; see generation.h. */
#include "engine/generation.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "spec/reject.h"
#include "tok/tokenizer.h"

/* What a token is chosen from. */
struct row {
    const float *logits; /* NULL: only the best token is known */
    int32_t best_id;
    float best_logit;
};

static bool greedy_only(const skua_sampling *p)
{
    return p->temperature == 0 && p->n_bias == 0 && (p->repetition_penalty == 1 || p->penalty_last_n == 0) && p->presence_penalty == 0
           && p->frequency_penalty == 0;
}

static bool ends_masked(const struct generation_params *p, int32_t n_generated) { return p->ignore_end || n_generated < p->min_tokens; }

bool generation_needs_logits(const struct generation_params *p, const struct batch_next *first)
{
    return !greedy_only(&p->sampling) || p->n_logprobs >= 0 || (first && first->mask) || ends_masked(p, 0);
}

/* Does the next choice need logits? */
static bool needs_logits(const struct generation *g)
{
    if (g->params.n_logprobs >= 0)
        return true;
    return !g->next.n_forced && (!g->greedy || g->next.mask || ends_masked(&g->params, g->n_generated));
}

static size_t mask_words(const struct generation *g) { return ((size_t)g->session->engine->config.n_vocab + 63) / 64; }

/* Memory for n rows of logits; those that are there are lost. */
static int reserve_rows(struct generation *g, int32_t n, skua_error *err)
{
    if (n <= g->n_rows)
        return 0;
    const size_t size = (size_t)n * (size_t)g->session->engine->config.n_vocab * sizeof *g->logits;
    float *p = mem_alloc(size);
    if (!p)
        return error_nomem(err, "rows of logits", size);
    mem_free(g->logits);
    g->logits = p;
    g->n_rows = n;
    return 0;
}

static int fill(struct generation *g, struct sampler_workspace *ws, const int32_t *prompt, int32_t n_prompt, skua_error *err)
{
    const skua_session *s = g->session;
    int rc = reserve_rows(g, 1, err);
    if (!rc && ends_masked(&g->params, 0)) {
        g->mask = mem_alloc(mask_words(g) * sizeof *g->mask);
        rc = g->mask ? 0 : error_nomem(err, "mask of tokens", mask_words(g) * sizeof *g->mask);
    }
    if (!rc)
        rc = sampler_init(&g->sampler, &g->params.sampling, s->engine->samplable, ws, err);
    if (!rc)
        rc = sampler_history_init(&g->history, s->engine->config.n_vocab, err);
    for (int32_t i = 0; i < s->seq.n_pos && !rc; i++)
        rc = sampler_history_push_prompt(&g->history, s->tokens[i], err);
    for (int32_t i = 0; i < n_prompt && !rc; i++)
        rc = sampler_history_push_prompt(&g->history, prompt[i], err);
    return rc;
}

int generation_init(struct generation *g, skua_session *s, const struct generation_params *p, struct sampler_workspace *ws,
                    const int32_t *prompt, int32_t n_prompt, const struct batch_next *first, skua_error *err)
{
    *g = (struct generation){.session = s, .params = *p, .greedy = greedy_only(&p->sampling)};
    if (first)
        g->next = *first;
    int rc = fill(g, ws, prompt, n_prompt, err);
    if (rc)
        generation_free(g);
    else
        g->params.sampling.bias = g->sampler.bias;
    return rc;
}

void generation_free(struct generation *g)
{
    sampler_history_free(&g->history);
    sampler_free(&g->sampler);
    mem_free(g->mask);
    mem_free(g->logits);
    *g = (struct generation){0};
}

/* ---- one token ---- */

/* What may be chosen now: the owner's mask, without end tokens where these are not wanted and something else is left. */
static const uint64_t *allowed(struct generation *g)
{
    const uint64_t *mask = g->next.mask;
    const skua_engine *e = g->session->engine;
    if (!ends_masked(&g->params, g->n_generated))
        return mask;
    uint64_t any = 0;
    for (size_t w = 0; w < mask_words(g); w++) {
        uint64_t bits = mask ? mask[w] & e->samplable[w] : e->samplable[w];
        for (uint64_t left = bits; left; left &= left - 1) {
            const uint32_t bit = (uint32_t)__builtin_ctzll(left);
            if (tokenizer_is_eog(e->tokenizer, (uint32_t)w * 64 + bit))
                bits &= ~((uint64_t)1 << bit);
        }
        g->mask[w] = bits;
        any |= bits;
    }
    return any ? g->mask : mask;
}

/* A draft that was drawn by its drafter, tested against the distribution of row i. */
static int test_draft(struct generation *g, const float *row, const struct draft *draft, int32_t i, int64_t pos, int32_t *id,
                      skua_error *err)
{
    struct sampler_distribution p;
    int rc = sampler_distribution(&g->sampler, &g->history, row, g->session->engine->config.n_vocab, (uint64_t)pos, &p, err);
    if (!rc)
        reject_test(&p, draft, i, g->params.sampling.seed, (uint64_t)pos, id);
    return rc;
}

/* The token behind row i of a round, which will stand at position pos. draft: the drafts if they are to be tested by rejection. */
static int choose(struct generation *g, const struct row *row, int32_t i, int64_t pos, const struct draft *draft, int32_t *id,
                  skua_error *err)
{
    const int n_vocab = g->session->engine->config.n_vocab;
    const float *logits = row->logits;
    if (g->next.n_forced) {
        *id = *g->next.forced;
        if (*id < 0 || *id >= n_vocab)
            return error_set(err, SKUA_EARG, "token %d is forced; expected one of the vocabulary of %d tokens", *id, n_vocab);
        return 0;
    }
    if (!logits) {
        *id = row->best_id;
        if (row->best_id >= 0 && row->best_logit <= FLT_MAX)
            return 0;
        for (int k = 0; k < n_vocab; k++) /* the sampler says what is wrong */
            g->logits[k] = k == row->best_id ? row->best_logit : -INFINITY;
        logits = g->logits;
    }
    g->sampler.mask = allowed(g);
    if (draft)
        return test_draft(g, logits, draft, i, pos, id, err);
    return sampler_sample(&g->sampler, &g->history, logits, n_vocab, (uint64_t)pos, id, err);
}

static int find_logprobs(struct generation *g, const float *logits, double *norm, struct batch_logprob *out, skua_error *err)
{
    const int n_vocab = g->session->engine->config.n_vocab, n = g->params.n_logprobs;
    int rc = logprob_norm(logits, n_vocab, norm, err);
    if (rc)
        return rc;
    *out = (struct batch_logprob){.top = g->top, .n_top = n < n_vocab ? n : n_vocab};
    logprob_top(logits, n_vocab, *norm, g->top, out->n_top);
    return 0;
}

/* Tell the owner of the token; the one that it wants instead is told in its place. */
static int tell_token(struct generation *g, const struct row *row, int32_t *id, struct batch_next *next, skua_error *err)
{
    const skua_engine *e = g->session->engine;
    struct batch_logprob logprob;
    double norm = 0;
    int rc = g->params.n_logprobs >= 0 ? find_logprobs(g, row->logits, &norm, &logprob, err) : 0;
    for (int call = 0; !rc; call++) {
        struct batch_token t = {.choice = g->params.choice, .id = *id, .ends = tokenizer_is_eog(e->tokenizer, (uint32_t)*id)};
        int32_t replace = -1;
        t.bytes = tokenizer_piece(e->tokenizer, (uint32_t)*id, g->params.special, &t.n);
        if (g->params.n_logprobs >= 0) {
            logprob.logprob = logprob_of(row->logits[*id], norm);
            t.logprob = &logprob;
        }
        *next = (struct batch_next){0};
        rc = g->params.token(g->params.user, &t, &replace, next, err);
        if (rc || replace == -1)
            break;
        if (call || replace < 0 || replace >= e->config.n_vocab)
            rc = error_set(err, SKUA_EARG, "token %d in place of %d; expected one of the vocabulary, once", replace, *id);
        *id = replace;
    }
    return rc;
}

/* Choose a token and tell the owner; it is the new anchor unless it ends the answer. */
static int next_token(struct generation *g, const struct row *row, int32_t i, int64_t pos, const struct draft *draft, int32_t *id,
                      skua_error *err)
{
    struct batch_next next;
    int rc = choose(g, row, i, pos, draft, id, err);
    if (!rc)
        rc = tell_token(g, row, id, &next, err);
    if (rc)
        return rc;
    g->n_generated++;
    if (!next.n_forced && g->next.n_forced > 1) {
        next.forced = g->next.forced + 1;
        next.n_forced = g->next.n_forced - 1;
    }
    g->next = next;
    g->finish = next.finish;
    if (g->finish == SKUA_FINISH_NONE && tokenizer_is_eog(g->session->engine->tokenizer, (uint32_t)*id))
        g->finish = SKUA_FINISH_END_TOKEN;
    if (g->finish == SKUA_FINISH_NONE && g->params.max_tokens >= 0 && g->n_generated >= g->params.max_tokens)
        g->finish = SKUA_FINISH_MAX_TOKENS;
    if (g->finish != SKUA_FINISH_NONE)
        return 0;
    g->anchor = *id;
    return sampler_history_push(&g->history, *id, err);
}

int generation_first(struct generation *g, const skua_feed *prompt, skua_error *err)
{
    const bool argmax = prompt->want == SKUA_LOGITS_ARGMAX;
    const struct row row = {.logits = argmax ? NULL : prompt->logits, .best_id = prompt->best_id, .best_logit = prompt->best_logit};
    int32_t first;
    return next_token(g, &row, 0, g->session->seq.n_pos, NULL, &first, err);
}

/* ---- rounds ---- */

void generation_choose(struct generation *g, int32_t room, int32_t n_together)
{
    skua_session *s = g->session;
    const skua_sampling *sampling = &g->params.sampling;
    const bool rejection = g->params.rejection && sampling->temperature > 0;
    g->forced = g->next.n_forced > 0;
    g->terms = (struct draft_terms){.remaining = g->params.max_tokens >= 0 ? g->params.max_tokens - g->n_generated : INT32_MAX,
                                    .off = g->params.no_draft || g->forced || room < 1, .max = g->params.draft_max,
                                    .n_together = n_together, .temperature = rejection ? sampling->temperature : 0,
                                    .seed = sampling->seed};
    if (room < DRAFT_MAX && (!g->terms.max || room < g->terms.max))
        g->terms.max = room;
    draft_round_choose(s, g->anchor, &g->terms, &g->round);
    const int32_t left = s->n_ctx - s->seq.n_pos - 1, most[] = {room, DRAFT_MAX, left, g->terms.remaining - 1};
    if (!g->forced)
        return;
    int32_t n = g->next.n_forced;
    for (size_t i = 0; i < sizeof most / sizeof *most; i++)
        n = n < most[i] ? n : most[i];
    g->round.n = n > 0 ? n : 0;
    memcpy(g->round.ids + 1, g->next.forced, (size_t)g->round.n * sizeof *g->round.ids);
    for (int32_t i = 1; i <= g->round.n; i++) /* an id that is none is refused when its turn comes */
        if (g->round.ids[i] < 0 || g->round.ids[i] >= s->engine->config.n_vocab)
            g->round.n = i - 1;
}

void generation_draft(struct generation *g)
{
    if (!g->forced)
        draft_round_draft(g->session, g->anchor, &g->terms, &g->round);
}

int generation_feed(struct generation *g, skua_feed *feed, skua_error *err)
{
    /* The first row behind forced tokens may be all that logits are asked for. */
    g->argmax = g->greedy && g->params.n_logprobs < 0 && (g->forced || !needs_logits(g));
    *feed = (skua_feed){.session = g->session, .ids = g->round.ids, .n_ids = 1 + g->round.n,
                        .want = g->argmax ? SKUA_LOGITS_ARGMAX_ALL : SKUA_LOGITS_ALL, .hold = g->round.n > 0,
                        .best_ids = g->best_ids, .best_logits = g->best_logits};
    int rc = g->argmax ? 0 : reserve_rows(g, 1 + g->round.n, err);
    feed->logits = g->logits;
    return rc;
}

/* Tell what the round came to. */
static void tell_round(const struct generation *g, int32_t accepted)
{
    const skua_session *s = g->session;
    const struct draft_round *r = &g->round;
    if (!g->forced && r->n > 0 && g->params.round)
        g->params.round(g->params.user, &(skua_draft_round){.drafter = s->engine->draft->sources[r->choice.source].kind_name,
                                                            .drafts = s->draft->offered[r->choice.source].ids, .n_drafts = r->n_drafted,
                                                            .n_verified = r->n, .n_accepted = accepted});
}

int generation_results(struct generation *g, double seconds, bool shared, skua_error *err)
{
    skua_session *s = g->session;
    struct draft_round *r = &g->round;
    const size_t n_vocab = (size_t)s->engine->config.n_vocab;
    const int64_t pos = (int64_t)r->ctx + 1; /* of the token behind the anchor, whether the rows are held or not */
    int32_t chosen[DRAFT_MAX + 1], n = 0;
    int rc = 0;
    r->t_verify = seconds;
    r->shared = shared || g->forced;
    do {
        const struct row row = {.logits = g->argmax ? NULL : g->logits + (size_t)n * n_vocab, .best_id = g->best_ids[n],
                                .best_logit = g->best_logits[n]};
        const struct draft *tested = g->terms.temperature > 0 && !g->forced && n < r->n ? &s->draft->offered[r->choice.source] : NULL;
        rc = next_token(g, &row, n, pos + n, tested, &chosen[n], err);
        n += !rc;
    } while (!rc && g->finish == SKUA_FINISH_NONE && n <= r->n && chosen[n - 1] == r->ids[n] && !(g->argmax && needs_logits(g)));
    const int32_t rows = n + (rc != 0); /* also after an error: the rows up to this one are evaluated, as without drafts */
    if (r->n > 0) {
        const double commit = clock_seconds();
        int failed = skua_commit(s, rows, rc ? NULL : err);
        rc = rc ? rc : failed;
        r->t_commit = clock_seconds() - commit;
    }
    draft_round_end(s, r, chosen, n);
    tell_round(g, rows - 1);
    return rc;
}
