/* GGUF getters: the tolerance for integer widths, floats, mismatches and their messages, arrays. */
#include "gguf_bytes.h"

#include <math.h>

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

/* A file whose keys are one integer in every type that can hold it, named by type. */
static struct gguf *integers(struct strbuf *b, int64_t v)
{
    static const uint8_t types[] = {GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_U64, GGUF_I64};
    static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 8, 8};
    strbuf_clear(b);
    put_header(b, 0, 8);
    for (int i = 0; i < 8; i++) {
        put_key(b, gguf_type_name(types[i]), types[i]);
        strbuf_append(b, &v, sizes[i]);
    }
    return parse(b);
}

static void test_integers(void **state)
{
    (void)state;
    static const char *const names[] = {"u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"};
    struct strbuf b = {0};
    struct gguf *g = integers(&b, 100); /* fits everywhere */
    for (int i = 0; i < 8; i++) {
        uint32_t u = 0;
        uint64_t w = 0;
        int32_t s = 0;
        int64_t l = 0;
        CHECK_INT(gguf_get_u32(g, names[i], &u, NULL), 1);
        CHECK_INT(gguf_get_u64(g, names[i], &w, NULL), 1);
        CHECK_INT(gguf_get_i32(g, names[i], &s, NULL), 1);
        CHECK_INT(gguf_get_i64(g, names[i], &l, NULL), 1);
        CHECK(u == 100 && w == 100 && s == 100 && l == 100);
    }
    gguf_close(g);
    g = integers(&b, -1); /* all bits set: the largest of u*, -1 of i* */
    static const uint64_t tops[] = {255, 0, 65535, 0, UINT32_MAX, 0, UINT64_MAX, 0};
    for (int i = 0; i < 8; i++) {
        bool is_signed = i % 2 == 1;
        uint32_t u = 7;
        uint64_t w = 7;
        int32_t s = 7;
        int64_t l = 7;
        skua_error err = {0};
        CHECK_INT(gguf_get_u64(g, names[i], &w, &err), is_signed ? SKUA_EFORMAT : 1);
        CHECK(w == (is_signed ? 7 : tops[i]));
        if (is_signed) {
            char want[128];
            snprintf(want, sizeof want, "m.gguf: key '%s' is -1, expected an integer from 0 to 2^64 - 1", names[i]);
            CHECK_STR(err.message, want);
        }
        CHECK_INT(gguf_get_u32(g, names[i], &u, NULL), is_signed || i == 6 ? SKUA_EFORMAT : 1);
        CHECK(u == (is_signed || i == 6 ? 7 : tops[i]));
        CHECK_INT(gguf_get_i32(g, names[i], &s, NULL), i == 4 || i == 6 ? SKUA_EFORMAT : 1);
        CHECK(s == (i == 4 || i == 6 ? 7 : is_signed ? -1 : (int32_t)tops[i]));
        CHECK_INT(gguf_get_i64(g, names[i], &l, NULL), i == 6 ? SKUA_EFORMAT : 1);
        CHECK(l == (i == 6 ? 7 : is_signed ? -1 : (int64_t)tops[i]));
    }
    gguf_close(g);
    static const int64_t edges[] = {INT32_MIN, (int64_t)INT32_MIN - 1, INT32_MAX, (int64_t)INT32_MAX + 1, UINT32_MAX,
                                    (int64_t)UINT32_MAX + 1, INT64_MIN, INT64_MAX};
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        int64_t v = edges[i];
        uint32_t u;
        int32_t s;
        int64_t l = 0;
        g = integers(&b, v);
        CHECK_INT(gguf_get_u32(g, "i64", &u, NULL), v >= 0 && v <= UINT32_MAX ? 1 : SKUA_EFORMAT);
        CHECK_INT(gguf_get_i32(g, "i64", &s, NULL), v >= INT32_MIN && v <= INT32_MAX ? 1 : SKUA_EFORMAT);
        CHECK_INT(gguf_get_i64(g, "i64", &l, NULL), 1);
        CHECK(l == v);
        gguf_close(g);
    }
    strbuf_free(&b);
}

