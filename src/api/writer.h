/* Events to the JSON of one API, streamed or whole. A writer appends bytes to its out buffer; whoever drives it takes them from there and
 * sends them. All calls of one writer come from one thread at a time. */
#ifndef SKUA_API_WRITER_H
#define SKUA_API_WRITER_H

#include "api/event.h"
#include "api/request.h"
#include "base/strbuf.h"

struct api_usage {
    int32_t n_prompt, n_cached, n_generated, n_thinking;
    double queue_s, prompt_s, generate_s;
    bool looked_up;                       /* n_cached is known */
    const struct batch_start *start;      /* NULL before the start */
    const struct batch_result *result;    /* NULL before the end */
};

/* Choices are numbered prompt by prompt: choice k of prompt p is p * max(n, best_of) + k. */
struct api_writer;
struct api_writer_ops { /* 0, or SKUA_ENOMEM: the answer cannot go on */
    int (*begin)(struct api_writer *w, const struct api_usage *u);              /* before the prompt is evaluated: heads of named streams */
    int (*progress)(struct api_writer *w, const struct api_usage *u, int32_t n_done, int32_t n_total);
    int (*event)(struct api_writer *w, int32_t choice, const struct api_event *e);
    /* completions with echo: token i of a prompt */
    int (*prompt_token)(struct api_writer *w, int32_t prompt, int32_t i, int32_t id, const struct batch_logprob *l);
    int (*choice_end)(struct api_writer *w, int32_t choice, const struct api_choice_end *end);
    int (*keepalive)(struct api_writer *w);                                     /* streams only */
    int (*end)(struct api_writer *w, const struct api_usage *u);                /* the rest: usage and end marks, or the whole body */
    int (*fail)(struct api_writer *w, const struct api_error *e);               /* instead of end: after a stream began, or the body */
    void (*free)(struct api_writer *w);
};

struct api_writer {
    const struct api_writer_ops *ops;
    const struct api_env *env;
    const struct api_request *request;
    const struct api_usage *now;  /* what was used so far, set by whoever drives it and kept up to date; NULL: unknown */
    struct strbuf out;
    char request_id[160];
    char id[48];              /* "chatcmpl-...", ... */
    int64_t created;          /* unix seconds */
};

/* One for the request's family; request and env outlive it. */
int  api_writer_new(const struct api_env *env, const struct api_request *r, const char *request_id, struct api_writer **out,
                    skua_error *err);
void api_writer_free(struct api_writer *w); /* NULL allowed */
/* The second half of api_writer_new: what it sets in a constructor's result. */
void api_writer_init(struct api_writer *w, const struct api_env *env, const struct api_request *r, const char *request_id);

/* The families' constructors (chat_write.c, completions_write.c, responses_write.c, messages_write.c). */
struct api_writer *chat_writer_new(void);
struct api_writer *completions_writer_new(void);
struct api_writer *responses_writer_new(void);
struct api_writer *messages_writer_new(void);

#endif
