/* Requantizing files: every byte of the output against the quantizers and decoders applied by hand, the same bytes for any number of
   threads, keys, importance weights, factors of NVFP4, errors that are measured, and what is refused. The models are small files with the
   names and the variety of shapes of a real one, and random numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "convert/requantize.h"
#include "quant/quant.h"
#include "support/support.h"

/* ---- files ---- */

struct spec {
    const char *name;
    uint64_t ne[3];
    uint32_t type;
};

static const struct spec moe_specs[] = {
    {"token_embd.weight", {256, 24, 1}, QTYPE_BF16},        {"output_norm.weight", {256, 1, 1}, QTYPE_F32},
    {"output.weight", {256, 24, 1}, QTYPE_F16},             {"blk.0.attn_norm.weight", {256, 1, 1}, QTYPE_F32},
    {"blk.0.attn_qkv.weight", {256, 20, 1}, QTYPE_BF16},    {"blk.0.attn_gate.weight", {256, 5, 1}, QTYPE_BF16},
    {"blk.0.ssm_conv1d.weight", {4, 20, 1}, QTYPE_F32},     {"blk.0.ssm_alpha.weight", {256, 2, 1}, QTYPE_F32},
    {"blk.0.ssm_a", {2, 1, 1}, QTYPE_F32},                  {"blk.0.ffn_gate_inp.weight", {256, 4, 1}, QTYPE_F32},
    {"blk.0.ffn_up_exps.weight", {256, 6, 4}, QTYPE_BF16},  {"blk.0.ffn_down_exps.weight", {512, 3, 4}, QTYPE_F32},
    {"blk.0.ffn_up_shexp.weight", {256, 7, 1}, QTYPE_F16},  {"blk.1.attn_q.weight", {256, 33, 1}, QTYPE_BF16},
    {"blk.1.attn_v.weight", {256, 9, 1}, QTYPE_BF16},       {"blk.1.attn_output.weight", {512, 4, 1}, QTYPE_BF16},
    {"blk.1.ffn_up_exps.weight", {256, 6, 4}, QTYPE_Q8_0},  {"blk.1.ffn_down_exps.weight", {256, 3, 4}, QTYPE_Q8_0},
    {"blk.1.odd.weight", {352, 3, 1}, QTYPE_BF16},          {"blk.1.odder.weight", {100, 3, 1}, QTYPE_F32},
    {"blk.2.ffn_down_shexp.weight", {256, 5, 1}, QTYPE_Q4_0},
};
#define N_MOE (sizeof moe_specs / sizeof *moe_specs)

/* For recipes of types with blocks of 64 and no fallback. */
#define N_EVEN_ROWS (N_MOE - 3)

static float normal(uint64_t seed, uint64_t i)
{
    return (float)(sqrt(-2 * log(1 - rng_uniform(seed, i, 0))) * cos(6.283185307179586 * rng_uniform(seed, i, 1)));
}

struct file {
    const char *path;
    const struct spec *specs;
    size_t n;
    uint32_t alignment;
    /* change the numbers of a tensor before they are encoded */
    void (*edit)(const char *name, float *x, size_t n);
    bool no_block_count;
    uint32_t mtp_blocks;
};

static void add_keys(struct gguf_writer *w, const struct file *f, skua_error *err)
{
    int rc = gguf_writer_add_string(w, "general.architecture", "qwen35moe", 9, err);
    rc |= gguf_writer_add_u32(w, "general.file_type", 99, err);
    rc |= gguf_writer_add_u32(w, "general.quantization_version", 77, err);
    rc |= gguf_writer_add_string(w, "quantize.imatrix.file", "old", 3, err);
    if (!f->no_block_count)
        rc |= gguf_writer_add_u32(w, "qwen35moe.block_count", 3, err);
    rc |= gguf_writer_add_u32(w, "qwen35moe.nextn_predict_layers", f->mtp_blocks, err);
    CHECK(rc == 0, "keys: %s", err->message);
}

static void write_file(const struct file *f)
{
    struct gguf_writer *w;
    skua_error err = {0};
    if (gguf_writer_new(&w, f->alignment ? f->alignment : 32, &err))
        abort();
    add_keys(w, f, &err);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < f->n; i++) {
            const struct spec *s = &f->specs[i];
            uint64_t ne[4] = {s->ne[0], s->ne[1], s->ne[2], 1}, rows = ne[1] * ne[2];
            if (!pass) {
                CHECK(gguf_writer_add_tensor(w, s->name, s->type, 3, ne, &err) == 0, "%s", err.message);
                continue;
            }
            size_t row_bytes = qtype_row_bytes(s->type, ne[0]), n = ne[0] * rows;
            float *x = malloc(n * sizeof *x);
            uint8_t *q = calloc(rows, row_bytes);
            for (size_t k = 0; k < n; k++)
                x[k] = 0.03f * normal(i, k);
            if (f->edit)
                f->edit(s->name, x, n);
            for (size_t r = 0; r < rows; r++) {
                if (s->type == QTYPE_F32)
                    memcpy(q + r * row_bytes, x + r * ne[0], row_bytes);
                else if (dequant_supported(s->type))
                    CHECK(quantize_row(s->type, x + r * ne[0], q + r * row_bytes, (int64_t)ne[0], NULL, &err) == 0, "%s", err.message);
            }
            CHECK(gguf_writer_data(w, s->name, q, rows * row_bytes, &err) == 0, "%s", err.message);
            free(x);
            free(q);
        }
        if (!pass)
            CHECK(gguf_writer_begin(w, f->path, &err) == 0, "%s", err.message);
    }
    CHECK(gguf_writer_finish(w, &err) == 0, "%s", err.message);
    gguf_writer_free(w);
}

