/* Options of skua serve; see serve_options.h. */
#include "cmd/serve_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "api/response_store.h"
#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "cmd/opts.h"

#define MAX_KEY_FILE ((size_t)1 << 20)

static const char help[] =
    "usage: skua serve [OPTIONS]\n"
    "\n"
    "Answers HTTP requests as the OpenAI APIs (chat completions, completions, responses) and the Anthropic API (messages) have them.\n"
    "\n"
    ENGINE_HELP
    "      --alias NAME         the model's id in answers (default: the file's name); again: further names\n"
    "      --strict-model       refuse requests that name another model\n"
    "\n"
    "      --host ADDRESS       where to listen (default 127.0.0.1; :: takes IPv4 too)\n"
    "      --port N             (default 8000; 0: any free one)\n"
    "      --api-key KEY        clients must give it (again: further keys); also in the environment: SKUA_API_KEY\n"
    "      --api-key-file FILE  one key per line, lines with # are comments\n"
    "      --allow-unauthenticated   serve without a key also beyond this machine\n"
    "      --cors ORIGINS       web pages that may ask, separated by commas; '*': any\n"
    "      --allow-host NAME    a name for this machine that requests may use (again: further ones)\n"
    "      --public-metrics     /metrics needs no key\n"
    "      --max-connections N  (default 512)\n"
    "      --max-body-mb N      largest body of a request (default 64)\n"
    "      --max-bodies-mb N    bodies of all requests that are here (default: four of the largest)\n"
    "\n"
    "      --parallel N         answers at a time (default: from memory, at most 4)\n"
    "      --queue N            requests that may wait (default 64; 0: none)\n"
    "      --queue-timeout S    seconds until a waiting request is refused (default 600; 0: never)\n"
    "      --request-timeout S  seconds until a request is ended (default 0: never)\n"
    "      --drain-timeout S    seconds for running answers when the server is told to stop (default 30)\n"
    "      --send-stall-timeout S   seconds until a client that does not read is given up (default 30)\n"
    "      --sse-keepalive S    seconds between signs of life on a silent stream (default 5; 0: none)\n"
    "      --chat-keepalive K   comment, chunk or both (default)\n"
    "      --json-keepalive     signs of life, as blanks, also for answers that are not streamed\n"
    "\n"
    "      --cache-ram SIZE     memory for earlier prompts (default: from memory; 0: none); k, m, g may follow the number\n"
    "      --cache-disk DIR     and files for them, which outlive the server; the folder is made if it is not there\n"
    "      --cache-disk-bytes SIZE   (default 16g)\n"
    "      --cache-every N      tokens between checkpoints in a long prompt (default 2048)\n"
    "      --response-store N   answers of /v1/responses kept for previous_response_id, in 64 MiB at most (default 256; 0: none)\n"
    "      --slot-save-path DIR where /slots may save and restore\n"
    "\n"
    "      --thinking T         on, off or auto: as the chat template does (default)\n"
    "      --thinking-budget N  most tokens of thinking (default -1: any)\n"
    "      --thinking-budget-message TEXT   what ends the thinking then\n"
    "      --reserve-answer N   end the thinking N tokens before max_tokens (default 0: no)\n"
    "      --anthropic-thinking auto|client  client: only when the request asks for it\n"
    "      --keep-billing-header     leave the changing billing line of some agents in system texts\n"
    "      --strict-stop-reason      always tell Anthropic clients when the context is full\n"
    "      --completions-max-tokens N   when a completions request says nothing (default 16)\n"
    "\n"
    "      --temp T, --top-k N, --top-p P, --min-p P, --repeat-penalty R, --repeat-last-n N, --presence-penalty X,\n"
    "      --frequency-penalty X     defaults of sampling; a request's values win\n"
    "\n"
    DRAFT_HELP
    "\n"
    "      --metrics-compat llamacpp    /metrics has these names too\n"
    "      --slots-debug        /slots shows text\n"
    "      --props              POST /props may change the defaults of sampling\n"
    "      --log FILE           append the log to FILE (default: standard error)\n"
    "      --verbose            a line in the log for every request\n"
    "\n"
    "example: skua serve --draft auto --api-key secret --host 0.0.0.0\n";

