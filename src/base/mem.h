/* Every heap allocation of Skua goes through these, so that tests can make the N-th one fail.
   All return NULL on failure and never abort. Sizes are in bytes. */
#ifndef SKUA_BASE_MEM_H
#define SKUA_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *mem_alloc(size_t size_bytes);                 /* uninitialised; size 0 gives a unique pointer */
void *mem_calloc(size_t count, size_t size_bytes);  /* zeroed; NULL when count * size overflows */
void *mem_realloc(void *p, size_t size_bytes);      /* on failure p stays valid */
void *mem_realloc_array(void *p, size_t count, size_t size_bytes); /* the same with an overflow check */
void *mem_aligned(size_t alignment, size_t size_bytes);            /* alignment a power of two; free with mem_free */
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n);         /* exactly n bytes and a terminator */
void  mem_free(void *p);                            /* NULL allowed */
size_t mem_live_blocks(void); /* allocated and not freed yet, in the whole process */

/* Fault injection. After fault_set_alloc(n) the n-th allocation from now (n = 1 is the next) fails, once when once is
   true, else that one and all after it; n = 0 switches off. fault_set_io does the same for file operations (base/file.h).
   fault_alloc_count and fault_io_count tell how many happened since the last set. Process-wide, atomic; for tests. */
void     fault_set_alloc(uint64_t n, bool once);
void     fault_set_io(uint64_t n, bool once);
uint64_t fault_alloc_count(void);
uint64_t fault_io_count(void);
bool     fault_io(void); /* called by base/file.c before each operation: true = pretend it failed (errno = EIO) */

#endif