static uint8_t *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    *n = 0;
    if (!f)
        return NULL;
    uint8_t *p = fstat(fileno(f), &st) ? NULL : malloc((size_t)st.st_size + 1);
    if (p)
        *n = fread(p, 1, (size_t)st.st_size, f);
    fclose(f);
    return p;
}

static bool same_files(const char *a, const char *b)
{
    size_t na, nb;
    uint8_t *pa = read_file(a, &na), *pb = read_file(b, &nb);
    bool same = pa && pb && na == nb && memcmp(pa, pb, na) == 0;
    free(pa);
    free(pb);
    return same;
}

/* ---- running ---- */

struct run {
    const char *in, *out, *recipe;
    struct requantize_options o;
    int threads;
    const atomic_int *stop;
};

static uint64_t last_done, last_total;

static void watch(void *context, uint64_t done, uint64_t total)
{
    (void)context;
    CHECK(done >= last_done && done <= total, "progress %llu of %llu", (unsigned long long)done, (unsigned long long)total);
    last_done = done;
    last_total = total;
}

/* Plan and write; the report stays in *r (free it) when both succeed. */
static int requantize(struct run *t, struct requantize **r, skua_error *err)
{
    struct stream s = {.progress = watch, .stop = t->stop};
    t->o.recipe = recipe_find(t->recipe);
    last_done = 0;
    int rc = requantize_plan(r, t->in, &t->o, err);
    if (rc)
        return rc;
    rc = requantize_write(*r, t->out, t->threads ? t->threads : 1, &s, err);
    if (rc) {
        requantize_free(*r);
        *r = NULL;
    }
    return rc;
}

static void refused(struct run *t, int code, const char *const *parts)
{
    struct requantize *r = NULL;
    skua_error err = {0};
    int rc = requantize(t, &r, &err);
    CHECK(rc == code && err.code == code, "%s: code %d (%s), expected %d", t->recipe, rc, err.message, code);
    for (; *parts; parts++)
        CHECK(strstr(err.message, *parts), "%s: '%s', expected '%s' in it", t->recipe, err.message, *parts);
    CHECK(access(t->out, F_OK) != 0, "%s: a file is left", t->recipe);
    requantize_free(r);
}
#define REFUSED(t, code, ...) refused(t, code, (const char *const[]){__VA_ARGS__, NULL})

/* ---- the expected bytes ---- */

static float *decode(const struct gguf_tensor *t, const float *factors, size_t n_factors)
{
    size_t rows = t->ne[1] * t->ne[2], row_bytes = qtype_row_bytes(t->type, t->ne[0]);
    float *x = malloc(t->ne[0] * rows * sizeof *x);
    for (size_t r = 0; r < rows; r++) {
        CHECK(dequant_row(t->type, t->data + r * row_bytes, x + r * t->ne[0], (int64_t)t->ne[0]) == 0, "%.*s", t->name_len, t->name);
        for (size_t i = 0; i < t->ne[0] && factors; i++)
            x[r * t->ne[0] + i] *= factors[n_factors == 1 ? 0 : r / t->ne[1]];
    }
    return x;
}

/* What the matrix m of t is divided by for NVFP4. */
static float nvfp4_factor(const struct gguf_tensor *t, const float *x, size_t m)
{
    float amax = 0;
    for (size_t i = m * t->ne[0] * t->ne[1]; i < (m + 1) * t->ne[0] * t->ne[1]; i++)
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    return amax > 0 ? amax / 1440.0f : 1; /* 6 * 240 */
}

