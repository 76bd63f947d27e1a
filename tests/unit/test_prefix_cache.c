/* The prefix cache in memory: what is found is what evaluating gives, with memcmp; it finds what an oracle says; budgets hold; memory is
 * counted once. */
#include "prefix_bits.h"

#include <unistd.h>

#include "base/mem.h"

#define N_IDS 700

static int32_t ids[N_IDS], other[N_IDS];
static bool quick; /* a part of each test, under sanitizers and in the emulator */

/* ---- bits ---- */

struct variant {
    const char *model, *kv_type, *draft;
};
static const struct variant variants[] = {
    {"tiny-q8_0.gguf", NULL, NULL}, {"tiny-q8_0.gguf", "Q8_0", NULL}, {"tiny-q8_0.gguf", "Q8_0", "auto"},
    {"tiny-moe-q8_0.gguf", NULL, NULL}, {"tiny-moe-q8_0.gguf", "Q8_0", "auto"}, {"tiny-q8_0.gguf", NULL, "tiny-dflash2-q8_0.gguf"},
};
#define N_VARIANTS (int)(sizeof variants / sizeof *variants)

static skua_engine *variant_open(const struct variant *v)
{
    char model[4096];
    skua_error err = {0};
    skua_draft_params p = SKUA_DRAFT_DEFAULTS;
    const char *found = support_model(v->model), *file = v->draft && strchr(v->draft, '.') ? support_model(v->draft) : v->draft;
    if (!found || (v->draft && !file))
        return NULL;
    snprintf(model, sizeof model, "%s", found);
    skua_engine *e = model_open(model, &(skua_engine_params){.n_threads = 2, .max_rows = 64, .kv_type = v->kv_type});
    p.source = file;
    p.force = true;
    if (file)
        CHECK(!skua_engine_draft(e, &p, NULL, &err), "%s", err.message);
    return e;
}

/* Of each beginning, the checkpoints that it has: at[] rises; those of a token more than another are not kept. */
static void check_list(struct prefix_cache *c, const int32_t *at, size_t n_at)
{
    struct prefix_checkpoint all[64], some[2];
    const int32_t n_all = prefix_cache_list(c, ids, at[n_at - 1], all, 64);
    CHECK(n_all > 3 && all[0].n_tokens >= at[n_at - 1] - 1, "%d listed", n_all);
    for (int32_t i = 0; i < n_all; i++) {
        bool known = false;
        for (size_t k = 0; k < n_at; k++)
            known |= at[k] == all[i].n_tokens;
        CHECK(known && all[i].ram && !all[i].disk && all[i].bytes > 0 && (!i || all[i].n_tokens < all[i - 1].n_tokens), "number %d", i);
        const int32_t n = prefix_cache_list(c, ids, all[i].n_tokens, some, 2);
        CHECK(n == (n_all - i < 2 ? n_all - i : 2) && some[0].n_tokens == all[i].n_tokens, "%d below %d", n, all[i].n_tokens);
    }
    CHECK(n_all && !prefix_cache_list(c, ids, all[n_all - 1].n_tokens - 1, some, 2), "something below the shortest");
}

static bool lost_drafters(const skua_session *s)
{
    const skua_draft_stats st = skua_session_draft_stats(s);
    bool lost = false;
    for (int32_t i = 0; i < st.n_sources; i++)
        lost |= st.sources[i].lost;
    return lost;
}

