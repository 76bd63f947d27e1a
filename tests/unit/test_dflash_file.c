/* Drafter files of the DFlash family: every layout gives the same description and the right tensors, and what does not fit is refused with
   its reason. */
#include <unistd.h>

#include "base/mem.h"
#include "model/config.h"
#include "support/dflash_files.h"

static struct df_target target;

static struct dflash_file *open_or_say(const char *path, const struct dflash_target *t, const struct dflash_options *o)
{
    struct dflash_file *f = NULL;
    skua_error err = {0};
    int rc = dflash_file_open(&f, path, t, o, target.dev, &err);
    CHECK(rc == 0 && f, "%s: %s", path, err.message);
    return f;
}

static struct dflash_file *open_spec(const struct df_file *spec, const struct dflash_options *o)
{
    return open_or_say(df_write(spec, "drafter.gguf"), &target.t, o);
}

/* The bytes behind a view are those of the tensor. */
static void same_bytes(const struct df_file *spec, struct kern_view v, const char *name)
{
    struct df_tensor *t = df_tensor_at((struct df_file *)spec, name);
    size_t size;
    void *want = df_content(t, &size);
    CHECK(v.buf && memcmp(kern_ptr(v), want, size) == 0, "%s: other bytes", name);
    free(want);
}

/* ... or the same values, widened. */
static void same_values(const struct df_file *spec, struct kern_view v, const char *name)
{
    struct df_tensor *t = df_tensor_at((struct df_file *)spec, name);
    size_t size, rows = (size_t)(t->ne[1] * t->ne[2]);
    char *want = df_content(t, &size);
    float row[DF_EMBD];
    bool same = v.buf != NULL;
    for (size_t i = 0; i < rows && same; i++) {
        dequant_row(t->type, want + i * size / rows, row, (int64_t)t->ne[0]);
        same = memcmp((const float *)kern_ptr(v) + i * t->ne[0], row, t->ne[0] * sizeof *row) == 0;
    }
    CHECK(same, "%s: other values", name);
    free(want);
}

static void same_matrix(const struct df_file *spec, const struct kern_weight *w, const char *name)
{
    struct df_tensor *t = df_tensor_at((struct df_file *)spec, name);
    CHECK(w->type == t->type && w->n_in == (int32_t)t->ne[0] && w->n_out == (int32_t)t->ne[1] && w->n_expert == 1, "%s: shape", name);
    same_bytes(spec, w->data, name);
}

/* What all layouts of the small drafter have in common. The names are those of spec, which may be another layout than the file's. */
static void check_backbone(const struct df_file *spec, const struct dflash_file *f)
{
    const struct dflash_config *c = &f->config;
    const struct dflash_weights *w = &f->weights;
    static const int32_t taps[DF_TAPS] = {1, 4, 6};
    CHECK(c->n_layer == DF_LAYERS && c->n_embd == DF_EMBD && c->n_head == DF_HEADS && c->n_head_kv == DF_KV_HEADS &&
              c->head_dim == DF_HEAD_DIM && c->n_ff == DF_FF && c->rms_eps == 1e-6f, "shape");
    CHECK(c->n_rot == DF_HEAD_DIM && c->rope_base == 1e7f && c->rope_scale == 1.0 && c->inv_freq[0] == 1.0, "rope");
    CHECK(c->block_size == 8 && c->mask_id == DF_MASK && c->n_taps == DF_TAPS && memcmp(c->taps, taps, sizeof taps) == 0, "block, taps");
    same_matrix(spec, &w->fc, "fc.weight");
    same_values(spec, w->context_norm, "enc.output_norm.weight");
    same_values(spec, w->output_norm, "output_norm.weight");
    for (int i = 0; i < DF_LAYERS; i++) {
        const struct dflash_block_weights *l = &w->blocks[i];
        char name[64];
        const struct { const char *role; const struct kern_weight *w; } matrices[] = {
            {"attn_q", &l->attn_q}, {"attn_k", &l->attn_k}, {"attn_v", &l->attn_v}, {"attn_output", &l->attn_output},
            {"ffn_gate", &l->ffn_gate}, {"ffn_up", &l->ffn_up}, {"ffn_down", &l->ffn_down}};
        const struct { const char *role; struct kern_view v; } vectors[] = {
            {"attn_norm", l->attn_norm}, {"ffn_norm", l->ffn_norm}, {"attn_q_norm", l->q_norm}, {"attn_k_norm", l->k_norm}};
        for (size_t k = 0; k < sizeof matrices / sizeof *matrices; k++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", i, matrices[k].role);
            same_matrix(spec, matrices[k].w, name);
        }
        for (size_t k = 0; k < sizeof vectors / sizeof *vectors; k++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", i, vectors[k].role);
            same_values(spec, vectors[k].v, name);
        }
    }
}

/* With the target's embedding and head: all tokens of the target but the mask and the reserved ones may be drafted. */
static void check_shared_head(const struct dflash_file *f)
{
    const struct dflash_weights *w = &f->weights;
    const uint64_t *allow = kern_ptr(w->allow);
    CHECK(!w->own_embed && !w->own_head && !w->head_ids && w->embed.data.buf == target.rows && w->embed.data.offset == 0 &&
              w->head.data.buf == target.rows && w->head.data.offset == target.weights.head.data.offset && w->head.n_out == DF_VOCAB,
          "head");
    for (int i = 0; i < DF_VOCAB; i++)
        CHECK((allow[i / 64] >> (i % 64) & 1) == (i <= DF_LAST_SAMPLABLE && i != DF_MASK), "token %d", i);
}

