/* Opening a drafter file: keys, checks against the target, tensors. See dflash_file.h. */
#include "spec/dflash_file.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "quant/quant.h"
#include "spec/dflash_file_internal.h"
#include "spec/drafter.h"

const char *const dflash_fc_names[] = {"fc.weight", "dflash_fc.weight", "dflash.fc.weight", NULL};

const char *dflash_role(const struct binder *b, int block, const char *const *names)
{
    for (const char *const *name = names; *name; name++)
        if (bind_find(b, block, *name))
            return *name;
    return names[0];
}
#define ROLE(b, block, ...) dflash_role(b, block, (const char *const[]){__VA_ARGS__, NULL})

static void bind_convolution(struct binder *b, int block, const struct dflash_config *c, const char *base, const char *proj,
                             struct kern_view *taps, struct kern_weight *dynamic)
{
    const int64_t groups = c->n_embd / c->conv_group;
    bind_table(b, block, base, c->n_embd, c->conv_kernel, 2, taps);
    bind_matrix(b, block, proj, c->n_embd, 2 * c->conv_kernel * groups, 1, dynamic);
}

static void bind_block(struct binder *b, const struct dflash_config *c, int block, struct dflash_block_weights *l)
{
    const int64_t e = c->n_embd, q = (int64_t)c->n_head * c->head_dim, kv = (int64_t)c->n_head_kv * c->head_dim;
    const char *sinks = ROLE(b, block, "attn_sinks", "attn_sinks.weight");
    if (!b->rc && bind_find(b, block, sinks))
        b->rc = error_set(b->err, SKUA_EUNSUPPORTED, "tensor 'blk.%d.%s': attention sinks; supported: drafters without", block, sinks);
    bind_vector(b, block, "attn_norm.weight", e, 1, &l->attn_norm);
    bind_matrix(b, block, "attn_q.weight", e, q, 1, &l->attn_q);
    bind_matrix(b, block, "attn_k.weight", e, kv, 1, &l->attn_k);
    bind_matrix(b, block, "attn_v.weight", e, kv, 1, &l->attn_v);
    bind_matrix(b, block, "attn_output.weight", q, e, 1, &l->attn_output);
    bind_vector(b, block, "attn_q_norm.weight", c->head_dim, 1, &l->q_norm);
    bind_vector(b, block, "attn_k_norm.weight", c->head_dim, 1, &l->k_norm);
    bind_vector(b, block, ROLE(b, block, "ffn_norm.weight", "post_attention_norm.weight"), e, 1, &l->ffn_norm);
    bind_matrix(b, block, "ffn_gate.weight", e, c->n_ff, 1, &l->ffn_gate);
    bind_matrix(b, block, "ffn_up.weight", e, c->n_ff, 1, &l->ffn_up);
    bind_matrix(b, block, "ffn_down.weight", c->n_ff, e, 1, &l->ffn_down);
    if (c->variant != DFLASH_2)
        return;
    bind_convolution(b, block, c, ROLE(b, block, "attn_conv_base", "attn_conv.base"),
                     ROLE(b, block, "attn_conv_proj.weight", "attn_conv.proj.weight"), &l->attn_conv_base, &l->attn_conv_proj);
    bind_convolution(b, block, c, ROLE(b, block, "ffn_conv_base", "ffn_conv.base"),
                     ROLE(b, block, "ffn_conv_proj.weight", "ffn_conv.proj.weight"), &l->ffn_conv_base, &l->ffn_conv_proj);
}

static void bind_selector(struct binder *b, const struct dflash_config *c, int64_t n_vocab, struct dflash_weights *w)
{
    bind_matrix(b, -1, ROLE(b, -1, "selector_hidden.weight", "selector.hidden_proj.weight"), c->n_embd, c->selector_rank, 1,
                &w->selector_hidden);
    bind_lookup(b, -1, ROLE(b, -1, "selector_predecessor.weight", "selector.pred_codebook"), c->selector_rank, n_vocab, 1,
                &w->selector_pred);
    bind_lookup(b, -1, ROLE(b, -1, "selector_successor.weight", "selector.succ_codebook"), c->selector_rank, n_vocab, 1,
                &w->selector_succ);
}