static void test_bits(int variant)
{
    static const int32_t at[] = {1, 100, 255, 256, 257, 300, 511, 512, 600};
    const struct variant *v = &variants[variant];
    skua_engine *e = variant_open(v);
    if (!e)
        return;
    char what[128];
    skua_session *first = session_open(e, 40), *second = session_open(e, 40);
    check_goes_on(first, second, ids, 20, "nothing shared"); /* what the engine makes once */
    skua_session_free(first);
    skua_session_free(second);
    const size_t live = mem_live_blocks(), allocated = e->dev->allocated_bytes;
    struct prefix_cache *c = cache_open(e, (size_t)1 << 30, NULL, 0);
    skua_session *s = session_open(e, N_IDS + 20), *t = session_open(e, N_IDS + 20), *cold = session_open(e, N_IDS + 20);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        const uint64_t before = prefix_cache_changes(c);
        eval_to(s, ids, at[i], NULL);
        cache_keep(c, s, PREFIX_REGULAR);
        CHECK(prefix_cache_changes(c) > before, "a change unnoticed");
    }
    check_list(c, at, sizeof at / sizeof *at);
    snprintf(what, sizeof what, "%s, KV %s, drafts %s", v->model, v->kv_type ? v->kv_type : "F16", v->draft ? v->draft : "none");
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        if (at[i] == 256 || at[i] == 512 || (quick && i % 3 != 2)) /* one token behind another */
            continue;
        int32_t mixed[N_IDS];
        memcpy(mixed, ids, sizeof mixed);
        memcpy(mixed + at[i], other + at[i], (size_t)(N_IDS - at[i]) * sizeof *mixed);
        const int32_t n = at[i] + 40;
        const struct prefix_hit hit = cache_take(c, t, mixed, n);
        CHECK(hit.n_tokens == at[i] && hit.tier == PREFIX_RAM, "%s: %d tokens found; expected %d", what, hit.n_tokens, at[i]);
        CHECK(!lost_drafters(t), "%s: drafters are lost at %d", what, at[i]);
        skua_session_reset(cold);
        check_goes_on(t, cold, mixed, n, what);
    }
    skua_session_reset(cold);
    check_goes_on(s, cold, ids, 640, what); /* the session whose pages were shared all the time */
    skua_session_free(s);
    skua_session_free(t);
    prefix_cache_free(c);
    skua_session_free(cold);
    CHECK(mem_live_blocks() == live && e->dev->allocated_bytes == allocated, "%s: memory is left", what);
    skua_engine_close(e);
}

/* ---- sharing ---- */

/* Device memory is what sessions and the cache say they hold. */
static void check_memory(struct prefix_cache *c, skua_engine *e, size_t before, skua_session *const *sessions, int n, const char *where)
{
    size_t said = 0, states = 0;
    for (int i = 0; i < n; i++) {
        said += seq_bytes(&sessions[i]->seq);
        states += sessions[i]->seq.state->size;
    }
    prefix_cache_trim(c); /* tells what it holds now */
    const struct prefix_cache_stats st = cache_stats(c);
    const size_t held = e->dev->allocated_bytes - before, copies = (size_t)st.n_ram * config_state_bytes(&e->config);
    CHECK(said >= states && held >= said && (size_t)st.ram_bytes >= copies, "%s: sums", where);
    const size_t pages = held - said; /* of no session */
    CHECK((size_t)st.ram_bytes - copies >= pages && (size_t)st.ram_bytes - copies - pages < 4096 * (size_t)(st.n_ram + 1),
          "%s: the cache says %lld bytes, has %zu of states and %zu of pages", where, (long long)st.ram_bytes, copies, pages);
}

