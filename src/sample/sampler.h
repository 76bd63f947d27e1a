/* The sampler: one row of logits in, one token id out.

   The chosen id is a pure function of (logits, history, parameters, masks, position): nothing is remembered between calls,
   and the only random number is rng_uniform(seed, position, 0), where position is the absolute position that the sampled
   token will occupy. So neither batching nor speculation (sample at each verify row, compare with the draft) can change it.

   Definition. A token is a candidate if it is samplable (padding rows of the vocabulary are not), allowed by the mask, not
   banned, and its logit is not -inf.
     1. logit bias: z = logit + bias. A bias of exactly -100 bans the token. If candidates with a bias of exactly +100 exist,
        only they stay candidates (a mask that excludes them all wins).
     2. penalties. Repetition, for each distinct token among the last penalty_last_n tokens of prompt and generated text
        (whatever the count): z = z > 0 ? z / r : z * r. Then, over generated tokens only and without a window, as vLLM and
        the OpenAI API define them: z = z - frequency * count - presence.
        z is rounded to float after step 1 and after step 2, and clamped to the finite floats.
     3. rank: by z falling, equal z by rising id. Temperature 0: the best rank is the answer. Otherwise each candidate's
        weight is w = exp((z - z_max) / temperature) in double (sample/exp.h); the best has weight 1.
     4. top-k: the first k ranks stay.
     5. top-p: S = sum of w over what is left, added by rising id. The shortest run of ranks stays whose sum of w, added by
        rank, is >= top_p * S (at least one; all when rounding keeps the sum below it).
     6. min-p: candidates with w >= min_p stay.
     7. draw: T = sum of w over what is left, by rising id; the first id at which the running sum exceeds u * T is the answer
        (if rounding lets none, the last id with w > 0).
   Cost: a few linear passes over the row and a heap of the kept ranks; no sort of the vocabulary and no allocation.

   A sampler is constant during a call; the workspace is scratch memory that any number of samplers of the same vocabulary may
   share, one call at a time. */
#ifndef SKUA_SAMPLE_SAMPLER_H
#define SKUA_SAMPLE_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "sample/history.h"
#include "sample/params.h"

struct sampler_workspace {
    float *z;       /* [n_vocab] processed logits, -inf = no candidate */
    double *w;      /* [n_vocab] weights, parallel to cand */
    uint64_t *heap; /* [n_vocab] */
    uint32_t *cand; /* [n_vocab] candidate ids, rising */
    int n_vocab;
};

int  sampler_workspace_init(struct sampler_workspace *ws, int n_vocab, skua_error *err); /* 24 bytes per token */
void sampler_workspace_free(struct sampler_workspace *ws);                               /* zeroed allowed */

struct sampler {
    skua_sampling params; /* bias points to the sampler's own copy */
    skua_logit_bias *bias;
    const uint64_t *samplable; /* bitmap, bit id & 63 of word id / 64; NULL = every token. The caller's, must outlive s */
    const uint64_t *mask;      /* the same form: what a grammar allows now. Set by the caller before a call, NULL = all */
    struct sampler_workspace *ws;
};

/* SKUA_EARG for parameters out of range (sampler_params_check against ws->n_vocab), SKUA_ENOMEM. On failure *s is zeroed. */
int  sampler_init(struct sampler *s, const skua_sampling *p, const uint64_t *samplable, struct sampler_workspace *ws,
                  skua_error *err);
void sampler_free(struct sampler *s); /* zeroed samplers allowed */

/* Choose a token. logits: [n_vocab], as the model gave them. history: tokens before this position (prompt, generated, and the
   draft prefix when verifying); NULL = none.
   SKUA_EARG: n_vocab is not the workspace's or the history's. SKUA_ESTATE: a candidate's logit is NaN or +inf, or no candidate
   is left; the message names the position. On failure *id is -1. */
int sampler_sample(const struct sampler *s, const struct sampler_history *history, const float *logits, int n_vocab,
                   uint64_t position, int32_t *id, skua_error *err);

/* What a token is drawn from: weights (not normalised) of the candidates by rising id, those of dropped candidates 0; sum is their sum in
   this order. Memory of the workspace, valid until its next use. */
struct sampler_distribution {
    const uint32_t *ids; /* [n] */
    const double *weights; /* [n] */
    size_t n;
    double sum;
};

/* Steps 1 to 6: the distribution that sampler_sample draws from, with the same errors; at temperature 0 a single id. */
int sampler_distribution(const struct sampler *s, const struct sampler_history *history, const float *logits, int n_vocab,
                         uint64_t position, struct sampler_distribution *out, skua_error *err);

/* Step 7 with u in [0, 1): sampler_sample is sampler_draw(distribution, rng_uniform(seed, position, 0)). */
int32_t sampler_draw(const struct sampler_distribution *d, double u);

#endif
