/* Chat prompts; see chat_prompt.h.
 *
 * How message text stays text: wherever a string of the conversation holds the name of a control token, a mark is put behind the
 * first character of that name before rendering. In the rendered text every name without a mark is the template's; the marks are
 * taken out of the plain text between them before it is tokenized. The mark is U+FDD0, which Unicode reserves for internal use; one
 * that a message brings along is replaced by U+FFFD. */
#include "engine/chat_prompt.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "engine/engine.h"
#include "jinja/chat.h"
#include "tok/tokenizer.h"

static const char mark[] = "\xEF\xB7\x90", replacement[] = "\xEF\xBF\xBD";
#define MARK_BYTES 3
#define MAX_DEPTH 64 /* of JSON in a conversation */

static int marked_text(const struct tokenizer *t, const char *s, size_t n, struct strbuf *out)
{
    size_t from = 0, at, len;
    uint32_t id, cp;
    while (from < n) {
        bool found = tokenizer_find_control(t, s, n, from, &at, &len, &id);
        size_t end = found ? at : n;
        for (size_t i = from; i < end;) {
            const char *m = memmem(s + i, end - i, mark, MARK_BYTES);
            size_t stop = m ? (size_t)(m - s) : end;
            strbuf_append(out, s + i, stop - i);
            if (m)
                strbuf_append(out, replacement, MARK_BYTES);
            i = m ? stop + MARK_BYTES : end;
        }
        if (!found)
            break;
        int first = utf8_decode(s + at, len, &cp);
        first = first ? first : 1;
        strbuf_append(out, s + at, (size_t)first);
        strbuf_append(out, mark, MARK_BYTES);
        strbuf_append(out, s + at + first, len - (size_t)first);
        from = at + len;
    }
    return strbuf_failed(out) ? SKUA_ENOMEM : 0;
}

static bool deeper_than(const json_t *v, int depth)
{
    const char *key;
    json_t *x;
    size_t i;
    if (depth < 0)
        return true;
    json_array_foreach(v, i, x)
        if (deeper_than(x, depth - 1))
            return true;
    json_object_foreach((json_t *)(uintptr_t)v, key, x)
        if (deeper_than(x, depth - 1))
            return true;
    return false;
}

/* A copy of a JSON value with marks in all strings that need them, keys too: templates print those of tool calls. */
static json_t *marked_copy(const struct tokenizer *t, const json_t *v)
{
    if (json_is_string(v)) {
        struct strbuf b = {0};
        json_t *s = marked_text(t, json_string_value(v), json_string_length(v), &b) ? NULL : json_stringn_nocheck(strbuf_str(&b), b.len);
        strbuf_free(&b);
        return s;
    }
    if (json_is_array(v)) {
        json_t *a = json_array(), *x;
        size_t i;
        json_array_foreach(v, i, x)
            if (json_array_append_new(a, marked_copy(t, x))) {
                json_decref(a);
                return NULL;
            }
        return a;
    }
    if (json_is_object(v)) {
        json_t *o = json_object(), *x;
        const char *key;
        json_object_foreach((json_t *)(uintptr_t)v, key, x) {
            struct strbuf b = {0};
            int rc = marked_text(t, key, strlen(key), &b);
            rc = rc ? rc : json_object_set_new_nocheck(o, strbuf_str(&b), marked_copy(t, x));
            strbuf_free(&b);
            if (rc) {
                json_decref(o);
                return NULL;
            }
        }
        return o;
    }
    return json_deep_copy(v); /* numbers and literals */
}

void chat_prompt_unmark(const char *text, size_t n, struct strbuf *out)
{
    for (size_t from = 0; from < n;) {
        const char *m = memmem(text + from, n - from, mark, MARK_BYTES);
        size_t stop = m ? (size_t)(m - text) : n;
        strbuf_append(out, text + from, stop - from);
        from = m ? stop + MARK_BYTES : n;
    }
}

/* Rendered text: its control tokens as such, the text between them without marks as text. */
int chat_prompt_encode(const skua_engine *e, const char *s, size_t n, const size_t *borders, size_t n_borders, int32_t *marks,
                       struct token_vec *ids, skua_error *err)
{
    const struct tokenizer *t = e->tokenizer;
    struct strbuf plain = {0};
    int rc = 0;
    if (tokenizer_adds_bos(t) && token_vec_push(ids, (uint32_t)tokenizer_bos(t)))
        rc = error_nomem(err, "prompt tokens", sizeof *ids->ids);
    for (size_t from = 0, done = 0; (from < n || done < n_borders) && !rc;) {
        size_t at = n, len = 0;
        uint32_t id = 0;
        bool found = tokenizer_find_control(t, s, n, from, &at, &len, &id);
        size_t end = found ? at : n;
        for (; done < n_borders && borders[done] < end; done++)
            marks[done] = (int32_t)ids->n;
        strbuf_clear(&plain);
        chat_prompt_unmark(s + from, end - from, &plain);
        rc = strbuf_failed(&plain) ? error_nomem(err, "prompt", n)
                                   : tokenizer_encode_part(t, strbuf_str(&plain), plain.len, false, ids, err);
        for (; done < n_borders && borders[done] <= end; done++)
            marks[done] = (int32_t)ids->n;
        if (!rc && found && token_vec_push(ids, id))
            rc = error_nomem(err, "prompt tokens", ids->n * sizeof *ids->ids);
        from = end + len;
    }
    strbuf_free(&plain);
    return rc;
}

