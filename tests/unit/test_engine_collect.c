/* Activation statistics against sums taken in other ways: the first block's input computed from the embedding, activated rows read where
 * SWIGLU leaves them, routed experts against the router's own input. And what the header promises: totals that depend on the chunks alone,
 * that a failure leaves as they were, and that a file gives back. */
#include <math.h>

#include "engine_model.h"

#include "base/mem.h"
#include "engine/collect.h"
#include "quant/quant.h"

#define N_IDS 70
#define MAX_COLUMNS 4096

static int32_t ids[2 * N_IDS];

/* ---- the rows that SWIGLU makes, seen by a device that runs lists op by op ---- */

static const struct dev_ops *plain_ops;
static double activated[64][2][MAX_COLUMNS]; /* by layer: routed pairs or dense; shared expert */
static int n_swiglu[64];

static int run_watched(struct dev *d, const struct kern_op *ops, int n_ops, const struct kern_batch *batch, skua_error *err)
{
    for (int i = 0; i < n_ops; i++) {
        int rc = plain_ops->run(d, &ops[i], 1, batch, err);
        if (rc)
            return rc;
        if (ops[i].code != KERN_SWIGLU)
            continue;
        const struct op_swiglu *p = &ops[i].p.swiglu;
        for (int r = 0; r < p->n_rows; r++)
            for (int c = 0; c < p->n; c++) {
                double x = ((const float *)kern_ptr(p->h))[(size_t)r * p->h_stride + c];
                activated[ops[i].layer][n_swiglu[ops[i].layer]][c] += x * x;
            }
        n_swiglu[ops[i].layer]++;
    }
    return 0;
}

/* ---- helpers ---- */

struct run {
    skua_engine *e;
    skua_session *s;
    struct collect *c;
};

static struct run begin(const char *model, int n_threads, bool output)
{
    skua_engine_params p = {.n_threads = n_threads};
    struct run r = {.e = model_open(model, &p)};
    skua_error err = {0};
    r.s = session_open(r.e, N_IDS);
    if (collect_create(r.e, output, &r.c, &err)) {
        printf("%s\n", err.message);
        exit(1);
    }
    return r;
}

static void end(struct run *r)
{
    collect_free(r->c);
    skua_session_free(r->s);
    skua_engine_close(r->e);
}

static void chunk(struct run *r, int i)
{
    skua_error err = {0};
    int rc = collect_chunk(r->c, r->s, ids + i * N_IDS, N_IDS, NULL, NULL, &err);
    CHECK(rc == 0, "chunk %d: %s", i, err.message);
    CHECK(!r->e->dev->observer, "still watched");
}

static struct imatrix *saved(struct run *r, const char *name)
{
    struct imatrix_source source = {.chunks = 1, .chunk_size = N_IDS, .dataset = "ids"};
    struct imatrix *m = NULL;
    skua_error err = {0};
    int rc = collect_save(r->c, support_temp(name), &source, &err);
    CHECK(rc == 0, "%s", err.message);
    rc = imatrix_open(&m, support_temp(name), &err);
    CHECK(rc == 0, "%s", err.message);
    if (!m)
        exit(1);
    return m;
}

static const struct imatrix_entry *entry(const struct imatrix *m, int block, const char *role)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s.weight", block, role);
    const struct imatrix_entry *e = imatrix_find(m, name, strlen(name));
    CHECK(e, "no entry %s", name);
    if (!e)
        exit(1);
    return e;
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-6 * fabs(b); }

/* Sum over experts. */
static double total(const struct imatrix_entry *e, int64_t column)
{
    double sum = 0;
    for (int64_t k = 0; k < e->matrices; k++)
        sum += e->sums[k * e->columns + column];
    return sum;
}

static double rows(const struct imatrix_entry *e)
{
    double sum = 0;
    for (int64_t k = 0; k < e->matrices; k++)
        sum += e->counts[k];
    return sum;
}

