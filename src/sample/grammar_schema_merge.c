/* Schemas that are made of others: references, allOf, and two schemas that must both hold, merged into one. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "sample/grammar_schema.h"

#define MAX_LEVEL 32              /* of allOf and $ref in one another */
#define MAX_MERGED_ENTRIES 200000 /* keys of merged schemas, all together */

json_t *schema_keep(struct schema_compiler *c, json_t *j)
{
    struct grammar_builder *b = c->b;
    if (!j)
        error_nomem(&b->err, "schema", 0);
    if (b->err.code || !builder_room(b, &c->merged, c->n_merged, &c->cap_merged, 1, sizeof *c->merged)) {
        json_decref(j);
        return NULL;
    }
    c->merged[c->n_merged++] = j;
    c->merged_entries += json_object_size(j) + 1;
    if (c->merged_entries > MAX_MERGED_ENTRIES) {
        builder_limit(b, "keys in schemas that are merged", MAX_MERGED_ENTRIES);
        return NULL;
    }
    return j;
}

/* ---- references ---- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* The next part of a JSON pointer in a URI, up to a slash, into out; where it ends, or NULL if it is too long. */
static const char *pointer_part(const char *s, char *out, size_t size)
{
    size_t n = 0;
    for (; *s && *s != '/'; s++) {
        char c = *s;
        if (c == '%' && hex_digit(s[1]) >= 0 && hex_digit(s[2]) >= 0) {
            c = (char)(hex_digit(s[1]) * 16 + hex_digit(s[2]));
            s += 2;
        }
        if (n && out[n - 1] == '~' && (c == '0' || c == '1'))
            out[n - 1] = c == '0' ? '\x01' : '/'; /* a tilde that does not begin an escape */
        else if (n + 1 < size)
            out[n++] = c;
        else
            return NULL;
    }
    out[n] = '\0';
    for (size_t i = 0; i < n; i++)
        if (out[i] == '\x01')
            out[i] = '~';
    return s;
}

static const json_t *resolve(struct schema_compiler *c, const json_t *ref, uint32_t place)
{
    const char *s = json_string_value(ref);
    const json_t *at = c->document;
    char part[512];
    if (!s) {
        schema_fail(c, place, "$ref", SKUA_EARG, "expected a string");
        return NULL;
    }
    if (s[0] != '#' || (s[1] && s[1] != '/'))
        return schema_unsupported(c, place, "$ref", "only references into the same document (#/...) are supported") ? json_true() : NULL;
    for (s++; s && *s == '/' && at;) {
        s = pointer_part(s + 1, part, sizeof part);
        if (!s)
            at = NULL;
        else if (json_is_array(at))
            at = part[0] >= '0' && part[0] <= '9' ? json_array_get(at, (size_t)strtoull(part, NULL, 10)) : NULL;
        else
            at = json_object_get(at, part);
    }
    if (!at)
        schema_fail(c, place, "$ref", SKUA_EARG, "the reference points nowhere");
    return at;
}

/* Where a reference leads, as a place: its text behind "#/". */
static uint32_t place_of_reference(struct schema_compiler *c, const json_t *ref)
{
    const char *s = json_string_value(ref);
    return s && s[0] == '#' && s[1] == '/' ? schema_place(c, GRAMMAR_NONE, s + 2, 0) : GRAMMAR_NONE;
}

/* ---- two values of one keyword ---- */

static bool conflict(struct schema_compiler *c, uint32_t place, const char *key)
{
    return schema_unsupported(c, place, key, "two different values of this keyword, by allOf, anyOf or $ref, cannot be merged");
}

static int set_new(struct schema_compiler *c, json_t *out, const char *key, json_t *value)
{
    if (!value || json_object_set_new(out, key, value)) {
        error_nomem(&c->b->err, "schema", 0);
        return SKUA_ENOMEM;
    }
    return 0;
}

static bool set_shared(struct schema_compiler *c, json_t *out, const char *key, const json_t *value)
{
    return set_new(c, out, key, json_incref((json_t *)value)) == 0;
}

