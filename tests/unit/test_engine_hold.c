/* Held tokens through the public interface: several sessions in one evaluation, what the rows' listener is told, what is refused in which
 * state, and that every failure leaves a session that is what it was, or that says that it is lost. */
#include "engine_model.h"

#include "base/mem.h"
#include "engine/engine.h"

#define N_IDS 400
#define MAX_ROWS 64

static int32_t ids[N_IDS], wrong[N_IDS];
static size_t row;

static int eval(skua_engine *e, skua_feed *feeds, int32_t n, skua_error *err) { return skua_eval(e, feeds, n, NULL, NULL, err); }

static void append(skua_session *s, const int32_t *tokens, int32_t n, float *logits)
{
    skua_error err = {0};
    skua_feed f = {.session = s, .ids = tokens, .n_ids = n, .want = logits ? SKUA_LOGITS_LAST : SKUA_LOGITS_NONE, .logits = logits};
    CHECK(eval(s->engine, &f, 1, &err) == 0, "%s", err.message);
}

static void hold(skua_session *s, const int32_t *tokens, int32_t n)
{
    skua_error err = {0};
    skua_feed f = {.session = s, .ids = tokens, .n_ids = n, .hold = true};
    CHECK(eval(s->engine, &f, 1, &err) == 0 && f.n_done == n, "%s", err.message);
}

/* Is the session what a new one is after these tokens? */
static bool session_is(skua_session *s, const int32_t *tokens, int32_t n)
{
    skua_session *fresh = session_open(s->engine, N_IDS);
    float *want = malloc(row * sizeof *want), *got = malloc(row * sizeof *got);
    bool same = skua_session_length(s) == n && !s->n_held && !memcmp(s->tokens, tokens, (size_t)n * sizeof *tokens);
    append(fresh, tokens, n, NULL);
    same = same && !memcmp(s->seq.state->host, fresh->seq.state->host, s->seq.state->size);
    append(fresh, ids, 1, want);
    append(s, ids, 1, got);
    same = same && !memcmp(want, got, row * sizeof *want);
    free(want);
    free(got);
    skua_session_free(fresh);
    return same;
}

/* ---- several sessions ---- */

struct told {
    int n_calls;
    int32_t n_rows;
    bool ok;
};

/* Rows are told when the session holds them. */
static void listen(void *user, skua_session *s, const struct draft_rows *rows)
{
    struct told *t = user;
    t->n_calls++;
    t->n_rows += rows->n;
    t->ok &= rows->n > 0 && rows->pos + rows->n == skua_session_length(s) && rows->taps.buf && rows->hidden.buf
             && !memcmp(rows->ids, s->tokens + rows->pos, (size_t)rows->n * sizeof *rows->ids);
}

static void test_several(skua_engine *e)
{
    enum { N = 5 };
    static const int32_t width[N] = {8, 1, 16, 3, 20}, keep[N] = {5, 0, 16, 0, 20}; /* the fourth is not held */
    skua_session *s[N];
    skua_feed feeds[N];
    int32_t rows[N][32], best[N][32];
    float values[N][32], *logits = malloc(32 * row * sizeof *logits);
    skua_error err = {0};
    struct told told = {.ok = true};
    CHECK(forward_set_capture(e->forward, (int32_t[]){1}, 1, true, &err) == 0, "%s", err.message);
    for (int i = 0; i < N; i++) {
        s[i] = session_open(e, N_IDS);
        append(s[i], ids + i, 10 * (i + 1), NULL);
        for (int32_t k = 0; k < width[i]; k++)
            rows[i][k] = k < keep[i] || i == 3 ? ids[i + 10 * (i + 1) + k] : wrong[k];
        feeds[i] = (skua_feed){.session = s[i], .ids = rows[i], .n_ids = width[i], .hold = i != 3, .want = SKUA_LOGITS_ARGMAX_ALL,
                               .best_ids = best[i], .best_logits = values[i]};
    }
    e->on_rows = listen;
    e->on_rows_user = &told;
    CHECK(eval(e, feeds, N, &err) == 0, "%s", err.message);
    CHECK(told.n_calls == 1 && told.n_rows == 3 && told.ok, "only what is not held was told: %d", told.n_rows);
    for (int i = 0; i < N; i++) {
        CHECK(feeds[i].n_done == width[i] && skua_session_length(s[i]) == 10 * (i + 1) + (i == 3 ? 3 : 0), "session %d", i);
        if (i != 3)
            CHECK(skua_commit(s[i], keep[i], &err) == 0, "%s", err.message);
    }
    CHECK(told.n_calls == 4 && told.n_rows == 3 + 5 + 16 + 20 && told.ok, "%d calls, %d rows", told.n_calls, told.n_rows);
    e->on_rows = NULL;
    for (int i = 0; i < N; i++) {
        CHECK(session_is(s[i], ids + i, 10 * (i + 1) + (i == 3 ? 3 : keep[i])), "session %d after the commit", i);
        skua_session_reset(s[i]); /* the best of each row, against the rows of logits */
        append(s[i], ids + i, 10 * (i + 1), NULL);
        skua_feed f = {.session = s[i], .ids = rows[i], .n_ids = width[i], .want = SKUA_LOGITS_ALL, .logits = logits};
        CHECK(eval(e, &f, 1, &err) == 0, "%s", err.message);
        for (int32_t k = 0; k < width[i]; k++) {
            const float *l = logits + (size_t)k * row;
            int32_t at = -1;
            for (int32_t v = 0; v < (int32_t)row; v++)
                if ((e->samplable[v / 64] >> (v % 64) & 1) && (at < 0 || l[v] > l[at]))
                    at = v;
            CHECK(best[i][k] == at && values[i][k] == l[at], "session %d, row %d: %d, not %d", i, k, best[i][k], at);
        }
        skua_session_free(s[i]);
    }
    CHECK(forward_set_capture(e->forward, NULL, 0, false, &err) == 0, "%s", err.message);
    free(logits);
}

