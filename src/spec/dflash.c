/* Drafters of the DFlash family; see dflash.h. */
#include "spec/dflash.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "quant/quant.h"
#include "quant/type.h"
#include "spec/candidates.h"

struct dflash_drafter {
    struct drafter base;
    struct dflash *f;
    struct seq seq;          /* context; its n_pos positions are computed */
    struct kern_buf *stash;  /* [DFLASH_STASH_ROWS] what the target kept of the n_stash positions behind them */
    int32_t n_stash;
    int32_t window;          /* dflash_window */
    int32_t rows[DFLASH_STASH_ROWS]; /* 0, 1, ... */
    float *scratch;          /* DFlash2: rows of the codebooks and of the selector's matrix, rank floats each */
    void *packed;            /* one codebook row as the file has it */
};

/* What save writes before pages and stash. */
struct saved {
    char magic[8];
    uint64_t page_bytes, row_bytes; /* of a page; of a stashed row */
    int32_t n_pos, n_stash, first_page, n_pages;
};
static const char saved_magic[8] = "dflash1";

static struct dflash_drafter *self(struct drafter *d) { return (struct dflash_drafter *)d; }

static int32_t row_width(const struct dflash *f) { return dflash_config_of(f)->n_taps * dflash_config_of(f)->n_embd; }

static size_t row_bytes(const struct dflash *f) { return (size_t)row_width(f) * sizeof(float); }

/* ---- context ---- */

/* The first position that a block at pos sees. */
static int32_t first_seen(const struct dflash_drafter *d, int32_t pos)
{
    return d->window && pos >= d->window ? pos - d->window + 1 : 0;
}

static int compute(struct dflash_drafter *d, struct kern_view taps, int32_t stride, int32_t n, skua_error *err)
{
    int rc = dflash_context(d->f, &d->seq, taps, stride, n, err);
    if (rc)
        return rc;
    if (d->window && d->seq.n_pos > DFLASH_SLACK_ROWS)
        seq_release(&d->seq, first_seen(d, d->seq.n_pos - DFLASH_SLACK_ROWS));
    return 0;
}

static int flush(struct dflash_drafter *d, skua_error *err)
{
    const int32_t before = d->seq.n_pos, n = d->n_stash;
    if (!n)
        return 0;
    const int rc = compute(d, (struct kern_view){d->stash, 0}, row_width(d->f), n, err);
    d->n_stash = rc ? n : 0;
    if (rc)
        d->seq.n_pos = before;
    return rc;
}

static int put_by(struct dflash_drafter *d, const struct draft_rows *rows, skua_error *err)
{
    struct dev *dev = dflash_dev(d->f);
    const int32_t width = row_width(d->f);
    struct kern_op op = {.code = KERN_GET_ROWS, .layer = -1, .role = "stash"};
    op.p.get_rows = (struct op_get_rows){.in = rows->taps, .out = {d->stash, (size_t)d->n_stash * row_bytes(d->f)},
                                         .in_stride = rows->taps_stride, .out_stride = width, .n = width, .n_get = rows->n,
                                         .rows = d->rows};
    const struct kern_batch none = {.n_rows = 1};
    const int rc = dev->ops->run(dev, &op, 1, &none, err);
    d->n_stash += rc ? 0 : rows->n;
    return rc;
}

static int extend(struct drafter *base, const struct draft_rows *rows, skua_error *err)
{
    struct dflash_drafter *d = self(base);
    int rc = 0;
    if (base->lost || !rows->n)
        return 0;
    if (rows->pos != base->n_pos || !rows->taps.buf)
        rc = error_set(err, SKUA_ESTATE, "a drafter at position %d was given rows from position %d%s", base->n_pos, rows->pos,
                       rows->taps.buf ? "" : " without what it needs of them");
    if (!rc && d->n_stash + rows->n > DFLASH_STASH_ROWS)
        rc = flush(d, err);
    if (!rc)
        rc = rows->n > DFLASH_STASH_ROWS ? compute(d, rows->taps, rows->taps_stride, rows->n, err) : put_by(d, rows, err);
    if (rc)
        base->lost = true;
    else
        base->n_pos += rows->n;
    return rc;
}

static bool truncate(struct drafter *base, int32_t n)
{
    struct dflash_drafter *d = self(base);
    if (base->lost || n >= base->n_pos)
        return !base->lost;
    if (first_seen(d, n) / KV_PAGE_ROWS < d->seq.first_page) {
        base->lost = true;
        return false;
    }
    base->n_pos = n;
    d->n_stash = n > d->seq.n_pos ? n - d->seq.n_pos : 0;
    d->seq.n_pos = n < d->seq.n_pos ? n : d->seq.n_pos;
    return true;
}

