/* Tools of a request: spec/api.md 4.1, 5.6. */
#include <string.h>

#include "api/common.h"
#include "base/mem.h"
#include "base/utf8.h"

#define MAX_TOOLS 1024
#define MAX_NAME 128
#define MAX_SCHEMA_BYTES ((size_t)4 << 20)

/* A name stands in a tag, so it must not end it. */
static bool name_is_sound(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > MAX_NAME)
        return false;
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == 0x7F || *p == '<' || *p == '>' || *p == '"')
            return false;
    return true;
}

static int count_bytes(const char *s, size_t n, void *user)
{
    (void)s;
    *(size_t *)user += n;
    return *(size_t *)user > MAX_SCHEMA_BYTES ? -1 : 0;
}

static int check_tool(struct api_request *r, const struct api_path *at, const char *name, const json_t *parameters, struct api_error *e)
{
    if (r->n_tools >= MAX_TOOLS)
        return api_fail(e, "invalid_value", at, "expected at most %d tools", MAX_TOOLS);
    if (!name_is_sound(name))
        return api_fail(e, "invalid_value", API_KEY(at, "name"),
                        "expected a name of 1 to %d bytes without white space, quotes and angle brackets, got \"%.80s\"", MAX_NAME, name);
    if (api_tool_find(r, name))
        return api_fail(e, "invalid_value", API_KEY(at, "name"), "a tool named \"%.80s\" is there already; expected names that differ",
                        name);
    if (parameters && json_dump_callback(parameters, count_bytes, &r->schema_bytes, JSON_COMPACT | JSON_ENCODE_ANY))
        return r->schema_bytes > MAX_SCHEMA_BYTES
                   ? api_fail(e, "invalid_value", at, "the schemas of all tools are larger than the limit of 4 MiB together")
                   : api_fail_nomem(e);
    return 0;
}

static int add_tool(struct api_request *r, const struct api_path *at, const struct api_tool *tool, json_t *template_tool,
                    struct api_error *e)
{
    if (!template_tool)
        return api_fail_nomem(e);
    if (check_tool(r, at, tool->name, tool->parameters, e))
        return -1;
    if (!r->template_tools && !(r->template_tools = json_array()))
        return api_fail_nomem(e);
    if ((r->n_tools & (r->n_tools - 1)) == 0) { /* room doubles at powers of two */
        struct api_tool *p = mem_realloc_array(r->tools, r->n_tools ? 2 * r->n_tools : 1, sizeof *p);
        if (!p)
            return api_fail_nomem(e);
        r->tools = p;
    }
    if (json_array_append(r->template_tools, template_tool))
        return api_fail_nomem(e);
    r->tools[r->n_tools++] = *tool;
    if (r->tool_choice == API_TOOLS_NONE)
        r->tool_choice = API_TOOLS_AUTO;
    return 0;
}

int api_tool_add(struct api_request *r, const struct api_path *at, const char *name, bool custom, bool strict, const json_t *parameters,
                 json_t *template_tool, struct api_error *e)
{
    struct api_tool tool = {.name = name, .custom = custom, .strict = strict, .parameters = parameters};
    int rc = add_tool(r, at, &tool, template_tool, e);
    json_decref(template_tool);
    return rc;
}

json_t *api_tool_template(const char *name, const json_t *description, const json_t *parameters)
{
    json_t *schema = parameters ? json_incref((json_t *)(uintptr_t)parameters)
                                : json_pack("{s:s, s:{s:{s:s}}, s:[s]}", "type", "object", "properties", "input", "type", "string",
                                            "required", "input");
    json_t *function = json_object(), *tool = json_object();
    int failed = json_object_set_new(function, "name", json_string(name));
    if (description)
        failed |= json_object_set(function, "description", (json_t *)(uintptr_t)description);
    failed |= json_object_set_new(function, "parameters", schema);
    failed |= json_object_set_new(tool, "type", json_string("function"));
    failed |= json_object_set_new(tool, "function", function);
    if (failed) {
        json_decref(tool);
        return NULL;
    }
    return tool;
}

int api_tool_format(struct api_request *r, const json_t *tool, const struct api_path *at, const char *inner, const char **regex,
                    json_t **description, struct api_error *e)
{
    static const char *const types[] = {"text", "grammar"}, *const syntaxes[] = {"lark", "regex"};
    const struct api_path format_at = {at, "format", 0}, inner_at = {&format_at, inner, 0}, *grammar_at = inner ? &inner_at : &format_at;
    const char *text = NULL, *definition = NULL;
    json_t *format = NULL, *grammar;
    int type = 0, syntax = -1;
    if (api_get_string(tool, at, "description", &text, e) || api_get_object(tool, at, "format", &format, e) ||
        api_get_choice(format, &format_at, "type", types, 2, &type, e))
        return -1;
    if (type == 0) {
        *description = json_incref(api_field(tool, "description"));
        return 0;
    }
    grammar = inner ? NULL : format;
    if (inner && api_get_object(format, &format_at, inner, &grammar, e))
        return -1;
    if (!grammar)
        return api_fail_missing(e, grammar_at, "an object with syntax and definition");
    if (api_get_choice(grammar, grammar_at, "syntax", syntaxes, 2, &syntax, e) ||
        api_get_string(grammar, grammar_at, "definition", &definition, e))
        return -1;
    if (syntax < 0 || !definition)
        return api_fail_missing(e, API_KEY(grammar_at, syntax < 0 ? "syntax" : "definition"),
                                syntax < 0 ? "\"lark\" or \"regex\"" : "the grammar (a string)");
    if (syntax == 0)
        api_warn(r, "tool \"%.80s\": its Lark grammar is told to the model, but not enforced",
                 json_string_value(api_field(tool, "name")));
    else
        *regex = definition;
    *description = json_sprintf("%s%sThe input must match this %s:\n%s", text ? text : "", text ? "\n\n" : "",
                                syntax == 0 ? "Lark grammar" : "regular expression", definition);
    return *description ? 0 : api_fail_nomem(e);
}

const struct api_tool *api_tool_find(const struct api_request *r, const char *name)
{
    for (size_t i = 0; i < r->n_tools; i++)
        if (!strcmp(r->tools[i].name, name))
            return &r->tools[i];
    return NULL;
}

int api_tool_allow(struct api_request *r, const struct api_path *at, const json_t *name, struct api_error *e)
{
    if (!name || json_is_null(name))
        return api_fail_missing(e, at, "the name of one of the tools");
    if (!json_is_string(name))
        return api_fail_type(e, at, name, "the name of one of the tools");
    const struct api_tool *tool = api_tool_find(r, json_string_value(name));
    if (!tool)
        return api_fail_value(e, at, name, "the name of one of the tools");
    const char **p = mem_realloc_array((void *)(uintptr_t)r->allowed_tools, r->n_allowed_tools + 1, sizeof *p);
    if (!p)
        return api_fail_nomem(e);
    r->allowed_tools = p;
    r->allowed_tools[r->n_allowed_tools++] = tool->name;
    return 0;
}
