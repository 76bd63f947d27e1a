/* The safetensors reader: what the format allows and what it does not, one rule at a time; folders with an index. */
#include "gguf/safetensors.h"

#include "gguf_temp.h"

static uint8_t file[4096];
static size_t file_size;

/* A file of a header and n_data bytes of data, 0, 1, 2, ... */
static void make(const char *header, size_t n_data)
{
    uint64_t n = strlen(header);
    memcpy(file, &n, 8);
    memcpy(file + 8, header, n);
    for (size_t i = 0; i < n_data; i++)
        file[8 + n + i] = (uint8_t)i;
    file_size = 8 + n + n_data;
}

static struct safetensors *good(const char *header, size_t n_data)
{
    struct safetensors *s;
    skua_error err = {0};
    make(header, n_data);
    if (safetensors_parse_memory(&s, file, file_size, "file", &err))
        fail_msg("%s: refused: %s", header, err.message);
    return s;
}

static void bad(const char *header, size_t n_data, const char *what)
{
    struct safetensors *s;
    skua_error err = {0};
    make(header, n_data);
    assert_int_equal(safetensors_parse_memory(&s, file, file_size, "file", &err), SKUA_EFORMAT);
    assert_null(s);
    if (strncmp(err.message, "file: ", 6) || !strstr(err.message, what))
        fail_msg("%s: message '%s', expected '%s'", header, err.message, what);
}

#define T(dtype, shape, begin, end) "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #begin "," #end "]}"

static void test_good(void **state)
{
    (void)state;
    char text[64];
    struct safetensors *s = good("{\"__metadata__\":{\"format\":\"pt\"},\"b\":" T("F32", "2,3", 3, 27) ",\"a\\u00e9\":" T("U8", "3", 0, 3)
                                 ",\"scalar\":" T("BF16", "", 27, 29) ",\"none\":" T("F64", "4,0", 29, 29)
                                 ",\"half\":" T("F4", "4", 29, 31) "}   ", 31);
    assert_int_equal(safetensors_count(s), 5);
    const struct st_tensor *t = safetensors_find(s, "b");
    assert_ptr_equal(t, safetensors_at(s, 0));
    assert_int_equal(t->dtype, ST_F32);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->shape[0], 2);
    assert_int_equal(t->shape[1], 3);
    assert_int_equal(t->elements, 6);
    assert_int_equal(t->size_bytes, 24);
    assert_int_equal(t->data[0], 3); /* at an odd address */
    st_shape_text(t, text, sizeof text);
    assert_string_equal(text, "[2, 3]");
    st_shape_text(t, text, 4);
    assert_string_equal(text, "[2,");
    t = safetensors_find(s, "a\xC3\xA9");
    assert_non_null(t);
    assert_int_equal(t->data[2], 2);
    t = safetensors_find(s, "scalar");
    assert_int_equal(t->n_dims, 0);
    assert_int_equal(t->elements, 1);
    st_shape_text(t, text, sizeof text);
    assert_string_equal(text, "[]");
    assert_int_equal(safetensors_find(s, "none")->elements, 0);
    assert_int_equal(safetensors_find(s, "half")->elements, 4);
    assert_null(safetensors_find(s, "c"));
    assert_string_equal(safetensors_path(s, 0), "file");
    safetensors_close(s);
    s = good("{}", 0);
    assert_int_equal(safetensors_count(s), 0);
    safetensors_close(s);
}

static void test_dtypes(void **state)
{
    (void)state;
    static const struct { const char *name; int bits; } all[] = {
        {"BOOL", 8}, {"U8", 8}, {"I8", 8}, {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16},
        {"BF16", 16}, {"I32", 32}, {"U32", 32}, {"F32", 32}, {"I64", 64}, {"U64", 64}, {"F64", 64}, {"C64", 64}, {"F4", 4},
        {"F6_E2M3", 6}, {"F6_E3M2", 6}};
    assert_int_equal(sizeof all / sizeof *all, ST_DTYPES);
    for (int d = 0; d < ST_DTYPES; d++) {
        char header[128];
        snprintf(header, sizeof header, "{\"x\":{\"dtype\":\"%s\",\"shape\":[8],\"data_offsets\":[0,%d]}}", all[d].name, all[d].bits);
        struct safetensors *s = good(header, (size_t)all[d].bits);
        assert_int_equal(safetensors_at(s, 0)->dtype, d);
        assert_int_equal(st_dtype_bits((enum st_dtype)d), all[d].bits);
        assert_string_equal(st_dtype_name((enum st_dtype)d), all[d].name);
        safetensors_close(s);
    }
}

