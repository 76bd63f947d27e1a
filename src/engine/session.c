/* Sessions: token history around a sequence's device memory. */
#include "base/mem.h"
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
    int rc = seq_init(&s->seq, e->dev, config_state_bytes(&e->config),
                      config_kv_page_bytes(&e->config, e->kv_type, e->weights.mtp.present), err);
    if (rc) {
        mem_free(s);
        return rc;
    }
    e->n_sessions++;
    *out = s;
    return 0;
}

void skua_session_free(skua_session *s)
{
    if (!s)
        return;
    s->engine->n_sessions--;
    seq_free(&s->seq);
    mem_free(s->tokens);
    mem_free(s);
}

void skua_session_reset(skua_session *s) { seq_reset(&s->seq); }

int32_t skua_session_length(const skua_session *s) { return s->seq.n_pos; }

int32_t skua_session_ctx(const skua_session *s) { return s->n_ctx; }

const int32_t *skua_session_tokens(const skua_session *s) { return s->tokens; }

size_t skua_session_bytes(const skua_session *s) { return seq_bytes(&s->seq) + (size_t)s->cap_tokens * sizeof *s->tokens; }

int engine_prepare(skua_session *s, const int32_t *ids, int32_t n_ids, skua_error *err)
{
    int32_t n_vocab = s->engine->config.n_vocab;
    if (n_ids < 1)
        return error_set(err, SKUA_EARG, "no tokens to evaluate");
    for (int32_t i = 0; i < n_ids; i++)
        if (ids[i] < 0 || ids[i] >= n_vocab)
            return error_set(err, SKUA_EARG, "token id %d (number %d) is outside the vocabulary of %d tokens", ids[i], i, n_vocab);
    if (n_ids > s->n_ctx - s->seq.n_pos)
        return error_set(err, SKUA_ELIMIT, "context is full: %d tokens held and %d more asked for, the limit is %d (raise it with --ctx)",
                         s->seq.n_pos, n_ids, s->n_ctx);
    int32_t total = s->seq.n_pos + n_ids;
    if (total > s->cap_tokens) {
        int32_t cap = s->cap_tokens ? s->cap_tokens : 256;
        while (cap < total)
            cap = cap > INT32_MAX / 2 ? INT32_MAX : cap * 2;
        int32_t *p = mem_realloc_array(s->tokens, (size_t)cap, sizeof *p);
        if (!p)
            return error_nomem(err, "token history", (size_t)cap * sizeof *p);
        s->tokens = p;
        s->cap_tokens = cap;
    }
    return seq_reserve(&s->seq, total, err);
}
