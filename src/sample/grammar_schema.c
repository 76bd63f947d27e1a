/* JSON schemas; see grammar_schema.h. Schemas wait in a list and become rules one after another, so nesting and recursion cost no stack. */
#include "sample/grammar_schema.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "sample/grammar_json.h"

/* ---- places and messages ---- */

uint32_t schema_place(struct schema_compiler *c, uint32_t parent, const char *key, size_t index)
{
    if (c->b->err.code || !builder_room(c->b, &c->places, c->n_places, &c->cap_places, 1, sizeof *c->places))
        return GRAMMAR_NONE;
    c->places[c->n_places] = (struct schema_place){parent, key, index};
    return (uint32_t)c->n_places++;
}

void schema_path(const struct schema_compiler *c, uint32_t place, const char *key, struct strbuf *out)
{
    uint32_t chain[64];
    size_t n = 0;
    for (; place != GRAMMAR_NONE && n < 64; place = c->places[place].parent)
        chain[n++] = place;
    strbuf_puts(out, place == GRAMMAR_NONE ? "#" : "#/...");
    while (n) {
        const struct schema_place *p = &c->places[chain[--n]];
        if (p->key)
            strbuf_printf(out, "/%.100s", p->key);
        else
            strbuf_printf(out, "/%zu", p->index);
    }
    if (key)
        strbuf_printf(out, "/%.100s", key);
}

void schema_fail(struct schema_compiler *c, uint32_t place, const char *key, int code, const char *what)
{
    struct strbuf path = {0};
    if (c->b->err.code)
        return;
    schema_path(c, place, key, &path);
    error_set(&c->b->err, code, "schema %s: %s", strbuf_str(&path), what);
    strbuf_free(&path);
}

bool schema_unsupported(struct schema_compiler *c, uint32_t place, const char *key, const char *what)
{
    struct strbuf line = {0};
    if (c->strict) {
        schema_fail(c, place, key, SKUA_EUNSUPPORTED, what);
        return false;
    }
    if (c->warnings && !c->b->err.code) {
        strbuf_puts(&line, "schema ");
        schema_path(c, place, key, &line);
        strbuf_printf(&line, ": %s; ignored\n", what);
        if (!strbuf_failed(&line) && !strstr(strbuf_str(c->warnings), line.data)) /* a schema that is merged is met more than once */
            strbuf_append(c->warnings, line.data, line.len);
        if (strbuf_failed(&line) || strbuf_failed(c->warnings))
            error_nomem(&c->b->err, "warnings", line.len);
        strbuf_free(&line);
    }
    return !c->b->err.code;
}

static bool among(const char *key, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(key, list[i]) == 0)
            return true;
    return false;
}

bool schema_is_annotation(const char *key)
{
    static const char *const list[] = {"title", "description", "default", "examples", "example", "$schema", "$id", "$comment", "$anchor",
                                       "deprecated", "readOnly", "writeOnly", "$defs", "definitions"};
    return (key[0] == 'x' && key[1] == '-') || among(key, list, sizeof list / sizeof list[0]);
}

bool schema_check_keywords(struct schema_compiler *c, const json_t *schema, uint32_t place)
{
    static const char *const known[] = {"type", "properties", "required", "additionalProperties", "items", "prefixItems", "enum", "const",
                                        "anyOf", "oneOf", "allOf", "$ref", "minItems", "maxItems", "minLength", "maxLength", "minimum",
                                        "maximum", "exclusiveMinimum", "exclusiveMaximum", "pattern", "format", "nullable"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)schema, key, value)
        if (!among(key, known, sizeof known / sizeof known[0]) && !schema_is_annotation(key) &&
            !schema_unsupported(c, place, key, "this keyword is not supported"))
            return false;
    return builder_steps(c->b, json_object_size(schema) + 1);
}

/* ---- items ---- */