/* Compare tensor t of the output with its source; weights may be NULL. */
static void check_tensor(const struct gguf *in, const struct gguf *out, const struct gguf_tensor *t, const float *weights,
                         const struct requantize_item *item, const char *what)
{
    char name[64], scale[72];
    snprintf(name, sizeof name, "%.*s", t->name_len, t->name);
    const struct gguf_tensor *source = gguf_find_tensor(in, name);
    if (source && source->type == t->type) {
        CHECK(source->size_bytes == t->size_bytes && memcmp(source->data, t->data, t->size_bytes) == 0, "%s: %s is not copied", what, name);
        return;
    }
    if (!source || strlen(name) < 8)
        return; /* a factor: with its tensor */
    size_t rows = t->ne[1] * t->ne[2], row_bytes = qtype_row_bytes(t->type, t->ne[0]);
    float *x = decode(source, NULL, 0), *y = malloc(t->ne[0] * sizeof *y), *back = malloc(t->ne[0] * sizeof *y);
    uint8_t *q = malloc(row_bytes);
    double e2 = 0, x2 = 0, we2 = 0, wx2 = 0;
    snprintf(scale, sizeof scale, "%.*s.scale", (int)strlen(name) - 7, name);
    const struct gguf_tensor *factor = t->type == QTYPE_NVFP4 ? gguf_find_tensor(out, scale) : NULL;
    CHECK(t->type != QTYPE_NVFP4 || (factor != NULL) == (strcmp(name, "token_embd.weight") != 0), "%s: %s", what, scale);
    for (size_t r = 0; r < rows; r++) {
        float g = factor ? nvfp4_factor(t, x, r / t->ne[1]) : 1, stored;
        const float *w = weights ? weights + r / t->ne[1] * t->ne[0] : NULL;
        skua_error err = {0};
        for (size_t i = 0; i < t->ne[0]; i++)
            y[i] = factor ? x[r * t->ne[0] + i] / g : x[r * t->ne[0] + i];
        CHECK(quantize_row(t->type, y, q, (int64_t)t->ne[0], w, &err) == 0, "%s: %s: %s", what, name, err.message);
        CHECK(memcmp(q, t->data + r * row_bytes, row_bytes) == 0, "%s: %s, row %zu", what, name, r);
        if (factor) {
            CHECK(factor->type == QTYPE_F32 && factor->ne[0] == t->ne[2] && factor->n_dims == 1, "%s: shape of %s", what, scale);
            memcpy(&stored, factor->data + r / t->ne[1] * 4, 4);
            CHECK(stored == g, "%s: %s: %g, expected %g", what, scale, (double)stored, (double)g);
        }
        dequant_row(t->type, q, back, (int64_t)t->ne[0]);
        for (size_t i = 0; i < t->ne[0]; i++) {
            double v = x[r * t->ne[0] + i], e = v - (double)back[i] * g;
            e2 += e * e;
            x2 += v * v;
            we2 += w ? w[i] * e * e : 0;
            wx2 += w ? w[i] * v * v : 0;
        }
    }
    if (item) {
        CHECK(item->measured && fabs(item->rmse - sqrt(e2 / (double)(rows * t->ne[0]))) <= 1e-12 * item->rmse, "%s: RMSE of %s", what,
              name);
        CHECK(fabs(item->relative - sqrt(e2 / x2)) <= 1e-12, "%s: relative RMSE of %s", what, name);
        CHECK(item->weighted == (weights != NULL) && (!weights || fabs(item->weighted_relative - sqrt(we2 / wx2)) <= 1e-12),
              "%s: weighted RMSE of %s", what, name);
        CHECK(item->relative < 1, "%s: %s has lost its content: %g", what, name, item->relative);
    }
    free(x);
    free(y);
    free(back);
    free(q);
}

static const struct requantize_item *find_item(const struct requantize_report *r, const char *name)
{
    for (uint32_t i = 0; i < r->n_items; i++)
        if (strcmp(r->items[i].name, name) == 0)
            return &r->items[i];
    return NULL;
}

/* ---- importance weights for the tensors above ---- */

struct weights {
    float *sums[N_MOE], *counts[N_MOE], *expected[N_MOE]; /* expected: as the quantizers shall get them; NULL: none */
    struct imatrix_sums entries[N_MOE];
    uint32_t n;
    struct imatrix *m;
};

/* Expert 1 of every stack saw nothing but zeros; every 7th column is 0; the tensor named `without` has no entry. */
static void make_weights(struct weights *w, const char *path, const char *without)
{
    skua_error err = {0};
    memset(w, 0, sizeof *w);
    for (size_t i = 0; i < N_MOE; i++) {
        const struct spec *s = &moe_specs[i];
        size_t cols = s->ne[0], mats = s->ne[2];
        if (strncmp(s->name, "blk.", 4) != 0 || s->ne[1] == 1 || (without && strcmp(s->name, without) == 0))
            continue;
        w->sums[i] = malloc(cols * mats * sizeof(float));
        w->expected[i] = malloc(cols * mats * sizeof(float));
        w->counts[i] = malloc(mats * sizeof(float));
        for (size_t m = 0; m < mats; m++) {
            double mean = 0;
            w->counts[i][m] = 4;
            for (size_t c = 0; c < cols; c++) {
                float v = (float)rng_uniform(99, i * 1000 + m, c);
                v = m == 1 || c % 7 == 0 ? 0 : v * v * 4;
                w->sums[i][m * cols + c] = v;
                mean += (double)(v / 4);
            }
            mean /= (double)cols;
            for (size_t c = 0; c < cols; c++) {
                float v = w->sums[i][m * cols + c] / 4, least = (float)(mean * 1e-5);
                w->expected[i][m * cols + c] = mean == 0 ? 1 : v > least ? v : least;
            }
        }
        w->entries[w->n++] = (struct imatrix_sums){s->name, (int64_t)cols, (int64_t)mats, w->sums[i], w->counts[i]};
    }
    struct imatrix_source source = {.chunks = 5, .chunk_size = 64, .dataset = "words.txt"};
    CHECK(imatrix_write(path, w->entries, w->n, &source, &err) == 0, "%s", err.message);
    CHECK(imatrix_open(&w->m, path, &err) == 0, "%s", err.message);
}

