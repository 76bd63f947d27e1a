/* GGUF container validation: the published vectors, every check built by hand, truncation and mutation, memory bound. */
#include "gguf_bytes.h"

#include <jansson.h>
#include <sys/mman.h>
#include <time.h>

#include "base/rng.h"

/* ---- allocation accounting (glibc without sanitizers) ---- */

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAVE_ASAN 1
#endif
#endif
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(HAVE_ASAN)
#define COUNTS_BYTES 1
static uint64_t requested_bytes; /* by all allocations so far, frees not subtracted */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *malloc(size_t n)
{
    requested_bytes += n;
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size)
{
    requested_bytes += n * size;
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n)
{
    requested_bytes += n;
    return __libc_realloc(p, n);
}
#else
#define COUNTS_BYTES 0
static uint64_t requested_bytes;
#endif

/* ---- published vectors ---- */

static json_t *load_vectors(void)
{
    const char *shared = getenv("SKUA_SHARED");
    char path[4096];
    snprintf(path, sizeof path, "%s/spec/gguf_vectors.json", shared ? shared : "../shared");
    return json_load_file(path, 0, NULL);
}

static size_t unhex(const char *hex, uint8_t *out)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        unsigned v;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &v), 1);
        out[i] = (uint8_t)v;
    }
    return n;
}

static void test_vectors(void **state)
{
    (void)state;
    json_t *root = load_vectors();
    if (!root) {
        printf("skipped 105 vectors: no shared data\n");
        skip();
    }
    json_t *files = json_object_get(root, "files"), *f;
    size_t i, seen = 0;
    json_array_foreach(files, i, f) {
        static uint8_t bytes[1 << 16];
        skua_error err;
        const char *hex = json_string_value(json_object_get(f, "hex"));
        assert_true(strlen(hex) / 2 <= sizeof bytes);
        size_t n = unhex(hex, bytes);
        CHECK_INT(n, json_integer_value(json_object_get(f, "bytes")));
        enum gguf_class class = verdict_error(bytes, n, &err);
        const char *expect = json_string_value(json_object_get(f, "expect"));
        if (strcmp(gguf_class_name((int)class), expect) != 0)
            printf("%s: %s\n", json_string_value(json_object_get(f, "name")), err.message);
        CHECK_STR(gguf_class_name((int)class), expect);
        seen++;
    }
    CHECK_INT(seen, 105);
    json_decref(root);
}

/* ---- header ---- */

static void test_header(void **state)
{
    (void)state;
    struct strbuf b = {0};
    struct gguf *g;
    put_header(&b, 0, 0); /* without tensors there is no padding */
    CHECK_INT(gguf_parse_memory(&g, (const uint8_t *)b.data, b.len, "m.gguf", NULL, NULL), 0);
    CHECK_INT(gguf_data_start(g, 0), 24);
    CHECK(gguf_key_count(g) == 0 && gguf_tensor_count(g) == 0 && gguf_shard_count(g) == 1);
    CHECK_STR(gguf_shard_path(g, 0), "m.gguf");
    gguf_close(g);
    strbuf_clear(&b);
    CHECK_INT(verdict(&b), GGUF_E_TRUNCATED);
    strbuf_append(&b, "GGU", 3);
    CHECK_INT(verdict(&b), GGUF_E_TRUNCATED); /* three bytes may still become a GGUF */
    strbuf_append(&b, "E", 1);
    CHECK_INT(verdict(&b), GGUF_E_MAGIC); /* the magic is judged before the length */
    static const struct {
        uint32_t version;
        enum gguf_class want;
    } versions[] = {{0, GGUF_E_VERSION}, {1, GGUF_E_VERSION}, {2, GGUF_OK}, {3, GGUF_OK}, {4, GGUF_E_VERSION},
                    {0x03000000, GGUF_E_ENDIAN}, {0x00010000, GGUF_E_ENDIAN}, {0x00010003, GGUF_E_VERSION}};
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        strbuf_clear(&b);
        put_header(&b, 0, 0);
        memcpy(b.data + 4, &versions[i].version, 4);
        CHECK_INT(verdict(&b), versions[i].want);
        b.len = 23;
        CHECK_INT(verdict(&b), GGUF_E_TRUNCATED); /* the length is judged before the version */
    }
    static const uint64_t counts[] = {1, 65537, 1048577, UINT64_C(1) << 32, UINT64_MAX / 13 + 1, UINT64_MAX / 24 + 1,
                                      UINT64_C(1) << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        strbuf_clear(&b);
        put_header(&b, counts[i], 0);
        CHECK_INT(verdict(&b), GGUF_E_COUNT);
        strbuf_clear(&b);
        put_header(&b, 0, counts[i]);
        CHECK_INT(verdict(&b), GGUF_E_COUNT);
    }
    /* the bound is 13 bytes a key and 24 a tensor, together: 37 bytes hold one of each, 36 do not */
    strbuf_clear(&b);
    put_header(&b, 1, 1);
    put_zeros(&b, 36);
    CHECK_INT(verdict(&b), GGUF_E_COUNT);
    put_zeros(&b, 1);
    CHECK_INT(verdict(&b), GGUF_E_KEY);
    strbuf_free(&b);
}

