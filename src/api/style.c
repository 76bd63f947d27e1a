/* Finding a template's style by rendering small conversations with it; see style.h. Each probe shows one thing: its text must be what the
 * family writes, with that thing left open. */
#include "api/style.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

const char *const style_effort_names[STYLE_EFFORTS] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};

#define USER "<|im_start|>user\n"
#define ASSISTANT "<|im_start|>assistant\n"
#define SYSTEM "<|im_start|>system\n"
#define END "<|im_end|>\n"

struct finder {
    style_template_fn *render;
    void *user;
    struct chat_style *style;
    skua_error *err;
    struct strbuf text; /* of the last probe */
};

static int no_memory(struct finder *f) { return error_nomem(f->err, "chat template's style", 0); }

static int foreign(struct finder *f, const char *what)
{
    return error_set(f->err, SKUA_ETEMPLATE, "the chat template writes %s in a way of its own", what);
}

/* Render; 0, or SKUA_ETEMPLATE when the template refuses. */
static int probe(struct finder *f, const char *messages, const char *tools, const char *args, bool generation)
{
    json_error_t at;
    bool failed[3] = {false, false, false};
    json_t *m = json_read(messages, strlen(messages), 0, &at, &failed[0]);
    json_t *t = tools ? json_read(tools, strlen(tools), 0, &at, &failed[1]) : NULL;
    json_t *a = json_read(args, strlen(args), 0, &at, &failed[2]);
    strbuf_clear(&f->text);
    int rc = failed[0] || failed[1] || failed[2] ? no_memory(f) : f->render(f->user, m, t, a, generation, &f->text, f->err);
    json_decref(m);
    json_decref(t);
    json_decref(a);
    return rc;
}

/* The text between a beginning and an end of the last probe's. NULL: it is not of this form, or out of memory (*rc says which). */
static char *between(struct finder *f, const char *begin, const char *end, const char *what, int *rc)
{
    const char *s = strbuf_str(&f->text);
    size_t n = f->text.len, nb = strlen(begin), ne = strlen(end);
    if (n < nb + ne || memcmp(s, begin, nb) || memcmp(s + n - ne, end, ne)) {
        *rc = foreign(f, what);
        return NULL;
    }
    char *p = mem_strndup(s + nb, n - nb - ne);
    if (!p)
        *rc = no_memory(f);
    return p;
}

#define OFF "{\"enable_thinking\":false}"
#define HI "[{\"role\":\"user\",\"content\":\"U\"}]"

static int find_generation(struct finder *f)
{
    static const char *const args[] = {OFF, "{\"enable_thinking\":true}", "{}"};
    int rc = probe(f, HI, NULL, OFF, false);
    if (!rc && strcmp(strbuf_str(&f->text), USER "U" END))
        rc = foreign(f, "a user's message");
    for (int i = 0; i < 3 && !rc; i++) {
        rc = probe(f, HI, NULL, args[i], true);
        const char *p = rc ? NULL : strstr(strbuf_str(&f->text), USER "U" END ASSISTANT);
        if (!rc && !p)
            rc = foreign(f, "the beginning of an answer");
        if (!rc && !(f->style->generation[i] = mem_strdup(p + sizeof USER "U" END ASSISTANT - 1)))
            rc = no_memory(f);
    }
    return rc;
}

static int find_efforts(struct finder *f)
{
    struct chat_style *s = f->style;
    for (int i = 0; i <= STYLE_EFFORTS; i++) {
        char args[64] = "{}";
        if (i < STYLE_EFFORTS)
            snprintf(args, sizeof args, "{\"reasoning_effort\":\"%s\"}", style_effort_names[i]);
        int rc = probe(f, HI, NULL, args, false);
        if (rc && rc != SKUA_ETEMPLATE)
            return rc;
        bool known = s->effort[i].known = rc == 0;
        if (known && strcmp(strbuf_str(&f->text), USER "U" END)) {
            s->effort[i].text = between(f, SYSTEM, END USER "U" END, "its effort", &rc);
            if (rc)
                return rc;
        } else if (!(s->effort[i].text = mem_strdup(""))) {
            return no_memory(f);
        }
        s->efforts |= !known || *s->effort[i].text;
    }
    for (int i = 0; i < STYLE_EFFORTS && !s->efforts; i++)
        s->effort[i].known = false;
    return 0;
}

static int find_tools(struct finder *f)
{
    static const char tool[] = "\n{\"type\": \"function\", \"function\": {\"name\": \"T\"}}";
    int rc = probe(f, HI, "[{\"type\":\"function\",\"function\":{\"name\":\"T\"}}]", OFF, false);
    const char *p = rc ? NULL : strstr(strbuf_str(&f->text), tool);
    if (rc || !p)
        return rc ? rc : foreign(f, "tools");
    char *head = between(f, SYSTEM, p, "tools", &rc);
    f->style->head = head;
    if (!rc) {
        size_t keep = (size_t)(p - strbuf_str(&f->text)) + sizeof tool - 1;
        char *begin = mem_strndup(strbuf_str(&f->text), keep);
        f->style->rules = begin ? between(f, begin, END USER "U" END, "tools", &rc) : NULL;
        rc = rc ? rc : begin ? 0 : no_memory(f);
        mem_free(begin);
    }
    return rc;
}

/* Does the last probe's text equal a, or b? 1, 0, or an error. */
static int which(struct finder *f, const char *a, const char *b, const char *what)
{
    const char *s = strbuf_str(&f->text);
    return !strcmp(s, a) ? 1 : !strcmp(s, b) ? 0 : foreign(f, what);
}

