/* The same model written in other ways that files of this family use must be the same model: a head of its own, merged expert
 * matrices, a list of recurrent layers, shards, vectors in 16 bits, MTP blocks with and without their optional tensors. Each variant's
 * logits are compared with memcmp; what cannot run is refused by name. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "quant/half.h"
#include "quant/quant.h"
#include "support/edit.h"
#include "support/support.h"

#define N_IDS 40
#define MAX_TENSORS 256

/* ---- what a model computes ---- */

struct numbers {
    float *logits, *mtp; /* [N_IDS][n_vocab], [n_vocab]; the latter of the MTP block, NULL when there is none */
    int n_vocab;
    bool has_mtp;
    char warnings[400];
};

static bool compute(const char *path, struct numbers *r)
{
    skua_engine *e;
    skua_session *s;
    skua_error err = {0};
    int32_t ids[N_IDS];
    memset(r, 0, sizeof *r);
    for (int i = 0; i < N_IDS; i++)
        ids[i] = 300 + 37 * i;
    if (!CHECK(!skua_engine_open(path, NULL, &e, &err), "%s", err.message))
        return false;
    skua_engine_info info = skua_engine_get_info(e);
    snprintf(r->warnings, sizeof r->warnings, "%s", info.warnings);
    r->n_vocab = info.n_vocab;
    r->has_mtp = info.has_mtp;
    r->logits = malloc((size_t)N_IDS * (size_t)info.n_vocab * sizeof(float));
    r->mtp = info.has_mtp ? malloc((size_t)info.n_vocab * sizeof(float)) : NULL;
    bool ok = CHECK(!skua_session_create(e, 0, &s, &err), "%s", err.message);
    struct engine_inspect what = {.mtp = info.has_mtp, .logits = r->logits, .mtp_logits = r->mtp};
    ok = ok && CHECK(!engine_inspect(s, ids, N_IDS, &what, &err), "%s: %s", path, err.message);
    skua_session_free(s);
    skua_engine_close(e);
    return ok;
}

static void free_numbers(struct numbers *r)
{
    free(r->logits);
    free(r->mtp);
}

/* The model at path computes what base does, and warns with this (NULL: not at all). */
static void same(const char *what, const char *path, const struct numbers *base, const char *warning)
{
    struct numbers r;
    size_t row = (size_t)base->n_vocab * sizeof(float);
    if (compute(path, &r)) {
        CHECK(r.n_vocab == base->n_vocab && !memcmp(r.logits, base->logits, N_IDS * row), "%s: other logits", what);
        CHECK(!r.mtp || !base->mtp || !memcmp(r.mtp, base->mtp, row), "%s: other logits of the MTP block", what);
        CHECK(warning ? strstr(r.warnings, warning) != NULL : !*r.warnings, "%s: warnings '%s'", what, r.warnings);
    }
    free_numbers(&r);
}

static void refused(const char *what, const char *path, int code, const char *part)
{
    skua_engine *e = NULL;
    skua_error err = {0};
    int rc = skua_engine_open(path, NULL, &e, &err);
    CHECK(rc == code && !e && strstr(err.message, part) && strstr(err.message, path), "%s: %d '%s'", what, rc, err.message);
    skua_engine_close(e);
}

/* ---- variants of the dense model ---- */

static void check_own_head(const char *source, const struct numbers *base)
{
    struct edit_model m;
    edit_load(&m, source);
    edit_copy_as(&m, "token_embd.weight", "output.weight");
    same("an untied head", edit_write(&m, "untied.gguf"), base, NULL);
    edit_copy_as(&m, "output_norm.weight", "blk.0.nobody_knows.weight");
    same("an unknown tensor", edit_write(&m, "unknown.gguf"), base, "1 of the file's 125 tensors have no place");
    for (int i = 0; i < m.n / 2; i++) {
        struct edit_tensor t = m.t[i];
        m.t[i] = m.t[m.n - 1 - i];
        m.t[m.n - 1 - i] = t;
    }
    edit_drop(&m, "blk.0.nobody_knows");
    same("the other order", edit_write(&m, "reversed.gguf"), base, NULL);
    edit_unload(&m);
}

