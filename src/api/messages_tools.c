/* Tools of /v1/messages: spec/api.md 10.1. Of the tools that the public API knows by a type, those that the client runs get the schema that
 * goes without saying there; those that the provider runs are left out with a warning. */
#include <string.h>

#include "api/common.h"
#include "api/messages.h"
#include "base/json.h"

/* Types are a stem and a date. */
static const struct known_tool {
    const char *stem, *description, *schema;
} known_tools[] = {
    {"bash_", "Run a command in a shell that stays open between calls, and return what it prints.",
     "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\",\"description\":\"The command to run\"},"
     "\"restart\":{\"type\":\"boolean\",\"description\":\"Start the shell anew instead of running a command\"}}}"},
    {"text_editor_", "View, create and change text files.",
     "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\",\"enum\":[\"view\",\"create\",\"str_replace\",\"insert\"]},"
     "\"path\":{\"type\":\"string\",\"description\":\"File or folder\"},"
     "\"file_text\":{\"type\":\"string\",\"description\":\"create: what the file shall contain\"},"
     "\"old_str\":{\"type\":\"string\",\"description\":\"str_replace: text that stands in the file exactly once\"},"
     "\"new_str\":{\"type\":\"string\",\"description\":\"str_replace, insert: the new text\"},"
     "\"insert_line\":{\"type\":\"integer\",\"description\":\"insert: the line behind which the text goes, 0 for the beginning\"},"
     "\"view_range\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"description\":\"view: first and last line\"}},"
     "\"required\":[\"command\",\"path\"]}"},
};

static int add_known(struct api_request *r, const struct api_path *at, const char *name, const struct known_tool *known,
                     struct api_error *e)
{
    json_error_t where;
    bool no_memory;
    json_t *schema = json_read(known->schema, strlen(known->schema), 0, &where, &no_memory), *text = json_string(known->description);
    json_t *template_tool = schema && text ? api_tool_template(name, text, schema) : NULL;
    json_decref(text);
    json_decref(schema); /* the template's object keeps it */
    const json_t *parameters = json_object_get(json_object_get(template_tool, "function"), "parameters");
    return api_tool_add(r, at, name, false, false, parameters, template_tool, e);
}

static int add_custom(struct api_request *r, const struct api_path *at, const json_t *tool, const char *name, struct api_error *e)
{
    const char *description = NULL;
    json_t *parameters = NULL;
    bool strict = false;
    if (api_get_string(tool, at, "description", &description, e) || api_get_object(tool, at, "input_schema", &parameters, e) ||
        api_get_bool(tool, at, "strict", &strict, e))
        return -1;
    json_t *schema = parameters ? json_incref(parameters) : json_pack("{s:s, s:{}}", "type", "object", "properties");
    json_t *template_tool = schema ? api_tool_template(name, api_field(tool, "description"), schema) : NULL;
    json_decref(schema);
    return api_tool_add(r, at, name, false, strict, parameters, template_tool, e);
}

static int parse_tool(struct api_request *r, const struct api_path *at, const json_t *tool, struct api_error *e)
{
    const char *type = NULL, *name = NULL;
    if (!json_is_object(tool))
        return api_fail_type(e, at, tool, "a tool (an object)");
    if (api_get_string(tool, at, "type", &type, e) || api_get_string(tool, at, "name", &name, e))
        return -1;
    bool custom = !type || !strcmp(type, "custom");
    if (!name && custom)
        return api_fail_missing(e, API_KEY(at, "name"), "the name of the tool (a string)");
    for (size_t i = 0; i < sizeof known_tools / sizeof *known_tools && !custom && name; i++)
        if (!strncmp(type, known_tools[i].stem, strlen(known_tools[i].stem)))
            return add_known(r, at, name, &known_tools[i], e);
    if (custom || (name && json_is_object(api_field(tool, "input_schema"))))
        return add_custom(r, at, tool, name, e);
    api_warn(r, "tools of type \"%.80s\" do not run here: it is left out", type);
    return 0;
}

/* Is a tool of this name among those that were left out? */
static bool left_out(const json_t *tools, const json_t *name)
{
    size_t i;
    json_t *tool;
    json_array_foreach(tools, i, tool)
        if (json_is_string(name) && json_equal(api_field(tool, "name"), name))
            return true;
    return false;
}

static int parse_choice(struct api_request *r, const json_t *tools, struct api_error *e)
{
    static const char *const types[] = {"auto", "any", "none", "tool"};
    const struct api_path *at = API_KEY(NULL, "tool_choice");
    json_t *choice = NULL;
    bool one_at_most = false;
    int type = 0;
    if (api_get_object(r->body, NULL, "tool_choice", &choice, e))
        return -1;
    if (!choice)
        return 0;
    if (!api_field(choice, "type"))
        return api_fail_missing(e, API_KEY(at, "type"), "\"auto\", \"any\", \"none\" or \"tool\"");
    if (api_get_choice(choice, at, "type", types, 4, &type, e) ||
        api_get_bool(choice, at, "disable_parallel_tool_use", &one_at_most, e))
        return -1;
    r->parallel_calls = !one_at_most;
    if ((type == 1 || type == 3) && !json_array_size(tools))
        return api_fail(e, "invalid_value", API_KEY(at, "type"), "expected \"auto\" or \"none\" where no tools are given");
    const json_t *name = api_field(choice, "name");
    if (type == 3 && !(json_is_string(name) && api_tool_find(r, json_string_value(name))) && left_out(tools, name)) {
        api_warn(r, "tool_choice names a tool that is left out: the model decides");
        return 0;
    }
    if (type == 3 && api_tool_allow(r, API_KEY(at, "name"), name, e))
        return -1;
    if (r->n_tools)
        r->tool_choice = type == 2 ? API_TOOLS_NONE : type == 0 ? API_TOOLS_AUTO : API_TOOLS_REQUIRED;
    return 0;
}

int messages_tools_parse(struct api_request *r, struct api_error *e)
{
    json_t *tools = NULL, *tool;
    size_t i;
    if (api_get_array(r->body, NULL, "tools", &tools, e))
        return -1;
    json_array_foreach(tools, i, tool)
        if (parse_tool(r, API_ITEM(API_KEY(NULL, "tools"), i), tool, e))
            return -1;
    return parse_choice(r, tools, e);
}
