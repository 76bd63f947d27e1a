/* Thread pool; see pool.h.
 *
 * A job is announced by increasing `generation`; workers wait for the change. The last worker to leave it increases `finished`, for
 * which the caller waits. Waiting: spin SPIN_ROUNDS times, offer the processor to others until SPIN_SECONDS are over, then sleep on a
 * condition variable. Sleepers are woken under the mutex, and only if there are any, so that the fast path makes no system call. */
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "skua.h"

#define SPIN_ROUNDS 2000    /* of tens of nanoseconds */
#define SPIN_SECONDS 0.004 /* covers sampling, text and output between two steps of an answer */

struct pool {
    int n_threads;
    pthread_t threads[POOL_MAX_THREADS];
    int n_started;

    pool_fn *fn;
    void *arg;

    _Alignas(64) _Atomic uint32_t generation; /* jobs announced */
    _Alignas(64) _Atomic uint32_t finished;   /* jobs that all workers have left */
    _Alignas(64) _Atomic int running;         /* workers that have not left the current job */
    _Alignas(64) _Atomic int sleepers;
    _Atomic bool stop;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
};

struct worker_arg {
    struct pool *pool;
    int index;
};

/* Wait until *word differs from `old`. */
static void wait_change(struct pool *p, _Atomic uint32_t *word, uint32_t old)
{
    for (int i = 0; i < SPIN_ROUNDS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old)
            return;
        cpu_relax();
    }
    for (const double end = clock_seconds() + SPIN_SECONDS; clock_seconds() < end; sched_yield())
        if (atomic_load_explicit(word, memory_order_acquire) != old)
            return;
    pthread_mutex_lock(&p->mutex);
    atomic_fetch_add(&p->sleepers, 1);
    while (atomic_load(word) == old)
        pthread_cond_wait(&p->wake, &p->mutex);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->mutex);
}

/* Change *word and wake whoever sleeps on it. The sequentially consistent pair (word, sleepers) on both sides makes sure that
   a waiter which registered before the change is seen here, and one which registers after it sees the change. */
static void change(struct pool *p, _Atomic uint32_t *word)
{
    atomic_fetch_add(word, 1);
    if (atomic_load(&p->sleepers) > 0) {
        pthread_mutex_lock(&p->mutex);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->mutex);
    }
}

static void *worker_main(void *arg)
{
    struct pool *p = ((struct worker_arg *)arg)->pool;
    int index = ((struct worker_arg *)arg)->index;
    mem_free(arg);
    uint32_t seen = 0;
    for (;;) {
        wait_change(p, &p->generation, seen);
        seen++;
        if (atomic_load(&p->stop))
            return NULL;
        p->fn(p->arg, index, p->n_threads);
        /* every worker reports, so that none can still be looking at this job when the next one is set up */
        if (atomic_fetch_sub(&p->running, 1) == 1)
            change(p, &p->finished);
    }
}

int pool_create(int n_threads, struct pool **out)
{
    *out = NULL;
    if (n_threads < 1 || n_threads > POOL_MAX_THREADS)
        return SKUA_EARG;
    struct pool *p = mem_aligned(64, sizeof *p);
    if (!p)
        return SKUA_ENOMEM;
    *p = (struct pool){.n_threads = n_threads};
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->wake, NULL);
    int rc = 0;
    for (int i = 1; i < n_threads && !rc; i++) {
        struct worker_arg *a = mem_alloc(sizeof *a);
        if (!a) {
            rc = SKUA_ENOMEM;
            break;
        }
        *a = (struct worker_arg){p, i};
        if (pthread_create(&p->threads[p->n_started], NULL, worker_main, a) == 0)
            p->n_started++;
        else {
            mem_free(a);
            rc = SKUA_ELIMIT;
        }
    }
    if (rc) {
        pool_destroy(p);
        return rc;
    }
    *out = p;
    return 0;
}

void pool_destroy(struct pool *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    change(p, &p->generation);
    for (int i = 0; i < p->n_started; i++)
        pthread_join(p->threads[i], NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->mutex);
    mem_free(p);
}

int pool_threads(const struct pool *p) { return p->n_threads; }

void pool_run(struct pool *p, pool_fn *fn, void *arg)
{
    if (p->n_threads == 1) {
        fn(arg, 0, 1);
        return;
    }
    uint32_t finished = atomic_load(&p->finished);
    p->fn = fn;
    p->arg = arg;
    atomic_store(&p->running, p->n_threads - 1);
    change(p, &p->generation);
    fn(arg, 0, p->n_threads);
    wait_change(p, &p->finished, finished);
}
