/* Rows that forward passes keep for drafters: those of every width of pass are the rows that one token at a time gives, with memcmp. */
#include "engine_model.h"

#include "base/mem.h"
#include "engine/engine.h"

#define N_IDS 40

static int32_t ids[N_IDS];

static void eval(skua_session *s, const int32_t *tokens, int32_t n, float *logits)
{
    skua_error err = {0};
    skua_feed f = {.session = s, .ids = tokens, .n_ids = n, .want = SKUA_LOGITS_LAST, .logits = logits};
    CHECK(skua_eval(s->engine, &f, 1, NULL, NULL, &err) == 0, "%s", err.message);
}

static const float *kept(struct kern_view v, int32_t stride, int32_t row)
{
    return (const float *)kern_ptr(v) + (size_t)row * (size_t)stride;
}

/* The residual of every position after every layer, and the normed rows, without capturing. */
static void baseline(skua_engine *e, float *layers, float *hidden)
{
    const size_t n_embd = (size_t)e->config.n_embd, n_layer = (size_t)e->config.n_layer;
    float *logits = malloc(N_IDS * (size_t)e->config.n_vocab * sizeof *logits);
    for (int32_t n = 1; n <= N_IDS; n++) {
        skua_session *s = session_open(e, N_IDS);
        skua_error err = {0};
        const struct engine_inspect what = {.layers = true, .logits = logits, .layer_rows = layers + (size_t)(n - 1) * n_layer * n_embd};
        CHECK(engine_inspect(s, ids, n, &what, &err) == 0, "%s", err.message);
        skua_session_reset(s);
        eval(s, ids, n, logits);
        forward_read_out_hidden(e->forward, 0, hidden + (size_t)(n - 1) * n_embd);
        skua_session_free(s);
    }
    free(logits);
}

static void test_widths(skua_engine *e, const int32_t *taps, int32_t n_taps, bool hidden, const float *layers, const float *normed)
{
    const size_t n_embd = (size_t)e->config.n_embd, n_layer = (size_t)e->config.n_layer;
    float *logits = malloc((size_t)e->config.n_vocab * sizeof *logits);
    skua_error err = {0};
    CHECK(forward_set_capture(e->forward, taps, n_taps, hidden, &err) == 0, "%s", err.message);
    for (int32_t width = 1; width <= e->max_rows; width += 5) {
        skua_session *s = session_open(e, N_IDS);
        for (int32_t done = 0, n; done < N_IDS; done += n) {
            n = N_IDS - done < width ? N_IDS - done : width;
            eval(s, ids + done, n, logits);
            const struct forward_capture c = forward_captured(e->forward);
            bool same = true;
            for (int32_t r = 0; r < n; r++) {
                for (int32_t t = 0; t < n_taps; t++)
                    same &= !memcmp(kept(c.taps, c.taps_stride, r) + (size_t)t * n_embd,
                                    layers + ((size_t)(done + r) * n_layer + (size_t)taps[t]) * n_embd, n_embd * sizeof(float));
                if (hidden)
                    same &= !memcmp(kept(c.hidden, c.hidden_stride, r), normed + (size_t)(done + r) * n_embd, n_embd * sizeof(float));
            }
            CHECK(same, "rows %d to %d in passes of %d: other rows", done, done + n - 1, width);
            CHECK(!c.taps.buf == !n_taps && !c.hidden.buf == !hidden, "what is there is what was asked for");
        }
        skua_session_free(s);
    }
    free(logits);
}

static void test_refused(skua_engine *e)
{
    const int32_t n_layer = e->config.n_layer;
    skua_error err = {0};
    CHECK(forward_set_capture(e->forward, (int32_t[]){0, 1}, 2, true, &err) == 0, "%s", err.message);
    const size_t bytes = forward_bytes(e->forward);
    CHECK(forward_set_capture(e->forward, (int32_t[]){n_layer}, 1, true, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "layer"), "too far");
    CHECK(forward_set_capture(e->forward, (int32_t[]){-1}, 1, true, &err) == SKUA_EARG, "too low");
    CHECK(forward_set_capture(e->forward, (int32_t[]){2, 2}, 2, true, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "2", "twice"), "twice");
    long failed = 0;
    for (long n = 1; n < 10; n++) {
        fault_set_alloc((uint64_t)n, true);
        const int rc = forward_set_capture(e->forward, (int32_t[]){1, 2, 3}, 3, false, &err);
        fault_set_alloc(0, false);
        if (!rc)
            break;
        failed++;
        CHECK(rc == SKUA_ENOMEM, "%s", err.message);
        CHECK(forward_bytes(e->forward) == bytes && forward_captured(e->forward).taps_stride == 2 * e->config.n_embd, "what was asked for");
    }
    CHECK(failed >= 2, "%ld failures", failed);
    CHECK(forward_set_capture(e->forward, NULL, 0, false, &err) == 0 && !forward_captured(e->forward).taps.buf, "nothing any more");
    CHECK(forward_bytes(e->forward) < bytes, "memory is given back");
}

int main(void)
{
    static const char *const models[] = {"tiny-q8_0.gguf", "tiny-moe-q8_0.gguf"};
    for (int i = 0; i < 2; i++) {
        const char *model = support_model(models[i]);
        if (!model)
            continue;
        size_t live = mem_live_blocks();
        skua_engine *e = model_open(model, &(skua_engine_params){.n_threads = 2, .max_rows = 16});
        const size_t n_embd = (size_t)e->config.n_embd;
        const int32_t last = e->config.n_layer - 1;
        float *layers = malloc(N_IDS * (size_t)e->config.n_layer * n_embd * sizeof *layers);
        float *hidden = malloc(N_IDS * n_embd * sizeof *hidden);
        for (int k = 0; k < N_IDS; k++)
            ids[k] = (k * 7919 + 13) % 8000;
        baseline(e, layers, hidden);
        test_widths(e, (int32_t[]){last, 0, 2}, 3, true, layers, hidden);
        test_widths(e, (int32_t[]){1}, 1, false, layers, hidden);
        test_widths(e, NULL, 0, true, layers, hidden);
        test_refused(e);
        free(layers);
        free(hidden);
        skua_engine_close(e);
        CHECK(mem_live_blocks() == live, "%zu blocks are left", mem_live_blocks() - live);
    }
    return support_finish("test_capture");
}
