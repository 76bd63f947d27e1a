/* Values for terminals and JSON; see inspect_value.h. */
#include "cmd/inspect_value.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

#define MAX_STRING 120 /* bytes of a string that is shown in part */
#define MAX_ELEMENTS 16 /* of an array of numbers that is shown nevertheless */
#define REPLACEMENT "\xEF\xBF\xBD"

/* ---- text ---- */

static void append_escaped(struct strbuf *out, const char *s, size_t n, bool quoted)
{
    char piece[7];
    for (size_t i = 0, used; i < n; i += used) {
        int len = utf8_escape(s + i, n - i, piece, &used);
        if (quoted && (s[i] == '"' || s[i] == '\\'))
            strbuf_putc(out, '\\');
        strbuf_append(out, piece, (size_t)len);
    }
}

void value_append_escaped(struct strbuf *out, const char *s, size_t n) { append_escaped(out, s, n, false); }

/* The most bytes, up to max, that do not cut a character. */
static size_t cut_length(const char *s, size_t n, size_t max) { return n <= max ? n : utf8_complete_prefix(s, max); }

void value_append_quoted(struct strbuf *out, const char *s, size_t n, size_t max_bytes)
{
    size_t shown = max_bytes ? cut_length(s, n, max_bytes) : n;
    strbuf_putc(out, '"');
    append_escaped(out, s, shown, true);
    strbuf_putc(out, '"');
    if (shown < n)
        strbuf_printf(out, "... (%zu bytes)", n);
}

void value_append_bytes(struct strbuf *out, uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    int unit = -1;
    while (v >= 1024.0 && unit < 5) {
        v /= 1024.0;
        unit++;
    }
    if (unit < 0)
        strbuf_printf(out, "%" PRIu64 " B", bytes);
    else
        strbuf_printf(out, "%.1f %s", v, units[unit]);
}

/* The shortest decimal that reads back as the same number of that type. */
static void format_float(char out[40], double v, bool single)
{
    int last = single ? 9 : 17;
    for (int digits = 1; digits <= last; digits++) {
        snprintf(out, 40, "%.*g", digits, v);
        if (single ? strtof(out, NULL) == (float)v : strtod(out, NULL) == v)
            return;
    }
}

static void append_scalar(struct strbuf *out, const struct gguf_value *v, bool all)
{
    char number[40] = "";
    switch (v->type) {
    case GGUF_U8: case GGUF_U16: case GGUF_U32: case GGUF_U64:
        strbuf_printf(out, "%" PRIu64, v->u);
        break;
    case GGUF_I8: case GGUF_I16: case GGUF_I32: case GGUF_I64:
        strbuf_printf(out, "%" PRId64, v->i);
        break;
    case GGUF_F32: case GGUF_F64:
        format_float(number, v->f, v->type == GGUF_F32);
        strbuf_puts(out, number);
        break;
    case GGUF_BOOL:
        strbuf_puts(out, v->b ? "true" : "false");
        break;
    case GGUF_STRING:
        value_append_quoted(out, v->s.data, v->s.len, all ? 0 : MAX_STRING);
        break;
    case GGUF_ARRAY: case GGUF_TYPE_END:
        break;
    }
}

/* Element i of an array as a value of its own; offset is for strings, 0 before the first. */
static void element_at(const struct gguf_array *a, uint64_t i, size_t *offset, struct gguf_value *v)
{
    *v = (struct gguf_value){.type = a->type};
    if (a->type == GGUF_STRING)
        gguf_array_next_string(a, offset, &v->s);
    else if (a->type == GGUF_F32 || a->type == GGUF_F64)
        gguf_array_f64(a, i, &v->f);
    else if (a->type == GGUF_BOOL)
        gguf_array_bool(a, i, &v->b);
    else if (a->type == GGUF_U64)
        memcpy(&v->u, a->data + 8 * i, sizeof v->u); /* unaligned; may exceed what gguf_array_i64 can hold */
    else
        gguf_array_i64(a, i, &v->i); /* u8..u32 too: union members of the same width and no negative values */
}

static bool is_short(const struct gguf_array *a) { return a->type != GGUF_STRING && a->count <= MAX_ELEMENTS; }

