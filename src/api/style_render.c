/* The native renderer; see style.h. Layout: spec/qwen35.md 7. */
#include <stdint.h>
#include <string.h>

#include "api/style.h"
#include "jinja/eval.h"
#include "jinja/text.h"

static const char turn[] = "<|im_start|>", turn_end[] = "<|im_end|>\n";

struct renderer {
    const struct chat_style *style;
    const json_t *messages;
    size_t n;
    size_t last_question;       /* n: none */
    int enable, preserve;       /* -1: not given */
    bool continue_final;
    struct strbuf *out;
};

static struct str value_str(const json_t *v)
{
    return json_is_string(v) ? (struct str){json_string_value(v), json_string_length(v)} : STR("");
}

static struct str trimmed(struct str s) { return text_strip(s, NULL, true, true); }
static void put(struct renderer *r, struct str s) { strbuf_append(r->out, s.s, s.n); }
static void puts_(struct renderer *r, const char *s) { strbuf_puts(r->out, s); }

static bool role_is(const json_t *message, const char *role)
{
    return str_is(value_str(json_object_get(message, "role")), role);
}

static struct str content_of(const json_t *message) { return trimmed(value_str(json_object_get(message, "content"))); }

/* ---- JSON as Python's json.dumps(ensure_ascii=False) writes it ---- */

