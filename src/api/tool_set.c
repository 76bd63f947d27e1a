/* Tools of a request; see tool_set.h. */
#include "api/tool_set.h"

#include <string.h>

#include "base/mem.h"

#define MAX_DEPTH 16 /* of schemas inside unions and behind references: deeper ones are taken for undeclared */

static unsigned named_type(const json_t *name)
{
    static const struct { const char *name; unsigned types; } known[] = {
        {"string", TOOL_STRING},   {"integer", TOOL_NUMBER}, {"number", TOOL_NUMBER},   {"boolean", TOOL_BOOLEAN},
        {"null", TOOL_NULL},       {"object", TOOL_STRUCTURE}, {"array", TOOL_STRUCTURE},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (json_is_string(name) && strcmp(json_string_value(name), known[i].name) == 0)
            return known[i].types;
    return 0;
}

static unsigned value_type(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING: return TOOL_STRING;
    case JSON_INTEGER:
    case JSON_REAL: return TOOL_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE: return TOOL_BOOLEAN;
    case JSON_NULL: return TOOL_NULL;
    default: return TOOL_STRUCTURE;
    }
}

/* The schema that a reference "#/a/b" leads to; NULL. */
static const json_t *follow(const json_t *root, const char *ref)
{
    char part[256];
    if (*ref++ != '#')
        return NULL;
    while (root && *ref == '/') {
        size_t n = 0;
        for (ref++; *ref && *ref != '/'; ref++) {
            char c = *ref;
            if (c == '~' && (ref[1] == '0' || ref[1] == '1'))
                c = *++ref == '0' ? '~' : '/';
            if (n == sizeof part - 1)
                return NULL;
            part[n++] = c;
        }
        part[n] = 0;
        root = json_object_get(root, part);
    }
    return *ref ? NULL : root;
}

static unsigned types_of(const json_t *schema, const json_t *root, int depth);

/* Types of the schemas in a list: any of them, or for allOf those that all that declare some agree on. */
static unsigned union_of(const json_t *list, const json_t *root, bool all, int depth)
{
    unsigned types = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        unsigned one = types_of(json_array_get(list, i), root, depth + 1);
        types = all && types && one ? types & one : types | one;
    }
    return types;
}

/* 0: nothing is declared. */
static unsigned types_of(const json_t *schema, const json_t *root, int depth)
{
    const json_t *type = json_object_get(schema, "type"), *ref = json_object_get(schema, "$ref");
    const json_t *values = json_object_get(schema, "enum"), *constant = json_object_get(schema, "const");
    unsigned types = named_type(type);
    if (depth > MAX_DEPTH)
        return 0;
    for (size_t i = 0; i < json_array_size(type); i++)
        types |= named_type(json_array_get(type, i));
    if (!types && json_is_string(ref))
        types = types_of(follow(root, json_string_value(ref)), root, depth + 1);
    if (!types)
        types = union_of(json_object_get(schema, "anyOf"), root, false, depth)
                | union_of(json_object_get(schema, "oneOf"), root, false, depth);
    if (!types)
        types = union_of(json_object_get(schema, "allOf"), root, true, depth);
    for (size_t i = 0; !json_object_get(schema, "type") && i < json_array_size(values); i++)
        types |= value_type(json_array_get(values, i));
    if (!types && constant)
        types = value_type(constant);
    if (!types && (json_object_get(schema, "properties") || json_object_get(schema, "items")))
        types = TOOL_STRUCTURE;
    if (types && json_is_true(json_object_get(schema, "nullable")))
        types |= TOOL_NULL;
    return types;
}

unsigned tool_schema_types(const json_t *schema, const json_t *root)
{
    unsigned types = types_of(schema, root, 0);
    return types ? types : TOOL_STRING;
}

static int add_keys(struct tool_def *def, skua_error *err)
{
    json_t *properties = json_object_get(def->parameters, "properties"), *schema;
    const char *name;
    size_t n = json_object_size(properties);
    if (!n)
        return 0;
    def->keys = mem_calloc(n, sizeof *def->keys);
    if (!def->keys)
        return error_nomem(err, "parameters of a tool", n * sizeof *def->keys);
    json_object_foreach(properties, name, schema)
        def->keys[def->n_keys++] = (struct tool_key){name, strlen(name), tool_schema_types(schema, def->parameters), schema};
    return 0;
}

static bool allowed(const struct api_request *r, const char *name)
{
    for (size_t i = 0; i < r->n_allowed_tools; i++)
        if (strcmp(r->allowed_tools[i], name) == 0)
            return true;
    return !r->n_allowed_tools;
}

int tool_set_init(struct tool_set *s, const struct api_request *r, skua_error *err)
{
    *s = (struct tool_set){0};
    if (!r->n_tools || r->tool_choice == API_TOOLS_NONE)
        return 0;
    s->defs = mem_calloc(r->n_tools, sizeof *s->defs);
    if (!s->defs)
        return error_nomem(err, "tools of a request", r->n_tools * sizeof *s->defs);
    for (size_t i = 0; i < r->n_tools; i++) {
        const struct api_tool *t = &r->tools[i];
        if (!allowed(r, t->name))
            continue;
        struct tool_def *def = &s->defs[s->n++];
        *def = (struct tool_def){t->name, strlen(t->name), t->custom, t->strict && !t->custom, t->regex, t->parameters, NULL, 0};
        int rc = t->custom ? 0 : add_keys(def, err);
        if (rc) {
            tool_set_free(s);
            return rc;
        }
    }
    return 0;
}

void tool_set_free(struct tool_set *s)
{
    for (size_t i = 0; i < s->n; i++)
        mem_free(s->defs[i].keys);
    mem_free(s->defs);
    *s = (struct tool_set){0};
}

const struct tool_key *tool_find_key(const struct tool_def *def, const char *name, size_t n)
{
    for (size_t i = 0; i < def->n_keys; i++)
        if (def->keys[i].n == n && memcmp(def->keys[i].name, name, n) == 0)
            return &def->keys[i];
    return NULL;
}
