/* The CPU device: an op list is run by all threads together. Each op is cut into pieces of work units which the threads take
 * from a shared counter (results do not depend on who computes what); the next op begins when all units of this one are
 * computed, not when all threads have been there: a thread that the system has put aside holds nobody up.
 *
 * Memory comes from anonymous maps: zeroed, aligned to pages, and resident only where touched. */
#include "dev/dev.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "base/pool.h"

/* Pieces per thread and op: enough to even out a slow thread, few enough to keep the counter cheap. */
#define PIECES_PER_THREAD 4

/* Rounds of waiting for the last pieces of an op before the processor is offered to other threads. */
#define SPIN_ROUNDS 500

/* Progress of one op, alone in its cache line. */
struct op_progress {
    _Alignas(64) _Atomic int64_t next; /* first unit that nobody has taken */
    _Atomic int64_t done;              /* units computed */
};

struct dev_cpu {
    struct dev base;
    const struct kern_table *table;
    struct pool *pool;
    struct op_progress *progress; /* [cap_ops] */
    int cap_ops;
    uint64_t *ns; /* [cap_ns] time of each op of a run, for base.timer */
    int cap_ns;
};

struct cpu_buf {
    struct kern_buf base;
    size_t mapped; /* 0 for wrapped memory */
};

struct run_job {
    struct dev_cpu *dev;
    const struct kern_op *ops;
    int n_ops;
    const struct kern_batch *batch;
    uint64_t *ns; /* NULL: no time is taken. Thread 0 writes the moment when each op was complete */
};

static int cpu_buf_alloc(struct dev *d, size_t size, struct kern_buf **out, skua_error *err)
{
    *out = NULL;
    struct cpu_buf *b = mem_alloc(sizeof *b);
    if (!b)
        return error_nomem(err, "device buffer", size);
    size_t mapped = size ? size : 1;
    void *p = fault_io() ? MAP_FAILED : mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        mem_free(b);
        return error_nomem(err, "device buffer", size);
    }
    *b = (struct cpu_buf){.base = {.host = p, .size = size}, .mapped = mapped};
    d->allocated_bytes += size;
    *out = &b->base;
    return 0;
}

static int cpu_buf_wrap(struct dev *d, const void *host, size_t size, struct kern_buf **out, skua_error *err)
{
    (void)d;
    *out = NULL;
    struct cpu_buf *b = mem_alloc(sizeof *b);
    if (!b)
        return error_nomem(err, "device buffer", sizeof *b);
    *b = (struct cpu_buf){.base = {.host = (void *)(uintptr_t)host, .size = size}};
    *out = &b->base;
    return 0;
}

static void cpu_buf_free(struct dev *d, struct kern_buf *buf)
{
    if (!buf)
        return;
    struct cpu_buf *b = (struct cpu_buf *)buf;
    if (b->mapped) {
        munmap(b->base.host, b->mapped);
        d->allocated_bytes -= b->base.size;
    }
    mem_free(b);
}

static void cpu_write(struct dev *d, struct kern_view dst, const void *src, size_t size)
{
    (void)d;
    memcpy(kern_ptr(dst), src, size);
}

static void cpu_read(struct dev *d, struct kern_view src, void *dst, size_t size)
{
    (void)d;
    memcpy(dst, kern_ptr(src), size);
}

static void cpu_clear(struct dev *d, struct kern_view dst, size_t size)
{
    (void)d;
    memset(kern_ptr(dst), 0, size);
}

static int64_t piece_units(int64_t units, int64_t grain, int n_threads)
{
    int64_t piece = (units + (int64_t)n_threads * PIECES_PER_THREAD - 1) / ((int64_t)n_threads * PIECES_PER_THREAD);
    return (piece + grain - 1) / grain * grain;
}

static void wait_done(const struct op_progress *p, int64_t units)
{
    for (int i = 0; atomic_load_explicit(&p->done, memory_order_acquire) < units; i++) {
        if (i < SPIN_ROUNDS)
            cpu_relax();
        else
            sched_yield();
    }
}

static void run_thread(void *arg, int thread, int n_threads)
{
    struct run_job *job = arg;
    const struct kern_table *table = job->dev->table;
    for (int i = 0; i < job->n_ops; i++) {
        const struct kern_op *op = &job->ops[i];
        struct op_progress *p = &job->dev->progress[i];
        int64_t units = kern_units(op, job->batch), piece = piece_units(units, kern_grain(op, job->batch), n_threads);
        for (;;) {
            int64_t begin = atomic_fetch_add_explicit(&p->next, piece, memory_order_relaxed);
            if (begin >= units)
                break;
            int64_t end = begin + piece < units ? begin + piece : units;
            kern_run(table, op, job->batch, begin, end);
            atomic_fetch_add_explicit(&p->done, end - begin, memory_order_acq_rel);
        }
        wait_done(p, units);
        if (thread == 0 && job->ns)
            job->ns[i] = clock_ns();
    }
}

