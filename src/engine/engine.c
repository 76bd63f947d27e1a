/* Opening and closing an engine; its facts. */
#include "engine/draft.h"
#include "engine/engine.h"

#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "jinja/jinja.h"
#include "model/vocab.h"
#include "quant/type.h"
#include "tok/tokenizer.h"

#define DEFAULT_MAX_ROWS 512

static int select_kernels(const skua_engine_params *p, const struct kern_table **table, skua_error *err)
{
    if (p->precision == SKUA_PRECISION_REFERENCE) {
        *table = &kern_reference;
        return 0;
    }
    *table = kern_select(p->cpu_tier);
    if (*table)
        return 0;
    char names[128] = "";
    for (const char *const *t = kern_tiers(); *t; t++)
        if (strlen(names) + strlen(*t) + 3 < sizeof names) {
            strcat(names, *names ? ", " : "");
            strcat(names, *t);
        }
    return error_set(err, SKUA_EARG, "CPU tier '%s' is unknown or not available on this CPU; available: %s", p->cpu_tier, names);
}

static int select_kv_type(const skua_engine_params *p, const struct model_config *c, uint32_t *type, skua_error *err)
{
    int id = p->kv_type ? qtype_from_name(p->kv_type) : QTYPE_F16;
    if (id != QTYPE_F32 && id != QTYPE_F16 && id != QTYPE_BF16 && id != QTYPE_Q8_0)
        return error_set(err, SKUA_EARG, "KV cache type '%s' is not supported; supported: F16, F32, BF16, Q8_0", p->kv_type);
    if (id == QTYPE_Q8_0 && c->head_dim % 32)
        return error_set(err, SKUA_EARG, "KV cache type Q8_0 needs heads of a multiple of 32 values, this model has %d", c->head_dim);
    *type = p->precision == SKUA_PRECISION_REFERENCE ? QTYPE_F32 : (uint32_t)id;
    return 0;
}

static int allocate_batch(skua_engine *e, skua_error *err)
{
    size_t n = (size_t)e->max_rows;
    e->token = mem_alloc(n * sizeof *e->token);
    e->pos = mem_alloc(n * sizeof *e->pos);
    e->seq = mem_alloc(n * sizeof *e->seq);
    e->seqs = mem_alloc(n * sizeof *e->seqs);
    if (!e->token || !e->pos || !e->seq || !e->seqs)
        return error_nomem(err, "batch", n * sizeof *e->seqs);
    return 0;
}

static int read_name(skua_engine *e, skua_error *err)
{
    struct gguf_value v;
    bool found = gguf_find_key(e->gguf, "general.name", &v) && v.type == GGUF_STRING;
    e->name = mem_strndup(found ? v.s.data : "", found ? v.s.len : 0);
    return e->name ? 0 : error_nomem(err, "model name", 0);
}

static int warn_of_vocabulary(skua_engine *e, skua_error *err)
{
    uint32_t n = tokenizer_unusable_merges(e->tokenizer);
    if (n)
        strbuf_printf(&e->weights.warnings, "%u merges of the tokenizer name text that is no token, and are ignored\n", n);
    return strbuf_failed(&e->weights.warnings) ? error_nomem(err, "warnings", 0) : 0;
}

static int mark_samplable(skua_engine *e, skua_error *err)
{
    const size_t words = ((size_t)e->config.n_vocab + 63) / 64;
    e->samplable = mem_calloc(words, sizeof *e->samplable);
    if (!e->samplable)
        return error_nomem(err, "bitmap of tokens", words * sizeof *e->samplable);
    for (int32_t i = 0; i < e->config.n_vocab; i++)
        if (tokenizer_is_samplable(e->tokenizer, (uint32_t)i))
            e->samplable[i / 64] |= (uint64_t)1 << (i % 64);
    return 0;
}

/* Bytes of the matrices that the device would tile. */
static uint64_t tiled_bytes(const skua_engine *e)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < gguf_tensor_count(e->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(e->gguf, i);
        if (t->ne[1] <= INT32_MAX && e->dev->ops->tiles_fit(e->dev, t->type, (int32_t)t->ne[1]))
            sum += t->size_bytes;
    }
    return sum;
}

struct repacking {
    const skua_engine_params *p;
    uint64_t done, total;
};

static void on_tiled(void *user, size_t bytes)
{
    struct repacking *r = user;
    r->done += bytes;
    r->p->on_progress(r->p->progress_user, r->done < r->total ? r->done : r->total, r->total);
}

static int bind_weights(skua_engine *e, const skua_engine_params *p, skua_error *err)
{
    struct dev *d = e->dev;
    struct repacking r = {.p = p, .total = tiled_bytes(e)};
    d->tiling = p->repack == SKUA_REPACK_ON || (p->repack == SKUA_REPACK_AUTO && r.total <= cpu_memory_available() / 2);
    d->on_tiled = p->on_progress ? on_tiled : NULL;
    d->on_tiled_user = &r;
    int rc = weights_bind(e->gguf, &e->config, d, &e->weights, err);
    d->on_tiled = NULL;
    return rc;
}

