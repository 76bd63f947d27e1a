/* Reading memory (kern_read_fn) with vectors of READ_BYTES. Included once by read_<isa>.c, which defines READ_BYTES and READ_MEMORY, the
 * function's name.
 */
#include "kern/cpu/kern_tiers.h"
#include "kern/cpu/vec.h"

typedef uint64_t read_vec __attribute__((vector_size(READ_BYTES)));

#define LINE 64                     /* bytes asked for by one prefetch */
#define LINE_VECS (LINE / READ_BYTES)
#define PREFETCH_AHEAD 4096         /* bytes: some hundred nanoseconds of reading */
#define ACCUMULATORS 4              /* independent, so that no add waits for the one before */
#define STREAMS 4

static INLINE uint64_t read_total(read_vec a)
{
    uint64_t sum = 0;
    UNROLL for (unsigned i = 0; i < READ_BYTES / 8; i++)
        sum += a[i];
    return sum;
}

static INLINE uint64_t read_along(const char *p, size_t n, bool prefetch)
{
    read_vec acc[ACCUMULATORS] = {{0}};
    for (size_t at = 0; at < n; at += ACCUMULATORS * LINE) {
        UNROLL for (size_t i = 0; i < ACCUMULATORS; i++) {
            if (prefetch)
                __builtin_prefetch(p + at + i * LINE + PREFETCH_AHEAD, 0, 0);
            UNROLL for (size_t k = 0; k < LINE_VECS; k++)
                acc[i] += *(const read_vec *)(p + at + i * LINE + k * READ_BYTES);
        }
    }
    return read_total(acc[0] + acc[1] + acc[2] + acc[3]);
}

static NOINLINE uint64_t read_plain(const char *p, size_t n) { return read_along(p, n, false); }

static NOINLINE uint64_t read_prefetch(const char *p, size_t n) { return read_along(p, n, true); }

static NOINLINE uint64_t read_streams(const char *p, size_t n)
{
    read_vec acc[STREAMS] = {{0}};
    const size_t quarter = n / STREAMS;
    for (size_t at = 0; at < quarter; at += LINE) {
        UNROLL for (size_t i = 0; i < STREAMS; i++)
            UNROLL for (size_t k = 0; k < LINE_VECS; k++)
                acc[i] += *(const read_vec *)(p + i * quarter + at + k * READ_BYTES);
    }
    return read_total(acc[0] + acc[1] + acc[2] + acc[3]);
}

uint64_t READ_MEMORY(const void *p, size_t n, enum kern_read_way way)
{
    return way == KERN_READ_STREAMS ? read_streams(p, n) : way == KERN_READ_PREFETCH ? read_prefetch(p, n) : read_plain(p, n);
}