static void test_floats(void **state)
{
    (void)state;
    struct strbuf b = {0};
    static const double values[] = {0, -1.5, 3.4028234663852886e38, 3.4028235e38 * 1.01, 1e308, (double)INFINITY,
                                    (double)NAN, 1e-320};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        double v = values[i], d = 7;
        float narrow = fabs(v) > 3.4028234663852886e38 ? INFINITY : (float)v, f = 7;
        strbuf_clear(&b);
        put_header(&b, 0, 2);
        put_key(&b, "f64", GGUF_F64);
        strbuf_append(&b, &v, 8);
        put_key(&b, "f32", GGUF_F32);
        strbuf_append(&b, &narrow, 4);
        struct gguf *g = parse(&b);
        bool fits32 = i < 3 || i == 7, fits64 = i != 5 && i != 6;
        CHECK_INT(gguf_get_f64(g, "f64", &d, NULL), fits64 ? 1 : SKUA_EFORMAT);
        CHECK(d == (fits64 ? v : 7));
        CHECK_INT(gguf_get_f32(g, "f64", &f, NULL), fits32 ? 1 : SKUA_EFORMAT);
        CHECK(f == (fits32 ? (float)v : 7.0f));
        CHECK_INT(gguf_get_f64(g, "f32", &d, NULL), fits32 ? 1 : SKUA_EFORMAT);
        CHECK_INT(gguf_get_f32(g, "f32", &f, NULL), fits32 ? 1 : SKUA_EFORMAT);
        gguf_close(g);
    }
    strbuf_free(&b);
}

/* Keys of every kind, for the mismatches. */
static void put_kinds(struct strbuf *b)
{
    strbuf_clear(b);
    put_header(b, 0, 9);
    put_key_u32(b, "int", 5);
    put_key(b, "float", GGUF_F32);
    put_u32(b, 0x3F800000u);
    put_key(b, "bool", GGUF_BOOL);
    put_u8(b, 1);
    put_key(b, "string", GGUF_STRING);
    put_bytes(b, "a\0b", 3);
    put_array(b, "ints", GGUF_I16, 3);
    put_u16(b, 0xFFFE);
    put_u16(b, 7);
    put_u16(b, 0x8000);
    put_array(b, "floats", GGUF_F64, 1);
    put_u64(b, UINT64_C(0x7FF0000000000000));
    put_array(b, "bools", GGUF_BOOL, 2);
    put_u16(b, 0x0001);
    put_array(b, "strings", GGUF_STRING, 4);
    put_str(b, "one");
    put_str(b, "");
    put_bytes(b, "\xff\0", 2);
    put_str(b, "last");
    put_array(b, "u64s", GGUF_U64, 2);
    put_u64(b, INT64_MAX);
    put_u64(b, UINT64_C(1) << 63);
}

