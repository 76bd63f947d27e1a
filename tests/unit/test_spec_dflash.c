/* DFlash drafters on random weights: blocks against a forward pass in double for every kind of mask, and what must not change a draft:
 * how rows of context come in, proposals in between, truncation, windows that moved on, saving and loading. */
#include "dflash_toy.h"

#include "base/mem.h"
#include "spec/candidates.h"

static struct dev *production, *reference;
static skua_error err;

static struct dflash *forward_of(struct toy *t, struct dev *d)
{
    struct dflash *f = NULL;
    if (dflash_create(&t->c, &t->w, d, QTYPE_F32, &f, &err)) {
        printf("%s\n", err.message);
        abort();
    }
    return f;
}

static struct drafter *drafter_of(struct dflash *f)
{
    struct drafter *d = NULL;
    if (dflash_drafter(f, "toy", &d, &err)) {
        printf("%s\n", err.message);
        abort();
    }
    return d;
}

static const int32_t no_ids[TOY_MOST];

/* Positions from .. to - 1, `step` at a time. */
static int feed(struct toy *t, struct drafter *d, int32_t from, int32_t to, int32_t step)
{
    int rc = 0;
    for (int32_t p = from; p < to && !rc; p += step) {
        const struct draft_rows rows = {.ids = no_ids, .n = to - p < step ? to - p : step, .pos = p, .taps = toy_view(t, t->taps[p]),
                                        .taps_stride = TOY_W};
        rc = d->ops->extend(d, &rows, &err);
    }
    return rc;
}

static struct draft ask(struct drafter *d, int32_t anchor, int32_t n, bool full)
{
    static struct draft out;
    const struct draft_request q = {.anchor = anchor, .n_max = n, .full_block = full};
    memset(&out, 0, sizeof out);
    CHECK(!d->ops->propose(d, &q, &out, &err), "%s", err.message);
    return out;
}

static bool same_draft(const struct draft *a, const struct draft *b)
{
    return a->n == b->n && memcmp(a->ids, b->ids, sizeof a->ids) == 0 && memcmp(a->confidence, b->confidence, sizeof a->confidence) == 0;
}

/* ---- against double ---- */

static const double *sort_by;
static int by_logit(const void *a, const void *b)
{
    const double x = sort_by[*(const int32_t *)a], y = sort_by[*(const int32_t *)b];
    return (x < y) - (x > y);
}

/* The greedy walk through the candidates of all rows, in double. */
static void walk(const struct toy *t, double (*u)[TOY_E], int32_t anchor, int32_t n, int32_t *ids)
{
    for (int32_t i = 0, prev = anchor; i < n; prev = ids[i++]) {
        double logits[TOY_V], sel[TOY_R], most = -INFINITY;
        int32_t order[TOY_V];
        toy_head(t, u[i + 1], logits, sel);
        for (int32_t k = 0; k < TOY_V; k++)
            order[k] = k;
        sort_by = logits;
        qsort(order, TOY_V, sizeof *order, by_logit);
        for (int32_t k = 0; k < (t->c.selector_rank ? TOY_TOP : 1); k++) {
            double score = logits[order[k]];
            for (int r = 0; r < TOY_R && t->c.selector_rank; r++)
                score += (double)t->pred[prev * TOY_R + r] * sel[r] * (double)t->succ[order[k] * TOY_R + r];
            if (score > most)
                ids[i] = order[k];
            most = fmax(most, score);
        }
    }
}

