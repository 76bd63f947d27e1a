/* Usage, timings and engine information; see usage.h. */
#include "api/usage.h"

#include <string.h>

#include "api/json_text.h"

#define DIVERGED_TOKENS 16 /* shown of each text where a prompt parts from what is kept */

void api_usage_json(struct strbuf *b, const struct api_usage *u)
{
    strbuf_printf(b,
                  "{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d,\"prompt_tokens_details\":{\"cached_tokens\":%d},"
                  "\"completion_tokens_details\":{\"reasoning_tokens\":%d,\"accepted_prediction_tokens\":0,"
                  "\"rejected_prediction_tokens\":0}}",
                  u->n_prompt, u->n_generated, u->n_prompt + u->n_generated, u->n_cached, u->n_thinking);
}

static void put_number(struct strbuf *b, const char *key, double v)
{
    strbuf_printf(b, ",\"%s\":", key);
    api_json_double(b, v);
}

static void put_rates(struct strbuf *b, const char *what, int32_t n, double seconds)
{
    strbuf_printf(b, ",\"%s_n\":%d,\"%s_ms\":", what, n, what);
    api_json_double(b, seconds * 1e3);
    strbuf_printf(b, ",\"%s_per_token_ms\":", what);
    api_json_double(b, n > 0 ? seconds * 1e3 / n : 0);
    strbuf_printf(b, ",\"%s_per_second\":", what);
    api_json_double(b, seconds > 0 ? n / seconds : 0);
}

struct drafts {
    int64_t drafted, accepted;
    const char *type; /* the drafter that was used most; NULL: none */
};

static struct drafts count_drafts(const struct api_usage *u)
{
    struct drafts d = {0};
    int64_t most = 0;
    for (int32_t i = 0; u->result && i < u->result->draft.n_sources; i++) {
        const __typeof__(u->result->draft.sources[0]) *s = &u->result->draft.sources[i];
        for (int k = 0; k < SKUA_DRAFT_MAX; k++) {
            d.drafted += s->tested[k];
            d.accepted += s->accepted[k];
        }
        if (s->rounds > most) {
            most = s->rounds;
            d.type = s->name;
        }
    }
    return d;
}

void api_timings_json(struct strbuf *b, const struct api_usage *u)
{
    struct drafts d = count_drafts(u);
    strbuf_printf(b, "{\"cache_n\":%d", u->n_cached);
    put_rates(b, "prompt", u->n_prompt - u->n_cached, u->prompt_s);
    put_rates(b, "predicted", u->n_generated, u->generate_s);
    put_number(b, "queue_ms", u->queue_s * 1e3);
    strbuf_printf(b, ",\"draft_n\":%lld,\"draft_n_accepted\":%lld}", (long long)d.drafted, (long long)d.accepted);
}

static void put_speculation(struct strbuf *b, const struct api_request *r, const struct api_usage *u)
{
    struct drafts d = count_drafts(u);
    int64_t rounds = 0, verified = 0;
    const char *why = r->no_draft ? "request" : !u->result || u->result->draft.n_sources == 0 ? "nothing_loaded" : NULL;
    for (int i = 0; u->result && i <= SKUA_DRAFT_MAX; i++) {
        rounds += u->result->draft.depth[i];
        verified += i * u->result->draft.depth[i];
    }
    strbuf_puts(b, "{\"type\":");
    api_json_text(b, d.type);
    strbuf_puts(b, ",\"why_off\":");
    api_json_text(b, why);
    strbuf_puts(b, ",\"depth_mean\":");
    api_json_double(b, rounds ? (double)verified / (double)rounds : 0);
    strbuf_printf(b, ",\"drafted\":%lld,\"accepted\":%lld}", (long long)d.drafted, (long long)d.accepted);
}

static void put_tokens(struct strbuf *b, const struct api_env *env, const char *key, const int32_t *ids, int32_t n)
{
    struct strbuf text = {0};
    for (int32_t i = 0; i < n; i++) {
        size_t len;
        const char *p = api_token_bytes(env, ids[i], &len);
        strbuf_append(&text, p, len);
    }
    strbuf_printf(b, ",\"%s\":", key);
    api_json_string(b, strbuf_str(&text), text.len);
    strbuf_free(&text);
}

