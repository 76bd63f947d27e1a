/* Files with an MTP block: written from a model's own block, in every layout, they draft as that block does, for a model with one and for a
 * model without; and what is no head for the model is refused, by name. */
#include "recorded.h"

#include "base/mem.h"
#include "model/seq.h"
#include "quant/type.h"
#include "spec/mtp.h"
#include "spec/mtp_file.h"

#define DEPTH 5
#define N_IDS 120

static const char *model, *moe;

static struct dflash_target target_of(const skua_engine *e)
{
    return (struct dflash_target){.gguf = e->gguf, .config = &e->config, .weights = &e->weights, .samplable = e->samplable};
}

static struct mtp_file *open_head(skua_engine *e, const char *path)
{
    struct mtp_file *f = NULL;
    const struct dflash_target t = target_of(e);
    skua_error err = {0};
    if (mtp_file_open(&f, path, &t, e->kv_type, e->dev, &err) || !f) {
        printf("%s: %s\n", path, err.message);
        exit(1);
    }
    return f;
}

static struct drafter *drafter_of(skua_engine *e, const struct mtp_weights *w, const char *name)
{
    const struct mtp_model m = {.config = &e->config, .weights = w, .forward = e->forward, .dev = e->dev, .kv_type = e->kv_type,
                                .max_rows = e->max_rows, .name = name};
    struct drafter *d = NULL;
    skua_error err = {0};
    if (mtp_create(&m, &d, &err)) {
        printf("%s: %s\n", name, err.message);
        exit(1);
    }
    return d;
}

/* Proposals at every fifth position. */
static void proposals(skua_engine *e, const struct recorded *r, const struct mtp_weights *w, struct draft *out)
{
    struct drafter *d = drafter_of(e, w, "any");
    for (int32_t n = 1; n < r->n; n += 5) {
        feed(d, r, n, 3);
        out[n / 5] = *propose(d, r->ids[n], DEPTH);
    }
    d->ops->free(d);
}

static struct draft want[N_IDS / 5 + 1], got[N_IDS / 5 + 1];

static int same_count(const struct recorded *r, bool first_only)
{
    int same = 0;
    for (int32_t n = 1; n < r->n; n += 5)
        same += first_only ? got[n / 5].ids[0] == want[n / 5].ids[0] : same_drafts(&got[n / 5], &want[n / 5]);
    return same;
}

static void check_same(const struct recorded *r, const char *path, const char *summary, const char *warnings)
{
    struct mtp_file *f = open_head(r->e, path);
    proposals(r->e, r, &f->weights, got);
    const int n = (r->n + 3) / 5, same = same_count(r, false);
    CHECK(same == n, "%s: %d of %d proposals are the bundled block's", path, same, n);
    CHECK(!strcmp(f->summary, summary), "summary '%s', expected '%s'", f->summary, summary);
    CHECK(!strcmp(strbuf_str(&f->warnings), warnings), "warnings '%s'", strbuf_str(&f->warnings));
    CHECK(f->bytes >= sizeof *f, "%zu bytes", f->bytes);
    mtp_file_close(f);
}

/* ---- files ---- */

static const char *block_prefix(const char *path) { return path == moe ? "blk.4." : "blk.8."; }

/* The model without its trunk. */
static void load_head(struct edit_model *m, const char *path)
{
    edit_load(m, path);
    for (int i = 0; i < 8; i++) {
        char prefix[24];
        snprintf(prefix, sizeof prefix, "blk.%d.", i);
        if (strcmp(prefix, block_prefix(path)))
            edit_drop(m, prefix);
    }
}

static int add_qwen3(struct gguf_writer *w, skua_error *err)
{
    int rc = gguf_writer_add_string(w, "general.architecture", "qwen3", 5, err);
    return rc ? rc : gguf_writer_add_u32(w, "qwen3.embedding_length", 256, err);
}

/* Columns [begin, begin + n) of a Q8_0 matrix as a tensor of its own. */
static void add_columns(struct edit_model *m, const char *from, const char *name, uint64_t begin, uint64_t n)
{
    struct edit_tensor *t = edit_copy_as(m, from, name);
    const size_t row = t->ne[0] / 32 * 34, part = n / 32 * 34;
    char *data = malloc(t->ne[1] * part);
    for (size_t i = 0; i < t->ne[1]; i++)
        memcpy(data + i * part, (const char *)t->data + i * row + begin / 32 * 34, part);
    t->ne[0] = n;
    edit_own(t, data, t->ne[1] * part);
}

