/* Collecting activation statistics; see collect.h. */
#include "engine/collect.h"

#include <float.h>
#include <string.h>

#include "base/mem.h"

/* Memory for logits, which the output head is watched by asking for. */
#define LOGITS_BYTES (64u << 20)

/* One weight matrix. */
struct collected {
    struct kern_view data; /* how ops name it */
    uint32_t tensor;       /* number in the model file */
    char name[GGUF_MAX_NAME_BYTES + 1];
    size_t columns, matrices;
    double *chunk;         /* [matrices][columns] sums of this chunk */
    int64_t *rows;         /* [matrices] of this chunk */
    float *sums, *counts;  /* totals */
};

/* Where the float rows behind a region of quantised rows lie. */
struct source {
    struct kern_view floats, quantised;
    int32_t stride;
};

struct collect {
    skua_engine *engine;
    bool output;
    struct collected *list; /* in the order of the file */
    uint32_t n, cap;
    struct source sources[KERN_ACT_COUNT]; /* by kind: the last QUANT_ACT */
    const char *unknown;    /* role of a matrix of the trunk that is not in the list */
    float *logits;          /* [slice][n_vocab] when the output head is watched */
    int32_t slice;          /* tokens evaluated at a time then */
};

static bool same(struct kern_view a, struct kern_view b) { return a.buf == b.buf && a.offset == b.offset; }

/* ---- the list ---- */

static const struct gguf_tensor *tensor_of(const skua_engine *e, struct kern_view data, uint32_t *index)
{
    for (*index = 0; *index < gguf_tensor_count(e->gguf); ++*index) {
        const struct gguf_tensor *t = gguf_tensor_at(e->gguf, *index);
        if (same(data, (struct kern_view){e->weights.file.shards[t->shard], t->file_offset}))
            return t;
    }
    return NULL;
}

static int add_matrix(struct collect *c, const struct kern_weight *w, skua_error *err)
{
    uint32_t index;
    const struct gguf_tensor *t = w->data.buf ? tensor_of(c->engine, w->data, &index) : NULL;
    if (!t) /* the model has no such matrix */
        return 0;
    if (c->n == c->cap) {
        uint32_t cap = c->cap ? c->cap * 2 : 64;
        struct collected *p = mem_realloc_array(c->list, cap, sizeof *p);
        if (!p)
            return error_nomem(err, "activation statistics", cap * sizeof *p);
        c->list = p;
        c->cap = cap;
    }
    struct collected *m = &c->list[c->n++];
    *m = (struct collected){.data = w->data, .tensor = index, .columns = (size_t)w->n_in, .matrices = (size_t)w->n_expert};
    memcpy(m->name, t->name, t->name_len);
    size_t n = m->columns * m->matrices;
    m->chunk = mem_calloc(n, sizeof *m->chunk);
    m->rows = mem_calloc(m->matrices, sizeof *m->rows);
    m->sums = mem_calloc(n, sizeof *m->sums);
    m->counts = mem_calloc(m->matrices, sizeof *m->counts);
    if (!m->chunk || !m->rows || !m->sums || !m->counts)
        return error_nomem(err, "activation statistics", n * (sizeof *m->chunk + sizeof *m->sums));
    return 0;
}

static int add_block(struct collect *c, const struct block_weights *b, skua_error *err)
{
    const struct ffn_weights *f = &b->ffn;
    const struct kern_weight *all[] = {
        &b->attn_q, &b->attn_k, &b->attn_v, &b->attn_output, &b->qkv, &b->gate, &b->alpha, &b->beta, &b->ssm_out,
        &f->gate, &f->up, &f->down, &f->router, &f->gate_exps, &f->up_exps, &f->gate_up_exps, &f->down_exps,
        &f->shared_gate, &f->shared_up, &f->shared_down, &f->shared_gate_inp,
    };
    int rc = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all && !rc; i++)
        rc = add_matrix(c, all[i], err);
    return rc;
}

static void sort_by_tensor(struct collected *list, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) { /* nearly sorted: blocks come in order */
        struct collected m = list[i];
        uint32_t k = i;
        for (; k > 0 && list[k - 1].tensor > m.tensor; k--)
            list[k] = list[k - 1];
        list[k] = m;
    }
}

