/* A drafter that fails in the middle of a session: the answer is what it would be, the loss is said once, and the session goes on; also
 * when it is asked again, taken back, copied or begun anew. Calls that a drafter gets fail in turn, and allocations that it makes. */
#include "engine_model.h"

#include "base/mem.h"
#include "engine/draft.h"

#define N_CTX 400
#define N_PROMPT 250 /* pages of the drafters' caches are added during the answer */
#define MOST 24      /* tokens of an answer */

static int32_t prompt[N_PROMPT], n_prompt = N_PROMPT;
static const int32_t more[] = {500, 501, 502, 500, 501, 502, 500, 501};

/* ---- drafters whose calls fail ---- */

enum fault { NONE, BEFORE, AFTER, ALLOCATION, ALLOCATIONS }; /* the call does nothing; all it should; what it can until memory ends */
enum call { EXTEND, PROPOSE, ANY };

/* Process-wide, as drafters know nothing of who watches them. */
static struct {
    const struct drafter_ops *ops[SCHED_MAX_SOURCES]; /* real ones, by number of the source */
    struct drafter_ops wrapped[SCHED_MAX_SOURCES];
    const struct drafter *drafters[SCHED_MAX_SOURCES];
    enum fault fault;
    enum call call;
    int32_t source;      /* whose calls count */
    uint64_t at, n;      /* the call or allocation that fails, 1 is the first; how many there were */
    int n_failed;        /* calls that did */
} w;

static int32_t number_of(const struct drafter *d)
{
    int32_t i = 0;
    while (w.drafters[i] != d)
        i++;
    return i;
}

/* Before a call: does it fail without doing anything? */
static bool begin(int32_t source, enum call call)
{
    if (source != w.source || (w.call != ANY && call != w.call))
        return false;
    if (w.fault == ALLOCATION || w.fault == ALLOCATIONS)
        fault_set_alloc(w.at > w.n ? w.at - w.n : w.fault == ALLOCATIONS && w.at ? 1 : 0, w.fault == ALLOCATION);
    else
        w.n++;
    return w.fault == BEFORE && w.n == w.at;
}

static int end(int32_t source, enum call call, int rc, skua_error *err)
{
    if (source != w.source || (w.call != ANY && call != w.call))
        return rc;
    if (w.fault == ALLOCATION || w.fault == ALLOCATIONS) {
        w.n += fault_alloc_count();
        fault_set_alloc(0, false);
    } else if (!rc && w.fault == AFTER && w.n == w.at)
        rc = error_set(err, SKUA_EIO, "made to fail");
    w.n_failed += rc != 0;
    return rc;
}

static int failing_extend(struct drafter *d, const struct draft_rows *rows, skua_error *err)
{
    const int32_t i = number_of(d);
    const bool now = begin(i, EXTEND);
    return end(i, EXTEND, now ? error_set(err, SKUA_EIO, "made to fail") : w.ops[i]->extend(d, rows, err), err);
}

static int failing_propose(struct drafter *d, const struct draft_request *q, struct draft *out, skua_error *err)
{
    const int32_t i = number_of(d);
    const bool now = begin(i, PROPOSE);
    if (now) /* what a broken drafter leaves behind */
        *out = (struct draft){.n = 3, .ids = {1, 2, 3}};
    return end(i, PROPOSE, now ? error_set(err, SKUA_EIO, "made to fail") : w.ops[i]->propose(d, q, out, err), err);
}

static void wrap(skua_session *s, int32_t source, enum call call, enum fault fault, uint64_t at)
{
    for (int32_t i = 0; i < s->engine->draft->n_sources; i++) {
        struct drafter *d = s->draft->drafters[i];
        w.drafters[i] = d;
        if (!d)
            continue;
        w.ops[i] = d->ops;
        w.wrapped[i] = *d->ops;
        w.wrapped[i].extend = failing_extend;
        w.wrapped[i].propose = failing_propose;
        d->ops = &w.wrapped[i];
    }
    w.source = source;
    w.call = call;
    w.fault = fault;
    w.at = at;
    w.n = 0;
    w.n_failed = 0;
}

/* ---- answers ---- */

struct answer {
    int32_t ids[MOST], n, n_session;
    enum skua_finish finish;
    int rc, n_lost, n_rounds;
    char *state;
};

