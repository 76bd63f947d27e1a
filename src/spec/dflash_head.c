/* The head of a drafter: whose rows, which of them, and what tokens they stand for. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "spec/dflash_file_internal.h"

#define MAX_LIST_BYTES (64u << 20)
#define ALIGN(n) (((n) + 63) & ~(size_t)63)

static bool bit(const uint64_t *words, int64_t i)
{
    return words[i / 64] >> (i % 64) & 1;
}

/* The ids of a list as a bitmap of n_vocab bits; the caller's. */
static int read_list(const char *path, int32_t n_vocab, uint64_t **out, skua_error *err)
{
    const size_t words = ((size_t)n_vocab + 63) / 64;
    char *text = NULL;
    size_t size;
    int rc = file_read_all(path, MAX_LIST_BYTES, &text, &size, err), line = 1;
    uint64_t *wanted = rc ? NULL : mem_calloc(words, sizeof *wanted);
    bool any = false;
    if (!rc && !wanted)
        rc = error_nomem(err, "list of tokens", words * sizeof *wanted);
    for (const char *p = text; !rc && p < text + size;) {
        const size_t word = strcspn(p, " \t\r\n#");
        char *end;
        if (*p == '#') {
            p += strcspn(p, "\n");
        } else if (word) {
            const unsigned long id = *p >= '0' && *p <= '9' ? strtoul(p, &end, 10) : 0;
            if (*p < '0' || *p > '9' || end != p + word || id >= (unsigned long)n_vocab)
                rc = error_set(err, SKUA_EFORMAT, "%s:%d: '%.*s' is no token of the model, expected numbers from 0 to %d", path, line,
                               word < 40 ? (int)word : 40, p, n_vocab - 1);
            else
                wanted[id / 64] |= (uint64_t)1 << (id % 64);
            any = true;
            p += word;
        } else {
            /* a zero byte is no white space */
            if (!*p)
                rc = error_set(err, SKUA_EFORMAT, "%s:%d: a zero byte, expected numbers in a text", path, line);
            line += *p++ == '\n';
        }
    }
    if (!rc && !any)
        rc = error_set(err, SKUA_EFORMAT, "%s: the list of tokens is empty", path);
    mem_free(text);
    if (rc) {
        mem_free(wanted);
        wanted = NULL;
    }
    *out = wanted;
    return rc;
}

/* What the file says its rows stand for: *map has n entries, or is NULL when there is no tensor d2t. */
static int read_map(struct binder *b, int32_t n_vocab, int32_t **map, int64_t *n)
{
    const struct gguf_tensor *t = bind_find(b, -1, "d2t");
    *map = NULL;
    *n = n_vocab;
    if (!t)
        return 0;
    if ((t->type != QTYPE_I64 && t->type != QTYPE_I32) || t->ne[1] * t->ne[2] * t->ne[3] != 1 || t->ne[0] < 1 ||
        t->ne[0] > (uint64_t)n_vocab)
        return error_set(b->err, SKUA_EFORMAT, "tensor 'd2t' is %s [%llu, %llu, %llu, %llu], expected I64 [n], at most the model's %d "
                         "tokens", qtype_info(t->type)->name, (unsigned long long)t->ne[0], (unsigned long long)t->ne[1],
                         (unsigned long long)t->ne[2], (unsigned long long)t->ne[3], n_vocab);
    *n = (int64_t)t->ne[0];
    *map = mem_realloc_array(NULL, (size_t)*n, sizeof **map);
    if (!*map)
        return error_nomem(b->err, "map of tokens", (size_t)*n * sizeof **map);
    b->n_used++;
    for (int64_t i = 0; i < *n; i++) {
        int64_t id;
        int32_t narrow;
        memcpy(&narrow, t->data + 4 * i, 4);
        id = narrow;
        if (t->type == QTYPE_I64)
            memcpy(&id, t->data + 8 * i, 8);
        if (id < 0 || id >= n_vocab)
            return error_set(b->err, SKUA_EFORMAT, "tensor 'd2t' maps row %lld to token %lld, expected 0 to %d", (long long)i,
                             (long long)id, n_vocab - 1);
        (*map)[i] = (int32_t)id;
    }
    return 0;
}

