/* Requantizing files; see requantize.h. */
#include "convert/requantize.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "convert/requantize_rows.h"

#define NVFP4_LARGEST (6.0f * 448.0f) /* the largest value without a factor */
/* What a factor maps the largest value to: the group scale 240 is the last one that is exact to a sixteenth; the format's quantizer turns
   all above 248 into 448. */
#define NVFP4_TARGET (6.0f * 240.0f)

/* Besides the reported item: where its data comes from. */
struct origin {
    const struct gguf_tensor *tensor; /* of a factor that is added: the tensor it belongs to */
    const struct gguf_tensor *factor; /* NAME.scale to multiply in, or NULL */
    const float *weights;             /* from the importance matrix, or NULL */
    bool dropped;                     /* by input tensor: not in the output */
};

struct requantize {
    struct requantize_options options;
    struct gguf *g;
    struct gguf_writer *writer;
    struct requantize_report report;
    struct requantize_item *items;
    struct origin *origins;        /* [n_items] */
    struct recipe_tensor *tensors; /* [input tensors], as recipe_choose takes them; their names lie in `names` */
    struct recipe_choice *choices; /* [input tensors] */
    struct stream_name *names;     /* [input tensors] */
    bool *dropped;                 /* [input tensors] */
    float *divisors;               /* of the NVFP4 tensor written last, for its factors */
    struct pool *pool;
};

const struct requantize_report *requantize_report(const struct requantize *r) { return &r->report; }

void requantize_free(struct requantize *r)
{
    if (!r)
        return;
    pool_destroy(r->pool);
    gguf_writer_free(r->writer);
    gguf_close(r->g);
    mem_free(r->items);
    mem_free(r->origins);
    mem_free(r->tensors);
    mem_free(r->choices);
    mem_free(r->names);
    mem_free(r->dropped);
    mem_free(r->divisors);
    mem_free(r);
}

/* An error with the name of the input in front. */
static int in_input(const struct requantize *r, int rc, skua_error *err)
{
    error_prefix(err, "%s", gguf_shard_path(r->g, 0));
    return rc;
}

static bool is_float(uint32_t type) { return type == QTYPE_F32 || type == QTYPE_F16 || type == QTYPE_BF16; }

/* ---- what becomes of the tensors ---- */

static int gather_tensors(struct requantize *r, skua_error *err)
{
    uint32_t n = gguf_tensor_count(r->g);
    r->names = mem_calloc(n, sizeof *r->names);
    r->tensors = mem_calloc(n, sizeof *r->tensors);
    r->choices = mem_calloc(n, sizeof *r->choices);
    r->dropped = mem_calloc(n, sizeof *r->dropped);
    /* at most one factor is added for each tensor */
    r->items = mem_calloc((size_t)n * 2, sizeof *r->items);
    r->origins = mem_calloc((size_t)n * 2, sizeof *r->origins);
    if (!r->names || !r->tensors || !r->choices || !r->dropped || !r->items || !r->origins)
        return error_nomem(err, "tensor table", n * 2 * sizeof *r->items);
    r->report.items = r->items;
    for (uint32_t i = 0; i < n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(r->g, i);
        r->names[i] = stream_name(t);
        r->tensors[i] = (struct recipe_tensor){.name = r->names[i].text, .type = t->type};
        memcpy(r->tensors[i].ne, t->ne, sizeof t->ne);
    }
    return 0;
}

/* Blocks of the model; a file without layers in that sense can only be copied. */
static int read_blocks(const struct gguf *g, struct recipe_model *m, skua_error *err)
{
    struct gguf_string arch;
    char key[128];
    int rc = gguf_require_string(g, "general.architecture", &arch, err);
    if (rc)
        return rc;
    int len = arch.len < 64 ? (int)arch.len : 64;
    snprintf(key, sizeof key, "%.*s.block_count", len, arch.data);
    rc = gguf_require_u32(g, key, &m->n_blocks, err);
    snprintf(key, sizeof key, "%.*s.nextn_predict_layers", len, arch.data);
    if (!rc && (rc = gguf_get_u32(g, key, &m->n_mtp_blocks, err)) > 0)
        rc = 0;
    if (!rc && m->n_mtp_blocks > m->n_blocks)
        rc = error_set(err, SKUA_EFORMAT, "%s: key '%s' is %u, but there are %u blocks", gguf_shard_path(g, 0), key, m->n_mtp_blocks,
                       m->n_blocks);
    return rc;
}

