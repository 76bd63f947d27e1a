/* Lookup drafting: a suffix automaton over the committed tokens of one session. Where the newest tokens have occurred before, what
 * followed them then is proposed again. No model, no weights; everything it needs of a row is its id, so an engine can fill it from the
 * session's tokens at any time.
 *
 * A proposal comes from the longest suffix of [committed tokens; anchor] that occurs among the committed tokens, m tokens long; of several
 * occurrences the newest. (In text that repeats itself more than 64 fold, an older one may be taken.) It is
 *   m >= min_match:           4 + 2 * (m - min_match) tokens,
 *   min_short <= m < min_match: m / 2 tokens, whether these pay is the scheduler's business,
 * at most what was asked for; with full_block, from min_short on, all that was asked for. A source that runs past the committed tokens
 * goes on in the proposal itself, so periods continue.
 *
 * Amortised O(1) per token and about 80 bytes of memory; truncating builds the automaton of what is left anew, when it is needed next. */
#ifndef SKUA_SPEC_LOOKUP_H
#define SKUA_SPEC_LOOKUP_H

#include "spec/drafter.h"

#define LOOKUP_MIN_MATCH 8
#define LOOKUP_MIN_SHORT 4

/* min_match >= min_short >= 1, n_max 1..DRAFT_MAX, else SKUA_EARG; SKUA_ENOMEM. The drafter's free frees it. Its propose gives n = 0 and
   the match when that is shorter than min_short, and match 0 when the anchor has never occurred. */
int lookup_create(int32_t min_match, int32_t min_short, int32_t n_max, struct drafter **out, skua_error *err);

#endif
