/* A fixed set of worker threads that run the same function at the same time. One job at a time; the calling thread takes part as
   number 0. Workers spin briefly for the next job, then sleep. */
#ifndef SKUA_BASE_POOL_H
#define SKUA_BASE_POOL_H

struct pool;

typedef void pool_fn(void *arg, int thread, int n_threads);

#define POOL_MAX_THREADS 256

/* n_threads >= 1 counts the caller: n_threads - 1 threads are started. 0 or SKUA_EARG, SKUA_ENOMEM, SKUA_ELIMIT (the system gives
   no more threads). */
int  pool_create(int n_threads, struct pool **out);
void pool_destroy(struct pool *p); /* NULL allowed; no job may be running */
int  pool_threads(const struct pool *p);

/* Call fn(arg, t, n_threads) once for every t in 0 .. n_threads - 1, at the same time, and return when all are done. What was written
   before is visible in fn, and what fn wrote is visible after. */
void pool_run(struct pool *p, pool_fn *fn, void *arg);

#endif
