/* Session files: a loaded session is the saved one, with memcmp, in other tiers and numbers of threads too; every damaged byte and every
 * truncation is refused; so are files of another model, cache type, precision or version. */
#include "engine_model.h"

#include <xxhash.h>

#include "base/file.h"
#include "base/mem.h"
#include "engine/engine.h"

#define N_IDS 700
#define HEADER_BYTES 56
#define SECTION_BYTES 40

static int32_t ids[N_IDS];
static size_t row;

static void append(skua_session *s, const int32_t *tokens, int32_t n, float *logits)
{
    skua_error err = {0};
    skua_feed f = {.session = s, .ids = tokens, .n_ids = n, .want = logits ? SKUA_LOGITS_LAST : SKUA_LOGITS_NONE, .logits = logits};
    CHECK(skua_eval(s->engine, &f, 1, NULL, NULL, &err) == 0, "%s", err.message);
}

static bool same_session(skua_session *a, skua_session *b)
{
    const int32_t n = skua_session_length(a);
    float *x = malloc(row * sizeof *x), *y = malloc(row * sizeof *y);
    bool same = skua_session_length(b) == n && (!n || !memcmp(skua_session_tokens(a), skua_session_tokens(b), (size_t)n * sizeof *ids))
                && !memcmp(a->seq.state->host, b->seq.state->host, a->seq.state->size);
    for (int32_t i = 0; i < 3 && same; i++) {
        append(a, ids + i, 1, x);
        append(b, ids + i, 1, y);
        same = !memcmp(x, y, row * sizeof *x);
    }
    free(x);
    free(y);
    return same;
}

struct taken {
    int n;
    bool ok;
};

static const struct engine_blob blobs[] = {{"first", "what one keeps", 14}, {"second", "", 0}};

static void take(void *user, skua_session *s, const struct engine_blob *blob)
{
    struct taken *t = user;
    t->ok &= t->n < 2 && !strcmp(blob->name, blobs[t->n].name) && blob->size == blobs[t->n].size
             && !memcmp(blob->data, blobs[t->n].data, blob->size) && skua_session_length(s) > 0;
    t->n++;
}

static void test_round(skua_engine *e, skua_engine *other)
{
    static const int32_t lengths[] = {0, 1, 255, 256, 257, 600};
    const char *path = support_temp("session");
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        skua_session *s = session_open(e, N_IDS), *t = NULL;
        skua_error err = {0};
        if (lengths[i])
            append(s, ids, lengths[i], NULL);
        CHECK(skua_session_save(s, path, &err) == 0, "%s", err.message);
        CHECK(skua_session_load(i % 2 ? other : e, path, 0, &t, &err) == 0 && t, "%s", err.message);
        if (t)
            CHECK(skua_session_ctx(t) == N_IDS && same_session(s, t), "%d tokens: another session", lengths[i]);
        skua_session_free(t);
        skua_session_free(s);
    }
    skua_session *s = session_open(e, N_IDS), *t = NULL;
    skua_error err = {0};
    struct taken taken = {.ok = true};
    append(s, ids, 30, NULL);
    CHECK(engine_session_save(s, path, blobs, 2, &err) == 0, "%s", err.message); /* replaces the file */
    CHECK(engine_session_load(e, path, 50, &t, take, &taken, &err) == 0 && taken.n == 2 && taken.ok, "%d pieces: %s", taken.n, err.message);
    CHECK(t && skua_session_ctx(t) == 50 && same_session(s, t), "with pieces");
    skua_session_free(t);
    CHECK(skua_session_load(e, path, 29, &t, &err) == SKUA_ELIMIT && !t && SAYS(&err, SKUA_ELIMIT, path, "30", "29"), "no room");
    skua_feed f = {.session = s, .ids = ids, .n_ids = 3, .hold = true};
    CHECK(skua_eval(e, &f, 1, NULL, NULL, &err) == 0, "%s", err.message);
    CHECK(skua_session_save(s, path, &err) == SKUA_ESTATE && SAYS(&err, SKUA_ESTATE, "saving", "held"), "held tokens");
    skua_session_free(s);
}

static int load_bytes(skua_engine *e, const char *data, size_t n, skua_error *err)
{
    const char *path = support_temp("damaged");
    FILE *out = fopen(path, "wb");
    CHECK(out && fwrite(data, 1, n, out) == n && !fclose(out), "cannot write %s", path);
    skua_session *s = NULL;
    const int rc = skua_session_load(e, path, 0, &s, err);
    CHECK(!s == (rc != 0), "a session and an error");
    if (rc)
        CHECK(strstr(err->message, path) && !strchr(err->message, '\n'), "%s", err->message);
    skua_session_free(s);
    return rc;
}

static void change_header(char *data, size_t at, int32_t by)
{
    int32_t v;
    memcpy(&v, data + at, sizeof v);
    v += by;
    memcpy(data + at, &v, sizeof v);
    const uint64_t sum = XXH3_64bits(data, HEADER_BYTES - 8);
    memcpy(data + HEADER_BYTES - 8, &sum, sizeof sum);
}

