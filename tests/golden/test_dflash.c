/* DFlash and DFlash2 drafters against goldens computed in float32 by another implementation: in reference precision every round's drafts,
 * number of accepted ones, rounds and tokens; in production precision, also of quantised drafters, the mean acceptance length within 5 %.
 * The rounds are greedy: drafts, then the target token by token as long as they agree.
 * SKUA_TEST_QUICK=1 (for the sanitizers): three prompts, and no production precision. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "spec/dflash.h"
#include "support/support.h"

#define AL_BOUND 0.05
#define MOST_TOKENS 96
#define END_TOKEN 8177

struct rig {
    skua_engine *engine;
    struct dflash_file *file;
    struct dflash *dflash;
    struct drafter *drafter;
};

static bool rig_open(struct rig *r, const char *model, const char *drafter, bool reference)
{
    skua_error err = {0};
    const skua_engine_params p = {.precision = reference ? SKUA_PRECISION_REFERENCE : SKUA_PRECISION_AUTO,
                                  .cpu_tier = reference ? NULL : getenv("SKUA_CPU")};
    *r = (struct rig){0};
    if (!CHECK(!skua_engine_open(model, &p, &r->engine, &err), "%s", err.message))
        return false;
    const struct dflash_target t = {r->engine->gguf, &r->engine->config, &r->engine->weights, r->engine->samplable};
    return CHECK(!dflash_file_open(&r->file, drafter, &t, NULL, r->engine->dev, &err), "%s", err.message) &&
           CHECK(!dflash_create(&r->file->config, &r->file->weights, r->engine->dev, r->engine->kv_type, &r->dflash, &err), "%s",
                 err.message) &&
           CHECK(!dflash_drafter(r->dflash, r->file->summary, &r->drafter, &err), "%s", err.message) &&
           CHECK(!forward_set_capture(r->engine->forward, r->drafter->needs.taps, r->drafter->needs.n_taps, false, &err), "%s", err.message);
}

static void rig_close(struct rig *r)
{
    if (r->drafter)
        r->drafter->ops->free(r->drafter);
    dflash_free(r->dflash);
    dflash_file_close(r->file);
    skua_engine_close(r->engine);
}

/* Evaluate tokens, hand what was kept of them to the drafter, and return the best token behind them. */
static int32_t advance(struct rig *r, skua_session *s, const int32_t *ids, int32_t n)
{
    skua_error err = {0};
    const int32_t pos = skua_session_length(s);
    skua_feed feed = {.session = s, .ids = ids, .n_ids = n, .want = SKUA_LOGITS_ARGMAX};
    CHECK(!skua_eval(r->engine, &feed, 1, NULL, NULL, &err), "%s", err.message);
    const struct forward_capture kept = forward_captured(r->engine->forward);
    const struct draft_rows rows = {.ids = ids, .n = n, .pos = pos, .taps = kept.taps, .taps_stride = kept.taps_stride};
    CHECK(!r->drafter->ops->extend(r->drafter, &rows, &err), "%s", err.message);
    return feed.best_id;
}

struct answer {
    int32_t rounds, tokens;
};

/* One round from the anchor on; *anchor becomes the next one. Returns the accepted drafts. */
static int32_t round_of(struct rig *r, skua_session *s, const struct draft *d, int32_t *anchor)
{
    int32_t accepted = 0;
    for (;;) {
        const int32_t next = advance(r, s, anchor, 1);
        const bool agreed = accepted < d->n && next == d->ids[accepted] && next != END_TOKEN;
        *anchor = next;
        if (!agreed)
            return accepted;
        accepted++;
    }
}

static void compare_round(const json_t *want, const struct draft *d, int32_t accepted, const char *where, int32_t round)
{
    const json_t *ids = json_array_get(want, 0);
    bool same = json_array_size(ids) == (size_t)d->n;
    for (int32_t i = 0; i < d->n && same; i++)
        same = d->ids[i] == json_integer_value(json_array_get(ids, (size_t)i));
    CHECK(same, "%s: drafts of round %d", where, round);
    CHECK(accepted == json_integer_value(json_array_get(want, 1)), "%s: round %d accepts %d", where, round, accepted);
}

