/* Speed of attention on one thread: for each tier, context length and number of rows of one sequence, GB/s of KV cache that the rows
   together read once, and GMAC/s of the scores and values.
     make bench && build/bench/kern_attn [n_head n_head_kv head_dim [tier|all [type [MB]]]]
   The first line of a tier is ATTN, the second its other form, ATTN_PAGES and ATTN_MERGE. Copies of the cache are used in turn, together
   at least MB = 300 megabytes, so that it comes from memory, as it does in a model of several layers. Each figure is the best of three
   measurements of at least 0.1 s, in CPU time of the thread. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kern/kern.h"
#include "kern/ref/kv_row.h"
#include "quant/type.h"

static const struct {
    int ctx, rows;
} cases[] = {{512, 1}, {4096, 1}, {16384, 1}, {16384, 2}, {16384, 4}, {16384, 16}, {512, 256}, {4096, 256}, {16384, 256}};
#define N_CASES (sizeof cases / sizeof cases[0])
#define MAX_CTX 16384
#define PART_SLOTS 512
#define MAX_ROWS 256

struct setup {
    struct op_attn op;
    struct kern_buf q, u, out, parts, running;
    struct kern_buf *pages; /* [n_pages] each with every copy */
    struct kern_buf *page_list[MAX_CTX / KV_PAGE_ROWS];
    size_t copy_bytes;
    int n_copies;
    int32_t pos[MAX_ROWS], seq_of[MAX_ROWS];
    struct kern_seq seq;
    struct kern_batch batch;
};

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void attend(const struct kern_table *t, const struct setup *s, const struct op_attn *op, bool split)
{
    if (!split) {
        t->attn(op, &s->batch, 0, (int64_t)op->n_head_kv * s->batch.n_rows);
        return;
    }
    const int32_t pages = s->pos[s->batch.n_rows - 1] / KV_PAGE_ROWS + 1;
    for (int32_t first = 0; first < pages;) {
        const int32_t most = PART_SLOTS / s->batch.n_rows, n = pages - first < most ? pages - first : most;
        const struct op_attn_pages p = {.attn = *op, .parts = {(struct kern_buf *)(uintptr_t)&s->parts, 0}, .page_begin = first,
                                        .n_pages = n};
        const struct op_attn_merge m = {.pages = p, .running = {(struct kern_buf *)(uintptr_t)&s->running, 0}};
        t->attn_pages(&p, &s->batch, 0, (int64_t)op->n_head_kv * s->batch.n_rows * n);
        t->attn_merge(&m, &s->batch, 0, (int64_t)s->batch.n_rows * op->n_head);
        first += n;
    }
}

/* Seconds for all rows. */
static double measure(const struct kern_table *t, const struct setup *s, bool split)
{
    double best = 1e9;
    static int copy;
    for (int round = 0; round < 3; round++) {
        uint64_t start = cpu_ns(), now = start;
        int runs = 0;
        while (now - start < 100000000) {
            struct op_attn op = s->op;
            copy = (copy + 1) % s->n_copies;
            op.k_offset += (size_t)copy * s->copy_bytes;
            op.v_offset += (size_t)copy * s->copy_bytes;
            attend(t, s, &op, split);
            runs++;
            now = cpu_ns();
        }
        double seconds = (double)(now - start) * 1e-9 / runs;
        best = seconds < best ? seconds : best;
    }
    return best;
}

static void fill_floats(struct kern_buf *b)
{
    uint64_t state = 7;
    for (size_t i = 0; i < b->size / sizeof(float); i++)
        ((float *)b->host)[i] = (float)(rng_next(&state) >> 40) * 0x1p-23f - 1.0f;
}

static bool new_buf(struct kern_buf *b, size_t bytes)
{
    *b = (struct kern_buf){mem_aligned(64, bytes), bytes};
    return b->host != NULL;
}

