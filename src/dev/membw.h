/* How fast this machine reads memory: the roof under which a step's bytes are read. */
#ifndef SKUA_DEV_MEMBW_H
#define SKUA_DEV_MEMBW_H

#include "base/error.h"
#include "kern/kern.h"

#define MEMBW_BYTES ((size_t)2 << 30) /* far more than any cache */
#define MEMBW_RUNS 5

struct membw {
    size_t bytes;                       /* of the buffer */
    int n_threads;
    double way[KERN_READ_WAYS];         /* bytes per second, the best of MEMBW_RUNS runs */
};

/* Read a buffer of `bytes` (rounded up to a multiple of 1 MiB, at least that) with n_threads threads, in each way of `table`.
   SKUA_ENOMEM; SKUA_EARG, SKUA_ELIMIT for the threads. Memory and threads are given back at the end. */
int membw_measure(const struct kern_table *table, int n_threads, size_t bytes, struct membw *out, skua_error *err);

/* The same buffer and threads kept, for readings between other work. */
struct membw_reader;
int  membw_open(const struct kern_table *table, int n_threads, size_t bytes, struct membw_reader **out, skua_error *err); /* as above */
double membw_read(struct membw_reader *r, enum kern_read_way way); /* bytes per second of one run */
void membw_close(struct membw_reader *r); /* NULL allowed */

/* The best way, and its name ("plain", "streams", "prefetch"). */
enum kern_read_way membw_best(const struct membw *m);
const char *membw_way_name(enum kern_read_way way);

#endif
