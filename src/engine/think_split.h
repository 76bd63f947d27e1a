/* Splitting a streamed answer into reasoning and visible text at <think> and </think>. The tags and the newlines around them belong
 * to neither. The result does not depend on where the stream is cut. */
#ifndef SKUA_ENGINE_THINK_SPLIT_H
#define SKUA_ENGINE_THINK_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/strbuf.h"

enum think_state {
    THINK_START,   /* nothing but white space seen: a <think> may still open reasoning */
    THINK_INSIDE,
    THINK_AFTER,   /* behind </think>: newlines are dropped until visible text begins */
    THINK_ANSWER
};

struct think_split {
    enum think_state state;
    bool leading;      /* INSIDE: still at newlines directly behind <think> */
    char held[16];     /* the beginning of a tag, or white space, that cannot be judged yet */
    size_t n_held;
    size_t n_newlines; /* INSIDE: newlines that are dropped if </think> follows */
};

/* opens_thinking: the prompt already ends inside an open <think>. */
void think_split_init(struct think_split *t, bool opens_thinking);

/* Feed n bytes; what is decided is appended to reasoning or answer (failed allocations show there). */
void think_split_push(struct think_split *t, const char *bytes, size_t n, struct strbuf *reasoning, struct strbuf *answer);

/* End of the stream: what is held goes where it belongs. */
void think_split_finish(struct think_split *t, struct strbuf *reasoning, struct strbuf *answer);

#endif