grammar_expr schema_rule(struct schema_compiler *c, const json_t *schema, uint32_t place)
{
    struct grammar_builder *b = c->b;
    const uint32_t hash = (uint32_t)XXH3_64bits(&schema, sizeof schema);
    size_t at = hash;
    if (b->err.code)
        return 0;
    if (json_is_true(schema) || (json_is_object(schema) && json_object_size(schema) == 0))
        return gjson_any(b, JSON_VALUE_DEPTH);
    if (json_is_false(schema))
        return grammar_nothing(b);
    if (!json_is_object(schema)) {
        schema_fail(c, place, NULL, SKUA_EARG, "a schema must be an object, true or false");
        return 0;
    }
    for (uint32_t id; (id = grammar_index_next(&c->index, hash, &at)) != GRAMMAR_NONE;)
        if (c->items[id].schema == schema)
            return c->items[id].rule;
    struct strbuf name = {0};
    schema_path(c, place, NULL, &name);
    const grammar_expr rule = grammar_rule(b, strbuf_str(&name), name.len);
    strbuf_free(&name);
    if (!rule || !builder_room(b, &c->items, c->n_items, &c->cap_items, 1, sizeof *c->items))
        return 0;
    if (grammar_index_add(&c->index, hash, (uint32_t)c->n_items)) {
        error_nomem(&b->err, "schema", 0);
        return 0;
    }
    c->items[c->n_items++] = (struct schema_item){schema, place, rule};
    return rule;
}

/* ---- types ---- */

static unsigned type_named(const char *s)
{
    static const char *const names[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    for (unsigned i = 0; i < 7 && s; i++)
        if (strcmp(s, names[i]) == 0)
            return 1u << i;
    return 0;
}

/* With a number goes every integer. */
unsigned schema_type_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_NULL: return TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE: return TYPE_BOOLEAN;
    case JSON_INTEGER: return TYPE_INTEGER | TYPE_NUMBER;
    case JSON_REAL: return TYPE_NUMBER;
    case JSON_STRING: return TYPE_STRING;
    case JSON_ARRAY: return TYPE_ARRAY;
    default: return TYPE_OBJECT;
    }
}

static unsigned implied_types(const json_t *schema)
{
    static const struct { const char *key; unsigned type; } implied[] = {
        {"properties", TYPE_OBJECT}, {"required", TYPE_OBJECT}, {"additionalProperties", TYPE_OBJECT}, {"items", TYPE_ARRAY},
        {"prefixItems", TYPE_ARRAY}, {"minItems", TYPE_ARRAY}, {"maxItems", TYPE_ARRAY}, {"minLength", TYPE_STRING},
        {"maxLength", TYPE_STRING}, {"pattern", TYPE_STRING}, {"format", TYPE_STRING}, {"minimum", TYPE_NUMBER}, {"maximum", TYPE_NUMBER},
        {"exclusiveMinimum", TYPE_NUMBER}, {"exclusiveMaximum", TYPE_NUMBER}};
    unsigned types = 0;
    for (size_t i = 0; i < sizeof implied / sizeof implied[0]; i++)
        if (json_object_get(schema, implied[i].key))
            types |= implied[i].type;
    return types;
}

unsigned schema_types(struct schema_compiler *c, const json_t *schema, uint32_t place)
{
    const json_t *type = json_object_get(schema, "type"), *one;
    size_t i;
    unsigned types = 0;
    if (!type)
        return implied_types(schema);
    if (json_is_string(type))
        types = type_named(json_string_value(type));
    else
        json_array_foreach(type, i, one) {
            const unsigned t = type_named(json_string_value(one));
            types = t ? types | t : 0;
            if (!t)
                break;
        }
    if (!types && !(json_is_array(type) && json_array_size(type) == 0))
        schema_fail(c, place, "type", SKUA_EARG, "expected null, boolean, integer, number, string, array, object or a list of these");
    return types;
}

/* ---- values ---- */

/* Is a listed value within the bounds and lengths that stand beside the list? */
static bool within(const json_t *schema, const json_t *v)
{
    const double x = json_is_string(v) ? (double)utf8_length(json_string_value(v), json_string_length(v))
                     : json_is_array(v) ? (double)json_array_size(v) : json_number_value(v);
    const char *min = json_is_string(v) ? "minLength" : json_is_array(v) ? "minItems" : "minimum";
    const char *max = json_is_string(v) ? "maxLength" : json_is_array(v) ? "maxItems" : "maximum";
    const json_t *lo = json_object_get(schema, min), *hi = json_object_get(schema, max);
    const json_t *above = json_object_get(schema, "exclusiveMinimum"), *below = json_object_get(schema, "exclusiveMaximum");
    const bool number = json_is_number(v);
    if (!number && !json_is_string(v) && !json_is_array(v))
        return true;
    if (json_is_number(lo) && (x < json_number_value(lo) || (number && json_is_true(above) && x == json_number_value(lo))))
        return false;
    if (json_is_number(hi) && (x > json_number_value(hi) || (number && json_is_true(below) && x == json_number_value(hi))))
        return false;
    if (!number)
        return true;
    return (!json_is_number(above) || x > json_number_value(above)) && (!json_is_number(below) || x < json_number_value(below));
}

