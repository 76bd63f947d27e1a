/* Speed of the quantizers and decoders on one thread: MB/s of BF16 (two bytes an element), for each type without and with
   importance weights, the reference in plain C beside each tier of this machine, measured in turn; and a check that all give
   the same bytes.
     make bench && build/bench/quantize [n [type|all [quick]]]
   n = 4096: elements of a row. Each figure is the best of three measurements of at least 0.1 s (quick: one of 0.02 s), in CPU
   time of the thread, over different rows of Gaussian numbers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/rng.h"
#include "quant/quant.h"

#define ROWS 8

static const uint32_t types[] = {QTYPE_Q4_K,   QTYPE_Q6_K,  QTYPE_Q5_K,  QTYPE_Q3_K, QTYPE_Q2_K,   QTYPE_IQ4_XS, QTYPE_IQ4_NL,
                                 QTYPE_Q8_0,   QTYPE_Q4_0,  QTYPE_MXFP4, QTYPE_NVFP4, QTYPE_Q5_0,  QTYPE_Q5_1,   QTYPE_Q4_1,
                                 QTYPE_Q4_64A, QTYPE_Q2_64A, QTYPE_IQ2_S, QTYPE_IQ2_XXS, QTYPE_BF16, QTYPE_F16};

struct bench {
    int64_t n;
    int rounds;
    uint64_t min_ns; /* of one measurement */
    float *x, *imp, *back;
    uint8_t *out, *expected; /* ROWS rows of the largest type */
};

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Nanoseconds per row, one measurement; tier NULL: decode instead. */
static double measure(const struct bench *b, const struct quant_tier *tier, uint32_t type, const float *imp)
{
    const size_t bytes = qtype_row_bytes(type, (uint64_t)b->n);
    const uint64_t start = cpu_ns();
    uint64_t now = start;
    int rows = 0;
    for (; now - start < b->min_ns; now = cpu_ns(), rows += ROWS)
        for (int r = 0; r < ROWS; r++)
            if (tier)
                quantize_row_by(tier, type, b->x + r * b->n, b->out + (size_t)r * bytes, b->n, imp, NULL);
            else
                dequant_row(type, b->expected + (size_t)r * bytes, b->back, b->n);
    return (double)(now - start) / rows;
}

/* The reference's bytes of all rows; and do all tiers give the same? */
static int check(const struct bench *b, uint32_t type, const float *imp)
{
    const size_t bytes = qtype_row_bytes(type, (uint64_t)b->n);
    for (int r = 0; r < ROWS; r++)
        if (quantize_row(type, b->x + r * b->n, b->expected + (size_t)r * bytes, b->n, imp, NULL) != 0)
            return -1;
    for (const struct quant_tier *const *t = quant_tiers(); *t; t++)
        for (int r = 0; r < ROWS; r++)
            if (quantize_row_by(*t, type, b->x + r * b->n, b->out, b->n, imp, NULL) != 0 ||
                memcmp(b->out, b->expected + (size_t)r * bytes, bytes) != 0)
                return -1;
    return 0;
}

static int bench_type(const struct bench *b, uint32_t type)
{
    const double bf16_bytes = 2.0 * (double)b->n;
    for (int weighted = type == QTYPE_IQ2_XXS; weighted < 2; weighted++) {
        const float *imp = weighted ? b->imp : NULL;
        double best[8];
        int n_tiers = 0;
        if (check(b, type, imp) != 0) {
            fprintf(stderr, "quantize: %s: the tiers differ\n", qtype_info(type)->name);
            return 1;
        }
        while (quant_tiers()[n_tiers] && n_tiers < 7)
            best[n_tiers++] = 1e18;
        best[n_tiers] = 1e18; /* decoding */
        for (int round = 0; round < b->rounds; round++)
            for (int t = 0; t <= n_tiers; t++) {
                double ns = measure(b, t < n_tiers ? quant_tiers()[t] : NULL, type, imp);
                best[t] = ns < best[t] ? ns : best[t];
            }
        printf("%-8s %-8s", qtype_info(type)->name, weighted ? "imatrix" : "");
        for (int t = 0; t <= n_tiers; t++)
            printf(" %8.1f", bf16_bytes / best[t] * 1e3);
        printf("   x%.1f\n", best[n_tiers - 1] / best[0]);
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct bench b = {.n = argc > 1 ? atoll(argv[1]) : 4096, .rounds = 3, .min_ns = 100000000};
    const char *type = argc > 2 && strcmp(argv[2], "all") != 0 ? argv[2] : NULL;
    if (argc > 3) {
        b.rounds = 1;
        b.min_ns = 20000000;
    }
    if (b.n <= 0 || b.n % 256 != 0) {
        fprintf(stderr, "quantize: n must be a positive multiple of 256\n");
        return 2;
    }
    const size_t n = (size_t)b.n;
    int status = 1;
    b.x = mem_alloc(ROWS * n * sizeof(float));
    b.imp = mem_alloc(n * sizeof(float));
    b.back = mem_alloc(n * sizeof(float));
    b.out = mem_alloc(ROWS * n * 4);
    b.expected = mem_alloc(ROWS * n * 4);
    if (b.x && b.imp && b.back && b.out && b.expected) {
        uint64_t state = 1;
        for (size_t i = 0; i < (ROWS + 1) * n; i++) {
            float sum = -6.0f;
            for (int k = 0; k < 12; k++)
                sum += (float)(rng_next(&state) >> 40) * 0x1p-24f;
            if (i < ROWS * n)
                b.x[i] = 0.02f * sum;
            else
                b.imp[i - ROWS * n] = sum * sum + 0.01f;
        }
        printf("rows of %lld, one thread; MB/s of BF16\n%-17s", (long long)b.n, "type");
        for (const struct quant_tier *const *t = quant_tiers(); *t; t++)
            printf(" %8s", quant_tier_name(*t));
        printf(" %8s\n", "decode");
        status = 0;
        for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
            if (!type || strcmp(type, qtype_info(types[i])->name) == 0)
                status |= bench_type(&b, types[i]);
    }
    mem_free(b.x);
    mem_free(b.imp);
    mem_free(b.back);
    mem_free(b.out);
    mem_free(b.expected);
    return status;
}
