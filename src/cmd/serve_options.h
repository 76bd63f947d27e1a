/* Options of skua serve. */
#ifndef SKUA_CMD_SERVE_OPTIONS_H
#define SKUA_CMD_SERVE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/request.h"
#include "cmd/cmd_draft.h"
#include "cmd/cmd_engine.h"
#include "engine/sampling.h"

#define SERVE_MAX_NAMES 64 /* of keys, aliases, origins, hosts each */

/* Names of one kind, in memory of their own. */
struct serve_names {
    char *name[SERVE_MAX_NAMES];
    size_t n;
};

struct serve_options {
    struct engine_options engine;
    struct draft_options draft;
    struct sampler_partial sampling;
    const char *host;
    int64_t port, max_connections;
    struct serve_names aliases, keys, origins, hosts;
    bool cors_all;
    bool allow_unauthenticated, public_metrics, slots_debug, set_props, strict_model, metrics_compat, keep_billing_header;
    bool strict_stop_reason, verbose, json_keepalive, anthropic_client;
    int64_t parallel;                /* 0: from memory */
    int64_t queue;
    double queue_timeout_s, request_timeout_s, drain_timeout_s, send_stall_timeout_s, sse_keepalive_s;
    int64_t cache_ram;               /* bytes; -1: from memory */
    const char *cache_disk, *slot_save_path, *log;
    int64_t cache_disk_bytes, cache_every;
    int64_t max_body_mb, max_bodies_mb; /* of one request; of all that are here, 0: four times that */
    int64_t response_store;          /* answers; 0: none */
    enum api_thinking_default thinking;
    int64_t thinking_budget, reserve_answer, completions_max_tokens;
    const char *budget_message;
    enum api_keepalive chat_keepalive;
};

/* 0, 1 (help was printed), or SKUA_EARG, SKUA_EIO, SKUA_ENOMEM. */
int  serve_options_parse(int argc, char **argv, struct serve_options *o, skua_error *err);
void serve_options_free(struct serve_options *o);

/* Is it an address that only this machine reaches? */
bool serve_host_is_loopback(const char *host);

#endif
