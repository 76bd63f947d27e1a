/* Fields that several APIs share; see common.h. Thinking is in thinking.c, tools in tools.c, structured output in structure.c. */
#include "api/common.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "sample/params.h"
#include "sample/stop.h"

void api_warn(struct api_request *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    strbuf_vprintf(&r->warnings, fmt, ap);
    va_end(ap);
    strbuf_putc(&r->warnings, '\n');
}

void api_request_init(struct api_request *r, enum api_family family, const struct api_env *env, json_t *body)
{
    *r = (struct api_request){
        .family = family, .body = body, .sampling = env->defaults, .n = 1, .best_of = 1, .max_tokens = -1, .n_logprobs = -1,
        .thinking_budget = -1, .parallel_calls = true,
    };
    r->sampling.bias = NULL;
    r->sampling.n_bias = 0;
    snprintf(r->model, sizeof r->model, "%s", env->model_id ? env->model_id : "");
}

static bool known_model(const struct api_env *env, const char *name)
{
    bool known = env->model_id && !strcmp(name, env->model_id);
    for (size_t i = 0; i < env->n_aliases && !known; i++)
        known = !strcmp(name, env->aliases[i]);
    return known;
}

int api_model_check(const struct api_env *env, const char *name, struct api_error *e)
{
    if (known_model(env, name))
        return 0;
    return api_error_set(e, 404, "model_not_found", "model", "model: \"%.80s\" is not served here; expected \"%.160s\"", name,
                         env->model_id ? env->model_id : "");
}

static int parse_model(const struct api_env *env, struct api_request *r, struct api_error *e)
{
    const char *name = NULL;
    if (api_get_string(r->body, NULL, "model", &name, e))
        return -1;
    if (!name)
        return 0;
    if (env->strict_model && api_model_check(env, name, e))
        return -1;
    if (r->family == API_MESSAGES) /* clients take their thinking back only from the model that they asked for */
        snprintf(r->model, sizeof r->model, "%s", name);
    return 0;
}

/* One entry of logit_bias, id_text or id. */
static int add_bias(const struct api_env *env, struct api_request *r, const struct api_path *at, int64_t id, const json_t *value,
                    struct api_error *e)
{
    static const char range[] = "a number from -100 to 100";
    double d = json_number_value(value);
    if (!json_is_number(value))
        return api_fail_type(e, at, value, range);
    if (!(fabs(d) <= SAMPLER_BIAS_LIMIT))
        return api_fail_value(e, at, value, range);
    int32_t n_vocab = skua_engine_get_info(env->engine).n_vocab;
    if (id < 0 || id >= n_vocab)
        return api_fail(e, "invalid_value", at, "expected token ids from 0 to %d, got %lld", (int)n_vocab - 1, (long long)id);
    for (size_t i = 0; i < r->sampling.n_bias; i++)
        if (r->bias[i].id == id) {
            r->bias[i].bias = (float)d;
            return 0;
        }
    r->bias[r->sampling.n_bias++] = (skua_logit_bias){.id = (int32_t)id, .bias = (float)d};
    return 0;
}

static int parse_bias_pairs(const struct api_env *env, struct api_request *r, const json_t *pairs, struct api_error *e)
{
    size_t i;
    json_t *pair;
    json_array_foreach(pairs, i, pair) {
        const struct api_path *at = API_ITEM(API_KEY(NULL, "logit_bias"), i);
        if (!json_is_array(pair) || json_array_size(pair) != 2 || !json_is_integer(json_array_get(pair, 0)))
            return api_fail_type(e, at, pair, "a pair of a token id and a number");
        if (add_bias(env, r, at, json_integer_value(json_array_get(pair, 0)), json_array_get(pair, 1), e))
            return -1;
    }
    return 0;
}

