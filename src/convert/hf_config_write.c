/* Hyperparameters -> the architecture's GGUF keys, in the order in which the files of this family have them. */
#include <stdio.h>

#include "convert/hf_config.h"

struct keys {
    struct gguf_writer *w;
    const char *arch;
    int rc;
    skua_error *err;
    char key[96];
};

static const char *name(struct keys *k, const char *suffix)
{
    snprintf(k->key, sizeof k->key, "%s.%s", k->arch, suffix);
    return k->key;
}

static void put_u32(struct keys *k, const char *suffix, int32_t v)
{
    if (!k->rc)
        k->rc = gguf_writer_add_u32(k->w, name(k, suffix), (uint32_t)v, k->err);
}

/* Left out when 0: not given. */
static void put_f32(struct keys *k, const char *suffix, float v)
{
    if (!k->rc && v != 0)
        k->rc = gguf_writer_add_f32(k->w, name(k, suffix), v, k->err);
}

/* Left out when negative: not given. */
static void put_flag(struct keys *k, const char *suffix, int v)
{
    if (!k->rc && v >= 0)
        k->rc = gguf_writer_add_bool(k->w, name(k, suffix), v > 0, k->err);
}

static void put_array(struct keys *k, const char *suffix, enum gguf_type type, const void *items, int32_t n)
{
    if (!k->rc)
        k->rc = gguf_writer_add_array(k->w, name(k, suffix), type, items, (size_t)n, k->err);
}

static void put_attention(struct keys *k, const struct hf_config *c)
{
    put_u32(k, "attention.head_count", c->n_head);
    put_u32(k, "attention.head_count_kv", c->n_head_kv);
    put_u32(k, "attention.key_length", c->head_dim);
    put_u32(k, "attention.value_length", c->head_dim);
    put_f32(k, "attention.layer_norm_rms_epsilon", c->rms_eps);
}

static void put_rope_scaling(struct keys *k, const struct hf_config *c)
{
    if (!c->rope_scaling)
        return;
    size_t n = c->rope_scaling[0] == 'y' ? 4 : 6; /* yarn, linear */
    if (!k->rc)
        k->rc = gguf_writer_add_string(k->w, name(k, "rope.scaling.type"), c->rope_scaling, n, k->err);
    put_f32(k, "rope.scaling.factor", c->rope_factor);
    if (c->rope_original_ctx)
        put_u32(k, "rope.scaling.original_context_length", c->rope_original_ctx);
}

static void put_target(struct keys *k, const struct hf_config *c, int32_t n_mtp)
{
    put_u32(k, "block_count", c->n_layer + n_mtp);
    if (n_mtp)
        put_u32(k, "nextn_predict_layers", n_mtp);
    put_u32(k, "context_length", c->n_ctx);
    put_u32(k, "embedding_length", c->n_embd);
    if (c->moe) {
        put_u32(k, "expert_count", c->n_expert);
        put_u32(k, "expert_used_count", c->n_expert_used);
        put_u32(k, "expert_feed_forward_length", c->n_ff_expert);
        put_u32(k, "expert_shared_feed_forward_length", c->n_ff_shared);
    } else {
        put_u32(k, "feed_forward_length", c->n_ff);
    }
    put_attention(k, c);
    put_u32(k, "rope.dimension_count", c->n_rot);
    put_array(k, "rope.dimension_sections", GGUF_I32, c->sections, 4);
    put_f32(k, "rope.freq_base", c->rope_theta);
    put_rope_scaling(k, c);
    put_u32(k, "full_attention_interval", c->interval);
    if (c->irregular) {
        uint8_t flags[HF_MAX_LAYERS + 1] = {0};
        for (int32_t i = 0; i < c->n_layer; i++)
            flags[i] = c->recurrent[i];
        put_array(k, "attention.recurrent_layers", GGUF_BOOL, flags, c->n_layer + n_mtp);
    }
    put_u32(k, "ssm.conv_kernel", c->conv_kernel);
    put_u32(k, "ssm.state_size", c->d_state);
    put_u32(k, "ssm.group_count", c->n_k_head);
    put_u32(k, "ssm.time_step_rank", c->n_v_head);
    put_u32(k, "ssm.inner_size", c->n_v_head * c->d_state);
    put_u32(k, "vocab_size", c->n_vocab);
}

/* target_layers counts from 1: the file format numbers the layer whose input is read, a checkpoint the one whose output is. */
static void put_drafter(struct keys *k, const struct hf_config *c)
{
    int32_t layers[HF_MAX_TAPS];
    uint8_t sliding[HF_MAX_LAYERS];
    put_u32(k, "block_count", c->n_layer);
    put_u32(k, "embedding_length", c->n_embd);
    put_u32(k, "feed_forward_length", c->n_ff);
    put_u32(k, "context_length", c->n_ctx);
    put_attention(k, c);
    put_flag(k, "attention.causal", c->causal);
    put_f32(k, "rope.freq_base", c->rope_theta);
    put_u32(k, "rope.dimension_count", c->n_rot);
    put_rope_scaling(k, c);
    put_u32(k, "block_size", c->block_size);
    for (int32_t i = 0; i < c->n_taps; i++)
        layers[i] = c->taps[i] + 1;
    put_array(k, "target_layers", GGUF_I32, layers, c->n_taps);
    if (c->window) {
        for (int32_t i = 0; i < c->n_layer; i++)
            sliding[i] = c->sliding[i];
        put_u32(k, "attention.sliding_window", c->window);
        put_array(k, "attention.sliding_window_pattern", GGUF_BOOL, sliding, c->n_layer);
    }
    put_f32(k, "embedding_scale", c->emb_scale);
    put_f32(k, "logit_scale", c->logit_scale);
    put_f32(k, "final_logit_softcapping", c->softcap);
    if (c->kind == HF_DFLASH2) {
        put_u32(k, "conv_kernel_size", c->kernel_size);
        put_u32(k, "conv_group_size", c->group_size);
        put_u32(k, "selector_rank", c->selector_rank);
        put_u32(k, "selector_top_k", c->selector_top_k);
    }
    if (c->kind == HF_DSPARK)
        put_flag(k, "sample_from_anchor", c->sample_from_anchor);
}

int hf_config_write(const struct hf_config *c, int32_t n_mtp, struct gguf_writer *w, skua_error *err)
{
    struct keys k = {.w = w, .arch = c->arch, .err = err};
    c->kind == HF_TARGET ? put_target(&k, c, n_mtp) : put_drafter(&k, c);
    return k.rc;
}
