/* The server's log. */
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cmd/serve.h"

void serve_log(struct serve *s, const char *fmt, ...)
{
    struct strbuf line = {0};
    struct tm tm;
    char when[24] = "";
    const time_t now = time(NULL);
    va_list ap;
    if (localtime_r(&now, &tm))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &tm);
    strbuf_printf(&line, "%s ", when);
    va_start(ap, fmt);
    strbuf_vprintf(&line, fmt, ap);
    va_end(ap);
    strbuf_putc(&line, '\n');
    pthread_mutex_lock(&s->log_lock);
    if (!strbuf_failed(&line)) {
        fputs(strbuf_str(&line), s->log);
        fflush(s->log);
    }
    pthread_mutex_unlock(&s->log_lock);
    strbuf_free(&line);
}

/* The reason is what stands behind the file's name, which is another one each time. */
void serve_log_write(void *serve, const skua_error *failed)
{
    struct serve *s = serve;
    if (!failed) {
        if (*s->write_failed)
            serve_log(s, "files of the cache can be written again");
        *s->write_failed = '\0';
        return;
    }
    const char *colon = strrchr(failed->message, ':'), *why = colon ? colon + 1 : failed->message;
    if (!strncmp(s->write_failed, why, sizeof s->write_failed - 1))
        return;
    snprintf(s->write_failed, sizeof s->write_failed, "%.*s", (int)sizeof s->write_failed - 1, why);
    serve_log(s, "warning: the cache keeps in memory only what it cannot write: %s (said once)", failed->message);
}

static const char *finish_name(enum api_finish f)
{
    static const char *const names[] = {"stop", "stop string", "length", "context full", "calls", "canceled"};
    return names[f];
}

void serve_log_answer(struct serve_call *c)
{
    const struct batch_result *r = &c->parts[0].result;
    const struct batch_start *start = &c->parts[0].start;
    struct strbuf draft = {0};
    int64_t tested = 0, accepted = 0, most = 0;
    const char *drafter = NULL;
    for (int32_t i = 0; i < r->draft.n_sources; i++) {
        for (int k = 0; k < SKUA_DRAFT_MAX; k++) {
            tested += r->draft.sources[i].tested[k];
            accepted += r->draft.sources[i].accepted[k];
        }
        if (r->draft.sources[i].rounds > most) {
            most = r->draft.sources[i].rounds;
            drafter = r->draft.sources[i].name;
        }
    }
    if (drafter)
        strbuf_printf(&draft, ", drafts %s %lld of %lld, AL %.2f", drafter, (long long)accepted, (long long)tested,
                      r->draft.rounds > 0 ? (double)r->draft.tokens / (double)r->draft.rounds : 0.0);
    const struct api_usage *u = &c->usage;
    if (c->failed)
        serve_log(c->s, "%s %s %d: %s%s%s; prompt %d (%d cached), generated %d, %.2f s", http_request_id(c->http), c->route->path,
                  c->status, c->error.code, *c->error.message ? ": " : "", c->error.message, u->n_prompt, u->n_cached, u->n_generated,
                  clock_seconds() - http_received(c->http));
    else
        serve_log(c->s,
                  "%s %s %d: prompt %d (%d cached: %s%s%s), generated %d (%d thinking): %s; queue %.2f s, prompt %.2f s, decode %.2f s "
                  "(%.1f t/s)%s",
                  http_request_id(c->http), c->route->path, c->status, u->n_prompt, u->n_cached,
                  c->parts[0].begun ? batch_source_names[start->source] : "none", c->parts[0].begun && *start->miss_reason ? ", " : "",
                  c->parts[0].begun ? start->miss_reason : "", u->n_generated, u->n_thinking, finish_name(c->finish), u->queue_s,
                  u->prompt_s, u->generate_s, u->generate_s > 0 ? u->n_generated / u->generate_s : 0.0, strbuf_str(&draft));
    strbuf_free(&draft);
}
