/* Importance matrices: exact values from both formats, what is refused and with which words, what is written. */
#include <float.h>
#include <math.h>

#include "gguf_temp.h"

#include "convert/imatrix.h"

#define OK(call) CHECK_INT(call, 0)

static void put_f32(struct strbuf *b, float v) { strbuf_append(b, &v, sizeof v); }

/* ---- opening bytes ---- */

static struct imatrix *open_bytes(const struct strbuf *b)
{
    struct imatrix *m = NULL;
    skua_error err = {0};
    if (imatrix_parse_memory(&m, (const uint8_t *)b->data, b->len, "i.dat", &err))
        printf("%s\n", err.message);
    assert_non_null(m);
    return m;
}

/* Refused with one line that begins with the file's name and holds the text. Frees b. */
static void refused(struct strbuf *b, const char *text)
{
    struct imatrix *m = NULL;
    skua_error err = {0};
    size_t live = mem_live_blocks();
    uint8_t *exact = malloc(b->len + 1); /* a sanitizer sees what reads past the end */
    memcpy(exact, b->data ? b->data : "", b->len);
    int rc = imatrix_parse_memory(&m, exact, b->len, "i.dat", &err);
    free(exact);
    if (!rc || m || err.code != rc || strncmp(err.message, "i.dat: ", 7) || !strstr(err.message, text) || strchr(err.message, '\n'))
        printf("%d '%s', expected '%s'\n", rc, err.message, text);
    CHECK(rc && !m && err.code == rc && !strncmp(err.message, "i.dat: ", 7) && strstr(err.message, text) && !strchr(err.message, '\n'));
    CHECK(!strstr(err.message + 7, "i.dat: "));
    CHECK_INT(mem_live_blocks(), live);
    strbuf_free(b);
}

/* ---- the older format ---- */

static void put_legacy(struct strbuf *b, const char *name, int32_t calls, int32_t n, const float *values)
{
    put_u32(b, (uint32_t)strlen(name));
    strbuf_puts(b, name);
    put_u32(b, (uint32_t)calls);
    put_u32(b, (uint32_t)n);
    for (int32_t i = 0; i < n; i++)
        put_f32(b, values[i]);
}

static void legacy_sample(struct strbuf *b)
{
    static const float one[] = {3, 6, 0}, two[] = {0.5f, 7, 1, 2};
    put_u32(b, 2);
    put_legacy(b, "blk.0.ffn_up.weight", 3, 3, one);
    put_legacy(b, "blk.0.ffn_up_exps.weight", 0, 4, two);
}

static void test_legacy(void **state)
{
    (void)state;
    static const float one[] = {1, 2, 0}, two[] = {0.5f, 7, 1, 2};
    struct strbuf b = {0};
    legacy_sample(&b);
    size_t bare = b.len;
    put_u32(&b, 12);
    put_u32(&b, 5);
    strbuf_puts(&b, "a.txt");
    for (size_t n = bare; n <= b.len; n++) { /* the tail may be cut anywhere */
        struct strbuf cut = {0};
        strbuf_append(&cut, b.data, n);
        struct imatrix *m = open_bytes(&cut);
        CHECK_INT(imatrix_count(m), 2);
        CHECK_INT(imatrix_chunks(m), n >= bare + 4 ? 12 : 0);
        CHECK_STR(imatrix_dataset(m), n == b.len ? "a.txt" : "");
        CHECK_INT(imatrix_chunk_size(m), 0);
        const struct imatrix_entry *e = imatrix_find(m, "blk.0.ffn_up.weight", 19);
        CHECK(e && e == imatrix_at(m, 0) && e->columns == 3 && e->matrices == 1 && e->counts[0] == 3 && !e->sums);
        CHECK_MEM(e->weights, one, sizeof one);
        e = imatrix_at(m, 1);
        CHECK_STR(e->name, "blk.0.ffn_up_exps.weight");
        CHECK(e->columns == 4 && e->counts[0] == 0);
        CHECK_MEM(e->weights, two, sizeof two);
        CHECK(!imatrix_at(m, 2) && !imatrix_find(m, "blk.0.ffn_up", 12));
        imatrix_free(m);
        strbuf_free(&cut);
    }
    strbuf_free(&b);
}

