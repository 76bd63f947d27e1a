/* Typed fields of a request; see field.h. */
#include "api/field.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

#define VALUE_BYTES 80

static size_t path_write(const struct api_path *at, struct strbuf *b)
{
    if (!at)
        return 0;
    path_write(at->up, b);
    if (!at->key)
        strbuf_printf(b, "[%zu]", at->index);
    else
        strbuf_printf(b, "%s%s", b->len ? "." : "", at->key);
    return b->len;
}

void api_path_text(const struct api_path *at, char out[160])
{
    struct strbuf b = {0};
    size_t n = path_write(at, &b), from = n > 159 ? n - 159 : 0;
    while (from < n && ((unsigned char)b.data[from] & 0xC0) == 0x80)
        from++;
    snprintf(out, 160, "%s", strbuf_str(&b) + from);
    strbuf_free(&b);
}

const char *api_type_name(const json_t *v)
{
    if (!v)
        return "nothing";
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    default: return "null";
    }
}

struct dump {
    char text[VALUE_BYTES + 8];
    size_t n;
    bool cut;
};

static int dump_part(const char *s, size_t n, void *user)
{
    struct dump *d = user;
    size_t room = VALUE_BYTES - d->n, take = n < room ? n : room;
    memcpy(d->text + d->n, s, take);
    d->n += take;
    d->cut |= take < n;
    return d->cut ? -1 : 0;
}

/* The JSON text of a value, at most VALUE_BYTES of it. */
static const char *dump_value(const json_t *v, struct dump *d)
{
    *d = (struct dump){0};
    int rc = json_dump_callback(v, dump_part, d, JSON_COMPACT | JSON_ENCODE_ANY);
    if (rc && !d->cut) /* out of memory: its kind will do */
        return api_type_name(v);
    if (d->cut) {
        d->n = VALUE_BYTES - 3;
        while (d->n && ((unsigned char)d->text[d->n] & 0xC0) == 0x80)
            d->n--;
        memcpy(d->text + d->n, "...", 3);
        d->n += 3;
    }
    d->text[d->n] = '\0';
    return d->text;
}

static int fail_value(struct api_error *e, const char *code, const struct api_path *at, const json_t *value, const char *expected)
{
    char path[160];
    struct dump d;
    api_path_text(at, path);
    return api_error_set(e, 400, code, path, "%s: expected %s, got %s", *path ? path : "body", expected, dump_value(value, &d));
}

int api_fail_type(struct api_error *e, const struct api_path *at, const json_t *value, const char *expected)
{
    return fail_value(e, "invalid_type", at, value, expected);
}

int api_fail_value(struct api_error *e, const struct api_path *at, const json_t *value, const char *expected)
{
    return fail_value(e, "invalid_value", at, value, expected);
}

int api_fail_missing(struct api_error *e, const struct api_path *at, const char *expected)
{
    return api_fail(e, "missing_required_parameter", at, "missing; expected %s", expected);
}

int api_fail(struct api_error *e, const char *code, const struct api_path *at, const char *fmt, ...)
{
    char path[160], text[480];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    api_path_text(at, path);
    return api_error_set(e, 400, code, path, "%s: %s", *path ? path : "body", text);
}

int api_fail_nomem(struct api_error *e)
{
    int rc = api_error_set(e, 503, "out_of_memory", NULL, "out of memory while reading the request");
    e->retry_after_s = 1;
    return rc;
}

json_t *api_field(const json_t *object, const char *key)
{
    json_t *v = json_object_get(object, key);
    return json_is_null(v) ? NULL : v;
}

int api_get_bool(const json_t *o, const struct api_path *at, const char *key, bool *out, struct api_error *e)
{
    const json_t *v = api_field(o, key);
    if (!v)
        return 0;
    if (!json_is_boolean(v))
        return api_fail_type(e, API_KEY(at, key), v, "true or false");
    *out = json_is_true(v);
    return 0;
}

/* Is v a whole number? Those written with a point or an exponent count as well. */
static bool whole(const json_t *v, int64_t *out)
{
    if (json_is_integer(v)) {
        *out = json_integer_value(v);
        return true;
    }
    double d = json_is_real(v) ? json_real_value(v) : 0.5;
    if (floor(d) != d || d < -9.2e18 || d > 9.2e18)
        return false;
    *out = (int64_t)d;
    return true;
}