static void run_alone(const struct run_job *job)
{
    for (int i = 0; i < job->n_ops; i++) {
        kern_run(job->dev->table, &job->ops[i], job->batch, 0, kern_units(&job->ops[i], job->batch));
        if (job->ns)
            job->ns[i] = clock_ns();
    }
}

/* Counters for n_ops ops, all zero. They grow with the longest list seen, so that steps do not allocate. */
static int reset_progress(struct dev_cpu *c, int n_ops, skua_error *err)
{
    if (n_ops > c->cap_ops) {
        struct op_progress *p = mem_aligned(64, (size_t)n_ops * sizeof *p);
        if (!p)
            return error_nomem(err, "op counters", (size_t)n_ops * sizeof *p);
        mem_free(c->progress);
        c->progress = p;
        c->cap_ops = n_ops;
    }
    memset(c->progress, 0, (size_t)n_ops * sizeof *c->progress);
    return 0;
}

static int reserve_times(struct dev_cpu *c, int n_ops, skua_error *err)
{
    if (n_ops <= c->cap_ns)
        return 0;
    uint64_t *p = mem_realloc_array(c->ns, (size_t)n_ops, sizeof *p);
    if (!p)
        return error_nomem(err, "op times", (size_t)n_ops * sizeof *p);
    c->ns = p;
    c->cap_ns = n_ops;
    return 0;
}

static int run_job(const struct run_job *job, skua_error *err)
{
    if (job->dev->base.n_threads == 1) {
        run_alone(job);
        return 0;
    }
    int rc = reset_progress(job->dev, job->n_ops, err);
    if (!rc)
        pool_run(job->dev->pool, run_thread, (void *)(uintptr_t)job);
    return rc;
}

static int run_timed(const struct run_job *job, skua_error *err)
{
    struct dev *d = &job->dev->base;
    uint64_t before = clock_ns();
    int rc = run_job(job, err);
    if (rc)
        return rc;
    for (int i = 0; i < job->n_ops; i++) {
        uint64_t end = job->ns[i];
        job->ns[i] = end - before;
        before = end;
    }
    d->timer(d->timer_user, job->ops, job->n_ops, job->batch, job->ns);
    return 0;
}

static int run_list(struct dev *d, const struct kern_op *ops, int n_ops, const struct kern_batch *batch, skua_error *err)
{
    struct dev_cpu *c = (struct dev_cpu *)d;
    struct run_job job = {.dev = c, .ops = ops, .n_ops = n_ops, .batch = batch};
    if (!d->timer)
        return run_job(&job, err);
    int rc = reserve_times(c, n_ops, err);
    job.ns = c->ns;
    return rc ? rc : run_timed(&job, err);
}

static int cpu_run(struct dev *d, const struct kern_op *ops, int n_ops, const struct kern_batch *batch, skua_error *err)
{
    int rc = 0;
    if (!d->observer)
        return run_list(d, ops, n_ops, batch, err);
    for (int i = 0; i < n_ops && !rc; i++) {
        d->observer(d->observer_user, &ops[i], batch);
        rc = run_list(d, &ops[i], 1, batch, err);
    }
    return rc;
}

static int cpu_act_kind(const struct dev *d, uint32_t weight_type)
{
    return kern_act_kind(((const struct dev_cpu *)d)->table, weight_type);
}

static void cpu_destroy(struct dev *d)
{
    if (!d)
        return;
    pool_destroy(((struct dev_cpu *)d)->pool);
    mem_free(((struct dev_cpu *)d)->progress);
    mem_free(((struct dev_cpu *)d)->ns);
    mem_free(d);
}

static const struct dev_ops cpu_ops = {
    .buf_alloc = cpu_buf_alloc, .buf_wrap = cpu_buf_wrap, .buf_free = cpu_buf_free, .write = cpu_write, .read = cpu_read,
    .clear = cpu_clear, .run = cpu_run, .act_kind = cpu_act_kind, .destroy = cpu_destroy,
};

int dev_cpu_create(const struct kern_table *table, int n_threads, struct dev **out, skua_error *err)
{
    *out = NULL;
    struct dev_cpu *c = mem_calloc(1, sizeof *c);
    if (!c)
        return error_nomem(err, "CPU device", sizeof *c);
    int rc = pool_create(n_threads, &c->pool);
    if (rc) {
        mem_free(c);
        if (rc == SKUA_ENOMEM)
            return error_nomem(err, "thread pool", 0);
        return error_set(err, rc, "cannot start %d threads (1 to %d are possible)", n_threads, POOL_MAX_THREADS);
    }
    c->base = (struct dev){.ops = &cpu_ops, .name = "cpu", .kernels = table->name, .n_threads = n_threads};
    c->table = table;
    *out = &c->base;
    return 0;
}
