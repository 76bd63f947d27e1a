/* The public interface: opening a model, sessions, evaluation. */
#include "engine_model.h"

#include <unistd.h>

#include "base/mem.h"

#define N_IDS 300

static const char *model;
static int32_t ids[N_IDS];

/* ---- opening ---- */

static int refused(const char *path, const skua_engine_params *p, skua_error *err)
{
    skua_engine *e = (skua_engine *)err;
    memset(err, 0, sizeof *err);
    int rc = skua_engine_open(path, p, &e, err);
    CHECK(!e, "%s: an engine and error %d", path, rc);
    CHECK(skua_engine_open(path, p, &e, NULL) == rc, "%s: another code without an error object", path);
    return rc;
}

static int foreign_arch(struct gguf_writer *w, skua_error *err)
{
    return gguf_writer_add_string(w, "general.architecture", "llama\n\x1b[7m", 10, err);
}

static void test_open(void)
{
    skua_error err;
    const char *missing = support_temp("missing.gguf"), *short_file = support_temp("short.gguf"), *text = support_temp("text.gguf");
    const char *foreign = model_copy(model, "foreign.gguf", foreign_arch);
    char folder[200];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(missing, '/') - missing), missing);
    FILE *f = fopen(text, "w"), *in = fopen(model, "rb"), *out = fopen(short_file, "wb");
    static char bytes[500000];
    if (!f || !in || !out || fputs("This is no model at all, but a text of some length.\n", f) < 0 || fclose(f) ||
        fread(bytes, 1, sizeof bytes, in) != sizeof bytes || fwrite(bytes, 1, sizeof bytes, out) != sizeof bytes || fclose(out))
        abort();
    fclose(in);
    CHECK(refused(missing, NULL, &err) == SKUA_EIO && SAYS(&err, SKUA_EIO, missing, "No such file"), "a missing file");
    CHECK(refused(folder, NULL, &err) == SKUA_EIO && SAYS(&err, SKUA_EIO, folder, "not a regular file"), "a folder");
    CHECK(refused(text, NULL, &err) == SKUA_EFORMAT && SAYS(&err, SKUA_EFORMAT, text, "E_MAGIC"), "a text");
    CHECK(refused(short_file, NULL, &err) == SKUA_EFORMAT && SAYS(&err, SKUA_EFORMAT, short_file, "E_RANGE"), "a cut file");
    CHECK(refused(foreign, NULL, &err) == SKUA_EUNSUPPORTED && SAYS(&err, SKUA_EUNSUPPORTED, foreign, "llama", "qwen35", "qwen35moe"),
          "a foreign model");
    CHECK(!strpbrk(err.message, "\n\x1b"), "control characters of the file are in the message");

    skua_engine_params p = {.n_threads = -1};
    CHECK(refused(model, &p, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "-1 threads"), "-1 threads");
    p.n_threads = 257;
    CHECK(refused(model, &p, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "257 threads"), "257 threads");
    p = (skua_engine_params){.n_threads_prefill = 300};
    CHECK(refused(model, &p, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "300 threads for prompts"), "300 threads for prompts");
    p = (skua_engine_params){.max_rows = -3};
    CHECK(refused(model, &p, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "-3 rows"), "-3 rows");
    p = (skua_engine_params){.max_rows = 8193};
    CHECK(refused(model, &p, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "8193 rows"), "8193 rows");
    p = (skua_engine_params){.cpu_tier = "mmx"};
    CHECK(refused(model, &p, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "mmx", "scalar"), "a tier that is none");
    p = (skua_engine_params){.kv_type = "Q4_K"};
    CHECK(refused(model, &p, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "Q4_K", "F16", "Q8_0"), "a cache type that is none");
    p = (skua_engine_params){.kv_type = "F17"};
    CHECK(refused(model, &p, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "F17"), "a type that is none");
    skua_engine_close(NULL);
    skua_session_free(NULL);
    skua_free(NULL);
}

