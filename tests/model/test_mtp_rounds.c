/* Answers drafted by MTP blocks and verified by their model are those of plain decoding, token for token, and leave the same state, with
 * memcmp: every depth, threads, small passes, dense and MoE, two sessions side by side. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "spec/mtp.h"
#include "support/support.h"

#define N_MAX 400

/* A session with its drafter. */
struct drafted {
    skua_session *s;
    struct drafter *d;
    int32_t anchor;
    int32_t rounds;
};

static struct drafted two[2];

static void hear(void *user, skua_session *s, const struct draft_rows *rows)
{
    struct drafted *all = user;
    skua_error err = {0};
    for (int i = 0; i < 2; i++)
        if (all[i].s == s && all[i].d)
            CHECK(all[i].d->ops->extend(all[i].d, rows, &err) == 0, "%s", err.message);
}

static void must(int rc, const skua_error *err)
{
    if (rc) {
        printf("%s\n", err->message);
        exit(1);
    }
}

/* An empty session and its drafter hear the prompt. */
static void start(skua_engine *e, struct drafted *x, const int32_t *ids, int32_t n)
{
    skua_error err = {0};
    const struct mtp_model m = {.config = &e->config, .weights = &e->weights.mtp, .forward = e->forward, .dev = e->dev,
                                .kv_type = e->kv_type, .max_rows = e->max_rows, .name = "mtp (bundled)"};
    *x = (struct drafted){0};
    must(skua_session_create(e, N_MAX, &x->s, &err), &err);
    must(mtp_create(&m, &x->d, &err), &err);
    skua_feed f = {.session = x->s, .ids = ids, .n_ids = n, .want = SKUA_LOGITS_ARGMAX};
    must(skua_eval(e, &f, 1, NULL, NULL, &err), &err);
    x->anchor = f.best_id;
}

/* One round of both sessions, verified in one evaluation. */
static void round_of(skua_engine *e, int n_sessions, int32_t depth)
{
    int32_t ids[2][SKUA_HOLD_MAX], best[2][SKUA_HOLD_MAX];
    float logits[2][SKUA_HOLD_MAX];
    skua_feed f[2];
    skua_error err = {0};
    for (int i = 0; i < n_sessions; i++) {
        static struct draft out;
        const struct draft_request q = {.anchor = two[i].anchor, .n_max = depth};
        must(two[i].d->ops->propose(two[i].d, &q, &out, &err), &err);
        CHECK(two[i].d->n_pos == skua_session_length(two[i].s), "the drafter has %d rows, the session %d", two[i].d->n_pos,
              skua_session_length(two[i].s));
        ids[i][0] = two[i].anchor;
        memcpy(ids[i] + 1, out.ids, (size_t)out.n * sizeof *out.ids);
        f[i] = (skua_feed){.session = two[i].s, .ids = ids[i], .n_ids = 1 + out.n, .want = SKUA_LOGITS_ARGMAX_ALL, .hold = true,
                           .best_ids = best[i], .best_logits = logits[i]};
    }
    must(skua_eval(e, f, n_sessions, NULL, NULL, &err), &err);
    for (int i = 0; i < n_sessions; i++) {
        int32_t a = 0;
        while (a + 1 < f[i].n_ids && ids[i][a + 1] == best[i][a])
            a++;
        must(skua_commit(two[i].s, a + 1, &err), &err);
        two[i].anchor = best[i][a];
        two[i].rounds++;
    }
}

