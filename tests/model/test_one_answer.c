/* Promise P1, one answer: the logits of every position and the state of the sequence are the same bits however the tokens are split
 * into evaluations, with any number of threads, alone or beside another sequence, in every CPU tier.
 *
 * For each model (dense, MoE) and weight type a baseline is taken: 1,000 tokens in one call, one thread, the best tier. Every other
 * way to evaluate them must reproduce it with memcmp: all logits, the recurrent state, the KV cache.
 *   --full   the whole matrix: types x models x tiers x splits x threads x {alone, beside}
 *   default  a sample of it, drawn by SKUA_TEST_SEED (default 1); with SKUA_TEST_QUICK=1 (for the sanitizers) a smaller one over 300
 *            tokens, which still cross a page of the KV cache */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "quant/type.h"
#include "support/recode.h"
#include "support/support.h"

#define N_TOKENS 1000
#define N_BESIDE 700
#define N_TYPES (N_RECODE_TYPES + 1) /* and a mixture */

static const int splits[] = {1, 3, 7, 64, 512, N_TOKENS};
#define N_SPLITS 6

struct way {
    const char *tier, *kv_type;
    int threads, split;
    bool beside;
};

struct result {
    float *logits;   /* [n_tokens][n_vocab] */
    char *memory;    /* state, then KV pages */
    size_t logits_bytes, memory_bytes;
};

static int n_tokens = N_TOKENS;
static int32_t tokens[N_TOKENS], beside_tokens[N_BESIDE];

static void make_tokens(uint64_t seed)
{
    /* ordinary tokens of the test vocabulary */
    for (int i = 0; i < n_tokens; i++)
        tokens[i] = (int32_t)(rng_bits(seed, (uint64_t)i, 0) % 8000);
    for (int i = 0; i < N_BESIDE; i++)
        beside_tokens[i] = (int32_t)(rng_bits(seed, (uint64_t)i, 1) % 8000);
}

static int32_t part(int32_t total, int32_t done, int split) { return total - done < split ? total - done : split; }

/* Evaluate the tokens in the given way on an engine. */
static bool evaluate(skua_engine *e, const struct way *w, float *logits, skua_session **main_session)
{
    skua_session *s, *other = NULL;
    skua_error err = {0};
    size_t n_vocab = (size_t)e->config.n_vocab;
    int32_t done = 0, other_done = 0;
    if (!CHECK(!skua_session_create(e, 0, &s, &err), "%s", err.message))
        return false;
    if (w->beside && !CHECK(!skua_session_create(e, 0, &other, &err), "%s", err.message))
        return false;
    while (done < n_tokens) {
        skua_feed feeds[2];
        int n = 0;
        int32_t k = part(n_tokens, done, w->split), other_k = part(N_BESIDE, other_done, w->split);
        if (other && other_k) /* the neighbour comes first, so that rows move */
            feeds[n++] = (skua_feed){.session = other, .ids = beside_tokens + other_done, .n_ids = other_k, .want = SKUA_LOGITS_NONE};
        feeds[n++] = (skua_feed){.session = s, .ids = tokens + done, .n_ids = k, .want = SKUA_LOGITS_ALL,
                                 .logits = logits + (size_t)done * n_vocab};
        if (!CHECK(!skua_eval(e, feeds, n, NULL, NULL, &err), "%s", err.message))
            return false;
        done += k;
        other_done += other ? other_k : 0;
    }
    skua_session_free(other);
    *main_session = s;
    return true;
}

/* All device memory of a session, one piece after the other. */
static size_t session_memory(const skua_session *s, char *out)
{
    size_t n = s->seq.state->size;
    if (out)
        memcpy(out, s->seq.state->host, n);
    for (int32_t i = 0; i < s->seq.n_pages; i++) {
        if (out)
            memcpy(out + n, s->seq.pages[i]->host, s->seq.page_bytes);
        n += s->seq.page_bytes;
    }
    return n;
}

