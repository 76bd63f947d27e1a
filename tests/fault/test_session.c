/* Faults in session files and in held tokens. A save that fails leaves the file that was there; a load or an evaluation that fails leaves
 * nothing, and the session as it was. */
#include "fault/sweep.h"

#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

#define N_IDS 300

struct context {
    skua_engine *e;
    skua_session *s;        /* 260 tokens */
    const char *path;       /* holds 3 or 260 of them */
    int32_t ids[N_IDS];
};

static int32_t length_in_file(const struct context *c)
{
    skua_session *t = NULL;
    skua_error err = {0};
    CHECK(!skua_session_load(c->e, c->path, 0, &t, &err), "%s", err.message);
    const int32_t n = t ? skua_session_length(t) : -1;
    CHECK(n < 0 || !memcmp(skua_session_tokens(t), c->ids, (size_t)n * sizeof *c->ids), "other tokens");
    skua_session_free(t);
    return n;
}

static int save(void *user, skua_error *err)
{
    struct context *c = user;
    const int rc = skua_session_save(c->s, c->path, err);
    sweep_disarm();
    const int32_t n = length_in_file(c);
    CHECK(n == 260 || (rc && n == 3), "%d tokens in the file", n);
    return rc;
}

static int load(void *user, skua_error *err)
{
    struct context *c = user;
    skua_session *t = NULL;
    const int rc = skua_session_load(c->e, c->path, 0, &t, err);
    sweep_disarm();
    CHECK(!t == (rc != 0) && c->e->n_sessions == 1 + (t != NULL), "a session after an error");
    CHECK(!t || !memcmp(t->seq.state->host, c->s->seq.state->host, t->seq.state->size), "another state");
    skua_session_free(t);
    return rc;
}

/* A new session, so that memory for what is held is asked for. */
static int hold(void *user, skua_error *err)
{
    struct context *c = user;
    skua_session *t = NULL;
    int rc = skua_session_create(c->e, N_IDS, &t, err);
    skua_feed f = {.session = t, .ids = c->ids, .n_ids = 5};
    if (!rc)
        rc = skua_eval(c->e, &f, 1, NULL, NULL, err);
    f = (skua_feed){.session = t, .ids = c->ids + 5, .n_ids = 9, .hold = true};
    if (!rc)
        rc = skua_eval(c->e, &f, 1, NULL, NULL, err);
    if (!rc)
        rc = skua_commit(t, 4, err);
    sweep_disarm();
    CHECK(!c->e->n_pending && (!t || rc || skua_session_length(t) == 9), "held tokens after a failure");
    skua_session_free(t);
    return rc;
}

int main(void)
{
    const char *model = support_model("tiny-q8_0.gguf");
    struct context c = {0};
    skua_error err = {0};
    sweep_init();
    if (!model)
        return support_finish("test_session");
    for (int i = 0; i < N_IDS; i++)
        c.ids[i] = (i * 7919 + 13) % 8000;
    CHECK(!skua_engine_open(model, &(skua_engine_params){.n_threads = 2}, &c.e, &err), "%s", err.message);
    CHECK(!skua_session_create(c.e, N_IDS, &c.s, &err), "%s", err.message);
    c.path = support_temp("session");
    for (int32_t n = 3; n <= 260; n += 257) {
        skua_feed f = {.session = c.s, .ids = c.ids + skua_session_length(c.s), .n_ids = n - skua_session_length(c.s)};
        CHECK(!skua_eval(c.e, &f, 1, NULL, NULL, &err) && (n > 3 || !skua_session_save(c.s, c.path, &err)), "%s", err.message);
    }
    sweep("saving a session", save, &c, 60);
    sweep("loading a session", load, &c, 60);
    sweep("holding tokens", hold, &c, 60);
    skua_session_free(c.s);
    skua_engine_close(c.e);
    return support_finish("test_session");
}
