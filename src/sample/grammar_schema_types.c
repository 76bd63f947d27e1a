/* Values of one type as a schema describes them. */
#include <math.h>
#include <string.h>

#include "base/hashmap.h"
#include "base/mem.h"
#include "sample/grammar_json.h"
#include "sample/grammar_regex.h"
#include "sample/grammar_schema.h"

static grammar_expr text(struct grammar_builder *b, const char *s) { return grammar_literal(b, s, strlen(s)); }

/* A count of a schema; `absent` if it is not there. */
static uint32_t count_of(struct schema_compiler *c, const json_t *schema, uint32_t place, const char *key, uint32_t absent)
{
    const json_t *v = json_object_get(schema, key);
    const double x = json_number_value(v);
    if (!v)
        return absent;
    if (!json_is_number(v) || x < 0 || x != floor(x)) {
        schema_fail(c, place, key, SKUA_EARG, "expected a whole number, 0 or more");
        return 0;
    }
    return x < 4e9 ? (uint32_t)x : 4000000000u;
}

/* ---- strings ---- */

#define DAYS                                                                                                                 \
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"                    \
    "02-(?:0[1-9]|1[0-9]|2[0-8]))"
#define LEAP_DAYS "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
#define TIME "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define MAIL_ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"
#define LABEL "[A-Za-z0-9]{1,20}(?:-[A-Za-z0-9]{1,20}){0,2}"

