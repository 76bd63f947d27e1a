/* Drafting with an MTP block (multi-token prediction, also called NextN): one transformer block that reads a token and the target's
 * hidden row before it and predicts the token behind it; fed with its own output, it drafts a chain.
 *
 * The block's row at slot p takes (token x_{p+1}, hidden row h_p) and attends to slots 0 .. p, which are kept in pages of its own. The
 * slots of committed tokens are computed from the target's rows, in batches; what a chain writes behind them is overwritten. */
#ifndef SKUA_SPEC_MTP_H
#define SKUA_SPEC_MTP_H

#include "model/config.h"
#include "model/forward.h"
#include "model/weights.h"
#include "spec/drafter.h"

#define MTP_MAX_DRAFTS 15 /* longest chain */

/* Everything must outlive the drafters made of it. forward is the target's: a drafter runs its passes there, between passes of the
   target, and overwrites the rows that forward_head would read. */
struct mtp_model {
    const struct model_config *config;  /* the target's */
    const struct mtp_weights *weights;  /* the target's own, or those of a sidecar file */
    struct forward *forward;
    struct dev *dev;
    uint32_t kv_type;
    int32_t max_rows;                   /* of forward's passes */
    const char *name;                   /* for people, as drafter.name: "mtp (bundled)" */
};

/* A drafter for one new session. SKUA_ESTATE when there is no block, SKUA_ENOMEM. It keeps a copy of *m. Confidences are shares among the
   MTP_TOP best tokens; sampled drafts are drawn from the MTP_SAMPLED best. */
#define MTP_TOP 8
#define MTP_SAMPLED 32
int mtp_create(const struct mtp_model *m, struct drafter **out, skua_error *err);

/* The cache of the block, n_pos slots of which are done: for tests. */
struct seq;
const struct seq *mtp_cache(const struct drafter *d);

#endif