static void test_sharing(skua_engine *e)
{
    const size_t before = e->dev->allocated_bytes, page = skua_engine_get_info(e).kv_page_bytes;
    struct prefix_cache *c = cache_open(e, (size_t)1 << 30, NULL, 0);
    skua_session *s[3];
    for (int i = 0; i < 3; i++)
        s[i] = session_open(e, N_IDS);
    eval_to(s[0], ids, 600, NULL);
    const size_t alone = e->dev->allocated_bytes;
    cache_keep(c, s[0], PREFIX_BORDER);
    CHECK(e->dev->allocated_bytes == alone && cache_stats(c).kv_tokens_shared == 3 * 256, "keeping takes pages");
    check_memory(c, e, before, s, 3, "one session");
    cache_take(c, s[1], ids, 650);
    CHECK(engine_session_copy(s[0], s[2], NULL) == 0 && e->dev->allocated_bytes == alone, "copies take pages");
    check_memory(c, e, before, s, 3, "three sessions");
    eval_to(s[1], ids, 601, NULL);
    CHECK(e->dev->allocated_bytes == alone + page, "%zu bytes for a token behind a shared part; expected a page of %zu",
          e->dev->allocated_bytes - alone, page);
    eval_to(s[1], ids, 602, NULL);
    CHECK(e->dev->allocated_bytes == alone + page, "a page is copied twice");
    eval_to(s[2], other, 610, NULL);
    check_memory(c, e, before, s, 3, "diverged");
    skua_session_reset(s[0]);
    check_memory(c, e, before, s, 3, "one is reset");
    eval_to(s[0], ids, 602, NULL);
    CHECK(same_sessions(s[0], s[1]), "shared pages were written");
    /* a session that is taken back to before a shared page and goes on otherwise */
    skua_session_reset(s[2]);
    eval_to(s[2], ids, 200, NULL);
    skua_snapshot *early = NULL;
    CHECK(!skua_snapshot_take(s[2], &early, NULL), "snapshot");
    eval_to(s[2], ids, 640, NULL);
    cache_keep(c, s[2], PREFIX_BORDER);
    CHECK(!skua_session_restore(s[2], early, NULL), "restore");
    eval_to(s[2], other, 640, NULL);
    cache_take(c, s[1], ids, 650);
    skua_session_reset(s[0]);
    check_goes_on(s[1], s[0], ids, 650, "behind a session that went back");
    check_memory(c, e, before, s, 3, "went back");
    skua_snapshot_free(early);
    /* what a session evaluated by itself is kept once, and a shorter checkpoint's last page is the longer one's */
    prefix_cache_clear(c, true, true);
    for (int i = 0; i < 2; i++) {
        skua_session_reset(s[i]);
        eval_to(s[i], ids, i ? 640 : 600, NULL);
        cache_keep(c, s[i], PREFIX_BORDER);
    }
    skua_session_reset(s[0]);
    skua_session_reset(s[1]);
    check_memory(c, e, before, s, 3, "kept once");
    const size_t states = 2 * config_state_bytes(&e->config);
    CHECK((size_t)cache_stats(c).ram_bytes - states < 3 * page + 4096, "%zu bytes of pages; expected 3 of %zu",
          (size_t)cache_stats(c).ram_bytes - states, page);
    for (int32_t n = 601; n <= 650; n += 49) {
        CHECK(cache_take(c, s[1], ids, n).n_tokens == (n > 640 ? 640 : 600), "kept once");
        skua_session_reset(s[0]);
        check_goes_on(s[1], s[0], ids, n, "kept once");
    }
    for (int i = 0; i < 2; i++)
        skua_session_free(s[i]);
    prefix_cache_free(c);
    eval_to(s[2], other, 660, NULL); /* outlives the cache */
    skua_session_free(s[2]);
    CHECK(e->dev->allocated_bytes == before, "device memory is left");
}

/* ---- random conversations against an oracle ---- */

#define MOST 200
struct oracle {
    int32_t ids[MOST][320], n[MOST], count;
};

static int32_t common(const int32_t *a, int32_t n, const int32_t *b, int32_t m)
{
    int32_t i = 0;
    while (i < n && i < m && a[i] == b[i])
        i++;
    return i;
}

static void check_against(const struct oracle *o, struct prefix_cache *c, skua_session *s, const int32_t *p, int32_t n)
{
    int32_t longest = 0, known = 0, known_goes_on = 0;
    for (int32_t i = 0; i < o->count; i++) {
        const int32_t same = common(o->ids[i], o->n[i], p, n);
        if (same == o->n[i] && same < n && same > longest)
            longest = same;
        if (same > known || (same == known && o->n[i] > same))
            known_goes_on = same > known || !known_goes_on ? o->n[i] > same : known_goes_on;
        known = same > known ? same : known;
    }
    const struct prefix_hit hit = cache_take(c, s, p, n);
    CHECK(hit.n_tokens == longest, "%d of %d tokens found; expected %d", hit.n_tokens, n, longest);
    const bool diverged = known > 0 && known < n && known_goes_on;
    CHECK(hit.diverged_at == (diverged ? known : -1), "diverged at %d; expected %d", hit.diverged_at, diverged ? known : -1);
    const char *want = diverged ? "diverged" : "cold";
    if (longest >= n - 1)
        want = "";
    else if (known - longest > n - known)
        want = "no_checkpoint";
    CHECK(!strcmp(hit.miss_reason, want), "'%s'; expected '%s' (%d of %d found, %d known)", hit.miss_reason, want, longest, n, known);
    bool is_known = !hit.n_diverged_from; /* do the tokens from there belong to a known sequence? */
    for (int32_t i = 0; i < o->count && !is_known; i++)
        is_known = common(o->ids[i], o->n[i], p, n) == known && o->n[i] >= known + hit.n_diverged_from
                   && !memcmp(o->ids[i] + known, hit.diverged_from, (size_t)hit.n_diverged_from * sizeof *p)
                   && (known == n || o->ids[i][known] != p[known]);
    CHECK(is_known, "the tokens at %d belong to nobody", hit.diverged_at);
}

