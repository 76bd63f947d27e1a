/* JSON text for answers: UTF-8 with only quotes, backslashes, control characters and U+2028/2029 escaped; malformed bytes become U+FFFD;
 * numbers that read back the same, never NaN or infinite. */
#ifndef SKUA_API_JSON_TEXT_H
#define SKUA_API_JSON_TEXT_H

#include <jansson.h>

#include "api/event.h"
#include "api/request.h"
#include "base/strbuf.h"

void api_json_chars(struct strbuf *b, const char *s, size_t n);  /* without the quotes */
void api_json_string(struct strbuf *b, const char *s, size_t n); /* with them */
void api_json_text(struct strbuf *b, const char *s);             /* zero-terminated; NULL: null */
void api_json_double(struct strbuf *b, double v);                /* NaN: null; infinities: the largest numbers */
void api_json_value(struct strbuf *b, const json_t *v);          /* compact; NULL: null */

/* "token", "logprob", "bytes", "top_logprobs" of each token, with commas between them and no brackets around. */
void api_json_logprobs(struct strbuf *b, const struct api_env *env, const struct api_token_logprob *l, size_t n);
/* What a token prints, control tokens as their text. */
const char *api_token_bytes(const struct api_env *env, int32_t id, size_t *n);

#endif
