/* Answers of /v1/responses that are kept in memory, so that a request may go on from one by its id (spec/api.md 9.1, level 2).
 *
 * A turn is one request's new input and, once it is answered, the answer. It refers to the turn that it went on from, so that a
 * conversation is kept once however many answers it has. What is dropped or deleted is gone by its id, but lives on as the beginning of
 * the conversations that went on from it.
 *
 * Thread-safe. Everything is kept as text: values of jansson belong to one thread. */
#ifndef SKUA_API_RESPONSE_STORE_H
#define SKUA_API_RESPONSE_STORE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"

#define RESPONSE_STORE_ANSWERS 256             /* by default */
#define RESPONSE_STORE_BYTES ((size_t)64 << 20) /* of all turns together */

struct response_store;
struct response_turn;

/* Who asks: owners do not find what others have. store NULL: nothing is kept. */
struct response_access {
    struct response_store *store;
    uint64_t owner;
};

/* Of so many answers and bytes; the oldest go first. */
int  response_store_new(size_t max_answers, size_t max_bytes, struct response_store **out, skua_error *err);
void response_store_free(struct response_store *s); /* NULL allowed; no turn of it is held any more */
void response_store_get_stats(struct response_store *s, size_t *n_answers, size_t *n_bytes);

/* The turn whose answer has this id, held for the caller; NULL. */
struct response_turn *response_turn_find(const struct response_access *a, const char *id);
/* A turn of these input items (objects; ids are made where there are none), after `before` (NULL: a conversation's first), which is taken
   over in every case. NULL: out of memory. */
struct response_turn *response_turn_new(const struct response_access *a, struct response_turn *before, const json_t *input);
void response_turn_drop(struct response_turn *t); /* what the caller held; NULL allowed */

/* Its answer: the response object, and the output items, JSON with commas between. Once. false: not kept, for want of memory or because it
   is too large. */
bool response_turn_keep(struct response_turn *t, const char *id, const struct strbuf *response, const struct strbuf *output);

/* The conversation so far, oldest first, borrowed from the turn; without its own output, or with it. *out: mem_free. SKUA_ENOMEM. */
struct response_item {
    const char *id, *text;
    size_t n_text;
};
int response_turn_items(const struct response_turn *t, bool with_output, struct response_item **out, size_t *n);

/* Append the response object, or any item that has this id (the newest). false: there is none. */
bool response_store_answer(const struct response_access *a, const char *id, struct strbuf *out);
bool response_store_item(const struct response_access *a, const char *id, struct strbuf *out);
bool response_store_delete(const struct response_access *a, const char *id);

#endif
