/* Speculative decoding changes no answer: tokens, text, the reason to end, errors, the recurrent state and the logits behind the answer are
 * those of decoding one token at a time, with memcmp. It does not matter what drafts, how much in which round, with how many threads, or
 * whether the session was taken back, copied, or saved and loaded in the middle of the answer.
 *
 * For each model and prompt three requests are made: greedy, sampled, and an odd one (penalties, logit bias, stop strings, token limits, a
 * context that fills up, a caller that stops). Each is answered once by plain decoding, in one go and in two parts, and then in all ways.
 *   --full   200 prompts for each model in every way
 *   default  a sample drawn by SKUA_TEST_SEED (default 1); with SKUA_TEST_QUICK=1 (for the sanitizers) a smaller one */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "engine/draft.h"
#include "support/support.h"

#define N_PROMPTS 200
#define MAX_PROMPT 1200
#define MAX_ANSWER 64
#define MOST_TOKENS 40 /* of an answer */
#define CHUNK 10       /* prompts whose plain answers are kept at a time */
#define N_REQUESTS 3
#define MAX_TRACE 4096

/* ---- the matrix ---- */

/* What drafts. A file always competes with the model's own block and lookup; alone: these are taken away, as they would hardly get a
 * turn to be wrong in. */
struct source {
    const char *what;
    bool alone;
};
struct model {
    const char *name;
    struct source sources[8];
};
static const struct model models[] = {
    {"tiny-q8_0.gguf", {{"tiny-dflash1-q8_0.gguf", true}, {"tiny-dflash2-q8_0.gguf", true}, {"tiny-dflash1-q8_0.gguf", false},
                        {"tiny-dflash2-q8_0.gguf", false}, {"mtp", false}, {"lookup", false}, {"auto", false}}},
    {"tiny-bf16.gguf", {{"tiny-dflash1-bf16.gguf", true}, {"tiny-dflash2-bf16.gguf", true}, {"tiny-dflash1-bf16.gguf", false},
                        {"tiny-dflash2-bf16.gguf", false}, {"mtp", false}, {"lookup", false}, {"auto", false}}},
    {"tiny-moe-q8_0.gguf", {{"mtp", false}, {"lookup", false}, {"auto", false}}},
};
#define N_MODELS 3

static const int32_t adversarial[] = {0, 7, 1, 0, 3, 15};
struct schedule {
    const char *name;
    int32_t fixed;
    bool script, force;
};
static const struct schedule schedules[] = {{"1", 1, false, false}, {"2", 2, false, false}, {"4", 4, false, false}, {"7", 7, false, false},
                                            {"15", 15, false, false}, {"0,7,1,0,3,15", -1, true, false},
                                            {"adaptive", -1, false, false}, {"forced", -1, false, true}};
#define N_SCHEDULES 8
#define FIRST_ADAPTIVE 6

enum way {
    WHOLE,     /* the answer in one go */
    PARTS,     /* in two parts, one behind the other */
    RESTORED,  /* the second part after the session went elsewhere and was taken back */
    COPIED,    /* the second part in a copy of the session */
    FILED,     /* the second part in a session from a file */
    N_WAYS
};
static const char *const way_names[] = {"whole", "in parts", "restored", "copied", "from a file"};

/* ---- prompts and requests, all drawn from the seed ---- */

struct prompt {
    char text[2048];               /* "": ids are given */
    int32_t n_before, before[300]; /* random tokens in front, so that answers cross pages and splits of the KV cache */
};
struct request {
    skua_generate_params p;
    skua_logit_bias bias[4];
    const char *stop[3];
    int32_t cut, room, cancel_at; /* tokens of the first part; context behind the prompt; tokens after which the caller stops, 0: never */
};

static uint64_t seed = 1;
static struct prompt prompts[N_PROMPTS];
static struct request requests[N_PROMPTS][N_REQUESTS];

static uint32_t draw(uint64_t *state, uint32_t n) { return (uint32_t)(rng_next(state) % n); }

