/* Checkpoints; see checkpoint.h. */
#include "engine/checkpoint.h"

#include <string.h>

#include "base/mem.h"
#include "engine/draft.h"

int checkpoint_take(const skua_session *s, struct seq_page *const *pages, int32_t n_pages, struct seq_keeper *keeper,
                    struct checkpoint *out, skua_error *err)
{
    struct checkpoint c = {.n_tokens = s->seq.n_pos, .state_size = s->seq.state->size};
    const int32_t all = seq_pages(c.n_tokens);
    const size_t draft_size = session_draft_save_size(s, true);
    *out = (struct checkpoint){0};
    c.state = mem_alloc(c.state_size);
    c.pages = mem_calloc((size_t)all, sizeof *c.pages);
    if (!c.state || !c.pages) {
        mem_free(c.state);
        mem_free(c.pages);
        return error_nomem(err, "checkpoint", c.state_size + (size_t)all * sizeof *c.pages);
    }
    c.draft = draft_size ? mem_alloc(draft_size) : NULL; /* drafters that are lost cost time only */
    if (c.draft) {
        session_draft_save(s, true, c.draft);
        c.draft_size = draft_size;
    }
    s->seq.dev->ops->read(s->seq.dev, (struct kern_view){s->seq.state, 0}, c.state, c.state_size);
    for (; c.n_pages < all; c.n_pages++) {
        c.pages[c.n_pages] = c.n_pages < n_pages ? pages[c.n_pages] : s->seq.held[c.n_pages];
        seq_page_keep(c.pages[c.n_pages], keeper);
    }
    *out = c;
    return 0;
}

void checkpoint_free(struct dev *d, struct checkpoint *c)
{
    for (int32_t i = 0; i < c->n_pages; i++)
        seq_page_drop(d, c->pages[i]);
    mem_free(c->pages);
    mem_free(c->state);
    mem_free(c->draft);
    *c = (struct checkpoint){0};
}

int checkpoint_restore(const struct checkpoint *c, const int32_t *ids, skua_session *s, skua_error *err)
{
    struct dev *d = s->seq.dev;
    int rc = engine_session_reserve_tokens(s, c->n_tokens, err);
    if (!rc)
        rc = seq_adopt(&s->seq, c->pages, c->n_pages, err);
    if (rc)
        return rc;
    d->ops->write(d, (struct kern_view){s->seq.state, 0}, c->state, c->state_size);
    memcpy(s->tokens, ids, (size_t)c->n_tokens * sizeof *ids);
    s->seq.n_pos = c->n_tokens;
    session_draft_load(s, c->draft, c->draft_size);
    return 0;
}

size_t checkpoint_bytes(const struct checkpoint *c)
{
    return sizeof *c + c->state_size + c->draft_size + (size_t)c->n_pages * sizeof *c->pages;
}

size_t checkpoint_freed_bytes(const struct checkpoint *c)
{
    size_t bytes = checkpoint_bytes(c);
    for (int32_t i = 0; i < c->n_pages; i++)
        if (c->pages[i]->n_kept == 1 && !c->pages[i]->n_seqs)
            bytes += c->pages[i]->buf->size;
    return bytes;
}
