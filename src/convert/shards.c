/* Splitting and merging; see shards.h. */
#include "convert/shards.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

/* ---- planning ---- */

/* A writer with all keys of shard `no`. */
static int shard_writer(struct gguf_writer **w, const struct gguf *g, uint32_t no, uint32_t count, skua_error *err)
{
    uint16_t no16 = (uint16_t)no, count16 = (uint16_t)count;
    int32_t total = (int32_t)gguf_tensor_count(g);
    int rc = gguf_writer_new(w, no ? GGUF_DEFAULT_ALIGNMENT : gguf_alignment(g, 0), err);
    if (!rc && no == 0)
        rc = gguf_writer_copy_keys(*w, g, NULL, NULL, err);
    if (!rc)
        rc = gguf_writer_add_scalar(*w, "split.no", GGUF_U16, &no16, err);
    if (!rc)
        rc = gguf_writer_add_scalar(*w, "split.count", GGUF_U16, &count16, err);
    if (!rc)
        rc = gguf_writer_add_scalar(*w, "split.tensors.count", GGUF_I32, &total, err);
    return rc;
}

/* Bytes of the keys of the first and of any other shard, with the file's header. */
static int key_bytes(const struct gguf *g, uint64_t bytes[2], skua_error *err)
{
    int rc = 0;
    for (uint32_t no = 0; no < 2 && !rc; no++) {
        struct gguf_writer *w = NULL;
        rc = shard_writer(&w, g, no, 2, err);
        bytes[no] = w ? gguf_writer_file_bytes(w) : 0;
        gguf_writer_free(w);
    }
    return rc;
}

static uint64_t info_bytes(const struct gguf_tensor *t)
{
    uint32_t n_dims = GGUF_MAX_DIMS;
    while (n_dims > 1 && t->ne[n_dims - 1] == 1)
        n_dims--;
    return 8 + t->name_len + 4 + 8 * n_dims + 4 + 8;
}

static uint64_t aligned(uint64_t n, uint64_t alignment) { return (n + alignment - 1) / alignment * alignment; }

static int add_part(struct shard_plan *plan, uint32_t begin, skua_error *err)
{
    if (plan->n == GGUF_MAX_SHARDS)
        return error_set(err, SKUA_ELIMIT, "more than %u shards, the limit: expected larger ones", GGUF_MAX_SHARDS);
    plan->parts[plan->n++] = (struct shard_part){.begin = begin, .end = begin};
    return 0;
}

int shards_plan(const struct gguf *g, struct shard_limits limits, struct shard_plan *plan, skua_error *err)
{
    uint64_t keys[2], meta = 0, data = 0;
    *plan = (struct shard_plan){0};
    int rc = key_bytes(g, keys, err);
    if (rc)
        return rc;
    plan->parts = mem_calloc(GGUF_MAX_SHARDS, sizeof *plan->parts);
    if (!plan->parts)
        return error_nomem(err, "shards", GGUF_MAX_SHARDS * sizeof *plan->parts);
    rc = add_part(plan, 0, err);
    meta = keys[0];
    plan->parts[0].bytes = meta;
    for (uint32_t i = 0; i < gguf_tensor_count(g) && !rc; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        struct shard_part *part = &plan->parts[plan->n - 1];
        uint64_t alignment = plan->n == 1 ? gguf_alignment(g, 0) : GGUF_DEFAULT_ALIGNMENT;
        uint64_t bytes = aligned(meta + info_bytes(t), alignment) + data + aligned(t->size_bytes, alignment);
        bool full = (limits.max_tensors && part->end - part->begin == limits.max_tensors) || (limits.max_bytes && bytes > limits.max_bytes);
        if (full && (part->end > part->begin || plan->n == 1)) { /* the first one may do without tensors */
            rc = add_part(plan, i, err);
            meta = keys[1];
            data = 0;
            if (rc)
                break;
            part = &plan->parts[plan->n - 1];
            alignment = GGUF_DEFAULT_ALIGNMENT;
        }
        meta += info_bytes(t);
        data += aligned(t->size_bytes, alignment);
        part->bytes = aligned(meta, alignment) + data;
        part->end = i + 1;
    }
    if (rc)
        shards_plan_free(plan);
    return rc;
}

