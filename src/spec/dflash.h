/* Drafters of the DFlash family for sessions: classic DFlash, DFlash2 and DSpark.
 *
 * A drafter keeps a row of context for every committed position, in pages of its own. What the target kept of new rows is stashed and
 * computed in batches, because a batch reads the weights once. When all layers have windows, pages that are far behind every window are
 * given back. */
#ifndef SKUA_SPEC_DFLASH_H
#define SKUA_SPEC_DFLASH_H

#include "spec/dflash_forward.h"
#include "spec/drafter.h"

#define DFLASH_STASH_ROWS 64   /* most rows that wait to be computed */
#define DFLASH_SLACK_ROWS 1024 /* positions that a windowed drafter can be truncated by without losing its context, at least */
#define DFLASH_SAMPLED 32      /* candidates that a sampled draft of a drafter without selector is drawn from */

/* A drafter for one new session; name: for people, copied. f must outlive it. SKUA_ENOMEM. */
int dflash_drafter(struct dflash *f, const char *name, struct drafter **out, skua_error *err);

#endif