static void test_oracle(skua_engine *e, uint64_t seed)
{
    static struct oracle o;
    struct prefix_cache *c = cache_open(e, (size_t)1 << 30, NULL, 0);
    skua_session *s = session_open(e, 320), *t = session_open(e, 320);
    o.count = 0;
    for (int round = 0; round < (quick ? 40 : 80); round++) {
        int32_t p[320], n = 1 + (int32_t)draw(&seed, round % 8 ? 30 : 300);
        for (int32_t i = 0; i < n; i++) /* few tokens, so that much is in common */
            p[i] = 100 + (int32_t)draw(&seed, i < 3 || i % 7 == 0 ? 2 : 1);
        if (o.count && draw(&seed, 2)) { /* goes on from a known one, or a part of it */
            const int32_t k = (int32_t)draw(&seed, (uint32_t)o.count), most = o.n[k] < n ? o.n[k] : n;
            memcpy(p, o.ids[k], (size_t)(draw(&seed, 2) ? most : (int32_t)draw(&seed, (uint32_t)most + 1)) * sizeof *p);
        }
        check_against(&o, c, t, p, n);
        bool near = false; /* as good as there */
        for (int32_t i = 0; i < o.count; i++)
            near |= (o.n[i] == n || o.n[i] == n - 1) && !memcmp(o.ids[i], p, (size_t)o.n[i] * sizeof *p);
        const int64_t had = cache_stats(c).n_ram;
        skua_session_reset(s);
        eval_to(s, p, n, NULL);
        cache_keep(c, s, (enum prefix_worth)draw(&seed, 3));
        CHECK(cache_stats(c).n_ram == had + !near, "%d tokens, %d: kept or not", n, near);
        if (!near) {
            memcpy(o.ids[o.count], p, (size_t)n * sizeof *p);
            o.n[o.count++] = n;
        }
    }
    for (int32_t i = 0; i < o.count; i++)
        check_against(&o, c, t, o.ids[i], o.n[i]);
    prefix_cache_clear(c, true, true);
    const struct prefix_cache_stats st = cache_stats(c);
    CHECK(!st.n_ram && !st.ram_bytes && cache_take(c, t, o.ids[0], o.n[0]).n_tokens == 0, "cleared: %lld bytes", (long long)st.ram_bytes);
    CHECK(!strcmp(cache_take(c, t, o.ids[0], 2).miss_reason, "cold"), "cleared");
    prefix_cache_free(c);
    skua_session_free(s);
    skua_session_free(t);
}

/* ---- budgets ---- */

