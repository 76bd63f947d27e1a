/* Bump allocation with a limit: everything is freed at once. Used for one compiled template and for one rendering.
   A request that would pass the limit fails with `limited` set; one that the system refuses fails with it clear. */
#ifndef SKUA_JINJA_ARENA_H
#define SKUA_JINJA_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks; /* newest first */
    char *at, *end;             /* free room of the newest chunk */
    size_t used, limit;         /* bytes taken from the system, and their maximum */
    bool limited;
};

/* limit_bytes: most memory it may take from the system. arena_free gives all of it back; the arena can be used again. */
void  arena_init(struct arena *a, size_t limit_bytes);
void  arena_free(struct arena *a);
void *arena_alloc(struct arena *a, size_t n);                 /* 8-byte aligned, uninitialised; NULL on failure */
void *arena_zalloc(struct arena *a, size_t n);                /* the same, zeroed */
void *arena_array(struct arena *a, size_t count, size_t size);/* uninitialised; checks the product */
/* Grow the block p of old bytes to n bytes: in place when it is the newest block and fits, else by copying. */
void *arena_grow(struct arena *a, void *p, size_t old, size_t n);
/* Give back the tail of the block p (old bytes, n needed): only when it is the newest block. */
void  arena_trim(struct arena *a, void *p, size_t old, size_t n);

#endif
