/* Reader of safetensors checkpoints; see safetensors.h. The header is JSON of three levels at most; whatever is nested deeper is of the
 * wrong type where it stands. */
#include "gguf/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hashmap.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/strbuf.h"

#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"
#define MAX_FILES 4096u
#define MAX_TENSORS (1u << 20)

static const struct { const char *name; unsigned bits; } dtypes[ST_DTYPES] = {
    [ST_BOOL] = {"BOOL", 8},       [ST_U8] = {"U8", 8},           [ST_I8] = {"I8", 8},       [ST_F8_E4M3] = {"F8_E4M3", 8},
    [ST_F8_E5M2] = {"F8_E5M2", 8}, [ST_F8_E8M0] = {"F8_E8M0", 8}, [ST_I16] = {"I16", 16},    [ST_U16] = {"U16", 16},
    [ST_F16] = {"F16", 16},        [ST_BF16] = {"BF16", 16},      [ST_I32] = {"I32", 32},    [ST_U32] = {"U32", 32},
    [ST_F32] = {"F32", 32},        [ST_I64] = {"I64", 64},        [ST_U64] = {"U64", 64},    [ST_F64] = {"F64", 64},
    [ST_C64] = {"C64", 64},        [ST_F4] = {"F4", 4},           [ST_F6_E2M3] = {"F6_E2M3", 6}, [ST_F6_E3M2] = {"F6_E3M2", 6},
};

const char *st_dtype_name(enum st_dtype d) { return dtypes[d].name; }
unsigned st_dtype_bits(enum st_dtype d) { return dtypes[d].bits; }

struct st_file {
    struct file_map map; /* zeroed when the memory is the caller's */
    char *path;
    const char *name;    /* its last part */
};

struct safetensors {
    struct st_file *files;
    struct st_tensor *tensors;
    uint32_t n_files, n_tensors;
    size_t cap_tensors;
    struct hashmap index, file_index;
};

void safetensors_close(struct safetensors *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < s->n_files; i++) {
        file_map_close(&s->files[i].map);
        mem_free(s->files[i].path);
    }
    for (uint32_t i = 0; i < s->n_tensors; i++)
        mem_free(s->tensors[i].name);
    mem_free(s->files);
    mem_free(s->tensors);
    hashmap_free(&s->index);
    hashmap_free(&s->file_index);
    mem_free(s);
}

uint32_t safetensors_count(const struct safetensors *s) { return s->n_tensors; }
const struct st_tensor *safetensors_at(const struct safetensors *s, uint32_t i) { return &s->tensors[i]; }
uint32_t safetensors_files(const struct safetensors *s) { return s->n_files; }
const char *safetensors_path(const struct safetensors *s, uint32_t file) { return s->files[file].path; }

const struct st_tensor *safetensors_find(const struct safetensors *s, const char *name)
{
    uint32_t i;
    return hashmap_get(&s->index, name, strlen(name), &i) ? &s->tensors[i] : NULL;
}

void st_shape_text(const struct st_tensor *t, char *text, size_t size)
{
    size_t n = 0;
    text[0] = '\0';
    for (uint32_t d = 0; d < t->n_dims && n < size; d++)
        n += (size_t)snprintf(text + n, size - n, "%s%llu", d ? ", " : "[", (unsigned long long)t->shape[d]);
    if (n < size)
        snprintf(text + n, size - n, t->n_dims ? "]" : "[]");
}

/* ---- one file's header ---- */

struct span { /* of a tensor in the data buffer */
    uint64_t begin, end;
    uint32_t tensor;
};

