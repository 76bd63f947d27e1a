/* Reading importance matrices; see imatrix.h. An entry's name, weights and counts are blocks of our own, each no larger than a small
 * multiple of the bytes that the file spends on them; sums are views into the file. */
#include "convert/imatrix.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/file.h"
#include "base/hashmap.h"
#include "base/mem.h"
#include "gguf/gguf.h"

#define MAX_ENTRIES (1u << 20)      /* of the older format */
#define MAX_LEGACY_NAME 4096
#define LEGACY_MIN_ENTRY_BYTES 17u  /* lengths, a name of one byte, one value */

#define SUMS_SUFFIX ".in_sum2"
#define COUNTS_SUFFIX ".counts"

struct imatrix {
    struct file_map map; /* zeroed when the memory is the caller's */
    struct gguf *gguf;   /* NULL for the older format */
    struct imatrix_entry *entries;
    uint32_t n_entries;
    struct hashmap by_name;
    uint32_t chunks, chunk_size;
    uint64_t tokens_hash;
    char *dataset;
};

/* ---- entries ---- */

/* A new entry with its own blocks for name, weights and counts, known by its name. */
static int add_entry(struct imatrix *m, const char *name, size_t len, int64_t columns, int64_t matrices, const char *label,
                     float **weights, double **counts, skua_error *err)
{
    struct imatrix_entry *e = &m->entries[m->n_entries];
    char *copy = mem_strndup(name, len);
    *weights = mem_realloc_array(NULL, (size_t)columns * (size_t)matrices, sizeof **weights);
    *counts = mem_realloc_array(NULL, (size_t)matrices, sizeof **counts);
    *e = (struct imatrix_entry){.name = copy, .columns = columns, .matrices = matrices, .weights = *weights, .counts = *counts};
    m->n_entries++; /* from here on imatrix_free finds what there is */
    if (!copy || !*weights || !*counts)
        return error_nomem(err, label, (size_t)columns * (size_t)matrices * sizeof **weights);
    int rc = hashmap_put(&m->by_name, copy, len, m->n_entries - 1);
    if (rc < 0)
        return error_nomem(err, label, len);
    return rc ? error_set(err, SKUA_EFORMAT, "%s: entry '%s' is there twice", label, copy) : 0;
}

static int allocate_entries(struct imatrix *m, uint32_t n, const char *label, skua_error *err)
{
    m->entries = mem_calloc(n, sizeof *m->entries);
    if (!m->entries || hashmap_init(&m->by_name, n))
        return error_nomem(err, label, n * sizeof *m->entries);
    return 0;
}

static int bad_value(const char *label, const char *name, const char *part, int64_t matrix, int64_t column, double v, skua_error *err)
{
    return error_set(err, SKUA_EFORMAT, "%s: entry '%s': %s of column %lld, matrix %lld, is %g, expected a finite number from 0 up", label,
                     name, part, (long long)column, (long long)matrix, v);
}

static bool is_weight(double v) { return v >= 0 && v <= (double)FLT_MAX; }

/* ---- the older format ---- */

struct reader {
    const uint8_t *p;
    size_t left; /* bytes */
};

static bool take_i32(struct reader *r, int32_t *v)
{
    if (r->left < sizeof *v)
        return false;
    memcpy(v, r->p, sizeof *v);
    r->p += sizeof *v;
    r->left -= sizeof *v;
    return true;
}

static int cut(const char *label, uint32_t i, uint32_t n, const char *what, skua_error *err)
{
    return error_set(err, SKUA_EFORMAT, "%s: the file ends in %s of entry %u of %u", label, what, i + 1, n);
}

static int legacy_values(struct imatrix *m, struct reader *r, const char *name, size_t len, int32_t n_calls, int32_t n_values,
                         const char *label, skua_error *err)
{
    float *weights;
    double *counts;
    int rc = add_entry(m, name, len, n_values, 1, label, &weights, &counts, err);
    if (rc)
        return rc;
    memcpy(weights, r->p, (size_t)n_values * sizeof *weights);
    counts[0] = n_calls > 0 ? n_calls : 0;
    for (int32_t i = 0; i < n_values; i++) {
        if (!is_weight(weights[i]))
            return bad_value(label, m->entries[m->n_entries - 1].name, "the value", 0, i, weights[i], err);
        if (n_calls > 0)
            weights[i] = weights[i] / (float)n_calls;
    }
    r->p += (size_t)n_values * sizeof *weights;
    r->left -= (size_t)n_values * sizeof *weights;
    return 0;
}

