/* An answer as a machine that is driven from outside, alone (skua_generate) or together with others (batcher.h): it says what is to be
 * evaluated next, and is given the results.
 *
 * A round evaluates the token that was chosen last (the anchor), with drafts behind it if there are any, and chooses from each row of
 * logits at the position that the token will take: first behind the anchor, and so on as long as what is chosen is what was drafted. Every
 * chosen token goes to the owner at once. The session keeps the rows up to the last one that was chosen from, so it is what it would be
 * without drafts: all tokens but the last one chosen are evaluated. Tokens that the owner forces are evaluated like drafts.
 *
 * Rounds differ in what they ask of the head: the best tokens only, or the logits (masks, log-probabilities, anything but plain greedy
 * choices). Should a choice in the middle of a round need logits that were not asked for, the round ends before it. */
#ifndef SKUA_ENGINE_GENERATION_H
#define SKUA_ENGINE_GENERATION_H

#include "engine/draft.h"
#include "engine/token_hook.h"
#include "sample/history.h"
#include "sample/sampler.h"

struct generation_params {
    skua_sampling sampling;    /* bias copied */
    int32_t max_tokens;        /* -1: no limit but the context */
    int32_t min_tokens;        /* no end token before so many */
    bool ignore_end;           /* end tokens are not chosen. One that is all a mask allows is chosen all the same (min_tokens too) and ends
                                  the answer, as one that is forced does */
    int32_t n_logprobs;        /* -1: none; else of the chosen token and so many best ones, at most GENERATION_MAX_LOGPROBS */
    bool special;              /* control tokens print their text */
    bool no_draft;
    bool rejection;            /* as in skua_generate_params */
    int32_t draft_max;         /* most drafts of a round; 0: the engine's */
    int32_t choice;            /* for the owner: batch_token.choice */
    token_hook *token;
    void (*round)(void *user, const skua_draft_round *round); /* after every round with drafts; NULL */
    void *user;
};

#define GENERATION_MAX_LOGPROBS 20

/* Fields are for reading: finish, n_generated, anchor. */
struct generation {
    skua_session *session;
    struct generation_params params;
    enum skua_finish finish;
    int32_t n_generated;       /* the end token counts */
    int32_t anchor;            /* chosen last; not evaluated yet */

    struct batch_next next;    /* what holds for the next choice; forced: what is left of them */
    bool greedy;               /* the answer is always the token with the largest logit, as far as it may be chosen */
    struct sampler sampler;
    struct sampler_history history;
    uint64_t *mask;            /* owner's mask without end tokens; NULL when there is no use for it */
    int32_t n_rows;            /* that there is memory for, at least 1 */
    float *logits;             /* [n_rows][n_vocab] */
    int32_t best_ids[DRAFT_MAX + 1];
    float best_logits[DRAFT_MAX + 1];
    struct token_logprob top[GENERATION_MAX_LOGPROBS];

    struct draft_terms terms;  /* the round under way */
    struct draft_round round;
    bool argmax, forced;       /* it has no logits; the rows behind its anchor are forced tokens */
};

/* An answer behind the session's tokens and n_prompt more that are still to be evaluated. The workspace may serve several answers, one
   call at a time, and outlives them. SKUA_EARG: sampling; SKUA_ENOMEM. On failure nothing is left. */
int  generation_init(struct generation *g, skua_session *s, const struct generation_params *p, struct sampler_workspace *ws,
                     const int32_t *prompt, int32_t n_prompt, const struct batch_next *first, skua_error *err);
void generation_free(struct generation *g); /* zeroed allowed; the session stays as it is */

/* Does the first choice under these parameters need logits (SKUA_LOGITS_LAST behind the prompt), or the best token only (ARGMAX)? */
bool generation_needs_logits(const struct generation_params *p, const struct batch_next *first);

/* The first token, from the feed that ended the prompt (LAST or ARGMAX, of this or another session with the same tokens). */
int generation_first(struct generation *g, const skua_feed *prompt, skua_error *err);

/* A round, while finish is SKUA_FINISH_NONE. choose: whether and from what to draft; at most `room` rows behind the anchor, n_together
   answers in the pass (0: alone). draft: do it. feed: what is to be evaluated, in memory of g; a failure (SKUA_ENOMEM) ends the answer. */
void generation_choose(struct generation *g, int32_t room, int32_t n_together);
void generation_draft(struct generation *g);
int  generation_feed(struct generation *g, skua_feed *feed, skua_error *err);

/* The feed was evaluated, in `seconds` (of a shared pass: its share): choose, tell the owner, keep what was chosen from. An error ends the
   answer; unless it comes from the commit, the session is as after the tokens that were told. */
int generation_results(struct generation *g, double seconds, bool shared, skua_error *err);

#endif
