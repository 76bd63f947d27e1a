/* The forward pass against goldens computed in float32 by another implementation: logits, layer outputs, the MTP block, greedy
 * continuations, in reference precision within 1e-3 and in production precision within the stated bounds.
 * MoE in production precision: a position counts as "close call" when, in the reference path, some layer's router has its k-th and
 * (k+1)-th probabilities within 0.01 there; rounding may choose another expert at these.
 * SKUA_TEST_QUICK=1 (for the sanitizers): every third prompt, without the long one. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "sample/logprob.h"
#include "support/support.h"
#include "tok/tokenizer.h"

#define REFERENCE_BOUND 1e-3
#define ROUTER_GAP 0.01
#define MAX_IDS 4096

struct bounds {
    double plain, close_call; /* worst error over the listed logits in production precision */
};

/* Smallest router gap per position, over layers: filled by watching the ops of the reference path. */
static double router_gap[MAX_IDS];
static const struct dev_ops *plain_ops;

static int compare_down(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static void watch_router(const struct op_router *op, const struct kern_batch *batch)
{
    const float *logits = kern_ptr(op->logits);
    for (int r = 0; r < op->n_rows && op->n_used < op->n_expert; r++) {
        float sorted[512];
        double sum = 0;
        memcpy(sorted, logits + (size_t)r * op->n_expert, (size_t)op->n_expert * sizeof(float));
        qsort(sorted, (size_t)op->n_expert, sizeof(float), compare_down);
        for (int i = 0; i < op->n_expert; i++)
            sum += exp((double)sorted[i] - sorted[0]);
        double gap = (exp((double)sorted[op->n_used - 1] - sorted[0]) - exp((double)sorted[op->n_used] - sorted[0])) / sum;
        int pos = batch->pos[r];
        router_gap[pos] = fmin(router_gap[pos], gap);
    }
}

static int run_watched(struct dev *d, const struct kern_op *ops, int n_ops, const struct kern_batch *batch, skua_error *err)
{
    for (int i = 0; i < n_ops; i++) {
        int rc = plain_ops->run(d, &ops[i], 1, batch, err);
        if (rc)
            return rc;
        if (ops[i].code == KERN_ROUTER)
            watch_router(&ops[i].p.router, batch);
    }
    return 0;
}

struct stats {
    double worst, sum;
    long n;
};

static void add(struct stats *s, double error)
{
    s->worst = error > s->worst || isnan(error) ? error : s->worst;
    s->sum += error;
    s->n++;
}

static double number(const json_t *array, size_t i) { return json_number_value(json_array_get(array, i)); }

/* Errors of the listed top logits of a golden list against our row. */
static void compare_top(const json_t *top, const float *row, struct stats *s)
{
    size_t i;
    json_t *pair;
    json_array_foreach(top, i, pair)
        add(s, fabs(row[(int)number(pair, 0)] - number(pair, 1)));
}

static void check_reference_position(const json_t *p, const float *row, int n_vocab, const char *where)
{
    struct stats s = {0};
    struct token_logprob best;
    double norm, mean = 0, squares = 0;
    compare_top(json_object_get(p, "top"), row, &s);
    CHECK(s.worst <= REFERENCE_BOUND, "%s: a listed logit is off by %g", where, s.worst);
    if (!CHECK(!logprob_norm(row, n_vocab, &norm, NULL), "%s: bad logits", where))
        return;
    double golden = json_number_value(json_object_get(p, "logsumexp"));
    CHECK(fabs(norm - golden) <= REFERENCE_BOUND, "%s: logsumexp %.6f, golden %.6f", where, norm, golden);
    logprob_top(row, n_vocab, norm, &best, 1);
    int golden_top = (int)number(json_array_get(json_object_get(p, "top"), 0), 0);
    CHECK(best.id == golden_top, "%s: best token %d, golden %d", where, best.id, golden_top);
    for (int i = 0; i < n_vocab; i++)
        mean += row[i] / (double)n_vocab;
    for (int i = 0; i < n_vocab; i++)
        squares += (row[i] - mean) * (row[i] - mean);
    CHECK(fabs(mean - json_number_value(json_object_get(p, "mean"))) <= REFERENCE_BOUND, "%s: mean %g", where, mean);
    double std = sqrt(squares / (n_vocab - 1));
    CHECK(fabs(std - json_number_value(json_object_get(p, "std"))) <= REFERENCE_BOUND, "%s: standard deviation %g", where, std);
}

static void check_layers(const json_t *layers, const float *rows, int n_layer, int n_embd, const char *where)
{
    CHECK(json_array_size(layers) == (size_t)n_layer, "%s: golden has %zu layers, the model %d", where, json_array_size(layers), n_layer);
    for (int l = 0; l < n_layer; l++) {
        const float *x = rows + (size_t)l * n_embd;
        const json_t *g = json_array_get(layers, (size_t)l);
        double squares = 0;
        for (int i = 0; i < n_embd; i++)
            squares += (double)x[i] * x[i];
        CHECK(fabs(sqrt(squares) - number(g, 0)) <= REFERENCE_BOUND, "%s: layer %d norm %g, golden %g", where, l, sqrt(squares),
              number(g, 0));
        for (int i = 0; i < 6; i++)
            CHECK(fabs(x[i] - number(g, (size_t)i + 1)) <= REFERENCE_BOUND, "%s: layer %d value %d is %g, golden %g", where, l, i, x[i],
                  number(g, (size_t)i + 1));
    }
}

/* Greedy continuation: equal ids up to the first golden margin of at most 0.01. */
static void check_greedy(skua_session *s, const json_t *entry, float *row, const char *where)
{
    const json_t *ids = json_object_get(entry, "greedy"), *margins = json_object_get(entry, "greedy_margin");
    int n_vocab = s->engine->config.n_vocab;
    for (size_t i = 0; i < json_array_size(ids) && number(margins, i) > 0.01; i++) {
        struct token_logprob best;
        double norm;
        logprob_norm(row, n_vocab, &norm, NULL);
        logprob_top(row, n_vocab, norm, &best, 1);
        if (!CHECK(best.id == (int)number(ids, i), "%s: greedy token %zu is %d, golden %d", where, i, best.id, (int)number(ids, i)))
            return;
        skua_feed feed = {.session = s, .ids = &best.id, .n_ids = 1, .want = SKUA_LOGITS_LAST, .logits = row};
        if (!CHECK(!skua_eval(s->engine, &feed, 1, NULL, NULL, NULL), "%s: evaluation failed", where))
            return;
    }
}

/* One prompt: the engine's numbers against the golden's. Production precision: errors go to plain and close_call. */
static void check_prompt(skua_engine *e, const json_t *entry, bool reference, struct stats *plain, struct stats *close_call)
{
    const json_t *json_ids = json_object_get(entry, "ids"), *positions = json_object_get(entry, "positions");
    const json_t *mtp = json_object_get(entry, "mtp_last");
    int32_t ids[MAX_IDS], n = (int32_t)json_array_size(json_ids);
    size_t n_vocab = (size_t)e->config.n_vocab;
    char where[64];
    snprintf(where, sizeof where, "'%.30s'", json_string_value(json_object_get(entry, "prompt")));
    if (!CHECK(n > 0 && n <= MAX_IDS, "%s: %d ids", where, n))
        return;
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)number(json_ids, (size_t)i);
    struct token_vec ours = {0};
    const char *prompt = json_string_value(json_object_get(entry, "prompt"));
    CHECK(!tokenizer_encode(e->tokenizer, prompt, strlen(prompt), true, &ours, NULL) && ours.n == (size_t)n &&
              memcmp(ours.ids, ids, ours.n * sizeof *ids) == 0,
          "%s: our ids differ from the golden's", where);
    token_vec_free(&ours);

    float *logits = malloc((size_t)n * n_vocab * sizeof(float)),
          *layers = malloc((size_t)e->config.n_layer * e->config.n_embd * sizeof(float));
    float *mtp_row = malloc(n_vocab * sizeof(float));
    skua_session *s;
    skua_error err;
    struct engine_inspect what = {.layers = true, .mtp = mtp != NULL, .logits = logits, .layer_rows = layers, .mtp_logits = mtp_row};
    if (CHECK(!skua_session_create(e, 0, &s, &err), "%s: %s", where, err.message) &&
        CHECK(!engine_inspect(s, ids, n, &what, &err), "%s: %s", where, err.message)) {
        for (size_t i = 0; i < json_array_size(positions); i++) {
            const json_t *p = json_array_get(positions, i);
            int pos = (int)json_integer_value(json_object_get(p, "pos"));
            const float *row = logits + (size_t)pos * n_vocab;
            if (reference)
                check_reference_position(p, row, (int)n_vocab, where);
            else
                compare_top(json_object_get(p, "top"), row, router_gap[pos] <= ROUTER_GAP ? close_call : plain);
        }
        if (reference) {
            struct stats m = {0};
            check_layers(json_object_get(entry, "layers_last_pos"), layers, e->config.n_layer, e->config.n_embd, where);
            compare_top(json_object_get(mtp, "top"), mtp_row, &m);
            CHECK(m.worst <= REFERENCE_BOUND, "%s: an MTP logit is off by %g", where, m.worst);
            CHECK(!mtp == (n == 1), "%s: MTP golden and prompt length disagree", where);
            check_greedy(s, entry, logits + (size_t)(n - 1) * n_vocab, where);
        }
    }
    skua_session_free(s);
    free(logits);
    free(layers);
    free(mtp_row);
}

