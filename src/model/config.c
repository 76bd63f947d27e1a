/* Reading and checking the model's shape; see config.h. Every size is bounded before it is multiplied: fields are at most 2^24
 * elements (2^17 for counts of heads and experts much less), so that products of three fit 64 bits. */
#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kern/kern.h"
#include "model/key_reader.h"
#include "quant/type.h"

#define MAX_WIDTH (1 << 24)
#define MAX_HEADS 4096
#define MAX_EXPERTS 4096

/* A key that may be one number or an array with one number per block. Blocks for which want(i) is false are not looked at; the
   others must agree, as no model of the family differs between layers. */
static void read_per_layer(struct key_reader *r, const char *suffix, const struct model_config *c, bool attention_only, bool required,
                           int32_t hi, int32_t *v)
{
    char key[96];
    struct gguf_value value;
    if (r->rc)
        return;
    key_name(key, r->arch, suffix);
    if (!gguf_find_key(r->g, key, &value) || value.type != GGUF_ARRAY) {
        key_i32(r, suffix, required, 1, hi, v);
        return;
    }
    if (value.a.count != (uint64_t)c->n_block) {
        r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s' has %llu entries, expected one per block (%d)", key,
                          (unsigned long long)value.a.count, c->n_block);
        return;
    }
    bool seen = false;
    for (int32_t i = 0; i < c->n_block && !r->rc; i++) {
        int64_t x;
        if (attention_only && c->recurrent[i])
            continue;
        if (!gguf_array_i64(&value.a, (uint64_t)i, &x))
            r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s' is an array of %s, expected integers", key, gguf_type_name(value.a.type));
        else if (x < 1 || x > hi)
            key_fail(r, suffix, "a positive size in every block", (long long)x);
        else if (seen && x != *v)
            r->rc = error_set(r->err, SKUA_EUNSUPPORTED, "key '%s' differs between blocks (%d and %lld); one value for all is supported",
                              key, *v, (long long)x);
        else {
            *v = (int32_t)x;
            seen = true;
        }
    }
    if (!r->rc && !seen && required)
        r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s' has no entry for an attention block", key);
}

static void read_layer_kinds(struct key_reader *r, struct model_config *c)
{
    char key[96];
    struct gguf_value value;
    int32_t interval = 4;
    if (r->rc)
        return;
    key_i32(r, "full_attention_interval", false, 1, CONFIG_MAX_LAYERS, &interval);
    for (int32_t i = 0; i < c->n_block; i++)
        c->recurrent[i] = i < c->n_layer && (i + 1) % interval != 0;
    key_name(key, r->arch, "attention.recurrent_layers");
    if (r->rc || !gguf_find_key(r->g, key, &value))
        return;
    if (value.type == GGUF_ARRAY && value.a.count != (uint64_t)c->n_block) {
        r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s' has %llu entries, expected one per block (%d)", key,
                          (unsigned long long)value.a.count, c->n_block);
        return;
    }
    for (int32_t i = 0; i < c->n_block && !r->rc; i++) {
        int64_t x = 0;
        bool b = false;
        if (value.type == GGUF_BOOL)
            b = value.b && i < c->n_layer;
        else if (value.type == GGUF_ARRAY && gguf_array_bool(&value.a, (uint64_t)i, &b))
            ;
        else if (value.type == GGUF_ARRAY && gguf_array_i64(&value.a, (uint64_t)i, &x))
            b = x != 0;
        else
            r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s' is no bool, or array of bools or integers", key);
        if (b && i >= c->n_layer)
            r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s' marks MTP block %d as recurrent; MTP blocks are full attention", key, i);
        c->recurrent[i] = b;
    }
}

/* YaRN (https://arxiv.org/abs/2309.00071) on the rotary frequencies: interpolate the slow pairs by `factor`, keep the fast ones,
   with a linear ramp between the pairs that turn 32 times and once over the original context. */
