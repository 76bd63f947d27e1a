/* Sequence memory; see seq.h. */
#include "model/seq.h"

#include "base/mem.h"

int seq_init(struct seq *s, struct dev *d, size_t state_bytes, size_t page_bytes, skua_error *err)
{
    *s = (struct seq){.dev = d, .page_bytes = page_bytes};
    return d->ops->buf_alloc(d, state_bytes, &s->state, err); /* new memory is zero */
}

/* ---- pages ---- */

static int new_page(struct seq *s, struct seq_page **out, skua_error *err)
{
    struct seq_page *p = mem_alloc(sizeof *p);
    if (!p)
        return error_nomem(err, "KV page", sizeof *p);
    *p = (struct seq_page){.n_seqs = 1};
    int rc = s->dev->ops->buf_alloc(s->dev, s->page_bytes, &p->buf, err);
    if (rc) {
        mem_free(p);
        return rc;
    }
    *out = p;
    return 0;
}

static void free_unheld(struct dev *d, struct seq_page *p)
{
    if (p->n_seqs || p->n_kept)
        return;
    d->ops->buf_free(d, p->buf);
    mem_free(p);
}

static void hold_page(struct seq_page *p)
{
    if (p->n_kept && !p->n_seqs)
        p->keeper->idle -= p->buf->size;
    p->n_seqs++;
}

static void unhold_page(struct dev *d, struct seq_page *p)
{
    if (!p)
        return;
    p->n_seqs--;
    if (p->n_kept && !p->n_seqs)
        p->keeper->idle += p->buf->size;
    free_unheld(d, p);
}

void seq_page_keep(struct seq_page *p, struct seq_keeper *k)
{
    if (p->n_kept++)
        return;
    p->keeper = k;
    k->bytes += p->buf->size;
    k->idle += p->n_seqs ? 0 : p->buf->size;
}

void seq_page_drop(struct dev *d, struct seq_page *p)
{
    if (!--p->n_kept) {
        p->keeper->bytes -= p->buf->size;
        p->keeper->idle -= p->n_seqs ? 0 : p->buf->size;
        p->keeper = NULL;
    }
    free_unheld(d, p);
}

static void set_page(struct seq *s, int32_t i, struct seq_page *p)
{
    s->held[i] = p;
    s->pages[i] = p ? p->buf : NULL;
}

static void free_pages(struct seq *s)
{
    for (int32_t i = 0; i < s->n_pages; i++)
        unhold_page(s->dev, s->held[i]);
    s->n_pages = s->first_page = 0;
}

void seq_free(struct seq *s)
{
    if (!s->dev)
        return;
    free_pages(s);
    mem_free(s->pages);
    mem_free(s->held);
    s->dev->ops->buf_free(s->dev, s->state);
    s->dev->ops->buf_free(s->dev, s->tape);
    *s = (struct seq){0};
}

static int grow_table(struct seq *s, int32_t need, skua_error *err)
{
    if (need <= s->cap_pages)
        return 0;
    int32_t cap = s->cap_pages ? s->cap_pages : 8;
    while (cap < need)
        cap *= 2;
    struct kern_buf **pages = mem_realloc_array(s->pages, (size_t)cap, sizeof *pages);
    s->pages = pages ? pages : s->pages;
    struct seq_page **held = pages ? mem_realloc_array(s->held, (size_t)cap, sizeof *held) : NULL;
    s->held = held ? held : s->held;
    if (!pages || !held)
        return error_nomem(err, "KV page table", (size_t)cap * (sizeof *pages + sizeof *held));
    s->cap_pages = cap;
    return 0;
}

static bool is_shared(const struct seq_page *p) { return p && (p->n_seqs > 1 || p->n_kept); }

/* Its own page in place of a shared one, with the rows before the sequence's end. */
static int own_page(struct seq *s, int32_t i, skua_error *err)
{
    struct seq_page *p;
    int rc = new_page(s, &p, err);
    if (rc)
        return rc;
    if (s->n_pos > i * KV_PAGE_ROWS)
        s->dev->ops->copy(s->dev, (struct kern_view){p->buf, 0}, (struct kern_view){s->pages[i], 0}, s->page_bytes);
    unhold_page(s->dev, s->held[i]);
    set_page(s, i, p);
    return 0;
}

int seq_reserve(struct seq *s, int32_t n_pos, skua_error *err)
{
    const int32_t need = seq_pages(n_pos);
    int rc = grow_table(s, need, err);
    for (int32_t i = s->n_pos / KV_PAGE_ROWS; !rc && n_pos > s->n_pos && i < need && i < s->n_pages; i++)
        if (is_shared(s->held[i]))
            rc = own_page(s, i, err);
    while (!rc && s->n_pages < need) {
        struct seq_page *p = NULL;
        rc = s->n_pages < s->first_page ? 0 : new_page(s, &p, err);
        if (!rc)
            set_page(s, s->n_pages++, p);
    }
    return rc;
}

int seq_adopt(struct seq *s, struct seq_page *const *pages, int32_t n_pages, skua_error *err)
{
    int rc = grow_table(s, n_pages, err);
    if (rc)
        return rc;
    for (int32_t i = 0; i < n_pages; i++) {
        if (pages[i])
            hold_page(pages[i]);
        set_page(s, s->n_pages++, pages[i]);
    }
    return 0;
}

void seq_release(struct seq *s, int32_t first_pos)
{
    for (; s->first_page < first_pos / KV_PAGE_ROWS; s->first_page++)
        if (s->first_page < s->n_pages) {
            unhold_page(s->dev, s->held[s->first_page]);
            set_page(s, s->first_page, NULL);
        }
}

int seq_reserve_tape(struct seq *s, int32_t n_rows, size_t row_bytes, skua_error *err)
{
    if (n_rows <= s->tape_rows)
        return 0;
    int32_t rows = 4;
    while (rows < n_rows)
        rows *= 2;
    struct kern_buf *tape;
    int rc = s->dev->ops->buf_alloc(s->dev, (size_t)rows * row_bytes, &tape, err);
    if (rc)
        return rc;
    s->dev->ops->buf_free(s->dev, s->tape);
    s->tape = tape;
    s->tape_rows = rows;
    return 0;
}

void seq_reset(struct seq *s)
{
    free_pages(s);
    s->dev->ops->clear(s->dev, (struct kern_view){s->state, 0}, s->state->size);
    s->n_pos = 0;
}

size_t seq_bytes(const struct seq *s)
{
    size_t bytes = (s->state ? s->state->size : 0) + (s->tape ? s->tape->size : 0);
    for (int32_t i = s->first_page; i < s->n_pages; i++)
        bytes += s->page_bytes / (size_t)s->held[i]->n_seqs;
    return bytes;
}
