/* Speed of the Gated DeltaNet ops on one thread, for each tier and number of rows of one sequence: microseconds per row of each op, and
   of GDN_STEP also GB/s of state (read and written once) and GMAC/s (three per state element and row).
     make bench && build/bench/kern_gdn [n_key_head n_v_head d [tier|all [MB]]]
   Copies of the state are used in turn, together at least MB = 200 megabytes, as in a model of several layers. Each figure is the best of
   three measurements of at least 0.05 s, in CPU time of the thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kern/kern.h"

static const int row_counts[] = {1, 4, 16, 256};
#define N_COUNTS (sizeof row_counts / sizeof row_counts[0])
#define MAX_ROWS 256

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static float *new_floats(struct kern_buf *b, size_t n, float lo, float hi)
{
    *b = (struct kern_buf){mem_aligned(64, n * sizeof(float)), n * sizeof(float)};
    if (!b->host) {
        fprintf(stderr, "kern_gdn: out of memory\n");
        exit(1);
    }
    uint64_t state = n;
    for (size_t i = 0; i < n; i++)
        ((float *)b->host)[i] = lo + (hi - lo) * (float)(rng_next(&state) >> 40) * 0x1p-24f;
    return b->host;
}

/* Seconds per call of an op; *offset, where not NULL, goes through the copies. */
static double measure(const struct kern_table *t, const struct kern_op *op, const struct kern_batch *batch, size_t *offset,
                      size_t copy_bytes, int n_copies)
{
    double best = 1e9;
    static int copy;
    for (int round = 0; round < 3; round++) {
        uint64_t start = cpu_ns(), now = start;
        int runs = 0;
        while (now - start < 50000000) {
            copy = (copy + 1) % n_copies;
            if (offset)
                *offset = (size_t)copy * copy_bytes;
            kern_run(t, op, batch, 0, kern_units(op, batch));
            runs++;
            now = cpu_ns();
        }
        double seconds = (double)(now - start) * 1e-9 / runs;
        best = seconds < best ? seconds : best;
    }
    return best;
}

