/* Shared by the commands that run a model; see cmd_engine.h. */
#include "cmd/cmd_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "cmd/opts.h"
#include "cmd/term.h"

int engine_option(struct engine_options *o, int c, const char *arg, skua_error *err)
{
    int rc = 0;
    switch (c) {
    case 'm':
        o->model = arg;
        break;
    case 'c':
        rc = opt_size("--ctx", arg, 1, INT32_MAX, &o->ctx, err);
        break;
    case 't':
        rc = opt_i64("--threads", arg, 1, 256, &o->threads, err);
        break;
    case ENGINE_OPT_THREADS_PREFILL:
        rc = opt_i64("--threads-prefill", arg, 1, 256, &o->threads_prefill, err);
        break;
    case ENGINE_OPT_KV_TYPE:
        o->kv_type = arg;
        break;
    case ENGINE_OPT_PRECISION:
        if (!strcmp(arg, "auto"))
            o->precision = SKUA_PRECISION_AUTO;
        else if (!strcmp(arg, "reference"))
            o->precision = SKUA_PRECISION_REFERENCE;
        else
            rc = error_set(err, SKUA_EARG, "--precision '%s' is unknown; expected auto or reference", arg);
        break;
    case ENGINE_OPT_REPACK:
        if (!strcmp(arg, "auto"))
            o->repack = SKUA_REPACK_AUTO;
        else if (!strcmp(arg, "on") || !strcmp(arg, "off"))
            o->repack = arg[1] == 'n' ? SKUA_REPACK_ON : SKUA_REPACK_OFF;
        else
            rc = error_set(err, SKUA_EARG, "--repack '%s' is unknown; expected auto, on or off", arg);
        break;
    default:
        return 0;
    }
    return rc ? rc : 1;
}

static void show_progress(void *user, uint64_t done, uint64_t total)
{
    struct progress *p = user;
    if (!p->label)
        progress_begin(p, "loading", total);
    progress_set(p, done);
}

int engine_open(const struct engine_options *o, const char *command, skua_engine **e, skua_error *err)
{
    const char *tier = getenv("SKUA_CPU");
    skua_engine_params p = {.n_threads = (int32_t)o->threads, .n_threads_prefill = (int32_t)o->threads_prefill,
                            .precision = o->precision, .cpu_tier = tier && *tier ? tier : NULL, .kv_type = o->kv_type,
                            .repack = o->repack, .on_progress = o->on_progress ? o->on_progress : show_progress};
    struct progress line = {0};
    char *model = NULL;
    *e = NULL;
    p.progress_user = o->on_progress ? o->progress_user : &line;
    int rc = opts_model(o->model, &model, err);
    if (!rc)
        rc = skua_engine_open(model, &p, e, err);
    mem_free(model);
    if (line.label)
        progress_end(&line);
    if (rc)
        return rc;
    const char *w = skua_engine_get_info(*e).warnings;
    for (size_t n; (n = strcspn(w, "\n")) > 0; w += n + (w[n] == '\n'))
        opts_warn(command, "%.*s", (int)n, w);
    return 0;
}

int engine_session(const struct engine_options *o, const char *command, skua_engine *e, skua_session **s, skua_error *err)
{
    int32_t trained = skua_engine_get_info(e).n_ctx_train;
    int rc = skua_session_create(e, (int32_t)o->ctx, s, err);
    if (!rc && o->ctx > trained)
        opts_warn(command, "--ctx %lld is more than the %d tokens this model was trained for", (long long)o->ctx, trained);
    return rc;
}