/* The head in the other layout; the embedding stays out. */
static void load_split(struct edit_model *m)
{
    static const char *const names[][2] = {{"post_attention_norm", "ffn_norm"}, {"nextn.enorm", "enorm"}, {"nextn.hnorm", "hnorm"},
                                           {"nextn.shared_head_norm", "norm"}};
    load_head(m, model);
    m->add_keys = add_qwen3;
    add_columns(m, "blk.8.nextn.eh_proj.weight", "mtp.0.e_proj.weight", 0, 256);
    add_columns(m, "blk.8.nextn.eh_proj.weight", "mtp.0.h_proj.weight", 256, 256);
    edit_drop(m, "blk.8.nextn.eh_proj");
    edit_drop(m, "token_embd");
    edit_drop(m, "output_norm");
    for (int i = 0; i < m->n; i++) {
        struct edit_tensor *t = &m->t[i];
        char role[64], name[64];
        if (sscanf(t->name, "blk.8.%63s", role) != 1)
            continue;
        role[strlen(role) - strlen(".weight")] = 0;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (!strcmp(role, names[k][0]))
                strcpy(role, names[k][1]);
        snprintf(name, sizeof name, "mtp.0.%.40s.weight", role);
        strcpy(t->name, name);
    }
}

/* The heads that do not say which tokens they have, for a vocabulary of 248320: nothing of the target but its shape is looked at. */
static void test_known_rows(skua_engine *e)
{
    struct edit_model m;
    struct mtp_file *f = NULL;
    struct model_config c = e->config;
    struct dflash_target t = target_of(e);
    skua_error err = {0};
    const size_t rows = 98336, words = 248320 / 64;
    uint64_t *samplable = malloc(words * sizeof *samplable);
    memset(samplable, 0xFF, words * sizeof *samplable);
    samplable[0] &= ~(uint64_t)2;
    c.n_vocab = 248320;
    t.config = &c;
    t.samplable = samplable;
    load_split(&m);
    struct edit_tensor *head = edit_copy_as(&m, "mtp.0.e_proj.weight", "mtp.0.draft_lm_head.weight");
    head->ne[1] = rows;
    edit_own(head, calloc(rows, 272), rows * 272);
    const int rc = mtp_file_open(&f, edit_write(&m, "known.gguf"), &t, e->kv_type, e->dev, &err);
    if (CHECK(rc == 0 && f->weights.ids, "%s", err.message)) {
        const int32_t *ids = f->weights.ids;
        const uint64_t *allow = kern_ptr(f->weights.allow);
        CHECK(ids[0] == 0 && ids[98303] == 98303 && ids[98304] == 248044 && ids[98329] == 248069, "%d %d", ids[98304], ids[98329]);
        CHECK(ids[98330] == -1 && ids[98335] == -1 && f->weights.head.n_out == (int32_t)rows, "padding");
        CHECK(allow[0] == ~(uint64_t)2 && allow[98329 / 64] >> 98329 % 64 == 1, "columns that may be chosen");
    }
    mtp_file_close(f);
    edit_unload(&m);
    free(samplable);
}

/* A draft head with the rows of tokens[n] (-1: of token 0), and their list in type, or none (QTYPE_END). */
static void add_draft_head(struct edit_model *m, const int32_t *tokens, int32_t n, uint32_t type)
{
    struct edit_model whole;
    edit_load(&whole, model);
    const struct edit_tensor *from = edit_find(&whole, "token_embd.weight");
    const size_t row = 256 / 32 * 34, wide = type == QTYPE_I64 ? 8 : 4;
    char *rows = malloc((size_t)n * row), *list = malloc((size_t)n * wide);
    for (int32_t i = 0; i < n; i++) {
        const int64_t id = tokens[i];
        memcpy(rows + (size_t)i * row, (const char *)from->data + (size_t)(tokens[i] < 0 ? 0 : tokens[i]) * row, row);
        memcpy(list + (size_t)i * wide, &id, wide);
    }
    edit_unload(&whole);
    struct edit_tensor *t = edit_copy_as(m, "mtp.0.e_proj.weight", "mtp.0.draft_lm_head.weight");
    t->ne[1] = (uint64_t)n;
    edit_own(t, rows, (size_t)n * row);
    t = edit_copy_as(m, "mtp.0.enorm.weight", "mtp.0.draft_lm_head.ids");
    t->type = type;
    t->ne[0] = (uint64_t)n;
    edit_own(t, list, (size_t)n * wide);
    if (type == QTYPE_END)
        edit_drop(m, "mtp.0.draft_lm_head.ids");
}

