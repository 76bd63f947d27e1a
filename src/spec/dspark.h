/* DSpark's heads: a chain of drafts in which every token moves the logits of the position behind it (the Markov head), and an estimate
 * that a draft is accepted (the confidence head).
 *
 *   w = W1[prev];  t = U_i + W2 w;  confidence = sigmoid(w_c . [y_i; w] + b)
 *
 * y_i is row i of the block behind the output norm, U_i its logits, scaled and capped as the drafter does it. */
#ifndef SKUA_SPEC_DSPARK_H
#define SKUA_SPEC_DSPARK_H

#include "spec/candidates.h"
#include "spec/dflash_file.h"

struct dspark; /* opaque; serves all sessions of an engine, one block at a time */

/* Workspace for blocks of up to max_rows rows; c, w and d must outlive it. SKUA_ENOMEM. */
int  dspark_create(const struct dflash_config *c, const struct dflash_weights *w, struct dev *d, int32_t max_rows, struct dspark **out,
                   skua_error *err);
void dspark_free(struct dspark *s); /* NULL allowed */
size_t dspark_bytes(const struct dspark *s);

/* Begin a block: the logits of n rows hidden, float [n][n_embd], which stay as they are until the block's last step. */
int dspark_begin(struct dspark *s, struct kern_view hidden, int32_t n, skua_error *err);

/* The candidates of row i when the token before it is prev. */
struct dspark_step {
    struct choice choice; /* at most k, in decreasing order of score; of equal ones the lowest id first */
    float confidence;     /* negative: the drafter has no such head */
};
int dspark_step(struct dspark *s, int32_t i, int32_t prev, int32_t k, struct dspark_step *out, skua_error *err);

#endif
