/* Snapshots: a session that went back is the session that it was, whatever came in between, with memcmp; and what is no session of the
 * snapshot is refused and left as it is. Copies of sessions. */
#include "engine_model.h"

#include "base/mem.h"
#include "engine/engine.h"

#define N_IDS 600 /* more than two KV pages */

static int32_t ids[N_IDS], foreign[N_IDS];
static size_t row;

static void eval(skua_session *s, const int32_t *tokens, int32_t n, float *logits)
{
    skua_error err = {0};
    skua_feed f = {.session = s, .ids = tokens, .n_ids = n, .want = logits ? SKUA_LOGITS_LAST : SKUA_LOGITS_NONE, .logits = logits};
    CHECK(skua_eval(s->engine, &f, 1, NULL, NULL, &err) == 0, "%s", err.message);
}

static skua_snapshot *take(const skua_session *s)
{
    skua_snapshot *p = NULL;
    skua_error err = {0};
    CHECK(skua_snapshot_take(s, &p, &err) == 0 && p, "%s", err.message);
    CHECK(skua_snapshot_length(p) == skua_session_length(s), "%d tokens", skua_snapshot_length(p));
    return p;
}

static void back(skua_session *s, const skua_snapshot *p)
{
    skua_error err = {0};
    CHECK(skua_session_restore(s, p, &err) == 0 && skua_session_length(s) == skua_snapshot_length(p), "%s", err.message);
}

/* The logits that a fresh session gives after n tokens and one more. */
static void fresh(skua_engine *e, const int32_t *tokens, int32_t n, float *logits)
{
    skua_session *s = session_open(e, N_IDS);
    eval(s, tokens, n, logits);
    skua_session_free(s);
}

static void test_restore(skua_engine *e, float *want, float *got)
{
    static const int32_t at[] = {0, 1, 255, 256, 257, 511};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        skua_session *s = session_open(e, N_IDS);
        if (at[i])
            eval(s, ids, at[i], NULL);
        skua_snapshot *p = take(s);
        fresh(e, ids, at[i] + 40, want);
        for (int round = 0; round < 3; round++) { /* other tokens in between, across the page's end or not at all */
            if (round)
                eval(s, foreign, round == 1 ? 3 : N_IDS - at[i], NULL);
            back(s, p);
            CHECK(!at[i] || memcmp(skua_session_tokens(s), ids, (size_t)at[i] * sizeof *ids) == 0, "tokens after going back to %d", at[i]);
            eval(s, ids + at[i], 40, got);
            CHECK(memcmp(got, want, row * sizeof *got) == 0, "back to %d, round %d: other logits", at[i], round);
            back(s, p);
        }
        skua_snapshot_free(p);
        skua_session_free(s);
    }
    skua_snapshot_free(NULL);
}

/* Two snapshots of one session, used in any order that its tokens allow; another session with the same tokens. */
static void test_several(skua_engine *e, float *want, float *got)
{
    skua_session *s = session_open(e, N_IDS), *t = session_open(e, N_IDS);
    eval(s, ids, 100, NULL);
    skua_snapshot *early = take(s);
    eval(s, ids + 100, 200, NULL);
    skua_snapshot *late = take(s);
    fresh(e, ids, 301, want);
    skua_error err = {0};
    back(s, early);
    CHECK(skua_session_restore(s, late, &err) == SKUA_ESTATE && SAYS(&err, SKUA_ESTATE, "100", "300") && skua_session_length(s) == 100,
          "forwards");
    eval(s, ids + 100, 200, NULL); /* the same tokens again: the late snapshot fits again */
    back(s, late);
    eval(s, ids + 300, 1, got);
    CHECK(memcmp(got, want, row * sizeof *got) == 0, "the late snapshot");
    eval(t, ids, 310, NULL);
    back(t, late);
    eval(t, ids + 300, 1, got);
    CHECK(memcmp(got, want, row * sizeof *got) == 0, "another session with the same tokens");
    skua_session_reset(t);
    eval(t, ids, 299, NULL);
    eval(t, foreign, 5, NULL);
    CHECK(skua_session_restore(t, late, &err) == SKUA_ESTATE && SAYS(&err, SKUA_ESTATE, "token 299"), "other tokens");
    CHECK(skua_session_restore(t, late, NULL) == SKUA_ESTATE && skua_session_length(t) == 304, "without an error object");
    eval(t, ids, 1, got); /* a refusal changes nothing */
    int32_t history[305];
    memcpy(history, skua_session_tokens(t), sizeof history);
    fresh(e, history, 305, want);
    CHECK(memcmp(got, want, row * sizeof *got) == 0, "after a refusal: other logits");
    skua_snapshot_free(early);
    skua_snapshot_free(late);
    skua_session_free(s);
    skua_session_free(t);
}

