/* base/pool: every job is run once by every thread, with nothing lost, doubled or seen late, over many jobs and thread counts. */
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/pool.h"
#include "skua.h"
#include "support/support.h"

#define MAX_THREADS 8
#define UNITS 1000

struct job {
    int round, n_threads;
    int plain[UNITS];              /* written by the caller before, checked by all */
    int results[UNITS];            /* written by whoever takes the unit, checked by the caller */
    int taken[MAX_THREADS];
    _Atomic int calls[MAX_THREADS];
    _Atomic int wrong, next;
};

/* Units are taken from a shared counter, as the CPU device does it. */
static void work(void *arg, int thread, int n_threads)
{
    struct job *j = arg;
    if (thread < 0 || thread >= n_threads || n_threads != j->n_threads) {
        atomic_fetch_add(&j->wrong, 1);
        return;
    }
    atomic_fetch_add(&j->calls[thread], 1);
    for (int u; (u = atomic_fetch_add(&j->next, 1)) < UNITS;) {
        if (j->plain[u] != j->round + u)
            atomic_fetch_add(&j->wrong, 1);
        j->results[u] = j->round * 3 + u;
        j->taken[thread]++;
    }
}

static void test_runs(void)
{
    static struct job j;
    for (int threads = 1; threads <= MAX_THREADS; threads++) {
        struct pool *p = NULL;
        CHECK(pool_create(threads, &p) == 0 && p && pool_threads(p) == threads, "a pool of %d", threads);
        int rounds = threads <= 2 ? 3000 : 300;
        for (int round = 0; round < rounds; round++) {
            memset(&j, 0, sizeof j);
            j.round = round;
            j.n_threads = threads;
            for (int u = 0; u < UNITS; u++)
                j.plain[u] = round + u;
            if (round % 50 == 49)
                usleep(500); /* longer than workers spin: they sleep */
            pool_run(p, work, &j);
            int sum = 0, calls = 0, bad = 0;
            for (int t = 0; t < MAX_THREADS; t++) {
                sum += j.taken[t];
                calls += j.calls[t] == (t < threads);
            }
            for (int u = 0; u < UNITS; u++)
                bad += j.results[u] != round * 3 + u;
            if (!CHECK(sum == UNITS && calls == MAX_THREADS && !bad && !j.wrong,
                       "%d threads, job %d: %d units, %d wrong results, %d wrong inputs", threads, round, sum, bad, j.wrong))
                break;
        }
        pool_destroy(p);
    }
}

/* Jobs of no work at all, back to back: the announcement of one must never be taken for that of another. */
static void count(void *arg, int thread, int n_threads)
{
    (void)n_threads;
    ((int *)arg)[64 * thread]++; /* a thread's own */
}

static void test_empty_jobs(void)
{
    static int counts[64 * MAX_THREADS];
    for (int threads = 1; threads <= MAX_THREADS; threads *= 2) {
        struct pool *p;
        int rounds = threads <= 2 ? 20000 : 500;
        CHECK(pool_create(threads, &p) == 0, "a pool of %d", threads);
        memset(counts, 0, sizeof counts);
        for (int i = 0; i < rounds; i++)
            pool_run(p, count, counts);
        for (int t = 0; t < threads; t++)
            CHECK(counts[64 * t] == rounds, "thread %d of %d ran %d of %d jobs", t, threads, counts[64 * t], rounds);
        pool_destroy(p);
    }
}

static void test_limits(void)
{
    struct pool *p = (struct pool *)&p;
    size_t live = mem_live_blocks();
    CHECK(pool_create(0, &p) == SKUA_EARG && !p, "no threads");
    CHECK(pool_create(-1, &p) == SKUA_EARG && !p, "-1 threads");
    CHECK(pool_create(POOL_MAX_THREADS + 1, &p) == SKUA_EARG && !p, "too many threads");
    pool_destroy(NULL);
    for (int i = 0; i < 50; i++) { /* destroyed before the workers are awake, without a job */
        CHECK(pool_create(4, &p) == 0, "create");
        pool_destroy(p);
    }
    for (uint64_t n = 1, done = 0; !done; n++) {
        fault_set_alloc(n, true);
        int rc = pool_create(5, &p);
        done = fault_alloc_count() < n;
        fault_set_alloc(0, false);
        CHECK(done ? rc == 0 && p : rc == SKUA_ENOMEM && !p, "allocation %d: %d", (int)n, rc);
        pool_destroy(p);
    }
    CHECK(mem_live_blocks() == live, "%zu blocks left", mem_live_blocks() - live);
}

int main(void)
{
    test_runs();
    test_empty_jobs();
    test_limits();
    return support_finish("test_base_pool");
}
