/* Evaluation: the rows of all feeds, packed into forward passes. */
#include <string.h>

#include "engine/engine.h"

int32_t engine_batch_add(skua_engine *e, struct kern_batch *b, skua_session *s, const int32_t *ids, int32_t n_ids, int32_t pos_begin)
{
    e->seqs[b->n_seqs] = (struct kern_seq){.row_begin = b->n_rows, .n_rows = n_ids, .pos_begin = pos_begin, .state = s->seq.state,
                                           .kv_pages = s->seq.pages, .n_kv_pages = s->seq.n_pages};
    for (int32_t i = 0; i < n_ids; i++) {
        int32_t r = b->n_rows + i;
        e->token[r] = ids[i];
        e->pos[r] = pos_begin + i;
        e->seq[r] = b->n_seqs;
    }
    *b = (struct kern_batch){.n_rows = b->n_rows + n_ids, .n_seqs = b->n_seqs + 1, .token = e->token, .pos = e->pos, .seq = e->seq,
                             .seqs = e->seqs};
    return b->n_rows;
}

/* A feed's share of one forward pass. */
struct share {
    skua_feed *feed;
    int32_t row_begin, n_rows;
};

static bool wants_row(const skua_feed *f, int32_t index, enum forward_out kind) /* index into f->ids */
{
    if (kind == FORWARD_BEST)
        return f->want == SKUA_LOGITS_ARGMAX && index == f->n_ids - 1;
    return f->want == SKUA_LOGITS_ALL || (f->want == SKUA_LOGITS_LAST && index == f->n_ids - 1);
}

/* The rows of a pass that the head is still to be run for: first those whose logits are wanted, then those whose best token is. */
struct wanted {
    const struct share *shares;
    int32_t n_shares, n_vocab;
    enum forward_out kind;
    int32_t cursor; /* rows of this kind that were given out */
    int32_t n, rows[FORWARD_MAX_OUT];
    struct {
        skua_feed *feed;
        float *logits;
    } to[FORWARD_MAX_OUT];
};

/* FORWARD_MAX_OUT batch rows of one kind at most, from position cursor on; where each goes. */
static void collect_kind(struct wanted *w)
{
    int32_t seen = 0;
    w->n = 0;
    for (int32_t i = 0; i < w->n_shares; i++) {
        const struct share *sh = &w->shares[i];
        for (int32_t k = 0; k < sh->n_rows; k++) {
            int32_t index = sh->feed->n_done + k;
            if (!wants_row(sh->feed, index, w->kind) || seen++ < w->cursor)
                continue;
            if (w->n == FORWARD_MAX_OUT)
                goto full;
            w->to[w->n].feed = sh->feed;
            w->to[w->n].logits = sh->feed->want == SKUA_LOGITS_ALL ? sh->feed->logits + (size_t)index * w->n_vocab : sh->feed->logits;
            w->rows[w->n++] = sh->row_begin + k;
        }
    }
full:
    w->cursor += w->n;
}

static void collect_out(struct wanted *w)
{
    collect_kind(w);
    if (w->n == 0 && w->kind == FORWARD_LOGITS) {
        w->kind = FORWARD_BEST;
        w->cursor = 0;
        collect_kind(w);
    }
}

static void read_out(struct forward *f, const struct wanted *w)
{
    for (int32_t i = 0; i < w->n; i++) {
        if (w->kind == FORWARD_LOGITS) {
            forward_read_logits(f, i, w->to[i].logits);
            continue;
        }
        struct kern_best best = forward_read_best(f, i);
        w->to[i].feed->best_id = best.column;
        w->to[i].feed->best_logit = best.value;
    }
}

/* *advanced: the sequences hold the rows of the pass, also when the head failed for some of them. */
static int run_pass(skua_engine *e, const struct kern_batch *b, const struct share *shares, int32_t n_shares, bool *advanced,
                    skua_error *err)
{
    struct wanted w = {.shares = shares, .n_shares = n_shares, .n_vocab = e->config.n_vocab};
    collect_out(&w);
    int rc = forward_trunk(e->forward, b, w.rows, w.n, w.kind, -1, err);
    *advanced = !rc;
    while (!rc && w.n) {
        read_out(e->forward, &w);
        collect_out(&w);
        if (w.n)
            rc = forward_head(e->forward, w.rows, w.n, w.kind, err);
    }
    return rc;
}

static void commit(const struct share *shares, int32_t n_shares)
{
    for (int32_t i = 0; i < n_shares; i++) {
        skua_feed *f = shares[i].feed;
        skua_session *s = f->session;
        memcpy(s->tokens + s->seq.n_pos, f->ids + f->n_done, (size_t)shares[i].n_rows * sizeof *f->ids);
        s->seq.n_pos += shares[i].n_rows;
        f->n_done += shares[i].n_rows;
    }
}

int skua_eval(skua_engine *e, skua_feed *feeds, int32_t n_feeds, skua_progress *progress, void *user, skua_error *err)
{
    int64_t total = 0, done = 0;
    for (int32_t i = 0; i < n_feeds; i++)
        feeds[i].n_done = 0;
    for (int32_t i = 0; i < n_feeds; i++) {
        for (int32_t k = 0; k < i; k++)
            if (feeds[k].session == feeds[i].session)
                return error_set(err, SKUA_EARG, "one session twice in a batch");
        int rc = engine_prepare(feeds[i].session, feeds[i].ids, feeds[i].n_ids, err);
        if (rc)
            return rc;
        total += feeds[i].n_ids;
    }
    while (done < total) {
        struct share shares[64];
        struct kern_batch b = {0};
        int32_t n = 0;
        for (int32_t i = 0; i < n_feeds && b.n_rows < e->max_rows && n < 64; i++) {
            int32_t room = e->max_rows - b.n_rows, left = feeds[i].n_ids - feeds[i].n_done;
            if (!left)
                continue;
            shares[n] = (struct share){&feeds[i], b.n_rows, left < room ? left : room};
            engine_batch_add(e, &b, feeds[i].session, feeds[i].ids + feeds[i].n_done, shares[n].n_rows, feeds[i].session->seq.n_pos);
            n++;
        }
        bool advanced;
        int rc = run_pass(e, &b, shares, n, &advanced, err);
        if (advanced)
            commit(shares, n);
        if (rc)
            return rc;
        done += b.n_rows;
        if (progress && done < total && !progress(user, (int32_t)done, (int32_t)total))
            return error_set(err, SKUA_ECANCELED, "stopped after %lld of %lld tokens", (long long)done, (long long)total);
    }
    return 0;
}
