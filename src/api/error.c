/* Errors as clients see them; spec/api.md 3. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "api/field.h"
#include "api/json_text.h"
#include "base/utf8.h"

int api_error_set(struct api_error *e, int status, const char *code, const char *param, const char *fmt, ...)
{
    char text[sizeof e->message];
    size_t n = 0, used;
    va_list ap;
    *e = (struct api_error){.status = status};
    snprintf(e->code, sizeof e->code, "%s", code ? code : "");
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (const char *s = text, *end = text + strlen(text); s < end && n + 7 < sizeof e->message; s += used)
        n += (size_t)utf8_escape(s, (size_t)(end - s), e->message + n, &used);
    e->message[n] = '\0';
    return -1;
}

int api_error_context(struct api_error *e, enum api_family family, int32_t n_ctx, int32_t n_prompt, int32_t n_answer)
{
    const char *param = family == API_RESPONSES ? "input" : family == API_COMPLETIONS ? "prompt" : "messages";
    if (family == API_MESSAGES)
        api_error_set(e, 400, "context_length_exceeded", param, "prompt is too long: %d tokens > %d maximum", (int)n_prompt,
                      (int)(n_prompt > n_ctx ? n_ctx : n_ctx - 1));
    else if (n_answer > 0)
        api_error_set(e, 400, "context_length_exceeded", param,
                      "%s: this model's maximum context length is %d tokens, but %lld were requested: %d of the prompt and %d for the "
                      "answer",
                      param, (int)n_ctx, (long long)n_prompt + n_answer, (int)n_prompt, (int)n_answer);
    else
        api_error_set(e, 400, "context_length_exceeded", param,
                      "%s: this model's maximum context length is %d tokens, but the prompt has %d; at most %d leave room for an answer",
                      param, (int)n_ctx, (int)n_prompt, (int)n_ctx - 1);
    e->n_ctx = n_ctx;
    e->n_prompt = n_prompt;
    return -1;
}

void api_error_from(const skua_error *err, struct api_error *out)
{
    static const struct {
        int code, status;
        const char *name;
        int32_t retry_after_s;
    } table[] = {
        {SKUA_ENOMEM, 503, "out_of_memory", 1},     {SKUA_EARG, 400, "invalid_value", 0},
        {SKUA_EUNSUPPORTED, 400, "unsupported_value", 0}, {SKUA_ELIMIT, 503, "no_slot", 1},
        {SKUA_ETEMPLATE, 400, "invalid_value", 0},  {SKUA_ECANCELED, 503, "shutting_down", 1},
        {SKUA_ESTATE, 503, "shutting_down", 1},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].code == err->code) {
            api_error_set(out, table[i].status, table[i].name, NULL, "%s", err->message);
            out->retry_after_s = table[i].retry_after_s;
            return;
        }
    api_error_set(out, 500, "internal_error", NULL, "%s", err->message);
}

static const char *openai_type(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

static const char *anthropic_type(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503:
    case 529: return "overloaded_error";
    case 504: return "timeout_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

const char *api_error_type(enum api_family family, const struct api_error *e)
{
    return family == API_MESSAGES ? anthropic_type(e->status) : openai_type(e->status);
}

void api_error_object(enum api_family family, const struct api_error *e, struct strbuf *out)
{
    if (family == API_MESSAGES) {
        strbuf_puts(out, "{\"type\":");
        api_json_text(out, api_error_type(family, e));
        strbuf_puts(out, ",\"message\":");
        api_json_text(out, e->message);
    } else {
        strbuf_puts(out, "{\"message\":");
        api_json_text(out, e->message);
        strbuf_puts(out, ",\"type\":");
        api_json_text(out, api_error_type(family, e));
        strbuf_puts(out, ",\"param\":");
        api_json_text(out, *e->param ? e->param : NULL);
        strbuf_puts(out, ",\"code\":");
        api_json_text(out, *e->code ? e->code : NULL);
        if (e->n_ctx)
            strbuf_printf(out, ",\"n_ctx\":%d,\"n_prompt_tokens\":%d", (int)e->n_ctx, (int)e->n_prompt);
    }
    strbuf_putc(out, '}');
}

void api_error_body(enum api_family family, const struct api_error *e, const char *request_id, struct strbuf *out)
{
    strbuf_puts(out, family == API_MESSAGES ? "{\"type\":\"error\",\"error\":" : "{\"error\":");
    api_error_object(family, e, out);
    if (family == API_MESSAGES) {
        strbuf_puts(out, ",\"request_id\":");
        api_json_text(out, request_id);
    }
    strbuf_putc(out, '}');
}