static int parse_bias(const struct api_env *env, struct api_request *r, struct api_error *e)
{
    const struct api_path *at = API_KEY(NULL, "logit_bias");
    json_t *bias = api_field(r->body, "logit_bias"), *value;
    const char *key;
    if (!bias)
        return 0;
    if (!json_is_object(bias) && !json_is_array(bias))
        return api_fail_type(e, at, bias, "an object of token ids and numbers, or a list of pairs");
    size_t n = json_is_array(bias) ? json_array_size(bias) : json_object_size(bias);
    if (n > SAMPLER_MAX_BIAS)
        return api_fail(e, "invalid_value", at, "expected at most %d entries, got %zu", SAMPLER_MAX_BIAS, n);
    if (n == 0)
        return 0;
    r->bias = mem_calloc(n, sizeof *r->bias);
    r->sampling.bias = r->bias;
    if (!r->bias)
        return api_fail_nomem(e);
    if (json_is_array(bias))
        return parse_bias_pairs(env, r, bias, e);
    json_object_foreach(bias, key, value) {
        char *end;
        long long id = strtoll(key, &end, 10);
        if (!*key || *end || key[strspn(key, "0123456789")])
            return api_fail(e, "invalid_value", at, "expected token ids as keys, got \"%.60s\"", key);
        if (add_bias(env, r, API_KEY(at, key), id, value, e))
            return -1;
    }
    return 0;
}

/* A seed that nobody gave. */
static uint64_t fresh_seed(void)
{
    uint64_t seed = clock_ns();
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed)
        return rng_bits(seed, 0, 0);
    return seed;
}

static int parse_sampling(const struct api_env *env, struct api_request *r, struct api_error *e)
{
    const json_t *b = r->body;
    skua_sampling *s = &r->sampling;
    static const char *const repetition[] = {"repetition_penalty", "repeat_penalty"};
    int64_t seed = INT64_MIN;
    if (api_get_number(b, NULL, "temperature", 0, 2, &s->temperature, e) || api_get_number(b, NULL, "top_p", 0, 1, &s->top_p, e) ||
        api_get_int32(b, NULL, "top_k", -1, INT32_MAX, &s->top_k, e) || api_get_number(b, NULL, "min_p", 0, 1, &s->min_p, e) ||
        api_get_number(b, NULL, "presence_penalty", -2, 2, &s->presence_penalty, e) ||
        api_get_number(b, NULL, "frequency_penalty", -2, 2, &s->frequency_penalty, e) ||
        api_get_int32(b, NULL, "repeat_last_n", -1, INT32_MAX, &s->penalty_last_n, e) ||
        api_get_int(b, NULL, "seed", INT64_MIN, INT64_MAX, &seed, e))
        return -1;
    for (size_t i = 0; i < 2; i++) {
        if (api_get_number(b, NULL, repetition[i], 0, 2, &s->repetition_penalty, e))
            return -1;
        if (api_field(b, repetition[i]) && s->repetition_penalty <= 0)
            return api_fail_value(e, API_KEY(NULL, repetition[i]), api_field(b, repetition[i]), "a number above 0, up to 2");
    }
    r->has_seed = api_field(b, "seed") != NULL;
    s->seed = r->has_seed ? (uint64_t)seed : fresh_seed();
    return parse_bias(env, r, e);
}

/* The smallest of the limits that are given. */
static int parse_max_tokens(struct api_request *r, int32_t min, struct api_error *e)
{
    static const char *const keys[] = {"max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t v = -1;
        if (api_get_int(r->body, NULL, keys[i], -1, INT64_MAX, &v, e))
            return -1;
        if (v >= 0 && v < min)
            return api_fail_value(e, API_KEY(NULL, keys[i]), api_field(r->body, keys[i]),
                                  "an integer from 1, or -1 for what fits the context");
        v = v > INT32_MAX ? INT32_MAX : v;
        if (v >= 0 && (r->max_tokens < 0 || v < r->max_tokens))
            r->max_tokens = (int32_t)v;
    }
    return 0;
}

/* speculative: true, false, or {"type", "n_max"}. */
static int parse_speculative(const struct api_env *env, struct api_request *r, struct api_error *e)
{
    static const char *const types[] = {"auto", "off", "mtp", "dflash", "lookup", "ngram"};
    const struct api_path *at = API_KEY(NULL, "speculative");
    json_t *v = api_field(r->body, "speculative");
    int type = 0;
    if (!v)
        return 0;
    if (json_is_boolean(v)) {
        r->no_draft = json_is_false(v);
        return 0;
    }
    if (!json_is_object(v))
        return api_fail_type(e, at, v, "true, false or an object");
    if (api_get_choice(v, at, "type", types, 6, &type, e) || api_get_int32(v, at, "n_max", 0, SKUA_DRAFT_MAX, &r->draft_max, e))
        return -1;
    r->no_draft = type == 1 || (api_field(v, "n_max") && r->draft_max == 0);
    type -= type == 5; /* ngram is another name for lookup */
    if (type > 1 && !(env->drafters && strstr(env->drafters, types[type])))
        return api_fail(e, "unsupported_value", API_KEY(at, "type"),
                        "no \"%s\" drafter is loaded; expected \"auto\", \"off\"%s%s", types[type],
                        env->drafters && *env->drafters ? " or one of: " : "", env->drafters ? env->drafters : "");
    return 0;
}

