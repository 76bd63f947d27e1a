/* /metrics in Prometheus' text format 0.0.4, and /stats. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "api/json_text.h"
#include "base/clock.h"
#include "cmd/serve.h"
#include "engine/engine.h"

/* Everything at one time. */
struct view {
    struct serve_metrics own;
    struct batch_stats batch;
    struct batch_slot slots[SERVE_MAX_SLOTS];
    int32_t n_slots;
    struct prefix_cache_stats cache;
    struct answer_counters answers;
    size_t n_replay;
    uint64_t replay_hits;
    size_t n_responses, response_bytes;
    struct http_server_stats http;
    skua_engine_info info;
    double rss, cpu, start;
};

static double resident_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    long size = 0, resident = 0;
    if (f && fscanf(f, "%ld %ld", &size, &resident) != 2)
        resident = 0;
    if (f)
        fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

static void look(struct serve *s, struct view *v)
{
    struct rusage use;
    memset(v, 0, sizeof *v);
    pthread_mutex_lock(&s->metrics.lock);
    v->own = s->metrics;
    pthread_mutex_unlock(&s->metrics.lock);
    batcher_stats(s->batcher, &v->batch);
    v->n_slots = batcher_slots(s->batcher, v->slots, SERVE_MAX_SLOTS);
    if (s->cache)
        prefix_cache_get_stats(s->cache, &v->cache);
    answer_get_counters(s->answers, &v->answers);
    replay_get_stats(s->replay, &v->n_replay, &v->replay_hits);
    if (s->responses)
        response_store_get_stats(s->responses, &v->n_responses, &v->response_bytes);
    http_server_get_stats(s->http, &v->http);
    v->info = skua_engine_get_info(s->engine);
    v->rss = resident_bytes();
    getrusage(RUSAGE_SELF, &use);
    v->cpu = (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) + (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
    v->start = (double)time(NULL) - (clock_seconds() - s->started);
}

/* ---- lines ---- */

static void type(struct strbuf *b, const char *name, const char *kind)
{
    strbuf_printf(b, "# TYPE skua_%s %s\n", name, kind);
}

static void number(struct strbuf *b, double v)
{
    api_json_double(b, v);
    strbuf_putc(b, '\n');
}

/* One without labels. */
static void single(struct strbuf *b, const char *name, const char *kind, double v)
{
    type(b, name, kind);
    strbuf_printf(b, "skua_%s ", name);
    number(b, v);
}

/* One line of a metric with a label; the value is a word of the program. */
static void labelled(struct strbuf *b, const char *name, const char *label, const char *value, double v)
{
    strbuf_printf(b, "skua_%s{%s=\"%s\"} ", name, label, value);
    number(b, v);
}

static void reasons(struct strbuf *b, const char *name, const char *label, const struct metric_reasons *r)
{
    type(b, name, "counter");
    for (int i = 0; i < METRIC_REASONS && r->name[i]; i++)
        labelled(b, name, label, r->name[i], (double)r->count[i]);
}

static void histogram(struct strbuf *b, const char *name, const struct metric_histogram *h)
{
    uint64_t n = 0;
    type(b, name, "histogram");
    for (int i = 0; i < METRIC_BUCKETS; i++) {
        n += h->bucket[i];
        strbuf_printf(b, "skua_%s_bucket{le=\"", name);
        if (i < METRIC_BUCKETS - 1)
            api_json_double(b, metric_bounds[i]);
        else
            strbuf_puts(b, "+Inf");
        strbuf_printf(b, "\"} %llu\n", (unsigned long long)n);
    }
    strbuf_printf(b, "skua_%s_sum ", name);
    number(b, h->sum);
    strbuf_printf(b, "skua_%s_count %llu\n", name, (unsigned long long)h->count);
}

/* ---- groups ---- */

static void put_requests(struct strbuf *b, const struct view *v)
{
    type(b, "requests_total", "counter");
    for (int i = 0; i < METRIC_ENDPOINTS && v->own.requests[i].endpoint; i++)
        for (int k = 0; k < METRIC_STATUSES && v->own.requests[i].by[k].status; k++)
            strbuf_printf(b, "skua_requests_total{endpoint=\"%s\",status=\"%d\"} %llu\n", v->own.requests[i].endpoint,
                          v->own.requests[i].by[k].status, (unsigned long long)v->own.requests[i].by[k].count);
    reasons(b, "requests_cancelled_total", "phase", &v->own.cancelled);
    reasons(b, "requests_rejected_total", "reason", &v->own.rejected);
    single(b, "requests_running", "gauge", v->batch.running);
    single(b, "requests_waiting", "gauge", v->batch.waiting);
    single(b, "connections", "gauge", v->http.connections);
    single(b, "request_body_bytes", "gauge", (double)v->http.body_bytes);
    single(b, "request_bodies_refused_total", "counter", (double)v->http.bodies_refused);
}

static void put_tokens(struct strbuf *b, const struct view *v)
{
    single(b, "prompt_tokens_total", "counter", (double)v->own.prompt_tokens);
    reasons(b, "prompt_tokens_cached_total", "source", &v->own.cache_source);
    reasons(b, "prompt_tokens_reprocessed_total", "reason", &v->own.reprocessed);
    single(b, "generated_tokens_total", "counter", (double)v->own.generated_tokens);
    single(b, "reasoning_tokens_total", "counter", (double)v->own.reasoning_tokens);
    single(b, "prompt_seconds_total", "counter", v->batch.prompt_seconds);
    single(b, "decode_seconds_total", "counter", v->batch.decode_seconds);
    single(b, "decode_steps_total", "counter", (double)v->batch.steps);
    single(b, "sessions_per_step_sum", "counter", (double)v->batch.sessions_in_steps);
    histogram(b, "time_to_first_token_seconds", &v->own.first_token);
    histogram(b, "inter_token_seconds", &v->own.inter_token);
    histogram(b, "queue_seconds", &v->own.queue);
    histogram(b, "request_seconds", &v->own.request);
}

static void put_drafts(struct strbuf *b, const struct view *v)
{
    static const char *const names[] = {"spec_rounds_total", "spec_drafted_total", "spec_accepted_total"};
    const skua_draft_stats *d = &v->own.draft;
    int64_t verified = 0;
    for (int what = 0; what < 3; what++) {
        type(b, names[what], "counter");
        for (int32_t i = 0; i < d->n_sources; i++) {
            int64_t n = what ? 0 : d->sources[i].rounds;
            for (int k = 0; k < SKUA_DRAFT_MAX && what; k++)
                n += what == 1 ? d->sources[i].tested[k] : d->sources[i].accepted[k];
            if (d->sources[i].name)
                labelled(b, names[what], "type", d->sources[i].name, (double)n);
        }
    }
    type(b, "spec_accepted_at_position_total", "counter");
    for (int32_t i = 0; i < d->n_sources; i++)
        for (int k = 0; k < SKUA_DRAFT_MAX && d->sources[i].name; k++)
            if (d->sources[i].tested[k])
                strbuf_printf(b, "skua_spec_accepted_at_position_total{type=\"%s\",pos=\"%d\"} %lld\n", d->sources[i].name, k,
                              (long long)d->sources[i].accepted[k]);
    type(b, "spec_disabled_total", "counter");
    for (int32_t i = 0; i < d->n_sources; i++)
        if (d->sources[i].lost && d->sources[i].name)
            labelled(b, "spec_disabled_total", "reason", "lost", 1);
    for (int i = 0; i <= SKUA_DRAFT_MAX; i++)
        verified += i * d->depth[i];
    single(b, "spec_depth", "gauge", d->rounds ? (double)verified / (double)d->rounds : 0);
}

static void put_cache(struct strbuf *b, const struct serve *s, const struct view *v)
{
    static const char *const save_reasons[PREFIX_N_WORTHS] = {"interrupted", "interval", "border"};
    const struct prefix_cache_stats *c = &v->cache;
    int64_t used = 0;
    for (int32_t i = 0; i < v->n_slots && i < SERVE_MAX_SLOTS; i++)
        used += v->slots[i].n_tokens;
    type(b, "cache_checkpoints", "gauge");
    labelled(b, "cache_checkpoints", "tier", "ram", (double)c->n_ram);
    labelled(b, "cache_checkpoints", "tier", "disk", (double)c->n_disk);
    type(b, "cache_bytes", "gauge");
    labelled(b, "cache_bytes", "tier", "ram", (double)c->ram_bytes);
    labelled(b, "cache_bytes", "tier", "disk", (double)c->disk_bytes);
    single(b, "kv_tokens_used", "gauge", (double)used);
    single(b, "kv_tokens_capacity", "gauge", (double)s->env.n_ctx * s->n_parallel);
    type(b, "cache_saves_total", "counter");
    for (int i = 0; i < PREFIX_N_WORTHS; i++)
        labelled(b, "cache_saves_total", "reason", save_reasons[i], (double)c->saves[i]);
    single(b, "cache_loads_total", "counter", (double)c->loads);
    type(b, "cache_evictions_total", "counter");
    labelled(b, "cache_evictions_total", "tier", "ram", (double)c->evictions_ram);
    labelled(b, "cache_evictions_total", "tier", "disk", (double)c->evictions_disk);
    single(b, "cache_load_errors_total", "counter", (double)c->load_errors);
    single(b, "cache_write_errors_total", "counter", (double)c->write_errors);
}

static void put_answers(struct strbuf *b, const struct view *v)
{
    single(b, "tool_calls_total", "counter", (double)v->answers.calls);
    type(b, "tool_parse_fallback_total", "counter");
    labelled(b, "tool_parse_fallback_total", "rule", "text", (double)v->answers.parse_fallbacks);
    type(b, "tool_replay_total", "counter");
    labelled(b, "tool_replay_total", "source", "ram", (double)v->replay_hits);
    single(b, "thinking_budget_hits_total", "counter", (double)v->answers.budget_hits);
    single(b, "thinking_eos_rescued_total", "counter", (double)v->answers.end_rescued);
    single(b, "grammar_compile_seconds_total", "counter", v->answers.grammar_seconds);
    single(b, "responses_kept", "gauge", (double)v->n_responses);
    single(b, "schema_relaxed_total", "counter", (double)v->answers.schema_relaxed);
}

static void put_process(struct strbuf *b, const struct serve *s, const struct view *v)
{
    single(b, "backend_errors_total", "counter", (double)v->own.errors);
    type(b, "memory_bytes", "gauge");
    labelled(b, "memory_bytes", "kind", "weights", (double)v->info.file_bytes);
    int64_t pages = 0, draft_bytes = 0;
    for (int32_t i = 0; i < v->n_slots && i < SERVE_MAX_SLOTS; i++) {
        draft_bytes += v->slots[i].draft_bytes;
        pages += (v->slots[i].n_tokens + v->info.kv_page_rows - 1) / v->info.kv_page_rows;
    }
    labelled(b, "memory_bytes", "kind", "draft", (double)draft_bytes);
    labelled(b, "memory_bytes", "kind", "kv", (double)pages * (double)v->info.kv_page_bytes);
    labelled(b, "memory_bytes", "kind", "state", (double)s->n_parallel * (double)v->info.state_bytes);
    labelled(b, "memory_bytes", "kind", "checkpoints", (double)v->cache.ram_bytes);
    labelled(b, "memory_bytes", "kind", "responses", (double)v->response_bytes);
    labelled(b, "memory_bytes", "kind", "work", (double)v->info.workspace_bytes);
    single(b, "model_loaded", "gauge", 1);
    type(b, "build_info", "gauge");
    strbuf_printf(b, "skua_build_info{version=\"%s\",backend=\"cpu\",numeric_mode=\"%s\"} 1\n", SKUA_VERSION, s->numeric_mode);
    strbuf_puts(b, "# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes ");
    number(b, v->rss);
    strbuf_puts(b, "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total ");
    number(b, v->cpu);
    strbuf_puts(b, "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds ");
    number(b, v->start);
}

/* The names that dashboards of llama.cpp's server know. */
static void put_compat(struct strbuf *b, const struct view *v)
{
    const double prompt_s = v->batch.prompt_seconds, decode_s = v->batch.decode_seconds;
    const double steps = (double)v->batch.steps;
    const struct { const char *name, *kind; double value; } all[] = {
        {"prompt_tokens_total", "counter", (double)v->batch.prompt_tokens},
        {"prompt_seconds_total", "counter", prompt_s},
        {"tokens_predicted_total", "counter", (double)v->own.generated_tokens},
        {"tokens_predicted_seconds_total", "counter", decode_s},
        {"prompt_tokens_seconds", "gauge", prompt_s > 0 ? (double)v->batch.prompt_tokens / prompt_s : 0},
        {"predicted_tokens_seconds", "gauge", decode_s > 0 ? (double)v->batch.generated_tokens / decode_s : 0},
        {"requests_processing", "gauge", v->batch.running},
        {"requests_deferred", "gauge", v->batch.waiting},
        {"n_decode_total", "counter", steps},
        {"n_busy_slots_per_decode", "gauge", steps > 0 ? (double)v->batch.sessions_in_steps / steps : 0},
        {"n_tokens_max", "gauge", v->own.tokens_max},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        strbuf_printf(b, "# TYPE llamacpp:%s %s\nllamacpp:%s ", all[i].name, all[i].kind, all[i].name);
        number(b, all[i].value);
    }
}

void metrics_text(struct serve *s, struct strbuf *out)
{
    struct view v;
    look(s, &v);
    put_requests(out, &v);
    put_tokens(out, &v);
    put_drafts(out, &v);
    put_cache(out, s, &v);
    put_answers(out, &v);
    put_process(out, s, &v);
    if (s->opt.metrics_compat)
        put_compat(out, &v);
}

void metrics_json(struct serve *s, struct strbuf *out)
{
    struct view v;
    look(s, &v);
    const struct { const char *name; double value; } all[] = {
        {"uptime_seconds", clock_seconds() - s->started},
        {"requests_running", v.batch.running},
        {"requests_waiting", v.batch.waiting},
        {"requests_answered", (double)v.own.request.count},
        {"connections", v.http.connections},
        {"prompt_tokens", (double)v.own.prompt_tokens},
        {"generated_tokens", (double)v.own.generated_tokens},
        {"reasoning_tokens", (double)v.own.reasoning_tokens},
        {"prompt_seconds", v.batch.prompt_seconds},
        {"decode_seconds", v.batch.decode_seconds},
        {"decode_steps", (double)v.batch.steps},
        {"draft_rounds", (double)v.own.draft.rounds},
        {"draft_tokens", (double)v.own.draft.tokens},
        {"cache_checkpoints_ram", (double)v.cache.n_ram},
        {"cache_checkpoints_disk", (double)v.cache.n_disk},
        {"cache_bytes_ram", (double)v.cache.ram_bytes},
        {"cache_bytes_disk", (double)v.cache.disk_bytes},
        {"cache_loads", (double)v.cache.loads},
        {"tool_calls", (double)v.answers.calls},
        {"tool_replays", (double)v.replay_hits},
        {"responses_kept", (double)v.n_responses},
        {"resident_memory_bytes", v.rss},
        {"cpu_seconds", v.cpu},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        strbuf_printf(out, "%s\"%s\":", i ? "," : "{", all[i].name);
        api_json_double(out, all[i].value);
    }
    strbuf_putc(out, '}');
}

void serve_metrics_get(struct serve_call *c)
{
    struct strbuf out = {0};
    metrics_text(c->s, &out);
    serve_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", &out);
    strbuf_free(&out);
}

void serve_stats(struct serve_call *c)
{
    struct strbuf out = {0};
    metrics_json(c->s, &out);
    serve_reply(c, 200, NULL, &out);
    strbuf_free(&out);
}