static void same_sums(const struct imatrix *m, int block, const char *a, const char *b)
{
    const struct imatrix_entry *x = entry(m, block, a), *y = entry(m, block, b);
    size_t n = (size_t)(x->columns * x->matrices) * sizeof *x->sums;
    bool alike = x->columns == y->columns && x->matrices == y->matrices;
    CHECK(alike && !memcmp(x->sums, y->sums, n), "block %d: %s and %s differ", block, a, b);
}

/* ---- values ---- */

/* The first block's input is the norm of the embedding. */
static void check_first(const struct run *r, const struct imatrix *m)
{
    const struct model_config *c = &r->e->config;
    const struct kern_weight *table = &r->e->weights.embed;
    const float *w = kern_ptr(r->e->weights.blocks[0].attn_norm);
    const struct imatrix_entry *e = entry(m, 0, r->e->weights.blocks[0].recurrent ? "attn_qkv" : "attn_q");
    double *sum = calloc((size_t)c->n_embd, sizeof *sum);
    float *x = malloc((size_t)c->n_embd * sizeof *x);
    for (int i = 0; i < N_IDS; i++) {
        double squares = 0;
        const uint8_t *row = (const uint8_t *)kern_ptr(table->data) + (size_t)ids[i] * qtype_row_bytes(table->type, (uint64_t)c->n_embd);
        dequant_row(table->type, row, x, c->n_embd);
        for (int k = 0; k < c->n_embd; k++)
            squares += (double)x[k] * x[k];
        for (int k = 0; k < c->n_embd; k++)
            sum[k] += pow(x[k] / sqrt(squares / c->n_embd + c->rms_eps) * w[k], 2);
    }
    CHECK(e->columns == c->n_embd && e->counts[0] == N_IDS, "%lld columns, %g rows", (long long)e->columns, e->counts[0]);
    for (int k = 0; k < c->n_embd; k++)
        CHECK(near(e->sums[k], sum[k]), "column %d: %.9g, expected %.9g", k, (double)e->sums[k], sum[k]);
    free(sum);
    free(x);
}

static void check_block(const struct run *r, const struct imatrix *m, int i)
{
    const struct model_config *c = &r->e->config;
    if (r->e->weights.blocks[i].recurrent) {
        same_sums(m, i, "attn_qkv", "attn_gate");
        same_sums(m, i, "attn_qkv", "ssm_alpha");
        same_sums(m, i, "attn_qkv", "ssm_beta");
        CHECK(rows(entry(m, i, "ssm_out")) == N_IDS, "rows of ssm_out");
    } else {
        same_sums(m, i, "attn_q", "attn_k");
        same_sums(m, i, "attn_q", "attn_v");
        CHECK(rows(entry(m, i, "attn_output")) == N_IDS, "rows of attn_output");
    }
    const struct imatrix_entry *down = entry(m, i, c->moe ? "ffn_down_exps" : "ffn_down");
    for (int k = 0; k < down->columns; k++)
        CHECK(near(total(down, k), activated[i][0][k]), "block %d: down column %d: %g", i, k, total(down, k));
    if (!c->moe) {
        same_sums(m, i, "ffn_gate", "ffn_up");
        return;
    }
    same_sums(m, i, "ffn_gate_exps", "ffn_up_exps");
    same_sums(m, i, "ffn_gate_inp", "ffn_gate_shexp");
    same_sums(m, i, "ffn_gate_inp", "ffn_up_shexp");
    same_sums(m, i, "ffn_gate_inp", "ffn_gate_inp_shexp");
    const struct imatrix_entry *router = entry(m, i, "ffn_gate_inp"), *experts = entry(m, i, "ffn_gate_exps"),
                               *shared = entry(m, i, "ffn_down_shexp");
    CHECK(experts->matrices == c->n_expert && rows(experts) == N_IDS * c->n_expert_used && rows(down) == rows(experts), "rows of experts");
    for (int k = 0; k < c->n_embd; k++) /* every row goes to n_expert_used of them */
        CHECK(near(total(experts, k), c->n_expert_used * (double)router->sums[k]), "block %d: experts' column %d", i, k);
    for (int k = 0; k < c->n_expert; k++)
        CHECK(experts->counts[k] == down->counts[k], "expert %d: %g rows, down %g", k, experts->counts[k], down->counts[k]);
    for (int k = 0; k < shared->columns; k++)
        CHECK(near(shared->sums[k], activated[i][1][k]), "block %d: shared column %d", i, k);
}