/* ---- heads that fit ---- */

static void test_own_layout(const struct recorded *r, const char *path)
{
    struct edit_model m;
    char name[96];
    load_head(&m, path);
    check_same(r, edit_write(&m, "head.gguf"), "mtp (head.gguf)", "");
    snprintf(name, 64, "%sunknown.weight", block_prefix(path));
    edit_copy_as(&m, "output_norm.weight", name);
    edit_drop(&m, "token_embd");
    edit_drop(&m, "output");
    snprintf(name, sizeof name, "1 of the draft head's %d tensors have no place in it and are ignored\n", m.n);
    check_same(r, edit_write(&m, "bare.gguf"), "mtp (bare.gguf)", name);
    edit_unload(&m);
}

static int add_no_block(struct gguf_writer *w, skua_error *err)
{
    int rc = gguf_writer_add_u32(w, "qwen35.block_count", 8, err);
    return rc ? rc : gguf_writer_add_u32(w, "qwen35.nextn_predict_layers", 0, err);
}

/* A model that has no block of its own. */
static void test_model_without(struct recorded r)
{
    struct edit_model m;
    edit_load(&m, model);
    edit_drop(&m, "blk.8.");
    m.add_keys = add_no_block;
    skua_engine *trunk = model_open(edit_write(&m, "trunk.gguf"), &(skua_engine_params){.n_threads = 1, .max_rows = 16});
    edit_unload(&m);
    CHECK(!trunk->weights.mtp.present, "the block is still there");
    load_head(&m, model);
    r.e = trunk;
    check_same(&r, edit_write(&m, "head.gguf"), "mtp (head.gguf)", "");
    edit_unload(&m);
    skua_engine_close(trunk);
}

static void test_split_layout(const struct recorded *r)
{
    struct edit_model m;
    load_split(&m);
    struct mtp_file *f = open_head(r->e, edit_write(&m, "split.gguf"));
    proposals(r->e, r, &f->weights, got);
    /* one rounding more, in the sum of the two products */
    const int n = (r->n + 3) / 5, first = same_count(r, true);
    CHECK(first >= n - 1, "%d of %d first drafts are the bundled block's", first, n);
    CHECK(!strcmp(f->summary, "mtp (split.gguf)"), "summary '%s'", f->summary);
    mtp_file_close(f);
    memcpy(want, got, sizeof want); /* from here on the measure */

    int32_t tokens[8192];
    for (int32_t i = 0; i < 8192; i++)
        tokens[i] = 8191 - i;
    add_draft_head(&m, tokens, 8192, QTYPE_I32);
    check_same(r, edit_write(&m, "turned.gguf"), "mtp (turned.gguf: head of 8192 tokens)", "");
    edit_drop(&m, "mtp.0.draft_lm_head");
    for (int32_t i = 0; i < 8192; i++)
        tokens[i] = i;
    add_draft_head(&m, tokens, 8192, QTYPE_END);
    check_same(r, edit_write(&m, "all.gguf"), "mtp (all.gguf)", "");
    edit_drop(&m, "mtp.0.draft_lm_head");

    for (int32_t i = 0; i < 2000; i++)
        tokens[i] = i % 10 == 7 ? -1 : 3 * i + 1;
    add_draft_head(&m, tokens, 2000, QTYPE_I64);
    f = open_head(r->e, edit_write(&m, "some.gguf"));
    CHECK(!strcmp(f->summary, "mtp (some.gguf: head of 2000 tokens)"), "summary '%s'", f->summary);
    proposals(r->e, r, &f->weights, got);
    int both = 0;
    for (int32_t k = 1; k < r->n; k += 5) {
        const struct draft *a = &got[k / 5], *b = &want[k / 5];
        for (int32_t i = 0; i < a->n; i++)
            CHECK(a->ids[i] % 3 == 1 && a->ids[i] < 6000 && a->ids[i] / 3 % 10 != 7, "draft %d is not in the head", a->ids[i]);
        const bool known = b->ids[0] % 3 == 1 && b->ids[0] < 6000 && b->ids[0] / 3 % 10 != 7;
        both += known;
        CHECK(!known || a->ids[0] == b->ids[0], "at %d: draft %d, the whole head's best is %d and there too", k, a->ids[0], b->ids[0]);
    }
    CHECK(both > 0, "no draft of the whole head is in the other");
    mtp_file_close(f);
    edit_unload(&m);
}