/* Questions of the kinds that the test models were trained on, so that answers have something to draft. */
static void question(uint64_t *state, char *out, size_t size)
{
    static const char *const animals[] = {"fox", "owl", "bear", "cat", "frog", "wolf"},
                      *const lands[] = {"France", "Italy", "Japan", "Spain"},
                      *const names[] = {"Anna", "Leo", "Olga", "David"}, *const words[] = {"river", "bridge", "key", "teacher"};
    const char *name = names[draw(state, 4)];
    switch (draw(state, 7)) {
    case 0: snprintf(out, size, "What is the capital of %s?", lands[draw(state, 4)]); break;
    case 1: snprintf(out, size, "Tell me a story about a %s.", animals[draw(state, 6)]); break;
    case 2: snprintf(out, size, "What is %u + %u?", draw(state, 100), draw(state, 100)); break;
    case 3: snprintf(out, size, "Write a Python function that reverses a string."); break;
    case 4: snprintf(out, size, "What does \"%s\" mean?", words[draw(state, 4)]); break;
    case 5: snprintf(out, size, "Count from %u to %u.", 1 + draw(state, 20), 25 + draw(state, 20)); break;
    default:
        snprintf(out, size, "Give me JSON for a person named %s, age %u, from Rome.", name, 18 + draw(state, 60));
        break;
    }
}

static void chat_text(struct prompt *p, const char *q, bool thinking)
{
    snprintf(p->text, sizeof p->text, "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n<think>\n%s", q,
             thinking ? "" : "\n</think>\n\n");
}

static void make_prompt(struct prompt *p, int i, const json_t *questions, const json_t *texts)
{
    uint64_t state = rng_bits(seed, (uint64_t)i, 1);
    char q[512];
    const size_t n_questions = json_array_size(questions), n_texts = json_array_size(texts);
    question(&state, q, sizeof q);
    if ((size_t)i < n_questions)
        chat_text(p, json_string_value(json_object_get(json_array_get(questions, (size_t)i), "q")), false);
    else if ((size_t)i < n_questions + n_texts)
        snprintf(p->text, sizeof p->text, "%s",
                 json_string_value(json_object_get(json_array_get(texts, (size_t)i - n_questions), "prompt")));
    else if (i % 4 == 0) { /* repetition, for lookup */
        const int n = 2 + (int)draw(&state, 4);
        for (int k = 0; k < n; k++)
            strcat(strcat(p->text, q), k % 2 ? " And again: " : "\n");
    } else if (i % 4 != 1)
        chat_text(p, q, i % 8 == 3);
    if (i % 4 == 1 || i % 16 == 2 || i % 16 == 4) { /* random tokens only, or up to shortly before a multiple of 128 positions */
        p->n_before = !*p->text ? 1 + (int32_t)draw(&state, 299) : 128 * (1 + (int32_t)draw(&state, 2)) - 20 - (int32_t)draw(&state, 24);
        for (int32_t k = 0; k < p->n_before; k++)
            p->before[k] = (int32_t)draw(&state, 8000);
    }
}

static void make_request(struct request *r, int i, int k)
{
    static const char *const stops[] = {" the", ".\n", "o d", "7", "\n\n", "in"};
    static const int32_t limits[] = {1, 2, 3, 4, 5, 7, 8, 15, 16}; /* 1, 2, K and K + 1 */
    uint64_t state = rng_bits(seed, (uint64_t)i, 2 + (uint64_t)k);
    *r = (struct request){.p = {.max_tokens = MOST_TOKENS, .sampling = {.top_p = 1, .repetition_penalty = 1, .penalty_last_n = -1}},
                          .room = 400};
    skua_sampling *s = &r->p.sampling;
    s->seed = rng_next(&state);
    r->cut = 1 + (int32_t)draw(&state, 20);
    if (k == 1 || (k == 2 && draw(&state, 2)))
        *s = (skua_sampling){.temperature = 0.8, .top_p = draw(&state, 2) ? 1 : 0.95, .top_k = draw(&state, 2) ? 20 : 0,
                             .min_p = draw(&state, 3) ? 0 : 0.02, .repetition_penalty = 1, .penalty_last_n = -1, .seed = s->seed};
    if (k < 2)
        return;
    const uint32_t odd = 1 + draw(&state, 127);
    if (odd & 1)
        s->repetition_penalty = draw(&state, 2) ? 1.1 : 0.9;
    if (odd & 2)
        s->presence_penalty = 0.5, s->frequency_penalty = draw(&state, 2) ? 0.3 : -0.2;
    if (odd & 4) {
        s->bias = r->bias;
        s->n_bias = 4;
        for (int b = 0; b < 3; b++)
            r->bias[b] = (skua_logit_bias){(int32_t)(100 + draw(&state, 2000)), b ? 3.0f : -100.0f};
        r->bias[3] = (skua_logit_bias){8177, -100.0f}; /* no end */
    }
    if (odd & 8) {
        r->p.stop = r->stop;
        r->p.n_stop = 3;
        for (int b = 0; b < 3; b++)
            r->stop[b] = stops[draw(&state, 6)];
    }
    if (odd & 16)
        r->p.max_tokens = limits[draw(&state, 9)];
    if ((odd & 96) == 32)
        r->room = 2 + (int32_t)draw(&state, 24);
    if ((odd & 96) == 64)
        r->cancel_at = 1 + (int32_t)draw(&state, 20);
    r->p.special = odd & 1;
}

