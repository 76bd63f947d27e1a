/* DSpark against tests/support/dspark_reference.py, which computes the same drafter in double: drafts, scores and confidences of both
 * block layouts, with windows, factors of the logits and reduced heads, in reference and in production precision. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "spec/dflash.h"
#include "support/support.h"

#define EMBD 32
#define WIDTH 64 /* of the tapped layers together */
#define VOCAB 40
#define TARGET_LAYERS 5

struct rig {
    struct dev *dev;
    struct dflash_file *file;
    struct dflash *dflash;
    struct drafter *drafter;
    struct kern_buf *rows;
    int32_t n_rows;
};

static const char *data, *answers;

static void must(int rc, const skua_error *err)
{
    if (rc) { /* nothing can be tested without */
        printf("%s\n", err->message);
        exit(1);
    }
}

/* A list of the tokens in a file of the temporary folder; NULL when there is none. */
static const char *list_of(const json_t *ids)
{
    size_t i;
    json_t *id;
    if (!json_is_array(ids))
        return NULL;
    const char *path = support_temp("ids.txt");
    FILE *out = fopen(path, "w");
    json_array_foreach(ids, i, id)
        fprintf(out, "%d\n", (int)json_integer_value(id));
    fclose(out);
    return path;
}

/* The case's drafter on its context, given in pieces of `piece` rows. */
static void rig_open(struct rig *r, const struct kern_table *table, const json_t *c, int32_t piece)
{
    static const uint64_t samplable[1] = {((uint64_t)1 << 38) - 1};
    static const struct model_config model = {.n_embd = EMBD, .n_vocab = VOCAB, .n_layer = TARGET_LAYERS};
    static const struct weights none;
    static const int32_t ids[64];
    const struct dflash_target t = {NULL, &model, &none, samplable};
    struct dflash_options o = DFLASH_DEFAULTS;
    skua_error err = {0};
    const json_t *taps = json_object_get(c, "taps");
    *r = (struct rig){.n_rows = (int32_t)json_array_size(taps)};
    must(dev_cpu_create(table, 1, 1, &r->dev, &err), &err);
    o.head_ids_path = list_of(json_object_get(c, "list"));
    must(dflash_file_open(&r->file, data, &t, &o, r->dev, &err), &err);
    CHECK(r->file->config.variant == DFLASH_SPARK && r->file->config.anchor_first && r->file->config.confidence, "%s", r->file->summary);
    r->file->config.anchor_first = json_is_true(json_object_get(c, "anchor_first"));
    r->file->config.logit_scale = (float)json_number_value(json_object_get(c, "logit_scale"));
    r->file->config.softcap = (float)json_number_value(json_object_get(c, "softcap"));
    must(dflash_create(&r->file->config, &r->file->weights, r->dev, QTYPE_F32, &r->dflash, &err), &err);
    must(dflash_drafter(r->dflash, r->file->summary, &r->drafter, &err), &err);
    must(r->dev->ops->buf_alloc(r->dev, ((size_t)r->n_rows + 1) * WIDTH * sizeof(float), &r->rows, &err), &err);
    for (int32_t i = 0; i < r->n_rows * WIDTH; i++)
        ((float *)r->rows->host)[i] = (float)json_number_value(json_array_get(json_array_get(taps, (size_t)i / WIDTH), (size_t)i % WIDTH));
    for (int32_t i = 0; i < r->n_rows; i += piece) {
        const struct draft_rows rows = {.ids = ids, .n = r->n_rows - i < piece ? r->n_rows - i : piece, .pos = i,
                                        .taps = {r->rows, (size_t)i * WIDTH * sizeof(float)}, .taps_stride = WIDTH};
        must(r->drafter->ops->extend(r->drafter, &rows, &err), &err);
    }
}

static void rig_close(struct rig *r)
{
    r->drafter->ops->free(r->drafter);
    dflash_free(r->dflash);
    dflash_file_close(r->file);
    r->dev->ops->buf_free(r->dev, r->rows);
    r->dev->ops->destroy(r->dev);
}

static struct draft_request request(const json_t *c)
{
    const int32_t n = (int32_t)json_integer_value(json_object_get(c, "n"));
    const int32_t rows = (int32_t)json_integer_value(json_object_get(c, "n_rows"));
    return (struct draft_request){.anchor = (int32_t)json_integer_value(json_object_get(c, "anchor")), .n_max = n, .full_block = rows == 6};
}

static void propose(struct rig *r, const struct draft_request *q, struct draft *out)
{
    skua_error err = {0};
    CHECK(!r->drafter->ops->propose(r->drafter, q, out, &err), "%s", err.message);
}

static double score_of(const json_t *draft, size_t i) { return json_number_value(json_array_get(json_object_get(draft, "score"), i)); }
static int id_of(const json_t *draft, size_t i) { return (int)json_integer_value(json_array_get(json_object_get(draft, "top"), i)); }

