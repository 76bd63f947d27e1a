/* Proposals of a block drafter and of lookup made one, against a plain statement of the rules, over random pairs and by hand. */
#include <string.h>

#include "base/rng.h"
#include "spec/combine.h"
#include "support/support.h"

static struct draft make(int32_t n, const int32_t *ids, int32_t match, float confidence, int32_t n_top)
{
    struct draft d = {.n = n, .match = match};
    for (int32_t i = 0; i < n; i++) {
        d.ids[i] = ids[i];
        d.confidence[i] = confidence;
        d.n_top[i] = n_top;
    }
    return d;
}

static void check(const char *what, const struct draft *block, const struct draft *copy, int32_t k, int32_t n, const int32_t *ids,
                  const char *copied)
{
    struct draft out, in_place = *block;
    combine_drafts(block, copy, k, &out);
    combine_drafts(&in_place, copy, k, &in_place);
    CHECK(out.n == n && in_place.n == n && out.match == (strchr(copied, 'c') ? copy->match : 0), "%s: %d drafts, match %d", what, out.n,
          out.match);
    for (int32_t i = 0; i < out.n && i < n; i++) {
        bool same = i < block->n && block->ids[i] == ids[i];
        CHECK(out.ids[i] == ids[i] && in_place.ids[i] == ids[i], "%s: draft %d is %d, expected %d", what, i, out.ids[i], ids[i]);
        CHECK(out.n_top[i] == (copied[i] == 'c' ? 0 : 5), "%s: draft %d has %d candidates", what, i, out.n_top[i]);
        CHECK((out.confidence[i] >= 0) == (copied[i] != 'c' || same), "%s: draft %d: confidence %g", what, i, (double)out.confidence[i]);
    }
}

static void test_by_hand(void)
{
    static const int32_t a[] = {1, 2, 3}, b[] = {1, 2, 9, 4, 5}, c[] = {8, 2, 3, 4, 5};
    struct draft block = make(3, a, 0, 0.5f, 5), copy;
    copy = make(5, b, 12, -1, 0);
    check("strong", &block, &copy, 5, 5, (const int32_t[]){1, 2, 9, 4, 5}, "ccccc");
    check("strong, 4 rows", &block, &copy, 4, 4, (const int32_t[]){1, 2, 9, 4}, "cccc");
    check("strong, 2 rows", &block, &copy, 2, 2, (const int32_t[]){1, 2}, "cc");
    copy.match = 5;
    check("weak", &block, &copy, 5, 5, (const int32_t[]){1, 2, 9, 4, 5}, "dcccc");
    copy.match = 3;
    check("none", &block, &copy, 5, 3, a, "ddd");
    copy = make(5, c, 5, -1, 0);
    check("weak, other from the start", &block, &copy, 5, 3, a, "ddd");
    copy = make(2, c, 20, -1, 0);
    check("a short copy", &block, &copy, 5, 3, (const int32_t[]){8, 2, 3}, "ccd");
    copy = make(0, c, 0, -1, 0);
    check("no copy", &block, &copy, 5, 3, a, "ddd");
    block.n = 0;
    copy = make(5, c, 4, -1, 0);
    check("no block", &block, &copy, 5, 5, c, "ccccc");
    check("nothing", &block, &(struct draft){0}, 5, 0, c, "");
}

/* Whatever comes in: never more than asked for, each token from one of the two, and behind the block only a copy that is whole. */
static void test_random(void)
{
    uint64_t rng = 2;
    for (int round = 0; round < 20000; round++) {
        int32_t x[DRAFT_MAX], y[DRAFT_MAX], k = 1 + (int32_t)(rng_next(&rng) % DRAFT_MAX);
        for (int32_t i = 0; i < DRAFT_MAX; i++) {
            x[i] = (int32_t)(rng_next(&rng) % 9);
            y[i] = rng_next(&rng) % 8 ? x[i] : 50;
        }
        struct draft block = make((int32_t)(rng_next(&rng) % 16), x, 0, 0.5f, 5), out;
        struct draft copy = make((int32_t)(rng_next(&rng) % 32), y, (int32_t)(rng_next(&rng) % 10), -1, 0);
        combine_drafts(&block, &copy, k, &out);
        bool ok = out.n <= k && out.n >= (block.n < k ? block.n : k), whole = true;
        for (int32_t i = 0; i < out.n; i++) {
            whole = whole && i < copy.n && out.ids[i] == y[i];
            ok = ok && (i < block.n ? out.ids[i] == x[i] || (i < copy.n && out.ids[i] == y[i]) : whole && copy.match >= COMBINE_WEAK);
            ok = ok && (i >= copy.n || i >= block.n || copy.match < COMBINE_STRONG || out.ids[i] == y[i]);
        }
        CHECK(ok, "round %d: %d drafts of %d and %d, match %d, asked for %d", round, out.n, block.n, copy.n, copy.match, k);
    }
}

static void test_gate(void)
{
    static const int32_t published[] = {8, 7, 8, 8, 1, 1, 1, 8, 16, 9, 1};
    static const bool open[] = {0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1};
    struct combine_gate g = {0};
    for (size_t i = 0; i < sizeof open; i++) {
        combine_observe(&g, published[i], 7);
        CHECK(combine_long(&g, 1) == open[i] && !combine_long(&g, 2), "round %zu", i);
    }
}

int main(void)
{
    test_by_hand();
    test_random();
    test_gate();
    return support_finish("spec_combine");
}