/* What a session holds is what plain decoding makes of its prompt. */
static void check_plain(skua_engine *e, const struct drafted *x, int32_t n_prompt, const char *where)
{
    const int32_t n = skua_session_length(x->s), *tokens = skua_session_tokens(x->s);
    skua_session *plain = NULL;
    skua_snapshot *a = NULL, *b = NULL;
    skua_error err = {0};
    must(skua_session_create(e, N_MAX, &plain, &err), &err);
    skua_feed f = {.session = plain, .ids = tokens, .n_ids = n_prompt, .want = SKUA_LOGITS_ARGMAX};
    must(skua_eval(e, &f, 1, NULL, NULL, &err), &err);
    for (int32_t i = n_prompt; i < n; i++) {
        if (!CHECK(tokens[i] == f.best_id, "%s: token %d is %d, plain decoding says %d", where, i, tokens[i], f.best_id))
            break;
        f.ids = tokens + i;
        f.n_ids = 1;
        must(skua_eval(e, &f, 1, NULL, NULL, &err), &err);
    }
    CHECK(x->anchor == f.best_id, "%s: the next token is %d, plain decoding says %d", where, x->anchor, f.best_id);
    must(skua_snapshot_take(x->s, &a, &err), &err);
    must(skua_snapshot_take(plain, &b, &err), &err);
    CHECK(!memcmp(a->state, b->state, config_state_bytes(&e->config)), "%s: another state", where);
    skua_snapshot_free(a);
    skua_snapshot_free(b);
    skua_session_free(plain);
}

static void test_depth(skua_engine *e, const char *const *prompts, int n_sessions, int32_t depth)
{
    int32_t n_prompt[2], rounds = 0, tokens = 0;
    char where[80];
    skua_error err = {0};
    for (int i = 0; i < n_sessions; i++) {
        int32_t *ids;
        size_t n;
        must(skua_tokenize(e, prompts[i], strlen(prompts[i]), true, &ids, &n, &err), &err);
        n_prompt[i] = (int32_t)n;
        start(e, &two[i], ids, n_prompt[i]);
        skua_free(ids);
    }
    while (skua_session_length(two[0].s) < n_prompt[0] + 60)
        round_of(e, n_sessions, depth);
    for (int i = 0; i < n_sessions; i++) {
        snprintf(where, sizeof where, "%s, depth %d, session %d of %d", e->config.arch, depth, i, n_sessions);
        check_plain(e, &two[i], n_prompt[i], where);
        rounds += two[i].rounds;
        tokens += skua_session_length(two[i].s) - n_prompt[i];
        two[i].d->ops->free(two[i].d);
        skua_session_free(two[i].s);
        two[i].s = NULL;
    }
    CHECK(tokens > rounds + rounds / 3, "%s, depth %d: %d tokens in %d rounds", e->config.arch, depth, tokens, rounds);
}

int main(void)
{
    static const char *const prompts[] = {
        "<|im_start|>user\nTell me a story about a fox and an owl.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        "def factorial(n):\n    if n <= 1:\n        return 1\n",
    };
    static const struct {
        const char *model;
        skua_engine_params params;
    } runs[] = {
        {"tiny-q8_0.gguf", {.n_threads = 1}},
        {"tiny-q8_0.gguf", {.n_threads = 2, .max_rows = 40, .kv_type = "Q8_0"}},
        {"tiny-moe-q8_0.gguf", {.n_threads = 2}},
    };
    static const int32_t depths[] = {1, 2, 4, 7, 15};
    const bool quick = getenv("SKUA_TEST_QUICK"); /* for the sanitizers: one depth of each run */
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        const char *path = support_model(runs[i].model);
        skua_engine *e = NULL;
        skua_error err = {0};
        if (!path)
            continue;
        must(skua_engine_open(path, &runs[i].params, &e, &err), &err);
        must(forward_set_capture(e->forward, NULL, 0, true, &err), &err);
        e->on_rows = hear;
        e->on_rows_user = two;
        for (size_t k = quick ? i + 1 : 0; k < (quick ? i + 2 : sizeof depths / sizeof *depths); k++) {
            test_depth(e, prompts + k % 2, 1, depths[k]);
            test_depth(e, prompts, 2, depths[k]);
        }
        skua_engine_close(e);
    }
    return support_finish("mtp_rounds");
}
