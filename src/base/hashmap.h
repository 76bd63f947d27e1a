/* A hash map from byte strings to 32-bit values (tensor name -> index, token text -> id). Keys are not copied: they must
   outlive the map. Insertion only. */
#ifndef SKUA_BASE_HASHMAP_H
#define SKUA_BASE_HASHMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hashmap_entry {
    const char *key; /* NULL: free slot */
    uint32_t len, hash;
    uint32_t value;
};

struct hashmap {
    struct hashmap_entry *slots;
    size_t mask, used;
};

int  hashmap_init(struct hashmap *m, size_t expected); /* 0 or SKUA_ENOMEM */
void hashmap_free(struct hashmap *m);                  /* zeroed maps allowed */
/* 0 = inserted; 1 = the key was there already (kept as it was); SKUA_ENOMEM. */
int  hashmap_put(struct hashmap *m, const char *key, size_t len, uint32_t value);
bool hashmap_get(const struct hashmap *m, const char *key, size_t len, uint32_t *value);

#endif
