/* Files of base log-probabilities; see score_base.h. */
#include "engine/score_base.h"

#include <string.h>

#include "base/mem.h"

#define MAGIC "SKUALOGP"
#define VERSION 1u
#define HEADER_BYTES 32u

static int32_t rows_per_chunk(const struct score_shape *s) { return s->chunk_size - 1 - s->score_from; }

/* ---- writing ---- */

int score_base_create(struct score_base_writer *w, const char *path, const struct score_shape *s, const int32_t *ids, skua_error *err)
{
    uint32_t numbers[6] = {VERSION, (uint32_t)s->n_vocab, (uint32_t)s->chunk_size, (uint32_t)s->score_from, (uint32_t)s->n_chunks, 0};
    *w = (struct score_base_writer){.file.fd = -1, .n_vocab = s->n_vocab, .rows_left = (int64_t)s->n_chunks * rows_per_chunk(s)};
    w->row = mem_alloc(score_row_bytes(s->n_vocab));
    if (!w->row)
        return error_nomem(err, path, score_row_bytes(s->n_vocab));
    int rc = file_writer_open(&w->file, path, err);
    if (!rc)
        rc = file_writer_write(&w->file, MAGIC, 8, err);
    if (!rc)
        rc = file_writer_write(&w->file, numbers, sizeof numbers, err);
    if (!rc)
        rc = file_writer_write(&w->file, ids, (size_t)s->n_chunks * (size_t)s->chunk_size * sizeof *ids, err);
    if (rc)
        score_base_abort(w);
    return rc;
}

int score_base_write(struct score_base_writer *w, const float *logits, double norm, int32_t next, skua_error *err)
{
    if (!w->rows_left)
        return error_set(err, SKUA_ESTATE, "a row after the last one");
    score_encode(logits, w->n_vocab, norm, next, w->row);
    w->rows_left--;
    return file_writer_write(&w->file, w->row, score_row_bytes(w->n_vocab), err);
}

int score_base_finish(struct score_base_writer *w, skua_error *err)
{
    int rc = w->rows_left ? error_set(err, SKUA_ESTATE, "%lld rows are missing", (long long)w->rows_left)
                          : file_writer_commit(&w->file, err);
    score_base_abort(w);
    return rc;
}

void score_base_abort(struct score_base_writer *w)
{
    if (w->row) /* a zeroed writer has no file */
        file_writer_abort(&w->file);
    mem_free(w->row);
    *w = (struct score_base_writer){.file.fd = -1};
}

/* ---- reading ---- */

static size_t rows_at(const struct score_shape *s)
{
    return HEADER_BYTES + (size_t)s->n_chunks * (size_t)s->chunk_size * sizeof(int32_t);
}

/* Bytes of the whole file; false: more than 2^64. */
static bool file_bytes(const struct score_shape *s, uint64_t *bytes)
{
    uint64_t rows = (uint64_t)s->n_chunks * (uint64_t)rows_per_chunk(s), ids = (uint64_t)s->n_chunks * (uint64_t)s->chunk_size * 4;
    return !__builtin_mul_overflow(rows, (uint64_t)score_row_bytes(s->n_vocab), bytes) &&
           !__builtin_add_overflow(*bytes, ids + HEADER_BYTES, bytes);
}

static int check_ids(const struct score_base *b, const char *path, skua_error *err)
{
    int64_t n = (int64_t)b->shape.n_chunks * b->shape.chunk_size;
    for (int64_t i = 0; i < n; i++)
        if (score_base_id(b, i) < 0 || score_base_id(b, i) >= b->shape.n_vocab)
            return error_set(err, SKUA_EFORMAT, "%s: token %lld is %d, outside of its vocabulary of %d", path, (long long)i,
                             score_base_id(b, i), b->shape.n_vocab);
    return 0;
}

static int check(struct score_base *b, const char *path, skua_error *err)
{
    uint32_t n[6];
    uint64_t bytes;
    if (b->map.size < HEADER_BYTES || memcmp(b->map.data, MAGIC, 8) != 0)
        return error_set(err, SKUA_EFORMAT, "%s: is no file of base log-probabilities (--save-base writes them)", path);
    memcpy(n, b->map.data + 8, sizeof n);
    if (n[0] != VERSION)
        return error_set(err, SKUA_EUNSUPPORTED, "%s: version %u of the format, expected %u", path, n[0], VERSION);
    if (n[1] < 1 || n[1] > INT32_MAX || n[2] < 2 || n[2] > INT32_MAX || n[3] > n[2] - 2 || n[4] < 1 || n[4] > INT32_MAX || n[5])
        return error_set(err, SKUA_EFORMAT, "%s: impossible header: vocabulary of %u, %u chunks of %u tokens, scored from %u", path, n[1],
                         n[4], n[2], n[3]);
    b->shape = (struct score_shape){(int32_t)n[1], (int32_t)n[2], (int32_t)n[3], (int32_t)n[4]};
    if (!file_bytes(&b->shape, &bytes) || bytes != b->map.size)
        return error_set(err, SKUA_EFORMAT, "%s: %zu bytes do not fit its header: vocabulary of %u, %u chunks of %u tokens, scored from %u",
                         path, b->map.size, n[1], n[4], n[2], n[3]);
    return check_ids(b, path, err);
}

int score_base_open(struct score_base *b, const char *path, skua_error *err)
{
    *b = (struct score_base){.map.size = 0};
    int rc = file_map_open(&b->map, path, err);
    if (!rc)
        rc = check(b, path, err);
    if (rc)
        score_base_close(b);
    return rc;
}

void score_base_close(struct score_base *b)
{
    file_map_close(&b->map);
}

int32_t score_base_id(const struct score_base *b, int64_t i)
{
    int32_t id;
    memcpy(&id, b->map.data + HEADER_BYTES + (size_t)i * sizeof id, sizeof id);
    return id;
}

int score_base_row(const struct score_base *b, int32_t chunk, int32_t i, struct score_row *row, skua_error *err)
{
    size_t n = (size_t)chunk * (size_t)rows_per_chunk(&b->shape) + (size_t)i;
    int rc = score_decode(b->map.data + rows_at(&b->shape) + n * score_row_bytes(b->shape.n_vocab), b->shape.n_vocab, row, err);
    if (rc)
        error_prefix(err, "row %zu", n);
    return rc;
}
