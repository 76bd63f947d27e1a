/* Hash map; see hashmap.h. Open addressing with linear probing, at most half full, XXH3 truncated to 32 bits. */
#include "base/hashmap.h"

#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "skua.h"

int hashmap_init(struct hashmap *m, size_t expected)
{
    size_t n = 16;
    while (n / 2 < expected && n < SIZE_MAX / 4)
        n *= 2;
    *m = (struct hashmap){.slots = mem_calloc(n, sizeof *m->slots), .mask = n - 1};
    return m->slots ? 0 : SKUA_ENOMEM;
}

void hashmap_free(struct hashmap *m)
{
    mem_free(m->slots);
    *m = (struct hashmap){0};
}

static struct hashmap_entry *find(const struct hashmap *m, const char *key, size_t len, uint32_t hash)
{
    for (size_t i = hash & m->mask;; i = (i + 1) & m->mask) {
        struct hashmap_entry *e = &m->slots[i];
        if (!e->key || (e->hash == hash && e->len == len && memcmp(e->key, key, len) == 0))
            return e;
    }
}

static int grow(struct hashmap *m)
{
    struct hashmap bigger;
    if (hashmap_init(&bigger, m->mask + 1))
        return SKUA_ENOMEM;
    for (size_t i = 0; i <= m->mask; i++)
        if (m->slots[i].key)
            *find(&bigger, m->slots[i].key, m->slots[i].len, m->slots[i].hash) = m->slots[i];
    bigger.used = m->used;
    hashmap_free(m);
    *m = bigger;
    return 0;
}

int hashmap_put(struct hashmap *m, const char *key, size_t len, uint32_t value)
{
    if ((m->used + 1) * 2 > m->mask + 1 && grow(m))
        return SKUA_ENOMEM;
    uint32_t hash = (uint32_t)XXH3_64bits(key, len);
    struct hashmap_entry *e = find(m, key, len, hash);
    if (e->key)
        return 1;
    *e = (struct hashmap_entry){.key = key, .len = (uint32_t)len, .hash = hash, .value = value};
    m->used++;
    return 0;
}

bool hashmap_get(const struct hashmap *m, const char *key, size_t len, uint32_t *value)
{
    if (!m->slots)
        return false;
    const struct hashmap_entry *e = find(m, key, len, (uint32_t)XXH3_64bits(key, len));
    if (!e->key)
        return false;
    *value = e->value;
    return true;
}