static void test_greedy(struct rig *r, const json_t *c, int no)
{
    const json_t *want = json_object_get(c, "drafts");
    struct draft_request q = request(c);
    static struct draft d;
    propose(r, &q, &d);
    CHECK(d.n == (int32_t)json_array_size(want), "case %d: %d drafts", no, d.n);
    for (int32_t i = 0; i < d.n; i++) {
        const json_t *w = json_array_get(want, (size_t)i);
        const double confidence = json_number_value(json_object_get(w, "confidence"));
        CHECK(d.ids[i] == json_integer_value(json_object_get(w, "id")) && d.n_top[i] == 0, "case %d: draft %d is %d", no, i, d.ids[i]);
        CHECK(fabs((double)d.confidence[i] - confidence) < 1e-5, "case %d: confidence %d is %g, expected %g", no, i,
              (double)d.confidence[i], confidence);
    }

    /* a bound between any two confidences: everything before the first draft below it */
    for (int32_t k = 0; k < (int32_t)json_array_size(want); k++) {
        int32_t first = 0;
        static struct draft cut;
        q.min_confidence = (float)json_number_value(json_object_get(json_array_get(want, (size_t)k), "confidence")) + 1e-4f;
        while (first < d.n && d.confidence[first] >= q.min_confidence)
            first++;
        propose(r, &q, &cut);
        CHECK(first <= k && cut.n == first && memcmp(cut.ids, d.ids, (size_t)first * sizeof *d.ids) == 0, "case %d: %d of %d", no, cut.n,
              first);
    }
}

/* Sampled: the first position has the reference's scores, and every draft is drawn from the distribution that is told. */
static void test_sampled(struct rig *r, const json_t *c, int no)
{
    const json_t *first = json_array_get(json_object_get(c, "drafts"), 0);
    const size_t n_top = json_array_size(json_object_get(first, "top"));
    struct draft_request q = request(c);
    static struct draft d, again;
    int32_t greedy = 0;
    q.temperature = 0.5 + score_of(first, 0) - score_of(first, 1); /* so that others than the best are drawn */
    for (q.seed = 0; q.seed < 40; q.seed++) {
        propose(r, &q, &d);
        propose(r, &q, &again);
        CHECK(d.n == q.n_max && memcmp(d.ids, again.ids, (size_t)d.n * sizeof *d.ids) == 0, "case %d: twice the same", no);
        for (int32_t i = 0; i < d.n; i++) {
            double sum = 0.0;
            bool drawn = false;
            for (int32_t k = 0; k < d.n_top[i]; k++) {
                sum += (double)d.top_p[i][k];
                drawn = drawn || (d.top_ids[i][k] == d.ids[i] && d.top_p[i][k] > 0.0f);
            }
            CHECK(drawn && fabs(sum - 1.0) < 1e-5, "case %d: a draft outside of its distribution", no);
        }
        for (size_t k = 0; k < n_top; k++) {
            CHECK(d.top_ids[0][k] == id_of(first, k), "case %d: candidate %zu", no, k);
            const double odds = log((double)d.top_p[0][0] / (double)d.top_p[0][k]);
            CHECK(fabs(odds - (score_of(first, 0) - score_of(first, k)) / q.temperature) < 1e-4, "case %d: odds %zu", no, k);
        }
        greedy += d.ids[0] == id_of(first, 0);
    }
    CHECK(greedy > 0 && greedy < 40, "case %d: %d of 40 draws take the best", no, greedy);
}

/* What the drafter is given in pieces gives the same bits. */
static void test_pieces(const struct kern_table *table, const json_t *c, int no)
{
    struct draft_request q = request(c);
    static struct draft want, d;
    struct rig r;
    for (int32_t piece = 64; piece > 0; piece = piece == 64 ? 7 : piece == 7 ? 3 : piece == 3 ? 1 : 0) {
        rig_open(&r, table, c, piece);
        propose(&r, &q, piece == 64 ? &want : &d);
        if (piece != 64)
            CHECK(d.n == want.n && memcmp(d.ids, want.ids, (size_t)d.n * sizeof *d.ids) == 0 &&
                      memcmp(d.confidence, want.confidence, (size_t)d.n * sizeof *d.confidence) == 0, "case %d: pieces of %d", no, piece);
        rig_close(&r);
    }
}

int main(void)
{
    static char paths[2][512];
    for (int i = 0; i < 2; i++) {
        const char *path = support_model(i ? "dspark.json" : "dspark.gguf");
        if (!CHECK(path != NULL, "tests/data/dspark.* is missing"))
            return support_finish("spec_dspark");
        snprintf(paths[i], sizeof paths[i], "%s", path);
    }
    data = paths[0];
    answers = paths[1];
    json_error_t at;
    json_t *cases = json_load_file(answers, 0, &at), *c;
    size_t no;
    CHECK(json_array_size(cases) > 0, "%s: %s", answers, at.text);
    for (int t = 0; t < 2; t++) {
        const struct kern_table *table = t ? kern_select(NULL) : &kern_reference;
        json_array_foreach(cases, no, c) {
            struct rig r;
            rig_open(&r, table, c, 64);
            CHECK(r.drafter->n_max == (r.file->config.anchor_first ? 6 : 5) && strcmp(r.drafter->ops->kind, "dspark") == 0, "%s",
                  r.drafter->name);
            test_greedy(&r, c, (int)no);
            test_sampled(&r, c, (int)no);
            rig_close(&r);
            test_pieces(table, c, (int)no);
        }
    }
    json_decref(cases);
    return support_finish("spec_dspark");
}