static void free_weights(struct weights *w)
{
    for (size_t i = 0; i < N_MOE; i++) {
        free(w->sums[i]);
        free(w->counts[i]);
        free(w->expected[i]);
    }
    imatrix_free(w->m);
}

static const float *weights_of(const struct weights *w, const struct gguf_tensor *t)
{
    for (size_t i = 0; i < N_MOE && w; i++)
        if (strlen(moe_specs[i].name) == t->name_len && memcmp(moe_specs[i].name, t->name, t->name_len) == 0)
            return w->expected[i];
    return NULL;
}

/* ---- tests ---- */

static void check_keys(const struct gguf *g, const struct recipe *recipe, bool weighted)
{
    uint32_t v = 0;
    struct gguf_string s;
    int rc = gguf_get_u32(g, "general.file_type", &v, NULL), type = recipe_file_type(recipe);
    CHECK(type < 0 ? rc == 0 : rc == 1 && v == (uint32_t)type, "%s: file type %u", recipe_name(recipe), v);
    CHECK(gguf_get_u32(g, "general.quantization_version", &v, NULL) == 1 && v == 2, "quantization version %u", v);
    rc = gguf_get_string(g, "quantize.imatrix.file", &s, NULL);
    CHECK(rc == weighted && (!weighted || (s.len == 6 && memcmp(s.data, "im.dat", 6) == 0)), "imatrix file");
    rc = gguf_get_string(g, "quantize.imatrix.dataset", &s, NULL);
    CHECK(rc == weighted && (!weighted || (s.len == 9 && memcmp(s.data, "words.txt", 9) == 0)), "imatrix data set");
    CHECK(gguf_get_u32(g, "quantize.imatrix.entries_count", &v, NULL) == weighted && (!weighted || v == 16), "imatrix entries");
    CHECK(gguf_get_u32(g, "quantize.imatrix.chunks_count", &v, NULL) == weighted && (!weighted || v == 5), "imatrix chunks %u", v);
    CHECK(gguf_get_u32(g, "qwen35moe.block_count", &v, NULL) == 1 && v == 3, "other keys");
    CHECK(gguf_alignment(g, 0) == 64, "alignment");
}

static bool is_64(const char *recipe) { return strstr(recipe, "64A") || strcmp(recipe, "NVFP4") == 0; }

static void test_recipe(const struct recipe *recipe, const struct weights *w)
{
    struct file f = {.path = support_temp("in.gguf"), .specs = moe_specs, .n = N_MOE, .alignment = 64};
    struct run t = {.in = f.path, .out = support_temp("out.gguf"), .recipe = recipe_name(recipe), .threads = 2,
                    .o = {.allow_requantize = true, .measure = true, .imatrix = w ? w->m : NULL, .imatrix_path = w ? "im.dat" : NULL}};
    struct requantize *r = NULL;
    struct gguf *in = NULL, *out = NULL;
    skua_error err = {0};
    if (is_64(t.recipe))
        f.n = N_EVEN_ROWS;
    write_file(&f);
    if (!CHECK(requantize(&t, &r, &err) == 0, "%s: %s", t.recipe, err.message))
        return;
    const struct requantize_report *report = requantize_report(r);
    CHECK(last_done == last_total && last_total == report->bytes_before, "%s: progress ends at %llu", t.recipe,
          (unsigned long long)last_done);
    if (!CHECK(!gguf_open(&in, f.path, &err) && !gguf_open(&out, t.out, &err), "%s: %s", t.recipe, err.message))
        return;
    size_t size;
    gguf_shard_data(out, 0, &size);
    CHECK(size == report->file_bytes, "%s: %zu bytes, planned %llu", t.recipe, size, (unsigned long long)report->file_bytes);
    CHECK(gguf_tensor_count(out) == report->n_items, "%s: tensors", t.recipe);
    for (uint32_t i = 0; i < gguf_tensor_count(out); i++) {
        const struct gguf_tensor *to = gguf_tensor_at(out, i);
        const struct requantize_item *item = &report->items[i];
        CHECK(strlen(item->name) == to->name_len && memcmp(item->name, to->name, to->name_len) == 0, "%s: order of %s", t.recipe,
              item->name);
        CHECK(item->to == to->type && item->bytes == to->size_bytes, "%s: report of %s", t.recipe, item->name);
        check_tensor(in, out, to, weights_of(w, to), item->from != item->to ? item : NULL, t.recipe);
    }
    if (recipe_copies(recipe))
        CHECK(same_files(t.in, t.out), "COPY is a copy");
    else
        check_keys(out, recipe, w != NULL);
    requantize_free(r);
    gguf_close(in);
    gguf_close(out);
    char other[256];
    snprintf(other, sizeof other, "%s", support_temp("other.gguf"));
    t.out = other;
    for (int threads = 1; threads <= 5; threads += 2) {
        t.threads = threads;
        t.o.measure = threads == 3;
        t.o.tier = threads == 3 ? quant_select("scalar") : NULL;
        CHECK(requantize(&t, &r, &err) == 0, "%s: %s", t.recipe, err.message);
        CHECK(same_files(support_temp("out.gguf"), other), "%s: other bytes with %d threads", t.recipe, threads);
        requantize_free(r);
    }
    unlink(support_temp("out.gguf"));
    unlink(other);
}

