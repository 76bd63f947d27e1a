/* Tensor binding; see weights.h. */
#include "model/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "quant/type.h"

static void bind_ffn(struct binder *b, const struct model_config *c, int block, struct ffn_weights *f)
{
    if (!c->moe) {
        bind_matrix(b, block, "ffn_gate.weight", c->n_embd, c->n_ff, 1, &f->gate);
        bind_matrix(b, block, "ffn_up.weight", c->n_embd, c->n_ff, 1, &f->up);
        bind_matrix(b, block, "ffn_down.weight", c->n_ff, c->n_embd, 1, &f->down);
        return;
    }
    bind_float_matrix(b, block, "ffn_gate_inp.weight", c->n_embd, c->n_expert, &f->router);
    if (bind_find(b, block, "ffn_gate_up_exps.weight"))
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

static void bind_attention(struct binder *b, const struct model_config *c, int block, struct block_weights *l)
{
    int64_t q = (int64_t)c->head_dim * c->n_head, kv = (int64_t)c->head_dim * c->n_head_kv;
    if (!b->rc && bind_find(b, block, "attn_qkv.weight")) {
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

static void bind_recurrent(struct binder *b, const struct model_config *c, int block, struct block_weights *l)
{
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

static void bind_block(struct binder *b, const struct model_config *c, int block, struct block_weights *l)
{
    l->recurrent = block < c->n_layer && c->recurrent[block];
    bind_vector(b, block, "attn_norm.weight", c->n_embd, 1, &l->attn_norm);
    bind_vector(b, block, "post_attention_norm.weight", c->n_embd, 1, &l->post_norm);
    if (l->recurrent)
        bind_recurrent(b, c, block, l);
    else
        bind_attention(b, c, block, l);
    bind_ffn(b, c, block, &l->ffn);
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

void weights_bind_mtp(struct binder *b, const struct model_config *c, const struct weights *trunk, struct mtp_weights *m)
{
    const int block = c->n_layer;
    bind_block(b, c, block, &m->block);
    bind_matrix(b, block, "nextn.eh_proj.weight", 2 * (int64_t)c->n_embd, c->n_embd, 1, &m->eh_proj);
    bind_vector(b, block, "nextn.enorm.weight", c->n_embd, 1, &m->enorm);
    bind_vector(b, block, "nextn.hnorm.weight", c->n_embd, 1, &m->hnorm);
    m->head_norm = trunk->output_norm;
    m->embed = trunk->embed;
    m->head = trunk->head;
    if (bind_find(b, block, "nextn.shared_head_norm.weight"))
        bind_vector(b, block, "nextn.shared_head_norm.weight", c->n_embd, 1, &m->head_norm);
    if (bind_find(b, block, "nextn.embed_tokens.weight"))
        bind_lookup(b, block, "nextn.embed_tokens.weight", c->n_embd, c->n_vocab, 1, &m->embed);
    if (bind_find(b, block, "nextn.shared_head_head.weight"))
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

static void layout_state(struct weights *w, const struct model_config *c)
{
    size_t s = (size_t)c->n_v_head * c->d_state * c->d_state * sizeof(float);
    size_t conv = (size_t)(c->conv_kernel - 1) * c->n_conv_channel * sizeof(float), offset = 0;
    size_t record = c->n_recurrent ? config_tape_row_bytes(c) / (size_t)c->n_recurrent : 0, tape_offset = 0;
    for (int32_t i = 0; i < c->n_layer; i++) {
        if (!w->blocks[i].recurrent)
            continue;
        w->blocks[i].s_offset = offset;
        w->blocks[i].conv_offset = offset + s;
        offset += s + conv;
        w->blocks[i].tape_conv_offset = tape_offset;
        w->blocks[i].tape_step_offset = tape_offset + (size_t)c->n_conv_channel * sizeof(float);
        tape_offset += record;
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
    weights_layout_mtp(&w->mtp, c, kv_type);
}

void weights_layout_mtp(struct mtp_weights *m, const struct model_config *c, uint32_t kv_type)
{
    m->block.k_offset = 0;
    m->block.v_offset = config_mtp_page_bytes(c, kv_type) / 2;
}

static void warn_unused(const struct binder *b, struct weights *w)
{
    uint32_t n = gguf_tensor_count(b->g);
    if (n > b->n_used)
        strbuf_printf(&w->warnings, "%u of the file's %u tensors have no place in this architecture and are ignored\n", n - b->n_used,
                      n);
}

int weights_bind(const struct gguf *g, const struct model_config *c, struct dev *d, struct weights *w, skua_error *err)
{
    *w = (struct weights){0};
    struct binder b = {.g = g, .dev = d, .file = &w->file, .err = err};
    if (c->n_mtp > 0 && !has_block(g, 0) && has_block(g, c->n_layer))
        return error_set(err, SKUA_EUNSUPPORTED, "the file holds only an MTP block (no tensor of block 0): it is a draft head for "
                         "another model, not a model");
    if (!bind_open(&b, vectors_bytes(g, c))) {
        w->blocks = mem_calloc((size_t)c->n_layer, sizeof *w->blocks);
        if (!w->blocks)
            b.rc = error_nomem(err, "block table", (size_t)c->n_layer * sizeof *w->blocks);
    }
    bind_lookup(&b, -1, "token_embd.weight", c->n_embd, c->n_vocab, 1, &w->embed);
    bind_vector(&b, -1, "output_norm.weight", c->n_embd, 1, &w->output_norm);
    w->tied = !b.rc && !bind_find(&b, -1, "output.weight");
    if (w->tied) {
        w->head = w->embed;
        bind_tiles(&b, bind_find(&b, -1, "token_embd.weight"), &w->head);
    } else
        bind_matrix(&b, -1, "output.weight", c->n_embd, c->n_vocab, 1, &w->head);
    for (int32_t i = 0; i < c->n_layer && !b.rc; i++)
        bind_block(&b, c, i, &w->blocks[i]);
    b.tiling = false; /* most sessions do not draft with the block that comes with the model */
    if (c->n_mtp > 0 && has_block(g, c->n_layer))
        weights_bind_mtp(&b, c, w, &w->mtp);
    else if (c->n_mtp > 0)
        strbuf_printf(&w->warnings, "the file announces an MTP block (block %d) but has no tensors of it; running without\n", c->n_layer);
    if (b.rc) {
        weights_free(w, d);
        return b.rc;
    }
    layout_state(w, c);
    warn_unused(&b, w);
    if (strbuf_failed(&w->warnings)) {
        weights_free(w, d);
        return error_nomem(err, "warnings", 0);
    }
    return 0;
}

void weights_free(struct weights *w, struct dev *d)
{
    bound_file_free(&w->file, d);
    mem_free(w->blocks);
    strbuf_free(&w->warnings);
    *w = (struct weights){0};
}
