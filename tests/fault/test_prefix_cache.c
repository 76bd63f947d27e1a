/* Faults in the prefix cache. What it cannot keep, write or read is not there; what it finds is right; and a session that could not be
 * filled is empty. */
#include "fault/sweep.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/prefix_cache.h"

#define N_IDS 340
#define KEPT 300

struct context {
    skua_engine *e;
    bool drafts;           /* an MTP block drafts: it has a full page too */
    skua_session *cold[2]; /* KEPT tokens, and 20 others behind them */
    char dir[4096];
    int32_t ids[2][N_IDS]; /* of one beginning of KEPT tokens */
};

static int eval(skua_session *s, const int32_t *ids, int32_t n, skua_error *err)
{
    const int32_t at = skua_session_length(s);
    skua_feed f = {.session = s, .ids = ids + at, .n_ids = n - at};
    return n > at ? skua_eval(s->engine, &f, 1, NULL, NULL, err) : 0;
}

static bool is_right(const struct context *c, const skua_session *s)
{
    const int32_t n = skua_session_length(s);
    const skua_session *want = c->cold[n != KEPT];
    return !memcmp(s->tokens, want->tokens, (size_t)n * sizeof *s->tokens)
           && !memcmp(s->seq.state->host, want->seq.state->host, s->seq.state->size)
           && !memcmp(s->seq.pages[0]->host, want->seq.pages[0]->host, s->seq.page_bytes);
}

/* Take what there is for ids into an empty session, and go on; a session that is filled is right in any case. */
static int take_and_go_on(struct context *c, struct prefix_cache *cache, skua_session *s, skua_error *err)
{
    struct prefix_hit hit;
    int rc = prefix_cache_take(cache, s, c->ids[1], KEPT + 20, &hit, err);
    CHECK(hit.n_tokens == skua_session_length(s) && (!hit.n_tokens || (!rc && hit.n_tokens == KEPT && is_right(c, s))),
          "%d tokens found, error %d", hit.n_tokens, rc);
    const int went_on = eval(s, c->ids[1], KEPT + 20, err);
    CHECK(went_on || is_right(c, s), "other bits behind %d found", hit.n_tokens);
    return rc ? rc : went_on;
}

static int in_memory(void *user, skua_error *err)
{
    struct context *c = user;
    struct prefix_cache *cache = NULL;
    skua_session *s = NULL, *t = NULL;
    const size_t state = config_state_bytes(&c->e->config);
    const size_t drafters = c->drafts ? 2 * config_mtp_page_bytes(&c->e->config, c->e->kv_type) : 0;
    const size_t budget = 2 * state + (64 << 10) + 2 * skua_engine_get_info(c->e).kv_page_bytes + drafters;
    int rc = prefix_cache_create(c->e, &(struct prefix_cache_params){.ram_bytes = budget}, &cache, err);
    CHECK(!cache == (rc != 0), "a cache after an error");
    if (!rc)
        rc = skua_session_create(c->e, N_IDS, &s, err);
    if (!rc)
        rc = skua_session_create(c->e, N_IDS, &t, err);
    static const int32_t places[] = {10, 20, 30, KEPT};
    for (int i = 0; i < 4 && !rc; i++) {
        rc = eval(s, c->ids[0], places[i], err);
        const int kept = rc ? 0 : prefix_cache_keep(cache, s, PREFIX_BORDER, err);
        CHECK(!kept || kept == SKUA_ENOMEM, "keeping: %d", kept);
        rc = rc ? rc : kept;
    }
    if (!rc)
        rc = take_and_go_on(c, cache, t, err);
    sweep_disarm();
    if (cache) {
        struct prefix_cache_stats st;
        prefix_cache_get_stats(cache, &st);
        CHECK(st.ram_bytes <= (int64_t)budget && st.n_ram <= 3, "%lld bytes", (long long)st.ram_bytes);
    }
    skua_session_free(t);
    prefix_cache_free(cache);
    skua_session_free(s);
    return rc;
}

static long folder(const char *dir, bool remove)
{
    DIR *d = opendir(dir);
    long n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[8192];
        n += e->d_name[0] != '.' && strcmp(e->d_name, "lock") != 0;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (remove && e->d_name[0] != '.')
            unlink(path);
    }
    if (d)
        closedir(d);
    return n;
}