/* The values of enum or const that have one of these types. */
static grammar_expr constants(struct schema_compiler *c, const json_t *schema, uint32_t place, unsigned types)
{
    struct grammar_builder *b = c->b;
    const json_t *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const"), *v;
    struct strbuf text = {0};
    const size_t n = one ? 1 : json_array_size(list);
    size_t k = 0, *at = mem_alloc((n + 1) * sizeof *at), *lens = mem_alloc((n + 1) * sizeof *lens);
    const char **s = mem_alloc((n + 1) * sizeof *s);
    grammar_expr e = 0;
    if (!one && !json_is_array(list))
        schema_fail(c, place, "enum", SKUA_EARG, "expected a list");
    if (!at || !lens || !s)
        error_nomem(&b->err, "enum", n * sizeof *at);
    for (size_t i = 0; i < n && !b->err.code; i++) {
        v = one ? one : json_array_get(list, i);
        if (!(types & schema_type_of(v)) || !within(schema, v))
            continue;
        if (one && list) { /* both: the constant must be in the list */
            bool found = false;
            for (size_t j = 0; j < json_array_size(list) && !found; j++)
                found = json_equal(json_array_get(list, j), v);
            if (!found)
                continue;
        }
        at[k] = text.len;
        if (!gjson_constant_text(&text, v))
            error_nomem(&b->err, "enum", text.len);
        lens[k] = text.len - at[k];
        k++;
    }
    for (size_t i = 0; i < k && !b->err.code; i++)
        s[i] = text.data + at[i];
    if (!b->err.code)
        e = grammar_one_of(b, s, lens, k);
    mem_free(at);
    mem_free(lens);
    mem_free(s);
    strbuf_free(&text);
    return e;
}

static grammar_expr typed(struct schema_compiler *c, const json_t *schema, uint32_t place, unsigned types)
{
    struct grammar_builder *b = c->b;
    grammar_expr parts[8];
    size_t n = 0;
    if (types & TYPE_OBJECT)
        parts[n++] = schema_object(c, schema, place);
    if (types & TYPE_ARRAY)
        parts[n++] = schema_array(c, schema, place);
    if (types & TYPE_STRING)
        parts[n++] = schema_string(c, schema, place);
    if (types & TYPE_NUMBER)
        parts[n++] = schema_number(c, schema, place);
    else if (types & TYPE_INTEGER)
        parts[n++] = schema_integer(c, schema, place);
    if (types & TYPE_BOOLEAN)
        parts[n++] = grammar_alt2(b, grammar_literal(b, "true", 4), grammar_literal(b, "false", 5));
    if (types & TYPE_NULL)
        parts[n++] = grammar_literal(b, "null", 4);
    return grammar_alt(b, parts, n);
}

static bool only_annotations(const json_t *schema)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)schema, key, value)
        if (!schema_is_annotation(key))
            return false;
    return true;
}

/* anyOf or oneOf: each branch together with everything beside it. */
static grammar_expr branches(struct schema_compiler *c, const json_t *schema, uint32_t place, const char *key)
{
    const json_t *list = json_object_get(schema, key), *branch;
    struct grammar_builder *b = c->b;
    size_t i;
    if (!json_is_array(list) || !json_array_size(list)) {
        schema_fail(c, place, key, SKUA_EARG, "expected a list of schemas");
        return 0;
    }
    json_t *beside = schema_keep(c, json_copy_whole(schema));
    if (!beside || json_object_del(beside, key))
        return 0;
    const bool alone = only_annotations(beside);
    grammar_expr *parts = mem_alloc(json_array_size(list) * sizeof *parts);
    if (!parts)
        error_nomem(&b->err, "schema", json_array_size(list) * sizeof *parts);
    const uint32_t here = schema_place(c, place, key, 0);
    json_array_foreach(list, i, branch) {
        if (b->err.code)
            break;
        const uint32_t at = schema_place(c, here, NULL, i);
        if (!alone)
            branch = schema_merge(c, beside, branch, at);
        parts[i] = branch ? schema_rule(c, branch, at) : 0;
    }
    const grammar_expr e = b->err.code ? 0 : grammar_alt(b, parts, json_array_size(list));
    mem_free(parts);
    return e;
}