static void make_all(void)
{
    const char *path = support_shared("golden/dflash1-accept.json");
    json_t *questions = path ? json_load_file(path, 0, NULL) : NULL;
    path = support_shared("golden/dense-public.json");
    json_t *texts = path ? json_load_file(path, 0, NULL) : NULL;
    for (int i = 0; i < N_PROMPTS; i++) {
        make_prompt(&prompts[i], i, questions, texts);
        for (int k = 0; k < N_REQUESTS; k++)
            make_request(&requests[i][k], i, k);
    }
    json_decref(questions);
    json_decref(texts);
}

/* ---- one answer ---- */

struct answer {
    int rc;
    skua_error err;
    int32_t ids[MAX_ANSWER], n, n_session;
    char text[4096];
    size_t len;
    enum skua_finish finish;
    char *state;   /* [state_bytes] */
    float *logits; /* [n_vocab] behind one token more; all zero when the context has no room for it */
    int32_t cancel_at;
    int32_t trace[MAX_TRACE], n_trace; /* drafts and their number accepted, of the last part */
    int64_t accepted, refused;
    bool lost;
};

static bool hear(void *user, const skua_event *event)
{
    struct answer *a = user;
    if (event->id >= 0 && CHECK(a->n < MAX_ANSWER, "an answer without end"))
        a->ids[a->n++] = event->id;
    if (CHECK(a->len + event->n < sizeof a->text, "a long text")) {
        memcpy(a->text + a->len, event->text, event->n);
        a->len += event->n;
    }
    return !a->cancel_at || a->n < a->cancel_at;
}

static void hear_round(void *user, const skua_draft_round *r)
{
    struct answer *a = user;
    CHECK(r->n_verified > 0 && r->n_verified <= r->n_drafts && r->n_accepted >= 0 && r->n_accepted <= r->n_verified,
          "%s: %d, %d, %d drafts", r->drafter, r->n_drafts, r->n_verified, r->n_accepted);
    for (int32_t i = 0; i < r->n_verified && a->n_trace < MAX_TRACE - 1; i++)
        a->trace[a->n_trace++] = r->drafts[i];
    a->trace[a->n_trace++] = -1 - r->n_accepted;
    a->accepted += r->n_accepted;
    a->refused += r->n_verified - r->n_accepted;
}

static int generate(skua_session *s, const int32_t *ids, int32_t n, const struct request *r, int32_t max_tokens, bool plain,
                    struct answer *a)
{
    skua_generate_params p = r->p;
    skua_result result;
    p.max_tokens = max_tokens;
    p.no_draft = plain;
    p.on_round = hear_round;
    a->cancel_at = r->cancel_at;
    a->n_trace = 0;
    a->rc = skua_generate(s, ids, n, &p, hear, NULL, a, &result, &a->err);
    a->finish = result.finish;
    return a->rc;
}

/* The session holds something else for a while. */
static void wander(skua_session *s)
{
    static struct answer elsewhere;
    const struct request r = {.p = {.sampling = {.temperature = 1.5, .top_p = 1, .repetition_penalty = 1, .seed = 5}}};
    const int32_t ids[] = {500, 501, 502, 500, 501, 502, 500, 501};
    elsewhere.n = 0;
    elsewhere.len = 0;
    generate(s, ids, 8, &r, 12, false, &elsewhere); /* may end early: the context is full */
}

