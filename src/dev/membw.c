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

struct membw_reader {
    struct reading reading;
    struct pool *pool;
};

int membw_open(const struct kern_table *table, int n_threads, size_t bytes, struct membw_reader **out, skua_error *err)
{
    const size_t size = bytes <= PIECE ? PIECE : (bytes + PIECE - 1) / PIECE * PIECE;
    struct membw_reader *r = mem_calloc(1, sizeof *r);
    *out = NULL;
    if (!r)
        return error_nomem(err, "bandwidth buffer", sizeof *r);
    void *p = fault_io() ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        mem_free(r);
        return error_nomem(err, "bandwidth buffer", size);
    }
    r->reading = (struct reading){.table = table, .buffer = p, .bytes = size};
    int rc = pool_create(n_threads, &r->pool);
    if (rc) {
        membw_close(r);
        return rc == SKUA_ENOMEM ? error_nomem(err, "thread pool", 0)
                                 : error_set(err, rc, "cannot start %d threads (1 to %d are possible)", n_threads, POOL_MAX_THREADS);
    }
    seconds(&r->reading, r->pool, fill);
    *out = r;
    return 0;
}

double membw_read(struct membw_reader *r, enum kern_read_way way)
{
    r->reading.way = way;
    return (double)r->reading.bytes / seconds(&r->reading, r->pool, read_pieces);
}

void membw_close(struct membw_reader *r)
{
    if (!r)
        return;
    pool_destroy(r->pool);
    munmap(r->reading.buffer, r->reading.bytes);
    mem_free(r);
}

int membw_measure(const struct kern_table *table, int n_threads, size_t bytes, struct membw *out, skua_error *err)
{
    struct membw_reader *r;
    *out = (struct membw){.n_threads = n_threads};
    int rc = membw_open(table, n_threads, bytes, &r, err);
    if (rc)
        return rc;
    out->bytes = r->reading.bytes;
    for (int run = 0; run < MEMBW_RUNS; run++) /* the ways in turns: what disturbs one disturbs all */
        for (int way = 0; way < KERN_READ_WAYS; way++) {
            double rate = membw_read(r, (enum kern_read_way)way);
            if (rate > out->way[way])
                out->way[way] = rate;
        }
    membw_close(r);
    return 0;
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
