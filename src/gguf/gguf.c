/* The open container: names of classes and types, messages, lifetime, and access to shards and tensors. */
#include "gguf/gguf.h"

#include <stdio.h>

#include "base/mem.h"
#include "gguf/gguf_internal.h"

/* ---- names and messages ---- */

const char *gguf_class_name(int class)
{
    static const char *const names[GGUF_CLASS_END] = {
        [GGUF_OK] = "ok",
#define GGUF_CLASS_NAME(name) [GGUF_##name] = #name,
        GGUF_CLASSES(GGUF_CLASS_NAME)
#undef GGUF_CLASS_NAME
    };
    return class >= 0 && class < GGUF_CLASS_END ? names[class] : "unknown";
}

static int class_code(enum gguf_class class)
{
    return class == GGUF_E_VERSION || class == GGUF_E_ENDIAN || class == GGUF_E_TTYPE ? SKUA_EUNSUPPORTED : SKUA_EFORMAT;
}

struct gguf_quoted gguf_quote(const char *name, size_t len)
{
    struct gguf_quoted q;
    size_t n = len < GGUF_MAX_NAME_BYTES ? len : GGUF_MAX_NAME_BYTES;
    for (size_t i = 0; i < n; i++)
        q.text[i] = name[i] >= 0x20 && name[i] < 0x7F ? name[i] : '?';
    memcpy(q.text + n, "...", 4);
    if (n == len)
        q.text[n] = '\0';
    return q;
}

void gguf_report_subject(struct gguf_report *r, const char *what, const char *name, size_t len)
{
    snprintf(r->subject, sizeof r->subject, "%s '%s'", what, gguf_quote(name, len).text);
}

const char *gguf_path_tail(const char *path)
{
    size_t len = strlen(path);
    return len > ERROR_PATH_BYTES ? path + len - ERROR_PATH_BYTES : path;
}

int gguf_fail(struct gguf_report *r, enum gguf_class class, size_t at, const char *fmt, ...)
{
    char detail[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(detail, sizeof detail, fmt, ap);
    va_end(ap);
    *r->class = class;
    return error_set(r->err, class_code(class), "%s: %s at byte %zu: %s%s%s", gguf_path_tail(r->label),
                     gguf_class_name((int)class), at, r->subject, r->subject[0] ? ": " : "", detail);
}

/* ---- lifetime ---- */

void gguf_release(struct gguf *g)
{
    for (uint32_t i = 0; i < g->n_shards; i++) {
        file_map_close(&g->shards[i].map);
        mem_free(g->shards[i].path);
    }
    mem_free(g->shards);
    mem_free(g->keys);
    mem_free(g->tensors);
    gguf_index_free(&g->key_index);
    gguf_index_free(&g->tensor_index);
    *g = (struct gguf){0};
}

void gguf_close(struct gguf *g)
{
    if (g)
        gguf_release(g);
    mem_free(g);
}

int gguf_parse_memory(struct gguf **out, const uint8_t *data, size_t size, const char *label, enum gguf_class *class,
                      skua_error *err)
{
    enum gguf_class local;
    class = class ? class : &local;
    *class = GGUF_OK;
    *out = NULL;
    struct gguf *g = mem_calloc(1, sizeof *g);
    if (!g)
        return error_nomem(err, label, sizeof *g);
    int rc = gguf_parse(g, data, size, 0, label, class, err);
    if (!rc) {
        g->shards[0].path = mem_strdup(label);
        if (!g->shards[0].path)
            rc = error_nomem(err, label, strlen(label) + 1);
    }
    if (rc) {
        gguf_close(g);
        return rc;
    }
    *out = g;
    return 0;
}

/* ---- shards ---- */

uint32_t gguf_shard_count(const struct gguf *g) { return g->n_shards; }

const char *gguf_shard_path(const struct gguf *g, uint32_t i) { return i < g->n_shards ? g->shards[i].path : NULL; }

const uint8_t *gguf_shard_data(const struct gguf *g, uint32_t i, size_t *size_bytes)
{
    *size_bytes = i < g->n_shards ? g->shards[i].size : 0;
    return i < g->n_shards ? g->shards[i].base : NULL;
}

void gguf_forget(const struct gguf *g, const struct gguf_tensor *t)
{
    const struct gguf_shard *s = &g->shards[t->shard];
    if (s->map.data)
        file_map_forget(&s->map, (size_t)t->file_offset, (size_t)t->size_bytes);
}

size_t gguf_data_start(const struct gguf *g, uint32_t i) { return i < g->n_shards ? (size_t)g->shards[i].data_start : 0; }

uint32_t gguf_alignment(const struct gguf *g, uint32_t i) { return i < g->n_shards ? g->shards[i].alignment : 0; }

uint32_t gguf_version(const struct gguf *g) { return g->shards[0].version; }

/* ---- tensors ---- */

struct gguf_string gguf_tensor_name(const void *context, uint32_t record)
{
    const struct gguf_tensor *t = (const struct gguf_tensor *)context + record;
    return (struct gguf_string){t->name, t->name_len};
}

uint32_t gguf_tensor_count(const struct gguf *g) { return g->n_tensors; }

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, uint32_t i)
{
    return i < g->n_tensors ? &g->tensors[i] : NULL;
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
    uint32_t i;
    struct gguf_string key = {name, strlen(name)};
    return gguf_index_get(&g->tensor_index, key, gguf_tensor_name, g->tensors, &i) ? &g->tensors[i] : NULL;
}

int gguf_require_tensor(const struct gguf *g, const char *name, const struct gguf_tensor **t, skua_error *err)
{
    *t = gguf_find_tensor(g, name);
    if (*t)
        return 0;
    return error_set(err, SKUA_EFORMAT, "%s: tensor '%s' is missing", gguf_path_tail(g->shards[0].path), name);
}