static int add_recurrent_layers(struct gguf_writer *w, skua_error *err)
{
    static const uint8_t recurrent[9] = {1, 1, 1, 0, 1, 1, 1, 0, 0};
    return gguf_writer_add_array(w, "qwen35.attention.recurrent_layers", GGUF_BOOL, recurrent, 9, err);
}

static int add_recurrent_integers(struct gguf_writer *w, skua_error *err)
{
    static const int32_t recurrent[9] = {1, 1, 1, 0, 1, 1, 1, 0, 0};
    return gguf_writer_add_array(w, "qwen35.attention.recurrent_layers", GGUF_I32, recurrent, 9, err);
}

static void check_layer_list(const char *source, const struct numbers *base)
{
    struct edit_model m;
    edit_load(&m, source);
    m.drop_key = "qwen35.full_attention_interval";
    m.add_keys = add_recurrent_layers;
    same("a list of recurrent layers", edit_write(&m, "list.gguf"), base, NULL);
    m.add_keys = add_recurrent_integers;
    same("a list in integers", edit_write(&m, "integers.gguf"), base, NULL);
    m.add_keys = NULL; /* the interval's default is this model's */
    same("no interval", edit_write(&m, "interval.gguf"), base, NULL);
    edit_unload(&m);
}

static void check_shards(const char *source, const struct numbers *base)
{
    struct edit_model m;
    edit_load(&m, source);
    const char *first = NULL;
    for (int i = 0; i < 3; i++) {
        char name[40];
        snprintf(name, sizeof name, "parts-%05d-of-00003.gguf", i + 1);
        const char *path = support_temp(name);
        first = i ? first : path;
        edit_write_part(&m, path, m.n * i / 3, m.n * (i + 1) / 3, (uint16_t)i, 3);
    }
    same("three shards", first, base, NULL);
    edit_unload(&m);
}

static bool is_vector(const struct edit_tensor *t)
{
    return t->type == QTYPE_F32 && (t->n_dims == 1 || strstr(t->name, "ssm_conv1d"));
}

/* Vectors in 16 bits are the vectors that they round to. */
static void check_narrow_vectors(const char *source, uint32_t type)
{
    struct edit_model m;
    struct numbers rounded;
    skua_error err;
    edit_load(&m, source);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < m.n; i++) {
            struct edit_tensor *t = &m.t[i];
            int64_t n = (int64_t)(t->size / sizeof(float));
            if (!is_vector(t))
                continue;
            uint16_t *narrow = malloc((size_t)n * 2);
            float *wide = malloc((size_t)n * 4);
            CHECK(!quantize_row(type, t->data, narrow, n, NULL, &err) && !dequant_row(type, (const void *)narrow, wide, n), "%s", t->name);
            if (pass == 0)
                edit_own(t, wide, (size_t)n * 4);
            else
                edit_own(t, narrow, (size_t)n * 2);
            free(pass ? (void *)wide : (void *)narrow);
            t->type = pass ? type : QTYPE_F32;
        }
        if (pass == 0 && !compute(edit_write(&m, "rounded.gguf"), &rounded))
            exit(1);
    }
    same(qtype_info(type)->name, edit_write(&m, "narrow.gguf"), &rounded, NULL);
    free_numbers(&rounded);
    edit_unload(&m);
}

static void check_mtp(const char *source, const struct numbers *base)
{
    struct edit_model m;
    struct numbers r;
    edit_load(&m, source);
    CHECK(base->has_mtp, "the shipped model has an MTP block");
    edit_copy_as(&m, "token_embd.weight", "blk.8.nextn.embed_tokens.weight");
    edit_copy_as(&m, "token_embd.weight", "blk.8.nextn.shared_head_head.weight");
    same("an MTP block with embedding and head of its own", edit_write(&m, "own-mtp.gguf"), base, NULL);

    /* Without shared_head_norm the block uses output_norm. */
    struct edit_tensor *norm = edit_find(&m, "blk.8.nextn.shared_head_norm.weight"), *output = edit_find(&m, "output_norm.weight");
    norm->data = output->data;
    if (compute(edit_write(&m, "copied-norm.gguf"), &r)) {
        CHECK(memcmp(r.mtp, base->mtp, (size_t)r.n_vocab * sizeof(float)) != 0, "the two norms differ");
        edit_drop(&m, "blk.8.nextn.shared_head_norm");
        same("an MTP block without a norm of its own", edit_write(&m, "no-norm.gguf"), &r, NULL);
    }
    free_numbers(&r);

    edit_drop(&m, "blk.8.");
    const char *path = edit_write(&m, "announced.gguf");
    same("an MTP block that is announced only", path, base, "the file announces an MTP block (block 8) but has no tensors of it");
    if (compute(path, &r))
        CHECK(!r.has_mtp, "no MTP block is there");
    free_numbers(&r);
    edit_unload(&m);

    edit_load(&m, source);
    for (int i = 0; i < 8; i++) {
        char prefix[24];
        snprintf(prefix, sizeof prefix, "blk.%d.", i);
        edit_drop(&m, prefix);
    }
    refused("a companion file", edit_write(&m, "companion.gguf"), SKUA_EUNSUPPORTED, "the file holds only an MTP block");
    edit_unload(&m);
}