static void test_classic(void)
{
    struct df_file spec;
    df_classic(&spec);
    struct dflash_file *f = open_spec(&spec, NULL);
    check_backbone(&spec, f);
    check_shared_head(f);
    CHECK(f->config.variant == DFLASH_CLASSIC && !f->config.window[0] && !f->config.causal[0] && !f->config.causal[1], "classic");
    CHECK(f->config.emb_scale == 1.0f && f->config.logit_scale == 1.0f && f->config.softcap == 0.0f, "factors");
    CHECK(dflash_max_drafts(&f->config) == 7 && !f->weights.selector_pred.data.buf && !f->weights.markov_w1.data.buf, "classic");
    CHECK(f->warnings.len == 0 && f->bytes > 0, "%s", strbuf_str(&f->warnings));
    CHECK(strcmp(f->summary, "dflash (drafter.gguf: block of 8, 2 layers, taps 1 4 6)") == 0, "%s", f->summary);
    dflash_file_close(f);

    df_f32(&spec, "dflash.embedding_scale", 2.0f);
    df_f32(&spec, "dflash.logit_scale", 0.25f);
    df_f32(&spec, "dflash.final_logit_softcapping", 20.0f);
    df_u32(&spec, "dflash.rope.dimension_count", 8);
    df_list(&spec, "dflash.rope.dimension_sections", GGUF_I32, 4, (const int32_t[]){4, 0, 0, 0});
    df_u32(&spec, "dflash.block_size", 40);
    df_u32(&spec, "dflash.attention.sliding_window", 0);
    struct dflash_file *long_block = open_spec(&spec, NULL);
    CHECK(long_block->config.block_size == 40 && dflash_max_drafts(&long_block->config) == 31 && !long_block->config.window[0] &&
              strcmp(strbuf_str(&long_block->warnings), "the drafter was trained on blocks of 40 rows; 32 are used\n") == 0, "%s",
          strbuf_str(&long_block->warnings));
    dflash_file_close(long_block);
    df_drop_key(&spec, "dflash.block_size");
    df_drop_key(&spec, "tokenizer.ggml.tokens");
    df_tensor(&spec, "blk.0.attn_q.bias", QTYPE_F32, DF_EMBD, 1, 1);
    f = open_spec(&spec, NULL);
    CHECK(f->config.emb_scale == 2.0f && f->config.logit_scale == 0.25f && f->config.softcap == 20.0f && f->config.n_rot == 8, "factors");
    CHECK(f->config.block_size == 16, "default block");
    CHECK(strcmp(strbuf_str(&f->warnings), "the drafter's file has no tokenizer: whether its tokens are the model's cannot be checked\n"
                                           "1 of the drafter's 26 tensors have no place in it and are ignored\n") == 0,
          "%s", strbuf_str(&f->warnings));
    dflash_file_close(f);
}

static void test_dflash2(void)
{
    struct df_file spec, old;
    df_dflash2(&spec);
    df_u32(&spec, "dflash.attention.sliding_window", 32);
    df_bool(&spec, "dflash.attention.sliding_window_pattern", true);
    for (int aliases = 0; aliases < 2; aliases++) {
        old = spec;
        if (aliases) {
            df_rename_tensors(&old, "selector_hidden", "selector.hidden_proj");
            df_rename_tensors(&old, "selector_predecessor.weight", "selector.pred_codebook");
            df_rename_tensors(&old, "selector_successor.weight", "selector.succ_codebook");
            df_rename_tensors(&old, "conv_base", "conv.base");
            df_rename_tensors(&old, "conv_proj", "conv.proj");
        }
        struct dflash_file *f = open_spec(&old, NULL);
        const struct dflash_config *c = &f->config;
        const struct dflash_weights *w = &f->weights;
        CHECK(c->variant == DFLASH_2 && c->conv_kernel == 2 && c->conv_group == 16 && c->selector_rank == DF_RANK &&
                  c->selector_top_k == DF_TOP_K && c->window[0] == 32 && c->window[1] == 32 && !c->causal[0] && !c->causal[1], "dflash2");
        if (!aliases) {
            check_backbone(&spec, f);
            same_values(&spec, w->blocks[0].attn_conv_base, "blk.0.attn_conv_base");
            same_values(&spec, w->blocks[1].ffn_conv_base, "blk.1.ffn_conv_base");
            same_matrix(&spec, &w->blocks[1].attn_conv_proj, "blk.1.attn_conv_proj.weight");
            same_matrix(&spec, &w->blocks[0].ffn_conv_proj, "blk.0.ffn_conv_proj.weight");
            same_matrix(&spec, &w->selector_hidden, "selector_hidden.weight");
            same_matrix(&spec, &w->selector_pred, "selector_predecessor.weight");
            same_matrix(&spec, &w->selector_succ, "selector_successor.weight");
            CHECK(strstr(f->summary, "dflash2 (drafter.gguf: convolution, selector of 4, block of 8, 2 layers, 2 windowed (32), taps"),
                  "%s", f->summary);
        } else {
            same_matrix(&old, &w->selector_hidden, "selector.hidden_proj.weight");
            same_matrix(&old, &w->selector_pred, "selector.pred_codebook");
            same_matrix(&old, &w->selector_succ, "selector.succ_codebook");
            same_values(&old, w->blocks[1].ffn_conv_base, "blk.1.ffn_conv.base");
            same_matrix(&old, &w->blocks[1].ffn_conv_proj, "blk.1.ffn_conv.proj.weight");
        }
        CHECK(f->warnings.len == 0, "%s", strbuf_str(&f->warnings));
        dflash_file_close(f);
    }
}

static void test_dspark(void)
{
    struct df_file spec;
    df_dspark(&spec);
    struct dflash_file *f = open_spec(&spec, NULL);
    float bias;
    struct df_tensor *t = df_tensor_at(&spec, "conf_proj.bias");
    size_t size;
    void *want = df_content(t, &size);
    memcpy(&bias, want, sizeof bias);
    free(want);
    check_backbone(&spec, f);
    check_shared_head(f);
    CHECK(f->config.variant == DFLASH_SPARK && f->config.anchor_first && f->config.markov_rank == DF_SPARK_RANK && f->config.confidence &&
              dflash_max_drafts(&f->config) == 8, "dspark");
    same_matrix(&spec, &f->weights.markov_w1, "markov_w1.weight");
    same_matrix(&spec, &f->weights.markov_w2, "markov_w2.weight");
    same_bytes(&spec, f->weights.conf_proj.data, "conf_proj.weight");
    CHECK(f->weights.conf_proj.n_in == DF_EMBD + DF_SPARK_RANK && f->weights.conf_proj.n_out == 1 && f->weights.conf_bias == bias, "conf");
    CHECK(strstr(f->summary, "dspark (drafter.gguf: Markov head, confidence, block of 8"), "%s", f->summary);
    dflash_file_close(f);

    df_bool(&spec, "dflash.sample_from_anchor", false);
    df_drop_tensor(&spec, "conf_proj.weight");
    df_drop_tensor(&spec, "conf_proj.bias");
    f = open_spec(&spec, NULL);
    CHECK(!f->config.anchor_first && !f->config.confidence && dflash_max_drafts(&f->config) == 7 && f->weights.conf_proj.n_out == 0,
          "dspark");
    dflash_file_close(f);

    /* the key says nothing in a file without a Markov head */
    df_classic(&spec);
    df_bool(&spec, "dflash.sample_from_anchor", true);
    f = open_spec(&spec, NULL);
    CHECK(!f->config.anchor_first, "classic");
    dflash_file_close(f);
}

