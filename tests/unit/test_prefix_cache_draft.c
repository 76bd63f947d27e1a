/* Drafters in the prefix cache: what they have cached comes back as it was, with memcmp, and they draft as in a session that evaluated
 * everything; their full pages are kept and written once, so that a conversation's checkpoints cost what its new tokens take. */
#include "prefix_bits.h"
#include "prefix_folder.h"

#include "base/mem.h"
#include "engine/prefix_cache_files.h"
#include "spec/mtp.h"

#define N_IDS 1500
#define MANY ((size_t)1 << 30)

static int32_t ids[N_IDS], other[N_IDS];
static bool quick; /* a part of each test, under sanitizers and in the emulator */

/* draft: a source; NULL: none. */
static skua_engine *open_engine(const char *draft)
{
    char model[4096];
    skua_error err = {0};
    skua_draft_params p = SKUA_DRAFT_DEFAULTS;
    const char *found = support_model("tiny-q8_0.gguf"), *file = draft && strchr(draft, '.') ? support_model(draft) : draft;
    if (!found || (draft && !file))
        return NULL;
    snprintf(model, sizeof model, "%s", support_model("tiny-q8_0.gguf"));
    skua_engine *e = model_open(model, &(skua_engine_params){.n_threads = 2, .max_rows = 64});
    p.source = file;
    p.fixed = 3;
    if (file)
        CHECK(!skua_engine_draft(e, &p, NULL, &err), "%s", err.message);
    return e;
}

/* All that a session's drafters keep. */
struct whole {
    char *data;
    size_t size;
};

static struct whole whole_of(const skua_session *s)
{
    struct whole w = {.size = session_draft_save_size(s, DRAFT_SAVE_WHOLE)};
    w.data = malloc(w.size + 1);
    session_draft_save(s, DRAFT_SAVE_WHOLE, w.data);
    return w;
}

static void check_whole(const skua_session *s, const struct whole *want, const char *what)
{
    struct whole w = whole_of(s);
    CHECK(w.size == want->size && !memcmp(w.data, want->data, w.size), "%s: behind %d tokens the drafters have %zu bytes; expected %zu",
          what, skua_session_length(s), w.size, want->size);
    free(w.data);
}

/* ids up to n, then the others. */
static const int32_t *mixed_at(int32_t n)
{
    static int32_t mixed[N_IDS];
    memcpy(mixed, ids, (size_t)n * sizeof *mixed);
    memcpy(mixed + n, other + n, (size_t)(N_IDS - n) * sizeof *mixed);
    return mixed;
}

/* Bytes of the pages that the session's drafters can share; *n: pages. */
static size_t shared_bytes(const skua_session *s, int64_t *n)
{
    struct draft_pages pages[SKUA_DRAFT_SOURCES];
    const struct seq *kv[SKUA_DRAFT_SOURCES];
    size_t bytes = 0;
    *n = 0;
    for (int32_t k = session_draft_kv(s, pages, kv) - 1; k >= 0; k--) {
        bytes += (size_t)(pages[k].n_pages * (int64_t)pages[k].page_bytes);
        *n += pages[k].n_pages;
    }
    return bytes;
}

/* ---- the same drafts ---- */

struct rounds {
    int32_t n, drafts[256], accepted;
};

static void add_round(void *user, const skua_draft_round *r)
{
    struct rounds *o = user;
    for (int32_t i = 0; i < r->n_drafts && o->n < 250; i++)
        o->drafts[o->n++] = r->drafts[i];
    o->drafts[o->n++] = -r->n_accepted - 1;
    o->accepted += r->n_accepted;
}

static bool go_on(void *user, const skua_event *event) { return user && event; }

static struct rounds answer(skua_session *s, int32_t last)
{
    static struct rounds o;
    skua_generate_params p = {.max_tokens = 24, .on_round = add_round};
    skua_result r;
    skua_error err = {0};
    o = (struct rounds){.n = 0};
    skua_sampling_defaults(s->engine, false, &p.sampling, &err);
    p.sampling.temperature = 0;
    CHECK(!skua_generate(s, &last, 1, &p, go_on, NULL, &o, &r, &err), "%s", err.message);
    return o;
}

static const int32_t places[] = {300, 600, 769, 860};
#define N_PLACES (quick ? 2 : (int)(sizeof places / sizeof *places))

