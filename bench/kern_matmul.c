/* Speed of MATMUL on one thread: for each weight type, tier, layout (as files have it, and tiled) and number of input rows, GB/s of
   weights read and GMAC/s.
     make bench && build/bench/kern_matmul [n_in n_out [tier|all [type|all [MB]]]]
   Copies of the matrix are used in turn, together about MB = 1000 megabytes, so that the weights of few rows come from memory and not
   from a cache. Each figure is the best of three measurements of at least 0.15 s, in CPU time of the thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kern/kern.h"
#include "kern/ref/kern_ref.h"
#include "kern/tile.h"
#include "quant/half.h"
#include "quant/type.h"

/* Where the 16-bit scales of a block are, -1: none. */
static const struct weight_type {
    uint32_t id;
    int scale_at[2];
} types[] = {
    {QTYPE_F32, {-1, -1}},    {QTYPE_F16, {0, -1}},     {QTYPE_BF16, {0, -1}},  {QTYPE_Q8_0, {0, -1}},    {QTYPE_Q4_0, {0, -1}},
    {QTYPE_Q4_1, {0, 2}},     {QTYPE_Q5_0, {0, -1}},    {QTYPE_Q5_1, {0, 2}},   {QTYPE_IQ4_NL, {0, -1}},  {QTYPE_MXFP4, {-1, -1}},
    {QTYPE_NVFP4, {-1, -1}},  {QTYPE_Q4_64A, {32, 34}}, {QTYPE_Q2_64A, {16, 18}}, {QTYPE_Q2_K, {80, 82}}, {QTYPE_Q3_K, {108, -1}},
    {QTYPE_Q4_K, {0, 2}},     {QTYPE_Q5_K, {0, 2}},     {QTYPE_Q6_K, {208, -1}}, {QTYPE_IQ4_XS, {0, -1}}, {QTYPE_IQ2_XXS, {0, -1}},
    {QTYPE_IQ2_S, {0, -1}},
};
static const int row_counts[] = {1, 2, 4, 8, 16, 64, 256};
#define N_COUNTS (sizeof row_counts / sizeof row_counts[0])
#define MAX_ROWS 256

/* Random codes; scales and float weights are 0.01, so that nothing is subnormal or infinite. */
static void fill(const struct weight_type *t, uint8_t *p, size_t size)
{
    uint32_t type = t->id;
    uint64_t state = 1;
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t bits = rng_next(&state);
        memcpy(p + i, &bits, 8);
    }
    const struct qtype_info *info = qtype_info(type);
    const float value = 0.01f;
    uint16_t half = type == QTYPE_BF16 || type == QTYPE_Q4_64A || type == QTYPE_Q2_64A ? f32_to_bf16(value) : f32_to_f16(value);
    for (size_t b = 0; b + info->block_bytes <= size; b += info->block_bytes) {
        if (type == QTYPE_F32)
            memcpy(p + b, &value, 4);
        if (type == QTYPE_MXFP4)
            p[b] = 120;
        for (int i = 0; i < 2; i++)
            if (t->scale_at[i] >= 0)
                memcpy(p + b + t->scale_at[i], &half, 2);
    }
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Seconds per product. */
static double measure(const struct kern_table *t, struct op_matmul *op, size_t matrix_bytes, int n_copies)
{
    double best = 1e9;
    static int copy;
    for (int round = 0; round < 3; round++) {
        uint64_t start = cpu_ns(), now = start;
        int runs = 0;
        for (int calls = 1; now - start < 150000000; calls *= 2) { /* reading the clock takes as long as a small product */
            for (int i = 0; i < calls; i++, runs++) {
                copy = (copy + 1) % n_copies;
                op->w.data.offset = op->w.tiles.offset = (size_t)copy * matrix_bytes;
                t->matmul(op, NULL, 0, op->w.n_out);
            }
            now = cpu_ns();
        }
        double seconds = (double)(now - start) * 1e-9 / runs;
        best = seconds < best ? seconds : best;
    }
    return best;
}

/* A line: all numbers of rows. */
static void bench_rows(const struct kern_table *t, const char *layout, struct op_matmul *op, size_t bytes, int n_copies)
{
    printf("%-7s %-11s %-5s", qtype_info(op->w.type)->name, t->name, layout);
    for (size_t i = 0; i < N_COUNTS; i++) {
        op->n_rows = row_counts[i];
        double s = measure(t, op, bytes, n_copies);
        printf(" %6.2f/%-5.1f", (double)bytes / s * 1e-9, (double)op->w.n_in * op->w.n_out * op->n_rows / s * 1e-9);
        fflush(stdout);
    }
    printf("\n");
}

