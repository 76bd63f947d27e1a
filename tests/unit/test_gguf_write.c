/* GGUF writer: exact bytes of a written file, round trips, refusals, and failures of every allocation and file operation
   while writing. */
#include "gguf_temp.h"

#include "gguf/gguf_write.h"

#define OK(call) CHECK_INT(call, 0)

static struct gguf *parse(const struct strbuf *b)
{
    struct gguf *g = NULL;
    skua_error err = {0};
    if (gguf_parse_memory(&g, (const uint8_t *)b->data, b->len, "m.gguf", NULL, &err))
        printf("%s\n", err.message);
    assert_non_null(g);
    return g;
}

static const float one_data[3] = {1, 2, 3};
static const uint8_t two_data[68] = {0x00, 0x3C, 5, 6, 7, [67] = 9};

/* Declare and write a small file; the first failure ends it. */
static int write_small(struct gguf_writer *w, const char *path, skua_error *err)
{
    static const uint64_t ne_one[4] = {3, 1, 1, 1}, ne_two[2] = {32, 2};
    static const struct gguf_string strings[] = {{"x", 1}, {"", 0}};
    static const int32_t ints[] = {-1, 70000};
    int64_t i64 = -5;
    int rc = gguf_writer_add_u32(w, "a.u32", 7, err);
    rc = rc ? rc : gguf_writer_add_f32(w, "a.f32", 0.5f, err);
    rc = rc ? rc : gguf_writer_add_string(w, "general.architecture", "qwen35", 6, err); /* goes first */
    rc = rc ? rc : gguf_writer_add_bool(w, "a.bool", true, err);
    rc = rc ? rc : gguf_writer_add_scalar(w, "a.i64", GGUF_I64, &i64, err);
    rc = rc ? rc : gguf_writer_add_strings(w, "a.strings", strings, 2, err);
    rc = rc ? rc : gguf_writer_add_array(w, "a.ints", GGUF_I32, ints, 2, err);
    rc = rc ? rc : gguf_writer_add_tensor(w, "one", QTYPE_F32, 4, ne_one, err);
    rc = rc ? rc : gguf_writer_add_tensor(w, "two", QTYPE_Q8_0, 2, ne_two, err);
    rc = rc ? rc : gguf_writer_begin(w, path, err);
    rc = rc ? rc : gguf_writer_data(w, "one", one_data, sizeof one_data, err);
    rc = rc ? rc : gguf_writer_data(w, "two", two_data, 1, err);
    rc = rc ? rc : gguf_writer_data(w, "two", two_data + 1, 67, err);
    return rc ? rc : gguf_writer_finish(w, err);
}

/* The same file by hand. */
static void small_bytes(struct strbuf *b, uint32_t alignment)
{
    static const uint64_t ne_one[1] = {3}, ne_two[2] = {32, 2};
    put_header(b, 2, 7 + (alignment != 32));
    put_key(b, "general.architecture", GGUF_STRING);
    put_str(b, "qwen35");
    if (alignment != 32)
        put_key_u32(b, "general.alignment", alignment);
    put_key_u32(b, "a.u32", 7);
    put_key_u32(b, "a.f32", 0x3F000000u);
    b->data[b->len - 8] = GGUF_F32;
    put_key(b, "a.bool", GGUF_BOOL);
    put_u8(b, 1);
    put_key(b, "a.i64", GGUF_I64);
    put_u64(b, UINT64_MAX - 4);
    put_array(b, "a.strings", GGUF_STRING, 2);
    put_str(b, "x");
    put_str(b, "");
    put_array(b, "a.ints", GGUF_I32, 2);
    put_u32(b, UINT32_MAX);
    put_u32(b, 70000);
    put_tensor(b, "one", 1, ne_one, QTYPE_F32, 0);
    put_tensor(b, "two", 2, ne_two, QTYPE_Q8_0, alignment > 12 ? alignment : 16);
    put_padding(b, alignment);
    strbuf_append(b, one_data, sizeof one_data);
    put_padding(b, alignment);
    strbuf_append(b, two_data, sizeof two_data);
    put_padding(b, alignment);
}

