/* Bump allocator; see arena.h. Chunks double from 16 KiB to 1 MiB; a larger request gets a chunk of its own size. */
#include "jinja/arena.h"

#include <string.h>

#include "base/mem.h"

#define CHUNK_MIN ((size_t)16 << 10)
#define CHUNK_MAX ((size_t)1 << 20)

struct arena_chunk {
    struct arena_chunk *next;
    size_t size;
    char data[];
};

void arena_init(struct arena *a, size_t limit_bytes) { *a = (struct arena){.limit = limit_bytes}; }

void arena_free(struct arena *a)
{
    for (struct arena_chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        mem_free(c);
    }
    arena_init(a, a->limit);
}

static size_t round_up(size_t n) { return (n + 7) & ~(size_t)7; }

void *arena_alloc(struct arena *a, size_t n)
{
    if (n > a->limit) {
        a->limited = true;
        return NULL;
    }
    n = round_up(n ? n : 1);
    if (n <= (size_t)(a->end - a->at)) {
        void *p = a->at;
        a->at += n;
        return p;
    }
    size_t size = a->chunks ? a->chunks->size * 2 : CHUNK_MIN;
    size = size > CHUNK_MAX ? CHUNK_MAX : size;
    size = size < n ? n : size;
    if (size > a->limit - a->used)
        size = n; /* close to the limit: exactly what is asked for */
    if (size > a->limit - a->used) {
        a->limited = true;
        return NULL;
    }
    struct arena_chunk *c = mem_alloc(sizeof *c + size);
    if (!c)
        return NULL;
    c->next = a->chunks;
    c->size = size;
    a->chunks = c;
    a->used += size;
    a->at = c->data + n;
    a->end = c->data + size;
    return c->data;
}

void *arena_zalloc(struct arena *a, size_t n)
{
    void *p = arena_alloc(a, n);
    return p ? memset(p, 0, n) : NULL;
}

void *arena_array(struct arena *a, size_t count, size_t size)
{
    size_t n;
    if (__builtin_mul_overflow(count, size, &n)) {
        a->limited = true;
        return NULL;
    }
    return arena_alloc(a, n);
}

void *arena_grow(struct arena *a, void *p, size_t old, size_t n)
{
    if (n > a->limit) {
        a->limited = true;
        return NULL;
    }
    size_t have = round_up(old ? old : 1), want = round_up(n ? n : 1);
    if (p && (char *)p + have == a->at && want <= (size_t)(a->end - (char *)p)) {
        a->at = (char *)p + want;
        return p;
    }
    void *q = arena_alloc(a, n);
    if (q && old)
        memcpy(q, p, old < n ? old : n);
    return q;
}

void arena_trim(struct arena *a, void *p, size_t old, size_t n)
{
    if ((char *)p + round_up(old ? old : 1) == a->at)
        a->at = (char *)p + round_up(n ? n : 1);
}
