/* A checkpoint: all that an empty session needs to go on behind some tokens. The recurrent state and what the drafters keep are copied, the
 * pages of KV cache are shared with the session (model/seq.h); the tokens are the caller's to remember. */
#ifndef SKUA_ENGINE_CHECKPOINT_H
#define SKUA_ENGINE_CHECKPOINT_H

#include "engine/engine.h"

struct checkpoint {
    int32_t n_tokens, n_pages;
    void *state;                /* [config_state_bytes] */
    void *draft;                /* [draft_size], NULL: the drafters need nothing, or there was no memory for it */
    size_t state_size, draft_size;
    struct seq_page **pages;    /* [n_pages] */
};

/* Of a settled session. pages: n_pages of them are taken instead of the session's first ones (they hold the same). SKUA_ENOMEM. */
int  checkpoint_take(const skua_session *s, struct seq_page *const *pages, int32_t n_pages, struct seq_keeper *keeper,
                     struct checkpoint *out, skua_error *err);
void checkpoint_free(struct dev *d, struct checkpoint *c); /* zeroed allowed */

/* Into an empty session of the same engine, with a context long enough; ids: the checkpoint's tokens. SKUA_ENOMEM: it is empty again. */
int checkpoint_restore(const struct checkpoint *c, const int32_t *ids, skua_session *s, skua_error *err);

size_t checkpoint_bytes(const struct checkpoint *c);       /* without pages */
size_t checkpoint_freed_bytes(const struct checkpoint *c); /* what freeing it would give back: with the pages that nobody else has */

#endif