static void test_values(const char *model)
{
    struct run r = begin(model, 2, true);
    struct dev_ops watched = *r.e->dev->ops;
    plain_ops = r.e->dev->ops;
    watched.run = run_watched;
    memset(activated, 0, sizeof activated);
    memset(n_swiglu, 0, sizeof n_swiglu);
    r.e->dev->ops = &watched;
    chunk(&r, 0);
    r.e->dev->ops = plain_ops;
    struct imatrix *m = saved(&r, "values.gguf");
    CHECK(imatrix_count(m) == collect_tensors(r.c), "%u entries", imatrix_count(m));
    check_first(&r, m);
    for (int i = 0; i < r.e->config.n_layer; i++)
        check_block(&r, m, i);
    const char *head = r.e->weights.tied ? "token_embd.weight" : "output.weight";
    const struct imatrix_entry *e = imatrix_find(m, head, strlen(head));
    CHECK(e && e->counts[0] == N_IDS && e->columns == r.e->config.n_embd, "%s", head);
    for (uint32_t i = 0; i < imatrix_count(m); i++) /* nothing of an MTP block */
        CHECK(strncmp(imatrix_at(m, i)->name, "blk.", 4) || atoi(imatrix_at(m, i)->name + 4) < r.e->config.n_layer, "%s",
              imatrix_at(m, i)->name);
    imatrix_free(m);
    end(&r);
}

/* ---- promises ---- */

static char *bytes_of(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *b = malloc(16 << 20);
    if (!f || !b)
        exit(1);
    *n = fread(b, 1, 16 << 20, f);
    fclose(f);
    return b;
}

static void same_files(const char *a, const char *b)
{
    size_t na, nb;
    char *x = bytes_of(support_temp(a), &na), *y = bytes_of(support_temp(b), &nb);
    CHECK(na == nb && !memcmp(x, y, na), "%s and %s differ", a, b);
    free(x);
    free(y);
}

static bool stop_at_once(void *user, int32_t n_done, int32_t n_total)
{
    (void)user;
    (void)n_done;
    (void)n_total;
    return false;
}

/* Two chunks in one go with two threads; with one thread and a break, with failures before and between. */
static void test_resume(const char *model, bool output)
{
    skua_error err = {0};
    struct run r = begin(model, 2, output);
    chunk(&r, 0);
    chunk(&r, 1);
    imatrix_free(saved(&r, "whole.gguf"));
    end(&r);

    int32_t wrong[3] = {1, 2, -1};
    r = begin(model, 1, output);
    CHECK(collect_chunk(r.c, r.s, wrong, 3, NULL, NULL, &err) == SKUA_EARG, "%s", err.message);
    chunk(&r, 0);
    CHECK(collect_chunk(r.c, r.s, wrong, 3, NULL, NULL, &err) == SKUA_EARG, "%s", err.message);
    imatrix_free(saved(&r, "half.gguf"));
    end(&r);

    skua_engine_params p = {.n_threads = 1, .max_rows = 32}; /* three passes a chunk */
    r = (struct run){.e = model_open(model, &p)};
    r.s = session_open(r.e, N_IDS);
    CHECK(collect_create(r.e, output, &r.c, &err) == 0, "%s", err.message);
    struct imatrix *m = NULL;
    CHECK(imatrix_open(&m, support_temp("half.gguf"), &err) == 0, "%s", err.message);
    CHECK(collect_resume(r.c, m, &err) == 0, "%s", err.message);
    imatrix_free(m);
    CHECK(collect_chunk(r.c, r.s, ids, N_IDS, stop_at_once, NULL, &err) == SKUA_ECANCELED, "not stopped");
    chunk(&r, 1);
    imatrix_free(saved(&r, "resumed.gguf"));
    same_files("whole.gguf", "resumed.gguf");
    uint64_t n, unseen;
    collect_seen(r.c, &n, &unseen);
    CHECK(n >= collect_tensors(r.c) && unseen < n, "%llu of %llu", (unsigned long long)unseen, (unsigned long long)n);
    end(&r);
}