static void test_engines(const char *model, skua_engine *e)
{
    skua_engine *other = model_open(model, NULL);
    skua_session *s = session_open(e, 20), *t = session_open(other, 20);
    eval(s, ids, 5, NULL);
    eval(t, ids, 5, NULL);
    skua_snapshot *p = take(s);
    skua_error err = {0};
    CHECK(skua_session_restore(t, p, &err) == SKUA_ESTATE && SAYS(&err, SKUA_ESTATE, "another engine"), "a session of another engine");
    skua_session_free(s); /* a snapshot outlives its session */
    s = session_open(e, 20);
    eval(s, ids, 6, NULL);
    back(s, p);
    skua_snapshot_free(p);
    skua_session_free(s);
    skua_session_free(t);
    skua_engine_close(other);
}

static void test_copy(skua_engine *e, float *want, float *got)
{
    skua_session *s = session_open(e, N_IDS), *t = session_open(e, N_IDS), *narrow = session_open(e, 299);
    skua_error err = {0};
    CHECK(engine_session_copy(s, t, &err) == 0 && skua_session_length(t) == 0, "a copy of nothing: %s", err.message);
    eval(s, ids, 300, NULL);
    eval(t, foreign, 20, NULL);
    CHECK(engine_session_copy(s, t, &err) == 0 && skua_session_length(t) == 300, "%s", err.message);
    CHECK(memcmp(skua_session_tokens(s), skua_session_tokens(t), 300 * sizeof *ids) == 0, "tokens");
    eval(s, foreign, 7, NULL); /* each is its own */
    fresh(e, ids, 340, want);
    eval(t, ids + 300, 40, got);
    CHECK(memcmp(got, want, row * sizeof *got) == 0, "a copy goes on otherwise");
    eval(narrow, ids, 5, NULL);
    CHECK(engine_session_copy(s, narrow, &err) == SKUA_ELIMIT && SAYS(&err, SKUA_ELIMIT, "307", "299") && skua_session_length(narrow) == 0,
          "no room");
    skua_session_free(s);
    skua_session_free(t);
    skua_session_free(narrow);
}

int main(void)
{
    static const char *const models[] = {"tiny-q8_0.gguf", "tiny-moe-q8_0.gguf"};
    for (int i = 0; i < 2; i++) {
        const char *found = support_model(models[i]);
        char model[4096];
        if (!found)
            continue;
        snprintf(model, sizeof model, "%s", found);
        size_t live = mem_live_blocks();
        skua_engine *e = model_open(model, &(skua_engine_params){.n_threads = 2, .max_rows = 64});
        row = (size_t)skua_engine_get_info(e).n_vocab;
        for (int k = 0; k < N_IDS; k++) {
            ids[k] = (k * 7919 + 13) % 8000;
            foreign[k] = (k * 104729 + 5) % 8000;
        }
        float *want = malloc(row * sizeof *want), *got = malloc(row * sizeof *got);
        test_restore(e, want, got);
        test_several(e, want, got);
        test_engines(model, e);
        test_copy(e, want, got);
        free(want);
        free(got);
        skua_engine_close(e);
        CHECK(mem_live_blocks() == live, "%zu blocks are left", mem_live_blocks() - live);
    }
    return support_finish("test_engine_snapshot");
}