int api_common_parse(const struct api_env *env, struct api_request *r, int32_t min_max_tokens, api_header_fn *header, void *user,
                     struct api_error *e)
{
    const json_t *b = r->body;
    bool cache = true;
    const char *info = header ? header(user, "x-engine-info") : NULL;
    r->engine_info = info && !strcmp(info, "1");
    if (parse_model(env, r, e) || api_get_bool(b, NULL, "stream", &r->stream, e) || parse_sampling(env, r, e) ||
        parse_max_tokens(r, min_max_tokens, e) || api_get_int32(b, NULL, "min_tokens", 0, INT32_MAX, &r->min_tokens, e) ||
        api_get_bool(b, NULL, "ignore_eos", &r->ignore_end, e) || api_get_bool(b, NULL, "cache_prompt", &cache, e) ||
        api_get_int32(b, NULL, "priority", -10, 10, &r->priority, e) || api_get_number(b, NULL, "timeout", 0, 1e9, &r->timeout_s, e) ||
        api_get_bool(b, NULL, "engine_info", &r->engine_info, e) || api_get_bool(b, NULL, "return_progress", &r->return_progress, e) ||
        api_get_bool(b, NULL, "timings_per_token", &r->timings_per_token, e) ||
        api_get_bool(b, NULL, "return_tokens", &r->return_tokens, e) || parse_speculative(env, r, e))
        return -1;
    if (r->return_tokens)
        strbuf_puts(&r->warnings, "return_tokens: ids of tokens are not returned; logprobs show each token\n");
    r->no_cache = !cache;
    return 0;
}

int api_choices_parse(struct api_request *r, struct api_error *e)
{
    return api_get_int32(r->body, NULL, "n", 1, 16, &r->n, e);
}

static int add_stop(struct api_request *r, const struct api_path *at, const json_t *v, struct api_error *e)
{
    if (!json_is_string(v))
        return api_fail_type(e, at, v, "a string or a list of strings");
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);
    if (n == 0 || n > STOP_MAX_BYTES || strlen(s) != n)
        return api_fail_value(e, at, v, "1 to 1024 bytes without zero bytes");
    if (!(r->stop[r->n_stop] = mem_strndup(s, n)))
        return api_fail_nomem(e);
    r->n_stop++;
    return 0;
}

int api_stop_parse(struct api_request *r, const char *key, struct api_error *e)
{
    const struct api_path *at = API_KEY(NULL, key);
    const json_t *v = api_field(r->body, key);
    size_t i, n = json_array_size(v);
    json_t *x;
    if (!v)
        return 0;
    if (!json_is_array(v))
        return add_stop(r, at, v, e);
    if (n > STOP_MAX_STRINGS)
        return api_fail(e, "invalid_value", at, "expected at most %d stop strings, got %zu", STOP_MAX_STRINGS, n);
    json_array_foreach(v, i, x)
        if (add_stop(r, API_ITEM(at, i), x, e))
            return -1;
    return 0;
}

int api_stream_options_parse(struct api_request *r, struct api_error *e)
{
    const struct api_path *at = API_KEY(NULL, "stream_options");
    json_t *o = NULL;
    bool obfuscation = false;
    if (api_get_object(r->body, NULL, "stream_options", &o, e))
        return -1;
    if (!o)
        return 0;
    if (!r->stream)
        return api_fail(e, "invalid_value", at, "only allowed with \"stream\": true");
    return api_get_bool(o, at, "include_usage", &r->include_usage, e) ||
                   api_get_bool(o, at, "continuous_usage_stats", &r->continuous_usage, e) ||
                   api_get_bool(o, at, "include_obfuscation", &obfuscation, e)
               ? -1
               : 0;
}
