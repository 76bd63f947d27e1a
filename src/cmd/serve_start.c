/* From options to a server that can answer; see serve_start.h. */
#include "cmd/serve_start.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <xxhash.h>

#include "base/error.h"
#include "base/mem.h"
#include "cmd/opts.h"
#include "engine/draft.h"
#include "engine/engine.h"
#include "engine/state_file.h"
#include "quant/type.h"

#define MAX_PARALLEL_DEFAULT 4
#define MAX_CACHE_DEFAULT ((int64_t)8 << 30)

/* ---- facts ---- */

/* A line of the system's figures of memory; 0: it does not say. */
static int64_t memory_figure(const char *name)
{
    FILE *f = fopen("/proc/meminfo", "r");
    char line[128];
    long long kib = 0;
    while (f && fgets(line, sizeof line, f) && (strncmp(line, name, strlen(name)) || sscanf(line + strlen(name), "%lld kB", &kib) != 1))
        continue;
    if (f)
        fclose(f);
    return kib > 0 ? (int64_t)kib << 10 : 0;
}

/* Bytes that this machine could give without swapping; a small figure if it does not say. */
static int64_t memory_available(void)
{
    const int64_t n = memory_figure("MemAvailable:");
    return n ? n : (int64_t)2 << 30;
}

static int64_t session_bytes(const struct serve *s)
{
    const skua_engine_info info = skua_engine_get_info(s->engine);
    const int64_t pages = info.kv_page_rows > 0 ? (s->env.n_ctx + info.kv_page_rows - 1) / info.kv_page_rows : 0;
    return (int64_t)info.state_bytes + pages * (int64_t)info.kv_page_bytes;
}

/* As many as fit half of the memory with full contexts, and not more than a small machine can serve well. */
static int32_t choose_parallel(const struct serve *s)
{
    if (s->opt.parallel)
        return (int32_t)s->opt.parallel;
    const int64_t each = session_bytes(s), fit = each > 0 ? memory_available() / 2 / each : 1;
    return fit < 1 ? 1 : fit > MAX_PARALLEL_DEFAULT ? MAX_PARALLEL_DEFAULT : (int32_t)fit;
}

static int64_t choose_cache(const struct serve *s)
{
    const int64_t quarter = memory_available() / 4;
    return s->opt.cache_ram >= 0 ? s->opt.cache_ram : quarter < MAX_CACHE_DEFAULT ? quarter : MAX_CACHE_DEFAULT;
}

/* The model file's name without folder and ending. */
static void file_stem(const char *path, char *out, size_t size)
{
    const char *base = strrchr(path, '/');
    snprintf(out, size, "%s", base ? base + 1 : path);
    char *end = strrchr(out, '.');
    if (end && end != out && !strcmp(end, ".gguf"))
        *end = '\0';
}