int collect_create(skua_engine *e, bool output, struct collect **out, skua_error *err)
{
    *out = NULL;
    struct collect *c = mem_calloc(1, sizeof *c);
    if (!c)
        return error_nomem(err, "activation statistics", sizeof *c);
    c->engine = e;
    c->output = output;
    int rc = 0;
    for (int32_t i = 0; i < e->config.n_layer && !rc; i++)
        rc = add_block(c, &e->weights.blocks[i], err);
    if (!rc && output) {
        size_t row = (size_t)e->config.n_vocab * sizeof *c->logits;
        c->slice = row < LOGITS_BYTES ? (int32_t)(LOGITS_BYTES / row) : 1;
        c->slice = c->slice < e->max_rows ? c->slice : e->max_rows;
        c->logits = mem_alloc((size_t)c->slice * row);
        rc = c->logits ? add_matrix(c, &e->weights.head, err) : error_nomem(err, "logits", (size_t)c->slice * row);
    }
    if (rc) {
        collect_free(c);
        return rc;
    }
    sort_by_tensor(c->list, c->n);
    *out = c;
    return 0;
}

void collect_free(struct collect *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; i < c->n; i++) {
        mem_free(c->list[i].chunk);
        mem_free(c->list[i].rows);
        mem_free(c->list[i].sums);
        mem_free(c->list[i].counts);
    }
    mem_free(c->list);
    mem_free(c->logits);
    mem_free(c);
}

/* ---- watching ---- */

/* The matrix; NULL when it is not collected, which inside of the trunk is a mistake that collect_chunk reports. */
static struct collected *find(struct collect *c, const struct kern_op *op, const struct kern_weight *w)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (same(c->list[i].data, w->data))
            return &c->list[i];
    if (op->layer >= 0)
        c->unknown = op->role;
    return NULL;
}

/* The float rows of an input. */
static const float *floats_of(const struct collect *c, const struct kern_weight *w, struct kern_view x, int32_t *stride)
{
    int kind = c->engine->dev->ops->act_kind(c->engine->dev, w->type);
    if (kind == KERN_ACT_F32)
        return kern_ptr(x);
    const struct source *s = &c->sources[kind];
    if (!s->quantised.buf || !same(s->quantised, x))
        return NULL;
    *stride = s->stride;
    return kern_ptr(s->floats);
}

static void add_row(struct collected *m, size_t matrix, const float *x)
{
    double *sum = m->chunk + matrix * m->columns;
    for (size_t i = 0; i < m->columns; i++)
        sum[i] += (double)x[i] * x[i];
    m->rows[matrix]++;
}

static void watch_matmul(struct collect *c, const struct kern_op *op)
{
    const struct op_matmul *p = &op->p.matmul;
    struct collected *m = find(c, op, &p->w);
    int32_t stride = p->x_stride;
    const float *x = m ? floats_of(c, &p->w, p->x, &stride) : NULL;
    if (m && !x)
        c->unknown = op->role;
    for (int32_t r = 0; r < p->n_rows && x; r++)
        add_row(m, 0, x + (size_t)r * (size_t)stride);
}

static void watch_moe_matmul(struct collect *c, const struct kern_op *op)
{
    const struct op_moe_matmul *p = &op->p.moe_matmul;
    struct collected *m = find(c, op, &p->w);
    int32_t stride = p->x_stride;
    const float *x = m ? floats_of(c, &p->w, p->x, &stride) : NULL;
    if (m && !x)
        c->unknown = op->role;
    const int32_t *begin = kern_ptr(p->group), *pair = begin + p->w.n_expert + 1;
    for (int32_t e = 0; e < p->w.n_expert && x; e++)
        for (int32_t i = begin[e]; i < begin[e + 1]; i++)
            add_row(m, (size_t)e, x + (size_t)(p->x_per_pair ? pair[i] : pair[i] / p->n_used) * (size_t)stride);
}

static void watch(void *user, const struct kern_op *op, const struct kern_batch *batch)
{
    struct collect *c = user;
    (void)batch;
    if (op->code == KERN_QUANT_ACT)
        c->sources[op->p.quant_act.kind] =
            (struct source){.floats = op->p.quant_act.x, .quantised = op->p.quant_act.out, .stride = op->p.quant_act.x_stride};
    else if (op->code == KERN_MATMUL)
        watch_matmul(c, op);
    else if (op->code == KERN_MOE_MATMUL)
        watch_moe_matmul(c, op);
}

/* ---- chunks ---- */

static void clear_chunk(struct collect *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        struct collected *m = &c->list[i];
        memset(m->chunk, 0, m->columns * m->matrices * sizeof *m->chunk);
        memset(m->rows, 0, m->matrices * sizeof *m->rows);
    }
    c->unknown = NULL;
}

static int evaluate(struct collect *c, skua_session *s, const int32_t *ids, int32_t n_ids, skua_progress *progress, void *user,
                    skua_error *err)
{
    if (!c->output) {
        skua_feed feed = {.session = s, .ids = ids, .n_ids = n_ids, .want = SKUA_LOGITS_NONE};
        return skua_eval(c->engine, &feed, 1, progress, user, err);
    }
    for (int32_t done = 0; done < n_ids;) {
        int32_t n = n_ids - done < c->slice ? n_ids - done : c->slice;
        skua_feed feed = {.session = s, .ids = ids + done, .n_ids = n, .want = SKUA_LOGITS_ALL, .logits = c->logits};
        int rc = skua_eval(c->engine, &feed, 1, NULL, NULL, err);
        if (rc)
            return rc;
        done += n;
        if (progress && done < n_ids && !progress(user, done, n_ids))
            return error_set(err, SKUA_ECANCELED, "stopped after %d of %d tokens", done, n_ids);
    }
    return 0;
}

