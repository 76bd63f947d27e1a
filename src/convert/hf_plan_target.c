/* Tensors of qwen35 and qwen35moe. */
#include <stdio.h>
#include <string.h>

#include "convert/hf_plan_internal.h"

/* Norm weights are stored as their distance from 1, which engines want added, except where somebody has done so: MLX adds it when it
   turns the convolution's [channels, 1, kernel] into [channels, kernel, 1], so that shape tells. */
static enum hf_value norm_value(const struct planner *p)
{
    char name[80];
    for (int32_t i = 0; i < p->c->n_layer; i++) {
        snprintf(name, sizeof name, "layers.%d.linear_attn.conv1d.weight", i);
        const struct st_tensor *t = p->c->recurrent[i] ? hf_source_find(p->s, name, false) : NULL;
        if (t)
            return t->n_dims == 3 && t->shape[2] == 1 && t->shape[1] > 1 ? HF_AS_IS : HF_PLUS_ONE;
    }
    return HF_PLUS_ONE;
}

static void attention(struct planner *p, enum hf_value norm)
{
    uint64_t e = (uint64_t)p->c->n_embd, d = (uint64_t)p->c->head_dim, h = (uint64_t)p->c->n_head, hk = (uint64_t)p->c->n_head_kv;
    plan_matrix(p, "attn_q.weight", "self_attn.q_proj.weight", 2 * d * h, e);
    plan_matrix(p, "attn_k.weight", "self_attn.k_proj.weight", d * hk, e);
    plan_matrix(p, "attn_v.weight", "self_attn.v_proj.weight", d * hk, e);
    plan_matrix(p, "attn_output.weight", "self_attn.o_proj.weight", e, d * h);
    plan_vector(p, "attn_q_norm.weight", "self_attn.q_norm.weight", d, norm);
    plan_vector(p, "attn_k_norm.weight", "self_attn.k_norm.weight", d, norm);
}

/* Projections of Gated DeltaNet: four matrices, or two fused ones of which each gives two. */
static void projections(struct planner *p, bool wide)
{
    uint64_t e = (uint64_t)p->c->n_embd, n_v = (uint64_t)p->c->n_v_head, d = (uint64_t)p->c->d_state;
    uint64_t key = (uint64_t)p->c->n_k_head * d, value = n_v * d, fused;
    if (wide && plan_has(p, "linear_attn.in_proj_qkvz.weight")) {
        fused = plan_bind(p, "linear_attn.in_proj_qkvz.weight", 1, 2 * key + 2 * value, e);
        plan_put(p, "attn_qkv.weight", (struct hf_output){.weight = (uint32_t)fused, .rows = HF_ROWS_QKVZ_QKV, .ne = {0, 2 * key + value}});
        plan_put(p, "attn_gate.weight", (struct hf_output){.weight = (uint32_t)fused, .rows = HF_ROWS_QKVZ_Z, .ne = {0, value}});
    } else if (wide) {
        plan_put(p, "attn_qkv.weight", (struct hf_output){.weight = plan_bind(p, "linear_attn.in_proj_qkv.weight", 1, 2 * key + value, e),
                                                          .rows = HF_ROWS_QKV});
        plan_put(p, "attn_gate.weight", (struct hf_output){.weight = plan_bind(p, "linear_attn.in_proj_z.weight", 1, value, e),
                                                           .rows = HF_ROWS_V, .unit = d});
    } else if (plan_has(p, "linear_attn.in_proj_ba.weight")) {
        fused = plan_bind(p, "linear_attn.in_proj_ba.weight", 1, 2 * n_v, e);
        plan_put(p, "ssm_alpha.weight", (struct hf_output){.weight = (uint32_t)fused, .rows = HF_ROWS_BA_A, .ne = {0, n_v}});
        plan_put(p, "ssm_beta.weight", (struct hf_output){.weight = (uint32_t)fused, .rows = HF_ROWS_BA_B, .ne = {0, n_v}});
    } else {
        plan_put(p, "ssm_alpha.weight", (struct hf_output){.weight = plan_bind(p, "linear_attn.in_proj_a.weight", 1, n_v, e),
                                                           .rows = HF_ROWS_V, .unit = 1});
        plan_put(p, "ssm_beta.weight", (struct hf_output){.weight = plan_bind(p, "linear_attn.in_proj_b.weight", 1, n_v, e),
                                                          .rows = HF_ROWS_V, .unit = 1});
    }
}