enum {
    OPT_ALIAS = 256, OPT_STRICT_MODEL, OPT_HOST, OPT_PORT, OPT_KEY, OPT_KEY_FILE, OPT_ALLOW_UNAUTH, OPT_CORS, OPT_ALLOW_HOST,
    OPT_PUBLIC_METRICS, OPT_MAX_CONNECTIONS, OPT_MAX_BODY, OPT_MAX_BODIES,
    OPT_PARALLEL, OPT_QUEUE, OPT_QUEUE_TIMEOUT, OPT_REQUEST_TIMEOUT, OPT_DRAIN,
    OPT_STALL, OPT_SSE_KEEPALIVE, OPT_CHAT_KEEPALIVE, OPT_JSON_KEEPALIVE, OPT_CACHE_RAM, OPT_CACHE_DISK, OPT_CACHE_DISK_BYTES,
    OPT_CACHE_EVERY, OPT_SLOT_PATH, OPT_THINKING, OPT_BUDGET, OPT_BUDGET_MESSAGE, OPT_RESERVE, OPT_ANTHROPIC, OPT_BILLING, OPT_STOP_REASON,
    OPT_COMPLETIONS_MAX, OPT_TEMP, OPT_TOP_K, OPT_TOP_P, OPT_MIN_P, OPT_REPEAT, OPT_REPEAT_N, OPT_PRESENCE, OPT_FREQUENCY, OPT_COMPAT,
    OPT_SLOTS_DEBUG, OPT_PROPS, OPT_LOG, OPT_VERBOSE, OPT_RESPONSES
};

#define VALUE(name, id) {name, required_argument, NULL, id}
#define SWITCH(name, id) {name, no_argument, NULL, id}
static const struct option long_options[] = {
    ENGINE_LONGS, DRAFT_LONGS, VALUE("alias", OPT_ALIAS), SWITCH("strict-model", OPT_STRICT_MODEL), VALUE("host", OPT_HOST),
    VALUE("port", OPT_PORT), VALUE("api-key", OPT_KEY), VALUE("api-key-file", OPT_KEY_FILE),
    SWITCH("allow-unauthenticated", OPT_ALLOW_UNAUTH), VALUE("cors", OPT_CORS), VALUE("allow-host", OPT_ALLOW_HOST),
    SWITCH("public-metrics", OPT_PUBLIC_METRICS), VALUE("max-connections", OPT_MAX_CONNECTIONS), VALUE("max-body-mb", OPT_MAX_BODY),
    VALUE("max-bodies-mb", OPT_MAX_BODIES),
    VALUE("parallel", OPT_PARALLEL), VALUE("queue", OPT_QUEUE), VALUE("queue-timeout", OPT_QUEUE_TIMEOUT),
    VALUE("request-timeout", OPT_REQUEST_TIMEOUT), VALUE("drain-timeout", OPT_DRAIN), VALUE("send-stall-timeout", OPT_STALL),
    VALUE("sse-keepalive", OPT_SSE_KEEPALIVE), VALUE("chat-keepalive", OPT_CHAT_KEEPALIVE), SWITCH("json-keepalive", OPT_JSON_KEEPALIVE),
    VALUE("cache-ram", OPT_CACHE_RAM), VALUE("cache-disk", OPT_CACHE_DISK), VALUE("cache-disk-bytes", OPT_CACHE_DISK_BYTES),
    VALUE("cache-every", OPT_CACHE_EVERY), VALUE("slot-save-path", OPT_SLOT_PATH), VALUE("thinking", OPT_THINKING),
    VALUE("thinking-budget", OPT_BUDGET), VALUE("thinking-budget-message", OPT_BUDGET_MESSAGE), VALUE("reserve-answer", OPT_RESERVE),
    VALUE("anthropic-thinking", OPT_ANTHROPIC), SWITCH("keep-billing-header", OPT_BILLING), SWITCH("strict-stop-reason", OPT_STOP_REASON),
    VALUE("completions-max-tokens", OPT_COMPLETIONS_MAX), VALUE("temp", OPT_TEMP), VALUE("temperature", OPT_TEMP),
    VALUE("top-k", OPT_TOP_K), VALUE("top-p", OPT_TOP_P), VALUE("min-p", OPT_MIN_P), VALUE("repeat-penalty", OPT_REPEAT),
    VALUE("repeat-last-n", OPT_REPEAT_N), VALUE("presence-penalty", OPT_PRESENCE), VALUE("frequency-penalty", OPT_FREQUENCY),
    VALUE("metrics-compat", OPT_COMPAT), SWITCH("slots-debug", OPT_SLOTS_DEBUG), SWITCH("props", OPT_PROPS), VALUE("log", OPT_LOG),
    VALUE("response-store", OPT_RESPONSES), SWITCH("verbose", OPT_VERBOSE), SWITCH("help", 'h'), {NULL, 0, NULL, 0}};

