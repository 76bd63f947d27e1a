/* The MTP drafter: whatever pieces it gets its rows in, wherever it was taken back to, it proposes the same and holds the same cache, with
 * memcmp; its first draft is what the block says by inspection; and its drafts are accepted often enough. */
#include "recorded.h"

#include <math.h>

#include "base/mem.h"
#include "model/seq.h"
#include "spec/mtp.h"

#define DEPTH 5

static struct mtp_model bundled(skua_engine *e)
{
    return (struct mtp_model){.config = &e->config, .weights = &e->weights.mtp, .forward = e->forward, .dev = e->dev, .kv_type = e->kv_type,
                              .max_rows = e->max_rows, .name = "mtp (bundled)"};
}

static struct drafter *drafter_new(skua_engine *e)
{
    struct drafter *d = NULL;
    skua_error err = {0};
    const struct mtp_model m = bundled(e);
    if (mtp_create(&m, &d, &err)) {
        printf("drafter: %s\n", err.message);
        exit(1);
    }
    return d;
}

/* The first n slots of two drafters' caches. */
static bool same_cache(const skua_engine *e, const struct drafter *a, const struct drafter *b, int32_t n)
{
    const struct seq *x = mtp_cache(a), *y = mtp_cache(b);
    const size_t row = x->page_bytes / (2 * (size_t)e->config.n_head_kv * KV_PAGE_ROWS), plane = row * KV_PAGE_ROWS;
    bool same = x->page_bytes == y->page_bytes && x->n_pos == y->n_pos;
    for (int32_t i = 0; i < n; i++)
        for (size_t p = 0; p < 2 * (size_t)e->config.n_head_kv; p++) {
            const size_t at = p * plane + (size_t)(i % KV_PAGE_ROWS) * row;
            const struct kern_buf *u = x->pages[i / KV_PAGE_ROWS], *v = y->pages[i / KV_PAGE_ROWS];
            same &= !memcmp((const char *)u->host + at, (const char *)v->host + at, row);
        }
    return same;
}

/* What a drafter that was given n rows at once proposes behind them, n < r->n. */
static struct draft fresh(const struct recorded *r, int32_t n, int32_t anchor)
{
    struct drafter *d = drafter_new(r->e);
    feed(d, r, n, r->n);
    struct draft out = *propose(d, anchor, DEPTH);
    d->ops->free(d);
    return out;
}

static void test_pieces(const struct recorded *r)
{
    static const int32_t chunks[] = {1, 3, 7, 64, 65, 100};
    struct drafter *whole = drafter_new(r->e);
    const int32_t n = r->n - 1;
    feed(whole, r, n, n);
    const struct draft want = *propose(whole, r->ids[n], DEPTH);
    CHECK(want.n == DEPTH && want.match == 0 && want.n_top[DEPTH - 1] == 0, "%d drafts", want.n);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        struct drafter *d = drafter_new(r->e);
        feed(d, r, n, chunks[i]);
        const struct draft *got = propose(d, r->ids[n], DEPTH);
        CHECK(same_drafts(got, &want), "rows by %d: other drafts", chunks[i]);
        CHECK(same_cache(r->e, d, whole, n), "rows by %d: another cache", chunks[i]);
        d->ops->free(d);
    }
    whole->ops->free(whole);
}

/* Proposals, of any anchor and depth, between the rows change nothing. */
static void test_proposals_leave_no_trace(const struct recorded *r)
{
    struct drafter *d = drafter_new(r->e), *quiet = drafter_new(r->e);
    feed(d, r, 1, 1);
    for (int32_t round = 0; d->n_pos < r->n - 8; round++) {
        const int32_t n = d->n_pos, anchor = r->ids[n];
        if (round % 3) /* else the drafter meets the committed token unprepared */
            propose(d, anchor, 1 + round % MTP_MAX_DRAFTS);
        if (round % 5 == 1)
            propose(d, (anchor + 17) % r->e->config.n_vocab, 3);
        if (round % 4 == 0) {
            const struct draft want = fresh(r, n, anchor), *a = propose(d, anchor, DEPTH), *b = propose(d, anchor, DEPTH);
            CHECK(same_drafts(a, &want) && same_drafts(b, &want), "at %d: other drafts", n);
            b = propose(d, anchor, 2);
            CHECK(b->n == 2 && !memcmp(b->ids, want.ids, sizeof(int32_t[2])), "at %d: a shorter chain is another", n);
        }
        feed(d, r, n + 1 + round % 7, 1 + round % 3);
    }
    feed(quiet, r, d->n_pos, r->n);
    const int32_t n = d->n_pos;
    const struct draft *a = propose(d, r->ids[n], DEPTH), *b = propose(quiet, r->ids[n], DEPTH);
    CHECK(same_drafts(a, b) && same_cache(r->e, d, quiet, n), "after all rounds: other drafts or another cache");
    d->ops->free(d);
    quiet->ops->free(quiet);
}

