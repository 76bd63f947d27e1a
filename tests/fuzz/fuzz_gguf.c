/* Fuzz target: any bytes as a GGUF container. A refusal must carry a class and nothing else; of an accepted container every
   key, string, array element, and the first and last byte of every tensor is touched, and every name must be found again. */
#include <stdlib.h>
#include <string.h>

#include "gguf/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink; /* keeps the reads */

#define MUST(c)      \
    do {             \
        if (!(c))    \
            abort(); \
    } while (0)

/* A name as a C string; names of accepted files hold no zero byte. */
static char *terminated(const char *s, size_t n)
{
    char *p = malloc(n + 1);
    MUST(p);
    memcpy(p, s, n);
    p[n] = '\0';
    return p;
}

static void touch_string(struct gguf_string s)
{
    for (size_t i = 0; i < s.len; i++)
        sink += (uint8_t)s.data[i];
}

static void touch_array(const struct gguf_array *a)
{
    struct gguf_strings list;
    struct gguf_string s;
    size_t offset = 0, n = 0;
    int64_t v;
    double f;
    bool b;
    for (uint64_t i = 0; i < a->count; i++) {
        if (gguf_array_i64(a, i, &v))
            sink += (uint64_t)v;
        if (gguf_array_f64(a, i, &f))
            sink += f == f;
        if (gguf_array_bool(a, i, &b))
            sink += b;
    }
    while (gguf_array_next_string(a, &offset, &s)) {
        touch_string(s);
        n++;
    }
    MUST(n == (a->type == GGUF_STRING ? a->count : 0));
    if (gguf_strings_init(&list, a, NULL) == 0) {
        for (size_t i = 0; i < list.count; i++)
            touch_string(gguf_strings_at(&list, i));
        gguf_strings_free(&list);
    }
}

/* Every getter on one key: exactly those that suit the type may succeed, and none may say that the key is absent. */
static void touch_key(const struct gguf *g, const struct gguf_value *v)
{
    char *key = terminated(v->key.data, v->key.len);
    uint32_t u32;
    uint64_t u64;
    int32_t i32;
    int64_t i64;
    float f32;
    double f64;
    bool b;
    struct gguf_string s;
    struct gguf_array a;
    struct gguf_value again;
    skua_error err;
    MUST(gguf_find_key(g, key, &again) && again.type == v->type && again.key.data == v->key.data);
    MUST(gguf_get_u32(g, key, &u32, &err) != 0 && gguf_get_u64(g, key, &u64, &err) != 0);
    MUST(gguf_get_i32(g, key, &i32, &err) != 0 && gguf_get_i64(g, key, &i64, &err) != 0);
    MUST(gguf_get_f32(g, key, &f32, &err) != 0 && gguf_get_f64(g, key, &f64, &err) != 0);
    MUST((gguf_get_bool(g, key, &b, &err) == 1) == (v->type == GGUF_BOOL));
    MUST((gguf_get_string(g, key, &s, &err) == 1) == (v->type == GGUF_STRING));
    MUST((gguf_get_array(g, key, GGUF_ANY_ELEMENTS, &a, &err) == 1) == (v->type == GGUF_ARRAY));
    for (int e = GGUF_INTEGERS; e <= GGUF_STRINGS; e++)
        MUST(gguf_get_array(g, key, (enum gguf_elements)e, &a, &err) != 0);
    if (v->type == GGUF_STRING)
        touch_string(v->s);
    if (v->type == GGUF_ARRAY)
        touch_array(&v->a);
    free(key);
}

static void touch_tensor(const struct gguf *g, const struct gguf_tensor *t)
{
    size_t size;
    const uint8_t *base = gguf_shard_data(g, 0, &size);
    char *name = terminated(t->name, t->name_len);
    MUST(gguf_find_tensor(g, name) == t);
    MUST(t->data == base + t->file_offset && t->file_offset <= size && t->size_bytes <= size - t->file_offset);
    MUST(t->size_bytes > 0 && (t->file_offset - gguf_data_start(g, 0)) % gguf_alignment(g, 0) == 0);
    uint64_t rows = t->ne[1] * t->ne[2] * t->ne[3];
    MUST(qtype_row_bytes(t->type, t->ne[0]) * rows == t->size_bytes);
    sink += (uint64_t)t->data[0] + t->data[t->size_bytes - 1];
    free(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g;
    enum gguf_class class;
    skua_error err = {0};
    int rc = gguf_parse_memory(&g, data, size, "fuzz", &class, &err);
    if (rc) {
        MUST(!g && class != GGUF_OK && err.code == rc && strstr(err.message, gguf_class_name((int)class)));
        return 0;
    }
    struct gguf_value v;
    MUST(class == GGUF_OK);
    for (uint32_t i = 0; i < gguf_key_count(g); i++) {
        MUST(gguf_key_at(g, i, &v));
        touch_key(g, &v);
    }
    for (uint32_t i = 0; i < gguf_tensor_count(g); i++)
        touch_tensor(g, gguf_tensor_at(g, i));
    gguf_close(g);
    return 0;
}
