/* The lookup drafter against a plain search, over texts of every kind, taken back anywhere; its memory, its error paths. */
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "spec/lookup.h"
#include "support/support.h"

#define N_MAX 3000

static uint64_t rng = 5;

static int32_t below(int32_t n) { return (int32_t)(rng_next(&rng) % (uint64_t)n); }

static int extend(struct drafter *d, const int32_t *ids, int32_t n, skua_error *err)
{
    struct draft_rows rows = {.ids = ids + d->n_pos, .n = n, .pos = d->n_pos};
    return d->ops->extend(d, &rows, err);
}

/* The longest suffix of s[0..n) and the anchor that ends in s[0..n): its length, and the end of its newest occurrence. */
static int32_t plain_match(const int32_t *s, int32_t n, int32_t anchor, int32_t *end)
{
    int32_t best = 0;
    for (int32_t e = n - 1; e >= 0; e--) {
        int32_t m = s[e] == anchor;
        while (m && m <= e && s[e - m] == s[n - m])
            m++;
        if (m > best) {
            best = m;
            *end = e;
        }
    }
    return best;
}

static int32_t drafts_for(int32_t m, bool all)
{
    return m < LOOKUP_MIN_SHORT ? 0 : all ? DRAFT_MAX : m < LOOKUP_MIN_MATCH ? m / 2 : 4 + 2 * (m - LOOKUP_MIN_MATCH);
}

/* A proposal is what plain search gives; newest: also the source must be the newest. */
static void check_proposal(struct drafter *d, const int32_t *s, int32_t anchor, int32_t n_max, bool newest)
{
    struct draft out;
    struct draft_request q = {.anchor = anchor, .n_max = n_max, .full_block = below(4) == 0};
    int32_t n = d->n_pos, end = 0, m = plain_match(s, n, anchor, &end), virtual[N_MAX + 1 + DRAFT_MAX];
    skua_error err = {0};
    CHECK(d->ops->propose(d, &q, &out, &err) == 0, "%s", err.message);
    int32_t want = drafts_for(m, q.full_block);
    want = want < n_max ? want : n_max;
    if (!CHECK(out.match == m && out.n == want, "%d tokens: match %d and %d drafts, expected %d and %d", n, out.match, out.n, m, want))
        return;
    memcpy(virtual, s, (size_t)n * sizeof *s);
    virtual[n] = anchor;
    memcpy(virtual + n + 1, out.ids, (size_t)out.n * sizeof *s);
    bool found = false;
    for (int32_t e = newest ? end : n - 1; out.n && e >= m - 1 && !found; e = newest ? -1 : e - 1)
        found = memcmp(virtual + e - m + 1, virtual + n - m + 1, (size_t)m * sizeof *s) == 0 &&
                memcmp(virtual + e + 1, out.ids, (size_t)out.n * sizeof *s) == 0;
    CHECK(found || !out.n, "%d tokens: the drafts are not what followed the match of %d", n, m);
    for (int32_t i = 0; i < out.n; i++)
        CHECK(out.confidence[i] < 0 && out.n_top[i] == 0, "draft %d", i);
}

/* Texts: random over few tokens; phrases that come back with changes; a period; a nesting of periods. */
static void make_text(int kind, int32_t *s, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (kind == 0)
            s[i] = below(3);
        else if (kind == 1)
            s[i] = i > 40 && below(20) ? s[i - 37] : below(1000) * 248;
        else if (kind == 2)
            s[i] = i % 7;
        else
            s[i] = i % 50 == 49 ? 9 : i % 5 == 4 ? 8 : 7;
    }
}

static struct drafter *create(void)
{
    struct drafter *d;
    skua_error err = {0};
    CHECK(lookup_create(LOOKUP_MIN_MATCH, LOOKUP_MIN_SHORT, DRAFT_MAX, &d, &err) == 0, "%s", err.message);
    return d;
}

static void test_against_search(void)
{
    static int32_t s[N_MAX];
    for (int kind = 0; kind < 4; kind++) {
        for (int round = 0; round < 12; round++) {
            int32_t n = 20 + below(380);
            struct drafter *d = create();
            make_text(kind, s, n);
            while (d->n_pos < n) {
                int32_t step = 1 + below(9);
                step = step < n - d->n_pos ? step : n - d->n_pos;
                CHECK(extend(d, s, step, NULL) == 0, "extend");
                for (int i = 0; i < 3; i++) /* the true next token, one seen before, a new one */
                    check_proposal(d, s, i == 0 ? s[d->n_pos % n] : i == 1 ? s[below(d->n_pos)] : 777777, 1 + below(DRAFT_MAX), kind < 2);
                if (below(30) == 0) { /* taken back, and perhaps on with another text */
                    int32_t keep = below(d->n_pos + 1);
                    CHECK(d->ops->truncate(d, keep) && d->n_pos == keep, "truncate to %d", keep);
                    if (keep && below(2))
                        make_text(kind, s + keep, n - keep);
                    check_proposal(d, s, 7, DRAFT_MAX, kind < 2);
                }
            }
            d->ops->reset(d);
            CHECK(d->n_pos == 0, "reset");
            check_proposal(d, s, s[0], 5, true);
            d->ops->free(d);
        }
    }
}

