/* The conversation of /v1/messages: spec/api.md 10.1. Content is a string or a list of blocks; what is no text, no thinking, no call and no
 * result is rendered as the text that it holds, or skipped: kinds of blocks are never refused, except images. */
#include <string.h>

#include "api/common.h"
#include "api/json_text.h"
#include "api/message.h"
#include "api/messages.h"
#include "api/seal.h"

/* Text made of blocks: plain ones are joined as they are, whatever else becomes text is a paragraph of its own. */
struct prose {
    struct strbuf text;
    bool apart;                   /* what comes next is a paragraph of its own */
};

struct input {
    const struct api_env *env;
    struct api_request *r;
    struct prose prose;           /* of the message that is being read */
    struct strbuf thinking;
    bool hint;                    /* it has a cache_control */
};

static void put_paragraph(struct strbuf *b, const char *text, size_t n)
{
    if (b->len && n)
        strbuf_puts(b, "\n\n");
    strbuf_append(b, text, n);
}

/* A member of a block that is a string, if it is one. */
static void put_member(struct strbuf *b, const json_t *block, const char *key)
{
    const json_t *s = api_field(block, key);
    put_paragraph(b, json_string_value(s), json_string_length(s));
}

static void prose_clear(struct prose *p)
{
    strbuf_clear(&p->text);
    p->apart = false;
}

static int refuse_image(const struct api_path *at, const char *what, struct api_error *e)
{
    return api_fail(e, "unsupported_value", API_KEY(at, "type"), "\"%s\" is not supported: this model reads text only", what);
}

/* ---- blocks as text ---- */

static int add_blocks(struct prose *p, const struct api_path *at, const json_t *blocks, struct api_error *e);

/* The texts of blocks inside a block. */
static int inner_text(const struct api_path *at, const json_t *blocks, struct strbuf *out, struct api_error *e)
{
    struct prose p = {0};
    int rc = add_blocks(&p, at, blocks, e);
    put_paragraph(out, p.text.data, p.text.len);
    out->failed |= p.text.failed;
    strbuf_free(&p.text);
    return rc;
}

static int document_text(const struct api_path *at, const json_t *block, struct strbuf *out, struct api_error *e)
{
    const struct api_path *source_at = API_KEY(at, "source");
    const json_t *source = api_field(block, "source"), *type = api_field(source, "type");
    put_member(out, block, "title");
    put_member(out, block, "context");
    if (api_is(type, "content"))
        return inner_text(API_KEY(source_at, "content"), api_field(source, "content"), out, e);
    if (!api_is(type, "text") || !json_is_string(api_field(source, "data")))
        return api_fail(e, "unsupported_value", source_at, "expected a document whose source is text: this model reads text only");
    put_member(out, source, "data");
    return 0;
}

/* What a block of another kind than text says. */
static int other_text(const struct api_path *at, const json_t *block, struct strbuf *out, struct api_error *e)
{
    static const char *const members[] = {"title", "source", "url", "stdout", "stderr", "text"};
    const json_t *type = api_field(block, "type");
    if (api_is(type, "image"))
        return refuse_image(at, "image", e);
    if (api_is(type, "document"))
        return document_text(at, block, out, e);
    if (api_is(type, "thinking") || api_is(type, "redacted_thinking"))
        return 0;
    if (api_is(type, "server_tool_use") || api_is(type, "mcp_tool_use")) { /* a call that the provider ran */
        put_member(out, block, "name");
        strbuf_putc(out, ' ');
        api_json_value(out, api_field(block, "input"));
        return 0;
    }
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        put_member(out, block, members[i]);
    return inner_text(API_KEY(at, "content"), api_field(block, "content"), out, e);
}

static int add_block(struct prose *p, const struct api_path *at, const json_t *block, struct api_error *e)
{
    struct strbuf piece = {0};
    if (!json_is_object(block))
        return api_fail_type(e, at, block, "a content block (an object)");
    bool plain = api_is(api_field(block, "type"), "text");
    if (plain)
        put_member(&piece, block, "text");
    int rc = plain ? 0 : other_text(at, block, &piece, e);
    if (piece.len) {
        if (p->apart || !plain)
            put_paragraph(&p->text, piece.data, piece.len);
        else
            strbuf_append(&p->text, piece.data, piece.len);
        p->apart = !plain;
    }
    p->text.failed |= piece.failed;
    strbuf_free(&piece);
    return rc;
}

