/* Are the native renderer and a template of one mind? See style.h: conversations are made of a seed, so that a failure can be repeated. */
#include <stdio.h>
#include <string.h>

#include "api/style.h"
#include "base/json.h"
#include "base/rng.h"

static const char *const texts[] = {
    "Hi", "", "  two\n lines \n", "\xC3\xBC\xE2\x80\xA8\xF0\x9F\x98\x80 \"q\" <b> & \\n", "<think>\nx\n</think>\n\ny",
        "a</think>b</think>\n\n c",
    "<tool_response>\nr\n</tool_response>", "\xC2\xA0 wide \xE3\x80\x80", "{{ x }} {% y %}", "<tool_call>\n<function=f>",
        "<think>open", "\n",
};
static const char *const arguments[] = {
    "{}", "{\"k\":\"v\"}", "{\"s\":\"line\\n  two\",\"i\":-3,\"f\":1.5,\"e\":1e-7,\"b\":true,\"n\":null}",
    "{\"l\":[1,\"\\u00e9\\t\",{}],\"o\":{\"a\":{\"b\":[]}},\"z\":1e22,\"w\":0.1}", "{\"\":\"\",\"x\":false}",
};
static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"\\u00fc \\\"q\\\" </tools>\","
        "\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"k\":{\"type\":[\"string\",\"null\"],\"default\":1.0}},\"required\":[\"k\"]}}},{\"name\":\"bare\",\"n\":[]}]";

#define COUNT(a) (sizeof(a) / sizeof *(a))

static size_t pick(uint64_t *seed, size_t n) { return (size_t)(rng_next(seed) % n); }

static json_t *make_calls(uint64_t *seed, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_error_t at;
        bool no_memory;
        const char *text = arguments[pick(seed, COUNT(arguments))];
        json_t *value = json_read(text, strlen(text), 0, &at, &no_memory);
        if (!value || json_array_append_new(list, json_pack("{s:s, s:{s:s, s:o}}", "type", "function", "function", "name",
                                                            i ? "bare" : "f", "arguments", value))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* A conversation of up to 8 messages, mostly in an order that templates accept. NULL: out of memory. */
static json_t *make_messages(uint64_t *seed)
{
    static const char *const roles[] = {"user", "assistant", "tool", "system"};
    json_t *list = json_array();
    size_t n = 1 + pick(seed, 8);
    bool ok = list != NULL;
    for (size_t i = 0; i < n && ok; i++) {
        size_t role = i == 0 ? (pick(seed, 3) ? 0 : pick(seed, 4)) : pick(seed, pick(seed, 12) ? 3 : 4);
        json_t *m = json_pack("{s:s, s:s}", "role", roles[role], "content", texts[pick(seed, COUNT(texts))]);
        ok = json_array_append_new(list, m) == 0;
        if (ok && role == 1 && pick(seed, 2))
            ok = json_object_set_new(m, "reasoning_content", json_string(texts[pick(seed, COUNT(texts))])) == 0;
        if (ok && role == 1 && pick(seed, 2))
            ok = json_object_set_new(m, "tool_calls", make_calls(seed, 1 + pick(seed, 3))) == 0;
    }
    if (!ok) {
        json_decref(list);
        return NULL;
    }
    return list;
}

static json_t *make_args(const struct chat_style *s, uint64_t *seed)
{
    json_t *o = json_object();
    size_t enable = pick(seed, 3), preserve = pick(seed, 3), effort = pick(seed, STYLE_EFFORTS + 1);
    int failed = 0;
    if (enable < 2)
        failed |= json_object_set_new(o, "enable_thinking", json_boolean(enable));
    if (preserve < 1 || (preserve == 1 && s->history[1] == STYLE_KEPT)) /* keeping goes beyond some templates */
        failed |= json_object_set_new(o, "preserve_thinking", json_boolean(preserve));
    if (effort < STYLE_EFFORTS && s->effort[effort].known)
        failed |= json_object_set_new(o, "reasoning_effort", json_string(style_effort_names[effort]));
    if (failed) {
        json_decref(o);
        return NULL;
    }
    return o;
}

/* Where two texts part, for people. */
static void tell(const json_t *messages, const struct strbuf *native, const struct strbuf *text, skua_error *err)
{
    size_t i = 0;
    while (i < native->len && i < text->len && native->data[i] == text->data[i])
        i++;
    char *dump = json_dumps(messages, JSON_COMPACT);
    error_set(err, SKUA_ETEMPLATE, "at byte %zu of %.120s: \"%.40s\" by the template, \"%.40s\" by the native renderer", i,
              dump ? dump : "a conversation", strbuf_str(text) + i, strbuf_str(native) + i);
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    if (dump)
        release(dump);
}

static int compare(const struct chat_style *s, style_template_fn *render, void *user, const json_t *messages, const json_t *tools,
                   const json_t *args, bool generation, skua_error *err)
{
    struct strbuf native = {0}, text = {0};
    struct chat_borders borders = {0};
    skua_error ignored;
    int rc = render(user, messages, tools, args, generation, &text, &ignored);
    if (rc == SKUA_ETEMPLATE) { /* what it refuses has no other form */
        rc = 0;
    } else if (rc || chat_style_render(s, messages, tools, args, generation, false, &borders, &native, err)) {
        rc = error_nomem(err, "chat template's style", 0);
    } else if (native.len != text.len || memcmp(strbuf_str(&native), strbuf_str(&text), text.len)) {
        tell(messages, &native, &text, err);
        rc = SKUA_ETEMPLATE;
    }
    strbuf_free(&native);
    strbuf_free(&text);
    return rc;
}

int chat_style_check(const struct chat_style *s, style_template_fn *render, void *user, uint64_t seed, int n, skua_error *err)
{
    json_error_t at;
    bool no_memory;
    json_t *tools = json_read(tools_text, sizeof tools_text - 1, 0, &at, &no_memory);
    int rc = tools ? 0 : error_nomem(err, "chat template's style", 0);
    for (int i = 0; i < n && !rc; i++) {
        json_t *messages = make_messages(&seed), *args = make_args(s, &seed);
        bool with_tools = pick(&seed, 3) == 0, generation = pick(&seed, 2);
        rc = messages && args ? compare(s, render, user, messages, with_tools ? tools : NULL, args, generation, err)
                              : error_nomem(err, "chat template's style", 0);
        json_decref(messages);
        json_decref(args);
    }
    json_decref(tools);
    return rc;
}