/* ---- keys ---- */

static void start_key(struct strbuf *b, uint64_t n_keys)
{
    strbuf_clear(b);
    put_header(b, 0, n_keys);
}

static void test_key_names(void **state)
{
    (void)state;
    struct strbuf b = {0};
    for (int c = 0; c < 256; c++) { /* which bytes a key may hold */
        char name[2] = {'a', (char)c};
        start_key(&b, 1);
        put_bytes(&b, name, 2);
        put_u32(&b, GGUF_U8);
        put_u8(&b, 7);
        CHECK_INT(verdict(&b), c < 0x20 || c == 0x7F ? GGUF_E_KEY : GGUF_OK);
    }
    static char longest[65537];
    memset(longest, 'k', sizeof longest);
    for (size_t n = 65534; n <= 65536; n++) {
        start_key(&b, 1);
        put_bytes(&b, longest, n);
        put_u32(&b, GGUF_BOOL);
        put_u8(&b, 1);
        CHECK_INT(verdict(&b), n <= 65535 ? GGUF_OK : GGUF_E_STRING);
    }
    start_key(&b, 2);
    put_key_u32(&b, "same", 1);
    put_key_u32(&b, "same", 1);
    CHECK_INT(verdict(&b), GGUF_E_DUP_KEY);
    start_key(&b, 2); /* a prefix is another key */
    put_key_u32(&b, "same", 1);
    put_key_u32(&b, "sam", 1);
    CHECK_INT(verdict(&b), GGUF_OK);
    strbuf_free(&b);
}

/* Names that are prefixes of each other are told apart, whatever slots of the index they meet in. */
static void test_prefixes(void **state)
{
    (void)state;
    enum { N = 1500 };
    static char name[N + 1];
    struct strbuf b = {0};
    memset(name, 'p', N);
    start_key(&b, N);
    for (uint32_t n = N; n > 0; n--) {
        put_bytes(&b, name, n);
        put_u32(&b, GGUF_U32);
        put_u32(&b, n);
    }
    struct gguf *g;
    CHECK_INT(gguf_parse_memory(&g, (const uint8_t *)b.data, b.len, "m.gguf", NULL, NULL), 0);
    for (uint32_t n = N; n > 0; n--) {
        uint32_t v = 0;
        name[n] = '\0';
        CHECK_INT(gguf_get_u32(g, name, &v, NULL), 1);
        CHECK_INT(v, n);
    }
    gguf_close(g);
    strbuf_free(&b);
}

static void test_value_types(void **state)
{
    (void)state;
    struct strbuf b = {0};
    static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8};
    for (uint32_t type = 0; type < 16; type++) {
        if (type == GGUF_ARRAY)
            continue;
        start_key(&b, 1);
        put_key(&b, "key", type);
        size_t before = b.len;
        put_zeros(&b, type < 13 ? sizes[type] : 8);
        CHECK_INT(verdict(&b), type < 13 ? GGUF_OK : GGUF_E_VTYPE);
        while (type < 13 && b.len > before) {
            b.len--;
            CHECK_INT(verdict(&b), GGUF_E_TRUNCATED);
        }
    }
    static const uint32_t bad[] = {0x80000000u, 0xFFFFFFFFu, 0xFFFFFFF7u, 256, 0x10000};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        start_key(&b, 1);
        put_key(&b, "key", bad[i]);
        put_zeros(&b, 8);
        CHECK_INT(verdict(&b), GGUF_E_VTYPE);
    }
    for (int v = 0; v < 256; v++) {
        start_key(&b, 1);
        put_key(&b, "key", GGUF_BOOL);
        put_u8(&b, (uint8_t)v);
        CHECK_INT(verdict(&b), v < 2 ? GGUF_OK : GGUF_E_BOOL);
    }
    strbuf_free(&b);
}

static void test_strings(void **state)
{
    (void)state;
    struct strbuf b = {0};
    static const uint64_t lengths[] = {11, 1u << 30, (1u << 30) + 1, UINT64_C(1) << 31, UINT64_C(1) << 32,
                                       UINT64_C(1) << 63, UINT64_MAX - 8, UINT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        start_key(&b, 1);
        put_key(&b, "key", GGUF_STRING);
        put_u64(&b, lengths[i]);
        put_zeros(&b, 10);
        CHECK_INT(verdict(&b), GGUF_E_STRING);
        start_key(&b, 1); /* as an element */
        put_array(&b, "key", GGUF_STRING, 1);
        put_u64(&b, lengths[i]);
        put_zeros(&b, 10);
        CHECK_INT(verdict(&b), GGUF_E_STRING);
        start_key(&b, 1); /* as a key */
        put_u64(&b, lengths[i]);
        put_zeros(&b, 10);
        CHECK_INT(verdict(&b), GGUF_E_STRING);
    }
    skua_error err;
    start_key(&b, 1);
    put_key(&b, "a.b", GGUF_STRING);
    put_u64(&b, UINT64_C(4294967297));
    put_zeros(&b, 30);
    CHECK_INT(verdict_error(b.data, b.len, &err), GGUF_E_STRING);
    CHECK_STR(err.message, "m.gguf: E_STRING at byte 39: key 'a.b': string of 4294967297 bytes, 30 remain");
    strbuf_free(&b);
}

