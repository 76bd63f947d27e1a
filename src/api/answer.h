/* From tokens to events, and what the next token must obey: thinking and its budget, tool calls, stop strings, structured output. One
 * answer per choice of a request; it is driven by a batcher's callbacks and knows nothing of JSON APIs or sockets. Rules: spec/api.md 5.3
 * to 5.7. */
#ifndef SKUA_API_ANSWER_H
#define SKUA_API_ANSWER_H

#include "api/event.h"
#include "api/replay.h"
#include "api/request.h"
#include "sample/grammar.h"

/* What all answers share: token ids of tags, compiled grammars, remembered calls (replay: NULL to remember none). Thread-safe. Of env
   budget_message and reserve_answer are used. The tokenizer is the engine's. All three outlive it. SKUA_ENOMEM. */
struct answer_shared;
int  answer_shared_new(const struct api_env *env, const struct tokenizer *tokenizer, struct replay *replay, struct answer_shared **out,
                       skua_error *err);
void answer_shared_free(struct answer_shared *s); /* NULL allowed */
struct answer_counters { uint64_t calls, parse_fallbacks, budget_hits, end_rescued, schema_relaxed; double grammar_seconds; };
void answer_get_counters(const struct answer_shared *s, struct answer_counters *out);

/* Compile what the request's constraints need (structure, strict tools, forced calls). To be done before the request is admitted, on any
   thread: errors are the client's (status 400, code unsupported_schema or invalid_value). r outlives the plan; its warnings are appended
   to. */
struct answer_plan;
int  answer_plan_new(struct answer_shared *s, struct api_request *r, struct answer_plan **out, struct api_error *error);
void answer_plan_free(struct answer_plan *p);

typedef int answer_sink(void *user, const struct api_event *event, skua_error *err);

/* One choice's answer; p outlives it. SKUA_ENOMEM. answer_first and answer_token are the batcher's first and token (batcher.h): they give
   events to sink and fill *next. An error of the sink's ends the answer with it. */
struct answer;
int  answer_new(const struct answer_plan *p, answer_sink *sink, void *user, struct answer **out, skua_error *err);
void answer_free(struct answer *a);
int  answer_first(struct answer *a, struct batch_next *next, skua_error *err);
int  answer_token(struct answer *a, const struct batch_token *t, int32_t *replace, struct batch_next *next, skua_error *err);
/* (A token hook of engine/token_hook.h: a token is replaced when it ends the answer while thinking is open, or when only a beginning of
   it is allowed where a constraint begins inside it.) */
void answer_end_thinking(struct answer *a);   /* any thread: close thinking at the next token (control request) */
/* The batcher ended the choice: deliver what is held, close what is open, say how it ended. */
int  answer_finish(struct answer *a, enum skua_finish finish, struct api_choice_end *end, skua_error *err);

#endif
