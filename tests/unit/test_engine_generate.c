/* The public interface: generation. Every way to end, what is delivered, what the session holds afterwards, seeds and limits. */
#include "engine_model.h"

#include <math.h>

#define MAX_EVENTS 4096

struct heard {
    int32_t ids[MAX_EVENTS], n;
    char text[65536];
    size_t len;
    int32_t stop_at; /* say stop at this event, 0: never */
    int ends;        /* events after which nothing may come */
};

static bool listen(void *user, const skua_event *event)
{
    struct heard *h = user;
    CHECK(!h->ends, "an event behind the last one");
    if (event->id < 0)
        h->ends++;
    else
        h->ids[h->n++] = event->id;
    memcpy(h->text + h->len, event->text, event->n);
    h->len += event->n;
    h->text[h->len] = '\0';
    CHECK(event->text[event->n] == '\0' || event->n > 0, "text");
    for (size_t i = 0; i < event->n; i++) /* complete characters only: a lead byte is followed by what it announces */
        if ((event->text[i] & 0xC0) == 0x80)
            CHECK(i > 0, "a piece begins inside a character");
    return !h->stop_at || h->n < h->stop_at;
}

static bool no_progress(void *user, int32_t n_done, int32_t n_total)
{
    (void)user;
    (void)n_done;
    (void)n_total;
    return false;
}

static skua_engine *e;
static int32_t *france, *story; /* prompts */
static int32_t n_france, n_story;

static int32_t *chat(const char *messages, const char *args, int32_t *n)
{
    int32_t *ids;
    size_t count;
    skua_error err = {0};
    if (!CHECK(skua_chat_prompt(e, messages, NULL, args, &ids, &count, NULL, &err) == 0, "%s", err.message))
        exit(1);
    *n = (int32_t)count;
    return ids;
}

static skua_generate_params greedy(void)
{
    return (skua_generate_params){.sampling = {.top_p = 1, .repetition_penalty = 1}, .max_tokens = -1};
}

static int generate(skua_session *s, const int32_t *prompt, int32_t n, const skua_generate_params *p, struct heard *h, skua_result *r,
                    skua_error *err)
{
    int32_t stop_at = h->stop_at;
    *h = (struct heard){.stop_at = stop_at};
    *r = (skua_result){.finish = 99};
    *err = (skua_error){0};
    return skua_generate(s, prompt, n, p, listen, NULL, h, r, err);
}

static struct heard h, whole; /* large */

static void test_end_token(void)
{
    skua_session *s = session_open(e, 0);
    skua_generate_params p = greedy();
    skua_result r;
    skua_error err;
    CHECK(generate(s, france, n_france, &p, &whole, &r, &err) == 0, "%s", err.message);
    CHECK(!strcmp(whole.text, "The capital of France is Paris."), "'%s'", whole.text);
    CHECK(r.finish == SKUA_FINISH_END_TOKEN && r.n_prompt == n_france && r.n_generated == whole.n + 1 && whole.ends == 1,
          "%s after %d tokens, %d events", skua_finish_name(r.finish), r.n_generated, whole.n);
    CHECK(r.prompt_seconds > 0 && r.generate_seconds > 0, "times");
    /* the end token is not evaluated, what was said is */
    CHECK(skua_session_length(s) == n_france + whole.n &&
              !memcmp(skua_session_tokens(s) + n_france, whole.ids, (size_t)whole.n * sizeof *whole.ids),
          "the session holds %d tokens", skua_session_length(s));
    skua_session_reset(s);
    p.special = true; /* prints the end token */
    CHECK(generate(s, france, n_france, &p, &h, &r, &err) == 0 && !strcmp(h.text, "The capital of France is Paris.<|im_end|>"), "'%s'",
          h.text);
    CHECK(r.finish == SKUA_FINISH_END_TOKEN && h.n == whole.n + 1 && skua_token_ends(e, h.ids[whole.n]) && r.n_generated == h.n,
          "%d events", h.n);
    CHECK(skua_session_length(s) == n_france + whole.n, "the session holds %d tokens", skua_session_length(s));
    /* a second prompt behind what the session holds */
    CHECK(generate(s, france, n_france, &p, &h, &r, &err) == 0 && skua_session_length(s) == 2 * n_france + whole.n + h.n - 1,
          "appending: %s", err.message);
    skua_session_free(s);
}