static void check_refusals(const char *source)
{
    struct edit_model m;
    edit_load(&m, source);
    struct edit_tensor *t = edit_find(&m, "blk.2.ffn_up.weight"), before = *t;
    t->ne[1] = 992;
    t->size = t->size / 1024 * 992;
    refused("a shape", edit_write(&m, "shape.gguf"), SKUA_EFORMAT,
            "'blk.2.ffn_up.weight' has shape [256, 992, 1, 1], expected [256, 1024, 1, 1]");
    *t = before;
    size_t iq3 = qtype_row_bytes(QTYPE_IQ3_S, 256) * 1024;
    t->type = QTYPE_IQ3_S;
    edit_own(t, calloc(1, iq3), iq3);
    refused("a type", edit_write(&m, "type.gguf"), SKUA_EUNSUPPORTED,
            "'blk.2.ffn_up.weight' has type IQ3_S, which this version cannot run; supported: F32, F16, Q4_0, Q4_1, Q5_0");
    edit_drop(&m, "blk.2.ffn_up");
    refused("a missing tensor", edit_write(&m, "missing.gguf"), SKUA_EFORMAT, "blk.2.ffn_up.weight");
    edit_unload(&m);

    edit_load(&m, source);
    t = edit_find(&m, "blk.0.ssm_norm.weight");
    t->type = QTYPE_Q8_0;
    size_t q8 = qtype_row_bytes(QTYPE_Q8_0, t->ne[0]);
    edit_own(t, calloc(1, q8), q8);
    refused("a quantised norm", edit_write(&m, "norm.gguf"), SKUA_EUNSUPPORTED,
            "'blk.0.ssm_norm.weight' has type Q8_0; supported here: F32, F16, BF16");
    edit_drop(&m, "blk.0.ssm_norm");
    edit_copy_as(&m, "blk.3.attn_q.weight", "blk.3.attn_qkv.weight");
    refused("another missing tensor", edit_write(&m, "qkv.gguf"), SKUA_EFORMAT, "blk.0.ssm_norm.weight");
    edit_unload(&m);
}

/* ---- variants of the MoE model ---- */

/* gate and up of all experts as one matrix: rows of gate, then rows of up, expert by expert. */
static void check_merged_experts(const char *source, const struct numbers *base)
{
    struct edit_model m;
    int merged = 0;
    edit_load(&m, source);
    for (int block = 0; block < 4; block++) {
        char gate_name[40], up_name[40], name[48];
        snprintf(gate_name, sizeof gate_name, "blk.%d.ffn_gate_exps.weight", block);
        snprintf(up_name, sizeof up_name, "blk.%d.ffn_up_exps.weight", block);
        snprintf(name, sizeof name, "blk.%d.ffn_gate_up_exps.weight", block);
        struct edit_tensor *t = edit_copy_as(&m, gate_name, name), *gate = edit_find(&m, gate_name), *up = edit_find(&m, up_name);
        size_t n = (size_t)gate->ne[2], part = gate->size / n;
        char *data = malloc(2 * gate->size);
        for (size_t e = 0; e < n; e++) {
            memcpy(data + 2 * e * part, (const char *)gate->data + e * part, part);
            memcpy(data + (2 * e + 1) * part, (const char *)up->data + e * part, part);
        }
        t->ne[1] *= 2;
        edit_own(t, data, 2 * gate->size);
        edit_drop(&m, gate_name);
        edit_drop(&m, up_name);
        merged++;
    }
    CHECK(merged == 4, "%d layers", merged);
    same("merged expert matrices", edit_write(&m, "merged.gguf"), base, NULL);
    edit_unload(&m);
}

