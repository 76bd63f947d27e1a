/* Parsing and validating one GGUF container in memory.
 *
 * The order of checks is part of the contract (a file with several faults reports the first). No count is used before it is
 * bounded by the bytes that remain, and every sum or product is tested before it is made.
 *
 * What is kept while parsing is one address per key and per tensor info and their name indexes: at most 8 + 12 bytes for
 * entries that take at least 13 and 24 bytes in the file. The tensor table proper (72 bytes each) is built only after
 * everything was found valid.
 */
#include <stdio.h>

#include "base/mem.h"
#include "gguf/gguf_internal.h"

#define HEADER_BYTES 24u
#define MIN_KEY_BYTES 13u    /* name length, type, one byte */
#define MIN_TENSOR_BYTES 24u /* name length, dimensions, type, offset */
#define ALIGNMENT_KEY "general.alignment"
#define SIZE_LIMIT (UINT64_C(1) << 63) /* element counts and byte sizes stay below */

struct parser {
    struct gguf *g;
    struct gguf_shard *s;
    size_t pos; /* at most s->size */
    gguf_entry *infos;
    uint64_t n_keys, n_tensors;
    struct gguf_report report;
};

#define FAIL(p, class, at, ...) gguf_fail(&(p)->report, GGUF_##class, at, __VA_ARGS__)

static size_t remaining(const struct parser *p) { return p->s->size - p->pos; }

/* A field of n bytes at the position must be there. */
static int need(struct parser *p, uint64_t n, const char *what)
{
    if (n <= remaining(p))
        return 0;
    return FAIL(p, E_TRUNCATED, p->pos, "%s of %llu bytes, %zu remain", what, (unsigned long long)n, remaining(p));
}

static uint32_t take_u32(struct parser *p)
{
    p->pos += 4;
    return load_u32(p->s->base + p->pos - 4);
}

static uint64_t take_u64(struct parser *p)
{
    p->pos += 8;
    return load_u64(p->s->base + p->pos - 8);
}

/* A string's length field and bytes; afterwards the position is behind it. */
static int take_string(struct parser *p, uint64_t max, const char *what, struct gguf_string *s)
{
    int rc = need(p, 8, "a length field");
    if (rc)
        return rc;
    size_t at = p->pos;
    uint64_t len = take_u64(p);
    if (len > remaining(p))
        return FAIL(p, E_STRING, at, "%s of %llu bytes, %zu remain", what, (unsigned long long)len, remaining(p));
    if (len > max)
        return FAIL(p, E_STRING, at, "%s of %llu bytes, the limit is %llu", what, (unsigned long long)len,
                    (unsigned long long)max);
    *s = (struct gguf_string){(const char *)p->s->base + p->pos, (size_t)len};
    p->pos += (size_t)len;
    return 0;
}

/* ---- header ---- */

static int parse_header(struct parser *p)
{
    const struct gguf_shard *s = p->s;
    if (s->size >= 4 && memcmp(s->base, "GGUF", 4) != 0)
        return FAIL(p, E_MAGIC, 0, "begins with %02x %02x %02x %02x instead of GGUF", s->base[0], s->base[1], s->base[2],
                    s->base[3]);
    if (s->size < HEADER_BYTES)
        return FAIL(p, E_TRUNCATED, s->size, "%zu bytes are no complete header (%u bytes)", s->size, HEADER_BYTES);
    p->pos = 4;
    uint32_t version = take_u32(p);
    if (version != 0 && (version & 0xFFFF) == 0)
        return FAIL(p, E_ENDIAN, 4, "version field 0x%08x: the file is big-endian; only little-endian files are read", version);
    if (version != 2 && version != 3)
        return FAIL(p, E_VERSION, 4, "version %u; versions 2 and 3 are read", version);
    p->s->version = version;
    p->n_tensors = take_u64(p);
    p->n_keys = take_u64(p);
    if (p->n_keys > GGUF_MAX_KEYS)
        return FAIL(p, E_COUNT, 16, "%llu keys, the limit is %u", (unsigned long long)p->n_keys, GGUF_MAX_KEYS);
    if (p->n_tensors > GGUF_MAX_TENSORS)
        return FAIL(p, E_COUNT, 8, "%llu tensors, the limit is %u", (unsigned long long)p->n_tensors, GGUF_MAX_TENSORS);
    uint64_t least = MIN_KEY_BYTES * p->n_keys + MIN_TENSOR_BYTES * p->n_tensors;
    if (least > remaining(p))
        return FAIL(p, E_COUNT, 8, "%llu tensors and %llu keys take at least %llu bytes, %zu remain",
                    (unsigned long long)p->n_tensors, (unsigned long long)p->n_keys, (unsigned long long)least, remaining(p));
    return 0;
}