static void test_arrays(void **state)
{
    (void)state;
    struct strbuf b = {0};
    for (uint32_t type = 0; type < 15; type++) { /* an array of one zero of each type */
        start_key(&b, 1);
        put_array(&b, "key", type, 1);
        put_zeros(&b, 8);
        CHECK_INT(verdict(&b), type == GGUF_ARRAY || type > GGUF_F64 ? GGUF_E_ARRAY : GGUF_OK);
        start_key(&b, 1);
        put_array(&b, "key", type, 0);
        CHECK_INT(verdict(&b), type == GGUF_ARRAY || type > GGUF_F64 ? GGUF_E_ARRAY : GGUF_OK);
        static const uint64_t counts[] = {10, (1u << 30) + 1, UINT64_C(1) << 32, UINT64_C(1) << 60, UINT64_C(1) << 61,
                                          UINT64_C(1) << 62, UINT64_C(1) << 63, UINT64_MAX};
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            start_key(&b, 1);
            put_array(&b, "key", type, counts[i]);
            put_zeros(&b, 9); /* too few for 10 elements of any type */
            CHECK_INT(verdict(&b), GGUF_E_ARRAY);
        }
    }
    for (size_t cut = 1; cut <= 12; cut++) { /* cut array header */
        start_key(&b, 1);
        put_array(&b, "key", GGUF_U8, 0);
        b.len -= cut;
        CHECK_INT(verdict(&b), b.len - 24 < 13 ? GGUF_E_COUNT : GGUF_E_TRUNCATED);
    }
    start_key(&b, 1);
    put_array(&b, "key", GGUF_BOOL, 3);
    put_u8(&b, 1);
    put_u8(&b, 0);
    put_u8(&b, 2);
    CHECK_INT(verdict(&b), GGUF_E_BOOL);
    start_key(&b, 1); /* the second string is cut */
    put_array(&b, "key", GGUF_STRING, 2);
    put_str(&b, "one");
    put_u64(&b, 6);
    strbuf_append(&b, "short", 5);
    CHECK_INT(verdict(&b), GGUF_E_STRING);
    strbuf_free(&b);
}

static void test_alignment(void **state)
{
    (void)state;
    struct strbuf b = {0};
    const uint64_t ne = 1;
    for (uint32_t shift = 0; shift < 32; shift++)
        for (uint32_t extra = 0; extra < 2; extra++) {
            uint32_t a = (1u << shift) + extra;
            strbuf_clear(&b);
            put_header(&b, 0, 1);
            put_key_u32(&b, "general.alignment", a);
            bool good = extra == 0 && shift >= 3 && shift <= 20;
            CHECK_INT(verdict(&b), good ? GGUF_OK : GGUF_E_ALIGN);
        }
    for (uint32_t type = 0; type < 13; type++) { /* 64 as each type: only u32 will do */
        strbuf_clear(&b);
        put_header(&b, 0, 1);
        put_key(&b, "general.alignment", type);
        put_u64(&b, type == GGUF_STRING ? 0 : type == GGUF_BOOL ? 1 : type == GGUF_ARRAY ? GGUF_U32 : 64);
        put_zeros(&b, 8);
        CHECK_INT(verdict(&b), type == GGUF_U32 ? GGUF_OK : GGUF_E_ALIGN);
    }
    strbuf_clear(&b); /* zero */
    put_header(&b, 0, 1);
    put_key_u32(&b, "general.alignment", 0);
    CHECK_INT(verdict(&b), GGUF_E_ALIGN);
    /* the data section follows the key: with 64 the tensor lies at the next multiple of 64 */
    strbuf_clear(&b);
    put_header(&b, 1, 1);
    put_key_u32(&b, "general.alignment", 64);
    put_tensor(&b, "t", 1, &ne, QTYPE_F32, 0);
    put_padding(&b, 64);
    size_t start = b.len;
    put_u32(&b, 0x40490FDBu);
    struct gguf *g;
    uint8_t *copy;
    CHECK_INT(parse_copy(&g, &copy, b.data, b.len, NULL, NULL), 0);
    CHECK_INT(gguf_tensor_at(g, 0)->file_offset, start);
    CHECK_INT(gguf_data_start(g, 0), start);
    CHECK_INT(gguf_alignment(g, 0), 64);
    CHECK_MEM(gguf_tensor_at(g, 0)->data, b.data + start, 4);
    gguf_close(g);
    free(copy);
    strbuf_free(&b);
}

/* ---- tensors ---- */

/* One tensor with the given info and n data bytes. */
static enum gguf_class one_tensor(uint32_t n_dims, const uint64_t *ne, uint32_t type, uint64_t offset, size_t n)
{
    struct strbuf b = {0};
    put_header(&b, 1, 0);
    put_tensor(&b, "tensor", n_dims, ne, type, offset);
    if (n) {
        put_padding(&b, 32);
        put_zeros(&b, n);
    }
    enum gguf_class class = verdict(&b);
    strbuf_free(&b);
    return class;
}

