/* The parsers of all APIs and what goes beside generation. Everything here is called off the socket thread; nothing blocks on the
 * engine. */
#ifndef SKUA_API_API_H
#define SKUA_API_API_H

#include "api/replay.h"
#include "api/request.h"
#include "api/response_store.h"
#include "base/strbuf.h"

/* Body to request. Takes no ownership of body unless it succeeds (then r->body). header: of the HTTP request by name, NULL if absent. On
   failure *error is set, -1 is returned, and r is freed. */
typedef const char *api_header_fn(void *user, const char *name);
int chat_parse(const struct api_env *env, json_t *body, api_header_fn *header, void *user, struct api_request *r, struct api_error *error);
int completions_parse(const struct api_env *env, json_t *body, api_header_fn *header, void *user, struct api_request *r,
                      struct api_error *error);
/* kept: where earlier answers are and this one may go; NULL: nowhere. */
int responses_parse(const struct api_env *env, const struct response_access *kept, json_t *body, api_header_fn *header, void *user,
                    struct api_request *r, struct api_error *error);
int messages_parse(const struct api_env *env, json_t *body, bool count_only, api_header_fn *header, void *user, struct api_request *r,
                   struct api_error *error);

/* Bytes of a body to JSON by spec/api.md 1: byte-order mark, UTF-8, depth 128, lone surrogates, duplicate keys. */
int api_body_parse(const char *bytes, size_t n, json_t **out, struct api_error *error);

/* Render and tokenise the request's conversation into its one prompt: ids, marks, opens_thinking (prompt.c). The context is checked: on an
   overflow the prompt is there all the same (its length is known). May be called again after r->messages was changed. Like all that
   renders, on one thread at a time. replay: NULL allowed. */
int api_prompt_build(const struct api_env *env, struct replay *replay, struct api_request *r, struct api_error *error);
/* Only the text of it, appended to out. */
int api_prompt_text(const struct api_env *env, struct replay *replay, struct api_request *r, struct strbuf *out, struct api_error *error);
int api_prompt_check(const struct api_env *env, const struct api_request *r, const struct api_prompt *p, struct api_error *error);

/* The body of an error in the manner of a family; the error object in it; the type that it names. */
void api_error_body(enum api_family family, const struct api_error *e, const char *request_id, struct strbuf *out);
void api_error_object(enum api_family family, const struct api_error *e, struct strbuf *out);
const char *api_error_type(enum api_family family, const struct api_error *e);
void api_error_from(const skua_error *err, struct api_error *out); /* status and code of a SKUA_E... */
/* The prompt, or it and n_answer tokens more (0: not counted), do not fit the context. Returns -1. */
int  api_error_context(struct api_error *e, enum api_family family, int32_t n_ctx, int32_t n_prompt, int32_t n_answer);
int  api_error_set(struct api_error *e, int status, const char *code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 5, 6))); /* returns -1 */

/* The body that says how many tokens a request's prompt has: /v1/responses/input_tokens, /v1/messages/count_tokens. */
void api_count_body(enum api_family family, int32_t n_tokens, struct strbuf *out);

/* prefix + 24 random characters; out has room for 48. */
void api_id(const char *prefix, char *out);

#endif