/* ---- keys ---- */

static int parse_scalar(struct parser *p, uint32_t type)
{
    size_t size = gguf_type_size(type);
    int rc = need(p, size, gguf_type_name(type));
    if (rc)
        return rc;
    if (type == GGUF_BOOL && p->s->base[p->pos] > 1)
        return FAIL(p, E_BOOL, p->pos, "bool byte 0x%02x, only 0 and 1 are allowed", p->s->base[p->pos]);
    p->pos += size;
    return 0;
}

static int parse_array(struct parser *p)
{
    int rc = need(p, 12, "an array header");
    if (rc)
        return rc;
    size_t at = p->pos;
    uint32_t type = take_u32(p);
    uint64_t count = take_u64(p);
    size_t size = gguf_type_size(type);
    if (size == 0)
        return FAIL(p, E_ARRAY, at, "array of element type %u (%s)", type,
                    type == GGUF_ARRAY ? "arrays of arrays are not allowed" : "not a known type");
    if (count > GGUF_MAX_COUNT)
        return FAIL(p, E_ARRAY, at + 4, "array of %llu elements, the limit is %u", (unsigned long long)count, GGUF_MAX_COUNT);
    if (count > remaining(p) / size)
        return FAIL(p, E_ARRAY, at + 4, "array of %llu elements of %zu bytes or more, %zu bytes remain",
                    (unsigned long long)count, size, remaining(p));
    if (type != GGUF_STRING && type != GGUF_BOOL) {
        p->pos += (size_t)count * size;
        return 0;
    }
    for (uint64_t i = 0; i < count && !rc; i++) {
        struct gguf_string s;
        rc = type == GGUF_BOOL ? parse_scalar(p, type) : take_string(p, GGUF_MAX_COUNT, "array string", &s);
    }
    return rc;
}

/* The alignment key, which decides where the tensor data lies, takes no other integer types. `at` is its value. */
static int parse_alignment(struct parser *p, uint32_t type, size_t at)
{
    if (type != GGUF_U32)
        return FAIL(p, E_ALIGN, at, "is of type %s, must be u32", gguf_type_name(type));
    uint32_t a = load_u32(p->s->base + at);
    if (a < GGUF_MIN_ALIGNMENT || a > GGUF_MAX_ALIGNMENT || (a & (a - 1)))
        return FAIL(p, E_ALIGN, at, "is %u, must be a power of two from %u to %u", a, GGUF_MIN_ALIGNMENT, GGUF_MAX_ALIGNMENT);
    p->s->alignment = a;
    return 0;
}

static int check_key_name(struct parser *p, struct gguf_string key, size_t at)
{
    if (key.len == 0)
        return FAIL(p, E_KEY, at, "empty key");
    for (size_t i = 0; i < key.len; i++) {
        unsigned char c = (unsigned char)key.data[i];
        if (c < 0x20 || c == 0x7F)
            return FAIL(p, E_KEY, at + 8 + i, "control byte 0x%02x in a key", c);
    }
    return 0;
}