static void compare_block(struct toy *t, struct dev *dev, int32_t n, int32_t n_rows, double bound, const char *what)
{
    struct dflash *f = forward_of(t, dev);
    struct seq s;
    double u[TOY_B][TOY_E], logits[TOY_V], sel[TOY_R], got[DRAFT_MAX_TOP], worst = 0.0;
    int32_t ids[DRAFT_MAX_TOP], want_ids[TOY_B];
    const struct dflash_block b = {.anchor = 5, .n_rows = n_rows, .n_out = n_rows - 1, .k = DRAFT_MAX_TOP};
    toy_block(t, n, 5, n_rows, u);
    CHECK(!seq_init(&s, dev, 0, dflash_page_bytes(f), &err) && !dflash_context(f, &s, toy_view(t, t->taps), TOY_W, n, &err) &&
              !dflash_block(f, &s, &b, &err), "%s: %s", what, err.message);
    CHECK(s.n_pos == n, "%s: a block moved the context on", what);
    for (int32_t i = 0; i < b.n_out; i++) {
        toy_head(t, u[i + 1], logits, sel);
        CHECK(dflash_candidates(f, i, ids, got) == DRAFT_MAX_TOP, "%s: candidates of row %d", what, i);
        double least = INFINITY;
        for (int k = 0; k < DRAFT_MAX_TOP; k++) {
            worst = fmax(worst, fabs(got[k] - logits[ids[k]]));
            CHECK(k == 0 || got[k] < got[k - 1] || (got[k] == got[k - 1] && ids[k] > ids[k - 1]), "%s: order", what);
            least = got[k];
            logits[ids[k]] = -INFINITY;
        }
        for (int k = 0; k < TOY_V; k++)
            CHECK(logits[k] <= least + bound, "%s: row %d lacks token %d", what, i, k);
    }
    CHECK(worst <= bound, "%s: logits differ by %g", what, worst);
    seq_free(&s);
    struct drafter *d = drafter_of(f);
    CHECK(!feed(t, d, 0, n, 7), "%s", err.message);
    const struct draft drafts = ask(d, 5, n_rows - 1, false);
    walk(t, u, 5, n_rows - 1, want_ids);
    CHECK(drafts.n == n_rows - 1 && memcmp(drafts.ids, want_ids, (size_t)drafts.n * sizeof *want_ids) == 0, "%s: drafts", what);
    d->ops->free(d);
    dflash_free(f);
}

static void test_masks(void)
{
    static const int32_t contexts[] = {0, 1, 6, 40, 300}, windows[] = {0, 8, 3, 64};
    for (int variant = 0; variant < 2; variant++)
        for (int w = 0; w < 4; w++)
            for (int causal = 0; causal < 2; causal++) {
                struct toy *t = toy_create(variant ? DFLASH_2 : DFLASH_CLASSIC, windows[w], causal, 1000 + (uint64_t)w);
                for (int n = 0; n < (w == 0 || w == 3 ? 5 : 4); n++) {
                    char what[80];
                    const int32_t rows = n == 2 ? 5 : TOY_B; /* a shorter block is one of its own, no part of a longer one */
                    snprintf(what, sizeof what, "variant %d, window %d, causal %d, %d rows of context", variant, windows[w], causal,
                             contexts[n]);
                    compare_block(t, reference, contexts[n], rows, 2e-5, what);
                    compare_block(t, production, contexts[n], rows, 1e-4, what);
                }
                free(t);
            }
}

/* Layers of different kinds in one drafter; factors; a list of the head's rows. */
static void test_settings(void)
{
    struct toy *t = toy_create(DFLASH_CLASSIC, 0, false, 7);
    t->c.window[0] = 6;
    t->c.causal[0] = true;
    t->c.emb_scale = 1.7f;
    t->c.logit_scale = 0.4f;
    t->c.softcap = 3.0f;
    compare_block(t, reference, 30, TOY_B, 2e-5, "factors");
    compare_block(t, production, 30, TOY_B, 1e-4, "factors");

    struct dflash *f = forward_of(t, production);
    struct drafter *d = drafter_of(f);
    feed(t, d, 0, 20, 20);
    const struct draft all = ask(d, 3, 7, false);
    for (int i = 0; i < all.n; i++)
        t->allow[all.ids[i] / 64] &= ~((uint64_t)1 << (all.ids[i] % 64));
    const struct draft others = ask(d, 3, 7, false);
    for (int i = 0; i < all.n; i++)
        for (int k = 0; k < others.n; k++)
            CHECK(others.ids[k] != all.ids[i], "a token that is not allowed is drafted");
    static int32_t map[TOY_V];
    for (int32_t i = 0; i < TOY_V; i++)
        map[i] = 1000 + 2 * i;
    t->w.head_ids = map;
    const struct draft mapped = ask(d, 3, 7, false);
    for (int k = 0; k < others.n; k++)
        CHECK(mapped.ids[k] == map[others.ids[k]], "row %d of the head is token %d", others.ids[k], mapped.ids[k]);
    t->allow[0] = t->allow[1] = 0;
    CHECK(ask(d, 3, 7, false).n == 0, "nothing may be drafted");
    d->ops->free(d);
    dflash_free(f);
    free(t);
}

