/* The MTP drafter; see mtp.h.
 *
 * Committed rows wait in a stash, hidden row and following token, until there are WAIT_ROWS of them or a proposal is wanted; then they go
 * through the block in one batch, so that its weights are read once. The last row waits for the token that is not known yet. A proposal
 * runs the waiting rows and (anchor, last row) in the same batch, and the chain's other steps one by one. When the anchor is committed,
 * its slot is done already.
 *
 * Invariant, unless lost: slots 0 .. kv.n_pos - 1 are done, the stash holds the rows of positions kv.n_pos .. n_pos - 1. */
#include "spec/mtp.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/seq.h"
#include "spec/candidates.h"

#define WAIT_ROWS 64

struct mtp {
    struct drafter base;
    struct mtp_model m;
    struct seq kv;           /* n_pos: slots done */

    struct kern_buf *rows;   /* stash: [cap][n_embd] */
    int32_t *next;           /* [cap] the token behind row i; of the last row -1, until it is known */
    int32_t cap, n_rows;
    int32_t anchor;          /* token of the slot behind kv.n_pos, which the last proposal has done; -1: none */

    int32_t *pos, *seq;      /* [max_rows] of a batch; seq is all 0 */
    int32_t *index;          /* [cap] 0, 1, 2, ... */
};

/* What save writes, followed by pages (if whole), int32_t next[n_rows] and float rows[n_rows][n_embd]. */
struct saved {
    char magic[8];
    uint64_t page_bytes;
    int32_t n_pos, n_rows, n_embd;
    int32_t whole; /* 0: without pages; k: with those of the slots done, from number k - 1 on */
};
static const char saved_magic[8] = "mtp1";

static struct mtp *mtp_of(struct drafter *d) { return (struct mtp *)d; }

static size_t row_bytes(const struct mtp *m) { return (size_t)m->m.config->n_embd * sizeof(float); }

static struct kern_view row_at(const struct mtp *m, int32_t i)
{
    return (struct kern_view){m->rows, (size_t)i * row_bytes(m)};
}

/* Rows from one place to another on the device. */
static int copy_rows(struct mtp *m, struct kern_view from, int32_t stride, int32_t to, int32_t n, skua_error *err)
{
    int32_t n_embd = m->m.config->n_embd;
    const struct kern_batch b = {.n_rows = n}; /* GET_ROWS looks at nothing of it */
    const struct kern_op op = {.code = KERN_GET_ROWS, .layer = -1, .role = "mtp_rows", .p.get_rows = {
        .in = from, .out = row_at(m, to), .in_stride = stride, .out_stride = n_embd, .n = n_embd, .n_get = n, .rows = m->index}};
    return m->m.dev->ops->run(m->m.dev, &op, 1, &b, err);
}

/* The block over n slots from slot begin on; n_top not 0: and the head's best tokens for the last of them. */
static int run_slots(struct mtp *m, int32_t begin, const int32_t *tokens, struct kern_view hidden, int32_t n, int32_t n_top,
                     skua_error *err)
{
    const struct kern_seq seq = {.n_rows = n, .pos_begin = begin, .state = m->kv.state, .kv_pages = m->kv.pages,
                                 .n_kv_pages = m->kv.n_pages};
    const struct kern_batch b = {.n_rows = n, .n_seqs = 1, .token = tokens, .pos = m->pos, .seq = m->seq, .seqs = &seq};
    const int32_t last = n - 1;
    for (int32_t i = 0; i < n; i++)
        m->pos[i] = begin + i;
    return forward_mtp(m->m.forward, m->m.weights, &b, hidden, m->m.config->n_embd, &last, n_top ? 1 : 0, n_top, err);
}

/* Do the slots of the first n rows of the stash, whose next tokens are known. */
static int do_slots(struct mtp *m, int32_t n, int32_t n_top, skua_error *err)
{
    int rc = seq_reserve(&m->kv, m->kv.n_pos + n, err);
    for (int32_t done = 0, step; done < n && !rc; done += step) {
        step = n - done < m->m.max_rows ? n - done : m->m.max_rows;
        rc = run_slots(m, m->kv.n_pos + done, m->next + done, row_at(m, done), step, done + step == n ? n_top : 0, err);
    }
    return rc;
}

/* Leave only the last row, which waits for its token. */
static int settle(struct mtp *m, skua_error *err)
{
    int rc = m->n_rows > 1 ? copy_rows(m, row_at(m, m->n_rows - 1), m->m.config->n_embd, 0, 1, err) : 0;
    if (!rc) {
        m->kv.n_pos += m->n_rows - 1;
        m->n_rows = 1;
        m->next[0] = -1;
    }
    return rc;
}

