/* A Hugging Face checkpoint -> a GGUF file; see hf_convert.h. */
#include "convert/hf_convert.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "convert/hf_exp.h"
#include "convert/hf_tokenizer.h"
#include "quant/half.h"
#include "quant/quant.h"

#define SLICE_BYTES (1u << 18)
#define RELEASE_BYTES ((size_t)32 << 20)

struct job {
    const struct hf_convert_options *o;
    struct hf_config config;
    struct hf_source source;
    struct hf_plan plan;
    struct hf_tokenizer *tokenizer;
    struct gguf_writer *writer;
    const struct quant_tier *tier;
    skua_error *err;
};

static void note(void *context, const char *message)
{
    const struct job *j = context;
    if (j->o->note)
        j->o->note(j->o->context, message);
}

/* ---- what is left over ---- */

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && !strcmp(s + n - m, tail);
}

/* Tensors that nothing needs: tables that follow from the config, maps between equal vocabularies, scales of a KV cache. */
static bool is_harmless(const char *name)
{
    return ends_with(name, "rotary_emb.inv_freq") || !strcmp(name, "d2t") || !strcmp(name, "t2d") || ends_with(name, ".k_scale")
           || ends_with(name, ".v_scale");
}

/* A tensor that changes what the model computes: a bias, or a layer that the config does not have. */
static int check_unused(const struct job *j, const struct st_tensor *t, const char *name)
{
    const char *path = safetensors_path(j->source.st, t->file);
    char *end;
    long layer = !strncmp(name, "layers.", 7) ? strtol(name + 7, &end, 10) : -1;
    if (layer >= j->config.n_layer)
        return error_set(j->err, SKUA_EFORMAT, "%s: tensor '%.200s' is of layer %ld, but config.json has num_hidden_layers %d", path,
                         t->name, layer, j->config.n_layer);
    if (ends_with(name, ".bias") && layer >= 0)
        return error_set(j->err, SKUA_EUNSUPPORTED, "%s: tensor '%.200s': this architecture has no such bias", path, t->name);
    return 0;
}

static int check_leftovers(struct job *j)
{
    const struct hf_source *s = &j->source;
    uint32_t unknown = 0;
    const char *example = NULL;
    skua_error text;
    for (uint32_t i = 0; i < safetensors_count(s->st); i++) {
        const char *name = s->names[i];
        if (!name || s->used[i] || is_harmless(name) || j->o->mtp == HF_MTP_ONLY)
            continue;
        int rc = check_unused(j, safetensors_at(s->st, i), name);
        if (rc)
            return rc;
        if (!strncmp(name, "mtp.", 4) && j->o->mtp == HF_MTP_NONE)
            continue;
        unknown++;
        example = safetensors_at(s->st, i)->name;
    }
    if (s->n_left_out) {
        error_set(&text, 0, "the vision tower is left out (%u tensors, %.1f MiB)", s->n_left_out, (double)s->bytes_left_out / 1048576);
        note(j, text.message);
    }
    if (unknown) {
        error_set(&text, 0, "unknown tensors of the checkpoint are left out: %u, '%.200s' for one", unknown, example);
        note(j, text.message);
    }
    if (j->config.n_mtp > 0 && !j->plan.n_mtp && j->o->mtp == HF_MTP_KEEP)
        note(j, "config.json announces an MTP block, but the checkpoint has none");
    if (j->plan.n_fallback) {
        error_set(&text, 0, "tensors whose rows do not fit %s become F16: %u", qtype_info(j->o->type)->name, j->plan.n_fallback);
        note(j, text.message);
    }
    return 0;
}

/* ---- keys ---- */

/* The folder's name with its first letter large. */
static int put_name(struct job *j)
{
    char full[PATH_MAX];
    const char *name = j->o->name;
    if (!name) {
        const char *slash = realpath(j->o->checkpoint, full) ? strrchr(full, '/') : NULL;
        name = slash && slash[1] ? slash + 1 : j->o->checkpoint;
    }
    char *text = mem_strdup(name);
    if (!text)
        return error_nomem(j->err, "name", strlen(name));
    if (!j->o->name && text[0] >= 'a' && text[0] <= 'z')
        text[0] = (char)(text[0] - 'a' + 'A');
    int rc = gguf_writer_add_string(j->writer, "general.name", text, strlen(text), j->err);
    mem_free(text);
    return rc;
}

/* The number by which programs describe a whole file. */
static uint32_t file_type(uint32_t type)
{
    switch (type) {
    case QTYPE_F32: return 0;
    case QTYPE_F16: return 1;
    case QTYPE_Q8_0: return 7;
    default: return 32; /* BF16 */
    }
}

