/* For the tests of drafters: a small drafter file as lists of keys and tensors that a test changes before it is written, and a target for
   it. Header only. */
#ifndef SKUA_TESTS_DFLASH_FILES_H
#define SKUA_TESTS_DFLASH_FILES_H

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "gguf/gguf_write.h"
#include "quant/quant.h"
#include "spec/dflash_file.h"
#include "support/support.h"

#define DF_LAYERS 2
#define DF_EMBD 64
#define DF_FF 96
#define DF_HEADS 4
#define DF_KV_HEADS 2
#define DF_HEAD_DIM 16
#define DF_TAPS 3
#define DF_VOCAB 97
#define DF_TARGET_LAYERS 8
#define DF_MASK 90
#define DF_RANK 8
#define DF_TOP_K 4
#define DF_SPARK_RANK 12
#define DF_LAST_SAMPLABLE 92 /* ids above are reserved in the target */

struct df_key {
    char name[128];
    enum gguf_type type; /* of the value; of the elements of lists */
    uint32_t n;          /* list of n elements; 0: one value */
    int32_t i[16];
    float f;
    const char *s;       /* strings; a list of strings are the tokens */
};

struct df_tensor {
    char name[64];
    uint32_t type;
    uint64_t ne[3];
    int64_t *ids; /* content of integer tensors, static */
};

struct df_file {
    struct df_key keys[64];
    struct df_tensor tensors[80];
    int n_keys, n_tensors;
    const char *odd_token; /* instead of token 40 */
    int32_t n_tokens;
};

static inline void df_must(int rc, const skua_error *err)
{
    if (rc) { /* nothing can be tested without */
        printf("cannot make a test file: %s\n", err->message);
        exit(1);
    }
}

static inline struct df_key *df_key_at(struct df_file *f, const char *name)
{
    for (int i = 0; i < f->n_keys; i++)
        if (strcmp(f->keys[i].name, name) == 0)
            return &f->keys[i];
    struct df_key *k = &f->keys[f->n_keys++];
    *k = (struct df_key){0};
    snprintf(k->name, sizeof k->name, "%s", name);
    return k;
}

static inline void df_u32(struct df_file *f, const char *name, int32_t v)
{
    struct df_key *k = df_key_at(f, name);
    k->type = GGUF_U32;
    k->n = 0;
    k->i[0] = v;
}

static inline void df_f32(struct df_file *f, const char *name, float v)
{
    struct df_key *k = df_key_at(f, name);
    k->type = GGUF_F32;
    k->n = 0;
    k->f = v;
}

static inline void df_bool(struct df_file *f, const char *name, bool v)
{
    struct df_key *k = df_key_at(f, name);
    k->type = GGUF_BOOL;
    k->n = 0;
    k->i[0] = v;
}

static inline void df_string(struct df_file *f, const char *name, const char *s)
{
    struct df_key *k = df_key_at(f, name);
    k->type = GGUF_STRING;
    k->n = 0;
    k->s = s;
}

static inline void df_list(struct df_file *f, const char *name, enum gguf_type type, int n, const int32_t *v)
{
    struct df_key *k = df_key_at(f, name);
    k->type = type;
    k->n = (uint32_t)n;
    memcpy(k->i, v, (size_t)n * sizeof *v);
}

static inline void df_drop_key(struct df_file *f, const char *name)
{
    struct df_key *k = df_key_at(f, name);
    memmove(k, k + 1, (size_t)(f->keys + f->n_keys - k - 1) * sizeof *k);
    f->n_keys--;
}

static inline void df_rename_key(struct df_file *f, const char *from, const char *to)
{
    struct df_key *k = df_key_at(f, from);
    snprintf(k->name, sizeof k->name, "%s", to);
}

static inline struct df_tensor *df_tensor_at(struct df_file *f, const char *name)
{
    for (int i = 0; i < f->n_tensors; i++)
        if (strcmp(f->tensors[i].name, name) == 0)
            return &f->tensors[i];
    return NULL;
}

static inline void df_tensor(struct df_file *f, const char *name, uint32_t type, uint64_t ne0, uint64_t ne1, uint64_t ne2)
{
    struct df_tensor *t = df_tensor_at(f, name);
    if (!t)
        t = &f->tensors[f->n_tensors++];
    *t = (struct df_tensor){.type = type, .ne = {ne0, ne1, ne2}};
    snprintf(t->name, sizeof t->name, "%s", name);
}

static inline void df_drop_tensor(struct df_file *f, const char *name)
{
    struct df_tensor *t = df_tensor_at(f, name);
    memmove(t, t + 1, (size_t)(f->tensors + f->n_tensors - t - 1) * sizeof *t);
    f->n_tensors--;
}

