/* Faults while sessions are snapshotted, taken back and copied, while a pass is profiled, and in the commands that measure. */
#include "fault/command.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/cmd.h"
#include "engine/profile.h"

#define N_IDS 300
#define N_CTX 330

static int32_t ids[N_CTX];

struct where {
    const char *model;
    float *want; /* logits behind N_IDS tokens and one more; NULL: not known yet */
    size_t row;
};

static int eval(skua_session *s, const int32_t *tokens, int32_t n, float *logits, skua_error *err)
{
    skua_feed f = {.session = s, .ids = tokens, .n_ids = n, .want = logits ? SKUA_LOGITS_LAST : SKUA_LOGITS_NONE, .logits = logits};
    return skua_eval(s->engine, &f, 1, NULL, NULL, err);
}

/* After whatever failed: the session goes on as if nothing had been tried. */
static void check_session(const struct where *w, skua_session *s)
{
    float *got = malloc(w->row * sizeof *got);
    skua_error err = {0};
    sweep_disarm();
    CHECK(skua_session_length(s) == N_IDS && eval(s, ids + N_IDS, 1, got, &err) == 0, "%d tokens: %s", skua_session_length(s), err.message);
    CHECK(!w->want || memcmp(got, w->want, w->row * sizeof *got) == 0, "other logits");
    free(got);
}

static int there_and_back(void *context, skua_error *err)
{
    struct where *w = context;
    skua_engine_params params = {.n_threads = 2, .max_rows = 64};
    skua_engine *e = NULL;
    skua_session *s = NULL, *t = NULL;
    skua_snapshot *p = NULL;
    struct profile profile = {0};
    int rc = skua_engine_open(w->model, &params, &e, err);
    if (!rc)
        rc = skua_session_create(e, N_CTX, &s, err);
    if (!rc)
        rc = skua_session_create(e, N_CTX, &t, err);
    if (!rc)
        rc = eval(s, ids, N_IDS, NULL, err);
    if (!rc) {
        w->row = (size_t)skua_engine_get_info(e).n_vocab;
        rc = skua_snapshot_take(s, &p, err);
        CHECK(!rc == (p != NULL), "snapshot %p after %d", (void *)p, rc);
        if (rc)
            check_session(w, s);
    }
    if (!rc) {
        profile_attach(&profile, e);
        rc = eval(s, ids, 20, NULL, err);
        profile_detach(&profile);
        rc = rc ? rc : profile_check(&profile, err);
    }
    if (!rc)
        rc = skua_session_restore(s, p, err); /* allocates nothing */
    if (!rc) {
        rc = engine_session_copy(s, t, err);
        CHECK(skua_session_length(t) == (rc ? 0 : N_IDS), "a copy of %d tokens after %d", skua_session_length(t), rc);
        if (!rc)
            check_session(w, t);
        check_session(w, s);
    }
    skua_snapshot_free(p);
    profile_free(&profile);
    skua_session_free(s);
    skua_session_free(t);
    skua_engine_close(e);
    return rc;
}

static void make_reference(struct where *w)
{
    skua_engine *e;
    skua_session *s;
    skua_error err = {0};
    if (skua_engine_open(w->model, NULL, &e, &err) || skua_session_create(e, N_CTX, &s, &err))
        abort();
    w->row = (size_t)skua_engine_get_info(e).n_vocab;
    w->want = malloc(w->row * sizeof *w->want);
    CHECK(eval(s, ids, N_IDS + 1, w->want, &err) == 0, "%s", err.message);
    skua_session_free(s);
    skua_engine_close(e);
}

int main(void)
{
    const char *found = support_model("tiny-q8_0.gguf");
    char model[4096], csv[256], json[256], svg[256];
    sweep_init();
    if (!found)
        return support_finish("test_bench");
    snprintf(model, sizeof model, "%s", found);
    snprintf(csv, sizeof csv, "%s", support_temp("csv"));
    snprintf(json, sizeof json, "%s", support_temp("json"));
    snprintf(svg, sizeof svg, "%s", support_temp("svg"));
    for (int i = 0; i < N_CTX; i++)
        ids[i] = (i * 7919 + 13) % 8000;
    struct where w = {.model = model};
    make_reference(&w);
    sweep("there and back", there_and_back, &w, 30);
    free(w.want);
    const int points = getenv("SKUA_TEST_QUICK") ? 8 : 30;
    struct fault_command commands[] = {
        {.run = cmd_bench,
         .args = {"bench", "-m", model, "-r", "1", "--buffer", "1m", "--pp", "2", "--tg", "1", "--depth", "0,1", "--batch", "2",
                  "--seqs", "2", "--batch-depth", "1", "--draft", "auto", "--spec-sim", "0.5", "--profile", "--csv", csv, "--json",
                  json, "--plot", svg},
         .results = {csv, json, svg},
         .varies = true,
         .max_points = points},
        {.run = cmd_run,
         .args = {"run", "-m", model, "-q", "--temp", "0", "-t", "2", "-n", "2", "--raw", "--profile", "Once"},
         .streams = true,
         .max_points = 10},
        {.run = cmd_run,
         .args = {"run", "-m", model, "-q", "--temp", "0", "-t", "2", "-n", "12", "--raw", "--draft", "auto", "--draft-fixed", "3",
                  "one one"},
         .streams = true,
         .max_points = points},
    };
    fault_commands_sweep(commands, sizeof commands / sizeof *commands);
    return support_finish("test_bench");
}