/* dflash-draft and its older name: other keys, other tensor names, layers numbered by their output. */
static void test_nested(void)
{
    static const char *const archs[] = {"dflash-draft", "qwen35-dflash-draft"};
    for (int i = 0; i < 2; i++) {
        struct df_file spec, plain;
        char key[96];
        df_classic(&plain);
        df_classic(&spec);
        df_nested(&spec, archs[i]);
        struct dflash_file *f = open_spec(&spec, NULL);
        const struct dflash_config *c = &f->config;
        same_matrix(&spec, &f->weights.fc, "dflash_fc.weight");
        same_values(&spec, f->weights.context_norm, "dflash_hidden_norm.weight");
        same_values(&spec, f->weights.blocks[1].ffn_norm, "blk.1.post_attention_norm.weight");
        CHECK(c->block_size == 8 && c->mask_id == DF_MASK && c->taps[0] == 1 && c->taps[1] == 4 && c->taps[2] == 6, "%s", archs[i]);
        CHECK(f->warnings.len == 0, "%s", strbuf_str(&f->warnings));
        check_shared_head(f);
        dflash_file_close(f);

        /* the base under its other name, counts of taps, windows; attention.causal says nothing here */
        snprintf(key, sizeof key, "%s.rope.freq_base", archs[i]);
        df_drop_key(&spec, key);
        snprintf(key, sizeof key, "%s.dflash.backbone_rotary_base", archs[i]);
        df_f32(&spec, key, 1e6f);
        snprintf(key, sizeof key, "%s.dflash.n_target_features", archs[i]);
        df_u32(&spec, key, DF_TAPS * DF_EMBD);
        snprintf(key, sizeof key, "%s.attention.causal", archs[i]);
        df_bool(&spec, key, false);
        snprintf(key, sizeof key, "%s.attention.sliding_window", archs[i]);
        df_u32(&spec, key, 16);
        snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", archs[i]);
        df_list(&spec, key, GGUF_BOOL, 2, (const int32_t[]){1, 0});
        /* no layers given: evenly spaced, 1 + i * (8 - 4) / 2; tensor names of the older files */
        snprintf(key, sizeof key, "%s.dflash.target_layer_ids", archs[i]);
        df_drop_key(&spec, key);
        snprintf(key, sizeof key, "%s.dflash.n_target_layers", archs[i]);
        df_u32(&spec, key, i ? DF_TAPS : DF_TARGET_LAYERS);
        df_rename_tensors(&spec, "dflash_fc", "dflash.fc");
        df_rename_tensors(&spec, "dflash_hidden_norm", "dflash.hidden_norm");
        f = open_spec(&spec, NULL);
        c = &f->config;
        CHECK(c->rope_base == 1e6f && c->window[0] == 16 && c->window[1] == 0 && c->causal[0] && !c->causal[1], "%s: windows", archs[i]);
        CHECK(c->inv_freq[1] > 0.17 && c->inv_freq[1] < 0.18, "%g", c->inv_freq[1]); /* 1e6 ^ (-2/16) */
        CHECK(c->n_taps == 3 && c->taps[0] == 1 && c->taps[1] == 3 && c->taps[2] == 5, "%s: default taps", archs[i]);
        dflash_file_close(f);
    }
}

/* Files with a version: layers numbered by their output, one layer without a window. */
static void test_version(void)
{
    struct df_file spec;
    df_classic(&spec);
    df_u32(&spec, "dflash.version", 1);
    df_list(&spec, "dflash.target_layers", GGUF_I32, DF_TAPS, (const int32_t[]){0, 4, 7});
    df_u32(&spec, "dflash.attention.sliding_window", 24);
    struct dflash_file *f = open_spec(&spec, NULL);
    CHECK(f->config.taps[0] == 0 && f->config.taps[2] == 7 && f->config.window[0] == 24 && f->config.window[1] == 0, "version 1");
    CHECK(f->config.causal[0] && !f->config.causal[1], "causal where there is a window");
    dflash_file_close(f);
    df_u32(&spec, "dflash.attention.full_layer", 0);
    f = open_spec(&spec, NULL);
    CHECK(f->config.window[0] == 0 && f->config.window[1] == 24, "full layer");
    dflash_file_close(f);

    df_dflash2(&spec);
    df_u32(&spec, "dflash.version", 2);
    df_list(&spec, "dflash.target_layers", GGUF_I32, DF_TAPS, (const int32_t[]){0, 4, 7});
    f = open_spec(&spec, NULL);
    CHECK(f->config.variant == DFLASH_2 && f->config.taps[2] == 7, "version 2");
    dflash_file_close(f);
}

static void test_overrides(void)
{
    struct df_file spec;
    struct dflash_options o = DFLASH_DEFAULTS;
    df_classic(&spec);
    df_u32(&spec, "dflash.attention.sliding_window", 24);
    df_list(&spec, "dflash.attention.sliding_window_pattern", GGUF_BOOL, 2, (const int32_t[]){1, 0});
    o.numbering = DFLASH_NUMBERING_OUTPUT;
    struct dflash_file *f = open_spec(&spec, &o);
    CHECK(f->config.taps[0] == 2 && f->config.taps[1] == 5 && f->config.taps[2] == 7 && f->config.causal[0] && !f->config.causal[1],
          "output");
    dflash_file_close(f);
    o.numbering = DFLASH_NUMBERING_INPUT;
    for (int file = -1; file < 2; file++)
        for (int causal = -1; causal < 2; causal++) {
            o.causal = causal;
            if (file >= 0)
                df_bool(&spec, "dflash.attention.causal", file);
            f = open_spec(&spec, &o);
            const bool first = causal >= 0 ? causal : file >= 0 ? file : true, second = causal >= 0 ? causal : file > 0;
            CHECK(f->config.taps[0] == 1 && f->config.causal[0] == first && f->config.causal[1] == second, "%d %d", file, causal);
            dflash_file_close(f);
        }
    df_nested(&spec, "dflash-draft");
    o = (struct dflash_options){DFLASH_NUMBERING_INPUT, 0, NULL};
    f = open_spec(&spec, &o);
    CHECK(f->config.taps[0] == 0 && f->config.taps[2] == 5 && !f->config.causal[0], "input");
    dflash_file_close(f);
}