static void apply_yarn(struct model_config *c, double factor, double n_ctx_original)
{
    double n = c->n_rot, two_pi = 6.283185307179586, log_base = log(c->rope_base);
    double at32 = n * log(n_ctx_original / (two_pi * 32.0)) / (2.0 * log_base);
    double at1 = n * log(n_ctx_original / two_pi) / (2.0 * log_base);
    double lo = fmax(0.0, floor(at32)), hi = fmin(n - 1.0, ceil(at1));
    for (int i = 0; i < c->n_rot / 2; i++) {
        double keep = 1.0 - fmin(1.0, fmax(0.0, (i - lo) / fmax(0.001, hi - lo)));
        c->inv_freq[i] = c->inv_freq[i] / factor * (1.0 - keep) + c->inv_freq[i] * keep;
    }
    c->rope_scale = 1.0 + 0.1 * log(factor);
}

static void read_rope_base(struct key_reader *r, struct model_config *c)
{
    char key[96];
    double base = c->rope_base > 0 ? c->rope_base : 10000.0;
    struct gguf_array sections;
    c->n_rot = c->head_dim;
    key_i32(r, "rope.dimension_count", false, 2, 512, &c->n_rot);
    if (r->rc)
        return;
    key_name(key, r->arch, "rope.freq_base");
    int rc = gguf_get_f64(r->g, key, &base, r->err);
    if (rc < 0)
        r->rc = rc;
    else if (!(base > 1.0))
        r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s' is %g, expected more than 1", key, base);
    if (!r->rc && (c->n_rot % 2 || c->n_rot > c->head_dim))
        key_fail(r, "rope.dimension_count", "an even number of at most attention.key_length", c->n_rot);
    if (r->rc)
        return;
    c->rope_base = base;
    c->rope_scale = 1.0;
    for (int i = 0; i < c->n_rot / 2; i++)
        c->inv_freq[i] = pow(base, -2.0 * i / c->n_rot);

    /* text uses one position for all sections, so that they only have to be plausible */
    key_name(key, r->arch, "rope.dimension_sections");
    rc = gguf_get_array(r->g, key, GGUF_INTEGERS, &sections, r->err);
    if (rc < 0)
        r->rc = rc;
    else if (rc > 0) {
        int64_t sum = 0, x;
        for (uint64_t i = 0; i < sections.count && i < 16; i++)
            if (gguf_array_i64(&sections, i, &x) && x >= 0 && x <= 512)
                sum += x;
            else
                sum = 1 << 20;
        if (sections.count > 16 || sum > c->n_rot / 2)
            r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s': the sections add up to more than rope.dimension_count / 2 = %d", key,
                              c->n_rot / 2);
    }
}

static void read_rope_scaling(struct key_reader *r, struct model_config *c)
{
    char key[96], type_key[96];
    struct gguf_string type = {0};
    double factor = 1.0;
    int32_t original = c->n_ctx_train;
    key_name(type_key, r->arch, "rope.scaling.type");
    if (r->rc)
        return;
    int rc = gguf_get_string(r->g, type_key, &type, r->err);
    if (rc < 0)
        r->rc = rc;
    if (rc <= 0 || (type.len == 4 && memcmp(type.data, "none", 4) == 0))
        return;
    key_name(key, r->arch, "rope.scaling.factor");
    rc = gguf_get_f64(r->g, key, &factor, r->err);
    if (rc < 0)
        r->rc = rc;
    else if (!(factor >= 1.0 && factor <= 1e4))
        r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s' is %g, expected 1 to 10000", key, factor);
    key_i32(r, "rope.scaling.original_context_length", false, 1, INT32_MAX, &original);
    if (r->rc)
        return;
    if (type.len == 6 && memcmp(type.data, "linear", 6) == 0)
        for (int i = 0; i < c->n_rot / 2; i++)
            c->inv_freq[i] /= factor;
    else if (type.len == 4 && memcmp(type.data, "yarn", 4) == 0)
        apply_yarn(c, factor, original);
    else
        r->rc = error_set(r->err, SKUA_EUNSUPPORTED, "key '%s' is '%s'; supported: none, linear, yarn", type_key,
                          key_show(type).text);
}