static void test_tensor_names(void **state)
{
    (void)state;
    struct strbuf b = {0};
    const uint64_t ne = 1;
    for (size_t n = 0; n <= 65; n++) {
        char name[66] = {0};
        memset(name, 'n', n);
        strbuf_clear(&b);
        put_header(&b, 1, 0);
        put_tensor(&b, name, 1, &ne, QTYPE_I8, 0);
        put_padding(&b, 32);
        put_u8(&b, 0);
        CHECK_INT(verdict(&b), n >= 1 && n <= 63 ? GGUF_OK : GGUF_E_TNAME);
    }
    strbuf_clear(&b);
    put_header(&b, 1, 0);
    put_bytes(&b, "a\0b", 3);
    put_zeros(&b, 64);
    CHECK_INT(verdict(&b), GGUF_E_TNAME);
    static const uint64_t lengths[] = {65, 1u << 31, UINT64_C(1) << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) { /* longer than the file: E_STRING comes first */
        strbuf_clear(&b);
        put_header(&b, 1, 0);
        put_u64(&b, lengths[i]);
        put_zeros(&b, 64);
        CHECK_INT(verdict(&b), GGUF_E_STRING);
    }
    strbuf_clear(&b);
    put_header(&b, 2, 0);
    put_tensor(&b, "twice", 1, &ne, QTYPE_I8, 0);
    put_tensor(&b, "twice", 1, &ne, QTYPE_I8, 32);
    put_padding(&b, 32);
    put_zeros(&b, 64);
    CHECK_INT(verdict(&b), GGUF_E_DUP_TENSOR);
    strbuf_free(&b);
}

static void test_dimensions(void **state)
{
    (void)state;
    static const uint64_t ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    for (uint32_t d = 0; d <= 8; d++)
        CHECK_INT(one_tensor(d, ones, QTYPE_F32, 0, 4), d <= 4 ? GGUF_OK : GGUF_E_NDIMS);
    struct strbuf b = {0}; /* the count is judged before the dimensions are looked for */
    static const uint32_t counts[] = {5, 0x80000000u, 0xFFFFFFFFu, 0x20000000u};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        strbuf_clear(&b);
        put_header(&b, 1, 0);
        put_str(&b, "tensor-name");
        put_u32(&b, counts[i]);
        put_zeros(&b, 12);
        CHECK_INT(verdict(&b), GGUF_E_NDIMS);
    }
    strbuf_free(&b);
    static const uint64_t bad[] = {0, UINT64_C(1) << 63, UINT64_MAX};
    for (uint32_t d = 0; d < 4; d++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            uint64_t ne[4] = {1, 1, 1, 1};
            ne[d] = bad[i];
            CHECK_INT(one_tensor(4, ne, QTYPE_F32, 0, 4), GGUF_E_DIM);
            ne[(d + 1) % 4] = INT64_MAX; /* a bad dimension is reported before an overflow */
            CHECK_INT(one_tensor(4, ne, QTYPE_F32, 0, 4), GGUF_E_DIM);
        }
    static const uint64_t over[][4] = {{INT64_MAX, 2, 1, 1}, {UINT64_C(1) << 32, UINT64_C(1) << 31, 1, 1},
                                       {UINT64_C(1) << 32, UINT64_C(1) << 32, 1, 1}, {1u << 16, 1u << 16, 1u << 16, 1u << 15},
                                       {1u << 31, 1u << 31, 2, 2}, {3, INT64_MAX, 3, 3}};
    for (size_t i = 0; i < sizeof over / sizeof *over; i++)
        CHECK_INT(one_tensor(4, over[i], QTYPE_I8, 0, 4), GGUF_E_OVERFLOW);
    const uint64_t largest = INT64_MAX, quarter = UINT64_C(1) << 61;
    CHECK_INT(one_tensor(1, &largest, QTYPE_I8, 0, 4), GGUF_E_RANGE); /* fits 63 bits, not the file */
    CHECK_INT(one_tensor(1, &quarter, QTYPE_F32, 0, 4), GGUF_E_OVERFLOW);
    CHECK_INT(one_tensor(1, &quarter, QTYPE_F16, 0, 4), GGUF_E_RANGE);
    CHECK_INT(one_tensor(1, &quarter, QTYPE_F64, 0, 4), GGUF_E_OVERFLOW); /* wraps to 0 */
    /* 2^63 elements are too many even where their bytes are not */
    const uint64_t many[2] = {UINT64_C(1) << 32, UINT64_C(1) << 31}, less[2] = {UINT64_C(1) << 32, UINT64_C(1) << 30};
    CHECK_INT(one_tensor(2, many, QTYPE_Q1_0, 0, 4), GGUF_E_OVERFLOW);
    CHECK_INT(one_tensor(2, less, QTYPE_Q1_0, 0, 4), GGUF_E_RANGE);
}