/* n_caches: drafters that have one of their own, without windows. */
static void test_exact(const char *draft, int n_caches)
{
    skua_engine *e = open_engine(draft);
    if (!e)
        return;
    struct whole w[sizeof places / sizeof *places];
    new_folder("exact");
    struct prefix_cache *c = cache_open(e, MANY, dir, MANY);
    skua_session *s = session_open(e, N_IDS), *t = session_open(e, N_IDS);
    for (int i = 0; i < N_PLACES; i++) {
        eval_to(s, ids, places[i], NULL);
        cache_keep(c, s, PREFIX_BORDER);
        w[i] = whole_of(s);
    }
    int64_t n_pages;
    const size_t bytes = shared_bytes(s, &n_pages);
    CHECK(bytes == c->keepers.drafters.bytes && n_pages == n_caches * ((places[N_PLACES - 1] - 1) / KV_PAGE_ROWS),
          "%s: %lld pages, %zu bytes are shared", draft, (long long)n_pages, c->keepers.drafters.bytes);
    int32_t accepted = 0;
    for (int tier = PREFIX_RAM; tier <= PREFIX_DISK; tier++) {
        for (int i = 0; i < N_PLACES; i++) {
            const int32_t *p = mixed_at(places[i]), n = places[i] + 70;
            const struct prefix_hit hit = cache_take(c, t, p, n);
            CHECK(hit.n_tokens == places[i] && (int)hit.tier == tier, "%s: %d tokens found; expected %d", draft, hit.n_tokens, places[i]);
            check_whole(t, &w[i], draft);
            skua_session *warm = session_open(e, N_IDS), *cold = session_open(e, N_IDS); /* with schedulers that know nothing */
            cache_take(c, warm, p, n);
            eval_to(warm, p, n - 1, NULL);
            eval_to(cold, p, n - 1, NULL);
            const struct rounds a = answer(cold, p[n - 1]), b = answer(warm, p[n - 1]);
            CHECK(a.n > 0 && a.n == b.n && !memcmp(a.drafts, b.drafts, (size_t)a.n * sizeof *a.drafts), "%s: other drafts behind %d", draft,
                  places[i]);
            accepted += b.accepted;
            skua_session_free(warm);
            skua_session_free(cold);
        }
        prefix_cache_free(c);
        c = cache_open(e, 0, dir, MANY);
    }
    CHECK(accepted > 0, "%s: no draft was accepted", draft);
    check_whole(s, &w[N_PLACES - 1], draft);
    for (int i = 0; i < N_PLACES; i++)
        free(w[i].data);
    prefix_cache_free(c);
    skua_session_free(s);
    skua_session_free(t);
    drop_folder();
    skua_engine_close(e);
}

/* ---- what it costs ---- */

/* Checkpoints behind n, n + k and n + 2 k tokens: each costs its state, a bounded part of the drafters', and the new pages. */
static void test_cost(skua_engine *e)
{
    enum { BEGIN = 400, STEP = 2 * KV_PAGE_ROWS, N = 3 };
    const size_t page = skua_engine_get_info(e).kv_page_bytes, draft_page = config_mtp_page_bytes(&e->config, e->kv_type);
    size_t ram[N], files[N], fixed[N], whole[N];
    new_folder("cost");
    struct prefix_cache *c = cache_open(e, MANY, dir, MANY);
    skua_session *s = session_open(e, N_IDS);
    for (int i = 0; i < N; i++) {
        eval_to(s, ids, BEGIN + i * STEP, NULL);
        cache_keep(c, s, PREFIX_BORDER);
        prefix_cache_flush(c);
        ram[i] = c->kept_bytes + c->keepers.model.bytes + c->keepers.drafters.bytes;
        files[i] = folder_bytes();
        fixed[i] = session_draft_save_size(s, DRAFT_SAVE_REST);
        whole[i] = session_draft_save_size(s, DRAFT_SAVE_WHOLE);
        const size_t drafts = (size_t)(1 + 2 * i), waits = 65 * ((size_t)e->config.n_embd * sizeof(float) + sizeof(int32_t));
        CHECK(c->keepers.drafters.bytes == drafts * draft_page && c->keepers.model.bytes == (drafts + 1) * page
              && each_file(".draft", NULL, NULL) == (int)drafts && (size_t)cache_stats(c).disk_bytes == files[i],
              "checkpoint %d: %zu bytes of drafters' pages, %d files", i, c->keepers.drafters.bytes, each_file(".draft", NULL, NULL));
        CHECK(fixed[i] + drafts * draft_page == whole[i] && fixed[i] <= draft_page + waits + 1024,
              "checkpoint %d: a copy of %zu bytes of %zu", i, fixed[i], whole[i]);
    }
    for (int i = 1; i < N; i++) {
        const size_t pointers = (size_t)(4 + 4 * i) * sizeof(void *) - sizeof(void *); /* 4 + 3, then 6 + 5 pages */
        const size_t expected = sizeof(struct kept) + config_state_bytes(&e->config) + fixed[i] + 2 * (page + draft_page) + pointers;
        CHECK(ram[i] - ram[i - 1] == expected, "checkpoint %d costs %zu bytes of memory; expected %zu", i, ram[i] - ram[i - 1], expected);
    }
    CHECK(fixed[2] == fixed[1] && files[2] - files[1] == files[1] - files[0] + 3 * STEP * sizeof(int32_t),
          "checkpoints cost %zu and %zu bytes of files", files[1] - files[0], files[2] - files[1]); /* tokens: theirs, two pages' */
    printf("drafters' part of a checkpoint behind %d tokens: %zu bytes copied, %zu with its pages\n", BEGIN + 2 * STEP, fixed[2], whole[2]);
    prefix_cache_free(c);
    skua_session_free(s);
    drop_folder();
}

