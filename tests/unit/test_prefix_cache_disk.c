/* The prefix cache's files: found again after a restart and after a kill, the same bits; what is damaged is never used; budgets hold. */
#include "prefix_bits.h"
#include "prefix_folder.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"

#define N_IDS 700
#define MANY ((size_t)1 << 30)

static int32_t ids[N_IDS], other[N_IDS];
static bool quick; /* a part of each test, under sanitizers and in the emulator */

/* ---- restarts ---- */

static skua_engine *open_engine(const char *name, const char *kv_type, const char *draft)
{
    skua_error err = {0};
    skua_draft_params p = SKUA_DRAFT_DEFAULTS;
    const char *found = support_model(name);
    skua_engine *e = found ? model_open(found, &(skua_engine_params){.n_threads = 2, .max_rows = 64, .kv_type = kv_type}) : NULL;
    p.source = draft;
    p.force = true;
    if (e && draft)
        CHECK(!skua_engine_draft(e, &p, NULL, &err), "%s", err.message);
    return e;
}

static const int32_t places[] = {100, 255, 300, 512, 600};
#define N_PLACES (quick ? 3u : sizeof places / sizeof *places)

static void keep_places(struct prefix_cache *c, skua_session *s)
{
    for (size_t i = 0; i < N_PLACES; i++) {
        eval_to(s, ids, places[i], NULL);
        cache_keep(c, s, PREFIX_REGULAR);
    }
}

static void check_places(skua_engine *e, struct prefix_cache *c, const char *what)
{
    skua_session *s = session_open(e, N_IDS), *cold = session_open(e, N_IDS);
    for (size_t i = 0; i < N_PLACES; i++) {
        int32_t mixed[N_IDS];
        memcpy(mixed, ids, sizeof mixed);
        memcpy(mixed + places[i], other + places[i], (size_t)(N_IDS - places[i]) * sizeof *mixed);
        const struct prefix_hit hit = cache_take(c, s, mixed, places[i] + 30);
        CHECK(hit.n_tokens == places[i] && hit.tier == PREFIX_DISK, "%s: %d tokens found; expected %d", what, hit.n_tokens, places[i]);
        const skua_draft_stats st = skua_session_draft_stats(s);
        for (int32_t k = 0; k < st.n_sources; k++)
            CHECK(!st.sources[k].lost, "%s: the drafters are lost", what);
        skua_session_reset(cold);
        check_goes_on(s, cold, mixed, places[i] + 30, what);
    }
    skua_session_free(s);
    skua_session_free(cold);
}