static void test_recipes(void)
{
    struct weights w;
    make_weights(&w, support_temp("im.gguf"), NULL);
    for (size_t i = 0; recipe_at(i); i++) {
        const char *name = recipe_name(recipe_at(i));
        bool needs = strncmp(name, "IQ2", 3) == 0 || strcmp(name, "Q2_K_S") == 0;
        test_recipe(recipe_at(i), &w);
        if (!needs)
            test_recipe(recipe_at(i), NULL);
    }
    free_weights(&w);
}

/* Types from everything to everything: each source type that can be read, to each type. */
static void test_pairs(void)
{
    for (uint32_t from = 0; from < QTYPE_END; from++) {
        if (!dequant_supported(from) || from == QTYPE_IQ2_XXS)
            continue;
        for (uint32_t to = 0; to < QTYPE_END; to++) {
            if (!dequant_supported(to) || to == QTYPE_NVFP4)
                continue;
            struct spec spec[] = {{"output.weight", {256, 3, 1}, from}, {"blk.0.x.weight", {256, 2, 2}, from}};
            struct file f = {.path = support_temp("in.gguf"), .specs = spec, .n = 1 + (to != QTYPE_IQ2_XXS && to != QTYPE_IQ2_S)};
            struct recipe_overrides o = {0};
            struct run t = {.in = f.path, .out = support_temp("out.gguf"), .recipe = "COPY",
                            .o = {.allow_requantize = true, .overrides = &o}};
            struct requantize *r = NULL;
            struct gguf *in = NULL, *out = NULL;
            skua_error err = {0};
            char text[64];
            snprintf(text, sizeof text, ".=%s", qtype_info(to)->name);
            CHECK(recipe_overrides_add(&o, text, &err) == 0, "%s", err.message);
            write_file(&f);
            if (CHECK(requantize(&t, &r, &err) == 0, "%s", err.message)) {
                CHECK(!gguf_open(&in, t.in, &err) && !gguf_open(&out, t.out, &err), "%s", err.message);
                float ones[256];
                for (int i = 0; i < 256; i++)
                    ones[i] = 1;
                for (uint32_t i = 0; i < gguf_tensor_count(out); i++)
                    check_tensor(in, out, gguf_tensor_at(out, i), to == QTYPE_IQ2_XXS ? ones : NULL, NULL, text);
                gguf_close(in);
                gguf_close(out);
            }
            requantize_free(r);
            recipe_overrides_free(&o);
            unlink(t.out);
        }
    }
}

/* ---- NVFP4 as a source ---- */

static void set_factors(const char *name, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strstr(name, ".scale"))
            x[i] = 0.5f + 0.25f * (float)i;
        else if (!strstr(name, "_scale"))
            x[i] *= 100;
    }
}