static int put_keys(struct job *j)
{
    struct gguf_writer *w = j->writer;
    int rc = gguf_writer_add_string(w, "general.architecture", j->config.arch, strlen(j->config.arch), j->err);
    if (!rc) rc = gguf_writer_add_string(w, "general.type", "model", 5, j->err);
    if (!rc) rc = put_name(j);
    if (!rc) rc = gguf_writer_add_u32(w, "general.file_type", file_type(j->o->type), j->err);
    if (!rc) rc = gguf_writer_add_u32(w, "general.quantization_version", 2, j->err);
    if (!rc && j->config.kind == HF_TARGET) rc = hf_sampling_write(j->o->checkpoint, note, j, w, j->err);
    if (!rc) rc = hf_config_write(&j->config, j->plan.n_mtp, w, j->err);
    if (!rc) rc = hf_tokenizer_write(j->tokenizer, w, j->err);
    return rc;
}

static int put_tensors(struct job *j)
{
    j->o->stream->done = j->o->stream->total = 0;
    for (uint32_t i = 0; i < j->plan.n_outputs; i++) {
        const struct hf_output *o = &j->plan.outputs[i];
        uint64_t rows = o->n_dims > 1 ? o->ne[1] : 1, matrices = o->n_dims > 2 ? o->ne[2] : 1;
        int rc = gguf_writer_add_tensor(j->writer, o->name, o->type, o->n_dims, o->ne, j->err);
        if (rc)
            return rc;
        j->o->stream->total += qtype_row_bytes(o->type, o->ne[0]) * rows * matrices;
    }
    return 0;
}

/* ---- tensor data ---- */

struct rows {
    float *in, *moved;    /* [cols of the source] */
    uint8_t *packed;      /* a row as it is packed, before blocks move */
    uint8_t *slice;       /* rows of the output, to be written */
    size_t row_bytes, slice_rows;
};

static void free_rows(struct rows *r)
{
    mem_free(r->in);
    mem_free(r->moved);
    mem_free(r->packed);
    mem_free(r->slice);
}

static int make_rows(struct rows *r, const struct hf_output *o, skua_error *err)
{
    *r = (struct rows){.row_bytes = qtype_row_bytes(o->type, o->ne[0])};
    if (!r->row_bytes)
        return error_set(err, SKUA_EFORMAT, "tensor '%s': rows of %llu elements are too long", o->name, (unsigned long long)o->ne[0]);
    r->slice_rows = r->row_bytes < SLICE_BYTES ? SLICE_BYTES / r->row_bytes : 1;
    r->in = mem_alloc((size_t)o->ne[0] * sizeof *r->in);
    r->moved = mem_alloc((size_t)o->ne[0] * sizeof *r->moved);
    r->packed = mem_alloc(r->row_bytes);
    r->slice = mem_alloc(r->slice_rows * r->row_bytes);
    if (r->in && r->moved && r->packed && r->slice)
        return 0;
    free_rows(r);
    return error_nomem(err, o->name, r->slice_rows * r->row_bytes);
}

/* Put units of `unit` bytes, one for each value head, in the file's order. */
static void move_heads(const struct hf_config *c, const void *from, void *to, size_t unit)
{
    for (uint64_t v = 0; v < (uint64_t)c->n_v_head; v++)
        memcpy((uint8_t *)to + v * unit, (const uint8_t *)from + hf_source_head(c, v) * unit, unit);
}

static int convert_row(const struct job *j, const struct hf_output *o, struct rows *r, uint64_t matrix, uint64_t row, uint8_t *out)
{
    const struct hf_weight *w = &j->plan.weights[o->weight + (o->n_weights > 1 ? matrix : 0)];
    uint64_t m = o->n_weights > 1 ? 0 : matrix, source_row = hf_source_row(&j->config, o, row);
    size_t n_v = (size_t)j->config.n_v_head;
    const float *x = r->in;
    if (o->packed) {
        hf_weight_pack(w, m, source_row, o->col_unit ? r->packed : out);
        if (o->col_unit)
            move_heads(&j->config, r->packed, out, r->row_bytes / n_v);
        return quant_row_check(o->type, out, (int64_t)o->ne[0], j->err);
    }
    hf_weight_row(w, m, source_row, r->in);
    if (o->col_unit) {
        move_heads(&j->config, r->in, r->moved, (size_t)o->col_unit * sizeof *r->in);
        x = r->moved;
    }
    for (uint64_t i = 0; i < o->ne[0] && o->value != HF_AS_IS; i++)
        r->moved[i] = o->value == HF_PLUS_ONE ? x[i] + 1.0f : -hf_exp(x[i]);
    return quantize_row_by(j->tier, o->type, o->value == HF_AS_IS ? x : r->moved, out, (int64_t)o->ne[0], NULL, j->err);
}