static void test_restart(const char *model, const char *kv_type, const char *draft)
{
    skua_engine *e = open_engine(model, kv_type, draft);
    char what[128];
    if (!e)
        return;
    const int32_t last = places[N_PLACES - 1], before = places[N_PLACES - 2];
    const int pages = last / KV_PAGE_ROWS + (draft ? (last - 1) / KV_PAGE_ROWS : 0); /* one drafter has a cache of its own */
    snprintf(what, sizeof what, "%s, KV %s, drafts %s", model, kv_type ? kv_type : "F16", draft ? draft : "none");
    new_folder("restart");
    for (int ram = 0; ram < 2; ram++) { /* also without memory */
        struct prefix_cache *c = cache_open(e, ram ? MANY : 0, dir, MANY);
        skua_session *s = session_open(e, N_IDS);
        keep_places(c, s);
        skua_session_free(s);
        prefix_cache_free(c);
        CHECK(each_file(".state", NULL, NULL) == (int)N_PLACES && each_file(".kv", NULL, NULL) == last / KV_PAGE_ROWS
              && each_file("", NULL, NULL) == (int)N_PLACES + pages + 1,
              "%s: %d files", what, each_file("", NULL, NULL));
        c = cache_open(e, 0, dir, MANY);
        struct prefix_cache_stats st = cache_stats(c);
        CHECK(st.n_disk == (int64_t)N_PLACES && (size_t)st.disk_bytes == folder_bytes() && !st.load_errors && !st.n_ram,
              "%s: %lld files of %lld bytes, there are %zu", what, (long long)st.n_disk, (long long)st.disk_bytes, folder_bytes());
        check_places(e, c, what);
        CHECK(cache_stats(c).loads == (int64_t)N_PLACES, "%s: loads", what);
        prefix_cache_free(c);
        c = cache_open(e, MANY, dir, MANY); /* what is read is kept in memory */
        s = session_open(e, N_IDS);
        CHECK(cache_take(c, s, ids, 650).tier == PREFIX_DISK && cache_take(c, s, ids, 650).tier == PREFIX_RAM, "%s: promotion", what);
        CHECK(cache_take(c, s, ids, before + 8).n_tokens == before, "%s: a shorter one", what);
        prefix_cache_clear(c, true, false);
        CHECK(cache_take(c, s, ids, 650).tier == PREFIX_DISK, "%s: memory is cleared", what);
        prefix_cache_clear(c, false, true);
        CHECK(cache_take(c, s, ids, 650).tier == PREFIX_RAM && each_file("", NULL, NULL) == 1, "%s: files are cleared", what);
        prefix_cache_flush(c);
        CHECK(cache_stats(c).n_disk == 1
              && each_file("", NULL, NULL) == pages + 2, "%s: flushed: %d files", what, each_file("", NULL, NULL));
        prefix_cache_clear(c, true, true);
        CHECK(cache_take(c, s, ids, 650).n_tokens == 0 && folder_bytes() == 0, "%s: all is cleared", what);
        skua_session_free(s);
        prefix_cache_free(c);
    }
    drop_folder();
    skua_engine_close(e);
}

/* A process that is killed while the cache is in use leaves what was written, and nothing that is half written is used. */
static void test_kill(void)
{
    new_folder("kill");
    for (int round = 0; round < (quick ? 2 : 3); round++) {
        int ready[2];
        if (!CHECK(!pipe(ready), "pipe"))
            return;
        fflush(stdout);
        const pid_t child = fork();
        if (!child) {
            skua_engine *e = open_engine("tiny-q8_0.gguf", NULL, NULL);
            struct prefix_cache *c = cache_open(e, MANY, dir, MANY);
            skua_session *s = session_open(e, N_IDS);
            keep_places(c, s);
            if (!round)
                prefix_cache_flush(c);
            const bool told = write(ready[1], "", 1) == 1;
            while (told) /* the writer is at work in rounds 1 and 2 */
                pause();
            _exit(1);
        }
        char byte;
        CHECK(read(ready[0], &byte, 1) == 1, "the child has ended");
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        close(ready[0]);
        close(ready[1]);
        char half[8192]; /* as a writer leaves it */
        snprintf(half, sizeof half, "%s/%032d.state.tmp.12345", dir, 7);
        FILE *f = fopen(half, "w");
        CHECK(f && fputs("half", f) >= 0 && !fclose(f), "cannot write %s", half);
        skua_engine *e = open_engine("tiny-q8_0.gguf", NULL, NULL);
        struct prefix_cache *c = cache_open(e, 0, dir, MANY);
        const struct prefix_cache_stats st = cache_stats(c);
        CHECK(st.load_errors == 0 && (size_t)st.disk_bytes == folder_bytes() && access(half, F_OK), "%lld damaged, %lld bytes for %zu",
              (long long)st.load_errors, (long long)st.disk_bytes, folder_bytes());
        if (!round || st.n_disk == (int64_t)N_PLACES)
            check_places(e, c, "killed");
        prefix_cache_free(c);
        skua_engine_close(e);
        if (round)
            each_file("", remove_file, NULL);
    }
    drop_folder();
}

/* ---- damage ---- */

struct damage {
    int how;      /* 0: a bit, 1: cut, 2: longer, 3: nothing left, 4: removed, 5: the contents of another file */
    uint64_t seed;
    double place; /* 0 .. 1 of the file */
    char saved_path[8192];
    char *saved;
    size_t size;
    int turn, which; /* the which-th file */
};