/* The rows told are the rows of the positions, whichever way they came in. */
struct kept_rows {
    float *hidden; /* [N_IDS][n_embd] */
};

static void keep_rows(void *user, skua_session *s, const struct draft_rows *rows)
{
    struct kept_rows *k = user;
    const size_t n = (size_t)s->engine->config.n_embd;
    for (int32_t i = 0; i < rows->n; i++)
        memcpy(k->hidden + (size_t)(rows->pos + i) * n, (const float *)kern_ptr(rows->hidden) + (size_t)i * (size_t)rows->hidden_stride,
               n * sizeof(float));
}

static void test_rows(skua_engine *e)
{
    const size_t bytes = N_IDS * (size_t)e->config.n_embd * sizeof(float);
    struct kept_rows k[2] = {{.hidden = calloc(1, bytes)}, {.hidden = calloc(1, bytes)}};
    skua_error err = {0};
    CHECK(forward_set_capture(e->forward, NULL, 0, true, &err) == 0, "%s", err.message);
    e->on_rows = keep_rows;
    for (int way = 0; way < 2; way++) {
        skua_session *s = session_open(e, N_IDS);
        e->on_rows_user = &k[way];
        append(s, ids, way ? 200 : 7, NULL); /* in several passes, or not */
        for (int32_t done = skua_session_length(s), n; done < 300; done += n) {
            n = way ? 1 : 13 + done % 4;
            n = n < 300 - done ? n : 300 - done;
            if (way) {
                append(s, ids + done, 1, NULL);
                continue;
            }
            int32_t rows[32];
            for (int32_t i = 0; i < 17; i++)
                rows[i] = i < n ? ids[done + i] : wrong[i];
            hold(s, rows, 17);
            CHECK(skua_commit(s, n, &err) == 0, "%s", err.message);
        }
        skua_session_free(s);
    }
    CHECK(!memcmp(k[0].hidden, k[1].hidden, 300 * (size_t)e->config.n_embd * sizeof(float)), "other rows");
    e->on_rows = NULL;
    CHECK(forward_set_capture(e->forward, NULL, 0, false, &err) == 0, "%s", err.message);
    free(k[0].hidden);
    free(k[1].hidden);
}

/* ---- states ---- */

