/* A conversation to its prompt: text, tokens, and where checkpoints are worth it; spec/api.md 5.8, 5.9. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/common.h"
#include "api/template.h"
#include "base/json.h"
#include "base/mem.h"
#include "engine/chat_prompt.h"

#define RECENT_MESSAGES 8 /* whose ends are worth a checkpoint */

struct builder {
    const struct api_env *env;
    const struct api_template *chat;
    struct api_request *r;
    json_t *messages, *tools, *args; /* marked; owned */
    struct chat_borders borders;
    bool has_borders;                /* all of them; else only borders.end */
    struct strbuf text;
    skua_error err;
};

static int fail(struct builder *b, int rc, struct api_error *e)
{
    b->err.code = rc;
    api_error_from(&b->err, e);
    if (e->status == 400)
        snprintf(e->param, sizeof e->param, "messages");
    return -1;
}

/* A template that takes thinking only as such would show the tags of an answer that begins with them. */
static int lift_thinking(json_t *message, struct api_error *e)
{
    const json_t *content = json_object_get(message, "content");
    const char *s = json_string_value(content), *close;
    if (!api_is(json_object_get(message, "role"), "assistant") || json_object_get(message, "reasoning_content") || !s)
        return 0;
    size_t n = json_string_length(content), skip = strspn(s, " \t\r\n");
    if (strncmp(s + skip, "<think>", 7) != 0 || !(close = memmem(s + skip, n - skip, "</think>", 8)))
        return 0;
    json_t *thinking = json_stringn_nocheck(s + skip + 7, (size_t)(close - s) - skip - 7);
    json_t *text = json_stringn_nocheck(close + 8, n - (size_t)(close + 8 - s));
    int failed = json_object_set_new(message, "reasoning_content", thinking);
    failed |= json_object_set_new(message, "content", text);
    return failed ? api_fail_nomem(e) : 0;
}

/* Calls that the server sampled itself are written as they were sampled. */
static int recall(const struct builder *b, struct replay *replay, struct api_error *e)
{
    size_t i, k;
    json_t *message, *call;
    struct strbuf text = {0};
    int rc = 0;
    json_array_foreach(b->r->messages, i, message)
        json_array_foreach(json_object_get(message, "tool_calls"), k, call) {
            const json_t *function = json_object_get(call, "function");
            const char *id = json_string_value(json_object_get(call, "id")), *name = json_string_value(json_object_get(function, "name"));
            strbuf_clear(&text);
            if (rc || !id)
                continue;
            if (!replay_find(replay, id, name, json_object_get(function, "arguments"), &text)) {
                rc = strbuf_failed(&text) ? api_fail_nomem(e) : 0;
                continue;
            }
            json_t *plain = json_stringn_nocheck(strbuf_str(&text), text.len);
            json_t *marked = plain && !strbuf_failed(&text) ? chat_prompt_marked(b->env->engine, plain) : NULL;
            json_t *owner = json_array_get(json_object_get(json_array_get(b->messages, i), "tool_calls"), k);
            rc = json_object_set_new(owner, "sampled", marked) ? api_fail_nomem(e) : 0;
            json_decref(plain);
        }
    strbuf_free(&text);
    return rc;
}

/* The template's variables without an effort that it does not know. */
static int make_args(struct builder *b, struct api_error *e)
{
    b->args = b->r->template_args ? json_copy_whole(b->r->template_args) : json_object();
    if (!b->args)
        return api_fail_nomem(e);
    const json_t *effort = json_object_get(b->args, "reasoning_effort");
    bool known = !effort || !b->chat->has_style;
    for (int i = 0; i < STYLE_EFFORTS && !known; i++)
        known = b->chat->style.effort[i].known && api_is(effort, style_effort_names[i]);
    if (!known)
        json_object_del(b->args, "reasoning_effort");
    return 0;
}

static int render_natively(struct builder *b)
{
    size_t n = json_array_size(b->messages);
    strbuf_clear(&b->text);
    if (!b->borders.message_ends && !(b->borders.message_ends = mem_calloc(n + 1, sizeof(size_t))))
        return error_nomem(&b->err, "prompt", n * sizeof(size_t));
    b->has_borders = true;
    return chat_style_render(&b->chat->style, b->messages, b->tools, b->args, !b->r->no_generation_prompt, b->r->continue_final,
                             &b->borders, &b->text, &b->err);
}

/* Take off what a template writes behind the text of the last message. */
static void cut_behind_last(struct builder *b)
{
    const json_t *content = json_object_get(json_array_get(b->messages, json_array_size(b->messages) - 1), "content");
    const char *s = json_string_value(content), *at = NULL;
    size_t n = json_string_length(content);
    while (n && strchr(" \t\r\n", s[n - 1]))
        n--;
    for (size_t i = b->text.len >= n ? b->text.len - n + 1 : 0; n && i-- > 0 && !at;)
        at = memcmp(b->text.data + i, s, n) == 0 ? b->text.data + i : NULL;
    if (at) {
        b->text.len = (size_t)(at - b->text.data) + n;
        b->text.data[b->text.len] = '\0';
    }
}

