/* What the server is, and defaults that may be changed. On the worker, as is all that reads the defaults. */
#include <string.h>

#include "api/json_text.h"
#include "cmd/serve.h"
#include "engine/engine.h"

static void put_text(struct strbuf *b, const char *key, const char *value)
{
    strbuf_printf(b, ",\"%s\":", key);
    api_json_text(b, value);
}

static void put_number(struct strbuf *b, const char *key, double v)
{
    strbuf_printf(b, ",\"%s\":", key);
    api_json_double(b, v);
}

static void put_sampling(struct strbuf *b, const skua_sampling *v)
{
    strbuf_puts(b, ",\"default_generation_settings\":{\"temperature\":");
    api_json_double(b, v->temperature);
    put_number(b, "top_p", v->top_p);
    put_number(b, "min_p", v->min_p);
    put_number(b, "presence_penalty", v->presence_penalty);
    put_number(b, "frequency_penalty", v->frequency_penalty);
    put_number(b, "repetition_penalty", v->repetition_penalty);
    strbuf_printf(b, ",\"top_k\":%d,\"repeat_last_n\":%d}", v->top_k, v->penalty_last_n);
}

static void put_model(struct strbuf *b, const struct serve *s)
{
    const skua_engine_info info = skua_engine_get_info(s->engine);
    strbuf_puts(b, ",\"model\":{\"id\":");
    api_json_text(b, s->model_id);
    put_text(b, "architecture", info.arch);
    put_text(b, "name", info.name);
    put_text(b, "quantization", s->env.facts.quantization);
    strbuf_printf(b, ",\"n_params\":%lld,\"size_bytes\":%zu,\"n_ctx_train\":%d,\"vocab_size\":%d}", (long long)s->env.facts.n_params,
                  info.file_bytes, info.n_ctx_train, info.n_vocab);
}

static void put_limits(struct strbuf *b, const struct serve *s)
{
    const struct serve_options *o = &s->opt;
    strbuf_printf(b, ",\"limits\":{\"body_bytes\":%lld,\"connections\":%lld,\"queue\":%lld", (long long)o->max_body_mb << 20,
                  (long long)o->max_connections, (long long)o->queue);
    strbuf_printf(b, ",\"n\":%d,\"prompts\":%d", BATCH_MAX_CHOICES, SERVE_MAX_PROMPTS);
    put_number(b, "queue_timeout", o->queue_timeout_s);
    put_number(b, "request_timeout", o->request_timeout_s);
    put_number(b, "drain_timeout", o->drain_timeout_s);
    put_number(b, "send_stall_timeout", o->send_stall_timeout_s);
    put_number(b, "sse_keepalive", o->sse_keepalive_s);
    strbuf_putc(b, '}');
}

void serve_props(struct serve_call *c)
{
    static const char *const modes[] = {"auto", "on", "off"};
    const struct serve *s = c->s;
    const struct serve_options *o = &s->opt;
    const skua_engine_info info = skua_engine_get_info(s->engine);
    const int64_t disk_budget = !o->cache_disk ? 0 : o->cache_disk_bytes ? o->cache_disk_bytes : INT64_C(16) << 30;
    struct strbuf b = {0};
    strbuf_puts(&b, "{\"build\":\"" SKUA_VERSION "\",\"backend\":\"cpu\",\"devices\":[{\"kernels\":");
    api_json_text(&b, info.kernels);
    strbuf_printf(&b, ",\"threads\":%d,\"threads_prefill\":%d}]", info.n_threads, info.n_threads_prefill);
    put_model(&b, s);
    strbuf_printf(&b, ",\"n_ctx\":%d,\"parallel\":%d", s->env.n_ctx, s->n_parallel);
    put_sampling(&b, &s->env.defaults);
    strbuf_printf(&b, ",\"thinking\":{\"default\":\"%s\",\"budget\":%lld,\"reserve_answer\":%lld}", modes[o->thinking],
                  (long long)o->thinking_budget, (long long)o->reserve_answer);
    strbuf_puts(&b, ",\"speculation\":{\"type\":");
    api_json_text(&b, s->env.drafters);
    put_text(&b, "draft", o->draft.params.source);
    put_text(&b, "verdict", s->env.facts.draft_verdict);
    strbuf_printf(&b, "},\"cache\":{\"ram_budget\":%lld,\"disk_dir_set\":%s,\"disk_budget\":%lld,\"checkpoint_policy\":",
                  (long long)s->cache_ram, o->cache_disk ? "true" : "false", (long long)disk_budget);
    strbuf_printf(&b, "{\"borders\":true,\"every\":%lld}}", (long long)(o->cache_every ? o->cache_every : 2048));
    put_text(&b, "numeric_mode", s->numeric_mode);
    put_text(&b, "chat_template", s->chat ? s->chat->note : NULL);
    put_limits(&b, s);
    strbuf_puts(&b, ",\"endpoints\":");
    serve_put_endpoints(&b);
    strbuf_putc(&b, '}');
    serve_reply(c, 200, NULL, &b);
    strbuf_free(&b);
}

/* A number of the body becomes a default, if it is one and in range. 0, or -1 with the error. */
static int set_field(skua_sampling *v, const char *key, const json_t *value, struct api_error *e)
{
    for (int f = 0; f < SAMPLER_FIELD_COUNT; f++) {
        skua_sampling given = *v;
        skua_error err;
        const char *name = sampler_field_name(f);
        if (strcmp(key, f == SAMPLER_PENALTY_LAST_N ? "repeat_last_n" : name) || f == SAMPLER_SEED)
            continue;
        const bool whole = f == SAMPLER_TOP_K || f == SAMPLER_PENALTY_LAST_N;
        const double number = json_number_value(value);
        if (whole ? !json_is_integer(value) || number < -1 || number > INT32_MAX : !json_is_number(value))
            return api_error_set(e, 400, "invalid_type", key, "%s: expected %s", key, sampler_field_expected(f));
        switch ((enum sampler_field)f) {
        case SAMPLER_TEMPERATURE: given.temperature = number; break;
        case SAMPLER_TOP_K: given.top_k = (int32_t)number; break;
        case SAMPLER_TOP_P: given.top_p = number; break;
        case SAMPLER_MIN_P: given.min_p = number; break;
        case SAMPLER_REPETITION_PENALTY: given.repetition_penalty = number; break;
        case SAMPLER_PRESENCE_PENALTY: given.presence_penalty = number; break;
        case SAMPLER_FREQUENCY_PENALTY: given.frequency_penalty = number; break;
        default: given.penalty_last_n = (int32_t)number;
        }
        if (sampler_field_check(&given, f, &err))
            return api_error_set(e, 400, "invalid_value", key, "%s", err.message);
        *v = given;
        return 0;
    }
    return api_error_set(e, 400, "invalid_value", key, "%.80s is no default that can be changed", key);
}

void serve_props_set(struct serve_call *c)
{
    struct api_error e = {0};
    skua_sampling defaults = c->s->env.defaults;
    const char *key;
    json_t *value;
    if (!c->s->opt.set_props) {
        api_error_set(&e, 403, "props_not_allowed", NULL, "the server was started without --props");
        serve_fail(c, &e);
        return;
    }
    json_t *body = serve_body(c);
    if (!body)
        return;
    json_object_foreach (body, key, value)
        if (!e.status)
            set_field(&defaults, key, value, &e);
    json_decref(body);
    if (e.status) {
        serve_fail(c, &e);
        return;
    }
    c->s->env.defaults = defaults;
    serve_props(c);
}
