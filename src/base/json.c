/* jansson on our memory; see json.h.
 *
 * Every block for jansson has a link in front. While a text is being read the blocks of the reading thread form a ring, so that a failed
 * allocation can leave the library at once (longjmp) and give back what it had. Outside of a reading the links mean nothing. */
#include "base/json.h"

#include <setjmp.h>
#include <stdint.h>

#include "base/mem.h"

struct block {
    _Alignas(max_align_t) struct block *prev;
    struct block *next;
};

static _Thread_local struct {
    bool active;
    struct block ring; /* of the blocks allocated by this reading and not freed */
    jmp_buf failed;
} reading;

static void *allocate(size_t size)
{
    struct block *b = size <= SIZE_MAX - sizeof *b ? mem_alloc(sizeof *b + size) : NULL;
    if (!b) {
        if (reading.active)
            longjmp(reading.failed, 1);
        return NULL;
    }
    if (reading.active) {
        b->prev = &reading.ring;
        b->next = reading.ring.next;
        b->next->prev = b->prev->next = b;
    }
    return b + 1;
}

static void release(void *p)
{
    struct block *b = p ? (struct block *)p - 1 : NULL;
    if (b && reading.active) { /* a reading frees only what it allocated */
        b->prev->next = b->next;
        b->next->prev = b->prev;
    }
    mem_free(b);
}

void json_use_mem(void) { json_set_alloc_funcs(allocate, release); }

json_t *json_read(const char *s, size_t n, size_t flags, json_error_t *at, bool *no_memory)
{
    *no_memory = false;
    reading.ring.prev = reading.ring.next = &reading.ring;
    if (setjmp(reading.failed)) {
        reading.active = false;
        for (struct block *b = reading.ring.next, *next; b != &reading.ring; b = next) {
            next = b->next;
            mem_free(b);
        }
        *no_memory = true;
        return NULL;
    }
    reading.active = true;
    json_t *v = json_loadb(s, n, flags, at);
    reading.active = false;
    if (!v)
        *no_memory = json_error_code(at) == json_error_out_of_memory;
    return v;
}

json_t *json_copy_whole(const json_t *v)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)v);
    if (copy && json_object_size(copy) == json_object_size(v) && json_array_size(copy) == json_array_size(v))
        return copy;
    json_decref(copy);
    return NULL;
}