static void test_exact_bytes(void **state)
{
    (void)state;
    static const uint32_t alignments[] = {8, 16, 32, 64, 1048576};
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
        struct gguf_writer *w;
        struct strbuf b = {0};
        struct file_map m;
        skua_error err = {0};
        OK(gguf_writer_new(&w, alignments[i], &err));
        OK(write_small(w, temp_path("small.gguf"), &err));
        small_bytes(&b, alignments[i]);
        CHECK_INT(gguf_writer_file_bytes(w), b.len);
        gguf_writer_free(w);
        OK(file_map_open(&m, temp_path("small.gguf"), &err));
        CHECK_INT(m.size, b.len);
        CHECK_MEM(m.data, b.data, b.len);
        file_map_close(&m);
        struct gguf *g;
        OK(gguf_open(&g, temp_path("small.gguf"), &err));
        CHECK_INT(gguf_version(g), 3);
        CHECK_INT(gguf_alignment(g, 0), alignments[i]);
        const struct gguf_tensor *t = gguf_find_tensor(g, "two");
        CHECK(t && t->size_bytes == 68 && memcmp(t->data, two_data, 68) == 0);
        CHECK(t->ne[0] == 32 && t->ne[1] == 2 && t->ne[2] == 1 && t->ne[3] == 1 && t->n_dims == 2);
        CHECK_INT((uintptr_t)t->data % 8, 0);
        gguf_close(g);
        strbuf_free(&b);
    }
    /* sizes that are multiples of the alignment get no padding */
    struct gguf_writer *full;
    struct gguf *g;
    static const float eight[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const uint64_t ne = 8;
    OK(gguf_writer_new(&full, 32, NULL));
    OK(gguf_writer_add_tensor(full, "a", QTYPE_F32, 1, &ne, NULL));
    OK(gguf_writer_add_tensor(full, "b", QTYPE_F32, 1, &ne, NULL));
    OK(gguf_writer_begin(full, temp_path("full.gguf"), NULL));
    OK(gguf_writer_data(full, "a", eight, sizeof eight, NULL));
    OK(gguf_writer_data(full, "b", eight, sizeof eight, NULL));
    OK(gguf_writer_finish(full, NULL));
    CHECK_INT(gguf_writer_file_bytes(full), 96 + 64); /* 24 + 2 * 33 bytes of metadata, rounded up */
    gguf_writer_free(full);
    OK(gguf_open(&g, temp_path("full.gguf"), NULL));
    size_t file_size;
    gguf_shard_data(g, 0, &file_size);
    CHECK_INT(file_size, 96 + 64);
    CHECK_INT(gguf_find_tensor(g, "b")->file_offset, 96 + 32);
    CHECK_MEM(gguf_find_tensor(g, "b")->data, eight, sizeof eight);
    gguf_close(g);
    /* no tensors: no padding */
    struct gguf_writer *w;
    struct file_map m;
    OK(gguf_writer_new(&w, 32, NULL));
    OK(gguf_writer_add_u32(w, "k", 1, NULL));
    OK(gguf_writer_begin(w, temp_path("keys.gguf"), NULL));
    OK(gguf_writer_finish(w, NULL));
    CHECK_INT(gguf_writer_file_bytes(w), 24 + 9 + 4 + 4);
    gguf_writer_free(w);
    OK(file_map_open(&m, temp_path("keys.gguf"), NULL));
    CHECK_INT(m.size, 24 + 9 + 4 + 4);
    file_map_close(&m);
}

