/* A request's memory; see request.h. */
#include "api/request.h"

#include "api/response_store.h"
#include "base/mem.h"

void api_request_free(struct api_request *r)
{
    for (size_t i = 0; i < r->n_prompts; i++) {
        mem_free(r->prompts[i].ids);
        mem_free(r->prompts[i].marks);
    }
    mem_free(r->prompts);
    mem_free(r->bias);
    for (size_t i = 0; i < r->n_stop; i++)
        mem_free(r->stop[i]);
    mem_free(r->tools);
    mem_free(r->allowed_tools);
    json_decref(r->messages);
    json_decref(r->template_tools);
    json_decref(r->template_args);
    json_decref(r->echo_fields);
    json_decref(r->body);
    response_turn_drop(r->turn);
    strbuf_free(&r->warnings);
    *r = (struct api_request){0};
}
