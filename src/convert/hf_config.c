/* config.json -> hyperparameters; see hf_config.h. A multimodal checkpoint keeps the language model's fields in text_config, which is
   looked at first. */
#include "convert/hf_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert/hf_json.h"

#define CONFIG_NAME "config.json"
#define MAX_WIDTH (1 << 24)
#define MAX_VOCAB (1 << 21)

static const struct { const char *name; enum hf_kind kind; const char *arch; } architectures[] = {
    {"Qwen3_5ForCausalLM", HF_TARGET, "qwen35"},
    {"Qwen3_5ForConditionalGeneration", HF_TARGET, "qwen35"},
    {"Qwen3_5MoeForCausalLM", HF_TARGET, "qwen35moe"},
    {"Qwen3_5MoeForConditionalGeneration", HF_TARGET, "qwen35moe"},
    {"DFlashDraftModel", HF_DFLASH, "dflash"},
    {"DFlash2DraftModel", HF_DFLASH2, "dflash"},
    {"DSparkDraftModel", HF_DSPARK, "dflash"},
    {"Qwen3DSparkModel", HF_DSPARK, "dflash"},
};
#define N_ARCHITECTURES (sizeof architectures / sizeof *architectures)

static void read_architecture(struct hf_reader *r, struct hf_config *c)
{
    char list[300];
    size_t n = 0;
    const json_t *v = hf_get(r, "architectures");
    const char *name = json_string_value(json_array_get(v, 0));
    if (!name || json_array_size(v) != 1) {
        hf_bad_field(r, "architectures", v, "an array with one name");
        return;
    }
    for (size_t i = 0; i < N_ARCHITECTURES; i++) {
        if (!strcmp(name, architectures[i].name)) {
            c->kind = architectures[i].kind;
            c->arch = architectures[i].arch;
            c->moe = !strcmp(c->arch, "qwen35moe");
            return;
        }
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", architectures[i].name);
    }
    r->rc = error_set(r->err, SKUA_EUNSUPPORTED, "%s: architecture '%.80s' is not supported; supported: %s", r->path, name, list);
}

/* ---- quantization ---- */

static void unsupported_quant(struct hf_reader *r, const char *what, const char *name)
{
    r->rc = error_set(r->err, SKUA_EUNSUPPORTED, "%s: %s '%.60s' is not supported; supported: fp8 (E4M3), modelopt (NVFP4, FP8), MLX "
                      "(affine, nvfp4)", r->path, what, name);
}

static void read_fp8(struct hf_reader *q, struct hf_config *c)
{
    int32_t block[2] = {0, 0}, n = 0;
    const char *format = hf_read_string(q, "fmt");
    if (format && strcmp(format, "e4m3"))
        unsupported_quant(q, "fp8 format", format);
    hf_read_ints(q, "weight_block_size", 1, 65536, block, 2, &n);
    if (!q->rc && n == 1)
        hf_bad_field(q, "weight_block_size", hf_get(q, "weight_block_size"), "two integers");
    c->fp8_rows = block[0];
    c->fp8_cols = block[1];
}

static void read_quant(struct hf_reader *r, struct hf_config *c, const json_t *hf_quant)
{
    const json_t *mlx = hf_get(r, "quantization"), *hf = hf_get(r, "quantization_config");
    struct hf_reader q = {.path = r->path, .objects = {mlx ? mlx : hf, json_object_get(hf_quant, "quantization")}, .err = r->err};
    const char *method = mlx ? NULL : hf_read_string(&q, "quant_method");
    const char *algo = hf_read_string(&q, "quant_algo"), *mode = hf_read_string(&q, "mode");
    if (mlx) {
        c->quant = HF_QUANT_MLX;
        if (!q.rc && mode && strcmp(mode, "affine") && strcmp(mode, "nvfp4"))
            unsupported_quant(&q, "MLX quantization mode", mode);
    } else if (!q.rc && method && !strcmp(method, "fp8")) {
        c->quant = HF_QUANT_FP8;
        read_fp8(&q, c);
    } else if (!q.rc && algo && (!method || !strcmp(method, "modelopt") || !strcmp(method, "modelopt_fp4"))) {
        c->quant = HF_QUANT_MODELOPT;
        if (strcmp(algo, "NVFP4") && strcmp(algo, "FP8") && strcmp(algo, "MIXED_PRECISION"))
            unsupported_quant(&q, "modelopt quant_algo", algo);
    } else if (!q.rc && (method || hf || hf_quant)) {
        unsupported_quant(&q, "quant_method", method ? method : "(not named)");
    }
    if (q.rc)
        r->rc = q.rc;
}