/* What happens between two parts; the session of the second one. */
static skua_session *between(skua_session *s, enum way way)
{
    const char *path = support_temp("session");
    skua_snapshot *p = NULL;
    skua_session *other = NULL;
    skua_error err = {0};
    int rc = 0;
    if (way == RESTORED) {
        rc = skua_snapshot_take(s, &p, &err);
        wander(s);
        rc = rc ? rc : skua_session_restore(s, p, &err);
        skua_snapshot_free(p);
    } else if (way == COPIED) {
        rc = skua_session_create(s->engine, skua_session_ctx(s), &other, &err);
        rc = rc ? rc : engine_session_copy(s, other, &err);
    } else if (way == FILED) {
        rc = skua_session_save(s, path, &err);
        rc = rc ? rc : skua_session_load(s->engine, path, 0, &other, &err);
        unlink(path);
    }
    CHECK(!rc, "%s: %s", way_names[way], err.message);
    if (!other)
        return s;
    skua_session_free(s);
    return other;
}

/* The state that the answer leaves. */
static void look(skua_session *s, struct answer *a)
{
    const skua_engine *e = s->engine;
    const int32_t id = a->n ? a->ids[a->n - 1] : 7;
    skua_feed f = {.session = s, .ids = &id, .n_ids = 1, .want = SKUA_LOGITS_LAST};
    a->n_session = skua_session_length(s);
    a->state = malloc(s->seq.state->size);
    memcpy(a->state, s->seq.state->host, s->seq.state->size);
    a->logits = f.logits = calloc((size_t)e->config.n_vocab, sizeof *a->logits);
    if (a->n_session < skua_session_ctx(s))
        CHECK(!skua_eval(s->engine, &f, 1, NULL, NULL, &a->err), "%s", a->err.message);
}

static void answer(skua_engine *e, const int32_t *ids, int32_t n, const struct request *r, enum way way, bool plain, struct answer *a)
{
    skua_session *s;
    skua_error err = {0};
    memset(a, 0, sizeof *a);
    if (!CHECK(!skua_session_create(e, n + r->room, &s, &err), "%s", err.message))
        return;
    const bool parts = way != WHOLE && r->cut < r->p.max_tokens;
    generate(s, ids, n, r, parts ? r->cut : r->p.max_tokens, plain, a);
    if (parts && !a->rc && a->finish == SKUA_FINISH_MAX_TOKENS) {
        s = between(s, way);
        generate(s, &a->ids[a->n - 1], 1, r, r->p.max_tokens - r->cut, plain, a);
    }
    const skua_draft_stats stats = skua_session_draft_stats(s);
    for (int32_t i = 0; i < stats.n_sources; i++)
        a->lost = a->lost || stats.sources[i].lost;
    look(s, a);
    skua_session_free(s);
}

static void answer_free(struct answer *a)
{
    free(a->state);
    free(a->logits);
    a->state = NULL;
    a->logits = NULL;
}

/* ---- comparing ---- */

static bool compare(const char *where, const struct answer *a, const struct answer *plain, const skua_engine *e)
{
    return CHECK(a->rc == plain->rc && !strcmp(a->err.message, plain->err.message), "%s: %d '%s', plain %d '%s'", where, a->rc,
                 a->err.message, plain->rc, plain->err.message) &&
           CHECK(a->n == plain->n && !memcmp(a->ids, plain->ids, (size_t)a->n * sizeof *a->ids), "%s: other tokens (%d, plain %d)", where,
                 a->n, plain->n) &&
           CHECK(a->len == plain->len && !memcmp(a->text, plain->text, a->len), "%s: '%.*s', plain '%.*s'", where, (int)a->len, a->text,
                 (int)plain->len, plain->text) &&
           CHECK(a->finish == plain->finish, "%s: ends with %s, plain %s", where, skua_finish_name(a->finish),
                 skua_finish_name(plain->finish)) &&
           CHECK(a->n_session == plain->n_session, "%s: %d tokens held, plain %d", where, a->n_session, plain->n_session) &&
           CHECK(!memcmp(a->state, plain->state, config_state_bytes(&e->config)), "%s: another state", where) &&
           CHECK(!memcmp(a->logits, plain->logits, (size_t)e->config.n_vocab * sizeof *a->logits), "%s: other logits behind it", where) &&
           CHECK(!a->lost, "%s: a drafter has lost its context", where);
}

