/* Values of keys: decoding, typed getters with the tolerance for integer widths, arrays. */
#include <float.h>
#include <math.h>

#include "base/mem.h"
#include "gguf/gguf.h"
#include "gguf/gguf_internal.h"

/* ---- decoding ---- */

static const struct {
    const char *name;
    uint8_t size;
} value_types[GGUF_TYPE_END] = {
    [GGUF_U8] = {"u8", 1},   [GGUF_I8] = {"i8", 1},         [GGUF_U16] = {"u16", 2},   [GGUF_I16] = {"i16", 2},
    [GGUF_U32] = {"u32", 4}, [GGUF_I32] = {"i32", 4},       [GGUF_F32] = {"f32", 4},   [GGUF_BOOL] = {"bool", 1},
    [GGUF_U64] = {"u64", 8}, [GGUF_STRING] = {"string", 8}, [GGUF_ARRAY] = {"array", 0}, [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

const char *gguf_type_name(uint32_t type) { return type < GGUF_TYPE_END ? value_types[type].name : "unknown"; }

size_t gguf_type_size(uint32_t type) { return type < GGUF_TYPE_END ? value_types[type].size : 0; }

static bool is_unsigned(uint32_t type) { return type == GGUF_U8 || type == GGUF_U16 || type == GGUF_U32 || type == GGUF_U64; }
static bool is_signed(uint32_t type) { return type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64; }

static uint64_t load_unsigned(uint32_t type, const uint8_t *p)
{
    switch (type) {
    case GGUF_U8: return p[0];
    case GGUF_U16: return load_u16(p);
    case GGUF_U32: return load_u32(p);
    default: return load_u64(p);
    }
}

static int64_t load_signed(uint32_t type, const uint8_t *p)
{
    switch (type) {
    case GGUF_I8: return (int8_t)p[0];
    case GGUF_I16: return (int16_t)load_u16(p);
    case GGUF_I32: return (int32_t)load_u32(p);
    default: return (int64_t)load_u64(p);
    }
}

static double load_float(uint32_t type, const uint8_t *p)
{
    float f;
    double d;
    if (type == GGUF_F32) {
        memcpy(&f, p, sizeof f);
        return (double)f;
    }
    memcpy(&d, p, sizeof d);
    return d;
}

static struct gguf_string load_string(const uint8_t *p)
{
    return (struct gguf_string){(const char *)p + 8, (size_t)load_u64(p)};
}

struct gguf_string gguf_entry_name(const void *context, uint32_t record)
{
    const gguf_entry *entries = context;
    return load_string(entries[record]);
}

const uint8_t *gguf_decode_key(gguf_entry key, struct gguf_value *v)
{
    v->key = load_string(key);
    const uint8_t *p = key + 8 + v->key.len;
    v->type = (enum gguf_type)load_u32(p);
    p += 4;
    if (v->type == GGUF_STRING) {
        v->s = load_string(p);
        return p + 8 + v->s.len;
    }
    if (v->type == GGUF_ARRAY) {
        struct gguf_array a = {.type = (enum gguf_type)load_u32(p), .count = load_u64(p + 4), .data = p + 12};
        a.size_bytes = (size_t)a.count * gguf_type_size(a.type);
        if (a.type == GGUF_STRING) {
            a.size_bytes = 0;
            for (uint64_t i = 0; i < a.count; i++)
                a.size_bytes += 8 + (size_t)load_u64(a.data + a.size_bytes);
        }
        v->a = a;
        return a.data + a.size_bytes;
    }
    if (is_unsigned(v->type))
        v->u = load_unsigned(v->type, p);
    else if (is_signed(v->type))
        v->i = load_signed(v->type, p);
    else if (v->type == GGUF_BOOL)
        v->b = p[0] != 0;
    else
        v->f = load_float(v->type, p);
    return p + gguf_type_size(v->type);
}

uint32_t gguf_key_count(const struct gguf *g) { return g->n_keys; }

bool gguf_key_at(const struct gguf *g, uint32_t i, struct gguf_value *v)
{
    if (i >= g->n_keys)
        return false;
    gguf_decode_key(g->keys[i], v);
    return true;
}

bool gguf_find_key(const struct gguf *g, const char *key, struct gguf_value *v)
{
    uint32_t i;
    struct gguf_string s = {key, strlen(key)};
    if (!gguf_index_get(&g->key_index, s, gguf_entry_name, g->keys, &i))
        return false;
    gguf_decode_key(g->keys[i], v);
    return true;
}

/* ---- getters ---- */

static int missing(const struct gguf *g, const char *key, const char *expected, skua_error *err)
{
    return error_set(err, SKUA_EFORMAT, "%s: key '%s' is missing, expected %s", gguf_path_tail(g->shards[0].path), key, expected);
}

static int mismatch(const struct gguf *g, const struct gguf_value *v, const char *expected, skua_error *err)
{
    bool is_array = v->type == GGUF_ARRAY;
    return error_set(err, SKUA_EFORMAT, "%s: key '%s' is of type %s%s, expected %s", gguf_path_tail(g->shards[0].path),
                     gguf_quote(v->key.data, v->key.len).text, is_array ? "array of " : "",
                     gguf_type_name(is_array ? v->a.type : v->type), expected);
}

/* An integer of any width as 64 bits; when *negative they are two's complement. */
static bool as_integer(const struct gguf_value *v, bool *negative, uint64_t *u)
{
    if (!is_unsigned(v->type) && !is_signed(v->type))
        return false;
    *negative = is_signed(v->type) && v->i < 0;
    *u = is_signed(v->type) ? (uint64_t)v->i : v->u;
    return true;
}

static int out_of_range(const struct gguf *g, const char *key, bool negative, uint64_t u, const char *expected, skua_error *err)
{
    const char *path = gguf_path_tail(g->shards[0].path);
    if (negative)
        return error_set(err, SKUA_EFORMAT, "%s: key '%s' is %lld, expected %s", path, key, (long long)u, expected);
    return error_set(err, SKUA_EFORMAT, "%s: key '%s' is %llu, expected %s", path, key, (unsigned long long)u, expected);
}

static int get_unsigned(const struct gguf *g, const char *key, uint64_t max, const char *expected, uint64_t *out,
                        skua_error *err)
{
    struct gguf_value v;
    bool negative;
    uint64_t u;
    if (!gguf_find_key(g, key, &v))
        return 0;
    if (!as_integer(&v, &negative, &u))
        return mismatch(g, &v, expected, err);
    if (negative || u > max)
        return out_of_range(g, key, negative, u, expected, err);
    *out = u;
    return 1;
}

static int get_signed(const struct gguf *g, const char *key, int64_t min, int64_t max, const char *expected, int64_t *out,
                      skua_error *err)
{
    struct gguf_value v;
    bool negative;
    uint64_t u;
    if (!gguf_find_key(g, key, &v))
        return 0;
    if (!as_integer(&v, &negative, &u))
        return mismatch(g, &v, expected, err);
    if (negative ? (int64_t)u < min : u > (uint64_t)max)
        return out_of_range(g, key, negative, u, expected, err);
    *out = (int64_t)u;
    return 1;
}

static int get_float(const struct gguf *g, const char *key, double max, const char *expected, double *out, skua_error *err)
{
    struct gguf_value v;
    if (!gguf_find_key(g, key, &v))
        return 0;
    if (v.type != GGUF_F32 && v.type != GGUF_F64)
        return mismatch(g, &v, expected, err);
    if (!isfinite(v.f) || fabs(v.f) > max)
        return error_set(err, SKUA_EFORMAT, "%s: key '%s' is %g, expected %s", gguf_path_tail(g->shards[0].path), key, v.f,
                         expected);
    *out = v.f;
    return 1;
}

#define EXPECT_U32 "an integer from 0 to 4294967295"
#define EXPECT_U64 "an integer from 0 to 2^64 - 1"
#define EXPECT_I32 "an integer from -2147483648 to 2147483647"
#define EXPECT_I64 "an integer from -2^63 to 2^63 - 1"
#define EXPECT_F32 "a finite f32"
#define EXPECT_F64 "a finite f64"
#define EXPECT_BOOL "bool"
#define EXPECT_STRING "string"

int gguf_get_u32(const struct gguf *g, const char *key, uint32_t *v, skua_error *err)
{
    uint64_t wide = 0;
    int rc = get_unsigned(g, key, UINT32_MAX, EXPECT_U32, &wide, err);
    if (rc > 0)
        *v = (uint32_t)wide;
    return rc;
}

int gguf_get_u64(const struct gguf *g, const char *key, uint64_t *v, skua_error *err)
{
    return get_unsigned(g, key, UINT64_MAX, EXPECT_U64, v, err);
}

int gguf_get_i32(const struct gguf *g, const char *key, int32_t *v, skua_error *err)
{
    int64_t wide = 0;
    int rc = get_signed(g, key, INT32_MIN, INT32_MAX, EXPECT_I32, &wide, err);
    if (rc > 0)
        *v = (int32_t)wide;
    return rc;
}

int gguf_get_i64(const struct gguf *g, const char *key, int64_t *v, skua_error *err)
{
    return get_signed(g, key, INT64_MIN, INT64_MAX, EXPECT_I64, v, err);
}

int gguf_get_f32(const struct gguf *g, const char *key, float *v, skua_error *err)
{
    double wide = 0;
    int rc = get_float(g, key, (double)FLT_MAX, EXPECT_F32, &wide, err);
    if (rc > 0)
        *v = (float)wide;
    return rc;
}

int gguf_get_f64(const struct gguf *g, const char *key, double *v, skua_error *err)
{
    return get_float(g, key, DBL_MAX, EXPECT_F64, v, err);
}

int gguf_get_bool(const struct gguf *g, const char *key, bool *v, skua_error *err)
{
    struct gguf_value found;
    if (!gguf_find_key(g, key, &found))
        return 0;
    if (found.type != GGUF_BOOL)
        return mismatch(g, &found, EXPECT_BOOL, err);
    *v = found.b;
    return 1;
}

int gguf_get_string(const struct gguf *g, const char *key, struct gguf_string *v, skua_error *err)
{
    struct gguf_value found;
    if (!gguf_find_key(g, key, &found))
        return 0;
    if (found.type != GGUF_STRING)
        return mismatch(g, &found, EXPECT_STRING, err);
    *v = found.s;
    return 1;
}

#define REQUIRE(SUFFIX, C_TYPE, EXPECTED)                                                              \
    int gguf_require_##SUFFIX(const struct gguf *g, const char *key, C_TYPE *v, skua_error *err)       \
    {                                                                                                  \
        int rc = gguf_get_##SUFFIX(g, key, v, err);                                                    \
        return rc == 0 ? missing(g, key, EXPECTED, err) : rc < 0 ? rc : 0;                             \
    }
REQUIRE(u32, uint32_t, EXPECT_U32)
REQUIRE(u64, uint64_t, EXPECT_U64)
REQUIRE(i32, int32_t, EXPECT_I32)
REQUIRE(i64, int64_t, EXPECT_I64)
REQUIRE(f32, float, EXPECT_F32)
REQUIRE(f64, double, EXPECT_F64)
REQUIRE(bool, bool, EXPECT_BOOL)
REQUIRE(string, struct gguf_string, EXPECT_STRING)

/* ---- arrays ---- */

static const char *elements_name(enum gguf_elements want)
{
    switch (want) {
    case GGUF_INTEGERS: return "array of integers";
    case GGUF_FLOATS: return "array of f32 or f64";
    case GGUF_BOOLS: return "array of bool";
    case GGUF_STRINGS: return "array of string";
    default: return "array";
    }
}

static bool elements_match(enum gguf_elements want, uint32_t type)
{
    switch (want) {
    case GGUF_INTEGERS: return is_unsigned(type) || is_signed(type);
    case GGUF_FLOATS: return type == GGUF_F32 || type == GGUF_F64;
    case GGUF_BOOLS: return type == GGUF_BOOL;
    case GGUF_STRINGS: return type == GGUF_STRING;
    default: return true;
    }
}

int gguf_get_array(const struct gguf *g, const char *key, enum gguf_elements want, struct gguf_array *v, skua_error *err)
{
    struct gguf_value found;
    if (!gguf_find_key(g, key, &found))
        return 0;
    if (found.type != GGUF_ARRAY || !elements_match(want, found.a.type))
        return mismatch(g, &found, elements_name(want), err);
    *v = found.a;
    return 1;
}

int gguf_require_array(const struct gguf *g, const char *key, enum gguf_elements want, struct gguf_array *v,
                       skua_error *err)
{
    int rc = gguf_get_array(g, key, want, v, err);
    return rc == 0 ? missing(g, key, elements_name(want), err) : rc < 0 ? rc : 0;
}

static const uint8_t *element(const struct gguf_array *a, uint64_t i)
{
    return a->data + (size_t)i * gguf_type_size(a->type);
}

bool gguf_array_i64(const struct gguf_array *a, uint64_t i, int64_t *v)
{
    if (i >= a->count)
        return false;
    if (is_signed(a->type)) {
        *v = load_signed(a->type, element(a, i));
        return true;
    }
    if (!is_unsigned(a->type))
        return false;
    uint64_t u = load_unsigned(a->type, element(a, i));
    if (u > INT64_MAX)
        return false;
    *v = (int64_t)u;
    return true;
}

bool gguf_array_f64(const struct gguf_array *a, uint64_t i, double *v)
{
    if (i >= a->count || (a->type != GGUF_F32 && a->type != GGUF_F64))
        return false;
    *v = load_float(a->type, element(a, i));
    return true;
}

bool gguf_array_bool(const struct gguf_array *a, uint64_t i, bool *v)
{
    if (i >= a->count || a->type != GGUF_BOOL)
        return false;
    *v = *element(a, i) != 0;
    return true;
}

bool gguf_array_next_string(const struct gguf_array *a, size_t *offset, struct gguf_string *s)
{
    if (a->type != GGUF_STRING || *offset >= a->size_bytes)
        return false;
    *s = load_string(a->data + *offset);
    *offset += 8 + s->len;
    return true;
}

int gguf_strings_init(struct gguf_strings *s, const struct gguf_array *a, skua_error *err)
{
    *s = (struct gguf_strings){0};
    if (a->type != GGUF_STRING)
        return error_set(err, SKUA_EARG, "an array of %s is no array of strings", gguf_type_name(a->type));
    size_t n = (size_t)a->count;
    s->offsets = mem_realloc_array(NULL, n, sizeof *s->offsets);
    if (!s->offsets)
        return error_nomem(err, "string index", n * sizeof *s->offsets);
    s->data = a->data;
    s->count = n;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        s->offsets[i] = at;
        at += 8 + (size_t)load_u64(a->data + at);
    }
    return 0;
}

void gguf_strings_free(struct gguf_strings *s)
{
    mem_free(s->offsets);
    *s = (struct gguf_strings){0};
}

struct gguf_string gguf_strings_at(const struct gguf_strings *s, size_t i)
{
    return i < s->count ? load_string(s->data + s->offsets[i]) : (struct gguf_string){"", 0};
}
