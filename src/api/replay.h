/* The sampled text of every tool call, by the call's id: when a client sends the call back in its history, the same text is rendered, so
 * that the prompt begins with the tokens that the cache knows. Thread-safe; nothing waits while a file is written. */
#ifndef SKUA_API_REPLAY_H
#define SKUA_API_REPLAY_H

#include <jansson.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"

#define REPLAY_CALLS 131072u             /* by default */
#define REPLAY_BYTES ((size_t)512 << 20) /* of all that is remembered, at most */

struct replay;
int  replay_new(size_t max_calls /* 0: REPLAY_CALLS; the oldest go first */, struct replay **out, skua_error *err);
void replay_free(struct replay *r); /* NULL allowed */
/* text: n bytes, the call as sampled (<tool_call> to </tool_call>); arguments: the JSON text that the client was given ({"input": ...} for
   a custom tool). What was known of this id is replaced. A call that is too large to be kept at all is left out. SKUA_ENOMEM, SKUA_EARG:
   arguments are no JSON. */
int  replay_put(struct replay *r, const char *id, const char *name, const char *arguments, const char *text, size_t n, skua_error *err);
/* true: text is appended, because id is known with this name and equal arguments (as JSON values, told by a 128-bit hash). */
bool replay_find(struct replay *r, const char *id, const char *name, const json_t *arguments, struct strbuf *text);
int  replay_save(struct replay *r, const char *path, skua_error *err);  /* atomically */
/* Add a file's calls to those that are there. SKUA_EFORMAT: damaged or not such a file; SKUA_EIO, SKUA_ENOMEM. Then nothing is taken. */
int  replay_load(struct replay *r, const char *path, skua_error *err);
/* A file to which every call is appended as it is put, so that a program that is killed loses none (the system may still, if it dies with
   it). Calls that the file holds already are added as replay_load does, up to the first that is cut or damaged, where it goes on from
   then. replay_save empties it: all of it is in the saved file. When it cannot be written, or comes to REPLAY_BYTES, nothing more is until
   the next save. SKUA_EIO, SKUA_ENOMEM: there is no journal. */
int  replay_journal(struct replay *r, const char *path, skua_error *err);
void replay_get_stats(struct replay *r, size_t *n_calls, uint64_t *hits);

#endif