/* Q8_0 scales divided by 2^shift (of matrix e: by e % 3 more), and the factor that makes up for it in NAME.scale. */
static struct edit_tensor *factor_out(struct edit_model *m, const char *stem, int shift)
{
    char name[64];
    snprintf(name, sizeof name, "%s.weight", stem);
    struct edit_tensor *t = edit_find(m, name);
    size_t n = (size_t)t->ne[2], part = t->size / n;
    uint8_t *data = malloc(t->size);
    float *factors = malloc(n * sizeof *factors);
    memcpy(data, t->data, t->size);
    for (size_t e = 0; e < n; e++) {
        factors[e] = (float)(1 << (shift + (int)(e % 3)));
        for (size_t b = e * part; b < (e + 1) * part; b += 34) {
            uint16_t d;
            memcpy(&d, data + b, sizeof d);
            d = f32_to_f16(f16_to_f32(d) / factors[e]);
            memcpy(data + b, &d, sizeof d);
        }
    }
    edit_own(t, data, t->size);
    snprintf(name, sizeof name, "%s.input_scale", stem);
    struct edit_tensor *scale = edit_copy_as(m, "output_norm.weight", name);
    scale->ne[0] = n;
    edit_own(scale, calloc(n, sizeof *factors), n * sizeof *factors); /* has no use here */
    snprintf(name, sizeof name, "%s.scale", stem);
    scale = edit_copy_as(m, "output_norm.weight", name);
    scale->ne[0] = n;
    edit_own(scale, factors, n * sizeof *factors);
    return scale;
}

/* Factors of matrices: powers of two, so that nothing is rounded, as long as scales stay above the subnormal ones of f16. */
static void check_factors(const char *source, const struct numbers *base, bool moe)
{
    struct edit_model m;
    edit_load(&m, source);
    const char *dense[] = {"token_embd", "blk.0.attn_qkv", "blk.1.ffn_down", "blk.3.attn_q", "blk.2.ffn_up", "blk.8.nextn.eh_proj", NULL};
    const char *experts[] = {"output", "blk.0.ffn_gate_exps", "blk.1.ffn_up_exps", "blk.2.ffn_down_exps", "blk.3.ffn_down_shexp", NULL};
    struct edit_tensor *scale = NULL;
    for (const char **stem = moe ? experts : dense; *stem; stem++)
        scale = factor_out(&m, *stem, 1);
    same(moe ? "factors of experts" : "factors", edit_write(&m, "factors.gguf"), base, NULL);
    ((float *)scale->owned)[0] = INFINITY;
    refused("an infinite factor", edit_write(&m, "infinite.gguf"), SKUA_EFORMAT, ".scale' holds a factor that is not finite");
    scale->ne[0] = 2;
    edit_own(scale, calloc(2, sizeof(float)), 2 * sizeof(float));
    refused("two factors for one matrix", edit_write(&m, "two.gguf"), SKUA_EFORMAT,
            "is F32 [2, 1, 1, 1], expected F32 [1], one factor per matrix");
    edit_unload(&m);
}

int main(void)
{
    const char *dense = support_model("tiny-q8_0.gguf"), *moe = support_model("tiny-moe-q8_0.gguf");
    struct numbers base;
    if (dense && compute(dense, &base)) {
        check_own_head(dense, &base);
        check_layer_list(dense, &base);
        check_shards(dense, &base);
        check_narrow_vectors(dense, QTYPE_F16);
        check_narrow_vectors(dense, QTYPE_BF16);
        check_mtp(dense, &base);
        check_refusals(dense);
        check_factors(dense, &base, false);
        free_numbers(&base);
    }
    if (moe && compute(moe, &base)) {
        check_merged_experts(moe, &base);
        check_factors(moe, &base, true);
        free_numbers(&base);
    }
    return support_finish("variants");
}
