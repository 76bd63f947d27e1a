/* Memory bandwidth; see membw.h. Threads take pieces of the buffer from a counter, so that one which the system has put aside costs a
 * piece and not a share. */
#include "dev/membw.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"

#define PIECE ((size_t)1 << 20)

struct reading {
    const struct kern_table *table;
    char *buffer;
    size_t bytes;
    enum kern_read_way way;
    _Atomic size_t next;   /* bytes handed out */
    _Atomic uint64_t sum;  /* keeps the reads alive */
};

static void fill(void *arg, int thread, int n_threads)
{
    struct reading *r = arg;
    (void)thread, (void)n_threads;
    for (size_t at; (at = atomic_fetch_add(&r->next, PIECE)) < r->bytes;)
        memset(r->buffer + at, 1, PIECE); /* pages of our own: untouched ones are all the same page of zeros */
}

static void read_pieces(void *arg, int thread, int n_threads)
{
    struct reading *r = arg;
    uint64_t sum = 0;
    (void)thread, (void)n_threads;
    for (size_t at; (at = atomic_fetch_add(&r->next, PIECE)) < r->bytes;)
        sum += r->table->read_memory(r->buffer + at, PIECE, r->way);
    atomic_fetch_add(&r->sum, sum);
}

static double seconds(struct reading *r, struct pool *pool, pool_fn *fn)
{
    uint64_t start = clock_ns();
    atomic_store(&r->next, 0);
    pool_run(pool, fn, r);
    return (double)(clock_ns() - start) * 1e-9;
}

static void measure(struct reading *r, struct pool *pool, struct membw *out)
{
    seconds(r, pool, fill);
    for (int run = 0; run < MEMBW_RUNS; run++) /* the ways in turns: what disturbs one disturbs all */
        for (int way = 0; way < KERN_READ_WAYS; way++) {
            r->way = (enum kern_read_way)way;
            double rate = (double)r->bytes / seconds(r, pool, read_pieces);
            if (rate > out->way[way])
                out->way[way] = rate;
        }
}

int membw_measure(const struct kern_table *table, int n_threads, size_t bytes, struct membw *out, skua_error *err)
{
    struct pool *pool;
    size_t size = bytes <= PIECE ? PIECE : (bytes + PIECE - 1) / PIECE * PIECE;
    *out = (struct membw){.bytes = size, .n_threads = n_threads};
    void *p = fault_io() ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return error_nomem(err, "bandwidth buffer", size);
    struct reading r = {.table = table, .buffer = p, .bytes = size};
    int rc = pool_create(n_threads, &pool);
    if (!rc) {
        measure(&r, pool, out);
        pool_destroy(pool);
    } else if (rc == SKUA_ENOMEM) {
        error_nomem(err, "thread pool", 0);
    } else {
        error_set(err, rc, "cannot start %d threads (1 to %d are possible)", n_threads, POOL_MAX_THREADS);
    }
    munmap(p, size);
    return rc;
}

enum kern_read_way membw_best(const struct membw *m)
{
    int best = 0;
    for (int way = 1; way < KERN_READ_WAYS; way++)
        if (m->way[way] > m->way[best])
            best = way;
    return (enum kern_read_way)best;
}

const char *membw_way_name(enum kern_read_way way)
{
    static const char *const names[KERN_READ_WAYS] = {"plain", "streams", "prefetch"};
    return names[way];
}