/* A string, a block or a list of blocks; anything else says nothing. */
static int add_blocks(struct prose *p, const struct api_path *at, const json_t *blocks, struct api_error *e)
{
    size_t i;
    json_t *block;
    if (json_is_string(blocks))
        strbuf_append(&p->text, json_string_value(blocks), json_string_length(blocks));
    if (json_is_object(blocks))
        return add_block(p, at, blocks, e);
    json_array_foreach(blocks, i, block)
        if (add_block(p, API_ITEM(at, i), block, e))
            return -1;
    return 0;
}

/* ---- messages ---- */

static int check_content(const json_t *content, const struct api_path *at, struct api_error *e)
{
    if (content && !json_is_string(content) && !json_is_array(content))
        return api_fail_type(e, at, content, "a string or a list of content blocks");
    return 0;
}

/* Add what was gathered as a message, with its hint. */
static int add_message(struct input *in, const struct api_path *at, const char *role, json_t **message, struct api_error *e)
{
    json_t *m = NULL;
    if (strbuf_failed(&in->prose.text) || strbuf_failed(&in->thinking))
        return api_fail_nomem(e);
    if (api_message_add(in->r, at, role, in->prose.text.data, in->prose.text.len, &m, e) || (in->hint && api_message_hint(m, e)))
        return -1;
    if (message)
        *message = m;
    prose_clear(&in->prose);
    in->hint = false;
    return 0;
}

static bool has_hint(const json_t *block) { return json_is_object(api_field(block, "cache_control")); }

/* A system text: each block is one. */
static int add_system(struct input *in, const struct api_path *at, const json_t *content, struct api_error *e)
{
    size_t i;
    json_t *block;
    if (json_is_string(content)) {
        if (api_is_billing_header(in->env, json_string_value(content), json_string_length(content)))
            return 0;
        strbuf_append(&in->prose.text, json_string_value(content), json_string_length(content));
        return add_message(in, at, "system", NULL, e);
    }
    json_array_foreach(content, i, block) {
        if (add_block(&in->prose, API_ITEM(at, i), block, e))
            return -1;
        if (api_is_billing_header(in->env, strbuf_str(&in->prose.text), in->prose.text.len)) {
            prose_clear(&in->prose);
            continue;
        }
        in->hint = has_hint(block);
        if (add_message(in, at, "system", NULL, e))
            return -1;
    }
    return 0;
}

static int add_result(struct input *in, const struct api_path *at, const json_t *block, struct api_error *e)
{
    const char *id = NULL;
    struct prose p = {0};
    json_t *m;
    if (api_get_string(block, at, "tool_use_id", &id, e) || check_content(api_field(block, "content"), API_KEY(at, "content"), e))
        return -1;
    int rc = add_blocks(&p, API_KEY(at, "content"), api_field(block, "content"), e);
    if (!rc && strbuf_failed(&p.text))
        rc = api_fail_nomem(e);
    if (!rc)
        rc = api_message_tool(in->r, at, id, p.text.data, p.text.len, &m, e);
    if (!rc && has_hint(block))
        rc = api_message_hint(m, e);
    strbuf_free(&p.text);
    return rc;
}

/* Results first, then the text; a system text in between is a turn of its own. */
static int user_blocks(struct input *in, const struct api_path *at, const json_t *blocks, struct api_error *e)
{
    size_t i, before = json_array_size(in->r->messages);
    json_t *block;
    json_array_foreach(blocks, i, block)
        if (api_is(api_field(block, "type"), "tool_result") && add_result(in, API_ITEM(at, i), block, e))
            return -1;
    json_array_foreach(blocks, i, block) {
        const json_t *type = api_field(block, "type");
        if (api_is(type, "tool_result"))
            continue;
        if (api_is(type, "mid_conv_system")) {
            const json_t *content = api_field(block, "content");
            if (in->prose.text.len && add_message(in, at, "user", NULL, e))
                return -1;
            if (add_system(in, API_ITEM(at, i), content ? content : api_field(block, "text"), e))
                return -1;
            continue;
        }
        if (add_block(&in->prose, API_ITEM(at, i), block, e))
            return -1;
        in->hint |= has_hint(block);
    }
    bool nothing_yet = json_array_size(in->r->messages) == before;
    return in->prose.text.len || nothing_yet ? add_message(in, at, "user", NULL, e) : 0;
}

