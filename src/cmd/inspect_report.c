/* Gathering the report; see inspect_report.h. */
#include "cmd/inspect_report.h"

#include <string.h>

#include "base/mem.h"
#include "spec/dflash_file.h"

struct gguf_string inspect_string(const struct gguf *g, const char *key)
{
    struct gguf_value v;
    return gguf_find_key(g, key, &v) && v.type == GGUF_STRING ? v.s : (struct gguf_string){"", 0};
}

static bool equal(struct gguf_string s, const char *text) { return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0; }

static enum inspect_kind kind_of(const struct gguf *g)
{
    struct gguf_string arch = inspect_string(g, "general.architecture"), type = inspect_string(g, "general.type");
    enum dflash_variant variant;
    if (equal(type, "imatrix"))
        return INSPECT_KIND_IMATRIX;
    if (equal(type, "adapter"))
        return INSPECT_KIND_ADAPTER;
    if (equal(arch, "clip"))
        return INSPECT_KIND_PROJECTOR;
    if (dflash_file_is(g, &variant))
        return variant == DFLASH_2 ? INSPECT_KIND_DFLASH2 : variant == DFLASH_SPARK ? INSPECT_KIND_DSPARK : INSPECT_KIND_DFLASH;
    if (!inspect_has_tensor(g, "blk.0.", "") && (inspect_has_tensor(g, "mtp.0.", "") || inspect_has_tensor(g, "blk.", ".nextn.")))
        return INSPECT_KIND_MTP_ONLY;
    if (equal(arch, "qwen35"))
        return INSPECT_KIND_DENSE;
    return equal(arch, "qwen35moe") ? INSPECT_KIND_MOE : INSPECT_KIND_UNKNOWN;
}

const char *inspect_kind_name(enum inspect_kind kind)
{
    switch (kind) {
    case INSPECT_KIND_DENSE: return "language model, dense";
    case INSPECT_KIND_MOE: return "language model, mixture of experts";
    case INSPECT_KIND_MTP_ONLY: return "MTP draft head without a model";
    case INSPECT_KIND_DFLASH: return "DFlash drafter";
    case INSPECT_KIND_DFLASH2: return "DFlash2 drafter";
    case INSPECT_KIND_DSPARK: return "DSpark drafter";
    case INSPECT_KIND_IMATRIX: return "importance matrix";
    case INSPECT_KIND_ADAPTER: return "adapter";
    case INSPECT_KIND_PROJECTOR: return "vision or audio projector";
    default: return "unknown";
    }
}

struct inspect_template inspect_chat_template(const struct gguf *g)
{
    struct gguf_string s = inspect_string(g, "tokenizer.chat_template");
    struct gguf_value v;
    return (struct inspect_template){
        .present = gguf_find_key(g, "tokenizer.chat_template", &v), .bytes = s.len,
        .enable_thinking = memmem(s.data, s.len, "enable_thinking", 15), .reasoning_effort = memmem(s.data, s.len, "reasoning_effort", 16),
        .preserve_thinking = memmem(s.data, s.len, "preserve_thinking", 17)};
}

static uint64_t total_file_bytes(const struct gguf *g)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < gguf_shard_count(g); i++) {
        size_t size;
        gguf_shard_data(g, i, &size);
        bytes += size;
    }
    return bytes;
}

/* Sums that do not fit are 2^64 - 1: such memory does not exist either. */
static uint64_t saturating_add(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

static void fill_memory(struct inspect_report *r)
{
    skua_engine_info info = skua_engine_get_info(r->engine);
    struct inspect_memory *m = &r->memory;
    m->n_ctx = r->opt->n_ctx ? r->opt->n_ctx : info.n_ctx_train;
    m->n_pages = (m->n_ctx + info.kv_page_rows - 1) / info.kv_page_rows;
    m->file = r->file_bytes;
    m->workspace = info.workspace_bytes;
    m->vectors = r->engine->dev->allocated_bytes - info.workspace_bytes;
    m->state = info.state_bytes;
    m->kv_page = info.kv_page_bytes;
    m->held_row = config_tape_row_bytes(&r->engine->config);
    if (__builtin_mul_overflow((uint64_t)m->n_pages, m->kv_page, &m->kv))
        m->kv = UINT64_MAX;
    m->session = saturating_add(m->state, m->kv);
    m->total = saturating_add(m->session, m->file + m->workspace + m->vectors);
}

static int describe_engine(struct inspect_report *r, skua_error *err)
{
    r->g = r->engine->gguf;
    r->config = &r->engine->config;
    r->n_block = r->config->n_block;
    r->n_layer = r->config->n_layer;
    r->tokenizer = r->engine->tokenizer;
    r->kind = r->config->moe ? INSPECT_KIND_MOE : INSPECT_KIND_DENSE;
    r->mtp = r->engine->weights.mtp.present ? INSPECT_MTP_PRESENT : r->config->n_mtp ? INSPECT_MTP_MISSING : INSPECT_MTP_NONE;
    r->file_bytes = total_file_bytes(r->g);
    strbuf_puts(&r->warnings, strbuf_str(&r->engine->weights.warnings));
    if (strbuf_failed(&r->warnings))
        return error_nomem(err, "warnings", 0);
    fill_memory(r);
    return inspect_sum_tensors(r, r->engine->dev, err);
}

static int describe_refused(struct inspect_report *r, const skua_error *engine_error, skua_error *err)
{
    int rc = gguf_open(&r->own, r->opt->path, err);
    if (rc)
        return rc;
    r->g = r->own;
    r->kind = kind_of(r->g);
    r->file_bytes = total_file_bytes(r->g);
    rc = inspect_find_problems(r, engine_error, err);
    if (!rc && r->mtp == INSPECT_MTP_NONE && r->n_block > r->n_layer)
        r->mtp = r->tensors.part[INSPECT_MTP].n_tensors ? INSPECT_MTP_PRESENT : INSPECT_MTP_MISSING;
    return rc;
}

int inspect_gather(struct inspect_report *r, const struct inspect_options *opt, skua_error *err)
{
    *r = (struct inspect_report){.opt = opt};
    skua_engine_params params = {.n_threads = 1, .kv_type = opt->kv_type, .repack = SKUA_REPACK_OFF};
    skua_error engine_error = {0};
    if (skua_engine_open(opt->path, &params, &r->engine, &engine_error))
        return describe_refused(r, &engine_error, err);
    return describe_engine(r, err);
}

void inspect_free(struct inspect_report *r)
{
    mem_free(r->tensors.runs);
    mem_free(r->tensors.roles);
    mem_free(r->problems);
    strbuf_free(&r->warnings);
    tokenizer_free(r->own_tokenizer);
    gguf_close(r->own);
    skua_engine_close(r->engine);
    *r = (struct inspect_report){0};
}