/* ---- names ---- */

static int names_add(struct serve_names *names, const char *flag, const char *s, size_t n, skua_error *err)
{
    if (!n)
        return error_set(err, SKUA_EARG, "%s '': expected a name", flag);
    if (names->n == SERVE_MAX_NAMES)
        return error_set(err, SKUA_ELIMIT, "%s: more than %d", flag, SERVE_MAX_NAMES);
    char *copy = mem_strndup(s, n);
    if (!copy)
        return error_nomem(err, flag, n);
    names->name[names->n++] = copy;
    return 0;
}

static void names_free(struct serve_names *names)
{
    for (size_t i = 0; i < names->n; i++)
        mem_free(names->name[i]);
    names->n = 0;
}

/* A name that is said in answers and log lines, or compared with a header. */
static int add_plain_name(struct serve_names *names, const char *flag, const char *s, bool blanks, skua_error *err)
{
    for (size_t i = 0; s[i]; i++)
        if ((unsigned char)s[i] < ' ' || s[i] == 0x7f || (s[i] == ' ' && !blanks))
            return error_set(err, SKUA_EARG, "%s: %s at byte %zu of the name", flag, s[i] == ' ' ? "a blank" : "a control character", i);
    return names_add(names, flag, s, strlen(s), err);
}

/* Keys travel in a header's value: what cannot be there can never be given by a client. */
static int add_key(struct serve_options *o, const char *flag, const char *s, size_t n, skua_error *err)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] <= ' ' || s[i] == 0x7f)
            return error_set(err, SKUA_EARG, "%s: a key has a blank or a control character at byte %zu; no client can send that", flag, i);
    return names_add(&o->keys, flag, s, n, err);
}

static int add_key_file(struct serve_options *o, const char *path, skua_error *err)
{
    char *text = NULL;
    size_t n = 0, before = o->keys.n;
    int rc = file_read_all(path, MAX_KEY_FILE, &text, &n, err);
    if (!rc && strlen(text) != n)
        rc = error_set(err, SKUA_EARG, "--api-key-file %s: byte %zu is zero; expected text, one key per line", path, strlen(text));
    for (char *line = text; !rc && line && *line;) {
        size_t length = strcspn(line, "\r\n");
        char *next = line + length + (line[length] != '\0');
        while (length && (line[length - 1] == ' ' || line[length - 1] == '\t'))
            length--;
        if (length && *line != '#')
            rc = add_key(o, "--api-key-file", line, length, err);
        line = next;
    }
    if (!rc && o->keys.n == before)
        rc = error_set(err, SKUA_EARG, "--api-key-file %s: holds no key; expected one per line", path);
    mem_free(text);
    return rc;
}

/* An origin as browsers write it, with which it is compared byte by byte: scheme://name[:port] in small letters and nothing behind it. */
static int add_origin(struct serve_options *o, const char *s, size_t n, skua_error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    char small[280] = "";
    if (n && s[n - 1] == '/')
        n--;
    for (size_t i = 0; i < n && n < sizeof small; i++) /* longer than any name: left empty, so refused */
        small[i] = s[i] >= 'A' && s[i] <= 'Z' ? (char)(s[i] | 32) : s[i];
    const size_t scheme = strspn(small, "abcdefghijklmnopqrstuvwxyz0123456789+-.");
    const char *name = small + scheme + 3, *port = strrchr(small, ':');
    const bool v6 = scheme && !strncmp(small + scheme, "://[", 4);
    bool ok = scheme && strspn(small, letters) && !strncmp(small + scheme, "://", 3);
    ok = ok && *name && *name != ':' && !strpbrk(name, "/?#@\\\"'*") && (v6 || !strchr(name, ':') || strchr(name, ':') == port);
    for (size_t i = 0; ok && i < n; i++)
        ok = (unsigned char)small[i] > ' ' && small[i] != 0x7f;
    const bool ported = ok && port > name && (!v6 || port[-1] == ']');
    ok = ok && (!ported || (port[1] && strspn(port + 1, "0123456789") == strlen(port + 1)));
    if (!ok)
        return error_set(err, SKUA_EARG, "--cors '%.*s'; expected origins as https://name[:port], or '*'", (int)(n < 200 ? n : 200), s);
    if (ported && ((!strncmp(small, "https:", 6) && !strcmp(port, ":443")) || (!strncmp(small, "http:", 5) && !strcmp(port, ":80"))))
        n = (size_t)(port - small); /* browsers leave it out */
    return names_add(&o->origins, "--cors", small, n, err);
}

