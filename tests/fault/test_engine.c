/* Faults in the public interface: opening a model, a session, a chat prompt, a generation; and in what `skua inspect` and `skua logits`
   do with a model. After a failure in the middle of a generation the text so far has been delivered and the session goes on. */
#include "fault/sweep.h"

#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "cmd/inspect_report.h"

#define MAX_TOKENS 12
#define MAX_IDS 128

static const char messages[] = "[{\"role\": \"system\", \"content\": \"Be brief. <|im_end|>\"},"
                               "{\"role\": \"user\", \"content\": \"What is the capital of France?\"}]";
static const char arguments[] = "{\"enable_thinking\": false}";

/* What a run without faults gives. */
struct reference {
    const char *model;
    int32_t ids[MAX_IDS], n_prompt, n_ids; /* prompt and generated tokens */
    char text[512];
    float *logits;                         /* [n_vocab] after the last of ids */
};

struct heard {
    int32_t ids[MAX_TOKENS + 1], n;
    char text[512];
    size_t len;
    bool ended;
};

static bool listen(void *user, const skua_event *event)
{
    struct heard *h = user;
    CHECK(!h->ended, "an event after the last one");
    if (event->id < 0)
        h->ended = true;
    else if (h->n <= MAX_TOKENS)
        h->ids[h->n++] = event->id;
    if (h->len + event->n < sizeof h->text) {
        memcpy(h->text + h->len, event->text, event->n);
        h->len += event->n;
    }
    return true;
}

/* The session holds a beginning of the reference and can be brought to its end, with the same logits. */
static void check_session(const struct reference *ref, skua_session *s, skua_engine *e)
{
    int32_t held = skua_session_length(s), n_vocab = skua_engine_get_info(e).n_vocab;
    CHECK(held < ref->n_ids && (held == 0 || memcmp(skua_session_tokens(s), ref->ids, (size_t)held * sizeof *ref->ids) == 0),
          "the session holds %d other tokens", held);
    float *logits = malloc((size_t)n_vocab * sizeof *logits);
    skua_error err = {0};
    skua_feed feed = {.session = s, .ids = ref->ids + held, .n_ids = ref->n_ids - held, .want = SKUA_LOGITS_LAST, .logits = logits};
    int rc = skua_eval(e, &feed, 1, NULL, NULL, &err);
    CHECK(rc == 0, "the session does not go on: %s", err.message);
    CHECK(memcmp(logits, ref->logits, (size_t)n_vocab * sizeof *logits) == 0, "other logits after a failure at %d tokens", held);
    free(logits);
}

static int generate(const struct reference *ref, skua_engine *e, skua_session *s, const int32_t *prompt, size_t n_prompt, skua_error *err)
{
    struct heard h = {0};
    skua_generate_params p = {.max_tokens = ref->n_ids - ref->n_prompt, .stop = (const char *const[]){"xyzzy", " is the longest river"},
                              .n_stop = 2};
    skua_result result;
    int rc = skua_sampling_defaults(e, false, &p.sampling, err);
    if (rc)
        return rc;
    p.sampling.temperature = 0;
    p.sampling.repetition_penalty = 1.0001;
    rc = skua_generate(s, prompt, (int32_t)n_prompt, &p, listen, NULL, &h, &result, err);
    bool whole = h.len == strlen(ref->text);
    CHECK(h.len <= strlen(ref->text) && memcmp(h.text, ref->text, h.len) == 0, "delivered '%.*s'", (int)h.len, h.text);
    CHECK(h.n == result.n_generated && h.n <= p.max_tokens && memcmp(h.ids, ref->ids + ref->n_prompt, (size_t)h.n * sizeof *h.ids) == 0,
          "delivered %d tokens of %d", h.n, result.n_generated);
    CHECK(h.ended == (h.n > 0), "the last piece is missing");
    if (!rc) {
        CHECK(whole && h.n == p.max_tokens && result.finish == SKUA_FINISH_MAX_TOKENS, "success after %d tokens", h.n);
        return 0;
    }
    CHECK(result.finish == SKUA_FINISH_NONE, "finish %d and an error", result.finish);
    sweep_disarm();
    check_session(ref, s, e);
    return rc;
}

static int chat(void *context, skua_error *err)
{
    const struct reference *ref = context;
    skua_engine_params params = {.n_threads = 2, .max_rows = 16};
    skua_engine *e = NULL;
    skua_session *s = NULL;
    int32_t *prompt = NULL;
    size_t n_prompt = 0;
    bool thinking = true;
    int rc = skua_engine_open(ref->model, &params, &e, err);
    CHECK(!rc == (e != NULL), "engine %p after %d", (void *)e, rc);
    if (!rc) {
        rc = skua_session_create(e, 0, &s, err);
        CHECK(!rc == (s != NULL), "session %p after %d", (void *)s, rc);
    }
    if (!rc) {
        rc = skua_chat_prompt(e, messages, NULL, arguments, &prompt, &n_prompt, &thinking, err);
        CHECK(!rc == (prompt != NULL), "prompt %p after %d", (void *)prompt, rc);
    }
    if (!rc) {
        CHECK((int32_t)n_prompt == ref->n_prompt && memcmp(prompt, ref->ids, n_prompt * sizeof *prompt) == 0 && !thinking,
              "another prompt");
        rc = generate(ref, e, s, prompt, n_prompt, err);
    }
    skua_free(prompt);
    skua_session_free(s);
    skua_engine_close(e);
    return rc;
}

