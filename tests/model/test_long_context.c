/* Attention over a long context is cut into pages for several threads when a pass has few rows (forward.c), in rounds when the pages
 * are many. The logits must be the bits that one thread computes, which takes the pages one after the other. */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/engine.h"
#include "support/support.h"

#define N_PROMPT 8300 /* 33 pages: with 16 rows more than one round */
#define N_QUICK 1100  /* for the sanitizers: one round */
static const int32_t passes[] = {16, 1, 5};
#define N_PASSES 3
#define N_ROWS 22

static const char *model;
static int32_t n_prompt = N_PROMPT, tokens[N_PROMPT + N_ROWS];

static float *logits_of(int threads, size_t *bytes)
{
    skua_engine_params p = {.n_threads = threads};
    skua_engine *e;
    skua_session *s = NULL;
    skua_error err = {0};
    if (!CHECK(!skua_engine_open(model, &p, &e, &err), "%s", err.message))
        exit(1);
    const size_t n_vocab = (size_t)skua_engine_get_info(e).n_vocab;
    float *logits = malloc(*bytes = N_ROWS * n_vocab * sizeof *logits), *at = logits;
    if (!CHECK(logits && !skua_session_create(e, N_PROMPT + N_ROWS, &s, &err), "%s", err.message))
        exit(1);
    skua_feed feed = {.session = s, .ids = tokens, .n_ids = n_prompt, .want = SKUA_LOGITS_NONE};
    CHECK(!skua_eval(e, &feed, 1, NULL, NULL, &err), "prompt: %s", err.message);
    for (int32_t i = 0, done = n_prompt; i < N_PASSES; done += passes[i++], at = logits + (size_t)(done - n_prompt) * n_vocab) {
        feed = (skua_feed){.session = s, .ids = tokens + done, .n_ids = passes[i], .want = SKUA_LOGITS_ALL, .logits = at};
        CHECK(!skua_eval(e, &feed, 1, NULL, NULL, &err), "pass %d: %s", (int)i, err.message);
    }
    skua_session_free(s);
    skua_engine_close(e);
    return logits;
}

int main(void)
{
    const char *quick = getenv("SKUA_TEST_QUICK");
    model = support_model("tiny-q8_0.gguf");
    n_prompt = quick && *quick == '1' ? N_QUICK : N_PROMPT;
    for (int32_t i = 0; i < N_PROMPT + N_ROWS; i++)
        tokens[i] = (int32_t)(rng_bits(1, (uint64_t)i, 0) % 8000);
    size_t bytes;
    float *one = logits_of(1, &bytes), *three = logits_of(3, &bytes);
    CHECK(memcmp(one, three, bytes) == 0, "three threads give what one gives");
    free(one);
    free(three);
    return support_finish("test_long_context");
}
