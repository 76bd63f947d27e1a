/* What an answer consists of, in order, whatever the API it goes to: thinking, visible text and tool calls as they are decided, cut at
 * complete characters. The concatenation is independent of how tokens arrive. */
#ifndef SKUA_API_EVENT_H
#define SKUA_API_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/batcher.h"

enum api_event_kind {
    API_EVENT_THINKING,      /* text: a piece of thinking */
    API_EVENT_THINKING_END,  /* after the last piece, if there was any */
    API_EVENT_TEXT,          /* text: a piece of visible text; logprobs of the tokens that begin in it, when asked for */
    API_EVENT_CALL_BEGIN,    /* call, id and name are known */
    API_EVENT_CALL_ARGS,     /* text: a piece of the arguments' JSON (of the input of a custom tool: plain text) */
    API_EVENT_CALL_END       /* text: its whole arguments. complete: the call ended by itself, and the pieces together are the same;
                                else the output was cut inside it, and the arguments were closed to be JSON: the pieces are a
                                beginning of them */
};
/* With logprobs_all the tokens of thinking and calls have theirs too: any event then may carry logprobs, those of the tokens since the
   event before, and the last one may be a TEXT without text that carries what was left. */

struct api_token_logprob {   /* ids with the bytes that they print */
    int32_t id;
    const char *bytes;
    size_t n;
    double logprob;
    const struct token_logprob *top;
    int32_t n_top;
};

struct api_event {
    enum api_event_kind kind;
    const char *text;        /* n bytes of UTF-8, not zero-terminated */
    size_t n;
    int32_t call;            /* index of the call in the answer */
    const char *id, *name;   /* of the call: all CALL events */
    bool custom, complete;
    const struct api_token_logprob *logprobs;
    size_t n_logprobs;
};

enum api_finish { API_FINISH_STOP, API_FINISH_STOP_STRING, API_FINISH_LENGTH, API_FINISH_CONTEXT, API_FINISH_CALLS, API_FINISH_CANCELED };

/* How one choice ended. */
struct api_choice_end {
    enum api_finish finish;
    const char *stop_string;  /* that matched; NULL */
    int32_t n_tokens, n_thinking_tokens;
};

#endif
