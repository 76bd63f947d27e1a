/* A session that was saved in the middle of an answer with some drafters goes on with any others, or none: the same tokens and state. A
 * drafter that the file holds has its context again; one that it does not hold, and that tokens alone do not bring back, is said to be
 * lost. So it is with what drafters left in memory, cut anywhere or changed. */
#include "engine_model.h"

#include <unistd.h>

#include "base/rng.h"
#include "engine/draft.h"

#define N_CTX 400
#define N_PROMPT 60
#define FIRST 9 /* tokens before the session is saved, */
#define THEN 24 /* and behind it */

static const char *const ways[] = {"none", "mtp", "lookup", "auto", "models/tiny-dflash2-q8_0.gguf"};
#define N_WAYS 5
static skua_engine *engines[N_WAYS];
static int32_t prompt[N_PROMPT];

struct answer {
    int32_t ids[FIRST + THEN], n;
    int n_lost, n_accepted;
};

static bool hear(void *user, const skua_event *event)
{
    struct answer *a = user;
    if (event->id >= 0 && CHECK(a->n < FIRST + THEN, "an answer without end"))
        a->ids[a->n++] = event->id;
    return true;
}

static void hear_note(void *user, const char *note)
{
    struct answer *a = user;
    a->n_lost += strstr(note, "drafts no more in this session") != NULL;
}

static void hear_round(void *user, const skua_draft_round *round)
{
    struct answer *a = user;
    a->n_accepted += round->n_accepted;
}

static void ask(skua_session *s, const int32_t *ids, int32_t n, int32_t most, struct answer *a)
{
    skua_generate_params p = {.max_tokens = most, .special = true, .on_note = hear_note, .on_round = hear_round,
                              .sampling = {.top_p = 1, .repetition_penalty = 1}};
    skua_result result;
    skua_error err = {0};
    *a = (struct answer){.n = 0};
    CHECK(!skua_generate(s, ids, n, &p, hear, NULL, a, &result, &err), "%s", err.message);
}

static void open_engines(void)
{
    static const char text[] = "one two three four five six seven eight nine ten, ";
    skua_error err = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    for (int i = 0; i < N_WAYS; i++) {
        skua_draft_params p = SKUA_DRAFT_DEFAULTS;
        p.source = ways[i];
        p.force = true;
        engines[i] = model_open("models/tiny-q8_0.gguf", NULL);
        CHECK(!skua_engine_draft(engines[i], &p, NULL, &err), "%s: %s", ways[i], err.message);
    }
    CHECK(!skua_tokenize(engines[0], text, strlen(text), false, &ids, &n, &err) && n > 4, "%s", err.message);
    for (size_t i = 0; i < N_PROMPT && n; i++)
        prompt[i] = ids[i % n];
    skua_free(ids);
}

/* What session x says after what was answered before; a state that must be want's, or becomes it. */
static void go_on(const char *where, skua_session *s, const struct answer *before, const struct answer *then, const char *state,
                  struct answer *a)
{
    ask(s, &before->ids[FIRST - 1], 1, THEN, a);
    CHECK(a->n == then->n && !memcmp(a->ids, then->ids, (size_t)a->n * sizeof *a->ids), "%s: other tokens", where);
    CHECK(!memcmp(state, s->seq.state->host, s->seq.state->size), "%s: another state", where);
}

/* Does an engine have a source of this kind? */
static bool has(const skua_engine *e, const char *kind)
{
    for (int32_t i = 0; e->draft && i < e->draft->n_sources; i++)
        if (!strcmp(e->draft->sources[i].kind_name, kind))
            return true;
    return false;
}