/* ---- what must not matter ---- */

static void test_chunks(void)
{
    static const int32_t steps[] = {1, 3, 7, 64, 65, 200, 600};
    struct toy *t = toy_create(DFLASH_2, 0, false, 3);
    struct dflash *f = forward_of(t, production);
    struct draft want = {0};
    double logits[DRAFT_MAX_TOP], want_logits[DRAFT_MAX_TOP];
    int32_t ids[DRAFT_MAX_TOP];
    for (int i = 6; i >= 0; i--) {
        struct drafter *d = drafter_of(f);
        CHECK(!feed(t, d, 0, 600, steps[i]) && d->n_pos == 600, "%s", err.message);
        const struct draft here = ask(d, 9, 7, true);
        CHECK(dflash_candidates(f, 6, ids, logits) == TOY_TOP, "candidates");
        if (i == 6) {
            want = here;
            memcpy(want_logits, logits, sizeof logits);
        }
        CHECK(same_draft(&here, &want) && memcmp(logits, want_logits, TOY_TOP * sizeof *logits) == 0, "%d rows at a time", steps[i]);
        d->ops->free(d);
    }
    dflash_free(f);
    free(t);
}

/* The order of the taps matters, or else sorting them would not show. */
static void test_tap_order(void)
{
    struct toy *t = toy_create(DFLASH_CLASSIC, 0, false, 4);
    struct dflash *f = forward_of(t, production);
    struct drafter *a = drafter_of(f);
    double x[DRAFT_MAX_TOP], y[DRAFT_MAX_TOP];
    int32_t ids[DRAFT_MAX_TOP];
    feed(t, a, 0, 20, 20);
    ask(a, 1, 7, false);
    dflash_candidates(f, 0, ids, x);
    for (int p = 0; p < 20; p++)
        for (int i = 0; i < TOY_E; i++) {
            const float swap = t->taps[p][i];
            t->taps[p][i] = t->taps[p][TOY_E + i];
            t->taps[p][TOY_E + i] = swap;
        }
    a->ops->reset(a);
    feed(t, a, 0, 20, 20);
    ask(a, 1, 7, false);
    dflash_candidates(f, 0, ids, y);
    CHECK(memcmp(x, y, sizeof x[0]) != 0, "taps in another order give the same logits");
    a->ops->free(a);
    dflash_free(f);
    free(t);
}

/* Proposals, and truncation behind them, leave nothing. */
static void test_rounds(void)
{
    for (int variant = 0; variant < 2; variant++) {
        struct toy *t = toy_create(variant ? DFLASH_2 : DFLASH_CLASSIC, variant ? 40 : 0, false, 5);
        struct dflash *f = forward_of(t, production);
        struct drafter *plain = drafter_of(f), *busy = drafter_of(f);
        feed(t, plain, 0, 250, 250);
        feed(t, busy, 0, 250, 250);
        for (int32_t p = 250; p < 270; p++) { /* over the border of a page, nothing accepted */
            ask(busy, p % TOY_V, 1 + p % 7, p % 2);
            feed(t, busy, p, p + 1, 1);
            feed(t, plain, p, p + 1, 1);
            const struct draft a = ask(plain, 11, 7, false), b = ask(busy, 11, 7, false), c = ask(busy, 11, 7, false);
            CHECK(same_draft(&a, &b) && same_draft(&b, &c), "variant %d: a round at %d left something", variant, p);
        }
        for (int32_t back = 0; back < 3; back++) { /* into the stash, out of it, and far */
            static const int32_t to[] = {268, 255, 10};
            const int32_t at = to[back];
            feed(t, busy, 270, 275, 5);
            CHECK(busy->ops->truncate(busy, at) && busy->n_pos == at, "truncating to %d", at);
            plain->ops->reset(plain);
            feed(t, plain, 0, at, 33);
            const struct draft a = ask(plain, 11, 7, false), b = ask(busy, 11, 7, false);
            CHECK(same_draft(&a, &b), "variant %d: truncated to %d", variant, at);
            feed(t, busy, at, 270, 50);
            feed(t, plain, at, 270, 1);
            const struct draft e = ask(plain, 11, 7, false), g = ask(busy, 11, 7, false);
            CHECK(same_draft(&e, &g), "variant %d: truncated to %d and on", variant, at);
        }
        plain->ops->free(plain);
        busy->ops->free(busy);
        dflash_free(f);
        free(t);
    }
}

