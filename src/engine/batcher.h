/* Many answers at once on one engine: jobs are submitted by any thread, one thread runs them. Prompts are evaluated in quanta between steps
 * in which all running answers go on by a round (one token, or a verified draft), packed into common forward passes. An answer is what it
 * would be alone, bit for bit (promise P1). What a prompt shares with earlier sessions comes from the prefix cache (prefix_cache.h). */
#ifndef SKUA_ENGINE_BATCHER_H
#define SKUA_ENGINE_BATCHER_H

#include "engine/prefix_cache.h"
#include "engine/token_hook.h"
#include "skua.h"

#define BATCH_MAX_CHOICES 16

struct batcher;

struct batcher_params {
    int32_t n_parallel;       /* sessions that run together, >= 1 */
    int32_t n_ctx;            /* of a session; 0: the model's */
    int32_t queue_max;        /* jobs that wait; 0: none, a job is taken only if it can run at once */
    int32_t quantum;          /* prompt tokens per step while others decode; 0: 512 */
    double queue_timeout_s;   /* 0: none */
    struct prefix_cache *cache; /* NULL: only idle sessions keep what they hold. The caller's; outlives the batcher */
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
    int rc;                      /* 0 or SKUA_E...: SKUA_ECANCELED after batcher_cancel or batcher_stop; SKUA_ELIMIT: queue time */
    bool started;                /* it got a session */
    skua_error err;
    enum skua_finish finish[BATCH_MAX_CHOICES]; /* by choice */
    int32_t n_generated[BATCH_MAX_CHOICES];     /* the end token counts */
    int32_t n_prompt, n_cached;
    double queue_seconds, prompt_seconds, generate_seconds;
    skua_draft_stats draft;      /* what drafting did during this job, all choices together */
};

/* The owner's side of a job. All are called on the batcher's thread, never at once for one job, and must not block. user: the job's. */
struct batch_callbacks {
    /* The job has got a session; nothing is evaluated yet. Optional. */
    void (*start)(void *user, const struct batch_start *start);
    /* Then, once for each choice: what holds for its first token (*next zeroed). Optional; an error ends the job. */
    int  (*first)(void *user, int32_t choice, struct batch_next *next, skua_error *err);
    void (*progress)(void *user, int32_t n_done, int32_t n_total); /* of the prompt; optional */
    token_hook *token; /* a chosen token of choice t->choice; an error ends the job with it */
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
    int32_t n_choices;           /* 1 .. BATCH_MAX_CHOICES: the prompt is evaluated once. Choice k draws with batch_seed(seed, k) */
    skua_sampling sampling;      /* bias copied */
    int32_t max_tokens;          /* -1: until the context is full (finish SKUA_FINISH_MAX_TOKENS, then too); 0: only the prompt */
    int32_t min_tokens;          /* no end token before so many */
    bool ignore_end;             /* end tokens are not chosen. One that is all a mask allows is (with min_tokens too), and ends the answer,
                                    as a forced one does */
    int32_t n_logprobs;          /* -1: none; else the chosen token's and so many best ones, at most 20 */
    bool score_prompt;           /* log-probabilities of the prompt's tokens; takes nothing from the cache */
    bool no_cache;               /* neither taken from the cache nor kept */
    bool no_draft;
    int32_t draft_max;           /* 0: the engine's */
    int32_t priority;            /* -10 .. 10, higher first */
    uint64_t owner;              /* fairness: jobs of one owner are first in, first out, owners take turns */
    const struct batch_callbacks *callbacks; /* valid until done; token and done are there */
    void *user;
};

uint64_t batch_seed(uint64_t seed, int32_t choice); /* of choice 0: seed */

/* The engine may have no sessions of others than the batcher's while batcher_run runs. SKUA_EARG, SKUA_ENOMEM. */
int  batcher_create(skua_engine *e, const struct batcher_params *p, struct batcher **out, skua_error *err);
void batcher_free(struct batcher *b); /* NULL allowed; not while it runs. Jobs that are left are done with SKUA_ECANCELED */

/* From any thread. SKUA_EARG: ids, marks, sampling or another field; SKUA_ELIMIT: the queue is full, or the prompt does not fit the context
   (a caller that must tell these apart compares n_prompt with the context first); SKUA_ESTATE: stopping; SKUA_ENOMEM. On success *id names
   the job for batcher_cancel (set before any callback comes); done will be called exactly once. */
int  batcher_submit(struct batcher *b, const struct batch_params *p, uint64_t *id, skua_error *err);

/* From any thread: end a job at the next step; unknown ids are ignored. What of its prompt is evaluated stays in the cache. */
void batcher_cancel(struct batcher *b, uint64_t id);

/* Work until batcher_stop, once. On the caller's thread, which is the only one that uses the engine meanwhile. */
void batcher_run(struct batcher *b);
/* From any thread. drain: finish what is running and waiting, take nothing new; else end all of it with SKUA_ECANCELED at the next step,
   also after a call with drain. */
void batcher_stop(struct batcher *b, bool drain);

/* From any thread: run fn on the batcher's thread between two steps, where the engine and its cache may be used. slot >= 0: when that slot
   is idle, with its session, which fn may replace by another of the same engine and context (the old one is fn's to free then). slot -1: as
   soon as may be; session is NULL. fn gets run false, and must leave all alone, when the batcher ends first. SKUA_EARG: no such slot;
   SKUA_ESTATE: it has ended; SKUA_ENOMEM: fn is not called then. */
typedef void batch_task_fn(void *user, bool run, skua_session **session);
int batcher_call(struct batcher *b, int32_t slot, batch_task_fn *fn, void *user, skua_error *err);

/* A consistent picture for metrics and /slots, from any thread. */
#define BATCH_SLOT_CHECKPOINTS 16
struct batch_slot {
    uint64_t job;               /* 0: idle */
    int32_t n_ctx, n_tokens, prompt_done, prompt_total, n_cached, n_generated;
    const char *phase;          /* "idle", "prefill", "decode" */
    bool drafting;              /* its last round had drafts */
    double last_used;           /* clock_seconds */
    int64_t draft_bytes;        /* of what drafters know of the session */
    struct prefix_checkpoint checkpoints[BATCH_SLOT_CHECKPOINTS]; /* of what the session holds, the longest first */
    int32_t n_checkpoints;
};
struct batch_stats {
    int32_t running, waiting;   /* jobs */
    uint64_t steps, sessions_in_steps, prompt_tokens, cached_tokens[4 /* enum batch_source */], generated_tokens;
    double prompt_seconds, decode_seconds; /* of steps; a step's time is divided by rows */
    skua_draft_stats draft;     /* all choices that ended so far */
};
void batcher_stats(struct batcher *b, struct batch_stats *out);
int32_t batcher_slots(struct batcher *b, struct batch_slot *out, int32_t max); /* returns the number of slots */

#endif