void config_read_rope(struct key_reader *r, struct model_config *c)
{
    if (!r->rc)
        read_rope_base(r, c);
    read_rope_scaling(r, c);
}

static void read_attention(struct key_reader *r, struct model_config *c)
{
    char key[96];
    int32_t value_length = 0;
    read_per_layer(r, "attention.head_count", c, true, true, MAX_HEADS, &c->n_head);
    c->n_head_kv = c->n_head;
    read_per_layer(r, "attention.head_count_kv", c, true, false, MAX_HEADS, &c->n_head_kv);
    if (!r->rc && c->n_head % c->n_head_kv)
        key_fail(r, "attention.head_count_kv", "a divisor of attention.head_count", c->n_head_kv);
    if (!r->rc)
        c->head_dim = c->n_embd / c->n_head;
    key_i32(r, "attention.key_length", false, 2, 4096, &c->head_dim);
    value_length = c->head_dim;
    key_i32(r, "attention.value_length", false, 2, 4096, &value_length);
    if (!r->rc && value_length != c->head_dim)
        key_fail(r, "attention.value_length", "the same as attention.key_length", value_length);
    if (!r->rc && (c->head_dim % 16 || c->head_dim > 512 || c->head_dim < 16))
        r->rc = error_set(r->err, SKUA_EUNSUPPORTED, "key '%s.attention.key_length' is %d; supported: multiples of 16 up to 512", r->arch,
                          c->head_dim);
    if (r->rc)
        return;
    key_name(key, r->arch, "attention.layer_norm_rms_epsilon");
    int rc = gguf_require_f32(r->g, key, &c->rms_eps, r->err);
    if (rc < 0)
        r->rc = rc;
    else if (!(c->rms_eps > 0.0f && c->rms_eps < 1.0f))
        r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s' is %g, expected a small positive number", key, (double)c->rms_eps);
}

static void read_ssm(struct key_reader *r, struct model_config *c)
{
    key_i32(r, "ssm.conv_kernel", true, 2, 16, &c->conv_kernel);
    key_i32(r, "ssm.state_size", true, 1, 4096, &c->d_state);
    key_i32(r, "ssm.group_count", true, 1, MAX_HEADS, &c->n_k_head);
    key_i32(r, "ssm.time_step_rank", true, 1, MAX_HEADS, &c->n_v_head);
    key_i32(r, "ssm.inner_size", true, 1, MAX_WIDTH, &c->d_inner);
    if (!r->rc && c->n_v_head % c->n_k_head)
        key_fail(r, "ssm.time_step_rank", "a multiple of ssm.group_count", c->n_v_head);
    if (!r->rc && (int64_t)c->n_v_head * c->d_state != c->d_inner)
        key_fail(r, "ssm.inner_size", "ssm.time_step_rank * ssm.state_size", c->d_inner);
    if (!r->rc && (c->d_state % 16 || c->d_state > 256))
        r->rc = error_set(r->err, SKUA_EUNSUPPORTED, "key '%s.ssm.state_size' is %d; supported: multiples of 16 up to 256", r->arch,
                          c->d_state);
    if (!r->rc)
        c->n_conv_channel = 2 * c->n_k_head * c->d_state + c->d_inner;
}

static void read_ffn(struct key_reader *r, struct model_config *c)
{
    if (!c->moe) {
        read_per_layer(r, "feed_forward_length", c, false, true, MAX_WIDTH, &c->n_ff);
        return;
    }
    if (r->rc)
        return;
    read_per_layer(r, "feed_forward_length", c, false, false, MAX_WIDTH, &c->n_ff);
    key_i32(r, "expert_count", true, 1, MAX_EXPERTS, &c->n_expert);
    key_i32(r, "expert_used_count", true, 1, MAX_EXPERTS, &c->n_expert_used);
    if (!r->rc && c->n_expert_used > c->n_expert)
        key_fail(r, "expert_used_count", "at most expert_count", c->n_expert_used);
    if (!r->rc && c->n_expert_used > 64)
        r->rc = error_set(r->err, SKUA_EUNSUPPORTED, "key '%s.expert_used_count' is %d; supported: up to 64", r->arch, c->n_expert_used);
    if (r->rc)
        return;
    c->n_ff_expert = c->n_ff / c->n_expert_used;
    c->n_ff_shared = c->n_ff;
    key_i32(r, "expert_feed_forward_length", c->n_ff_expert < 1, 1, MAX_WIDTH, &c->n_ff_expert);
    key_i32(r, "expert_shared_feed_forward_length", c->n_ff_shared < 1, 1, MAX_WIDTH, &c->n_ff_shared);
}