static bool create(struct setup *s, int n_head, int n_head_kv, int hd, uint32_t type, double total_bytes)
{
    const size_t row = qtype_row_bytes(type, (uint64_t)hd), half = (size_t)n_head_kv * KV_PAGE_ROWS * row, rows = MAX_ROWS;
    const int n_pages = MAX_CTX / KV_PAGE_ROWS;
    s->copy_bytes = 2 * half;
    s->n_copies = 1 + (int)(total_bytes / ((double)s->copy_bytes * n_pages));
    s->pages = mem_calloc((size_t)n_pages, sizeof *s->pages);
    if (!s->pages || !new_buf(&s->q, rows * (size_t)(n_head * hd) * 4) || !new_buf(&s->u, rows * (size_t)(2 * n_head * hd) * 4)
        || !new_buf(&s->out, rows * (size_t)(n_head * hd) * 4) || !new_buf(&s->running, rows * (size_t)n_head * 2 * 4)
        || !new_buf(&s->parts, PART_SLOTS * (size_t)n_head * kern_part_floats(hd) * 4))
        return false;
    fill_floats(&s->q);
    fill_floats(&s->u);
    for (int p = 0; p < n_pages; p++) {
        if (!new_buf(&s->pages[p], s->copy_bytes * (size_t)s->n_copies))
            return false;
        s->page_list[p] = &s->pages[p];
        for (size_t at = 0; at < s->pages[p].size; at += row) {
            float piece[KV_PIECE];
            struct kern_buf b = {piece, sizeof piece};
            if (at % (64 * row) == 0)
                fill_floats(&b);
            for (int d = 0; d < hd; d += KV_PIECE)
                kv_store(type, (char *)s->pages[p].host + at, d, piece, hd - d < KV_PIECE ? hd - d : KV_PIECE);
        }
    }
    s->op = (struct op_attn){{&s->q, 0}, {&s->u, 0}, {&s->out, 0}, n_head * hd, 2 * n_head * hd, n_head * hd, n_head, n_head_kv, hd,
                             1.0f / sqrtf((float)hd), type, 0, half, 0, false};
    return true;
}

static void run_tier(struct setup *s, const char *tier, bool split)
{
    printf("%-11s %-6s", tier, split ? "pages" : "whole");
    for (size_t i = 0; i < N_CASES; i++) {
        double positions = 0;
        for (int r = 0; r < cases[i].rows; r++) {
            s->pos[r] = cases[i].ctx - cases[i].rows + r;
            positions += s->pos[r] + 1;
        }
        s->seq = (struct kern_seq){.n_rows = cases[i].rows, .pos_begin = s->pos[0], .kv_pages = s->page_list,
                                   .n_kv_pages = MAX_CTX / KV_PAGE_ROWS};
        s->batch = (struct kern_batch){cases[i].rows, 1, NULL, s->pos, s->seq_of, &s->seq};
        const double seconds = measure(kern_select(tier), s, split);
        const double bytes = (double)s->copy_bytes / KV_PAGE_ROWS * cases[i].ctx;
        printf(" %6.2f/%-6.1f", bytes / seconds * 1e-9, positions * 2 * s->op.n_head * s->op.head_dim / seconds * 1e-9);
        fflush(stdout);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    const int n_head = argc > 3 ? atoi(argv[1]) : 16, n_head_kv = argc > 3 ? atoi(argv[2]) : 4, hd = argc > 3 ? atoi(argv[3]) : 256;
    const char *only = argc > 4 && strcmp(argv[4], "all") != 0 ? argv[4] : NULL;
    const int type = argc > 5 ? qtype_from_name(argv[5]) : QTYPE_F16;
    const double total = argc > 6 ? atof(argv[6]) * 1e6 : 3e8;
    static struct setup s;
    if (n_head_kv < 1 || n_head < n_head_kv || n_head % n_head_kv || hd < 32 || hd % 32 || type < 0) {
        fprintf(stderr, "kern_attn: expected a multiple of n_head_kv as n_head, of 32 as head_dim, and a KV cache type\n");
        return 2;
    }
    if (!create(&s, n_head, n_head_kv, hd, (uint32_t)type, total)) {
        fprintf(stderr, "kern_attn: out of memory\n");
        return 1;
    }
    printf("%d heads, %d KV heads of %d, %s, one thread; GB/s of cache / GMAC/s\n%-18s", n_head, n_head_kv, hd,
           qtype_info((uint32_t)type)->name, "context x rows");
    for (size_t i = 0; i < N_CASES; i++)
        printf(" %6dx%-6d", cases[i].ctx, cases[i].rows);
    printf("\n");
    for (const char *const *tier = kern_tiers(); *tier; tier++)
        if (only ? strcmp(*tier, only) == 0 : strcmp(*tier, "scalar") != 0) {
            run_tier(&s, *tier, false);
            run_tier(&s, *tier, true);
        }
    return 0;
}