static void weigh_tensors(struct serve *s)
{
    uint64_t bytes[256] = {0}, most = 0;
    const struct gguf *g = s->engine->gguf;
    for (uint32_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        s->env.facts.n_params += (int64_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
        if (t->type < 256)
            bytes[t->type] += t->size_bytes;
    }
    for (uint32_t i = 0; i < 256; i++)
        if (bytes[i] > most && qtype_info(i)) {
            most = bytes[i];
            snprintf(s->quantization, sizeof s->quantization, "%s", qtype_info(i)->name);
        }
    s->env.facts.quantization = most ? s->quantization : NULL;
}

static void name_model(struct serve *s)
{
    const struct serve_names *given = &s->opt.aliases;
    file_stem(s->engine->path, s->stem, sizeof s->stem);
    snprintf(s->model_id, sizeof s->model_id, "%s", given->n ? given->name[0] : s->stem);
    s->env.model_id = s->model_id;
    for (size_t i = 1; i < given->n; i++)
        s->aliases[s->env.n_aliases++] = given->name[i];
    if (given->n)
        s->aliases[s->env.n_aliases++] = s->stem;
    s->env.aliases = s->aliases;
}

static void describe_drafters(struct serve *s)
{
    const struct engine_draft *d = s->engine->draft;
    char *out = s->drafters;
    for (int32_t i = 0; d && i < d->n_sources; i++) {
        const char *kind = d->sources[i].kind_name;
        const char *name = !strcmp(kind, "lookup") || !strcmp(kind, "mtp") ? kind : "dflash";
        if (!strstr(out, name))
            snprintf(out + strlen(out), sizeof s->drafters - strlen(out), "%s%s", *out ? "," : "", name);
    }
    s->env.drafters = *out ? out : NULL;
    if (*out) {
        s->env.facts.draft_type = out;
        s->env.facts.draft_file = !strcmp(out, "mtp") || !strcmp(out, "lookup") || !strcmp(s->opt.draft.params.source, "auto")
                                      ? NULL : s->opt.draft.params.source; /* a file's name, if there is one */
        s->env.facts.draft_verdict = "armed";
    }
}

static void set_env(struct serve *s)
{
    const struct serve_options *o = &s->opt;
    struct api_env *env = &s->env;
    const skua_engine_info info = skua_engine_get_info(s->engine);
    struct stat st;
    env->engine = s->engine;
    env->strict_model = o->strict_model;
    env->facts.created = stat(s->engine->path, &st) ? (int64_t)time(NULL) : (int64_t)st.st_mtime;
    env->n_ctx = o->engine.ctx ? (int32_t)o->engine.ctx : info.n_ctx_train;
    env->thinking = o->thinking;
    env->thinking_budget = (int32_t)o->thinking_budget;
    env->budget_message = o->budget_message;
    env->reserve_answer = (int32_t)o->reserve_answer;
    env->anthropic_thinking_client = o->anthropic_client;
    env->keep_billing_header = o->keep_billing_header;
    env->strict_stop_reason = o->strict_stop_reason;
    env->completions_max_tokens = (int32_t)o->completions_max_tokens;
    env->chat_keepalive = o->chat_keepalive;
    snprintf(s->numeric_mode, sizeof s->numeric_mode, "%s/%s", o->engine.precision == SKUA_PRECISION_REFERENCE ? "reference" : "auto",
             info.kv_type);
    env->numeric_mode = s->numeric_mode;
    const struct state_identity id = state_identity(s->engine);
    const uint64_t print = XXH3_64bits_withSeed(s->numeric_mode, strlen(s->numeric_mode), id.model)
                           ^ XXH3_64bits(SKUA_VERSION, strlen(SKUA_VERSION));
    snprintf(s->fingerprint, sizeof s->fingerprint, "fp_%010llx", (unsigned long long)(print & 0xffffffffff));
    env->fingerprint = s->fingerprint;
}

/* ---- parts ---- */

static void note_loading(void *user, uint64_t done, uint64_t total)
{
    struct serve *s = user;
    atomic_store(&s->loaded, total ? (int)(done * 1000 / total) : 0);
}

/* The notes go where everything else goes that the server has to say. */
static int attach_drafters(struct serve *s, skua_error *err)
{
    const char *notes = "";
    const int rc = skua_engine_draft(s->engine, &s->opt.draft.params, &notes, err);
    for (size_t n; !rc && (n = strcspn(notes, "\n")) > 0; notes += n + (notes[n] == '\n'))
        serve_log(s, "%.*s", (int)n, notes);
    return rc;
}

/* One session at full context is the least that a server needs; what the machine does not have at all is refused before anyone waits. */
static int check_context(struct serve *s, skua_error *err)
{
    const int32_t trained = skua_engine_get_info(s->engine).n_ctx_train;
    const int64_t each = session_bytes(s), have = memory_figure("MemTotal:");
    if (have > 0 && each > have)
        return error_set(err, SKUA_EARG,
                         "--ctx %d takes %.1f GB for one answer, more than the %.1f GB of memory here; expected at most %lld",
                         s->env.n_ctx, (double)each / 1e9, (double)have / 1e9,
                         (long long)((double)s->env.n_ctx * (double)have / (double)each));
    if (s->env.n_ctx > trained)
        serve_log(s, "warning: --ctx %d is more than the %d tokens this model was trained for", s->env.n_ctx, trained);
    return 0;
}

static int open_engine(struct serve *s, skua_error *err)
{
    struct sampler_settings settings;
    s->opt.engine.on_progress = note_loading;
    s->opt.engine.progress_user = s;
    int rc = engine_open(&s->opt.engine, "serve", &s->engine, err);
    if (!rc)
        rc = attach_drafters(s, err);
    if (!rc)
        rc = engine_resolve_sampling(s->engine, true, &s->opt.sampling, &settings, err);
    if (rc)
        return rc;
    s->env.defaults = settings.params;
    set_env(s);
    name_model(s);
    weigh_tensors(s);
    describe_drafters(s);
    rc = check_context(s, err);
    if (rc)
        return rc;
    rc = api_template_new(s->engine, &s->chat, err);
    if (rc == SKUA_ETEMPLATE) {
        opts_warn("serve", "chats are refused: %s", err->message);
        rc = 0;
    }
    s->env.chat = s->chat;
    return rc;
}

/* Calls that were not saved because the last server was killed; and what this one will remember. */
static int open_journal(struct serve *s, skua_error *err)
{
    struct strbuf path = {0};
    struct stat st;
    strbuf_printf(&path, "%s/calls.journal", s->opt.cache_disk);
    const bool unsaved = !stat(strbuf_str(&path), &st) && st.st_size > 0;
    int rc = strbuf_failed(&path) ? error_nomem(err, "file name", path.len) : replay_journal(s->replay, strbuf_str(&path), err);
    if (!rc && unsaved)
        rc = replay_save(s->replay, s->replay_path, err);
    if (rc)
        opts_warn("serve", "tool calls are remembered only if the server is stopped properly: %s", err->message);
    strbuf_free(&path);
    return rc == SKUA_ENOMEM ? rc : 0;
}

static int open_replay(struct serve *s, skua_error *err)
{
    int rc = replay_new(0, &s->replay, err);
    if (rc || !s->opt.cache_disk)
        return rc;
    struct strbuf path = {0};
    struct stat st;
    strbuf_printf(&path, "%s/calls.replay", s->opt.cache_disk);
    s->replay_path = strbuf_take(&path, NULL);
    if (!s->replay_path)
        return error_nomem(err, "file name", strlen(s->opt.cache_disk));
    if (!stat(s->replay_path, &st) && replay_load(s->replay, s->replay_path, err)) {
        opts_warn("serve", "remembered tool calls are lost: %s", err->message);
        if (err->code == SKUA_ENOMEM)
            return SKUA_ENOMEM;
    }
    return open_journal(s, err);
}

static int open_cache(struct serve *s, skua_error *err)
{
    s->cache_ram = choose_cache(s);
    if (!s->cache_ram && !s->opt.cache_disk)
        return 0;
    const struct prefix_cache_params p = {.ram_bytes = (size_t)s->cache_ram, .disk_dir = s->opt.cache_disk,
                                          .disk_bytes = (size_t)s->opt.cache_disk_bytes, .every = (int32_t)s->opt.cache_every,
                                          .on_write = serve_log_write, .on_write_user = s};
    return prefix_cache_create(s->engine, &p, &s->cache, err);
}

static int open_responses(struct serve *s, skua_error *err)
{
    const size_t n = (size_t)s->opt.response_store;
    return n ? response_store_new(n, RESPONSE_STORE_BYTES, &s->responses, err) : 0;
}

int serve_load(struct serve *s, skua_error *err)
{
    int rc = open_engine(s, err);
    if (!rc)
        rc = open_cache(s, err);
    if (!rc)
        rc = open_replay(s, err);
    if (!rc)
        rc = open_responses(s, err);
    if (!rc)
        rc = answer_shared_new(&s->env, s->engine->tokenizer, s->replay, &s->answers, err);
    if (rc)
        return rc;
    s->n_parallel = choose_parallel(s);
    const struct batcher_params p = {.n_parallel = s->n_parallel, .n_ctx = s->env.n_ctx, .queue_max = (int32_t)s->opt.queue,
                                     .queue_timeout_s = s->opt.queue_timeout_s, .cache = s->cache};
    return batcher_create(s->engine, &p, &s->batcher, err);
}

void serve_unload(struct serve *s)
{
    skua_error err;
    batcher_free(s->batcher);
    if (s->replay_path && s->replay && replay_save(s->replay, s->replay_path, &err))
        opts_warn("serve", "tool calls are not remembered: %s", err.message);
    prefix_cache_free(s->cache);
    answer_shared_free(s->answers);
    replay_free(s->replay);
    response_store_free(s->responses);
    mem_free(s->replay_path);
    api_template_free(s->chat);
    skua_engine_close(s->engine);
}

void serve_say(struct serve *s)
{
    const struct serve_options *o = &s->opt;
    const char *open = strchr(o->host, ':') ? "[" : "", *close = *open ? "]" : "";
    serve_log(s, "listening on http://%s%s%s:%d", open, o->host, close, http_server_port(s->http));
    const skua_engine_info info = skua_engine_get_info(s->engine);
    serve_log(s, "model %s (%s, %.2f GB, %.2f GB of it repacked, %.0f M parameters, numeric mode %s), context %d", s->model_id,
              s->quantization, (double)info.file_bytes / 1e9, (double)info.repacked_bytes / 1e9, (double)s->env.facts.n_params / 1e6,
              s->numeric_mode, s->env.n_ctx);
    serve_log(s, "%d answers at a time (up to %.0f MB each), %lld may wait; cache %.0f MB in memory%s%s", s->n_parallel,
              (double)session_bytes(s) / 1e6, (long long)o->queue, (double)s->cache_ram / 1e6, o->cache_disk ? ", files in " : "",
              o->cache_disk ? o->cache_disk : "");
    serve_log(s, "drafting: %s; keys: %zu; web pages: %s; %s", s->env.drafters ? s->env.drafters : "off", o->keys.n,
              o->cors_all ? "any" : o->origins.n ? "listed ones" : "own only", s->chat ? s->chat->note : "no chat template");
}