static const char open[] = "<think>", close[] = "</think>";

/* Is the last <think> of the text after its last </think>? Only what follows the last other control token counts: that is the
   template's own text, while tags before it may be a message's. */
static bool ends_in_thinking(const struct tokenizer *t, const char *s, size_t n)
{
    size_t from = 0, at, len;
    uint32_t id;
    for (size_t next = 0; tokenizer_find_control(t, s, n, next, &at, &len, &id); next = at + len)
        if (!(len == sizeof open - 1 && !memcmp(s + at, open, len)) && !(len == sizeof close - 1 && !memcmp(s + at, close, len)))
            from = at + len;
    for (size_t i = n; i-- > from;) {
        if (n - i >= sizeof close - 1 && memcmp(s + i, close, sizeof close - 1) == 0)
            return false;
        if (n - i >= sizeof open - 1 && memcmp(s + i, open, sizeof open - 1) == 0)
            return true;
    }
    return false;
}

/* The compiled template, made on first use. */
static int chat_template(skua_engine *e, skua_error *err)
{
    if (e->chat_template)
        return 0;
    skua_engine_info info = skua_engine_get_info(e);
    if (!info.chat_template)
        return error_set(err, SKUA_ETEMPLATE, "%s: the file has no chat template (key 'tokenizer.chat_template'); raw prompts work",
                         e->path);
    return jinja_compile(info.chat_template, info.chat_template_len, NULL, &e->chat_template, err);
}

static const char *token_text(const struct tokenizer *t, int32_t id, struct strbuf *b)
{
    size_t n;
    if (id < 0)
        return NULL;
    const char *p = tokenizer_piece(t, (uint32_t)id, true, &n);
    strbuf_append(b, p, n);
    return strbuf_str(b);
}

const struct tokenizer *chat_prompt_tokenizer(const skua_engine *e)
{
    return e->tokenizer;
}

json_t *chat_prompt_marked(const skua_engine *e, const json_t *v)
{
    return marked_copy(e->tokenizer, v);
}

bool chat_prompt_opens_thinking(const skua_engine *e, const char *text, size_t n)
{
    return ends_in_thinking(e->tokenizer, text, n);
}

int chat_prompt_render(skua_engine *e, const json_t *messages, const json_t *tools, const json_t *extra, bool add_generation_prompt,
                       struct strbuf *text, skua_error *err)
{
    const struct tokenizer *t = e->tokenizer;
    struct strbuf bos = {0}, eos = {0};
    int rc = chat_template(e, err);
    if (!rc) {
        const char *bos_text = token_text(t, tokenizer_bos(t), &bos), *eos_text = token_text(t, tokenizer_eos(t), &eos);
        if (strbuf_failed(&bos) || strbuf_failed(&eos))
            rc = error_nomem(err, "conversation", 0);
        else
            rc = chat_render(e->chat_template, messages, tools, add_generation_prompt, extra, bos_text, eos_text, text, err);
    }
    strbuf_free(&bos);
    strbuf_free(&eos);
    return rc;
}

int chat_prompt_build(skua_engine *e, const json_t *messages, const json_t *tools, const json_t *extra, struct chat_prompt *out,
                      skua_error *err)
{
    json_t *parsed = chat_parse_arguments(messages); /* before marking: inside JSON text a name may hide behind escapes */
    json_t *safe = NULL, *safe_tools = NULL;
    int rc = chat_template(e, err);
    bool too_deep = (parsed && deeper_than(parsed, MAX_DEPTH)) || (tools && deeper_than(tools, MAX_DEPTH));
    if (!rc && too_deep)
        rc = error_set(err, SKUA_ELIMIT, "the conversation is nested deeper than %d levels of JSON", MAX_DEPTH);
    if (!rc) {
        safe = parsed ? chat_prompt_marked(e, parsed) : NULL;
        safe_tools = tools ? chat_prompt_marked(e, tools) : NULL;
        if (!safe || (tools && !safe_tools))
            rc = error_nomem(err, "conversation", 0);
    }
    if (!rc)
        rc = chat_prompt_render(e, safe, safe_tools, extra, true, &out->text, err);
    if (!rc)
        rc = chat_prompt_encode(e, strbuf_str(&out->text), out->text.len, NULL, 0, NULL, &out->ids, err);
    out->opens_thinking = chat_prompt_opens_thinking(e, strbuf_str(&out->text), out->text.len);
    json_decref(parsed);
    json_decref(safe);
    json_decref(safe_tools);
    return rc;
}

void chat_prompt_free(struct chat_prompt *p)
{
    strbuf_free(&p->text);
    token_vec_free(&p->ids);
}

int chat_template_uses(skua_engine *e, const char *variable, bool *uses, skua_error *err)
{
    int rc = chat_template(e, err);
    *uses = !rc && jinja_uses_variable(e->chat_template, variable);
    return rc;
}