/* Every scalar and array type with random content survives. */
static void test_all_types(void **state)
{
    (void)state;
    struct gguf_writer *w;
    struct gguf *g;
    skua_error err = {0};
    static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    uint8_t raw[64];
    for (size_t i = 0; i < sizeof raw; i++)
        raw[i] = (uint8_t)(i * 37 + 129);
    static const uint8_t bools[3] = {1, 0, 1};
    OK(gguf_writer_new(&w, 32, &err));
    for (int t = 0; t < GGUF_TYPE_END; t++) {
        char name[32];
        if (!sizes[t])
            continue;
        snprintf(name, sizeof name, "s.%s", gguf_type_name((uint32_t)t));
        OK(gguf_writer_add_scalar(w, name, (enum gguf_type)t, t == GGUF_BOOL ? bools : raw, &err));
        snprintf(name, sizeof name, "a.%s", gguf_type_name((uint32_t)t));
        OK(gguf_writer_add_array(w, name, (enum gguf_type)t, t == GGUF_BOOL ? bools : raw, 3, &err));
        snprintf(name, sizeof name, "e.%s", gguf_type_name((uint32_t)t));
        OK(gguf_writer_add_array(w, name, (enum gguf_type)t, NULL, 0, &err));
    }
    OK(gguf_writer_begin(w, temp_path("types.gguf"), &err));
    OK(gguf_writer_finish(w, &err));
    gguf_writer_free(w);
    OK(gguf_open(&g, temp_path("types.gguf"), &err));
    CHECK_INT(gguf_key_count(g), 33);
    for (int t = 0; t < GGUF_TYPE_END; t++) {
        char name[32];
        struct gguf_array a;
        struct gguf_value v;
        const uint8_t *want = t == GGUF_BOOL ? bools : raw;
        if (!sizes[t])
            continue;
        snprintf(name, sizeof name, "a.%s", gguf_type_name((uint32_t)t));
        OK(gguf_require_array(g, name, GGUF_ANY_ELEMENTS, &a, &err));
        CHECK(a.type == (enum gguf_type)t && a.count == 3 && a.size_bytes == 3u * sizes[t]);
        CHECK_MEM(a.data, want, a.size_bytes);
        snprintf(name, sizeof name, "e.%s", gguf_type_name((uint32_t)t));
        OK(gguf_require_array(g, name, GGUF_ANY_ELEMENTS, &a, &err));
        CHECK(a.type == (enum gguf_type)t && a.count == 0);
        snprintf(name, sizeof name, "s.%s", gguf_type_name((uint32_t)t));
        CHECK(gguf_find_key(g, name, &v) && v.type == (enum gguf_type)t);
        CHECK_MEM(v.key.data + v.key.len + 4, want, sizes[t]);
    }
    gguf_close(g);
}

static bool skip_two(void *context, struct gguf_string key)
{
    ++*(int *)context;
    return key.len == 5 && memcmp(key.data, "a.i64", 5) == 0;
}

static void test_copy(void **state)
{
    (void)state;
    struct gguf_writer *w;
    struct gguf *from, *to;
    struct strbuf b = {0};
    skua_error err = {0};
    put_header(&b, 0, 8);
    put_key_u32(&b, "general.alignment", 64);
    put_key_u32(&b, "split.no", 0);
    put_key_u32(&b, "split.count", 1);
    put_key_u32(&b, "split.tensors.count", 1);
    put_key_u32(&b, "Odd Key", 3); /* the reader's rule for names holds when copying */
    put_key(&b, "a.i64", GGUF_I64);
    put_u64(&b, 1);
    put_array(&b, "words", GGUF_STRING, 2);
    put_str(&b, "left");
    put_str(&b, "right");
    put_key(&b, "general.architecture", GGUF_STRING);
    put_str(&b, "old");
    from = parse(&b);
    OK(gguf_writer_new(&w, 32, &err));
    OK(gguf_writer_add_u32(w, "words.count", 2, &err));
    OK(gguf_writer_add_string(w, "general.architecture", "new", 3, &err));
    int asked = 0;
    OK(gguf_writer_copy_keys(w, from, skip_two, &asked, &err));
    CHECK_INT(asked, 3); /* neither for the file's own keys nor for the one that is there already */
    OK(gguf_writer_copy_keys(w, from, skip_two, &asked, &err)); /* again: nothing new */
    OK(gguf_writer_begin(w, temp_path("copy.gguf"), &err));
    OK(gguf_writer_finish(w, &err));
    gguf_writer_free(w);
    gguf_close(from);
    OK(gguf_open(&to, temp_path("copy.gguf"), &err));
    static const char *const want[] = {"general.architecture", "words.count", "Odd Key", "words"};
    CHECK_INT(gguf_key_count(to), 4);
    for (uint32_t i = 0; i < 4; i++) {
        struct gguf_value v;
        CHECK(gguf_key_at(to, i, &v) && v.key.len == strlen(want[i]) && memcmp(v.key.data, want[i], v.key.len) == 0);
    }
    struct gguf_string s;
    OK(gguf_require_string(to, "general.architecture", &s, &err));
    CHECK(s.len == 3 && memcmp(s.data, "new", 3) == 0);
    struct gguf_array a;
    OK(gguf_require_array(to, "words", GGUF_STRINGS, &a, &err));
    CHECK_INT(a.size_bytes, 8 + 4 + 8 + 5);
    gguf_close(to);
    strbuf_free(&b);
}

