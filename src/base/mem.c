/* Allocation and fault injection; see mem.h. One atomic counter and one compare per call: allocations are not hot here. */
#include "base/mem.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct fault {
    _Atomic uint64_t count; /* operations since the last set */
    _Atomic uint64_t at;    /* which one fails, 0 = none */
    _Atomic bool once;
};

static struct fault alloc_fault, io_fault;

static void fault_arm(struct fault *f, uint64_t n, bool once)
{
    atomic_store(&f->at, 0);
    atomic_store(&f->count, 0);
    atomic_store(&f->once, once);
    atomic_store(&f->at, n);
}

static bool fault_hit(struct fault *f)
{
    uint64_t n = atomic_fetch_add_explicit(&f->count, 1, memory_order_relaxed) + 1;
    uint64_t at = atomic_load_explicit(&f->at, memory_order_relaxed);
    if (at == 0)
        return false;
    return atomic_load_explicit(&f->once, memory_order_relaxed) ? n == at : n >= at;
}

void fault_set_alloc(uint64_t n, bool once) { fault_arm(&alloc_fault, n, once); }
void fault_set_io(uint64_t n, bool once) { fault_arm(&io_fault, n, once); }
uint64_t fault_alloc_count(void) { return atomic_load(&alloc_fault.count); }
uint64_t fault_io_count(void) { return atomic_load(&io_fault.count); }

bool fault_io(void)
{
    if (!fault_hit(&io_fault))
        return false;
    errno = EIO;
    return true;
}

/* ---- allocation ---- */

static _Atomic size_t live_blocks;

static void *counted(void *p)
{
    if (p)
        atomic_fetch_add_explicit(&live_blocks, 1, memory_order_relaxed);
    return p;
}

size_t mem_live_blocks(void) { return atomic_load(&live_blocks); }

void *mem_alloc(size_t size_bytes)
{
    return counted(fault_hit(&alloc_fault) ? NULL : malloc(size_bytes ? size_bytes : 1));
}

void *mem_calloc(size_t count, size_t size_bytes)
{
    size_t total;
    if (fault_hit(&alloc_fault) || __builtin_mul_overflow(count, size_bytes, &total))
        return NULL;
    return counted(calloc(1, total ? total : 1));
}

void *mem_realloc(void *p, size_t size_bytes)
{
    if (!p)
        return mem_alloc(size_bytes);
    return fault_hit(&alloc_fault) ? NULL : realloc(p, size_bytes ? size_bytes : 1);
}

void *mem_realloc_array(void *p, size_t count, size_t size_bytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, size_bytes, &total))
        return NULL;
    return mem_realloc(p, total);
}

void *mem_aligned(size_t alignment, size_t size_bytes)
{
    size_t rounded;
    if (fault_hit(&alloc_fault) || __builtin_add_overflow(size_bytes, alignment, &rounded))
        return NULL;
    rounded = (rounded - 1) & ~(alignment - 1); /* aligned_alloc wants a multiple of the alignment */
    return counted(aligned_alloc(alignment, rounded ? rounded : alignment));
}

char *mem_strndup(const char *s, size_t n)
{
    char *p = n < SIZE_MAX ? mem_alloc(n + 1) : NULL;
    if (!p)
        return NULL;
    memcpy(p, s, n);
    p[n] = '\0';
    return p;
}

char *mem_strdup(const char *s) { return mem_strndup(s, strlen(s)); }

void mem_free(void *p)
{
    if (p)
        atomic_fetch_sub_explicit(&live_blocks, 1, memory_order_relaxed);
    free(p);
}