static int add_origins(struct serve_options *o, const char *list, skua_error *err)
{
    int rc = 0;
    while (!rc && *list) {
        size_t n = strcspn(list, ",");
        if (n == 1 && *list == '*')
            o->cors_all = true;
        else
            rc = add_origin(o, list, n, err);
        list += n + (list[n] == ',');
    }
    return rc ? rc : o->cors_all || o->origins.n ? 0 : error_set(err, SKUA_EARG, "--cors ''; expected origins, or '*'");
}

/* ---- numbers and words ---- */

static int seconds_option(const char *flag, const char *arg, double *v, skua_error *err)
{
    return opt_f64(flag, arg, 0, 1e7, v, err);
}

static int number_option(struct serve_options *o, enum sampler_field field, const char *flag, const char *arg, double *v, skua_error *err)
{
    o->sampling.given |= 1u << field;
    if (opt_f64(flag, arg, -1e9, 1e9, v, NULL) || sampler_field_check(&o->sampling.value, field, NULL))
        return error_set(err, SKUA_EARG, "%s is '%s', expected %s", flag, arg, sampler_field_expected(field));
    return 0;
}

static int integer_option(struct serve_options *o, enum sampler_field field, const char *flag, const char *arg, int32_t *v, skua_error *err)
{
    int64_t i = 0;
    o->sampling.given |= 1u << field;
    bool ok = !opt_i64(flag, arg, -1, INT32_MAX, &i, NULL);
    *v = (int32_t)i;
    if (!ok || sampler_field_check(&o->sampling.value, field, NULL))
        return error_set(err, SKUA_EARG, "%s is '%s', expected %s", flag, arg, sampler_field_expected(field));
    return 0;
}

/* One of n words. */
static int word_option(const char *flag, const char *arg, const char *const *words, int n, int *out, skua_error *err)
{
    char list[80] = "";
    for (int i = 0; i < n; i++) {
        if (!strcmp(arg, words[i])) {
            *out = i;
            return 0;
        }
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i == 0 ? "" : i + 1 < n ? ", " : " or ", words[i]);
    }
    return error_set(err, SKUA_EARG, "%s '%s' is unknown; expected %s", flag, arg, list);
}

static int sampling_option(struct serve_options *o, int c, const char *arg, skua_error *err)
{
    skua_sampling *v = &o->sampling.value;
    switch (c) {
    case OPT_TEMP: return number_option(o, SAMPLER_TEMPERATURE, "--temp", arg, &v->temperature, err);
    case OPT_TOP_K: return integer_option(o, SAMPLER_TOP_K, "--top-k", arg, &v->top_k, err);
    case OPT_TOP_P: return number_option(o, SAMPLER_TOP_P, "--top-p", arg, &v->top_p, err);
    case OPT_MIN_P: return number_option(o, SAMPLER_MIN_P, "--min-p", arg, &v->min_p, err);
    case OPT_REPEAT: return number_option(o, SAMPLER_REPETITION_PENALTY, "--repeat-penalty", arg, &v->repetition_penalty, err);
    case OPT_REPEAT_N: return integer_option(o, SAMPLER_PENALTY_LAST_N, "--repeat-last-n", arg, &v->penalty_last_n, err);
    case OPT_PRESENCE: return number_option(o, SAMPLER_PRESENCE_PENALTY, "--presence-penalty", arg, &v->presence_penalty, err);
    case OPT_FREQUENCY: return number_option(o, SAMPLER_FREQUENCY_PENALTY, "--frequency-penalty", arg, &v->frequency_penalty, err);
    default: return error_set(err, SKUA_EARG, "unknown option");
    }
}