static grammar_expr value_of(struct schema_compiler *c, const json_t *schema, uint32_t place)
{
    struct grammar_builder *b = c->b;
    const json_t *alone = NULL;
    uint32_t alone_place;
    if (!schema_check_keywords(c, schema, place))
        return 0;
    schema = schema_flatten(c, schema, place, &alone, &alone_place);
    if (alone)
        return schema_rule(c, alone, alone_place);
    if (!schema)
        return 0;
    if (!json_is_object(schema)) /* merged with true or false */
        return schema_rule(c, schema, place);
    if (json_object_get(schema, "anyOf"))
        return branches(c, schema, place, "anyOf");
    if (json_object_get(schema, "oneOf"))
        return branches(c, schema, place, "oneOf");
    unsigned types = schema_types(c, schema, place);
    if (b->err.code)
        return 0;
    const bool any = !types && !json_object_get(schema, "type");
    if (json_is_true(json_object_get(schema, "nullable")) && !any)
        types |= TYPE_NULL;
    if (json_object_get(schema, "enum") || json_object_get(schema, "const"))
        return constants(c, schema, place, json_object_get(schema, "type") ? types : TYPE_ALL);
    return any ? gjson_any(b, JSON_VALUE_DEPTH) : typed(c, schema, place, types);
}

static grammar_expr compile(struct schema_compiler *c, const json_t *schema)
{
    const grammar_expr root = schema_rule(c, schema, GRAMMAR_NONE);
    for (size_t i = 0; i < c->n_items && !c->b->err.code; i++) {
        const struct schema_item item = c->items[i];
        grammar_rule_set(c->b, item.rule, value_of(c, item.schema, item.place));
    }
    return c->b->err.code ? 0 : root;
}

/* The text of a string; see grammar_build.h. */
static grammar_expr compile_text(struct schema_compiler *c, const json_t *schema)
{
    const json_t *alone = NULL;
    uint32_t place = GRAMMAR_NONE;
    for (int links = 0; json_is_object(schema) && links < 64; links++) { /* each at its own place; a circle of them describes nothing */
        if (!schema_check_keywords(c, schema, place))
            return 0;
        schema = schema_flatten(c, schema, place, &alone, &place);
        if (!alone)
            break;
        schema = alone;
        alone = NULL;
    }
    if (!json_is_object(schema) || json_object_get(schema, "anyOf") || json_object_get(schema, "oneOf")
        || schema_types(c, schema, place) != TYPE_STRING || json_is_true(json_object_get(schema, "nullable")) || c->b->err.code)
        return 0;
    return schema_string(c, schema, place);
}

static grammar_expr compile_with(struct schema_compiler *c, const json_t *schema,
                                 grammar_expr (*how)(struct schema_compiler *c, const json_t *schema))
{
    grammar_expr e = 0;
    if (grammar_index_init(&c->index, 16))
        error_nomem(&c->b->err, "schema", 0);
    else
        e = how(c, schema);
    for (size_t i = 0; i < c->n_merged; i++)
        json_decref(c->merged[i]);
    mem_free(c->merged);
    mem_free(c->items);
    mem_free(c->places);
    grammar_index_free(&c->index);
    return e;
}

grammar_expr grammar_schema(struct grammar_builder *b, const json_t *document, const json_t *schema, bool strict, struct strbuf *warnings)
{
    skua_error err;
    if (grammar_builder_error(b, &err))
        return 0;
    if (!schema)
        return gjson_any_object(b, JSON_VALUE_DEPTH);
    struct schema_compiler c = {.b = b, .document = document, .strict = strict, .warnings = warnings};
    return compile_with(&c, schema, compile);
}

grammar_expr grammar_schema_text(struct grammar_builder *b, const json_t *document, const json_t *schema, bool strict,
                                 struct strbuf *warnings)
{
    skua_error err;
    struct schema_compiler c = {.b = b, .document = document, .strict = strict, .raw = true, .warnings = warnings};
    return !schema || grammar_builder_error(b, &err) ? 0 : compile_with(&c, schema, compile_text);
}

int grammar_from_schema(const json_t *schema, bool strict, struct strbuf *warnings, struct grammar **out, skua_error *err)
{
    struct grammar_builder *b = grammar_builder_new();
    const grammar_expr root = grammar_schema(b, schema, schema, strict, warnings);
    const int rc = grammar_builder_finish(b, root, out, err);
    grammar_builder_free(b);
    return rc;
}