static const struct { const char *name, *pattern; } formats[] = {
    {"date", DAYS "|" LEAP_DAYS},
    {"time", TIME},
    {"date-time", "(?:" DAYS "|" LEAP_DAYS ")T" TIME},
    {"uuid", "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
    {"email", MAIL_ATOM "(?:\\." MAIL_ATOM "){0,3}@" LABEL "(?:\\." LABEL "){1,4}"},
    {"ipv4", OCTET "(?:\\." OCTET "){3}"},
};

static grammar_expr quoted(const struct schema_compiler *c, grammar_expr inside)
{
    struct grammar_builder *b = c->b;
    const grammar_expr parts[] = {text(b, "\""), inside, text(b, "\"")};
    return grammar_rule_of(b, "string", c->raw ? inside : grammar_seq(b, parts, 3));
}

/* A string of so many characters, any of them. */
static grammar_expr counted(const struct schema_compiler *c, uint32_t min, uint32_t max)
{
    if (!c->raw)
        return gjson_counted_string(c->b, min, max);
    return min == 0 && max == GRAMMAR_UNLIMITED ? 0 : grammar_repeat(c->b, grammar_chars(c->b, NULL, 0, true), min, max);
}

static grammar_expr with_pattern(struct schema_compiler *c, const json_t *pattern, uint32_t place)
{
    struct grammar_builder *b = c->b;
    if (!json_is_string(pattern)) {
        schema_fail(c, place, "pattern", SKUA_EARG, "expected a string");
        return 0;
    }
    const char *regex = json_string_value(pattern);
    const size_t n = json_string_length(pattern);
    const grammar_expr inside = c->raw ? grammar_regex_found(b, regex, n) : grammar_regex_json(b, regex, n);
    const skua_error err = b->err;
    if (err.code == SKUA_EARG ||
        err.code == SKUA_EUNSUPPORTED) { /* say where; a pattern that is not understood is as good as unsupported */
        b->err.code = 0;
        if (!c->strict)
            return schema_unsupported(c, place, "pattern", err.message) ? counted(c, 0, GRAMMAR_UNLIMITED) : 0;
        schema_fail(c, place, "pattern", err.code, err.message);
    }
    return quoted(c, inside);
}

grammar_expr schema_string(struct schema_compiler *c, const json_t *schema, uint32_t place)
{
    const json_t *pattern = json_object_get(schema, "pattern"), *format = json_object_get(schema, "format");
    const char *name = json_string_value(format);
    const uint32_t min = count_of(c, schema, place, "minLength", 0), max = count_of(c, schema, place, "maxLength", GRAMMAR_UNLIMITED);
    size_t f = 0;
    const size_t n_formats = sizeof formats / sizeof formats[0];
    while (f < n_formats && (!name || strcmp(name, formats[f].name) != 0))
        f++;
    if (format && f == n_formats && !schema_unsupported(c, place, "format", "the formats are date, time, date-time, uuid, email, ipv4"))
        return 0;
    if (!pattern && f == n_formats)
        return counted(c, min, max);
    const char *beside = pattern ? "not supported together with pattern" : "not supported together with format";
    if (min && !schema_unsupported(c, place, "minLength", beside))
        return 0;
    if (max != GRAMMAR_UNLIMITED && !schema_unsupported(c, place, "maxLength", beside))
        return 0;
    if (pattern && f < n_formats && !schema_unsupported(c, place, "format", beside))
        return 0;
    if (pattern)
        return with_pattern(c, pattern, place);
    return quoted(c, grammar_regex(c->b, formats[f].pattern, strlen(formats[f].pattern)));
}

/* ---- numbers ---- */

/* The least integer that is not below v (above it if exclusive), as far as there are such. false: none. */
static bool integer_from(const json_t *v, bool exclusive, int64_t *out)
{
    if (json_is_integer(v)) {
        *out = json_integer_value(v);
        if (exclusive && *out == INT64_MAX)
            return false;
        *out += exclusive;
        return true;
    }
    double x = json_number_value(v);
    x = exclusive ? floor(x) + 1 : ceil(x);
    if (x >= 9.2e18)
        return false;
    *out = x <= -9.2e18 ? INT64_MIN : (int64_t)x;
    return true;
}

static bool integer_to(const json_t *v, bool exclusive, int64_t *out)
{
    if (json_is_integer(v)) {
        *out = json_integer_value(v);
        if (exclusive && *out == INT64_MIN)
            return false;
        *out -= exclusive;
        return true;
    }
    double x = json_number_value(v);
    x = exclusive ? ceil(x) - 1 : floor(x);
    if (x <= -9.2e18)
        return false;
    *out = x >= 9.2e18 ? INT64_MAX : (int64_t)x;
    return true;
}

/* One side's bounds: the plain keyword and the exclusive one, which older drafts have as a flag of the plain one. */
static bool bound(struct schema_compiler *c, const json_t *schema, uint32_t place, bool upper, int64_t *out)
{
    const char *plain_key = upper ? "maximum" : "minimum", *exclusive_key = upper ? "exclusiveMaximum" : "exclusiveMinimum";
    const json_t *plain = json_object_get(schema, plain_key), *exclusive = json_object_get(schema, exclusive_key);
    bool (*to)(const json_t *, bool, int64_t *) = upper ? integer_to : integer_from;
    int64_t v;
    if (plain && !json_is_number(plain))
        schema_fail(c, place, plain_key, SKUA_EARG, "expected a number");
    if (exclusive && !json_is_number(exclusive) && !json_is_boolean(exclusive))
        schema_fail(c, place, exclusive_key, SKUA_EARG, "expected a number");
    if (c->b->err.code)
        return true;
    if (plain && !to(plain, json_is_true(exclusive), out))
        return false;
    if (json_is_number(exclusive)) {
        if (!to(exclusive, true, &v))
            return false;
        if (upper ? v < *out : v > *out)
            *out = v;
    }
    return true;
}

grammar_expr schema_integer(struct schema_compiler *c, const json_t *schema, uint32_t place)
{
    int64_t min = INT64_MIN, max = INT64_MAX;
    const bool some = bound(c, schema, place, false, &min) && bound(c, schema, place, true, &max);
    return some ? gjson_int_range(c->b, min, max) : grammar_nothing(c->b);
}

grammar_expr schema_number(struct schema_compiler *c, const json_t *schema, uint32_t place)
{
    static const char *const bounds[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
    for (int i = 0; i < 4; i++)
        if (json_object_get(schema, bounds[i]) &&
            !schema_unsupported(c, place, bounds[i], "bounds are supported for the type integer, not for numbers"))
            return 0;
    return gjson_number(c->b);
}

/* ---- arrays ---- */

static grammar_expr array_end(struct grammar_builder *b) { return grammar_seq2(b, gjson_space(b), text(b, "]")); }

static grammar_expr next_item(struct grammar_builder *b, grammar_expr item)
{
    const grammar_expr parts[] = {text(b, ","), gjson_space(b), item};
    return grammar_seq(b, parts, 3);
}

grammar_expr schema_array(struct schema_compiler *c, const json_t *schema, uint32_t place)
{
    struct grammar_builder *b = c->b;
    const json_t *prefix = json_object_get(schema, "prefixItems"), *items = json_object_get(schema, "items");
    const char *prefix_key = "prefixItems";
    if (json_is_array(items)) { /* older drafts */
        prefix = items;
        prefix_key = "items";
        items = NULL;
    }
    if (prefix && !json_is_array(prefix)) {
        schema_fail(c, place, prefix_key, SKUA_EARG, "expected a list of schemas");
        return 0;
    }
    const uint32_t min = count_of(c, schema, place, "minItems", 0), max = count_of(c, schema, place, "maxItems", GRAMMAR_UNLIMITED);
    const uint32_t p = (uint32_t)json_array_size(prefix), here = p ? schema_place(c, place, prefix_key, 0) : GRAMMAR_NONE;
    /* nothing said of more items than are listed: none, unless there must be; see schema_object */
    const grammar_expr other = p && min <= p ? grammar_nothing(b) : gjson_any(b, JSON_VALUE_DEPTH);
    const grammar_expr item = items ? schema_rule(c, items, schema_place(c, place, "items", 0)) : other;
    if (min > max || !item)
        return item ? grammar_nothing(b) : 0;
    /* behind j = max(p, 1) items any number of equal ones may follow; before that, position by position, from the last one back */
    uint32_t j = p ? p : 1;
    grammar_expr tail = grammar_repeat(b, next_item(b, item), min > j ? min - j : 0,
                                       max == GRAMMAR_UNLIMITED ? max : max > j ? max - j : 0);
    tail = j <= max ? grammar_rule_of(b, "array", grammar_seq2(b, tail, array_end(b))) : grammar_nothing(b);
    grammar_expr first = p ? 0 : item;
    while (j-- > 0 && !b->err.code) {
        if (p)
            first = schema_rule(c, json_array_get(prefix, j), schema_place(c, here, NULL, j));
        if (j == 0)
            break;
        const grammar_expr more = j < max ? grammar_seq2(b, next_item(b, first), tail) : grammar_nothing(b);
        tail = grammar_rule_of(b, "array", j >= min ? grammar_alt2(b, array_end(b), more) : more);
    }
    const grammar_expr some = max ? grammar_seq2(b, first, tail) : grammar_nothing(b);
    const grammar_expr parts[] = {text(b, "["), gjson_space(b), min ? some : grammar_alt2(b, text(b, "]"), some)};
    return grammar_seq(b, parts, 3);
}

/* ---- objects ---- */

struct property {
    const char *key;
    const json_t *schema; /* NULL: the one of additional properties */
    bool required;
};

struct object {
    struct property *list;
    size_t n, cap;
    bool open;             /* others than the listed ones may follow */
    grammar_expr other;    /* their values */
};

static void list_properties(struct schema_compiler *c, const json_t *schema, uint32_t place, struct object *o)
{
    struct grammar_builder *b = c->b;
    const json_t *properties = json_object_get(schema, "properties"), *required = json_object_get(schema, "required"), *name;
    struct hashmap names;
    const char *key;
    json_t *value;
    size_t i;
    if (properties && !json_is_object(properties))
        schema_fail(c, place, "properties", SKUA_EARG, "expected an object");
    if (required && !json_is_array(required) && !json_is_boolean(required))
        schema_fail(c, place, "required", SKUA_EARG, "expected a list of names");
    if (hashmap_init(&names, json_array_size(required)))
        error_nomem(&b->err, "schema", 0);
    json_array_foreach(required, i, name) {
        if (!b->err.code && !json_is_string(name))
            schema_fail(c, place, "required", SKUA_EARG, "expected a list of names");
        if (!b->err.code && hashmap_put(&names, json_string_value(name), json_string_length(name), 0) < 0)
            error_nomem(&b->err, "schema", 0);
    }
    json_object_foreach((json_t *)properties, key, value) {
        uint32_t unused;
        if (b->err.code || !builder_room(b, &o->list, o->n, &o->cap, 1, sizeof *o->list))
            break;
        const bool must = hashmap_get(&names, key, strlen(key), &unused);
        o->list[o->n++] = (struct property){key, value, must};
    }
    hashmap_free(&names);
    if (!b->err.code && hashmap_init(&names, json_array_size(required)))
        error_nomem(&b->err, "schema", 0);
    json_array_foreach(required, i, name) { /* what must be there and is not described, once each */
        if (b->err.code || json_object_get(properties, json_string_value(name)))
            continue;
        const int rc = hashmap_put(&names, json_string_value(name), json_string_length(name), 0);
        if (rc < 0)
            error_nomem(&b->err, "schema", 0);
        else if (rc == 0 && builder_room(b, &o->list, o->n, &o->cap, 1, sizeof *o->list))
            o->list[o->n++] = (struct property){json_string_value(name), NULL, true};
    }
    hashmap_free(&names);
}

static grammar_expr pair(struct grammar_builder *b, grammar_expr key, grammar_expr value)
{
    const grammar_expr parts[] = {key, text(b, ":"), gjson_space(b), value};
    return grammar_seq(b, parts, 4);
}

static grammar_expr other_pair(struct grammar_builder *b, const struct object *o)
{
    const char **keys = mem_alloc((o->n + 1) * sizeof *keys);
    size_t *lens = mem_alloc((o->n + 1) * sizeof *lens);
    if (!keys || !lens)
        error_nomem(&b->err, "schema", o->n * sizeof *lens);
    for (size_t i = 0; i < o->n && !b->err.code; i++) {
        keys[i] = o->list[i].key;
        lens[i] = strlen(keys[i]);
    }
    const grammar_expr e = b->err.code ? 0 : pair(b, gjson_key_except(b, keys, lens, o->n), o->other);
    mem_free(keys);
    mem_free(lens);
    return e;
}

static grammar_expr property_pair(struct schema_compiler *c, const struct object *o, size_t i, uint32_t here)
{
    struct grammar_builder *b = c->b;
    const struct property *p = &o->list[i];
    json_t *key = json_string(p->key);
    if (!key)
        error_nomem(&b->err, "schema", strlen(p->key));
    const grammar_expr name = key ? gjson_constant(b, key) : 0;
    json_decref(key);
    if (!p->schema)
        return pair(b, name, o->other);
    return pair(b, name, schema_rule(c, p->schema, schema_place(c, here, p->key, 0)));
}

/* From the last property back: `must` is a property, number i or a later one, and what follows it; `may` is what follows when some were
   written: the end, or a comma and a property. */
static grammar_expr object_of(struct schema_compiler *c, const struct object *o, uint32_t place)
{
    struct grammar_builder *b = c->b;
    const uint32_t here = schema_place(c, place, "properties", 0);
    const grammar_expr comma = grammar_seq2(b, text(b, ","), gjson_space(b));
    const grammar_expr end = grammar_seq2(b, gjson_space(b), text(b, "}"));
    grammar_expr may = end, must = grammar_nothing(b);
    bool needed = false;
    if (o->open) {
        const grammar_expr other = grammar_rule_of(b, "property", other_pair(b, o));
        may = grammar_rule_of(b, "object", grammar_seq2(b, grammar_repeat(b, grammar_seq2(b, comma, other), 0, GRAMMAR_UNLIMITED), end));
        must = grammar_seq2(b, other, may);
    }
    for (size_t i = o->n; i-- > 0 && !b->err.code;) {
        const grammar_expr one = grammar_seq2(b, property_pair(c, o, i, here), may);
        must = grammar_rule_of(b, "object", o->list[i].required ? one : grammar_alt2(b, one, must));
        needed |= o->list[i].required;
        const grammar_expr more = grammar_seq2(b, comma, must);
        may = grammar_rule_of(b, "object", needed ? more : grammar_alt2(b, end, more));
    }
    const grammar_expr parts[] = {text(b, "{"), gjson_space(b), needed ? must : grammar_alt2(b, text(b, "}"), must)};
    return grammar_seq(b, parts, 3);
}

grammar_expr schema_object(struct schema_compiler *c, const json_t *schema, uint32_t place)
{
    const json_t *more = json_object_get(schema, "additionalProperties");
    struct object o = {0};
    list_properties(c, schema, place, &o);
    /* nothing said: closed if properties are listed, as people mean it who list them; a subset of what the schema allows */
    o.open = more ? !json_is_false(more) : !json_object_get(schema, "properties");
    if (!c->b->err.code)
        o.other = more && !json_is_boolean(more) ? schema_rule(c, more, schema_place(c, place, "additionalProperties", 0))
                                                 : gjson_any(c->b, JSON_VALUE_DEPTH);
    if (json_is_false(more) && o.n && !c->b->err.code)
        for (size_t i = 0; i < o.n; i++)
            if (!o.list[i].schema) /* required, and forbidden */
                o.other = grammar_nothing(c->b);
    const grammar_expr e = c->b->err.code ? 0 : object_of(c, &o, place);
    mem_free(o.list);
    return e;
}