static bool run_way(const char *model, const struct way *w, struct result *r)
{
    skua_engine *e;
    skua_session *s = NULL;
    skua_error err = {0};
    skua_engine_params p = {.n_threads = w->threads, .cpu_tier = w->tier, .kv_type = w->kv_type};
    *r = (struct result){0};
    if (!CHECK(!skua_engine_open(model, &p, &e, &err), "%s", err.message))
        return false;
    CHECK(strcmp(e->dev->kernels, w->tier) == 0, "tier %s was asked for, %s runs", w->tier, e->dev->kernels);
    r->logits_bytes = (size_t)n_tokens * (size_t)e->config.n_vocab * sizeof(float);
    r->logits = malloc(r->logits_bytes);
    bool ok = r->logits && evaluate(e, w, r->logits, &s);
    if (ok) {
        r->memory_bytes = session_memory(s, NULL);
        r->memory = malloc(r->memory_bytes);
        session_memory(s, r->memory);
    }
    skua_session_free(s);
    skua_engine_close(e);
    return ok;
}

static void free_result(struct result *r)
{
    free(r->logits);
    free(r->memory);
}

static void compare(const char *model_name, const char *model, const struct way *w, const struct result *baseline)
{
    struct result r;
    double start = clock_seconds();
    if (run_way(model, w, &r)) {
        size_t n = (size_t)n_tokens, row = r.logits_bytes / n, at = 0;
        while (at < n && !memcmp((char *)r.logits + at * row, (char *)baseline->logits + at * row, row))
            at++;
        CHECK(at == n, "%s, %s, KV %s, split %d, %d threads%s: logits differ from position %zu on", model_name, w->tier,
              w->kv_type, w->split, w->threads, w->beside ? ", beside another" : "", at);
        CHECK(r.memory_bytes == baseline->memory_bytes && !memcmp(r.memory, baseline->memory, r.memory_bytes),
              "%s, %s, KV %s, split %d, %d threads%s: states differ", model_name, w->tier, w->kv_type, w->split, w->threads,
              w->beside ? ", beside another" : "");
    }
    free_result(&r);
    if (getenv("SKUA_TEST_VERBOSE"))
        printf("%s %s %s split %d threads %d beside %d: %.1f s\n", model_name, w->tier, w->kv_type, w->split, w->threads, w->beside,
               clock_seconds() - start);
}

/* A baseline that is a function of nothing would make every comparison pass. */
static void check_baseline(const char *name, const struct result *b)
{
    size_t n = (size_t)n_tokens, row = b->logits_bytes / n;
    long different = 0, finite = 0;
    for (size_t i = 1; i < n; i++)
        different += memcmp((char *)b->logits + i * row, (char *)b->logits, row) != 0;
    for (size_t i = 0; i < b->logits_bytes / sizeof(float); i++)
        finite += b->logits[i] > -1e4f && b->logits[i] < 1e4f;
    CHECK(different == (long)n - 1 && finite == (long)(b->logits_bytes / sizeof(float)), "%s: the baseline is degenerate", name);
}

/* The model re-encoded: its path in *path and a label; false when the source is missing. */
static bool make_model(bool moe, int type_index, char label[64], const char **path)
{
    const char *source = support_model(moe ? "tiny-moe-q8_0.gguf" : "tiny-bf16.gguf");
    int type = type_index < N_RECODE_TYPES ? recode_types[type_index] : RECODE_MIXED;
    if (!source)
        return false;
    snprintf(label, 64, "%s-%s.gguf", moe ? "moe" : "dense", type < 0 ? "mixed" : qtype_info((uint32_t)type)->name);
    *path = support_temp(label);
    return CHECK(!recode_model(source, label, type, 42), "cannot make %s", label);
}

static const char *const kv_types[] = {"F16", "F32", "BF16", "Q8_0"};

