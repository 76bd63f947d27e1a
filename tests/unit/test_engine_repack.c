/* Weights in the device's own layout (tiles): who gets them, what they take, and that nothing else is different: the same logits, bit for
 * bit, for one row, some and many, in every tier, tied head or not, dense and with experts; every failure on the way. */
#include "engine_model.h"

#include "base/mem.h"
#include "engine/engine.h"
#include "quant/type.h"
#include "support/recode.h"

#define N_IDS 60
#define N_BEST 12 /* rows whose best tokens lie in several blocks of the head */

static int32_t ids[N_IDS];

struct progress {
    uint64_t done, total;
    int calls;
};

static void note(void *user, uint64_t done, uint64_t total)
{
    struct progress *p = user;
    CHECK(done >= p->done && done <= total && (p->total == 0 || p->total == total), "progress %llu of %llu after %llu of %llu",
          (unsigned long long)done, (unsigned long long)total, (unsigned long long)p->done, (unsigned long long)p->total);
    *p = (struct progress){done, total, p->calls + 1};
}

/* Logits of a prompt's end, of rows together, of one more, and the best tokens of several rows. */
static size_t answer(skua_engine *e, float *out)
{
    const size_t row = (size_t)skua_engine_get_info(e).n_vocab;
    skua_session *s = session_open(e, 0);
    skua_error err = {0};
    int32_t best[N_BEST];
    skua_feed feeds[] = {{.session = s, .ids = ids, .n_ids = 40, .want = SKUA_LOGITS_LAST, .logits = out},
                         {.session = s, .ids = ids + 40, .n_ids = 5, .want = SKUA_LOGITS_ALL, .logits = out + row},
                         {.session = s, .ids = ids + 45, .n_ids = 1, .want = SKUA_LOGITS_LAST, .logits = out + 6 * row},
                         {.session = s, .ids = ids + 46, .n_ids = N_BEST, .want = SKUA_LOGITS_ARGMAX_ALL, .best_ids = best,
                          .best_logits = out + 7 * row}};
    for (size_t i = 0; i < sizeof feeds / sizeof *feeds; i++)
        CHECK(skua_eval(e, &feeds[i], 1, NULL, NULL, &err) == 0, "%s", err.message);
    for (int i = 0; i < N_BEST; i++)
        out[7 * row + N_BEST + (size_t)i] = (float)best[i];
    skua_session_free(s);
    return 7 * row + 2 * N_BEST;
}

static skua_engine *open_repacked(const char *path, const char *tier, enum skua_repack repack, struct progress *p)
{
    const skua_engine_params params = {.n_threads = 2, .cpu_tier = tier, .repack = repack, .on_progress = note, .progress_user = p};
    *p = (struct progress){0};
    return model_open(path, &params);
}

/* A model of a type that has tiles, or none. */
static void test_layouts(const char *path, bool tiled)
{
    struct progress p;
    skua_engine *e = open_repacked(path, "scalar", SKUA_REPACK_ON, &p);
    const skua_engine_info info = skua_engine_get_info(e);
    const size_t room = 7 * (size_t)info.n_vocab + 2 * N_BEST;
    float *want = mem_alloc(room * sizeof *want), *got = mem_alloc(room * sizeof *got);
    CHECK(want && got, "memory");
    CHECK(info.repacked_bytes == 0 && p.calls == 0, "plain C has no tiles: %zu bytes", info.repacked_bytes);
    CHECK(answer(e, want) == room, "an answer");
    skua_engine_close(e);
    for (const char *const *tier = kern_tiers(); *tier; tier++)
        for (int repack = SKUA_REPACK_AUTO; repack <= SKUA_REPACK_OFF; repack++) {
            const bool has = kern_select(*tier)->tile_rows > 0 && tiled && repack != SKUA_REPACK_OFF;
            e = open_repacked(path, *tier, (enum skua_repack)repack, &p);
            const size_t bytes = skua_engine_get_info(e).repacked_bytes;
            CHECK((bytes > 0) == has && bytes <= info.file_bytes, "%s, %d: %zu bytes repacked", *tier, repack, bytes);
            CHECK(has ? p.calls > 1 && p.done == bytes && p.done <= p.total : p.calls == 0, "%s, %d: told %llu of %llu", *tier, repack,
                  (unsigned long long)p.done, (unsigned long long)p.total);
            CHECK(e->dev->allocated_bytes >= bytes, "%zu bytes allocated", e->dev->allocated_bytes);
            CHECK(answer(e, got) == room && memcmp(got, want, room * sizeof *got) == 0, "%s, %d: other logits", *tier, repack);
            skua_engine_close(e);
        }
    mem_free(want);
    mem_free(got);
}

/* Opening fails at every allocation and says so, and nothing stays (the sanitizers watch). */
static void test_failures(const char *path)
{
    const skua_engine_params params = {.n_threads = 1, .repack = SKUA_REPACK_ON};
    skua_engine *e;
    skua_error err;
    fault_set_alloc(0, false);
    CHECK(skua_engine_open(path, &params, &e, &err) == 0, "%s", err.message);
    const uint64_t n = fault_alloc_count();
    skua_engine_close(e);
    for (uint64_t i = 1; i <= n; i += i < n - 200 ? 97 : 5) { /* weights come last: a fifth of theirs, fewer of the others */
        fault_set_alloc(i, true);
        const int rc = skua_engine_open(path, &params, &e, &err);
        fault_set_alloc(0, false);
        CHECK(rc == SKUA_ENOMEM ? !e && err.message[0] : rc == 0 && e, "allocation %llu of %llu: %d", (unsigned long long)i,
              (unsigned long long)n, rc);
        skua_engine_close(e);
    }
}

static const char *recoded(const char *from, const char *name, int type)
{
    if (!CHECK(recode_model(from, name, type, 7) == 0, "cannot make %s", name))
        exit(1);
    return support_temp(name);
}

int main(void)
{
    static const int types[] = {QTYPE_Q4_K, QTYPE_Q5_K, QTYPE_Q6_K};
    const char *const dense = "models/tiny-q8_0.gguf";
    const bool quick = getenv("SKUA_TEST_QUICK"); /* sanitizers, emulators: the kernels themselves are tested elsewhere */
    for (int i = 0; i < N_IDS; i++)
        ids[i] = (i * 37 + 11) % 1000;
    for (size_t i = 0; i < (quick ? 1 : sizeof types / sizeof *types); i++)
        test_layouts(recoded(dense, "repack.gguf", types[i]), true);
    test_failures(recoded(dense, "repack.gguf", QTYPE_Q4_K));
    test_layouts(dense, false);
    const char *moe = quick ? NULL : support_shared("models/tiny-moe-q8_0.gguf");
    if (moe)
        test_layouts(recoded(moe, "repack.gguf", QTYPE_Q4_K), true);
    return support_finish("test_engine_repack");
}
