/* A fixed set of worker threads that run the same function at the same time, with a barrier for use inside it. One job at a
   time; the calling thread takes part as number 0. Workers spin briefly for the next job, then sleep. */
#ifndef SKUA_BASE_POOL_H
#define SKUA_BASE_POOL_H

struct pool;

typedef void pool_fn(void *arg, int thread, int n_threads);

#define POOL_MAX_THREADS 256

/* n_threads >= 1 counts the caller: n_threads - 1 threads are started. 0 or SKUA_ENOMEM / SKUA_ELIMIT (thread creation). */
int  pool_create(int n_threads, struct pool **out);
void pool_destroy(struct pool *p); /* NULL allowed; no job may be running */
int  pool_threads(const struct pool *p);

/* Call fn(arg, t, n) for t = 0 .. n-1, n = min(n_threads, limit), and return when all are done. limit <= 0: all threads. */
void pool_run(struct pool *p, int limit, pool_fn *fn, void *arg);

/* Inside fn: wait until all threads of the running job are here. Writes before it are visible after it. */
void pool_barrier(struct pool *p);

#endif