/* Back to length n from a later one, with what was saved at n. */
static void test_back(const struct recorded *r, int32_t n)
{
    struct drafter *d = drafter_new(r->e);
    skua_error err = {0};
    const int32_t anchor = r->ids[n];
    const struct draft want = fresh(r, n, anchor);
    feed(d, r, n, 50);
    const size_t size = d->ops->save_size(d);
    CHECK((size == 0) == (n == 0), "%zu bytes are saved at %d", size, n);
    void *saved = malloc(size + 1);
    d->ops->save(d, saved);
    propose(d, anchor, DEPTH);
    feed(d, r, n + 70, 20);
    for (int before = 0; before < 2; before++) { /* load finds the session ahead, or taken back already */
        if (before)
            CHECK(d->ops->truncate(d, n) == !d->lost, "truncate says what it did");
        CHECK(d->ops->load(d, n, saved, size, &err) == 0 && !d->lost && d->n_pos == n, "load at %d: %s", n, err.message);
        CHECK(!n || same_drafts(propose(d, anchor, DEPTH), &want), "back to %d: other drafts", n);
        feed(d, r, n + 70, 33);
        const struct draft later = fresh(r, n + 70, r->ids[n + 70]);
        CHECK(same_drafts(propose(d, r->ids[n + 70], DEPTH), &later), "back to %d and on: other drafts", n);
    }
    free(saved);
    d->ops->free(d);
}

/* What was kept of the last rows can be cut without a saved state; cutting more loses the context until reset, and says so. */
static void test_truncate(const struct recorded *r)
{
    struct drafter *d = drafter_new(r->e);
    skua_error err = {0};
    feed(d, r, 100, 100);
    propose(d, r->ids[100], 1);
    feed(d, r, 120, 20);
    const struct draft want = fresh(r, 110, r->ids[110]);
    CHECK(d->ops->truncate(d, 120) && d->ops->truncate(d, 500) && d->n_pos == 120, "nothing to cut");
    CHECK(d->ops->truncate(d, 110) && d->n_pos == 110 && same_drafts(propose(d, r->ids[110], DEPTH), &want), "cut to 110");
    CHECK(!d->ops->truncate(d, 90) && d->lost && d->n_pos == 90 && d->ops->save_size(d) == 0, "cut to 90");
    CHECK(propose(d, r->ids[90], DEPTH)->n == 0, "a lost drafter proposes");
    feed(d, r, 95, 5);
    CHECK(d->lost && d->n_pos == 95 && propose(d, r->ids[95], DEPTH)->n == 0, "a lost drafter comes back by itself");
    CHECK(d->ops->load(d, 95, NULL, 0, &err) == 0 && d->lost, "nothing was saved of a lost drafter");
    d->ops->reset(d);
    CHECK(!d->lost && d->n_pos == 0 && propose(d, r->ids[0], 1)->n == 0, "reset");
    feed(d, r, 110, 110);
    CHECK(same_drafts(propose(d, r->ids[110], DEPTH), &want), "after a reset: other drafts");
    CHECK(d->ops->truncate(d, 0) && d->n_pos == 0 && !d->lost, "cut to nothing");
    feed(d, r, 110, 110);
    CHECK(same_drafts(propose(d, r->ids[110], DEPTH), &want), "after nothing: other drafts");
    d->ops->free(d);
}