static void reset(struct drafter *base)
{
    struct dflash_drafter *d = self(base);
    seq_reset(&d->seq);
    d->n_stash = 0;
    base->n_pos = 0;
    base->lost = false;
}

/* ---- proposals ---- */

/* Draft i out of its candidates. conf: the candidates' softmax says something about acceptance. */
static void choose(const struct choice *c, const struct draft_request *q, int32_t pos, bool conf, struct draft *out)
{
    const int32_t i = out->n++;
    int32_t at;
    float p[DRAFT_MAX_TOP];
    if (q->temperature > 0.0) {
        candidates_softmax(c->score, c->n, q->temperature, out->top_p[i]);
        memcpy(out->top_ids[i], c->ids, (size_t)c->n * sizeof *c->ids);
        out->n_top[i] = c->n;
        at = candidates_draw(out->top_p[i], c->n, rng_uniform(q->seed, (uint64_t)pos, DRAFT_DRAW));
    } else {
        at = candidates_best(c->ids, c->score, c->n);
    }
    out->ids[i] = c->ids[at];
    out->confidence[i] = -1.0f;
    if (conf) {
        candidates_softmax(c->score, c->n, 1.0, p);
        out->confidence[i] = p[at];
    }
}

static void codebook_row(struct dflash_drafter *d, const struct kern_weight *w, int32_t id, float *out)
{
    const size_t bytes = qtype_row_bytes(w->type, (uint64_t)w->n_in);
    struct dev *dev = dflash_dev(d->f);
    dev->ops->read(dev, kern_view_at(w->data, (size_t)id * bytes), d->packed, bytes);
    dequant_row(w->type, d->packed, out, w->n_in);
    for (int32_t r = 0; r < w->n_in && w->scale.buf; r++)
        out[r] *= kern_scale(w, 0);
}

/* The scores of candidates behind the token prev. */
static void select_scores(struct dflash_drafter *d, int32_t i, int32_t prev, struct choice *c)
{
    const struct dflash_weights *w = dflash_weights_of(d->f);
    const int32_t rank = dflash_config_of(d->f)->selector_rank;
    float *pred = d->scratch, *hidden = pred + rank, *succ = hidden + rank;
    double unary[DRAFT_MAX_TOP];
    memcpy(unary, c->score, sizeof unary);
    codebook_row(d, &w->selector_pred, prev, pred);
    dflash_read_selector(d->f, i, hidden);
    for (int32_t k = 0; k < c->n; k++)
        codebook_row(d, &w->selector_succ, c->ids[k], succ + (int64_t)k * rank);
    candidates_select(pred, hidden, succ, unary, c->n, rank, c->score);
}

/* DSpark: every draft moves the logits behind it. */
static int chain(struct dflash_drafter *d, const struct draft_request *q, int32_t n, struct draft *out, skua_error *err)
{
    struct dspark *s = dflash_spark(d->f);
    int rc = dspark_begin(s, dflash_hidden(d->f), n, err);
    for (int32_t i = 0, prev = q->anchor; i < n && !rc; i++, prev = out->ids[i - 1]) {
        struct dspark_step step;
        rc = dspark_step(s, i, prev, q->temperature > 0.0 ? DFLASH_SAMPLED : 1, &step, err);
        if (rc || !step.choice.n || (step.confidence >= 0.0f && step.confidence < q->min_confidence))
            break;
        choose(&step.choice, q, d->base.n_pos + 1 + i, false, out);
        out->confidence[i] = step.confidence;
    }
    return rc;
}