/* ---- which pages are the same ---- */

/* A page follows from the token behind it too: sequences that part there have pages of their own. */
static void test_parting(skua_engine *e, int32_t at, int n_pages)
{
    struct whole w[2];
    new_folder("parting");
    struct prefix_cache *c = cache_open(e, MANY, dir, MANY);
    skua_session *s = session_open(e, N_IDS);
    for (int i = 0; i < 2; i++) {
        skua_session_reset(s);
        eval_to(s, mixed_at(i ? at : N_IDS), 600, NULL);
        cache_keep(c, s, PREFIX_BORDER);
        w[i] = whole_of(s);
    }
    const size_t bytes = c->keepers.drafters.bytes;
    CHECK(bytes == (size_t)n_pages * config_mtp_page_bytes(&e->config, e->kv_type), "parting at %d: %zu bytes of pages", at, bytes);
    for (int tier = PREFIX_RAM; tier <= PREFIX_DISK; tier++) {
        for (int i = 0; i < 2; i++) {
            const struct prefix_hit hit = cache_take(c, s, mixed_at(i ? at : N_IDS), 650);
            CHECK(hit.n_tokens == 600 && (int)hit.tier == tier, "parting at %d: %d tokens found", at, hit.n_tokens);
            check_whole(s, &w[i], "parting");
        }
        prefix_cache_free(c);
        CHECK(each_file(".draft", NULL, NULL) == n_pages, "parting at %d: %d files", at, each_file(".draft", NULL, NULL));
        c = cache_open(e, 0, dir, MANY);
    }
    prefix_cache_free(c);
    skua_session_free(s);
    for (int i = 0; i < 2; i++)
        free(w[i].data);
    drop_folder();
}

/* Nobody writes to a page that is shared: the session goes back and on otherwise, answers with drafts, is filled from elsewhere. */
static void test_untouched(skua_engine *e)
{
    struct prefix_cache *c = cache_open(e, MANY, NULL, 0);
    skua_session *s = session_open(e, N_IDS), *t = session_open(e, N_IDS);
    skua_snapshot *early = NULL;
    eval_to(s, ids, 200, NULL);
    CHECK(!skua_snapshot_take(s, &early, NULL), "snapshot");
    eval_to(s, ids, 600, NULL);
    cache_keep(c, s, PREFIX_BORDER);
    struct whole w = whole_of(s);
    CHECK(!skua_session_restore(s, early, NULL), "restore");
    eval_to(s, other, 640, NULL);
    cache_take(c, t, ids, 650);
    check_whole(t, &w, "a session went back");
    answer(t, ids[600]);
    const size_t before = e->dev->allocated_bytes;
    CHECK(!engine_session_copy(s, t, NULL) && e->dev->allocated_bytes < before, "a copy takes pages"); /* those of t are given back */
    struct whole went_on = whole_of(s);
    check_whole(t, &went_on, "copied");
    answer(s, ids[640]);
    check_whole(t, &went_on, "copied, and the other one answered");
    free(went_on.data);
    cache_take(c, s, ids, 650);
    check_whole(s, &w, "a session answered");
    answer(s, ids[600]);
    prefix_cache_clear(c, true, true);
    CHECK(!c->keepers.drafters.bytes && !c->keepers.drafters.idle, "pages are left");
    eval_to(t, other, 700, NULL); /* outlives what was kept */
    prefix_cache_free(c);
    skua_snapshot_free(early);
    skua_session_free(s);
    skua_session_free(t);
    free(w.data);
}