static void test_max_tokens(void)
{
    skua_result r;
    skua_error err;
    for (int32_t n = 0; n <= whole.n + 1; n++) {
        skua_session *s = session_open(e, 0);
        skua_generate_params p = greedy();
        p.max_tokens = n;
        CHECK(generate(s, france, n_france, &p, &h, &r, &err) == 0, "%s", err.message);
        bool ended = n > whole.n;
        CHECK(r.finish == (ended ? SKUA_FINISH_END_TOKEN : SKUA_FINISH_MAX_TOKENS) && r.n_generated == n, "limit %d: %s after %d", n,
              skua_finish_name(r.finish), r.n_generated);
        CHECK(h.n == (ended ? whole.n : n) && !memcmp(h.ids, whole.ids, (size_t)h.n * sizeof *h.ids) && !strncmp(h.text, whole.text, h.len),
              "limit %d: '%s'", n, h.text);
        CHECK(h.ends == (n > 0), "limit %d: %d last pieces", n, h.ends);
        CHECK(skua_session_length(s) == n_france + (n ? (ended ? whole.n : n - 1) : 0), "limit %d: session of %d", n,
              skua_session_length(s));
        skua_session_free(s);
    }
}

static void test_stop_strings(void)
{
    static const struct {
        const char *stop[3], *text;
        enum skua_finish finish;
    } cases[] = {
        {{"Paris"}, "The capital of France is ", SKUA_FINISH_STOP_STRING},
        {{" is Paris."}, "The capital of France", SKUA_FINISH_STOP_STRING}, /* over several tokens */
        {{"nce is", "France"}, "The capital of ", SKUA_FINISH_STOP_STRING}, /* the one that completes first */
        {{"T"}, "", SKUA_FINISH_STOP_STRING},
        {{"Paris, "}, "The capital of France is Paris.", SKUA_FINISH_END_TOKEN}, /* held back and then not it */
        {{"Paris. And", "xyz", "."}, "The capital of France is Paris", SKUA_FINISH_STOP_STRING},
        {{"<|im_end|>"}, "The capital of France is Paris.", SKUA_FINISH_END_TOKEN}, /* tokens that print nothing are no text */
        {{"the capital"}, "The capital of France is Paris.", SKUA_FINISH_END_TOKEN},
    };
    skua_result r;
    skua_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        skua_session *s = session_open(e, 0);
        skua_generate_params p = greedy();
        p.stop = cases[i].stop;
        while (p.n_stop < 3 && cases[i].stop[p.n_stop])
            p.n_stop++;
        CHECK(generate(s, france, n_france, &p, &h, &r, &err) == 0 && !strcmp(h.text, cases[i].text) && r.finish == cases[i].finish,
              "case %zu: '%s', %s %s", i, h.text, skua_finish_name(r.finish), err.message);
        CHECK(h.n == r.n_generated - (r.finish == SKUA_FINISH_END_TOKEN) && !memcmp(h.ids, whole.ids, (size_t)h.n * sizeof *h.ids) &&
                  h.ends == 1,
              "case %zu: %d events, %d tokens", i, h.n, r.n_generated);
        skua_session_free(s);
    }
    static char big[1026];
    memset(big, 'x', sizeof big - 1);
    const char *seventeen[17], *empty[] = {"ok", ""}, *too_long[] = {big};
    for (int i = 0; i < 17; i++)
        seventeen[i] = "stop";
    skua_session *s = session_open(e, 0);
    skua_generate_params p = greedy();
    p.stop = seventeen;
    p.n_stop = 17;
    CHECK(generate(s, france, n_france, &p, &h, &r, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "17 stop strings"), "17 stop strings");
    p.stop = empty;
    p.n_stop = 2;
    CHECK(generate(s, france, n_france, &p, &h, &r, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "0 bytes"), "an empty stop string");
    p.stop = too_long;
    p.n_stop = 1;
    CHECK(generate(s, france, n_france, &p, &h, &r, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "1025 bytes"), "a long stop string");
    CHECK(skua_session_length(s) == 0 && h.n == 0 && !h.ends && r.finish == SKUA_FINISH_NONE && r.n_generated == 0, "something ran");
    skua_session_free(s);
}

