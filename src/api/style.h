/* How a chat template of this family writes conversations, found by rendering a few with it; and the native renderer, which writes them the
 * same way without a template and cannot fail on what it is given: any order of roles, system messages anywhere, no user message at all.
 * Conversations are in the form of message.h. */
#ifndef SKUA_API_STYLE_H
#define SKUA_API_STYLE_H

#include <jansson.h>

#include "base/error.h"
#include "base/strbuf.h"

/* A template: append its text for a conversation. 0, SKUA_ETEMPLATE when it refuses, SKUA_ENOMEM. args: an object. */
typedef int style_template_fn(void *user, const json_t *messages, const json_t *tools, const json_t *args, bool generation,
                              struct strbuf *out, skua_error *err);

/* Turns before the last question: without thinking, with an empty thinking part, with theirs. */
enum style_history { STYLE_DROPPED, STYLE_EMPTY, STYLE_KEPT };
#define STYLE_EFFORTS 7 /* none, minimal, low, medium, high, xhigh, max */
extern const char *const style_effort_names[STYLE_EFFORTS];

struct chat_style {
    char *head, *rules;            /* tools block: from the system turn's opening to the first tool, and behind the last one */
    char *generation[3];           /* behind the opening of the answer's turn: thinking off, on, not spoken about */
    struct { char *text; bool known; } effort[STYLE_EFFORTS + 1]; /* sentence before the system text ("": none); the last: not given */
    enum style_history history[3]; /* preserve_thinking false, true, not given */
    bool efforts;                  /* the template knows efforts at all */
    bool empty_system;             /* an empty system message makes an empty turn */
    bool first_tool_bare;          /* a tool result that is the first message has no opening of a turn */
    bool response_users;           /* user messages that are a <tool_response> are no questions */
    bool inline_tags, inline_trim; /* thinking is cut out of contents with </think>; then white space on both sides, not line breaks */
    bool python_values;            /* True, False, None */
    char *call_gap;                /* between the text and the first call */
};

/* 0; SKUA_ETEMPLATE: the template does not write as this family does (where, in the message); SKUA_ENOMEM. *s is to be freed in
   any case. */
int  chat_style_find(style_template_fn *render, void *user, struct chat_style *s, skua_error *err);
void chat_style_free(struct chat_style *s); /* zeroed allowed */

/* Compare both ways of rendering on n conversations made of a seed. 0: equal wherever the template accepts; SKUA_ETEMPLATE: not (err says
   at what); SKUA_ENOMEM. */
int chat_style_check(const struct chat_style *s, style_template_fn *render, void *user, uint64_t seed, int n, skua_error *err);

/* Offsets in a rendered text. A turn begins with a control token, so the tokens before a border are the same whatever follows. */
struct chat_borders {
    size_t system_end;        /* behind system text and tools; 0: there is none */
    size_t question;          /* where the last question begins; SIZE_MAX: none */
    size_t end;               /* behind the last message: where the next turn begins */
    size_t *message_ends;     /* [n_messages], the caller's; NULL: not wanted. Messages that share a turn: where that ends */
};

/* args: an object or NULL: enable_thinking, preserve_thinking, reasoning_effort. continue_final: the last message is an assistant's and is
   left open; then there is no opening of an answer's turn. A call with a text "sampled" is written as that. 0 or SKUA_ENOMEM. */
int chat_style_render(const struct chat_style *s, const json_t *messages, const json_t *tools, const json_t *args, bool generation,
                      bool continue_final, struct chat_borders *borders, struct strbuf *out, skua_error *err);

#endif