/* {"allOf": [x, y]} */
static json_t *both(const json_t *x, const json_t *y)
{
    return json_pack("{s:[OO]}", "allOf", (json_t *)x, (json_t *)y);
}

static bool merge_properties(struct schema_compiler *c, json_t *out, const json_t *x, const json_t *y)
{
    const char *key;
    json_t *value, *all = json_copy_whole(x);
    if (set_new(c, out, "properties", all))
        return false;
    json_object_foreach((json_t *)y, key, value) {
        const json_t *have = json_object_get(x, key);
        if (have && !json_equal(have, value) ? set_new(c, all, key, both(have, value)) : !set_shared(c, all, key, value))
            return false;
    }
    c->merged_entries += json_object_size(all);
    return true;
}

static bool merge_required(struct schema_compiler *c, json_t *out, const json_t *x, const json_t *y)
{
    json_t *all = json_copy_whole(x), *name;
    size_t i;
    if (set_new(c, out, "required", all))
        return false;
    json_array_foreach(y, i, name)
        if (json_array_append(all, name)) {
            error_nomem(&c->b->err, "schema", 0);
            return false;
        }
    c->merged_entries += json_array_size(all);
    return true;
}

static bool merge_types(struct schema_compiler *c, json_t *out, const json_t *x, const json_t *y, uint32_t place)
{
    static const char *const names[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    unsigned tx = schema_types(c, x, place), ty = schema_types(c, y, place);
    json_t *list = json_array();
    tx |= tx & TYPE_NUMBER ? TYPE_INTEGER : 0;
    ty |= ty & TYPE_NUMBER ? TYPE_INTEGER : 0;
    tx &= ty;
    if (tx & TYPE_NUMBER)
        tx &= ~(unsigned)TYPE_INTEGER;
    for (unsigned i = 0; i < 7 && list; i++)
        if (tx >> i & 1 && json_array_append_new(list, json_string(names[i]))) {
            json_decref(list);
            list = NULL;
        }
    return set_new(c, out, "type", list) == 0;
}

static bool contains(const json_t *list, const json_t *v)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(json_array_get(list, i), v))
            return true;
    return false;
}

static bool merge_enum(struct schema_compiler *c, json_t *out, const json_t *x, const json_t *y)
{
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(x) && list && builder_steps(c->b, json_array_size(y) + 1); i++)
        if (contains(y, json_array_get(x, i)) && json_array_append(list, json_array_get(x, i))) {
            json_decref(list);
            list = NULL;
        }
    return set_new(c, out, "enum", list) == 0 && !c->b->err.code;
}

static bool less(const json_t *x, const json_t *y)
{
    if (json_is_integer(x) && json_is_integer(y))
        return json_integer_value(x) < json_integer_value(y);
    return json_number_value(x) < json_number_value(y);
}

