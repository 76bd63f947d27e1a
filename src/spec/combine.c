/* Lookup and a block drafter together; see combine.h. */
#include "spec/combine.h"

void combine_drafts(const struct draft *block, const struct draft *copy, int32_t k, struct draft *out)
{
    bool strong = copy->match >= COMBINE_STRONG, usable = copy->match >= COMBINE_WEAK;
    bool agrees = true, own = false; /* so far: proposal and copy are the same; a copied token differs from the drafter's */
    int32_t n_block = block->n < k ? block->n : k, n_copy = !usable ? 0 : copy->n < k ? copy->n : k, n = 0;
    if (out != block)
        *out = *block;
    out->match = 0;
    for (; n < n_block || (n < n_copy && agrees); n++) {
        bool drafted = n < n_block, copied = n < n_copy && (!drafted || strong || own || (n > 0 && agrees));
        if (copied) {
            bool same = drafted && out->ids[n] == copy->ids[n];
            own = own || (drafted && !same);
            out->ids[n] = copy->ids[n];
            out->confidence[n] = same ? out->confidence[n] : -1;
            out->n_top[n] = 0;
            out->match = copy->match;
        }
        agrees = agrees && n < n_copy && out->ids[n] == copy->ids[n];
    }
    out->n = n;
}

void combine_observe(struct combine_gate *g, int32_t published, int32_t block_drafts)
{
    g->full = published > block_drafts ? g->full + 1 : 0;
    g->sticky = g->full >= 2 ? COMBINE_STICKY : g->sticky > 0 ? g->sticky - 1 : 0;
}

bool combine_long(const struct combine_gate *g, int32_t n_sessions) { return g->sticky > 0 && n_sessions == 1; }