int api_get_int(const json_t *o, const struct api_path *at, const char *key, int64_t min, int64_t max, int64_t *out, struct api_error *e)
{
    const json_t *v = api_field(o, key);
    char expected[96];
    int64_t i;
    if (!v)
        return 0;
    if (min == INT64_MIN && max == INT64_MAX)
        snprintf(expected, sizeof expected, "an integer of 64 bits");
    else if (max == INT64_MAX || max == INT32_MAX)
        snprintf(expected, sizeof expected, "an integer from %" PRId64, min);
    else
        snprintf(expected, sizeof expected, "an integer from %" PRId64 " to %" PRId64, min, max);
    if (!json_is_number(v))
        return api_fail_type(e, API_KEY(at, key), v, expected);
    if (!whole(v, &i) || i < min || i > max)
        return api_fail_value(e, API_KEY(at, key), v, expected);
    *out = i;
    return 0;
}

int api_get_int32(const json_t *o, const struct api_path *at, const char *key, int32_t min, int32_t max, int32_t *out,
                  struct api_error *e)
{
    int64_t v = *out;
    int rc = api_get_int(o, at, key, min, max, &v, e);
    *out = (int32_t)v;
    return rc;
}

int api_get_number(const json_t *o, const struct api_path *at, const char *key, double min, double max, double *out, struct api_error *e)
{
    const json_t *v = api_field(o, key);
    char expected[96];
    if (!v)
        return 0;
    snprintf(expected, sizeof expected, "a number from %g to %g", min, max);
    if (!json_is_number(v))
        return api_fail_type(e, API_KEY(at, key), v, expected);
    double d = json_number_value(v);
    if (!(d >= min && d <= max))
        return api_fail_value(e, API_KEY(at, key), v, expected);
    *out = d;
    return 0;
}

int api_get_string(const json_t *o, const struct api_path *at, const char *key, const char **out, struct api_error *e)
{
    const json_t *v = api_field(o, key);
    if (!v)
        return 0;
    if (!json_is_string(v))
        return api_fail_type(e, API_KEY(at, key), v, "a string");
    if (strlen(json_string_value(v)) != json_string_length(v))
        return api_fail_value(e, API_KEY(at, key), v, "a string without zero bytes");
    *out = json_string_value(v);
    return 0;
}

int api_get_object(const json_t *o, const struct api_path *at, const char *key, json_t **out, struct api_error *e)
{
    json_t *v = api_field(o, key);
    if (!v)
        return 0;
    if (!json_is_object(v))
        return api_fail_type(e, API_KEY(at, key), v, "an object");
    *out = v;
    return 0;
}

int api_get_array(const json_t *o, const struct api_path *at, const char *key, json_t **out, struct api_error *e)
{
    json_t *v = api_field(o, key);
    if (!v)
        return 0;
    if (!json_is_array(v))
        return api_fail_type(e, API_KEY(at, key), v, "a list");
    *out = v;
    return 0;
}

bool api_is(const json_t *value, const char *text)
{
    return json_is_string(value) && json_string_length(value) == strlen(text) && !memcmp(json_string_value(value), text, strlen(text));
}

int api_get_choice(const json_t *o, const struct api_path *at, const char *key, const char *const *names, int n, int *out,
                   struct api_error *e)
{
    const json_t *v = api_field(o, key);
    char expected[240];
    int len = 0;
    if (!v)
        return 0;
    for (int i = 0; i < n; i++)
        if (api_is(v, names[i])) {
            *out = i;
            return 0;
        }
    for (int i = 0; i < n && len < (int)sizeof expected; i++)
        len += snprintf(expected + len, sizeof expected - (size_t)len, "%s\"%s\"", i == 0 ? "" : i == n - 1 ? " or " : ", ", names[i]);
    return json_is_string(v) ? api_fail_value(e, API_KEY(at, key), v, expected) : api_fail_type(e, API_KEY(at, key), v, expected);
}
