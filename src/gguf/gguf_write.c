/* GGUF writer; see gguf_write.h. Keys and tensor infos are kept in their encoded form, the form in which they go to the
 * file; three buffers give the order: architecture, alignment, the rest.
 */
#include "gguf/gguf_write.h"

#include "base/mem.h"
#include "base/strbuf.h"
#include "gguf/gguf_internal.h"

#define ARCHITECTURE_KEY "general.architecture"
#define ALIGNMENT_KEY "general.alignment"
#define HEADER_BYTES 24u

struct writer_tensor {
    char name[GGUF_MAX_NAME_BYTES + 1];
    uint64_t size; /* bytes, without padding */
};

/* Names of keys, for the index: where they lie in `names`. */
struct writer_key {
    size_t at, len;
};

struct gguf_writer {
    uint32_t alignment;
    uint32_t n_keys, n_tensors;        /* n_keys without the alignment key */
    struct strbuf first, rest, infos;  /* encoded: general.architecture, all other keys, tensor infos */
    struct strbuf names, scratch;
    struct writer_key *keys;
    struct writer_tensor *tensors;
    size_t keys_cap, tensors_cap;
    struct gguf_index key_index, tensor_index;
    uint64_t data_bytes;               /* declared so far, padded */
    bool alignment_copied;             /* general.alignment is among the rest */
    /* writing */
    bool begun;
    struct file_writer file;
    uint32_t current;                  /* tensor that takes data next */
    uint64_t current_bytes;            /* of it, written */
};

static struct gguf_string key_name(const void *context, uint32_t record)
{
    const struct gguf_writer *w = context;
    return (struct gguf_string){w->names.data + w->keys[record].at, w->keys[record].len};
}

static struct gguf_string tensor_name(const void *context, uint32_t record)
{
    const struct gguf_writer *w = context;
    return (struct gguf_string){w->tensors[record].name, strlen(w->tensors[record].name)};
}

static uint64_t padding(const struct gguf_writer *w, uint64_t n) { return (w->alignment - n % w->alignment) % w->alignment; }

int gguf_writer_new(struct gguf_writer **out, uint32_t alignment, skua_error *err)
{
    *out = NULL;
    if (alignment < GGUF_MIN_ALIGNMENT || alignment > GGUF_MAX_ALIGNMENT || (alignment & (alignment - 1)))
        return error_set(err, SKUA_EARG, "alignment %u: must be a power of two from %u to %u", alignment, GGUF_MIN_ALIGNMENT,
                         GGUF_MAX_ALIGNMENT);
    struct gguf_writer *w = mem_calloc(1, sizeof *w);
    if (!w)
        return error_nomem(err, "GGUF writer", sizeof *w);
    w->alignment = alignment;
    w->file.fd = -1;
    if (gguf_index_init(&w->key_index, 0) || gguf_index_init(&w->tensor_index, 0)) {
        gguf_writer_free(w);
        return error_nomem(err, "GGUF writer", 0);
    }
    *out = w;
    return 0;
}

void gguf_writer_free(struct gguf_writer *w)
{
    if (!w)
        return;
    file_writer_abort(&w->file);
    strbuf_free(&w->first);
    strbuf_free(&w->rest);
    strbuf_free(&w->infos);
    strbuf_free(&w->names);
    strbuf_free(&w->scratch);
    mem_free(w->keys);
    mem_free(w->tensors);
    gguf_index_free(&w->key_index);
    gguf_index_free(&w->tensor_index);
    mem_free(w);
}

/* ---- keys ---- */

/* Room for one more record; the buffers double. */
static bool reserve(void **records, size_t *cap, size_t used, size_t size)
{
    if (used < *cap)
        return true;
    size_t bigger = *cap ? *cap * 2 : 16;
    void *p = mem_realloc_array(*records, bigger, size);
    if (!p)
        return false;
    *records = p;
    *cap = bigger;
    return true;
}

static bool key_is(struct gguf_string key, const char *name)
{
    return key.len == strlen(name) && memcmp(key.data, name, key.len) == 0;
}