/* ---- what targets and drafters share ---- */

static void read_common(struct hf_reader *r, struct hf_config *c)
{
    hf_read_int(r, "num_hidden_layers", true, 1, HF_MAX_LAYERS, &c->n_layer);
    hf_read_int(r, "hidden_size", true, 1, MAX_WIDTH, &c->n_embd);
    hf_read_int(r, "vocab_size", true, 1, MAX_VOCAB, &c->n_vocab);
    hf_read_int(r, "max_position_embeddings", true, 1, INT32_MAX, &c->n_ctx);
    hf_read_int(r, "intermediate_size", !c->moe, 1, MAX_WIDTH, &c->n_ff);
    hf_read_int(r, "num_attention_heads", true, 1, 65536, &c->n_head);
    hf_read_int(r, "num_key_value_heads", true, 1, 65536, &c->n_head_kv);
    hf_read_int(r, "head_dim", c->kind != HF_TARGET, 2, 4096, &c->head_dim);
    hf_read_float(r, "rms_norm_eps", true, 1e-12, 0.1, &c->rms_eps);
    hf_read_bool(r, "tie_word_embeddings", &c->tied);
    hf_require_bool(r, "attention_bias", false);
    hf_require_string(r, "hidden_act", "silu");
    if (!r->rc && c->n_head % c->n_head_kv)
        hf_bad_field(r, "num_key_value_heads", hf_get(r, "num_key_value_heads"), "a divisor of num_attention_heads");
    if (!r->rc && c->head_dim % 2)
        hf_bad_field(r, "head_dim", hf_get(r, "head_dim"), "an even number");
}

/* A constant of YaRN that may be given, as what it is anyway. */
static void require_number(struct hf_reader *r, const char *key, double usual)
{
    double v = usual;
    hf_read_number(r, key, false, -1e9, 1e9, &v);
    if (!r->rc && fabs(v - usual) > 1e-4 * usual)
        r->rc = error_set(r->err, SKUA_EUNSUPPORTED, "%s: '%s' is %g; supported with this factor: %g", r->path, key, v, usual);
}

