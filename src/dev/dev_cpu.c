/* The CPU device: an op list is run by all threads together, in stages. A stage is either
 *   - one op, or several matrix products that do not depend on each other: their work units are cut into pieces which the threads
 *     take from counters, large ones first, so that all are busy to the end; or
 *   - a run of ops too small to share: whoever comes first computes them all.
 * Results do not depend on who computes what. The next stage begins when all units of this one are computed, not when all threads have
 * been there: a thread that the system has put aside holds nobody up. Passes of few rows (decode) and others may have different numbers
 * of threads.
 *
 * Memory comes from anonymous maps: zeroed, aligned to pages, and resident only where touched. */
#include "dev/dev.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "base/pool.h"
#include "kern/tile.h"
#include "quant/type.h"

/* A piece is this part of what is left of an op for each thread, but at least LEAST_PART of the whole. */
#define LEFT_PART 2
#define LEAST_PART 16

/* A pass of up to this many rows is a decode pass: the matrix products wait for memory, not for arithmetic. */
#define DECODE_ROWS 16

#define MAX_TOGETHER 6 /* matrix products in a stage */

/* Rounds of waiting for the last pieces of an op before the processor is offered to other threads. */
#define SPIN_ROUNDS 500

/* What all threads know of an op before it begins. */
struct op_plan {
    int64_t units;
    int32_t grain;
    int32_t end; /* of the stage that begins with this op; negative: -end, and the stage is a run of small ops */
};

/* Progress of one op, alone in its cache line. A run of small ops counts as one unit of its first one. */
struct op_progress {
    _Alignas(64) _Atomic int64_t next; /* first unit that nobody has taken */
    _Atomic int64_t done;              /* units computed */
};