static void test_states(skua_engine *e)
{
    skua_session *s = session_open(e, N_IDS), *t = session_open(e, N_IDS);
    skua_snapshot *p = NULL, *early = NULL;
    skua_error err = {0};
    skua_feed f = {.session = s, .ids = ids, .n_ids = 1};
    append(s, ids, 10, NULL);
    CHECK(skua_snapshot_take(s, &early, &err) == 0, "%s", err.message);
    const size_t bytes = skua_session_bytes(s);
    CHECK(skua_commit(s, 0, &err) == SKUA_ESTATE && SAYS(&err, SKUA_ESTATE, "no tokens", "held"), "nothing is held");
    hold(s, ids + 10, 5);
    CHECK(skua_session_bytes(s) == bytes + 8 * config_tape_row_bytes(&e->config), "the tape is counted");
    CHECK(skua_session_length(s) == 10, "%d", skua_session_length(s));
    CHECK(eval(e, &f, 1, &err) == SKUA_ESTATE && SAYS(&err, SKUA_ESTATE, "5", "held"), "the session");
    f.session = t;
    CHECK(eval(e, &f, 1, &err) == SKUA_ESTATE && SAYS(&err, SKUA_ESTATE, "another session", "held"), "another session");
    CHECK(skua_snapshot_take(s, &p, &err) == SKUA_ESTATE && !p && SAYS(&err, SKUA_ESTATE, "snapshot", "held"), "a snapshot");
    CHECK(skua_session_restore(s, early, &err) == SKUA_ESTATE && SAYS(&err, SKUA_ESTATE, "held"), "restoring");
    CHECK(engine_session_copy(s, t, &err) == SKUA_ESTATE && SAYS(&err, SKUA_ESTATE, "held"), "a copy");
    CHECK(skua_commit(s, -1, &err) == SKUA_EARG && skua_commit(s, 6, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "6", "5"), "numbers");
    CHECK(skua_commit(s, 3, &err) == 0, "%s", err.message);
    CHECK(skua_commit(s, 1, &err) == SKUA_ESTATE, "twice");
    CHECK(session_is(s, ids, 13), "after refusals");

    skua_session_reset(s);
    append(s, ids, 10, NULL);
    hold(s, wrong, 4);
    skua_session_reset(s);
    CHECK(skua_commit(s, 1, &err) == SKUA_ESTATE && skua_session_length(s) == 0, "a reset forgets what is held");
    append(s, ids, 3, NULL);
    CHECK(session_is(s, ids, 3), "after a reset");
    hold(s, wrong, 4);
    skua_session_free(s);
    CHECK(e->n_pending == 0, "so does freeing");
    append(t, ids, 3, NULL);
    CHECK(session_is(t, ids, 3), "another session afterwards");
    skua_session_free(t);
    skua_snapshot_free(early);
}

static void test_limits(skua_engine *e)
{
    skua_session *s = session_open(e, 40), *t = session_open(e, N_IDS);
    skua_error err = {0};
    skua_feed f[2] = {{.session = s, .ids = ids, .n_ids = SKUA_HOLD_MAX + 1, .hold = true}, {.session = t, .ids = ids, .n_ids = MAX_ROWS}};
    CHECK(eval(e, f, 1, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "33", "32"), "too many to hold");
    f[0].n_ids = 1;
    CHECK(eval(e, f, 2, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "65", "64"), "more than a pass");
    f[1].n_ids--;
    CHECK(eval(e, f, 2, &err) == 0 && skua_commit(s, 1, &err) == 0, "%s", err.message);
    append(s, ids, 30, NULL);
    f[0].n_ids = 10;
    CHECK(eval(e, f, 1, &err) == SKUA_ELIMIT && !e->n_pending, "held tokens need room in the context");
    f[0].n_ids = 9;
    CHECK(eval(e, f, 1, &err) == 0 && skua_commit(s, 9, &err) == 0 && skua_session_length(s) == 40, "%s", err.message);
    skua_session_free(s);
    skua_session_free(t);
}

/* ---- failures ---- */

/* Every allocation of a held evaluation: the session stays as it was, nothing is held. */
static void test_no_memory(skua_engine *e)
{
    skua_error err = {0};
    long failed = 0;
    for (uint64_t n = 1; n < 50; n++) {
        skua_session *s = session_open(e, N_IDS);
        append(s, ids, 256, NULL); /* the held rows are the first of a page */
        skua_feed f = {.session = s, .ids = wrong, .n_ids = 9, .hold = true};
        fault_set_alloc(n, false);
        const int rc = eval(e, &f, 1, &err);
        fault_set_alloc(0, false);
        if (!rc) {
            CHECK(skua_commit(s, 0, &err) == 0, "%s", err.message);
            skua_session_free(s);
            break;
        }
        failed++;
        CHECK(rc == SKUA_ENOMEM && f.n_done == 0 && !e->n_pending && skua_commit(s, 1, &err) == SKUA_ESTATE, "%s", err.message);
        CHECK(session_is(s, ids, 256), "allocation %d: another session", (int)n);
        skua_session_free(s);
    }
    CHECK(failed >= 2, "%ld failures", failed);
}

