/* What the files of the answer machine share; see answer.h. */
#ifndef SKUA_API_ANSWER_INTERNAL_H
#define SKUA_API_ANSWER_INTERNAL_H

#include <stdatomic.h>

#include "api/answer.h"
#include "api/api.h"
#include "api/tool_parse.h"
#include "api/tool_set.h"
#include "base/strbuf.h"
#include "sample/stop.h"
#include "tok/token_vec.h"
#include "tok/tokenizer.h"

struct grammar_cache;

struct answer_shared {
    const struct api_env *env;
    const struct tokenizer *tokenizer;
    struct replay *replay;
    struct grammar_vocab *vocab;
    struct grammar_cache *cache;
    size_t n_words;               /* of a mask */
    int32_t call_id, end_call_id; /* <tool_call>, </tool_call> where they are one token, else -1 */
    int32_t newline_id;
    uint64_t *no_call;            /* mask: every token but <tool_call>; NULL: it is not one token */
    uint64_t *ends;               /* tokens that end an answer */
    struct token_vec call, end_think, breaks;  /* <tool_call>; </think>; what stands between </think> and an answer */
    struct token_vec budget_end, plain_end;    /* what closes thinking: with the budget's message, without */
    _Atomic uint64_t calls, parse_fallbacks, budget_hits, end_rescued, schema_relaxed, grammar_ns;
};

struct answer_plan {
    struct answer_shared *shared;
    const struct api_request *r;
    struct tool_set tools;
    enum parse_begin begin;
    bool bans_call;               /* tool_choice none */
    int32_t max_calls;            /* the answer ends behind so many; 0: any number */
    int32_t think_limit;          /* tokens of thinking; -1 */
    int32_t reserve_at;           /* tokens of the answer at which thinking is ended; -1 */
    struct grammar *structure;    /* of the visible text; NULL */
    struct grammar *call;         /* of a call behind <tool_call>, as far as it is bound; NULL */
};

/* Grammars of a request, by what describes them: compiled once. Thread-safe. */
int  grammar_cache_new(struct grammar_cache **out, skua_error *err);
void grammar_cache_free(struct grammar_cache *c); /* NULL allowed */
/* The caller holds a reference of *out. compile appends to warnings, which are remembered with the grammar. */
typedef int grammar_compile(const void *user, struct strbuf *warnings, struct grammar **out, skua_error *err);
int  grammar_cache_get(struct grammar_cache *c, const struct strbuf *key, grammar_compile *compile, const void *user,
                       struct strbuf *warnings, struct grammar **out, skua_error *err);

/* The grammar of a call from behind <tool_call>. whole: bodies of all tools are bound, else those of strict tools only, and of others
   only the names. */
struct call_grammar { const struct tool_set *tools; bool whole; };
int  call_grammar_compile(const void *call_grammar, struct strbuf *warnings, struct grammar **out, skua_error *err);
void call_grammar_key(const struct call_grammar *c, struct strbuf *key);

/* What the next token must obey. */
enum answer_rule {
    RULE_NONE,      /* thinking, free text, free parts of a call */
    RULE_TEXT,      /* the request's structure */
    RULE_CALL_FIRST,/* nothing but a call may begin */
    RULE_CALL       /* the grammar of calls */
};

/* A token's log-probabilities that wait for the event that they go out with. */
struct held_token {
    struct api_token_logprob l;
    uint64_t begin, end;          /* bytes of the output */
    uint64_t visible_at;          /* place of its first visible byte in the visible text */
    bool visible;
};

struct answer {
    const struct answer_plan *plan;
    answer_sink *sink;
    void *user;
    skua_error *err;              /* of the call that is being answered */
    struct tool_parser parser;
    struct stop_matcher stop;
    struct strbuf text;           /* visible text that stop strings let go */
    uint64_t n_pushed, n_released;/* visible bytes into and out of the stop strings */
    uint64_t n_read;              /* bytes of the output */
    int32_t n_tokens, n_thinking, n_complete;
    int stop_found;               /* index; -1 */
    bool closed;                  /* nothing goes out any more */
    bool inline_open;             /* inline thinking has begun */
    bool finishing, visible_begun;
    char call_id[48];
    /* what the next token must obey */
    enum answer_rule rule;
    struct grammar_state *text_state, *call_state;
    bool text_begun;
    int breaks_left;              /* line breaks that may come before structured text */
    uint64_t *mask;
    struct token_vec forced;
    size_t forced_left;
    bool closing;                 /* thinking is being ended by force */
    bool owes_breaks;             /* thinking has ended, and line breaks come before what is bound */
    bool rescued, replacing;      /* the next call is about a token that we chose */
    bool skip_thinking;           /* what is skipped was thinking */
    size_t skip;                  /* bytes of the next tokens that were read already */
    struct token_vec rest;        /* forced behind a replacement */
    atomic_bool end_thinking;
    /* log-probabilities */
    struct held_token *held;
    size_t n_held, cap_held;
    struct api_token_logprob *sent; /* of one event */
    size_t cap_sent;
};

/* answer_out.c: what the parser finds becomes events. */
int  answer_on_event(void *answer, const struct parse_event *e);
int  answer_flush_text(struct answer *a);
/* answer_logprob.c */
int  held_push(struct answer *a, const struct batch_token *t, uint64_t begin, uint64_t end);
void held_mark(struct answer *a, uint64_t source, size_t n, uint64_t visible_at);
int  held_take(struct answer *a, bool any, uint64_t before, size_t *n); /* into a->sent, those that go out now */
void held_sent(struct answer *a, size_t n);                             /* they are out */
void held_forget_last(struct answer *a, int32_t id);                    /* the newest, if it is still there: it was replaced */
void held_drop_decided(struct answer *a);
void held_free(struct answer *a);

#endif
