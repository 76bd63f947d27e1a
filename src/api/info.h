/* Endpoints beside generation: models, tokens and text, and what is not served. Each appends the body of its answer to out, or sets the
 * error and returns -1. Everything here may run while the engine generates. Formats: spec/api.md 6, 11, 12. */
#ifndef SKUA_API_INFO_H
#define SKUA_API_INFO_H

#include "api/api.h"

/* GET /v1/models. anthropic: with the fields that the header anthropic-version asks for. */
int api_models(const struct api_env *env, bool anthropic, struct strbuf *out, struct api_error *e);
/* GET /v1/models/ID: id, or one of its aliases, with or without percent signs. 404. */
int api_model(const struct api_env *env, const char *id, struct strbuf *out, struct api_error *e);

/* POST /tokenize, /detokenize, /apply-template. body stays the caller's. replay: NULL allowed. */
int api_tokenize(const struct api_env *env, struct replay *replay, const json_t *body, struct strbuf *out, struct api_error *e);
int api_detokenize(const struct api_env *env, const json_t *body, struct strbuf *out, struct api_error *e);
int api_apply_template(const struct api_env *env, struct replay *replay, const json_t *body, struct strbuf *out, struct api_error *e);

/* POST /v1/embeddings: always the error that says why not. */
int api_embeddings_refuse(struct api_error *e);

#endif