/* A failed row, with its place in front. */
static int row_failed(const struct job *j, const struct hf_output *o, int rc, uint64_t matrix, uint64_t row)
{
    const struct st_tensor *t = j->plan.weights[o->weight + (o->n_weights > 1 ? matrix : 0)].data;
    unsigned long long source_row = hf_source_row(&j->config, o, row);
    const char *path = safetensors_path(j->source.st, t->file);
    if (o->ne[2] > 1)
        error_prefix(j->err, "%s: tensor '%.150s', matrix %llu, row %llu", path, t->name, (unsigned long long)matrix, source_row);
    else
        error_prefix(j->err, "%s: tensor '%.150s', row %llu", path, t->name, source_row);
    return rc;
}

static int write_slice(struct job *j, const struct hf_output *o, const void *data, size_t n)
{
    int rc = gguf_writer_data(j->writer, o->name, data, n, j->err);
    stream_advance(j->o->stream, n);
    return rc || !stream_stopped(j->o->stream) ? rc : stream_canceled(j->o->output, j->err);
}

/* What has been read need not stay in memory. Rows are read in any order, so all of the source is let go; what is still needed comes back
   from the system's cache. */
static void release_source(const struct job *j, const struct hf_output *o)
{
    for (uint32_t i = 0; i < o->n_weights; i++) {
        const struct st_tensor *t = j->plan.weights[o->weight + i].data;
        stream_release(t->data, (size_t)t->size_bytes);
    }
}

static int write_weights(struct job *j, const struct hf_output *o)
{
    struct rows r;
    uint64_t n_rows = o->n_dims > 1 ? o->ne[1] : 1, matrices = o->n_dims > 2 ? o->ne[2] : 1, all = n_rows * matrices;
    size_t filled = 0, kept = 0;
    int rc = make_rows(&r, o, j->err);
    if (rc)
        return rc;
    for (uint64_t i = 0; i < all && !rc; i++) {
        rc = convert_row(j, o, &r, i / n_rows, i % n_rows, r.slice + filled * r.row_bytes);
        if (rc) {
            rc = row_failed(j, o, rc, i / n_rows, i % n_rows);
        } else if (++filled == r.slice_rows || i + 1 == all) {
            rc = write_slice(j, o, r.slice, filled * r.row_bytes);
            kept += filled * r.row_bytes;
            filled = 0;
        }
        if (kept >= RELEASE_BYTES || i + 1 == all) {
            release_source(j, o);
            kept = 0;
        }
    }
    free_rows(&r);
    return rc;
}

static int write_factors(struct job *j, const struct hf_output *o)
{
    int rc = 0;
    for (uint64_t m = 0; m < o->ne[0] && !rc; m++) {
        const struct hf_weight *w = &j->plan.weights[o->weight + (o->n_weights > 1 ? m : 0)];
        const struct st_tensor *t = o->part == HF_FACTOR ? w->factor : w->input_scale;
        float v = t ? hf_scalar(t, t->elements == 1 ? 0 : m) : 1.0f;
        rc = isfinite(v) ? write_slice(j, o, &v, sizeof v)
                         : error_set(j->err, SKUA_EFORMAT, "%s: tensor '%.200s' is not finite", safetensors_path(j->source.st, t->file),
                                     t->name);
    }
    return rc;
}

/* ---- the whole ---- */

static int check_folder(const char *path, skua_error *err)
{
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
        return error_set(err, SKUA_EARG, "%s: is not a folder; expected that of a checkpoint", path);
    if (access(path, F_OK) != 0)
        return error_set(err, SKUA_EIO, "%s: there is no such folder", *path ? path : "''");
    return 0;
}

