/* Keys of drafter files. Three families of writers name and number things in their own ways; here they become one description.
 *
 *   dflash               DFLASH.X; target_layers counts the layer whose input is read. Files with dflash.version number the layer whose
 *                        output is read, and full_layer is the one layer that has no window
 *   dflash-draft,        ARCH.dflash.X; target_layer_ids are layers whose output is read. attention.causal is false in all these files and
 *   qwen35-dflash-draft  says nothing about layers
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/key_reader.h"
#include "spec/dflash_file_internal.h"
#include "spec/drafter.h"

#define MAX_WIDTH (1 << 24)
#define MAX_HEADS 4096

static const char *const family[] = {"dflash", "dflash-draft", "qwen35-dflash-draft"};

static bool equal(struct gguf_string s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

/* The architecture's name, one of the family's, or NULL. */
static const char *family_of(const struct gguf *g)
{
    struct gguf_value v;
    if (!gguf_find_key(g, "general.architecture", &v) || v.type != GGUF_STRING)
        return NULL;
    for (size_t i = 0; i < sizeof family / sizeof *family; i++)
        if (equal(v.s, family[i]))
            return family[i];
    return NULL;
}


static int read_arch(const struct gguf *g, const char **arch, skua_error *err)
{
    struct gguf_string s;
    int rc = gguf_require_string(g, "general.architecture", &s, err);
    if (rc)
        return rc;
    *arch = family_of(g);
    if (*arch)
        return 0;
    if (equal(s, "qwen35") || equal(s, "qwen35moe"))
        return error_set(err, SKUA_EUNSUPPORTED, "the file is a language model (architecture %s), not a drafter of the DFlash family",
                         key_show(s).text);
    return error_set(err, SKUA_EUNSUPPORTED, "architecture '%s' is no drafter of the DFlash family; expected dflash, dflash-draft or "
                     "qwen35-dflash-draft", key_show(s).text);
}

static bool has_key(const struct key_reader *r, const char *suffix)
{
    char key[96];
    struct gguf_value v;
    key_name(key, r->arch, suffix);
    return gguf_find_key(r->g, key, &v);
}

static enum dflash_variant variant_of(const struct key_reader *r)
{
    return gguf_find_tensor(r->g, "markov_w1.weight") ? DFLASH_SPARK : has_key(r, "conv_kernel_size") ? DFLASH_2 : DFLASH_CLASSIC;
}

bool dflash_file_is(const struct gguf *g, enum dflash_variant *variant)
{
    const struct key_reader r = {.g = g, .arch = family_of(g)};
    if (r.arch && variant)
        *variant = variant_of(&r);
    return r.arch != NULL;
}

/* A key's suffix with "dflash." in front of it if the file has it so. suffix begins behind that. */
static const char *nested(const struct key_reader *r, const char *with_dflash)
{
    return has_key(r, with_dflash) ? with_dflash : with_dflash + strlen("dflash.");
}

static void read_f32(struct key_reader *r, const char *suffix, double lo, double hi, float *v)
{
    char key[96];
    if (r->rc)
        return;
    key_name(key, r->arch, suffix);
    float x = *v;
    int rc = gguf_get_f32(r->g, key, &x, r->err);
    if (rc < 0)
        r->rc = rc;
    else if (rc > 0 && !(x >= lo && x <= hi))
        r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s' is %g, expected %g to %g", key, (double)x, lo, hi);
    else
        *v = x;
}

/* 1 or 0 when the key is there, else *v stays. */
static void read_flag(struct key_reader *r, const char *suffix, int *v)
{
    char key[96];
    bool b;
    if (r->rc)
        return;
    key_name(key, r->arch, suffix);
    int rc = gguf_get_bool(r->g, key, &b, r->err);
    if (rc < 0)
        r->rc = rc;
    else if (rc > 0)
        *v = b;
}