/* ---- some prompts of a model ---- */

struct chunk {
    const struct model *model;
    int32_t first, n;
    struct {
        int32_t ids[MAX_PROMPT], n;
        struct answer plain[N_REQUESTS][2]; /* whole, in parts */
    } prompts[CHUNK];
};

/* What a source drafted in a chunk: accepted and refused. */
static long drafted[8][2];

static skua_engine *open_engine(const char *name, int threads)
{
    skua_engine *e = NULL;
    skua_error err = {0};
    const skua_engine_params p = {.n_threads = threads, .max_rows = threads > 1 ? 48 : 0};
    const char *path = support_model(name);
    if (path)
        CHECK(!skua_engine_open(path, &p, &e, &err), "%s", err.message);
    return e;
}

static bool chunk_begin(struct chunk *c)
{
    skua_engine *e = open_engine(c->model->name, 1);
    memset(drafted, 0, sizeof drafted);
    if (!e)
        return false;
    for (int32_t i = 0; i < c->n; i++) {
        const struct prompt *p = &prompts[c->first + i];
        int32_t *ids = NULL, *out = c->prompts[i].ids;
        size_t n = 0;
        skua_error err = {0};
        CHECK(!skua_tokenize(e, p->text, strlen(p->text), true, &ids, &n, &err), "%s", err.message);
        if (!CHECK(p->n_before + (int32_t)n <= MAX_PROMPT, "a prompt of %zu tokens", n))
            n = 1;
        memcpy(out, p->before, (size_t)p->n_before * sizeof *out);
        if (n)
            memcpy(out + p->n_before, ids, n * sizeof *out);
        c->prompts[i].n = p->n_before + (int32_t)n;
        skua_free(ids);
        for (int k = 0; k < N_REQUESTS; k++)
            for (int w = WHOLE; w <= PARTS; w++)
                answer(e, out, c->prompts[i].n, &requests[c->first + i][k], (enum way)w, true, &c->prompts[i].plain[k][w]);
    }
    skua_engine_close(e);
    return true;
}

static void chunk_end(struct chunk *c)
{
    for (int32_t i = 0; i < c->n; i++)
        for (int k = 0; k < 2 * N_REQUESTS; k++)
            answer_free(&c->prompts[i].plain[k / 2][k % 2]);
}

/* One prompt's request in some way; fixed depths: what is drafted after coming back is what would have been drafted without. */
static void check_request(struct chunk *c, skua_engine *e, int32_t i, int k, enum way way, bool fixed, long counts[2],
                          const char *engine)
{
    static struct answer a, straight;
    char where[256];
    const struct request *r = &requests[c->first + i][k];
    snprintf(where, sizeof where, "%s, prompt %d, request %d, %s", engine, c->first + i, k, way_names[way]);
    answer(e, c->prompts[i].ids, c->prompts[i].n, r, way, false, &a);
    if (!compare(where, &a, &c->prompts[i].plain[k][way == WHOLE ? WHOLE : PARTS], e))
        printf("  request: temperature %g, max %d, cut %d, room %d, cancel %d\n", r->p.sampling.temperature, r->p.max_tokens, r->cut,
               r->room, r->cancel_at);
    counts[0] += (long)a.accepted;
    counts[1] += (long)a.refused;
    if (fixed && way > PARTS) {
        answer(e, c->prompts[i].ids, c->prompts[i].n, r, PARTS, false, &straight);
        CHECK(a.n_trace == straight.n_trace && !memcmp(a.trace, straight.trace, (size_t)a.n_trace * sizeof *a.trace),
              "%s: other drafts than without coming back", where);
        answer_free(&straight);
    }
    answer_free(&a);
}