static int (*real_run)(struct dev *d, const struct kern_op *ops, int n_ops, const struct kern_batch *batch, skua_error *err);
static int runs_left;

static int failing_run(struct dev *d, const struct kern_op *ops, int n_ops, const struct kern_batch *batch, skua_error *err)
{
    return runs_left-- > 0 ? real_run(d, ops, n_ops, batch, err) : error_set(err, SKUA_EIO, "the device is gone");
}

/* A device that fails. */
static void test_device(skua_engine *e)
{
    const struct dev_ops *ops = e->dev->ops;
    struct dev_ops failing = *ops;
    skua_error err = {0};
    skua_snapshot *p = NULL;
    real_run = ops->run;
    failing.run = failing_run;
    float *logits = malloc(36 * row * sizeof *logits);
    skua_session *s = session_open(e, N_IDS), *t = session_open(e, N_IDS);
    append(s, ids, 20, NULL);
    append(t, ids, 20, NULL);
    CHECK(skua_snapshot_take(s, &p, &err) == 0, "%s", err.message);
    for (int after = 0; after < 2; after++) { /* in the trunk, and in the head for the rows beyond the first 32 */
        skua_feed f[2] = {{.session = t, .ids = ids + 20, .n_ids = 30, .want = SKUA_LOGITS_ALL, .logits = logits},
                          {.session = s, .ids = wrong, .n_ids = 6, .hold = true, .want = SKUA_LOGITS_ALL, .logits = logits}};
        e->dev->ops = &failing;
        runs_left = after;
        CHECK(eval(e, f, 2, &err) == SKUA_EIO && f[1].n_done == 0 && !e->n_pending, "%s", err.message);
        e->dev->ops = ops;
        CHECK(f[0].n_done == (after ? 30 : 0), "%d", f[0].n_done);
        CHECK(skua_session_length(s) == 20 && skua_commit(s, 1, &err) == SKUA_ESTATE, "held rows of a failed pass are forgotten");
    }
    CHECK(session_is(s, ids, 20) && session_is(t, ids, 50), "after failed passes");
    CHECK(skua_session_restore(s, p, &err) == 0, "%s", err.message);
    for (int how = 0; how < 2; how++) {
        hold(s, ids + 20, 4);
        e->dev->ops = &failing;
        runs_left = 0;
        CHECK(skua_commit(s, 2, &err) == SKUA_EIO && SAYS(&err, SKUA_EIO, "gone"), "%s", err.message);
        e->dev->ops = ops;
        skua_feed f = {.session = s, .ids = ids, .n_ids = 1};
        CHECK(eval(e, &f, 1, &err) == SKUA_ESTATE && SAYS(&err, SKUA_ESTATE, "lost", "reset"), "a lost session");
        CHECK(skua_commit(s, 0, &err) == SKUA_ESTATE && SAYS(&err, SKUA_ESTATE, "lost"), "a lost session");
        skua_snapshot *none = NULL;
        CHECK(skua_snapshot_take(s, &none, &err) == SKUA_ESTATE && !none, "a lost session");
        if (how)
            skua_session_reset(s);
        else
            CHECK(skua_session_restore(s, p, &err) == 0, "%s", err.message);
        append(s, ids + skua_session_length(s), 25 - skua_session_length(s), NULL);
        CHECK(session_is(s, ids, 25), "found again");
        skua_session_reset(s);
        append(s, ids, 20, NULL);
    }
    skua_snapshot_free(p);
    skua_session_free(s);
    skua_session_free(t);
    free(logits);
}

int main(void)
{
    static const char *const models[] = {"tiny-q8_0.gguf", "tiny-moe-q8_0.gguf"};
    for (int i = 0; i < 2; i++) {
        const char *found = support_model(models[i]);
        if (!found)
            continue;
        size_t live = mem_live_blocks();
        skua_engine *e = model_open(found, &(skua_engine_params){.n_threads = 2, .max_rows = MAX_ROWS});
        row = (size_t)skua_engine_get_info(e).n_vocab;
        for (int k = 0; k < N_IDS; k++) {
            ids[k] = (k * 7919 + 13) % 8000;
            wrong[k] = (k * 104729 + 5) % 8000;
        }
        test_several(e);
        test_rows(e);
        test_states(e);
        test_limits(e);
        test_no_memory(e);
        test_device(e);
        skua_engine_close(e);
        CHECK(mem_live_blocks() == live, "%zu blocks are left", mem_live_blocks() - live);
    }
    return support_finish("test_engine_hold");
}