static int propose(struct drafter *base, const struct draft_request *q, struct draft *out, skua_error *err)
{
    struct dflash_drafter *d = self(base);
    const struct dflash_config *c = dflash_config_of(d->f);
    const bool selects = c->selector_rank > 0, chains = c->variant == DFLASH_SPARK;
    out->n = out->match = 0;
    memset(out->n_top, 0, sizeof out->n_top);
    const int32_t n = q->n_max < base->n_max ? q->n_max : base->n_max, shortest = c->anchor_first ? n : n + 1;
    if (base->lost || n < 1)
        return 0;
    const int32_t trained = c->block_size < DFLASH_BLOCK_ROWS ? c->block_size : DFLASH_BLOCK_ROWS;
    const struct dflash_block block = {.anchor = q->anchor, .n_rows = q->full_block ? trained : shortest, .n_out = n,
                                       .k = chains ? 0 : selects ? c->selector_top_k : q->temperature > 0.0 ? DFLASH_SAMPLED : 1};
    int rc = flush(d, err);
    if (!rc)
        rc = dflash_block(d->f, &d->seq, &block, err);
    if (!rc && chains)
        rc = chain(d, q, n, out, err);
    if (rc) {
        out->n = 0;
        base->lost = true;
        return rc;
    }
    for (int32_t i = 0, prev = q->anchor; i < n && !chains; i++, prev = out->ids[i - 1]) {
        struct choice choice;
        choice.n = dflash_candidates(d->f, i, choice.ids, choice.score);
        if (!choice.n)
            break;
        if (selects)
            select_scores(d, i, prev, &choice);
        choose(&choice, q, base->n_pos + 1 + i, selects, out);
    }
    return 0;
}

/* ---- keeping ---- */

/* Pages that a block at n_pos sees, or would after being truncated as far as it can be, without those that the caller keeps. */
static struct saved layout(const struct dflash_drafter *d)
{
    const struct seq *s = &d->seq;
    struct saved h = {.page_bytes = dflash_page_bytes(d->f), .row_bytes = row_bytes(d->f), .n_pos = s->n_pos, .n_stash = d->n_stash,
                      .first_page = d->window ? first_seen(d, s->n_pos) / KV_PAGE_ROWS : d->base.save_from};
    memcpy(h.magic, saved_magic, sizeof h.magic);
    h.n_pages = seq_pages(s->n_pos) - h.first_page;
    return h;
}

static size_t saved_bytes(const struct saved *h)
{
    return sizeof *h + (size_t)h->n_pages * h->page_bytes + (size_t)h->n_stash * h->row_bytes;
}

/* Without windows truncate brings everything back, as long as the session lives. */
static size_t save_size(const struct drafter *base)
{
    const struct dflash_drafter *d = (const struct dflash_drafter *)base;
    if (base->lost || (!d->window && !base->save_whole))
        return 0;
    const struct saved h = layout(d);
    return saved_bytes(&h);
}

static void save(const struct drafter *base, void *dst)
{
    const struct dflash_drafter *d = (const struct dflash_drafter *)base;
    struct dev *dev = dflash_dev(d->f);
    const struct saved h = layout(d);
    char *at = dst;
    memcpy(at, &h, sizeof h);
    at += sizeof h;
    for (int32_t i = 0; i < h.n_pages; i++, at += h.page_bytes)
        dev->ops->read(dev, (struct kern_view){d->seq.pages[h.first_page + i], 0}, at, h.page_bytes);
    dev->ops->read(dev, (struct kern_view){d->stash, 0}, at, (size_t)h.n_stash * h.row_bytes);
}

static int check_saved(const struct dflash_drafter *d, const struct saved *h, int32_t n, size_t size, skua_error *err)
{
    const bool sound = memcmp(h->magic, saved_magic, sizeof h->magic) == 0 && h->page_bytes == dflash_page_bytes(d->f) &&
                       h->row_bytes == row_bytes(d->f) && h->n_pos >= 0 && h->n_stash >= 0 && h->n_stash <= DFLASH_STASH_ROWS &&
                       h->n_pos <= INT32_MAX - DFLASH_CONTEXT_ROWS && h->n_pos + h->n_stash == n && h->first_page >= 0 &&
                       (d->window ? h->first_page == first_seen(d, h->n_pos) / KV_PAGE_ROWS : h->first_page <= h->n_pos / KV_PAGE_ROWS) &&
                       h->n_pages == seq_pages(h->n_pos) - h->first_page && size == saved_bytes(h);
    if (!sound)
        return error_set(err, SKUA_EFORMAT, "the drafter's saved state is not of this drafter at position %d", n);
    if (!d->window && d->seq.n_pos < h->first_page * KV_PAGE_ROWS)
        return error_set(err, SKUA_ESTATE, "the drafter's saved state at position %d needs what was computed before; %d of %d rows are "
                         "there", n, d->seq.n_pos, h->first_page * KV_PAGE_ROWS);
    return 0;
}