static void test_bad(void **state)
{
    (void)state;
    bad("", 0, "does not begin with '{'");
    bad(" {}", 0, "does not begin with '{'");
    bad("[]", 0, "does not begin with '{'");
    bad("{", 0, "not valid JSON");
    bad("{} x", 0, "not valid JSON");
    bad("{\"\xFF\":1}", 0, "not valid JSON");
    bad("{\"x\":1}", 0, "other than an object");
    bad("{\"x\":[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]}", 0, "other than an object");
    bad("{\"x\":{}}", 0, "has no 'dtype'");
    bad("{\"x\":{\"dtype\":5}}", 0, "has no 'dtype'");
    bad("{\"x\":{\"dtype\":\"f32\"}}", 0, "dtype 'f32' is unknown");
    bad("{\"x\":{\"dtype\":\"F32\"}}", 0, "has no 'shape'");
    bad("{\"x\":{\"dtype\":\"F32\",\"shape\":{}}}", 0, "has no 'shape'");
    bad("{\"x\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0, "'data_offsets'");
    bad("{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "'data_offsets'");
    bad("{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4.0]}}", 4, "'data_offsets'");
    bad("{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "'data_offsets'");
    bad("{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"more\":1}}", 4, "has fields other than");
    bad("{\"x\":" T("F32", "-1", 0, 4) "}", 4, "not an integer of at least 0");
    bad("{\"x\":" T("F32", "1.0", 0, 4) "}", 4, "not an integer of at least 0");
    bad("{\"x\":" T("F32", "9223372036854775808", 0, 4) "}", 4, "not valid JSON");
    bad("{\"x\":" T("F32", "4294967296,4294967296", 0, 4) "}", 4, "too many elements");
    bad("{\"x\":" T("F32", "9223372036854775807", 0, 4) "}", 4, "too many elements");
    bad("{\"x\":" T("U8", "1,1,1,1,1,1,1,1,1", 0, 1) "}", 1, "9 dimensions, at most 8");
    bad("{\"x\":" T("F32", "1", 0, 4) "}", 3, "do not lie in the 3 bytes");
    bad("{\"x\":" T("F32", "1", 4, 0) "}", 4, "do not lie in");
    bad("{\"x\":" T("F32", "2", 0, 4) "}", 4, "4 bytes of data, but dtype and shape make 64 bits");
    bad("{\"x\":" T("F4", "3", 0, 2) "}", 2, "12 bits");
    bad("{\"x\":" T("U8", "1", 1, 2) "}", 2, "a hole");
    bad("{\"x\":" T("U8", "2", 0, 2) ",\"y\":" T("U8", "2", 3, 5) "}", 5,
        "'y': data begins at byte 3, the tensor before it ends at 2 (a hole)");
    bad("{\"x\":" T("U8", "2", 0, 2) ",\"y\":" T("U8", "2", 1, 3) "}", 3,
        "'y': data begins at byte 1, the tensor before it ends at 2 (an overlap)");
    bad("{\"x\":" T("U8", "2", 0, 2) "}", 3, "1 bytes of data belong to no tensor");
    bad("{\"x\":" T("U8", "1", 0, 1) ",\"x\":" T("U8", "1", 1, 2) "}", 2, "duplicate");
    bad("{\"\":" T("U8", "1", 0, 1) "}", 1, "is empty or has control characters");
    bad("{\"a\\nb\":" T("U8", "1", 0, 1) "}", 1, "'a\\nb', is empty or has control characters");
    bad("{\"a\\u0000b\":" T("U8", "1", 0, 1) "}", 1, "not valid JSON");
    bad("{\"__metadata__\":[]}", 0, "'__metadata__' is not an object");
    bad("{\"__metadata__\":{\"n\":1}}", 0, "the value of 'n' is not a string");
}

static void test_sizes(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {3, 100, ST_MAX_HEADER_BYTES + 1ull, UINT64_MAX, UINT64_MAX - 7, 1ull << 63};
    struct safetensors *s;
    skua_error err;
    make("{}", 0);
    for (size_t n = 0; n < file_size; n++) { /* every truncation */
        assert_int_equal(safetensors_parse_memory(&s, file, n, "file", &err), SKUA_EFORMAT);
        assert_non_null(strstr(err.message, n < 8 ? "are too few for a safetensors file" : "truncated"));
    }
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memcpy(file, &lengths[i], 8);
        assert_int_equal(safetensors_parse_memory(&s, file, file_size, "file", &err), SKUA_EFORMAT);
        assert_non_null(strstr(err.message, "truncated"));
    }
}

static void write_file(const char *name, const char *header, size_t n_data)
{
    make(header, n_data);
    temp_write(name, file, file_size);
}

static char warned[512];
static int n_warned;

static void warn(void *context, const char *message)
{
    assert_ptr_equal(context, warned);
    snprintf(warned, sizeof warned, "%s", message);
    n_warned++;
}

static int open_folder(struct safetensors **s, skua_error *err)
{
    n_warned = 0;
    return safetensors_open(s, temp_dir, warn, warned, err);
}

static void test_folder(void **state)
{
    (void)state;
    static const char index[] = "{\"metadata\":{\"total_size\":3},\"weight_map\":{\"x\":\"one.safetensors\",\"y\":\"two.safetensors\"}}";
    static const char map_to[] = "{\"weight_map\":{\"x\":\"%s\"}}";
    static const char *const bad_names[] = {"a/b", "/b", "..", "../b", "a\\\\b", "c:b", "", ".hidden", "a..b"};
    struct safetensors *s;
    skua_error err;
    int fd = lowest_fd();
    assert_int_equal(open_folder(&s, &err), SKUA_EIO);
    assert_non_null(strstr(err.message, "has neither model.safetensors nor model.safetensors.index.json"));
    temp_write("model.safetensors.index.json", index, sizeof index - 1);
    assert_int_equal(open_folder(&s, &err), SKUA_EIO);
    assert_non_null(strstr(err.message, "one.safetensors: cannot open"));
    write_file("one.safetensors", "{\"x\":" T("U8", "1", 0, 1) "}", 1);
    assert_int_equal(open_folder(&s, &err), SKUA_EIO);
    assert_non_null(strstr(err.message, "two.safetensors: cannot open"));
    write_file("two.safetensors", "{\"y\":" T("U8", "2", 0, 2) "}", 2);
    assert_int_equal(open_folder(&s, &err), 0);
    assert_int_equal(safetensors_files(s), 2);
    assert_int_equal(safetensors_find(s, "y")->file, 1);
    assert_int_equal(safetensors_find(s, "y")->data[1], 1);
    assert_int_equal(n_warned, 0);
    safetensors_close(s);
    write_file("two.safetensors", "{\"y\":" T("U8", "2", 0, 2) ",\"z\":" T("U8", "1", 2, 3) "}", 3);
    assert_int_equal(open_folder(&s, &err), 0);
    assert_int_equal(n_warned, 1);
    assert_non_null(strstr(warned, "tensors of the files that are not in the index: 1, 'z' for one"));
    safetensors_close(s);
    write_file("two.safetensors", "{\"x\":" T("U8", "2", 0, 2) "}", 2);
    assert_int_equal(open_folder(&s, &err), SKUA_EFORMAT);
    assert_non_null(strstr(err.message, "two.safetensors: tensor 'x' is also in "));
    write_file("two.safetensors", "{\"z\":" T("U8", "2", 0, 2) "}", 2);
    assert_int_equal(open_folder(&s, &err), SKUA_EFORMAT);
    assert_non_null(strstr(err.message, "tensor 'y' is not in two.safetensors, where the index has it"));
    for (size_t i = 0; i < sizeof bad_names / sizeof *bad_names; i++) {
        char text[128];
        int n = snprintf(text, sizeof text, map_to, bad_names[i]);
        temp_write("model.safetensors.index.json", text, (size_t)n);
        assert_int_equal(open_folder(&s, &err), SKUA_EFORMAT);
        assert_non_null(strstr(err.message, "is not the plain name of a file in this folder"));
    }
    write_file("model.safetensors", "{\"w\":" T("U8", "1", 0, 1) "}", 1); /* a single file comes before an index */
    assert_int_equal(open_folder(&s, &err), 0);
    assert_non_null(safetensors_find(s, "w"));
    safetensors_close(s);
    assert_int_equal(lowest_fd(), fd);
    assert_int_equal(temp_maps(), 0);
    temp_entries(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_dtypes), cmocka_unit_test(test_bad),
                                       cmocka_unit_test(test_sizes), cmocka_unit_test(test_folder)};
    temp_make();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    temp_remove();
    return failed;
}