static void test_damage(skua_engine *e)
{
    const char *path = support_temp("session");
    skua_session *s = session_open(e, N_IDS);
    skua_error err = {0};
    char *data;
    size_t n;
    append(s, ids, 5, NULL);
    CHECK(engine_session_save(s, path, blobs, 2, &err) == 0, "%s", err.message);
    skua_session_free(s);
    if (!CHECK(file_read_all(path, SIZE_MAX / 2, &data, &n, &err) == 0, "%s", err.message))
        return;
    CHECK(load_bytes(e, data, n, &err) == 0, "%s", err.message);
    /* every byte of the heads and of the tokens, and some of the others */
    const size_t plain = HEADER_BYTES + 2 * SECTION_BYTES + 5 * sizeof *ids, end = n - 2 * SECTION_BYTES - 14;
    size_t refused = 0, tried = 0;
    for (size_t at = 0; at < n; at += at < plain || at >= end ? 1 : 4999) {
        data[at] = (char)(data[at] ^ (1 << at % 8));
        const int rc = load_bytes(e, data, n, &err);
        refused += rc == SKUA_EFORMAT || (rc == SKUA_EUNSUPPORTED && at >= 8 && at < 12);
        tried++;
        data[at] = (char)(data[at] ^ (1 << at % 8));
    }
    CHECK(refused == tried, "%zu of %zu damaged bytes refused", refused, tried);
    refused = tried = 0;
    for (size_t size = 0; size < n; size += size < plain || size >= end ? 1 : 9973, tried++)
        refused += load_bytes(e, data, size, &err) == SKUA_EFORMAT;
    CHECK(refused == tried, "%zu of %zu truncations refused", refused, tried);
    char *longer = calloc(1, n + 1);
    memcpy(longer, data, n);
    CHECK(load_bytes(e, longer, n + 1, &err) == SKUA_EFORMAT && SAYS(&err, SKUA_EFORMAT, "bytes"), "a longer file");
    change_header(longer, 40, 1); /* its size as it says itself */
    CHECK(load_bytes(e, longer, n + 1, &err) == SKUA_EFORMAT && SAYS(&err, SKUA_EFORMAT, "last section"), "something behind the end");
    /* heads that were not written by us, with right checksums */
    static const struct { size_t at; int32_t by; int code; const char *word; } changes[] = {
        {8, 1, SKUA_EUNSUPPORTED, "version 2"}, {12, 1, SKUA_EARG, "KV cache type"}, {16, 1, SKUA_EARG, "precision"},
        {20, -6, SKUA_EFORMAT, "contradicts"}, {20, N_IDS, SKUA_EFORMAT, "contradicts"}, {20, 1, SKUA_EFORMAT, "tokens"},
        {24, -N_IDS, SKUA_EFORMAT, "contradicts"}, {28, -3, SKUA_EFORMAT, "contradicts"}, {28, 1 << 30, SKUA_EFORMAT, "contradicts"},
        {28, 1, SKUA_EFORMAT, "section"}, {28, -1, SKUA_EFORMAT, "last section"}, {32, 1, SKUA_EARG, "another model file"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        memcpy(longer, data, n);
        change_header(longer, changes[i].at, changes[i].by);
        CHECK(load_bytes(e, longer, n, &err) == changes[i].code && SAYS(&err, changes[i].code, changes[i].word), "change %zu", i);
    }
    CHECK(load_bytes(e, "GGUF, or what else", 18, &err) == SKUA_EFORMAT && SAYS(&err, SKUA_EFORMAT, "not a session file"), "another file");
    free(longer);
    mem_free(data);
    skua_session *none = NULL;
    CHECK(skua_session_load(e, support_temp("missing"), 0, &none, &err) == SKUA_EIO && !none, "a file that is not there");
}

static void test_engines(skua_engine *e, const char *model)
{
    static const skua_engine_params kv = {.n_threads = 1, .kv_type = "Q8_0"},
                                    reference = {.n_threads = 1, .precision = SKUA_PRECISION_REFERENCE};
    const char *path = support_temp("session"), *bf16 = support_model("tiny-bf16.gguf");
    char found[4096];
    skua_error err = {0};
    skua_session *s = session_open(e, N_IDS), *t = NULL;
    snprintf(found, sizeof found, "%s", bf16 ? bf16 : "");
    append(s, ids, 5, NULL);
    CHECK(skua_session_save(s, path, &err) == 0, "%s", err.message);
    skua_session_free(s);
    skua_engine *o = model_open(model, &kv);
    CHECK(skua_session_load(o, path, 0, &t, &err) == SKUA_EARG && !t && SAYS(&err, SKUA_EARG, "F16", "Q8_0"), "another cache type");
    skua_engine_close(o);
    o = model_open(model, &reference);
    CHECK(skua_session_load(o, path, 0, &t, &err) == SKUA_EARG && !t && SAYS(&err, SKUA_EARG, "production", "reference"), "precision");
    skua_engine_close(o);
    if (!*found)
        return;
    o = model_open(found, &(skua_engine_params){.n_threads = 1});
    CHECK(skua_session_load(o, path, 0, &t, &err) == SKUA_EARG && !t && SAYS(&err, SKUA_EARG, "another model file"), "another model");
    skua_engine_close(o);
}

int main(void)
{
    static const char *const models[] = {"tiny-q8_0.gguf", "tiny-moe-q8_0.gguf"};
    for (int i = 0; i < 2; i++) {
        const char *found = support_model(models[i]);
        char model[4096];
        if (!found)
            continue;
        snprintf(model, sizeof model, "%s", found);
        size_t live = mem_live_blocks();
        skua_engine *e = model_open(model, &(skua_engine_params){.n_threads = 2});
        skua_engine *other = model_open(model, &(skua_engine_params){.n_threads = 1, .cpu_tier = "scalar", .max_rows = 64});
        row = (size_t)skua_engine_get_info(e).n_vocab;
        for (int k = 0; k < N_IDS; k++)
            ids[k] = (k * 7919 + 13) % 8000;
        test_round(e, other);
        if (i == 0) {
            test_damage(e);
            test_engines(e, model);
        }
        skua_engine_close(e);
        skua_engine_close(other);
        CHECK(mem_live_blocks() == live, "%zu blocks are left", mem_live_blocks() - live);
    }
    return support_finish("test_session_file");
}
