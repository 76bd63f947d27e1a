/* A drafter: a source of drafts for one session, behind one interface. Model drafters (DFlash, DFlash2, DSpark, MTP) and lookup implement
 * it; the engine's round loop and the scheduler know nothing else of them.
 *
 * A drafter never decides an answer: what it proposes is verified by the target. So its errors never end an answer; they take the
 * drafter away.
 *
 * Life. The drafter follows the committed tokens of its session: drafter_extend is called once for every run of committed rows, in order
 * and without gaps, with what the target's pass kept of them. It may put work off until a proposal is asked for. drafter_propose is asked
 * with the anchor, the token that was chosen last and is not evaluated yet; it stands at position drafter_length. A proposal changes
 * nothing that a later one, or drafter_extend, could see. drafter_truncate takes it back together with its session. */
#ifndef SKUA_SPEC_DRAFTER_H
#define SKUA_SPEC_DRAFTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "kern/kern.h"

#define DRAFT_MAX 31      /* most drafts of a round: with the anchor FORWARD_MAX_OUT rows */
#define DRAFT_DRAW 16     /* rng_uniform's third argument when a draft is drawn for a position; the target's sampler has 0 */
#define DRAFT_MAX_TOP 64  /* most candidates of a position whose probabilities are kept */

/* What a pass of the target kept of consecutive rows of one session; row i holds the token at position pos + i. The views are device
   memory of the target's forward pass and valid during the call only; strides in floats. */
struct draft_rows {
    const int32_t *ids; /* [n] */
    int32_t n, pos;
    struct kern_view taps;   /* [n] residuals behind the tapped layers, side by side in the order of drafter_needs.taps; no buffer when no
                                drafter asked for them */
    int32_t taps_stride;
    struct kern_view hidden; /* [n] rows after output_norm; no buffer when no drafter asked for them */
    int32_t hidden_stride;
};

/* What a drafter must be given of every row. */
struct drafter_needs {
    const int32_t *taps; /* [n_taps] layers, 0-based, whose output is kept; NULL when n_taps is 0 */
    int32_t n_taps;
    bool hidden;
};

/* A proposal: n tokens for the positions behind the anchor; n may be less than asked for, 0 when there is nothing to propose. */
struct draft {
    int32_t n;
    int32_t ids[DRAFT_MAX];
    float confidence[DRAFT_MAX]; /* the drafter's own estimate that this draft is accepted if those before it are; negative: none */
    int32_t match;               /* lookup: length of the match that the proposal comes from; 0 otherwise */

    /* Only when drafts were sampled (struct draft_request.temperature > 0): the distribution that draft i was drawn from, n_top[i] pairs.
       n_top[i] 0: a point mass on ids[i]. */
    int32_t n_top[DRAFT_MAX];
    int32_t top_ids[DRAFT_MAX][DRAFT_MAX_TOP];
    float top_p[DRAFT_MAX][DRAFT_MAX_TOP];
};

struct draft_request {
    int32_t anchor;     /* token at position drafter_length */
    int32_t n_max;      /* 1 .. drafter's n_max: drafts wanted */
    bool full_block;    /* a block drafter runs its trained block and gives the first n_max of it; otherwise a block of n_max + 1 rows */
    double temperature; /* 0: the best token of each position; above: sampled, with the distributions in the proposal */
    uint64_t seed;      /* for sampling, together with the position */
    float min_confidence; /* a drafter that was trained to estimate acceptance stops before the first draft below this; 0: it does not */
};

struct drafter;
struct seq;

struct drafter_ops {
    const char *kind; /* "dflash", "dflash2", "dspark", "mtp", "lookup" */
    int  (*extend)(struct drafter *d, const struct draft_rows *rows, skua_error *err);
    int  (*propose)(struct drafter *d, const struct draft_request *q, struct draft *out, skua_error *err);
    /* Keep the first n positions. false: what it would need for them is gone; it then has no context and proposes nothing until reset. */
    bool (*truncate)(struct drafter *d, int32_t n);
    /* State that truncate cannot bring back (windows that moved on, hidden rows), in memory of the caller: size of what save writes now, 0
       when nothing is needed; load: the state at a length that the drafter's session has been taken back to, or is filled with. When
       save_whole is set, all that an empty drafter needs to go on from here. */
    size_t (*save_size)(const struct drafter *d);
    void (*save)(const struct drafter *d, void *dst);
    int  (*load)(struct drafter *d, int32_t n, const void *src, size_t size, skua_error *err);
    void (*reset)(struct drafter *d);
    size_t (*bytes)(const struct drafter *d); /* memory held for this session */
    void (*free)(struct drafter *d);
};

/* Implementations embed this as their first member. */
struct drafter {
    const struct drafter_ops *ops;
    char name[160];      /* for people: "dflash2 (tiny-dflash2-bf16.gguf: convolution, selector of 16, ...)" */
    int32_t n_max;       /* most drafts of a proposal, at most DRAFT_MAX */
    int32_t n_pos;       /* positions that it has been extended with */
    bool block;          /* drafting costs the same for any number of drafts of a full block */
    bool lost;           /* its context is gone (truncate said false, or an error): it proposes nothing until reset */
    bool save_whole;     /* the caller's: what save writes is for another session or process */
    struct seq *kv;      /* its own KV cache, if that has all positions: rows before kv->n_pos never change, row p follows from the tokens
                            up to position p + 1. NULL: it has none, or one with windows */
    int32_t save_from;   /* the caller's, when save_whole is set: so many full pages of kv, all before kv->n_pos, are left out of what save
                            writes; before load they are put into kv again, with kv->n_pos at their end or behind it */
    struct drafter_needs needs;
};

#endif