struct dev_cpu {
    struct dev base;
    const struct kern_table *table;
    struct pool *decode, *prefill; /* may be the same */
    struct op_progress *progress; /* [cap_ops] */
    struct op_plan *plan;         /* [cap_ops] */
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

#define HUGE_PAGE ((size_t)2 << 20)

/* New zeroed memory, NULL if there is none. Large pieces begin at a huge page and ask for such pages: KV caches and states are read from
   end to end in every step, and each 4 KiB page more costs a walk of the page table and stops the hardware's prefetching. */
static void *map_memory(size_t size)
{
    const size_t extra = size >= HUGE_PAGE ? HUGE_PAGE : 0;
    if (fault_io())
        return NULL;
    char *p = mmap(NULL, size + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (!extra)
        return p;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
    char *begin = p + before, *end = begin + (size + page - 1) / page * page;
    if (before)
        munmap(p, before);
    if (p + size + extra > end)
        munmap(end, (size_t)(p + size + extra - end));
    madvise(begin, size, MADV_HUGEPAGE); /* without it, smaller pages serve */
    return begin;
}

static int cpu_buf_alloc(struct dev *d, size_t size, struct kern_buf **out, skua_error *err)
{
    *out = NULL;
    struct cpu_buf *b = mem_alloc(sizeof *b);
    if (!b)
        return error_nomem(err, "device buffer", size);
    size_t mapped = size ? size : 1;
    void *p = map_memory(mapped);
    if (!p) {
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

static void cpu_copy(struct dev *d, struct kern_view dst, struct kern_view src, size_t size)
{
    (void)d;
    memcpy(kern_ptr(dst), kern_ptr(src), size);
}

static void cpu_clear(struct dev *d, struct kern_view dst, size_t size)
{
    (void)d;
    memset(kern_ptr(dst), 0, size);
}

/* ---- stages ---- */

/* Bytes that a matrix product reads or writes of its input and output rows. */
struct extent {
    const struct kern_buf *buf;
    size_t begin, end;
};

static struct extent input_extent(const struct kern_table *table, const struct op_matmul *m)
{
    const int kind = kern_act_kind(table, m->w.type);
    const size_t row = kind == KERN_ACT_F32 ? (size_t)m->x_stride * sizeof(float) : kern_act_bytes((enum kern_act)kind, m->w.n_in);
    return (struct extent){m->x.buf, m->x.offset, m->x.offset + row * (size_t)m->n_rows};
}

static struct extent output_extent(const struct op_matmul *m)
{
    const size_t floats = (size_t)m->y_stride * (size_t)(m->n_rows - 1) + (size_t)m->w.n_out;
    return (struct extent){m->y.buf, m->y.offset, m->y.offset + floats * sizeof(float)};
}

static bool overlap(struct extent a, struct extent b)
{
    return a.buf == b.buf && a.begin < b.end && b.begin < a.end;
}

/* Do two outputs share elements? Columns of the same rows, side by side, do not. */
static bool same_elements(const struct op_matmul *a, const struct op_matmul *b)
{
    if (!overlap(output_extent(a), output_extent(b)))
        return false;
    const struct op_matmul *left = a->y.offset < b->y.offset ? a : b, *right = left == a ? b : a;
    const size_t apart = (right->y.offset - left->y.offset) / sizeof(float);
    return left->y_stride != right->y_stride || apart < (size_t)left->w.n_out || apart + (size_t)right->w.n_out > (size_t)left->y_stride;
}

/* May the two run in any order? */
static bool independent(const struct kern_table *table, const struct kern_op *a, const struct kern_op *b)
{
    if (a->code != KERN_MATMUL || b->code != KERN_MATMUL || a->p.matmul.accumulate || b->p.matmul.accumulate)
        return false;
    const struct op_matmul *m = &a->p.matmul, *n = &b->p.matmul;
    return !overlap(output_extent(m), input_extent(table, n)) && !overlap(input_extent(table, m), output_extent(n)) && !same_elements(m, n);
}

/* The end of the stage that begins with op i, as op_plan has it. */
static int stage_end(const struct run_job *job, int i)
{
    const struct op_plan *p = job->dev->plan;
    const struct kern_table *table = job->dev->table;
    int end = i + 1;
    for (bool all = true; all && end < job->n_ops && end - i < MAX_TOGETHER; end += all)
        for (int k = i; k < end && all; k++)
            all = independent(table, &job->ops[k], &job->ops[end]);
    const bool alone = end == i + 1 && p[i].units <= p[i].grain;
    while (alone && end < job->n_ops && p[end].units <= p[end].grain
           && (end + 1 == job->n_ops || !independent(table, &job->ops[end], &job->ops[end + 1])))
        end++;
    return alone ? -end : end;
}

/* The next piece of an op; false: there is none. */
static bool take_piece(struct op_progress *progress, const struct op_plan *p, int n_threads, int64_t *begin, int64_t *end)
{
    int64_t at = atomic_load_explicit(&progress->next, memory_order_relaxed), piece;
    do {
        if (at >= p->units)
            return false;
        const int64_t part = (p->units - at) / ((int64_t)n_threads * LEFT_PART), least = p->units / ((int64_t)n_threads * LEAST_PART);
        piece = part > least ? part : least;
        piece = piece > p->grain ? (piece + p->grain - 1) / p->grain * p->grain : p->grain;
    } while (!atomic_compare_exchange_weak_explicit(&progress->next, &at, at + piece, memory_order_relaxed, memory_order_relaxed));
    *begin = at;
    *end = at + piece < p->units ? at + piece : p->units;
    return true;
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

static void run_small(const struct run_job *job, int i, int end)
{
    struct op_progress *p = &job->dev->progress[i];
    if (atomic_load_explicit(&p->next, memory_order_relaxed) == 0 && atomic_exchange_explicit(&p->next, 1, memory_order_relaxed) == 0) {
        for (int k = i; k < end; k++)
            kern_run(job->dev->table, &job->ops[k], job->batch, 0, kern_units(&job->ops[k], job->batch));
        atomic_store_explicit(&p->done, 1, memory_order_release);
    }
    wait_done(p, 1);
}

/* A list whose ops are timed has stages of one op each. */
static void note_time(const struct run_job *job, int i)
{
    if (job->ns)
        job->ns[i] = clock_ns();
}

static void run_thread(void *arg, int thread, int n_threads)
{
    const struct run_job *job = arg;
    struct op_progress *p = job->dev->progress;
    const struct op_plan *plan = job->dev->plan;
    for (int i = 0, end; i < job->n_ops; i = end) {
        end = abs(plan[i].end);
        if (plan[i].end < 0) {
            run_small(job, i, end);
            if (thread == 0)
                note_time(job, i);
            continue;
        }
        for (int k = i; k < end; k++)
            for (int64_t from, to; take_piece(&p[k], &plan[k], n_threads, &from, &to);) {
                kern_run(job->dev->table, &job->ops[k], job->batch, from, to);
                atomic_fetch_add_explicit(&p[k].done, to - from, memory_order_acq_rel);
            }
        for (int k = i; k < end; k++)
            wait_done(&p[k], plan[k].units);
        if (thread == 0)
            note_time(job, i);
    }
}

static void run_alone(const struct run_job *job)
{
    for (int i = 0; i < job->n_ops; i++) {
        kern_run(job->dev->table, &job->ops[i], job->batch, 0, kern_units(&job->ops[i], job->batch));
        note_time(job, i);
    }
}

/* Room for n ops and for lists somewhat longer, as later steps have them: steps do not allocate. */
static int reserve_ops(struct dev_cpu *c, int n, skua_error *err)
{
    if (n <= c->cap_ops)
        return 0;
    n += n / 2 + 16;
    struct op_progress *progress = mem_aligned(64, (size_t)n * sizeof *progress);
    struct op_plan *plan = mem_aligned(64, (size_t)n * sizeof *plan);
    if (!progress || !plan) {
        mem_free(progress);
        mem_free(plan);
        return error_nomem(err, "op counters", (size_t)n * sizeof *progress);
    }
    mem_free(c->progress);
    mem_free(c->plan);
    c->progress = progress;
    c->plan = plan;
    c->cap_ops = n;
    return 0;
}

static int prepare(const struct run_job *job, skua_error *err)
{
    struct dev_cpu *c = job->dev;
    int rc = reserve_ops(c, job->n_ops, err);
    if (rc)
        return rc;
    memset(c->progress, 0, (size_t)job->n_ops * sizeof *c->progress);
    for (int i = 0; i < job->n_ops; i++)
        c->plan[i] = (struct op_plan){.units = kern_units(&job->ops[i], job->batch),
                                      .grain = (int32_t)kern_grain(&job->ops[i], job->batch)};
    for (int i = 0; i < job->n_ops; i = abs(c->plan[i].end))
        c->plan[i].end = job->ns ? i + 1 : stage_end(job, i);
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
    struct pool *pool = job->batch->n_rows <= DECODE_ROWS ? job->dev->decode : job->dev->prefill;
    if (pool_threads(pool) == 1) {
        run_alone(job);
        return 0;
    }
    int rc = prepare(job, err);
    if (!rc)
        pool_run(pool, run_thread, (void *)(uintptr_t)job);
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

/* ---- tiles ---- */

struct tile_job {
    const struct kern_table *table;
    const struct kern_weight *w;
    uint8_t *out;
    int64_t n_tiles;
    _Atomic int64_t next;
};

#define TILES_AT_ONCE 8

static void tile_thread(void *arg, int thread, int n_threads)
{
    struct tile_job *job = arg;
    (void)thread;
    (void)n_threads;
    for (int64_t i; (i = atomic_fetch_add(&job->next, TILES_AT_ONCE)) < job->n_tiles;)
        kern_tile_rows(job->table, job->w, job->out, i, i + TILES_AT_ONCE < job->n_tiles ? i + TILES_AT_ONCE : job->n_tiles);
}

static bool cpu_tiles_fit(const struct dev *d, uint32_t weight_type, int32_t n_out)
{
    return kern_tile_fits(((const struct dev_cpu *)d)->table, weight_type, n_out);
}

static int cpu_tile(struct dev *d, const struct kern_weight *w, struct kern_buf **out, skua_error *err)
{
    struct dev_cpu *c = (struct dev_cpu *)d;
    const size_t rows = (size_t)w->n_out * (size_t)w->n_expert;
    int rc = cpu_buf_alloc(d, qtype_row_bytes(w->type, (uint64_t)w->n_in) * rows, out, err);
    if (rc)
        return rc;
    struct tile_job job = {.table = c->table, .w = w, .out = (*out)->host, .n_tiles = (int64_t)rows / c->table->tile_rows};
    pool_run(c->prefill, tile_thread, &job);
    return 0;
}

static void cpu_destroy(struct dev *d)
{
    struct dev_cpu *c = (struct dev_cpu *)d;
    if (!c)
        return;
    if (c->prefill != c->decode)
        pool_destroy(c->prefill);
    pool_destroy(c->decode);
    mem_free(c->progress);
    mem_free(c->plan);
    mem_free(c->ns);
    mem_free(c);
}

static const struct dev_ops cpu_ops = {
    .buf_alloc = cpu_buf_alloc, .buf_wrap = cpu_buf_wrap, .buf_free = cpu_buf_free, .write = cpu_write, .read = cpu_read,
    .copy = cpu_copy, .clear = cpu_clear, .run = cpu_run, .act_kind = cpu_act_kind, .tiles_fit = cpu_tiles_fit,
    .tile = cpu_tile, .destroy = cpu_destroy,
};

static int create_pool(int n_threads, struct pool **out, skua_error *err)
{
    const int rc = pool_create(n_threads, out);
    if (rc == SKUA_ENOMEM)
        return error_nomem(err, "thread pool", 0);
    return rc ? error_set(err, rc, "cannot start %d threads (1 to %d are possible)", n_threads, POOL_MAX_THREADS) : 0;
}

int dev_cpu_create(const struct kern_table *table, int n_threads, int n_threads_prefill, struct dev **out, skua_error *err)
{
    *out = NULL;
    struct dev_cpu *c = mem_calloc(1, sizeof *c);
    if (!c)
        return error_nomem(err, "CPU device", sizeof *c);
    c->base = (struct dev){.ops = &cpu_ops, .name = "cpu", .kernels = table->name, .n_threads = n_threads,
                           .n_threads_prefill = n_threads_prefill};
    c->table = table;
    int rc = create_pool(n_threads, &c->decode, err);
    c->prefill = c->decode;
    if (!rc && n_threads_prefill != n_threads)
        rc = create_pool(n_threads_prefill, &c->prefill, err);
    if (rc) {
        cpu_destroy(&c->base);
        return rc;
    }
    *out = &c->base;
    return 0;
}