static void test_nvfp4_source(void)
{
    static const struct spec specs[] = {
        {"blk.0.ffn_up_exps.weight", {64, 2, 3}, QTYPE_NVFP4}, {"blk.0.ffn_up_exps.scale", {3, 1, 1}, QTYPE_F32},
        {"blk.0.ffn_up_exps.input_scale", {3, 1, 1}, QTYPE_F32}, {"blk.0.attn_qkv.weight", {64, 2, 1}, QTYPE_NVFP4},
        {"blk.0.attn_qkv.scale", {1, 1, 1}, QTYPE_F32},          {"blk.0.attn_gate.weight", {64, 2, 1}, QTYPE_NVFP4},
        {"blk.0.odd.scale", {5, 1, 1}, QTYPE_F32},
    };
    struct file f = {.path = support_temp("in.gguf"), .specs = specs, .n = 7, .edit = set_factors};
    struct run t = {.in = f.path, .out = support_temp("out.gguf"), .recipe = "F32"};
    struct requantize *r = NULL;
    struct gguf *in = NULL, *out = NULL;
    skua_error err = {0};
    write_file(&f);
    CHECK(requantize(&t, &r, &err) == 0, "%s", err.message);
    const struct requantize_report *report = requantize_report(r);
    CHECK(report->n_items == 4 && report->n_requantized == 0, "%u tensors", report->n_items);
    CHECK(find_item(report, "blk.0.odd.scale") && !find_item(report, "blk.0.attn_qkv.scale"), "companions are dropped, others not");
    CHECK(!gguf_open(&in, t.in, &err) && !gguf_open(&out, t.out, &err), "%s", err.message);
    static const float factors[3] = {0.5f, 0.75f, 1.0f}, unit = 1;
    static const char *const names[] = {"blk.0.ffn_up_exps.weight", "blk.0.attn_qkv.weight", "blk.0.attn_gate.weight"};
    for (int i = 0; i < 3; i++) {
        const struct gguf_tensor *to = gguf_find_tensor(out, names[i]);
        float *x = decode(gguf_find_tensor(in, names[i]), i == 2 ? &unit : factors, i == 0 ? 3 : 1);
        CHECK(to->type == QTYPE_F32 && memcmp(to->data, x, to->size_bytes) == 0, "%s", names[i]);
        free(x);
    }
    requantize_free(r);
    gguf_close(in);
    gguf_close(out);
    unlink(t.out);
    t.recipe = "NVFP4"; /* nothing changes */
    CHECK(requantize(&t, &r, &err) == 0, "%s", err.message);
    CHECK(requantize_report(r)->n_changed == 0 && requantize_report(r)->n_items == 7, "NVFP4 to NVFP4");
    requantize_free(r);
    unlink(t.out);
    /* factors that do not fit */
    struct spec bad[2] = {specs[0], {"blk.0.ffn_up_exps.scale", {2, 1, 1}, QTYPE_F32}};
    f = (struct file){.path = t.in, .specs = bad, .n = 2};
    write_file(&f);
    t.recipe = "F32";
    REFUSED(&t, SKUA_EFORMAT, "in.gguf: tensor 'blk.0.ffn_up_exps.scale' has 2 values of type F32, expected F32, one or 3");
    bad[1] = (struct spec){"blk.0.ffn_up_exps.scale", {3, 1, 1}, QTYPE_F16};
    write_file(&f);
    REFUSED(&t, SKUA_EFORMAT, "3 values of type F16, expected F32, one or 3");
}

/* ---- numbers that are none ---- */

static const char *spoiled;
static size_t spoil_at[2];
static float spoil_with;

static void spoil(const char *name, float *x, size_t n)
{
    for (int i = 0; i < 2 && strcmp(name, spoiled) == 0; i++)
        if (spoil_at[i] < n)
            x[spoil_at[i]] = spoil_with;
}

static void test_not_finite(void)
{
    static const struct spec specs[] = {{"output_norm.weight", {256, 1, 1}, QTYPE_F32}, {"blk.0.attn_v.weight", {256, 300, 1}, QTYPE_F32}};
    struct file f = {.path = support_temp("in.gguf"), .specs = specs, .n = 2, .edit = spoil};
    struct run t = {.in = f.path, .out = support_temp("out.gguf")};
    static const float values[] = {NAN, INFINITY, -INFINITY};
    static const char *const texts[] = {"nan", "inf", "-inf"};
    for (int i = 0; i < 3; i++) {
        spoiled = "blk.0.attn_v.weight";
        spoil_at[0] = 37 * 256 + 5;
        spoil_at[1] = 299 * 256;
        spoil_with = values[i];
        write_file(&f);
        char text[96];
        snprintf(text, sizeof text, "in.gguf: tensor 'blk.0.attn_v.weight', row 37: element 5 is %s%s", i ? texts[i] : "",
                 i ? ", expected" : ""); /* NaN may have a sign in print */
        for (int threads = 1; threads <= 5; threads += 2) {
            t.threads = threads;
            t.recipe = "Q4_K_M";
            REFUSED(&t, SKUA_EFORMAT, text);
            t.recipe = "NVFP4";
            REFUSED(&t, SKUA_EFORMAT, text);
        }
        t.recipe = "COPY";
        REFUSED(&t, SKUA_EFORMAT, "in.gguf: tensor 'blk.0.attn_v.weight', row 37: elements 5 to 5");
        spoiled = "output_norm.weight"; /* a tensor that is kept */
        spoil_at[0] = 3;
        write_file(&f);
        t.recipe = "Q8_0";
        REFUSED(&t, SKUA_EFORMAT, "tensor 'output_norm.weight', row 0: elements 3 to 3");
    }
    spoiled = "blk.0.attn_v.weight";
    spoil_at[0] = spoil_at[1] = 2 * 256 + 9;
    spoil_with = 70000;
    write_file(&f);
    t.recipe = "F16";
    REFUSED(&t, SKUA_EARG, "in.gguf: tensor 'blk.0.attn_v.weight', row 2: elements 9 to 9 are too large for F16");
    static const struct spec embd[] = {{"token_embd.weight", {256, 3, 1}, QTYPE_F32}, {"output.weight", {256, 3, 1}, QTYPE_F32}};
    spoiled = "token_embd.weight";
    spoil_at[0] = 7;
    f.specs = embd;
    write_file(&f);
    t.recipe = "NVFP4";
    REFUSED(&t, SKUA_EARG, "tensor 'token_embd.weight' has values up to 70000, too large for NVFP4 without a factor (2688)");
}