static int legacy_entry(struct imatrix *m, struct reader *r, uint32_t i, uint32_t n, const char *label, skua_error *err)
{
    int32_t name_len, n_calls, n_values;
    if (!take_i32(r, &name_len))
        return cut(label, i, n, "the name", err);
    if (name_len < 1 || name_len > MAX_LEGACY_NAME)
        return error_set(err, SKUA_EFORMAT, "%s: entry %u of %u has a name of %d bytes, expected 1 to %d", label, i + 1, n, name_len,
                         MAX_LEGACY_NAME);
    if (r->left < (size_t)name_len)
        return cut(label, i, n, "the name", err);
    const char *name = (const char *)r->p;
    if (memchr(name, 0, (size_t)name_len))
        return error_set(err, SKUA_EFORMAT, "%s: entry %u of %u has a zero byte in its name", label, i + 1, n);
    r->p += name_len;
    r->left -= (size_t)name_len;
    if (!take_i32(r, &n_calls) || !take_i32(r, &n_values))
        return cut(label, i, n, "the counts", err);
    if (n_values < 1)
        return error_set(err, SKUA_EFORMAT, "%s: entry '%.*s' has %d values, expected at least 1", label, (int)name_len, name, n_values);
    if ((size_t)n_values > r->left / sizeof(float))
        return error_set(err, SKUA_EFORMAT, "%s: entry '%.*s' has %d values of 4 bytes, but %zu bytes are left in the file", label,
                         (int)name_len, name, n_values, r->left);
    return legacy_values(m, r, name, (size_t)name_len, n_calls, n_values, label, err);
}

/* Where the data came from. Writers differ in how much of this they write, so a cut tail is none. */
static int legacy_tail(struct imatrix *m, struct reader *r, const char *label, skua_error *err)
{
    int32_t chunks, len;
    if (take_i32(r, &chunks) && chunks > 0)
        m->chunks = (uint32_t)chunks;
    if (!take_i32(r, &len) || len < 1 || (size_t)len > r->left)
        return 0;
    m->dataset = mem_strndup((const char *)r->p, (size_t)len);
    return m->dataset ? 0 : error_nomem(err, label, (size_t)len);
}

static int parse_legacy(struct imatrix *m, const uint8_t *data, size_t size, const char *label, skua_error *err)
{
    struct reader r = {data, size};
    int32_t n;
    if (!take_i32(&r, &n))
        return error_set(err, SKUA_EFORMAT, "%s: is no importance matrix: %zu bytes", label, size);
    if (n < 1 || n > (int32_t)MAX_ENTRIES || (size_t)n > r.left / LEGACY_MIN_ENTRY_BYTES)
        return error_set(err, SKUA_EFORMAT, "%s: is no importance matrix: neither GGUF nor a plausible number of entries (%d in %zu bytes)",
                         label, n, size);
    int rc = allocate_entries(m, (uint32_t)n, label, err);
    for (uint32_t i = 0; i < (uint32_t)n && !rc; i++)
        rc = legacy_entry(m, &r, i, (uint32_t)n, label, err);
    return rc ? rc : legacy_tail(m, &r, label, err);
}

/* ---- GGUF ---- */

static bool ends_with(const struct gguf_tensor *t, const char *suffix)
{
    size_t n = strlen(suffix);
    return t->name_len > n && memcmp(t->name + t->name_len - n, suffix, n) == 0;
}

/* The tensor NAME + suffix; NULL when there is none. */
static const struct gguf_tensor *partner(const struct gguf *g, const char *name, size_t len, const char *suffix)
{
    char whole[GGUF_MAX_NAME_BYTES + 16];
    memcpy(whole, name, len);
    strcpy(whole + len, suffix);
    return gguf_find_tensor(g, whole);
}

static int check_floats(const struct gguf_tensor *t, const char *label, skua_error *err)
{
    if (t->type != QTYPE_F32)
        return error_set(err, SKUA_EFORMAT, "%s: tensor '%.*s' has type %s, expected F32", label, t->name_len, t->name,
                         qtype_info(t->type)->name);
    return 0;
}

static int check_pair(const struct gguf_tensor *sums, const struct gguf_tensor *counts, const char *label, skua_error *err)
{
    int rc = check_floats(sums, label, err);
    if (!rc)
        rc = check_floats(counts, label, err);
    if (rc)
        return rc;
    if (sums->ne[2] != 1 || sums->ne[3] != 1)
        return error_set(err, SKUA_EFORMAT, "%s: tensor '%.*s' has more than two dimensions", label, sums->name_len, sums->name);
    if (counts->ne[0] != 1 || (counts->ne[1] != 1 && counts->ne[1] != sums->ne[1]) || counts->ne[2] != 1 || counts->ne[3] != 1)
        return error_set(err, SKUA_EFORMAT, "%s: tensor '%.*s' has shape [%llu, %llu, %llu, %llu], expected [1, %llu, 1, 1]", label,
                         counts->name_len, counts->name, (unsigned long long)counts->ne[0], (unsigned long long)counts->ne[1],
                         (unsigned long long)counts->ne[2], (unsigned long long)counts->ne[3], (unsigned long long)sums->ne[1]);
    return 0;
}

