/* Whether an answer begins with thinking, and how long it may be: spec/api.md 5.5. Sources are read from the weakest to the strongest, so
 * that a stronger one overwrites; every one is checked, also where another wins. */
#include <string.h>

#include "api/common.h"
#include "base/json.h"

struct thinking {
    int on;           /* -1: nobody said */
    int32_t budget;   /* -1: none */
    const char *effort; /* for the template */
};

static void set_budget(struct thinking *t, int64_t n)
{
    t->budget = n > INT32_MAX ? INT32_MAX : (int32_t)n;
    if (n == 0)
        t->on = 0;
}

static int read_budgets(const json_t *body, struct thinking *t, struct api_error *e)
{
    static const char *const keys[] = {"thinking_budget_tokens", "reasoning_budget_tokens", "thinking_budget"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t n = 0;
        if (api_get_int(body, NULL, keys[i], -1, INT64_MAX, &n, e))
            return -1;
        if (api_field(body, keys[i]))
            set_budget(t, n);
    }
    return 0;
}

static int read_effort(const json_t *effort, const struct api_path *at, struct thinking *t, struct api_error *e)
{
    static const struct {
        const char *name;
        int32_t budget; /* 0: thinking off, -1: none */
    } efforts[] = {{"none", 0}, {"minimal", 512}, {"low", 2048}, {"medium", 8192}, {"high", -1}, {"xhigh", -1}, {"max", -1}};
    static const char expected[] = "\"none\", \"minimal\", \"low\", \"medium\", \"high\", \"xhigh\" or \"max\"";
    if (!effort || json_is_null(effort))
        return 0;
    if (!json_is_string(effort))
        return api_fail_type(e, at, effort, expected);
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++)
        if (api_is(effort, efforts[i].name)) {
            t->effort = efforts[i].name;
            t->on = efforts[i].budget != 0;
            t->budget = efforts[i].budget ? efforts[i].budget : -1;
            return 0;
        }
    return api_fail_value(e, at, effort, expected);
}

static int read_object(const json_t *body, struct thinking *t, struct api_error *e)
{
    static const char *const types[] = {"enabled", "adaptive", "disabled"};
    const struct api_path *at = API_KEY(NULL, "thinking");
    json_t *o = NULL;
    int type = -1;
    int64_t n = -1;
    if (api_get_object(body, NULL, "thinking", &o, e))
        return -1;
    if (!o)
        return 0;
    if (!api_field(o, "type"))
        return api_fail_missing(e, API_KEY(at, "type"), "\"enabled\", \"adaptive\" or \"disabled\"");
    if (api_get_choice(o, at, "type", types, 3, &type, e) || api_get_int(o, at, "budget_tokens", 0, INT64_MAX, &n, e))
        return -1;
    t->on = type != 2;
    if (type == 0 && n >= 0)
        set_budget(t, n);
    return 0;
}

/* enable_thinking of the body, then of chat_template_kwargs; preserve_thinking likewise into *preserve (-1: not given). */
static int read_switches(const json_t *body, json_t *kwargs, struct thinking *t, int *preserve, struct api_error *e)
{
    const struct api_path *places[] = {NULL, API_KEY(NULL, "chat_template_kwargs")};
    const json_t *objects[] = {body, kwargs};
    for (int i = 0; i < 2; i++) {
        bool on = t->on > 0, keep = *preserve > 0;
        if (api_get_bool(objects[i], places[i], "enable_thinking", &on, e) ||
            api_get_bool(objects[i], places[i], "preserve_thinking", &keep, e))
            return -1;
        t->on = api_field(objects[i], "enable_thinking") ? on : t->on;
        *preserve = api_field(objects[i], "preserve_thinking") ? keep : *preserve;
    }
    return 0;
}

/* The variables that the template gets: what the client gave for it, and the switches as they were decided. */
static int set_template_args(struct api_request *r, json_t *kwargs, const struct thinking *t, int preserve, struct api_error *e)
{
    static const char *const reserved[] = {"messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"};
    r->template_args = kwargs ? json_copy_whole(kwargs) : json_object();
    if (!r->template_args)
        return api_fail_nomem(e);
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        json_object_del(r->template_args, reserved[i]);
    bool failed = false;
    if (t->on >= 0)
        failed |= json_object_set_new(r->template_args, "enable_thinking", json_boolean(t->on)) != 0;
    if (preserve >= 0)
        failed |= json_object_set_new(r->template_args, "preserve_thinking", json_boolean(preserve)) != 0;
    if (t->effort && !json_object_get(r->template_args, "reasoning_effort"))
        failed |= json_object_set_new(r->template_args, "reasoning_effort", json_string(t->effort)) != 0;
    return failed ? api_fail_nomem(e) : 0;
}

int api_thinking_parse(const struct api_env *env, struct api_request *r, const json_t *effort, const struct api_path *effort_at,
                       bool off_when_absent, struct api_error *e)
{
    static const char *const formats[] = {"separate", "inline", "hidden"};
    struct thinking t = {.on = off_when_absent ? 0 : env->thinking == API_THINK_AUTO ? -1 : env->thinking == API_THINK_ON};
    json_t *kwargs = NULL;
    int preserve = -1, format = 0;
    t.budget = env->thinking_budget;
    if (t.budget == 0)
        t.on = 0;
    if (read_budgets(r->body, &t, e) || read_effort(effort, effort_at, &t, e) || read_object(r->body, &t, e) ||
        api_get_object(r->body, NULL, "chat_template_kwargs", &kwargs, e) || read_switches(r->body, kwargs, &t, &preserve, e) ||
        api_get_choice(r->body, NULL, "reasoning_format", formats, 3, &format, e))
        return -1;
    r->thinking = t.on != 0;
    r->thinking_budget = t.budget > 0 ? t.budget : -1;
    r->reasoning_format = (int)format == 1 ? API_REASONING_INLINE : format == 2 ? API_REASONING_HIDDEN : API_REASONING_SEPARATE;
    return set_template_args(r, kwargs, &t, preserve, e);
}