static void zero(const char *name, float *x, size_t n)
{
    (void)name;
    memset(x, 0, n * sizeof *x);
}

static void test_zeros(void)
{
    static const struct spec specs[] = {{"blk.0.ffn_up_exps.weight", {256, 3, 2}, QTYPE_F32}};
    struct file f = {.path = support_temp("in.gguf"), .specs = specs, .n = 1, .edit = zero};
    struct run t = {.in = f.path, .out = support_temp("out.gguf"), .o = {.measure = true}};
    skua_error err = {0};
    write_file(&f);
    for (size_t i = 0; recipe_at(i); i++) {
        struct requantize *r = NULL;
        struct gguf *in = NULL, *out = NULL;
        t.recipe = recipe_name(recipe_at(i));
        if (strncmp(t.recipe, "IQ2", 3) == 0 || strcmp(t.recipe, "Q2_K_S") == 0)
            continue;
        CHECK(requantize(&t, &r, &err) == 0, "%s: %s", t.recipe, err.message);
        CHECK(requantize_report(r)->items[0].rmse == 0 && requantize_report(r)->items[0].relative == 0, "%s: zeros", t.recipe);
        CHECK(!gguf_open(&in, t.in, &err) && !gguf_open(&out, t.out, &err), "%s", err.message);
        check_tensor(in, out, gguf_tensor_at(out, 0), NULL, NULL, t.recipe);
        gguf_close(in);
        gguf_close(out);
        requantize_free(r);
        unlink(t.out);
    }
}

/* ---- refusals ---- */

static void test_imatrix_refusals(void)
{
    struct file f = {.path = support_temp("in.gguf"), .specs = moe_specs, .n = N_MOE};
    struct weights w;
    struct run t = {.in = f.path, .out = support_temp("out.gguf"), .recipe = "IQ2_XXS", .o = {.allow_requantize = true}};
    skua_error err = {0};
    write_file(&f);
    REFUSED(&t, SKUA_EARG, "in.gguf: tensor 'blk.0.", " is to be IQ2_XXS, which needs importance weights, and there is no importance ");
    make_weights(&w, support_temp("im.gguf"), "blk.1.attn_q.weight");
    t.o.imatrix = w.m;
    t.o.imatrix_path = "im.dat";
    REFUSED(&t, SKUA_EARG, "tensor 'blk.1.attn_q.weight' is to be IQ2_XXS, which needs importance weights",
            "and the importance matrix has none for it");
    t.recipe = "Q4_K_M"; /* which does without */
    struct requantize *r = NULL;
    CHECK(requantize(&t, &r, &err) == 0, "%s", err.message);
    const struct requantize_report *report = requantize_report(r);
    CHECK(report->n_without_weights == 1 && strcmp(report->without_weights, "blk.1.attn_q.weight") == 0, "%u", report->n_without_weights);
    requantize_free(r);
    unlink(t.out);
    free_weights(&w);
    /* of another model: a shape that differs, names that differ; the embedding's shape does not matter */
    float sums[512] = {1}, counts[4] = {1, 1, 1, 1};
    struct imatrix_sums e[2] = {{"token_embd.weight", 24, 1, sums, counts}, {"blk.0.ffn_up_exps.weight", 256, 2, sums, counts}};
    struct imatrix_source source = {.chunks = 1, .chunk_size = 1, .dataset = ""};
    for (int i = 0; i < 3; i++) {
        struct imatrix *m = NULL;
        e[1].matrices = 2;
        e[1].name = i == 1 ? "blk.7.ffn_up_exps.weight" : "blk.0.ffn_up_exps.weight";
        CHECK(imatrix_write(support_temp("im.gguf"), i == 1 ? &e[1] : e, i == 0 ? 2 : 1, &source, &err) == 0, "%s", err.message);
        CHECK(imatrix_open(&m, support_temp("im.gguf"), &err) == 0, "%s", err.message);
        t.o.imatrix = m;
        if (i == 0) {
            REFUSED(&t, SKUA_EFORMAT, "im.dat: ",
                    "entry 'blk.0.ffn_up_exps.weight' has 256 columns and 2 matrices, the tensor has 256 and 4");
        } else if (i == 1) {
            REFUSED(&t, SKUA_EFORMAT, "im.dat: none of its 1 entries is of a tensor of the model");
        } else {
            CHECK(requantize(&t, &r, &err) == 0, "%s", err.message);
            requantize_free(r);
            unlink(t.out);
        }
        imatrix_free(m);
    }
}