static int render_by_template(struct builder *b)
{
    skua_engine *e = b->env->engine;
    struct strbuf all = {0};
    strbuf_clear(&b->text);
    int rc = chat_prompt_render(e, b->messages, b->tools, b->args, false, &b->text, &b->err);
    b->borders.end = b->text.len;
    if (!rc && b->r->continue_final)
        cut_behind_last(b);
    else if (!rc && !b->r->no_generation_prompt)
        rc = chat_prompt_render(e, b->messages, b->tools, b->args, true, &all, &b->err);
    if (!rc && all.len) {
        if (all.len < b->text.len || memcmp(all.data, strbuf_str(&b->text), b->text.len) != 0)
            b->borders.end = 0;
        strbuf_free(&b->text);
        b->text = all;
        return 0;
    }
    strbuf_free(&all);
    return rc;
}

static int render(struct builder *b, struct api_error *e)
{
    const struct api_template *chat = b->chat;
    const struct api_request *r = b->r;
    bool keep = json_is_true(json_object_get(b->args, "preserve_thinking")) && chat->style.history[1] != STYLE_KEPT;
    int rc = SKUA_ETEMPLATE;
    if (!chat->has_style || !(chat->native || keep || r->continue_final))
        rc = render_by_template(b);
    if (rc == SKUA_ETEMPLATE && chat->has_style)
        rc = render_natively(b);
    return rc ? fail(b, rc, e) : 0;
}

static bool last_is_empty_answer(const struct api_request *r)
{
    const json_t *m = json_array_get(r->messages, json_array_size(r->messages) - 1);
    return json_string_length(json_object_get(m, "content")) == 0 && json_string_length(json_object_get(m, "reasoning_content")) == 0 &&
           !json_object_get(m, "tool_calls");
}

/* Everything up to the text. */
static int build_text(struct builder *b, struct replay *replay, struct api_error *e)
{
    struct api_request *r = b->r;
    size_t i;
    json_t *message;
    if (!b->chat)
        return api_error_set(e, 400, "unsupported_value", "messages",
                             "messages: this model has no chat template; /v1/completions takes its prompts");
    if (json_array_size(r->messages) == 0)
        return api_fail_missing(e, API_KEY(NULL, "messages"), "at least one message");
    if (b->chat->has_style && !b->chat->style.inline_tags)
        json_array_foreach(r->messages, i, message)
            if (lift_thinking(message, e))
                return -1;
    message = json_array_get(r->messages, json_array_size(r->messages) - 1);
    if (r->continue_final && api_is(json_object_get(message, "role"), "assistant") && last_is_empty_answer(r)) {
        json_array_remove(r->messages, json_array_size(r->messages) - 1); /* nothing to go on from: an answer like any other */
        r->continue_final = false;
        if (json_array_size(r->messages) == 0)
            return api_fail_missing(e, API_KEY(NULL, "messages"), "at least one message with content");
    }
    b->messages = chat_prompt_marked(b->env->engine, r->messages);
    b->tools = r->template_tools ? chat_prompt_marked(b->env->engine, r->template_tools) : NULL;
    if (!b->messages || (r->template_tools && !b->tools))
        return api_fail_nomem(e);
    return make_args(b, e) || (replay && recall(b, replay, e)) || render(b, e) ? -1 : 0;
}

/* ---- checkpoints ---- */