static int read_arch(const struct gguf *g, struct model_config *c, skua_error *err)
{
    struct gguf_string arch;
    int rc = gguf_require_string(g, "general.architecture", &arch, err);
    if (rc)
        return rc;
    if (arch.len == 6 && memcmp(arch.data, "qwen35", 6) == 0)
        c->moe = false;
    else if (arch.len == 9 && memcmp(arch.data, "qwen35moe", 9) == 0)
        c->moe = true;
    else
        return error_set(err, SKUA_EUNSUPPORTED, "architecture '%s' is not supported; supported: qwen35, qwen35moe", key_show(arch).text);
    memcpy(c->arch, arch.data, arch.len);
    c->arch[arch.len] = '\0';
    return 0;
}

static bool has_prefix(struct gguf_string s, const char *prefix)
{
    size_t n = strlen(prefix);
    return s.len > n && memcmp(s.data, prefix, n) == 0;
}

/* Descriptive keys have no influence here, but a wrong type betrays a damaged file. */
static void check_descriptive(struct key_reader *r)
{
    static const char *const strings[] = {"general.name", "general.type", "general.size_label", "tokenizer.chat_template"};
    static const char *const numbers[] = {"general.file_type", "general.quantization_version"};
    struct gguf_string s;
    uint32_t u;
    int rc = 0;
    for (size_t i = 0; rc >= 0 && i < sizeof strings / sizeof *strings; i++)
        rc = gguf_get_string(r->g, strings[i], &s, r->err);
    for (size_t i = 0; rc >= 0 && i < sizeof numbers / sizeof *numbers; i++)
        rc = gguf_get_u32(r->g, numbers[i], &u, r->err);
    if (rc < 0)
        r->rc = rc;
}

/* No number of the architecture may be NaN or infinite, whether it is used or not. */
static void check_finite(struct key_reader *r)
{
    char prefix[24];
    struct gguf_value v;
    snprintf(prefix, sizeof prefix, "%s.", r->arch);
    for (uint32_t i = 0; !r->rc && gguf_key_at(r->g, i, &v); i++)
        if ((v.type == GGUF_F32 || v.type == GGUF_F64) && has_prefix(v.key, prefix) && !isfinite(v.f))
            r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s' is %g, expected a finite number", key_show(v.key).text, v.f);
}

/* The vocabulary has a token for every row of the embedding, and every special token is one of them (-1: none). */
static void check_vocabulary(struct key_reader *r, const struct model_config *c)
{
    static const char ids[] = "_token_id";
    struct gguf_value v;
    if (!r->rc && gguf_find_key(r->g, "tokenizer.ggml.tokens", &v) && v.type == GGUF_ARRAY && v.a.count != (uint64_t)c->n_vocab)
        r->rc = error_set(r->err, SKUA_EFORMAT, "key 'tokenizer.ggml.tokens' has %llu elements, expected one per row of tensor "
                          "'token_embd.weight' (%d)", (unsigned long long)v.a.count, c->n_vocab);
    for (uint32_t i = 0; !r->rc && gguf_key_at(r->g, i, &v); i++) {
        size_t n = sizeof ids - 1;
        if (!has_prefix(v.key, "tokenizer.ggml.") || v.key.len < n || memcmp(v.key.data + v.key.len - n, ids, n) != 0)
            continue;
        bool negative = v.type == GGUF_I8 || v.type == GGUF_I16 || v.type == GGUF_I32 || v.type == GGUF_I64;
        bool integer = negative || v.type == GGUF_U8 || v.type == GGUF_U16 || v.type == GGUF_U32 || v.type == GGUF_U64;
        negative = negative && v.i < 0;
        if (!integer)
            r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s' is of type %s, expected an integer", key_show(v.key).text,
                              gguf_type_name(v.type));
        else if (negative ? v.i < -1 : v.u >= (uint64_t)c->n_vocab)
            r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s' is %lld, expected a token id below %d", key_show(v.key).text, (long long)v.i,
                              c->n_vocab);
    }
}