/* Thinking that is left out of a block may be in its signature, if that is ours. */
static void add_thinking(struct input *in, const json_t *block)
{
    const json_t *thinking = api_field(block, "thinking"), *signature = api_field(block, "signature");
    if (json_string_length(thinking))
        put_member(&in->thinking, block, "thinking");
    else if (json_is_string(signature))
        seal_read(json_string_value(signature), json_string_length(signature), &in->thinking);
}

static int add_call(const struct api_path *at, const json_t *block, json_t *message, struct api_error *e)
{
    const char *id = NULL, *name = NULL;
    json_t *input = NULL;
    if (api_get_string(block, at, "id", &id, e) || api_get_string(block, at, "name", &name, e) ||
        api_get_object(block, at, "input", &input, e))
        return -1;
    if (!name)
        return api_fail_missing(e, API_KEY(at, "name"), "the name of the tool (a string)");
    return api_message_call(message, id, name, input, e);
}

/* Texts that calls stand between are paragraphs. */
static int assistant_text(struct input *in, const struct api_path *at, const json_t *blocks, struct api_error *e)
{
    size_t i;
    json_t *block;
    json_array_foreach(blocks, i, block) {
        const json_t *type = api_field(block, "type");
        in->hint |= has_hint(block);
        if (api_is(type, "thinking"))
            add_thinking(in, block);
        else if (api_is(type, "tool_use"))
            in->prose.apart = true;
        else if (add_block(&in->prose, API_ITEM(at, i), block, e))
            return -1;
    }
    return 0;
}

static int assistant_blocks(struct input *in, const struct api_path *at, const json_t *blocks, struct api_error *e)
{
    size_t i;
    json_t *block, *m = NULL;
    if (assistant_text(in, at, blocks, e) || add_message(in, at, "assistant", &m, e) ||
        (in->thinking.len && api_message_thinking(m, in->thinking.data, in->thinking.len, e)))
        return -1;
    strbuf_clear(&in->thinking);
    json_array_foreach(blocks, i, block)
        if (api_is(api_field(block, "type"), "tool_use") && add_call(API_ITEM(at, i), block, m, e))
            return -1;
    return 0;
}

static int parse_message(struct input *in, const struct api_path *at, const json_t *message, struct api_error *e)
{
    static const char *const roles[] = {"user", "assistant", "system"};
    const struct api_path *content_at = API_KEY(at, "content");
    const json_t *content = api_field(message, "content");
    int role = -1;
    if (!json_is_object(message))
        return api_fail_type(e, at, message, "a message (an object)");
    if (api_get_choice(message, at, "role", roles, 3, &role, e) || check_content(content, content_at, e))
        return -1;
    if (role < 0)
        return api_fail_missing(e, API_KEY(at, "role"), "\"user\", \"assistant\" or \"system\"");
    if (role == 2)
        return add_system(in, content_at, content, e);
    if (!json_is_string(content))
        return (role == 0 ? user_blocks : assistant_blocks)(in, content_at, content, e);
    strbuf_append(&in->prose.text, json_string_value(content), json_string_length(content));
    return add_message(in, at, roles[role], NULL, e);
}

static int parse_messages(struct input *in, struct api_error *e)
{
    const struct api_path *at = API_KEY(NULL, "messages");
    const json_t *system = api_field(in->r->body, "system");
    json_t *messages = NULL, *message;
    size_t i;
    if (check_content(system, API_KEY(NULL, "system"), e) || add_system(in, API_KEY(NULL, "system"), system, e) ||
        api_get_array(in->r->body, NULL, "messages", &messages, e))
        return -1;
    if (!messages)
        return api_fail_missing(e, at, "a list of messages");
    if (!json_array_size(messages))
        return api_fail_value(e, at, messages, "at least one message");
    json_array_foreach(messages, i, message)
        if (parse_message(in, API_ITEM(at, i), message, e))
            return -1;
    if (!in->r->messages) /* nothing but what is left out */
        return api_message_add(in->r, at, "user", "", 0, NULL, e);
    const json_t *last = json_array_get(in->r->messages, json_array_size(in->r->messages) - 1);
    in->r->continue_final = api_is(json_object_get(last, "role"), "assistant") && !json_object_get(last, "tool_calls");
    return 0;
}

int messages_input_parse(const struct api_env *env, struct api_request *r, struct api_error *e)
{
    struct input in = {.env = env, .r = r};
    int rc = parse_messages(&in, e);
    strbuf_free(&in.prose.text);
    strbuf_free(&in.thinking);
    return rc ? rc : api_conversation_finish(r, e);
}