/* Tensors whose names hold `from` get `to` in its place. */
static inline void df_rename_tensors(struct df_file *f, const char *from, const char *to)
{
    for (int i = 0; i < f->n_tensors; i++) {
        char *at = strstr(f->tensors[i].name, from), rest[64];
        if (!at)
            continue;
        snprintf(rest, sizeof rest, "%s", at + strlen(from));
        snprintf(at, (size_t)(f->tensors[i].name + 64 - at), "%s%s", to, rest);
    }
}

static inline void df_classic(struct df_file *f)
{
    const int32_t layers[DF_TAPS] = {2, 5, 7};
    char name[64];
    *f = (struct df_file){.n_tokens = DF_VOCAB};
    df_string(f, "general.architecture", "dflash");
    df_u32(f, "dflash.block_count", DF_LAYERS);
    df_u32(f, "dflash.embedding_length", DF_EMBD);
    df_u32(f, "dflash.feed_forward_length", DF_FF);
    df_u32(f, "dflash.context_length", 4096);
    df_u32(f, "dflash.attention.head_count", DF_HEADS);
    df_u32(f, "dflash.attention.head_count_kv", DF_KV_HEADS);
    df_u32(f, "dflash.attention.key_length", DF_HEAD_DIM);
    df_u32(f, "dflash.attention.value_length", DF_HEAD_DIM);
    df_f32(f, "dflash.attention.layer_norm_rms_epsilon", 1e-6f);
    df_f32(f, "dflash.rope.freq_base", 1e7f);
    df_u32(f, "dflash.block_size", 8);
    df_list(f, "dflash.target_layers", GGUF_I32, DF_TAPS, layers);
    df_u32(f, "tokenizer.ggml.mask_token_id", DF_MASK);
    df_key_at(f, "tokenizer.ggml.tokens")->type = GGUF_STRING;
    df_key_at(f, "tokenizer.ggml.tokens")->n = 1;
    df_u32(f, "tokenizer.ggml.eos_token_id", 91);
    df_tensor(f, "fc.weight", QTYPE_F32, DF_TAPS * DF_EMBD, DF_EMBD, 1);
    df_tensor(f, "enc.output_norm.weight", QTYPE_F32, DF_EMBD, 1, 1);
    df_tensor(f, "output_norm.weight", QTYPE_F32, DF_EMBD, 1, 1);
    for (int i = 0; i < DF_LAYERS; i++) {
        static const struct { const char *role; uint32_t type; uint64_t ne0, ne1; } roles[] = {
            {"attn_norm.weight", QTYPE_F32, DF_EMBD, 1}, {"attn_q.weight", QTYPE_F16, DF_EMBD, DF_HEADS * DF_HEAD_DIM},
            {"attn_k.weight", QTYPE_F16, DF_EMBD, DF_KV_HEADS * DF_HEAD_DIM},
            {"attn_v.weight", QTYPE_F32, DF_EMBD, DF_KV_HEADS * DF_HEAD_DIM},
            {"attn_output.weight", QTYPE_F32, DF_HEADS * DF_HEAD_DIM, DF_EMBD}, {"attn_q_norm.weight", QTYPE_F16, DF_HEAD_DIM, 1},
            {"attn_k_norm.weight", QTYPE_F32, DF_HEAD_DIM, 1}, {"ffn_norm.weight", QTYPE_F32, DF_EMBD, 1},
            {"ffn_gate.weight", QTYPE_F32, DF_EMBD, DF_FF}, {"ffn_up.weight", QTYPE_F32, DF_EMBD, DF_FF},
            {"ffn_down.weight", QTYPE_F32, DF_FF, DF_EMBD}};
        for (size_t k = 0; k < sizeof roles / sizeof *roles; k++) {
            snprintf(name, sizeof name, "blk.%d.%s", i, roles[k].role);
            df_tensor(f, name, roles[k].type, roles[k].ne0, roles[k].ne1, 1);
        }
    }
}

static inline void df_dflash2(struct df_file *f)
{
    char name[64];
    df_classic(f);
    df_u32(f, "dflash.conv_kernel_size", 2);
    df_u32(f, "dflash.conv_group_size", 16);
    df_u32(f, "dflash.selector_rank", DF_RANK);
    df_u32(f, "dflash.selector_top_k", DF_TOP_K);
    for (int i = 0; i < 2 * DF_LAYERS; i++) {
        snprintf(name, sizeof name, "blk.%d.%s_conv_base", i / 2, i % 2 ? "ffn" : "attn");
        df_tensor(f, name, i % 2 ? QTYPE_BF16 : QTYPE_F32, DF_EMBD, 2, 2);
        snprintf(name, sizeof name, "blk.%d.%s_conv_proj.weight", i / 2, i % 2 ? "ffn" : "attn");
        df_tensor(f, name, QTYPE_F32, DF_EMBD, 2 * 2 * DF_EMBD / 16, 1);
    }
    df_tensor(f, "selector_hidden.weight", QTYPE_F32, DF_EMBD, DF_RANK, 1);
    df_tensor(f, "selector_predecessor.weight", QTYPE_F32, DF_RANK, DF_VOCAB, 1);
    df_tensor(f, "selector_successor.weight", QTYPE_F32, DF_RANK, DF_VOCAB, 1);
}

