/* Opening files, and joining the shards of a split model.
 *
 * A set is PREFIX-00001-of-NNNNN.gguf and its siblings. Each shard is a complete container with its own alignment and data
 * section; shard 1 holds all keys. Names of siblings are built from the name of the file that was opened and from nothing
 * that is written in it. The keys: split.no (from 0), split.count, split.tensors.count (in all shards).
 */
#include <stdio.h>

#include "base/mem.h"
#include "gguf/gguf_internal.h"

/* The part of a shard's name that varies: "-00001-of-00003.gguf". */
#define SUFFIX_BYTES 20

/* All of the state of one open. */
struct opening {
    struct gguf *g;
    const char *path;
    enum gguf_class *class;
    skua_error *err;
    uint32_t count;        /* of shards */
    uint32_t total;        /* of tensors in all shards, as the first one says */
    size_t prefix_len;     /* of path, in front of the suffix */
    char *sibling;         /* buffer for a path of the same length as path */
};

static int split_error(struct opening *o, const char *label, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static int split_error(struct opening *o, const char *label, const char *fmt, ...)
{
    char detail[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(detail, sizeof detail, fmt, ap);
    va_end(ap);
    *o->class = GGUF_E_SPLIT;
    return error_set(o->err, SKUA_EFORMAT, "%s: E_SPLIT: %s", gguf_path_tail(label), detail);
}

/* Map and parse one file into the zeroed *g. A failure to map leaves the class alone. */
static int open_one(struct gguf *g, const char *path, uint16_t shard_no, enum gguf_class *class, skua_error *err)
{
    struct file_map map;
    int rc = file_map_open(&map, path, err);
    if (rc)
        return rc;
    rc = gguf_parse(g, map.data, map.size, shard_no, path, class, err);
    if (rc) {
        file_map_close(&map);
        return rc;
    }
    g->shards[0].map = map; /* from here on gguf_release unmaps it */
    g->shards[0].path = mem_strdup(path);
    if (!g->shards[0].path) {
        gguf_release(g);
        return error_nomem(err, path, strlen(path) + 1);
    }
    return 0;
}

/* A split key of a shard: required, an integer of at most max. */
static int split_key(struct opening *o, const struct gguf *g, const char *key, uint32_t max, uint32_t *v)
{
    const char *path = g->shards[0].path;
    int rc = gguf_get_u32(g, key, v, NULL);
    if (rc == 0)
        return split_error(o, path, "key '%s' is missing", key);
    if (rc < 0)
        return split_error(o, path, "key '%s' is not a non-negative integer", key);
    if (*v > max)
        return split_error(o, path, "key '%s' is %u, the limit is %u", key, *v, max);
    return 0;
}

static void shard_suffix(char out[SUFFIX_BYTES + 1], uint32_t number, uint32_t count)
{
    /* both are at most 1024, so five digits hold them */
    snprintf(out, SUFFIX_BYTES + 1, "-%05u-of-%05u.gguf", number % 100000u, count % 100000u);
}

/* Check that the opened file is the first of its set and is named like it; prepares the sibling path. */
static int check_first(struct opening *o)
{
    uint32_t no;
    char suffix[SUFFIX_BYTES + 1], own[SUFFIX_BYTES + 1];
    int rc = split_key(o, o->g, "split.no", UINT32_MAX, &no);
    if (rc)
        return rc;
    if (no >= o->count)
        return split_error(o, o->path, "split.no is %u, but the set has %u shards", no, o->count);
    size_t len = strlen(o->path);
    const char *base = strrchr(o->path, '/');
    base = base ? base + 1 : o->path;
    size_t base_len = strlen(base);
    const char *tail = base_len > SUFFIX_BYTES ? o->path + len - SUFFIX_BYTES : "";
    shard_suffix(suffix, 1, o->count);
    shard_suffix(own, no + 1, o->count);
    if (no != 0 && strcmp(tail, own) == 0)
        return split_error(o, o->path, "this is shard %u of %u; open the first one, '%.*s%s'", no + 1, o->count,
                           (int)(base_len - SUFFIX_BYTES < 150 ? base_len - SUFFIX_BYTES : 150), base, suffix);
    if (no != 0)
        return split_error(o, o->path, "this is shard %u of %u; open the first one, whose name ends in '%s'", no + 1, o->count,
                           suffix);
    if (strcmp(tail, suffix) != 0)
        return split_error(o, o->path, "invalid split file name: the first of %u shards must be named PREFIX%s", o->count,
                           suffix);
    o->prefix_len = len - SUFFIX_BYTES;
    o->sibling = mem_strdup(o->path);
    return o->sibling ? 0 : error_nomem(o->err, "shard path", len + 1);
}

/* Take over the tensors and the shard record of *part (whose keys are dropped). */
static int join(struct opening *o, struct gguf *part)
{
    struct gguf *g = o->g;
    if (part->n_tensors > o->total - g->n_tensors)
        return split_error(o, part->shards[0].path, "%u tensors here and %u before, but split.tensors.count is %u",
                           part->n_tensors, g->n_tensors, o->total);
    size_t n = (size_t)g->n_tensors + part->n_tensors;
    struct gguf_tensor *tensors = mem_realloc_array(g->tensors, n, sizeof *tensors);
    if (!tensors)
        return error_nomem(o->err, "tensor table", n * sizeof *tensors);
    g->tensors = tensors;
    for (uint32_t i = 0; i < part->n_tensors; i++) {
        uint32_t to = g->n_tensors + i;
        tensors[to] = part->tensors[i];
        int rc = gguf_index_put(&g->tensor_index, to, gguf_tensor_name, tensors);
        if (rc < 0)
            return error_nomem(o->err, "tensor index", 0);
        if (rc) {
            *o->class = GGUF_E_DUP_TENSOR;
            return error_set(o->err, SKUA_EFORMAT, "%s: E_DUP_TENSOR: tensor '%s' is in an earlier shard too",
                             gguf_path_tail(part->shards[0].path), gguf_quote(tensors[to].name, tensors[to].name_len).text);
        }
    }
    g->n_tensors = (uint32_t)n;
    g->shards[g->n_shards++] = part->shards[0];
    part->n_shards = 0; /* moved */
    return 0;
}

/* Open sibling number `no` (from 0) and add it. */
static int add_shard(struct opening *o, uint32_t no)
{
    struct gguf part = {0};
    uint32_t v;
    shard_suffix(o->sibling + o->prefix_len, no + 1, o->count);
    int rc = open_one(&part, o->sibling, (uint16_t)no, o->class, o->err);
    if (rc == SKUA_EIO) {
        *o->class = GGUF_E_SPLIT;
        error_prefix(o->err, "E_SPLIT: shard %u of %u", no + 1, o->count);
    }
    if (rc)
        return rc;
    rc = split_key(o, &part, "split.no", UINT32_MAX, &v);
    if (!rc && v != no)
        rc = split_error(o, o->sibling, "split.no is %u, expected %u", v, no);
    if (!rc)
        rc = split_key(o, &part, "split.count", UINT32_MAX, &v);
    if (!rc && v != o->count)
        rc = split_error(o, o->sibling, "split.count is %u, the first shard has %u", v, o->count);
    if (!rc) {
        struct gguf_value ignored;
        if (gguf_find_key(&part, "split.tensors.count", &ignored))
            rc = split_key(o, &part, "split.tensors.count", UINT32_MAX, &v);
        else
            v = o->total;
    }
    if (!rc && v != o->total)
        rc = split_error(o, o->sibling, "split.tensors.count is %u, the first shard has %u", v, o->total);
    if (!rc)
        rc = join(o, &part);
    gguf_release(&part);
    return rc;
}

static int open_set(struct opening *o)
{
    int rc = check_first(o);
    if (!rc)
        rc = split_key(o, o->g, "split.tensors.count", GGUF_MAX_TENSORS, &o->total);
    if (!rc && o->g->n_tensors > o->total)
        rc = split_error(o, o->path, "%u tensors in the first shard, but split.tensors.count is %u", o->g->n_tensors, o->total);
    if (rc)
        return rc;
    struct gguf_shard *shards = mem_realloc_array(o->g->shards, o->count, sizeof *shards);
    if (!shards)
        return error_nomem(o->err, "shards", o->count * sizeof *shards);
    o->g->shards = shards;
    for (uint32_t no = 1; no < o->count && !rc; no++)
        rc = add_shard(o, no);
    if (!rc && o->g->n_tensors != o->total)
        rc = split_error(o, o->path, "the %u shards hold %u tensors, but split.tensors.count is %u", o->count, o->g->n_tensors,
                         o->total);
    return rc;
}

static int open_classified(struct gguf **out, const char *path, enum gguf_class *class, skua_error *err)
{
    struct opening o = {.path = path, .class = class, .err = err};
    *class = GGUF_OK;
    *out = NULL;
    o.g = mem_calloc(1, sizeof *o.g);
    if (!o.g)
        return error_nomem(err, path, sizeof *o.g);
    int rc = open_one(o.g, path, 0, class, err);
    struct gguf_value split;
    if (!rc && gguf_find_key(o.g, "split.count", &split)) {
        rc = split_key(&o, o.g, "split.count", GGUF_MAX_SHARDS, &o.count);
        if (!rc && o.count > 1)
            rc = open_set(&o);
    }
    mem_free(o.sibling);
    if (rc) {
        gguf_close(o.g);
        return rc;
    }
    *out = o.g;
    return 0;
}

int gguf_open(struct gguf **out, const char *path, skua_error *err)
{
    enum gguf_class class;
    return open_classified(out, path, &class, err);
}

int gguf_check(const char *path, enum gguf_class *class, skua_error *err)
{
    struct gguf *g;
    int rc = open_classified(&g, path, class, err);
    gguf_close(g);
    return rc;
}
