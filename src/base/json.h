/* jansson on our memory. Reading JSON survives memory running out: jansson's lexer goes on after some failed allocations, with a
   damaged text, and reports others as a bad token. */
#ifndef SKUA_BASE_JSON_H
#define SKUA_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Let jansson allocate with base/mem.h from now on. For the program's first steps: nothing of jansson may exist yet. */
void json_use_mem(void);

/* json_loadb(s, n, flags, at). On failure NULL; *no_memory: an allocation failed (*at is unspecified then, and nothing is left
   allocated). That is certain after json_use_mem only. */
json_t *json_read(const char *s, size_t n, size_t flags, json_error_t *at, bool *no_memory);

/* json_copy of an object or an array, whole or NULL: jansson's own leaves out what it has no memory for. */
json_t *json_copy_whole(const json_t *v);

#endif