static void delta_net(struct planner *p)
{
    uint64_t e = (uint64_t)p->c->n_embd, n_v = (uint64_t)p->c->n_v_head, d = (uint64_t)p->c->d_state, value = n_v * d;
    uint64_t channels = 2 * (uint64_t)p->c->n_k_head * d + value;
    projections(p, true);
    plan_put(p, "ssm_conv1d.weight", (struct hf_output){.weight = plan_bind(p, "linear_attn.conv1d.weight", 1, channels,
                                                                            (uint64_t)p->c->conv_kernel),
                                                        .rows = HF_ROWS_QKV});
    projections(p, false);
    plan_put(p, "ssm_dt.bias", (struct hf_output){.weight = plan_bind(p, "linear_attn.dt_bias", 1, 1, n_v), .col_unit = 1});
    plan_put(p, "ssm_a", (struct hf_output){.weight = plan_bind(p, "linear_attn.A_log", 1, 1, n_v), .col_unit = 1, .value = HF_MINUS_EXP});
    plan_vector(p, "ssm_norm.weight", "linear_attn.norm.weight", d, HF_AS_IS);
    plan_put(p, "ssm_out.weight", (struct hf_output){.weight = plan_bind(p, "linear_attn.out_proj.weight", 1, e, value), .col_unit = d});
}

/* One matrix for each expert, or all in one tensor, under the name of a stack ("switch_mlp"). */
static void experts(struct planner *p, const char *name, const char *role, uint64_t rows, uint64_t cols)
{
    uint32_t n = (uint32_t)p->c->n_expert;
    char hf[80];
    snprintf(hf, sizeof hf, "mlp.switch_mlp.%s.weight", role);
    if (plan_has(p, hf)) {
        plan_put(p, name, (struct hf_output){.weight = plan_bind(p, hf, n, rows, cols)});
        return;
    }
    struct hf_output o = {.n_weights = n};
    for (uint32_t i = 0; i < n && !p->rc; i++) {
        snprintf(hf, sizeof hf, "mlp.experts.%u.%s.weight", i, role);
        uint32_t w = plan_bind(p, hf, 1, rows, cols);
        if (i == 0)
            o.weight = w;
    }
    plan_put(p, name, o);
}

static void routed_experts(struct planner *p)
{
    uint64_t e = (uint64_t)p->c->n_embd, n = (uint64_t)p->c->n_expert, f = (uint64_t)p->c->n_ff_expert;
    if (plan_has(p, "mlp.experts.gate_up_proj")) {
        uint32_t fused = plan_bind(p, "mlp.experts.gate_up_proj", n, 2 * f, e);
        plan_put(p, "ffn_gate_exps.weight", (struct hf_output){.weight = fused, .ne = {0, f}});
        plan_put(p, "ffn_up_exps.weight", (struct hf_output){.weight = fused, .ne = {0, f}, .row_first = f});
    } else {
        experts(p, "ffn_gate_exps.weight", "gate_proj", f, e);
        experts(p, "ffn_up_exps.weight", "up_proj", f, e);
    }
    if (plan_has(p, "mlp.experts.down_proj"))
        plan_put(p, "ffn_down_exps.weight", (struct hf_output){.weight = plan_bind(p, "mlp.experts.down_proj", n, e, f)});
    else
        experts(p, "ffn_down_exps.weight", "down_proj", e, f);
}