static inline void df_dspark(struct df_file *f)
{
    df_classic(f);
    df_tensor(f, "markov_w1.weight", QTYPE_F32, DF_SPARK_RANK, DF_VOCAB, 1);
    df_tensor(f, "markov_w2.weight", QTYPE_F32, DF_SPARK_RANK, DF_VOCAB, 1);
    df_tensor(f, "conf_proj.weight", QTYPE_F32, DF_EMBD + DF_SPARK_RANK, 1, 1);
    df_tensor(f, "conf_proj.bias", QTYPE_F32, 1, 1, 1);
}

/* The same file in the layout of dflash-draft. */
static inline void df_nested(struct df_file *f, const char *arch)
{
    const int32_t layers[DF_TAPS] = {1, 4, 6};
    char name[96];
    for (int i = 0; i < f->n_keys; i++)
        if (strncmp(f->keys[i].name, "dflash.", 7) == 0) {
            snprintf(name, sizeof name, "%.30s.%.60s", arch, f->keys[i].name + 7);
            snprintf(f->keys[i].name, sizeof f->keys[i].name, "%s", name);
        }
    df_string(f, "general.architecture", arch);
    snprintf(name, sizeof name, "%s.target_layers", arch);
    df_drop_key(f, name);
    snprintf(name, sizeof name, "%s.dflash.target_layer_ids", arch);
    df_list(f, name, GGUF_U32, DF_TAPS, layers);
    char from[96];
    snprintf(from, sizeof from, "%s.block_size", arch);
    snprintf(name, sizeof name, "%s.dflash.block_size", arch);
    df_rename_key(f, from, name);
    snprintf(name, sizeof name, "%s.dflash.mask_token_id", arch);
    df_rename_key(f, "tokenizer.ggml.mask_token_id", name);
    df_rename_tensors(f, "fc.weight", "dflash_fc.weight");
    df_rename_tensors(f, "enc.output_norm", "dflash_hidden_norm");
    df_rename_tensors(f, "ffn_norm", "post_attention_norm");
}

/* Content of a tensor: small numbers from its name; what the caller gives for integers. malloc. */
static inline void *df_content(const struct df_tensor *t, size_t *size)
{
    const uint64_t n = t->ne[0] * t->ne[1] * t->ne[2];
    uint64_t rng;
    uint64_t seed = 5381;
    for (const char *p = t->name; *p; p++)
        seed = seed * 33 + (unsigned char)*p;
    rng = seed;
    *size = (size_t)(t->ne[1] * t->ne[2]) * qtype_row_bytes(t->type, t->ne[0]);
    char *out = calloc(1, *size + 64), *at = out;
    float *row = malloc((size_t)t->ne[0] * sizeof *row);
    if (t->type == QTYPE_I64)
        memcpy(out, t->ids, (size_t)n * 8);
    for (uint64_t i = 0; t->type != QTYPE_I64 && t->type != QTYPE_I32 && i < t->ne[1] * t->ne[2]; i++) {
        for (uint64_t k = 0; k < t->ne[0]; k++)
            row[k] = (float)((double)(rng_next(&rng) >> 40) / (1 << 24) - 0.5);
        quantize_row(t->type, row, at, (int64_t)t->ne[0], NULL, NULL);
        at += qtype_row_bytes(t->type, t->ne[0]);
    }
    free(row);
    return out;
}

static inline int df_put_tokens(struct gguf_writer *w, const struct df_file *f, skua_error *err)
{
    static char text[DF_VOCAB + 8][16];
    struct gguf_string list[DF_VOCAB + 8];
    int32_t types[DF_VOCAB + 8];
    for (int i = 0; i < f->n_tokens; i++) {
        snprintf(text[i], sizeof text[i], "%s%d", i == 40 && f->odd_token ? f->odd_token : "t", i);
        list[i] = (struct gguf_string){text[i], strlen(text[i])};
        types[i] = i > DF_LAST_SAMPLABLE ? 5 : 1;
    }
    int rc = gguf_writer_add_strings(w, "tokenizer.ggml.tokens", list, (size_t)f->n_tokens, err);
    return rc ? rc : gguf_writer_add_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, (size_t)f->n_tokens, err);
}