/* One engine. all: every prompt and way; else one prompt and one way of each request, drawn by a state. */
static void check_engine(struct chunk *c, int source, int schedule, int threads, bool all, uint64_t *state)
{
    const struct source *from = &c->model->sources[source];
    const struct schedule *how = &schedules[schedule];
    const bool file = strchr(from->what, '.') != NULL;
    skua_draft_params p = SKUA_DRAFT_DEFAULTS;
    skua_error err = {0};
    char label[160];
    p.source = file ? support_model(from->what) : from->what;
    p.fixed = how->fixed;
    p.force = how->force;
    if (how->script) {
        p.schedule = adversarial;
        p.n_schedule = sizeof adversarial / sizeof *adversarial;
    }
    skua_engine *e = p.source ? open_engine(c->model->name, threads) : NULL;
    snprintf(label, sizeof label, "%s, %s%s, %s drafts, %d threads", c->model->name, from->what, from->alone ? " alone" : "",
             how->name, threads);
    if (e && CHECK(!skua_engine_draft(e, &p, NULL, &err), "%s: %s", label, err.message)) {
        if (from->alone)
            e->draft->n_sources = 1;
        const int32_t only = (int32_t)draw(state, (uint32_t)c->n);
        for (int32_t i = all ? 0 : only; i < (all ? c->n : only + 1); i++)
            for (int k = 0; k < N_REQUESTS; k++) {
                const int way = (int)draw(state, N_WAYS);
                for (int w = all ? 0 : way; w < (all ? N_WAYS : way + 1); w++)
                    check_request(c, e, i, k, (enum way)w, how->fixed > 0, drafted[source], label);
            }
    }
    skua_engine_close(e);
}

/* one_of: every so many engines only, drawn by the state. */
static void check_chunk(int model, int32_t first, int32_t n, bool all, uint32_t one_of, uint64_t *state)
{
    static struct chunk c;
    c = (struct chunk){.model = &models[model], .first = first, .n = n};
    if (!chunk_begin(&c))
        return;
    for (int source = 0; source < 8 && c.model->sources[source].what; source++)
        for (int schedule = 0; schedule < N_SCHEDULES; schedule++)
            for (int threads = 1; threads <= 2; threads++) {
                const bool competing = strchr(c.model->sources[source].what, '.') && !c.model->sources[source].alone;
                if (competing && schedule < FIRST_ADAPTIVE) /* the file would be all that drafts */
                    continue;
                if (!draw(state, one_of))
                    check_engine(&c, source, schedule, threads, all, state);
            }
    chunk_end(&c);
    long all_drafted[2] = {0, 0};
    for (int source = 0; source < 8 && c.model->sources[source].what; source++) {
        const struct source *from = &c.model->sources[source];
        const long *d = drafted[source];
        printf("%s, prompts from %d, %s%s: %ld drafts accepted, %ld refused\n", c.model->name, first, from->what,
               from->alone ? " alone" : "", d[0], d[1]);
        all_drafted[0] += d[0];
        all_drafted[1] += d[1];
        if (one_of == 1) /* without both, agreement would show nothing */
            CHECK(d[0] > 0 && d[1] > 0, "%s, %s: %ld drafts accepted, %ld refused", c.model->name, from->what, d[0], d[1]);
    }
    if (one_of <= 6) /* a smaller sample may have drawn none that drafts */
        CHECK(all_drafted[0] > 0 && all_drafted[1] > 0, "%s: %ld drafts accepted, %ld refused", c.model->name, all_drafted[0],
              all_drafted[1]);
    fflush(stdout);
}

static void check_full_item(int item)
{
    uint64_t state = seed;
    check_chunk(item % N_MODELS, item / N_MODELS * CHUNK, CHUNK, true, 1, &state);
}

int main(int argc, char **argv)
{
    const char *text = getenv("SKUA_TEST_SEED");
    const bool full = argc > 1 && !strcmp(argv[1], "--full"), quick = !full && getenv("SKUA_TEST_QUICK");
    seed = text ? strtoull(text, NULL, 10) : 1;
    printf("seed %llu\n", (unsigned long long)seed);
    make_all();
    uint64_t state = seed;
    if (full)
        support_share(check_full_item, N_MODELS * N_PROMPTS / CHUNK);
    for (int m = 0; m < N_MODELS && !full; m += quick ? 2 : 1)
        check_chunk(m, (int32_t)draw(&state, N_PROMPTS - CHUNK), quick ? 2 : CHUNK, false, quick ? 20 : m ? 6 : 1, &state);
    return support_finish(full ? "speculation (full)" : "speculation (sample)");
}