/* ---- files ---- */

static void spoil(const char *path, void *user)
{
    const int how = *(const int *)user;
    FILE *f = how ? fopen(path, "r+b") : NULL;
    if (!how)
        unlink(path);
    else if (how == 1)
        CHECK(!truncate(path, 5000), "cannot cut");
    else
        CHECK(f && !fseek(f, -9, SEEK_END) && fputc(0x5a, f) != EOF && fputc(0xa5, f) != EOF, "cannot write");
    if (f)
        fclose(f);
}

/* A checkpoint whose drafters' page is damaged goes with it; one that was made with drafters serves without, and keeps their pages. */
static void test_files(skua_engine *e)
{
    new_folder("draft-files");
    skua_engine *plain = open_engine(NULL);
    struct prefix_cache *c = cache_open(e, MANY, dir, MANY);
    skua_session *s = session_open(e, N_IDS), *t = session_open(plain, N_IDS);
    eval_to(s, ids, 400, NULL);
    cache_keep(c, s, PREFIX_BORDER);
    struct whole w = whole_of(s);
    prefix_cache_free(c);
    for (int i = 0; i < 6; i++) { /* removed, cut, changed; before the cache is opened, or behind its back */
        const int how = i / 2;
        c = i % 2 ? cache_open(e, 0, dir, MANY) : NULL;
        CHECK(each_file(".draft", spoil, (void *)(uintptr_t)&how) == 1, "no file");
        c = c ? c : cache_open(e, 0, dir, MANY);
        CHECK(cache_take(c, s, ids, 450).n_tokens == 0 && cache_stats(c).load_errors >= 1 && cache_stats(c).n_disk == 0 && !folder_bytes(),
              "%d: a damaged page was used, or files are left", i);
        skua_session_reset(s);
        eval_to(s, ids, 400, NULL);
        cache_keep(c, s, PREFIX_BORDER);
        prefix_cache_free(c);
    }
    c = cache_open(plain, MANY, dir, MANY);
    CHECK(cache_take(c, t, ids, 450).n_tokens == 400 && cache_take(c, t, ids, 450).tier == PREFIX_RAM, "without drafters");
    prefix_cache_free(c);
    c = cache_open(e, 0, dir, MANY);
    CHECK(each_file(".draft", NULL, NULL) == 1 && cache_take(c, s, ids, 450).n_tokens == 400, "with drafters again");
    check_whole(s, &w, "with drafters again");
    prefix_cache_clear(c, true, true);
    CHECK(!folder_bytes(), "files are left");
    prefix_cache_free(c);
    skua_session_free(s);
    skua_session_free(t);
    skua_engine_close(plain);
    free(w.data);
    drop_folder();
}

int main(void)
{
    for (int k = 0; k < N_IDS; k++) {
        ids[k] = (k * 7919 + 13) % 8000;
        other[k] = (k * 104729 + 5) % 8000;
    }
    quick = getenv("SKUA_TEST_QUICK") != NULL;
    test_exact("mtp", 1);
    test_exact("tiny-dflash1-q8_0.gguf", 2);
    skua_engine *e = open_engine("mtp");
    if (e) {
        skua_session *first = session_open(e, 60);
        eval_to(first, ids, 20, NULL);
        answer(first, ids[20]); /* what the engine makes once */
        skua_session_free(first);
        const size_t live = mem_live_blocks(), allocated = e->dev->allocated_bytes;
        test_cost(e);
        test_parting(e, KV_PAGE_ROWS, 4);
        test_parting(e, KV_PAGE_ROWS + 1, 3);
        test_untouched(e);
        CHECK(mem_live_blocks() == live && e->dev->allocated_bytes == allocated, "memory is left");
        test_files(e);
        skua_engine_close(e);
    }
    return support_finish("test_prefix_cache_draft");
}
