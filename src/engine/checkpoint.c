/* Checkpoints; see checkpoint.h. */
#include "engine/checkpoint.h"

#include <string.h>

#include "base/mem.h"

/* The pages of a drafter in a checkpoint; *n: how many. */
static struct seq_page *const *draft_pages(const struct checkpoint *c, uint64_t source, int64_t *n)
{
    struct seq_page *const *pages = c->pages + c->n_pages;
    for (int32_t i = 0; i < c->n_drafts; pages += c->drafts[i++].n_pages)
        if (c->drafts[i].source == source) {
            *n = c->drafts[i].n_pages;
            return pages;
        }
    *n = 0;
    return NULL;
}

static void keep_page(struct checkpoint *c, struct seq_page *p, struct seq_keeper *k)
{
    c->pages[c->n_all++] = p;
    seq_page_keep(p, k);
}

static void take_pages(const skua_session *s, const struct checkpoint *donor, int32_t n_shared, struct checkpoint_keepers *keepers,
                       struct checkpoint *c, const struct seq *const *kv)
{
    const int32_t full = donor ? n_shared / KV_PAGE_ROWS : 0;
    const int32_t full_drafts = donor && n_shared ? (n_shared - 1) / KV_PAGE_ROWS : 0; /* the token behind a page belongs to it */
    for (int32_t i = 0; i < c->n_pages; i++)
        keep_page(c, i < full ? donor->pages[i] : s->seq.held[i], &keepers->model);
    for (int32_t k = 0; k < c->n_drafts; k++) {
        int64_t n = 0;
        struct seq_page *const *pages = full_drafts ? draft_pages(donor, c->drafts[k].source, &n) : NULL;
        for (int32_t i = 0; i < c->drafts[k].n_pages; i++)
            keep_page(c, i < n && i < full_drafts ? pages[i] : kv[k]->held[i], &keepers->drafters);
    }
}

int checkpoint_take(const skua_session *s, const struct checkpoint *donor, int32_t n_shared, struct checkpoint_keepers *keepers,
                    struct checkpoint *out, skua_error *err)
{
    struct checkpoint c = {.n_tokens = s->seq.n_pos, .state_size = s->seq.state->size, .n_pages = seq_pages(s->seq.n_pos)};
    const struct seq *kv[SKUA_DRAFT_SOURCES];
    size_t all = (size_t)c.n_pages;
    *out = (struct checkpoint){0};
    c.draft_size = session_draft_save_size(s, DRAFT_SAVE_REST);
    c.draft = c.draft_size ? mem_alloc(c.draft_size) : NULL; /* drafters that are lost cost time only */
    if (c.draft) {
        session_draft_save(s, DRAFT_SAVE_REST, c.draft);
        c.n_drafts = session_draft_kv(s, c.drafts, kv);
    } else
        c.draft_size = 0;
    for (int32_t k = 0; k < c.n_drafts; k++)
        all += (size_t)c.drafts[k].n_pages;
    c.state = mem_alloc(c.state_size);
    c.pages = mem_calloc(all, sizeof *c.pages);
    if (!c.state || !c.pages) {
        mem_free(c.state);
        mem_free(c.pages);
        mem_free(c.draft);
        return error_nomem(err, "checkpoint", c.state_size + all * sizeof *c.pages);
    }
    s->seq.dev->ops->read(s->seq.dev, (struct kern_view){s->seq.state, 0}, c.state, c.state_size);
    take_pages(s, donor, n_shared, keepers, &c, kv);
    *out = c;
    return 0;
}

void checkpoint_free(struct dev *d, struct checkpoint *c)
{
    for (int32_t i = 0; i < c->n_all; i++)
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
    struct seq_page *const *pages = c->pages + c->n_pages;
    for (int32_t k = 0; k < c->n_drafts; pages += c->drafts[k++].n_pages)
        session_draft_adopt(s, c->drafts[k].source, pages, (int32_t)c->drafts[k].n_pages);
    session_draft_load(s, c->draft, c->draft_size);
    return 0;
}

size_t checkpoint_bytes(const struct checkpoint *c)
{
    return sizeof *c + c->state_size + c->draft_size + (size_t)c->n_all * sizeof *c->pages;
}

size_t checkpoint_freed_bytes(const struct checkpoint *c)
{
    size_t bytes = checkpoint_bytes(c);
    for (int32_t i = 0; i < c->n_all; i++)
        if (c->pages[i]->n_kept == 1 && !c->pages[i]->n_seqs)
            bytes += c->pages[i]->buf->size;
    return bytes;
}
