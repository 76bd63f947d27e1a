/* Counters of the server, and what /metrics and /stats say. */
#include "cmd/serve_metrics.h"

#include <string.h>

/* Upper ends of the buckets, seconds; the last one has none. */
const double metric_bounds[METRIC_BUCKETS - 1] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 600};

void metrics_init(struct serve_metrics *m)
{
    pthread_mutex_init(&m->lock, NULL);
}

void metrics_free(struct serve_metrics *m)
{
    pthread_mutex_destroy(&m->lock);
}

void metrics_request(struct serve_metrics *m, const char *endpoint, int status)
{
    pthread_mutex_lock(&m->lock);
    int i = 0, k = 0;
    while (i < METRIC_ENDPOINTS - 1 && m->requests[i].endpoint && strcmp(m->requests[i].endpoint, endpoint))
        i++;
    m->requests[i].endpoint = endpoint;
    while (k < METRIC_STATUSES - 1 && m->requests[i].by[k].status && m->requests[i].by[k].status != status)
        k++;
    m->requests[i].by[k].status = status;
    m->requests[i].by[k].count++;
    pthread_mutex_unlock(&m->lock);
}

void metrics_reason(struct serve_metrics *m, struct metric_reasons *r, const char *name, uint64_t n)
{
    pthread_mutex_lock(&m->lock);
    int i = 0;
    while (i < METRIC_REASONS - 1 && r->name[i] && strcmp(r->name[i], name))
        i++;
    r->name[i] = name;
    r->count[i] += n;
    pthread_mutex_unlock(&m->lock);
}

void metrics_observe(struct serve_metrics *m, struct metric_histogram *h, double seconds)
{
    int i = 0;
    while (i < METRIC_BUCKETS - 1 && seconds > metric_bounds[i])
        i++;
    pthread_mutex_lock(&m->lock);
    h->bucket[i]++;
    h->count++;
    h->sum += seconds;
    pthread_mutex_unlock(&m->lock);
}

static void add_draft(skua_draft_stats *to, const skua_draft_stats *d)
{
    to->rounds += d->rounds;
    to->tokens += d->tokens;
    for (int i = 0; i <= SKUA_DRAFT_MAX; i++)
        to->depth[i] += d->depth[i];
    for (int32_t i = 0; i < d->n_sources; i++) {
        to->n_sources = d->n_sources > to->n_sources ? d->n_sources : to->n_sources;
        to->sources[i].name = d->sources[i].name;
        to->sources[i].rounds += d->sources[i].rounds;
        to->sources[i].lost |= d->sources[i].lost;
        for (int k = 0; k < SKUA_DRAFT_MAX; k++) {
            to->sources[i].tested[k] += d->sources[i].tested[k];
            to->sources[i].accepted[k] += d->sources[i].accepted[k];
        }
    }
}

void metrics_answer(struct serve_metrics *m, const struct batch_result *r)
{
    pthread_mutex_lock(&m->lock);
    add_draft(&m->draft, &r->draft);
    m->prompt_seconds += r->prompt_seconds;
    m->decode_seconds += r->generate_seconds;
    m->errors += r->rc && r->rc != SKUA_ECANCELED && r->rc != SKUA_ELIMIT && r->rc != SKUA_ENOMEM;
    pthread_mutex_unlock(&m->lock);
}

void metrics_usage(struct serve_metrics *m, const struct api_usage *u)
{
    pthread_mutex_lock(&m->lock);
    m->prompt_tokens += (uint64_t)u->n_prompt;
    m->generated_tokens += (uint64_t)u->n_generated;
    m->reasoning_tokens += (uint64_t)u->n_thinking;
    if (u->n_prompt + u->n_generated > m->tokens_max)
        m->tokens_max = u->n_prompt + u->n_generated;
    pthread_mutex_unlock(&m->lock);
}
