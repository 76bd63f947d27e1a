/* What the kernel tests share: guarded buffers, input styles, batches of sequences with states and KV pages, and the
 * comparison of every tier with the scalar functions, which are called directly, never through a table.
 *
 * All memory that an op of a case touches belongs to buffers made by h_buf. A comparison runs the scalar function on a
 * snapshot, then each tier on the same snapshot with the units cut at random and taken in random order, and compares all
 * buffers whole: outputs, states, guard zones, and inputs that must not change. Under the address sanitizer the guard zones
 * are left out, so that every buffer ends where its allocation ends.
 */
#ifndef SKUA_TESTS_KERN_HARNESS_H
#define SKUA_TESTS_KERN_HARNESS_H

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "kern/kern.h"
#include "kern/ref/kern_ref.h"
#include "kern/ref/kv_row.h"
#include "support/support.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define H_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define H_ASAN 1
#endif
#ifndef H_ASAN
#define H_ASAN 0
#endif

#define H_GUARD (H_ASAN ? (size_t)0 : (size_t)256) /* bytes on each side */
#define H_PATTERN 0x7FA5A5A5u                       /* a NaN: whoever reads what nobody wrote shows it */

/* ---- random numbers ---- */

static uint64_t h_seed, h_rng;

static inline int h_below(int n)
{
    return (int)(rng_next(&h_rng) % (uint64_t)n);
}

static inline float h_uniform(float lo, float hi)
{
    return lo + (hi - lo) * (float)(rng_next(&h_rng) >> 40) * 0x1p-24f;
}

static inline void h_start(void)
{
    const char *text = getenv("SKUA_TEST_SEED");
    h_seed = text ? strtoull(text, NULL, 10) : 20240601;
    h_rng = h_seed;
    printf("seed %" PRIu64 " (SKUA_TEST_SEED)\n", h_seed);
}

enum h_style {
    H_NORMAL,  /* -4 .. 4 */
    H_WIDE,    /* either sign, 2^-40 .. 2^40 */
    H_TINY,    /* subnormals and zeros */
    H_ZERO,    /* zeros of both signs */
    H_LARGE,   /* up to the largest float */
    H_SPECIAL, /* normal ones with a few NaNs and infinities among them */
    H_N_STYLES
};

static inline float h_value(enum h_style style)
{
    const float sign = h_below(2) ? 1.0f : -1.0f;
    switch (style) {
    case H_WIDE: return sign * ldexpf(h_uniform(1.0f, 2.0f), h_below(80) - 40);
    case H_TINY: return h_below(4) == 0 ? sign * 0.0f : sign * ldexpf(h_uniform(0.0f, 1.0f), -126 - h_below(24));
    case H_ZERO: return sign * 0.0f;
    case H_LARGE: return sign * ldexpf(h_uniform(1.0f, 1.999f), 127 - h_below(12));
    case H_SPECIAL:
        switch (h_below(40)) {
        case 0: return NAN;
        case 1: return sign * INFINITY;
        default: break;
        }
        return h_uniform(-4.0f, 4.0f);
    default: return h_uniform(-4.0f, 4.0f);
    }
}

static inline void h_fill(float *p, size_t n, enum h_style style)
{
    for (size_t i = 0; i < n; i++)
        p[i] = h_value(style);
}

/* ---- buffers ---- */

struct h_buf {
    struct kern_buf kern; /* first: views point at it */
    char *base;
    size_t total; /* bytes with guards */
    char *before, *want;
};

#define H_MAX_BUFS 128
static struct h_buf h_bufs[H_MAX_BUFS];
static int h_n_bufs;

static inline struct h_buf *h_buf(size_t bytes)
{
    assert_true(h_n_bufs < H_MAX_BUFS);
    struct h_buf *b = &h_bufs[h_n_bufs++];
    /* the start is aligned to a float only */
    const size_t shift = H_ASAN ? 0 : 4 * (size_t)h_below(16);
    b->total = bytes + 2 * H_GUARD;
    b->base = malloc(b->total ? b->total : 1);
    b->before = malloc(b->total ? b->total : 1);
    b->want = malloc(b->total ? b->total : 1);
    assert_true(b->base && b->before && b->want);
    for (size_t at = 0; at < b->total; at += 4) {
        const uint32_t pattern = H_PATTERN;
        memcpy(b->base + at, &pattern, b->total - at < 4 ? b->total - at : 4);
    }
    b->kern.host = b->base + (H_GUARD ? H_GUARD / 2 + shift : 0);
    b->kern.size = bytes;
    return b;
}

static inline struct kern_view h_view(struct h_buf *b)
{
    return (struct kern_view){&b->kern, 0};
}

/* A new buffer of n floats in a style. */
static inline struct kern_view h_floats(size_t n, enum h_style style)
{
    struct h_buf *b = h_buf(n * sizeof(float));
    h_fill(b->kern.host, n, style);
    return h_view(b);
}

/* A new buffer of n floats for a result. */
static inline struct kern_view h_out(size_t n)
{
    return h_view(h_buf(n * sizeof(float)));
}

