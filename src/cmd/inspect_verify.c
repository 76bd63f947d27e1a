/* The data of a model file, block by block; see inspect_verify.h. The sums are XXH3 (64 bits) of each tensor's bytes. The file's
   sum chains them in file order: each (8 bytes, little-endian) is summed with the one before as seed. So one line compares two copies,
   also in other shard layouts. */
#include "cmd/inspect_verify.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "cmd/inspect_value.h"
#include "cmd/term.h"
#include "gguf/gguf.h"
#include "quant/quant.h"

#define PIECE 4096 /* values that are decoded at once: a multiple of every block */

struct verdict {
    uint64_t sum;
    bool checked;      /* the type is one whose blocks we know */
    char problem[192]; /* the first one; "" when there is none */
};

/* n values at p: usable scales, and, since scale and offset can be finite and their result is not, finite values. */
static bool piece_is_sound(uint32_t type, const uint8_t *p, int64_t n, char problem[120])
{
    float x[PIECE];
    skua_error err;
    int rc = quant_row_check(type, p, n, &err);
    if (rc) {
        snprintf(problem, 120, "%.119s", err.message);
        return false;
    }
    dequant_row(type, p, x, n);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) {
            snprintf(problem, 120, "value %lld of a %s row is not finite", (long long)i, qtype_info(type)->name);
            return false;
        }
    return true;
}

static void verify_tensor(const struct gguf_tensor *t, struct progress *p, uint64_t *done, struct verdict *v)
{
    *v = (struct verdict){.sum = XXH3_64bits(t->data, t->size_bytes), .checked = dequant_supported(t->type)};
    const size_t row_bytes = qtype_row_bytes(t->type, t->ne[0]);
    const uint64_t rows = row_bytes ? t->size_bytes / row_bytes : 0;
    for (uint64_t r = 0; r < rows && v->checked; r++) {
        for (uint64_t at = 0; at < t->ne[0]; at += PIECE) {
            int64_t n = t->ne[0] - at < PIECE ? (int64_t)(t->ne[0] - at) : PIECE;
            const uint8_t *piece = t->data + r * row_bytes + (at ? qtype_row_bytes(t->type, at) : 0);
            char problem[120];
            if (v->problem[0] || piece_is_sound(t->type, piece, n, problem))
                continue;
            snprintf(v->problem, sizeof v->problem, "row %llu, from value %llu on: %s", (unsigned long long)r, (unsigned long long)at,
                     problem);
        }
        *done += row_bytes;
        progress_set(p, *done);
    }
}

static uint64_t file_sum(const struct verdict *v, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t bytes[8];
        for (int k = 0; k < 8; k++)
            bytes[k] = (uint8_t)(v[i].sum >> 8 * k);
        sum = XXH3_64bits_withSeed(bytes, sizeof bytes, sum);
    }
    return sum;
}

static void append_name(struct strbuf *out, const struct gguf_tensor *t)
{
    value_append_escaped(out, t->name, t->name_len);
}

static void text(const struct gguf *g, const char *path, const struct verdict *v, uint32_t n, uint32_t bad, struct strbuf *out)
{
    uint64_t bytes = 0;
    uint32_t unknown = 0;
    for (uint32_t i = 0; i < n; i++) {
        bytes += gguf_tensor_at(g, i)->size_bytes;
        unknown += !v[i].checked;
    }
    value_append_escaped(out, path, strlen(path));
    strbuf_printf(out, ": %s: %u tensors, ", bad ? "damaged" : "ok", n);
    value_append_bytes(out, bytes);
    strbuf_printf(out, ", xxh3 %016" PRIx64 "\n", file_sum(v, n));
    for (uint32_t i = 0; i < n; i++)
        if (v[i].problem[0]) {
            strbuf_puts(out, "  ");
            append_name(out, gguf_tensor_at(g, i));
            strbuf_printf(out, ": %s\n", v[i].problem);
        }
    if (unknown)
        strbuf_printf(out, "  %u tensors of types whose blocks are not known here were only summed\n", unknown);
}

static int json(const struct gguf *g, const char *path, const struct verdict *v, uint32_t n, uint32_t bad, struct strbuf *out,
                skua_error *err)
{
    json_t *o = json_object(), *list = json_array();
    char hex[17];
    bool failed = json_object_set_new(o, "file", value_json_string(path, strlen(path))) != 0;
    failed |= json_object_set_new(o, "damaged", json_integer(bad)) != 0;
    snprintf(hex, sizeof hex, "%016" PRIx64, file_sum(v, n));
    failed |= json_object_set_new(o, "xxh3", json_string(hex)) != 0;
    failed |= json_object_set_new(o, "tensors", list) != 0;
    for (uint32_t i = 0; i < n && !failed; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        json_t *entry = json_object();
        failed |= json_array_append_new(list, entry) != 0;
        if (failed)
            break;
        failed |= json_object_set_new(entry, "name", value_json_string(t->name, t->name_len)) != 0;
        failed |= json_object_set_new(entry, "type", json_string(qtype_info(t->type)->name)) != 0;
        failed |= json_object_set_new(entry, "bytes", json_integer((json_int_t)t->size_bytes)) != 0;
        snprintf(hex, sizeof hex, "%016" PRIx64, v[i].sum);
        failed |= json_object_set_new(entry, "xxh3", json_string(hex)) != 0;
        failed |= json_object_set_new(entry, "checked", json_boolean(v[i].checked)) != 0;
        failed |= json_object_set_new(entry, "problem", v[i].problem[0] ? json_string(v[i].problem) : json_null()) != 0;
    }
    return value_json_dump(o, failed, out, err);
}

int inspect_verify(const char *path, bool as_json, uint32_t *bad, skua_error *err)
{
    struct gguf *g = NULL;
    struct strbuf out = {0};
    *bad = 0;
    int rc = gguf_open(&g, path, err);
    if (rc)
        return rc;
    uint32_t n = gguf_tensor_count(g);
    struct verdict *v = mem_calloc(n ? n : 1, sizeof *v);
    if (!v) {
        rc = error_nomem(err, "verdicts", n * sizeof *v);
        goto out;
    }
    struct progress progress;
    uint64_t total = 0, done = 0;
    for (uint32_t i = 0; i < n; i++)
        total += gguf_tensor_at(g, i)->size_bytes;
    progress_begin(&progress, "verifying", total);
    for (uint32_t i = 0; i < n; i++) {
        verify_tensor(gguf_tensor_at(g, i), &progress, &done, &v[i]);
        *bad += v[i].problem[0] != 0;
    }
    progress_end(&progress);
    if (as_json)
        rc = json(g, path, v, n, *bad, &out, err);
    else
        text(g, path, v, n, *bad, &out);
    if (!rc && strbuf_failed(&out))
        rc = error_nomem(err, path, out.len);
    if (!rc)
        fwrite(out.data, 1, out.len, stdout);
out:
    strbuf_free(&out);
    mem_free(v);
    gguf_close(g);
    return rc;
}