static void read_shape(struct key_reader *r, const struct model_config *t, struct dflash_config *c)
{
    int32_t value_length = 0;
    key_i32(r, "block_count", true, 1, DFLASH_MAX_LAYERS, &c->n_layer);
    key_i32(r, "embedding_length", true, 1, MAX_WIDTH, &c->n_embd);
    if (!r->rc && c->n_embd != t->n_embd)
        r->rc = error_set(r->err, SKUA_EUNSUPPORTED, "the drafter's hidden size (key '%s.embedding_length') is %d, the model's is %d: it "
                          "is a drafter for another model", r->arch, c->n_embd, t->n_embd);
    key_i32(r, "feed_forward_length", true, 1, MAX_WIDTH, &c->n_ff);
    key_i32(r, "attention.head_count", true, 1, MAX_HEADS, &c->n_head);
    c->n_head_kv = c->n_head;
    key_i32(r, "attention.head_count_kv", false, 1, MAX_HEADS, &c->n_head_kv);
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
    if (!r->rc && !has_key(r, "attention.layer_norm_rms_epsilon"))
        r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s.attention.layer_norm_rms_epsilon' is missing", r->arch);
    read_f32(r, "attention.layer_norm_rms_epsilon", 1e-12, 0.5, &c->rms_eps);
}

static void read_rope(struct key_reader *r, struct dflash_config *c)
{
    float base = 0.0f;
    struct model_config rope = {.head_dim = c->head_dim};
    key_i32(r, "context_length", false, 1, INT32_MAX, &rope.n_ctx_train);
    read_f32(r, "dflash.backbone_rotary_base", 1.0, 1e30, &base);
    if (r->rc)
        return;
    if (base == 0.0f && !has_key(r, "rope.freq_base")) {
        r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s.rope.freq_base' is missing, expected the base of the rotary frequencies", r->arch);
        return;
    }
    rope.rope_base = base;
    config_read_rope(r, &rope);
    if (!r->rc && base != 0.0f && rope.rope_base != base)
        r->rc = error_set(r->err, SKUA_EFORMAT, "keys '%s.rope.freq_base' (%g) and '%s.dflash.backbone_rotary_base' (%g) contradict each "
                          "other", r->arch, rope.rope_base, r->arch, (double)base);
    c->n_rot = rope.n_rot;
    c->rope_base = rope.rope_base;
    c->rope_scale = rope.rope_scale;
    memcpy(c->inv_freq, rope.inv_freq, sizeof c->inv_freq);
}

/* Which variant, and its own sizes. version: of files that have one, else 0. */
static void read_variant(struct key_reader *r, int32_t version, struct dflash_config *c)
{
    const bool conv = has_key(r, "conv_kernel_size");
    int32_t hyper = 0;
    int anchor = 1;
    key_i32(r, "hyper_connection.count", false, 0, INT32_MAX, &hyper);
    if (r->rc)
        return;
    c->variant = variant_of(r);
    if (hyper > 0)
        r->rc = error_set(r->err, SKUA_EUNSUPPORTED, "key '%s.hyper_connection.count' is %d: a drafter with hyper-connections is made for "
                          "another family of models", r->arch, hyper);
    else if (c->variant == DFLASH_SPARK && (conv || version == 2))
        r->rc = error_set(r->err, SKUA_EUNSUPPORTED, "the file has both a Markov head (tensor 'markov_w1.weight') and a convolution (key "
                          "'%s.%s'); supported: one of them", r->arch, conv ? "conv_kernel_size" : "version");
    else if (version == 1 && conv)
        r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s.version' is 1, a drafter without convolution, but there is a key "
                          "'%s.conv_kernel_size'", r->arch, r->arch);
    if (version == 2)
        c->variant = DFLASH_2;
    if (c->variant == DFLASH_SPARK) {
        read_flag(r, "sample_from_anchor", &anchor);
        c->anchor_first = anchor;
        c->confidence = gguf_find_tensor(r->g, "conf_proj.weight") != NULL;
    }
    if (c->variant != DFLASH_2)
        return;
    key_i32(r, "conv_kernel_size", true, 1, 16, &c->conv_kernel);
    key_i32(r, "conv_group_size", true, 1, MAX_WIDTH, &c->conv_group);
    key_i32(r, "selector_rank", true, 1, MAX_WIDTH, &c->selector_rank);
    key_i32(r, "selector_top_k", true, 1, DRAFT_MAX_TOP, &c->selector_top_k);
    if (!r->rc && c->n_embd % c->conv_group)
        key_fail(r, "conv_group_size", "a divisor of embedding_length", c->conv_group);
}

