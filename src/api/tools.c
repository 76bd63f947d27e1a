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
