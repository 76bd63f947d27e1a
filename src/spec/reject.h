/* Rejection sampling of drafts (the option beside sample-and-compare, which needs only sampler_sample): a draft x that was drawn from q is
 * accepted with probability min(1, p(x) / q(x)), else the token is drawn from what of p is left over q. Either way the token has the
 * target's distribution p, whatever q is.
 *
 * This holds only if nothing that looks at a drawn draft decides whether it is tested: all drafts that were drawn go into the pass, or
 * their number is decided by what is known before (confidences of the drawn tokens are not). Point masses are free of that.
 *
 * Random numbers are keyed by (seed, position of the token, draw), each draw for one purpose. A draft that was never tested leaves its
 * position's numbers as good as new. */
#ifndef SKUA_SPEC_REJECT_H
#define SKUA_SPEC_REJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "sample/sampler.h"
#include "spec/drafter.h"

/* The draws of a position; draw 0 is sampler_sample's. */
enum reject_draw {
    REJECT_DRAW_DRAFT = 1,   /* a drafter draws the token */
    REJECT_DRAW_TEST = 2,
    REJECT_DRAW_INSTEAD = 3
};

/* Test draft number i of a proposal at its position. p: the target's distribution there, behind the tokens before it. Returns whether the
   draft was accepted; *id is the token to publish either way. A q that is no distribution, or does not hold the draft, is not used: the
   token is drawn from p, and the draft is accepted if it is that token. */
bool reject_test(const struct sampler_distribution *p, const struct draft *draft, int32_t i, uint64_t seed, uint64_t position, int32_t *id);

#endif
