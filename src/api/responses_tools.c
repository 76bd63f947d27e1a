/* Tools of /v1/responses: spec/api.md 9.1. What only the provider of the public API can run is left out with a warning, never refused. */
#include <string.h>

#include "api/common.h"
#include "api/responses.h"

/* Function and custom tools keep their name; inside a namespace the model sees "namespace.name". */
struct tool_place {
    const struct api_path *at;
    const char *ns; /* NULL: none */
};

/* Set what api_tool_add does not know of the tool that was added last. */
static void finish_tool(struct api_request *r, const struct tool_place *place, const char *bare, const char *regex)
{
    struct api_tool *tool = &r->tools[r->n_tools - 1];
    tool->ns = place->ns;
    tool->bare = place->ns ? bare : NULL;
    tool->regex = regex;
}

/* The name that the model sees, in the template's tool object; that one owns it. */
static json_t *with_name(json_t *template_tool, const struct tool_place *place, const char *bare)
{
    json_t *function = json_object_get(template_tool, "function");
    if (place->ns && json_object_set_new(function, "name", json_sprintf("%s.%s", place->ns, bare))) {
        json_decref(template_tool);
        return NULL;
    }
    return template_tool;
}

static int add_tool(struct api_request *r, const struct tool_place *place, const char *bare, bool custom, bool strict,
                    const json_t *parameters, const char *regex, json_t *template_tool, struct api_error *e)
{
    template_tool = with_name(template_tool, place, bare);
    const char *name = json_string_value(json_object_get(json_object_get(template_tool, "function"), "name"));
    if (api_tool_add(r, place->at, name, custom, strict, parameters, template_tool, e))
        return -1;
    finish_tool(r, place, bare, regex);
    return 0;
}

static int tool_name(const json_t *tool, const struct api_path *at, const char **name, struct api_error *e)
{
    if (api_get_string(tool, at, "name", name, e))
        return -1;
    return *name ? 0 : api_fail_missing(e, API_KEY(at, "name"), "the name of the tool (a string)");
}

static int add_function(struct api_request *r, const struct tool_place *place, const json_t *tool, struct api_error *e)
{
    const char *name = NULL, *description = NULL;
    json_t *parameters = NULL;
    bool strict = false;
    if (tool_name(tool, place->at, &name, e) || api_get_string(tool, place->at, "description", &description, e) ||
        api_get_object(tool, place->at, "parameters", &parameters, e) || api_get_bool(tool, place->at, "strict", &strict, e))
        return -1;
    json_t *schema = parameters ? json_incref(parameters) : json_pack("{s:s, s:{}}", "type", "object", "properties");
    json_t *template_tool = schema ? api_tool_template(name, api_field(tool, "description"), schema) : NULL;
    json_decref(schema);
    return add_tool(r, place, name, false, strict, parameters, NULL, template_tool, e);
}

static int add_custom(struct api_request *r, const struct tool_place *place, const json_t *tool, struct api_error *e)
{
    const char *name = NULL, *regex = NULL;
    json_t *text = NULL;
    if (tool_name(tool, place->at, &name, e) || api_tool_format(r, tool, place->at, NULL, &regex, &text, e))
        return -1;
    json_t *template_tool = api_tool_template(name, text, NULL);
    json_decref(text);
    return add_tool(r, place, name, true, false, NULL, regex, template_tool, e);
}

static int add_local_shell(struct api_request *r, const struct tool_place *place, struct api_error *e)
{
    json_t *schema = json_pack("{s:s, s:{s:{s:s, s:{s:s}, s:s}}, s:[s]}", "type", "object", "properties", "command", "type", "array",
                               "items", "type", "string", "description", "The program and its arguments", "required", "command");
    json_t *text = json_string("Run a command on the computer of the user.");
    json_t *template_tool = schema && text ? api_tool_template("local_shell", text, schema) : NULL;
    json_decref(text);
    json_decref(schema); /* the template's object keeps it */
    const json_t *parameters = json_object_get(json_object_get(template_tool, "function"), "parameters");
    return add_tool(r, place, "local_shell", false, false, parameters, NULL, template_tool, e);
}

/* One tool; *inner gets the tools of a namespace, which have none themselves. */
static int parse_tool(struct api_request *r, const struct tool_place *place, const json_t *tool, json_t **inner, const char **ns,
                      struct api_error *e)
{
    const char *type = NULL;
    if (!json_is_object(tool))
        return api_fail_type(e, place->at, tool, "a tool (an object)");
    if (api_get_string(tool, place->at, "type", &type, e))
        return -1;
    if (!type)
        return api_fail_missing(e, API_KEY(place->at, "type"), "the kind of tool (a string)");
    if (!strcmp(type, "function"))
        return add_function(r, place, tool, e);
    if (!strcmp(type, "custom"))
        return add_custom(r, place, tool, e);
    if (!strcmp(type, "local_shell"))
        return add_local_shell(r, place, e);
    if (!strcmp(type, "namespace") && !place->ns)
        return tool_name(tool, place->at, ns, e) || api_get_array(tool, place->at, "tools", inner, e) ? -1 : 0;
    api_warn(r, "tools of type \"%.80s\" do not run here: it is left out", type);
    return 0;
}