static int lose(struct mtp *m, int rc)
{
    m->base.lost = m->base.lost || rc;
    return rc;
}

static int stash(struct mtp *m, const struct draft_rows *r, int32_t begin, int32_t n, skua_error *err)
{
    const int32_t *ids = r->ids + begin;
    if (m->n_rows)
        m->next[m->n_rows - 1] = ids[0];
    if (m->n_rows == 1 && m->anchor == ids[0]) { /* its slot is done */
        m->kv.n_pos++;
        m->n_rows = 0;
    }
    m->anchor = -1;
    int rc = copy_rows(m, kern_view_at(r->hidden, (size_t)begin * (size_t)r->hidden_stride * sizeof(float)), r->hidden_stride, m->n_rows, n,
                       err);
    if (rc)
        return rc;
    memcpy(m->next + m->n_rows, ids + 1, (size_t)(n - 1) * sizeof *ids);
    m->n_rows += n;
    m->next[m->n_rows - 1] = -1;
    m->base.n_pos += n;
    if (m->n_rows <= WAIT_ROWS)
        return 0;
    rc = do_slots(m, m->n_rows - 1, 0, err);
    return rc ? rc : settle(m, err);
}

static int mtp_extend(struct drafter *d, const struct draft_rows *r, skua_error *err)
{
    struct mtp *m = mtp_of(d);
    if (r->pos != d->n_pos || r->n < 1 || !r->hidden.buf)
        return lose(m, error_set(err, SKUA_EARG, "%d rows from position %d, %s hidden rows; the MTP block expects rows with them from "
                                 "position %d", r->n, r->pos, r->hidden.buf ? "with" : "without", d->n_pos));
    if (d->lost) {
        d->n_pos += r->n;
        return 0;
    }
    int rc = 0;
    for (int32_t done = 0, step; done < r->n && !rc; done += step) {
        step = r->n - done < m->m.max_rows ? r->n - done : m->m.max_rows;
        rc = stash(m, r, done, step, err);
    }
    return lose(m, rc);
}

/* Draft number out->n out of what the head found best for the last row run. False: nothing that could be drafted. */
static bool choose(const struct mtp *m, const struct draft_request *q, int32_t n_top, struct draft *out)
{
    const int32_t *ids = m->m.weights->ids, i = out->n;
    struct kern_best top[MTP_SAMPLED];
    double score[MTP_SAMPLED];
    float p[MTP_SAMPLED];
    int32_t n = 0, at = 0;
    forward_read_top(m->m.forward, 0, n_top, top);
    for (; n < n_top && top[n].column >= 0; n++)
        score[n] = (double)top[n].value;
    if (n == 0 || !isfinite(score[0]))
        return false;
    out->n_top[i] = 0;
    if (q->temperature > 0.0) {
        candidates_softmax(score, n, q->temperature, out->top_p[i]);
        at = candidates_draw(out->top_p[i], n, rng_uniform(q->seed, (uint64_t)m->base.n_pos + 1 + (uint64_t)i, DRAFT_DRAW));
        for (int32_t k = 0; k < n; k++)
            out->top_ids[i][k] = ids ? ids[top[k].column] : top[k].column;
        out->n_top[i] = n;
    }
    candidates_softmax(score, n < MTP_TOP ? n : MTP_TOP, 1.0, p);
    out->ids[i] = ids ? ids[top[at].column] : top[at].column;
    out->confidence[i] = at < MTP_TOP ? p[at] : 0.0f;
    out->n++;
    return true;
}

static int draft_chain(struct mtp *m, const struct draft_request *q, int32_t n_max, struct draft *out, skua_error *err)
{
    const int32_t slot = m->base.n_pos - 1, n_top = q->temperature > 0.0 ? MTP_SAMPLED : MTP_TOP; /* slot of (anchor, last row) */
    int rc = seq_reserve(&m->kv, slot + n_max, err);
    if (rc)
        return rc;
    m->next[m->n_rows - 1] = q->anchor;
    rc = do_slots(m, m->n_rows, n_top, err);
    if (!rc)
        rc = settle(m, err);
    if (rc)
        return rc;
    m->anchor = q->anchor;
    while (choose(m, q, n_top, out) && out->n < n_max && !rc)
        rc = run_slots(m, slot + out->n, &out->ids[out->n - 1], forward_out_hidden(m->m.forward), 1, n_top, err);
    return rc;
}

static int mtp_propose(struct drafter *d, const struct draft_request *q, struct draft *out, skua_error *err)
{
    struct mtp *m = mtp_of(d);
    out->n = 0;
    out->match = 0;
    if (d->lost || !d->n_pos || q->n_max < 1)
        return 0;
    return lose(m, draft_chain(m, q, q->n_max < d->n_max ? q->n_max : d->n_max, out, err));
}

