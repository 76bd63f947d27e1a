/* Tensor binding; see weights.h. */
#include "model/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/hashmap.h"
#include "base/mem.h"
#include "quant/quant.h"

struct binder {
    const struct gguf *g;
    const struct model_config *c;
    struct dev *dev;
    struct weights *w;
    skua_error *err;
    int rc;           /* first failure; later calls do nothing */
    uint32_t n_used;  /* tensors bound */
};

/* The names of all types that the device can multiply, "F32, F16, ..." */
static const char *supported_types(const struct binder *b, char out[256])
{
    size_t used = 0;
    out[0] = 0;
    for (uint32_t id = 0; id < QTYPE_END; id++)
        if (qtype_info(id) && b->dev->ops->act_kind(b->dev, id) >= 0)
            used += (size_t)snprintf(out + used, 256 - used, "%s%s", used ? ", " : "", qtype_info(id)->name);
    return out;
}

static void tensor_name(char out[96], int block, const char *role)
{
    if (block < 0)
        snprintf(out, 96, "%s", role);
    else
        snprintf(out, 96, "blk.%d.%s", block, role);
}

static const struct gguf_tensor *find(struct binder *b, int block, const char *role)
{
    char name[96];
    tensor_name(name, block, role);
    return gguf_find_tensor(b->g, name);
}

/* The tensor, or NULL with an error when it is missing or does not have the shape [ne0, ne1, ne2]. */
static const struct gguf_tensor *require(struct binder *b, int block, const char *role, int64_t ne0, int64_t ne1, int64_t ne2)
{
    char name[96];
    const struct gguf_tensor *t;
    if (b->rc)
        return NULL;
    tensor_name(name, block, role);
    b->rc = gguf_require_tensor(b->g, name, &t, b->err);
    if (b->rc)
        return NULL;
    if (t->ne[0] != (uint64_t)ne0 || t->ne[1] != (uint64_t)ne1 || t->ne[2] != (uint64_t)ne2 || t->ne[3] != 1) {
        b->rc = error_set(b->err, SKUA_EFORMAT, "tensor '%s' has shape [%llu, %llu, %llu, %llu], expected [%lld, %lld, %lld, 1]", name,
                          (unsigned long long)t->ne[0], (unsigned long long)t->ne[1], (unsigned long long)t->ne[2],
                          (unsigned long long)t->ne[3], (long long)ne0, (long long)ne1, (long long)ne2);
        return NULL;
    }
    b->n_used++;
    return t;
}

static struct kern_view tensor_view(const struct binder *b, const struct gguf_tensor *t)
{
    return (struct kern_view){b->w->shards[t->shard], t->file_offset};
}

/* The companions of a matrix: NAME.scale, a factor per matrix that multiplies its products; NAME.input_scale, which would tell how
   to quantise activations and has no use here. */
static void bind_companions(struct binder *b, const char *name, int64_t n_expert, struct kern_weight *w)
{
    char companion[112];
    int stem = (int)(strlen(name) - strlen(".weight"));
    snprintf(companion, sizeof companion, "%.*s.input_scale", stem, name);
    b->n_used += gguf_find_tensor(b->g, companion) != NULL;
    snprintf(companion, sizeof companion, "%.*s.scale", stem, name);
    const struct gguf_tensor *t = gguf_find_tensor(b->g, companion);
    if (!t)
        return;
    if (t->type != QTYPE_F32 || t->ne[0] != (uint64_t)n_expert || t->ne[1] * t->ne[2] * t->ne[3] != 1) {
        b->rc = error_set(b->err, SKUA_EFORMAT, "tensor '%s' is %s [%llu, %llu, %llu, %llu], expected F32 [%lld], one factor per matrix",
                          companion, qtype_info(t->type)->name, (unsigned long long)t->ne[0], (unsigned long long)t->ne[1],
                          (unsigned long long)t->ne[2], (unsigned long long)t->ne[3], (long long)n_expert);
        return;
    }
    b->rc = quant_row_check(QTYPE_F32, t->data, n_expert, NULL);
    if (b->rc) {
        error_set(b->err, b->rc, "tensor '%s' holds a factor that is not finite", companion);
        return;
    }
    w->scale = tensor_view(b, t);
    b->n_used++;
}

/* A weight matrix of n_out rows of n_in values, times n_expert. */
static void bind_matrix(struct binder *b, int block, const char *role, int64_t n_in, int64_t n_out, int64_t n_expert, struct kern_weight *w)
{
    char name[96], types[256];
    const struct gguf_tensor *t = require(b, block, role, n_in, n_out, n_expert);
    if (!t)
        return;
    tensor_name(name, block, role);
    if (b->dev->ops->act_kind(b->dev, t->type) < 0) {
        b->rc = error_set(b->err, SKUA_EUNSUPPORTED, "tensor '%s' has type %s, which this version cannot run; supported: %s", name,
                          qtype_info(t->type)->name, supported_types(b, types));
        return;
    }
    *w = (struct kern_weight){.data = tensor_view(b, t), .type = t->type, .n_in = (int32_t)n_in, .n_out = (int32_t)n_out,
                              .n_expert = (int32_t)n_expert};
    bind_companions(b, name, n_expert, w);
}