static void test_budget(skua_engine *e, uint64_t seed)
{
    const size_t state = config_state_bytes(&e->config), page = skua_engine_get_info(e).kv_page_bytes;
    const size_t before = e->dev->allocated_bytes;
    int64_t evicted = 0;
    skua_session *s[2] = {session_open(e, 600), session_open(e, 600)};
    for (int k = 0; k < 4; k++) {
        static const int states[] = {0, 1, 3, 8};
        const size_t budget = (size_t)states[k] * state + (k > 1 ? 3 * page : 4096);
        struct prefix_cache *c = cache_open(e, budget, NULL, 0);
        for (int round = 0; round < (quick ? 15 : 35); round++) {
            const int which = (int)draw(&seed, 2);
            if (draw(&seed, 3) == 0)
                skua_session_reset(s[which]);
            const int32_t at = skua_session_length(s[which]), n = at + 1 + (int32_t)draw(&seed, 80);
            if (n > 560) {
                skua_session_reset(s[which]);
                continue;
            }
            if (!at && draw(&seed, 2))
                cache_take(c, s[which], draw(&seed, 2) ? ids : other, 500);
            if (skua_session_length(s[which]) < n)
                eval_to(s[which], draw(&seed, 4) ? ids : other, n, NULL);
            cache_keep(c, s[which], (enum prefix_worth)draw(&seed, 3));
            const struct prefix_cache_stats st = cache_stats(c);
            CHECK(st.ram_bytes <= (int64_t)budget, "%lld bytes, the budget is %zu", (long long)st.ram_bytes, budget);
            check_memory(c, e, before, s, 2, "within a budget");
            CHECK(cache_stats(c).ram_bytes <= (int64_t)budget, "behind a trim");
        }
        const struct prefix_cache_stats st = cache_stats(c);
        const int64_t saves = st.saves[PREFIX_PASSING] + st.saves[PREFIX_REGULAR] + st.saves[PREFIX_BORDER];
        CHECK(states[k] ? saves > 0 && st.n_ram <= states[k] + 4 : !st.n_ram, "%lld checkpoints in %d states",
              (long long)st.n_ram, states[k]);
        evicted += st.evictions_ram;
        skua_session_reset(s[0]);
        skua_session_reset(s[1]);
        prefix_cache_free(c);
    }
    CHECK(evicted > 0, "nothing was evicted");
    for (int i = 0; i < 2; i++)
        skua_session_free(s[i]);
}

/* A large budget share goes to what is likely to come again: borders outlive passing places, and what was used what was not. */
static void test_worth(skua_engine *e)
{
    const size_t state = config_state_bytes(&e->config);
    struct prefix_cache *c = cache_open(e, 4 * state + 64 * 1024, NULL, 0);
    skua_session *s = session_open(e, 200), *t = session_open(e, 200);
    eval_to(s, ids, 40, NULL);
    cache_keep(c, s, PREFIX_BORDER);
    for (int32_t n = 50; n <= 180; n += 10) {
        eval_to(s, ids, n, NULL);
        cache_keep(c, s, PREFIX_PASSING);
    }
    const struct prefix_hit hit = cache_take(c, t, ids, 42);
    CHECK(cache_stats(c).evictions_ram > 0 && hit.n_tokens == 40, "the border was evicted: %d found", hit.n_tokens);
    int32_t mixed[200];
    memcpy(mixed, ids, sizeof mixed);
    memcpy(mixed + 65, other + 65, 15 * sizeof *mixed);
    const struct prefix_hit gone = cache_take(c, t, mixed, 66);
    CHECK(gone.n_tokens < 60 && !strcmp(gone.miss_reason, "evicted"), "'%s' at %d", gone.miss_reason, gone.n_tokens);
    prefix_cache_free(c);
    skua_session_free(s);
    skua_session_free(t);
}

/* ---- a conversation ---- */

/* Turns as a client's: the prompt with marks before the user's turn and before the generation prompt; the answer is kept at its end. */
struct turn {
    int32_t user_begin, prompt_end, answer_end;
};

/* Evaluate a prompt as the batcher does; returns the hit. */
static struct prefix_hit run_prompt(struct prefix_cache *c, skua_session *s, const int32_t *p, int32_t n, const int32_t *marks,
                                    int32_t n_marks)
{
    const struct prefix_hit hit = cache_take(c, s, p, n);
    for (int32_t done = hit.n_tokens; done < n;) {
        const int32_t next = prefix_cache_next(c, done, n, marks, n_marks);
        CHECK(next > done && next <= n, "next place %d behind %d of %d", next, done, n);
        eval_to(s, p, next, NULL);
        done = next;
        cache_keep(c, s, PREFIX_BORDER);
    }
    return hit;
}