/* The number of values in a row of the Markov head is known from its first matrix only. */
static void bind_markov(struct binder *b, struct dflash_config *c, int64_t n_vocab, struct dflash_weights *w)
{
    const struct gguf_tensor *t = bind_find(b, -1, "markov_w1.weight");
    if (!b->rc && (t->ne[0] < 1 || t->ne[0] > (1 << 20)))
        b->rc = error_set(b->err, SKUA_EFORMAT, "tensor 'markov_w1.weight' has rows of %llu values, expected 1 to 1048576",
                          (unsigned long long)t->ne[0]);
    if (b->rc)
        return;
    c->markov_rank = (int32_t)t->ne[0];
    bind_lookup(b, -1, "markov_w1.weight", c->markov_rank, n_vocab, 1, &w->markov_w1);
    if (!c->confidence)
        return;
    bind_lookup(b, -1, "conf_proj.weight", (int64_t)c->n_embd + c->markov_rank, 1, 1, &w->conf_proj);
    t = bind_find(b, -1, "conf_proj.bias");
    if (b->rc || !t)
        return;
    if (!bind_require(b, -1, "conf_proj.bias", 1, 1, 1))
        return;
    if (t->type != QTYPE_F32 && t->type != QTYPE_F16 && t->type != QTYPE_BF16)
        b->rc = error_set(b->err, SKUA_EUNSUPPORTED, "tensor 'conf_proj.bias' has type %s; supported here: F32, F16, BF16",
                          qtype_info(t->type)->name);
    else
        dequant_row(t->type, t->data, &w->conf_bias, 1);
}

/* Room for all small vectors, as if none could be used in place. */
static size_t vectors_bytes(const struct dflash_config *c)
{
    const size_t block = 2 * (size_t)c->n_embd + 2 * (size_t)c->head_dim + 4 * (size_t)c->conv_kernel * (size_t)c->n_embd;
    return (2 * (size_t)c->n_embd + (size_t)c->n_layer * block) * sizeof(float);
}

static int bind_all(struct dflash_file *f, const struct dflash_target *t, const struct dflash_options *o, skua_error *err)
{
    struct dflash_config *c = &f->config;
    struct dflash_weights *w = &f->weights;
    struct binder b = {.g = f->gguf, .dev = f->dev, .file = &f->file, .err = err};
    if (!bind_open(&b, vectors_bytes(c))) {
        w->blocks = mem_calloc((size_t)c->n_layer, sizeof *w->blocks);
        if (!w->blocks)
            b.rc = error_nomem(err, "block table", (size_t)c->n_layer * sizeof *w->blocks);
    }
    bind_matrix(&b, -1, dflash_role(&b, -1, dflash_fc_names), (int64_t)c->n_taps * c->n_embd, c->n_embd, 1, &w->fc);
    bind_vector(&b, -1, ROLE(&b, -1, "enc.output_norm.weight", "dflash_hidden_norm.weight", "dflash.hidden_norm.weight"), c->n_embd, 1,
                &w->context_norm);
    bind_vector(&b, -1, "output_norm.weight", c->n_embd, 1, &w->output_norm);
    for (int32_t i = 0; i < c->n_layer && !b.rc; i++)
        bind_block(&b, c, i, &w->blocks[i]);
    if (c->variant == DFLASH_2)
        bind_selector(&b, c, t->config->n_vocab, w);
    if (c->variant == DFLASH_SPARK)
        bind_markov(&b, c, t->config->n_vocab, w);
    if (!b.rc)
        b.rc = dflash_bind_head(&b, t, o, f);
    if (c->block_size > DRAFT_MAX + 1)
        strbuf_printf(&f->warnings, "the drafter was trained on blocks of %d rows; %d are used\n", c->block_size, DRAFT_MAX + 1);
    const uint32_t n = gguf_tensor_count(f->gguf);
    if (!b.rc && n > b.n_used)
        strbuf_printf(&f->warnings, "%u of the drafter's %u tensors have no place in it and are ignored\n", n - b.n_used, n);
    f->bytes += f->file.vectors_used;
    return b.rc;
}