static void test_cancel(void)
{
    skua_result r;
    skua_error err;
    for (int32_t at = 1; at <= whole.n; at++) {
        skua_session *s = session_open(e, 0);
        skua_generate_params p = greedy();
        p.stop = (const char *const[]){"is Paris. No"}; /* some text is held back when the caller stops */
        p.n_stop = 1;
        h.stop_at = at;
        CHECK(generate(s, france, n_france, &p, &h, &r, &err) == 0 && r.finish == SKUA_FINISH_CANCELED && r.n_generated == at &&
                  h.n == at && h.ends == 1,
              "stop at %d: %s after %d events", at, skua_finish_name(r.finish), h.n);
        CHECK(skua_session_length(s) == n_france + at - 1 && !strncmp(h.text, whole.text, h.len), "stop at %d: '%s'", at, h.text);
        /* the rest can be had from here */
        p.n_stop = 0;
        size_t before = h.len;
        h.stop_at = 0;
        static struct heard rest;
        CHECK(generate(s, whole.ids + at - 1, 1, &p, &rest, &r, &err) == 0 && !strcmp(whole.text + before, rest.text),
              "the rest after %d: '%s'", at, rest.text);
        skua_session_free(s);
    }
    skua_session *s = session_open(e, 0);
    skua_generate_params p = greedy();
    err = (skua_error){0};
    h = (struct heard){0};
    int rc = skua_generate(s, story, n_story, &p, listen, no_progress, &h, &r, &err);
    CHECK(rc == SKUA_ECANCELED && err.code == rc && r.finish == SKUA_FINISH_NONE && !h.n && !h.ends && skua_session_length(s) == 8,
          "stop in the prompt: %d, %d", rc, skua_session_length(s));
    skua_session_free(s);
}

static void test_limits(void)
{
    skua_result r;
    skua_error err;
    int32_t bad[] = {1, 2, 8192};
    skua_generate_params p = greedy();
    /* room for the prompt and two tokens more */
    skua_session *s = session_open(e, n_france + 2);
    CHECK(generate(s, france, n_france, &p, &h, &r, &err) == SKUA_ELIMIT && SAYS(&err, SKUA_ELIMIT, "context is full"), "full");
    CHECK(h.n == 3 && r.n_generated == 3 && h.ends == 1 && r.finish == SKUA_FINISH_NONE && !memcmp(h.ids, whole.ids, 3 * sizeof *h.ids),
          "%d tokens before", h.n);
    CHECK(skua_session_length(s) == n_france + 2 && !strncmp(h.text, whole.text, h.len), "'%s'", h.text);
    CHECK(generate(s, france, 1, &p, &h, &r, &err) == SKUA_ELIMIT && !h.n && skua_session_length(s) == n_france + 2,
          "nothing goes in any more");
    skua_session_free(s);
    s = session_open(e, n_france - 1);
    CHECK(generate(s, france, n_france, &p, &h, &r, &err) == SKUA_ELIMIT && !h.n && !h.ends && skua_session_length(s) == 0,
          "the prompt does not fit");
    CHECK(generate(s, bad, 3, &p, &h, &r, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "8192") && skua_session_length(s) == 0,
          "an id that is none");
    CHECK(generate(s, bad, 0, &p, &h, &r, &err) == SKUA_EARG && skua_session_length(s) == 0, "no prompt");
    p.sampling.temperature = -1;
    CHECK(generate(s, bad, 2, &p, &h, &r, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "temperature", "-1"), "a temperature of -1");
    p = greedy();
    p.sampling.bias = &(skua_logit_bias){9000, 1};
    p.sampling.n_bias = 1;
    CHECK(generate(s, bad, 2, &p, &h, &r, &err) == SKUA_EARG && SAYS(&err, SKUA_EARG, "9000"), "a bias for no token");
    CHECK(skua_session_length(s) == 0, "something ran");
    skua_session_free(s);
}