void shards_plan_free(struct shard_plan *plan)
{
    mem_free(plan->parts);
    *plan = (struct shard_plan){0};
}

char *shards_path(const char *prefix, uint32_t no, uint32_t count)
{
    size_t n = strlen(prefix) + 32;
    char *path = mem_alloc(n);
    if (path)
        snprintf(path, n, "%s-%05" PRIu32 "-of-%05" PRIu32 ".gguf", prefix, no + 1, count);
    return path;
}

/* ---- writing ---- */

static uint64_t data_bytes(const struct gguf *g)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < gguf_tensor_count(g); i++)
        n += gguf_tensor_at(g, i)->size_bytes;
    return n;
}

/* Tensors [begin, end) behind the keys that w has, to path. */
static int write_part(struct gguf_writer *w, const struct gguf *g, uint32_t begin, uint32_t end, const char *path, struct stream *s,
                      skua_error *err)
{
    int rc = 0;
    for (uint32_t i = begin; i < end && !rc; i++)
        rc = stream_declare(w, gguf_tensor_at(g, i), err);
    if (!rc)
        rc = gguf_writer_begin(w, path, err);
    for (uint32_t i = begin; i < end && !rc; i++)
        rc = stream_copy(w, gguf_tensor_at(g, i), s, path, err);
    if (!rc && stream_stopped(s))
        rc = stream_canceled(path, err);
    return rc ? rc : gguf_writer_finish(w, err);
}

int shards_merge(const struct gguf *g, const char *path, struct stream *s, skua_error *err)
{
    struct gguf_writer *w = NULL;
    s->done = 0;
    s->total = data_bytes(g);
    int rc = stream_check_output(g, path, err);
    if (!rc)
        rc = gguf_writer_new(&w, gguf_alignment(g, 0), err);
    if (!rc)
        rc = gguf_writer_copy_keys(w, g, NULL, NULL, err);
    if (!rc)
        rc = write_part(w, g, 0, gguf_tensor_count(g), path, s, err);
    gguf_writer_free(w);
    return rc;
}

static int split_one(const struct gguf *g, const struct shard_plan *plan, uint32_t no, const char *path, struct stream *s, skua_error *err)
{
    struct gguf_writer *w = NULL;
    int rc = shard_writer(&w, g, no, plan->n, err);
    if (!rc)
        rc = write_part(w, g, plan->parts[no].begin, plan->parts[no].end, path, s, err);
    gguf_writer_free(w);
    return rc;
}

static int check_absent(char *const *paths, uint32_t n, skua_error *err)
{
    for (uint32_t no = 0; no < n; no++)
        if (access(paths[no], F_OK) == 0)
            return error_set(err, SKUA_EARG, "%s: is there already; expected a prefix without shards of that number", paths[no]);
    return 0;
}

int shards_split(const struct gguf *g, const struct shard_plan *plan, const char *prefix, struct stream *s, skua_error *err)
{
    uint32_t written = 0;
    int rc = 0;
    s->done = 0;
    s->total = data_bytes(g);
    char **paths = mem_calloc(plan->n, sizeof *paths);
    for (uint32_t no = 0; no < plan->n && !rc; no++)
        if (!paths || !(paths[no] = shards_path(prefix, no, plan->n)))
            rc = error_nomem(err, "names of shards", strlen(prefix));
    if (!rc)
        rc = check_absent(paths, plan->n, err);
    for (; written < plan->n && !rc; written += !rc)
        rc = split_one(g, plan, written, paths[written], s, err);
    for (uint32_t no = 0; no < written && rc; no++)
        unlink(paths[no]);
    for (uint32_t no = 0; no < plan->n && paths; no++)
        mem_free(paths[no]);
    mem_free(paths);
    return rc;
}