/* A window's pages are given back, and what a block sees stays. */
static void test_window(void)
{
    struct toy *t = toy_create(DFLASH_2, 300, false, 6);
    struct dflash *f = forward_of(t, production);
    struct drafter *d = drafter_of(f);
    struct seq all;
    double x[DRAFT_MAX_TOP], y[DRAFT_MAX_TOP];
    int32_t ids[DRAFT_MAX_TOP];
    CHECK(!seq_init(&all, production, 0, dflash_page_bytes(f), &err), "%s", err.message);
    size_t most = 0;
    for (int32_t p = 0; p < 4000; p += 250) {
        CHECK(!feed(t, d, p, p + 250, 50) && !dflash_context(f, &all, toy_view(t, t->taps[p]), TOY_W, 250, &err), "%s", err.message);
        const struct dflash_block b = {.anchor = 8, .n_rows = 8, .n_out = 7, .k = TOY_TOP};
        ask(d, 8, 7, false);
        const int32_t n = dflash_candidates(f, 6, ids, x);
        CHECK(!dflash_block(f, &all, &b, &err) && dflash_candidates(f, 6, ids, y) == n && memcmp(x, y, (size_t)n * sizeof *x) == 0,
              "behind %d positions", p + 250);
        most = d->ops->bytes(d) > most ? d->ops->bytes(d) : most;
    }
    CHECK(most <= DFLASH_STASH_ROWS * TOY_W * 4 + 8 * dflash_page_bytes(f) + 4096, "%zu bytes", most);
    /* as far back as promised, then further */
    CHECK(d->ops->truncate(d, 4000 - DFLASH_SLACK_ROWS + DFLASH_STASH_ROWS), "truncating within the slack");
    CHECK(ask(d, 8, 7, false).n == 7, "behind it");
    CHECK(!d->ops->truncate(d, 1500) && d->lost, "truncating to what is gone");
    CHECK(ask(d, 8, 7, false).n == 0 && !feed(t, d, 1500, 1510, 10) && d->ops->save_size(d) == 0, "a lost drafter");
    d->ops->reset(d);
    CHECK(!d->lost && !feed(t, d, 0, 100, 100) && ask(d, 8, 7, false).n == 7, "after a reset");
    seq_free(&all);
    d->ops->free(d);
    dflash_free(f);
    free(t);
}

/* ---- saving ---- */

static void test_saving(void)
{
    for (int32_t window = 0; window <= 300; window += 300)
        for (int whole = 0; whole < 2; whole++) {
            struct toy *t = toy_create(DFLASH_CLASSIC, window, false, 8);
            struct dflash *f = forward_of(t, production);
            struct drafter *d = drafter_of(f), *other = drafter_of(f);
            feed(t, d, 0, 1000, 100);
            feed(t, d, 1000, 1020, 3); /* some rows wait */
            const struct draft want = ask(d, 2, 7, false);
            d->ops->truncate(d, 1000);
            feed(t, d, 1000, 1020, 3);
            d->save_whole = whole;
            const size_t size = d->ops->save_size(d);
            CHECK((size == 0) == (!window && !whole), "window %d: %zu bytes", window, size);
            char *saved = malloc(size + 1);
            if (size)
                d->ops->save(d, saved);
            feed(t, d, 1020, 4000, 333);
            CHECK(d->ops->truncate(d, 1020) == !window, "window %d: back", window);
            if (size) {
                CHECK(!d->ops->load(d, 1020, saved, size, &err), "%s", err.message);
                CHECK(!other->ops->load(other, 1020, saved, size, &err), "%s", err.message);
                const struct draft b = ask(other, 2, 7, false);
                CHECK(same_draft(&want, &b), "window %d: a new drafter", window);
                CHECK(!feed(t, other, 1020, 1100, 80) && other->n_pos == 1100, "%s", err.message);
                CHECK(other->ops->load(other, 1021, saved, size, NULL) == SKUA_EFORMAT, "another position");
                CHECK(other->ops->load(other, 1020, saved, size - 1, NULL) == SKUA_EFORMAT, "a byte is missing");
                CHECK(other->ops->load(other, 1020, saved, 5, NULL) == SKUA_EFORMAT, "five bytes");
                for (size_t i = 0; i < 40; i++) { /* of the header */
                    saved[i] ^= 0x55;
                    CHECK(other->ops->load(other, 1020, saved, size, NULL) == SKUA_EFORMAT, "byte %zu is another", i);
                    saved[i] ^= 0x55;
                }
                CHECK(other->n_pos == 1100 && ask(other, 2, 7, false).n == 7, "a refused state changed something");
            }
            const struct draft a = ask(d, 2, 7, false);
            CHECK(same_draft(&want, &a), "window %d: back where it was", window);
            CHECK((d->kv == NULL) == (window > 0), "window %d: a cache of all positions", window);
            if (whole && !window) { /* without its full pages, which somebody has kept */
                d->save_from = d->kv->n_pos / KV_PAGE_ROWS;
                const size_t rest = d->ops->save_size(d);
                CHECK(d->save_from == 3 && rest < size - 2 * d->kv->page_bytes, "%zu bytes without pages", rest);
                d->ops->save(d, saved);
                other->ops->reset(other);
                CHECK(other->ops->load(other, 1020, saved, rest, NULL) == SKUA_ESTATE, "without pages");
                other->ops->reset(other);
                CHECK(!seq_adopt(other->kv, d->kv->held, d->save_from, &err), "%s", err.message);
                other->kv->n_pos = d->save_from * KV_PAGE_ROWS;
                CHECK(!other->ops->load(other, 1020, saved, rest, &err) && other->n_pos == 1020, "%s", err.message);
                const struct draft b = ask(other, 2, 7, false);
                CHECK(same_draft(&want, &b), "shared pages: other drafts");
            }
            free(saved);
            other->ops->free(other);
            d->ops->free(d);
            dflash_free(f);
            free(t);
        }
}