/* What the file is, in order of cost: shape, names, tokenizer, weights. */
static int bind_file(skua_engine *e, const skua_engine_params *p, skua_error *err)
{
    int rc = config_load(e->gguf, &e->config, err);
    if (!rc)
        rc = select_kv_type(p, &e->config, &e->kv_type, err);
    if (!rc)
        rc = read_name(e, err);
    if (!rc)
        rc = vocab_load(e->gguf, &e->tokenizer, err);
    if (!rc)
        rc = mark_samplable(e, err);
    if (!rc)
        rc = bind_weights(e, p, err);
    return rc ? rc : warn_of_vocabulary(e, err);
}

static int open_all(skua_engine *e, const char *path, const skua_engine_params *p, skua_error *err)
{
    const struct kern_table *table;
    int rc = select_kernels(p, &table, err);
    if (!rc) {
        const int decode = p->n_threads ? p->n_threads : cpu_physical_cores();
        rc = dev_cpu_create(table, decode, p->n_threads_prefill ? p->n_threads_prefill : decode, &e->dev, err);
    }
    if (rc)
        return rc;
    e->path = mem_strdup(path);
    if (!e->path)
        return error_nomem(err, "path", strlen(path));
    rc = gguf_open(&e->gguf, path, err);
    if (rc)
        return rc;
    rc = bind_file(e, p, err);
    if (rc) {
        if (err && error_without_path(err->message, path) == err->message) /* many messages name the file themselves */
            error_prefix(err, "%s", path);
        return rc;
    }
    weights_layout_kv(&e->weights, &e->config, e->kv_type);
    e->max_rows = p->max_rows ? p->max_rows : DEFAULT_MAX_ROWS;
    rc = forward_create(&e->config, &e->weights, e->dev, e->kv_type, e->max_rows, e->samplable, &e->forward, err);
    return rc ? rc : allocate_batch(e, err);
}

int skua_engine_open(const char *path, const skua_engine_params *params, skua_engine **out, skua_error *err)
{
    static const skua_engine_params defaults;
    const skua_engine_params *p = params ? params : &defaults;
    *out = NULL;
    if (p->n_threads < 0 || p->n_threads > 256)
        return error_set(err, SKUA_EARG, "%d threads; expected 1 to 256, or 0 for all physical cores", p->n_threads);
    if (p->n_threads_prefill < 0 || p->n_threads_prefill > 256)
        return error_set(err, SKUA_EARG, "%d threads for prompts; expected 1 to 256, or 0 for as many as n_threads", p->n_threads_prefill);
    if (p->max_rows < 0 || p->max_rows > 8192)
        return error_set(err, SKUA_EARG, "%d rows per forward pass; expected 1 to 8192, or 0 for the default", p->max_rows);
    skua_engine *e = mem_calloc(1, sizeof *e);
    if (!e)
        return error_nomem(err, "engine", sizeof *e);
    int rc = open_all(e, path, p, err);
    if (rc) {
        skua_engine_close(e);
        return rc;
    }
    *out = e;
    return 0;
}

void skua_engine_close(skua_engine *e)
{
    if (!e)
        return;
    engine_draft_free(e);
    forward_free(e->forward);
    if (e->dev) {
        weights_free(&e->weights, e->dev);
        e->dev->ops->destroy(e->dev);
    }
    jinja_free(e->chat_template);
    tokenizer_free(e->tokenizer);
    gguf_close(e->gguf);
    mem_free(e->samplable);
    mem_free(e->token);
    mem_free(e->pos);
    mem_free(e->seq);
    mem_free(e->seqs);
    mem_free(e->name);
    mem_free(e->path);
    mem_free(e);
}

skua_engine_info skua_engine_get_info(const skua_engine *e)
{
    size_t file_bytes = 0, size;
    for (uint32_t i = 0; i < gguf_shard_count(e->gguf); i++) {
        gguf_shard_data(e->gguf, i, &size);
        file_bytes += size;
    }
    skua_engine_info info = {
        .path = e->path, .arch = e->config.arch, .name = e->name, .n_layer = e->config.n_layer, .n_vocab = e->config.n_vocab,
        .n_embd = e->config.n_embd, .n_ctx_train = e->config.n_ctx_train, .has_mtp = e->weights.mtp.present, .kernels = e->dev->kernels,
        .kv_type = qtype_info(e->kv_type)->name, .n_threads = e->dev->n_threads, .n_threads_prefill = e->dev->n_threads_prefill,
        .repacked_bytes = bound_file_tiled_bytes(&e->weights.file), .file_bytes = file_bytes,
        .workspace_bytes = forward_bytes(e->forward), .state_bytes = config_state_bytes(&e->config),
        .kv_page_bytes = config_kv_page_bytes(&e->config, e->kv_type), .kv_page_rows = KV_PAGE_ROWS,
        .warnings = strbuf_str(&e->weights.warnings),
    };
    struct gguf_value v;
    if (gguf_find_key(e->gguf, "tokenizer.chat_template", &v) && v.type == GGUF_STRING) {
        info.chat_template = v.s.data;
        info.chat_template_len = v.s.len;
    }
    return info;
}
