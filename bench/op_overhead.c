/* What an op list costs beyond its work: microseconds per op of a list of 500 ops of next to no work, through the CPU device.
     make bench && build/bench/op_overhead [threads [pause_us]]
   "tiny": one unit each, each op reading what the one before wrote. "wide": 64 units each. "mixed": in turns. pause_us: time between two
   runs of the list, as a generation loop has it. Best and median of 200 runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "dev/dev.h"

#define N_OPS 500
#define N_RUNS 200
#define WIDTH 64

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 2;
    const int pause_us = argc > 2 ? atoi(argv[2]) : 0;
    static float data[WIDTH * 1024], weights[1024];
    static const char *const names[] = {"tiny", "wide", "mixed"};
    struct kern_buf x = {data, sizeof data}, w = {weights, sizeof weights};
    static struct kern_op ops[N_OPS];
    struct kern_batch batch = {.n_rows = 1};
    struct dev *d;
    skua_error err;
    if (dev_cpu_create(kern_select(NULL), threads, threads, &d, &err)) {
        fprintf(stderr, "op_overhead: %s\n", err.message);
        return 1;
    }
    for (int kind = 0; kind < 3; kind++) {
        double seconds[N_RUNS];
        for (int i = 0; i < N_OPS; i++) {
            const bool wide = kind == 1 || (kind == 2 && i % 2);
            ops[i] = (struct kern_op){.code = KERN_RMS_NORM, .layer = -1, .role = "bench"};
            ops[i].p.rms_norm = (struct op_rms_norm){{&x, 0}, {&w, 0}, {&x, 0}, 1024, 1024, wide ? 1024 : 16, wide ? WIDTH : 1, 1e-6f};
        }
        for (int run = 0; run < N_RUNS; run++) {
            if (pause_us)
                usleep((useconds_t)pause_us);
            const double start = clock_seconds();
            d->ops->run(d, ops, N_OPS, &batch, NULL);
            seconds[run] = clock_seconds() - start;
        }
        qsort(seconds, N_RUNS, sizeof *seconds, ascending);
        printf("%d threads, %-5s: best %.3f, median %.3f us per op\n", threads, names[kind], seconds[0] / N_OPS * 1e6,
               seconds[N_RUNS / 2] / N_OPS * 1e6);
    }
    d->ops->destroy(d);
    return 0;
}