/* ---- heads that do not ---- */

static void refused(skua_engine *e, const char *path, int code, const char *message)
{
    struct mtp_file *f = NULL;
    const struct dflash_target t = target_of(e);
    skua_error err = {0};
    const size_t live = mem_live_blocks();
    int rc = mtp_file_open(&f, path, &t, e->kv_type, e->dev, &err);
    const char *tail = error_without_path(err.message, path);
    CHECK(rc == code && !f && !strcmp(tail, message) && tail != err.message, "%d '%s', expected %d '%s'", rc, err.message, code, message);
    CHECK(mem_live_blocks() == live, "memory is left");
}

static int add_narrow(struct gguf_writer *w, skua_error *err) { return gguf_writer_add_u32(w, "qwen35.embedding_length", 512, err); }
static int add_rope(struct gguf_writer *w, skua_error *err) { return gguf_writer_add_f32(w, "qwen35.rope.freq_base", 1e6f, err); }
static int add_llama(struct gguf_writer *w, skua_error *err) { return gguf_writer_add_string(w, "general.architecture", "llama", 5, err); }
static int add_deeper(struct gguf_writer *w, skua_error *err) { return gguf_writer_add_u32(w, "qwen35.block_count", 13, err); }
static int add_tokens(struct gguf_writer *w, skua_error *err)
{
    static const struct gguf_string tokens[] = {{"a", 1}, {"b", 1}};
    return gguf_writer_add_strings(w, "tokenizer.ggml.tokens", tokens, 2, err);
}
static int add_eos(struct gguf_writer *w, skua_error *err) { return gguf_writer_add_u32(w, "tokenizer.ggml.eos_token_id", 5, err); }

static void test_keys_refused(skua_engine *e)
{
    static const struct {
        int (*add)(struct gguf_writer *w, skua_error *err);
        const char *message;
    } cases[] = {
        {add_narrow, "key 'qwen35.embedding_length' is 512, the model's is 256: it is a draft head for another model"},
        {add_rope, "key 'qwen35.rope.freq_base' is 1e+06, the model's is 1e+07: it is a draft head for another model"},
        {add_deeper, "key 'qwen35.block_count' is 13, the model's is 9: it is a draft head for another model"},
        {add_llama, "architecture 'llama' is no draft head for this model; expected qwen35 (block 8 of it) or qwen3 (tensors mtp.0.*)"},
        {add_tokens, "the drafter's vocabulary has 2 tokens, the model's 8192: it is a drafter for another vocabulary"},
        {add_eos, "key 'tokenizer.ggml.eos_token_id' is 5, the model's is 8177: it is a drafter for another vocabulary"},
    };
    struct edit_model m;
    load_head(&m, model);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        m.add_keys = cases[i].add;
        refused(e, edit_write(&m, "keys.gguf"), SKUA_EUNSUPPORTED, cases[i].message);
    }
    edit_unload(&m);
}

static void test_tensors_refused(skua_engine *e)
{
    struct edit_model m;
    refused(e, model, SKUA_EUNSUPPORTED, "tensor 'blk.0.attn_norm.weight' is not of block 8: the file is a whole model, or a draft head "
            "for another one; a head for this model has block 8 only");
    load_head(&m, model);
    edit_copy_as(&m, "blk.8.attn_norm.weight", "blk.11.attn_norm.weight");
    refused(e, edit_write(&m, "other.gguf"), SKUA_EUNSUPPORTED, "tensor 'blk.11.attn_norm.weight' is not of block 8: the file is a whole "
            "model, or a draft head for another one; a head for this model has block 8 only");
    edit_drop(&m, "blk.11.");
    edit_find(&m, "token_embd.weight")->ne[1] = 8000;
    edit_find(&m, "token_embd.weight")->size = (size_t)8000 * 272;
    refused(e, edit_write(&m, "rows.gguf"), SKUA_EUNSUPPORTED, "tensor 'token_embd.weight' has rows for 8000 tokens, the model has 8192: "
            "it is a draft head for another vocabulary");
    edit_drop(&m, "token_embd");
    edit_find(&m, "blk.8.attn_k.weight")->ne[1] = 256;
    edit_find(&m, "blk.8.attn_k.weight")->size /= 2;
    refused(e, edit_write(&m, "shape.gguf"), SKUA_EFORMAT, "tensor 'blk.8.attn_k.weight' has shape [256, 256, 1, 1], expected [256, 512, "
            "1, 1]");
    edit_drop(&m, "blk.8.attn_k.weight");
    refused(e, edit_write(&m, "missing.gguf"), SKUA_EFORMAT, "tensor 'blk.8.attn_k.weight' is missing");
    edit_drop(&m, "blk.");
    edit_copy_as(&m, "output_norm.weight", "token_norm.weight");
    refused(e, edit_write(&m, "none.gguf"), SKUA_EUNSUPPORTED, "no tensor of block 8: the file is no draft head for this model");
    edit_unload(&m);
    if (!moe)
        return;
    load_head(&m, moe);
    refused(e, edit_write(&m, "moe.gguf"), SKUA_EUNSUPPORTED, "architecture 'qwen35moe' is no draft head for this model; expected qwen35 "
            "(block 8 of it) or qwen3 (tensors mtp.0.*)");
    edit_unload(&m);
}