static bool hear(void *user, const skua_event *event)
{
    struct answer *a = user;
    if (event->id >= 0 && a->n < MOST)
        a->ids[a->n++] = event->id;
    return true;
}

static void hear_note(void *user, const char *note)
{
    struct answer *a = user;
    a->n_lost += strstr(note, "drafts no more in this session") != NULL;
    CHECK(!strchr(note, '\n'), "several lines: %s", note);
}

static void hear_round(void *user, const skua_draft_round *round)
{
    struct answer *a = user;
    a->n_rounds += round->n_verified > 0;
}

static void ask(skua_session *s, const int32_t *ids, int32_t n, double temperature, bool plain, struct answer *a)
{
    skua_generate_params p = {.max_tokens = MOST, .no_draft = plain, .special = true, .on_note = hear_note, .on_round = hear_round,
                              .sampling = {.temperature = temperature, .top_p = 1, .repetition_penalty = 1, .seed = 7}};
    skua_result result;
    skua_error err = {0};
    *a = (struct answer){.state = malloc(s->seq.state->size)};
    a->rc = skua_generate(s, ids, n, &p, hear, NULL, a, &result, &err);
    CHECK(!a->rc, "%s", err.message);
    a->finish = result.finish;
    a->n_session = skua_session_length(s);
    memcpy(a->state, s->seq.state->host, s->seq.state->size);
}

static void expect(const char *where, const skua_session *s, struct answer *a, const struct answer *plain)
{
    CHECK(a->n == plain->n && !memcmp(a->ids, plain->ids, (size_t)a->n * sizeof *a->ids), "%s: %d other tokens", where, a->n);
    CHECK(a->finish == plain->finish && a->n_session == plain->n_session, "%s: %d tokens held, plain %d", where, a->n_session,
          plain->n_session);
    CHECK(!memcmp(a->state, plain->state, s->seq.state->size), "%s: another state", where);
    free(a->state);
}

/* ---- one engine ---- */

struct subject {
    skua_engine *engine;
    const char *what;
    double temperature;
    struct answer plain[2]; /* of the prompt, and of what is asked behind it */
};

static bool is_lost(const skua_session *s, int32_t source)
{
    const skua_draft_stats stats = skua_session_draft_stats(s);
    return stats.sources[source].lost;
}

/* The session elsewhere and back, in another session, and from the beginning, with its drafter lost: the same answers. */
static void go_on(const struct subject *x, skua_session *s, const char *where)
{
    struct answer a;
    skua_error err = {0};
    skua_snapshot *p = NULL;
    skua_session *copy = session_open(x->engine, N_CTX);
    CHECK(!skua_snapshot_take(s, &p, &err), "%s: %s", where, err.message);
    CHECK(!engine_session_copy(s, copy, &err), "%s: %s", where, err.message);
    ask(s, more, 8, x->temperature, false, &a);
    CHECK(a.n_lost == 0, "%s: the loss is said again", where);
    expect(where, s, &a, &x->plain[1]);
    CHECK(!skua_session_restore(s, p, &err), "%s: %s", where, err.message);
    ask(s, more, 8, x->temperature, false, &a);
    expect(where, s, &a, &x->plain[1]);
    ask(copy, more, 8, x->temperature, false, &a);
    expect(where, copy, &a, &x->plain[1]);
    skua_session_reset(s);
    for (int32_t i = 0; i < x->engine->draft->n_sources; i++)
        CHECK(!is_lost(s, i), "%s: still lost in an empty session", where);
    ask(s, prompt, n_prompt, x->temperature, false, &a);
    CHECK(a.n_rounds > 0, "%s: nothing is drafted in an empty session", where);
    expect(where, s, &a, &x->plain[0]);
    skua_snapshot_free(p);
    skua_session_free(copy);
}