/* A new drafter filled with all that another one saved goes on as that does; what is no such state is refused. */
static void test_fill(const struct recorded *r, int32_t n)
{
    struct drafter *from = drafter_new(r->e), *to = drafter_new(r->e);
    skua_error err = {0};
    feed(from, r, n, 40);
    size_t part = from->ops->save_size(from);
    char *saved = malloc(part);
    from->ops->save(from, saved);
    const int32_t done = mtp_cache(from)->n_pos;
    CHECK(done == 0 || (to->ops->load(to, n, saved, part, &err) == SKUA_ESTATE && to->lost), "without what came before: %s", err.message);
    from->save_whole = true;
    const size_t size = from->ops->save_size(from);
    CHECK(size == part + (size_t)((done + KV_PAGE_ROWS - 1) / KV_PAGE_ROWS) * mtp_cache(from)->page_bytes, "%zu bytes", size);
    saved = realloc(saved, size);
    from->ops->save(from, saved);
    const struct draft want = *propose(from, r->ids[n], DEPTH);
    char said[120], *bad = malloc(size);
    snprintf(said, sizeof said, "the MTP drafter's saved state is not of this drafter at position %d", n);
    CHECK(to->ops->load(to, n, saved, size - 1, &err) == SKUA_EFORMAT && to->lost && !strcmp(err.message, said), "'%s'", err.message);
    CHECK(to->ops->load(to, n, saved, 3, &err) == SKUA_EFORMAT, "three bytes");
    CHECK(to->ops->load(to, n + 1, saved, size, &err) == SKUA_EFORMAT, "of another position");
    for (size_t i = 0; i < 32; i++) {
        memcpy(bad, saved, size);
        bad[i] ^= 0x40;
        CHECK(to->ops->load(to, n, bad, size, &err) < 0 && to->lost && propose(to, r->ids[n], 1)->n == 0, "byte %zu", i);
    }
    CHECK(to->ops->load(to, n, saved, size, &err) == 0 && !to->lost && to->n_pos == n, "%s", err.message);
    CHECK(same_drafts(propose(to, r->ids[n], DEPTH), &want), "filled at %d: other drafts", n);
    /* without its full pages, which somebody has kept */
    const size_t all = from->ops->save_size(from);
    from->save_from = from->kv->n_pos / KV_PAGE_ROWS;
    const size_t pages = (size_t)from->save_from * from->kv->page_bytes, rest = from->ops->save_size(from);
    CHECK(rest == all - pages, "%zu bytes without %d pages of %zu", rest, from->save_from, all);
    saved = realloc(saved, rest);
    from->ops->save(from, saved);
    to->ops->reset(to);
    CHECK(!from->save_from || (to->ops->load(to, n, saved, rest, &err) == SKUA_ESTATE && to->lost), "without pages: %s", err.message);
    to->ops->reset(to);
    CHECK(!seq_adopt(to->kv, from->kv->held, from->save_from, &err), "%s", err.message);
    to->kv->n_pos = from->save_from * KV_PAGE_ROWS;
    CHECK(to->ops->load(to, n, saved, rest, &err) == 0 && !to->lost && to->n_pos == n, "%s", err.message);
    CHECK(same_drafts(propose(to, r->ids[n], DEPTH), &want), "shared at %d: other drafts", n);
    from->save_from = 0;
    feed(from, r, n + 40, 7);
    feed(to, r, n + 40, 40);
    CHECK(same_drafts(propose(to, r->ids[n + 40], DEPTH), propose(from, r->ids[n + 40], DEPTH)), "filled at %d, and on: other drafts", n);
    CHECK(same_cache(r->e, from, to, n + 40), "filled at %d, and on: another cache", n);
    free(saved);
    free(bad);
    from->ops->free(from);
    to->ops->free(to);
}