/* Add a key with its encoded value (type and payload, n bytes). 0, or an error with nothing changed. */
static int put_key(struct gguf_writer *w, struct gguf_string key, const void *value, size_t n, skua_error *err)
{
    struct gguf_quoted q = gguf_quote(key.data, key.len);
    struct strbuf *out = key_is(key, ARCHITECTURE_KEY) ? &w->first : &w->rest;
    size_t names_len = w->names.len;
    uint64_t len = key.len;
    if (w->begun)
        return error_set(err, SKUA_ESTATE, "key '%s' added after the header was written", q.text);
    if (w->n_keys >= GGUF_MAX_KEYS - 1) /* one is left for the alignment */
        return error_set(err, SKUA_ELIMIT, "key '%s' is one too many, the limit is %u", q.text, GGUF_MAX_KEYS);
    if (!strbuf_reserve(&w->names, key.len) || !strbuf_reserve(out, 8 + key.len + n)
        || !reserve((void **)&w->keys, &w->keys_cap, w->n_keys, sizeof *w->keys)) {
        w->names.failed = out->failed = false; /* the buffers are as they were */
        return error_nomem(err, q.text, key.len + n);
    }
    strbuf_append(&w->names, key.data, key.len);
    w->keys[w->n_keys] = (struct writer_key){names_len, key.len};
    int rc = gguf_index_put(&w->key_index, w->n_keys, key_name, w);
    if (rc) {
        w->names.len = names_len;
        return rc < 0 ? error_nomem(err, q.text, key.len) : error_set(err, SKUA_EARG, "key '%s' is added twice", q.text);
    }
    strbuf_append(out, &len, 8);
    strbuf_append(out, key.data, key.len);
    strbuf_append(out, value, n);
    w->n_keys++;
    return 0;
}

static int check_key(const char *key, skua_error *err)
{
    size_t len = strlen(key);
    size_t good = strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789_.-");
    if (len == 0 || len > GGUF_MAX_KEY_BYTES)
        return error_set(err, SKUA_EARG, "key of %zu bytes, must be 1 to %u", len, GGUF_MAX_KEY_BYTES);
    if (good < len)
        return error_set(err, SKUA_EARG, "key '%s': byte 0x%02x is not a lower-case letter, digit, '_', '.' or '-'",
                         gguf_quote(key, len).text, (unsigned char)key[good]);
    if (strcmp(key, ALIGNMENT_KEY) == 0)
        return error_set(err, SKUA_EARG, "key '%s' is written from the alignment given to gguf_writer_new", key);
    return 0;
}

/* Start the encoded value of a key in the scratch buffer. */
static int value_begin(struct gguf_writer *w, const char *key, enum gguf_type type, skua_error *err)
{
    uint32_t id = (uint32_t)type;
    strbuf_clear(&w->scratch);
    strbuf_append(&w->scratch, &id, 4);
    return check_key(key, err);
}

static int value_end(struct gguf_writer *w, const char *key, skua_error *err)
{
    if (strbuf_failed(&w->scratch))
        return error_nomem(err, key, w->scratch.len);
    return put_key(w, (struct gguf_string){key, strlen(key)}, w->scratch.data, w->scratch.len, err);
}

static void append_string(struct strbuf *b, const char *s, size_t n)
{
    uint64_t len = n;
    strbuf_append(b, &len, 8);
    strbuf_append(b, s, n);
}

static void append_array_header(struct strbuf *b, enum gguf_type type, size_t n)
{
    uint32_t id = (uint32_t)type;
    uint64_t count = n;
    strbuf_append(b, &id, 4);
    strbuf_append(b, &count, 8);
}

/* A fixed-size type, and bool bytes that are 0 or 1. */
static int check_scalars(const char *key, enum gguf_type type, const uint8_t *v, size_t count, skua_error *err)
{
    size_t size = gguf_type_size(type);
    if (size == 0 || type == GGUF_STRING)
        return error_set(err, SKUA_EARG, "key '%s': type %s is not a scalar", key, gguf_type_name(type));
    if (count > GGUF_MAX_COUNT)
        return error_set(err, SKUA_ELIMIT, "key '%s': %zu elements, the limit is %u", key, count, GGUF_MAX_COUNT);
    for (size_t i = 0; type == GGUF_BOOL && i < count; i++)
        if (v[i] > 1)
            return error_set(err, SKUA_EARG, "key '%s': bool of value %u", key, v[i]);
    return 0;
}