static void test_split_refused(skua_engine *e)
{
    struct edit_model m;
    int32_t tokens[100] = {0};
    load_split(&m);
    edit_copy_as(&m, "mtp.0.attn_norm.weight", "blk.0.attn_norm.weight");
    refused(e, edit_write(&m, "whole.gguf"), SKUA_EUNSUPPORTED, "tensor 'blk.0.attn_norm.weight' belongs to a whole model; a draft head of "
            "architecture qwen3 has tensors mtp.0.* only");
    edit_drop(&m, "blk.");
    edit_copy_as(&m, "mtp.0.attn_norm.weight", "mtp.1.attn_norm.weight");
    refused(e, edit_write(&m, "two.gguf"), SKUA_EUNSUPPORTED, "tensor 'mtp.1.attn_norm.weight': several MTP blocks; supported: one "
            "(mtp.0.*)");
    edit_drop(&m, "mtp.1.");
    add_draft_head(&m, tokens, 100, QTYPE_END);
    refused(e, edit_write(&m, "unlisted.gguf"), SKUA_EUNSUPPORTED, "tensor 'mtp.0.draft_lm_head.weight' has 100 rows and there is no "
            "'mtp.0.draft_lm_head.ids' that says for which tokens; expected a row for each of the model's 8192, or such a list");
    edit_drop(&m, "mtp.0.draft_lm_head");
    tokens[7] = 8192;
    add_draft_head(&m, tokens, 100, QTYPE_I32);
    refused(e, edit_write(&m, "beyond.gguf"), SKUA_EFORMAT, "tensor 'mtp.0.draft_lm_head.ids' names token 8192 for row 7, expected 0 to "
            "8191, or -1 for none");
    edit_drop(&m, "mtp.0.draft_lm_head");
    for (int i = 0; i < 100; i++)
        tokens[i] = -1;
    add_draft_head(&m, tokens, 100, QTYPE_I32);
    refused(e, edit_write(&m, "nothing.gguf"), SKUA_EUNSUPPORTED, "tensor 'mtp.0.draft_lm_head.weight' has no row of a token that the "
            "model may choose");
    edit_find(&m, "mtp.0.draft_lm_head.ids")->type = QTYPE_F32;
    refused(e, edit_write(&m, "floats.gguf"), SKUA_EFORMAT, "tensor 'mtp.0.draft_lm_head.ids' is F32, expected I32 or I64");
    edit_find(&m, "mtp.0.draft_lm_head.ids")->type = QTYPE_I32;
    edit_find(&m, "mtp.0.draft_lm_head.ids")->ne[0] = 99;
    edit_find(&m, "mtp.0.draft_lm_head.ids")->size = 99 * 4;
    refused(e, edit_write(&m, "short.gguf"), SKUA_EFORMAT, "tensor 'mtp.0.draft_lm_head.ids' has shape [99, 1, 1, 1], expected [100, 1, "
            "1, 1]");
    edit_unload(&m);
}

static void test_split_empty(skua_engine *e)
{
    struct edit_model m;
    load_split(&m);
    edit_copy_as(&m, "mtp.0.norm.weight", "output_norm.weight");
    edit_drop(&m, "mtp.");
    refused(e, edit_write(&m, "empty.gguf"), SKUA_EUNSUPPORTED, "no tensor mtp.0.*: the file is no draft head");
    edit_unload(&m);
    if (!moe)
        return;
    skua_engine *experts = model_open(moe, &(skua_engine_params){.n_threads = 1});
    load_split(&m);
    refused(experts, edit_write(&m, "dense.gguf"), SKUA_EUNSUPPORTED, "a draft head of architecture qwen3 is dense, the model is a "
            "mixture of experts");
    edit_unload(&m);
    skua_engine_close(experts);
}