/* The same seed gives the same answer, whatever ran before and however the session came to its state; others differ. */
static void test_seeds(void)
{
    skua_result r;
    skua_error err;
    skua_generate_params p = {.max_tokens = 60};
    static struct heard a;
    int different = 0;
    CHECK(skua_sampling_defaults(e, false, &p.sampling, &err) == 0, "%s", err.message);
    p.sampling.temperature = 1.5;
    for (uint64_t seed = 0; seed < 4; seed++) {
        skua_session *s = session_open(e, 0);
        p.sampling.seed = seed;
        CHECK(generate(s, story, n_story, &p, &h, &r, &err) == 0, "%s", err.message);
        skua_session_reset(s);
        skua_feed f = {.session = s, .ids = story, .n_ids = n_story - 3};
        CHECK(skua_eval(e, &f, 1, NULL, NULL, &err) == 0, "%s", err.message);
        static struct heard again;
        CHECK(generate(s, story + n_story - 3, 3, &p, &again, &r, &err) == 0, "%s", err.message);
        CHECK(h.n == again.n && !memcmp(h.ids, again.ids, (size_t)h.n * sizeof *h.ids) && !strcmp(h.text, again.text), "seed %d twice",
              (int)seed);
        if (seed && (h.n != a.n || memcmp(h.ids, a.ids, (size_t)h.n * sizeof *h.ids)))
            different++;
        if (!seed)
            a = h;
        skua_session_free(s);
    }
    CHECK(different == 3, "%d of 3 seeds differ from seed 0", different);
    /* banned and forced tokens */
    skua_session *s = session_open(e, 0);
    p = greedy();
    p.max_tokens = 5;
    p.sampling.bias = &(skua_logit_bias){whole.ids[0], -100};
    p.sampling.n_bias = 1;
    CHECK(generate(s, france, n_france, &p, &h, &r, &err) == 0 && h.n > 0 && h.ids[0] != whole.ids[0], "a banned token");
    skua_session_reset(s);
    p.sampling.bias = &(skua_logit_bias){777, 100};
    CHECK(generate(s, france, n_france, &p, &h, &r, &err) == 0 && h.n == 5 && h.ids[0] == 777 && h.ids[4] == 777, "a forced token");
    skua_session_free(s);
}

/* Padding rows of the vocabulary are never sampled: forced, they are refused or passed over, and a hot random run never shows one. */
static void test_padding(void)
{
    skua_result r;
    skua_error err;
    skua_session *s = session_open(e, 0);
    skua_generate_params p = {.sampling = {.temperature = 2, .top_p = 1, .repetition_penalty = 1, .seed = 3}, .max_tokens = 400};
    size_t n;
    CHECK(generate(s, story, n_story, &p, &h, &r, &err) == 0 && h.n > 20, "%d tokens: %s", h.n, err.message);
    for (int32_t i = 0; i < h.n; i++) {
        skua_token_bytes(e, h.ids[i], true, &n);
        CHECK(n > 0, "token %d, which prints nothing", h.ids[i]);
    }
    skua_session_free(s);
}