/* A matrix that is never quantised: the router, whose choice of experts a rounding would change, and the shared expert's gate. */
static void bind_float_matrix(struct binder *b, int block, const char *role, int64_t n_in, int64_t n_out, struct kern_weight *w)
{
    bind_matrix(b, block, role, n_in, n_out, 1, w);
    if (b->rc || w->type == QTYPE_F32 || w->type == QTYPE_F16 || w->type == QTYPE_BF16)
        return;
    b->rc = error_set(b->err, SKUA_EUNSUPPORTED, "tensor 'blk.%d.%s' has type %s; supported here: F32, F16, BF16", block, role,
                      qtype_info(w->type)->name);
}

/* A small float32 table (norm weights, biases, convolution taps): used in place when it is F32, widened when F16 or BF16. */
static void bind_vector(struct binder *b, int block, const char *role, int64_t ne0, int64_t ne1, struct kern_view *v)
{
    const struct gguf_tensor *t = require(b, block, role, ne0, ne1, 1);
    if (!t)
        return;
    if (t->type == QTYPE_F32) {
        *v = tensor_view(b, t);
        return;
    }
    if (t->type != QTYPE_F16 && t->type != QTYPE_BF16) {
        char name[96];
        tensor_name(name, block, role);
        b->rc = error_set(b->err, SKUA_EUNSUPPORTED, "tensor '%s' has type %s; supported here: F32, F16, BF16", name,
                          qtype_info(t->type)->name);
        return;
    }
    size_t bytes = (size_t)(ne0 * ne1) * sizeof(float);
    *v = (struct kern_view){b->w->vectors, b->w->vectors_used};
    b->w->vectors_used += bytes;
    for (int64_t i = 0; i < ne1; i++) {
        const uint8_t *row = t->data + (size_t)i * qtype_row_bytes(t->type, (uint64_t)ne0);
        float piece[256];
        for (int64_t k = 0; k < ne0; k += 256) {
            int64_t n = ne0 - k < 256 ? ne0 - k : 256;
            dequant_row(t->type, row + 2 * k, piece, n); /* both types have two bytes per value */
            b->dev->ops->write(b->dev, kern_view_at(*v, (size_t)(i * ne0 + k) * sizeof(float)), piece, (size_t)n * sizeof(float));
        }
    }
}

static void bind_ffn(struct binder *b, int block, struct ffn_weights *f)
{
    const struct model_config *c = b->c;
    if (!c->moe) {
        bind_matrix(b, block, "ffn_gate.weight", c->n_embd, c->n_ff, 1, &f->gate);
        bind_matrix(b, block, "ffn_up.weight", c->n_embd, c->n_ff, 1, &f->up);
        bind_matrix(b, block, "ffn_down.weight", c->n_ff, c->n_embd, 1, &f->down);
        return;
    }
    bind_float_matrix(b, block, "ffn_gate_inp.weight", c->n_embd, c->n_expert, &f->router);
    if (find(b, block, "ffn_gate_up_exps.weight"))
        bind_matrix(b, block, "ffn_gate_up_exps.weight", c->n_embd, 2 * (int64_t)c->n_ff_expert, c->n_expert, &f->gate_up_exps);
    else {
        bind_matrix(b, block, "ffn_gate_exps.weight", c->n_embd, c->n_ff_expert, c->n_expert, &f->gate_exps);
        bind_matrix(b, block, "ffn_up_exps.weight", c->n_embd, c->n_ff_expert, c->n_expert, &f->up_exps);
    }
    bind_matrix(b, block, "ffn_down_exps.weight", c->n_ff_expert, c->n_embd, c->n_expert, &f->down_exps);
    bind_float_matrix(b, block, "ffn_gate_inp_shexp.weight", c->n_embd, 1, &f->shared_gate_inp);
    bind_matrix(b, block, "ffn_gate_shexp.weight", c->n_embd, c->n_ff_shared, 1, &f->shared_gate);
    bind_matrix(b, block, "ffn_up_shexp.weight", c->n_embd, c->n_ff_shared, 1, &f->shared_up);
    bind_matrix(b, block, "ffn_down_shexp.weight", c->n_ff_shared, c->n_embd, 1, &f->shared_down);
}

