/* Held rows, as speculation uses them: the logits of rows that are evaluated together are those of one token at a time, and whatever number
 * of them is kept, the session is then the one that evaluated these alone, with memcmp: its recurrent state and all that follows.
 *
 * For each model, cache type, number of threads, tier and length of context (around the ends of KV pages): every width from 1 to 16 with
 * every number of kept rows.
 *   --full   all of that
 *   default  for every model a few settings, drawn by SKUA_TEST_SEED (default 1), with SKUA_TEST_QUICK=1 (for the sanitizers) fewer;
 *            of each, every width with two numbers of kept rows */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/engine.h"
#include "support/support.h"

#define MOST 16
#define N_IDS 600

static const int32_t contexts[] = {0, 1, 250, 255, 256, 257, 511};
#define N_CONTEXTS 7
static const char *const kv_types[] = {"F16", "F32", "BF16", "Q8_0"};

static int32_t ids[N_IDS], wrong[N_IDS];
static uint64_t rng;

struct setting {
    const char *model, *kv_type, *tier;
    int threads, context;
};

/* One token at a time from a length of context on. */
struct serial {
    size_t n_vocab, state_bytes;
    float *logits;          /* [MOST + 1][n_vocab], behind each token */
    char *state[MOST + 2];  /* after so many of them */
};

static int below(int n) { return (int)(rng_next(&rng) % (uint64_t)n); }

static bool eval(skua_session *s, skua_feed f)
{
    skua_error err = {0};
    f.session = s;
    return CHECK(skua_eval(s->engine, &f, 1, NULL, NULL, &err) == 0 && f.n_done == f.n_ids, "%s", err.message);
}

static bool state_is(const skua_session *s, const char *state) { return !memcmp(s->seq.state->host, state, s->seq.state->size); }

static char *copy_state(const skua_session *s)
{
    char *p = malloc(s->seq.state->size);
    memcpy(p, s->seq.state->host, s->seq.state->size);
    return p;
}

static skua_session *session_at(skua_engine *e, int32_t context)
{
    skua_session *s = NULL;
    skua_error err = {0};
    CHECK(!skua_session_create(e, 0, &s, &err), "%s", err.message);
    if (context)
        eval(s, (skua_feed){.ids = ids, .n_ids = context});
    return s;
}

static void step_serially(skua_engine *e, int32_t context, struct serial *base)
{
    skua_session *s = session_at(e, context);
    base->n_vocab = (size_t)e->config.n_vocab;
    base->state_bytes = s->seq.state->size;
    base->logits = malloc((MOST + 1) * base->n_vocab * sizeof *base->logits);
    for (int i = 0; i <= MOST; i++) {
        base->state[i] = copy_state(s);
        float *logits = base->logits + (size_t)i * base->n_vocab;
        eval(s, (skua_feed){.ids = ids + context + i, .n_ids = 1, .want = SKUA_LOGITS_LAST, .logits = logits});
    }
    base->state[MOST + 1] = copy_state(s);
    skua_session_free(s);
}

static void free_serial(struct serial *base)
{
    free(base->logits);
    for (int i = 0; i < MOST + 2; i++)
        free(base->state[i]);
}

static bool same_rows(const struct serial *base, const float *logits, int32_t first, int32_t n)
{
    return !memcmp(logits, base->logits + (size_t)first * base->n_vocab, (size_t)n * base->n_vocab * sizeof *logits);
}

/* w rows of which keep are right; the session goes on with the right one. Wants the session at the context, and leaves it there. */
static void verify(skua_session *s, const struct setting *set, const struct serial *base, int32_t w, int32_t keep, float *logits)
{
    skua_engine *e = s->engine;
    const int32_t n = set->context;
    int32_t rows[MOST];
    skua_error err = {0};
    skua_snapshot *at = NULL;
    for (int32_t i = 0; i < w; i++)
        rows[i] = i < keep ? ids[n + i] : wrong[n + i];
    CHECK(!skua_snapshot_take(s, &at, &err), "%s", err.message);
    eval(s, (skua_feed){.ids = rows, .n_ids = w, .hold = true, .want = SKUA_LOGITS_ALL, .logits = logits});
    bool ok = CHECK(same_rows(base, logits, 0, keep), "logits");
    ok &= CHECK(state_is(s, base->state[0]) && s->seq.n_pos == n, "the state moved");
    CHECK(!skua_commit(s, keep, &err), "%s", err.message);
    ok &= CHECK(s->seq.n_pos == n + keep && !memcmp(s->tokens + n, ids + n, (size_t)keep * sizeof *ids), "tokens");
    ok &= CHECK(state_is(s, base->state[keep]), "the state after the commit");
    eval(s, (skua_feed){.ids = ids + n + keep, .n_ids = 1, .want = SKUA_LOGITS_LAST, .logits = logits});
    ok &= CHECK(same_rows(base, logits, keep, 1) && state_is(s, base->state[keep + 1]), "the next token");
    if (!ok)
        printf("%s, %s, KV %s, %d threads, context %d: %d rows, %d kept\n", set->model, e->dev->kernels, set->kv_type, set->threads, n, w,
               keep);
    CHECK(!skua_session_restore(s, at, &err), "%s", err.message);
    skua_snapshot_free(at);
}