static void mtp_reset(struct drafter *d)
{
    struct mtp *m = mtp_of(d);
    seq_reset(&m->kv);
    m->n_rows = d->n_pos = 0;
    m->anchor = -1;
    d->lost = false;
}

static bool mtp_truncate(struct drafter *d, int32_t n)
{
    struct mtp *m = mtp_of(d);
    if (n >= d->n_pos)
        return !d->lost;
    m->anchor = -1;
    d->n_pos = n;
    if (n == 0) {
        m->kv.n_pos = m->n_rows = 0;
        d->lost = false;
    } else if (!d->lost && n > m->kv.n_pos) {
        m->n_rows = n - m->kv.n_pos;
    } else { /* the slots before it are there, but not the hidden row of its last position */
        m->kv.n_pos = n - 1 < m->kv.n_pos ? n - 1 : m->kv.n_pos;
        m->n_rows = 0;
        d->lost = true;
    }
    return !d->lost;
}

/* The pages that follow are numbers begin .. end - 1. */
static int32_t saved_begin(const struct saved *s) { return s->whole ? s->whole - 1 : 0; }

static int32_t saved_end(const struct saved *s) { return s->whole ? seq_pages(s->n_pos - s->n_rows) : 0; }

static size_t saved_size(const struct mtp *m, const struct saved *s)
{
    const size_t pages = (size_t)(saved_end(s) - saved_begin(s)) * m->kv.page_bytes;
    return sizeof *s + pages + (size_t)s->n_rows * (sizeof *m->next + row_bytes(m));
}

/* Slots stay when a session goes back, so that only the rows that wait have to be kept. */
static struct saved describe(const struct mtp *m)
{
    struct saved s = {.page_bytes = m->kv.page_bytes, .n_pos = m->base.n_pos, .n_rows = m->n_rows, .n_embd = m->m.config->n_embd,
                      .whole = m->base.save_whole ? m->base.save_from + 1 : 0};
    memcpy(s.magic, saved_magic, sizeof s.magic);
    return s;
}

static size_t mtp_save_size(const struct drafter *d)
{
    const struct mtp *m = (const struct mtp *)d;
    const struct saved s = describe(m);
    return d->lost || !m->n_rows ? 0 : saved_size(m, &s);
}

static void mtp_save(const struct drafter *d, void *dst)
{
    const struct mtp *m = (const struct mtp *)d;
    const struct saved s = describe(m);
    struct dev *dev = m->m.dev;
    char *p = dst;
    if (d->lost || !m->n_rows)
        return;
    memcpy(p, &s, sizeof s);
    p += sizeof s;
    for (int32_t i = saved_begin(&s); i < saved_end(&s); i++, p += m->kv.page_bytes)
        dev->ops->read(dev, (struct kern_view){m->kv.pages[i], 0}, p, m->kv.page_bytes);
    memcpy(p, m->next, (size_t)m->n_rows * sizeof *m->next);
    dev->ops->read(dev, row_at(m, 0), p + (size_t)m->n_rows * sizeof *m->next, (size_t)m->n_rows * row_bytes(m));
}

static int check_saved(const struct mtp *m, const struct saved *s, int32_t n, const char *src, size_t size, skua_error *err)
{
    if (size < sizeof *s || memcmp(s->magic, saved_magic, sizeof s->magic) || s->n_embd != m->m.config->n_embd ||
        s->page_bytes != m->kv.page_bytes || s->n_pos != n || s->n_rows < 1 || s->n_rows > n || s->n_rows > m->cap || s->whole < 0 ||
        saved_begin(s) > (n - s->n_rows) / KV_PAGE_ROWS || size != saved_size(m, s))
        return error_set(err, SKUA_EFORMAT, "the MTP drafter's saved state is not of this drafter at position %d", n);
    const int32_t before = s->whole ? saved_begin(s) * KV_PAGE_ROWS : n - s->n_rows;
    if (m->kv.n_pos < before)
        return error_set(err, SKUA_ESTATE, "the MTP drafter's saved state at position %d needs what was computed before; %d of %d rows are "
                         "there", n, m->kv.n_pos, before);
    for (int32_t i = 0; i + 1 < s->n_rows; i++) { /* the last row's is not known yet */
        int32_t token;
        memcpy(&token, src + size - (size_t)s->n_rows * (sizeof token + row_bytes(m)) + (size_t)i * sizeof token, sizeof token);
        if (token < 0 || token >= m->m.config->n_vocab)
            return error_set(err, SKUA_EFORMAT, "the MTP drafter's saved state holds token %d, expected 0 to %d", token,
                             m->m.config->n_vocab - 1);
    }
    return 0;
}