/* Where rows come from and which are taken. */
struct selection {
    int32_t *rows;  /* [n] of the file's head (of the target's, when the file has none); NULL: all */
    int32_t *ids;   /* [n] tokens; NULL: row i is token i */
    int64_t n;
};

/* Rows of the list among those of the map. */
static int select_rows(const int32_t *map, int64_t n_map, const uint64_t *wanted, struct selection *s, skua_error *err)
{
    s->n = 0;
    for (int64_t i = 0; i < n_map; i++)
        s->n += !wanted || bit(wanted, map ? map[i] : i);
    if (s->n < 1)
        return error_set(err, SKUA_EUNSUPPORTED, "no token of the list is among those that the drafter's head knows");
    s->rows = mem_realloc_array(NULL, (size_t)s->n, sizeof *s->rows);
    s->ids = mem_realloc_array(NULL, (size_t)s->n, sizeof *s->ids);
    if (!s->rows || !s->ids)
        return error_nomem(err, "rows of the head", 2 * (size_t)s->n * sizeof *s->rows);
    for (int64_t i = 0, k = 0; i < n_map; i++)
        if (!wanted || bit(wanted, map ? map[i] : i)) {
            s->rows[k] = (int32_t)i;
            s->ids[k++] = map ? map[i] : (int32_t)i;
        }
    return 0;
}

static size_t rows_bytes(const struct kern_weight *w, int64_t n)
{
    return ALIGN((size_t)n * qtype_row_bytes(w->type, (uint64_t)w->n_in));
}

/* Copy rows of *w to dst, and let *w be them. */
static int gather(struct dev *d, struct kern_weight *w, const int32_t *rows, int64_t n, struct kern_view dst, skua_error *err)
{
    const size_t size = qtype_row_bytes(w->type, (uint64_t)w->n_in);
    void *row = mem_alloc(size);
    if (!row)
        return error_nomem(err, "row of the head", size);
    for (int64_t i = 0; i < n; i++) {
        d->ops->read(d, kern_view_at(w->data, (size_t)rows[i] * size), row, size);
        d->ops->write(d, kern_view_at(dst, (size_t)i * size), row, size);
    }
    mem_free(row);
    w->data = dst;
    w->tiles = (struct kern_view){0}; /* of all rows, if there are any */
    w->n_out = (int32_t)n;
    return 0;
}

/* Which rows, from what the file and the list say: s->rows NULL when the head is used as it is. */
static int select_head(struct binder *b, const struct dflash_target *t, const struct dflash_options *o, int64_t *n_file,
                       struct selection *s)
{
    int32_t *map = NULL;
    uint64_t *wanted = NULL;
    int rc = read_map(b, t->config->n_vocab, &map, n_file);
    if (!rc && o->head_ids_path)
        rc = read_list(o->head_ids_path, t->config->n_vocab, &wanted, b->err);
    s->n = *n_file;
    if (!rc && (map || wanted))
        rc = select_rows(map, *n_file, wanted, s, b->err);
    mem_free(map);
    mem_free(wanted);
    return rc;
}

static void bind_embed(struct binder *b, const struct dflash_target *t, struct dflash_weights *w)
{
    const int64_t e = t->config->n_embd;
    /* files that begin with dflash_fc have both or none; a single one tells that the other was lost */
    const char *const alone = w->own_embed && !w->own_head ? "token_embd.weight" : "output.weight";
    if (!bind_find(b, -1, "fc.weight") && w->own_embed != w->own_head)
        b->rc = error_set(b->err, SKUA_EFORMAT, "tensor '%s' is there, but not '%s'; expected both or none", alone,
                          w->own_embed ? "output.weight" : "token_embd.weight");
    w->embed = t->weights->embed;
    if (w->own_embed)
        bind_lookup(b, -1, "token_embd.weight", e, t->config->n_vocab, 1, &w->embed);
}