/* ---- heads ---- */

static const char *write_list(const char *text)
{
    const char *path = support_temp("ids.txt");
    FILE *out = fopen(path, "wb");
    fwrite(text, 1, strlen(text), out);
    fclose(out);
    return path;
}

/* Row i of a matrix of floats is row `row` of what the tensor holds. */
static void same_row(const struct kern_weight *w, int32_t i, const float *rows, int32_t row, const char *what)
{
    CHECK(memcmp((const float *)kern_ptr(w->data) + (size_t)i * (size_t)w->n_in, rows + (size_t)row * (size_t)w->n_in,
                 (size_t)w->n_in * sizeof *rows) == 0, "%s: row %d", what, i);
}

static void check_rows(const struct dflash_file *f, const float *head, const int32_t *rows, const int32_t *ids, int32_t n)
{
    const uint64_t *allow = kern_ptr(f->weights.allow);
    CHECK(f->weights.head.n_out == n && f->weights.head_ids && f->weights.head.n_in == DF_EMBD, "%d rows", f->weights.head.n_out);
    for (int32_t i = 0; i < n; i++) {
        CHECK(f->weights.head_ids[i] == ids[i], "row %d: token %d", i, f->weights.head_ids[i]);
        CHECK((allow[0] >> i & 1) == (ids[i] <= DF_LAST_SAMPLABLE && ids[i] != DF_MASK), "row %d", i);
        same_row(&f->weights.head, i, head, rows[i], "head");
    }
    CHECK(allow[0] >> n == 0, "bits behind the end");
}

static void test_heads(void)
{
    static int64_t d2t[6] = {3, 90, 17, 5, 95, 64};
    static const int32_t all[6] = {0, 1, 2, 3, 4, 5}, ids[6] = {3, 90, 17, 5, 95, 64}, listed[] = {2, 5}, listed_ids[] = {17, 64};
    static const int32_t from_list[] = {0, 17, 64, 96};
    const float *shared = (const float *)target.rows->host + DF_VOCAB * DF_EMBD;
    struct df_file spec;
    struct dflash_options o = DFLASH_DEFAULTS;
    size_t size;
    df_dspark(&spec);

    /* a list alone: rows of the target's head in the order of their tokens, and of the Markov head with them */
    o.head_ids_path = write_list("# four\n96 17\r\n\t64 0 17#again\n");
    struct dflash_file *f = open_spec(&spec, &o);
    float *w2 = df_content(df_tensor_at(&spec, "markov_w2.weight"), &size);
    check_rows(f, shared, from_list, from_list, 4);
    CHECK(f->weights.markov_w2.n_out == 4 && strstr(f->summary, "head of 4"), "%s", f->summary);
    for (int i = 0; i < 4; i++)
        same_row(&f->weights.markov_w2, i, w2, from_list[i], "markov_w2");
    dflash_file_close(f);

    /* the file's own map, and with the target's head */
    df_tensor(&spec, "d2t", QTYPE_I64, 6, 1, 1);
    df_tensor_at(&spec, "d2t")->ids = d2t;
    f = open_spec(&spec, NULL);
    check_rows(f, shared, ids, ids, 6);
    for (int i = 0; i < 6; i++)
        same_row(&f->weights.markov_w2, i, w2, ids[i], "markov_w2 by token");
    dflash_file_close(f);
    free(w2);

    /* ... with its own head and a Markov head of as many rows: used where they lie */
    df_tensor(&spec, "output.weight", QTYPE_F32, DF_EMBD, 6, 1);
    df_tensor(&spec, "markov_w2.weight", QTYPE_F32, DF_SPARK_RANK, 6, 1);
    float *own = df_content(df_tensor_at(&spec, "output.weight"), &size);
    w2 = df_content(df_tensor_at(&spec, "markov_w2.weight"), &size);
    f = open_spec(&spec, NULL);
    check_rows(f, own, all, ids, 6);
    CHECK(f->weights.own_head && f->weights.head.data.buf != f->own && f->weights.markov_w2.data.buf != f->own, "in place");
    dflash_file_close(f);

    /* ... and a list: what is in both */
    o.head_ids_path = write_list("64 1 2 17");
    f = open_spec(&spec, &o);
    check_rows(f, own, listed, listed_ids, 2);
    for (int i = 0; i < 2; i++)
        same_row(&f->weights.markov_w2, i, w2, listed[i], "markov_w2 by row");
    dflash_file_close(f);
    free(own);
    free(w2);

    /* own embedding and head of all tokens */
    df_classic(&spec);
    df_tensor(&spec, "token_embd.weight", QTYPE_F32, DF_EMBD, DF_VOCAB, 1);
    df_tensor(&spec, "output.weight", QTYPE_F16, DF_EMBD, DF_VOCAB, 1);
    f = open_spec(&spec, NULL);
    CHECK(f->weights.own_embed && f->weights.own_head && !f->weights.head_ids, "own");
    same_matrix(&spec, &f->weights.embed, "token_embd.weight");
    same_matrix(&spec, &f->weights.head, "output.weight");
    dflash_file_close(f);
}

/* ---- refusals ---- */

enum change_kind { U32, F32, BOOL, TEXT, TAPS, BOOLS, DROP_KEY, DROP, SHAPE, TYPE, TOKENS, ODD, NESTED };

/* One change of a file: a key or tensor, and a number, two numbers, or a text. */
struct change {
    enum change_kind kind;
    const char *name;
    double v[3];
    const char *text;
};

struct refusal {
    char base; /* classic: 1, dflash2: 2, dspark: s */
    struct change change[3];
    int code;
    const char *message; /* without the file's name in front */
};

