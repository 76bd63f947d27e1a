/* From a conversation to prompt tokens: the file's chat template, then tokens, such that control tokens come from the template
 * only. The name of a control token inside a message ("<|im_end|>") is encoded as the plain text that it is. */
#ifndef SKUA_ENGINE_CHAT_PROMPT_H
#define SKUA_ENGINE_CHAT_PROMPT_H

#include <jansson.h>

#include "base/strbuf.h"
#include "skua.h"
#include "tok/token_vec.h"
#include "tok/tokenizer.h"

const struct tokenizer *chat_prompt_tokenizer(const skua_engine *e); /* the engine's; lives as long as it does */

struct chat_prompt {
    struct strbuf text;    /* as rendered */
    struct token_vec ids;
    bool opens_thinking;   /* the text ends inside an open <think> */
};

/* messages, tools, extra: as for jinja/chat.h (tools and extra may be NULL). A zeroed prompt is filled; free it in any case.
   SKUA_ETEMPLATE: the model has no chat template, or it failed (line and column); SKUA_ENOMEM. */
int  chat_prompt_build(skua_engine *e, const json_t *messages, const json_t *tools, const json_t *extra, struct chat_prompt *out,
                       skua_error *err);
void chat_prompt_free(struct chat_prompt *p);

/* The steps of chat_prompt_build on their own, for callers that render some conversations themselves.
   A copy of a value (arguments already parsed) with marks where strings hold names of control tokens; NULL: out of memory. */
json_t *chat_prompt_marked(const skua_engine *e, const json_t *v);
/* Append marked text that the template makes of a marked conversation. Errors as chat_prompt_build. */
int chat_prompt_render(skua_engine *e, const json_t *messages, const json_t *tools, const json_t *extra, bool add_generation_prompt,
                       struct strbuf *text, skua_error *err);
/* Ids of n bytes of marked text, appended to an empty ids. borders: n_borders rising offsets in the text; marks gets the number of tokens
   before each, exactly if a control token begins there, else those of the last part that ends before it. SKUA_ENOMEM, SKUA_ELIMIT. */
int chat_prompt_encode(const skua_engine *e, const char *text, size_t n, const size_t *borders, size_t n_borders, int32_t *marks,
                       struct token_vec *ids, skua_error *err);
bool chat_prompt_opens_thinking(const skua_engine *e, const char *text, size_t n);
void chat_prompt_unmark(const char *text, size_t n, struct strbuf *out); /* append the text without marks */

/* Does the template look at this variable ("enable_thinking")? SKUA_ETEMPLATE: there is no usable template; SKUA_ENOMEM. */
int chat_template_uses(skua_engine *e, const char *variable, bool *uses, skua_error *err);

#endif