static int thinking_option(struct serve_options *o, int c, const char *arg, skua_error *err)
{
    static const char *const modes[] = {"auto", "on", "off"}; /* enum api_thinking_default */
    static const char *const clients[] = {"auto", "client"};
    int word = 0, rc;
    switch (c) {
    case OPT_THINKING:
        rc = word_option("--thinking", arg, modes, 3, &word, err);
        o->thinking = (enum api_thinking_default)word;
        return rc;
    case OPT_BUDGET: return opt_i64("--thinking-budget", arg, -1, INT32_MAX, &o->thinking_budget, err);
    case OPT_BUDGET_MESSAGE: o->budget_message = arg; return 0;
    case OPT_RESERVE: return opt_i64("--reserve-answer", arg, 0, INT32_MAX, &o->reserve_answer, err);
    case OPT_ANTHROPIC:
        rc = word_option("--anthropic-thinking", arg, clients, 2, &word, err);
        o->anthropic_client = word == 1;
        return rc;
    case OPT_BILLING: o->keep_billing_header = true; return 0;
    case OPT_STOP_REASON: o->strict_stop_reason = true; return 0;
    case OPT_COMPLETIONS_MAX: return opt_i64("--completions-max-tokens", arg, -1, INT32_MAX, &o->completions_max_tokens, err);
    default: return sampling_option(o, c, arg, err);
    }
}

static int work_option(struct serve_options *o, int c, const char *arg, skua_error *err)
{
    static const char *const keepalives[] = {"both", "comment", "chunk"}; /* enum api_keepalive */
    static const char *const compat[] = {"llamacpp"};
    int word = 0, rc;
    switch (c) {
    case OPT_PARALLEL: return opt_i64("--parallel", arg, 1, 64, &o->parallel, err);
    case OPT_QUEUE: return opt_i64("--queue", arg, 0, 1 << 20, &o->queue, err);
    case OPT_QUEUE_TIMEOUT: return seconds_option("--queue-timeout", arg, &o->queue_timeout_s, err);
    case OPT_REQUEST_TIMEOUT: return seconds_option("--request-timeout", arg, &o->request_timeout_s, err);
    case OPT_DRAIN: return seconds_option("--drain-timeout", arg, &o->drain_timeout_s, err);
    case OPT_STALL: return opt_f64("--send-stall-timeout", arg, 0.1, 1e6, &o->send_stall_timeout_s, err);
    case OPT_SSE_KEEPALIVE: return seconds_option("--sse-keepalive", arg, &o->sse_keepalive_s, err);
    case OPT_CHAT_KEEPALIVE:
        rc = word_option("--chat-keepalive", arg, keepalives, 3, &word, err);
        o->chat_keepalive = (enum api_keepalive)word;
        return rc;
    case OPT_JSON_KEEPALIVE: o->json_keepalive = true; return 0;
    case OPT_CACHE_RAM: return opt_size("--cache-ram", arg, 0, INT64_MAX, &o->cache_ram, err);
    case OPT_CACHE_DISK: o->cache_disk = arg; return 0;
    case OPT_CACHE_DISK_BYTES: return opt_size("--cache-disk-bytes", arg, 1, INT64_MAX, &o->cache_disk_bytes, err);
    case OPT_CACHE_EVERY: return opt_size("--cache-every", arg, 16, INT32_MAX, &o->cache_every, err);
    case OPT_RESPONSES: return opt_i64("--response-store", arg, 0, 65536, &o->response_store, err);
    case OPT_SLOT_PATH: o->slot_save_path = arg; return 0;
    case OPT_COMPAT:
        rc = word_option("--metrics-compat", arg, compat, 1, &word, err);
        o->metrics_compat = !rc;
        return rc;
    case OPT_SLOTS_DEBUG: o->slots_debug = true; return 0;
    case OPT_PROPS: o->set_props = true; return 0;
    case OPT_LOG: o->log = arg; return 0;
    case OPT_VERBOSE: o->verbose = true; return 0;
    default: return thinking_option(o, c, arg, err);
    }
}