int gguf_writer_add_scalar(struct gguf_writer *w, const char *key, enum gguf_type type, const void *v, skua_error *err)
{
    int rc = value_begin(w, key, type, err);
    if (!rc)
        rc = check_scalars(key, type, v, 1, err);
    if (rc)
        return rc;
    strbuf_append(&w->scratch, v, gguf_type_size(type));
    return value_end(w, key, err);
}

int gguf_writer_add_u32(struct gguf_writer *w, const char *key, uint32_t v, skua_error *err)
{
    return gguf_writer_add_scalar(w, key, GGUF_U32, &v, err);
}

int gguf_writer_add_f32(struct gguf_writer *w, const char *key, float v, skua_error *err)
{
    return gguf_writer_add_scalar(w, key, GGUF_F32, &v, err);
}

int gguf_writer_add_bool(struct gguf_writer *w, const char *key, bool v, skua_error *err)
{
    uint8_t byte = v;
    return gguf_writer_add_scalar(w, key, GGUF_BOOL, &byte, err);
}

static int check_string(const char *key, size_t len, skua_error *err)
{
    if (len > GGUF_MAX_COUNT)
        return error_set(err, SKUA_ELIMIT, "key '%s': string of %zu bytes, the limit is %u", key, len, GGUF_MAX_COUNT);
    return 0;
}

int gguf_writer_add_string(struct gguf_writer *w, const char *key, const char *s, size_t len, skua_error *err)
{
    int rc = value_begin(w, key, GGUF_STRING, err);
    if (!rc)
        rc = check_string(key, len, err);
    if (rc)
        return rc;
    append_string(&w->scratch, s, len);
    return value_end(w, key, err);
}

int gguf_writer_add_array(struct gguf_writer *w, const char *key, enum gguf_type type, const void *items, size_t count,
                          skua_error *err)
{
    int rc = value_begin(w, key, GGUF_ARRAY, err);
    if (!rc)
        rc = check_scalars(key, type, items, count, err);
    if (rc)
        return rc;
    append_array_header(&w->scratch, type, count);
    strbuf_append(&w->scratch, items, count * gguf_type_size(type)); /* count <= 2^30: no overflow in 64 bits */
    return value_end(w, key, err);
}

int gguf_writer_add_strings(struct gguf_writer *w, const char *key, const struct gguf_string *items, size_t count,
                            skua_error *err)
{
    int rc = value_begin(w, key, GGUF_ARRAY, err);
    if (!rc && count > GGUF_MAX_COUNT)
        rc = error_set(err, SKUA_ELIMIT, "key '%s': %zu strings, the limit is %u", key, count, GGUF_MAX_COUNT);
    if (rc)
        return rc;
    append_array_header(&w->scratch, GGUF_STRING, count);
    for (size_t i = 0; i < count; i++) {
        rc = check_string(key, items[i].len, err);
        if (rc)
            return rc;
        append_string(&w->scratch, items[i].data, items[i].len);
    }
    return value_end(w, key, err);
}

int gguf_writer_copy_keys(struct gguf_writer *w, const struct gguf *from, gguf_skip_fn *skip, void *context, skua_error *err)
{
    for (uint32_t i = 0; i < from->n_keys; i++) {
        struct gguf_value v;
        uint32_t known;
        const uint8_t *end = gguf_decode_key(from->keys[i], &v);
        bool alignment = key_is(v.key, ALIGNMENT_KEY);
        if ((alignment && v.u != w->alignment) || key_is(v.key, "split.no") || key_is(v.key, "split.count")
            || key_is(v.key, "split.tensors.count") || gguf_index_get(&w->key_index, v.key, key_name, w, &known)
            || (skip && skip(context, v.key)))
            continue;
        const uint8_t *value = (const uint8_t *)v.key.data + v.key.len;
        int rc = put_key(w, v.key, value, (size_t)(end - value), err);
        if (rc)
            return rc;
        w->alignment_copied |= alignment;
    }
    return 0;
}

/* ---- tensors ---- */