/* Long texts: the work and the memory stay linear where states are split at every token. */
static void test_long(void)
{
    enum { N = 200000 };
    int32_t *s = mem_alloc(N * sizeof *s);
    for (int kind = 0; kind < 4; kind++) {
        struct drafter *d = create();
        struct draft out;
        make_text(kind, s, N);
        CHECK(extend(d, s, N, NULL) == 0, "extend");
        CHECK(d->ops->bytes(d) < (size_t)N * 200, "text %d: %zu bytes", kind, d->ops->bytes(d));
        struct draft_request q = {.anchor = s[N - 37], .n_max = DRAFT_MAX};
        int rc = d->ops->propose(d, &q, &out, NULL);
        CHECK(rc == 0 && out.match >= 1, "text %d: match %d", kind, out.match);
        d->ops->free(d);
    }
    mem_free(s);
}

/* A source that runs into the anchor and past it goes on in the proposal. */
static void test_period(void)
{
    static int32_t s[64];
    struct drafter *d = create();
    struct draft out;
    for (int32_t i = 0; i < 64; i++)
        s[i] = i % 3;
    CHECK(extend(d, s, 40, NULL) == 0, "extend");
    struct draft_request q = {.anchor = s[40], .n_max = DRAFT_MAX};
    int rc = d->ops->propose(d, &q, &out, NULL);
    CHECK(rc == 0 && out.n == DRAFT_MAX && out.match == 38, "%d drafts, match %d", out.n, out.match);
    for (int32_t i = 0; i < out.n; i++)
        CHECK(out.ids[i] == (41 + i) % 3, "draft %d is %d", i, out.ids[i]);
    d->ops->free(d);
}

static void test_errors(void)
{
    struct drafter *d;
    skua_error err;
    int32_t s[4] = {1, 2, 3, 4};
    CHECK(lookup_create(4, 5, 1, &d, &err) == SKUA_EARG && !d, "short above match");
    CHECK(lookup_create(8, 4, DRAFT_MAX + 1, &d, &err) == SKUA_EARG && !d, "too many drafts");
    CHECK(!strcmp(err.message, "lookup drafter with matches from 8 (short: 4) and 32 drafts, expected 1 <= short <= match and 1 to 31 "
                               "drafts"), "%s", err.message);
    d = create();
    struct draft_rows rows = {.ids = s, .n = 4, .pos = 1};
    CHECK(d->ops->extend(d, &rows, &err) == SKUA_ESTATE && d->n_pos == 0, "a gap");
    CHECK(!strcmp(err.message, "lookup drafter: rows at position 1, expected 0"), "%s", err.message);
    CHECK(extend(d, s, 4, NULL) == 0 && d->ops->save_size(d) == 0, "extend");
    CHECK(d->ops->load(d, 5, NULL, 0, &err) == SKUA_ESTATE && d->n_pos == 4, "load of what is not there");
    CHECK(d->ops->load(d, 2, NULL, 0, &err) == 0 && d->n_pos == 2, "load");
    d->ops->free(d);
}

/* Whichever allocation fails: an error, no memory left behind, and a drafter that works when asked again. */
static void test_memory(void)
{
    static int32_t s[400];
    make_text(1, s, 400);
    size_t live = mem_live_blocks();
    for (uint64_t n = 1, failed = 1; failed; n++) {
        struct drafter *d = NULL;
        skua_error err = {0};
        fault_set_alloc(n, true);
        int rc = lookup_create(LOOKUP_MIN_MATCH, LOOKUP_MIN_SHORT, DRAFT_MAX, &d, &err);
        for (int32_t i = 0; !rc && i < 400; i += 50) {
            rc = extend(d, s, 50, &err);
            if (!rc && i == 200)
                rc = d->ops->truncate(d, 130) ? extend(d, s, 120, &err) : -1;
        }
        failed = rc != 0;
        fault_set_alloc(0, false);
        CHECK(!rc || (rc == SKUA_ENOMEM && strncmp(err.message, "out of memory: lookup drafter (", 31) == 0), "%s", err.message);
        if (d)
            check_proposal(d, s, s[d->n_pos % 400], 9, true);
        if (d)
            d->ops->free(d);
        CHECK(mem_live_blocks() == live, "allocation %llu: memory is left", (unsigned long long)n);
    }
}

int main(void)
{
    test_against_search();
    test_long();
    test_period();
    test_errors();
    test_memory();
    return support_finish("spec_lookup");
}