/* Row e of weights = sums / count; 1 where nothing was seen. */
static int divide_row(const struct imatrix_entry *entry, int64_t e, float *weights, const char *label, skua_error *err)
{
    const float *sums = entry->sums + e * entry->columns;
    double count = entry->counts[e];
    if (!is_weight(count))
        return error_set(err, SKUA_EFORMAT, "%s: entry '%s': the count of matrix %lld is %g, expected a finite number from 0 up", label,
                         entry->name, (long long)e, count);
    for (int64_t c = 0; c < entry->columns; c++) {
        if (!is_weight(sums[c]))
            return bad_value(label, entry->name, "the sum", e, c, sums[c], err);
        double w = count > 0 ? sums[c] / count : 1;
        if (!is_weight(w))
            return bad_value(label, entry->name, "the mean", e, c, w, err);
        weights[c] = (float)w;
    }
    return 0;
}

static int gguf_entry_of(struct imatrix *m, const struct gguf_tensor *t, const char *label, skua_error *err)
{
    size_t len = t->name_len - strlen(SUMS_SUFFIX);
    const struct gguf_tensor *counts = partner(m->gguf, t->name, len, COUNTS_SUFFIX);
    if (!counts)
        return error_set(err, SKUA_EFORMAT, "%s: tensor '%.*s' without '%.*s%s'", label, t->name_len, t->name, (int)len, t->name,
                         COUNTS_SUFFIX);
    float *weights;
    double *numbers;
    int rc = check_pair(t, counts, label, err);
    if (!rc)
        rc = add_entry(m, t->name, len, (int64_t)t->ne[0], (int64_t)t->ne[1], label, &weights, &numbers, err);
    if (rc)
        return rc;
    struct imatrix_entry *entry = &m->entries[m->n_entries - 1];
    entry->sums = (const float *)(const void *)t->data; /* tensor data is aligned (gguf.h) */
    for (int64_t e = 0; e < entry->matrices && !rc; e++) {
        float count;
        memcpy(&count, counts->data + (counts->ne[1] == 1 ? 0 : (size_t)e * sizeof count), sizeof count);
        numbers[e] = count;
        rc = divide_row(entry, e, weights + e * entry->columns, label, err);
    }
    return rc;
}

static int gguf_provenance(struct imatrix *m, skua_error *err)
{
    struct gguf_array a;
    struct gguf_string s;
    size_t offset = 0;
    int rc = gguf_get_u32(m->gguf, "imatrix.chunk_count", &m->chunks, err);
    if (rc >= 0)
        rc = gguf_get_u32(m->gguf, "imatrix.chunk_size", &m->chunk_size, err);
    if (rc >= 0)
        rc = gguf_get_u64(m->gguf, "skua.imatrix.tokens_hash", &m->tokens_hash, err);
    if (rc >= 0)
        rc = gguf_get_array(m->gguf, "imatrix.datasets", GGUF_STRINGS, &a, err);
    if (rc <= 0 || !gguf_array_next_string(&a, &offset, &s))
        return rc < 0 ? rc : 0;
    m->dataset = mem_strndup(s.data, s.len);
    return m->dataset ? 0 : error_nomem(err, "data set name", s.len);
}

static int check_kind(const struct gguf *g, const char *label, skua_error *err)
{
    struct gguf_string type = {"", 0};
    uint32_t n_split = 0;
    int rc = gguf_get_string(g, "general.type", &type, err);
    if (rc >= 0)
        rc = gguf_get_u32(g, "split.count", &n_split, err);
    if (rc < 0)
        return rc;
    if (type.len != 7 || memcmp(type.data, "imatrix", 7) != 0)
        return error_set(err, SKUA_EFORMAT, "%s: is no importance matrix: general.type is '%.*s', expected 'imatrix'", label,
                         (int)(type.len < 64 ? type.len : 64), type.data);
    if (n_split > 1)
        return error_set(err, SKUA_EUNSUPPORTED, "%s: is one of %u parts of an importance matrix; expected all of it in one file", label,
                         n_split);
    return 0;
}

