/* `skua run`, the part that one answer and a chat share: options, the engine, and producing an answer on the terminal. */
#ifndef SKUA_CMD_RUN_ANSWER_H
#define SKUA_CMD_RUN_ANSWER_H

#include <signal.h>
#include <stdint.h>
#include <stdio.h>

#include "cmd/chatlog.h"
#include "cmd/cmd_draft.h"
#include "cmd/cmd_engine.h"
#include "cmd/term.h"
#include "engine/chat_prompt.h"
#include "engine/profile.h"
#include "sample/defaults.h"
#include "skua.h"

enum think_mode { THINK_AS_TEMPLATE, THINK_ON, THINK_OFF };

#define RUN_MAX_STOP 16

struct run_options {
    struct engine_options engine;
    struct draft_options draft;
    const char *trace; /* file for draft_trace_json, NULL */
    const char *prompt, *file, *system;
    bool raw, show_thinking, quiet, special, profile, stats;
    enum think_mode think;
    int64_t max_tokens; /* -1: until the context is full */
    const char *stop[RUN_MAX_STOP];
    size_t n_stop;
    struct sampler_partial sampling; /* what the user gave */
    skua_logit_bias bias[SAMPLER_MAX_BIAS];
};

struct run {
    struct run_options opt;
    struct term term;
    skua_engine *engine;
    skua_session *session;
    FILE *trace;            /* with --draft-trace */
    int trace_lacks;        /* lines for which there was no memory */
    struct profile profile; /* with --profile: everything evaluated */
    skua_result last;   /* figures of the last answer */
    struct strbuf reasoning, answer; /* of the last answer, complete */
    int32_t n_reused;              /* prompt tokens of the last answer that the session already held */
};

extern volatile sig_atomic_t run_interrupted; /* set by Ctrl-C while an answer is produced */

/* Produce an answer to the prompt tokens: reasoning dimmed to standard error (or not at all), the answer to standard output, as it
   comes. The session's tokens are kept when they are a beginning of the prompt, else it starts anew. thinking: the prompt ends inside
   an open <think>. Errors as skua_generate(); what was produced before the error is shown and kept. */
int run_answer(struct run *r, const struct token_vec *prompt, bool thinking, skua_error *err);

/* The line of figures, to standard error unless quiet, or nothing was generated for an error. */
void run_figures(const struct run *r);

/* Interactive chat until the end of input. */
int run_chat(struct run *r, skua_error *err);

/* Template variables for the conversation (enable_thinking); NULL when there are none. *args is the caller's (json_decref). SKUA_ENOMEM. */
int run_template_args(const struct run *r, json_t **args, skua_error *err);

#endif
