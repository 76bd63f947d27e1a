/* JSON files of a checkpoint; see hf_json.h. */
#include "convert/hf_json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"

#define MAX_JSON_BYTES (512u << 20)

static int parse(json_t **out, const char *path, skua_error *err)
{
    char *text;
    size_t size;
    json_error_t at;
    bool no_memory;
    int rc = file_read_all(path, MAX_JSON_BYTES, &text, &size, err);
    if (rc)
        return rc;
    *out = json_read(text, size, JSON_REJECT_DUPLICATES, &at, &no_memory);
    mem_free(text);
    if (!*out)
        return no_memory ? error_nomem(err, path, size)
                         : error_set(err, SKUA_EFORMAT, "%s: not valid JSON: line %d: %s", path, at.line, at.text);
    if (json_is_object(*out))
        return 0;
    json_decref(*out);
    *out = NULL;
    return error_set(err, SKUA_EFORMAT, "%s: is not a JSON object", path);
}

int hf_json_load(json_t **out, const char *dir, const char *name, bool required, skua_error *err)
{
    struct strbuf path = {0};
    *out = NULL;
    strbuf_printf(&path, "%s/%s", dir, name);
    int rc = 0;
    if (strbuf_failed(&path))
        rc = error_nomem(err, name, strlen(dir) + strlen(name));
    else if (required || access(path.data, F_OK) == 0)
        rc = parse(out, path.data, err);
    strbuf_free(&path);
    return rc;
}

const json_t *hf_get(const struct hf_reader *r, const char *key)
{
    for (size_t i = 0; i < sizeof r->objects / sizeof *r->objects; i++) {
        const json_t *v = json_object_get(r->objects[i], key);
        if (v && !json_is_null(v))
            return v;
    }
    return NULL;
}

int hf_bad_field(struct hf_reader *r, const char *key, const json_t *value, const char *expected)
{
    char text[64];
    if (r->rc)
        return r->rc;
    switch (value ? json_typeof(value) : JSON_NULL) {
    case JSON_INTEGER: snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value)); break;
    case JSON_REAL: snprintf(text, sizeof text, "%g", json_real_value(value)); break;
    case JSON_STRING: snprintf(text, sizeof text, "'%.50s'", json_string_value(value)); break;
    case JSON_TRUE: snprintf(text, sizeof text, "true"); break;
    case JSON_FALSE: snprintf(text, sizeof text, "false"); break;
    case JSON_ARRAY: snprintf(text, sizeof text, "an array of %zu", json_array_size(value)); break;
    case JSON_OBJECT: snprintf(text, sizeof text, "an object"); break;
    default: snprintf(text, sizeof text, "missing"); break;
    }
    return r->rc = error_set(r->err, SKUA_EFORMAT, "%s: '%s' is %s, expected %s", r->path, key, text, expected);
}

/* The field to read, or NULL when there is nothing to do; says what is missing. */
static const json_t *field(struct hf_reader *r, const char *key, bool required, const char *expected)
{
    const json_t *v = r->rc ? NULL : hf_get(r, key);
    if (!v && required && !r->rc)
        hf_bad_field(r, key, NULL, expected);
    return v;
}

void hf_read_int(struct hf_reader *r, const char *key, bool required, int64_t min, int64_t max, int32_t *out)
{
    char expected[80];
    snprintf(expected, sizeof expected, "an integer from %lld to %lld", (long long)min, (long long)max);
    const json_t *v = field(r, key, required, expected);
    if (!v)
        return;
    if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max)
        hf_bad_field(r, key, v, expected);
    else
        *out = (int32_t)json_integer_value(v);
}

void hf_read_number(struct hf_reader *r, const char *key, bool required, double min, double max, double *out)
{
    char expected[80];
    snprintf(expected, sizeof expected, "a number from %g to %g", min, max);
    const json_t *v = field(r, key, required, expected);
    if (!v)
        return;
    double d = json_number_value(v);
    if (!json_is_number(v) || !isfinite(d) || d < min || d > max)
        hf_bad_field(r, key, v, expected);
    else
        *out = d;
}

void hf_read_float(struct hf_reader *r, const char *key, bool required, double min, double max, float *out)
{
    double d = *out;
    hf_read_number(r, key, required, min, max, &d);
    *out = (float)d;
}

void hf_read_bool(struct hf_reader *r, const char *key, bool *out)
{
    const json_t *v = field(r, key, false, "");
    if (v && !json_is_boolean(v))
        hf_bad_field(r, key, v, "true or false");
    else if (v)
        *out = json_is_true(v);
}

const char *hf_read_string(struct hf_reader *r, const char *key)
{
    const json_t *v = field(r, key, false, "");
    if (v && !json_is_string(v)) {
        hf_bad_field(r, key, v, "a string");
        return NULL;
    }
    return json_string_value(v);
}

void hf_read_ints(struct hf_reader *r, const char *key, int64_t min, int64_t max, int32_t *items, int32_t max_count, int32_t *n)
{
    char expected[120];
    snprintf(expected, sizeof expected, "an array of at most %d integers from %lld to %lld", max_count, (long long)min, (long long)max);
    const json_t *v = field(r, key, false, "");
    if (!v)
        return;
    bool good = json_is_array(v) && json_array_size(v) <= (size_t)max_count;
    for (size_t i = 0; good && i < json_array_size(v); i++) {
        const json_t *item = json_array_get(v, i);
        good = json_is_integer(item) && json_integer_value(item) >= min && json_integer_value(item) <= max;
        if (good)
            items[i] = (int32_t)json_integer_value(item);
    }
    if (!good)
        hf_bad_field(r, key, v, expected);
    else
        *n = (int32_t)json_array_size(v);
}

void hf_require_bool(struct hf_reader *r, const char *key, bool expected)
{
    bool value = expected;
    hf_read_bool(r, key, &value);
    if (!r->rc && value != expected)
        r->rc = error_set(r->err, SKUA_EUNSUPPORTED, "%s: '%s' is %s; supported: %s", r->path, key, value ? "true" : "false",
                          expected ? "true" : "false");
}

void hf_require_string(struct hf_reader *r, const char *key, const char *expected)
{
    const char *s = hf_read_string(r, key);
    if (s && strcmp(s, expected))
        r->rc = error_set(r->err, SKUA_EUNSUPPORTED, "%s: '%s' is '%.50s'; supported: %s", r->path, key, s, expected);
}
