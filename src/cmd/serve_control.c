/* Orders to answers that are on their way. */
#include <string.h>

#include "api/json_text.h"
#include "base/mem.h"
#include "cmd/serve.h"

static void say(struct serve_call *c, const char *key, bool value)
{
    struct strbuf out = {0};
    strbuf_printf(&out, "{\"%s\":%s}", key, value ? "true" : "false");
    serve_reply(c, 200, NULL, &out);
    strbuf_free(&out);
}

/* POST /v1/requests/ID/cancel */
void serve_cancel(struct serve_call *c)
{
    static const char verb[] = "/cancel";
    const size_t n = strlen(c->tail), n_verb = sizeof verb - 1;
    if (n <= n_verb || strcmp(c->tail + n - n_verb, verb)) {
        struct api_error e;
        api_error_set(&e, 404, "not_found", NULL, "%.200s is no path of this server; expected /v1/requests/ID/cancel", http_path(c->http));
        serve_fail(c, &e);
        return;
    }
    char *id = mem_strndup(c->tail, n - n_verb);
    struct serve_call *target = id ? serve_call_find(c->s, id) : NULL;
    mem_free(id);
    if (target) {
        serve_call_cancel(target, SERVE_CANCELED);
        serve_call_unref(target);
    }
    say(c, "cancelled", target != NULL);
}

static void end_thinking(struct serve_call *c)
{
    for (size_t i = 0; i < c->n_parts; i++)
        for (int k = 0; k < BATCH_MAX_CHOICES; k++)
            if (c->parts[i].answers[k])
                answer_end_thinking(c->parts[i].answers[k]);
}

/* POST /v1/chat/completions/control {"request_id" or "id", "action": "reasoning_end"} */
void serve_control(struct serve_call *c)
{
    struct api_error e = {0};
    json_t *body = serve_body(c);
    if (!body)
        return;
    const char *id = json_string_value(json_object_get(body, "request_id")), *action = json_string_value(json_object_get(body, "action"));
    if (!id)
        id = json_string_value(json_object_get(body, "id"));
    if (!id)
        api_error_set(&e, 400, "missing_required_parameter", "request_id", "request_id is missing; expected a running request's");
    else if (!action)
        api_error_set(&e, 400, "missing_required_parameter", "action", "action is missing; expected \"reasoning_end\"");
    else if (strcmp(action, "reasoning_end"))
        api_error_set(&e, 400, "invalid_value", "action", "action is \"%.80s\"; expected \"reasoning_end\"", action);
    if (e.status) {
        serve_fail(c, &e);
    } else {
        struct serve_call *target = serve_call_find(c->s, id);
        if (target) {
            end_thinking(target);
            serve_call_unref(target);
        }
        say(c, "success", target != NULL);
    }
    json_decref(body);
}