/* One line: what is active, because a drafter that runs without one of its parts looks like a weak one. */
static void summarise(struct dflash_file *f, const char *path)
{
    static const char *const kinds[] = {"dflash", "dflash2", "dspark"};
    const struct dflash_config *c = &f->config;
    const char *tail = strrchr(path, '/');
    int32_t windows = 0, causal = 0, window = 0;
    char part[64] = "", mask[64] = "", taps[64] = "";
    for (int32_t i = 0; i < c->n_layer; i++) {
        windows += c->window[i] > 0;
        causal += c->causal[i];
        window = c->window[i] > window ? c->window[i] : window;
    }
    if (c->variant == DFLASH_2)
        snprintf(part, sizeof part, "convolution, selector of %d, ", c->selector_top_k);
    if (c->variant == DFLASH_SPARK)
        snprintf(part, sizeof part, "Markov head%s%s, ", c->confidence ? ", confidence" : "", c->anchor_first ? "" : ", anchor unused");
    if (f->weights.head_ids)
        snprintf(part + strlen(part), sizeof part - strlen(part), "head of %d, ", f->weights.head.n_out);
    if (windows)
        snprintf(mask, sizeof mask, ", %d windowed (%d)", windows, window);
    if (causal)
        snprintf(mask + strlen(mask), sizeof mask - strlen(mask), ", %d causal", causal);
    for (int32_t i = 0; i < c->n_taps && strlen(taps) < sizeof taps - 8; i++)
        snprintf(taps + strlen(taps), sizeof taps - strlen(taps), " %d", c->taps[i]);
    snprintf(f->summary, sizeof f->summary, "%s (%.48s: %sblock of %d, %d layers%s, taps%s)", kinds[c->variant], tail ? tail + 1 : path,
             part, c->block_size, c->n_layer, mask, taps);
}

static int open_all(struct dflash_file *f, const char *path, const struct dflash_target *t, const struct dflash_options *o, skua_error *err)
{
    int rc = gguf_open(&f->gguf, path, err);
    if (!rc)
        rc = dflash_read_config(f->gguf, t, o, &f->config, err);
    if (!rc)
        rc = dflash_check_tokens(f->gguf, t, &f->warnings, err);
    if (!rc)
        rc = bind_all(f, t, o, err);
    if (!rc && strbuf_failed(&f->warnings))
        rc = error_nomem(err, "warnings", 0);
    if (rc && err && error_without_path(err->message, path) == err->message) /* many messages name the file themselves */
        error_prefix(err, "%s", path);
    return rc;
}

int dflash_file_open(struct dflash_file **out, const char *path, const struct dflash_target *t, const struct dflash_options *o,
                     struct dev *d, skua_error *err)
{
    const struct dflash_options defaults = DFLASH_DEFAULTS;
    *out = NULL;
    struct dflash_file *f = mem_calloc(1, sizeof *f);
    if (!f)
        return error_nomem(err, "drafter", sizeof *f);
    f->dev = d;
    int rc = open_all(f, path, t, o ? o : &defaults, err);
    if (rc) {
        dflash_file_close(f);
        return rc;
    }
    f->bytes += sizeof *f + (size_t)f->config.n_layer * sizeof *f->weights.blocks;
    summarise(f, path);
    *out = f;
    return 0;
}

void dflash_file_close(struct dflash_file *f)
{
    if (!f)
        return;
    f->dev->ops->buf_free(f->dev, f->own);
    bound_file_free(&f->file, f->dev);
    mem_free(f->weights.blocks);
    mem_free(f->weights.head_ids);
    strbuf_free(&f->warnings);
    gguf_close(f->gguf);
    mem_free(f);
}