static int find_flags(struct finder *f)
{
    static const char u[] = USER "U" END, result[] = "\n<tool_response>\nX\n</tool_response>" END USER "U" END;
    int yes, rc = probe(f, "[{\"role\":\"system\",\"content\":\"\"},{\"role\":\"user\",\"content\":\"U\"}]", NULL, OFF, false);
    if (rc || (yes = which(f, SYSTEM END USER "U" END, u, "an empty system message")) < 0)
        return rc ? rc : yes;
    f->style->empty_system = yes;
    rc = probe(f, "[{\"role\":\"tool\",\"content\":\"X\"},{\"role\":\"user\",\"content\":\"U\"}]", NULL, OFF, false);
    if (rc == SKUA_ETEMPLATE) /* no such conversation there */
        return 0;
    char turn[100];
    snprintf(turn, sizeof turn, "<|im_start|>user%s", result);
    if (rc || (yes = which(f, result, turn, "a tool's result")) < 0)
        return rc ? rc : yes;
    f->style->first_tool_bare = yes;
    return 0;
}

static int find_inline(struct finder *f)
{
#define INLINE "<think>\nR\n</think>\n\n"
    int trims, rc = probe(f, "[{\"role\":\"user\",\"content\":\"U\"},{\"role\":\"assistant\",\"content\":\"<think>\\nR\\n</think>\\n\\n "
        "A\"}]",
                          NULL, OFF, false);
    if (rc)
        return rc;
    f->style->inline_tags = strcmp(strbuf_str(&f->text), USER "U" END ASSISTANT "<think>\n\n</think>\n\n" INLINE " A" END) != 0;
    if (!f->style->inline_tags)
        return 0;
    trims = which(f, USER "U" END ASSISTANT INLINE "A" END, USER "U" END ASSISTANT INLINE " A" END, "thinking in an answer");
    f->style->inline_trim = trims > 0;
    return trims < 0 ? trims : 0;
}

static int find_history(struct finder *f)
{
    static const char *const args[] = {"{\"enable_thinking\":false,\"preserve_thinking\":false}",
                                       "{\"enable_thinking\":false,\"preserve_thinking\":true}", OFF};
    static const char messages[] = "[{\"role\":\"user\",\"content\":\"U\"},{\"role\":\"assistant\",\"content\":\"A\","
        "\"reasoning_content\":\"R\"},"
                                   "{\"role\":\"user\",\"content\":\"%s\"}]";
    static const char *const forms[] = {[STYLE_DROPPED] = "", [STYLE_EMPTY] = "<think>\n\n</think>\n\n",
                                        [STYLE_KEPT] = "<think>\nR\n</think>\n\n"};
    char text[400], want[400];
    for (int i = 0; i < 4; i++) { /* the last time with a tool's response in a user's clothes */
        const char *last = i < 3 ? "V" : "<tool_response>V</tool_response>";
        int form = 2;
        snprintf(text, sizeof text, messages, last);
        int rc = probe(f, text, NULL, args[i < 3 ? i : 0], false);
        if (rc)
            return rc;
        for (; form >= 0; form--) {
            snprintf(want, sizeof want, USER "U" END ASSISTANT "%sA" END USER "%s" END, forms[form], last);
            if (!strcmp(want, strbuf_str(&f->text)))
                break;
        }
        if (form < 0)
            return foreign(f, "an earlier answer");
        if (i < 3)
            f->style->history[i] = (enum style_history)form;
        else
            f->style->response_users = form == STYLE_KEPT && f->style->history[0] != STYLE_KEPT;
    }
    return 0;
}

static int find_calls(struct finder *f)
{
    static const char messages[] =
        "[{\"role\":\"user\",\"content\":\"U\"},{\"role\":\"assistant\",\"content\":\"A\",\"reasoning_content\":\"R\","
            "\"tool_calls\":[{\"type\":"
        "\"function\",\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":{\"b\":true}}}]}]";
    static const char begin[] = USER "U" END ASSISTANT "<think>\nR\n</think>\n\nA";
    static const char *const ends[] = {"<tool_call>\n<function=f>\n<parameter=b>\ntrue\n</parameter>\n</function>\n</tool_call>" END,
                                       "<tool_call>\n<function=f>\n<parameter=b>\nTrue\n</parameter>\n</function>\n</tool_call>" END};
    int rc = probe(f, messages, NULL, OFF, false);
    if (rc)
        return rc;
    f->style->python_values = strstr(strbuf_str(&f->text), "\nTrue\n") != NULL;
    f->style->call_gap = between(f, begin, ends[f->style->python_values], "a tool call", &rc);
    return rc;
}

int chat_style_find(style_template_fn *render, void *user, struct chat_style *s, skua_error *err)
{
    static int (*const steps[])(struct finder *) = {find_generation, find_efforts, find_tools, find_flags, find_inline, find_history,
        find_calls};
    struct finder f = {.render = render, .user = user, .style = s, .err = err};
    int rc = 0;
    *s = (struct chat_style){0};
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !rc; i++)
        rc = steps[i](&f);
    strbuf_free(&f.text);
    return rc;
}

void chat_style_free(struct chat_style *s)
{
    mem_free(s->head);
    mem_free(s->rules);
    mem_free(s->call_gap);
    for (int i = 0; i < 3; i++)
        mem_free(s->generation[i]);
    for (int i = 0; i <= STYLE_EFFORTS; i++)
        mem_free(s->effort[i].text);
    *s = (struct chat_style){0};
}