/* A file that ends early, at any of many places: refused, nothing left. */
static void test_cut(skua_engine *e)
{
    struct edit_model m;
    size_t size;
    load_head(&m, model);
    const char *whole = edit_write(&m, "head.gguf"), *cut = support_temp("cut.gguf");
    const uint8_t *data = NULL;
    struct gguf *g = NULL;
    skua_error err = {0};
    CHECK(gguf_open(&g, whole, &err) == 0 && (data = gguf_shard_data(g, 0, &size)), "%s", err.message);
    for (size_t n = 1; data && n < size; n += size / 23) {
        struct mtp_file *f = NULL;
        const struct dflash_target t = target_of(e);
        FILE *out = fopen(cut, "wb");
        CHECK(out && fwrite(data, 1, n, out) == n && !fclose(out), "%s", cut);
        const size_t live = mem_live_blocks();
        const int rc = mtp_file_open(&f, cut, &t, e->kv_type, e->dev, &err);
        CHECK(rc == SKUA_EFORMAT && !f && strstr(err.message, "cut.gguf: E_") && mem_live_blocks() == live, "%zu bytes: %d '%s'", n, rc,
              err.message);
    }
    gguf_close(g);
    edit_unload(&m);
}

/* Every allocation and file operation fails once: an error, nothing left, and the next attempt succeeds. */
static void test_faults(skua_engine *e)
{
    struct edit_model m;
    const int32_t tokens[3] = {300, 301, 302};
    const struct dflash_target t = target_of(e);
    load_split(&m);
    add_draft_head(&m, tokens, 3, QTYPE_I32);
    const char *path = edit_write(&m, "some.gguf");
    edit_unload(&m);
    for (int io = 0; io < 2; io++) {
        long n = 0;
        for (int rc = -1; rc;) {
            struct mtp_file *f = NULL;
            skua_error err = {0};
            const size_t live = mem_live_blocks(), held = e->dev->allocated_bytes;
            (io ? fault_set_io : fault_set_alloc)((uint64_t)++n, true);
            rc = mtp_file_open(&f, path, &t, e->kv_type, e->dev, &err);
            (io ? fault_set_io : fault_set_alloc)(0, false);
            CHECK(!rc == !!f && (!rc || ((rc == SKUA_ENOMEM || (io && rc == SKUA_EIO)) && err.message[0])), "%d: %s", rc, err.message);
            mtp_file_close(f);
            CHECK(mem_live_blocks() == live && e->dev->allocated_bytes == held, "failure %ld leaves memory", n);
        }
        CHECK(n > (io ? 2 : 6), "%ld failures", n - 1);
    }
}

int main(void)
{
    static char kept[2][300];
    const char *found = support_model("tiny-q8_0.gguf");
    if (found)
        model = strcpy(kept[0], found);
    found = support_model("tiny-moe-q8_0.gguf");
    if (found)
        moe = strcpy(kept[1], found);
    const char *const paths[] = {model, moe};
    for (int i = 0; i < 2; i++) {
        if (!paths[i])
            continue;
        const size_t live = mem_live_blocks();
        skua_engine *e = model_open(paths[i], &(skua_engine_params){.n_threads = 2, .max_rows = 64});
        int32_t ids[N_IDS];
        for (int32_t k = 0; k < N_IDS; k++)
            ids[k] = (k * 7919 + 13) % 8000;
        struct recorded r = record(e, ids, N_IDS / 2, N_IDS / 2);
        proposals(e, &r, &e->weights.mtp, want);
        test_own_layout(&r, paths[i]);
        if (paths[i] == model) {
            test_model_without(r);
            test_split_layout(&r);
            test_known_rows(e);
            test_keys_refused(e);
            test_tensors_refused(e);
            test_split_refused(e);
            test_split_empty(e);
            test_cut(e);
            test_faults(e);
        }
        recorded_free(&r);
        skua_engine_close(e);
        CHECK(mem_live_blocks() == live, "%zu blocks are left", mem_live_blocks() - live);
    }
    return support_finish("test_spec_mtp_file");
}