/* A cache over the folder with what the engine's file has; write: a checkpoint is kept first. */
static int with_files(struct context *c, bool write, skua_error *err)
{
    struct prefix_cache *cache = NULL;
    skua_session *s = NULL;
    int rc = prefix_cache_create(c->e, &(struct prefix_cache_params){.ram_bytes = 0, .disk_dir = c->dir}, &cache, err);
    CHECK(!cache == (rc != 0), "a cache after an error");
    if (!rc)
        rc = skua_session_create(c->e, N_IDS, &s, err);
    if (!rc && write)
        rc = eval(s, c->ids[0], KEPT, err);
    if (!rc && write)
        rc = prefix_cache_keep(cache, s, PREFIX_BORDER, err);
    if (!rc && write)
        skua_session_reset(s);
    if (!rc)
        rc = take_and_go_on(c, cache, s, err);
    skua_session_free(s);
    prefix_cache_free(cache);
    return rc;
}

/* What the folder has afterwards can be used, and a cache that knows it knows all. */
static void check_folder(struct context *c, const char *what)
{
    struct prefix_cache *cache = NULL;
    struct prefix_cache_stats st;
    struct prefix_hit hit;
    skua_session *s = NULL;
    skua_error err = {0};
    CHECK(!prefix_cache_create(c->e, &(struct prefix_cache_params){.disk_dir = c->dir}, &cache, &err), "%s: %s", what, err.message);
    prefix_cache_get_stats(cache, &st);
    const long n = folder(c->dir, false);
    /* a drafter that a failure took away has no page in it */
    CHECK(st.n_disk <= 1 && (n == (2 + c->drafts) * st.n_disk || n == 2 * st.n_disk), "%s: %ld files for %lld checkpoints", what, n,
          (long long)st.n_disk);
    CHECK(!skua_session_create(c->e, N_IDS, &s, &err) && !prefix_cache_take(cache, s, c->ids[0], KEPT + 1, &hit, &err)
          && hit.n_tokens == (st.n_disk ? KEPT : 0) && (!hit.n_tokens || is_right(c, s)), "%s: %d tokens found", what, hit.n_tokens);
    skua_session_free(s);
    prefix_cache_free(cache);
}

static int writing(void *user, skua_error *err)
{
    struct context *c = user;
    const int rc = with_files(c, true, err);
    sweep_disarm();
    check_folder(c, "written");
    folder(c->dir, true);
    return rc;
}

static int reading(void *user, skua_error *err)
{
    struct context *c = user;
    const int rc = with_files(c, false, err);
    sweep_disarm();
    check_folder(c, "read");
    if (!folder(c->dir, false)) { /* taken for damaged: there again for the next one */
        skua_error other = {0};
        CHECK(!with_files(c, true, &other) && folder(c->dir, false) == 2 + c->drafts, "%s", other.message);
    }
    return rc;
}

static void all_sweeps(struct context *c, int points)
{
    skua_error err = {0};
    snprintf(c->dir, sizeof c->dir, "%s", support_temp("cache"));
    CHECK(!in_memory(c, &err), "%s", err.message); /* what the engine makes once */
    sweep(c->drafts ? "a prefix cache in memory, with drafters" : "a prefix cache in memory", in_memory, c, points);
    sweep(c->drafts ? "writing a prefix cache's files, with drafters" : "writing a prefix cache's files", writing, c, points);
    CHECK(!with_files(c, true, &err), "%s", err.message);
    sweep(c->drafts ? "reading a prefix cache's files, with drafters" : "reading a prefix cache's files", reading, c, points);
    folder(c->dir, true);
    rmdir(c->dir);
}

int main(void)
{
    const char *model = support_model("tiny-q8_0.gguf");
    static struct context c;
    skua_error err = {0};
    sweep_init();
    if (!model)
        return support_finish("test_prefix_cache");
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < N_IDS; i++)
            c.ids[k][i] = (i * 7919 + 13 + (i < KEPT ? 0 : k)) % 8000;
    CHECK(!skua_engine_open(model, &(skua_engine_params){.n_threads = 2}, &c.e, &err), "%s", err.message);
    for (int k = 0; k < 2; k++)
        CHECK(!skua_session_create(c.e, N_IDS, &c.cold[k], &err) && !eval(c.cold[k], c.ids[k], k ? KEPT + 20 : KEPT, &err), "%s",
              err.message);
    const int points = getenv("SKUA_TEST_QUICK") ? 8 : 30; /* for the sanitizers */
    all_sweeps(&c, points);
    skua_engine *plain = c.e;
    skua_draft_params p = SKUA_DRAFT_DEFAULTS;
    p.source = "mtp";
    c.drafts = true;
    CHECK(!skua_engine_open(model, &(skua_engine_params){.n_threads = 2}, &c.e, &err) && !skua_engine_draft(c.e, &p, NULL, &err), "%s",
          err.message);
    all_sweeps(&c, points / 2);
    skua_engine_close(c.e);
    for (int k = 0; k < 2; k++)
        skua_session_free(c.cold[k]);
    skua_engine_close(plain);
    return support_finish("test_prefix_cache");
}
