/* Sessions: token history around a sequence's device memory. */
#include <string.h>

#include "base/mem.h"
#include "engine/draft.h"
#include "engine/engine.h"

int skua_session_create(skua_engine *e, int32_t n_ctx, skua_session **out, skua_error *err)
{
    *out = NULL;
    if (n_ctx < 0)
        return error_set(err, SKUA_EARG, "context length %d; expected 1 or more, or 0 for the model's own (%d)", n_ctx,
                         e->config.n_ctx_train);
    skua_session *s = mem_calloc(1, sizeof *s);
    if (!s)
        return error_nomem(err, "session", sizeof *s);
    s->engine = e;
    s->n_ctx = n_ctx ? n_ctx : e->config.n_ctx_train;
    int rc = seq_init(&s->seq, e->dev, config_state_bytes(&e->config), config_kv_page_bytes(&e->config, e->kv_type), err);
    if (rc) {
        mem_free(s);
        return rc;
    }
    e->n_sessions++;
    rc = session_draft_create(s, err);
    if (rc) {
        skua_session_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

static void forget_held(skua_session *s)
{
    s->engine->n_pending -= s->n_held > 0;
    s->n_held = 0;
}

void skua_session_free(skua_session *s)
{
    if (!s)
        return;
    forget_held(s);
    s->engine->n_sessions--;
    session_draft_free(s);
    seq_free(&s->seq);
    mem_free(s->tokens);
    mem_free(s);
}

void skua_session_reset(skua_session *s)
{
    forget_held(s);
    s->lost = false;
    seq_reset(&s->seq);
    session_draft_reset(s);
}

int engine_session_settled(const skua_session *s, const char *what, skua_error *err)
{
    if (s->lost)
        return error_set(err, SKUA_ESTATE, "%s: the session's state was lost in a failed commit; reset it first", what);
    if (s->n_held)
        return error_set(err, SKUA_ESTATE, "%s: %d tokens of the session are held; commit them first", what, s->n_held);
    return 0;
}

int32_t skua_session_length(const skua_session *s) { return s->seq.n_pos; }

int32_t skua_session_ctx(const skua_session *s) { return s->n_ctx; }

const int32_t *skua_session_tokens(const skua_session *s) { return s->tokens; }

size_t skua_session_bytes(const skua_session *s)
{
    return seq_bytes(&s->seq) + (size_t)s->cap_tokens * sizeof *s->tokens + session_draft_bytes(s);
}

int engine_session_reserve_tokens(skua_session *s, int32_t total, skua_error *err)
{
    if (total <= s->cap_tokens)
        return 0;
    int32_t cap = s->cap_tokens ? s->cap_tokens : 256;
    while (cap < total)
        cap = cap > INT32_MAX / 2 ? INT32_MAX : cap * 2;
    int32_t *p = mem_realloc_array(s->tokens, (size_t)cap, sizeof *p);
    if (!p)
        return error_nomem(err, "token history", (size_t)cap * sizeof *p);
    s->tokens = p;
    s->cap_tokens = cap;
    return 0;
}

int engine_session_reserve(skua_session *s, int32_t total, skua_error *err)
{
    int rc = engine_session_reserve_tokens(s, total, err);
    return rc ? rc : seq_reserve(&s->seq, total, err);
}

int engine_prepare(skua_session *s, const int32_t *ids, int32_t n_ids, skua_error *err)
{
    int32_t n_vocab = s->engine->config.n_vocab;
    int rc = engine_session_settled(s, "evaluation", err);
    if (rc)
        return rc;
    if (s->engine->n_pending)
        return error_set(err, SKUA_ESTATE, "evaluation: tokens of another session of this engine are held; commit them first");
    if (n_ids < 1)
        return error_set(err, SKUA_EARG, "no tokens to evaluate");
    for (int32_t i = 0; i < n_ids; i++)
        if (ids[i] < 0 || ids[i] >= n_vocab)
            return error_set(err, SKUA_EARG, "token id %d (number %d) is outside the vocabulary of %d tokens", ids[i], i, n_vocab);
    if (n_ids > s->n_ctx - s->seq.n_pos)
        return error_set(err, SKUA_ELIMIT, "context is full: %d tokens held and %d more asked for, the limit is %d (raise it with --ctx)",
                         s->seq.n_pos, n_ids, s->n_ctx);
    return engine_session_reserve(s, s->seq.n_pos + n_ids, err);
}

/* ---- snapshots ---- */

int skua_snapshot_take(const skua_session *s, skua_snapshot **out, skua_error *err)
{
    *out = NULL;
    size_t n = (size_t)s->seq.n_pos, bytes = s->seq.state->size;
    int rc = engine_session_settled(s, "snapshot", err);
    if (rc)
        return rc;
    skua_snapshot *p = mem_calloc(1, sizeof *p);
    if (!p)
        return error_nomem(err, "snapshot", sizeof *p);
    *p = (skua_snapshot){.engine = s->engine, .n_tokens = s->seq.n_pos, .draft_size = session_draft_save_size(s, DRAFT_SAVE_BACK)};
    p->tokens = mem_alloc(n * sizeof *p->tokens);
    p->state = mem_alloc(bytes);
    p->draft = p->draft_size ? mem_alloc(p->draft_size) : NULL;
    if (!p->tokens || !p->state || (p->draft_size && !p->draft)) {
        const size_t all = n * sizeof *p->tokens + bytes + p->draft_size;
        skua_snapshot_free(p);
        return error_nomem(err, "snapshot", all);
    }
    if (p->draft)
        session_draft_save(s, DRAFT_SAVE_BACK, p->draft);
    if (n) /* else there may be no array of tokens */
        memcpy(p->tokens, s->tokens, n * sizeof *p->tokens);
    s->engine->dev->ops->read(s->engine->dev, (struct kern_view){s->seq.state, 0}, p->state, bytes);
    *out = p;
    return 0;
}

void skua_snapshot_free(skua_snapshot *p)
{
    if (!p)
        return;
    mem_free(p->tokens);
    mem_free(p->state);
    mem_free(p->draft);
    mem_free(p);
}

int32_t skua_snapshot_length(const skua_snapshot *p) { return p->n_tokens; }

int skua_session_restore(skua_session *s, const skua_snapshot *p, skua_error *err)
{
    if (s->engine != p->engine)
        return error_set(err, SKUA_ESTATE, "the snapshot was taken from a session of another engine");
    if (s->n_held)
        return engine_session_settled(s, "restoring", err);
    if (s->seq.n_pos < p->n_tokens)
        return error_set(err, SKUA_ESTATE, "the session holds %d tokens; expected the %d of the snapshot, or more", s->seq.n_pos,
                         p->n_tokens);
    for (int32_t i = 0; i < p->n_tokens; i++)
        if (s->tokens[i] != p->tokens[i])
            return error_set(err, SKUA_ESTATE, "the session's token %d is %d; expected %d, as in the snapshot", i, s->tokens[i],
                             p->tokens[i]);
    s->engine->dev->ops->write(s->engine->dev, (struct kern_view){s->seq.state, 0}, p->state, s->seq.state->size);
    s->seq.n_pos = p->n_tokens;
    s->lost = false;
    session_draft_load(s, p->draft, p->draft_size);
    return 0;
}

/* The drafters of an empty session as those of another one, with which they share full pages. Without the memory for it they draft
   nothing. */
static void copy_drafters(const skua_session *from, skua_session *to)
{
    const size_t size = session_draft_save_size(from, DRAFT_SAVE_REST);
    void *blob = size ? mem_alloc(size) : NULL;
    struct draft_pages pages[SKUA_DRAFT_SOURCES];
    const struct seq *kv[SKUA_DRAFT_SOURCES];
    if (blob)
        session_draft_save(from, DRAFT_SAVE_REST, blob);
    for (int32_t k = blob ? session_draft_kv(from, pages, kv) - 1 : -1; k >= 0; k--)
        session_draft_adopt(to, pages[k].source, kv[k]->held, (int32_t)pages[k].n_pages);
    session_draft_load(to, blob, blob ? size : 0);
    mem_free(blob);
}

int engine_session_copy(const skua_session *from, skua_session *to, skua_error *err)
{
    struct dev *d = from->engine->dev;
    int32_t n = from->seq.n_pos;
    skua_session_reset(to);
    int rc = engine_session_settled(from, "copying", err);
    if (rc)
        return rc;
    if (n > to->n_ctx)
        return error_set(err, SKUA_ELIMIT, "%d tokens to copy into a context of %d", n, to->n_ctx);
    rc = engine_session_reserve_tokens(to, n, err);
    if (!rc)
        rc = seq_adopt(&to->seq, from->seq.held, seq_pages(n), err);
    if (rc || !n)
        return rc;
    d->ops->copy(d, (struct kern_view){to->seq.state, 0}, (struct kern_view){from->seq.state, 0}, from->seq.state->size);
    memcpy(to->tokens, from->tokens, (size_t)n * sizeof *to->tokens);
    to->seq.n_pos = n;
    copy_drafters(from, to);
    return 0;
}