/* Greedy answers come from the head's argmax; a bias of 0 changes nothing but makes the sampler look at all logits. */
static void test_greedy_ways(void)
{
    static const char *const questions[] = {"Tell me a story about a small dog.", "What is 12 plus 7?", "Hi", "Name three colors.",
                                            "Why is the sky blue?", "\xE4\xBD\xA0\xE5\xA5\xBD", "Repeat: a a a a a a a a"};
    const skua_logit_bias none = {.id = 5, .bias = 0};
    skua_result r;
    skua_error err;
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
        char messages[256];
        int32_t n_ids, *ids;
        snprintf(messages, sizeof messages, "[{\"role\": \"user\", \"content\": \"%s\"}]", questions[i]);
        ids = chat(messages, i % 2 ? NULL : "{\"enable_thinking\": false}", &n_ids);
        skua_generate_params p = greedy();
        p.max_tokens = 120;
        skua_session *s = session_open(e, 0);
        CHECK(generate(s, ids, n_ids, &p, &whole, &r, &err) == 0 && whole.n > 0, "%s", err.message);
        skua_session_reset(s);
        p.sampling.bias = &none;
        p.sampling.n_bias = 1;
        CHECK(generate(s, ids, n_ids, &p, &h, &r, &err) == 0, "%s", err.message);
        CHECK(h.n == whole.n && memcmp(h.ids, whole.ids, (size_t)h.n * sizeof *h.ids) == 0 && !strcmp(h.text, whole.text),
              "question %zu: '%s', with all logits '%s'", i, whole.text, h.text);
        skua_session_free(s);
        skua_free(ids);
    }
}

/* A model whose logits are no numbers: the same refusal from the head's argmax and from the sampler. */
static void test_bad_logits(const char *path)
{
    static const float bad[] = {NAN, INFINITY};
    const skua_logit_bias none = {.id = 5, .bias = 0};
    skua_engine *good = e;
    for (int i = 0; i < 2; i++) {
        struct edit_model m;
        skua_result r;
        skua_error direct, sampled;
        edit_load(&m, path);
        struct edit_tensor *norm = edit_find(&m, "output_norm.weight");
        float *data = malloc(norm->size);
        memcpy(data, norm->data, norm->size);
        data[3] = bad[i];
        edit_own(norm, data, norm->size);
        e = model_open(edit_write(&m, "bad.gguf"), NULL);
        edit_unload(&m);
        skua_session *s = session_open(e, 0);
        skua_generate_params p = greedy();
        CHECK(generate(s, france, n_france, &p, &h, &r, &direct) == SKUA_ESTATE && h.n == 0, "%s", direct.message);
        skua_session_reset(s);
        p.sampling.bias = &none;
        p.sampling.n_bias = 1;
        CHECK(generate(s, france, n_france, &p, &h, &r, &sampled) == SKUA_ESTATE && h.n == 0, "%s", sampled.message);
        CHECK(!strcmp(direct.message, sampled.message) && strstr(direct.message, "the logit of token"), "'%s', with all logits '%s'",
              direct.message, sampled.message);
        skua_session_free(s);
        skua_engine_close(e);
    }
    e = good;
}

int main(void)
{
    const char *model = support_model("tiny-q8_0.gguf");
    if (!model)
        return support_finish("test_engine_generate");
    e = model_open(model, &(skua_engine_params){.n_threads = 2, .max_rows = 8});
    france = chat("[{\"role\": \"user\", \"content\": \"What is the capital of France?\"}]", "{\"enable_thinking\": false}", &n_france);
    story = chat("[{\"role\": \"user\", \"content\": \"Tell me a story about a small dog.\"}]", NULL, &n_story);
    test_end_token();
    test_max_tokens();
    test_stop_strings();
    test_cancel();
    test_limits();
    test_seeds();
    test_padding();
    test_greedy_ways();
    test_bad_logits(model);
    CHECK(!strcmp(skua_finish_name(SKUA_FINISH_MAX_TOKENS), "token limit") && !strcmp(skua_finish_name((enum skua_finish)77), "unknown"),
          "names");
    skua_free(france);
    skua_free(story);
    skua_engine_close(e);
    return support_finish("test_engine_generate");
}