/* One keyword that both have, differently. */
static bool merge_keyword(struct schema_compiler *c, json_t *out, const char *key, const json_t *x, const json_t *y, uint32_t place)
{
    static const char *const lower[] = {"minimum", "exclusiveMinimum", "minLength", "minItems"};
    static const char *const upper[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems"};
    const json_t *a = json_object_get(x, key), *b = json_object_get(y, key);
    for (int i = 0; i < 4; i++) {
        if (strcmp(key, lower[i]) == 0 && json_is_number(a) && json_is_number(b))
            return set_shared(c, out, key, less(a, b) ? b : a);
        if (strcmp(key, upper[i]) == 0 && json_is_number(a) && json_is_number(b))
            return set_shared(c, out, key, less(a, b) ? a : b);
    }
    if (strcmp(key, "properties") == 0 && json_is_object(a) && json_is_object(b))
        return merge_properties(c, out, a, b);
    if (strcmp(key, "required") == 0 && json_is_array(a) && json_is_array(b))
        return merge_required(c, out, a, b);
    if (strcmp(key, "type") == 0)
        return merge_types(c, out, x, y, place);
    if (strcmp(key, "enum") == 0 && json_is_array(a) && json_is_array(b))
        return merge_enum(c, out, a, b);
    if (strcmp(key, "const") == 0)
        return set_new(c, out, "enum", json_array()) == 0;
    if (strcmp(key, "nullable") == 0)
        return set_shared(c, out, key, json_false());
    if (strcmp(key, "additionalProperties") == 0 || strcmp(key, "items") == 0) {
        if (json_is_false(a) || json_is_true(b))
            return true;
        return json_is_false(b) || json_is_true(a) ? set_shared(c, out, key, b) : set_new(c, out, key, both(a, b)) == 0;
    }
    if (strcmp(key, "anyOf") == 0 && !json_object_get(out, "oneOf") && !json_object_get(y, "oneOf"))
        return set_shared(c, out, "oneOf", b); /* which means the same here */
    return schema_is_annotation(key) || conflict(c, place, key);
}

/* Two flat schemas. */
static const json_t *merge_flat(struct schema_compiler *c, const json_t *x, const json_t *y, uint32_t place)
{
    const char *key;
    json_t *value;
    if (!x || !y)
        return NULL;
    if (json_is_false(x) || json_is_true(y))
        return x;
    if (json_is_false(y) || json_is_true(x))
        return y;
    json_t *out = schema_keep(c, json_copy_whole(x));
    if (!out || !builder_steps(c->b, json_object_size(x) + json_object_size(y)))
        return NULL;
    json_object_foreach((json_t *)y, key, value) {
        const json_t *have = json_object_get(x, key);
        if (have && json_equal(have, value))
            continue;
        if (have ? !merge_keyword(c, out, key, x, y, place) : !set_shared(c, out, key, value))
            return NULL;
        if (!have)
            c->merged_entries++;
    }
    return out;
}

/* ---- flattening ---- */

static bool stands_alone(const json_t *schema)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)schema, key, value)
        if (strcmp(key, "$ref") != 0 && !schema_is_annotation(key))
            return false;
    return true;
}

static const json_t *flat(struct schema_compiler *c, const json_t *schema, uint32_t place, int level)
{
    const json_t *ref = json_object_get(schema, "$ref"), *all = json_object_get(schema, "allOf"), *branch;
    size_t i;
    if (json_is_boolean(schema))
        return schema;
    if (!json_is_object(schema)) {
        schema_fail(c, place, NULL, SKUA_EARG, "a schema must be an object, true or false");
        return NULL;
    }
    if (!schema_check_keywords(c, schema, place))
        return NULL;
    if (!ref && !all)
        return schema;
    if (level == MAX_LEVEL) {
        schema_fail(c, place, NULL, SKUA_ELIMIT, "allOf and $ref lead through each other more than 32 levels deep");
        return NULL;
    }
    if (all && (!json_is_array(all) || !json_array_size(all))) {
        schema_fail(c, place, "allOf", SKUA_EARG, "expected a list of schemas");
        return NULL;
    }
    json_t *own = schema_keep(c, json_copy_whole(schema));
    if (!own)
        return NULL;
    json_object_del(own, "$ref");
    json_object_del(own, "allOf");
    const json_t *out = own;
    if (ref) {
        const json_t *target = resolve(c, ref, place);
        out = target ? merge_flat(c, out, flat(c, target, place_of_reference(c, ref), level + 1), place) : NULL;
    }
    const uint32_t here = all ? schema_place(c, place, "allOf", 0) : GRAMMAR_NONE;
    json_array_foreach(all, i, branch) {
        if (!out)
            break;
        out = merge_flat(c, out, flat(c, branch, schema_place(c, here, NULL, i), level + 1), place);
    }
    return out;
}

const json_t *schema_flatten(struct schema_compiler *c, const json_t *schema, uint32_t place, const json_t **alone, uint32_t *alone_place)
{
    const json_t *ref = json_object_get(schema, "$ref");
    if (ref && stands_alone(schema)) {
        *alone = resolve(c, ref, place);
        *alone_place = place_of_reference(c, ref);
        return NULL;
    }
    return flat(c, schema, place, 0);
}

const json_t *schema_merge(struct schema_compiler *c, const json_t *x, const json_t *y, uint32_t place)
{
    const json_t *fx = flat(c, x, place, 0);
    return fx ? merge_flat(c, fx, flat(c, y, place, 0), place) : NULL;
}
