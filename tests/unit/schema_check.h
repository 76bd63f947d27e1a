/* A small validator of JSON values against schemas, written for the tests alone: it shares nothing with the compiler under test. */
#ifndef SKUA_TESTS_UNIT_SCHEMA_CHECK_H
#define SKUA_TESTS_UNIT_SCHEMA_CHECK_H

#include <jansson.h>
#include <stdbool.h>
#include <string.h>

#include "base/utf8.h"

static inline bool schema_valid(const json_t *root, const json_t *s, const json_t *v);

static inline bool schema_has_type(const json_t *v, const char *type)
{
    return (!strcmp(type, "null") && json_is_null(v)) || (!strcmp(type, "boolean") && json_is_boolean(v)) ||
           (!strcmp(type, "integer") && json_is_integer(v)) || (!strcmp(type, "number") && json_is_number(v)) ||
           (!strcmp(type, "string") && json_is_string(v)) || (!strcmp(type, "array") && json_is_array(v)) ||
           (!strcmp(type, "object") && json_is_object(v));
}

static inline bool schema_type_valid(const json_t *s, const json_t *v)
{
    const json_t *type = json_object_get(s, "type");
    bool ok = !type || (json_is_true(json_object_get(s, "nullable")) && json_is_null(v));
    if (json_is_string(type))
        ok |= schema_has_type(v, json_string_value(type));
    for (size_t i = 0; i < json_array_size(type); i++)
        ok |= schema_has_type(v, json_string_value(json_array_get(type, i)));
    return ok;
}

static inline bool schema_number_valid(const json_t *s, const json_t *v)
{
    const json_t *k;
    const double x = json_number_value(v);
    if (!json_is_number(v))
        return true;
    return (!(k = json_object_get(s, "minimum")) || x >= json_number_value(k)) && (!(k = json_object_get(s, "maximum")) ||
        x <= json_number_value(k)) &&
           (!(k = json_object_get(s, "exclusiveMinimum")) || x > json_number_value(k)) &&
           (!(k = json_object_get(s, "exclusiveMaximum")) || x < json_number_value(k));
}

static inline bool schema_count_valid(const json_t *s, const char *min, const char *max, size_t n)
{
    const json_t *k;
    return (!(k = json_object_get(s, min)) || n >= (size_t)json_integer_value(k)) && (!(k = json_object_get(s, max)) ||
        n <= (size_t)json_integer_value(k));
}

static inline bool schema_array_valid(const json_t *root, const json_t *s, const json_t *v)
{
    const json_t *prefix = json_object_get(s, "prefixItems"), *items = json_object_get(s, "items");
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *one = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
        if (one && !schema_valid(root, one, json_array_get(v, i)))
            return false;
    }
    return schema_count_valid(s, "minItems", "maxItems", json_array_size(v));
}

static inline bool schema_object_valid(const json_t *root, const json_t *s, const json_t *v)
{
    const json_t *properties = json_object_get(s, "properties"), *more = json_object_get(s, "additionalProperties");
    const json_t *required = json_object_get(s, "required");
    const char *key;
    json_t *value;
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_object_get(v, json_string_value(json_array_get(required, i))))
            return false;
    json_object_foreach((json_t *)v, key, value) {
        const json_t *one = json_object_get(properties, key);
        if (!one)
            one = more;
        if (one && !schema_valid(root, one, value))
            return false;
    }
    return true;
}

static inline bool schema_any_valid(const json_t *root, const json_t *list, const json_t *v)
{
    bool ok = !list;
    for (size_t i = 0; i < json_array_size(list); i++)
        ok |= schema_valid(root, json_array_get(list, i), v);
    return ok;
}

static inline bool schema_valid(const json_t *root, const json_t *s, const json_t *v)
{
    const json_t *list = json_object_get(s, "enum"), *one = json_object_get(s, "const"), *all = json_object_get(s, "allOf");
    const char *ref = json_string_value(json_object_get(s, "$ref"));
    bool ok = true;
    if (json_is_boolean(s))
        return json_is_true(s);
    if (ref && !schema_valid(root, ref[1] ? json_object_get(json_object_get(root, "$defs"), ref + 8) : root, v)) /* #/$defs/NAME */
        return false;
    if (list) {
        ok = false;
        for (size_t i = 0; i < json_array_size(list); i++)
            ok |= json_equal(json_array_get(list, i), v);
    }
    for (size_t i = 0; i < json_array_size(all); i++)
        ok &= schema_valid(root, json_array_get(all, i), v);
    ok &= (!one || json_equal(one, v)) && schema_type_valid(s, v) && schema_number_valid(s, v);
    ok &= schema_any_valid(root, json_object_get(s, "anyOf"), v) && schema_any_valid(root, json_object_get(s, "oneOf"), v);
    if (json_is_string(v))
        ok &= schema_count_valid(s, "minLength", "maxLength", utf8_length(json_string_value(v), json_string_length(v)));
    if (json_is_array(v))
        ok &= schema_array_valid(root, s, v);
    if (json_is_object(v))
        ok &= schema_object_valid(root, s, v);
    return ok;
}

#endif