static void test_refusals(void **state)
{
    (void)state;
    static const uint32_t alignments[] = {0, 1, 4, 33, 2097152, 0x80000000u};
    struct gguf_writer *w;
    skua_error err;
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
        CHECK_INT(gguf_writer_new(&w, alignments[i], &err), SKUA_EARG);
        CHECK(w == NULL);
    }
    OK(gguf_writer_new(&w, 32, &err));
    static const char *const keys[] = {"", "A", "a b", "a\n", "\xc3\xa4", "general.alignment"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        CHECK_INT(gguf_writer_add_u32(w, keys[i], 1, &err), SKUA_EARG);
    OK(gguf_writer_add_u32(w, "k", 1, &err));
    CHECK_INT(gguf_writer_add_bool(w, "k", true, &err), SKUA_EARG);
    CHECK_STR(err.message, "key 'k' is added twice");
    static const uint8_t two = 2;
    CHECK_INT(gguf_writer_add_scalar(w, "b", GGUF_BOOL, &two, &err), SKUA_EARG);
    CHECK_INT(gguf_writer_add_scalar(w, "b", GGUF_STRING, "x", &err), SKUA_EARG);
    CHECK_INT(gguf_writer_add_array(w, "b", GGUF_ARRAY, "x", 1, &err), SKUA_EARG);
    CHECK_INT(gguf_writer_add_array(w, "b", GGUF_BOOL, &two, 1, &err), SKUA_EARG);
    if (sizeof(size_t) > 4) {
        CHECK_INT(gguf_writer_add_array(w, "b", GGUF_U8, "", (size_t)GGUF_MAX_COUNT + 1, &err), SKUA_ELIMIT);
        CHECK_INT(gguf_writer_add_string(w, "b", "", (size_t)GGUF_MAX_COUNT + 1, &err), SKUA_ELIMIT);
        CHECK_INT(gguf_writer_add_strings(w, "b", NULL, (size_t)GGUF_MAX_COUNT + 1, &err), SKUA_ELIMIT);
    }
    const uint64_t ne[5] = {64, 1, 1, 1, 1}, zero[2] = {64, 0}, odd[1] = {33}, big[3] = {INT64_MAX / 2, 4, 1};
    const uint64_t huge[1] = {INT64_MAX / 4 / 32 * 32}, wraps[1] = {(UINT64_C(1) << 62) - 1};
    char name[65];
    memset(name, 'n', 64);
    name[64] = '\0';
    CHECK_INT(gguf_writer_add_tensor(w, name, QTYPE_F32, 1, ne, &err), SKUA_EARG);
    CHECK_INT(gguf_writer_add_tensor(w, "", QTYPE_F32, 1, ne, &err), SKUA_EARG);
    CHECK_INT(gguf_writer_add_tensor(w, "t", 4, 1, ne, &err), SKUA_EARG);
    CHECK_INT(gguf_writer_add_tensor(w, "t", QTYPE_F32, 0, ne, &err), SKUA_EARG);
    CHECK_INT(gguf_writer_add_tensor(w, "t", QTYPE_F32, 5, ne, &err), SKUA_EARG);
    CHECK_INT(gguf_writer_add_tensor(w, "t", QTYPE_F32, 2, zero, &err), SKUA_EARG);
    CHECK_INT(gguf_writer_add_tensor(w, "t", QTYPE_Q8_0, 1, odd, &err), SKUA_EARG);
    CHECK_INT(gguf_writer_add_tensor(w, "t", QTYPE_I8, 3, big, &err), SKUA_EARG);
    CHECK_INT(gguf_writer_add_tensor(w, "t", QTYPE_F64, 1, huge, &err), SKUA_EARG);
    CHECK_INT(gguf_writer_add_tensor(w, "t", QTYPE_F32, 1, wraps, &err), SKUA_EARG); /* 2^64 - 4 bytes, padded: 0 */
    OK(gguf_writer_add_tensor(w, "t", QTYPE_Q8_0, 1, ne, &err));
    CHECK_INT(gguf_writer_add_tensor(w, "t", QTYPE_Q8_0, 1, ne, &err), SKUA_EARG);
    CHECK_INT(gguf_writer_add_tensor(w, "u", QTYPE_F16, 1, huge, &err), 0); /* half the range */
    CHECK_INT(gguf_writer_add_tensor(w, "v", QTYPE_F32, 1, huge, &err), SKUA_EARG); /* the sum is too large */
    gguf_writer_free(w);
}