static int fill(struct mtp *m, const struct saved *s, const char *p, skua_error *err)
{
    struct dev *dev = m->m.dev;
    const int32_t done = s->n_pos - s->n_rows;
    m->kv.n_pos = s->whole ? saved_begin(s) * KV_PAGE_ROWS : done; /* others may hold pages behind it: they are not written */
    int rc = seq_reserve(&m->kv, done, err);
    if (rc)
        return rc;
    for (int32_t i = saved_begin(s); i < saved_end(s); i++, p += m->kv.page_bytes)
        dev->ops->write(dev, (struct kern_view){m->kv.pages[i], 0}, p, m->kv.page_bytes);
    memcpy(m->next, p, (size_t)s->n_rows * sizeof *m->next);
    dev->ops->write(dev, row_at(m, 0), p + (size_t)s->n_rows * sizeof *m->next, (size_t)s->n_rows * row_bytes(m));
    m->n_rows = s->n_rows;
    m->kv.n_pos = done;
    m->base.lost = false;
    return 0;
}

static int mtp_load(struct drafter *d, int32_t n, const void *src, size_t size, skua_error *err)
{
    struct mtp *m = mtp_of(d);
    struct saved s = {.whole = 0};
    if (size >= sizeof s)
        memcpy(&s, src, sizeof s);
    /* a session that was ahead may have all of it still */
    if (!s.whole && n <= d->n_pos && (mtp_truncate(d, n) || !size))
        return 0;
    d->n_pos = n;
    d->lost = true;
    m->n_rows = 0;
    m->anchor = -1;
    if (!size)
        return 0;
    int rc = check_saved(m, &s, n, src, size, err);
    return rc ? rc : fill(m, &s, (const char *)src + sizeof s, err);
}

const struct seq *mtp_cache(const struct drafter *d) { return &((const struct mtp *)d)->kv; }

static size_t mtp_bytes(const struct drafter *d)
{
    const struct mtp *m = (const struct mtp *)d;
    return sizeof *m + seq_bytes(&m->kv) + m->rows->size + (2 * (size_t)m->cap + 2 * (size_t)m->m.max_rows) * sizeof(int32_t);
}

static void mtp_free(struct drafter *d)
{
    struct mtp *m = mtp_of(d);
    seq_free(&m->kv);
    m->m.dev->ops->buf_free(m->m.dev, m->rows);
    mem_free(m->next);
    mem_free(m->pos);
    mem_free(m->seq);
    mem_free(m->index);
    mem_free(m);
}

static const struct drafter_ops mtp_ops = {
    .kind = "mtp", .extend = mtp_extend, .propose = mtp_propose, .truncate = mtp_truncate, .save_size = mtp_save_size, .save = mtp_save,
    .load = mtp_load, .reset = mtp_reset, .bytes = mtp_bytes, .free = mtp_free,
};

static int allocate(struct mtp *m, skua_error *err)
{
    const size_t cap = (size_t)m->cap, rows = (size_t)m->m.max_rows;
    int rc = seq_init(&m->kv, m->m.dev, 0, config_mtp_page_bytes(m->m.config, m->m.kv_type), err);
    if (!rc)
        rc = m->m.dev->ops->buf_alloc(m->m.dev, cap * row_bytes(m), &m->rows, err);
    if (rc)
        return rc;
    m->next = mem_calloc(cap, sizeof *m->next);
    m->index = mem_calloc(cap, sizeof *m->index);
    m->pos = mem_calloc(rows, sizeof *m->pos);
    m->seq = mem_calloc(rows, sizeof *m->seq);
    if (!m->next || !m->index || !m->pos || !m->seq)
        return error_nomem(err, "MTP drafter", 2 * (cap + rows) * sizeof *m->next);
    for (int32_t i = 0; i < m->cap; i++)
        m->index[i] = i;
    return 0;
}

int mtp_create(const struct mtp_model *model, struct drafter **out, skua_error *err)
{
    *out = NULL;
    if (!model->weights->present)
        return error_set(err, SKUA_ESTATE, "the model has no MTP block");
    struct mtp *m = mem_calloc(1, sizeof *m);
    if (!m)
        return error_nomem(err, "MTP drafter", sizeof *m);
    m->base = (struct drafter){.ops = &mtp_ops, .n_max = MTP_MAX_DRAFTS, .needs = {.hidden = true}};
    snprintf(m->base.name, sizeof m->base.name, "%s", model->name);
    m->base.kv = &m->kv;
    m->m = *model;
    m->cap = WAIT_ROWS + model->max_rows;
    m->anchor = -1;
    int rc = allocate(m, err);
    if (rc) {
        mtp_free(&m->base);
        return rc;
    }
    *out = &m->base;
    return 0;
}
