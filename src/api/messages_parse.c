/* A body of /v1/messages to a request: spec/api.md 10.1. Tools are in messages_tools.c, the conversation in messages_input.c. */
#include <string.h>

#include "api/api.h"
#include "api/common.h"
#include "api/messages.h"

/* Does the client know the stop reason of a full context? By a beta that names it, or a version that came after it. */
static bool knows_context_stop(const struct api_env *env, api_header_fn *header, void *user)
{
    static const char since[] = "2025-08-26";
    const char *beta = header ? header(user, "anthropic-beta") : NULL, *version = header ? header(user, "anthropic-version") : NULL;
    return env->strict_stop_reason || (beta && strstr(beta, "model-context-window-exceeded"))
        || (version && strlen(version) == strlen(since) && strspn(version, "0123456789-") == strlen(since) && strcmp(version, since) >= 0);
}

/* thinking, output_config and what was output_format before. */
static int parse_output(const struct api_env *env, struct api_request *r, struct api_error *e)
{
    const struct api_path *at = API_KEY(NULL, "output_config"), *format_at = API_KEY(at, "format");
    const struct api_path *old_at = API_KEY(NULL, "output_format");
    json_t *config = NULL, *old = api_field(r->body, "output_format");
    if (api_get_object(r->body, NULL, "output_config", &config, e))
        return -1;
    const json_t *format = api_field(config, "format");
    if (api_thinking_parse(env, r, api_field(config, "effort"), API_KEY(at, "effort"), env->anthropic_thinking_client, e) ||
        api_structure_parse(r, format ? format : old, format ? format_at : old_at, true, e))
        return -1;
    r->omit_thinking = api_is(api_field(api_field(r->body, "thinking"), "display"), "omitted");
    return 0;
}

static int require_max_tokens(const json_t *body, struct api_error *e)
{
    if (api_field(body, "max_tokens"))
        return 0;
    return api_fail_missing(e, API_KEY(NULL, "max_tokens"), "an integer from 0");
}

int messages_parse(const struct api_env *env, json_t *body, bool count_only, api_header_fn *header, void *user, struct api_request *r,
                   struct api_error *error)
{
    api_request_init(r, API_MESSAGES, env, body);
    if (api_common_parse(env, r, 0, header, user, error) || (!count_only && require_max_tokens(body, error)) ||
        api_stop_parse(r, "stop_sequences", error) || parse_output(env, r, error) || messages_tools_parse(r, error) ||
        messages_input_parse(env, r, error)) {
        r->body = NULL; /* the caller's again */
        api_request_free(r);
        return -1;
    }
    r->knows_context_stop = knows_context_stop(env, header, user);
    if (strbuf_failed(&r->warnings))
        strbuf_clear(&r->warnings); /* the answer matters more */
    return 0;
}
