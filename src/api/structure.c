/* Structured output: spec/api.md 5.7. What the schema or grammar says is checked when it is compiled (answer.h). */
#include "api/common.h"

static int take(struct api_request *r, enum api_structure structure, const struct api_path *at, struct api_error *e)
{
    if (r->structure != API_FREE)
        return api_fail(e, "invalid_value", at, "only one of response format, json_schema, grammar and regex may be given");
    r->structure = structure;
    return 0;
}

static int take_schema(struct api_request *r, const json_t *owner, const struct api_path *at, const char *key, struct api_error *e)
{
    json_t *schema = NULL;
    if (api_get_object(owner, at, key, &schema, e))
        return -1;
    if (!schema)
        return api_fail_missing(e, API_KEY(at, key), "a JSON schema (an object)");
    r->schema = schema;
    return take(r, API_JSON_SCHEMA, API_KEY(at, key), e);
}

static int take_format(struct api_request *r, const json_t *format, const struct api_path *at, bool flat, struct api_error *e)
{
    static const char *const types[] = {"text", "json_object", "json_schema"};
    json_t *inner = NULL;
    int type = 0;
    if (!json_is_object(format))
        return api_fail_type(e, at, format, "an object");
    if (!api_field(format, "type"))
        return api_fail_missing(e, API_KEY(at, "type"), "\"text\", \"json_object\" or \"json_schema\"");
    if (api_get_choice(format, at, "type", types, 3, &type, e))
        return -1;
    if (type == 0)
        return 0;
    if (type == 1)
        return take(r, API_JSON_OBJECT, at, e);
    if (flat)
        return api_get_bool(format, at, "strict", &r->strict_schema, e) || take_schema(r, format, at, "schema", e) ? -1 : 0;
    const struct api_path *inside = API_KEY(at, "json_schema");
    if (api_get_object(format, at, "json_schema", &inner, e))
        return -1;
    if (!inner)
        return api_fail_missing(e, inside, "an object with a schema");
    return api_get_bool(inner, inside, "strict", &r->strict_schema, e) || take_schema(r, inner, inside, "schema", e) ? -1 : 0;
}

int api_structure_parse(struct api_request *r, const json_t *format, const struct api_path *at, bool flat, struct api_error *e)
{
    static const struct {
        const char *key;
        enum api_structure structure;
    } texts[] = {{"grammar", API_GBNF}, {"regex", API_REGEX}};
    if (format && !json_is_null(format) && take_format(r, format, at, flat, e))
        return -1;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *text = NULL;
        if (api_get_string(r->body, NULL, texts[i].key, &text, e))
            return -1;
        if (!text)
            continue;
        if (take(r, texts[i].structure, API_KEY(NULL, texts[i].key), e))
            return -1;
        r->grammar = text;
    }
    return api_field(r->body, "json_schema") ? take_schema(r, r->body, NULL, "json_schema", e) : 0;
}
