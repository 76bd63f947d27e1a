/* The forward pass of the DFlash family: rows of context from what the target kept, and a block of drafts.
 *
 * One object serves all sessions of an engine, one call at a time; a session's context is a struct seq whose pages have dflash_page_bytes.
 * Nothing is allocated in a pass but the pages it enters. */
#ifndef SKUA_SPEC_DFLASH_FORWARD_H
#define SKUA_SPEC_DFLASH_FORWARD_H

#include "model/seq.h"
#include "spec/dflash_file.h"
#include "spec/dspark.h"

struct dflash; /* opaque */

#define DFLASH_BLOCK_ROWS 32    /* most rows of a block */
#define DFLASH_CONTEXT_ROWS 256 /* rows of context that are computed together */

/* Workspace on device d, for context in cache type kv_type; c, w and d must outlive it. SKUA_EUNSUPPORTED when the cache type does not fit
   the heads, SKUA_ENOMEM. */
int  dflash_create(const struct dflash_config *c, const struct dflash_weights *w, struct dev *d, uint32_t kv_type, struct dflash **out,
                   skua_error *err);
void dflash_free(struct dflash *f); /* NULL allowed */
size_t dflash_bytes(const struct dflash *f);      /* workspace */
size_t dflash_page_bytes(const struct dflash *f); /* K and V of all layers at KV_PAGE_ROWS positions */
const struct dflash_config *dflash_config_of(const struct dflash *f);
const struct dflash_weights *dflash_weights_of(const struct dflash *f);
struct dev *dflash_dev(const struct dflash *f);
struct dspark *dflash_spark(const struct dflash *f); /* DSpark's heads; NULL for the other variants */

/* How many rows before a block the widest window sees; 0: some layer sees all. */
int32_t dflash_window(const struct dflash *f);

/* Positions s->n_pos .. s->n_pos + n - 1 from the rows that the target kept of them: [n] rows of taps, taps_stride floats apart. Advances
   n_pos; on an error it stands at the rows that are complete. */
int dflash_context(struct dflash *f, struct seq *s, struct kern_view taps, int32_t taps_stride, int32_t n, skua_error *err);

/* A block behind the context: row 0 is the anchor at position s->n_pos, the other ones are masks. n_out rows, from row 1 on or, of an
   anchor_first drafter, from row 0 on, go through the output norm, and the head keeps the k best of each (k 0: no head). Changes nothing
   that later calls see. n_rows <= DFLASH_BLOCK_ROWS, k <= DRAFT_MAX_TOP. */
struct dflash_block {
    int32_t anchor, n_rows, n_out, k;
};
int dflash_block(struct dflash *f, struct seq *s, const struct dflash_block *b, skua_error *err);

/* Results of the last block, of its i-th out row. dflash_candidates: the best tokens in decreasing order of their logits, scaled and
   capped as the drafter does it; returns how many there are, at most k. */
int32_t dflash_candidates(struct dflash *f, int32_t i, int32_t *ids, double *logits);
void dflash_read_selector(struct dflash *f, int32_t i, float *dst); /* DFlash2: selector_rank values */
struct kern_view dflash_hidden(const struct dflash *f);             /* float [n_out][n_embd], behind the output norm */

#endif
