/* Sequence memory; see seq.h. */
#include "model/seq.h"

#include "base/mem.h"

int seq_init(struct seq *s, struct dev *d, size_t state_bytes, size_t page_bytes, skua_error *err)
{
    *s = (struct seq){.dev = d, .page_bytes = page_bytes};
    return d->ops->buf_alloc(d, state_bytes, &s->state, err); /* new memory is zero */
}

static void free_pages(struct seq *s)
{
    for (int32_t i = 0; i < s->n_pages; i++)
        s->dev->ops->buf_free(s->dev, s->pages[i]);
    s->n_pages = s->first_page = 0;
}

void seq_free(struct seq *s)
{
    if (!s->dev)
        return;
    free_pages(s);
    mem_free(s->pages);
    s->dev->ops->buf_free(s->dev, s->state);
    s->dev->ops->buf_free(s->dev, s->tape);
    *s = (struct seq){0};
}

int seq_reserve(struct seq *s, int32_t n_pos, skua_error *err)
{
    int32_t need = n_pos / KV_PAGE_ROWS + (n_pos % KV_PAGE_ROWS != 0);
    if (need > s->cap_pages) {
        int32_t cap = s->cap_pages ? s->cap_pages : 8;
        while (cap < need)
            cap *= 2;
        struct kern_buf **p = mem_realloc_array(s->pages, (size_t)cap, sizeof *p);
        if (!p)
            return error_nomem(err, "KV page table", (size_t)cap * sizeof *p);
        s->pages = p;
        s->cap_pages = cap;
    }
    while (s->n_pages < need) {
        if (s->n_pages < s->first_page) {
            s->pages[s->n_pages++] = NULL;
            continue;
        }
        int rc = s->dev->ops->buf_alloc(s->dev, s->page_bytes, &s->pages[s->n_pages], err);
        if (rc)
            return rc;
        s->n_pages++;
    }
    return 0;
}

void seq_release(struct seq *s, int32_t first_pos)
{
    for (; s->first_page < first_pos / KV_PAGE_ROWS; s->first_page++)
        if (s->first_page < s->n_pages) {
            s->dev->ops->buf_free(s->dev, s->pages[s->first_page]);
            s->pages[s->first_page] = NULL;
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
    const size_t pages = s->n_pages > s->first_page ? (size_t)(s->n_pages - s->first_page) : 0;
    return (s->state ? s->state->size : 0) + (s->tape ? s->tape->size : 0) + pages * s->page_bytes;
}
