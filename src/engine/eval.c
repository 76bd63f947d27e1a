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
        return f->want == SKUA_LOGITS_ARGMAX_ALL || (f->want == SKUA_LOGITS_ARGMAX && index == f->n_ids - 1);
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
        int32_t index;
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
            w->to[w->n].index = index;
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
        skua_feed *feed = w->to[i].feed;
        if (w->kind == FORWARD_LOGITS) {
            const size_t row = feed->want == SKUA_LOGITS_ALL ? (size_t)w->to[i].index : 0;
            forward_read_logits(f, i, feed->logits + row * (size_t)w->n_vocab);
            continue;
        }
        const struct kern_best best = forward_read_best(f, i);
        const bool all = feed->want == SKUA_LOGITS_ARGMAX_ALL;
        *(all ? &feed->best_ids[w->to[i].index] : &feed->best_id) = best.column;
        *(all ? &feed->best_logits[w->to[i].index] : &feed->best_logit) = best.value;
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

/* What the last pass kept of n rows from batch row `row` on, the first of which is the session's token at position pos. */
static void tell_rows(skua_session *s, int32_t row, int32_t n, int32_t pos)
{
    skua_engine *e = s->engine;
    if (!e->on_rows)
        return;
    const struct forward_capture c = forward_captured(e->forward);
    struct draft_rows rows = {.ids = s->tokens + pos, .n = n, .pos = pos, .taps = c.taps, .hidden = c.hidden,
                              .taps_stride = c.taps_stride, .hidden_stride = c.hidden_stride};
    if (rows.taps.buf)
        rows.taps.offset += (size_t)row * (size_t)c.taps_stride * sizeof(float);
    if (rows.hidden.buf)
        rows.hidden.offset += (size_t)row * (size_t)c.hidden_stride * sizeof(float);
    e->on_rows(e->on_rows_user, s, &rows);
}

/* The sessions hold the rows of a pass, or keep them apart until skua_commit; held rows without results (failed) are forgotten. */
static void append(const struct share *shares, int32_t n_shares, bool failed)
{
    for (int32_t i = 0; i < n_shares; i++) {
        skua_feed *f = shares[i].feed;
        skua_session *s = f->session;
        const int32_t n = shares[i].n_rows, pos = s->seq.n_pos;
        if (f->hold && failed)
            continue;
        memcpy(s->tokens + pos, f->ids + f->n_done, (size_t)n * sizeof *f->ids);
        f->n_done += n;
        if (f->hold) {
            s->n_held = n;
            s->held_row = shares[i].row_begin;
            s->engine->n_pending++;
            continue;
        }
        s->seq.n_pos += n;
        tell_rows(s, shares[i].row_begin, n, pos);
    }
}

int engine_prepare_feed(const skua_feed *f, skua_error *err)
{
    int rc = engine_prepare(f->session, f->ids, f->n_ids, err);
    if (!rc && f->hold && f->n_ids > SKUA_HOLD_MAX)
        rc = error_set(err, SKUA_EARG, "%d tokens to hold; at most %d are possible", f->n_ids, SKUA_HOLD_MAX);
    if (!rc && f->hold)
        rc = seq_reserve_tape(&f->session->seq, f->n_ids, config_tape_row_bytes(&f->session->engine->config), err);
    return rc;
}

/* Everything that can be refused, before anything is evaluated. */
static int prepare_feeds(skua_engine *e, skua_feed *feeds, int32_t n_feeds, int64_t *total, skua_error *err)
{
    bool held = false;
    *total = 0;
    for (int32_t i = 0; i < n_feeds; i++)
        feeds[i].n_done = 0;
    for (int32_t i = 0; i < n_feeds; i++) {
        skua_feed *f = &feeds[i];
        for (int32_t k = 0; k < i; k++)
            if (feeds[k].session == f->session)
                return error_set(err, SKUA_EARG, "one session twice in a batch");
        int rc = engine_prepare_feed(f, err);
        if (rc)
            return rc;
        *total += f->n_ids;
        held |= f->hold;
    }
    if (held && (*total > e->max_rows || n_feeds > ENGINE_PASS_SESSIONS))
        return error_set(err, SKUA_EARG, "%lld tokens of %d sessions together with held ones; one pass takes %d of %d", (long long)*total,
                         n_feeds, e->max_rows, ENGINE_PASS_SESSIONS);
    return 0;
}

int skua_eval(skua_engine *e, skua_feed *feeds, int32_t n_feeds, skua_progress *progress, void *user, skua_error *err)
{
    int64_t total, done = 0;
    int rc = prepare_feeds(e, feeds, n_feeds, &total, err);
    if (rc)
        return rc;
    while (done < total) {
        struct share shares[ENGINE_PASS_SESSIONS];
        struct kern_batch b = {0};
        int32_t n = 0;
        for (int32_t i = 0; i < n_feeds && b.n_rows < e->max_rows && n < ENGINE_PASS_SESSIONS; i++) {
            int32_t room = e->max_rows - b.n_rows, left = feeds[i].n_ids - feeds[i].n_done;
            if (!left)
                continue;
            shares[n] = (struct share){&feeds[i], b.n_rows, left < room ? left : room};
            engine_batch_add(e, &b, feeds[i].session, feeds[i].ids + feeds[i].n_done, shares[n].n_rows, feeds[i].session->seq.n_pos);
            e->seqs[n].tape = feeds[i].hold ? feeds[i].session->seq.tape : NULL;
            n++;
        }
        bool advanced;
        rc = run_pass(e, &b, shares, n, &advanced, err);
        if (advanced)
            append(shares, n, rc != 0);
        if (rc)
            return rc;
        done += b.n_rows;
        if (progress && done < total && !progress(user, (int32_t)done, (int32_t)total))
            return error_set(err, SKUA_ECANCELED, "stopped after %lld of %lld tokens", (long long)done, (long long)total);
    }
    return 0;
}

int skua_commit(skua_session *s, int32_t n_keep, skua_error *err)
{
    skua_engine *e = s->engine;
    const int32_t pos = s->seq.n_pos;
    if (s->lost)
        return engine_session_settled(s, "commit", err);
    if (!s->n_held)
        return error_set(err, SKUA_ESTATE, "commit: no tokens of the session are held");
    if (n_keep < 0 || n_keep > s->n_held)
        return error_set(err, SKUA_EARG, "commit of %d tokens; expected 0 to the %d that are held", n_keep, s->n_held);
    s->n_held = 0;
    e->n_pending--;
    if (!n_keep)
        return 0;
    const struct kern_seq seq = {.n_rows = n_keep, .pos_begin = pos, .state = s->seq.state, .tape = s->seq.tape};
    const struct kern_batch b = {.n_rows = n_keep, .n_seqs = 1, .seqs = &seq};
    int rc = forward_commit(e->forward, &b, err);
    if (rc) {
        s->lost = true;
        return rc;
    }
    s->seq.n_pos += n_keep;
    tell_rows(s, s->held_row, n_keep, pos);
    return 0;
}