/* The answer to a golden's question; trace: compare its first rounds. */
static struct answer ask(struct rig *r, const json_t *golden, bool trace)
{
    const char *q = json_string_value(json_object_get(golden, "q"));
    char prompt[500], where[80];
    int32_t *ids = NULL;
    size_t n = 0;
    skua_error err = {0};
    skua_session *s = NULL;
    struct answer a = {0, 1};
    snprintf(where, sizeof where, "%.12s '%.40s'", r->file->summary, q);
    const int length =
        snprintf(prompt, sizeof prompt, "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n", q);
    if (!CHECK(!skua_tokenize(r->engine, prompt, (size_t)length, true, &ids, &n, &err) && !skua_session_create(r->engine, 0, &s, &err), "%s",
               err.message))
        return a;
    r->drafter->ops->reset(r->drafter);
    int32_t anchor = advance(r, s, ids, (int32_t)n);
    while (anchor != END_TOKEN && a.tokens < MOST_TOKENS) {
        static struct draft d;
        const struct draft_request request = {.anchor = anchor, .n_max = r->drafter->n_max, .full_block = true};
        CHECK(r->drafter->n_pos == skua_session_length(s), "%s: positions", where);
        if (!CHECK(!r->drafter->ops->propose(r->drafter, &request, &d, &err) && d.n == r->drafter->n_max, "%s: %s", where, err.message))
            break;
        const int32_t accepted = round_of(r, s, &d, &anchor);
        if (trace && a.rounds < 6)
            compare_round(json_array_get(json_object_get(golden, "trace"), (size_t)a.rounds), &d, accepted, where, a.rounds);
        a.rounds++;
        a.tokens += accepted + 1;
    }
    skua_session_free(s);
    skua_free(ids);
    return a;
}

static void check_drafter(const char *golden_name, const char *model_name, const char *drafter_name, bool reference)
{
    const char *found = support_shared(golden_name);
    json_t *golden = found ? json_load_file(found, 0, NULL) : NULL;
    char drafter[400];
    if (!found || !CHECK(golden != NULL, "%s: no JSON", golden_name))
        return;
    found = support_model(drafter_name);
    snprintf(drafter, sizeof drafter, "%s", found ? found : "");
    const char *model = found ? support_model(model_name) : NULL;
    struct rig r = {0};
    double al = 0.0, golden_al = 0.0;
    const size_t n = getenv("SKUA_TEST_QUICK") ? 3 : json_array_size(golden);
    if (model && rig_open(&r, model, drafter, reference))
        for (size_t i = 0; i < n; i++) {
            const json_t *g = json_array_get(golden, i);
            const struct answer a = ask(&r, g, reference);
            const int tokens = (int)json_integer_value(json_object_get(g, "tokens"));
            const int rounds = (int)json_integer_value(json_object_get(g, "rounds"));
            if (reference)
                CHECK(a.tokens == tokens && a.rounds == rounds, "%s, %zu: %d tokens in %d rounds, golden %d in %d", drafter_name, i, a.tokens,
                      a.rounds, tokens, rounds);
            al += (double)(a.tokens - 1) / a.rounds / (double)n;
            golden_al += (double)(tokens - 1) / rounds / (double)n;
        }
    if (model) {
        printf("%s for %s, %s: mean acceptance length %.3f, golden %.3f\n", drafter_name, model_name,
               reference ? "reference" : "production", al, golden_al);
        CHECK(fabs(al - golden_al) <= AL_BOUND * golden_al, "%s: mean acceptance length %.3f, golden %.3f", drafter_name, al, golden_al);
    }
    rig_close(&r);
    json_decref(golden);
}

int main(void)
{
    static const char *const goldens[] = {"golden/dflash1-accept.json", "golden/dflash2-accept.json"};
    static const char *const bf16[] = {"tiny-dflash1-bf16.gguf", "tiny-dflash2-bf16.gguf"};
    static const char *const q8_0[] = {"tiny-dflash1-q8_0.gguf", "tiny-dflash2-q8_0.gguf"};
    for (int i = 0; i < 2; i++) {
        check_drafter(goldens[i], "tiny-bf16.gguf", bf16[i], true);
        if (getenv("SKUA_TEST_QUICK"))
            continue;
        check_drafter(goldens[i], "tiny-bf16.gguf", bf16[i], false);
        check_drafter(goldens[i], "tiny-q8_0.gguf", q8_0[i], false);
    }
    return support_finish("dflash");
}