static void test_tensor_types(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < 300; id++) {
        const struct qtype_info *t = qtype_info(id);
        uint64_t ne[2] = {t ? t->block_elements * 2u : 256, 3};
        if (!t) {
            CHECK_INT(one_tensor(2, ne, id, 0, 4096), GGUF_E_TTYPE);
            continue;
        }
        size_t bytes = (size_t)6 * t->block_bytes;
        CHECK_INT(one_tensor(2, ne, id, 0, bytes), GGUF_OK);
        CHECK_INT(one_tensor(2, ne, id, 0, bytes - 1), GGUF_E_RANGE);
        for (uint64_t d = 1; d < t->block_elements; d++) {
            ne[0] = t->block_elements + d;
            CHECK_INT(one_tensor(2, ne, id, 0, bytes), GGUF_E_BLOCK);
        }
        if (t->block_elements > 1) { /* blocks never span rows */
            uint64_t half[2] = {t->block_elements / 2, 4};
            CHECK_INT(one_tensor(2, half, id, 0, bytes), GGUF_E_BLOCK);
        }
        CHECK_INT(qtype_row_bytes(id, t->block_elements * 5u), t->block_bytes * 5u);
        CHECK_INT(qtype_row_bytes(id, UINT64_MAX / t->block_elements * t->block_elements),
                  t->block_bytes > t->block_elements ? 0 : UINT64_MAX / t->block_elements * t->block_bytes);
        CHECK_INT(qtype_from_name(t->name), id);
    }
    static const uint32_t ids[] = {0x7FFFFFFFu, 0x80000000u, 0xFFFFFFFFu};
    const uint64_t ne = 256;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        CHECK(qtype_info(ids[i]) == NULL);
        CHECK_INT(one_tensor(1, &ne, ids[i], 0, 4096), GGUF_E_TTYPE);
    }
    CHECK_INT(one_tensor(0, &ne, QTYPE_Q8_0, 0, 4096), GGUF_E_BLOCK); /* a single element is no block */
    CHECK_INT(qtype_from_name("q4_k"), QTYPE_Q4_K);
    CHECK_INT(qtype_from_name("Q4_"), -1);
    CHECK_INT(qtype_row_bytes(QTYPE_Q4_K, 255), 0);
    CHECK_INT(qtype_row_bytes(4, 256), 0);
}

static void test_ranges(void **state)
{
    (void)state;
    const uint64_t ne = 10; /* 40 bytes of f32 */
    CHECK_INT(one_tensor(1, &ne, QTYPE_F32, 0, 40), GGUF_OK);
    CHECK_INT(one_tensor(1, &ne, QTYPE_F32, 0, 39), GGUF_E_RANGE);
    CHECK_INT(one_tensor(1, &ne, QTYPE_F32, 0, 0), GGUF_E_RANGE); /* not even the padding is there */
    CHECK_INT(one_tensor(1, &ne, QTYPE_F32, 32, 72), GGUF_OK);    /* a gap in front */
    CHECK_INT(one_tensor(1, &ne, QTYPE_F32, 32, 71), GGUF_E_RANGE);
    CHECK_INT(one_tensor(1, &ne, QTYPE_F32, 0, 5000), GGUF_OK); /* bytes behind */
    for (uint64_t o = 1; o < 32; o++)
        CHECK_INT(one_tensor(1, &ne, QTYPE_F32, o, 200), GGUF_E_OFFSET);
    CHECK_INT(one_tensor(1, &ne, QTYPE_F32, UINT64_MAX - 31, 200), GGUF_E_RANGE);
    CHECK_INT(one_tensor(1, &ne, QTYPE_F32, UINT64_C(1) << 63, 200), GGUF_E_RANGE);

    struct strbuf b = {0}; /* three tensors whose sizes wrap when summed; each range is judged alone */
    const uint64_t huge = UINT64_C(1) << 62;
    put_header(&b, 3, 0);
    put_tensor(&b, "a", 1, &huge, QTYPE_I8, 0);
    put_tensor(&b, "b", 1, &huge, QTYPE_I8, huge);
    put_tensor(&b, "c", 1, &huge, QTYPE_I8, 2 * huge);
    put_padding(&b, 32);
    put_zeros(&b, 64);
    CHECK_INT(verdict(&b), GGUF_E_RANGE);
    strbuf_free(&b);
}

/* Tensors of 8 f32 (32 bytes) at the given multiples of 32, in table order. */
static enum gguf_class at_offsets(const uint64_t *units, uint32_t n, uint32_t type, size_t data)
{
    struct strbuf b = {0};
    const uint64_t ne = 8;
    put_header(&b, n, 0);
    for (uint32_t i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%u", i);
        put_tensor(&b, name, 1, &ne, type, units[i] * 32);
    }
    put_padding(&b, 32);
    put_zeros(&b, data);
    enum gguf_class class = verdict(&b);
    strbuf_free(&b);
    return class;
}