static void read_rope(struct hf_reader *r, struct hf_config *c)
{
    double partial = c->kind == HF_TARGET ? 0.25 : 1.0;
    int32_t n = 0;
    if (r->rc)
        return;
    struct hf_reader p = *r;
    const json_t *parameters = hf_get(r, "rope_parameters"), *scaling = hf_get(r, "rope_scaling");
    p.objects[2] = p.objects[1]; /* at most two are in use */
    p.objects[1] = p.objects[0];
    p.objects[0] = parameters ? parameters : scaling;
    hf_read_float(&p, "rope_theta", c->kind != HF_TARGET, 1, 1e12, &c->rope_theta);
    hf_read_number(&p, "partial_rotary_factor", false, 1e-3, 1, &partial);
    hf_read_ints(&p, "mrope_section", 0, 65536, c->sections, 4, &n);
    const char *type = hf_read_string(&p, "rope_type");
    if (!type)
        type = hf_read_string(&p, "type"); /* the older name */
    c->n_rot = (int32_t)lround(c->head_dim * partial);
    if (type && (!strcmp(type, "yarn") || !strcmp(type, "linear"))) {
        c->rope_scaling = strcmp(type, "yarn") ? "linear" : "yarn";
        hf_read_float(&p, "factor", true, 1, 1e4, &c->rope_factor);
        hf_read_int(&p, "original_max_position_embeddings", false, 1, INT32_MAX, &c->rope_original_ctx);
        if (!strcmp(type, "yarn")) {
            require_number(&p, "attention_factor", 1 + 0.1 * log((double)c->rope_factor));
            require_number(&p, "beta_fast", 32);
            require_number(&p, "beta_slow", 1);
        }
    } else if (!p.rc && type && strcmp(type, "default") && strcmp(type, "mrope")) {
        p.rc = error_set(r->err, SKUA_EUNSUPPORTED, "%s: 'rope_type' is '%.50s'; supported: default, linear, yarn", r->path, type);
    }
    if (!p.rc && (c->n_rot < 2 || c->n_rot % 2))
        p.rc = error_set(r->err, SKUA_EFORMAT, "%s: 'partial_rotary_factor' %g of 'head_dim' %d is %d, expected an even number "
                         "of at least 2", r->path, partial, c->head_dim, c->n_rot);
    if (!p.rc && c->kind == HF_TARGET
        && (int64_t)c->sections[0] + c->sections[1] + c->sections[2] + c->sections[3] > c->n_rot / 2 && n > 0)
        hf_bad_field(&p, "mrope_section", hf_get(&p, "mrope_section"), "a sum of at most half of the rotated values");
    r->rc = p.rc;
}

/* layer_types, where given: for each layer, is it of this kind? */
static void read_layer_types(struct hf_reader *r, const struct hf_config *c, const char *yes, bool *flags)
{
    const json_t *v = r->rc ? NULL : hf_get(r, "layer_types");
    if (!v)
        return;
    if (!json_is_array(v) || json_array_size(v) != (size_t)c->n_layer) {
        hf_bad_field(r, "layer_types", v, "an array with one entry per layer");
        return;
    }
    for (int32_t i = 0; i < c->n_layer && !r->rc; i++) {
        const json_t *item = json_array_get(v, (size_t)i);
        const char *name = json_string_value(item);
        flags[i] = name && !strcmp(name, yes);
        if (!name || (!flags[i] && strcmp(name, "full_attention")))
            r->rc = error_set(r->err, SKUA_EUNSUPPORTED, "%s: 'layer_types' has '%.50s' for layer %d; supported: full_attention, %s",
                              r->path, name ? name : "(not a string)", i, yes);
    }
}

/* ---- targets ---- */

static void read_layer_kinds(struct hf_reader *r, struct hf_config *c)
{
    c->interval = 4;
    hf_read_int(r, "full_attention_interval", false, 1, HF_MAX_LAYERS, &c->interval);
    for (int32_t i = 0; i < c->n_layer; i++)
        c->recurrent[i] = (i + 1) % c->interval != 0;
    read_layer_types(r, c, "linear_attention", c->recurrent);
    for (int32_t i = 0; i < c->n_layer; i++)
        c->irregular |= c->recurrent[i] != ((i + 1) % c->interval != 0);
}

static void read_moe(struct hf_reader *r, struct hf_config *c)
{
    hf_read_int(r, "num_experts", true, 1, 4096, &c->n_expert);
    hf_read_int(r, "num_experts_per_tok", true, 1, 4096, &c->n_expert_used);
    hf_read_int(r, "moe_intermediate_size", true, 1, MAX_WIDTH, &c->n_ff_expert);
    hf_read_int(r, "shared_expert_intermediate_size", true, 1, MAX_WIDTH, &c->n_ff_shared);
    hf_require_bool(r, "norm_topk_prob", true);
    if (!r->rc && c->n_expert_used > c->n_expert)
        hf_bad_field(r, "num_experts_per_tok", hf_get(r, "num_experts_per_tok"), "at most num_experts");
    if (!r->rc && json_array_size(hf_get(r, "mlp_only_layers")) > 0)
        hf_bad_field(r, "mlp_only_layers", hf_get(r, "mlp_only_layers"), "an empty array");
}

