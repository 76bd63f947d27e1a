/* Shared by the GGUF tests: a counter of checks, and a builder of container bytes that writes whatever it is told to,
   valid or not (the writer in src/gguf cannot produce malformed files). */
#ifndef SKUA_TESTS_GGUF_BYTES_H
#define SKUA_TESTS_GGUF_BYTES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "gguf/gguf.h"

static unsigned long checks;

#define CHECK(c)            (checks++, assert_true(c))
#define CHECK_INT(a, b)     do { checks++; assert_int_equal(a, b); } while (0)
#define CHECK_STR(a, b)     do { checks++; assert_string_equal(a, b); } while (0)
#define CHECK_MEM(a, b, n)  do { checks++; assert_memory_equal(a, b, n); } while (0)

/* The end of every main: prints the count, fails on none. */
static inline int finish_checks(const char *name, int failed)
{
    printf("%s: %lu checks\n", name, checks);
    return failed || checks == 0;
}

static inline void put_u8(struct strbuf *b, uint8_t v) { strbuf_append(b, &v, 1); }
static inline void put_u16(struct strbuf *b, uint16_t v) { strbuf_append(b, &v, 2); }
static inline void put_u32(struct strbuf *b, uint32_t v) { strbuf_append(b, &v, 4); }
static inline void put_u64(struct strbuf *b, uint64_t v) { strbuf_append(b, &v, 8); }

static inline void put_bytes(struct strbuf *b, const char *s, size_t n)
{
    put_u64(b, n);
    strbuf_append(b, s, n);
}

static inline void put_str(struct strbuf *b, const char *s) { put_bytes(b, s, strlen(s)); }

static inline void put_header(struct strbuf *b, uint64_t n_tensors, uint64_t n_keys)
{
    strbuf_append(b, "GGUF", 4);
    put_u32(b, 3);
    put_u64(b, n_tensors);
    put_u64(b, n_keys);
}

/* The head of a key; the caller appends the value. */
static inline void put_key(struct strbuf *b, const char *name, uint32_t type)
{
    put_str(b, name);
    put_u32(b, type);
}

static inline void put_key_u32(struct strbuf *b, const char *name, uint32_t v)
{
    put_key(b, name, GGUF_U32);
    put_u32(b, v);
}

static inline void put_array(struct strbuf *b, const char *name, uint32_t type, uint64_t count)
{
    put_key(b, name, GGUF_ARRAY);
    put_u32(b, type);
    put_u64(b, count);
}

static inline void put_tensor(struct strbuf *b, const char *name, uint32_t n_dims, const uint64_t *ne, uint32_t type,
                              uint64_t offset)
{
    put_str(b, name);
    put_u32(b, n_dims);
    for (uint32_t i = 0; i < n_dims; i++)
        put_u64(b, ne[i]);
    put_u32(b, type);
    put_u64(b, offset);
}

static inline void put_zeros(struct strbuf *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put_u8(b, 0);
}

static inline void put_padding(struct strbuf *b, size_t alignment) { put_zeros(b, (alignment - b->len % alignment) % alignment); }

/* Parse an exact-size heap copy, so that a sanitizer sees every byte read past the end. The copy lives in *copy. */
static inline int parse_copy(struct gguf **g, uint8_t **copy, const void *data, size_t n, enum gguf_class *class,
                             skua_error *err)
{
    *copy = malloc(n ? n : 1);
    assert_non_null(*copy);
    if (n)
        memcpy(*copy, data, n);
    return gguf_parse_memory(g, n ? *copy : NULL, n, "m.gguf", class, err);
}

/* The verdict on some bytes; also checks what holds for every refusal. */
static inline enum gguf_class verdict_error(const void *data, size_t n, skua_error *err)
{
    struct gguf *g = (struct gguf *)(uintptr_t)1;
    enum gguf_class class = GGUF_CLASS_END;
    uint8_t *copy;
    *err = (skua_error){0};
    int rc = parse_copy(&g, &copy, data, n, &class, err);
    if (rc) {
        char want[64];
        CHECK(g == NULL);
        CHECK(rc == SKUA_EFORMAT || rc == SKUA_EUNSUPPORTED);
        CHECK_INT(err->code, rc);
        CHECK(class != GGUF_OK && class < GGUF_CLASS_END);
        snprintf(want, sizeof want, "m.gguf: %s at byte ", gguf_class_name((int)class));
        CHECK(strncmp(err->message, want, strlen(want)) == 0);
        CHECK(strtoul(err->message + strlen(want), NULL, 10) <= n);
        CHECK(strchr(err->message, '\n') == NULL);
    } else {
        CHECK_INT(class, GGUF_OK);
        gguf_close(g);
    }
    free(copy);
    return class;
}

static inline enum gguf_class verdict(const struct strbuf *b)
{
    skua_error err;
    assert_false(strbuf_failed(b));
    return verdict_error(b->data, b->len, &err);
}

#endif