static int bench_type(const struct weight_type *t, int n_in, int n_out, const char *only_tier, double total_bytes)
{
    uint32_t type = t->id;
    size_t bytes = qtype_row_bytes(type, (uint64_t)n_in) * (size_t)n_out;
    int n_copies = 1 + (int)(total_bytes / (double)bytes);
    enum kern_act kind = (enum kern_act)kern_act_kind(&kern_scalar, type);
    struct kern_buf w = {mem_aligned(64, bytes * (size_t)n_copies), 0};
    struct kern_buf tiles = {mem_aligned(64, bytes * (size_t)n_copies), 0};
    struct kern_buf x = {mem_aligned(64, (size_t)MAX_ROWS * (size_t)n_in * sizeof(float)), 0};
    struct kern_buf q = {mem_aligned(64, (size_t)MAX_ROWS * kern_act_bytes(kind, n_in)), 0};
    struct kern_buf y = {mem_aligned(64, (size_t)MAX_ROWS * (size_t)n_out * sizeof(float)), 0};
    int status = 1;
    if (!w.host || !tiles.host || !x.host || !q.host || !y.host)
        goto out;
    for (int i = 0; i < n_copies; i++)
        fill(t, (uint8_t *)w.host + bytes * (size_t)i, bytes);
    uint64_t state = 2;
    for (int i = 0; i < MAX_ROWS * n_in; i++)
        ((float *)x.host)[i] = (float)(rng_next(&state) >> 40) * 0x1p-24f - 0.5f;
    struct op_quant_act quant = {{&x, 0}, {&q, 0}, n_in, n_in, MAX_ROWS, kind};
    if (kind != KERN_ACT_F32)
        kern_quant_act_scalar(&quant, NULL, 0, MAX_ROWS);

    for (const char *const *tier = kern_tiers(); *tier; tier++) {
        if (only_tier ? strcmp(*tier, only_tier) != 0 : strcmp(*tier, "scalar") == 0)
            continue;
        const struct kern_table *table = kern_select(*tier);
        struct op_matmul op = {.w = {.data = {&w, 0}, .type = type, .n_in = n_in, .n_out = n_out, .n_expert = 1},
                               .x = {kind == KERN_ACT_F32 ? &x : &q, 0}, .y = {&y, 0}, .x_stride = n_in, .y_stride = n_out};
        bench_rows(table, "", &op, bytes, n_copies);
        if (!kern_tile_fits(table, type, n_out))
            continue;
        for (int i = 0; i < n_copies; i++) {
            op.w.data.offset = bytes * (size_t)i;
            kern_tile_rows(table, &op.w, (uint8_t *)tiles.host + op.w.data.offset, 0, n_out / table->tile_rows);
        }
        op.w.tiles.buf = &tiles;
        bench_rows(table, "tiled", &op, bytes, n_copies);
    }
    status = 0;
out:
    mem_free(w.host);
    mem_free(tiles.host);
    mem_free(x.host);
    mem_free(q.host);
    mem_free(y.host);
    return status;
}

int main(int argc, char **argv)
{
    int n_in = argc > 2 ? atoi(argv[1]) : 2560, n_out = argc > 2 ? atoi(argv[2]) : 9216;
    const char *tier = argc > 3 && strcmp(argv[3], "all") != 0 ? argv[3] : NULL;
    const char *type = argc > 4 && strcmp(argv[4], "all") != 0 ? argv[4] : NULL;
    double total_bytes = argc > 5 ? atof(argv[5]) * 1e6 : 1e9;
    if (n_in <= 0 || n_in % 256 != 0 || n_out <= 0) {
        fprintf(stderr, "kern_matmul: n_in must be a positive multiple of 256, n_out positive\n");
        return 2;
    }
    printf("%d x %d, one thread; GB/s of weights / GMAC/s\n%-19s", n_in, n_out, "rows");
    for (size_t i = 0; i < N_COUNTS; i++)
        printf(" %6d      ", row_counts[i]);
    printf("\n");
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (!type || strcmp(type, qtype_info(types[i].id)->name) == 0)
            if (bench_type(&types[i], n_in, n_out, tier, total_bytes) != 0) {
                fprintf(stderr, "kern_matmul: out of memory\n");
                return 1;
            }
    return 0;
}