void value_append_text(struct strbuf *out, const struct gguf_value *v, bool all)
{
    if (v->type != GGUF_ARRAY) {
        append_scalar(out, v, all);
        return;
    }
    bool in_line = is_short(&v->a);
    strbuf_printf(out, "%s[%" PRIu64 "]", gguf_type_name(v->a.type), v->a.count);
    size_t offset = 0;
    for (uint64_t i = 0; (all || in_line) && i < v->a.count && !strbuf_failed(out); i++) {
        struct gguf_value e;
        element_at(&v->a, i, &offset, &e);
        if (in_line)
            strbuf_puts(out, i ? ", " : ": ");
        else
            strbuf_printf(out, "\n    %" PRIu64 ": ", i);
        append_scalar(out, &e, true);
    }
}

/* ---- JSON ---- */

json_t *value_json_string(const char *s, size_t n)
{
    struct strbuf repaired = {0};
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);
        strbuf_append(&repaired, len ? s + i : REPLACEMENT, len ? (size_t)len : 3);
        i += len ? (size_t)len : 1;
    }
    json_t *j = strbuf_failed(&repaired) ? NULL : json_stringn(strbuf_str(&repaired), repaired.len);
    strbuf_free(&repaired);
    return j;
}

static json_t *json_scalar(const struct gguf_value *v, size_t max_bytes)
{
    char number[40] = "";
    switch (v->type) {
    case GGUF_U8: case GGUF_U16: case GGUF_U32: case GGUF_U64:
        if (v->u <= INT64_MAX)
            return json_integer((json_int_t)v->u);
        snprintf(number, sizeof number, "%" PRIu64, v->u);
        return json_string(number);
    case GGUF_I8: case GGUF_I16: case GGUF_I32: case GGUF_I64:
        return json_integer(v->i);
    case GGUF_F32: case GGUF_F64:
        format_float(number, v->f, v->type == GGUF_F32);
        return isfinite(v->f) ? json_real(strtod(number, NULL)) : json_string(number);
    case GGUF_BOOL:
        return json_boolean(v->b);
    case GGUF_STRING:
        return value_json_string(v->s.data, max_bytes ? cut_length(v->s.data, v->s.len, max_bytes) : v->s.len);
    case GGUF_ARRAY: case GGUF_TYPE_END:
        break;
    }
    return json_null();
}

static json_t *json_elements(const struct gguf_array *a)
{
    json_t *list = json_array();
    size_t offset = 0;
    for (uint64_t i = 0; list && i < a->count; i++) {
        struct gguf_value e;
        element_at(a, i, &offset, &e);
        if (json_array_append_new(list, json_scalar(&e, 0))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *value_json(const struct gguf_value *v, bool all)
{
    json_t *o = json_object();
    int rc = json_object_set_new(o, "type", json_string(gguf_type_name(v->type)));
    if (v->type == GGUF_ARRAY) {
        rc |= json_object_set_new(o, "element_type", json_string(gguf_type_name(v->a.type)));
        rc |= json_object_set_new(o, "count", json_integer((json_int_t)v->a.count));
        if (all || is_short(&v->a))
            rc |= json_object_set_new(o, "value", json_elements(&v->a));
    } else {
        rc |= json_object_set_new(o, "value", json_scalar(v, all ? 0 : MAX_STRING));
        if (v->type == GGUF_STRING)
            rc |= json_object_set_new(o, "bytes", json_integer((json_int_t)v->s.len));
        if (v->type == GGUF_STRING && !all && v->s.len > MAX_STRING)
            rc |= json_object_set_new(o, "cut", json_true());
    }
    if (rc) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static int append_chunk(const char *bytes, size_t n, void *out)
{
    strbuf_append(out, bytes, n);
    return strbuf_failed(out) ? -1 : 0;
}

/* Not with json_dumps: jansson goes on after a key that it had no memory for, while a failure of out stays. */
int value_json_dump(json_t *o, bool failed, struct strbuf *out, skua_error *err)
{
    failed = failed || json_dump_callback(o, append_chunk, out, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) != 0;
    json_decref(o);
    strbuf_putc(out, '\n');
    return !failed && !strbuf_failed(out) ? 0 : error_nomem(err, "report", out->len);
}