int config_load(const struct gguf *g, struct model_config *c, skua_error *err)
{
    *c = (struct model_config){0};
    int rc = read_arch(g, c, err);
    if (rc)
        return rc;
    struct key_reader r = {.g = g, .arch = c->arch, .err = err};
    key_i32(&r, "block_count", true, 1, CONFIG_MAX_LAYERS, &c->n_block);
    key_i32(&r, "nextn_predict_layers", false, 0, CONFIG_MAX_LAYERS, &c->n_mtp);
    if (!r.rc && c->n_mtp >= c->n_block)
        key_fail(&r, "nextn_predict_layers", "fewer than block_count", c->n_mtp);
    if (!r.rc && c->n_mtp > 1)
        r.rc = error_set(err, SKUA_EUNSUPPORTED, "key '%s.nextn_predict_layers' is %d; supported: 0 or 1", c->arch, c->n_mtp);
    c->n_layer = c->n_block - c->n_mtp;
    key_i32(&r, "context_length", true, 1, INT32_MAX, &c->n_ctx_train);
    key_i32(&r, "embedding_length", true, 1, MAX_WIDTH, &c->n_embd);
    read_layer_kinds(&r, c);
    read_attention(&r, c);
    config_read_rope(&r, c);
    read_ssm(&r, c);
    read_ffn(&r, c);
    check_finite(&r);
    if (!r.rc)
        check_descriptive(&r);
    if (r.rc)
        return r.rc;
    for (int32_t i = 0; i < c->n_layer; i++)
        c->recurrent[i] ? c->n_recurrent++ : c->n_attn++;

    const struct gguf_tensor *embd;
    rc = gguf_require_tensor(g, "token_embd.weight", &embd, err);
    if (rc)
        return rc;
    if (embd->ne[0] != (uint64_t)c->n_embd || embd->ne[1] < 1 || embd->ne[1] > MAX_WIDTH || embd->ne[2] * embd->ne[3] != 1)
        return error_set(err, SKUA_EFORMAT, "tensor 'token_embd.weight' has shape [%llu, %llu, %llu, %llu], expected [%d, vocabulary]",
                         (unsigned long long)embd->ne[0], (unsigned long long)embd->ne[1], (unsigned long long)embd->ne[2],
                         (unsigned long long)embd->ne[3], c->n_embd);
    c->n_vocab = (int32_t)embd->ne[1];
    check_vocabulary(&r, c);
    return r.rc;
}

size_t config_state_bytes(const struct model_config *c)
{
    size_t s = (size_t)c->n_v_head * c->d_state * c->d_state, conv = (size_t)(c->conv_kernel - 1) * c->n_conv_channel;
    return (size_t)c->n_recurrent * (s + conv) * sizeof(float);
}

size_t config_tape_row_bytes(const struct model_config *c)
{
    size_t step = (size_t)(c->n_k_head + c->n_v_head) * c->d_state + (size_t)c->n_v_head, floats = step + (size_t)c->n_conv_channel;
    return (size_t)c->n_recurrent * ((floats + 15) / 16 * 16) * sizeof(float);
}

size_t config_mtp_page_bytes(const struct model_config *c, uint32_t kv_type)
{
    return 2 * (size_t)c->n_head_kv * KV_PAGE_ROWS * qtype_row_bytes(kv_type, (uint64_t)c->head_dim);
}

size_t config_kv_page_bytes(const struct model_config *c, uint32_t kv_type)
{
    return (size_t)c->n_attn * config_mtp_page_bytes(c, kv_type);
}