static void test_overlap(void **state)
{
    (void)state;
    CHECK_INT(at_offsets((uint64_t[]){0, 1, 2}, 3, QTYPE_F32, 96), GGUF_OK);
    CHECK_INT(at_offsets((uint64_t[]){2, 0, 1}, 3, QTYPE_F32, 96), GGUF_OK); /* any order in the table */
    CHECK_INT(at_offsets((uint64_t[]){0, 2, 1}, 3, QTYPE_F32, 96), GGUF_OK);
    CHECK_INT(at_offsets((uint64_t[]){1, 0, 2}, 3, QTYPE_F32, 96), GGUF_OK);
    CHECK_INT(at_offsets((uint64_t[]){5, 0, 3}, 3, QTYPE_F32, 192), GGUF_OK); /* gaps */
    CHECK_INT(at_offsets((uint64_t[]){1, 0, 1}, 3, QTYPE_F32, 96), GGUF_E_OVERLAP);
    CHECK_INT(at_offsets((uint64_t[]){0, 1}, 2, QTYPE_F64, 96), GGUF_E_OVERLAP); /* partly */
    CHECK_INT(at_offsets((uint64_t[]){0, 2}, 2, QTYPE_F64, 128), GGUF_OK);
    /* random permutations of 300 tensors are fine, and one moved onto another is found */
    uint64_t seed = 7;
    for (int round = 0; round < 20; round++) {
        uint64_t units[300];
        for (uint32_t i = 0; i < 300; i++)
            units[i] = i;
        for (uint32_t i = 299; i > 0; i--) {
            uint32_t j = (uint32_t)(rng_next(&seed) % (i + 1));
            uint64_t swap = units[i];
            units[i] = units[j];
            units[j] = swap;
        }
        CHECK_INT(at_offsets(units, 300, QTYPE_F32, 9600), GGUF_OK);
        units[rng_next(&seed) % 150] = units[150 + rng_next(&seed) % 150];
        CHECK_INT(at_offsets(units, 300, QTYPE_F32, 9600), GGUF_E_OVERLAP);
    }
}

/* Ids 36 and 37 are taken only where the sizes fit exactly: 64 elements are 36 and 20 bytes, so the next tensor starts at 64
   and 32. */
static enum gguf_class ambiguous(uint32_t type, uint64_t next, size_t tail)
{
    struct strbuf b = {0};
    const uint64_t ne = 64, one = 1;
    put_header(&b, next ? 2 : 1, 0);
    put_tensor(&b, "q", 1, &ne, type, 0);
    if (next)
        put_tensor(&b, "after", 1, &one, QTYPE_F32, next);
    put_padding(&b, 32);
    put_zeros(&b, (size_t)next + tail);
    skua_error err;
    enum gguf_class class = verdict_error(b.data, b.len, &err);
    if (class == GGUF_E_TTYPE) {
        CHECK(strstr(err.message, "ambiguous") != NULL);
        CHECK(strstr(err.message, type == 36 ? "Q4_64A" : "Q2_64A") != NULL);
    }
    strbuf_free(&b);
    return class;
}

static void test_ambiguous_types(void **state)
{
    (void)state;
    CHECK_INT(ambiguous(36, 64, 4), GGUF_OK);
    CHECK_INT(ambiguous(37, 32, 4), GGUF_OK);
    CHECK_INT(ambiguous(36, 96, 4), GGUF_E_TTYPE); /* larger than ours */
    CHECK_INT(ambiguous(37, 64, 4), GGUF_E_TTYPE);
    CHECK_INT(ambiguous(36, 32, 40), GGUF_E_OVERLAP); /* smaller than ours */
    CHECK_INT(ambiguous(36, 0, 36), GGUF_OK);         /* last: with and without padding */
    CHECK_INT(ambiguous(36, 0, 64), GGUF_OK);
    CHECK_INT(ambiguous(36, 0, 65), GGUF_E_TTYPE);
    CHECK_INT(ambiguous(37, 0, 20), GGUF_OK);
    CHECK_INT(ambiguous(37, 0, 33), GGUF_E_TTYPE);
    CHECK_INT(ambiguous(36, 0, 35), GGUF_E_RANGE);
}

/* ---- whole files ---- */

/* A file with every kind of value and several tensors; *needed gets the length it must have at least. */
static void rich_file(struct strbuf *b, size_t *needed)
{
    const uint64_t ne[3] = {32, 2, 3};
    put_header(b, 3, 9);
    put_key(b, "general.architecture", GGUF_STRING);
    put_str(b, "qwen35");
    put_key_u32(b, "general.alignment", 16);
    put_key(b, "a.bool", GGUF_BOOL);
    put_u8(b, 1);
    put_key(b, "a.u16", GGUF_U16);
    put_u16(b, 513);
    put_key(b, "a.f64", GGUF_F64);
    put_u64(b, UINT64_C(0x3FF8000000000000));
    put_array(b, "a.strings", GGUF_STRING, 3);
    put_str(b, "");
    put_str(b, "x");
    put_str(b, "hello");
    put_array(b, "a.i32", GGUF_I32, 4);
    for (uint32_t i = 0; i < 4; i++)
        put_u32(b, i - 2);
    put_array(b, "a.bools", GGUF_BOOL, 2);
    put_u16(b, 0x0100);
    put_array(b, "a.empty", GGUF_F32, 0);
    put_tensor(b, "one", 1, ne, QTYPE_F32, 0);         /* 128 bytes */
    put_tensor(b, "three", 3, ne, QTYPE_Q8_0, 128);    /* 204 bytes */
    put_tensor(b, "scalar", 0, ne, QTYPE_F64, 336);    /* 8 bytes */
    put_padding(b, 16);
    put_zeros(b, 344);
    *needed = b->len;
}