/* Another model's file; one with more; the older format. */
static void test_resume_refused(const char *model, const char *other)
{
    static const uint8_t legacy[] = {1, 0, 0, 0, 1, 0, 0, 0, 'x', 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0x80, 0x3F};
    skua_error err = {0};
    struct imatrix *m;
    struct run r = begin(model, 1, false), o = begin(other, 1, false), more = begin(model, 1, true);
    m = saved(&o, "other.gguf");
    CHECK(collect_resume(r.c, m, &err) == SKUA_EFORMAT && SAYS(&err, SKUA_EFORMAT, "blk.0."), "%s", err.message);
    imatrix_free(m);
    m = saved(&more, "more.gguf");
    CHECK(collect_resume(r.c, m, &err) == SKUA_EFORMAT && SAYS(&err, SKUA_EFORMAT, "entries, expected"), "%s", err.message);
    imatrix_free(m);
    CHECK(imatrix_parse_memory(&m, legacy, sizeof legacy, "x.dat", &err) == 0, "%s", err.message);
    CHECK(collect_resume(r.c, m, &err) == SKUA_EFORMAT, "%s", err.message);
    imatrix_free(m);
    end(&r);
    end(&o);
    end(&more);
}

/* A NaN in a norm's weights reaches the inputs behind it: named, and not added. */
static void test_not_finite(const char *model)
{
    struct edit_model m;
    edit_load(&m, model);
    struct edit_tensor *t = edit_find(&m, "blk.1.post_attention_norm.weight");
    float *w = malloc(t->size);
    memcpy(w, t->data, t->size);
    w[3] = NAN;
    edit_own(t, w, t->size);
    const char *path = edit_write(&m, "nan.gguf");
    edit_unload(&m);
    struct run r = begin(path, 1, false);
    skua_error err = {0};
    CHECK(collect_chunk(r.c, r.s, ids, N_IDS, NULL, NULL, &err) == SKUA_ESTATE && SAYS(&err, SKUA_ESTATE, "blk.1.ffn_", "column 3"), "%s",
          err.message);
    uint64_t n, unseen;
    collect_seen(r.c, &n, &unseen);
    CHECK(n == unseen, "added all the same");
    end(&r);
}

int main(void)
{
    static const char *const names[] = {"tiny-q8_0.gguf", "tiny-bf16.gguf", "tiny-moe-q8_0.gguf"};
    static char model[3][4096];
    for (int i = 0; i < 2 * N_IDS; i++)
        ids[i] = (int32_t)((uint32_t)i * 2654435761u >> 20) % 4000;
    for (int i = 0; i < 3; i++) {
        const char *path = support_model(names[i]);
        if (!path)
            continue;
        snprintf(model[i], sizeof model[i], "%s", path);
        test_values(model[i]);
        test_resume(model[i], i == 0);
    }
    if (*model[0])
        test_not_finite(model[0]);
    if (*model[0] && *model[2]) {
        test_resume_refused(model[0], model[2]);
        test_resume_refused(model[2], model[0]);
    }
    return support_finish("test_engine_collect");
}
