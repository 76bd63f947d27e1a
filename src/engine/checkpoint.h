/* A checkpoint: all that an empty session needs to go on behind some tokens. The recurrent state and what the drafters keep are copied, the
 * pages of KV cache, and the full ones of drafters' own caches, are shared with the session (model/seq.h); the tokens are the caller's to
 * remember. */
#ifndef SKUA_ENGINE_CHECKPOINT_H
#define SKUA_ENGINE_CHECKPOINT_H

#include "engine/draft.h"
#include "engine/engine.h"

struct checkpoint {
    int32_t n_tokens;
    int32_t n_pages, n_all;     /* pages of the model; and with those of drafters */
    void *state;                /* [config_state_bytes] */
    void *draft;                /* [draft_size], NULL: the drafters need nothing, or there was no memory for it */
    size_t state_size, draft_size;
    struct seq_page **pages;    /* [n_all]: the model's, then those of drafts[0], drafts[1] ... */
    struct draft_pages drafts[SKUA_DRAFT_SOURCES];
    int32_t n_drafts;
};

/* Who keeps pages. */
struct checkpoint_keepers {
    struct seq_keeper model, drafters;
};

/* Of a settled session. donor: its first n_shared tokens are the session's; full pages that follow from them are taken instead of the
   session's (they hold the same); NULL: none. SKUA_ENOMEM. */
int  checkpoint_take(const skua_session *s, const struct checkpoint *donor, int32_t n_shared, struct checkpoint_keepers *keepers,
                     struct checkpoint *out, skua_error *err);
void checkpoint_free(struct dev *d, struct checkpoint *c); /* zeroed allowed */

/* Into an empty session of the same engine, with a context long enough; ids: the checkpoint's tokens. SKUA_ENOMEM: it is empty again. */
int checkpoint_restore(const struct checkpoint *c, const int32_t *ids, skua_session *s, skua_error *err);

size_t checkpoint_bytes(const struct checkpoint *c);       /* without pages */
size_t checkpoint_freed_bytes(const struct checkpoint *c); /* what freeing it would give back: with the pages that nobody else has */

#endif