static int parse_tools(struct api_request *r, const json_t *tools, struct api_error *e)
{
    const struct api_path *at = API_KEY(NULL, "tools");
    size_t i, k;
    json_t *tool, *one;
    json_array_foreach(tools, i, tool) {
        const struct api_path *tool_at = API_ITEM(at, i), *inner_at = API_KEY(tool_at, "tools");
        json_t *inner = NULL;
        const char *ns = NULL;
        if (parse_tool(r, &(struct tool_place){tool_at, NULL}, tool, &inner, &ns, e))
            return -1;
        json_array_foreach(inner, k, one)
            if (parse_tool(r, &(struct tool_place){API_ITEM(inner_at, k), ns}, one, NULL, NULL, e))
                return -1;
    }
    return 0;
}

/* ---- choice ---- */

static bool client_runs(const json_t *type) { return api_is(type, "function") || api_is(type, "custom") || api_is(type, "local_shell"); }

/* Allow the tool that a choice names. */
static int allow(struct api_request *r, const struct api_path *at, const json_t *choice, struct api_error *e)
{
    static const char expected[] = "the name of one of the tools";
    const char *name = api_is(api_field(choice, "type"), "local_shell") ? "local_shell" : NULL, *ns = NULL;
    if (api_get_string(choice, at, "name", &name, e) || api_get_string(choice, at, "namespace", &ns, e))
        return -1;
    if (!name)
        return api_fail_missing(e, API_KEY(at, "name"), expected);
    for (size_t i = 0; i < r->n_tools; i++) {
        const struct api_tool *tool = &r->tools[i];
        bool same = ns ? tool->ns && !strcmp(tool->ns, ns) && !strcmp(tool->bare, name)
                       : !strcmp(tool->name, name) || (tool->bare && !strcmp(tool->bare, name));
        if (same)
            return api_tool_allow(r, at, json_object_get(json_object_get(json_array_get(r->template_tools, i), "function"), "name"), e);
    }
    return api_fail_value(e, API_KEY(at, "name"), api_field(choice, "name"), expected);
}

static int parse_allowed(struct api_request *r, const struct api_path *at, const json_t *choice, struct api_error *e)
{
    static const char *const modes[] = {"auto", "required"};
    const struct api_path *tools_at = API_KEY(at, "tools");
    json_t *tools = NULL, *tool;
    int mode = 0;
    size_t i;
    if (api_get_choice(choice, at, "mode", modes, 2, &mode, e) || api_get_array(choice, at, "tools", &tools, e))
        return -1;
    if (!tools)
        return api_fail_missing(e, tools_at, "a list of tools");
    json_array_foreach(tools, i, tool) {
        if (!json_is_object(tool))
            return api_fail_type(e, API_ITEM(tools_at, i), tool, "a tool (an object)");
        if (client_runs(api_field(tool, "type")) && allow(r, API_ITEM(tools_at, i), tool, e))
            return -1;
    }
    r->tool_choice = r->n_allowed_tools == 0 ? API_TOOLS_NONE : mode == 1 ? API_TOOLS_REQUIRED : API_TOOLS_AUTO;
    return 0;
}

static int parse_choice(struct api_request *r, const json_t *choice, bool offered, struct api_error *e)
{
    static const char *const names[] = {"none", "auto", "required"};
    static const enum api_tool_choice choices[] = {API_TOOLS_NONE, API_TOOLS_AUTO, API_TOOLS_REQUIRED};
    const struct api_path *at = API_KEY(NULL, "tool_choice");
    const json_t *type = api_field(choice, "type");
    int k = 1;
    if (!choice || json_is_null(choice))
        return 0;
    if (!json_is_object(choice) && api_get_choice(r->body, NULL, "tool_choice", names, 3, &k, e))
        return -1;
    if (json_is_object(choice) && !json_is_string(type))
        return type ? api_fail_type(e, API_KEY(at, "type"), type, "a string") : api_fail_missing(e, API_KEY(at, "type"), "a string");
    bool named = client_runs(type), list = api_is(type, "allowed_tools");
    if ((k == 2 || named || list) && !offered)
        return api_fail(e, "invalid_value", at, "expected \"none\" or \"auto\" where no tools are given");
    if (list)
        return parse_allowed(r, at, choice, e);
    if (named)
        r->tool_choice = API_TOOLS_REQUIRED;
    else if (r->n_tools)
        r->tool_choice = choices[k];
    return named ? allow(r, at, choice, e) : 0;
}

int responses_tools_parse(struct api_request *r, struct api_error *e)
{
    json_t *tools = NULL;
    if (api_get_array(r->body, NULL, "tools", &tools, e) || parse_tools(r, tools, e) ||
        parse_choice(r, api_field(r->body, "tool_choice"), json_array_size(tools) > 0, e) ||
        api_get_bool(r->body, NULL, "parallel_tool_calls", &r->parallel_calls, e))
        return -1;
    return api_get_int32(r->body, NULL, "max_tool_calls", 1, INT32_MAX, &r->max_calls, e);
}