static void apply(struct df_file *f, const struct change *x)
{
    const int32_t list[] = {(int32_t)x->v[0], (int32_t)x->v[1], (int32_t)x->v[2]};
    static int64_t one_id[1];
    if (!x->name)
        return;
    switch (x->kind) {
    case U32: df_u32(f, x->name, (int32_t)x->v[0]); break;
    case F32: df_f32(f, x->name, (float)x->v[0]); break;
    case BOOL: df_bool(f, x->name, x->v[0] != 0); break;
    case TEXT: df_string(f, x->name, x->text); break;
    case TAPS: df_list(f, x->name, GGUF_I32, 3, list); break;
    case BOOLS: df_list(f, x->name, GGUF_BOOL, (int)x->v[2], list); break;
    case DROP_KEY: df_drop_key(f, x->name); break;
    case DROP: df_drop_tensor(f, x->name); break;
    case SHAPE: df_tensor(f, x->name, QTYPE_F32, (uint64_t)x->v[0], (uint64_t)x->v[1], x->v[2] ? (uint64_t)x->v[2] : 1); break;
    case TYPE:
        df_tensor(f, x->name, (uint32_t)x->v[0], (uint64_t)x->v[1], (uint64_t)x->v[2], 1);
        one_id[0] = 97;
        df_tensor_at(f, x->name)->ids = one_id;
        break;
    case TOKENS: f->n_tokens = (int32_t)x->v[0]; break;
    case ODD: f->odd_token = x->text; break;
    case NESTED: df_nested(f, x->name); break;
    }
}

