/* Names -> record numbers; see gguf_internal.h. Linear probing over XXH3. The seed differs from table to table so that a
   file cannot be made to put all its names into one run of slots; nothing but the speed of a lookup depends on it. */
#include <xxhash.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gguf/gguf_internal.h"

static size_t slots_for(size_t records)
{
    size_t n = 16;
    while (n / 3 * 2 < records && n < SIZE_MAX / 8)
        n *= 2;
    return n;
}

int gguf_index_init(struct gguf_index *x, size_t expected)
{
    size_t n = slots_for(expected);
    *x = (struct gguf_index){.slots = mem_calloc(n, sizeof *x->slots), .mask = n - 1};
    x->seed = clock_ns() ^ (uintptr_t)x->slots;
    return x->slots ? 0 : SKUA_ENOMEM;
}

void gguf_index_free(struct gguf_index *x)
{
    mem_free(x->slots);
    *x = (struct gguf_index){0};
}

/* The slot that holds key, or the free one where it belongs. At least a third of the slots is free. */
static uint32_t *find(const struct gguf_index *x, struct gguf_string key, gguf_name_fn *name, const void *context)
{
    for (size_t i = (size_t)XXH3_64bits_withSeed(key.data, key.len, x->seed) & x->mask;; i = (i + 1) & x->mask) {
        uint32_t *slot = &x->slots[i];
        if (!*slot)
            return slot;
        struct gguf_string s = name(context, *slot - 1);
        if (s.len == key.len && memcmp(s.data, key.data, key.len) == 0)
            return slot;
    }
}

static int grow(struct gguf_index *x, gguf_name_fn *name, const void *context)
{
    struct gguf_index bigger;
    if (gguf_index_init(&bigger, x->used + 1))
        return SKUA_ENOMEM;
    for (size_t i = 0; i <= x->mask; i++)
        if (x->slots[i])
            *find(&bigger, name(context, x->slots[i] - 1), name, context) = x->slots[i];
    bigger.used = x->used;
    gguf_index_free(x);
    *x = bigger;
    return 0;
}

int gguf_index_put(struct gguf_index *x, uint32_t record, gguf_name_fn *name, const void *context)
{
    if (slots_for(x->used + 1) > x->mask + 1 && grow(x, name, context))
        return SKUA_ENOMEM;
    uint32_t *slot = find(x, name(context, record), name, context);
    if (*slot)
        return 1;
    *slot = record + 1;
    x->used++;
    return 0;
}

bool gguf_index_get(const struct gguf_index *x, struct gguf_string key, gguf_name_fn *name, const void *context,
                    uint32_t *record)
{
    if (!x->slots)
        return false;
    uint32_t slot = *find(x, key, name, context);
    if (!slot)
        return false;
    *record = slot - 1;
    return true;
}