static void test_truncation(void **state)
{
    (void)state;
    struct strbuf b = {0};
    size_t needed;
    rich_file(&b, &needed);
    CHECK_INT(verdict(&b), GGUF_OK);
    for (b.len = needed - 1; b.len > 0; b.len--)
        CHECK(verdict(&b) != GGUF_OK);
    strbuf_free(&b);
}

/* Of processor time, so that a busy machine does not count. */
static double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void test_mutation(void **state)
{
    (void)state;
    struct strbuf b = {0};
    size_t needed;
    rich_file(&b, &needed);
    uint64_t seed = 20240607, ok = 0, bound_bytes = b.len + (1 << 20), worst_bytes = 0;
    double worst_seconds = 0;
    for (int i = 0; i < 30000; i++) {
        char saved[600];
        assert_true(b.len <= sizeof saved + 400);
        size_t n = 1 + rng_next(&seed) % 3, span = 560; /* metadata only: the data is not judged */
        memcpy(saved, b.data, span);
        while (n--) {
            static const uint8_t edges[] = {0, 1, 0x7F, 0x80, 0xFF};
            uint64_t r = rng_next(&seed);
            b.data[r % span] = (char)(r >> 32 & 1 ? edges[(r >> 40) % 5] : (uint8_t)(r >> 40));
        }
        struct gguf *g;
        enum gguf_class class;
        uint64_t before = requested_bytes;
        double start = now_seconds();
        int rc = gguf_parse_memory(&g, (const uint8_t *)b.data, b.len, "m.gguf", &class, NULL);
        double took = now_seconds() - start;
        uint64_t used = requested_bytes - before;
        worst_seconds = took > worst_seconds ? took : worst_seconds;
        worst_bytes = used > worst_bytes ? used : worst_bytes;
        assert_true(rc == 0 ? class == GGUF_OK : class != GGUF_OK && g == NULL);
        ok += rc == 0;
        gguf_close(g);
        memcpy(b.data, saved, span);
    }
    checks += 30000;
    printf("mutants: %llu of 30000 accepted, slowest %.3f ms, most allocated %llu bytes\n", (unsigned long long)ok,
           worst_seconds * 1e3, (unsigned long long)worst_bytes);
    CHECK(ok > 100 && ok < 29900); /* both kinds were seen */
    CHECK(worst_seconds < 0.1);
    CHECK(worst_bytes < bound_bytes);
    strbuf_free(&b);
}

/* ---- limits that need large files ---- */

/* One key with a value of `size` bytes, in zeroed pages that are never touched. */
static enum gguf_class large_value(uint32_t type, uint64_t count, uint64_t size)
{
    struct strbuf b = {0};
    enum gguf_class class;
    struct gguf *g;
    start_key(&b, 1);
    put_key(&b, "key", type);
    if (type == GGUF_ARRAY)
        put_u32(&b, GGUF_U8);
    put_u64(&b, count);
    size_t total = b.len + (size_t)size;
    uint8_t *p = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(p != MAP_FAILED);
    memcpy(p, b.data, b.len);
    gguf_parse_memory(&g, p, total, "m.gguf", &class, NULL);
    gguf_close(g);
    munmap(p, total);
    strbuf_free(&b);
    return class;
}

static void put_many_keys(struct strbuf *b, uint32_t n);

static void test_large(void **state)
{
    (void)state;
    const uint64_t limit = UINT64_C(1) << 30;
    CHECK_INT(large_value(GGUF_STRING, limit, limit), GGUF_OK);
    CHECK_INT(large_value(GGUF_STRING, limit, limit - 1), GGUF_E_STRING);
    CHECK_INT(large_value(GGUF_STRING, limit + 1, limit + 1), GGUF_E_STRING);
    CHECK_INT(large_value(GGUF_ARRAY, limit, limit), GGUF_OK);
    CHECK_INT(large_value(GGUF_ARRAY, limit, limit - 1), GGUF_E_ARRAY);
    CHECK_INT(large_value(GGUF_ARRAY, limit + 1, limit + 1), GGUF_E_ARRAY);
    struct strbuf b = {0};
    put_many_keys(&b, 65536);
    CHECK_INT(verdict(&b), GGUF_OK);
    strbuf_clear(&b);
    put_many_keys(&b, 65537);
    CHECK_INT(verdict(&b), GGUF_E_COUNT);
    strbuf_free(&b);
}

/* ---- memory bound ---- */

/* Short distinct names: 1-byte, 2-byte, ... strings over 255 byte values without zero. */
static size_t short_name(uint64_t i, char *out)
{
    size_t n = 0;
    for (i++; i; i = (i - 1) / 200)
        out[n++] = (char)(0x80 - 0x5F + (i - 1) % 200 + ((i - 1) % 200 >= 0x5E ? 1 : 0));
    return n;
}