/* The file to write must not be one that is being read. */
static int check_output(const struct job *j)
{
    static const char *const names[] = {"config.json", "hf_quant_config.json", "generation_config.json", "tokenizer.json",
                                        "tokenizer_config.json", "chat_template.jinja", "chat_template.json",
                                        "model.safetensors.index.json"};
    const char *const dirs[] = {j->o->checkpoint, j->o->tokenizer};
    bool same = false;
    char path[PATH_MAX];
    for (uint32_t i = 0; i < safetensors_files(j->source.st); i++)
        same |= file_is_same(j->o->output, safetensors_path(j->source.st, i));
    for (size_t d = 0; d < 2 && dirs[d]; d++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (snprintf(path, sizeof path, "%s/%s", dirs[d], names[i]) < (int)sizeof path)
                same |= file_is_same(j->o->output, path);
    if (same)
        return error_set(j->err, SKUA_EARG, "%s: is a file of the checkpoint; expected another name for the output", j->o->output);
    return 0;
}

/* The target's config.json, which lies beside the tokenizer that a drafter is given. */
static int check_target(const struct job *j)
{
    struct hf_config t;
    const struct hf_config *c = &j->config;
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/config.json", j->o->tokenizer);
    if (n >= (int)sizeof path || access(path, F_OK) != 0)
        return 0;
    int rc = hf_config_load(&t, j->o->tokenizer, j->err);
    if (rc)
        return rc;
    uint64_t width = j->plan.weights[0].cols; /* of the fusion, which comes first */
    if (t.kind != HF_TARGET)
        return error_set(j->err, SKUA_EARG, "%s: is a drafter; expected the target whose tokenizer the drafter shares", path);
    if (t.n_vocab != c->n_vocab)
        return error_set(j->err, SKUA_EARG, "%s: 'vocab_size' is %d, but the drafter's is %d: not its target", path, t.n_vocab, c->n_vocab);
    if (c->taps[c->n_taps - 1] >= t.n_layer || width != (uint64_t)c->n_taps * (uint64_t)t.n_embd)
        return error_set(j->err, SKUA_EARG, "%s: %d layers of width %d, but the drafter reads layer %d and %llu numbers of %d layers: "
                         "not its target", path, t.n_layer, t.n_embd, c->taps[c->n_taps - 1], (unsigned long long)width, c->n_taps);
    return 0;
}

static int prepare(struct job *j)
{
    const struct hf_convert_options *o = j->o;
    int rc = check_folder(o->checkpoint, j->err);
    if (!rc) rc = hf_config_load(&j->config, o->checkpoint, j->err);
    if (!rc && j->config.kind != HF_TARGET && !o->tokenizer)
        rc = error_set(j->err, SKUA_EARG, "%s: is a drafter and has no tokenizer of its own; --tokenizer must name its target's folder",
                       o->checkpoint);
    if (!rc && j->config.kind != HF_TARGET && o->mtp != HF_MTP_KEEP)
        rc = error_set(j->err, SKUA_EARG, "%s: is a drafter; --mtp-only and --no-mtp are for language models", o->checkpoint);
    if (!rc && o->tokenizer) rc = check_folder(o->tokenizer, j->err);
    if (!rc) rc = hf_source_open(&j->source, o->checkpoint, &j->config, note, j, j->err);
    if (!rc) rc = check_output(j);
    if (!rc) rc = hf_plan_make(&j->plan, &j->source, o->type, o->mtp, o->unpack, j->err);
    if (!rc) rc = check_leftovers(j);
    if (!rc && j->config.kind != HF_TARGET) rc = check_target(j);
    if (!rc) rc = hf_tokenizer_load(&j->tokenizer, o->tokenizer ? o->tokenizer : o->checkpoint, &j->config, note, j, j->err);
    return rc;
}

static int write_file(struct job *j)
{
    int rc = gguf_writer_new(&j->writer, GGUF_DEFAULT_ALIGNMENT, j->err);
    if (!rc) rc = put_keys(j);
    if (!rc) rc = put_tensors(j);
    if (!rc) rc = gguf_writer_begin(j->writer, j->o->output, j->err);
    for (uint32_t i = 0; i < j->plan.n_outputs && !rc; i++) {
        const struct hf_output *o = &j->plan.outputs[i];
        rc = o->part == HF_DATA ? write_weights(j, o) : write_factors(j, o);
    }
    if (!rc) rc = gguf_writer_finish(j->writer, j->err);
    return rc;
}

int hf_convert(const struct hf_convert_options *o, struct hf_convert_result *result, skua_error *err)
{
    struct job *j = mem_calloc(1, sizeof *j);
    *result = (struct hf_convert_result){0};
    if (!j)
        return error_nomem(err, "conversion", sizeof *j);
    j->o = o;
    j->err = err;
    j->tier = quant_select(NULL);
    int rc = prepare(j);
    if (!rc) rc = write_file(j);
    if (!rc) {
        *result = (struct hf_convert_result){.arch = j->config.arch, .n_tensors = j->plan.n_outputs, .n_mtp = j->plan.n_mtp,
                                             .bytes = gguf_writer_file_bytes(j->writer)};
        for (uint32_t i = 0; i < j->plan.n_outputs; i++)
            result->n_packed += j->plan.outputs[i].packed;
    }
    gguf_writer_free(j->writer);
    hf_tokenizer_free(j->tokenizer);
    hf_plan_free(&j->plan);
    hf_source_close(&j->source);
    mem_free(j);
    return rc;
}