/* Layers with a window: the pattern, or all; in files with a version all but one. */
static void read_windows(struct key_reader *r, int32_t version, struct dflash_config *c)
{
    char key[96];
    struct gguf_value v;
    int32_t window = 0, full = c->n_layer - 1;
    key_i32(r, "attention.sliding_window", false, 0, INT32_MAX, &window);
    if (version)
        key_i32(r, "attention.full_layer", false, 0, INT32_MAX, &full);
    if (r->rc)
        return;
    key_name(key, r->arch, "attention.sliding_window_pattern");
    const bool pattern = gguf_find_key(r->g, key, &v);
    if (pattern && v.type == GGUF_ARRAY && v.a.count != (uint64_t)c->n_layer) {
        r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s' has %llu entries, expected one per layer (%d)", key,
                          (unsigned long long)v.a.count, c->n_layer);
        return;
    }
    for (int32_t i = 0; i < c->n_layer && !r->rc; i++) {
        bool sliding = window > 0 && !(version && i == full);
        if (pattern && v.type == GGUF_BOOL)
            sliding = v.b;
        else if (pattern && (v.type != GGUF_ARRAY || !gguf_array_bool(&v.a, (uint64_t)i, &sliding)))
            r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s' is of type %s, expected a bool, or an array of bools", key,
                              v.type == GGUF_ARRAY ? "array" : gguf_type_name(v.type));
        if (!r->rc && sliding && !window)
            r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s' says that layer %d has a window, but there is no key "
                              "'%s.attention.sliding_window' above 0", key, i, r->arch);
        c->window[i] = sliding ? window : 0;
    }
}

/* The caller's word, then the file's, then the rule of the variant: nothing is causal in DFlash2; else layers with a window are. */
static void read_causal(struct key_reader *r, int override, struct dflash_config *c)
{
    int causal = -1;
    if (strcmp(r->arch, "dflash") == 0)
        read_flag(r, "attention.causal", &causal);
    if (override >= 0)
        causal = override;
    for (int32_t i = 0; i < c->n_layer; i++)
        c->causal[i] = causal >= 0 ? causal > 0 : c->variant != DFLASH_2 && c->window[i] > 0;
}

/* Evenly spaced, as the drafters' own code has it. The number of layers tapped follows from the fusion's width. */
static void default_taps(struct key_reader *r, const struct model_config *t, struct dflash_config *c)
{
    const struct gguf_tensor *fc = NULL;
    for (const char *const *name = dflash_fc_names; *name && !fc; name++)
        fc = gguf_find_tensor(r->g, *name);
    const uint64_t n = fc ? fc->ne[0] / (uint64_t)c->n_embd : 0;
    if (n < 1 || n > DFLASH_MAX_TAPS || t->n_layer < 5) {
        r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s.%s' is missing, expected the layers of the model that are tapped", r->arch,
                          strcmp(r->arch, "dflash") == 0 ? "target_layers" : "dflash.target_layer_ids");
        return;
    }
    c->n_taps = (int32_t)n;
    for (int32_t i = 0; i < c->n_taps; i++)
        c->taps[i] = n == 1 ? t->n_layer / 2 : (int32_t)nearbyint(1 + (double)i * (t->n_layer - 4) / (c->n_taps - 1));
}

static void check_taps(struct key_reader *r, const char *key, bool input, const struct model_config *t, const struct dflash_config *c)
{
    const int shift = input ? 1 : 0;
    for (int32_t i = 0; i < c->n_taps && !r->rc; i++) {
        if (c->taps[i] < 0 || c->taps[i] >= t->n_layer)
            r->rc = error_set(r->err, SKUA_EUNSUPPORTED, "key '%s': the drafter taps layer %d, the model has layers %d to %d (numbered by "
                              "their %s): it is a drafter for another model", key, c->taps[i] + shift, shift, t->n_layer - 1 + shift,
                              input ? "successor's input" : "output");
        else if (i && c->taps[i] <= c->taps[i - 1])
            r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s' has %d behind %d, expected rising numbers", key, c->taps[i] + shift,
                              c->taps[i - 1] + shift);
    }
}

