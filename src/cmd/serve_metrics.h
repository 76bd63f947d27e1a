/* What the server counts; spec/api.md 13. What the batcher, the cache and others count themselves is read there. */
#ifndef SKUA_CMD_SERVE_METRICS_H
#define SKUA_CMD_SERVE_METRICS_H

#include <pthread.h>
#include <stdint.h>

#include "api/writer.h"

#define METRIC_ENDPOINTS 64
#define METRIC_STATUSES 24
#define METRIC_BUCKETS 15
#define METRIC_REASONS 16

struct metric_histogram {
    uint64_t bucket[METRIC_BUCKETS], count; /* not cumulated */
    double sum;
};

struct metric_reasons {       /* counts by a few words, all of them constants of the program */
    const char *name[METRIC_REASONS];
    uint64_t count[METRIC_REASONS];
};

struct serve_metrics {
    pthread_mutex_t lock;
    struct {
        const char *endpoint;
        struct { int status; uint64_t count; } by[METRIC_STATUSES];
    } requests[METRIC_ENDPOINTS];
    struct metric_reasons cancelled, rejected, reprocessed, cache_source;
    uint64_t prompt_tokens, generated_tokens, reasoning_tokens;
    uint64_t errors;          /* jobs that the engine could not go on with */
    double prompt_seconds, decode_seconds;
    skua_draft_stats draft;
    struct metric_histogram first_token, inter_token, queue, request;
    int32_t tokens_max;       /* longest prompt and answer so far */
};

extern const double metric_bounds[METRIC_BUCKETS - 1];

/* Nothing is counted yet; m is zeroed. */
void metrics_init(struct serve_metrics *m);
/* Nobody counts any more. */
void metrics_free(struct serve_metrics *m);
/* An answer of this status; endpoint and name are constants of the program. */
void metrics_request(struct serve_metrics *m, const char *endpoint, int status);
/* n more for this reason. */
void metrics_reason(struct serve_metrics *m, struct metric_reasons *r, const char *name, uint64_t n);
/* One more of so many seconds. */
void metrics_observe(struct serve_metrics *m, struct metric_histogram *h, double seconds);
/* A job's end, and an answer's. */
void metrics_answer(struct serve_metrics *m, const struct batch_result *r);
void metrics_usage(struct serve_metrics *m, const struct api_usage *u);

/* The text of /metrics and the object of /stats. s: the server. */
struct serve;
void metrics_text(struct serve *s, struct strbuf *out);
void metrics_json(struct serve *s, struct strbuf *out);

#endif