static inline void h_free_all(void)
{
    for (int i = 0; i < h_n_bufs; i++) {
        free(h_bufs[i].base);
        free(h_bufs[i].before);
        free(h_bufs[i].want);
    }
    h_n_bufs = 0;
}

static inline void h_save(void)
{
    for (int i = 0; i < h_n_bufs; i++)
        memcpy(h_bufs[i].before, h_bufs[i].base, h_bufs[i].total);
}

static inline void h_restore(void)
{
    for (int i = 0; i < h_n_bufs; i++)
        memcpy(h_bufs[i].base, h_bufs[i].before, h_bufs[i].total);
}

static inline void h_keep_as_wanted(void)
{
    for (int i = 0; i < h_n_bufs; i++)
        memcpy(h_bufs[i].want, h_bufs[i].base, h_bufs[i].total);
}

/* ---- comparison ---- */

/* NaNs keep their place but not their sign and payload: which of several a processor hands on is not part of the contract.
   A word may hold two short floats of a KV cache. */
static inline bool h_same_nan(uint32_t a, uint32_t b)
{
    if ((a & 0x7FFFFFFFu) > 0x7F800000u && (b & 0x7FFFFFFFu) > 0x7F800000u)
        return true;
    for (int i = 0; i < 2; i++, a >>= 16, b >>= 16) {
        const uint32_t x = a & 0x7FFFu, y = b & 0x7FFFu;
        if ((a & 0xFFFFu) != (b & 0xFFFFu) && !(x > 0x7C00u && y > 0x7C00u) && !(x > 0x7F80u && y > 0x7F80u))
            return false;
    }
    return true;
}

/* Are all buffers as h_keep_as_wanted left them? */
static inline bool h_as_wanted(bool nan_allowed, const char *who)
{
    for (int i = 0; i < h_n_bufs; i++) {
        const struct h_buf *b = &h_bufs[i];
        if (memcmp(b->base, b->want, b->total) == 0)
            continue;
        for (size_t at = 0; at + 4 <= b->total; at += 4) {
            uint32_t got, want;
            memcpy(&got, b->base + at, 4);
            memcpy(&want, b->want + at, 4);
            if (got == want || (nan_allowed && h_same_nan(got, want)))
                continue;
            printf("%s: buffer %d, byte %td: %08" PRIx32 ", wanted %08" PRIx32 "\n", who, i,
                   (ptrdiff_t)at - ((char *)b->kern.host - b->base), got, want);
            return false;
        }
        if (!nan_allowed)
            return false;
    }
    return true;
}

static inline void h_run_scalar(const struct kern_op *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    switch (op->code) {
#define X(CODE, name) \
    case KERN_##CODE: kern_##name##_scalar(&op->p.name, batch, begin, end); break;
        KERN_OPS(X)
#undef X
    case KERN_OP_COUNT: break;
    }
}

/* All units, cut in up to five pieces at random, in random order. */
static inline void h_run_pieces(const struct kern_table *t, const struct kern_op *op, const struct kern_batch *batch)
{
    const int64_t units = kern_units(op, batch);
    int64_t cut[6] = {0};
    int n = 1 + h_below(5), order[5];
    for (int i = 1; i < n; i++) {
        int64_t at = h_below((int)units + 1);
        int j = i;
        for (; j > 1 && cut[j - 1] > at; j--)
            cut[j] = cut[j - 1];
        cut[j] = at;
    }
    cut[n] = units;
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        const int j = h_below(i + 1), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    for (int i = 0; i < n; i++)
        kern_run(t, op, batch, cut[order[i]], cut[order[i] + 1]);
}

static const struct kern_batch h_no_batch; /* for ops that carry their own number of rows */

/* Every tier against the scalar function. Leaves the scalar results in the buffers and in their `want`. */
static inline void h_compare(const struct kern_op *op, const struct kern_batch *batch, bool nan_allowed)
{
    h_save();
    h_run_scalar(op, batch, 0, kern_units(op, batch));
    h_keep_as_wanted();
    for (const char *const *tier = kern_tiers(); *tier; tier++) {
        const struct kern_table *t = kern_select(*tier);
        assert_non_null(t);
        assert_string_equal(t->name, *tier);
        h_restore();
        h_run_pieces(t, op, batch);
        CHECK(h_as_wanted(nan_allowed, *tier), "%s, tier %s: differs from scalar", kern_op_name(op->code), *tier);
    }
    h_restore();
    h_run_scalar(op, batch, 0, kern_units(op, batch));
}

/* The reference function on the same input as the last h_compare: |scalar - reference| <= abs + rel * |reference| in all
   floats of buffer `out`. Returns the largest difference. */
