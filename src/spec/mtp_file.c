/* Opening a file with an MTP block; see mtp_file.h. */
#include "spec/mtp_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/key_reader.h"
#include "quant/type.h"
#include "spec/dflash_file_internal.h"

/* Files with a head of this many rows do not say which tokens they are: the first ones, the control tokens, and rows without meaning. */
#define KNOWN_ROWS 98336
#define KNOWN_FIRST 98304
#define KNOWN_CONTROL 248044
#define KNOWN_CONTROL_END 248070
#define KNOWN_VOCAB 248320

static const char head_name[] = "mtp.0.draft_lm_head.weight", ids_name[] = "mtp.0.draft_lm_head.ids";

static bool equal(struct gguf_string s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

static bool begins(const struct gguf_tensor *t, const char *prefix)
{
    const size_t n = strlen(prefix);
    return t->name_len > n && memcmp(t->name, prefix, n) == 0;
}

/* Which layout. */
static int read_arch(const struct gguf *g, const struct dflash_target *t, bool *split, skua_error *err)
{
    struct gguf_string s;
    int rc = gguf_require_string(g, "general.architecture", &s, err);
    if (rc)
        return rc;
    *split = equal(s, "qwen3");
    if (!*split && !equal(s, t->config->arch))
        return error_set(err, SKUA_EUNSUPPORTED, "architecture '%s' is no draft head for this model; expected %s (block %d of it) or qwen3 "
                         "(tensors mtp.0.*)", key_show(s).text, t->config->arch, t->config->n_layer);
    if (*split && t->config->moe)
        return error_set(err, SKUA_EUNSUPPORTED, "a draft head of architecture qwen3 is dense, the model is a mixture of experts");
    return 0;
}

/* A file with tensors of another block is no head, whatever else is in it. */
static int check_blocks(const struct gguf *g, const struct dflash_target *t, bool split, skua_error *err)
{
    const long n = t->config->n_layer;
    bool found = false;
    for (uint32_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *x = gguf_tensor_at(g, i);
        char name[GGUF_MAX_NAME_BYTES + 1];
        snprintf(name, sizeof name, "%.*s", x->name_len, x->name);
        if (split && begins(x, "blk."))
            return error_set(err, SKUA_EUNSUPPORTED, "tensor '%s' belongs to a whole model; a draft head of architecture qwen3 has tensors "
                             "mtp.0.* only", name);
        if (begins(x, "blk.") && strtol(name + 4, NULL, 10) != n)
            return error_set(err, SKUA_EUNSUPPORTED, "tensor '%s' is not of block %ld: the file is a whole model, or a draft head for "
                             "another one; a head for this model has block %ld only", name, n, n);
        if (split && begins(x, "mtp.") && !begins(x, "mtp.0."))
            return error_set(err, SKUA_EUNSUPPORTED, "tensor '%s': several MTP blocks; supported: one (mtp.0.*)", name);
        found = found || begins(x, split ? "mtp.0." : "blk.");
    }
    if (found)
        return 0;
    return split ? error_set(err, SKUA_EUNSUPPORTED, "no tensor mtp.0.*: the file is no draft head")
                 : error_set(err, SKUA_EUNSUPPORTED, "no tensor of block %ld: the file is no draft head for this model", n);
}

static void same_i32(struct key_reader *r, const char *suffix, int32_t expected)
{
    int32_t x = expected;
    key_i32(r, suffix, false, 0, INT32_MAX, &x);
    if (!r->rc && x != expected)
        r->rc = error_set(r->err, SKUA_EUNSUPPORTED, "key '%s.%s' is %d, the model's is %d: it is a draft head for another model", r->arch,
                          suffix, x, expected);
}

static void same_f64(struct key_reader *r, const char *suffix, double expected)
{
    char key[96];
    double x = expected;
    if (r->rc)
        return;
    key_name(key, r->arch, suffix);
    int rc = gguf_get_f64(r->g, key, &x, r->err);
    if (rc < 0)
        r->rc = rc;
    else if ((float)x != (float)expected)
        r->rc = error_set(r->err, SKUA_EUNSUPPORTED, "key '%s' is %g, the model's is %g: it is a draft head for another model", key, x,
                          expected);
}

/* What the shapes of the tensors do not tell. Keys that are not there are taken for the model's. */
static int check_keys(const struct gguf *g, const struct dflash_target *t, bool split, skua_error *err)
{
    const struct model_config *c = t->config;
    struct key_reader r = {.g = g, .arch = split ? "qwen3" : c->arch, .err = err};
    same_i32(&r, "embedding_length", c->n_embd);
    if (!split) {
        same_i32(&r, "block_count", c->n_layer + 1);
        same_i32(&r, "nextn_predict_layers", 1);
    }
    same_i32(&r, "attention.key_length", c->head_dim);
    same_i32(&r, "rope.dimension_count", c->n_rot);
    same_f64(&r, "rope.freq_base", c->rope_base);
    same_f64(&r, "attention.layer_norm_rms_epsilon", (double)c->rms_eps);
    if (c->moe)
        same_i32(&r, "expert_used_count", c->n_expert_used);
    const struct gguf_tensor *embed = gguf_find_tensor(g, "token_embd.weight");
    if (!r.rc && embed && embed->ne[1] != (uint64_t)c->n_vocab)
        r.rc = error_set(err, SKUA_EUNSUPPORTED, "tensor 'token_embd.weight' has rows for %llu tokens, the model has %d: it is a draft "
                         "head for another vocabulary", (unsigned long long)embed->ne[1], c->n_vocab);
    return r.rc;
}

/* ---- the head of some tokens ---- */

/* What the file says its n rows stand for. */
static int read_ids(struct binder *b, int32_t n, int32_t n_vocab, int32_t *ids)
{
    const struct gguf_tensor *t = bind_require(b, -1, ids_name, n, 1, 1);
    if (!t)
        return b->rc;
    if (t->type != QTYPE_I32 && t->type != QTYPE_I64)
        return error_set(b->err, SKUA_EFORMAT, "tensor '%s' is %s, expected I32 or I64", ids_name, qtype_info(t->type)->name);
    for (int32_t i = 0; i < n; i++) {
        int64_t id;
        int32_t narrow;
        memcpy(&narrow, t->data + 4 * (size_t)i, sizeof narrow);
        id = narrow;
        if (t->type == QTYPE_I64)
            memcpy(&id, t->data + 8 * (size_t)i, sizeof id);
        if (id < -1 || id >= n_vocab)
            return error_set(b->err, SKUA_EFORMAT, "tensor '%s' names token %lld for row %d, expected 0 to %d, or -1 for none", ids_name,
                             (long long)id, i, n_vocab - 1);
        ids[i] = (int32_t)id;
    }
    return 0;
}

static void known_ids(int32_t *ids)
{
    for (int32_t i = 0; i < KNOWN_ROWS; i++) {
        const int32_t control = KNOWN_CONTROL + i - KNOWN_FIRST;
        ids[i] = i < KNOWN_FIRST ? i : control < KNOWN_CONTROL_END ? control : -1;
    }
}

static int mark_allowed(struct mtp_file *f, const struct dflash_target *t, skua_error *err)
{
    const int32_t n = f->weights.head.n_out;
    bool any = false;
    int rc = f->dev->ops->buf_alloc(f->dev, ((size_t)n + 63) / 64 * sizeof(uint64_t), &f->allow, err);
    if (rc)
        return rc;
    for (int32_t base = 0; base < n; base += 64) {
        uint64_t word = 0;
        for (int32_t i = base; i < n && i < base + 64; i++)
            if (f->ids[i] >= 0 && t->samplable[f->ids[i] / 64] >> (f->ids[i] % 64) & 1)
                word |= (uint64_t)1 << (i - base);
        any = any || word;
        f->dev->ops->write(f->dev, (struct kern_view){f->allow, (size_t)base / 8}, &word, sizeof word);
    }
    f->weights.allow = (struct kern_view){f->allow, 0};
    f->bytes += f->allow->size;
    return any ? 0 : error_set(err, SKUA_EUNSUPPORTED, "tensor '%s' has no row of a token that the model may choose", head_name);
}

static int bind_draft_head(struct mtp_file *f, struct binder *b, const struct dflash_target *t)
{
    const struct gguf_tensor *x = bind_find(b, -1, head_name);
    const int32_t n_vocab = t->config->n_vocab;
    if (b->rc || !x)
        return b->rc;
    const uint64_t n = x->ne[1];
    const bool listed = bind_find(b, -1, ids_name) != NULL;
    if (n < 1 || n > (uint64_t)n_vocab || (!listed && n != (uint64_t)n_vocab && !(n == KNOWN_ROWS && n_vocab == KNOWN_VOCAB)))
        return error_set(b->err, SKUA_EUNSUPPORTED, "tensor '%s' has %llu rows and there is no '%s' that says for which tokens; expected "
                         "a row for each of the model's %d, or such a list", head_name, (unsigned long long)n, ids_name, n_vocab);
    bind_matrix(b, -1, head_name, t->config->n_embd, (int64_t)n, 1, &f->weights.head);
    if (b->rc || (!listed && n == (uint64_t)n_vocab))
        return b->rc;
    f->ids = mem_realloc_array(NULL, (size_t)n, sizeof *f->ids);
    if (!f->ids)
        return error_nomem(b->err, "tokens of the draft head", (size_t)n * sizeof *f->ids);
    f->bytes += (size_t)n * sizeof *f->ids;
    f->weights.ids = f->ids;
    if (!listed)
        known_ids(f->ids);
    int rc = listed ? read_ids(b, (int32_t)n, n_vocab, f->ids) : 0;
    return rc ? rc : mark_allowed(f, t, b->err);
}

/* ---- binding ---- */

static void bind_split(struct binder *b, const struct model_config *c, const struct weights *trunk, struct mtp_weights *m)
{
    const int64_t e = c->n_embd, q = (int64_t)c->head_dim * c->n_head, kv = (int64_t)c->head_dim * c->n_head_kv;
    struct block_weights *l = &m->block;
    m->embed = trunk->embed;
    m->head = trunk->head;
    bind_vector(b, -1, "mtp.0.enorm.weight", e, 1, &m->enorm);
    bind_vector(b, -1, "mtp.0.hnorm.weight", e, 1, &m->hnorm);
    bind_vector(b, -1, "mtp.0.norm.weight", e, 1, &m->head_norm);
    bind_matrix(b, -1, "mtp.0.e_proj.weight", e, e, 1, &m->e_proj);
    bind_matrix(b, -1, "mtp.0.h_proj.weight", e, e, 1, &m->h_proj);
    bind_vector(b, -1, "mtp.0.attn_norm.weight", e, 1, &l->attn_norm);
    bind_vector(b, -1, "mtp.0.ffn_norm.weight", e, 1, &l->post_norm);
    bind_matrix(b, -1, "mtp.0.attn_q.weight", e, 2 * q, 1, &l->attn_q);
    bind_matrix(b, -1, "mtp.0.attn_k.weight", e, kv, 1, &l->attn_k);
    bind_matrix(b, -1, "mtp.0.attn_v.weight", e, kv, 1, &l->attn_v);
    bind_matrix(b, -1, "mtp.0.attn_output.weight", q, e, 1, &l->attn_output);
    bind_vector(b, -1, "mtp.0.attn_q_norm.weight", c->head_dim, 1, &l->q_norm);
    bind_vector(b, -1, "mtp.0.attn_k_norm.weight", c->head_dim, 1, &l->k_norm);
    bind_matrix(b, -1, "mtp.0.ffn_gate.weight", e, c->n_ff, 1, &l->ffn.gate);
    bind_matrix(b, -1, "mtp.0.ffn_up.weight", e, c->n_ff, 1, &l->ffn.up);
    bind_matrix(b, -1, "mtp.0.ffn_down.weight", c->n_ff, e, 1, &l->ffn.down);
}

/* The trunk's parts that a block may lack: the file's own where it has them. */
static void bind_trunk(struct binder *b, const struct dflash_target *t, struct weights *trunk)
{
    const int64_t e = t->config->n_embd, v = t->config->n_vocab;
    *trunk = (struct weights){.embed = t->weights->embed, .head = t->weights->head, .output_norm = t->weights->output_norm};
    if (bind_find(b, -1, "token_embd.weight"))
        bind_matrix(b, -1, "token_embd.weight", e, v, 1, &trunk->embed);
    if (bind_find(b, -1, "output.weight"))
        bind_matrix(b, -1, "output.weight", e, v, 1, &trunk->head);
    if (bind_find(b, -1, "output_norm.weight"))
        bind_vector(b, -1, "output_norm.weight", e, 1, &trunk->output_norm);
}

static int bind_all(struct mtp_file *f, const struct dflash_target *t, bool split, skua_error *err)
{
    const struct model_config *c = t->config;
    struct binder b = {.g = f->gguf, .dev = f->dev, .file = &f->file, .err = err};
    struct weights trunk;
    bind_open(&b, (6 * (size_t)c->n_embd + 2 * (size_t)c->head_dim) * sizeof(float)); /* room for every vector */
    bind_trunk(&b, t, &trunk);
    if (split)
        bind_split(&b, c, &trunk, &f->weights);
    else
        weights_bind_mtp(&b, c, &trunk, &f->weights);
    if (!b.rc && split)
        b.rc = bind_draft_head(f, &b, t);
    const uint32_t n = gguf_tensor_count(f->gguf);
    if (!b.rc && n > b.n_used)
        strbuf_printf(&f->warnings, "%u of the draft head's %u tensors have no place in it and are ignored\n", n - b.n_used, n);
    f->weights.present = !b.rc;
    f->bytes += f->file.vectors_used;
    return b.rc;
}

static int open_all(struct mtp_file *f, const char *path, const struct dflash_target *t, skua_error *err)
{
    bool split = false;
    int rc = gguf_open(&f->gguf, path, err);
    if (!rc)
        rc = read_arch(f->gguf, t, &split, err);
    if (!rc)
        rc = check_blocks(f->gguf, t, split, err);
    if (!rc)
        rc = check_keys(f->gguf, t, split, err);
    if (!rc)
        rc = dflash_check_tokens(f->gguf, t, &f->warnings, err);
    if (!rc)
        rc = bind_all(f, t, split, err);
    if (!rc && strbuf_failed(&f->warnings))
        rc = error_nomem(err, "warnings", 0);
    if (rc && err && error_without_path(err->message, path) == err->message) /* many messages name the file themselves */
        error_prefix(err, "%s", path);
    return rc;
}

int mtp_file_open(struct mtp_file **out, const char *path, const struct dflash_target *t, uint32_t kv_type, struct dev *d, skua_error *err)
{
    *out = NULL;
    struct mtp_file *f = mem_calloc(1, sizeof *f);
    if (!f)
        return error_nomem(err, "draft head", sizeof *f);
    f->dev = d;
    int rc = open_all(f, path, t, err);
    if (rc) {
        mtp_file_close(f);
        return rc;
    }
    weights_layout_mtp(&f->weights, t->config, kv_type);
    const char *tail = strrchr(path, '/');
    const int n = snprintf(f->summary, sizeof f->summary, "mtp (%.100s", tail ? tail + 1 : path);
    if (f->ids)
        snprintf(f->summary + n, sizeof f->summary - (size_t)n, ": head of %d tokens)", f->weights.head.n_out);
    else
        snprintf(f->summary + n, sizeof f->summary - (size_t)n, ")");
    f->bytes += sizeof *f;
    *out = f;
    return 0;
}

void mtp_file_close(struct mtp_file *f)
{
    if (!f)
        return;
    f->dev->ops->buf_free(f->dev, f->allow);
    bound_file_free(&f->file, f->dev);
    mem_free(f->ids);
    strbuf_free(&f->warnings);
    gguf_close(f->gguf);
    mem_free(f);
}