/* Sampled drafts come from the softmax of the best logits, in this measure, and confidences from that of fewer. */
static void check_drawn(const struct recorded *r, int32_t n, const float *mtp)
{
    const int32_t seeds = 300;
    struct drafter *d = drafter_new(r->e);
    struct draft out, again;
    struct draft_request q = {.anchor = r->ids[n], .n_max = 2, .temperature = 0.8};
    int32_t count[MTP_SAMPLED] = {0};
    double sum = 0, few = 0;
    skua_error err = {0};
    feed(d, r, n, r->n);
    for (q.seed = 0; q.seed < (uint64_t)seeds; q.seed++) {
        const int rc = d->ops->propose(d, &q, &out, &err);
        if (!CHECK(rc == 0 && out.n == 2 && out.n_top[0] == MTP_SAMPLED && out.n_top[1] > 0, "%s", err.message))
            exit(1);
        int32_t at = 0;
        while (at < MTP_SAMPLED - 1 && out.top_ids[0][at] != out.ids[0])
            at++;
        count[at]++;
        CHECK(out.top_ids[0][at] == out.ids[0], "seed %d: draft %d is none of the candidates", (int)q.seed, out.ids[0]);
    }
    q.seed--;
    d->ops->propose(d, &q, &again, &err);
    CHECK(same_drafts(&out, &again), "the same seed, other drafts");
    for (int32_t i = 0; i < MTP_SAMPLED; i++) {
        const double p = out.top_p[0][i], ratio = exp(((double)mtp[out.top_ids[0][i]] - mtp[out.top_ids[0][0]]) / q.temperature);
        CHECK(fabs(p - ratio * out.top_p[0][0]) < 1e-5, "candidate %d has %g, expected %g", i, p, ratio * out.top_p[0][0]);
        CHECK(fabs(count[i] - p * seeds) <= 5 * sqrt(p * seeds) + 1, "candidate %d was drawn %d times, expected %.1f", i, count[i],
              p * seeds);
        sum += p;
        few += i < MTP_TOP ? exp((double)mtp[out.top_ids[0][i]] - mtp[out.top_ids[0][0]]) : 0;
    }
    CHECK(fabs(sum - 1) < 1e-5, "probabilities add up to %g", sum);
    const struct draft best = fresh(r, n, r->ids[n]);
    CHECK(fabs(best.confidence[0] - 1 / few) < 1e-5, "confidence %g, expected %g", (double)best.confidence[0], 1 / few);
    d->ops->free(d);
}

/* The first draft is the best token of the block's logits by inspection. */
static void test_inspection(const struct recorded *r)
{
    const size_t n_vocab = (size_t)r->e->config.n_vocab;
    float *logits = malloc((size_t)r->n * n_vocab * sizeof *logits), *mtp = malloc(n_vocab * sizeof *mtp);
    for (int32_t n = 1; n < r->n; n += r->n / 6) {
        skua_session *s = session_open(r->e, r->n);
        skua_error err = {0};
        const struct engine_inspect what = {.mtp = true, .logits = logits, .mtp_logits = mtp};
        CHECK(engine_inspect(s, r->ids, n + 1, &what, &err) == 0, "%s", err.message);
        int32_t best = -1;
        for (int32_t i = 0; i < (int32_t)n_vocab; i++)
            if (r->e->samplable[i / 64] >> (i % 64) & 1 && (best < 0 || mtp[i] > mtp[best]))
                best = i;
        const struct draft got = fresh(r, n, r->ids[n]);
        CHECK(got.ids[0] == best, "at %d: draft %d, best logit %d", n, got.ids[0], best);
        check_drawn(r, n, mtp);
        skua_session_free(s);
    }
    free(logits);
    free(mtp);
}