static int parse_key(struct parser *p, uint32_t number)
{
    struct gguf_string key;
    size_t start = p->pos;
    snprintf(p->report.subject, sizeof p->report.subject, "key number %u", number);
    int rc = take_string(p, GGUF_MAX_KEY_BYTES, "key", &key);
    if (rc)
        return rc;
    gguf_report_subject(&p->report, "key", key.data, key.len);
    rc = check_key_name(p, key, start);
    if (rc)
        return rc;
    p->g->keys[number] = p->s->base + start;
    rc = gguf_index_put(&p->g->key_index, number, gguf_entry_name, p->g->keys);
    if (rc < 0)
        return error_nomem(p->report.err, "key index", 0);
    if (rc)
        return FAIL(p, E_DUP_KEY, start, "appears a second time");
    rc = need(p, 4, "a value type");
    if (rc)
        return rc;
    uint32_t type = take_u32(p);
    size_t at = p->pos;
    if (type >= GGUF_TYPE_END)
        return FAIL(p, E_VTYPE, at - 4, "value type %u, known types are 0 to %d", type, GGUF_TYPE_END - 1);
    struct gguf_string s;
    if (type == GGUF_STRING)
        rc = take_string(p, GGUF_MAX_COUNT, "string", &s);
    else
        rc = type == GGUF_ARRAY ? parse_array(p) : parse_scalar(p, type);
    if (!rc && key.len == strlen(ALIGNMENT_KEY) && memcmp(key.data, ALIGNMENT_KEY, key.len) == 0)
        rc = parse_alignment(p, type, at);
    return rc;
}

static int parse_keys(struct parser *p)
{
    size_t n = (size_t)p->n_keys;
    p->g->keys = mem_alloc(n * sizeof *p->g->keys);
    if (!p->g->keys || gguf_index_init(&p->g->key_index, n))
        return error_nomem(p->report.err, "keys", n * sizeof *p->g->keys);
    for (uint32_t i = 0; i < n; i++) {
        int rc = parse_key(p, i);
        if (rc)
            return rc;
        p->g->n_keys = i + 1;
    }
    return 0;
}

/* ---- tensor infos ---- */

/* Name, unique in this file. */
static int parse_tensor_name(struct parser *p, uint32_t number)
{
    struct gguf_string name;
    size_t start = p->pos;
    snprintf(p->report.subject, sizeof p->report.subject, "tensor number %u", number);
    int rc = take_string(p, UINT64_MAX, "tensor name", &name);
    if (rc)
        return rc;
    gguf_report_subject(&p->report, "tensor", name.data, name.len);
    if (name.len == 0 || name.len > GGUF_MAX_NAME_BYTES)
        return FAIL(p, E_TNAME, start, "name of %zu bytes, must be 1 to %u", name.len, GGUF_MAX_NAME_BYTES);
    if (memchr(name.data, 0, name.len))
        return FAIL(p, E_TNAME, start, "zero byte in the name");
    p->infos[number] = p->s->base + start;
    rc = gguf_index_put(&p->g->tensor_index, number, gguf_entry_name, p->infos);
    if (rc < 0)
        return error_nomem(p->report.err, "tensor index", 0);
    return rc ? FAIL(p, E_DUP_TENSOR, start, "appears a second time") : 0;
}

/* Check the n_dims dimensions at byte `at` and multiply them into *elements, which holds 1. */
static int count_elements(struct parser *p, uint32_t n_dims, size_t at, uint64_t *elements)
{
    for (uint32_t d = 0; d < n_dims; d++) {
        uint64_t ne = load_u64(p->s->base + at + 8 * d);
        if (ne == 0 || ne >= SIZE_LIMIT)
            return FAIL(p, E_DIM, at + 8 * d, "dimension %u is %llu, must be 1 to 2^63 - 1", d, (unsigned long long)ne);
    }
    for (uint32_t d = 0; d < n_dims; d++) {
        uint64_t ne = load_u64(p->s->base + at + 8 * d);
        if (__builtin_mul_overflow(*elements, ne, elements) || *elements >= SIZE_LIMIT)
            return FAIL(p, E_OVERFLOW, at + 8 * d, "2^63 elements or more");
    }
    return 0;
}

