/* The batcher's parts: batcher.c (the public side and the loop), batcher_queue.c (who waits, and who is next), batcher_job.c (a job's way
 * through prompt, choices and end), batcher_step.c (one pass for all).
 *
 * Locking. `lock` guards what is marked so; everything else belongs to the thread in batcher_run. Callbacks come without the lock. */
#ifndef SKUA_ENGINE_BATCHER_INTERNAL_H
#define SKUA_ENGINE_BATCHER_INTERNAL_H

#include <pthread.h>

#include "engine/batcher.h"
#include "engine/generation.h"

struct batch_job {
    uint64_t id;
    struct batch_params p;    /* pointers are to copies behind the struct */
    double submitted;         /* clock_seconds */

    /* locked */
    struct batch_job *next;   /* in the queue */
    uint64_t turn;            /* of its owner */
    int32_t passed;           /* jobs behind it that were taken before it */
    bool canceled;
    struct batch_job *next_all; /* every job that is not done */

    /* the engine thread's */
    double started, prompt_end;
    struct batch_next first[BATCH_MAX_CHOICES];
    enum skua_logits want;    /* behind the prompt: LAST or ARGMAX */
    float *logits;            /* [n_logits_rows][n_vocab] of the prompt; NULL with ARGMAX */
    skua_feed prompt_feed;    /* that ended the prompt: what first tokens are chosen from */
    skua_snapshot *snapshot;  /* behind the prompt, for choices that start later; NULL: none do */
    int32_t n_started, n_ended; /* choices */
    int rc;                   /* not 0: the job has failed in this step */
    skua_error err;
    struct batch_result result;
};

enum batch_phase { BATCH_IDLE, BATCH_PREFILL, BATCH_DECODE };

struct batch_seat {           /* a session and who uses it */
    skua_session *session;
    enum batch_phase phase;
    struct batch_job *job;    /* NULL: idle */
    int32_t choice, prompt_done;
    struct generation generation; /* BATCH_DECODE */
    skua_draft_stats draft_before;
    bool drafting;
    double last_used;
    uint64_t listed;          /* prefix_cache_changes when the checkpoints of its view were listed */
};

struct batch_owner {
    uint64_t id, turn;        /* turn: of its last job */
};

struct batch_task {           /* batcher_call */
    struct batch_task *next;
    int32_t slot;
    batch_task_fn *fn;
    void *user;
};

enum batch_stop { BATCH_RUN, BATCH_DRAIN, BATCH_STOP };

struct batcher {
    skua_engine *engine;
    struct batcher_params p;
    int32_t n_ctx;
    struct sampler_workspace workspace;
    struct batch_seat *seats; /* [p.n_parallel] */
    struct skua_feed *feeds;  /* [p.n_parallel] of a step */
    struct batch_seat **feed_seats; /* [p.n_parallel] whose they are */
    struct sched_member *members; /* [p.n_parallel] */
    struct batch_stats count; /* the engine thread's own */

    pthread_mutex_t lock;
    pthread_cond_t wake;      /* the engine thread: there is something to do */
    /* locked from here on */
    struct batch_job *queue, *all; /* queue: in the order in which they are taken */
    struct batch_owner *owners;
    int32_t n_owners, cap_owners, n_waiting, n_busy; /* seats in use */
    uint64_t last_id, virtual_turn;
    int32_t n_canceled;       /* running jobs to be ended */
    struct batch_task *tasks;
    enum batch_stop stop;
    bool ended;               /* batcher_run is over */
    struct batch_stats stats; /* published after every step */
    struct batch_slot *view;  /* [p.n_parallel] */
};

/* ---- the queue; with the lock ---- */

/* Room to remember one owner more. */
int  batch_queue_reserve(struct batcher *b, skua_error *err);
void batch_queue_put(struct batcher *b, struct batch_job *job);
/* The job that is next, taken out of the queue; NULL: none waits. On the engine's thread. */
struct batch_job *batch_queue_take(struct batcher *b);
/* A waiting job that is canceled or has waited too long, taken out; NULL: none. *code, message: why. */
struct batch_job *batch_queue_expired(struct batcher *b, double now, skua_error *why);
/* Seconds until the next one has waited too long; negative: none will. */
double batch_queue_deadline(const struct batcher *b, double now);

/* Tokens of the prompt with which an idle seat's session can go on as it is, and the seat (may be NULL). */
int32_t batch_live_match(const struct batcher *b, const struct batch_job *job, struct batch_seat **seat);

/* ---- jobs; without the lock ---- */

/* Take a seat (one must be idle) and begin. */
void batch_job_start(struct batcher *b, struct batch_job *job);
/* The prompt of the seat's job is evaluated: choices begin. */
void batch_job_prompt_end(struct batcher *b, struct batch_seat *seat);
/* The generation of this seat has finished; the seat goes on with the job's next choice or is free. */
void batch_job_choice_end(struct batcher *b, struct batch_seat *seat);
/* The job is done: seats are free, `done` is called, the job is freed. rc 0, or the error in *why. */
void batch_job_end(struct batcher *b, struct batch_job *job, int rc, const skua_error *why);
/* Keep what the session holds, if the job allows it. */
void batch_job_keep(struct batcher *b, struct batch_seat *seat, enum prefix_worth worth);

/* ---- steps ---- */

/* One pass over what the seats want, and what comes of it. */
void batch_step(struct batcher *b);

#define BATCH_SCORE_ROWS 32 /* prompt tokens at a time whose logits are all wanted */

#endif
