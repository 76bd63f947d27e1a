/* Re-encoded test models; see recode.h. */
#include "support/recode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "gguf/gguf.h"
#include "gguf/gguf_write.h"
#include "quant/quant.h"

const int recode_types[8] = {QTYPE_F32, QTYPE_F16, QTYPE_BF16, QTYPE_Q8_0, QTYPE_Q4_0, QTYPE_Q4_K, QTYPE_Q5_K, QTYPE_Q6_K};

#define MAX_FILES 256
static char folder[512], files[MAX_FILES][640];
static int n_files;

static void remove_all(void)
{
    for (int i = 0; i < n_files; i++)
        unlink(files[i]);
    rmdir(folder);
}

const char *recode_temp(const char *name)
{
    if (!folder[0]) {
        const char *base = getenv("TMPDIR");
        snprintf(folder, sizeof folder, "%s/skua-test-XXXXXX", base ? base : P_tmpdir);
        if (!mkdtemp(folder))
            abort();
        atexit(remove_all);
    }
    char path[640];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (int i = 0; i < n_files; i++)
        if (!strcmp(files[i], path))
            return files[i];
    if (n_files == MAX_FILES)
        abort();
    strcpy(files[n_files], path);
    return files[n_files++];
}

static bool contains(const struct gguf_tensor *t, const char *part)
{
    return memmem(t->name, t->name_len, part, strlen(part)) != NULL;
}

static bool is_matrix(const struct gguf_tensor *t)
{
    return t->ne[1] > 1 && !contains(t, "ssm_conv1d") && !contains(t, "ffn_gate_inp") && !contains(t, "norm");
}

/* The type that tensor i gets. */
static uint32_t new_type(const struct gguf_tensor *t, uint32_t i, int type, uint64_t seed)
{
    if (!is_matrix(t))
        return t->type;
    if (type != RECODE_MIXED)
        return (uint32_t)type;
    return (uint32_t)recode_types[rng_bits(seed, i, 0) % 8];
}

static int write_tensor(struct gguf_writer *w, const struct gguf_tensor *t, const char *name, uint32_t type, skua_error *err)
{
    if (type == t->type)
        return gguf_writer_data(w, name, t->data, t->size_bytes, err);
    int64_t n = (int64_t)t->ne[0], rows = (int64_t)(t->ne[1] * t->ne[2] * t->ne[3]);
    size_t from = qtype_row_bytes(t->type, t->ne[0]), to = qtype_row_bytes(type, t->ne[0]);
    float *x = malloc((size_t)n * sizeof *x);
    void *out = malloc(to);
    int rc = x && out && to ? 0 : error_set(err, SKUA_EARG, "%s: rows of %lld do not fit", name, (long long)n);
    for (int64_t r = 0; r < rows && !rc; r++) {
        rc = dequant_row(t->type, t->data + (size_t)r * from, x, n);
        if (!rc)
            rc = quantize_row(type, x, out, n, NULL, err);
        if (!rc)
            rc = gguf_writer_data(w, name, out, to, err);
    }
    free(x);
    free(out);
    return rc;
}

int recode_model(const char *src, const char *dst, int type, uint64_t seed)
{
    struct gguf *g = NULL;
    struct gguf_writer *w = NULL;
    skua_error err = {0};
    int rc = gguf_open(&g, src, &err);
    uint32_t n = rc ? 0 : gguf_tensor_count(g);
    if (!rc)
        rc = gguf_writer_new(&w, GGUF_DEFAULT_ALIGNMENT, &err);
    if (!rc)
        rc = gguf_writer_copy_keys(w, g, NULL, NULL, &err);
    for (int pass = 0; pass < 2 && !rc; pass++) {
        if (pass == 1)
            rc = gguf_writer_begin(w, dst, &err);
        for (uint32_t i = 0; i < n && !rc; i++) {
            const struct gguf_tensor *t = gguf_tensor_at(g, i);
            char name[80];
            snprintf(name, sizeof name, "%.*s", t->name_len, t->name);
            uint32_t to = new_type(t, i, type, seed);
            rc = pass ? write_tensor(w, t, name, to, &err) : gguf_writer_add_tensor(w, name, to, t->n_dims ? t->n_dims : 1, t->ne, &err);
        }
    }
    if (!rc)
        rc = gguf_writer_finish(w, &err);
    gguf_writer_free(w);
    gguf_close(g);
    if (rc)
        printf("recode %s: %s\n", src, err.message);
    return rc;
}
