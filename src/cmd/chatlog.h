/* A conversation: a jansson array of messages {"role", "content", "reasoning_content"} as a chat template wants it, and its
   JSON file (that array, nothing else). Roles: system (first message only), user, assistant, tool. */
#ifndef SKUA_CMD_CHATLOG_H
#define SKUA_CMD_CHATLOG_H

#include <jansson.h>
#include <stddef.h>

#include "base/error.h"

#define CHATLOG_MAX_FILE_BYTES (64u << 20)

struct chatlog {
    json_t *messages; /* never NULL after chatlog_init; only valid messages */
};

/* An empty conversation. SKUA_ENOMEM. */
int  chatlog_init(struct chatlog *c, skua_error *err);
void chatlog_free(struct chatlog *c); /* zeroed logs allowed */

/* Messages in it. */
size_t chatlog_len(const struct chatlog *c);

/* Append a message of n bytes (NUL bytes allowed); reasoning may be NULL. Bytes that are not UTF-8 become U+FFFD, because JSON
   cannot hold them. SKUA_EARG: unknown role, or system behind other messages; SKUA_ENOMEM. On failure nothing changes. */
int chatlog_add(struct chatlog *c, const char *role, const char *content, size_t n, const char *reasoning, size_t n_reasoning,
                skua_error *err);
/* Replace, insert or (text NULL) remove the system message in front. */
int chatlog_set_system(struct chatlog *c, const char *text, size_t n, skua_error *err);
void chatlog_pop(struct chatlog *c);   /* drop the last message; nothing when there is none */
void chatlog_reset(struct chatlog *c); /* drop all but the system message */

/* Write the log to path (whole or not at all), or replace the log by a file's content (on failure it stays as it was).
   Errors name the file, and the index and field of a bad message. */
int chatlog_save(const struct chatlog *c, const char *path, skua_error *err);
int chatlog_load(struct chatlog *c, const char *path, skua_error *err);

#endif