static void check_file(const char *golden_name, const char *model_name, struct bounds bounds)
{
    const char *golden_path = support_shared(golden_name), *model = support_model(model_name);
    bool quick = getenv("SKUA_TEST_QUICK") != NULL;
    if (!golden_path || !model)
        return;
    json_t *golden = json_load_file(golden_path, 0, NULL);
    skua_engine *reference = NULL, *production = NULL;
    skua_error err;
    skua_engine_params p = {.precision = SKUA_PRECISION_REFERENCE};
    struct stats plain = {0}, close_call = {0};
    if (CHECK(golden != NULL, "%s: no JSON", golden_path) && CHECK(!skua_engine_open(model, &p, &reference, &err), "%s", err.message)) {
        plain_ops = reference->dev->ops;
        struct dev_ops watched = *plain_ops;
        watched.run = run_watched;
        reference->dev->ops = &watched;
        p = (skua_engine_params){.cpu_tier = getenv("SKUA_CPU")};
        if (CHECK(!skua_engine_open(model, &p, &production, &err), "%s", err.message))
            for (size_t i = quick ? 2 : 0; i < json_array_size(golden); i += quick ? 3 : 1) {
                for (int k = 0; k < MAX_IDS; k++)
                    router_gap[k] = 1;
                check_prompt(reference, json_array_get(golden, i), true, NULL, NULL);
                check_prompt(production, json_array_get(golden, i), false, &plain, &close_call);
            }
        reference->dev->ops = plain_ops;
        if (production)
            printf("%s, %s, production precision: worst %.4f (bound %.2f), mean %.4f over %ld logits", model_name, production->dev->kernels,
                   plain.worst, bounds.plain, plain.sum / (double)(plain.n ? plain.n : 1), plain.n);
        if (close_call.n)
            printf("; close router calls: worst %.4f (bound %.2f), mean %.4f over %ld", close_call.worst, bounds.close_call,
                   close_call.sum / (double)close_call.n, close_call.n);
        putchar('\n');
        CHECK(plain.n > 0 && plain.worst <= bounds.plain, "%s: worst error %g, bound %g", model_name, plain.worst, bounds.plain);
        CHECK(close_call.worst <= bounds.close_call, "%s: worst error at close calls %g, bound %g", model_name, close_call.worst,
              bounds.close_call);
    }
    skua_engine_close(production);
    skua_engine_close(reference);
    json_decref(golden);
}

int main(void)
{
    check_file("golden/dense-public.json", "tiny-bf16.gguf", (struct bounds){0.16, 0.16});
    check_file("golden/dense-q8_0-public.json", "tiny-q8_0.gguf", (struct bounds){0.16, 0.16});
    check_file("golden/moe-q8_0-public.json", "tiny-moe-q8_0.gguf", (struct bounds){0.5, 0.96});
    return support_finish("golden");
}
