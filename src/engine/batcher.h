/* Many answers at once on one engine: jobs are submitted by any thread, one thread runs them. Prompts are evaluated in quanta between steps
 * in which all running answers go on by a round (one token, or a verified draft), packed into common forward passes. An answer is what it
 * would be alone, bit for bit (promise P1). What a prompt shares with earlier sessions comes from the prefix cache (prefix_cache.h). */
#ifndef SKUA_ENGINE_BATCHER_H
#define SKUA_ENGINE_BATCHER_H

#include "engine/prefix_cache.h"
#include "sample/logprob.h"
#include "skua.h"

struct batcher;
struct batch_job;

struct batcher_params {
    int32_t n_parallel;       /* sessions that run together, >= 1 */
    int32_t n_ctx;            /* of a session; 0: the model's */
    int32_t queue_max;        /* jobs that wait; 0: none, a job is taken only if it can run at once */
    int32_t quantum;          /* prompt tokens per step while others decode; 0: 512 */
    double queue_timeout_s;   /* 0: none */
    struct prefix_cache *cache; /* NULL: nothing is kept between jobs. The caller's; outlives the batcher */
};

/* What must hold for the next choice of an answer, and whether there is one. */
struct batch_next {
    enum skua_finish finish;   /* not NONE: the answer ends with this token */
    const int32_t *forced;     /* the next tokens, whatever the logits say; the owner's memory, valid until they are used up */
    int32_t n_forced;
    const uint64_t *mask;      /* tokens allowed next, a bitmap of the vocabulary; NULL: all. Valid until the next call */
};

struct batch_logprob {
    double logprob;              /* of the token */
    const struct token_logprob *top; /* [n_top] */
    int32_t n_top;
};

struct batch_token {
    int32_t choice;            /* 0 .. n_choices - 1 */
    int32_t id;
    bool ends;                 /* skua_token_ends */
    const char *bytes;         /* what it prints, n bytes; control tokens nothing */
    size_t n;
    const struct batch_logprob *logprob; /* when n_logprobs >= 0, else NULL; valid during the call */
};

enum batch_source { BATCH_SOURCE_NONE, BATCH_SOURCE_LIVE, BATCH_SOURCE_RAM, BATCH_SOURCE_DISK };
extern const char *const batch_source_names[]; /* "none", "live", "ram", "disk" */

struct batch_start {
    int32_t n_prompt, n_cached;  /* tokens; n_cached of them were not evaluated again */
    enum batch_source source;
    const char *miss_reason;     /* why the rest was: "cold", "diverged", "no_checkpoint", "evicted", "different_model", "disabled"; "" if
                                    everything but the last token was reused */
    int32_t diverged_at;         /* first token at which the best kept sequence is another; -1: none */
    const int32_t *diverged_from;/* up to 16 of its tokens from there */
    int32_t n_diverged_from;
    double queue_seconds;
};

struct batch_result {
    int rc;                      /* 0 or SKUA_E...: SKUA_ECANCELED after batcher_cancel; SKUA_ELIMIT queue time or context */
    skua_error err;
    enum skua_finish finish[16]; /* by choice */
    int32_t n_generated[16];
    int32_t n_prompt, n_cached;
    double queue_seconds, prompt_seconds, generate_seconds;
    skua_draft_stats draft;      /* what drafting did during this job, all choices together */
};

