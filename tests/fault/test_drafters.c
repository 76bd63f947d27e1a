/* Faults while a drafter file is opened (keys, tokens, tensors, a list of tokens, gathered rows of heads) and while it drafts. */
#include "fault/sweep.h"

#include "spec/dflash.h"
#include "support/dflash_files.h"

static struct df_target target;

/* A session's drafter over some rows; a drafter whose context was lost says so and proposes nothing. */
static int draft(const struct dflash_file *f, skua_error *err)
{
    static const int32_t ids[40];
    static struct draft out;
    const struct draft_request q = {.anchor = 3, .n_max = 4, .full_block = true, .temperature = 0.7};
    const struct draft_rows rows = {.ids = ids, .n = 40, .taps = {target.rows, 0}, .taps_stride = DF_EMBD};
    struct dflash *x = NULL;
    struct drafter *d = NULL;
    int rc = dflash_create(&f->config, &f->weights, target.dev, QTYPE_F16, &x, err);
    if (!rc)
        rc = dflash_drafter(x, f->summary, &d, err);
    for (int i = 0; i < 3 && !rc; i++) {
        out.n = -1;
        rc = d->ops->extend(d, &(struct draft_rows){rows.ids, rows.n, d->n_pos, rows.taps, rows.taps_stride, {NULL, 0}, 0}, err);
        if (!rc)
            rc = d->ops->propose(d, &q, &out, err);
        CHECK(rc ? d->lost : out.n > 0 && out.n <= 4, "%d drafts", out.n);
        if (rc) {
            skua_error none = {0};
            sweep_disarm();
            CHECK(!d->ops->propose(d, &q, &out, &none) && out.n == 0, "a lost drafter drafts");
        }
    }
    if (d)
        d->ops->free(d);
    dflash_free(x);
    return rc;
}

struct opening {
    const char *path, *list;
};

static int open_drafter(void *context, skua_error *err)
{
    const struct opening *x = context;
    struct dflash_options o = DFLASH_DEFAULTS;
    struct dflash_file *f = NULL;
    o.head_ids_path = x->list;
    const size_t allocated = target.dev->allocated_bytes;
    int rc = dflash_file_open(&f, x->path, &target.t, &o, target.dev, err);
    CHECK((rc == 0) == (f != NULL), "%d, %p", rc, (void *)f);
    if (f)
        CHECK(f->weights.head.n_out == (x->list ? 3 : DF_VOCAB) && f->warnings.len > 0, "%s", f->summary);
    if (f)
        rc = draft(f, err);
    dflash_file_close(f);
    CHECK(target.dev->allocated_bytes == allocated, "device memory is left");
    return rc;
}

int main(void)
{
    struct df_file spec;
    char paths[2][256], list[256];
    sweep_init();
    df_target_open(&target);
    df_dspark(&spec);
    df_tensor(&spec, "surplus", QTYPE_F32, 4, 1, 1);
    snprintf(paths[0], sizeof paths[0], "%s", df_write(&spec, "dspark.gguf"));
    df_dflash2(&spec);
    df_drop_key(&spec, "tokenizer.ggml.tokens");
    snprintf(paths[1], sizeof paths[1], "%s", df_write(&spec, "dflash2.gguf"));
    snprintf(list, sizeof list, "%s", support_temp("ids.txt"));
    FILE *out = fopen(list, "wb");
    fputs("5 80 12\n", out);
    fclose(out);
    sweep("dspark, some rows", open_drafter, &(struct opening){paths[0], list}, 200);
    sweep("dflash2", open_drafter, &(struct opening){paths[1], NULL}, 200);
    df_target_close(&target);
    return support_finish("fault_drafters");
}