static void test_refusals(void)
{
    struct file f = {.path = support_temp("in.gguf"), .specs = moe_specs, .n = N_MOE};
    struct run t = {.in = f.path, .out = support_temp("out.gguf"), .recipe = "Q4_K_M"};
    atomic_int stop = 1;
    write_file(&f);
    REFUSED(&t, SKUA_EARG, "in.gguf: tensor 'blk.1.ffn_up_exps.weight' is Q8_0 already", "to Q4_K", "--allow-requantize");
    t.recipe = "NVFP4";
    REFUSED(&t, SKUA_EARG, "in.gguf: tensor 'blk.1.odd.weight': rows of 352 elements do not fit NVFP4");
    t.recipe = "Q8_0";
    t.stop = &stop;
    f.n = 8;
    write_file(&f);
    for (t.threads = 1; t.threads <= 3; t.threads += 2)
        REFUSED(&t, SKUA_ECANCELED, "interrupted; ", "out.gguf is not written");
    t.recipe = "COPY";
    REFUSED(&t, SKUA_ECANCELED, "interrupted; ", "out.gguf is not written");
    t.stop = NULL;
    t.recipe = "Q8_0";
    t.out = t.in; /* refused before anything is written */
    struct requantize *r = NULL;
    skua_error err = {0};
    CHECK(requantize(&t, &r, &err) == SKUA_EARG && strstr(err.message, "in.gguf: is the input"), "%s", err.message);
    t.out = support_temp("out.gguf");
    f.no_block_count = true;
    write_file(&f);
    REFUSED(&t, SKUA_EFORMAT, "in.gguf: ", "key 'qwen35moe.block_count' is missing");
    f.no_block_count = false;
    f.mtp_blocks = 4;
    write_file(&f);
    REFUSED(&t, SKUA_EFORMAT, "key 'qwen35moe.nextn_predict_layers' is 4, but there are 3 blocks");
    static const struct spec unread[] = {{"blk.0.ffn_up.weight", {256, 2, 1}, QTYPE_IQ3_S}};
    f = (struct file){.path = t.in, .specs = unread, .n = 1};
    write_file(&f);
    REFUSED(&t, SKUA_EUNSUPPORTED, "in.gguf: tensor 'blk.0.ffn_up.weight' is of type IQ3_S, which cannot be read");
    char nowhere[300];
    snprintf(nowhere, sizeof nowhere, "%s/no-folder/out.gguf", support_temp("in.gguf"));
    t.out = nowhere;
    t.recipe = "COPY";
    REFUSED(&t, SKUA_EIO, "no-folder/out.gguf");
    t.in = nowhere;
    REFUSED(&t, SKUA_EIO, "no-folder/out.gguf");
}

/* A failure leaves a file that was there before as it was. */
static void test_old_output(void)
{
    static const struct spec specs[] = {{"blk.0.attn_v.weight", {256, 3, 1}, QTYPE_F32}};
    struct file f = {.path = support_temp("in.gguf"), .specs = specs, .n = 1, .edit = spoil};
    struct run t = {.in = f.path, .out = support_temp("old.gguf"), .recipe = "Q8_0"};
    struct requantize *r = NULL;
    skua_error err = {0};
    spoiled = specs[0].name;
    spoil_at[0] = spoil_at[1] = 600;
    spoil_with = NAN;
    write_file(&f);
    FILE *old = fopen(t.out, "w");
    CHECK(old && fputs("old", old) >= 0 && fclose(old) == 0, "old file");
    CHECK(requantize(&t, &r, &err) == SKUA_EFORMAT, "%s", err.message);
    size_t n;
    uint8_t *now = read_file(t.out, &n);
    CHECK(now && n == 3 && memcmp(now, "old", 3) == 0, "the old file has %zu bytes", n);
    free(now);
    spoil_with = 1;
    write_file(&f);
    CHECK(requantize(&t, &r, &err) == 0, "%s", err.message);
    requantize_free(r);
    now = read_file(t.out, &n);
    CHECK(now && n > 3 && memcmp(now, "GGUF", 4) == 0, "the new file has %zu bytes", n);
    free(now);
}

int main(void)
{
    test_recipes();
    test_pairs();
    test_nvfp4_source();
    test_not_finite();
    test_zeros();
    test_imatrix_refusals();
    test_refusals();
    test_old_output();
    return support_finish("test_requantize");
}