static int compare_spans(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

struct header {
    struct safetensors *s;
    const char *path;
    uint32_t file;
    const uint8_t *buffer;
    uint64_t buffer_bytes;
    struct span *spans;
    uint32_t n_spans;
    skua_error *err;
};

static int bad(const struct header *h, const char *tensor, const char *what)
{
    return error_set(h->err, SKUA_EFORMAT, "%s: tensor '%.200s': %s", h->path, tensor, what);
}

static bool read_u63(const json_t *v, uint64_t *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static int read_dtype(const struct header *h, const char *name, const json_t *v, enum st_dtype *dtype)
{
    if (!json_is_string(v))
        return bad(h, name, "has no 'dtype' that is a string");
    for (int d = 0; d < ST_DTYPES; d++)
        if (!strcmp(json_string_value(v), dtypes[d].name)) {
            *dtype = (enum st_dtype)d;
            return 0;
        }
    return error_set(h->err, SKUA_EFORMAT, "%s: tensor '%.200s': dtype '%.40s' is unknown", h->path, name, json_string_value(v));
}

static int read_shape(const struct header *h, const json_t *v, struct st_tensor *t)
{
    size_t n = json_array_size(v);
    if (!json_is_array(v))
        return bad(h, t->name, "has no 'shape' that is an array");
    if (n > ST_MAX_DIMS)
        return error_set(h->err, SKUA_EFORMAT, "%s: tensor '%.200s': %zu dimensions, at most %d are supported", h->path, t->name, n,
                         ST_MAX_DIMS);
    t->n_dims = (uint32_t)n;
    t->elements = 1;
    for (size_t d = 0; d < n; d++) {
        if (!read_u63(json_array_get(v, d), &t->shape[d]))
            return bad(h, t->name, "a size in 'shape' is not an integer of at least 0");
        if (__builtin_mul_overflow(t->elements, t->shape[d], &t->elements) || t->elements > INT64_MAX / 64)
            return bad(h, t->name, "the shape has too many elements");
    }
    return 0;
}

/* Where the data lies: inside of the buffer, of the size that dtype and shape give. */
static int read_offsets(struct header *h, const json_t *v, struct st_tensor *t, uint32_t number)
{
    uint64_t begin, end, bits = t->elements * dtypes[t->dtype].bits;
    if (json_array_size(v) != 2 || !read_u63(json_array_get(v, 0), &begin) || !read_u63(json_array_get(v, 1), &end))
        return bad(h, t->name, "'data_offsets' are not two integers of at least 0");
    if (begin > end || end > h->buffer_bytes)
        return error_set(h->err, SKUA_EFORMAT, "%s: tensor '%.200s': data_offsets [%llu, %llu] do not lie in the %llu bytes of data",
                         h->path, t->name, (unsigned long long)begin, (unsigned long long)end, (unsigned long long)h->buffer_bytes);
    if (bits % 8 || end - begin != bits / 8)
        return error_set(h->err, SKUA_EFORMAT, "%s: tensor '%.200s': %llu bytes of data, but dtype and shape make %llu bits", h->path,
                         t->name, (unsigned long long)(end - begin), (unsigned long long)bits);
    t->size_bytes = end - begin;
    t->data = h->buffer + begin;
    h->spans[h->n_spans++] = (struct span){begin, end, number};
    return 0;
}

static int check_metadata(const struct header *h, const json_t *v)
{
    void *it;
    if (!json_is_object(v))
        return error_set(h->err, SKUA_EFORMAT, "%s: '__metadata__' is not an object", h->path);
    for (it = json_object_iter((json_t *)(uintptr_t)v); it; it = json_object_iter_next((json_t *)(uintptr_t)v, it))
        if (!json_is_string(json_object_iter_value(it)))
            return error_set(h->err, SKUA_EFORMAT, "%s: '__metadata__': the value of '%.100s' is not a string", h->path,
                             json_object_iter_key(it));
    return 0;
}

static bool good_name(const char *name)
{
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7F)
            return false;
    return name[0] != '\0';
}

static int add_tensor(struct header *h, const char *name, const json_t *info)
{
    struct safetensors *s = h->s;
    if (!good_name(name))
        return error_set(h->err, SKUA_EFORMAT, "%s: a tensor's name, '%.100s', is empty or has control characters", h->path, name);
    if (!json_is_object(info))
        return bad(h, name, "is described by something other than an object");
    if (s->n_tensors == MAX_TENSORS)
        return error_set(h->err, SKUA_EFORMAT, "%s: more than %u tensors", h->path, MAX_TENSORS);
    if (s->n_tensors == s->cap_tensors) {
        size_t cap = s->cap_tensors ? s->cap_tensors * 2 : 64;
        struct st_tensor *grown = mem_realloc_array(s->tensors, cap, sizeof *grown);
        if (!grown)
            return error_nomem(h->err, "tensor list", cap * sizeof *grown);
        s->tensors = grown;
        s->cap_tensors = cap;
    }
    uint32_t number = s->n_tensors;
    struct st_tensor *t = &s->tensors[number];
    *t = (struct st_tensor){.name = mem_strdup(name), .file = h->file};
    if (!t->name)
        return error_nomem(h->err, name, strlen(name));
    s->n_tensors++;
    int rc = hashmap_put(&s->index, t->name, strlen(t->name), number);
    if (rc < 0)
        return error_nomem(h->err, name, strlen(name));
    if (rc > 0)
        return error_set(h->err, SKUA_EFORMAT, "%s: tensor '%.200s' is also in %s", h->path, name,
                         s->files[safetensors_find(s, name)->file].path);
    rc = read_dtype(h, name, json_object_get(info, "dtype"), &t->dtype);
    if (!rc) rc = read_shape(h, json_object_get(info, "shape"), t);
    if (!rc) rc = read_offsets(h, json_object_get(info, "data_offsets"), t, number);
    if (!rc && json_object_size(info) != 3)
        rc = bad(h, name, "has fields other than dtype, shape and data_offsets");
    return rc;
}

/* The tensors must tile the data buffer. */
static int check_coverage(const struct header *h)
{
    uint64_t at = 0;
    qsort(h->spans, h->n_spans, sizeof *h->spans, compare_spans);
    for (uint32_t i = 0; i < h->n_spans; i++) {
        const struct span *p = &h->spans[i];
        if (p->begin != at)
            return error_set(h->err, SKUA_EFORMAT, "%s: tensor '%.200s': data begins at byte %llu, %s ends at %llu (%s)", h->path,
                             h->s->tensors[p->tensor].name, (unsigned long long)p->begin, i ? "the tensor before it" : "the header",
                             (unsigned long long)at, p->begin > at ? "a hole" : "an overlap");
        at = p->end;
    }
    if (at != h->buffer_bytes)
        return error_set(h->err, SKUA_EFORMAT, "%s: %llu bytes of data belong to no tensor", h->path,
                         (unsigned long long)(h->buffer_bytes - at));
    return 0;
}

static int read_tensors(struct header *h, json_t *root)
{
    size_t n = json_object_size(root);
    int rc = 0;
    h->spans = mem_alloc((n ? n : 1) * sizeof *h->spans);
    if (!h->spans)
        return error_nomem(h->err, "tensor list", n * sizeof *h->spans);
    for (void *it = json_object_iter(root); it && !rc; it = json_object_iter_next(root, it)) {
        const char *name = json_object_iter_key(it);
        rc = strcmp(name, "__metadata__") ? add_tensor(h, name, json_object_iter_value(it)) : check_metadata(h, json_object_iter_value(it));
    }
    if (!rc)
        rc = check_coverage(h);
    mem_free(h->spans);
    return rc;
}

static int json_failed(const char *path, const json_error_t *at, bool no_memory, size_t size, skua_error *err)
{
    return no_memory ? error_nomem(err, path, size)
                     : error_set(err, SKUA_EFORMAT, "%s: not valid JSON: %s (byte %d)", path, at->text, at->position);
}

/* Add the tensors of file number `file`, whose bytes are given. */
static int parse(struct safetensors *s, uint32_t file, const uint8_t *data, size_t size, skua_error *err)
{
    const char *path = s->files[file].path;
    uint64_t header_bytes;
    if (size < 8)
        return error_set(err, SKUA_EFORMAT, "%s: %zu bytes are too few for a safetensors file", path, size);
    memcpy(&header_bytes, data, 8);
    if (header_bytes > ST_MAX_HEADER_BYTES || header_bytes > size - 8)
        return error_set(err, SKUA_EFORMAT, "%s: a header of %llu bytes, the file has %zu and the limit is %u (truncated, or no "
                         "safetensors file)", path, (unsigned long long)header_bytes, size, ST_MAX_HEADER_BYTES);
    if (header_bytes == 0 || data[8] != '{')
        return error_set(err, SKUA_EFORMAT, "%s: the header does not begin with '{'", path);
    json_error_t at;
    bool no_memory;
    json_t *root = json_read((const char *)data + 8, (size_t)header_bytes, JSON_REJECT_DUPLICATES, &at, &no_memory);
    if (!root)
        return json_failed(path, &at, no_memory, (size_t)header_bytes, err);
    struct header h = {.s = s, .path = path, .file = file, .buffer = data + 8 + header_bytes, .buffer_bytes = size - 8 - header_bytes,
                       .err = err};
    int rc = read_tensors(&h, root);
    json_decref(root);
    return rc;
}

/* ---- files ---- */

static int new_container(struct safetensors **out, uint32_t max_files, skua_error *err)
{
    struct safetensors *s = mem_calloc(1, sizeof *s);
    if (s)
        s->files = mem_calloc(max_files, sizeof *s->files);
    if (!s || !s->files || hashmap_init(&s->index, 64) || hashmap_init(&s->file_index, max_files)) {
        safetensors_close(s);
        return error_nomem(err, "safetensors reader", max_files * sizeof(struct st_file));
    }
    *out = s;
    return 0;
}

/* A place for one more file; path is taken over (NULL: an allocation failed). */
static struct st_file *add_file(struct safetensors *s, char *path)
{
    if (!path)
        return NULL;
    struct st_file *f = &s->files[s->n_files++];
    const char *slash = strrchr(path, '/');
    f->path = path;
    f->name = slash ? slash + 1 : path;
    return f;
}

static char *join(const char *dir, const char *name)
{
    struct strbuf path = {0};
    strbuf_printf(&path, "%s/%s", dir, name);
    return strbuf_take(&path, NULL);
}

static int open_file(struct safetensors *s, const char *dir, const char *name, skua_error *err)
{
    uint32_t number = s->n_files;
    struct st_file *f = add_file(s, join(dir, name));
    if (!f)
        return error_nomem(err, name, strlen(dir) + strlen(name));
    if (hashmap_put(&s->file_index, f->name, strlen(f->name), number) < 0)
        return error_nomem(err, name, 0);
    int rc = file_map_open(&f->map, f->path, err);
    return rc ? rc : parse(s, number, f->map.data, f->map.size, err);
}

/* Only a plain name may follow the folder's. */
static bool plain_name(const char *name)
{
    return good_name(name) && name[0] != '.' && !strpbrk(name, "/\\:") && !strstr(name, "..");
}

static int open_shards(struct safetensors *s, const char *dir, const char *path, json_t *map, skua_error *err)
{
    uint32_t file;
    for (void *it = json_object_iter(map); it; it = json_object_iter_next(map, it)) {
        const char *name = json_string_value(json_object_iter_value(it)), *tensor = json_object_iter_key(it);
        if (!name || !plain_name(name))
            return error_set(err, SKUA_EFORMAT, "%s: tensor '%.200s': '%.200s' is not the plain name of a file in this folder", path,
                             tensor, name ? name : "(not a string)");
        if (hashmap_get(&s->file_index, name, strlen(name), &file))
            continue;
        if (s->n_files == MAX_FILES)
            return error_set(err, SKUA_EFORMAT, "%s: more than %u files", path, MAX_FILES);
        int rc = open_file(s, dir, name, err);
        if (rc)
            return rc;
    }
    return 0;
}

/* Every tensor of the index must be where it says; others are told, once. */
static int check_index(const struct safetensors *s, const char *path, json_t *map, st_warn_fn *warn, void *context, skua_error *err)
{
    uint32_t unlisted = 0;
    const char *example = NULL;
    for (void *it = json_object_iter(map); it; it = json_object_iter_next(map, it)) {
        const char *name = json_object_iter_key(it), *file = json_string_value(json_object_iter_value(it));
        const struct st_tensor *t = safetensors_find(s, name);
        if (!t || strcmp(s->files[t->file].name, file))
            return error_set(err, SKUA_EFORMAT, "%s: tensor '%.200s' is not in %s, where the index has it", path, name, file);
    }
    for (uint32_t i = 0; i < s->n_tensors; i++)
        if (!json_object_get(map, s->tensors[i].name)) {
            example = s->tensors[i].name;
            unlisted++;
        }
    if (unlisted && warn) {
        skua_error text;
        error_set(&text, 0, "%s: tensors of the files that are not in the index: %u, '%.200s' for one", path, unlisted, example);
        warn(context, text.message);
    }
    return 0;
}

static int open_index(struct safetensors **out, const char *dir, const char *path, st_warn_fn *warn, void *context, skua_error *err)
{
    char *text = NULL;
    size_t size;
    json_error_t at;
    bool no_memory;
    int rc = file_read_all(path, ST_MAX_HEADER_BYTES, &text, &size, err);
    if (rc)
        return rc;
    json_t *root = json_read(text, size, JSON_REJECT_DUPLICATES, &at, &no_memory), *map = json_object_get(root, "weight_map");
    mem_free(text);
    if (!root)
        return json_failed(path, &at, no_memory, size, err);
    if (!json_is_object(map) || json_object_size(map) == 0)
        rc = error_set(err, SKUA_EFORMAT, "%s: has no 'weight_map' that is an object of tensors", path);
    if (!rc) rc = new_container(out, MAX_FILES, err);
    if (!rc) rc = open_shards(*out, dir, path, map, err);
    if (!rc) rc = check_index(*out, path, map, warn, context, err);
    json_decref(root);
    return rc;
}

int safetensors_open(struct safetensors **out, const char *dir, st_warn_fn *warn, void *context, skua_error *err)
{
    char *single = join(dir, SINGLE_NAME), *index = join(dir, INDEX_NAME);
    int rc;
    *out = NULL;
    if (!single || !index)
        rc = error_nomem(err, dir, strlen(dir));
    else if (access(single, F_OK) == 0) {
        rc = new_container(out, 1, err);
        if (!rc) rc = open_file(*out, dir, SINGLE_NAME, err);
    } else if (access(index, F_OK) == 0)
        rc = open_index(out, dir, index, warn, context, err);
    else
        rc = error_set(err, SKUA_EIO, "%s: has neither " SINGLE_NAME " nor " INDEX_NAME, dir);
    if (rc) {
        safetensors_close(*out);
        *out = NULL;
    }
    mem_free(single);
    mem_free(index);
    return rc;
}

int safetensors_parse_memory(struct safetensors **out, const void *data, size_t size, const char *name, skua_error *err)
{
    *out = NULL;
    int rc = new_container(out, 1, err);
    if (!rc && !add_file(*out, mem_strdup(name)))
        rc = error_nomem(err, name, strlen(name));
    if (!rc) rc = parse(*out, 0, data, size, err);
    if (rc) {
        safetensors_close(*out);
        *out = NULL;
    }
    return rc;
}
