/* Answers of the endpoints that only count; spec/api.md 9.5, 10.5. */
#include "api/api.h"

void api_count_body(enum api_family family, int32_t n_tokens, struct strbuf *out)
{
    strbuf_printf(out, "{%s\"input_tokens\":%d}", family == API_RESPONSES ? "\"object\":\"response.input_tokens\"," : "", (int)n_tokens);
}