static void read_taps(struct key_reader *r, int32_t version, enum dflash_numbering numbering, const struct model_config *t,
                      struct dflash_config *c)
{
    char key[96];
    struct gguf_array a;
    int64_t x;
    if (r->rc)
        return;
    const bool by_input = has_key(r, "target_layers");
    const char *suffix = by_input ? "target_layers" : nested(r, "dflash.target_layer_ids");
    key_name(key, r->arch, suffix);
    int rc = gguf_get_array(r->g, key, GGUF_INTEGERS, &a, r->err);
    if (rc < 0)
        r->rc = rc;
    else if (rc == 0 && strcmp(r->arch, "dflash") == 0)
        r->rc = error_set(r->err, SKUA_EFORMAT, "key 'dflash.target_layers' is missing, expected the layers of the model that are tapped");
    else if (rc == 0)
        default_taps(r, t, c);
    else if (a.count < 1 || a.count > DFLASH_MAX_TAPS)
        r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s' has %llu entries, expected 1 to %d", key, (unsigned long long)a.count,
                          DFLASH_MAX_TAPS);
    if (r->rc || rc == 0)
        return;
    const bool input = numbering == DFLASH_NUMBERING_AUTO ? by_input && !version : numbering == DFLASH_NUMBERING_INPUT;
    for (c->n_taps = 0; (uint64_t)c->n_taps < a.count; c->n_taps++)
        c->taps[c->n_taps] = gguf_array_i64(&a, (uint64_t)c->n_taps, &x) && x >= 0 && x < INT32_MAX ? (int32_t)x - input : -1 - input;
    check_taps(r, key, input, t, c);
}

/* What some writers say besides the taps must agree with them. */
static void check_tap_counts(struct key_reader *r, const struct model_config *t, const struct dflash_config *c)
{
    int32_t features = c->n_taps * c->n_embd, layers = c->n_taps;
    key_i32(r, "dflash.n_target_features", false, 1, INT32_MAX, &features);
    if (!r->rc && features != c->n_taps * c->n_embd)
        key_fail(r, "dflash.n_target_features", "the number of tapped layers times embedding_length", features);
    key_i32(r, "dflash.n_target_layers", false, 1, INT32_MAX, &layers);
    if (!r->rc && layers != c->n_taps && layers != t->n_layer)
        key_fail(r, "dflash.n_target_layers", "the number of tapped layers, or of the model's layers", layers);
}

static void read_mask(struct key_reader *r, const struct model_config *t, struct dflash_config *c)
{
    struct key_reader tokenizer = {.g = r->g, .arch = "tokenizer.ggml", .err = r->err};
    const char *suffix = nested(r, "dflash.mask_token_id");
    if (r->rc)
        return;
    if (has_key(r, suffix))
        key_i32(r, suffix, true, 0, t->n_vocab - 1, &c->mask_id);
    else
        key_i32(&tokenizer, "mask_token_id", true, 0, t->n_vocab - 1, &c->mask_id);
    if (!r->rc)
        r->rc = tokenizer.rc;
}

