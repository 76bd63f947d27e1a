/* Writing importance matrices as GGUF; see imatrix.h. */
#include "convert/imatrix.h"

#include <stdio.h>
#include <string.h>

#include "gguf/gguf_write.h"

struct names {
    char sums[IMATRIX_MAX_NAME_BYTES + 9], counts[IMATRIX_MAX_NAME_BYTES + 9];
};

static struct names names_of(const char *name)
{
    struct names n;
    snprintf(n.sums, sizeof n.sums, "%.*s.in_sum2", IMATRIX_MAX_NAME_BYTES, name);
    snprintf(n.counts, sizeof n.counts, "%.*s.counts", IMATRIX_MAX_NAME_BYTES, name);
    return n;
}

static int declare(struct gguf_writer *w, const struct imatrix_sums *e, skua_error *err)
{
    uint64_t sums[2] = {(uint64_t)e->columns, (uint64_t)e->matrices}, counts[2] = {1, (uint64_t)e->matrices};
    struct names n = names_of(e->name);
    if (strlen(e->name) < 1 || strlen(e->name) > IMATRIX_MAX_NAME_BYTES)
        return error_set(err, SKUA_EARG, "tensor name '%s' of %zu bytes; an importance matrix can hold names of 1 to %d bytes", e->name,
                         strlen(e->name), IMATRIX_MAX_NAME_BYTES);
    int rc = gguf_writer_add_tensor(w, n.sums, QTYPE_F32, 2, sums, err);
    return rc ? rc : gguf_writer_add_tensor(w, n.counts, QTYPE_F32, 2, counts, err);
}

static int write_entry(struct gguf_writer *w, const struct imatrix_sums *e, skua_error *err)
{
    struct names n = names_of(e->name);
    size_t rows = (size_t)e->matrices;
    int rc = gguf_writer_data(w, n.sums, e->sums, rows * (size_t)e->columns * sizeof *e->sums, err);
    return rc ? rc : gguf_writer_data(w, n.counts, e->counts, rows * sizeof *e->counts, err);
}

static int add_keys(struct gguf_writer *w, const struct imatrix_source *s, skua_error *err)
{
    struct gguf_string dataset = {s->dataset, strlen(s->dataset)};
    int rc = gguf_writer_add_string(w, "general.type", "imatrix", 7, err);
    if (!rc)
        rc = gguf_writer_add_strings(w, "imatrix.datasets", &dataset, 1, err);
    if (!rc)
        rc = gguf_writer_add_u32(w, "imatrix.chunk_count", s->chunks, err);
    if (!rc)
        rc = gguf_writer_add_u32(w, "imatrix.chunk_size", s->chunk_size, err);
    if (!rc && s->tokens_hash)
        rc = gguf_writer_add_scalar(w, "skua.imatrix.tokens_hash", GGUF_U64, &s->tokens_hash, err);
    return rc;
}

int imatrix_write(const char *path, const struct imatrix_sums *entries, uint32_t n_entries, const struct imatrix_source *source,
                  skua_error *err)
{
    struct gguf_writer *w;
    int rc = gguf_writer_new(&w, GGUF_DEFAULT_ALIGNMENT, err);
    if (!rc)
        rc = add_keys(w, source, err);
    for (uint32_t i = 0; i < n_entries && !rc; i++)
        rc = declare(w, &entries[i], err);
    if (!rc)
        rc = gguf_writer_begin(w, path, err);
    for (uint32_t i = 0; i < n_entries && !rc; i++)
        rc = write_entry(w, &entries[i], err);
    if (!rc)
        rc = gguf_writer_finish(w, err);
    gguf_writer_free(w);
    return rc;
}