#define D "dflash."
static const struct refusal refusals[] = {
    /* what it is */
    {'1', {{TEXT, "general.architecture", .text = "qwen35moe"}}, SKUA_EUNSUPPORTED,
     "the file is a language model (architecture qwen35moe), not a drafter of the DFlash family"},
    {'1', {{TEXT, "general.architecture", .text = "llama"}}, SKUA_EUNSUPPORTED,
     "architecture 'llama' is no drafter of the DFlash family; expected dflash, dflash-draft or qwen35-dflash-draft"},
    {'1', {{DROP_KEY, "general.architecture", .v = {0}}}, SKUA_EFORMAT,
     "drafter.gguf: key 'general.architecture' is missing, expected string"},
    {'1', {{U32, D "version", .v = {3}}}, SKUA_EUNSUPPORTED, "key 'dflash.version' is 3; supported: 1 and 2"},
    {'1', {{U32, D "version", .v = {0}}}, SKUA_EUNSUPPORTED, "key 'dflash.version' is 0; supported: 1 and 2"},
    {'2', {{U32, D "version", .v = {1}}}, SKUA_EFORMAT,
     "key 'dflash.version' is 1, a drafter without convolution, but there is a key 'dflash.conv_kernel_size'"},
    {'s', {{U32, D "version", .v = {2}}}, SKUA_EUNSUPPORTED,
     "the file has both a Markov head (tensor 'markov_w1.weight') and a convolution (key 'dflash.version'); supported: one of them"},
    {'1', {{U32, D "version", .v = {2}}}, SKUA_EFORMAT,
     "drafter.gguf: key 'dflash.conv_kernel_size' is missing, expected an integer from 0 to 4294967295"},
    {'s', {{U32, D "hyper_connection.count", .v = {4}}}, SKUA_EUNSUPPORTED,
     "key 'dflash.hyper_connection.count' is 4: a drafter with hyper-connections is made for another family of models"},
    {'s', {{U32, D "conv_kernel_size", .v = {2}}}, SKUA_EUNSUPPORTED,
     "the file has both a Markov head (tensor 'markov_w1.weight') and a convolution (key 'dflash.conv_kernel_size'); supported: one "
     "of them"},
    {'1', {{SHAPE, "blk.1.attn_sinks", .v = {DF_HEADS, 1}}}, SKUA_EUNSUPPORTED,
     "tensor 'blk.1.attn_sinks': attention sinks; supported: drafters without"},

    /* for which model */
    {'1', {{U32, D "embedding_length", .v = {128}}}, SKUA_EUNSUPPORTED,
     "the drafter's hidden size (key 'dflash.embedding_length') is 128, the model's is 64: it is a drafter for another model"},
    {'1', {{TAPS, D "target_layers", .v = {2, 5, 9}}}, SKUA_EUNSUPPORTED,
     "key 'dflash.target_layers': the drafter taps layer 9, the model has layers 1 to 8 (numbered by their successor's input): it is a "
     "drafter for another model"},
    {'1', {{TAPS, D "target_layers", .v = {0, 5, 7}}}, SKUA_EUNSUPPORTED,
     "key 'dflash.target_layers': the drafter taps layer 0, the model has layers 1 to 8 (numbered by their successor's input): it is a "
     "drafter for another model"},
    {'1', {{NESTED, "dflash-draft", .v = {0}}, {TAPS, "dflash-draft.dflash.target_layer_ids", .v = {2, 5, 8}}}, SKUA_EUNSUPPORTED,
     "key 'dflash-draft.dflash.target_layer_ids': the drafter taps layer 8, the model has layers 0 to 7 (numbered by their output): it "
     "is a drafter for another model"},
    {'1', {{TAPS, D "target_layers", .v = {5, 5, 7}}}, SKUA_EFORMAT, "key 'dflash.target_layers' has 5 behind 5, expected rising numbers"},
    {'1', {{DROP_KEY, D "target_layers", .v = {0}}}, SKUA_EFORMAT,
     "key 'dflash.target_layers' is missing, expected the layers of the model that are tapped"},
    {'1', {{U32, D "target_layers", .v = {5}}}, SKUA_EFORMAT,
     "drafter.gguf: key 'dflash.target_layers' is of type u32, expected array of integers"},
    {'1', {{NESTED, "dflash-draft", .v = {0}}, {DROP_KEY, "dflash-draft.dflash.target_layer_ids", .v = {0}},
           {DROP, "dflash_fc.weight", .v = {0}}}, SKUA_EFORMAT,
     "key 'dflash-draft.dflash.target_layer_ids' is missing, expected the layers of the model that are tapped"},
    {'1', {{NESTED, "dflash-draft", .v = {0}}, {U32, "dflash-draft.dflash.n_target_features", .v = {128}}}, SKUA_EFORMAT,
     "key 'dflash-draft.dflash.n_target_features' is 128, expected the number of tapped layers times embedding_length"},
    {'1', {{NESTED, "dflash-draft", .v = {0}}, {U32, "dflash-draft.dflash.n_target_layers", .v = {5}}}, SKUA_EFORMAT,
     "key 'dflash-draft.dflash.n_target_layers' is 5, expected the number of tapped layers, or of the model's layers"},
    {'1', {{TOKENS, "", .v = {98}}}, SKUA_EUNSUPPORTED,
     "the drafter's vocabulary has 98 tokens, the model's 97: it is a drafter for another vocabulary"},
    {'1', {{ODD, "", .text = "u"}}, SKUA_EUNSUPPORTED,
     "token 40 is 'u40' in the drafter's vocabulary and 't40' in the model's: it is a drafter for another vocabulary"},
    {'1', {{U32, "tokenizer.ggml.eos_token_id", .v = {90}}}, SKUA_EUNSUPPORTED,
     "key 'tokenizer.ggml.eos_token_id' is 90, the model's is 91: it is a drafter for another vocabulary"},
    {'1', {{U32, "tokenizer.ggml.mask_token_id", .v = {97}}}, SKUA_EFORMAT, "key 'tokenizer.ggml.mask_token_id' is 97, expected 0 to 96"},
    {'1', {{DROP_KEY, "tokenizer.ggml.mask_token_id", .v = {0}}}, SKUA_EFORMAT,
     "drafter.gguf: key 'tokenizer.ggml.mask_token_id' is missing, expected an integer from 0 to 4294967295"},

    /* sizes */
    {'1', {{U32, D "block_count", .v = {65}}}, SKUA_EFORMAT, "key 'dflash.block_count' is 65, expected 1 to 64"},
    {'1', {{DROP_KEY, D "block_count", .v = {0}}}, SKUA_EFORMAT,
     "drafter.gguf: key 'dflash.block_count' is missing, expected an integer from 0 to 4294967295"},
    {'1', {{U32, D "attention.head_count_kv", .v = {3}}}, SKUA_EFORMAT,
     "key 'dflash.attention.head_count_kv' is 3, expected a divisor of attention.head_count"},
    {'1', {{U32, D "attention.value_length", .v = {32}}}, SKUA_EFORMAT,
     "key 'dflash.attention.value_length' is 32, expected the same as attention.key_length"},
    {'1', {{U32, D "attention.value_length", .v = {24}}, {U32, D "attention.key_length", .v = {24}}}, SKUA_EUNSUPPORTED,
     "key 'dflash.attention.key_length' is 24; supported: multiples of 16 up to 512"},
    {'1', {{F32, D "attention.layer_norm_rms_epsilon", .v = {2}}}, SKUA_EFORMAT,
     "key 'dflash.attention.layer_norm_rms_epsilon' is 2, expected 1e-12 to 0.5"},
    {'1', {{DROP_KEY, D "attention.layer_norm_rms_epsilon", .v = {0}}}, SKUA_EFORMAT,
     "key 'dflash.attention.layer_norm_rms_epsilon' is missing"},
    {'1', {{DROP_KEY, D "rope.freq_base", .v = {0}}}, SKUA_EFORMAT,
     "key 'dflash.rope.freq_base' is missing, expected the base of the rotary frequencies"},
    {'1', {{F32, D "dflash.backbone_rotary_base", .v = {1e6}}}, SKUA_EFORMAT,
     "keys 'dflash.rope.freq_base' (1e+07) and 'dflash.dflash.backbone_rotary_base' (1e+06) contradict each other"},
    {'1', {{U32, D "rope.dimension_count", .v = {18}}}, SKUA_EFORMAT,
     "key 'dflash.rope.dimension_count' is 18, expected an even number of at most attention.key_length"},
    {'1', {{U32, D "block_size", .v = {1}}}, SKUA_EFORMAT, "key 'dflash.block_size' is 1, expected 2 to 1024"},
    {'1', {{F32, D "logit_scale", .v = {0}}}, SKUA_EFORMAT, "key 'dflash.logit_scale' is 0, expected 1e-06 to 1e+06"},
    {'1', {{BOOLS, D "attention.sliding_window_pattern", .v = {0, 1, 2}}}, SKUA_EFORMAT,
     "key 'dflash.attention.sliding_window_pattern' says that layer 1 has a window, but there is no key 'dflash.attention.sliding_window' "
     "above 0"},
    {'1', {{BOOLS, D "attention.sliding_window_pattern", .v = {0, 1, 3}}}, SKUA_EFORMAT,
     "key 'dflash.attention.sliding_window_pattern' has 3 entries, expected one per layer (2)"},
    {'1', {{U32, D "attention.sliding_window_pattern", .v = {4}}, {U32, D "attention.sliding_window", .v = {9}}}, SKUA_EFORMAT,
     "key 'dflash.attention.sliding_window_pattern' is of type u32, expected a bool, or an array of bools"},
    {'1', {{U32, D "attention.causal", .v = {1}}}, SKUA_EFORMAT,
     "drafter.gguf: key 'dflash.attention.causal' is of type u32, expected bool"},
    {'2', {{U32, D "conv_group_size", .v = {24}}}, SKUA_EFORMAT,
     "key 'dflash.conv_group_size' is 24, expected a divisor of embedding_length"},
    {'2', {{U32, D "conv_kernel_size", .v = {17}}}, SKUA_EFORMAT, "key 'dflash.conv_kernel_size' is 17, expected 1 to 16"},
    {'2', {{U32, D "selector_top_k", .v = {65}}}, SKUA_EFORMAT, "key 'dflash.selector_top_k' is 65, expected 1 to 64"},
    {'2', {{DROP_KEY, D "selector_rank", .v = {0}}}, SKUA_EFORMAT,
     "drafter.gguf: key 'dflash.selector_rank' is missing, expected an integer from 0 to 4294967295"},

    /* tensors */
    {'1', {{DROP, "fc.weight", .v = {0}}}, SKUA_EFORMAT, "drafter.gguf: tensor 'fc.weight' is missing"},
    {'1', {{DROP, "enc.output_norm.weight", .v = {0}}}, SKUA_EFORMAT, "drafter.gguf: tensor 'enc.output_norm.weight' is missing"},
    {'1', {{DROP, "blk.1.ffn_norm.weight", .v = {0}}}, SKUA_EFORMAT, "drafter.gguf: tensor 'blk.1.ffn_norm.weight' is missing"},
    {'1', {{SHAPE, "fc.weight", .v = {128, 64}}}, SKUA_EFORMAT, "tensor 'fc.weight' has shape [128, 64, 1, 1], expected [192, 64, 1, 1]"},
    {'1', {{SHAPE, "blk.0.attn_q.weight", .v = {64, 128}}}, SKUA_EFORMAT,
     "tensor 'blk.0.attn_q.weight' has shape [64, 128, 1, 1], expected [64, 64, 1, 1]"},
    {'1', {{TYPE, "blk.0.attn_norm.weight", .v = {QTYPE_Q8_0, 64, 1}}}, SKUA_EUNSUPPORTED,
     "tensor 'blk.0.attn_norm.weight' has type Q8_0; supported here: F32, F16, BF16"},
    {'2', {{DROP, "blk.1.ffn_conv_base", .v = {0}}}, SKUA_EFORMAT, "drafter.gguf: tensor 'blk.1.ffn_conv_base' is missing"},
    {'2', {{SHAPE, "blk.0.attn_conv_base", .v = {64, 2, 1}}}, SKUA_EFORMAT,
     "tensor 'blk.0.attn_conv_base' has shape [64, 2, 1, 1], expected [64, 2, 2, 1]"},
    {'2', {{DROP, "selector_successor.weight", .v = {0}}}, SKUA_EFORMAT, "drafter.gguf: tensor 'selector_successor.weight' is missing"},
    {'2', {{SHAPE, "selector_predecessor.weight", .v = {8, 96}}}, SKUA_EFORMAT,
     "tensor 'selector_predecessor.weight' has shape [8, 96, 1, 1], expected [8, 97, 1, 1]"},
    {'s', {{DROP, "markov_w2.weight", .v = {0}}}, SKUA_EFORMAT, "drafter.gguf: tensor 'markov_w2.weight' is missing"},
    {'s', {{SHAPE, "markov_w2.weight", .v = {12, 50}}}, SKUA_EFORMAT,
     "tensor 'markov_w2.weight' has shape [12, 50, 1, 1], expected [12, 97, 1, 1]"},
    {'s', {{SHAPE, "conf_proj.weight", .v = {64, 1}}}, SKUA_EFORMAT,
     "tensor 'conf_proj.weight' has shape [64, 1, 1, 1], expected [76, 1, 1, 1]"},
    {'s', {{TYPE, "conf_proj.bias", .v = {QTYPE_I32, 1, 1}}}, SKUA_EUNSUPPORTED,
     "tensor 'conf_proj.bias' has type I32; supported here: F32, F16, BF16"},
    {'1', {{SHAPE, "token_embd.weight", .v = {64, 96}}}, SKUA_EFORMAT,
     "tensor 'token_embd.weight' has shape [64, 96, 1, 1], expected [64, 97, 1, 1]"},
    {'1', {{SHAPE, "output.weight", .v = {64, 96}}}, SKUA_EFORMAT,
     "tensor 'output.weight' has shape [64, 96, 1, 1], expected [64, 97, 1, 1]"},
    {'1', {{NESTED, "dflash-draft", .v = {0}}, {SHAPE, "output.weight", .v = {64, 97}}}, SKUA_EFORMAT,
     "tensor 'output.weight' is there, but not 'token_embd.weight'; expected both or none"},
    {'1', {{NESTED, "dflash-draft", .v = {0}}, {SHAPE, "token_embd.weight", .v = {64, 97}}}, SKUA_EFORMAT,
     "tensor 'token_embd.weight' is there, but not 'output.weight'; expected both or none"},
    {'1', {{SHAPE, "d2t", .v = {6, 1}}}, SKUA_EFORMAT, "tensor 'd2t' is F32 [6, 1, 1, 1], expected I64 [n], at most the model's 97 tokens"},
    {'1', {{TYPE, "d2t", .v = {QTYPE_I64, 1, 1}}}, SKUA_EFORMAT, "tensor 'd2t' maps row 0 to token 97, expected 0 to 96"},
};
#undef D