static char *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    char *data = NULL;
    *size = 0;
    if (f && !fseek(f, 0, SEEK_END)) {
        *size = (size_t)ftell(f);
        rewind(f);
        data = malloc(*size + 1);
        if (fread(data, 1, *size, f) != *size)
            *size = 0;
    }
    if (f)
        fclose(f);
    return data;
}

static void write_file(const char *path, const char *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(data, 1, size, f) == size && !fclose(f), "cannot write %s", path);
}

static void damage_file(const char *path, void *user)
{
    struct damage *d = user;
    if (d->turn++ != d->which)
        return;
    snprintf(d->saved_path, sizeof d->saved_path, "%s", path);
    d->saved = read_file(path, &d->size);
    const size_t at = (size_t)(d->place * (double)(d->size - 1));
    char *bytes = malloc(d->size + 8);
    memcpy(bytes, d->saved, d->size);
    bytes[at] ^= (char)(1 << draw(&d->seed, 8));
    memset(bytes + d->size, 0, 8);
    switch (d->how) {
    case 0: write_file(path, bytes, d->size); break;
    case 1: write_file(path, d->saved, at); break;
    case 2: memcpy(bytes, d->saved, d->size); write_file(path, bytes, d->size + 1 + draw(&d->seed, 7)); break;
    case 3: write_file(path, bytes, 0); break;
    default: unlink(path); break;
    }
    free(bytes);
}

/* One checkpoint behind 300 tokens: a page and a state. It is damaged before the cache is opened, or behind its back. */
static void test_damage(skua_engine *e)
{
    new_folder("damage");
    struct prefix_cache *c = cache_open(e, MANY, dir, MANY);
    skua_session *s = session_open(e, N_IDS), *cold = session_open(e, N_IDS);
    eval_to(s, ids, 300, NULL);
    cache_keep(c, s, PREFIX_BORDER);
    prefix_cache_free(c);
    for (int i = 0; i < 120; i += quick ? 7 : 2) {
        struct damage d = {.how = i % 6 < 2 ? i % 6 : i % 8 == 7 ? 2 + i / 8 % 3 : 0, .seed = (uint64_t)i, .place = i / 4 / 30.0,
                           .which = i & 1};
        const bool before = i & 2;
        const char *suffix = d.which ? ".state" : ".kv";
        d.which = 0;
        c = before ? NULL : cache_open(e, 0, dir, MANY);
        CHECK(each_file(suffix, damage_file, &d) == 1 && d.saved, "%d: no file", i);
        if (before)
            c = cache_open(e, 0, dir, MANY);
        const struct prefix_hit hit = cache_take(c, s, ids, 320);
        CHECK(hit.n_tokens == 0 && s->seq.n_pos == 0, "a damaged file was used: %d, place %g of %s", d.how, d.place, suffix);
        const struct prefix_cache_stats st = cache_stats(c);
        CHECK(st.n_disk == 0 && st.load_errors <= 2 && (st.load_errors >= 1 || (before && d.how == 4)),
              "%d at %g of %s: %lld files, %lld errors", d.how, d.place, suffix, (long long)st.n_disk, (long long)st.load_errors);
        if (i % 28 == 0) { /* the session can be used */
            skua_session_reset(cold);
            check_goes_on(s, cold, ids, 320, "behind a damaged file");
        }
        skua_session_reset(s); /* all comes back: what was damaged is removed, and written again */
        eval_to(s, ids, 300, NULL);
        cache_keep(c, s, PREFIX_BORDER);
        prefix_cache_flush(c);
        CHECK(each_file("", NULL, NULL) == 3 && cache_take(c, s, ids, 320).n_tokens == 300, "%d at %g of %s: not written again", d.how,
              d.place, suffix);
        prefix_cache_free(c);
        free(d.saved);
    }
    skua_session_free(s);
    skua_session_free(cold);
    drop_folder();
}

