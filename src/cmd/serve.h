/* The server's inside, shared by the serve_*.c files.
 *
 * Threads: the socket thread (http/), which also has the clock; the worker, which reads bodies, renders and tokenises; the engine's
 * thread (the main one), which runs the batcher and its callbacks. Short questions are answered on the socket thread.
 *
 * Locks, outer first: calls_lock (the list of open calls), a call's lock (its answer), a call's ids_lock (its jobs), then those of the
 * batcher, http and others. No lock is held when a call's last reference is given up. */
#ifndef SKUA_CMD_SERVE_H
#define SKUA_CMD_SERVE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "api/answer.h"
#include "api/api.h"
#include "api/template.h"
#include "api/writer.h"
#include "cmd/serve_metrics.h"
#include "cmd/serve_options.h"
#include "engine/batcher.h"
#include "http/http.h"

#define SERVE_MAX_PROMPTS 64
#define SERVE_WORKER_QUEUE 1024
#define SERVE_MAX_SLOTS 64

enum serve_state { SERVE_LOADING, SERVE_READY, SERVE_DRAINING, SERVE_FAILED };
enum serve_why { SERVE_GOES_ON, SERVE_CLIENT_GONE, SERVE_DEADLINE, SERVE_CANCELED, SERVE_OVERFLOW, SERVE_NO_MEMORY }; /* ... ended */

struct serve;
struct serve_call;
struct serve_route {
    const char *path;         /* ending in '/': what begins with it and goes on */
    bool v1, bare;            /* under /v1, and without it */
    const char *method;       /* GET stands for HEAD too */
    enum api_family family;
    bool open;                /* needs no key */
    bool on_worker, loaded;   /* not on the socket thread; needs the model */
    void (*handle)(struct serve_call *c);
};

/* One prompt's job. */
struct serve_part {
    struct serve_call *call;
    int32_t prompt;           /* index in the request */
    struct answer *answers[BATCH_MAX_CHOICES];
    struct serve_sink { struct serve_part *part; int32_t choice; } sinks[BATCH_MAX_CHOICES];
    int32_t n_generated[BATCH_MAX_CHOICES]; /* as counted on the way */
    struct batch_start start;
    int32_t diverged_from[16];
    struct batch_result result;
    bool begun, done;
};

/* A request from its handler to its answer's end. */
struct serve_call {
    struct serve *s;
    struct http_request *http;
    const struct serve_route *route;
    const char *tail;         /* of the path, behind a route that ends in '/' */
    uint64_t owner;           /* by key */
    atomic_int refs;
    atomic_int why;           /* enum serve_why */
    struct serve_call *prev, *next; /* calls_lock */
    struct serve_call *queued;      /* the worker's queue */

    pthread_mutex_t ids_lock;
    uint64_t ids[SERVE_MAX_PROMPTS];
    size_t n_ids;

    pthread_mutex_t lock;
    struct api_request request;
    struct answer_plan *plan;
    struct api_writer *writer;
    struct serve_part *parts; /* [n_parts] */
    size_t n_parts, n_done;
    bool submitted, streaming, answered, failed, canceled;
    struct api_error error;   /* why it failed */
    struct api_usage usage;
    double deadline;          /* clock_seconds; 0: none */
    double last_sent, first_token, last_token;
    bool quiet;               /* the last sign of life was no event */
    atomic_int end_thinking;  /* asked for by a control request */
    int status;               /* of the answer, for log and metrics */
    enum api_finish finish;
};

struct serve {
    struct serve_options opt;
    FILE *log;
    pthread_mutex_t log_lock;
    struct http_server *http;
    skua_error socket_error;  /* why the socket thread ended */
    _Atomic int state;        /* enum serve_state */
    _Atomic int loaded;       /* while loading: thousandths of what is to be repacked */
    double started;

    skua_engine *engine;
    struct api_template *chat;
    struct api_env env;
    char drafters[64], model_id[256], fingerprint[24], numeric_mode[48], quantization[16], stem[256];
    const char *aliases[SERVE_MAX_NAMES + 1];
    struct replay *replay;
    char *replay_path;        /* NULL: not kept */
    struct response_store *responses; /* NULL: not kept */
    struct answer_shared *answers;
    struct prefix_cache *cache; /* NULL: none */
    struct batcher *batcher;
    int32_t n_parallel;
    int64_t cache_ram;
    char write_failed[128];   /* why files of the cache could not be written last; "": they can. The cache's writer only */