static void test_other_drafters(const struct answer *before, const struct answer *then, const char *state)
{
    const char *path = support_temp("session");
    for (int from = 0; from < N_WAYS; from++) {
        skua_session *s = session_open(engines[from], N_CTX), *other = NULL;
        skua_error err = {0};
        struct answer a;
        ask(s, prompt, N_PROMPT, FIRST, &a);
        CHECK(a.n == FIRST && !memcmp(a.ids, before->ids, sizeof a.ids[0] * FIRST), "%s: other tokens", ways[from]);
        CHECK(!skua_session_save(s, path, &err), "%s", err.message);
        for (int to = 0; to < N_WAYS; to++) {
            char where[120];
            snprintf(where, sizeof where, "saved with %s, goes on with %s", ways[from], ways[to]);
            if (!CHECK(!skua_session_load(engines[to], path, 0, &other, &err), "%s: %s", where, err.message))
                continue;
            go_on(where, other, before, then, state, &a);
            int lost = 0;
            const skua_draft_stats stats = skua_session_draft_stats(other);
            for (int32_t i = 0; i < stats.n_sources; i++) {
                const char *name = stats.sources[i].name;
                const bool held = has(engines[from], name) || !strcmp(name, "lookup") || !strcmp(name, "combined");
                CHECK(stats.sources[i].lost == !held, "%s: %s is %slost", where, name, held ? "" : "not ");
                lost += stats.sources[i].lost;
            }
            CHECK(a.n_lost == lost, "%s: %d losses said", where, a.n_lost);
            CHECK(a.n_accepted > 0 || lost || !to, "%s: no draft was accepted", where);
            skua_session_free(other);
        }
        skua_session_free(s);
        unlink(path);
    }
}

/* Drafters of a session that is right, with what was kept of them cut or changed. */
static void test_damaged(int way, const struct answer *before, const struct answer *then, const char *state, bool quick)
{
    skua_session *s = session_open(engines[way], N_CTX);
    struct answer a;
    ask(s, prompt, N_PROMPT, FIRST, &a);
    const size_t size = session_draft_save_size(s, true);
    char *whole = calloc(1, size);
    session_draft_save(s, true, whole);
    uint64_t rng = 1;
    for (int i = 0; i < (quick ? 12 : 36); i++) {
        char where[80];
        skua_session *copy = session_open(engines[way], N_CTX);
        skua_error err = {0};
        size_t n = i % 3 ? size : i < 24 ? (size_t)i * 15 : (size_t)(rng_next(&rng) % size);
        char *part = malloc(n ? n : 1); /* of its very size, for the sanitizers */
        memcpy(part, whole, n);
        for (int k = i % 3; k && n; k--) { /* heads of parts and states are at their begin; else anywhere */
            const size_t at = (size_t)(rng_next(&rng) % (i % 2 && n > 400 ? 400 : n));
            part[at] = (char)(i % 5 ? part[at] ^ (1 << rng_next(&rng) % 8) : (char)0xff);
        }
        snprintf(where, sizeof where, "%s, damage %d", ways[way], i);
        CHECK(!engine_session_copy(s, copy, &err), "%s", err.message);
        session_draft_load(copy, part, n);
        go_on(where, copy, before, then, state, &a);
        free(part);
        skua_session_free(copy);
    }
    free(whole);
    skua_session_free(s);
}

int main(void)
{
    static struct answer before, then;
    open_engines();
    skua_session *s = session_open(engines[0], N_CTX);
    ask(s, prompt, N_PROMPT, FIRST, &before);
    ask(s, &before.ids[FIRST - 1], 1, THEN, &then);
    CHECK(before.n == FIRST && then.n == THEN, "%d, %d tokens", before.n, then.n);
    char *state = malloc(s->seq.state->size);
    memcpy(state, s->seq.state->host, s->seq.state->size);
    skua_session_free(s);
    test_other_drafters(&before, &then, state);
    for (int way = 1; way < N_WAYS; way++)
        test_damaged(way, &before, &then, state, getenv("SKUA_TEST_QUICK") != NULL);
    free(state);
    for (int i = 0; i < N_WAYS; i++)
        skua_engine_close(engines[i]);
    return support_finish("engine_draft_session");
}