static void test_order_and_sizes(void **state)
{
    (void)state;
    struct gguf_writer *w;
    skua_error err;
    const uint64_t ne[1] = {64};
    OK(gguf_writer_new(&w, 32, &err));
    OK(gguf_writer_add_tensor(w, "t", QTYPE_Q8_0, 1, ne, &err));
    OK(gguf_writer_add_tensor(w, "u", QTYPE_F32, 1, ne, &err));
    uint8_t data[256] = {0};
    CHECK_INT(gguf_writer_data(w, "t", data, 68, &err), SKUA_ESTATE);
    CHECK_INT(gguf_writer_finish(w, &err), SKUA_ESTATE);
    OK(gguf_writer_begin(w, temp_path("never.gguf"), &err));
    CHECK_INT(gguf_writer_begin(w, temp_path("never.gguf"), &err), SKUA_ESTATE);
    CHECK_INT(gguf_writer_add_u32(w, "late", 1, &err), SKUA_ESTATE);
    CHECK_INT(gguf_writer_add_tensor(w, "late", QTYPE_F32, 1, ne, &err), SKUA_ESTATE);
    CHECK_INT(gguf_writer_data(w, "u", data, 4, &err), SKUA_ESTATE);
    CHECK_INT(gguf_writer_data(w, "t", data, 69, &err), SKUA_EARG);
    OK(gguf_writer_data(w, "t", data, 60, &err));
    CHECK_INT(gguf_writer_data(w, "t", data, 9, &err), SKUA_EARG);
    CHECK_STR(err.message, "tensor 't': 9 bytes of data, but 8 of 68 are left");
    CHECK_INT(gguf_writer_finish(w, &err), SKUA_ESTATE);
    CHECK_STR(err.message, "tensor 't' has 60 of 68 bytes");
    OK(gguf_writer_data(w, "t", data, 8, &err));
    OK(gguf_writer_data(w, "u", data, 256, &err));
    CHECK_INT(gguf_writer_data(w, "u", data, 1, &err), SKUA_ESTATE);
    CHECK_INT(access(temp_path("never.gguf"), F_OK), -1); /* not there before finish */
    gguf_writer_free(w);
    CHECK_INT(access(temp_path("never.gguf"), F_OK), -1); /* nor after giving up */
    gguf_writer_free(NULL);
}