static void json_text(struct strbuf *b, const char *s, size_t n)
{
    strbuf_putc(b, '"');
    for (size_t i = 0; i < n; i++) {
        static const char plain[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
        const char *p = s[i] ? strchr(plain, s[i]) : NULL;
        if (p)
            strbuf_append(b, (char[]){'\\', letters[p - plain]}, 2);
        else if ((unsigned char)s[i] < 0x20)
            strbuf_printf(b, "\\u%04x", s[i]);
        else
            strbuf_putc(b, s[i]);
    }
    strbuf_putc(b, '"');
}

static void json_dump(struct strbuf *b, const json_t *v)
{
    char number[40];
    const char *key;
    json_t *x;
    size_t i, n = 0;
    switch (json_typeof(v)) {
    case JSON_STRING: json_text(b, json_string_value(v), json_string_length(v)); return;
    case JSON_INTEGER: strbuf_printf(b, "%" JSON_INTEGER_FORMAT, json_integer_value(v)); return;
    case JSON_REAL:
        float_repr(json_real_value(v), number);
        strbuf_puts(b, number);
        return;
    case JSON_TRUE: strbuf_puts(b, "true"); return;
    case JSON_FALSE: strbuf_puts(b, "false"); return;
    case JSON_NULL: strbuf_puts(b, "null"); return;
    case JSON_ARRAY:
        strbuf_putc(b, '[');
        json_array_foreach(v, i, x) {
            strbuf_puts(b, i ? ", " : "");
            json_dump(b, x);
        }
        strbuf_putc(b, ']');
        return;
    case JSON_OBJECT:
        strbuf_putc(b, '{');
        json_object_foreach((json_t *)(uintptr_t)v, key, x) {
            strbuf_puts(b, n++ ? ", " : "");
            json_text(b, key, strlen(key));
            strbuf_puts(b, ": ");
            json_dump(b, x);
        }
        strbuf_putc(b, '}');
        return;
    }
}

/* ---- parts of a conversation ---- */

static bool is_tool_response(struct str s)
{
    struct str open = STR("<tool_response>"), close = STR("</tool_response>");
    return s.n >= open.n && s.n >= close.n && !memcmp(s.s, open.s, open.n) && !memcmp(s.s + s.n - close.n, close.s, close.n);
}

static size_t find_last_question(const struct renderer *r)
{
    for (size_t i = r->n; i-- > 0;) {
        const json_t *m = json_array_get(r->messages, i);
        if (role_is(m, "user") && !(r->style->response_users && is_tool_response(content_of(m))))
            return i;
    }
    return r->n;
}

/* The sentence on effort that the system turn begins with, "" if none. */
static const char *effort_text(const struct renderer *r, const json_t *args)
{
    const struct chat_style *s = r->style;
    const json_t *effort = json_object_get(args, "reasoning_effort");
    size_t i = effort ? 0 : STYLE_EFFORTS;
    if (!s->efforts || r->enable == 0)
        return "";
    while (i < STYLE_EFFORTS && !str_is(value_str(effort), style_effort_names[i]))
        i++;
    return s->effort[i].text;
}

/* The system turn: effort, tools, the first message if it is a system message. Returns the number of messages used. */
static size_t put_head(struct renderer *r, const json_t *tools, const json_t *args)
{
    const json_t *first = json_array_get(r->messages, 0), *tool;
    bool has_system = role_is(first, "system");
    struct str system = has_system ? content_of(first) : STR("");
    const char *effort = effort_text(r, args);
    size_t i;
    if (!json_array_size(tools) && !*effort && !system.n && !(has_system && r->style->empty_system))
        return has_system;
    puts_(r, turn);
    puts_(r, "system\n");
    puts_(r, effort);
    if (json_array_size(tools)) {
        puts_(r, *effort ? "\n\n" : "");
        puts_(r, r->style->head);
        json_array_foreach(tools, i, tool) {
            puts_(r, "\n");
            json_dump(r->out, tool);
        }
        puts_(r, r->style->rules);
        puts_(r, system.n ? "\n\n" : "");
    } else {
        puts_(r, *effort && system.n ? "\n\n" : "");
    }
    put(r, system);
    puts_(r, turn_end);
    return has_system;
}

static void put_value(struct renderer *r, const json_t *v)
{
    bool python = r->style->python_values;
    if (json_is_string(v))
        put(r, value_str(v));
    else if (python && json_is_boolean(v))
        puts_(r, json_is_true(v) ? "True" : "False");
    else if (python && json_is_null(v))
        puts_(r, "None");
    else
        json_dump(r->out, v);
}

static void put_call(struct renderer *r, const json_t *call)
{
    const json_t *function = json_object_get(call, "function"), *sampled = json_object_get(call, "sampled");
    const json_t *arguments = json_object_get(function, "arguments");
    const char *key;
    json_t *value;
    if (sampled) {
        put(r, value_str(sampled));
        return;
    }
    puts_(r, "<tool_call>\n<function=");
    put(r, value_str(json_object_get(function, "name")));
    puts_(r, ">\n");
    json_object_foreach((json_t *)(uintptr_t)arguments, key, value) {
        strbuf_printf(r->out, "<parameter=%s>\n", key);
        put_value(r, value);
        puts_(r, "\n</parameter>\n");
    }
    if (arguments && !json_is_object(arguments)) { /* what could not be read as an object is shown as it came */
        put_value(r, arguments);
        puts_(r, "\n");
    }
    puts_(r, "</function>\n</tool_call>");
}

/* Thinking and text of an assistant's message. */
static void split_thinking(const struct renderer *r, const json_t *message, struct str *thinking, struct str *text)
{
    const json_t *given = json_object_get(message, "reasoning_content");
    struct str open = STR("<think>"), close = STR("</think>"), newline = STR("\n");
    *thinking = trimmed(value_str(given));
    *text = content_of(message);
    if (json_is_string(given) || !r->style->inline_tags)
        return;
    size_t end = text_find(*text, close, 0);
    if (end == SIZE_MAX)
        return;
    *thinking = (struct str){text->s, end};
    size_t begin = text_rfind(*thinking, open);
    if (begin != SIZE_MAX)
        *thinking = (struct str){text->s + begin + open.n, end - begin - open.n};
    *thinking = trimmed(*thinking);
    size_t last = text_rfind(*text, close) + close.n;
    *text = (struct str){text->s + last, text->n - last};
    *text = r->style->inline_trim ? trimmed(*text) : text_strip(*text, &newline, true, false);
}

static void put_assistant(struct renderer *r, size_t index, const json_t *message)
{
    const struct chat_style *s = r->style;
    const json_t *calls = json_object_get(message, "tool_calls"), *call;
    bool open = r->continue_final && index + 1 == r->n;
    bool current = r->last_question == r->n || index > r->last_question;
    enum style_history history = current ? STYLE_KEPT : s->history[r->preserve < 0 ? 2 : r->preserve];
    struct str thinking, text;
    size_t i;
    if (r->preserve > 0)
        history = STYLE_KEPT; /* also where the template does not know how to */
    split_thinking(r, message, &thinking, &text);
    puts_(r, turn);
    puts_(r, "assistant\n");
    if (history != STYLE_DROPPED)
        puts_(r, "<think>\n");
    if (history == STYLE_KEPT)
        put(r, thinking);
    if (open && thinking.n && !text.n && !json_array_size(calls))
        return; /* thinking itself goes on */
    if (history != STYLE_DROPPED)
        puts_(r, "\n</think>\n\n");
    if (open && !json_array_size(calls)) { /* what goes on keeps its white space */
        struct str whole = value_str(json_object_get(message, "content"));
        put(r, (struct str){text.s, text.n ? (size_t)(whole.s + whole.n - text.s) : 0});
        return;
    }
    put(r, text);
    json_array_foreach(calls, i, call) {
        puts_(r, i ? "\n" : text.n ? s->call_gap : "");
        put_call(r, call);
    }
    puts_(r, open ? "" : turn_end);
}

static void put_tool(struct renderer *r, size_t index, const json_t *message)
{
    const json_t *before = index ? json_array_get(r->messages, index - 1) : NULL, *after = json_array_get(r->messages, index + 1);
    if (!role_is(before, "tool") && !(index == 0 && r->style->first_tool_bare)) {
        puts_(r, turn);
        puts_(r, "user");
    }
    puts_(r, "\n<tool_response>\n");
    put(r, content_of(message));
    puts_(r, "\n</tool_response>");
    if (!role_is(after, "tool"))
        puts_(r, turn_end);
}

static void put_message(struct renderer *r, size_t index, const json_t *message)
{
    if (role_is(message, "assistant")) {
        put_assistant(r, index, message);
    } else if (role_is(message, "tool")) {
        put_tool(r, index, message);
    } else {
        puts_(r, turn);
        puts_(r, role_is(message, "system") ? "system\n" : "user\n");
        put(r, content_of(message));
        puts_(r, turn_end);
    }
}

static int switch_of(const json_t *args, const char *key)
{
    const json_t *v = json_object_get(args, key);
    return json_is_boolean(v) ? json_is_true(v) : -1;
}

int chat_style_render(const struct chat_style *s, const json_t *messages, const json_t *tools, const json_t *args, bool generation,
                      bool continue_final, struct chat_borders *borders, struct strbuf *out, skua_error *err)
{
    struct renderer r = {.style = s, .messages = messages, .n = json_array_size(messages), .enable = switch_of(args, "enable_thinking"),
                         .preserve = switch_of(args, "preserve_thinking"), .continue_final = continue_final, .out = out};
    size_t begin = out->len, used;
    r.last_question = find_last_question(&r);
    used = put_head(&r, tools, args);
    borders->system_end = out->len - begin;
    borders->question = SIZE_MAX;
    for (size_t i = 0; i < r.n; i++) {
        if (i == r.last_question)
            borders->question = out->len - begin;
        if (i >= used)
            put_message(&r, i, json_array_get(messages, i));
        if (borders->message_ends)
            borders->message_ends[i] = out->len - begin;
    }
    borders->end = out->len - begin;
    if (generation && !continue_final) {
        puts_(&r, "<|im_start|>assistant\n");
        puts_(&r, s->generation[r.enable < 0 ? 2 : r.enable]);
    }
    return strbuf_failed(out) ? error_nomem(err, "prompt", out->len) : 0;
}
