/* Reading memory (kern_read_fn) with vectors of READ_BYTES. Included once by read_<isa>.c, which defines READ_BYTES and READ_MEMORY, the
 * function's name.
 */
#include "kern/cpu/kern_tiers.h"
#include "kern/cpu/vec.h"

typedef uint64_t read_vec __attribute__((vector_size(READ_BYTES)));

#define LINE 64             /* bytes asked for by one prefetch */
#define LINE_VECS (LINE / READ_BYTES)
#define PREFETCH_AHEAD 1024 /* bytes */
#define STREAMS 4           /* also accumulators: no add waits for the one before */

static INLINE uint64_t read_total(const read_vec acc[STREAMS])
{
    const read_vec a = acc[0] + acc[1] + acc[2] + acc[3];
    uint64_t sum = 0;
    UNROLL for (unsigned i = 0; i < READ_BYTES / 8; i++)
        sum += a[i];
    return sum;
}

/* n bytes as STREAMS lines at a time that are `apart` bytes from each other; each stream goes on by `step`. */
static INLINE uint64_t read_lines(const char *p, size_t n, size_t apart, size_t step, bool prefetch)
{
    read_vec acc[STREAMS] = {{0}};
    for (size_t at = 0, left = n; left > 0; at += step, left -= STREAMS * LINE) {
        UNROLL for (size_t i = 0; i < STREAMS; i++) {
            const char *line = p + at + i * apart;
            if (prefetch)
                __builtin_prefetch(line + PREFETCH_AHEAD, 0, 3);
            UNROLL for (size_t k = 0; k < LINE_VECS; k++)
                acc[i] += *(const read_vec *)(line + k * READ_BYTES);
        }
    }
    return read_total(acc);
}

static NOINLINE uint64_t read_plain(const char *p, size_t n) { return read_lines(p, n, LINE, STREAMS * LINE, false); }
static NOINLINE uint64_t read_streams(const char *p, size_t n) { return read_lines(p, n, n / STREAMS, LINE, false); }
static NOINLINE uint64_t read_prefetch(const char *p, size_t n) { return read_lines(p, n, n / STREAMS, LINE, true); }

uint64_t READ_MEMORY(const void *p, size_t n, enum kern_read_way way)
{
    return way == KERN_READ_STREAMS ? read_streams(p, n) : way == KERN_READ_PREFETCH ? read_prefetch(p, n) : read_plain(p, n);
}