/* Where the prompt parts from the best kept sequence. A turn begins with the prompt's first token. */
static void put_diverged(struct strbuf *b, const struct api_env *env, const struct api_prompt *p, const struct batch_start *s)
{
    int32_t at = s->diverged_at, before = at < DIVERGED_TOKENS ? at : DIVERGED_TOKENS, turn = -1;
    int32_t after = p->n - at < DIVERGED_TOKENS ? p->n - at : DIVERGED_TOKENS;
    for (int32_t i = 0; i < at; i++)
        turn += p->ids[i] == p->ids[0];
    strbuf_printf(b, "{\"token\":%d,\"message_index\":%d", at, turn < 0 ? 0 : turn);
    put_tokens(b, env, "text_before", p->ids + at - before, before);
    put_tokens(b, env, "text_cached", s->diverged_from, s->n_diverged_from);
    put_tokens(b, env, "text_new", p->ids + at, after);
    strbuf_putc(b, '}');
}

static void put_cache(struct strbuf *b, const struct api_env *env, const struct api_request *r, const struct api_usage *u)
{
    const struct batch_start *s = u->start;
    strbuf_printf(b, "{\"hit_tokens\":%d,\"source\":", u->n_cached);
    api_json_text(b, s ? batch_source_names[s->source] : NULL);
    strbuf_printf(b, ",\"reprocessed_tokens\":%d,\"miss_reason\":", u->n_prompt - u->n_cached);
    api_json_text(b, s && s->miss_reason && *s->miss_reason ? s->miss_reason : NULL);
    strbuf_puts(b, ",\"diverged_at\":");
    if (s && r->n_prompts == 1 && s->diverged_at >= 0 && s->diverged_at < r->prompts[0].n)
        put_diverged(b, env, &r->prompts[0], s);
    else
        strbuf_puts(b, "null");
    strbuf_putc(b, '}');
}

void api_engine_json(struct strbuf *b, const struct api_env *env, const struct api_request *r, const struct api_usage *u)
{
    const char *line = strbuf_str(&r->warnings);
    strbuf_puts(b, "{\"backend\":");
    api_json_text(b, skua_engine_get_info(env->engine).kernels);
    strbuf_puts(b, ",\"numeric_mode\":");
    api_json_text(b, env->numeric_mode);
    strbuf_puts(b, ",\"speculation\":");
    put_speculation(b, r, u);
    strbuf_puts(b, ",\"cache\":");
    put_cache(b, env, r, u);
    strbuf_puts(b, ",\"warnings\":[");
    for (bool first = true; *line; first = false) {
        size_t n = strcspn(line, "\n");
        strbuf_puts(b, first ? "" : ",");
        api_json_string(b, line, n);
        line += n + (line[n] == '\n');
    }
    strbuf_puts(b, "]}");
}

void api_report_json(struct strbuf *b, const struct api_env *env, const struct api_request *r, const struct api_usage *u)
{
    strbuf_puts(b, ",\"timings\":");
    api_timings_json(b, u);
    if (r->engine_info) {
        strbuf_puts(b, ",\"engine\":");
        api_engine_json(b, env, r, u);
    }
}

void api_chunk_json(struct strbuf *b, const struct api_env *env, const struct api_request *r, const struct api_usage *now,
                    const struct api_usage *final)
{
    const struct api_usage *u = final ? final : now;
    if (r->include_usage && r->continuous_usage && u) {
        strbuf_puts(b, ",\"usage\":");
        api_usage_json(b, u);
    } else if (r->include_usage) {
        strbuf_puts(b, ",\"usage\":null");
    }
    if (final) {
        api_report_json(b, env, r, final);
    } else if (r->timings_per_token && u && u->looked_up) {
        strbuf_puts(b, ",\"timings\":");
        api_timings_json(b, u);
    }
}

void api_progress_json(struct strbuf *b, const struct api_usage *u, int32_t n_done, int32_t n_total, double seconds)
{
    strbuf_printf(b, ",\"prompt_progress\":{\"total\":%d,\"cache\":%d,\"processed\":%d,\"time_ms\":", n_total, u->n_cached, n_done);
    api_json_double(b, seconds * 1e3);
    strbuf_putc(b, '}');
}