static int by_size(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

/* Offsets worth a checkpoint, rising and different; out has room for all. */
static size_t choose_borders(const struct builder *b, size_t *out)
{
    const struct chat_borders *p = &b->borders;
    size_t n = 0, k = 0, n_messages = json_array_size(b->messages);
    size_t end = p->end && p->end < b->text.len ? p->end : b->text.len;
    out[n++] = end;
    for (size_t i = 0; i < n_messages && b->has_borders; i++) {
        const json_t *m = json_array_get(b->messages, i);
        if (i + RECENT_MESSAGES >= n_messages || json_object_get(m, "cache_hint") || p->message_ends[i] == p->system_end)
            out[n++] = p->message_ends[i];
        if (i + 1 < n_messages && p->message_ends[i] == p->question)
            out[n++] = p->message_ends[i + 1]; /* behind the last question: what follows changes when the next one comes */
    }
    if (b->has_borders) {
        out[n++] = p->system_end;
        out[n++] = p->question <= end ? p->question : end;
    }
    qsort(out, n, sizeof *out, by_size);
    for (size_t i = 0; i < n; i++)
        if (out[i] && out[i] <= end && (k == 0 || out[i] > out[k - 1]))
            out[k++] = out[i];
    return k;
}

static int encode(struct builder *b, struct api_prompt *p, struct api_error *e)
{
    struct token_vec ids = {0};
    size_t room = 2 * json_array_size(b->messages) + 4;
    size_t *borders = mem_calloc(room, sizeof *borders);
    p->marks = mem_calloc(room, sizeof *p->marks);
    if (!borders || !p->marks) {
        mem_free(borders);
        return api_fail_nomem(e);
    }
    size_t n = choose_borders(b, borders);
    int rc = chat_prompt_encode(b->env->engine, strbuf_str(&b->text), b->text.len, borders, n, p->marks, &ids, &b->err);
    mem_free(borders);
    p->ids = (int32_t *)ids.ids; /* ids are below 2^31: signed and unsigned ones have the same bits */
    p->n = (int32_t)ids.n;
    for (size_t i = 0; i < n && !rc; i++)
        if (p->marks[i] > 0 && p->marks[i] < p->n && (p->n_marks == 0 || p->marks[i] > p->marks[p->n_marks - 1]))
            p->marks[p->n_marks++] = p->marks[i];
    return rc ? fail(b, rc, e) : 0;
}

static void builder_free(struct builder *b)
{
    json_decref(b->messages);
    json_decref(b->tools);
    json_decref(b->args);
    mem_free(b->borders.message_ends);
    strbuf_free(&b->text);
}

static void drop_prompts(struct api_request *r)
{
    for (size_t i = 0; i < r->n_prompts; i++) {
        mem_free(r->prompts[i].ids);
        mem_free(r->prompts[i].marks);
    }
    mem_free(r->prompts);
    r->prompts = NULL;
    r->n_prompts = 0;
}

int api_prompt_check(const struct api_env *env, const struct api_request *r, const struct api_prompt *p, struct api_error *e)
{
    int32_t room = r->max_tokens == 0 ? env->n_ctx : env->n_ctx - 1;
    return p->n > room ? api_error_context(e, r->family, env->n_ctx, p->n, 0) : 0;
}

static int build(const struct api_env *env, struct replay *replay, struct api_request *r, struct api_error *e)
{
    struct builder b = {.env = env, .chat = env->chat, .r = r};
    drop_prompts(r);
    int rc = build_text(&b, replay, e);
    if (!rc && !(r->prompts = mem_calloc(1, sizeof *r->prompts)))
        rc = api_fail_nomem(e);
    if (!rc) {
        r->n_prompts = 1;
        r->opens_thinking = chat_prompt_opens_thinking(env->engine, strbuf_str(&b.text), b.text.len);
        r->thinking = r->opens_thinking;
        rc = encode(&b, r->prompts, e);
    }
    if (!rc)
        rc = api_prompt_check(env, r, r->prompts, e);
    builder_free(&b);
    return rc;
}

/* The conversation without its n oldest messages that are no leading system message, nor results of calls that are gone. NULL: memory. */
static json_t *without_oldest(const json_t *messages, size_t n)
{
    size_t first = api_is(json_object_get(json_array_get(messages, 0), "role"), "system"), i;
    json_t *list = json_array(), *m;
    for (n += first; n + 1 < json_array_size(messages) && api_is(json_object_get(json_array_get(messages, n), "role"), "tool"); n++)
        ;
    json_array_foreach(messages, i, m)
        if ((i < first || i >= n) && json_array_append(list, m)) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* Leave out as few of the oldest messages as will do. */
static int build_truncated(const struct api_env *env, struct replay *replay, struct api_request *r, struct api_error *e)
{
    json_t *all = r->messages;
    size_t n = json_array_size(all), low = 1, high = n > 1 ? n - 1 : 0; /* the last message stays */
    high -= high && api_is(json_object_get(json_array_get(all, 0), "role"), "system");
    size_t most = high, chosen = 0;
    int rc = -1;
    while (low <= high && most) {
        size_t middle = low + (high - low) / 2;
        r->messages = without_oldest(all, middle);
        rc = r->messages ? build(env, replay, r, e) : api_fail_nomem(e);
        if (rc && !e->n_ctx)
            break;
        if (rc == 0)
            chosen = middle;
        if (rc == 0)
            high = middle - 1;
        else
            low = middle + 1;
        json_decref(r->messages);
        r->messages = NULL;
    }
    json_decref(r->messages);
    r->messages = all;
    if (!chosen)
        return rc;
    if (!(r->messages = without_oldest(all, chosen)))
        rc = api_fail_nomem(e);
    json_decref(all);
    if (r->messages)
        rc = build(env, replay, r, e);
    if (!rc)
        api_warn(r, "input: the oldest messages were left out (%zu of %zu) to fit the context of %d tokens",
                 n - json_array_size(r->messages), n, (int)env->n_ctx);
    return rc;
}

int api_prompt_build(const struct api_env *env, struct replay *replay, struct api_request *r, struct api_error *e)
{
    int rc = build(env, replay, r, e);
    return rc && e->n_ctx && r->truncate ? build_truncated(env, replay, r, e) : rc;
}

int api_prompt_text(const struct api_env *env, struct replay *replay, struct api_request *r, struct strbuf *out, struct api_error *e)
{
    struct builder b = {.env = env, .chat = env->chat, .r = r};
    int rc = build_text(&b, replay, e);
    if (!rc) {
        chat_prompt_unmark(strbuf_str(&b.text), b.text.len, out);
        rc = strbuf_failed(out) ? api_fail_nomem(e) : 0;
    }
    builder_free(&b);
    return rc;
}