/* n keys that are as small as possible. */
static void put_many_keys(struct strbuf *b, uint32_t n)
{
    put_header(b, 0, n);
    for (uint32_t i = 0; i < n; i++) {
        char name[8];
        put_bytes(b, name, short_name(i, name));
        put_u32(b, GGUF_U8);
        put_u8(b, 0);
    }
}

/* n minimal tensors of 8 bytes with alignment 8, in reverse order of their data; `last_offset` is that of the last. */
static void many_tensors(struct strbuf *b, uint32_t n, uint64_t last_offset)
{
    put_header(b, n, 1);
    put_key_u32(b, "general.alignment", 8);
    for (uint32_t i = 0; i < n; i++) {
        char name[8];
        put_bytes(b, name, short_name(i, name));
        put_u32(b, 0);
        put_u32(b, QTYPE_I64);
        put_u64(b, i + 1 == n ? last_offset : (uint64_t)(n - 1 - i) * 8);
    }
    put_padding(b, 8);
    put_zeros(b, (size_t)n * 8);
}

static uint64_t bytes_for(const struct strbuf *b, enum gguf_class want)
{
    struct gguf *g;
    enum gguf_class class;
    uint64_t before = requested_bytes;
    gguf_parse_memory(&g, (const uint8_t *)b->data, b->len, "m.gguf", &class, NULL);
    uint64_t used = requested_bytes - before;
    CHECK_INT(class, want);
    gguf_close(g);
    return used;
}

static void test_memory_bound(void **state)
{
    (void)state;
    if (!COUNTS_BYTES) {
        printf("skipped 1 test: allocations are not counted in this build\n");
        skip();
    }
    struct strbuf b = {0};
    enum { N = 349526 }; /* just above two thirds of a power of two: the index is at its largest */
    many_tensors(&b, N, 0);
    uint64_t used = bytes_for(&b, GGUF_OK);
    printf("%u tensors accepted: file %zu bytes, allocated %llu\n", N, b.len, (unsigned long long)used);
    CHECK(used > N * 72u && used < 3 * b.len + (1 << 20));
    strbuf_clear(&b);
    many_tensors(&b, N, 8); /* overlaps the one before */
    used = bytes_for(&b, GGUF_E_OVERLAP);
    printf("%u tensors refused: file %zu bytes, allocated %llu\n", N, b.len, (unsigned long long)used);
    CHECK(used > N * 20u && used < b.len + (1 << 20));
    strbuf_clear(&b); /* as many keys as are allowed, then one byte too few */
    put_many_keys(&b, 65536);
    used = bytes_for(&b, GGUF_OK);
    CHECK(used < b.len + (1 << 20));
    b.len--;
    used = bytes_for(&b, GGUF_E_TRUNCATED);
    printf("65536 keys refused: file %zu bytes, allocated %llu\n", b.len, (unsigned long long)used);
    CHECK(used > 65536 * 8 && used < b.len + (1 << 20));
    strbuf_clear(&b); /* a million empty strings are kept as views, with no memory of their own */
    put_header(&b, 0, 1);
    put_array(&b, "tokens", GGUF_STRING, 1 << 20);
    put_zeros(&b, 8u << 20);
    CHECK(bytes_for(&b, GGUF_OK) < 4096);
    strbuf_clear(&b); /* counts without content cost nothing */
    put_header(&b, 1048576, 0);
    put_zeros(&b, 1000);
    CHECK(bytes_for(&b, GGUF_E_COUNT) < 4096);
    strbuf_free(&b);
}

static void test_names(void **state)
{
    (void)state;
    CHECK_STR(gguf_class_name(GGUF_OK), "ok");
    CHECK_STR(gguf_class_name(GGUF_E_MAGIC), "E_MAGIC");
    CHECK_STR(gguf_class_name(GGUF_E_SPLIT), "E_SPLIT");
    CHECK_STR(gguf_class_name(-1), "unknown");
    CHECK_STR(gguf_class_name(GGUF_CLASS_END), "unknown");
    for (int i = 0; i < GGUF_CLASS_END; i++)
        CHECK(gguf_class_name(i) != NULL);
    CHECK_STR(gguf_type_name(GGUF_F64), "f64");
    CHECK_STR(gguf_type_name(13), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),      cmocka_unit_test(test_header),          cmocka_unit_test(test_key_names),
        cmocka_unit_test(test_prefixes), cmocka_unit_test(test_value_types), cmocka_unit_test(test_large),
        cmocka_unit_test(test_strings),         cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_alignment),    cmocka_unit_test(test_tensor_names),    cmocka_unit_test(test_dimensions),
        cmocka_unit_test(test_tensor_types), cmocka_unit_test(test_ranges),          cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_ambiguous_types), cmocka_unit_test(test_truncation),   cmocka_unit_test(test_mutation),
        cmocka_unit_test(test_memory_bound), cmocka_unit_test(test_names),
    };
    return finish_checks("test_gguf", cmocka_run_group_tests(tests, NULL, NULL));
}
