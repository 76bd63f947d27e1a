/* Evaluation with everything visible: all logits, layer outputs, the MTP block. For `skua logits` and tests. */
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"

/* All rows of one pass through the head, FORWARD_MAX_OUT at a time; optionally their normed hidden rows. */
static int read_rows(skua_engine *e, int32_t n_rows, float *logits, float *hidden, skua_error *err)
{
    size_t n_vocab = (size_t)e->config.n_vocab, n_embd = (size_t)e->config.n_embd;
    for (int32_t begin = 0; begin < n_rows; begin += FORWARD_MAX_OUT) {
        int32_t rows[FORWARD_MAX_OUT], n = n_rows - begin < FORWARD_MAX_OUT ? n_rows - begin : FORWARD_MAX_OUT;
        for (int32_t i = 0; i < n; i++)
            rows[i] = begin + i;
        int rc = forward_head(e->forward, rows, n, FORWARD_LOGITS, err);
        if (rc)
            return rc;
        for (int32_t i = 0; i < n; i++) {
            forward_read_logits(e->forward, i, logits + (size_t)(begin + i) * n_vocab);
            if (hidden)
                forward_read_out_hidden(e->forward, i, hidden + (size_t)(begin + i) * n_embd);
        }
    }
    return 0;
}

/* The block over all pairs; its KV goes to pages of its own. */
static int run_pairs(skua_session *s, const int32_t *ids, int32_t n_pairs, const struct seq *pages, struct kern_buf *hidden,
                     skua_error *err)
{
    skua_engine *e = s->engine;
    int rc = 0;
    for (int32_t begin = 0; begin < n_pairs && !rc; begin += e->max_rows) {
        int32_t n = n_pairs - begin < e->max_rows ? n_pairs - begin : e->max_rows, last = n - 1, n_embd = e->config.n_embd;
        struct kern_batch b = {0};
        engine_batch_add(e, &b, s, ids + begin + 1, n, begin);
        e->seqs[0].kv_pages = pages->pages;
        e->seqs[0].n_kv_pages = pages->n_pages;
        struct kern_view rows = {hidden, (size_t)begin * n_embd * sizeof(float)};
        rc = forward_mtp(e->forward, &e->weights.mtp, &b, rows, n_embd, &last, begin + n == n_pairs ? 1 : 0, 0, err);
    }
    return rc;
}

static int run_mtp(skua_session *s, const int32_t *ids, int32_t n_ids, const float *hidden, float *logits, skua_error *err)
{
    skua_engine *e = s->engine;
    struct dev *d = e->dev;
    struct seq own = {0};
    struct kern_buf *rows = NULL;
    size_t bytes = (size_t)(n_ids - 1) * e->config.n_embd * sizeof *hidden;
    int rc = seq_init(&own, d, 0, config_mtp_page_bytes(&e->config, e->kv_type), err);
    if (!rc)
        rc = seq_reserve(&own, n_ids - 1, err);
    if (!rc)
        rc = d->ops->buf_alloc(d, bytes, &rows, err);
    if (!rc) {
        d->ops->write(d, (struct kern_view){rows, 0}, hidden, bytes);
        rc = run_pairs(s, ids, n_ids - 1, &own, rows, err);
    }
    if (!rc)
        forward_read_logits(e->forward, 0, logits);
    d->ops->buf_free(d, rows);
    seq_free(&own);
    return rc;
}

int engine_inspect(skua_session *s, const int32_t *ids, int32_t n_ids, const struct engine_inspect *what, skua_error *err)
{
    skua_engine *e = s->engine;
    bool mtp = what->mtp && n_ids > 1;
    float *hidden = NULL;
    if (s->seq.n_pos)
        return error_set(err, SKUA_ESTATE, "inspection needs an empty session, this one holds %d tokens", s->seq.n_pos);
    if (what->mtp && !e->weights.mtp.present)
        return error_set(err, SKUA_ESTATE, "%s: the model has no MTP block", e->path);
    int rc = engine_prepare(s, ids, n_ids, err);
    if (rc)
        return rc;
    if (mtp && !(hidden = mem_alloc((size_t)n_ids * e->config.n_embd * sizeof *hidden)))
        return error_nomem(err, "hidden rows", (size_t)n_ids * e->config.n_embd * sizeof *hidden);
    for (int32_t begin = 0; begin < n_ids && !rc; begin += e->max_rows) {
        int32_t n = n_ids - begin < e->max_rows ? n_ids - begin : e->max_rows;
        bool last = begin + n == n_ids;
        struct kern_batch b = {0};
        engine_batch_add(e, &b, s, ids + begin, n, begin);
        rc = forward_trunk(e->forward, &b, NULL, 0, FORWARD_LOGITS, what->layers && last ? n - 1 : -1, err);
        if (!rc) {
            memcpy(s->tokens + begin, ids + begin, (size_t)n * sizeof *ids);
            s->seq.n_pos += n;
        }
        for (int32_t i = 0; !rc && what->layers && last && i < e->config.n_layer; i++)
            forward_read_tap(e->forward, i, what->layer_rows + (size_t)i * e->config.n_embd);
        if (!rc)
            rc = read_rows(e, n, what->logits + (size_t)begin * e->config.n_vocab,
                           hidden ? hidden + (size_t)begin * e->config.n_embd : NULL, err);
    }
    if (!rc && mtp)
        rc = run_mtp(s, ids, n_ids, hidden, what->mtp_logits, err);
    mem_free(hidden);
    return rc;
}