/* Checks shape and type; *n_dims loses trailing ones. */
static int tensor_size(const char *name, const struct qtype_info *type, uint32_t *n_dims, const uint64_t *ne, uint64_t *size,
                       skua_error *err)
{
    uint64_t elements = 1;
    if (*n_dims < 1 || *n_dims > GGUF_MAX_DIMS)
        return error_set(err, SKUA_EARG, "tensor '%s': %u dimensions, must be 1 to %u", name, *n_dims, GGUF_MAX_DIMS);
    for (uint32_t d = 0; d < *n_dims; d++) {
        if (ne[d] == 0)
            return error_set(err, SKUA_EARG, "tensor '%s': dimension %u is 0", name, d);
        if (__builtin_mul_overflow(elements, ne[d], &elements) || elements > INT64_MAX)
            return error_set(err, SKUA_EARG, "tensor '%s': 2^63 elements or more", name);
    }
    if (ne[0] % type->block_elements)
        return error_set(err, SKUA_EARG, "tensor '%s': row of %llu elements, but type %s has blocks of %u", name,
                         (unsigned long long)ne[0], type->name, type->block_elements);
    if (__builtin_mul_overflow(elements / type->block_elements, (uint64_t)type->block_bytes, size) || *size > INT64_MAX)
        return error_set(err, SKUA_EARG, "tensor '%s': 2^63 bytes or more", name);
    while (*n_dims > 1 && ne[*n_dims - 1] == 1)
        --*n_dims;
    return 0;
}

static int check_tensor(const struct gguf_writer *w, const char *name, uint32_t type, skua_error *err)
{
    size_t len = strlen(name);
    if (w->begun)
        return error_set(err, SKUA_ESTATE, "tensor '%s' added after the header was written", name);
    if (len < 1 || len > GGUF_MAX_NAME_BYTES)
        return error_set(err, SKUA_EARG, "tensor name '%s' of %zu bytes, must be 1 to %u", gguf_quote(name, len).text, len,
                         GGUF_MAX_NAME_BYTES);
    if (!qtype_info(type))
        return error_set(err, SKUA_EARG, "tensor '%s': type %u is unknown", name, type);
    if (w->n_tensors >= GGUF_MAX_TENSORS)
        return error_set(err, SKUA_ELIMIT, "tensor '%s' is one too many, the limit is %u", name, GGUF_MAX_TENSORS);
    return 0;
}

int gguf_writer_add_tensor(struct gguf_writer *w, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *ne,
                           skua_error *err)
{
    uint64_t size = 0;
    int rc = check_tensor(w, name, type, err);
    if (!rc)
        rc = tensor_size(name, qtype_info(type), &n_dims, ne, &size, err);
    if (rc)
        return rc;
    uint64_t offset = w->data_bytes, end;
    /* half of the range is left for the metadata, so that no sum of the two can overflow */
    if (__builtin_add_overflow(offset, size + padding(w, size), &end) || end > INT64_MAX)
        return error_set(err, SKUA_EARG, "tensor '%s': 2^63 bytes of tensor data or more", name);
    size_t len = strlen(name);
    if (!strbuf_reserve(&w->infos, 8 + len + 4 + 8 * n_dims + 12)
        || !reserve((void **)&w->tensors, &w->tensors_cap, w->n_tensors, sizeof *w->tensors)) {
        w->infos.failed = false;
        return error_nomem(err, name, len);
    }
    struct writer_tensor *t = &w->tensors[w->n_tensors];
    memcpy(t->name, name, len + 1);
    t->size = size;
    rc = gguf_index_put(&w->tensor_index, w->n_tensors, tensor_name, w);
    if (rc)
        return rc < 0 ? error_nomem(err, name, len) : error_set(err, SKUA_EARG, "tensor '%s' is added twice", name);
    append_string(&w->infos, name, len);
    strbuf_append(&w->infos, &n_dims, 4);
    strbuf_append(&w->infos, ne, 8 * n_dims);
    strbuf_append(&w->infos, &type, 4);
    strbuf_append(&w->infos, &offset, 8);
    w->n_tensors++;
    w->data_bytes = end;
    return 0;
}

/* ---- writing ---- */

static bool writes_alignment(const struct gguf_writer *w) { return w->alignment != GGUF_DEFAULT_ALIGNMENT && !w->alignment_copied; }