static int choose_types(struct requantize *r, skua_error *err)
{
    const struct requantize_options *o = &r->options;
    struct recipe_model m = {.tensors = r->tensors, .n_tensors = gguf_tensor_count(r->g), .has_imatrix = o->imatrix != NULL};
    int rc = recipe_copies(o->recipe) ? 0 : read_blocks(r->g, &m, err);
    if (rc)
        return rc;
    rc = recipe_choose(o->recipe, o->overrides, o->pure, &m, r->choices, err);
    return rc ? in_input(r, rc, err) : 0;
}

/* The tensor BASE.suffix that belongs to BASE.weight, or NULL. */
static const struct gguf_tensor *companion(const struct gguf *g, const char *name, const char *suffix)
{
    char other[GGUF_MAX_NAME_BYTES + 16];
    size_t n = strlen(name), tail = strlen(".weight");
    if (n <= tail || strcmp(name + n - tail, ".weight") != 0)
        return NULL;
    snprintf(other, sizeof other, "%.*s%s", (int)(n - tail), name, suffix);
    return gguf_find_tensor(g, other);
}

static void drop(struct requantize *r, const struct gguf_tensor *t)
{
    if (t)
        r->dropped[t - gguf_tensor_at(r->g, 0)] = true;
}

/* Companions of the tensors that change. */
static int drop_companions(struct requantize *r, skua_error *err)
{
    for (uint32_t i = 0; i < gguf_tensor_count(r->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(r->g, i);
        if (r->choices[i].type == t->type)
            continue;
        const struct gguf_tensor *factor = companion(r->g, r->names[i].text, ".scale");
        uint64_t n = factor ? factor->ne[0] * factor->ne[1] * factor->ne[2] * factor->ne[3] : 0;
        if (factor && (factor->type != QTYPE_F32 || (n != 1 && n != rows_matrices(t))))
            return in_input(r, error_set(err, SKUA_EFORMAT, "tensor '%s' has %llu values of type %s, expected F32, one or %llu",
                                         stream_name(factor).text, (unsigned long long)n, qtype_info(factor->type)->name,
                                         (unsigned long long)rows_matrices(t)), err);
        drop(r, factor);
        drop(r, companion(r->g, r->names[i].text, ".input_scale"));
    }
    return 0;
}

/* The importance weights of a tensor; NULL when there are none. Counts those that are missing. */
static int find_weights(struct requantize *r, const struct gguf_tensor *t, const char *name, const float **weights, skua_error *err)
{
    const struct requantize_options *o = &r->options;
    bool embedding = strcmp(name, "token_embd.weight") == 0;
    *weights = NULL;
    if (!o->imatrix)
        return 0;
    int rc = imatrix_weights(o->imatrix, name, strlen(name), (int64_t)t->ne[0], (int64_t)rows_matrices(t), weights, err);
    if (rc && embedding) { /* some programs count its ids, not its columns */
        *weights = NULL;
        return 0;
    }
    if (rc) {
        error_prefix(err, "%s", o->imatrix_path);
        return rc;
    }
    if (!*weights && !embedding && strcmp(name, "output.weight") != 0 && r->report.n_without_weights++ == 0)
        r->report.without_weights = name;
    return 0;
}

static int check_change(struct requantize *r, const struct gguf_tensor *t, const struct recipe_choice *c, const char *name,
                        const float *weights, skua_error *err)
{
    const char *from = qtype_info(t->type)->name, *to = qtype_info(c->type)->name;
    if (!dequant_supported(t->type))
        return error_set(err, SKUA_EUNSUPPORTED, "tensor '%s' is of type %s, which cannot be read", name, from);
    if (!is_float(t->type) && !is_float(c->type)) {
        r->report.n_requantized++;
        if (!r->options.allow_requantize)
            return error_set(err, SKUA_EARG,
                             "tensor '%s' is %s already, and quantizing it again, to %s, adds to its errors: start from F32, F16 or BF16, "
                             "or give --allow-requantize", name, from, to);
    }
    if (c->needs_imatrix && !weights)
        return error_set(err, SKUA_EARG,
                         "tensor '%s' is to be %s, which needs importance weights, and %s: give --imatrix FILE or another type", name,
                         to, r->options.imatrix ? "the importance matrix has none for it" : "there is no importance matrix");
    return 0;
}

static struct requantize_item *next_item(struct requantize *r, const struct gguf_tensor *t, struct origin origin)
{
    r->origins[r->report.n_items] = origin;
    struct requantize_item *item = &r->items[r->report.n_items++];
    memcpy(item->ne, t->ne, sizeof item->ne);
    item->n_dims = t->n_dims ? t->n_dims : 1;
    return item;
}

static void finish_item(struct requantize *r, struct requantize_item *item)
{
    item->elements = item->ne[0] * item->ne[1] * item->ne[2] * item->ne[3];
    item->bytes = qtype_row_bytes(item->to, item->ne[0]) * (item->elements / item->ne[0]);
    r->report.bytes_before += item->bytes_before;
    r->report.bytes += item->bytes;
    r->report.elements += item->added ? 0 : item->elements;
    r->report.n_changed += item->from != item->to;
}

/* NAME.scale of an NVFP4 tensor that is going to be made. */
static void plan_factor(struct requantize *r, const struct gguf_tensor *t, const char *name)
{
    struct requantize_item *item = next_item(r, t, (struct origin){.tensor = t});
    snprintf(item->name, sizeof item->name, "%.*s.scale", (int)(strlen(name) - strlen(".weight")), name);
    item->ne[0] = rows_matrices(t);
    item->ne[1] = item->ne[2] = item->ne[3] = 1;
    item->n_dims = 1;
    item->from = item->to = item->wanted = QTYPE_F32;
    item->reason = RECIPE_RULE;
    item->added = true;
    item->override = -1;
    finish_item(r, item);
}

/* Does a tensor that becomes NVFP4 get a factor? */
static bool has_factor(const char *name, uint32_t type)
{
    return type == QTYPE_NVFP4 && strcmp(name, "token_embd.weight") != 0 && strlen(name) > strlen(".weight")
           && strcmp(name + strlen(name) - strlen(".weight"), ".weight") == 0;
}

static int plan_items(struct requantize *r, skua_error *err)
{
    for (uint32_t i = 0; i < gguf_tensor_count(r->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(r->g, i);
        const struct recipe_choice *c = &r->choices[i];
        const char *name = r->names[i].text;
        const float *weights = NULL;
        bool changes = c->type != t->type;
        if (r->dropped[i]) {
            r->report.bytes_before += t->size_bytes;
            continue;
        }
        int rc = changes ? find_weights(r, t, name, &weights, err) : 0;
        if (rc)
            return rc;
        rc = changes ? check_change(r, t, c, name, weights, err) : 0;
        if (rc)
            return in_input(r, rc, err);
        struct origin origin = {.tensor = t, .factor = changes ? companion(r->g, name, ".scale") : NULL, .weights = weights};
        struct requantize_item *item = next_item(r, t, origin);
        memcpy(item->name, name, sizeof item->name);
        item->from = t->type;
        item->to = c->type;
        item->wanted = c->wanted;
        item->reason = c->reason;
        item->override = c->override;
        item->bytes_before = t->size_bytes;
        finish_item(r, item);
        if (changes && has_factor(name, c->type))
            plan_factor(r, t, name);
    }
    return 0;
}

/* Does the file have the block that a tensor of this name belongs to? Every block has a norm of its input. */
static bool has_block_of(const struct gguf *g, const char *name)
{
    char norm[64];
    const char *dot = strncmp(name, "blk.", 4) == 0 ? strchr(name + 4, '.') : NULL;
    return dot && snprintf(norm, sizeof norm, "%.*s.attn_norm.weight", (int)(dot - name), name) < (int)sizeof norm &&
           gguf_find_tensor(g, norm);
}

/* An importance matrix is of another model when it knows no tensor of the file, or a matrix that a block of the file does not have.
   Blocks that the file lacks are none: an MTP block may have been left out. */
static int check_imatrix(const struct requantize *r, skua_error *err)
{
    const struct imatrix *m = r->options.imatrix;
    uint32_t known = 0, n = m ? imatrix_count(m) : 0;
    for (uint32_t i = 0; i < n; i++) {
        const char *name = imatrix_at(m, i)->name;
        if (gguf_find_tensor(r->g, name))
            known++;
        else if (has_block_of(r->g, name))
            return error_set(err, SKUA_EFORMAT, "%s: entry '%s' is of a tensor that the model does not have: it was made with another "
                             "model", r->options.imatrix_path, name);
    }
    return known || !n ? 0 : error_set(err, SKUA_EFORMAT, "%s: none of its %u entries is of a tensor of the model: it was made with "
                                       "another model", r->options.imatrix_path, n);
}

/* ---- the header ---- */

struct key_filter {
    bool file_type, version, provenance; /* leave these out: they are written anew */
};

static bool key_begins(struct gguf_string key, const char *s) { return key.len >= strlen(s) && memcmp(key.data, s, strlen(s)) == 0; }

static bool skip_key(void *context, struct gguf_string key)
{
    const struct key_filter *f = context;
    return (f->file_type && key.len == strlen("general.file_type") && key_begins(key, "general.file_type"))
           || (f->version && key.len == strlen("general.quantization_version") && key_begins(key, "general.quantization_version"))
           || (f->provenance && key_begins(key, "quantize.imatrix."));
}

static int add_provenance(struct requantize *r, skua_error *err)
{
    const struct requantize_options *o = &r->options;
    const char *dataset = imatrix_dataset(o->imatrix);
    int rc = gguf_writer_add_string(r->writer, "quantize.imatrix.file", o->imatrix_path, strlen(o->imatrix_path), err);
    if (!rc && *dataset)
        rc = gguf_writer_add_string(r->writer, "quantize.imatrix.dataset", dataset, strlen(dataset), err);
    if (!rc)
        rc = gguf_writer_add_u32(r->writer, "quantize.imatrix.entries_count", imatrix_count(o->imatrix), err);
    if (!rc && imatrix_chunks(o->imatrix))
        rc = gguf_writer_add_u32(r->writer, "quantize.imatrix.chunks_count", imatrix_chunks(o->imatrix), err);
    return rc;
}

static int plan_keys(struct requantize *r, skua_error *err)
{
    const struct recipe *recipe = r->options.recipe;
    bool changes = r->report.n_changed > 0 || !recipe_copies(recipe);
    struct key_filter filter = {.file_type = !recipe_copies(recipe), .version = changes, .provenance = changes};
    int rc = gguf_writer_copy_keys(r->writer, r->g, skip_key, &filter, err);
    if (!rc && !recipe_copies(recipe) && recipe_file_type(recipe) >= 0)
        rc = gguf_writer_add_u32(r->writer, "general.file_type", (uint32_t)recipe_file_type(recipe), err);
    if (!rc && changes)
        rc = gguf_writer_add_u32(r->writer, "general.quantization_version", 2, err);
    if (!rc && changes && r->options.imatrix)
        rc = add_provenance(r, err);
    return rc;
}

static int plan_header(struct requantize *r, skua_error *err)
{
    int rc = gguf_writer_new(&r->writer, gguf_alignment(r->g, 0), err);
    if (!rc)
        rc = plan_keys(r, err);
    for (uint32_t i = 0; i < r->report.n_items && !rc; i++) {
        const struct requantize_item *item = &r->items[i];
        rc = gguf_writer_add_tensor(r->writer, item->name, item->to, item->n_dims, item->ne, err);
    }
    return rc;
}

int requantize_plan(struct requantize **out, const char *path, const struct requantize_options *o, skua_error *err)
{
    *out = NULL;
    struct requantize *r = mem_calloc(1, sizeof *r);
    if (!r)
        return error_nomem(err, path, sizeof *r);
    r->options = *o;
    if (!o->tier)
        r->options.tier = quant_select(NULL);
    int rc = gguf_open(&r->g, path, err);
    if (rc) {
        requantize_free(r);
        return rc;
    }
    rc = gather_tensors(r, err);
    if (!rc) rc = choose_types(r, err);
    if (!rc) rc = check_imatrix(r, err);
    if (!rc) rc = drop_companions(r, err);
    if (!rc) rc = plan_items(r, err);
    if (!rc) rc = plan_header(r, err);
    if (rc) {
        requantize_free(r);
        return rc;
    }
    for (uint32_t i = 0; i < gguf_shard_count(r->g); i++) {
        size_t bytes;
        gguf_shard_data(r->g, i, &bytes);
        r->report.file_bytes_before += bytes;
    }
    r->report.file_bytes = gguf_writer_file_bytes(r->writer);
    *out = r;
    return 0;
}

/* ---- the data ---- */

/* Importance weights as the quantizers need them: a block whose weights are all zero would lose its content. So a matrix whose weights are
   all zero (nothing is known about it) gets ones, and no weight is below a small part of the matrix's mean. NULL: out of memory. */
#define WEIGHT_FLOOR 1e-5

static float *floored_weights(const float *weights, uint64_t columns, uint64_t matrices)
{
    float *out = mem_realloc_array(NULL, columns * matrices, sizeof *out);
    for (uint64_t m = 0; out && m < matrices; m++) {
        const float *from = weights + m * columns;
        float *to = out + m * columns;
        double sum = 0;
        for (uint64_t i = 0; i < columns; i++)
            sum += from[i];
        float least = (float)(sum / (double)columns * WEIGHT_FLOOR);
        for (uint64_t i = 0; i < columns; i++)
            to[i] = least <= 0 ? 1.0f : from[i] > least ? from[i] : least;
    }
    return out;
}

/* A vector of ones, for a type that takes no row without weights and tensors that nobody has weights of. */
static float *unit_weights(uint64_t n)
{
    float *out = mem_realloc_array(NULL, n, sizeof *out);
    for (uint64_t i = 0; out && i < n; i++)
        out[i] = 1.0f;
    return out;
}

/* The factors to multiply in, one per matrix. */
static float *source_factors(const struct gguf_tensor *factor, uint64_t matrices)
{
    float *out = mem_realloc_array(NULL, matrices, sizeof *out);
    bool one = factor->size_bytes == sizeof *out;
    for (uint64_t m = 0; out && m < matrices; m++)
        memcpy(&out[m], factor->data + (one ? 0 : m * sizeof *out), sizeof *out);
    return out;
}

/* NVFP4: each matrix is divided by the factor that brings its largest value to the format's largest, and the factors are kept for
   NAME.scale. Without a factor larger values would be cut off: refused. */
static int prepare_nvfp4(struct requantize *r, struct rows_job *job, const char *name, struct stream *s, const char *path, skua_error *err)
{
    uint64_t n = rows_matrices(job->source);
    mem_free(r->divisors);
    r->divisors = mem_realloc_array(NULL, n, sizeof *r->divisors);
    if (!r->divisors)
        return error_nomem(err, name, n * sizeof *r->divisors);
    int rc = rows_largest(r->pool, job, r->divisors, s, path, err);
    bool factor = has_factor(name, QTYPE_NVFP4);
    for (uint64_t m = 0; m < n && !rc; m++) {
        float largest = r->divisors[m], g = largest / NVFP4_TARGET;
        if (!factor && largest > NVFP4_LARGEST)
            rc = error_set(err, SKUA_EARG, "tensor '%s' has values up to %g, too large for NVFP4 without a factor (%g)", name,
                           (double)largest, (double)NVFP4_LARGEST);
        r->divisors[m] = g > 0 ? g : 1.0f;
    }
    if (factor)
        job->divisors = r->divisors;
    return rc;
}

static void report_errors(struct requantize_item *item, const struct rows_sums *s, bool weighted)
{
    item->measured = true;
    item->weighted = weighted;
    item->rmse = sqrt(s->error / (double)item->elements);
    item->relative = s->value > 0 ? sqrt(s->error / s->value) : 0;
    item->weighted_relative = s->weighted_value > 0 ? sqrt(s->weighted_error / s->weighted_value) : 0;
}

static int quantize_item(struct requantize *r, uint32_t i, struct stream *s, const char *path, skua_error *err)
{
    struct requantize_item *item = &r->items[i];
    const struct origin *from = &r->origins[i];
    const struct gguf_tensor *t = from->tensor;
    uint64_t matrices = rows_matrices(t);
    float *weights = NULL, *factors = NULL;
    struct rows_job job = {.source = t, .type = item->to, .tier = r->options.tier, .measure = r->options.measure};
    struct rows_sums sums;
    int rc = 0;
    if (from->weights)
        job.weights = weights = floored_weights(from->weights, t->ne[0], matrices);
    else if (item->to == QTYPE_IQ2_XXS)
        job.weights = weights = unit_weights(t->ne[0] * matrices);
    if (from->factor)
        job.factors = factors = source_factors(from->factor, matrices);
    if (((from->weights || item->to == QTYPE_IQ2_XXS) && !weights) || (from->factor && !factors))
        rc = error_nomem(err, item->name, t->ne[0] * matrices * sizeof *weights);
    if (!rc && item->to == QTYPE_NVFP4)
        rc = prepare_nvfp4(r, &job, item->name, s, path, err);
    if (!rc)
        rc = rows_quantize(r->pool, &job, r->writer, item->name, &sums, s, path, err);
    if (!rc && job.measure)
        report_errors(item, &sums, from->weights != NULL);
    mem_free(weights);
    mem_free(factors);
    return rc;
}

/* As it is; but a tensor with numbers that are none is not passed on. */
static int copy_item(struct requantize *r, uint32_t i, struct stream *s, const char *path, skua_error *err)
{
    const struct gguf_tensor *t = r->origins[i].tensor;
    size_t row_bytes = qtype_row_bytes(t->type, t->ne[0]);
    for (size_t at = 0; at < t->size_bytes && dequant_supported(t->type); at += row_bytes) {
        int rc = quant_row_check(t->type, t->data + at, (int64_t)t->ne[0], err);
        if (rc) {
            error_prefix(err, "tensor '%s', row %zu", r->items[i].name, at / row_bytes);
            return rc;
        }
        if (stream_stopped(s))
            return stream_canceled(path, err);
    }
    return stream_copy(r->writer, t, s, path, err);
}

int requantize_write(struct requantize *r, const char *path, int n_threads, struct stream *s, skua_error *err)
{
    int rc = stream_check_output(r->g, path, err);
    if (rc)
        return rc;
    rc = pool_create(n_threads, &r->pool);
    if (rc)
        return rc == SKUA_ENOMEM ? error_nomem(err, "threads", 0) : error_set(err, rc, "%d threads cannot be started", n_threads);
    s->done = 0;
    s->total = r->report.bytes_before;
    rc = gguf_writer_begin(r->writer, path, err);
    for (uint32_t i = 0; i < r->report.n_items && !rc; i++) {
        const struct requantize_item *item = &r->items[i];
        if (item->added)
            rc = gguf_writer_data(r->writer, item->name, r->divisors, item->bytes, err);
        else if (item->from != item->to)
            rc = quantize_item(r, i, s, path, err);
        else
            rc = copy_item(r, i, s, path, err);
        if (rc == SKUA_EFORMAT || rc == SKUA_EARG || rc == SKUA_EUNSUPPORTED)
            error_prefix(err, "%s", gguf_shard_path(r->g, r->origins[i].tensor->shard));
    }
    if (!rc && stream_stopped(s))
        rc = stream_canceled(path, err);
    return rc ? rc : gguf_writer_finish(r->writer, err);
}
