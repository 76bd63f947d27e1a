/* A request that generates, read and checked: the same for every API. The parsers (chat.h, completions.h, responses.h, messages.h) make it
 * of a JSON body, prompt.h makes its tokens, answer.h runs it, the writers turn its events into that API's JSON. */
#ifndef SKUA_API_REQUEST_H
#define SKUA_API_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "engine/batcher.h"

enum api_family { API_CHAT, API_COMPLETIONS, API_RESPONSES, API_MESSAGES, API_EMBEDDINGS, API_OTHER };

/* An error as a client sees it; the body is written by api_error_body (error.h). */
struct api_error {
    int status;               /* 0: none */
    char code[48];            /* "" : null */
    char param[160];          /* JSON path, "" : null */
    char message[640];
    int32_t n_ctx, n_prompt;  /* context overflow; else 0 */
    int32_t retry_after_s;    /* 0: no header */
};

/* What the server is, for parsers: constant while it serves. */
struct api_env {
    skua_engine *engine;
    const char *model_id;             /* what answers say */
    const char *const *aliases;
    size_t n_aliases;
    bool strict_model;
    struct {                          /* facts for the list of models */
        int64_t created;              /* unix seconds: the file's time */
        int64_t n_params;             /* 0: unknown */
        const char *quantization;     /* NULL: unknown */
        const char *draft_type, *draft_file, *draft_verdict; /* draft_type NULL: nothing drafts */
    } facts;
    int32_t n_ctx;
    skua_sampling defaults;           /* server flags over the model's; temperature and the like of a request win */
    enum api_thinking_default { API_THINK_AUTO, API_THINK_ON, API_THINK_OFF } thinking;
    int32_t thinking_budget;          /* -1: none */
    const char *budget_message;       /* put before the end of thinking when the budget ends it */
    int32_t reserve_answer;           /* 0: off */
    bool anthropic_thinking_client;   /* absent thinking means off on /v1/messages */
    bool keep_billing_header, strict_stop_reason;
    int32_t completions_max_tokens;   /* 16 */
    const char *fingerprint;          /* fp_... */
    const char *drafters;             /* what is loaded of "mtp", "dflash", "ngram", with commas; NULL: nothing drafts */
    const char *numeric_mode;         /* what engine information says; NULL: unknown */
    enum api_keepalive { API_KEEPALIVE_BOTH, API_KEEPALIVE_COMMENT, API_KEEPALIVE_CHUNK } chat_keepalive; /* chat and completions */
    const struct api_template *chat;  /* the model's chat template (template.h); NULL: it has none, and chats are refused */
};

struct api_tool {
    const char *name;         /* of the request's JSON */
    bool custom, strict;
    const json_t *parameters; /* JSON schema, borrowed from the request's tools; NULL: none */
    const char *ns, *bare;    /* Responses: the namespace and the name in it; NULL: none */
    const char *regex;        /* that the input of a custom tool must match, borrowed; NULL: any text */
};

enum api_tool_choice { API_TOOLS_NONE, API_TOOLS_AUTO, API_TOOLS_REQUIRED };

enum api_structure { API_FREE, API_JSON_OBJECT, API_JSON_SCHEMA, API_GBNF, API_REGEX };

struct api_request {
    enum api_family family;
    json_t *body;             /* owned: everything below may point into it */
    bool stream, include_usage, continuous_usage, engine_info, timings_per_token, return_progress, return_tokens;
    char model[256];          /* what the answer says */
    /* the conversation (all but completions), in the form that the model's template takes: messages, tools; owned */
    json_t *messages, *template_tools, *template_args;
    bool continue_final, no_generation_prompt;
    /* prompts: one, but of completions up to 64; filled by prompt.h for conversations */
    struct api_prompt { int32_t *ids; int32_t n; int32_t *marks; int32_t n_marks; } *prompts;
    size_t n_prompts;
    bool opens_thinking;      /* the prompt ends inside an open thinking part */

    skua_sampling sampling;   /* bias owned */
    skua_logit_bias *bias;
    bool has_seed;
    int32_t n, best_of, max_tokens /* -1: the context */, min_tokens, n_logprobs /* -1: none */;
    bool hide_logprobs;       /* they are only there to choose the best of best_of */
    bool ignore_end, echo, logprobs_all, no_cache, no_draft;
    int32_t draft_max, priority;
    double timeout_s;         /* 0: none */
    char *stop[16];           /* owned */
    size_t n_stop;
    /* thinking */
    bool thinking;            /* as rendered */
    int32_t thinking_budget;  /* -1: none */
    enum { API_REASONING_SEPARATE, API_REASONING_INLINE, API_REASONING_HIDDEN } reasoning_format;
    /* tools */
    struct api_tool *tools;   /* owned array */
    size_t n_tools, schema_bytes; /* of all parameters as JSON text */
    enum api_tool_choice tool_choice;
    const char **allowed_tools; /* owned array of names; n 0: all. One name with REQUIRED: that tool is forced */
    size_t n_allowed_tools;
    bool parallel_calls, legacy_functions;
    int32_t max_calls;        /* the answer ends after so many; 0: any */
    /* structured output of the visible text */
    enum api_structure structure;
    bool strict_schema;
    json_t *schema;           /* borrowed */
    const char *grammar;      /* GBNF or regular expression, borrowed */
    /* Responses and Messages only */
    bool summary;             /* reasoning as summary */
    bool encrypted_reasoning; /* Responses: reasoning items carry encrypted_content */
    bool truncate;            /* Responses: what does not fit loses its oldest messages instead of being refused */
    bool omit_thinking;       /* Messages: display "omitted" */
    bool knows_context_stop;  /* Messages: the client knows model_context_window_exceeded */
    json_t *echo_fields;      /* Responses: request fields that the response object repeats; owned */
    struct response_turn *turn; /* Responses: what is kept with the answer (response_store.h), held; NULL: nothing is */
    struct strbuf warnings;   /* lines */
};

void api_request_free(struct api_request *r); /* zeroed allowed */

#endif