static void test_key_limit(void **state)
{
    (void)state;
    struct gguf_writer *w;
    struct gguf *g;
    skua_error err;
    int rc = 0;
    uint32_t n = 0;
    OK(gguf_writer_new(&w, 64, &err));
    for (; !rc && n < 70000; n++) {
        char key[16];
        snprintf(key, sizeof key, "k%u", n);
        rc = gguf_writer_add_u32(w, key, n, &err);
    }
    CHECK_INT(rc, SKUA_ELIMIT);
    CHECK_INT(n - 1, GGUF_MAX_KEYS - 1); /* one is left for general.alignment */
    OK(gguf_writer_begin(w, temp_path("keys.gguf"), &err));
    OK(gguf_writer_finish(w, &err));
    gguf_writer_free(w);
    OK(gguf_open(&g, temp_path("keys.gguf"), &err));
    CHECK_INT(gguf_key_count(g), GGUF_MAX_KEYS);
    for (uint32_t i = 0; i < n - 1; i++) {
        char key[16];
        uint32_t v = 0;
        snprintf(key, sizeof key, "k%u", i);
        if (gguf_get_u32(g, key, &v, &err) != 1 || v != i)
            fail_msg("key %s has the value %u", key, v);
    }
    checks += n - 1;
    gguf_close(g);
}

/* Fail each allocation, then each file operation: an error of the right kind, no file, nothing left open. */
static void test_faults(void **state)
{
    (void)state;
    for (int io = 0; io < 2; io++)
        for (int once = 0; once < 2; once++) {
            void (*arm)(uint64_t, bool) = io ? fault_set_io : fault_set_alloc;
            int rc = -1, fd = lowest_fd();
            uint64_t n = 0;
            while (rc && n < 1000) {
                struct gguf_writer *w;
                skua_error err = {0};
                temp_entries(true);
                arm(++n, once != 0);
                rc = gguf_writer_new(&w, 32, &err);
                if (!rc)
                    rc = write_small(w, temp_path("small.gguf"), &err);
                arm(0, false);
                gguf_writer_free(w);
                CHECK_INT(rc, rc ? io ? SKUA_EIO : SKUA_ENOMEM : 0);
                CHECK_INT(err.code, rc);
                CHECK_INT(temp_entries(false), rc == 0);
                CHECK_INT(lowest_fd(), fd);
            }
            printf("%s failures (%s): %llu\n", io ? "file" : "allocation", once ? "once" : "from then on",
                   (unsigned long long)(n - 1));
            CHECK(n > (io ? 4 : 10));
            enum gguf_class class;
            OK(gguf_check(temp_path("small.gguf"), &class, NULL));
        }
    /* a failed add changes nothing: the same call works afterwards, and the file is the expected one */
    static char text[1000]; /* more than a buffer starts with */
    uint64_t n = 0;
    int rc = -1;
    while (rc && n < 100) {
        struct gguf_writer *w;
        struct strbuf b = {0};
        struct file_map m;
        skua_error err;
        const uint64_t ne[1] = {1};
        OK(gguf_writer_new(&w, 32, &err));
        fault_set_alloc(++n, true);
        rc = gguf_writer_add_string(w, "key", text, sizeof text, &err);
        int rc2 = gguf_writer_add_tensor(w, "t", QTYPE_F32, 1, ne, &err);
        fault_set_alloc(0, false);
        if (rc)
            OK(gguf_writer_add_string(w, "key", text, sizeof text, &err));
        if (rc2)
            OK(gguf_writer_add_tensor(w, "t", QTYPE_F32, 1, ne, &err));
        OK(gguf_writer_begin(w, temp_path("again.gguf"), &err));
        OK(gguf_writer_data(w, "t", one_data, 4, &err));
        OK(gguf_writer_finish(w, &err));
        gguf_writer_free(w);
        put_header(&b, 1, 1);
        put_key(&b, "key", GGUF_STRING);
        put_bytes(&b, text, sizeof text);
        put_tensor(&b, "t", 1, ne, QTYPE_F32, 0);
        put_padding(&b, 32);
        strbuf_append(&b, one_data, 4);
        put_padding(&b, 32);
        OK(file_map_open(&m, temp_path("again.gguf"), &err));
        CHECK_INT(m.size, b.len);
        CHECK_MEM(m.data, b.data, b.len);
        file_map_close(&m);
        strbuf_free(&b);
        rc = rc ? rc : rc2;
    }
    CHECK(n > 4);
}

