/* The conversation of /v1/messages: spec/api.md 10.1. Content is a string or a list of blocks; what is no text, no thinking, no call and no
 * result is rendered as the text that it holds, or skipped: kinds of blocks are never refused, except images. */
#include <string.h>

#include "api/common.h"
#include "api/json_text.h"
#include "api/message.h"
#include "api/messages.h"
#include "api/seal.h"

struct input {
    const struct api_env *env;
    struct api_request *r;
    struct strbuf text, thinking; /* of the message that is being read */
    struct strbuf piece;          /* of a block of it */
    bool hint;                    /* it has a cache_control */
};

static void put(struct strbuf *b, const json_t *s) { strbuf_append(b, json_string_value(s), json_string_length(s)); }

/* As a paragraph of its own. */
static void put_paragraph(struct strbuf *b, const json_t *s)
{
    if (!json_string_length(s))
        return;
    if (b->len)
        strbuf_puts(b, "\n\n");
    put(b, s);
}

static int refuse_image(const struct api_path *at, const char *what, struct api_error *e)
{
    return api_fail(e, "unsupported_value", API_KEY(at, "type"), "\"%s\" is not supported: this model reads text only", what);
}

/* ---- blocks as text ---- */

static int blocks_text(const struct api_path *at, const json_t *blocks, struct strbuf *out, struct api_error *e);

/* A document's source. */
static int document_text(const struct api_path *at, const json_t *block, struct strbuf *out, struct api_error *e)
{
    const struct api_path *source_at = API_KEY(at, "source");
    const json_t *source = api_field(block, "source"), *type = api_field(source, "type");
    put_paragraph(out, api_field(block, "title"));
    put_paragraph(out, api_field(block, "context"));
    if (api_is(type, "content")) {
        if (out->len)
            strbuf_puts(out, "\n\n");
        return blocks_text(API_KEY(source_at, "content"), api_field(source, "content"), out, e);
    }
    if (!api_is(type, "text") || !json_is_string(api_field(source, "data")))
        return api_fail(e, "unsupported_value", source_at, "expected a document whose source is text: this model reads text only");
    put_paragraph(out, api_field(source, "data"));
    return 0;
}

/* A call that the provider ran: its name and input. */
static void server_call_text(const json_t *block, struct strbuf *out)
{
    put_paragraph(out, api_field(block, "name"));
    strbuf_putc(out, ' ');
    api_json_value(out, api_field(block, "input"));
}

/* What a block says that is nothing but text here. */
static int block_text(const struct api_path *at, const json_t *block, struct strbuf *out, struct api_error *e)
{
    static const char *const paragraphs[] = {"title", "source", "url", "stdout", "stderr"};
    const json_t *type = api_field(block, "type"), *content = api_field(block, "content");
    if (!json_is_object(block))
        return api_fail_type(e, at, block, "a content block (an object)");
    if (api_is(type, "image"))
        return refuse_image(at, "image", e);
    if (api_is(type, "document"))
        return document_text(at, block, out, e);
    if (api_is(type, "thinking") || api_is(type, "redacted_thinking"))
        return 0;
    if (api_is(type, "server_tool_use") || api_is(type, "mcp_tool_use")) {
        server_call_text(block, out);
        return 0;
    }
    for (size_t i = 0; i < sizeof paragraphs / sizeof *paragraphs && !api_is(type, "text"); i++)
        put_paragraph(out, api_field(block, paragraphs[i]));
    if (out->len && api_is(type, "search_result"))
        strbuf_puts(out, "\n\n");
    put(out, api_field(block, "text"));
    return blocks_text(API_KEY(at, "content"), content, out, e);
}

/* A string, or a list of blocks, their texts joined without separator; anything else says nothing. */
static int blocks_text(const struct api_path *at, const json_t *blocks, struct strbuf *out, struct api_error *e)
{
    size_t i;
    json_t *block;
    if (json_is_string(blocks))
        put(out, blocks);
    if (json_is_object(blocks))
        return block_text(at, blocks, out, e);
    json_array_foreach(blocks, i, block)
        if (block_text(API_ITEM(at, i), block, out, e))
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
    if (strbuf_failed(&in->text) || strbuf_failed(&in->thinking))
        return api_fail_nomem(e);
    if (api_message_add(in->r, at, role, in->text.data, in->text.len, &m, e) || (in->hint && api_message_hint(m, e)))
        return -1;
    if (message)
        *message = m;
    strbuf_clear(&in->text);
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
        put(&in->text, content);
        return add_message(in, at, "system", NULL, e);
    }
    json_array_foreach(content, i, block) {
        if (block_text(API_ITEM(at, i), block, &in->text, e))
            return -1;
        if (api_is_billing_header(in->env, strbuf_str(&in->text), in->text.len)) {
            strbuf_clear(&in->text);
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
    struct strbuf text = {0};
    json_t *m;
    if (api_get_string(block, at, "tool_use_id", &id, e) || check_content(api_field(block, "content"), API_KEY(at, "content"), e))
        return -1;
    int rc = blocks_text(API_KEY(at, "content"), api_field(block, "content"), &text, e);
    if (!rc && strbuf_failed(&text))
        rc = api_fail_nomem(e);
    if (!rc)
        rc = api_message_tool(in->r, at, id, text.data, text.len, &m, e);
    if (!rc && has_hint(block))
        rc = api_message_hint(m, e);
    strbuf_free(&text);
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
            if (in->text.len && add_message(in, at, "user", NULL, e))
                return -1;
            if (add_system(in, API_ITEM(at, i), content ? content : api_field(block, "text"), e))
                return -1;
            continue;
        }
        if (block_text(API_ITEM(at, i), block, &in->text, e))
            return -1;
        in->hint |= has_hint(block);
    }
    bool nothing_yet = json_array_size(in->r->messages) == before;
    return in->text.len || nothing_yet ? add_message(in, at, "user", NULL, e) : 0;
}

/* Thinking that is left out of a block may be in its signature, if that is ours. */
static void add_thinking(struct input *in, const json_t *block)
{
    const json_t *thinking = api_field(block, "thinking"), *signature = api_field(block, "signature");
    if (json_string_length(thinking))
        put_paragraph(&in->thinking, thinking);
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

/* Texts that calls stand between are paragraphs; others are joined as they are. */
static int assistant_text(struct input *in, const struct api_path *at, const json_t *blocks, struct api_error *e)
{
    size_t i;
    json_t *block;
    bool apart = false;
    json_array_foreach(blocks, i, block) {
        const json_t *type = api_field(block, "type");
        in->hint |= has_hint(block);
        if (api_is(type, "thinking"))
            add_thinking(in, block);
        else if (api_is(type, "tool_use"))
            apart = in->text.len > 0;
        else if (block_text(API_ITEM(at, i), block, &in->piece, e))
            return -1;
        if (apart && in->piece.len)
            strbuf_puts(&in->text, "\n\n");
        apart = apart && !in->piece.len;
        strbuf_append(&in->text, in->piece.data, in->piece.len);
        in->text.failed |= in->piece.failed;
        strbuf_clear(&in->piece);
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
    put(&in->text, content);
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
    strbuf_free(&in.text);
    strbuf_free(&in.thinking);
    strbuf_free(&in.piece);
    return rc ? rc : api_conversation_finish(r, e);
}
