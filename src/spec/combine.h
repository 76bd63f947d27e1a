/* A block drafter's proposal and a lookup's, made one: the copy replaces drafts where the match is long, and goes on where the block ends.
 *
 *   Drafts of the block: from a match of COMBINE_STRONG tokens on, the copy's tokens instead. With a shorter one (from COMBINE_WEAK) the
 *   drafter's first token stays, and the copy takes over behind it as long as it has agreed with the drafter so far; once it has put a
 *   token of its own, it stays, for the drafter's later tokens stand behind another one.
 *   Behind the block: the copy's tokens, if everything before them is what was copied.
 *
 * A copied token is a point mass (n_top 0) and has the drafter's confidence only where both are the same. Whether a position is copied
 * depends on earlier positions only, so rejection sampling stays right. */
#ifndef SKUA_SPEC_COMBINE_H
#define SKUA_SPEC_COMBINE_H

#include "spec/drafter.h"

#define COMBINE_STRONG 6
#define COMBINE_WEAK 4

/* block: the drafter's proposal; copy: lookup's for the same anchor, asked for with full_block and n_max k. At most k drafts into *out,
   whose match is copy's if anything was copied, else 0. out may be block. */
void combine_drafts(const struct draft *block, const struct draft *copy, int32_t k, struct draft *out);

/* Whether a proposal longer than the drafter's block is worth its rows: for COMBINE_STICKY rounds after two in a row that published all
   that the block could give, and only while one session runs. Zeroed: not yet. */
#define COMBINE_STICKY 3
struct combine_gate {
    int32_t full, sticky;
};

void combine_observe(struct combine_gate *g, int32_t published, int32_t block_drafts); /* after every round */
bool combine_long(const struct combine_gate *g, int32_t n_sessions);

#endif