static void rename_to(const char *path, void *user)
{
    char **names = user;
    if (!names[0])
        names[0] = strdup(path);
    else if (!names[1])
        names[1] = strdup(path);
}

/* Whole, valid files under each other's names. */
static void test_swapped(skua_engine *e)
{
    for (int k = 0; k < 2; k++) {
        const char *suffix = k ? ".state" : ".kv";
        new_folder("swapped");
        struct prefix_cache *c = cache_open(e, MANY, dir, MANY);
        skua_session *s = session_open(e, N_IDS);
        eval_to(s, ids, 300, NULL);
        cache_keep(c, s, PREFIX_BORDER);
        skua_session_reset(s);
        eval_to(s, other, 300, NULL);
        cache_keep(c, s, PREFIX_BORDER);
        prefix_cache_free(c);
        char *names[2] = {NULL, NULL};
        each_file(suffix, rename_to, names);
        size_t n[2];
        char *data[2] = {read_file(names[0], &n[0]), read_file(names[1], &n[1])};
        write_file(names[0], data[1], n[1]);
        write_file(names[1], data[0], n[0]);
        c = cache_open(e, 0, dir, MANY);
        CHECK(cache_take(c, s, ids, 320).n_tokens == 0 && cache_take(c, s, other, 320).n_tokens == 0 && cache_stats(c).load_errors == 2,
              "swapped %s files: %lld errors", suffix, (long long)cache_stats(c).load_errors);
        CHECK(cache_stats(c).n_disk == 0 && folder_bytes() == (size_t)cache_stats(c).disk_bytes, "swapped %s files are left", suffix);
        prefix_cache_free(c);
        skua_session_free(s);
        for (int i = 0; i < 2; i++) {
            free(names[i]);
            free(data[i]);
        }
        drop_folder();
    }
}

/* ---- other models, other users ---- */

static void test_foreign(skua_engine *e)
{
    new_folder("foreign");
    skua_engine *q8 = open_engine("tiny-q8_0.gguf", "Q8_0", NULL), *moe = open_engine("tiny-moe-q8_0.gguf", NULL, NULL);
    skua_engine *all[3] = {e, q8, moe};
    size_t one = 0;
    for (int i = 0; i < 3 && moe; i++) {
        struct prefix_cache *c = cache_open(all[i], MANY, dir, MANY), *second = NULL;
        skua_session *s = session_open(all[i], N_IDS);
        skua_error err = {0};
        const struct prefix_hit hit = cache_take(c, s, ids, 320);
        CHECK(hit.n_tokens == 0 && !strcmp(hit.miss_reason, i ? "different_model" : "cold") && cache_stats(c).n_foreign == 2 * i,
              "engine %d: '%s', %lld foreign files", i, hit.miss_reason, (long long)cache_stats(c).n_foreign);
        eval_to(s, ids, 300, NULL);
        cache_keep(c, s, PREFIX_BORDER);
        prefix_cache_flush(c);
        CHECK((size_t)cache_stats(c).disk_bytes == folder_bytes() && cache_stats(c).n_disk == 1, "engine %d: bytes", i);
        CHECK(prefix_cache_create(e, &(struct prefix_cache_params){.disk_dir = dir}, &second, &err) == SKUA_EIO && !second
              && SAYS(&err, SKUA_EIO, "in use"), "two at once");
        skua_session_free(s);
        prefix_cache_free(c);
        one = i ? one : folder_bytes();
    }
    for (int i = 0; i < 3 && moe; i++) { /* each finds its own */
        struct prefix_cache *c = cache_open(all[i], 0, dir, MANY);
        skua_session *s = session_open(all[i], N_IDS);
        CHECK(cache_take(c, s, ids, 320).n_tokens == 300, "engine %d does not find its file", i);
        skua_session_free(s);
        prefix_cache_free(c);
    }
    if (moe) { /* others make room first */
        struct prefix_cache *c = cache_open(e, 0, dir, one + 100);
        const struct prefix_cache_stats st = cache_stats(c);
        CHECK(st.n_foreign == 0 && st.n_disk == 1 && st.evictions_disk == 4 && folder_bytes() == one, "%lld foreign files, %lld evicted",
              (long long)st.n_foreign, (long long)st.evictions_disk);
        prefix_cache_free(c);
    }
    skua_engine_close(q8);
    skua_engine_close(moe);
    drop_folder();
    skua_error err = {0};
    struct prefix_cache *c = NULL;
    snprintf(dir, sizeof dir, "%s", support_temp("no-folder"));
    write_file(dir, "", 0);
    CHECK(prefix_cache_create(e, &(struct prefix_cache_params){.disk_dir = dir}, &c, &err) == SKUA_EIO && !c
          && SAYS(&err, SKUA_EIO, "no-folder"), "a file in the folder's place");
    CHECK(prefix_cache_create(e, &(struct prefix_cache_params){.disk_dir = ""}, &c, &err) == SKUA_EIO && !c, "no name");
}

