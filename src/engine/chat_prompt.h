/* From a conversation to prompt tokens: the file's chat template, then tokens, such that control tokens come from the template
 * only. The name of a control token inside a message ("<|im_end|>") is encoded as the plain text that it is. */
#ifndef SKUA_ENGINE_CHAT_PROMPT_H
#define SKUA_ENGINE_CHAT_PROMPT_H

#include <jansson.h>

#include "base/strbuf.h"
#include "skua.h"
#include "tok/token_vec.h"

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

/* Does the template look at this variable ("enable_thinking")? SKUA_ETEMPLATE: there is no usable template; SKUA_ENOMEM. */
int chat_template_uses(skua_engine *e, const char *variable, bool *uses, skua_error *err);

#endif