/* A chain step by step, each row of committed tokens in a pass of its own and every hidden row through host memory. */
static void test_chain(const struct recorded *r, int32_t n)
{
    skua_engine *e = r->e;
    struct dev *dev = e->dev;
    struct seq kv;
    struct kern_buf *hidden = NULL;
    skua_error err = {0};
    const size_t row = (size_t)e->config.n_embd * sizeof(float);
    float *host = malloc(row), *logits = malloc((size_t)e->config.n_vocab * sizeof *logits);
    const struct draft got = fresh(r, n, r->ids[n]);
    int32_t token = -1;
    CHECK(!seq_init(&kv, dev, 0, config_mtp_page_bytes(&e->config, e->kv_type), &err) && !seq_reserve(&kv, n + DEPTH, &err) &&
          !dev->ops->buf_alloc(dev, row, &hidden, &err), "%s", err.message);
    for (int32_t slot = 0; slot < n - 1 + DEPTH; slot++) {
        const int32_t zero = 0, t = slot < n ? r->ids[slot + 1] : token;
        const struct kern_seq s = {.n_rows = 1, .pos_begin = slot, .state = kv.state, .kv_pages = kv.pages, .n_kv_pages = kv.n_pages};
        const struct kern_batch b = {.n_rows = 1, .n_seqs = 1, .token = &t, .pos = &slot, .seq = &zero, .seqs = &s};
        if (slot < n)
            dev->ops->read(dev, (struct kern_view){r->hidden, (size_t)slot * row}, host, row);
        dev->ops->write(dev, (struct kern_view){hidden, 0}, host, row);
        const struct kern_view in = {hidden, 0};
        CHECK(!forward_mtp(e->forward, &e->weights.mtp, &b, in, 0, &zero, 1, 0, &err), "%s", err.message);
        forward_read_out_hidden(e->forward, 0, host);
        forward_read_logits(e->forward, 0, logits);
        token = -1;
        for (int32_t i = 0; i < e->config.n_vocab; i++)
            if (e->samplable[i / 64] >> (i % 64) & 1 && (token < 0 || logits[i] > logits[token]))
                token = i;
        const int32_t depth = slot - n + 1;
        CHECK(depth < 0 || got.ids[depth] == token, "draft %d at %d is not %d", depth, n, token);
    }
    dev->ops->buf_free(dev, hidden);
    seq_free(&kv);
    free(host);
    free(logits);
}

static void test_refused(const struct recorded *r)
{
    struct drafter *d = drafter_new(r->e);
    struct mtp_model m = bundled(r->e);
    struct mtp_weights none = {.present = false};
    skua_error err = {0};
    CHECK(!strcmp(d->name, "mtp (bundled)") && !strcmp(d->ops->kind, "mtp") && d->needs.hidden && !d->needs.n_taps && !d->block, "facts");
    struct draft_rows rows = {.ids = r->ids, .n = 2, .pos = 1, .hidden = {r->hidden, 0}, .hidden_stride = r->e->config.n_embd};
    CHECK(d->ops->extend(d, &rows, &err) == SKUA_EARG && d->lost, "a gap");
    CHECK(!strcmp(err.message, "2 rows from position 1, with hidden rows; the MTP block expects rows with them from position 0"), "%s",
          err.message);
    d->ops->reset(d);
    rows.pos = 0;
    rows.hidden.buf = NULL;
    CHECK(d->ops->extend(d, &rows, &err) == SKUA_EARG && d->lost && SAYS(&err, SKUA_EARG, "without hidden rows"), "no rows");
    d->ops->free(d);
    m.weights = &none;
    CHECK(mtp_create(&m, &d, &err) == SKUA_ESTATE && !d && SAYS(&err, SKUA_ESTATE, "no MTP block"), "no block");
}

/* Every allocation fails once: an error, a lost drafter that a reset brings back, no memory left behind. */
static void test_faults(const struct recorded *r)
{
    const struct mtp_model m = bundled(r->e);
    const struct draft want = fresh(r, 300, r->ids[300]);
    long failed = 0;
    for (bool done = false; !done;) {
        struct drafter *d = NULL;
        struct draft out;
        skua_error err = {0};
        const size_t live = mem_live_blocks();
        const struct draft_rows rows = {.ids = r->ids, .n = 300, .hidden = {r->hidden, 0}, .hidden_stride = r->e->config.n_embd};
        const struct draft_request q = {.anchor = r->ids[300], .n_max = DEPTH};
        fault_set_alloc((uint64_t)++failed, true);
        int rc = mtp_create(&m, &d, &err);
        if (!rc)
            rc = d->ops->extend(d, &rows, &err);
        if (!rc)
            rc = d->ops->propose(d, &q, &out, &err);
        fault_set_alloc(0, false);
        done = !rc;
        CHECK(rc == 0 || (rc == SKUA_ENOMEM && err.message[0] && (!d || d->lost)), "%d: %s", rc, err.message);
        if (d) {
            d->ops->reset(d);
            feed(d, r, 300, 300);
            CHECK(same_drafts(propose(d, r->ids[300], DEPTH), &want), "after failure %ld: other drafts", failed);
            d->ops->free(d);
        }
        CHECK(mem_live_blocks() == live, "failure %ld leaves memory", failed);
    }
    CHECK(failed > 8, "%ld failures", failed - 1);
}