/* The project's own models, where they are at hand: open, and copy one to equal bytes. */
static void test_real_files(void **state)
{
    (void)state;
    const char *shared = getenv("SKUA_SHARED");
    char path[4096];
    struct gguf *g, *copy;
    struct gguf_writer *w;
    skua_error err = {0};
    snprintf(path, sizeof path, "%s/models/tiny-q8_0.gguf", shared ? shared : "../shared");
    if (access(path, R_OK) != 0) {
        printf("skipped 1 file: no shared data\n");
        skip();
    }
    OK(gguf_open(&g, path, &err));
    struct gguf_string s;
    uint32_t blocks;
    OK(gguf_require_string(g, "general.architecture", &s, &err));
    CHECK(s.len == 6 && memcmp(s.data, "qwen35", 6) == 0);
    OK(gguf_require_u32(g, "qwen35.block_count", &blocks, &err));
    CHECK_INT(blocks, 9);
    CHECK(gguf_find_tensor(g, "blk.0.attn_norm.weight") != NULL);
    OK(gguf_writer_new(&w, gguf_alignment(g, 0), &err));
    OK(gguf_writer_copy_keys(w, g, NULL, NULL, &err));
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < gguf_tensor_count(g); i++) {
            const struct gguf_tensor *t = gguf_tensor_at(g, i);
            char name[64];
            snprintf(name, sizeof name, "%.*s", t->name_len, t->name);
            OK(pass ? gguf_writer_data(w, name, t->data, t->size_bytes, &err)
                    : gguf_writer_add_tensor(w, name, t->type, t->n_dims, t->ne, &err));
        }
        if (!pass)
            OK(gguf_writer_begin(w, temp_path("real.gguf"), &err));
    }
    OK(gguf_writer_finish(w, &err));
    gguf_writer_free(w);
    OK(gguf_open(&copy, temp_path("real.gguf"), &err));
    CHECK_INT(gguf_key_count(copy), gguf_key_count(g));
    for (uint32_t i = 0; i < gguf_key_count(g); i++) {
        struct gguf_value was, is;
        char name[256];
        CHECK(gguf_key_at(g, i, &was));
        snprintf(name, sizeof name, "%.*s", (int)was.key.len, was.key.data);
        CHECK(gguf_find_key(copy, name, &is) && is.type == was.type);
        if (was.type == GGUF_ARRAY) {
            CHECK(is.a.count == was.a.count && is.a.size_bytes == was.a.size_bytes);
            CHECK_MEM(is.a.data, was.a.data, is.a.size_bytes);
        }
    }
    CHECK_INT(gguf_tensor_count(copy), gguf_tensor_count(g));
    for (uint32_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *was = gguf_tensor_at(g, i), *is = gguf_tensor_at(copy, i);
        CHECK_INT(is->size_bytes, was->size_bytes);
        CHECK_INT(is->type, was->type);
        CHECK_MEM(is->ne, was->ne, sizeof is->ne);
        CHECK_MEM(is->data, was->data, is->size_bytes);
    }
    printf("copied %u keys, %u tensors\n", gguf_key_count(copy), gguf_tensor_count(copy));
    gguf_close(copy);
    gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_bytes), cmocka_unit_test(test_all_types), cmocka_unit_test(test_copy),
        cmocka_unit_test(test_refusals),    cmocka_unit_test(test_order_and_sizes),
        cmocka_unit_test(test_key_limit), cmocka_unit_test(test_faults),
        cmocka_unit_test(test_real_files),
    };
    return finish_checks("test_gguf_write", cmocka_run_group_tests(tests, temp_setup, temp_teardown));
}