static inline double h_compare_reference(const struct kern_op *op, const struct kern_batch *batch, struct kern_view out,
                                         double abs_bound, double rel_bound)
{
    const struct h_buf *b = (const struct h_buf *)(const void *)out.buf;
    double worst = 0.0;
    h_restore();
    kern_run(&kern_reference, op, batch, 0, kern_units(op, batch));
    bool ok = true;
    for (size_t i = 0; i < b->kern.size / 4 && ok; i++) {
        float got, want;
        memcpy(&want, (char *)b->kern.host + 4 * i, 4);
        memcpy(&got, b->want + ((char *)b->kern.host - b->base) + 4 * i, 4);
        const double difference = fabs((double)got - (double)want);
        if (memcmp(&got, &want, 4) == 0)
            continue;
        ok = difference <= abs_bound + rel_bound * fabs((double)want);
        worst = difference > worst ? difference : worst;
        CHECK(ok, "%s: scalar %.9g, reference %.9g at %zu", kern_op_name(op->code), (double)got, (double)want, i);
    }
    CHECK(ok, "%s: scalar and reference", kern_op_name(op->code));
    return worst;
}

/* ---- batches ---- */

#define H_MAX_SEQS 8
#define H_MAX_ROWS 2200
#define H_MAX_PAGES 8

/* A batch that owns its arrays. Sequence s has its rows behind those of s - 1. */
struct h_batch {
    struct kern_batch b;
    struct kern_seq seqs[H_MAX_SEQS];
    struct kern_buf *pages[H_MAX_SEQS][H_MAX_PAGES];
    int32_t token[H_MAX_ROWS], pos[H_MAX_ROWS], seq[H_MAX_ROWS];
};

static inline void h_batch_start(struct h_batch *h)
{
    memset(h, 0, sizeof *h);
    h->b = (struct kern_batch){.token = h->token, .pos = h->pos, .seq = h->seq, .seqs = h->seqs};
}

static inline struct kern_seq *h_batch_add(struct h_batch *h, int32_t n_rows, int32_t pos_begin)
{
    assert_true(h->b.n_seqs < H_MAX_SEQS && h->b.n_rows + n_rows <= H_MAX_ROWS);
    struct kern_seq *seq = &h->seqs[h->b.n_seqs];
    *seq = (struct kern_seq){.row_begin = h->b.n_rows, .n_rows = n_rows, .pos_begin = pos_begin,
                             .kv_pages = h->pages[h->b.n_seqs]};
    for (int32_t i = 0; i < n_rows; i++) {
        h->pos[h->b.n_rows + i] = pos_begin + i;
        h->seq[h->b.n_rows + i] = h->b.n_seqs;
    }
    h->b.n_rows += n_rows;
    h->b.n_seqs++;
    return seq;
}

/* KV pages of one layer: K of all heads, then V. */
struct h_kv {
    uint32_t type;
    int32_t n_head_kv, head_dim;
    size_t row_bytes, k_offset, v_offset, page_bytes;
};

static inline struct h_kv h_kv_layout(uint32_t type, int32_t n_head_kv, int32_t head_dim)
{
    struct h_kv kv = {.type = type, .n_head_kv = n_head_kv, .head_dim = head_dim};
    kv.row_bytes = qtype_row_bytes(type, (uint64_t)head_dim);
    assert_true(kv.row_bytes > 0);
    kv.k_offset = 64;
    kv.v_offset = kv.k_offset + (size_t)n_head_kv * KV_PAGE_ROWS * kv.row_bytes + 128;
    kv.page_bytes = kv.v_offset + (size_t)n_head_kv * KV_PAGE_ROWS * kv.row_bytes;
    return kv;
}

/* Pages for n_positions, no more; rows 0 .. n_filled - 1 hold values in the style, everything else the pattern. */
static inline void h_kv_pages(struct h_batch *h, struct kern_seq *seq, const struct h_kv *kv, int32_t n_positions, int32_t n_filled,
                              enum h_style style)
{
    const int s = (int)(seq - h->seqs);
    seq->n_kv_pages = (n_positions + KV_PAGE_ROWS - 1) / KV_PAGE_ROWS;
    assert_true(seq->n_kv_pages <= H_MAX_PAGES);
    for (int p = 0; p < seq->n_kv_pages; p++)
        h->pages[s][p] = &h_buf(kv->page_bytes)->kern;
    for (int32_t pos = 0; pos < n_filled; pos++)
        for (int32_t head = 0; head < 2 * kv->n_head_kv; head++) {
            const size_t base = head < kv->n_head_kv ? kv->k_offset : kv->v_offset;
            const size_t row = (size_t)(head % kv->n_head_kv) * KV_PAGE_ROWS + (size_t)(pos % KV_PAGE_ROWS);
            char *at = (char *)h->pages[s][pos / KV_PAGE_ROWS]->host + base + row * kv->row_bytes;
            for (int32_t d = 0; d < kv->head_dim; d += KV_PIECE) {
                float piece[KV_PIECE];
                h_fill(piece, KV_PIECE, style);
                kv_store(kv->type, at, d, piece, kv->head_dim - d < KV_PIECE ? kv->head_dim - d : KV_PIECE);
            }
        }
}

static const uint32_t h_kv_types[] = {QTYPE_F32, QTYPE_F16, QTYPE_BF16, QTYPE_Q8_0};
#define H_N_KV_TYPES 4

#endif