int main(int argc, char **argv)
{
    const int n_key = argc > 3 ? atoi(argv[1]) : 16, n_v = argc > 3 ? atoi(argv[2]) : 32, d = argc > 3 ? atoi(argv[3]) : 128;
    const char *only = argc > 4 && strcmp(argv[4], "all") != 0 ? argv[4] : NULL;
    const double total = argc > 5 ? atof(argv[5]) * 1e6 : 2e8;
    if (n_key < 1 || n_v < n_key || d < 16 || d % 16) {
        fprintf(stderr, "kern_gdn: expected at least as many V heads as key heads and a head width that is a multiple of 16\n");
        return 2;
    }
    const int32_t channels = (2 * n_key + n_v) * d, inner = n_v * d;
    const size_t s_bytes = (size_t)n_v * (size_t)d * (size_t)d * 4, copy_bytes = s_bytes + 3 * (size_t)channels * 4;
    const int n_copies = 1 + (int)(total / (double)copy_bytes);
    struct kern_buf x, conv, w, z, norm, out, y, a, b, dt, ssm_a, decay, beta, state, tape;
    new_floats(&x, MAX_ROWS * (size_t)channels, -1, 1);
    new_floats(&conv, MAX_ROWS * (size_t)channels, -1, 1);
    new_floats(&w, 4 * (size_t)channels, -1, 1);
    new_floats(&z, MAX_ROWS * (size_t)inner, -1, 1);
    new_floats(&norm, (size_t)d, 0, 1);
    new_floats(&out, MAX_ROWS * (size_t)inner, -1, 1);
    new_floats(&y, MAX_ROWS * (size_t)inner, -1, 1);
    new_floats(&a, MAX_ROWS * (size_t)n_v, -4, 4);
    new_floats(&b, MAX_ROWS * (size_t)n_v, -4, 4);
    new_floats(&dt, (size_t)n_v, 0, 1);
    new_floats(&ssm_a, (size_t)n_v, -4, 0);
    new_floats(&decay, MAX_ROWS * (size_t)n_v, 0.5f, 1);
    new_floats(&beta, MAX_ROWS * (size_t)n_v, 0, 1);
    const size_t record = (size_t)(n_key + n_v) * (size_t)d + (size_t)n_v;
    new_floats(&tape, MAX_ROWS * record, 0, 0.1f);
    new_floats(&state, copy_bytes / 4 * (size_t)n_copies, -0.1f, 0.1f);

    printf("%d key heads, %d V heads of %d, one thread; microseconds per row\n", n_key, n_v, d);
    printf("%-11s %5s %8s %8s %8s %8s %8s %8s %8s %8s %8s\n", "", "rows", "CONV", "QK", "GATES", "STEP", "OUT", "held", "COMMIT", "GB/s",
           "GMAC/s");
    for (const char *const *tier = kern_tiers(); *tier; tier++) {
        if (only ? strcmp(*tier, only) != 0 : strcmp(*tier, "scalar") == 0)
            continue;
        for (size_t i = 0; i < N_COUNTS; i++) {
            const int rows = row_counts[i];
            static int32_t pos[MAX_ROWS], seq_of[MAX_ROWS];
            const struct kern_seq seq = {.n_rows = rows, .state = &state};
            const struct kern_seq held_seq = {.n_rows = rows, .state = &state, .tape = &tape}; /* its STEP and COMMIT */
            const struct kern_batch batch = {rows, 1, NULL, pos, seq_of, &seq}, held = {rows, 1, NULL, pos, seq_of, &held_seq};
            struct kern_op ops[] = {{.code = KERN_GDN_CONV}, {.code = KERN_GDN_QK}, {.code = KERN_GDN_GATES}, {.code = KERN_GDN_STEP},
                                    {.code = KERN_GDN_OUT}, {.code = KERN_GDN_STEP}, {.code = KERN_GDN_COMMIT}};
            ops[0].p.gdn_conv = (struct op_gdn_conv){{&x, 0}, {&w, 0}, {&conv, 0}, channels, channels, channels, 4, 0, 0, 0};
            ops[1].p.gdn_qk = (struct op_gdn_qk){{&conv, 0}, channels, n_key, d, 1e-6f, 0.088f};
            ops[2].p.gdn_gates = (struct op_gdn_gates){{&a, 0}, {&b, 0}, {&dt, 0}, {&ssm_a, 0}, {&decay, 0}, {&beta, 0}, n_v};
            ops[3].p.gdn_step = (struct op_gdn_step){{&conv, 0}, {&decay, 0}, {&beta, 0}, {&out, 0}, channels, inner, n_key, n_v, d, 0, 0,
                                                     record * 4};
            ops[4].p.gdn_out = (struct op_gdn_out){{&out, 0}, {&z, 0}, {&norm, 0}, {&y, 0}, inner, inner, inner, n_v, d, 1e-6f};
            ops[5] = ops[3];
            ops[6].p.gdn_commit = (struct op_gdn_commit){n_key, n_v, d, 0, 0, record * 4};
            size_t *offsets[] = {&ops[0].p.gdn_conv.state_offset, NULL, NULL, &ops[3].p.gdn_step.state_offset, NULL,
                                 &ops[5].p.gdn_step.state_offset, &ops[6].p.gdn_commit.state_offset};
            double seconds[7];
            printf("%-11s %5d", *tier, rows);
            for (int k = 0; k < 7; k++) {
                seconds[k] = measure(kern_select(*tier), &ops[k], k < 5 ? &batch : &held, offsets[k], copy_bytes, n_copies);
                printf(" %8.2f", seconds[k] / rows * 1e6);
            }
            printf(" %8.2f %8.2f\n", 2 * (double)s_bytes / seconds[3] * 1e-9, 3 * (double)s_bytes / 4 * rows / seconds[3] * 1e-9);
        }
    }
    return 0;
}
