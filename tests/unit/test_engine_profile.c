/* Profiles: what they count against the model file and the batches, that they change no result, and how a phase is told; the device's timer
 * beside its observer. And the measurement of memory bandwidth, as far as it does not depend on time. */
#include "engine_model.h"

#include "base/clock.h"
#include "base/mem.h"
#include "dev/membw.h"
#include "engine/profile.h"
#include "gguf/gguf.h"
#include "quant/type.h"

#define N_IDS 40

static int32_t ids[N_IDS];

static void eval(skua_engine *e, skua_session *s, int32_t n, enum skua_logits want, float *logits)
{
    skua_error err = {0};
    skua_feed f = {.session = s, .ids = ids + skua_session_length(s), .n_ids = n, .want = want, .logits = logits};
    CHECK(skua_eval(e, &f, 1, NULL, NULL, &err) == 0, "%s", err.message);
}

/* Bytes of the tensors that one decode step reads once: the trunk's and the head's, of the embedding (when it is not the head) and the
   experts what one row takes. */
static uint64_t weights_read(const skua_engine *e)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < gguf_tensor_count(e->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(e->gguf, i);
        char name[64];
        int block = -1;
        snprintf(name, sizeof name, "%.*s", t->name_len, t->name);
        if (sscanf(name, "blk.%d.", &block) == 1 && block >= e->config.n_layer)
            continue; /* MTP */
        if (strncmp(name, "token_embd.", 11) == 0)
            sum += qtype_row_bytes(t->type, t->ne[0]) + (e->weights.tied ? t->size_bytes : 0);
        else if (strstr(name, "_exps."))
            sum += t->size_bytes / (uint64_t)e->config.n_expert * (uint64_t)e->config.n_expert_used;
        else
            sum += t->size_bytes;
    }
    return sum;
}

static void test_counts(skua_engine *e)
{
    const size_t row = (size_t)skua_engine_get_info(e).n_vocab;
    const struct model_config *c = &e->config;
    float *want = malloc(row * sizeof *want), *got = malloc(row * sizeof *got);
    skua_session *s = session_open(e, N_IDS), *plain = session_open(e, N_IDS);
    struct profile p = {0};
    skua_error err = {0};
    eval(e, plain, 30, SKUA_LOGITS_NONE, NULL);
    eval(e, plain, 1, SKUA_LOGITS_LAST, want);

    profile_attach(&p, e);
    uint64_t start = clock_ns();
    eval(e, s, 30, SKUA_LOGITS_NONE, NULL); /* 16 and 14 */
    CHECK(p.passes[PROFILE_PREFILL] == 2 && p.rows[PROFILE_PREFILL] == 30 && !p.passes[PROFILE_DECODE], "%llu passes",
          (unsigned long long)p.passes[PROFILE_PREFILL]);
    eval(e, s, 1, SKUA_LOGITS_LAST, got);
    uint64_t elapsed = clock_ns() - start;
    CHECK(memcmp(want, got, row * sizeof *got) == 0, "other logits under a profile");
    CHECK(p.passes[PROFILE_DECODE] == 1 && p.rows[PROFILE_DECODE] == 1, "%llu passes", (unsigned long long)p.passes[PROFILE_DECODE]);
    CHECK(profile_ns(&p, PROFILE_PREFILL) + profile_ns(&p, PROFILE_DECODE) <= elapsed, "more time than there was");
    CHECK(profile_check(&p, &err) == 0, "%s", err.message);
    const struct kern_cost cost = profile_cost(&p, PROFILE_DECODE);
    CHECK(cost.weight_bytes == weights_read(e), "%llu bytes of weights, the file has %llu", (unsigned long long)cost.weight_bytes,
          (unsigned long long)weights_read(e));
    CHECK(cost.state_bytes == 2 * config_state_bytes(c), "%llu bytes of state", (unsigned long long)cost.state_bytes);
    CHECK(cost.kv_bytes == (uint64_t)(31 + 1) * c->n_attn * 2 * c->n_head_kv * qtype_row_bytes(e->kv_type, (uint64_t)c->head_dim),
          "%llu bytes of KV cache", (unsigned long long)cost.kv_bytes); /* 31 positions read, one written */

    profile_detach(&p);
    eval(e, s, 1, SKUA_LOGITS_LAST, got);
    CHECK(p.passes[PROFILE_DECODE] == 1, "counted while detached");
    int products = 0;
    for (int i = 0; i < p.n; i++) {
        const struct profile_entry *x = &p.entries[i];
        const bool product = x->code == KERN_MATMUL || x->code == KERN_MOE_MATMUL;
        products += product;
        CHECK(x->calls > 0 && x->role && product == (x->type >= 0) && product == (x->act >= 0), "%s", x->role);
        for (int k = 0; k < i; k++)
            CHECK(p.entries[k].phase != x->phase || p.entries[k].code != x->code || p.entries[k].type != x->type ||
                      strcmp(p.entries[k].role, x->role) != 0, "%s twice", x->role);
    }
    CHECK(products > 10, "%d products", products);
    profile_free(&p);
    profile_free(&p);
    CHECK(!e->dev->timer, "the timer is still there");
    skua_session_free(s);
    skua_session_free(plain);
    free(want);
    free(got);
}