static int load(struct drafter *base, int32_t n, const void *src, size_t size, skua_error *err)
{
    struct dflash_drafter *d = self(base);
    struct dev *dev = dflash_dev(d->f);
    struct saved h = {0};
    const char *at = (const char *)src + sizeof h;
    if (size >= sizeof h)
        memcpy(&h, src, sizeof h);
    int rc = check_saved(d, &h, n, size, err);
    if (rc)
        return rc;
    if (d->window) {
        reset(base);
        seq_release(&d->seq, h.first_page * KV_PAGE_ROWS);
    } else
        d->seq.n_pos = h.first_page * KV_PAGE_ROWS; /* others may hold pages behind it: they are not written */
    base->lost = false;
    rc = seq_reserve(&d->seq, h.n_pos, err);
    if (rc) {
        base->lost = true;
        return rc;
    }
    for (int32_t i = 0; i < h.n_pages; i++, at += h.page_bytes)
        dev->ops->write(dev, (struct kern_view){d->seq.pages[h.first_page + i], 0}, at, h.page_bytes);
    dev->ops->write(dev, (struct kern_view){d->stash, 0}, at, (size_t)h.n_stash * h.row_bytes);
    d->seq.n_pos = h.n_pos;
    d->n_stash = h.n_stash;
    base->n_pos = n;
    return 0;
}

static size_t bytes(const struct drafter *base)
{
    const struct dflash_drafter *d = (const struct dflash_drafter *)base;
    return sizeof *d + seq_bytes(&d->seq) + DFLASH_STASH_ROWS * row_bytes(d->f);
}

static void free_drafter(struct drafter *base)
{
    if (!base)
        return;
    struct dflash_drafter *d = self(base);
    dflash_dev(d->f)->ops->buf_free(dflash_dev(d->f), d->stash);
    seq_free(&d->seq);
    mem_free(d->scratch);
    mem_free(d->packed);
    mem_free(d);
}

#define OPS(variant, variant_kind) \
    static const struct drafter_ops variant = {.kind = variant_kind, .extend = extend, .propose = propose, .truncate = truncate, \
                                               .save_size = save_size, .save = save, .load = load, .reset = reset, .bytes = bytes, \
                                               .free = free_drafter};
OPS(classic_ops, "dflash")
OPS(dflash2_ops, "dflash2")
OPS(dspark_ops, "dspark")

static int allocate_selector(struct dflash_drafter *d, skua_error *err)
{
    const struct dflash_config *c = dflash_config_of(d->f);
    const struct dflash_weights *w = dflash_weights_of(d->f);
    if (!c->selector_rank)
        return 0;
    const size_t floats = (size_t)(DRAFT_MAX_TOP + 2) * (size_t)c->selector_rank;
    const size_t pred = qtype_row_bytes(w->selector_pred.type, (uint64_t)c->selector_rank);
    const size_t succ = qtype_row_bytes(w->selector_succ.type, (uint64_t)c->selector_rank);
    d->scratch = mem_alloc(floats * sizeof *d->scratch);
    d->packed = mem_alloc(pred > succ ? pred : succ);
    return d->scratch && d->packed ? 0 : error_nomem(err, "selector", floats * sizeof *d->scratch);
}

int dflash_drafter(struct dflash *f, const char *name, struct drafter **out, skua_error *err)
{
    *out = NULL;
    const struct dflash_config *c = dflash_config_of(f);
    struct dflash_drafter *d = mem_calloc(1, sizeof *d);
    if (!d)
        return error_nomem(err, "drafter", sizeof *d);
    d->f = f;
    d->window = dflash_window(f);
    const struct drafter_ops *const ops[] = {[DFLASH_CLASSIC] = &classic_ops, [DFLASH_2] = &dflash2_ops, [DFLASH_SPARK] = &dspark_ops};
    d->base = (struct drafter){.ops = ops[c->variant], .n_max = dflash_max_drafts(c),
                               .block = true, .needs = {.taps = c->taps, .n_taps = c->n_taps}};
    snprintf(d->base.name, sizeof d->base.name, "%s", name);
    for (int32_t i = 0; i < DFLASH_STASH_ROWS; i++)
        d->rows[i] = i;
    d->base.kv = d->window ? NULL : &d->seq;
    int rc = seq_init(&d->seq, dflash_dev(f), 0, dflash_page_bytes(f), err);
    if (!rc)
        rc = dflash_dev(f)->ops->buf_alloc(dflash_dev(f), DFLASH_STASH_ROWS * row_bytes(f), &d->stash, err);
    if (!rc)
        rc = allocate_selector(d, err);
    if (rc) {
        free_drafter(&d->base);
        return rc;
    }
    *out = &d->base;
    return 0;
}
