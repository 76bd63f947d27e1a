/* What the commands that run a model have in common: options that become engine parameters, sessions with a context limit. */
#ifndef SKUA_CMD_CMD_ENGINE_H
#define SKUA_CMD_CMD_ENGINE_H

#include <getopt.h>

#include "skua.h"

/* -m, -c, -t, --threads-prefill, --kv-type, --precision and --repack of every such command. */
struct engine_options {
    const char *model; /* NULL: opts_model's default */
    int64_t ctx, threads, threads_prefill; /* 0: the model's, all physical cores, as threads */
    const char *kv_type;
    enum skua_precision precision;
    enum skua_repack repack;
    void (*on_progress)(void *user, uint64_t done, uint64_t total); /* of engine_open; NULL: a line on the terminal */
    void *progress_user;
};

#define ENGINE_SHORTS "m:c:t:"
enum { ENGINE_OPT_KV_TYPE = 1000, ENGINE_OPT_PRECISION, ENGINE_OPT_THREADS_PREFILL, ENGINE_OPT_REPACK };
#define ENGINE_LONGS \
    {"model", required_argument, NULL, 'm'}, {"ctx", required_argument, NULL, 'c'}, {"threads", required_argument, NULL, 't'}, \
    {"threads-prefill", required_argument, NULL, ENGINE_OPT_THREADS_PREFILL}, {"kv-type", required_argument, NULL, ENGINE_OPT_KV_TYPE}, \
    {"precision", required_argument, NULL, ENGINE_OPT_PRECISION}, {"repack", required_argument, NULL, ENGINE_OPT_REPACK}
#define ENGINE_HELP \
    "  -m, --model FILE         model (default: SKUA_MODEL, else the shipped model)\n" \
    "  -c, --ctx N              context limit in tokens (default: the model's)\n" \
    "  -t, --threads N          threads (default: all physical cores)\n" \
    "      --threads-prefill N  threads for prompts (default: as --threads)\n" \
    "      --kv-type T          KV cache type: F16 (default), F32, BF16, Q8_0\n" \
    "      --precision P        auto (default), or reference: float32 activations, double accumulation\n" \
    "      --repack R           weights in memory in a faster layout: auto (default: if half of the available memory holds them), on, off\n"

/* Take option c (a val of ENGINE_LONGS) with its argument. 1: taken, 0: not one of these, negative: an error. */
int engine_option(struct engine_options *o, int c, const char *arg, skua_error *err);

/* Open the model and print the file's warnings. SKUA_CPU in the environment forces a kernel tier. */
int engine_open(const struct engine_options *o, const char *command, skua_engine **e, skua_error *err);

/* A session with the context limit of the options. A limit above the model's trained context is allowed, with one warning. */
int engine_session(const struct engine_options *o, const char *command, skua_engine *e, skua_session **s, skua_error *err);

#endif