static void test_kinds(void **state)
{
    (void)state;
    static const char *const keys[] = {"int", "float", "bool", "string", "ints", "floats", "bools", "strings", "u64s", "absent"};
    struct strbuf b = {0};
    put_kinds(&b);
    struct gguf *g = parse(&b);
    for (int i = 0; i < 10; i++) {
        const char *k = keys[i];
        uint32_t u32;
        uint64_t u64;
        int32_t i32;
        int64_t i64;
        float f32;
        double f64;
        bool bo;
        struct gguf_string s;
        struct gguf_array a;
        int absent = i == 9;
#define EXPECT(suffix, var, fits) \
        CHECK_INT(gguf_get_##suffix(g, k, &var, NULL), absent ? 0 : (fits) ? 1 : SKUA_EFORMAT); \
        CHECK_INT(gguf_require_##suffix(g, k, &var, NULL), (fits) ? 0 : SKUA_EFORMAT)
        EXPECT(u32, u32, i == 0);
        EXPECT(u64, u64, i == 0);
        EXPECT(i32, i32, i == 0);
        EXPECT(i64, i64, i == 0);
        EXPECT(f32, f32, i == 1);
        EXPECT(f64, f64, i == 1);
        EXPECT(bool, bo, i == 2);
        EXPECT(string, s, i == 3);
#undef EXPECT
        static const int want[5][2] = {{4, 8}, {4, 8}, {5, 5}, {6, 6}, {7, 7}}; /* keys that fit: any, ints, floats, ... */
        for (int e = GGUF_ANY_ELEMENTS; e <= GGUF_STRINGS; e++) {
            bool fits = e == GGUF_ANY_ELEMENTS ? i >= 4 && i <= 8 : i == want[e][0] || i == want[e][1];
            CHECK_INT(gguf_get_array(g, k, (enum gguf_elements)e, &a, NULL), absent ? 0 : fits ? 1 : SKUA_EFORMAT);
            CHECK_INT(gguf_require_array(g, k, (enum gguf_elements)e, &a, NULL), fits ? 0 : SKUA_EFORMAT);
        }
    }
    skua_error err;
    uint32_t u;
    struct gguf_string s;
    struct gguf_array a;
    CHECK_INT(gguf_require_u32(g, "absent", &u, &err), SKUA_EFORMAT);
    CHECK_STR(err.message, "m.gguf: key 'absent' is missing, expected an integer from 0 to 4294967295");
    CHECK_INT(gguf_require_u32(g, "strings", &u, &err), SKUA_EFORMAT);
    CHECK_STR(err.message, "m.gguf: key 'strings' is of type array of string, expected an integer from 0 to 4294967295");
    CHECK_INT(gguf_require_array(g, "ints", GGUF_FLOATS, &a, &err), SKUA_EFORMAT);
    CHECK_STR(err.message, "m.gguf: key 'ints' is of type array of i16, expected array of f32 or f64");
    CHECK_INT(gguf_get_string(g, "string", &s, NULL), 1);
    CHECK_INT(s.len, 3);
    CHECK_MEM(s.data, "a\0b", 3);
    const struct gguf_tensor *t;
    CHECK_INT(gguf_require_tensor(g, "blk.0.x", &t, &err), SKUA_EFORMAT);
    CHECK_STR(err.message, "m.gguf: tensor 'blk.0.x' is missing");
    CHECK_INT(gguf_key_count(g), 9);
    struct gguf_value v;
    for (uint32_t i = 0; i < 9; i++) {
        CHECK(gguf_key_at(g, i, &v));
        CHECK(v.key.len == strlen(keys[i]) && memcmp(v.key.data, keys[i], v.key.len) == 0);
    }
    CHECK(!gguf_key_at(g, 9, &v));
    gguf_close(g);
    strbuf_free(&b);
}

static void test_arrays(void **state)
{
    (void)state;
    struct strbuf b = {0};
    put_kinds(&b);
    struct gguf *g = parse(&b);
    struct gguf_array a;
    int64_t i;
    double f;
    bool bo;
    CHECK_INT(gguf_require_array(g, "ints", GGUF_INTEGERS, &a, NULL), 0);
    CHECK(a.count == 3 && a.type == GGUF_I16 && a.size_bytes == 6);
    CHECK(gguf_array_i64(&a, 0, &i) && i == -2);
    CHECK(gguf_array_i64(&a, 1, &i) && i == 7);
    CHECK(gguf_array_i64(&a, 2, &i) && i == -32768);
    CHECK(!gguf_array_i64(&a, 3, &i) && !gguf_array_i64(&a, UINT64_MAX, &i));
    CHECK(!gguf_array_f64(&a, 0, &f) && !gguf_array_bool(&a, 0, &bo));
    CHECK_INT(gguf_require_array(g, "u64s", GGUF_INTEGERS, &a, NULL), 0);
    CHECK(gguf_array_i64(&a, 0, &i) && i == INT64_MAX);
    CHECK(!gguf_array_i64(&a, 1, &i)); /* 2^63 */
    CHECK_INT(gguf_require_array(g, "floats", GGUF_FLOATS, &a, NULL), 0);
    CHECK(gguf_array_f64(&a, 0, &f) && isinf(f));
    CHECK(!gguf_array_f64(&a, 1, &f) && !gguf_array_i64(&a, 0, &i));
    CHECK_INT(gguf_require_array(g, "bools", GGUF_BOOLS, &a, NULL), 0);
    CHECK(gguf_array_bool(&a, 0, &bo) && bo);
    CHECK(gguf_array_bool(&a, 1, &bo) && !bo);
    CHECK(!gguf_array_bool(&a, 2, &bo));
    struct gguf_strings list;
    skua_error err;
    CHECK_INT(gguf_strings_init(&list, &a, &err), SKUA_EARG);
    CHECK_INT(gguf_require_array(g, "strings", GGUF_STRINGS, &a, NULL), 0);
    OK(gguf_strings_init(&list, &a, &err));
    CHECK_INT(list.count, 4);
    static const struct gguf_string want[] = {{"one", 3}, {"", 0}, {"\xff", 2}, {"last", 4}};
    size_t offset = 0;
    struct gguf_string s;
    for (size_t k = 0; k < 4; k++) {
        CHECK(gguf_array_next_string(&a, &offset, &s));
        CHECK_INT(s.len, want[k].len);
        CHECK_MEM(s.data, want[k].data, s.len);
        CHECK(gguf_strings_at(&list, k).data == s.data && gguf_strings_at(&list, k).len == s.len);
    }
    CHECK(!gguf_array_next_string(&a, &offset, &s));
    CHECK_INT(gguf_strings_at(&list, 4).len, 0);
    gguf_strings_free(&list);
    fault_set_alloc(1, true);
    CHECK_INT(gguf_strings_init(&list, &a, &err), SKUA_ENOMEM);
    fault_set_alloc(0, false);
    gguf_close(g);
    strbuf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_arrays),
    };
    return finish_checks("test_gguf_get", cmocka_run_group_tests(tests, NULL, NULL));
}