/* The reference, with other splits and one thread. */
static bool make_reference(struct reference *ref, const char *model)
{
    skua_engine_params params = {.n_threads = 1};
    skua_engine *e;
    skua_session *s;
    int32_t *prompt;
    size_t n_prompt;
    skua_error err = {0};
    *ref = (struct reference){.model = model};
    if (!CHECK(skua_engine_open(model, &params, &e, &err) == 0, "%s", err.message))
        return false;
    int32_t n_vocab = skua_engine_get_info(e).n_vocab;
    ref->logits = malloc((size_t)n_vocab * sizeof *ref->logits);
    CHECK(skua_session_create(e, 0, &s, &err) == 0, "%s", err.message);
    CHECK(skua_chat_prompt(e, messages, NULL, arguments, &prompt, &n_prompt, NULL, &err) == 0, "%s", err.message);
    memcpy(ref->ids, prompt, n_prompt * sizeof *prompt);
    ref->n_prompt = ref->n_ids = (int32_t)n_prompt;
    skua_free(prompt);
    int32_t from = 0;
    for (int i = 0; i <= MAX_TOKENS; i++) {
        skua_feed feed = {.session = s,
                          .ids = ref->ids + from,
                          .n_ids = ref->n_ids - from,
                          .want = SKUA_LOGITS_LAST,
                          .logits = ref->logits};
        CHECK(skua_eval(e, &feed, 1, NULL, NULL, &err) == 0, "%s", err.message);
        from = ref->n_ids;
        int32_t best = 0;
        for (int32_t k = 1; k < n_vocab; k++)
            if (ref->logits[k] > ref->logits[best])
                best = k;
        if (i == MAX_TOKENS || skua_token_ends(e, best))
            break;
        size_t n;
        const char *bytes = skua_token_bytes(e, best, false, &n);
        strncat(ref->text, bytes, n);
        ref->ids[ref->n_ids++] = best;
    }
    CHECK(ref->n_ids > ref->n_prompt + 4, "an answer of %d tokens", ref->n_ids - ref->n_prompt);
    skua_session_free(s);
    skua_engine_close(e);
    return true;
}

/* ---- inspection ---- */

static int report(void *context, skua_error *err)
{
    static char whole[2][1 << 20];
    struct inspect_options o = {.path = context, .all = false};
    struct inspect_report r;
    struct strbuf out[2] = {{0}, {0}};
    int rc = inspect_gather(&r, &o, err);
    if (!rc)
        rc = inspect_text(&r, &out[0], err);
    if (!rc)
        rc = inspect_json(&r, &out[1], err);
    if (!rc && !r.engine) /* the first look at the file failed, a later one did not: that is what the report must say */
        CHECK(r.n_problems == 1 && strstr(out[0].data, "\nruns: no: ") && strstr(out[1].data, "\"runs\": false"), "no verdict");
    for (int i = 0; i < 2 && !rc && r.engine; i++) {
        CHECK(out[i].len && out[i].len < sizeof whole[i], "a report of %zu bytes", out[i].len);
        if (!*whole[i])
            memcpy(whole[i], out[i].data, out[i].len + 1);
        CHECK(strcmp(whole[i], out[i].data) == 0, "another report: %.200s", out[i].data);
    }
    inspect_free(&r);
    strbuf_free(&out[0]);
    strbuf_free(&out[1]);
    return rc;
}

static int numbers(void *context, skua_error *err)
{
    static const int32_t ids[] = {1, 500, 8000, 7, 33, 2, 90, 91, 92, 93};
    enum { N = sizeof ids / sizeof *ids };
    static float *first;
    skua_engine_params params = {.n_threads = 2, .max_rows = 4, .kv_type = "Q8_0"};
    skua_engine *e = NULL;
    skua_session *s = NULL;
    int rc = skua_engine_open(context, &params, &e, err);
    if (rc)
        return rc;
    skua_engine_info info = skua_engine_get_info(e);
    size_t row = (size_t)info.n_vocab, n_layers = (size_t)info.n_layer * (size_t)info.n_embd, total = (N + 1) * row + n_layers;
    float *out = calloc(total, sizeof *out);
    struct engine_inspect what = {.layers = true, .mtp = info.has_mtp, .logits = out, .layer_rows = out + (N + 1) * row,
                                  .mtp_logits = out + N * row};
    rc = skua_session_create(e, 64, &s, err);
    if (!rc)
        rc = engine_inspect(s, ids, N, &what, err);
    if (!rc && !first) {
        first = malloc(total * sizeof *first);
        memcpy(first, out, total * sizeof *first);
    }
    if (!rc)
        CHECK(skua_session_length(s) == N && memcmp(first, out, total * sizeof *out) == 0, "other numbers");
    skua_session_free(s);
    skua_engine_close(e);
    free(out);
    if (!err) { /* the closing call */
        free(first);
        first = NULL;
    }
    return rc;
}

int main(void)
{
    static const char *const models[] = {"tiny-q8_0.gguf", "tiny-moe-q8_0.gguf"};
    sweep_init();
    for (int i = 0; i < 2; i++) {
        const char *model = support_model(models[i]);
        struct reference ref;
        char name[96], path[4096];
        if (!model || !make_reference(&ref, model))
            continue;
        snprintf(path, sizeof path, "%s", model);
        snprintf(name, sizeof name, "chat with %s", models[i]);
        sweep(name, chat, &ref, 250);
        free(ref.logits);
        if (i == 0)
            sweep("report", report, path, 4000); /* all: quick, and the writer of JSON has its own ways to fail */
        snprintf(name, sizeof name, "numbers of %s", models[i]);
        sweep(name, numbers, path, 100);
        numbers(path, NULL);
    }
    return support_finish("test_engine");
}
