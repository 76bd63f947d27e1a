/* A conversation through a chat template, with the variables that Hugging Face transformers' apply_chat_template sets. */
#ifndef SKUA_JINJA_CHAT_H
#define SKUA_JINJA_CHAT_H

#include "jinja/jinja.h"

/* Append the prompt for messages (a JSON array of objects) to out.
   tools: array or NULL. add_generation_prompt: end with the opening of an assistant turn. extra_kwargs: object or NULL, e.g.
   {"enable_thinking": false, "reasoning_effort": "low"}; its entries override the variables above, as in transformers.
   bos_token, eos_token: NULL = undefined in the template. Variables set: messages, tools and documents (none when absent),
   add_generation_prompt, bos_token, eos_token.
   `arguments` of tool calls that are strings holding a JSON object (the OpenAI form) are parsed first; others stay as they
   are. Messages are not merged or reordered. Inputs are not changed. Errors as jinja_render; SKUA_EARG for wrong types. */
int chat_render(const struct jinja_template *t, const json_t *messages, const json_t *tools, bool add_generation_prompt,
                const json_t *extra_kwargs, const char *bos_token, const char *eos_token, struct strbuf *out, skua_error *err);

/* The first step of chat_render on its own: a new array of the messages, with arguments parsed. Doing it twice changes nothing. NULL: out
   of memory. */
json_t *chat_parse_arguments(const json_t *messages);

#endif