/* dir: the cache is opened anew for each turn and has nothing but its files. */
static void test_conversation(skua_engine *e, bool thinking, const char *dir)
{
    const size_t ram = dir ? 0 : (size_t)1 << 28;
    enum { TURNS = 20, SYSTEM = 60, USER = 14, HEADER = 5, ANSWER = 16 };
    static int32_t p[TURNS * (USER + HEADER + ANSWER) + SYSTEM + 64];
    struct turn turns[TURNS];
    struct prefix_cache *c = cache_open(e, ram, dir, 0);
    skua_session *s = session_open(e, (int32_t)(sizeof p / sizeof *p));
    int32_t n = 0, asked = 0;
    for (; n < SYSTEM; n++)
        p[n] = ids[n];
    for (int k = 0; k < TURNS; k++) {
        struct turn *t = &turns[k];
        t->user_begin = n;
        for (int i = 0; i < USER + HEADER; i++, n++)
            p[n] = i < USER ? 1000 + (k * 31 + i * 7) % 5000 : 7000 + i;
        t->prompt_end = n;
        const int32_t marks[] = {SYSTEM, t->user_begin, n - HEADER};
        const struct prefix_hit hit = run_prompt(c, s, p, n, marks, 3);
        const int32_t expected = !k ? 0 : thinking ? turns[k - 1].prompt_end - 8 : turns[k - 1].answer_end - 8;
        CHECK(hit.n_tokens >= expected, "turn %d, thinking %d: %d tokens reused; expected %d", k, thinking, hit.n_tokens, expected);
        asked += n;
        for (int i = 0; i < ANSWER; i++, n++)
            p[n] = 2000 + (k * 13 + i) % 5000;
        eval_to(s, p, n - 1, NULL); /* the token that ends the answer is not evaluated */
        cache_keep(c, s, PREFIX_BORDER);
        t->answer_end = n;
        if (dir) {
            prefix_cache_free(c);
            c = cache_open(e, ram, dir, 0);
        }
        if (thinking) { /* the client sends another text back than what was answered, without the header's last tokens */
            n = t->prompt_end - 2;
            for (int i = 0; i < ANSWER - 6; i++, n++)
                p[n] = 2006 + (k * 13 + i) % 5000;
        }
    }
    const struct turn *last = &turns[TURNS - 1];
    const int32_t marks[] = {SYSTEM, last->user_begin, last->prompt_end - HEADER}, turn = last->prompt_end - last->user_begin;
    struct prefix_hit hit = cache_take(c, s, p, last->prompt_end - (thinking ? 2 : 0)); /* regenerate */
    CHECK(last->prompt_end - hit.n_tokens <= turn + 64, "regenerating reads %d tokens", last->prompt_end - hit.n_tokens);
    hit = cache_take(c, s, p, turns[TURNS - 2].prompt_end - (thinking ? 2 : 0)); /* the last turn is deleted, the one before comes again */
    CHECK(turns[TURNS - 2].prompt_end - hit.n_tokens <= turn + 64, "after deleting: %d tokens", turns[TURNS - 2].prompt_end - hit.n_tokens);
    p[last->user_begin + 3] = 77; /* another last message */
    hit = run_prompt(c, s, p, last->prompt_end, marks, 3);
    CHECK(last->prompt_end - hit.n_tokens <= turn + 64 && hit.diverged_at == last->user_begin + 3, "editing reads %d tokens, at %d",
          last->prompt_end - hit.n_tokens, hit.diverged_at);
    skua_session *cold = session_open(e, (int32_t)(sizeof p / sizeof *p));
    cache_take(c, s, p, last->prompt_end);
    check_goes_on(s, cold, p, last->prompt_end, "edited");
    CHECK(asked > 20 * 300, "a conversation of %d tokens", asked);
    CHECK(!cache_stats(c).load_errors && !dir == !cache_stats(c).loads, "%lld loads", (long long)cache_stats(c).loads);
    prefix_cache_clear(c, true, true);
    prefix_cache_free(c);
    skua_session_free(s);
    skua_session_free(cold);
}

/* ---- the rest ---- */