    pthread_mutex_t calls_lock;
    struct serve_call *calls;

    pthread_t socket_thread, worker_thread, signal_thread;
    pthread_mutex_t queue_lock;
    pthread_cond_t queue_wake;
    struct serve_call *queue_first, *queue_last;
    int n_queued;
    bool worker_stop;

    struct serve_metrics metrics;
};

/* serve_route.c: requests to routes. */
http_handler serve_handle;          /* user: struct serve */
http_error_body serve_error_body;
enum api_family serve_family(const char *path);
void serve_put_endpoints(struct strbuf *b); /* a JSON list */

/* serve_call.c */
struct serve_call *serve_call_new(struct serve *s, struct http_request *r);
void serve_call_unref(struct serve_call *c);
/* End its work as soon as may be; the first reason counts. Any thread. */
void serve_call_cancel(struct serve_call *c, enum serve_why why);
/* The call whose request id, or whose answer's id this is, referenced; NULL. */
struct serve_call *serve_call_find(struct serve *s, const char *id);
void serve_call_tick(void *serve);  /* signs of life and deadlines; on the socket thread, some times a second */

/* serve_reply.c: whole answers. */
void serve_reply(struct serve_call *c, int status, const char *content_type /* NULL: JSON */, const struct strbuf *body);
void serve_fail(struct serve_call *c, const struct api_error *e);
/* Header fields of every answer to this request; returns their number, at most SERVE_HEADERS. values: memory for some. */
#define SERVE_HEADERS 12
struct serve_header_values { char retry_s[16], retry_ms[24]; };
size_t serve_headers(struct serve_call *c, const struct api_error *e, struct http_header *out, struct serve_header_values *values);

/* serve_worker.c */
int  serve_worker_start(struct serve *s, skua_error *err);
void serve_worker_push(struct serve_call *c); /* takes the caller's reference; refuses when full or stopping */
void serve_worker_stop(struct serve *s);      /* what waits is refused; joined */

/* serve_answer.c: requests that generate. */
void serve_chat(struct serve_call *c);
void serve_completions(struct serve_call *c);
void serve_responses(struct serve_call *c);
void serve_messages(struct serve_call *c);

/* serve_job.c: the batcher's side of them. */
extern const struct batch_callbacks serve_callbacks;
/* With the call's lock: send what the writer has. */
void serve_flush(struct serve_call *c);
/* With the call's lock: end the answer with c->error. */
void serve_end_failed(struct serve_call *c);

/* serve_info.c, serve_slots.c, serve_props.c, serve_control.c, serve_page.c, serve_responses.c */
void serve_models(struct serve_call *c);
void serve_model(struct serve_call *c);
void serve_tokenize(struct serve_call *c);
void serve_detokenize(struct serve_call *c);
void serve_apply_template(struct serve_call *c);
void serve_embeddings(struct serve_call *c);
void serve_input_tokens(struct serve_call *c);
void serve_count_tokens(struct serve_call *c);
void serve_health(struct serve_call *c);
void serve_live(struct serve_call *c);
void serve_ready(struct serve_call *c);
void serve_metrics_get(struct serve_call *c);
void serve_stats(struct serve_call *c);
void serve_slots(struct serve_call *c);
void serve_slot_action(struct serve_call *c);
void serve_props(struct serve_call *c);
void serve_props_set(struct serve_call *c);
void serve_control(struct serve_call *c);
void serve_cancel(struct serve_call *c);
void serve_cache_flush(struct serve_call *c);
void serve_cache_clear(struct serve_call *c);
void serve_page(struct serve_call *c);
void serve_response(struct serve_call *c);
void serve_response_delete(struct serve_call *c);

/* The body as a JSON object, the caller's; NULL: the call has failed and is answered. */
json_t *serve_body(struct serve_call *c);

/* serve_log.c: one line each, with the time. */
void serve_log(struct serve *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void serve_log_write(void *serve, const skua_error *failed); /* of the cache's files: once for each reason, and when it works again */
void serve_log_answer(struct serve_call *c);  /* how a generating request went; with its lock or the last reference */

#endif