static int check_chunk(const struct collect *c, skua_error *err)
{
    if (c->unknown)
        return error_set(err, SKUA_ESTATE, "the input of matrix '%s' cannot be collected", c->unknown);
    for (uint32_t i = 0; i < c->n; i++) {
        const struct collected *m = &c->list[i];
        for (size_t k = 0; k < m->columns * m->matrices; k++)
            if (!(m->sums[k] + m->chunk[k] <= (double)FLT_MAX))
                return error_set(err, SKUA_ESTATE, "the input of '%s' is not finite in column %zu", m->name, k % m->columns);
    }
    return 0;
}

static void add_chunk(struct collect *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        struct collected *m = &c->list[i];
        for (size_t k = 0; k < m->columns * m->matrices; k++)
            m->sums[k] = (float)(m->sums[k] + m->chunk[k]);
        for (size_t k = 0; k < m->matrices; k++)
            m->counts[k] = (float)((double)m->counts[k] + (double)m->rows[k]);
    }
}

int collect_chunk(struct collect *c, skua_session *s, const int32_t *ids, int32_t n_ids, skua_progress *progress, void *user,
                  skua_error *err)
{
    struct dev *d = c->engine->dev;
    skua_session_reset(s);
    clear_chunk(c);
    d->observer = watch;
    d->observer_user = c;
    int rc = evaluate(c, s, ids, n_ids, progress, user, err);
    d->observer = NULL;
    d->observer_user = NULL;
    if (!rc)
        rc = check_chunk(c, err);
    if (!rc)
        add_chunk(c);
    return rc;
}

/* ---- files ---- */

static int check_entry(const struct collected *m, const struct imatrix_entry *e, skua_error *err)
{
    if (!e)
        return error_set(err, SKUA_EFORMAT, "it has no entry '%s', which this model needs", m->name);
    if (!e->sums)
        return error_set(err, SKUA_EFORMAT, "it is in the older format, which cannot be continued");
    if ((size_t)e->columns != m->columns || (size_t)e->matrices != m->matrices)
        return error_set(err, SKUA_EFORMAT, "entry '%s' has %lld columns and %lld matrices, this model's tensor has %zu and %zu", m->name,
                         (long long)e->columns, (long long)e->matrices, m->columns, m->matrices);
    return 0;
}

int collect_resume(struct collect *c, const struct imatrix *file, skua_error *err)
{
    for (uint32_t i = 0; i < c->n; i++) {
        int rc = check_entry(&c->list[i], imatrix_find(file, c->list[i].name, strlen(c->list[i].name)), err);
        if (rc)
            return rc;
    }
    if (imatrix_count(file) != c->n) /* all of ours are there, so it has others */
        return error_set(err, SKUA_EFORMAT, "it has %u entries, expected %u", imatrix_count(file), c->n);
    for (uint32_t i = 0; i < c->n; i++) {
        struct collected *m = &c->list[i];
        const struct imatrix_entry *e = imatrix_find(file, m->name, strlen(m->name));
        memcpy(m->sums, e->sums, m->columns * m->matrices * sizeof *m->sums);
        for (size_t k = 0; k < m->matrices; k++)
            m->counts[k] = (float)e->counts[k];
    }
    return 0;
}

void collect_seen(const struct collect *c, uint64_t *n_matrices, uint64_t *n_unseen)
{
    *n_matrices = *n_unseen = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        *n_matrices += c->list[i].matrices;
        for (size_t k = 0; k < c->list[i].matrices; k++)
            *n_unseen += !(c->list[i].counts[k] > 0);
    }
}

uint32_t collect_tensors(const struct collect *c) { return c->n; }

int collect_save(const struct collect *c, const char *path, const struct imatrix_source *source, skua_error *err)
{
    struct imatrix_sums *entries = mem_alloc(c->n * sizeof *entries);
    if (!entries)
        return error_nomem(err, path, c->n * sizeof *entries);
    for (uint32_t i = 0; i < c->n; i++) {
        const struct collected *m = &c->list[i];
        entries[i] = (struct imatrix_sums){.name = m->name, .columns = (int64_t)m->columns, .matrices = (int64_t)m->matrices,
                                           .sums = m->sums, .counts = m->counts};
    }
    int rc = imatrix_write(path, entries, c->n, source, err);
    mem_free(entries);
    return rc;
}
