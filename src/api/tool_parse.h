/* The output of a model of the family, cut into thinking, visible text and tool calls while it streams (spec/api.md 5.5 and 5.6). One
 * automaton over bytes; what comes out does not depend on how the input is cut. Only what cannot be judged yet is held back: line breaks
 * that a tag may follow, and beginnings of tags. Work is linear in the input, whatever it is.
 *
 * What the rules leave open is decided so:
 * - a </parameter> in front of the opener of another call ends a value too, else rule 5's next opener could never close a call;
 * - a key that is repeated appears twice in the arguments, and readers of JSON take the last: the first had been streamed already;
 * - text between the parts of a call comes as text behind the call;
 * - when the output ends by itself inside a value, that is the value's end; inside the tags that end one, they count as complete. */
#ifndef SKUA_API_TOOL_PARSE_H
#define SKUA_API_TOOL_PARSE_H

#include <stdint.h>

#include "api/event.h"
#include "api/tool_set.h"
#include "base/strbuf.h"

enum parse_state {
    PARSE_START,     /* white space so far: a <think> may still open thinking */
    PARSE_THINKING,
    PARSE_TEXT,
    PARSE_BETWEEN,   /* inside a call, before, between and behind parameters */
    PARSE_VALUE,
    PARSE_AFTER      /* behind </function> */
};

struct parse_event {
    enum api_event_kind kind;
    const char *text;             /* n bytes of UTF-8 */
    size_t n;
    uint64_t source;              /* TEXT: it is n_source bytes of the output from here; else 0, 0 */
    size_t n_source;
    const struct tool_def *def;   /* CALL */
    int32_t call;
    const char *raw;              /* CALL_END: the call as the model wrote it, n_raw bytes; NULL when text was found inside */
    size_t n_raw;
    bool complete;                /* CALL_END */
};

typedef int parse_sink(void *user, const struct parse_event *event); /* 0, or an error that ends parsing and is returned */

struct tool_parser {
    const struct tool_set *tools;
    parse_sink *sink;
    void *user;
    enum parse_state state;
    struct strbuf in;             /* output that is not decided or not read yet */
    uint64_t in_source;           /* place of its first byte in the output */
    size_t base, at;              /* in in: first undecided byte, next byte to read */
    size_t tag_at;                /* of the tag that is being matched */
    size_t cut_at;                /* behind the first tag of a chain */
    size_t line_breaks;           /* undecided line breaks at base, bytes */
    int chain;                    /* which tags may follow, see tool_parse.c */
    bool in_tag, in_space;
    bool line_start, leading, tag_on_line;
    /* the call */
    const struct tool_def *def;
    int32_t n_calls;              /* begun so far */
    int32_t n_ended;
    uint64_t n_refused;           /* openers that were text after all */
    const struct tool_key *key;   /* of the value; NULL: not declared */
    bool value_begun, opened;     /* the break behind the opening tag is decided; a string's quote is out */
    size_t n_params;
    struct strbuf key_name, value, args, raw, stray;
    /* output that waits for tool_parse_flush */
    struct strbuf out;
    enum api_event_kind out_kind;
    uint64_t out_source;
    size_t out_n_source;
    bool thought;                 /* a piece of thinking went out, and its end did not */
    int rc;
};

enum parse_begin { PARSE_BEGIN_MAYBE_THINKING, PARSE_BEGIN_THINKING, PARSE_BEGIN_TEXT };

/* tools outlives the parser; an empty set: no calls are looked for. The sink's events end at complete characters. */
void tool_parse_init(struct tool_parser *p, const struct tool_set *tools, enum parse_begin begin, parse_sink *sink, void *user);
void tool_parse_free(struct tool_parser *p);

/* Read n bytes. 0, SKUA_ENOMEM or what the sink returned; such an error stays. */
int  tool_parse_push(struct tool_parser *p, const char *bytes, size_t n);
/* Give what is decided to the sink; pushes do so by themselves only where the kind of output changes. */
int  tool_parse_flush(struct tool_parser *p);
/* The output has ended; cut: not by itself (a limit, a client that left). Flushes. */
int  tool_parse_finish(struct tool_parser *p, bool cut);

bool     tool_parse_in_opener(const struct tool_parser *p); /* behind a <tool_call> that may open a call, and white space after it */
uint64_t tool_parse_decided(const struct tool_parser *p);   /* so many bytes of the output are decided */

/* Text of a value to JSON by the types that are declared for it (rule 6); not for strings that stream. */
void tool_value_json(unsigned types, const char *text, size_t n, struct strbuf *out);

#endif