/* ---- sampling ---- */

static void test_sampling(void)
{
    for (int variant = 0; variant < 2; variant++) {
        struct toy *t = toy_create(variant ? DFLASH_2 : DFLASH_CLASSIC, 0, false, 12);
        struct dflash *f = forward_of(t, production);
        struct drafter *d = drafter_of(f);
        enum { DRAWS = 3000 };
        int counts[TOY_V] = {0};
        static struct draft a, b;
        feed(t, d, 0, 25, 25);
        for (int i = 0; i < DRAWS; i++) {
            const struct draft_request q = {.anchor = 4, .n_max = 2, .temperature = 1.3, .seed = (uint64_t)i};
            CHECK(!d->ops->propose(d, &q, &a, &err) && !d->ops->propose(d, &q, &b, &err), "%s", err.message);
            CHECK(a.ids[0] == b.ids[0] && a.ids[1] == b.ids[1], "the same seed draws another draft");
            CHECK(a.n_top[0] == (variant ? TOY_TOP : DFLASH_SAMPLED), "%d candidates", a.n_top[0]);
            counts[a.ids[0]]++;
        }
        double sum = 0.0, chi = 0.0;
        for (int i = 0; i < a.n_top[0]; i++) {
            const double p = (double)a.top_p[0][i], expected = p * DRAWS;
            sum += p;
            chi += expected > 1.0 ? (counts[a.top_ids[0][i]] - expected) * (counts[a.top_ids[0][i]] - expected) / expected : 0.0;
            counts[a.top_ids[0][i]] = 0;
        }
        CHECK(fabs(sum - 1.0) < 1e-5, "probabilities add up to %g", sum);
        CHECK(chi < 3.0 * a.n_top[0] + 15.0, "variant %d: chi square %g of %d candidates", variant, chi, a.n_top[0]);
        for (int i = 0; i < TOY_V; i++)
            CHECK(counts[i] == 0, "token %d was drawn and is no candidate", i);
        d->ops->free(d);
        dflash_free(f);
        free(t);
    }
}