static int plain_option(struct serve_options *o, int c, const char *arg, skua_error *err)
{
    switch (c) {
    case OPT_ALIAS: return add_plain_name(&o->aliases, "--alias", arg, true, err);
    case OPT_STRICT_MODEL: o->strict_model = true; return 0;
    case OPT_HOST: o->host = arg; return 0;
    case OPT_PORT: return opt_i64("--port", arg, 0, 65535, &o->port, err);
    case OPT_KEY: return add_key(o, "--api-key", arg, strlen(arg), err);
    case OPT_KEY_FILE: return add_key_file(o, arg, err);
    case OPT_ALLOW_UNAUTH: o->allow_unauthenticated = true; return 0;
    case OPT_CORS: return add_origins(o, arg, err);
    case OPT_ALLOW_HOST: return add_plain_name(&o->hosts, "--allow-host", arg, false, err);
    case OPT_PUBLIC_METRICS: o->public_metrics = true; return 0;
    case OPT_MAX_CONNECTIONS: return opt_i64("--max-connections", arg, 1, 65536, &o->max_connections, err);
    case OPT_MAX_BODY: return opt_i64("--max-body-mb", arg, 1, 4096, &o->max_body_mb, err);
    case OPT_MAX_BODIES: return opt_i64("--max-bodies-mb", arg, 1, 1 << 20, &o->max_bodies_mb, err);
    default: return work_option(o, c, arg, err);
    }
}

bool serve_host_is_loopback(const char *host)
{
    return !strncmp(host, "127.", 4) || !strcmp(host, "::1") || !strcmp(host, "localhost");
}

static int check(const struct serve_options *o, skua_error *err)
{
    struct stat st;
    if (o->slot_save_path && (stat(o->slot_save_path, &st) || !S_ISDIR(st.st_mode)))
        return error_set(err, SKUA_EARG, "--slot-save-path is '%s'; expected a folder that is there", o->slot_save_path);
    if (!serve_host_is_loopback(o->host) && !o->keys.n && !o->allow_unauthenticated)
        return error_set(err, SKUA_EARG,
                         "--host %s is reachable from other machines; expected --api-key, --api-key-file, "
                         "SKUA_API_KEY in the environment or --allow-unauthenticated",
                         o->host);
    if (o->max_bodies_mb && o->max_bodies_mb < o->max_body_mb)
        return error_set(err, SKUA_EARG, "--max-bodies-mb %lld is less than one body may have; expected at least --max-body-mb, %lld",
                         (long long)o->max_bodies_mb, (long long)o->max_body_mb);
    if (o->draft.rejection)
        return error_set(err, SKUA_EARG, "--draft-sampling rejection: a server's answers are their seed's own; expected compare");
    return draft_check(&o->draft, err);
}

int serve_options_parse(int argc, char **argv, struct serve_options *o, skua_error *err)
{
    const char *env_key = getenv("SKUA_API_KEY");
    int c, rc = 0;
    *o = (struct serve_options){.draft = DRAFT_OPTIONS_INIT, .host = "127.0.0.1", .port = 8000, .max_connections = 512, .queue = 64,
                                .queue_timeout_s = 600, .drain_timeout_s = 30, .send_stall_timeout_s = 30, .sse_keepalive_s = 5,
                                .cache_ram = -1, .max_body_mb = 64, .thinking_budget = -1, .completions_max_tokens = 16,
                                .response_store = RESPONSE_STORE_ANSWERS,
                                .budget_message = "\n\nI have thought about this long enough; now I answer.\n"};
    opts_begin();
    while (!rc && (c = opts_next("serve", argc, argv, ENGINE_SHORTS "h", long_options, err)) != OPTS_END) {
        if (c == OPTS_BAD)
            return SKUA_EARG;
        if (c == 'h') {
            fputs(help, stdout);
            return 1;
        }
        rc = engine_option(&o->engine, c, optarg, err);
        rc = rc ? rc : draft_option(&o->draft, c, optarg, err);
        rc = rc > 0 ? 0 : rc < 0 ? rc : plain_option(o, c, optarg, err);
    }
    if (!rc && optind < argc)
        rc = error_set(err, SKUA_EARG, "'%s' is no option; expected options only", argv[optind]);
    if (!rc && env_key && *env_key)
        rc = add_key(o, "SKUA_API_KEY", env_key, strlen(env_key), err);
    return rc ? rc : check(o, err);
}

void serve_options_free(struct serve_options *o)
{
    draft_options_free(&o->draft);
    names_free(&o->aliases);
    names_free(&o->keys);
    names_free(&o->origins);
    names_free(&o->hosts);
}