static void bind_attention(struct binder *b, int block, struct block_weights *l)
{
    const struct model_config *c = b->c;
    int64_t q = (int64_t)c->head_dim * c->n_head, kv = (int64_t)c->head_dim * c->n_head_kv;
    if (!b->rc && find(b, block, "attn_qkv.weight")) {
        b->rc = error_set(b->err, SKUA_EUNSUPPORTED, "tensor 'blk.%d.attn_qkv.weight': fused q, k, v in a full-attention layer; supported: "
                          "separate attn_q, attn_k, attn_v", block);
        return;
    }
    bind_matrix(b, block, "attn_q.weight", c->n_embd, 2 * q, 1, &l->attn_q);
    bind_matrix(b, block, "attn_k.weight", c->n_embd, kv, 1, &l->attn_k);
    bind_matrix(b, block, "attn_v.weight", c->n_embd, kv, 1, &l->attn_v);
    bind_matrix(b, block, "attn_output.weight", q, c->n_embd, 1, &l->attn_output);
    bind_vector(b, block, "attn_q_norm.weight", c->head_dim, 1, &l->q_norm);
    bind_vector(b, block, "attn_k_norm.weight", c->head_dim, 1, &l->k_norm);
}

static void bind_recurrent(struct binder *b, int block, struct block_weights *l)
{
    const struct model_config *c = b->c;
    bind_matrix(b, block, "attn_qkv.weight", c->n_embd, c->n_conv_channel, 1, &l->qkv);
    bind_matrix(b, block, "attn_gate.weight", c->n_embd, c->d_inner, 1, &l->gate);
    bind_matrix(b, block, "ssm_alpha.weight", c->n_embd, c->n_v_head, 1, &l->alpha);
    bind_matrix(b, block, "ssm_beta.weight", c->n_embd, c->n_v_head, 1, &l->beta);
    bind_matrix(b, block, "ssm_out.weight", c->d_inner, c->n_embd, 1, &l->ssm_out);
    bind_vector(b, block, "ssm_conv1d.weight", c->conv_kernel, c->n_conv_channel, &l->conv);
    bind_vector(b, block, "ssm_dt.bias", c->n_v_head, 1, &l->dt_bias);
    bind_vector(b, block, "ssm_a", c->n_v_head, 1, &l->ssm_a);
    bind_vector(b, block, "ssm_norm.weight", c->d_state, 1, &l->ssm_norm);
}

static void bind_block(struct binder *b, int block, struct block_weights *l)
{
    l->recurrent = b->c->recurrent[block];
    bind_vector(b, block, "attn_norm.weight", b->c->n_embd, 1, &l->attn_norm);
    bind_vector(b, block, "post_attention_norm.weight", b->c->n_embd, 1, &l->post_norm);
    if (l->recurrent)
        bind_recurrent(b, block, l);
    else
        bind_attention(b, block, l);
    bind_ffn(b, block, &l->ffn);
}

static bool has_block(const struct gguf *g, int block)
{
    char prefix[32];
    size_t n = (size_t)snprintf(prefix, sizeof prefix, "blk.%d.", block);
    for (uint32_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (t->name_len > n && memcmp(t->name, prefix, n) == 0)
            return true;
    }
    return false;
}

static void bind_mtp(struct binder *b)
{
    const struct model_config *c = b->c;
    struct mtp_weights *m = &b->w->mtp;
    int block = c->n_layer;
    if (!has_block(b->g, block)) {
        strbuf_printf(&b->w->warnings, "the file announces an MTP block (block %d) but has no tensors of it; running without\n", block);
        return;
    }
    bind_block(b, block, &m->block);
    bind_matrix(b, block, "nextn.eh_proj.weight", 2 * (int64_t)c->n_embd, c->n_embd, 1, &m->eh_proj);
    bind_vector(b, block, "nextn.enorm.weight", c->n_embd, 1, &m->enorm);
    bind_vector(b, block, "nextn.hnorm.weight", c->n_embd, 1, &m->hnorm);
    m->head_norm = b->w->output_norm;
    m->embed = b->w->embed;
    m->head = b->w->head;
    if (find(b, block, "nextn.shared_head_norm.weight"))
        bind_vector(b, block, "nextn.shared_head_norm.weight", c->n_embd, 1, &m->head_norm);
    if (find(b, block, "nextn.embed_tokens.weight"))
        bind_matrix(b, block, "nextn.embed_tokens.weight", c->n_embd, c->n_vocab, 1, &m->embed);
    if (find(b, block, "nextn.shared_head_head.weight"))
        bind_matrix(b, block, "nextn.shared_head_head.weight", c->n_embd, c->n_vocab, 1, &m->head);
    m->present = !b->rc;
}

/* Room for every F16 or BF16 vector of the file that bind_vector may widen (matrices of these types have more rows than this
   counts: only tensors of one row, and convolution taps). */
