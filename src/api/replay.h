/* The sampled text of every tool call, by the call's id: when a client sends the call back in its history, the same text is rendered, so
 * that the prompt begins with the tokens that the cache knows. Thread-safe. */
#ifndef SKUA_API_REPLAY_H
#define SKUA_API_REPLAY_H

#include <jansson.h>

#include "base/error.h"
#include "base/strbuf.h"

struct replay;
int  replay_new(size_t max_calls /* 0: 131072; the oldest go first */, struct replay **out, skua_error *err);
void replay_free(struct replay *r);
/* text: from <tool_call> to </tool_call> as sampled; arguments: the JSON text that the client was given. */
int  replay_put(struct replay *r, const char *id, const char *name, const char *arguments, const char *text, size_t n, skua_error *err);
/* true: text is appended, because id is known with this name and equal arguments (as JSON values). */
bool replay_find(struct replay *r, const char *id, const char *name, const json_t *arguments, struct strbuf *text);
int  replay_save(struct replay *r, const char *path, skua_error *err);  /* atomically */
int  replay_load(struct replay *r, const char *path, skua_error *err);  /* damaged: SKUA_EFORMAT, nothing is taken */
void replay_get_stats(struct replay *r, size_t *n_calls, uint64_t *hits);

#endif
