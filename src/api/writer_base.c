/* What all writers begin with and end with; see writer.h. */
#include <stdio.h>
#include <time.h>

#include "api/api.h"
#include "api/writer.h"

void api_writer_init(struct api_writer *w, const struct api_env *env, const struct api_request *r, const char *request_id)
{
    static const char *const prefixes[] = {[API_CHAT] = "chatcmpl-", [API_COMPLETIONS] = "cmpl-", [API_RESPONSES] = "resp_",
                                           [API_MESSAGES] = "msg_"};
    w->env = env;
    w->request = r;
    w->created = (int64_t)time(NULL);
    snprintf(w->request_id, sizeof w->request_id, "%s", request_id);
    api_id(prefixes[r->family], w->id);
}

void api_writer_free(struct api_writer *w)
{
    if (!w)
        return;
    strbuf_free(&w->out);
    w->ops->free(w);
}