static void test_info(void)
{
    skua_engine *e = model_open(model, &(skua_engine_params){.n_threads = 2, .cpu_tier = "scalar", .kv_type = "BF16", .max_rows = 7});
    skua_engine_info i = skua_engine_get_info(e);
    CHECK(!strcmp(i.path, model) && !strcmp(i.arch, "qwen35") && !strcmp(i.name, "Tiny-dense"), "%s %s %s", i.path, i.arch, i.name);
    CHECK(i.n_layer == 8 && i.n_vocab == 8192 && i.n_embd == 256 && i.n_ctx_train == 4096 && i.has_mtp, "shape");
    CHECK(!strcmp(i.kernels, "scalar") && !strcmp(i.kv_type, "BF16") && i.n_threads == 2, "%s %s %d", i.kernels, i.kv_type, i.n_threads);
    CHECK(i.file_bytes == 17025216 && i.workspace_bytes > 0 && i.state_bytes > 0 && i.kv_page_rows == 256, "sizes");
    /* two attention layers, K and V, 2 heads of 256 values; the MTP block has pages of its own */
    CHECK(i.kv_page_bytes == (size_t)2 * 2 * 256 * 512 * 2, "%zu bytes per page", i.kv_page_bytes);
    CHECK(!strcmp(i.warnings, "") && i.chat_template && i.chat_template_len == 2849, "template of %zu bytes", i.chat_template_len);
    skua_engine_close(e);
    e = model_open(model, &(skua_engine_params){.n_threads = 1, .precision = SKUA_PRECISION_REFERENCE, .kv_type = "Q8_0"});
    CHECK(!strcmp(skua_engine_get_info(e).kv_type, "F32"), "the reference's cache type");
    skua_engine_close(e);
}

/* ---- evaluation ---- */

static int eval(skua_session *s, skua_engine *e, const int32_t *tokens, int32_t n, enum skua_logits want, float *logits, int32_t *n_done,
                skua_error *err)
{
    skua_feed f = {.session = s, .ids = tokens, .n_ids = n, .want = want, .logits = logits, .n_done = -1};
    memset(err, 0, sizeof *err);
    int rc = skua_eval(e, &f, 1, NULL, NULL, err);
    if (n_done)
        *n_done = f.n_done;
    return rc;
}

static void test_bad_input(skua_engine *e)
{
    skua_error err;
    int32_t done, bad[] = {5, 6, 8192, 7};
    size_t row = (size_t)skua_engine_get_info(e).n_vocab;
    float *logits = malloc(row * sizeof *logits);
    skua_session *s = session_open(e, 20), *none = (skua_session *)&err;
    CHECK(skua_session_create(e, -1, &none, &err) == SKUA_EARG && !none && SAYS(&err, SKUA_EARG, "-1"), "a context of -1");
    CHECK(eval(s, e, bad, 4, SKUA_LOGITS_LAST, logits, &done, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "8192", "number 2"),
          "an id that is none");
    bad[2] = -1;
    CHECK(eval(s, e, bad, 4, SKUA_LOGITS_LAST, logits, &done, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "-1"), "a negative id");
    CHECK(done == 0 && skua_session_length(s) == 0, "something was evaluated");
    CHECK(eval(s, e, bad, 0, SKUA_LOGITS_LAST, logits, &done, &err) == SKUA_EARG, "no ids");
    CHECK(eval(s, e, ids, 21, SKUA_LOGITS_LAST, logits, &done, &err) == SKUA_ELIMIT && SAYS(&err, SKUA_ELIMIT, "21", "20"),
          "21 tokens in 20");
    CHECK(done == 0 && skua_session_length(s) == 0, "something was evaluated");
    CHECK(eval(s, e, ids, 20, SKUA_LOGITS_NONE, NULL, &done, &err) == 0 && done == 20 && skua_session_length(s) == 20, "exactly 20: %s",
          err.message);
    CHECK(eval(s, e, ids, 1, SKUA_LOGITS_NONE, NULL, &done, &err) == SKUA_ELIMIT && done == 0 && skua_session_length(s) == 20, "one more");
    /* one bad feed among good ones: nothing at all happens */
    skua_session *t = session_open(e, 20);
    skua_feed feeds[] = {{.session = t, .ids = ids, .n_ids = 5, .n_done = 9}, {.session = s, .ids = ids, .n_ids = 1, .n_done = 9}};
    CHECK(skua_eval(e, feeds, 2, NULL, NULL, &err) == SKUA_ELIMIT && !feeds[0].n_done && !feeds[1].n_done && !skua_session_length(t),
          "the good feed ran");
    feeds[1].session = t;
    CHECK(skua_eval(e, feeds, 2, NULL, NULL, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "session twice") && !skua_session_length(t),
          "one session twice");
    skua_session_reset(s);
    CHECK(skua_session_length(s) == 0 && skua_session_ctx(s) == 20, "reset");
    CHECK(eval(s, e, ids, 20, SKUA_LOGITS_NONE, NULL, &done, &err) == 0, "after a reset: %s", err.message);
    CHECK(memcmp(skua_session_tokens(s), ids, 20 * sizeof *ids) == 0, "tokens");
    skua_session_free(s);
    skua_session_free(t);
    free(logits);
}

