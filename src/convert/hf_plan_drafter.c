/* Tensors of the drafters DFlash, DFlash2 and DSpark. Norm weights are plain, as in Qwen3. */
#include <stdio.h>

#include "convert/hf_plan_internal.h"

static void layer(struct planner *p)
{
    uint64_t e = (uint64_t)p->c->n_embd, f = (uint64_t)p->c->n_ff, d = (uint64_t)p->c->head_dim;
    uint64_t h = (uint64_t)p->c->n_head, hk = (uint64_t)p->c->n_head_kv;
    plan_vector(p, "attn_norm.weight", "input_layernorm.weight", e, HF_AS_IS);
    plan_vector(p, "ffn_norm.weight", "post_attention_layernorm.weight", e, HF_AS_IS);
    plan_matrix(p, "attn_q.weight", "self_attn.q_proj.weight", d * h, e);
    plan_matrix(p, "attn_k.weight", "self_attn.k_proj.weight", d * hk, e);
    plan_matrix(p, "attn_v.weight", "self_attn.v_proj.weight", d * hk, e);
    plan_matrix(p, "attn_output.weight", "self_attn.o_proj.weight", e, d * h);
    plan_vector(p, "attn_q_norm.weight", "self_attn.q_norm.weight", d, HF_AS_IS);
    plan_vector(p, "attn_k_norm.weight", "self_attn.k_norm.weight", d, HF_AS_IS);
    plan_matrix(p, "ffn_gate.weight", "mlp.gate_proj.weight", f, e);
    plan_matrix(p, "ffn_up.weight", "mlp.up_proj.weight", f, e);
    plan_matrix(p, "ffn_down.weight", "mlp.down_proj.weight", e, f);
}

/* base_kernel is [2, kernel, E]; the projection makes 2 * kernel taps for each group of channels. */
static void convolution(struct planner *p, const char *name, const char *hf)
{
    uint64_t e = (uint64_t)p->c->n_embd, k = (uint64_t)p->c->kernel_size, groups = e / (uint64_t)p->c->group_size;
    char base[64], proj[64], hf_base[80], hf_proj[80];
    snprintf(base, sizeof base, "%s_base", name);
    snprintf(proj, sizeof proj, "%s_proj.weight", name);
    snprintf(hf_base, sizeof hf_base, "%s.base_kernel", hf);
    snprintf(hf_proj, sizeof hf_proj, "%s.kernel_projection.weight", hf);
    plan_put(p, base, (struct hf_output){.weight = plan_bind(p, hf_base, 2, k, e)});
    plan_matrix(p, proj, hf_proj, 2 * k * groups, e);
}

void plan_drafter(struct planner *p)
{
    uint64_t e = (uint64_t)p->c->n_embd, v = (uint64_t)p->c->n_vocab, n_taps = (uint64_t)p->c->n_taps, rank;
    const struct st_tensor *fc = hf_source_find(p->s, "fc.weight", false);
    /* the target's width follows from the fusion's input; usually it is the drafter's own */
    uint64_t inputs = fc && fc->n_dims == 2 && fc->shape[1] % n_taps == 0 ? fc->shape[1] : n_taps * e;
    plan_matrix(p, "fc.weight", "fc.weight", e, inputs);
    plan_vector(p, "enc.output_norm.weight", "hidden_norm.weight", e, HF_AS_IS);
    plan_vector(p, "output_norm.weight", "norm.weight", e, HF_AS_IS);
    if (plan_has(p, "embed_tokens.weight"))
        plan_matrix(p, "token_embd.weight", "embed_tokens.weight", v, e);
    if (plan_has(p, "lm_head.weight"))
        plan_matrix(p, "output.weight", "lm_head.weight", v, e);
    for (int32_t i = 0; i < p->c->n_layer; i++) {
        snprintf(p->block, sizeof p->block, "blk.%d.", i);
        snprintf(p->layer, sizeof p->layer, "layers.%d.", i);
        layer(p);
        if (p->c->kind == HF_DFLASH2) {
            convolution(p, "attn_conv", "attention_conv");
            convolution(p, "ffn_conv", "mlp_conv");
        }
    }
    p->block[0] = p->layer[0] = '\0';
    if (p->c->kind == HF_DFLASH2) {
        rank = (uint64_t)p->c->selector_rank;
        plan_matrix(p, "selector_hidden.weight", "candidate_selector.hidden_projection.weight", rank, e);
        plan_matrix(p, "selector_predecessor.weight", "candidate_selector.predecessor_codebook", v, rank);
        plan_matrix(p, "selector_successor.weight", "candidate_selector.successor_codebook", v, rank);
    }
    if (p->c->kind == HF_DSPARK) {
        rank = (uint64_t)p->c->markov_rank;
        plan_matrix(p, "markov_w1.weight", "markov_head.markov_w1.weight", v, rank);
        plan_matrix(p, "markov_w2.weight", "markov_head.markov_w2.weight", v, rank);
        if (plan_has(p, "confidence_head.proj.weight"))
            plan_matrix(p, "conf_proj.weight", "confidence_head.proj.weight", 1, e + rank);
        if (plan_has(p, "confidence_head.proj.bias"))
            plan_vector(p, "conf_proj.bias", "confidence_head.proj.bias", 1, HF_AS_IS);
    }
}