static void refused(const char *path, const struct dflash_options *o, int code, const char *message)
{
    struct dflash_file *f = (struct dflash_file *)(uintptr_t)1;
    skua_error err = {0};
    const size_t live = mem_live_blocks(), allocated = target.dev->allocated_bytes;
    int rc = dflash_file_open(&f, path, &target.t, o, target.dev, &err);
    const char *rest = error_without_path(err.message, path);
    if (strncmp(rest, ": ", 2) == 0)
        rest += 2;
    /* some messages name the file themselves, by the end of its path */
    const bool tail = strncmp(message, "drafter.gguf: ", 14) == 0 && strcmp(rest, message + 14) == 0;
    CHECK(rc == code && err.code == code && (tail || strcmp(rest, message) == 0), "%d: '%s'\n  expected '%s'", rc, err.message, message);
    CHECK(!f && mem_live_blocks() == live && target.dev->allocated_bytes == allocated, "'%s' leaves something behind", message);
    if (!rc)
        dflash_file_close(f);
}

static void test_refusals(void)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *r = &refusals[i];
        struct df_file spec;
        (r->base == '1' ? df_classic : r->base == '2' ? df_dflash2 : df_dspark)(&spec);
        for (int k = 0; k < 3; k++)
            apply(&spec, &r->change[k]);
        refused(df_write(&spec, "drafter.gguf"), NULL, r->code, r->message);
    }
}

/* What a file is can be told without a target. */
static void test_kinds(void)
{
    static const struct { char base; const char *nested; bool is; enum dflash_variant variant; } cases[] = {
        {'1', NULL, true, DFLASH_CLASSIC}, {'2', NULL, true, DFLASH_2}, {'s', NULL, true, DFLASH_SPARK},
        {'2', "dflash-draft", true, DFLASH_2}, {'1', "qwen35-dflash-draft", true, DFLASH_CLASSIC}, {'1', "qwen35", false, DFLASH_CLASSIC}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct df_file spec;
        struct gguf *g;
        skua_error err = {0};
        enum dflash_variant variant = DFLASH_CLASSIC;
        (cases[i].base == '1' ? df_classic : cases[i].base == '2' ? df_dflash2 : df_dspark)(&spec);
        if (cases[i].nested)
            df_nested(&spec, cases[i].nested);
        df_must(gguf_open(&g, df_write(&spec, "drafter.gguf"), &err), &err);
        CHECK(dflash_file_is(g, &variant) == cases[i].is && dflash_file_is(g, NULL) == cases[i].is && variant == cases[i].variant, "%zu",
              i);
        gguf_close(g);
    }
}