static inline int df_put_key(struct gguf_writer *w, const struct df_file *f, const struct df_key *k, skua_error *err)
{
    uint8_t bytes[16];
    if (k->type == GGUF_STRING && k->n)
        return df_put_tokens(w, f, err);
    for (uint32_t i = 0; i < k->n; i++)
        bytes[i] = k->i[i] != 0;
    if (k->n)
        return gguf_writer_add_array(w, k->name, k->type, k->type == GGUF_BOOL ? (const void *)bytes : k->i, k->n, err);
    switch (k->type) {
    case GGUF_STRING: return gguf_writer_add_string(w, k->name, k->s, strlen(k->s), err);
    case GGUF_F32: return gguf_writer_add_f32(w, k->name, k->f, err);
    case GGUF_BOOL: return gguf_writer_add_bool(w, k->name, k->i[0], err);
    default: return gguf_writer_add_scalar(w, k->name, k->type, k->i, err);
    }
}

/* Write under the name in the temporary folder; its path. */
static inline const char *df_write(const struct df_file *f, const char *name)
{
    const char *path = support_temp(name);
    struct gguf_writer *w;
    skua_error err = {0};
    df_must(gguf_writer_new(&w, GGUF_DEFAULT_ALIGNMENT, &err), &err);
    for (int i = 0; i < f->n_keys; i++)
        df_must(df_put_key(w, f, &f->keys[i], &err), &err);
    for (int i = 0; i < f->n_tensors; i++) {
        const struct df_tensor *t = &f->tensors[i];
        df_must(gguf_writer_add_tensor(w, t->name, t->type, t->ne[2] > 1 ? 3 : t->ne[1] > 1 ? 2 : 1, t->ne, &err), &err);
    }
    df_must(gguf_writer_begin(w, path, &err), &err);
    for (int i = 0; i < f->n_tensors; i++) {
        size_t size;
        void *data = df_content(&f->tensors[i], &size);
        df_must(gguf_writer_data(w, f->tensors[i].name, data, size, &err), &err);
        free(data);
    }
    df_must(gguf_writer_finish(w, &err), &err);
    gguf_writer_free(w);
    return path;
}

/* A target for these files: no model that runs, but what the loader looks at. Its head and embedding are rows of DF_EMBD numbers. */
struct df_target {
    struct dflash_target t;
    struct model_config config;
    struct weights weights;
    struct gguf *gguf;
    struct kern_buf *rows;
    uint64_t samplable[2];
    struct dev *dev;
};

static inline void df_target_open(struct df_target *x)
{
    struct df_file f = {.n_tokens = DF_VOCAB};
    uint64_t rng;
    skua_error err = {0};
    df_string(&f, "general.architecture", "qwen35");
    df_key_at(&f, "tokenizer.ggml.tokens")->type = GGUF_STRING;
    df_key_at(&f, "tokenizer.ggml.tokens")->n = 1;
    df_u32(&f, "tokenizer.ggml.eos_token_id", 91);
    *x = (struct df_target){.config = {.n_embd = DF_EMBD, .n_vocab = DF_VOCAB, .n_layer = DF_TARGET_LAYERS}};
    df_must(dev_cpu_create(kern_select("scalar"), 1, 1, &x->dev, &err), &err);
    df_must(gguf_open(&x->gguf, df_write(&f, "target.gguf"), &err), &err);
    df_must(x->dev->ops->buf_alloc(x->dev, 2 * DF_VOCAB * DF_EMBD * sizeof(float), &x->rows, &err), &err);
    rng = 7;
    for (size_t i = 0; i < 2 * DF_VOCAB * DF_EMBD; i++)
        ((float *)x->rows->host)[i] = (float)((double)(rng_next(&rng) >> 40) / (1 << 24) - 0.5);
    for (int i = 0; i <= DF_LAST_SAMPLABLE; i++)
        x->samplable[i / 64] |= (uint64_t)1 << (i % 64);
    x->weights.embed = (struct kern_weight){.data = {x->rows, 0}, .type = QTYPE_F32, .n_in = DF_EMBD, .n_out = DF_VOCAB, .n_expert = 1};
    x->weights.head = x->weights.embed;
    x->weights.head.data.offset = DF_VOCAB * DF_EMBD * sizeof(float);
    x->t = (struct dflash_target){x->gguf, &x->config, &x->weights, x->samplable};
}

static inline void df_target_close(struct df_target *x)
{
    x->dev->ops->buf_free(x->dev, x->rows);
    x->dev->ops->destroy(x->dev);
    gguf_close(x->gguf);
}

#endif