static void read_target(struct hf_reader *r, struct hf_config *c)
{
    int32_t value_dim = 128;
    c->n_mtp = -1;
    c->d_state = 128;
    c->conv_kernel = 4;
    read_layer_kinds(r, c);
    hf_read_int(r, "linear_num_key_heads", true, 1, 65536, &c->n_k_head);
    hf_read_int(r, "linear_num_value_heads", true, 1, 65536, &c->n_v_head);
    hf_read_int(r, "linear_key_head_dim", false, 1, 4096, &c->d_state);
    hf_read_int(r, "linear_value_head_dim", false, 1, 4096, &value_dim);
    hf_read_int(r, "linear_conv_kernel_dim", false, 2, 16, &c->conv_kernel);
    hf_read_int(r, "mtp_num_hidden_layers", false, 0, 1, &c->n_mtp);
    hf_require_bool(r, "attn_output_gate", true);
    if (c->moe)
        read_moe(r, c);
    if (!r->rc && value_dim != c->d_state)
        hf_bad_field(r, "linear_value_head_dim", hf_get(r, "linear_value_head_dim"), "the same as linear_key_head_dim");
    if (!r->rc && c->n_v_head % c->n_k_head)
        hf_bad_field(r, "linear_num_value_heads", hf_get(r, "linear_num_value_heads"), "a multiple of linear_num_key_heads");
}

/* ---- drafters ---- */

/* Layers of the target that are read when the checkpoint does not say: evenly spaced, as the drafters' own code has it. */
static void default_taps(struct hf_reader *r, struct hf_config *c)
{
    if (r->rc || c->n_taps)
        return;
    if (c->n_target_layers < 5 || c->n_layer > HF_MAX_TAPS) {
        hf_bad_field(r, "target_layer_ids", NULL, "an array of layer numbers (or num_target_layers of at least 5)");
        return;
    }
    c->n_taps = c->n_layer;
    for (int32_t i = 0; i < c->n_taps; i++)
        c->taps[i] = c->n_taps == 1 ? c->n_target_layers / 2
                                    : (int32_t)nearbyint(1 + (double)i * (c->n_target_layers - 4) / (c->n_taps - 1));
}

static void check_taps(struct hf_reader *r, const struct hf_config *c)
{
    for (int32_t i = 0; i < c->n_taps && !r->rc; i++)
        if ((i && c->taps[i] <= c->taps[i - 1]) || (c->n_target_layers && c->taps[i] >= c->n_target_layers))
            r->rc = error_set(r->err, SKUA_EFORMAT, "%s: 'target_layer_ids' has %d at place %d, expected rising numbers below the "
                              "target's %d layers", r->path, c->taps[i], i, c->n_target_layers);
}

static void read_flag(struct hf_reader *r, const char *key, int *out)
{
    bool value = false;
    *out = -1;
    if (r->rc || !hf_get(r, key))
        return;
    hf_read_bool(r, key, &value);
    *out = value;
}