static void test_lists(void)
{
    static const struct { const char *text, *message; } cases[] = {
        {"", "the list of tokens is empty"},
        {"# nothing\n", "the list of tokens is empty"},
        {"1 2\nthree\n", "2: 'three' is no token of the model, expected numbers from 0 to 96"},
        {"1\n\n97", "3: '97' is no token of the model, expected numbers from 0 to 96"},
        {"-1", "1: '-1' is no token of the model, expected numbers from 0 to 96"},
        {"99999999999999999999999", "1: '99999999999999999999999' is no token of the model, expected numbers from 0 to 96"},
        {"5,6", "1: '5,6' is no token of the model, expected numbers from 0 to 96"},
    };
    struct df_file spec;
    struct dflash_options o = DFLASH_DEFAULTS;
    char path[512];
    df_classic(&spec);
    snprintf(path, sizeof path, "%s", df_write(&spec, "drafter.gguf"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dflash_file *f;
        skua_error err = {0};
        char list[512];
        snprintf(list, sizeof list, "%s", write_list(cases[i].text));
        o.head_ids_path = list;
        int rc = dflash_file_open(&f, path, &target.t, &o, target.dev, &err);
        CHECK(rc == SKUA_EFORMAT && strstr(err.message, cases[i].message) && strstr(err.message, "ids.txt"), "%s", err.message);
    }
    o.head_ids_path = write_list("93 94 90");
    refused(path, &o, SKUA_EUNSUPPORTED, "the head has no row of a token that the model may choose");
    static int64_t d2t[2] = {3, 4};
    df_tensor(&spec, "d2t", QTYPE_I64, 2, 1, 1);
    df_tensor_at(&spec, "d2t")->ids = d2t;
    df_write(&spec, "drafter.gguf");
    refused(path, &o, SKUA_EUNSUPPORTED, "no token of the list is among those that the drafter's head knows");
    o.head_ids_path = support_temp("missing.txt");
    struct dflash_file *f;
    skua_error err = {0};
    CHECK(dflash_file_open(&f, path, &target.t, &o, target.dev, &err) == SKUA_EIO && strstr(err.message, "missing.txt"), "%s", err.message);
}

static void test_truncated(void)
{
    struct df_file spec;
    skua_error err = {0};
    struct dflash_file *f;
    df_dflash2(&spec);
    const char *path = df_write(&spec, "drafter.gguf");
    FILE *in = fopen(path, "rb");
    fseek(in, 0, SEEK_END);
    const long size = ftell(in);
    fclose(in);
    for (int i = 1; i < 40; i++) {
        CHECK(truncate(path, size - i * size / 40) == 0, "truncate");
        int rc = dflash_file_open(&f, path, &target.t, NULL, target.dev, &err);
        CHECK(rc == SKUA_EFORMAT && !f && strstr(err.message, "drafter.gguf"), "%d of 40: %s", i, err.message);
    }
}

/* ---- the shared drafters ---- */

struct model {
    struct gguf *g;
    struct model_config c;
    struct weights w;
    uint64_t *samplable;
};

static void model_load(struct model *m, const char *path)
{
    skua_error err = {0};
    df_must(gguf_open(&m->g, path, &err), &err);
    df_must(config_load(m->g, &m->c, &err), &err);
    df_must(weights_bind(m->g, &m->c, target.dev, &m->w, &err), &err);
    const size_t words = ((size_t)m->c.n_vocab + 63) / 64;
    m->samplable = malloc(words * sizeof *m->samplable);
    memset(m->samplable, 0xFF, words * sizeof *m->samplable);
}

static void model_free(struct model *m)
{
    weights_free(&m->w, target.dev);
    gguf_close(m->g);
    free(m->samplable);
}

static void test_shared(void)
{
    static const char *const models[] = {"tiny-q8_0.gguf", "tiny-bf16.gguf"};
    static const char *const drafters[] = {"models/tiny-dflash1-bf16.gguf", "models/tiny-dflash1-q8_0.gguf",
                                           "models/tiny-dflash2-bf16.gguf", "models/tiny-dflash2-q8_0.gguf"};
    for (int i = 0; i < 2; i++) {
        const char *path = support_model(models[i]);
        struct model m;
        if (!path)
            continue;
        model_load(&m, path);
        const struct dflash_target t = {m.g, &m.c, &m.w, m.samplable};
        for (int k = 0; k < 4; k++) {
            const char *drafter = support_shared(drafters[k]);
            struct dflash_file *f = drafter ? open_or_say(drafter, &t, NULL) : NULL;
            if (!f)
                continue;
            const struct dflash_config *c = &f->config;
            CHECK(c->variant == (k < 2 ? DFLASH_CLASSIC : DFLASH_2) && c->n_layer == 2 && c->n_embd == 256 && c->block_size == 8 &&
                      c->mask_id == 8185 && c->n_taps == 3 && c->taps[0] == 1 && c->taps[1] == 4 && c->taps[2] == 6 && !c->causal[0] &&
                      c->window[0] == (k < 2 ? 0 : 256) && c->rope_base == 1e7, "%s", drafters[k]);
            CHECK(f->warnings.len == 0 && f->weights.head.data.buf == m.w.head.data.buf, "%s", strbuf_str(&f->warnings));
            dflash_file_close(f);
        }
        struct dflash_file *f;
        skua_error err = {0};
        CHECK(dflash_file_open(&f, path, &t, NULL, target.dev, &err) == SKUA_EUNSUPPORTED && strstr(err.message, "language model"), "%s",
              err.message);
        model_free(&m);
    }
}

int main(void)
{
    df_target_open(&target);
    test_classic();
    test_dflash2();
    test_dspark();
    test_nested();
    test_version();
    test_overrides();
    test_heads();
    test_refusals();
    test_kinds();
    test_lists();
    test_truncated();
    test_shared();
    df_target_close(&target);
    return support_finish("dflash_file");
}