/* ---- the budget ---- */

static void test_budget(skua_engine *e, uint64_t seed)
{
    new_folder("budget");
    const size_t state = config_state_bytes(&e->config);
    int64_t evicted = 0;
    for (int round = 0; round < (quick ? 2 : 4); round++) {
        const size_t budget = (size_t)(round + 1) * state * 2;
        struct prefix_cache *c = cache_open(e, draw(&seed, 2) ? MANY : 0, dir, budget);
        skua_session *s = session_open(e, N_IDS), *t = session_open(e, N_IDS);
        CHECK(folder_bytes() <= budget, "opened: %zu bytes, the budget is %zu", folder_bytes(), budget);
        for (int k = 0; k < (quick ? 10 : 15); k++) {
            if (draw(&seed, 4) == 0)
                skua_session_reset(s);
            const int32_t n = skua_session_length(s) + 1 + (int32_t)draw(&seed, 60);
            if (n < 620)
                eval_to(s, k & 4 ? ids : other, n, NULL);
            cache_keep(c, s, PREFIX_REGULAR);
            CHECK(folder_bytes() <= budget && cache_stats(c).disk_bytes <= (int64_t)budget, "%zu bytes of files, the budget is %zu",
                  folder_bytes(), budget);
            cache_take(c, t, draw(&seed, 2) ? ids : other, 1 + (int32_t)draw(&seed, 600));
        }
        prefix_cache_flush(c);
        CHECK((size_t)cache_stats(c).disk_bytes == folder_bytes() && folder_bytes() <= budget, "%lld bytes said, %zu are there",
              (long long)cache_stats(c).disk_bytes, folder_bytes());
        evicted += cache_stats(c).evictions_disk;
        CHECK(!cache_stats(c).load_errors && !cache_stats(c).write_errors, "errors");
        prefix_cache_free(c);
        skua_session_free(s);
        skua_session_free(t);
    }
    CHECK(evicted > 0, "nothing was evicted");
    drop_folder();
}

int main(void)
{
    for (int k = 0; k < N_IDS; k++) {
        ids[k] = (k * 7919 + 13) % 8000;
        other[k] = (k * 104729 + 5) % 8000;
    }
    quick = getenv("SKUA_TEST_QUICK") != NULL;
    test_kill();
    if (!quick)
        test_restart("tiny-q8_0.gguf", NULL, NULL);
    test_restart("tiny-q8_0.gguf", "Q8_0", "auto");
    if (!quick)
        test_restart("tiny-moe-q8_0.gguf", "Q8_0", NULL);
    skua_engine *e = open_engine("tiny-q8_0.gguf", NULL, NULL);
    if (e) {
        test_damage(e);
        test_swapped(e);
        test_foreign(e);
        test_budget(e, 11);
        skua_engine_close(e);
    }
    return support_finish("test_prefix_cache_disk");
}