static void check_model_full(bool moe, int type_index)
{
    char label[64];
    const char *path;
    struct result baseline;
    if (!make_model(moe, type_index, label, &path))
        return;
    const char *const *tiers = kern_tiers();
    double start = clock_seconds();
    struct way way = {.tier = tiers[0], .kv_type = "F16", .threads = 1, .split = n_tokens};
    if (run_way(path, &way, &baseline)) {
        check_baseline(label, &baseline);
        for (int t = 0; tiers[t]; t++)
            for (int i = 0; i < N_SPLITS; i++)
                for (int k = 0; k < 4; k++) {
                    way = (struct way){.tier = tiers[t], .kv_type = "F16", .threads = 1 + k / 2, .split = splits[i], .beside = k % 2};
                    compare(label, path, &way, &baseline);
                }
    }
    free_result(&baseline);
    for (size_t v = 1; v < 4; v++) { /* other cache types: the mixture stands for all weight types */
        way = (struct way){.tier = tiers[0], .kv_type = kv_types[v], .threads = 1, .split = n_tokens};
        if (type_index < N_RECODE_TYPES || !run_way(path, &way, &baseline))
            continue;
        for (int t = 0; tiers[t]; t++)
            for (int i = 0; i < N_SPLITS && strcmp(tiers[t], "scalar"); i++) {
                way = (struct way){.tier = tiers[t], .kv_type = kv_types[v], .threads = 2, .split = splits[i], .beside = i % 2};
                compare(label, path, &way, &baseline);
            }
        free_result(&baseline);
    }
    printf("%s: %ld checks so far, %ld failed, %.0f s\n", label, support_checks, support_failures, clock_seconds() - start);
    fflush(stdout);
    unlink(path);
}

static int n_tiers(void)
{
    int n = 0;
    while (kern_tiers()[n])
        n++;
    return n;
}

/* A random way per type, in one model or the other, as the seed has it; one of four cache types; SIMD tiers except for one way through
 * plain C. quick: every other type. */
static void check_sample(uint64_t seed, bool quick)
{
    uint64_t state = seed;
    int simd = n_tiers() - 1 ? n_tiers() - 1 : 1;
    for (int moe = 0; moe < 2; moe++)
        for (int type = 0; type < N_TYPES; type++) {
            char label[64];
            const char *path;
            struct result baseline;
            const char *kv = kv_types[rng_next(&state) % 3 ? 0 : rng_next(&state) % 4];
            if ((uint64_t)(moe + type) % 2 == seed % 2 || (quick && type / 2 % 2 == moe))
                continue;
            if (!make_model(moe, type, label, &path))
                return;
            struct way way = {.tier = kern_tiers()[0], .kv_type = kv, .threads = 1, .split = n_tokens};
            bool ok = run_way(path, &way, &baseline);
            if (ok)
                check_baseline(label, &baseline);
            if (ok) {
                way = (struct way){.kv_type = kv, .split = splits[rng_next(&state) % N_SPLITS]};
                way.tier = kern_tiers()[rng_next(&state) % (uint64_t)simd];
                way.threads = 1 + (int)(rng_next(&state) % 2);
                way.beside = rng_next(&state) % 2;
                compare(label, path, &way, &baseline);
            }
            if (ok && type == 3) { /* Q8_0, what is shipped, through plain C */
                way = (struct way){.tier = "scalar", .kv_type = kv, .threads = 2, .split = 64, .beside = false};
                compare(label, path, &way, &baseline);
            }
            free_result(&baseline);
            unlink(path);
        }
}

static void check_full_item(int i) { check_model_full(i / N_TYPES, i % N_TYPES); }

int main(int argc, char **argv)
{
    const char *text = getenv("SKUA_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : 1;
    bool full = argc > 1 && !strcmp(argv[1], "--full"), quick = !full && getenv("SKUA_TEST_QUICK");
    if (quick)
        n_tokens = 300;
    printf("seed %llu, tiers:", (unsigned long long)seed);
    for (const char *const *t = kern_tiers(); *t; t++)
        printf(" %s", *t);
    putchar('\n');
    make_tokens(seed);
    if (full)
        support_share(check_full_item, 2 * N_TYPES); /* many of its ways use one thread */
    else
        check_sample(seed, quick);
    return support_finish(full ? "one answer (full)" : "one answer (sample)");
}
