/* The conversation of a request in one form, whatever API it came by: r->messages is a list of
 *   {"role": "system" | "user" | "assistant" | "tool", "content": TEXT}
 * with, for assistants, "reasoning_content": TEXT (absent: none given) and "tool_calls": [{"id", "type": "function", "function": {"name",
 * "arguments": OBJECT or TEXT}}], and for tools "tool_call_id". "cache_hint": true at a message asks for a checkpoint behind it.
 * The texts of leading system messages are joined by api_conversation_finish. */
#ifndef SKUA_API_MESSAGE_H
#define SKUA_API_MESSAGE_H

#include "api/field.h"

#define API_MAX_MESSAGES 16384

/* Append to text what a content value says: a string, null, or a list of parts whose texts are joined without separator. thinking (may be
   NULL: refused) gets the parts of thinking. Images, audio and files are refused; has_hint (may be NULL) tells of a cache_control. */
int api_content_text(const struct api_request *r, const json_t *content, const struct api_path *at, struct strbuf *text,
                     struct strbuf *thinking, bool *has_hint, struct api_error *e);

/* Append a message; *message (may be NULL) is borrowed from r->messages. at: its place, for the limit's message. */
int api_message_add(struct api_request *r, const struct api_path *at, const char *role, const char *text, size_t n, json_t **message,
                    struct api_error *e);
int api_message_thinking(json_t *message, const char *text, size_t n, struct api_error *e);
/* arguments: the JSON text or value of the request; empty text is {}, text that is no JSON object stays text. */
int api_message_call(json_t *message, const char *id, const char *name, const json_t *arguments, struct api_error *e);
/* The same for a custom tool: its text becomes the argument "input". */
int api_message_custom_call(json_t *message, const char *id, const char *name, const json_t *input, struct api_error *e);
int api_message_tool(struct api_request *r, const struct api_path *at, const char *call_id, const char *text, size_t n,
                     json_t **message, struct api_error *e);
int api_message_hint(json_t *message, struct api_error *e);

/* Put text before everything else as a system message (instructions); to be called first. Volatile billing lines are left out of system
   texts by whoever adds them: api_is_billing_header. */
bool api_is_billing_header(const struct api_env *env, const char *text, size_t n);

/* Join the leading system messages with a blank line. */
int api_conversation_finish(struct api_request *r, struct api_error *e);

#endif