/* More rows than fit one pass through the head belong to the pass before; several sequences of one row each are decode. */
static void test_phases(skua_engine *e)
{
    const size_t row = (size_t)skua_engine_get_info(e).n_vocab;
    float *logits = malloc(2 * row * sizeof *logits);
    skua_session *s[2] = {session_open(e, N_IDS), session_open(e, N_IDS)};
    struct profile p = {0};
    skua_error err = {0};
    skua_feed f[2];
    for (int i = 0; i < 2; i++)
        f[i] = (skua_feed){.session = s[i], .ids = ids + i, .n_ids = 1, .want = SKUA_LOGITS_LAST, .logits = logits + (size_t)i * row};
    profile_attach(&p, e);
    CHECK(skua_eval(e, f, 2, NULL, NULL, &err) == 0, "%s", err.message);
    CHECK(p.passes[PROFILE_DECODE] == 1 && p.rows[PROFILE_DECODE] == 2, "two sequences");
    f[0].n_ids = 2;
    f[0].want = SKUA_LOGITS_NONE;
    CHECK(skua_eval(e, f, 2, NULL, NULL, &err) == 0, "%s", err.message);
    CHECK(p.passes[PROFILE_PREFILL] == 1 && p.rows[PROFILE_PREFILL] == 3, "one row and two");
    CHECK(!strcmp(profile_phase_name(PROFILE_PREFILL), "prefill") && !strcmp(profile_phase_name(PROFILE_DECODE), "decode"), "names");
    profile_free(&p);
    skua_session_free(s[0]);
    skua_session_free(s[1]);
    free(logits);
}

/* Both hooks at once: the observer sees each op before it runs, the timer the time of each. */
struct seen {
    int observed, timed;
};
static void observe(void *user, const struct kern_op *op, const struct kern_batch *batch)
{
    (void)op, (void)batch;
    ((struct seen *)user)->observed++;
}
static void take_time(void *user, const struct kern_op *ops, int n_ops, const struct kern_batch *batch, const uint64_t *ns)
{
    (void)batch;
    for (int i = 0; i < n_ops; i++)
        CHECK(ops[i].role && ns[i] < (uint64_t)1 << 40, "%s: %llu ns", ops[i].role, (unsigned long long)ns[i]);
    ((struct seen *)user)->timed += n_ops;
}

static void test_hooks(skua_engine *e)
{
    struct seen alone = {0}, both = {0};
    skua_session *s = session_open(e, N_IDS);
    e->dev->timer = take_time;
    e->dev->timer_user = &alone;
    eval(e, s, 3, SKUA_LOGITS_NONE, NULL);
    e->dev->timer_user = &both;
    e->dev->observer = observe;
    e->dev->observer_user = &both;
    eval(e, s, 3, SKUA_LOGITS_NONE, NULL);
    e->dev->timer = NULL;
    e->dev->observer = NULL;
    CHECK(alone.timed > 20 && both.timed == alone.timed && both.observed == alone.timed, "%d, %d and %d ops", alone.timed, both.timed,
          both.observed);
    skua_session_free(s);
}

static void test_bandwidth(void)
{
    struct membw m;
    skua_error err = {0};
    for (const char *const *t = kern_tiers(); *t; t++)
        for (int n = 1; n <= 3; n++) {
            CHECK(membw_measure(kern_select(*t), n, (size_t)n << 20 | 1, &m, &err) == 0, "%s", err.message);
            CHECK(m.bytes == (size_t)(n + 1) << 20 && m.n_threads == n, "%zu bytes", m.bytes);
            for (int way = 0; way < KERN_READ_WAYS; way++)
                CHECK(m.way[way] > 0 && m.way[way] <= m.way[membw_best(&m)], "%s: %g", membw_way_name((enum kern_read_way)way), m.way[way]);
        }
    CHECK(membw_measure(&kern_scalar, 1, 0, &m, &err) == 0 && m.bytes == (size_t)1 << 20, "the least: %zu", m.bytes);
    CHECK(membw_measure(&kern_scalar, 0, 1, &m, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "0 threads"), "no threads");
    CHECK(membw_measure(&kern_scalar, 1000, 1, &m, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "1000 threads"), "1000 threads");
    m = (struct membw){.way = {1, 3, 2}};
    CHECK(membw_best(&m) == KERN_READ_STREAMS && !strcmp(membw_way_name(KERN_READ_STREAMS), "streams"), "the best");
}

int main(void)
{
    static const char *const models[] = {"tiny-q8_0.gguf", "tiny-moe-q8_0.gguf"};
    const size_t live = mem_live_blocks();
    for (int k = 0; k < N_IDS; k++)
        ids[k] = (k * 7919 + 13) % 8000;
    for (int i = 0; i < 2; i++) {
        const char *model = support_model(models[i]);
        if (!model)
            continue;
        for (int n_threads = 1; n_threads <= 2; n_threads++) {
            skua_engine *e = model_open(model, &(skua_engine_params){.n_threads = n_threads, .max_rows = 16, .kv_type = "Q8_0"});
            test_counts(e);
            test_phases(e);
            test_hooks(e);
            skua_engine_close(e);
        }
    }
    test_bandwidth();
    CHECK(mem_live_blocks() == live, "%zu blocks are left", mem_live_blocks() - live);
    return support_finish("test_engine_profile");
}