static void feed_forward(struct planner *p)
{
    uint64_t e = (uint64_t)p->c->n_embd, f = (uint64_t)p->c->n_ff, s = (uint64_t)p->c->n_ff_shared;
    if (!p->c->moe) {
        plan_matrix(p, "ffn_gate.weight", "mlp.gate_proj.weight", f, e);
        plan_matrix(p, "ffn_up.weight", "mlp.up_proj.weight", f, e);
        plan_matrix(p, "ffn_down.weight", "mlp.down_proj.weight", e, f);
        return;
    }
    plan_matrix(p, "ffn_gate_inp.weight", "mlp.gate.weight", (uint64_t)p->c->n_expert, e);
    routed_experts(p);
    plan_matrix(p, "ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight", 1, e);
    plan_matrix(p, "ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight", s, e);
    plan_matrix(p, "ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight", s, e);
    plan_matrix(p, "ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight", e, s);
}

static void layer(struct planner *p, bool recurrent, enum hf_value norm)
{
    uint64_t e = (uint64_t)p->c->n_embd;
    plan_vector(p, "attn_norm.weight", "input_layernorm.weight", e, norm);
    plan_vector(p, "post_attention_norm.weight", "post_attention_layernorm.weight", e, norm);
    if (recurrent)
        delta_net(p);
    else
        attention(p, norm);
    feed_forward(p);
}

static void mtp_block(struct planner *p, enum hf_value norm)
{
    uint64_t e = (uint64_t)p->c->n_embd, v = (uint64_t)p->c->n_vocab;
    snprintf(p->block, sizeof p->block, "blk.%d.", p->c->n_layer);
    snprintf(p->layer, sizeof p->layer, "mtp.layers.0.");
    layer(p, false, norm);
    snprintf(p->block, sizeof p->block, "blk.%d.nextn.", p->c->n_layer);
    snprintf(p->layer, sizeof p->layer, "mtp.");
    plan_matrix(p, "eh_proj.weight", "fc.weight", e, 2 * e);
    plan_vector(p, "enorm.weight", "pre_fc_norm_embedding.weight", e, norm);
    plan_vector(p, "hnorm.weight", "pre_fc_norm_hidden.weight", e, norm);
    plan_vector(p, "shared_head_norm.weight", "norm.weight", e, norm);
    if (plan_has(p, "embed_tokens.weight"))
        plan_matrix(p, "embed_tokens.weight", "embed_tokens.weight", v, e);
    if (plan_has(p, "lm_head.weight"))
        plan_matrix(p, "shared_head_head.weight", "lm_head.weight", v, e);
}

void plan_target(struct planner *p, enum hf_mtp mtp)
{
    uint64_t e = (uint64_t)p->c->n_embd, v = (uint64_t)p->c->n_vocab;
    enum hf_value norm = norm_value(p);
    bool has_mtp = p->c->n_mtp != 0 && plan_has(p, "mtp.fc.weight");
    if (mtp == HF_MTP_ONLY && !has_mtp) {
        p->rc = error_set(p->err, SKUA_EARG, "the checkpoint has no MTP block (no tensor 'mtp.fc.weight', or mtp_num_hidden_layers is 0)");
        return;
    }
    p->plan->n_mtp = has_mtp && mtp != HF_MTP_NONE;
    plan_matrix(p, "token_embd.weight", "embed_tokens.weight", v, e);
    plan_vector(p, "output_norm.weight", "norm.weight", e, norm);
    if (p->c->tied)
        hf_source_find(p->s, "lm_head.weight", true); /* a copy of the embedding, if it is there */
    else
        plan_matrix(p, "output.weight", "lm_head.weight", v, e);
    for (int32_t i = 0; i < p->c->n_layer && mtp != HF_MTP_ONLY; i++) {
        snprintf(p->block, sizeof p->block, "blk.%d.", i);
        snprintf(p->layer, sizeof p->layer, "layers.%d.", i);
        layer(p, p->c->recurrent[i], norm);
    }
    if (p->plan->n_mtp)
        mtp_block(p, norm);
}