static int parse_gguf(struct imatrix *m, const uint8_t *data, size_t size, const char *label, skua_error *err)
{
    int rc = gguf_parse_memory(&m->gguf, data, size, label, NULL, err);
    if (rc)
        return rc;
    rc = check_kind(m->gguf, label, err);
    if (rc)
        return rc;
    uint32_t n = 0, n_tensors = gguf_tensor_count(m->gguf);
    for (uint32_t i = 0; i < n_tensors; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->gguf, i);
        n += ends_with(t, SUMS_SUFFIX);
        if (ends_with(t, COUNTS_SUFFIX) && !partner(m->gguf, t->name, t->name_len - strlen(COUNTS_SUFFIX), SUMS_SUFFIX))
            return error_set(err, SKUA_EFORMAT, "%s: tensor '%.*s' without its '%s'", label, t->name_len, t->name, SUMS_SUFFIX);
    }
    if (!n)
        return error_set(err, SKUA_EFORMAT, "%s: has no entries: no tensor's name ends in '%s'", label, SUMS_SUFFIX);
    rc = allocate_entries(m, n, label, err);
    for (uint32_t i = 0; i < n_tensors && !rc; i++)
        if (ends_with(gguf_tensor_at(m->gguf, i), SUMS_SUFFIX))
            rc = gguf_entry_of(m, gguf_tensor_at(m->gguf, i), label, err);
    return rc ? rc : gguf_provenance(m, err);
}

/* ---- opening ---- */

/* The map, if any, becomes the file's. */
static int parse(struct imatrix **out, struct file_map map, const uint8_t *data, size_t size, const char *label, skua_error *err)
{
    struct imatrix *m = mem_calloc(1, sizeof *m);
    *out = NULL;
    if (!m) {
        file_map_close(&map);
        return error_nomem(err, label, sizeof *m);
    }
    m->map = map;
    bool is_gguf = size >= 4 && memcmp(data, "GGUF", 4) == 0;
    int rc = is_gguf ? parse_gguf(m, data, size, label, err) : parse_legacy(m, data, size, label, err);
    if (rc) {
        if (err && error_without_path(err->message, label) == err->message) /* of gguf.h's getters, which name the key alone */
            error_prefix(err, "%s", label);
        imatrix_free(m);
        return rc;
    }
    *out = m;
    return 0;
}

int imatrix_parse_memory(struct imatrix **out, const uint8_t *data, size_t size, const char *label, skua_error *err)
{
    return parse(out, (struct file_map){0}, data, size, label, err);
}

int imatrix_open(struct imatrix **out, const char *path, skua_error *err)
{
    struct file_map map;
    *out = NULL;
    int rc = file_map_open(&map, path, err);
    return rc ? rc : parse(out, map, map.data, map.size, path, err);
}

void imatrix_free(struct imatrix *m)
{
    if (!m)
        return;
    for (uint32_t i = 0; i < m->n_entries; i++) {
        mem_free((void *)(uintptr_t)m->entries[i].name);
        mem_free((void *)(uintptr_t)m->entries[i].weights);
        mem_free((void *)(uintptr_t)m->entries[i].counts);
    }
    mem_free(m->entries);
    hashmap_free(&m->by_name);
    mem_free(m->dataset);
    gguf_close(m->gguf);
    file_map_close(&m->map);
    mem_free(m);
}

/* ---- use ---- */

const struct imatrix_entry *imatrix_find(const struct imatrix *m, const char *name, size_t len)
{
    uint32_t i;
    return hashmap_get(&m->by_name, name, len, &i) ? &m->entries[i] : NULL;
}

uint32_t imatrix_count(const struct imatrix *m) { return m->n_entries; }

const struct imatrix_entry *imatrix_at(const struct imatrix *m, uint32_t i) { return i < m->n_entries ? &m->entries[i] : NULL; }

int imatrix_weights(const struct imatrix *m, const char *name, size_t len, int64_t columns, int64_t matrices, const float **weights,
                    skua_error *err)
{
    const struct imatrix_entry *e = imatrix_find(m, name, len);
    *weights = NULL;
    if (!e)
        return 0;
    bool fits = e->sums ? e->columns == columns && e->matrices == matrices : e->columns == columns * matrices;
    if (!fits)
        return error_set(err, SKUA_EFORMAT, "importance matrix entry '%s' has %lld columns and %lld matrices, the tensor has %lld and %lld",
                         e->name, (long long)e->columns, (long long)e->matrices, (long long)columns, (long long)matrices);
    *weights = e->weights;
    return 0;
}

uint32_t imatrix_chunks(const struct imatrix *m) { return m->chunks; }

uint32_t imatrix_chunk_size(const struct imatrix *m) { return m->chunk_size; }

const char *imatrix_dataset(const struct imatrix *m) { return m->dataset ? m->dataset : ""; }

uint64_t imatrix_tokens_hash(const struct imatrix *m) { return m->tokens_hash; }