/* The rows of DSpark's second matrix: one per row of the file's head, or one per token. */
static void bind_markov_out(struct binder *b, const struct dflash_config *c, int64_t n_file, int64_t n_vocab, struct dflash_weights *w)
{
    const struct gguf_tensor *t = bind_find(b, -1, "markov_w2.weight");
    const bool reduced = t && t->ne[1] == (uint64_t)n_file;
    bind_matrix(b, -1, "markov_w2.weight", c->markov_rank, reduced ? n_file : n_vocab, 1, &w->markov_w2);
}

static int mark_allowed(struct binder *b, const struct dflash_target *t, struct dflash_file *f)
{
    const struct dflash_weights *w = &f->weights;
    bool any = false;
    for (int32_t base = 0; base < w->head.n_out; base += 64) {
        uint64_t word = 0;
        for (int32_t i = base; i < w->head.n_out && i < base + 64; i++) {
            const int32_t id = w->head_ids ? w->head_ids[i] : i;
            if (id != f->config.mask_id && bit(t->samplable, id))
                word |= (uint64_t)1 << (i - base);
        }
        any = any || word;
        b->dev->ops->write(b->dev, kern_view_at(w->allow, (size_t)base / 8), &word, sizeof word);
    }
    return any ? 0 : error_set(b->err, SKUA_EUNSUPPORTED, "the head has no row of a token that the model may choose");
}

int dflash_bind_head(struct binder *b, const struct dflash_target *t, const struct dflash_options *o, struct dflash_file *f)
{
    struct dflash_weights *w = &f->weights;
    struct dflash_config *c = &f->config;
    struct selection s = {0};
    int64_t n_file = 0;
    w->own_embed = bind_find(b, -1, "token_embd.weight") != NULL;
    w->own_head = bind_find(b, -1, "output.weight") != NULL;
    bind_embed(b, t, w);
    if (!b->rc)
        b->rc = select_head(b, t, o, &n_file, &s);
    if (!b->rc) {
        w->head = t->weights->head;
        if (w->own_head)
            bind_matrix(b, -1, "output.weight", c->n_embd, n_file, 1, &w->head);
        if (c->variant == DFLASH_SPARK)
            bind_markov_out(b, c, n_file, t->config->n_vocab, w);
    }
    /* rows are copied only where they are not all of a matrix in its order */
    const bool some = s.rows && s.n < n_file, pick_head = w->own_head ? some : s.rows != NULL;
    const bool w2_by_row = w->markov_w2.n_out == n_file && n_file != t->config->n_vocab;
    const bool pick_w2 = c->variant == DFLASH_SPARK && (w2_by_row ? some : s.rows != NULL);
    const size_t bitmap = ALIGN(((size_t)s.n + 63) / 64 * 8), head = pick_head ? rows_bytes(&w->head, s.n) : 0;
    const size_t size = bitmap + head + (pick_w2 ? rows_bytes(&w->markov_w2, s.n) : 0);
    if (!b->rc)
        b->rc = b->dev->ops->buf_alloc(b->dev, size, &f->own, b->err);
    if (!b->rc) {
        f->bytes += size + (s.ids ? (size_t)s.n * sizeof *s.ids : 0);
        w->allow = (struct kern_view){f->own, 0};
        w->head_ids = s.ids;
        s.ids = NULL;
    }
    if (!b->rc && pick_head)
        b->rc = gather(b->dev, &w->head, w->own_head ? s.rows : w->head_ids, s.n, kern_view_at(w->allow, bitmap), b->err);
    if (!b->rc && pick_w2)
        b->rc = gather(b->dev, &w->markov_w2, w2_by_row ? s.rows : w->head_ids, s.n, kern_view_at(w->allow, bitmap + head), b->err);
    if (!b->rc)
        b->rc = mark_allowed(b, t, f);
    mem_free(s.rows);
    mem_free(s.ids);
    return b->rc;
}