/* Bytes in front of the padding to the data section. */
static uint64_t metadata_bytes(const struct gguf_writer *w)
{
    uint64_t alignment_key = writes_alignment(w) ? 8 + strlen(ALIGNMENT_KEY) + 4 + 4 : 0;
    return HEADER_BYTES + w->first.len + alignment_key + w->rest.len + w->infos.len;
}

uint64_t gguf_writer_file_bytes(const struct gguf_writer *w)
{
    uint64_t n = metadata_bytes(w);
    return w->n_tensors ? n + padding(w, n) + w->data_bytes : n;
}

static int write_zeros(struct gguf_writer *w, uint64_t n, skua_error *err)
{
    static const uint8_t zeros[4096];
    int rc = 0;
    while (n && !rc) {
        size_t k = n < sizeof zeros ? (size_t)n : sizeof zeros;
        rc = file_writer_write(&w->file, zeros, k, err);
        n -= k;
    }
    return rc;
}

static int write_buffer(struct gguf_writer *w, const struct strbuf *b, skua_error *err)
{
    return b->len ? file_writer_write(&w->file, b->data, b->len, err) : 0;
}

int gguf_writer_begin(struct gguf_writer *w, const char *path, skua_error *err)
{
    if (w->begun)
        return error_set(err, SKUA_ESTATE, "%s: this writer has begun a file already", path);
    struct strbuf header = {0};
    uint32_t version = 3, type = GGUF_U32;
    uint64_t n_tensors = w->n_tensors, n_keys = (uint64_t)w->n_keys + writes_alignment(w);
    strbuf_append(&header, "GGUF", 4);
    strbuf_append(&header, &version, 4);
    strbuf_append(&header, &n_tensors, 8);
    strbuf_append(&header, &n_keys, 8);
    strbuf_append(&header, w->first.data, w->first.len);
    if (writes_alignment(w)) {
        append_string(&header, ALIGNMENT_KEY, strlen(ALIGNMENT_KEY));
        strbuf_append(&header, &type, 4);
        strbuf_append(&header, &w->alignment, 4);
    }
    int rc = strbuf_failed(&header) ? error_nomem(err, path, header.len) : file_writer_open(&w->file, path, err);
    if (!rc) {
        w->begun = true;
        rc = write_buffer(w, &header, err);
    }
    if (!rc)
        rc = write_buffer(w, &w->rest, err);
    if (!rc)
        rc = write_buffer(w, &w->infos, err);
    if (!rc && w->n_tensors)
        rc = write_zeros(w, padding(w, metadata_bytes(w)), err);
    strbuf_free(&header);
    return rc;
}

int gguf_writer_data(struct gguf_writer *w, const char *name, const void *data, size_t n, skua_error *err)
{
    if (!w->begun)
        return error_set(err, SKUA_ESTATE, "tensor '%s': data before the header was written", name);
    if (w->current == w->n_tensors)
        return error_set(err, SKUA_ESTATE, "tensor '%s': data after that of the last tensor", name);
    const struct writer_tensor *t = &w->tensors[w->current];
    if (strcmp(t->name, name) != 0)
        return error_set(err, SKUA_ESTATE, "tensor '%s': data out of order, tensor '%s' has %llu of %llu bytes", name, t->name,
                         (unsigned long long)w->current_bytes, (unsigned long long)t->size);
    if (n > t->size - w->current_bytes)
        return error_set(err, SKUA_EARG, "tensor '%s': %zu bytes of data, but %llu of %llu are left", name, n,
                         (unsigned long long)(t->size - w->current_bytes), (unsigned long long)t->size);
    int rc = file_writer_write(&w->file, data, n, err);
    if (rc)
        return rc;
    w->current_bytes += n;
    if (w->current_bytes < t->size)
        return 0;
    w->current++;
    w->current_bytes = 0;
    return write_zeros(w, padding(w, t->size), err);
}

int gguf_writer_finish(struct gguf_writer *w, skua_error *err)
{
    if (!w->begun)
        return error_set(err, SKUA_ESTATE, "finish before the header was written");
    if (w->current < w->n_tensors)
        return error_set(err, SKUA_ESTATE, "tensor '%s' has %llu of %llu bytes", w->tensors[w->current].name,
                         (unsigned long long)w->current_bytes, (unsigned long long)w->tensors[w->current].size);
    return file_writer_commit(&w->file, err);
}