/* Rounds of k drafts over what the target itself chose: emitted tokens per round, and how often the first draft is right. */
static double acceptance(const struct recorded *r, int32_t k, double *first)
{
    struct drafter *d = drafter_new(r->e);
    int32_t rounds = 0, emitted = 0, right = 0;
    feed(d, r, r->n_prompt, r->n_prompt);
    while (d->n_pos + 1 < r->n) {
        const int32_t n = d->n_pos, room = r->n - n - 1;
        const struct draft *p = propose(d, r->ids[n], k < room ? k : room);
        int32_t a = 0;
        while (a < p->n && p->ids[a] == r->ids[n + 1 + a])
            a++;
        right += a > 0;
        rounds++;
        emitted += a + 1;
        feed(d, r, n + a + 1, a + 1);
    }
    d->ops->free(d);
    *first = (double)right / rounds;
    return (double)emitted / rounds;
}

static void test_acceptance(skua_engine *e, double least)
{
    static const char *const prompts[] = {
        "<|im_start|>user\nTell me a story about a fox and an owl.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        "<|im_start|>user\nCount from 1 to 30.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        "def factorial(n):\n    if n <= 1:\n        return 1\n",
        "Clara has 96 apples in the market. Anna has 61 coins in the market.",
    };
    double sum = 0;
    const int n = (int)(sizeof prompts / sizeof *prompts);
    for (int i = 0; i < n; i++) {
        struct recorded r = record_text(e, prompts[i], 96);
        double first, al1 = acceptance(&r, 1, &first), al = acceptance(&r, 4, &first);
        printf("%s, %d tokens behind '%.20s': %.2f tokens per round of 1 draft, %.2f of 4; first draft right in %.0f %%\n",
               e->config.moe ? "moe" : "dense", r.n - r.n_prompt, strrchr(prompts[i], '>') ? strchr(prompts[i], '\n') + 1 : prompts[i], al1,
               al, 100 * first);
        sum += al;
        recorded_free(&r);
    }
    CHECK(sum / n >= least, "acceptance length %.2f, expected %.2f or more", sum / n, least);
}

int main(void)
{
    static const struct {
        const char *name, *kv_type;
        int32_t max_rows;
        int threads;
        double least; /* acceptance length of 4 drafts a round; 0: not measured */
    } runs[] = {{"tiny-q8_0.gguf", "F16", 512, 2, 2.6}, {"tiny-q8_0.gguf", "Q8_0", 5, 1, 0}, {"tiny-moe-q8_0.gguf", "F16", 100, 1, 2.9}};
    const bool quick = getenv("SKUA_TEST_QUICK"); /* for the sanitizers: the dense model, and no acceptance */
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        const char *model = support_model(runs[i].name);
        if (!model || (quick && i == 2))
            continue;
        const size_t live = mem_live_blocks();
        skua_engine *e = model_open(model, &(skua_engine_params){.n_threads = runs[i].threads, .kv_type = runs[i].kv_type,
                                                                 .max_rows = runs[i].max_rows});
        int32_t prompt[380]; /* text of no meaning: more than a page, and a long way to a common answer */
        for (int32_t k = 0; k < 380; k++)
            prompt[k] = (k * 7919 + 13) % 8000;
        struct recorded r = record(e, prompt, 380, 0);
        const bool part = quick && i; /* passes of five rows: what fills a cache, no more */
        static const int32_t at[] = {256, 0, 1, 2, 66, 255, 257, 258};
        for (size_t k = 0; k < (quick ? (size_t)(1 + !part) : sizeof at / sizeof *at); k++)
            test_back(&r, at[k]);
        test_fill(&r, 257);
        test_chain(&r, 40);
        test_refused(&r);
        if (!part) {
            test_pieces(&r);
            test_proposals_leave_no_trace(&r);
            test_truncate(&r);
            test_fill(&r, 1);
            test_fill(&r, 300);
            test_inspection(&r);
            test_faults(&r);
        }
        if (!quick)
            test_chain(&r, 254);
        recorded_free(&r);
        if (runs[i].least > 0 && !quick)
            test_acceptance(e, runs[i].least);
        skua_engine_close(e);
        CHECK(mem_live_blocks() == live, "%zu blocks are left", mem_live_blocks() - live);
    }
    return support_finish("test_spec_mtp");
}