struct stop_after {
    int32_t calls, last, total, limit;
};

static bool stop_after(void *user, int32_t n_done, int32_t n_total)
{
    struct stop_after *s = user;
    CHECK(n_done > s->last && n_done < n_total, "progress %d of %d after %d", n_done, n_total, s->last);
    s->last = n_done;
    s->total = n_total;
    return ++s->calls < s->limit;
}

/* Canceling leaves a valid session that goes on to the same logits; a reset one starts from nothing. */
static void test_cancel_and_reset(skua_engine *e, const float *want, size_t row)
{
    skua_error err = {0};
    float *logits = malloc(row * sizeof *logits);
    skua_session *s = session_open(e, 0);
    for (int32_t limit = 1; limit <= 3; limit++) {
        struct stop_after stop = {.limit = limit};
        skua_feed f = {.session = s, .ids = ids, .n_ids = N_IDS, .want = SKUA_LOGITS_LAST, .logits = logits};
        CHECK(skua_eval(e, &f, 1, stop_after, &stop, &err) == SKUA_ECANCELED && err.code == SKUA_ECANCELED, "canceled");
        CHECK(stop.calls == limit && stop.total == N_IDS && f.n_done == limit * 32 && skua_session_length(s) == f.n_done, "%d done",
              f.n_done);
        f = (skua_feed){.session = s, .ids = ids + f.n_done, .n_ids = N_IDS - f.n_done, .want = SKUA_LOGITS_LAST, .logits = logits};
        stop = (struct stop_after){.limit = 1000};
        CHECK(skua_eval(e, &f, 1, stop_after, &stop, &err) == 0 && f.n_done == f.n_ids && skua_session_length(s) == N_IDS, "%s",
              err.message);
        CHECK(memcmp(logits, want, row * sizeof *logits) == 0, "other logits after a stop at pass %d", limit);
        skua_session_reset(s);
        CHECK(skua_session_length(s) == 0, "reset");
    }
    skua_session_free(s);
    free(logits);
}

/* Sessions in one batch, with other lengths and other wishes, against each alone. */
static void test_many(skua_engine *e, size_t row)
{
    enum { N = 5 };
    static const int32_t from[N] = {0, 10, 37, 100, 5}, n[N] = {40, 1, 90, 3, 64};
    static const enum skua_logits want[N] = {SKUA_LOGITS_ALL, SKUA_LOGITS_LAST, SKUA_LOGITS_NONE, SKUA_LOGITS_ALL, SKUA_LOGITS_LAST};
    skua_feed feeds[N];
    float *together[N], *alone = malloc(64 * row * sizeof *alone);
    skua_session *s[N];
    skua_error err = {0};
    for (int i = 0; i < N; i++) {
        s[i] = session_open(e, 0);
        together[i] = malloc((size_t)n[i] * row * sizeof **together);
        feeds[i] = (skua_feed){.session = s[i], .ids = ids + from[i], .n_ids = n[i], .want = want[i], .logits = together[i]};
    }
    struct stop_after never = {.limit = 1000};
    CHECK(skua_eval(e, feeds, N, stop_after, &never, &err) == 0 && never.total == 198 && never.calls == 6, "%s, %d calls", err.message,
          never.calls);
    for (int i = 0; i < N; i++) {
        CHECK(feeds[i].n_done == n[i] && skua_session_length(s[i]) == n[i], "feed %d: %d done", i, feeds[i].n_done);
        CHECK(memcmp(skua_session_tokens(s[i]), ids + from[i], (size_t)n[i] * sizeof *ids) == 0, "tokens of feed %d", i);
        skua_session_reset(s[i]);
        if (want[i] == SKUA_LOGITS_NONE)
            continue;
        size_t rows = want[i] == SKUA_LOGITS_ALL ? (size_t)n[i] : 1;
        CHECK(eval(s[i], e, ids + from[i], n[i], want[i], alone, NULL, &err) == 0, "%s", err.message);
        CHECK(memcmp(alone, together[i], rows * row * sizeof *alone) == 0, "feed %d beside others differs from alone", i);
    }
    for (int i = 0; i < N; i++) {
        skua_session_free(s[i]);
        free(together[i]);
    }
    free(alone);
}