static int parse_tensor(struct parser *p, uint32_t number)
{
    int rc = parse_tensor_name(p, number);
    if (rc || (rc = need(p, 4, "a dimension count")))
        return rc;
    uint32_t n_dims = take_u32(p);
    if (n_dims > GGUF_MAX_DIMS)
        return FAIL(p, E_NDIMS, p->pos - 4, "%u dimensions, the limit is %u", n_dims, GGUF_MAX_DIMS);
    rc = need(p, 8 * n_dims + 12, "dimensions, type and offset");
    if (rc)
        return rc;
    size_t dims_at = p->pos;
    p->pos += 8 * n_dims;
    uint32_t type_id = take_u32(p);
    uint64_t offset = take_u64(p);
    uint64_t elements = 1, bytes;
    rc = count_elements(p, n_dims, dims_at, &elements);
    if (rc)
        return rc;
    const struct qtype_info *type = qtype_info(type_id);
    if (!type)
        return FAIL(p, E_TTYPE, p->pos - 12, "tensor type %u is unknown or withdrawn", type_id);
    uint64_t row = n_dims ? load_u64(p->s->base + dims_at) : 1;
    if (row % type->block_elements)
        return FAIL(p, E_BLOCK, dims_at, "row of %llu elements, but type %s has blocks of %u", (unsigned long long)row,
                    type->name, type->block_elements);
    if (__builtin_mul_overflow(elements / type->block_elements, (uint64_t)type->block_bytes, &bytes) || bytes >= SIZE_LIMIT)
        return FAIL(p, E_OVERFLOW, dims_at, "%llu elements of type %s take 2^63 bytes or more", (unsigned long long)elements,
                    type->name);
    if (offset % p->s->alignment)
        return FAIL(p, E_OFFSET, p->pos - 8, "data offset %llu is no multiple of the alignment %u", (unsigned long long)offset,
                    p->s->alignment);
    return 0;
}

static int parse_tensors(struct parser *p)
{
    size_t n = (size_t)p->n_tensors;
    p->infos = mem_alloc(n * sizeof *p->infos);
    if (!p->infos || gguf_index_init(&p->g->tensor_index, n))
        return error_nomem(p->report.err, "tensor infos", n * sizeof *p->infos);
    for (uint32_t i = 0; i < n; i++) {
        int rc = parse_tensor(p, i);
        if (rc)
            return rc;
    }
    p->s->data_start = p->pos;
    if (n)
        p->s->data_start = (p->s->data_start + p->s->alignment - 1) & ~(uint64_t)(p->s->alignment - 1);
    return gguf_check_layout(&p->report, p->s, p->infos, (uint32_t)n);
}

/* Everything is valid: build the table that callers see. */
static int build_tensors(struct parser *p, uint16_t shard_no)
{
    size_t n = (size_t)p->n_tensors;
    struct gguf_tensor *tensors = mem_alloc(n * sizeof *tensors);
    if (!tensors)
        return error_nomem(p->report.err, "tensor table", n * sizeof *tensors);
    for (size_t i = 0; i < n; i++) {
        uint64_t offset;
        gguf_decode_tensor(p->infos[i], &tensors[i], &offset);
        tensors[i].file_offset = (size_t)(p->s->data_start + offset);
        tensors[i].data = p->s->base + tensors[i].file_offset;
        tensors[i].shard = shard_no;
    }
    p->g->tensors = tensors;
    p->g->n_tensors = (uint32_t)n;
    return 0;
}

int gguf_parse(struct gguf *g, const uint8_t *base, size_t size, uint16_t shard_no, const char *label,
               enum gguf_class *class, skua_error *err)
{
    *class = GGUF_OK;
    struct parser p = {.g = g, .report = {.label = label, .class = class, .err = err}};
    g->shards = mem_calloc(1, sizeof *g->shards);
    if (!g->shards)
        return error_nomem(err, "container", sizeof *g->shards);
    g->n_shards = 1;
    p.s = g->shards;
    p.s->base = base;
    p.s->size = size;
    p.s->alignment = GGUF_DEFAULT_ALIGNMENT;
    int rc = parse_header(&p);
    if (!rc)
        rc = parse_keys(&p);
    if (!rc)
        rc = parse_tensors(&p);
    if (!rc)
        rc = build_tensors(&p, shard_no);
    mem_free(p.infos);
    if (rc)
        gguf_release(g);
    return rc;
}