/* The owner's side of a job. All are called on the batcher's thread, never at once for one job, and must not block. user: the job's. */
struct batch_callbacks {
    /* The job has got a session; nothing is evaluated yet. Masks and forced tokens of each choice's first token: *next (zeroed) is for
       choice 0 .. n - 1, one call each with begin. Optional. */
    void (*start)(void *user, const struct batch_start *start);
    int  (*first)(void *user, int32_t choice, struct batch_next *next, skua_error *err); /* optional; an error ends the job */
    void (*progress)(void *user, int32_t n_done, int32_t n_total); /* of the prompt; optional */
    /* A chosen token. *replace (-1 on entry) may be set to another id that takes its place, once per call: the function is then
       called again with that one. Fill *next (zeroed) for the token after it. An error ends the job with it. */
    int  (*token)(void *user, const struct batch_token *t, int32_t *replace, struct batch_next *next, skua_error *err);
    /* Log-probability of prompt token i (1 .. n_prompt - 1), in order; for score_prompt. */
    void (*prompt_token)(void *user, int32_t i, const struct batch_logprob *row);
    /* A choice reached its end (not called when the job fails). */
    void (*choice_end)(void *user, int32_t choice, enum skua_finish finish);
    void (*done)(void *user, const struct batch_result *r); /* always the last call; the job is freed after it */
};

struct batch_params {
    const int32_t *prompt;       /* copied */
    int32_t n_prompt;            /* >= 1 */
    const int32_t *marks;        /* lengths of beginnings of the prompt that other requests are likely to share, rising; copied: checkpoints
                                    are made there first */
    int32_t n_marks;
    int32_t n_choices;           /* 1 .. 16: the prompt is evaluated once. Choice k draws with a seed made of seed and k, 0 with seed */
    skua_sampling sampling;      /* bias copied */
    int32_t max_tokens;          /* -1: until the context is full (finish SKUA_FINISH_MAX_TOKENS); 0: only the prompt */
    int32_t min_tokens;          /* no end token before so many */
    bool ignore_end;             /* end tokens do not end the answer, and are not chosen */
    int32_t n_logprobs;          /* -1: none; else the chosen token's and so many best ones */
    bool score_prompt;           /* log-probabilities of the prompt's tokens; takes nothing from the cache */
    bool no_cache;               /* neither taken from the cache nor kept */
    bool no_draft;
    int32_t draft_max;           /* 0: the engine's */
    int32_t priority;            /* -10 .. 10, higher first */
    uint64_t owner;              /* fairness: jobs of one owner are first in, first out, owners take turns */
    const struct batch_callbacks *callbacks;
    void *user;
};

/* The engine may have no sessions of others than the batcher's while batcher_run runs. */
int  batcher_create(skua_engine *e, const struct batcher_params *p, struct batcher **out, skua_error *err);
void batcher_free(struct batcher *b); /* NULL allowed; not while it runs. Jobs that are left are done with SKUA_ECANCELED */

/* From any thread. SKUA_ELIMIT: the queue is full; SKUA_EARG: ids, marks, sampling; SKUA_ELIMIT also when the prompt does not fit the
   context; SKUA_ESTATE: stopping; SKUA_ENOMEM. On success *id names the job for batcher_cancel; done will be called exactly once. */
int  batcher_submit(struct batcher *b, const struct batch_params *p, uint64_t *id, skua_error *err);

/* From any thread: end a job at the next step; unknown ids are ignored. What of its prompt is evaluated stays in the cache. */
void batcher_cancel(struct batcher *b, uint64_t id);

/* Work until batcher_stop. On the caller's thread, which is the only one that uses the engine meanwhile. */
void batcher_run(struct batcher *b);
void batcher_stop(struct batcher *b, bool drain); /* from any thread; drain: finish what is running and waiting, take nothing new */

/* A consistent picture for metrics and /slots, from any thread. */
struct batch_slot {
    uint64_t job;               /* 0: idle */
    int32_t n_ctx, n_tokens, prompt_done, prompt_total, n_cached, n_generated;
    const char *phase;          /* "idle", "prefill", "decode" */
    bool drafting;
    double last_used;           /* clock_seconds */
};
struct batch_stats {
    int32_t running, waiting;
    uint64_t steps, sessions_in_steps, prompt_tokens, cached_tokens[4 /* enum batch_source */], generated_tokens;
    double prompt_seconds, decode_seconds;
    skua_draft_stats draft;     /* all jobs so far */
};
void batcher_stats(struct batcher *b, struct batch_stats *out);
int32_t batcher_slots(struct batcher *b, struct batch_slot *out, int32_t max); /* returns the number of slots */

#endif
