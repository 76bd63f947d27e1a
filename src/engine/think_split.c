/* Reasoning splitter; see think_split.h. A byte-wise automaton: held bytes are always a proper beginning of the tag that the state
 * waits for. Both tags consist of bytes of which only the first is '<', so a failed match can restart only at a '<'. */
#include "engine/think_split.h"

#include <string.h>

static const char open_tag[] = "<think>", close_tag[] = "</think>";

void think_split_init(struct think_split *t, bool opens_thinking)
{
    *t = (struct think_split){.state = opens_thinking ? THINK_INSIDE : THINK_START, .leading = opens_thinking};
}

static void put_newlines(struct think_split *t, struct strbuf *out)
{
    for (; t->n_newlines; t->n_newlines--)
        strbuf_putc(out, '\n');
}

/* White space before a possible <think> is kept in held as far as it fits; more of it means that this is an answer. */
static void start_byte(struct think_split *t, char c, struct strbuf *answer)
{
    size_t tag = 0; /* bytes of the tag at the end of held */
    while (tag < t->n_held && t->held[t->n_held - 1 - tag] != '\n' && t->held[t->n_held - 1 - tag] != ' ')
        tag++;
    bool space = (c == '\n' || c == ' ') && tag == 0;
    if ((space || c == open_tag[tag]) && t->n_held < sizeof t->held) {
        t->held[t->n_held++] = c;
        if (!space && tag + 1 == sizeof open_tag - 1) {
            t->state = THINK_INSIDE;
            t->leading = true;
            t->n_held = 0;
        }
        return;
    }
    strbuf_append(answer, t->held, t->n_held);
    strbuf_putc(answer, c);
    t->n_held = 0;
    t->state = THINK_ANSWER;
}

static void inside_byte(struct think_split *t, char c, struct strbuf *reasoning)
{
    if (c == close_tag[t->n_held]) {
        t->held[t->n_held++] = c;
        if (t->n_held == sizeof close_tag - 1) {
            t->state = THINK_AFTER;
            t->n_held = 0;
            t->n_newlines = 0;
        }
        return;
    }
    if (t->n_held) { /* no tag after all */
        put_newlines(t, reasoning);
        strbuf_append(reasoning, t->held, t->n_held);
        t->n_held = 0;
        t->leading = false;
        inside_byte(t, c, reasoning);
        return;
    }
    if (c == '\n') {
        t->n_newlines += !t->leading;
        return;
    }
    t->leading = false;
    put_newlines(t, reasoning);
    strbuf_putc(reasoning, c);
}

void think_split_push(struct think_split *t, const char *bytes, size_t n, struct strbuf *reasoning, struct strbuf *answer)
{
    for (size_t i = 0; i < n; i++) {
        char c = bytes[i];
        if (t->state == THINK_START)
            start_byte(t, c, answer);
        else if (t->state == THINK_INSIDE)
            inside_byte(t, c, reasoning);
        else if (t->state == THINK_AFTER && c == '\n')
            continue;
        else {
            t->state = THINK_ANSWER;
            strbuf_append(answer, bytes + i, n - i);
            return;
        }
    }
}

void think_split_finish(struct think_split *t, struct strbuf *reasoning, struct strbuf *answer)
{
    if (t->state == THINK_START)
        strbuf_append(answer, t->held, t->n_held);
    else if (t->state == THINK_INSIDE && t->n_held) {
        put_newlines(t, reasoning);
        strbuf_append(reasoning, t->held, t->n_held);
    }
    t->n_held = 0;
}