static void read_drafter(struct hf_reader *r, struct hf_config *c)
{
    c->mask_id = -1;
    c->block_size = 16;
    read_layer_types(r, c, "sliding_attention", c->sliding);
    for (int32_t i = 0; i < c->n_layer; i++)
        if (c->sliding[i])
            hf_read_int(r, "sliding_window", true, 1, INT32_MAX, &c->window);
    hf_read_int(r, "block_size", false, 2, 1024, &c->block_size);
    hf_read_int(r, "mask_token_id", false, 0, c->n_vocab - 1, &c->mask_id);
    hf_read_int(r, "num_target_layers", false, 1, HF_MAX_LAYERS, &c->n_target_layers);
    hf_read_ints(r, "target_layer_ids", 0, HF_MAX_LAYERS, c->taps, HF_MAX_TAPS, &c->n_taps);
    default_taps(r, c);
    check_taps(r, c);
    read_flag(r, "is_causal", &c->causal);
    if (c->causal < 0)
        read_flag(r, "causal", &c->causal);
    hf_read_float(r, "input_embedding_scale", false, 1e-6, 1e6, &c->emb_scale);
    hf_read_float(r, "output_multiplier", false, 1e-6, 1e6, &c->logit_scale);
    hf_read_float(r, "final_logit_softcapping", false, 0, 1e6, &c->softcap);
    if (!r->rc && hf_get(r, "draft_vocab_size")) {
        int32_t n = c->n_vocab;
        hf_read_int(r, "draft_vocab_size", false, 1, MAX_VOCAB, &n);
        if (!r->rc && n != c->n_vocab)
            r->rc = error_set(r->err, SKUA_EUNSUPPORTED, "%s: 'draft_vocab_size' is %d; supported: drafters of the whole vocabulary (%d)",
                              r->path, n, c->n_vocab);
    }
    bool second = c->kind == HF_DFLASH2;
    hf_read_int(r, "conv_kernel_size", second, 1, 64, &c->kernel_size);
    hf_read_int(r, "conv_group_size", second, 1, MAX_WIDTH, &c->group_size);
    hf_read_int(r, "selector_rank", second, 1, MAX_WIDTH, &c->selector_rank);
    hf_read_int(r, "selector_top_k", second, 1, 1024, &c->selector_top_k);
    if (!r->rc && c->kernel_size && c->kind == HF_DFLASH)
        c->kind = HF_DFLASH2;
    if (!r->rc && c->kind == HF_DFLASH2 && (!c->group_size || !c->selector_rank || !c->selector_top_k || c->n_embd % c->group_size))
        hf_bad_field(r, "conv_group_size", hf_get(r, "conv_group_size"), "a divisor of hidden_size, with selector_rank and selector_top_k");
    hf_read_int(r, "markov_rank", c->kind == HF_DSPARK, 1, MAX_WIDTH, &c->markov_rank);
    hf_require_string(r, "markov_head_type", "vanilla");
    read_flag(r, "sample_from_anchor", &c->sample_from_anchor);
}

/* ---- all of it ---- */

/* An id, or the first of a list of ids. */
static void read_id(struct hf_reader *r, const struct hf_config *c, const char *key, int32_t *id)
{
    const json_t *v = r->rc ? NULL : hf_get(r, key);
    *id = -1;
    if (json_is_array(v))
        v = json_array_get(v, 0);
    if (v && (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= c->n_vocab))
        hf_bad_field(r, key, v, "a token id below vocab_size");
    else if (v)
        *id = (int32_t)json_integer_value(v);
}

int hf_config_load(struct hf_config *c, const char *dir, skua_error *err)
{
    json_t *root = NULL, *hf_quant = NULL;
    char path[512];
    *c = (struct hf_config){.rope_theta = 1e7f, .head_dim = 256, .sections = {11, 11, 10, 0}};
    snprintf(path, sizeof path, "%s/" CONFIG_NAME, dir);
    int rc = hf_json_load(&root, dir, CONFIG_NAME, true, err);
    if (!rc) rc = hf_json_load(&hf_quant, dir, "hf_quant_config.json", false, err);
    if (!rc) {
        const json_t *text = json_object_get(root, "text_config"), *inner = json_object_get(root, "dflash_config");
        struct hf_reader r = {.path = path, .objects = {json_is_object(text) ? text : NULL, root}, .err = err};
        read_architecture(&r, c);
        if (c->kind != HF_TARGET)
            r.objects[0] = json_is_object(inner) ? inner : json_object_get(root, "dspark_config");
        if (!r.rc)
            read_common(&r, c);
        read_rope(&r, c);
        if (!r.rc)
            c->kind == HF_TARGET ? read_target(&r, c) : read_drafter(&r, c);
        read_id(&r, c, "eos_token_id", &c->eos_id);
        read_id(&r, c, "bos_token_id", &c->bos_id);
        read_id(&r, c, "pad_token_id", &c->pad_id);
        if (!r.rc)
            read_quant(&r, c, hf_quant);
        rc = r.rc;
    }
    json_decref(root);
    json_decref(hf_quant);
    return rc;
}