/* The greedy choice without the logits: beside feeds with other wishes, it is the largest of the logits that are samplable; the first
   of equal ones. More of them than one pass of the head takes. */
static void test_argmax(skua_engine *e, size_t row)
{
    enum { N = 40 };
    static skua_session *s[N];
    static skua_feed feeds[N];
    skua_error err = {0};
    float *logits = malloc(row * sizeof *logits), *all = malloc(4 * row * sizeof *all);
    for (int i = 0; i < N; i++) {
        s[i] = session_open(e, 8);
        feeds[i] = (skua_feed){.session = s[i], .ids = ids + i, .n_ids = 1 + i % 4, .want = SKUA_LOGITS_ARGMAX, .best_id = -7};
    }
    feeds[3].want = SKUA_LOGITS_ALL;
    feeds[3].logits = all;
    feeds[17].want = SKUA_LOGITS_NONE;
    CHECK(skua_eval(e, feeds, N, NULL, NULL, &err) == 0, "%s", err.message);
    CHECK(feeds[3].best_id == -7 && feeds[17].best_id == -7, "feeds that did not ask");
    for (int i = 0; i < N; i++) {
        skua_session_reset(s[i]);
        CHECK(eval(s[i], e, ids + i, 1 + i % 4, SKUA_LOGITS_LAST, logits, NULL, &err) == 0, "%s", err.message);
        int32_t best = -1;
        size_t n;
        for (int32_t id = 0; id < (int32_t)row; id++)
            if ((best < 0 || logits[id] > logits[best]) && (skua_token_bytes(e, id, true, &n), n > 0))
                best = id;
        if (i == 3)
            CHECK(memcmp(all + 3 * row, logits, row * sizeof *logits) == 0, "logits beside");
        else if (i != 17)
            CHECK(feeds[i].best_id == best && feeds[i].best_logit == logits[best], "feed %d: token %d, wanted %d", i, feeds[i].best_id,
                  best);
        skua_session_free(s[i]);
    }
    free(logits);
    free(all);
}

/* A step that needs no new page allocates nothing, whatever is wanted of it and however many threads there are. */
static void test_no_allocation(size_t row)
{
    float *logits = malloc(row * sizeof *logits);
    for (int threads = 1; threads <= 3; threads++) {
        skua_engine *e = model_open(model, &(skua_engine_params){.n_threads = threads, .n_threads_prefill = 2});
        skua_session *s = session_open(e, 0);
        skua_error err = {0};
        CHECK(eval(s, e, ids, 20, SKUA_LOGITS_LAST, logits, NULL, &err) == 0, "%s", err.message);
        CHECK(eval(s, e, ids, 1, SKUA_LOGITS_LAST, logits, NULL, &err) == 0, "%s", err.message);
        const size_t live = mem_live_blocks();
        fault_set_alloc(1000000, true); /* counts */
        for (int i = 0; i < 50; i++)
            CHECK(eval(s, e, ids + i, 1, i % 2 ? SKUA_LOGITS_LAST : SKUA_LOGITS_ARGMAX, logits, NULL, &err) == 0, "%s", err.message);
        CHECK(eval(s, e, ids, 30, SKUA_LOGITS_LAST, logits, NULL, &err) == 0, "%s", err.message);
        CHECK(fault_alloc_count() == 0 && mem_live_blocks() == live, "%d threads: %d allocations in 51 steps", threads,
              (int)fault_alloc_count());
        fault_set_alloc(0, false);
        skua_session_free(s);
        skua_engine_close(e);
    }
    free(logits);
}

/* More sessions than one pass takes (64), each with one token. */
static void test_hundred(skua_engine *e, size_t row)
{
    enum { N = 100 };
    static skua_session *s[N];
    static skua_feed feeds[N];
    skua_error err = {0};
    float *logits = malloc((N + 1) * row * sizeof *logits);
    for (int i = 0; i < N; i++) {
        s[i] = session_open(e, 8);
        feeds[i] =
            (skua_feed){.session = s[i], .ids = ids + i % 3, .n_ids = 1, .want = SKUA_LOGITS_LAST, .logits = logits + (size_t)i * row};
    }
    CHECK(skua_eval(e, feeds, N, NULL, NULL, &err) == 0, "%s", err.message);
    for (int i = 3; i < N; i++)
        CHECK(feeds[i].n_done == 1 && memcmp(feeds[i].logits, logits + (size_t)(i % 3) * row, row * sizeof *logits) == 0, "session %d", i);
    for (int i = 0; i < N; i++)
        skua_session_free(s[i]);
    free(logits);
}