static void test_next(skua_engine *e)
{
    struct prefix_cache *c = cache_open(e, 0, NULL, 0); /* every 128 */
    static const int32_t marks[] = {30, 200, 290};
    static const struct {
        int32_t done, total, n_marks, next;
    } cases[] = {
        {0, 300, 3, 30}, {30, 300, 3, 128}, {128, 300, 3, 200}, {200, 300, 3, 256}, {256, 300, 3, 290}, {290, 300, 3, 300},
        {0, 300, 0, 128}, {256, 300, 0, 299}, {299, 300, 0, 300}, {0, 1, 0, 1}, {0, 2, 0, 1}, {0, 128, 0, 127}, {127, 128, 0, 128},
        {200, 250, 3, 250}, {200, 201, 3, 201}, {250, 300, 2, 256}, {256, 354, 3, 290}, {290, 354, 3, 354}, {290, 355, 3, 354},
        {0, 30, 1, 29},
        {INT32_MAX - 200, INT32_MAX, 0, INT32_MAX - 127},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int32_t next = prefix_cache_next(c, cases[i].done, cases[i].total, marks, cases[i].n_marks);
        CHECK(next == cases[i].next, "behind %d of %d with %d marks: %d, expected %d", cases[i].done, cases[i].total, cases[i].n_marks,
              next, cases[i].next);
    }
    prefix_cache_free(c);
}

static void test_refusals(skua_engine *e)
{
    struct prefix_cache *c = cache_open(e, (size_t)1 << 26, NULL, 0);
    skua_session *s = session_open(e, 60), *narrow = session_open(e, 30);
    struct prefix_hit hit;
    skua_error err = {0};
    cache_keep(c, s, PREFIX_BORDER); /* of nothing */
    CHECK(cache_stats(c).n_ram == 0, "a checkpoint of nothing");
    eval_to(s, ids, 50, NULL);
    CHECK(prefix_cache_take(c, s, ids, 50, &hit, &err) == SKUA_ESTATE && SAYS(&err, SKUA_ESTATE, "50", "empty"), "a session in use");
    cache_keep(c, s, PREFIX_BORDER);
    CHECK(cache_take(c, narrow, ids, 29).n_tokens == 0, "longer than the prompt");
    CHECK(cache_take(c, narrow, ids, 60).n_tokens == 0, "longer than the context");
    CHECK(cache_take(c, narrow, ids, 1).n_tokens == 0 && cache_take(c, narrow, ids, 50).n_tokens == 0, "all of the prompt");
    skua_feed f = {.session = s, .ids = ids, .n_ids = 4, .hold = true};
    CHECK(!skua_eval(e, &f, 1, NULL, NULL, &err) && prefix_cache_keep(c, s, PREFIX_BORDER, &err) == SKUA_ESTATE
          && SAYS(&err, SKUA_ESTATE, "held"), "held tokens");
    skua_session_free(s);
    skua_session_free(narrow);
    prefix_cache_free(c);
    prefix_cache_free(NULL);
}

int main(void)
{
    for (int k = 0; k < N_IDS; k++) {
        ids[k] = (k * 7919 + 13) % 8000;
        other[k] = (k * 104729 + 5) % 8000;
    }
    quick = getenv("SKUA_TEST_QUICK") != NULL;
    for (int i = quick ? 2 : 0; i < N_VARIANTS; i += quick ? N_VARIANTS : 1)
        test_bits(i);
    skua_engine *e = variant_open(&variants[0]);
    if (e) {
        test_sharing(e);
        for (uint64_t seed = 1; seed <= (quick ? 1 : 2); seed++)
            test_oracle(e, seed);
        test_budget(e, 7);
        test_worth(e);
        for (int thinking = 0; thinking < 2 && !quick; thinking++)
            test_conversation(e, thinking, NULL);
        char dir[4096], lock[4200];
        snprintf(dir, sizeof dir, "%s", support_temp("conversation"));
        snprintf(lock, sizeof lock, "%s/lock", dir);
        test_conversation(e, quick, dir);
        CHECK(!unlink(lock) && !rmdir(dir), "files are left");
        test_next(e);
        test_refusals(e);
        skua_engine_close(e);
    }
    return support_finish("test_prefix_cache");
}