/* A call or an allocation that fails. false: there were not as many. */
static bool check_fault(const struct subject *x, int32_t source, enum call call, enum fault fault, uint64_t at, bool all)
{
    static const char *const calls[] = {"extend", "propose", "any call"},
        *const faults[] = {"none", "before", "after", "allocation", "allocations"};
    char where[160];
    struct answer a;
    skua_session *s = session_open(x->engine, N_CTX);
    snprintf(where, sizeof where, "%s, source %d, %s, %s %d", x->what, source, calls[call], faults[fault], (int)at);
    wrap(s, source, call, fault, at);
    ask(s, prompt, n_prompt, x->temperature, false, &a);
    const bool failed = w.n_failed > 0, reached = w.n >= at;
    CHECK(failed || !reached || fault >= ALLOCATION, "%s: nothing failed", where);
    w.fault = NONE;
    CHECK(a.n_lost == (failed ? 1 : 0), "%s: said %d times", where, a.n_lost);
    for (int32_t i = 0; i < x->engine->draft->n_sources; i++)
        CHECK(is_lost(s, i) == (failed && i == source), "%s: source %d is %slost", where, i, is_lost(s, i) ? "" : "not ");
    expect(where, s, &a, &x->plain[0]);
    if (failed && all)
        go_on(x, s, where);
    skua_session_free(s);
    return reached;
}

/* Every call or allocation of a source in turn. */
static void check_source(const struct subject *x, int32_t source, bool quick)
{
    int tried = 0;
    for (int call = EXTEND; call <= PROPOSE; call++)
        for (int fault = BEFORE; fault <= AFTER; fault++) {
            const bool whole = (fault == BEFORE) == (call == EXTEND);
            uint64_t at = 1;
            for (; check_fault(x, source, (enum call)call, (enum fault)fault, at, whole && at == 2); tried++)
                at += quick ? 7 : 1 + at / 2;
        }
    for (int fault = ALLOCATION; fault <= ALLOCATIONS; fault++)
        for (uint64_t at = 1; check_fault(x, source, ANY, (enum fault)fault, at, at == 1 && fault == ALLOCATION); tried++)
            at += quick ? 7 : 1 + at / 3;
    printf("%s, %s: %d faults\n", x->what, x->engine->draft->sources[source].kind_name, tried);
    CHECK(tried > 3, "%s, source %d: %d faults", x->what, source, tried);
}

/* Something that repeats, for lookup too. */
static void make_prompt(skua_engine *e)
{
    static const char text[] = "one two three four five six seven eight nine ten, ";
    int32_t *ids = NULL;
    size_t n = 0;
    skua_error err = {0};
    CHECK(!skua_tokenize(e, text, strlen(text), false, &ids, &n, &err) && n > 4, "%s", err.message);
    for (size_t i = 0; i < N_PROMPT && n; i++)
        prompt[i] = ids[i % n];
    skua_free(ids);
}

static void check_engine(const char *what, int32_t n_sources, double temperature, bool quick)
{
    static const int32_t schedule[] = {5, 0, 7, 3, 1, 15};
    skua_draft_params p = SKUA_DRAFT_DEFAULTS;
    skua_error err = {0};
    struct subject x = {.engine = model_open("models/tiny-q8_0.gguf", NULL), .what = what, .temperature = temperature};
    p.source = what;
    p.force = true;
    if (n_sources == 1) { /* alone, and as a script tells: who competes gets few turns */
        p.force = false;
        p.schedule = schedule;
        p.n_schedule = sizeof schedule / sizeof *schedule;
    }
    if (!CHECK(!skua_engine_draft(x.engine, &p, NULL, &err), "%s", err.message))
        return;
    make_prompt(x.engine);
    if (n_sources == 1)
        x.engine->draft->n_sources = 1;
    skua_session *s = session_open(x.engine, N_CTX);
    ask(s, prompt, n_prompt, temperature, true, &x.plain[0]);
    ask(s, more, 8, temperature, true, &x.plain[1]);
    skua_session_free(s);
    for (int32_t i = 0; i < x.engine->draft->n_sources; i++)
        if (x.engine->draft->sources[i].kind != SCHED_COMBINED)
            check_source(&x, i, quick);
    free(x.plain[0].state);
    free(x.plain[1].state);
    skua_engine_close(x.engine);
}

int main(void)
{
    const bool quick = getenv("SKUA_TEST_QUICK") != NULL;
    if (quick)
        n_prompt = 40;
    check_engine("models/tiny-dflash2-q8_0.gguf", 1, 0, quick);
    check_engine("mtp", 1, 0, quick);
    check_engine("lookup", 1, 0.8, quick);
    if (!quick)
        check_engine("models/tiny-dflash2-q8_0.gguf", 4, 0, true);
    return support_finish("engine_draft_failure");
}