/* Rounds of 5 rows of which some stay, none at all, one, and 15; none of them sees what the ones before it rejected. */
static void alternate(skua_session *s, const struct setting *set, const struct serial *base, float *logits)
{
    static const int32_t widths[] = {6, 1, 2, MOST, 1};
    const int32_t n = set->context;
    skua_error err = {0};
    skua_snapshot *at = NULL;
    CHECK(!skua_snapshot_take(s, &at, &err), "%s", err.message);
    for (int32_t i = 0, done = 0; i < 5; i++) {
        int32_t w = widths[i], rows[MOST], keep = 1 + below(w < 4 ? w : 4);
        for (int32_t k = 0; k < w; k++)
            rows[k] = k < keep ? ids[n + done + k] : wrong[n + done + k];
        const bool hold = w > 1 || below(2);
        eval(s, (skua_feed){.ids = rows, .n_ids = w, .hold = hold, .want = SKUA_LOGITS_ALL, .logits = logits});
        CHECK(!hold || !skua_commit(s, keep, &err), "%s", err.message);
        CHECK(same_rows(base, logits, done, keep), "round %d: logits", i);
        done += keep;
        CHECK(state_is(s, base->state[done]) && s->seq.n_pos == n + done, "round %d: other state after %d rows", i, done);
    }
    CHECK(!skua_session_restore(s, at, &err), "%s", err.message);
    skua_snapshot_free(at);
}

static void check_setting(const struct setting *set, bool all)
{
    skua_engine *e;
    skua_error err = {0};
    struct serial base = {0};
    const skua_engine_params p = {.n_threads = set->threads, .cpu_tier = set->tier, .kv_type = set->kv_type,
                                  .precision = set->tier ? SKUA_PRECISION_AUTO : SKUA_PRECISION_REFERENCE};
    if (!CHECK(!skua_engine_open(set->model, &p, &e, &err), "%s", err.message))
        return;
    step_serially(e, set->context, &base);
    skua_session *s = session_at(e, set->context);
    float *logits = malloc(MOST * base.n_vocab * sizeof *logits);
    for (int32_t w = 1; w <= MOST; w++)
        for (int32_t keep = 0; keep <= w; keep++)
            if (all || keep == below(w + 1) || keep == w - w / 3)
                verify(s, set, &base, w, keep, logits);
    alternate(s, set, &base, logits);
    free(logits);
    skua_session_free(s);
    free_serial(&base);
    skua_engine_close(e);
}

static void check_all(const char *model)
{
    for (const char *const *tier = kern_tiers(); *tier; tier++)
        for (int kv = 0; kv < 4; kv++)
            for (int threads = 1; threads <= 2; threads++)
                for (int c = 0; c < N_CONTEXTS; c++)
                    check_setting(&(struct setting){model, kv_types[kv], *tier, threads, contexts[c]}, true);
}

/* Every tier and every context in some settings, the others as they come; one in reference precision. */
static void check_sample(const char *model, bool quick)
{
    int n_tiers = 0;
    while (kern_tiers()[n_tiers])
        n_tiers++;
    for (int i = 0; i < (quick ? 2 : N_CONTEXTS); i++)
        check_setting(&(struct setting){model, kv_types[below(4)], kern_tiers()[i % n_tiers], 1 + below(2),
                                        contexts[quick ? below(N_CONTEXTS) : i]}, false);
    check_setting(&(struct setting){model, "F32", NULL, 2, 255}, false);
}

int main(int argc, char **argv)
{
    static const char *const models[] = {"tiny-q8_0.gguf", "tiny-moe-q8_0.gguf"};
    const char *text = getenv("SKUA_TEST_SEED");
    rng = text ? strtoull(text, NULL, 10) : 1;
    printf("seed %llu\n", (unsigned long long)rng);
    for (int i = 0; i < N_IDS; i++) {
        ids[i] = (i * 7919 + 13) % 8000;
        wrong[i] = (i * 104729 + 5) % 8000;
    }
    for (int i = 0; i < 2; i++) {
        const char *found = support_model(models[i]);
        char model[4096];
        if (!found)
            continue;
        snprintf(model, sizeof model, "%s", found);
        if (argc > 1 && !strcmp(argv[1], "--full"))
            check_all(model);
        else
            check_sample(model, getenv("SKUA_TEST_QUICK") != NULL);
    }
    return support_finish("verify");
}