int dflash_read_config(const struct gguf *g, const struct dflash_target *t, const struct dflash_options *o, struct dflash_config *c,
                       skua_error *err)
{
    struct key_reader r = {.g = g, .err = err};
    int32_t version = 0;
    *c = (struct dflash_config){.block_size = 16, .emb_scale = 1.0f, .logit_scale = 1.0f};
    r.rc = read_arch(g, &r.arch, err);
    if (r.rc)
        return r.rc;
    if (strcmp(r.arch, "dflash") == 0 && has_key(&r, "version")) {
        key_i32(&r, "version", true, 0, INT32_MAX, &version);
        if (!r.rc && (version < 1 || version > 2))
            r.rc = error_set(err, SKUA_EUNSUPPORTED, "key 'dflash.version' is %d; supported: 1 and 2", version);
    }
    read_shape(&r, t->config, c);
    if (!r.rc)
        read_rope(&r, c);
    read_variant(&r, version, c);
    if (!r.rc)
        read_windows(&r, version, c);
    if (!r.rc)
        read_causal(&r, o->causal, c);
    key_i32(&r, nested(&r, "dflash.block_size"), false, 2, 1024, &c->block_size);
    read_taps(&r, version, o->numbering, t->config, c);
    check_tap_counts(&r, t->config, c);
    read_mask(&r, t->config, c);
    read_f32(&r, "embedding_scale", 1e-6, 1e6, &c->emb_scale);
    read_f32(&r, "logit_scale", 1e-6, 1e6, &c->logit_scale);
    read_f32(&r, "final_logit_softcapping", 0.0, 1e6, &c->softcap);
    return r.rc;
}

int32_t dflash_max_drafts(const struct dflash_config *c)
{
    const int32_t n = c->anchor_first ? c->block_size : c->block_size - 1;
    return n < DRAFT_MAX ? n : DRAFT_MAX;
}

/* ---- tokens ---- */

/* Tokens that a file keeps for later have names that writers make up. */
static bool is_unused(const struct gguf_array *types, uint64_t i)
{
    int64_t type;
    return types->count > i && gguf_array_i64(types, i, &type) && type == 5;
}

static int same_special(const struct gguf *g, const struct gguf *target, const char *key, skua_error *err)
{
    int64_t a, b;
    int rc = gguf_get_i64(g, key, &a, err);
    if (rc <= 0)
        return rc;
    rc = gguf_get_i64(target, key, &b, err);
    if (rc <= 0 || a == b)
        return rc < 0 ? rc : 0;
    return error_set(err, SKUA_EUNSUPPORTED, "key '%s' is %lld, the model's is %lld: it is a drafter for another vocabulary", key,
                     (long long)a, (long long)b);
}

int dflash_check_tokens(const struct gguf *g, const struct dflash_target *t, struct strbuf *warnings, skua_error *err)
{
    static const char tokens[] = "tokenizer.ggml.tokens", kinds[] = "tokenizer.ggml.token_type";
    struct gguf_array ours = {0}, theirs = {0}, our_types = {0}, their_types = {0};
    struct gguf_string a, b;
    size_t at_a = 0, at_b = 0;
    int rc = gguf_get_array(g, tokens, GGUF_STRINGS, &ours, err);
    if (rc == 0)
        strbuf_puts(warnings, "the drafter's file has no tokenizer: whether its tokens are the model's cannot be checked\n");
    if (rc <= 0)
        return rc;
    rc = gguf_require_array(t->gguf, tokens, GGUF_STRINGS, &theirs, err);
    if (rc)
        return rc;
    if (ours.count != theirs.count)
        return error_set(err, SKUA_EUNSUPPORTED, "the drafter's vocabulary has %llu tokens, the model's %llu: it is a drafter for another "
                         "vocabulary", (unsigned long long)ours.count, (unsigned long long)theirs.count);
    rc = gguf_get_array(g, kinds, GGUF_INTEGERS, &our_types, err);
    if (rc >= 0)
        rc = gguf_get_array(t->gguf, kinds, GGUF_INTEGERS, &their_types, err);
    if (rc < 0)
        return rc;
    for (uint64_t i = 0; gguf_array_next_string(&ours, &at_a, &a) && gguf_array_next_string(&theirs, &at_b, &b); i++)
        if ((a.len != b.len || memcmp(a.data, b.data, a.len) != 0) && !is_unused(&our_types, i) && !is_unused(&their_types, i))
            return error_set(err, SKUA_EUNSUPPORTED, "token %llu is '%s' in the drafter's vocabulary and '%s' in the model's: it is a "
                             "drafter for another vocabulary", (unsigned long long)i, key_show(a).text, key_show(b).text);
    rc = same_special(g, t->gguf, "tokenizer.ggml.eos_token_id", err);
    return rc ? rc : same_special(g, t->gguf, "tokenizer.ggml.bos_token_id", err);
}