static void test_legacy_shape(void **state)
{
    (void)state;
    struct strbuf b = {0};
    skua_error err = {0};
    const float *w;
    legacy_sample(&b);
    struct imatrix *m = open_bytes(&b);
    OK(imatrix_weights(m, "blk.0.ffn_up_exps.weight", 24, 2, 2, &w, &err)); /* two experts of two columns */
    CHECK(w == imatrix_at(m, 1)->weights);
    OK(imatrix_weights(m, "blk.1.ffn_up_exps.weight", 24, 2, 2, &w, &err));
    CHECK(!w);
    CHECK_INT(imatrix_weights(m, "blk.0.ffn_up_exps.weight", 24, 2, 3, &w, &err), SKUA_EFORMAT);
    CHECK(!w && strstr(err.message, "blk.0.ffn_up_exps.weight"));
    imatrix_free(m);
    strbuf_free(&b);
}

/* The sample cut anywhere inside of its entries, and with each of its numbers wrong. */
static void test_legacy_refused(void **state)
{
    (void)state;
    struct strbuf whole = {0};
    legacy_sample(&whole);
    for (size_t n = 0; n < whole.len; n++) {
        struct strbuf b = {0};
        strbuf_append(&b, whole.data, n);
        refused(&b, n < 4 ? "is no importance matrix" : "");
    }
    static const struct {
        size_t at;
        uint32_t v;
        const char *text;
    } wrong[] = {
        {0, 0, "number of entries (0"}, {0, 0xFFFFFFFFu, "number of entries (-1"}, {0, 1048577, "number of entries (1048577"},
        {0, 7, "number of entries (7"}, {0, 3, "ends in the name of entry 3 of 3"},
        {4, 0, "a name of 0 bytes"}, {4, 0xFFFFFFFFu, "a name of -1 bytes"}, {4, 4097, "a name of 4097 bytes, expected 1 to 4096"},
        {4, 4096, "ends in the name of entry 1 of 2"},
        {31, 0, "'blk.0.ffn_up.weight' has 0 values"}, {31, 0xFFFFFFFFu, "has -1 values"}, {31, 0x7FFFFFFFu, "bytes are left"},
        {35, 0x7FC00000u, "'blk.0.ffn_up.weight': the value of column 0"}, {39, 0x7F800000u, "column 1, matrix 0, is inf"},
        {43, 0xBF800000u, "column 2, matrix 0, is -1"}, {8, 0x006B6C62u, "zero byte in its name"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct strbuf b = {0};
        strbuf_append(&b, whole.data, whole.len);
        memcpy(b.data + wrong[i].at, &wrong[i].v, 4);
        refused(&b, wrong[i].text);
    }
    struct strbuf b = {0};
    static const float one = 1;
    put_u32(&b, 2);
    put_legacy(&b, "x", 1, 1, &one);
    put_legacy(&b, "x", 1, 1, &one);
    refused(&b, "entry 'x' is there twice");
    strbuf_free(&whole);
}

/* ---- GGUF ---- */

struct tensor {
    const char *name;
    uint32_t type;
    uint64_t ne[4];
    float v[8];
};

static const struct tensor sample[] = {
    {"b.weight.counts", QTYPE_F32, {1, 3, 1, 1}, {2, 0, 4}},
    {"b.weight.in_sum2", QTYPE_F32, {2, 3, 1, 1}, {1, 2, 0, 0, 8, 0}},
    {"a.weight.in_sum2", QTYPE_F32, {4, 1, 1, 1}, {1, 2, 3, 4}},
    {"a.weight.counts", QTYPE_F32, {1, 1, 1, 1}, {8}},
    {"a.weight.in_sum", QTYPE_F32, {4, 1, 1, 1}, {-1, NAN, 3, 4}},
};
#define N_SAMPLE (sizeof sample / sizeof *sample)

static void gguf_bytes(struct strbuf *b, const struct tensor *t, size_t n, const char *type)
{
    put_header(b, n, type ? 5 : 4);
    put_array(b, "imatrix.datasets", GGUF_STRING, 2);
    put_str(b, "calib.txt");
    put_str(b, "more");
    put_key_u32(b, "imatrix.chunk_count", 7);
    put_key_u32(b, "imatrix.chunk_size", 512);
    put_key(b, "skua.imatrix.tokens_hash", GGUF_U64);
    put_u64(b, 99);
    if (type) {
        put_key(b, "general.type", GGUF_STRING);
        put_str(b, type);
    }
    uint64_t offset = 0;
    for (size_t i = 0; i < n; i++) {
        put_tensor(b, t[i].name, 4, t[i].ne, t[i].type, offset);
        offset += 32;
    }
    put_padding(b, 32);
    for (size_t i = 0; i < n; i++)
        strbuf_append(b, t[i].v, 32);
}

static void check_sample(const struct imatrix *m)
{
    static const float a[] = {0.125f, 0.25f, 0.375f, 0.5f}, w[] = {0.5f, 1, 1, 1, 2, 0};
    const struct imatrix_entry *e = imatrix_find(m, "a.weight", 8);
    CHECK_INT(imatrix_count(m), 2);
    CHECK(e && e->columns == 4 && e->matrices == 1 && e->counts[0] == 8);
    CHECK_MEM(e->weights, a, sizeof a);
    CHECK_MEM(e->sums, sample[2].v, sizeof a);
    e = imatrix_find(m, "b.weight", 8);
    CHECK(e && e->columns == 2 && e->matrices == 3 && e->counts[0] == 2 && e->counts[1] == 0 && e->counts[2] == 4);
    CHECK_MEM(e->weights, w, sizeof w);
    CHECK_INT(imatrix_chunks(m), 7);
    CHECK_INT(imatrix_chunk_size(m), 512);
    CHECK_INT(imatrix_tokens_hash(m), 99);
    CHECK_STR(imatrix_dataset(m), "calib.txt");
}

static void test_gguf(void **state)
{
    (void)state;
    struct strbuf b = {0};
    skua_error err = {0};
    const float *w;
    gguf_bytes(&b, sample, N_SAMPLE, "imatrix");
    struct imatrix *m = open_bytes(&b);
    check_sample(m);
    OK(imatrix_weights(m, "b.weight", 8, 2, 3, &w, &err));
    CHECK(w == imatrix_find(m, "b.weight", 8)->weights);
    CHECK_INT(imatrix_weights(m, "b.weight", 8, 3, 2, &w, &err), SKUA_EFORMAT);
    CHECK_INT(imatrix_weights(m, "b.weight", 8, 6, 1, &w, &err), SKUA_EFORMAT);
    imatrix_free(m);
    strbuf_free(&b);
    temp_make();
    gguf_bytes(&b, sample, N_SAMPLE, "imatrix");
    temp_write("i.gguf", b.data, b.len);
    int fd = lowest_fd();
    OK(imatrix_open(&m, temp_path("i.gguf"), &err));
    check_sample(m);
    imatrix_free(m);
    CHECK_INT(imatrix_open(&m, temp_path("none.gguf"), &err), SKUA_EIO);
    CHECK(strstr(err.message, "none.gguf"));
    temp_write("empty", "", 0);
    CHECK_INT(imatrix_open(&m, temp_path("empty"), &err), SKUA_EFORMAT);
    CHECK(!m && strstr(err.message, "empty: is no importance matrix: 0 bytes"));
    CHECK_INT(lowest_fd(), fd);
    CHECK_INT(temp_maps(), 0);
    temp_remove();
    strbuf_free(&b);
}

/* One count for all matrices. */
static void test_single_count(void **state)
{
    (void)state;
    static const struct tensor t[] = {{"x.in_sum2", QTYPE_F32, {1, 3, 1, 1}, {2, 4, 6}}, {"x.counts", QTYPE_F32, {1, 1, 1, 1}, {2}}};
    static const float want[] = {1, 2, 3};
    struct strbuf b = {0};
    gguf_bytes(&b, t, 2, "imatrix");
    struct imatrix *m = open_bytes(&b);
    CHECK_MEM(imatrix_at(m, 0)->weights, want, sizeof want);
    CHECK(imatrix_at(m, 0)->counts[2] == 2);
    imatrix_free(m);
    strbuf_free(&b);
}

static void test_gguf_refused(void **state)
{
    (void)state;
    const struct tensor count = {"x.counts", QTYPE_F32, {1, 2, 1, 1}, {1, 1}};
    const struct {
        struct tensor sums, counts; /* no name: not there */
        const char *text;
    } wrong[] = {
        {{"x.in_sum2", QTYPE_F32, {2, 2, 1, 1}, {0}}, {0}, "tensor 'x.in_sum2' without 'x.counts'"},
        {{0}, {"x.counts", QTYPE_F32, {1, 2, 1, 1}, {1, 1}}, "tensor 'x.counts' without its '.in_sum2'"},
        {{0}, {"x", QTYPE_F32, {1, 2, 1, 1}, {1, 1}}, "no entries"},
        {{"x.in_sum2", QTYPE_F16, {2, 2, 1, 1}, {0}}, count, "'x.in_sum2' has type F16, expected F32"},
        {{"x.in_sum2", QTYPE_F32, {2, 2, 1, 1}, {0}}, {"x.counts", QTYPE_I32, {1, 2, 1, 1}, {0}}, "'x.counts' has type I32"},
        {{"x.in_sum2", QTYPE_F32, {2, 1, 2, 1}, {0}}, count, "more than two dimensions"},
        {{"x.in_sum2", QTYPE_F32, {2, 3, 1, 1}, {0}}, count, "'x.counts' has shape [1, 2, 1, 1], expected [1, 3, 1, 1]"},
        {{"x.in_sum2", QTYPE_F32, {2, 2, 1, 1}, {0}}, {"x.counts", QTYPE_F32, {2, 1, 1, 1}, {1, 1}}, "has shape [2, 1, 1, 1]"},
        {{"x.in_sum2", QTYPE_F32, {2, 2, 1, 1}, {1, NAN}}, count, "'x': the sum of column 1, matrix 0, is nan"},
        {{"x.in_sum2", QTYPE_F32, {2, 2, 1, 1}, {1, 1, -2}}, count, "the sum of column 0, matrix 1, is -2"},
        {{"x.in_sum2", QTYPE_F32, {2, 2, 1, 1}, {1, 1, 1, INFINITY}}, count, "the sum of column 1, matrix 1, is inf"},
        {{"x.in_sum2", QTYPE_F32, {2, 2, 1, 1}, {1}}, {"x.counts", QTYPE_F32, {1, 2, 1, 1}, {1, NAN}}, "the count of matrix 1 is nan"},
        {{"x.in_sum2", QTYPE_F32, {2, 2, 1, 1}, {1}}, {"x.counts", QTYPE_F32, {1, 2, 1, 1}, {-1, 1}}, "the count of matrix 0 is -1"},
        {{"x.in_sum2", QTYPE_F32, {2, 2, 1, 1}, {FLT_MAX}}, {"x.counts", QTYPE_F32, {1, 2, 1, 1}, {0.5f, 1}}, "the mean of column 0"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct tensor t[2];
        size_t n = 0;
        if (wrong[i].sums.name)
            t[n++] = wrong[i].sums;
        if (wrong[i].counts.name)
            t[n++] = wrong[i].counts;
        struct strbuf b = {0};
        gguf_bytes(&b, t, n, "imatrix");
        refused(&b, wrong[i].text);
    }
    struct strbuf b = {0};
    gguf_bytes(&b, sample, N_SAMPLE, "model");
    refused(&b, "general.type is 'model', expected 'imatrix'");
    gguf_bytes(&b, sample, N_SAMPLE, NULL);
    refused(&b, "general.type is '', expected 'imatrix'");
    struct tensor twice[] = {sample[2], sample[3], sample[2]};
    gguf_bytes(&b, twice, 3, "imatrix");
    refused(&b, "E_DUP_TENSOR");
    struct strbuf whole = {0};
    gguf_bytes(&whole, sample, N_SAMPLE, "imatrix");
    for (size_t n = 0; n < whole.len - 16; n++) { /* 16 bytes behind the last tensor's are padding */
        strbuf_append(&b, whole.data, n);
        refused(&b, "");
    }
    strbuf_free(&whole);
}

/* Keys of wrong types, and a part of a split file. */
static void test_keys_refused(void **state)
{
    (void)state;
    static const char *const keys[] = {"imatrix.chunk_count", "imatrix.chunk_size", "imatrix.datasets", "skua.imatrix.tokens_hash",
                                       "split.count"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct strbuf b = {0};
        static const uint64_t ne[4] = {1, 1, 1, 1};
        put_header(&b, 2, 2);
        put_key(&b, "general.type", GGUF_STRING);
        put_str(&b, "imatrix");
        if (i == 4) {
            put_key_u32(&b, keys[i], 2);
        } else {
            put_key(&b, keys[i], GGUF_STRING);
            put_str(&b, "7");
        }
        put_tensor(&b, "x.in_sum2", 4, ne, QTYPE_F32, 0);
        put_tensor(&b, "x.counts", 4, ne, QTYPE_F32, 32);
        put_padding(&b, 32);
        for (int k = 0; k < 16; k++)
            put_f32(&b, 1);
        refused(&b, i == 4 ? "is one of 2 parts" : keys[i]);
    }
}

/* ---- writing ---- */

static void test_write(void **state)
{
    (void)state;
    static const float s1[] = {1, 2, 3, 4, 5, 6}, c1[] = {2, 0}, s2[] = {9}, c2[] = {3}, w1[] = {0.5f, 1, 1.5f, 1, 1, 1};
    struct imatrix_sums sums[] = {{"blk.0.x_exps.weight", 3, 2, s1, c1}, {"blk.0.y.weight", 1, 1, s2, c2}};
    struct imatrix_source source = {.chunks = 3, .chunk_size = 64, .dataset = "d.txt", .tokens_hash = 1ull << 63};
    skua_error err = {0};
    struct imatrix *m;
    temp_make();
    OK(imatrix_write(temp_path("o.gguf"), sums, 2, &source, &err));
    OK(imatrix_open(&m, temp_path("o.gguf"), &err));
    const struct imatrix_entry *e = imatrix_at(m, 0);
    CHECK_STR(e->name, sums[0].name);
    CHECK(e->columns == 3 && e->matrices == 2 && e->counts[0] == 2 && e->counts[1] == 0);
    CHECK_MEM(e->sums, s1, sizeof s1);
    CHECK_MEM(e->weights, w1, sizeof w1);
    e = imatrix_at(m, 1);
    CHECK_STR(e->name, sums[1].name);
    CHECK(e->weights[0] == 3 && imatrix_chunks(m) == 3 && imatrix_chunk_size(m) == 64 && imatrix_tokens_hash(m) == 1ull << 63);
    CHECK_STR(imatrix_dataset(m), "d.txt");
    imatrix_free(m);

    struct gguf *g; /* as others read it */
    struct gguf_value v;
    OK(gguf_open(&g, temp_path("o.gguf"), &err));
    CHECK(!gguf_find_key(g, "general.architecture", &v) && gguf_key_at(g, 0, &v) && v.type == GGUF_STRING && v.s.len == 7);
    const struct gguf_tensor *t = gguf_find_tensor(g, "blk.0.x_exps.weight.in_sum2");
    CHECK(t && t->ne[0] == 3 && t->ne[1] == 2 && t->type == QTYPE_F32);
    t = gguf_find_tensor(g, "blk.0.x_exps.weight.counts");
    CHECK(t && t->ne[0] == 1 && t->ne[1] == 2 && t->type == QTYPE_F32);
    gguf_close(g);

    char name[IMATRIX_MAX_NAME_BYTES + 2];
    memset(name, 'n', sizeof name);
    name[IMATRIX_MAX_NAME_BYTES] = '\0';
    sums[1].name = name;
    OK(imatrix_write(temp_path("o.gguf"), sums, 2, &source, &err));
    OK(imatrix_open(&m, temp_path("o.gguf"), &err));
    CHECK_STR(imatrix_at(m, 1)->name, name);
    imatrix_free(m);
    name[IMATRIX_MAX_NAME_BYTES] = 'n';
    name[IMATRIX_MAX_NAME_BYTES + 1] = '\0';
    CHECK_INT(imatrix_write(temp_path("p.gguf"), sums, 2, &source, &err), SKUA_EARG);
    CHECK(strstr(err.message, "56 bytes"));
    CHECK_INT(imatrix_write(temp_path("no/p.gguf"), sums, 1, &source, &err), SKUA_EIO);
    CHECK_INT(temp_entries(false), 1);
    temp_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_legacy),       cmocka_unit_test(test_legacy_shape), cmocka_unit_test(test_legacy_refused),
        cmocka_unit_test(test_gguf),         cmocka_unit_test(test_single_count), cmocka_unit_test(test_gguf_refused),
        cmocka_unit_test(test_keys_refused), cmocka_unit_test(test_write),
    };
    return finish_checks("test_imatrix", cmocka_run_group_tests(tests, NULL, NULL));
}