static size_t vectors_bytes(const struct gguf *g, const struct model_config *c)
{
    size_t bytes = sizeof(float);
    for (uint32_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        bool narrow = t->ne[1] * t->ne[2] * t->ne[3] == 1 || t->ne[0] == (uint64_t)c->conv_kernel;
        if ((t->type == QTYPE_F16 || t->type == QTYPE_BF16) && narrow)
            bytes += t->size_bytes * 2;
    }
    return bytes;
}

static int wrap_shards(struct binder *b)
{
    struct weights *w = b->w;
    uint32_t n = gguf_shard_count(b->g);
    w->shards = mem_calloc(n, sizeof *w->shards);
    if (!w->shards)
        return error_nomem(b->err, "shard list", n * sizeof *w->shards);
    for (; w->n_shards < n; w->n_shards++) {
        size_t size;
        const uint8_t *data = gguf_shard_data(b->g, w->n_shards, &size);
        int rc = b->dev->ops->buf_wrap(b->dev, data, size, &w->shards[w->n_shards], b->err);
        if (rc)
            return rc;
    }
    return b->dev->ops->buf_alloc(b->dev, vectors_bytes(b->g, b->c), &w->vectors, b->err);
}

static void layout_state(struct weights *w, const struct model_config *c)
{
    size_t s = (size_t)c->n_v_head * c->d_state * c->d_state * sizeof(float);
    size_t conv = (size_t)(c->conv_kernel - 1) * c->n_conv_channel * sizeof(float), offset = 0;
    for (int32_t i = 0; i < c->n_layer; i++) {
        if (!w->blocks[i].recurrent)
            continue;
        w->blocks[i].s_offset = offset;
        w->blocks[i].conv_offset = offset + s;
        offset += s + conv;
    }
}

void weights_layout_kv(struct weights *w, const struct model_config *c, uint32_t kv_type)
{
    size_t plane = (size_t)c->n_head_kv * KV_PAGE_ROWS * qtype_row_bytes(kv_type, (uint64_t)c->head_dim), offset = 0;
    for (int32_t i = 0; i < c->n_layer; i++) {
        struct block_weights *l = &w->blocks[i];
        if (l->recurrent)
            continue;
        l->k_offset = offset;
        l->v_offset = offset + plane;
        offset += 2 * plane;
    }
    w->mtp.block.k_offset = 0;
    w->mtp.block.v_offset = plane;
}

static void warn_unused(struct binder *b)
{
    uint32_t n = gguf_tensor_count(b->g);
    if (n > b->n_used)
        strbuf_printf(&b->w->warnings, "%u of the file's %u tensors have no place in this architecture and are ignored\n", n - b->n_used,
                      n);
}

int weights_bind(const struct gguf *g, const struct model_config *c, struct dev *d, struct weights *w, skua_error *err)
{
    *w = (struct weights){0};
    struct binder b = {.g = g, .c = c, .dev = d, .w = w, .err = err};
    if (c->n_mtp > 0 && !has_block(g, 0) && has_block(g, c->n_layer))
        return error_set(err, SKUA_EUNSUPPORTED, "the file holds only an MTP block (no tensor of block 0): it is a draft head for "
                         "another model, not a model");
    b.rc = wrap_shards(&b);
    if (!b.rc) {
        w->blocks = mem_calloc((size_t)c->n_layer, sizeof *w->blocks);
        if (!w->blocks)
            b.rc = error_nomem(err, "block table", (size_t)c->n_layer * sizeof *w->blocks);
    }
    bind_matrix(&b, -1, "token_embd.weight", c->n_embd, c->n_vocab, 1, &w->embed);
    bind_vector(&b, -1, "output_norm.weight", c->n_embd, 1, &w->output_norm);
    w->tied = !b.rc && !find(&b, -1, "output.weight");
    if (w->tied)
        w->head = w->embed;
    else
        bind_matrix(&b, -1, "output.weight", c->n_embd, c->n_vocab, 1, &w->head);
    for (int32_t i = 0; i < c->n_layer && !b.rc; i++)
        bind_block(&b, i, &w->blocks[i]);
    if (c->n_mtp > 0 && !b.rc)
        bind_mtp(&b);
    if (b.rc) {
        weights_free(w, d);
        return b.rc;
    }
    layout_state(w, c);
    warn_unused(&b);
    if (strbuf_failed(&w->warnings)) {
        weights_free(w, d);
        return error_nomem(err, "warnings", 0);
    }
    return 0;
}

void weights_free(struct weights *w, struct dev *d)
{
    for (uint32_t i = 0; i < w->n_shards; i++)
        d->ops->buf_free(d, w->shards[i]);
    mem_free(w->shards);
    d->ops->buf_free(d, w->vectors);
    mem_free(w->blocks);
    strbuf_free(&w->warnings);
    *w = (struct weights){0};
}