/* ---- memory of a session ---- */

static void test_pages(skua_engine *e)
{
    skua_engine_info info = skua_engine_get_info(e);
    skua_session *small = session_open(e, 300), *s = session_open(e, 1 << 20);
    skua_error err = {0};
    size_t empty = skua_session_bytes(s), before = empty, jumps = 0;
    CHECK(skua_session_bytes(small) == empty && empty == info.state_bytes, "an empty session has %zu bytes, state %zu", empty,
          info.state_bytes);
    for (int32_t i = 0; i < 520; i++) {
        CHECK(eval(s, e, ids + i % N_IDS, 1, SKUA_LOGITS_NONE, NULL, NULL, &err) == 0, "%s", err.message);
        size_t now = skua_session_bytes(s);
        bool page = i % info.kv_page_rows == 0;
        jumps += now != before;
        CHECK(page ? now - before >= info.kv_page_bytes && now - before < info.kv_page_bytes + 8192 : now - before < 8192,
              "%zu bytes after token %d, %zu before", now, i, before);
        before = now;
    }
    CHECK(jumps >= 3 && jumps <= 6, "%zu growths", jumps);
    skua_session_reset(s);
    CHECK(skua_session_bytes(s) < empty + 8192, "a reset gives pages back: %zu bytes", skua_session_bytes(s));
    skua_session_free(s);
    skua_session_free(small);
}

/* Every cache type: its pages, its name, and logits near those of F32, nearer with more bits. */
static void test_kv_types(void)
{
    static const struct {
        const char *name;
        size_t row_bytes;
        double tolerance;
    } types[] = {{"F32", 1024, 0}, {"F16", 512, 0.03}, {"BF16", 512, 0.15}, {"Q8_0", 272, 0.15}};
    float *want = NULL, *logits = malloc(8192 * sizeof *logits);
    for (size_t i = 0; i < 4; i++) {
        skua_engine *e = model_open(model, &(skua_engine_params){.n_threads = 1, .kv_type = types[i].name});
        skua_engine_info info = skua_engine_get_info(e);
        skua_session *s = session_open(e, 0);
        skua_error err = {0};
        CHECK(!strcmp(info.kv_type, types[i].name) && info.kv_page_bytes == types[i].row_bytes * 2 * 2 * 2 * 256, "%s: %zu bytes per page",
              info.kv_type, info.kv_page_bytes);
        CHECK(skua_session_ctx(s) == 4096, "the model's context");
        CHECK(eval(s, e, ids, N_IDS, SKUA_LOGITS_LAST, logits, NULL, &err) == 0, "%s", err.message);
        double worst = 0;
        if (!want) {
            want = malloc(8192 * sizeof *want);
            memcpy(want, logits, 8192 * sizeof *want);
        }
        for (int k = 0; k < 8192; k++) {
            double d = logits[k] > want[k] ? logits[k] - want[k] : want[k] - logits[k];
            worst = d > worst ? d : worst;
        }
        CHECK(worst <= types[i].tolerance && (i == 0) == (worst == 0), "%s: %g from F32", types[i].name, worst);
        printf("KV cache %s: worst logit %.4f from F32\n", types[i].name, worst);
        skua_session_free(s);
        skua_engine_close(e);
    }
    free(want);
    free(logits);
}

int main(void)
{
    const char *found = support_model("tiny-q8_0.gguf");
    if (!found)
        return support_finish("test_engine_session");
    char path[4096];
    model = strcpy(path, found);
    for (int32_t i = 0; i < N_IDS; i++)
        ids[i] = (i * 2654435 + 17) % 8000;
    test_open();
    test_info();
    skua_engine *e = model_open(model, &(skua_engine_params){.n_threads = 2, .max_rows = 32});
    size_t row = (size_t)skua_engine_get_info(e).n_vocab;
    float *want = malloc(row * sizeof *want);
    skua_session *s = session_open(e, 0);
    skua_error err;
    CHECK(eval(s, e, ids, N_IDS, SKUA_LOGITS_LAST, want, NULL, &err) == 0, "%s", err.message);
    skua_session_free(s);
    test_bad_input(e);
    test_cancel_and_reset(e, want, row);
    test_many(e, row);
    test_hundred(e, row);
    test_argmax(e, row);
    test_no_allocation(row);
    test_pages(e);
    skua_engine_close(e);
    free(want);
    test_kv_types();
    return support_finish("test_engine_session");
}