/* The worked example of the selector's definition, and ties. */
static void test_candidates(void)
{
    static const float pred[] = {1, 2}, hidden[] = {3, -1}, succ[] = {0.5f, 1, 1, -0.5f}, p[] = {0.25f, 0.0f, 0.75f, 0.0f};
    static const double unary[] = {2, 0}, equal[] = {1, 3, 3, 2};
    static const int32_t ids[] = {4, 9}, unordered[] = {7, 6, 5, 4};
    double score[2];
    candidates_select(pred, hidden, succ, unary, 2, 2, score);
    CHECK(score[0] == 1.5 && score[1] == 4.0, "scores %g and %g", score[0], score[1]);
    CHECK(candidates_best(ids, score, 2) == 1 && candidates_best(ids, unary, 2) == 0, "the best");
    CHECK(candidates_best(unordered, equal, 4) == 2, "of equal ones the lowest id");
    CHECK(candidates_draw(p, 4, 0.0) == 0 && candidates_draw(p, 4, 0.2499) == 0 && candidates_draw(p, 4, 0.25) == 2 &&
              candidates_draw(p, 4, 0.999999) == 2 && candidates_draw(p, 4, 1.0) == 2, "draws");
}

/* ---- errors ---- */

static void test_errors(void)
{
    struct toy *t = toy_create(DFLASH_2, 0, false, 9);
    struct dflash *f = NULL;
    CHECK(dflash_create(&t->c, &t->w, production, QTYPE_Q8_0, &f, &err) == SKUA_EUNSUPPORTED && !f && strstr(err.message, "Q8_0"),
          "a cache type that does not fit: %s", err.message);
    f = forward_of(t, production);
    struct drafter *d = drafter_of(f);
    feed(t, d, 0, 10, 10);
    struct draft_rows rows = {.ids = no_ids, .n = 2, .pos = 11, .taps = toy_view(t, t->taps), .taps_stride = TOY_W};
    CHECK(d->ops->extend(d, &rows, &err) == SKUA_ESTATE && d->lost && strstr(err.message, "10") && strstr(err.message, "11"), "a gap: %s",
          err.message);
    d->ops->reset(d);
    rows = (struct draft_rows){.ids = no_ids, .n = 2};
    CHECK(d->ops->extend(d, &rows, &err) == SKUA_ESTATE && d->lost, "rows without taps");
    d->ops->free(d);
    dflash_free(f);
    dflash_free(NULL);

    free(t);
}

/* A drafter from its making to a proposal. */
static int whole_life(struct toy *t, struct dflash **f, struct drafter **d)
{
    static struct draft out;
    const struct draft_request q = {.anchor = 4, .n_max = 7};
    int rc = dflash_create(&t->c, &t->w, production, QTYPE_F16, f, &err);
    if (!rc)
        rc = dflash_drafter(*f, "toy", d, &err);
    if (!rc)
        rc = feed(t, *d, 0, 600, 130);
    return rc ? rc : (*d)->ops->propose(*d, &q, &out, &err);
}

/* Each allocation and each buffer fails once. */
static void test_faults(void)
{
    struct toy *t = toy_create(DFLASH_2, 0, false, 9);
    const size_t live = mem_live_blocks(), held = production->allocated_bytes;
    for (int io = 0; io < 2; io++) {
        int rc = -1;
        uint64_t n = 0;
        while (rc && n < 200) {
            struct dflash *f = NULL;
            struct drafter *d = NULL;
            (io ? fault_set_io : fault_set_alloc)(++n, true);
            rc = whole_life(t, &f, &d);
            const uint64_t count = io ? fault_io_count() : fault_alloc_count();
            fault_set_io(0, false);
            fault_set_alloc(0, false);
            CHECK(rc == (count >= n ? SKUA_ENOMEM : 0), "%d, allocation %d: %d", io, (int)n, rc);
            CHECK(!d || d->lost == (rc != 0), "%d, allocation %d: lost or not", io, (int)n);
            if (d)
                d->ops->free(d);
            dflash_free(f);
            CHECK(mem_live_blocks() == live && production->allocated_bytes == held, "%d, allocation %d: something is left", io, (int)n);
        }
        CHECK(!rc && n > 5, "%d: %d allocations", io, (int)n);
    }
    free(t);
}

int main(void)
{
    if (dev_cpu_create(kern_select(NULL), 2, 2, &production, &err) || dev_cpu_create(&kern_reference, 1, 1, &reference, &err))
        return 1;
    test_candidates();
    test_masks();
    test_settings();
    test_chunks();
    test_tap_order();
    test_rounds();
    test_window();
    test_saving();
    test_sampling();
    test_errors();
    test_faults();
    production->ops->destroy(production);
    reference->ops->destroy(reference);
    return support_finish("test_spec_dflash");
}
