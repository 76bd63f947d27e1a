/* Writers by family; see writer.h. */
#include "api/writer.h"

int api_writer_new(const struct api_env *env, const struct api_request *r, const char *request_id, struct api_writer **out,
                   skua_error *err)
{
    struct api_writer *w = r->family == API_CHAT          ? chat_writer_new()
                           : r->family == API_COMPLETIONS ? completions_writer_new()
                           : r->family == API_RESPONSES   ? responses_writer_new()
                                                          : messages_writer_new();
    *out = w;
    if (!w)
        return error_nomem(err, "answer", 0);
    api_writer_init(w, env, r, request_id);
    return 0;
}
