/* Text completions: bodies, exact errors, exact answers streamed and whole, echo and scores, several prompts, the best of several, memory
 * running out at each allocation. */
#include "api_parse.h"

#include "api/writer.h"

static skua_engine *engine;
static struct api_env env;

static int parse(const struct api_env *with, json_t *body, struct api_request *r, struct api_error *e)
{
    return completions_parse(with, body, NULL, NULL, r, e);
}

#define BAD(body, code, param, message) {__LINE__, body, code, param, message}
static const struct bad_body bad[] = {
    BAD("{'prompt':5}", "invalid_type", "prompt",
        "prompt: expected a string, a list of strings, a list of token ids or a list of such lists, got 5"),
    BAD("{'prompt':[]}", "invalid_value", "prompt", "prompt: expected at least one prompt, got []"),
    BAD("{'prompt':[[]]}", "invalid_value", "prompt[0]", "prompt[0]: expected at least one token id, got []"),
    BAD("{'prompt':['a',5]}", "invalid_type", "prompt[1]", "prompt[1]: expected a string or a list of token ids, got 5"),
    BAD("{'prompt':[1,'a']}", "invalid_type", "prompt[1]", "prompt[1]: expected a token id (an integer), got 'a'"),
    BAD("{'prompt':[1,8192]}", "invalid_value", "prompt[1]", "prompt[1]: expected a token id from 0 to 8191, got 8192"),
    BAD("{'prompt':[[1],[-1]]}", "invalid_value", "prompt[1][0]", "prompt[1][0]: expected a token id from 0 to 8191, got -1"),
    BAD("{'suffix':'x'}", "unsupported_value", "suffix", "suffix: this model cannot fill in before a suffix; leave it out"),
    BAD("{'best_of':2,'n':3}", "invalid_value", "best_of", "best_of: expected at least n (3), got 2"),
    BAD("{'best_of':2,'stream':true}", "invalid_value", "best_of", "best_of: not possible with 'stream': true"),
    BAD("{'logprobs':21}", "invalid_value", "logprobs", "logprobs: expected an integer from 0 to 20, got 21"),
    BAD("{'logprobs':true}", "invalid_type", "logprobs", "logprobs: expected an integer from 0 to 20, got true"),
    BAD("{'echo':1}", "invalid_type", "echo", "echo: expected true or false, got 1"),
};

static void test_bodies(void)
{
    struct api_request r;
    struct api_error e = {0};
    static const struct {
        const char *body;
        size_t n_prompts;
        int32_t n_first, max_tokens, n_logprobs;
    } cases[] = {
        {"{}", 1, 1, 16, -1}, {"{'prompt':''}", 1, 1, 16, -1}, {"{'prompt':[5,6],'max_tokens':0}", 1, 2, 0, -1},
        {"{'prompt':[[5,6,7],[8]],'max_tokens':-1}", 2, 3, -1, -1}, {"{'prompt':['<|im_end|>','b'],'logprobs':0,'suffix':''}", 2, 1, 16, 0},
        {"{'prompt':[5],'best_of':3,'max_tokens':2}", 1, 1, 2, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!CHECK(parse(&env, parse_json(cases[i].body), &r, &e) == 0, "case %zu: %s", i, e.message))
            continue;
        CHECK(r.n_prompts == cases[i].n_prompts && r.prompts[0].n == cases[i].n_first && r.max_tokens == cases[i].max_tokens &&
                  r.n_logprobs == cases[i].n_logprobs && r.hide_logprobs == (i == 5),
              "case %zu: %zu prompts of %d tokens, max %d, logprobs %d", i, r.n_prompts, r.prompts[0].n, r.max_tokens, r.n_logprobs);
        check_memory(parse, &env, cases[i].body);
        api_request_free(&r);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_bad(parse, &env, &bad[i]);
    struct api_env small = env;
    small.n_ctx = 2;
    json_t *body = parse_json("{'prompt':[1,2,3]}");
    CHECK(parse(&small, body, &r, &e) == -1 && e.n_ctx == 2 && e.n_prompt == 3 && !strcmp(e.param, "prompt") &&
              !strcmp(e.message, "prompt: this model's maximum context length is 2 tokens, but the prompt has 3; at most 1 leave room "
                  "for an answer"),
          "%s", e.message);
    json_decref(body);
    body = parse_json("{'prompt':[1,2],'max_tokens':0,'echo':true}"); /* a score needs no room */
    if (CHECK(parse(&small, body, &r, &e) == 0, "%s", e.message))
        api_request_free(&r);
    struct strbuf many = {0};
    strbuf_puts(&many, "{'prompt':['a'");
    for (int i = 0; i < 64; i++)
        strbuf_puts(&many, ",'a'");
    strbuf_puts(&many, "]}");
    check_bad(parse, &env, &(struct bad_body)BAD(many.data, "invalid_value", "prompt", "prompt: expected at most 64 prompts, got 65"));
    strbuf_free(&many);
}

/* ---- the writer ---- */

/* The ids of tokens that print one letter each. */
static int32_t letter(char c)
{
    int32_t *ids, id;
    size_t n;
    CHECK(skua_tokenize(engine, &c, 1, false, &ids, &n, NULL) == 0 && n == 1, "a token of one letter");
    id = ids[0];
    skua_free(ids);
    return id;
}

struct play {
    const char *body;
    int n_choices;
    const char *texts[4]; /* of choices; each letter is a token */
    double logprob[4];    /* of each of its tokens */
    bool fails;
};

static int run(const struct play *p, struct strbuf *out)
{
    static const struct api_usage usage = {.n_prompt = 2, .n_generated = 3};
    struct api_request r;
    struct api_error e = {0};
    if (!CHECK(parse(&env, parse_json(p->body), &r, &e) == 0, "%s", e.message))
        return SKUA_EARG;
    struct api_writer *w = completions_writer_new();
    int rc = w ? 0 : SKUA_ENOMEM;
    if (w) {
        api_writer_init(w, &env, &r, "req_test");
        w->created = 7;
        snprintf(w->id, sizeof w->id, "cmpl-x");
        rc = w->ops->begin(w, &usage);
    }
    for (int32_t i = 0; !rc && r.echo && r.n_logprobs >= 0 && i < (int32_t)r.n_prompts; i++)
        for (int32_t k = 1; k < r.prompts[i].n && !rc; k++) {
            struct token_logprob top = {r.prompts[i].ids[k], -0.5};
            struct batch_logprob l = {.logprob = -0.5, .top = &top, .n_top = r.n_logprobs > 0};
            rc = w->ops->prompt_token(w, i, k, r.prompts[i].ids[k], &l);
        }
    for (int32_t i = 0; !rc && i < p->n_choices; i++)
        for (const char *s = p->texts[i]; *s && !rc; s++) {
            struct token_logprob top[] = {{letter('z'), -0.125}};
            struct api_token_logprob l = {letter(*s), s, 1, p->logprob[i], top, r.n_logprobs > 0};
            struct api_event event = {.kind = API_EVENT_TEXT, .text = s, .n = 1, .logprobs = &l, .n_logprobs = r.n_logprobs >= 0};
            rc = w->ops->event(w, i, &event);
        }
    for (int32_t i = 0; !rc && i < p->n_choices && !p->fails; i++)
        rc = w->ops->choice_end(w, i, &(struct api_choice_end){.finish = i ? API_FINISH_LENGTH : API_FINISH_STOP_STRING, .stop_string =
            i ? NULL : "E"});
    if (!rc && p->fails) {
        api_error_set(&e, 500, "backend_error", NULL, "broken");
        rc = w->ops->fail(w, &e);
    } else if (!rc) {
        rc = w->ops->end(w, &usage);
    }
    if (w)
        strbuf_append(out, w->out.data, w->out.len);
    rc = rc ? rc : out->failed ? SKUA_ENOMEM : 0;
    api_writer_free(w);
    api_request_free(&r);
    return rc;
}

static void expect(int line, const struct play *p, const char *want)
{
    struct strbuf got = {0};
    CHECK(run(p, &got) == 0, "line %d", line);
    check_text(line, "answers", strbuf_str(&got), want);
    strbuf_free(&got);
}
#define EXPECT(p, want) expect(__LINE__, p, want)

#define HEAD "{\"id\":\"cmpl-x\",\"object\":\"text_completion\",\"created\":7,\"model\":\"skua-test\",\"system_fingerprint\":null," \
    "\"choices\":["
#define TIMINGS                                                                                                                      \
    ",\"timings\":{\"cache_n\":0,\"prompt_n\":2,\"prompt_ms\":0.0,\"prompt_per_token_ms\":0.0,\"prompt_per_second\":0.0," \
    "\"predicted_n\":3,\"predicted_ms\":0.0,\"predicted_per_token_ms\":0.0,\"predicted_per_second\":0.0,\"queue_ms\":0.0,\"draft_n\":0," \
    "\"draft_n_accepted\":0}"
#define USAGE                                                                                                                        \
    "\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":3,\"total_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":0},"     \
    "\"completion_tokens_details\":{\"reasoning_tokens\":0,\"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}}"
#define CHOICE(index, text, logprobs, finish) \
    "{\"index\":" index ",\"text\":\"" text "\",\"logprobs\":" logprobs ",\"finish_reason\":" finish "}"
#define STOPPED "\"stop\",\"stop_reason\":\"E\""
#define FULL "\"length\",\"stop_reason\":null"
#define WHOLE(choices) HEAD choices "]," USAGE TIMINGS "}"
#define CHUNK(choice) "data: " HEAD choice "]}\n\n"
#define DONE "data: [DONE]\n\n"

static void test_answers(void)
{
    struct play p = {.body = "{'prompt':'ab'}", .n_choices = 1, .texts = {"cd"}};
    EXPECT(&p, WHOLE(CHOICE("0", "cd", "null", STOPPED)));
    p.body = "{'prompt':'ab','echo':true}";
    EXPECT(&p, WHOLE(CHOICE("0", "abcd", "null", STOPPED)));
    p.body = "{'prompt':'ab','stream':true,'stream_options':{'include_usage':true}}";
    EXPECT(&p, "data: " HEAD CHOICE("0", "c", "null", "null") "],\"usage\":null}\n\n" "data: " HEAD CHOICE("0", "d", "null", "null")
           "],\"usage\":null}\n\n" "data: " HEAD CHOICE("0", "", "null", STOPPED) "],\"usage\":null" TIMINGS "}\n\n" "data: " HEAD "],"
           USAGE "}\n\n" DONE);
    p.body = "{'prompt':['a','b'],'n':2}";
    p.n_choices = 4;
    p.texts[1] = "x";
    p.texts[2] = "y";
    p.texts[3] = "";
    EXPECT(&p, WHOLE(CHOICE("0", "cd", "null", STOPPED) "," CHOICE("1", "x", "null", FULL) "," CHOICE("2", "y", "null", FULL) ","
                     CHOICE("3", "", "null", FULL)));
    p.body = "{'prompt':'a','n':2,'best_of':4}"; /* the best mean first */
    p.logprob[0] = -3;
    p.logprob[1] = -2;
    p.logprob[2] = -1;
    p.texts[3] = "zz";
    p.logprob[3] = -1.5;
    EXPECT(&p, WHOLE(CHOICE("0", "y", "null", FULL) "," CHOICE("1", "zz", "null", FULL)));
}

static void test_scores(void)
{
    char body[100];
    struct play p = {.body = body, .n_choices = 1, .texts = {"cz"}, .logprob = {-0.25}};
    snprintf(body, sizeof body, "{'prompt':[%d,%d],'echo':true,'logprobs':1}", letter('a'), letter('b'));
    EXPECT(&p, WHOLE(CHOICE("0", "abcz",
           "{\"tokens\":[\"a\",\"b\",\"c\",\"z\"],\"token_logprobs\":[null,-0.5,-0.25,-0.25],\"top_logprobs\":[null,{\"b\":-0.5},"
           "{\"z\":-0.125,\"c\":-0.25},{\"z\":-0.125}],\"text_offset\":[0,1,2,3]}", STOPPED)));
    p.body = "{'prompt':'a','logprobs':0,'stream':true}";
    p.texts[0] = "c";
    EXPECT(&p, CHUNK(CHOICE("0", "c", "{\"tokens\":[\"c\"],\"token_logprobs\":[-0.25],\"top_logprobs\":[{\"c\":-0.25}],"
        "\"text_offset\":[0]}", "null"))
           "data: " HEAD CHOICE("0", "", "null", STOPPED) "]" TIMINGS "}\n\n" DONE);
    p.body = "{'prompt':'a','logprobs':0,'stream':true,'echo':true}";
    EXPECT(&p, CHUNK(CHOICE("0", "a", "{\"tokens\":[\"a\"],\"token_logprobs\":[null],\"top_logprobs\":[null],\"text_offset\":[0]}", "null"))
           CHUNK(CHOICE("0", "c", "{\"tokens\":[\"c\"],\"token_logprobs\":[-0.25],\"top_logprobs\":[{\"c\":-0.25}],"
               "\"text_offset\":[1]}", "null"))
           "data: " HEAD CHOICE("0", "", "null", STOPPED) "]" TIMINGS "}\n\n" DONE);
    p.texts[0] = ""; /* only scores */
    p.body = "{'prompt':'a','logprobs':0,'max_tokens':0,'echo':true}";
    EXPECT(&p, WHOLE(CHOICE("0", "a", "{\"tokens\":[\"a\"],\"token_logprobs\":[null],\"top_logprobs\":[null],\"text_offset\":[0]}",
        STOPPED)));
    p.fails = true;
#define ERROR "{\"error\":{\"message\":\"broken\",\"type\":\"server_error\",\"param\":null,\"code\":\"backend_error\"}}"
    EXPECT(&p, ERROR);
    p.texts[0] = "c";
    p.body = "{'prompt':'a','stream':true}";
    EXPECT(&p, CHUNK(CHOICE("0", "c", "null", "null")) "data: " ERROR "\n\n");
}

static void test_memory(void)
{
    static const char *const bodies[] = {"{'prompt':[5,6],'echo':true,'logprobs':1,'best_of':2}",
                                         "{'prompt':[5,6],'echo':true,'logprobs':1,'n':2,'stream':true}"};
    for (int i = 0; i < 2; i++) {
        static const struct api_usage usage = {.n_prompt = 2};
        struct api_request r;
        struct api_error e = {0};
        if (!CHECK(parse(&env, parse_json(bodies[i]), &r, &e) == 0, "%s", e.message))
            continue;
        size_t live = mem_live_blocks();
        for (uint64_t n = 1, done = 0; !done; n++) {
            struct token_logprob top[] = {{5, -1}, {6, -2}};
            struct batch_logprob score = {.logprob = -1, .top = top, .n_top = 2};
            struct api_token_logprob l = {5, "x", 1, -1, top, 2};
            struct api_event event = {.kind = API_EVENT_TEXT, .text = "x", .n = 1, .logprobs = &l, .n_logprobs = 1};
            fault_set_alloc(n, true);
            struct api_writer *w = completions_writer_new();
            int rc = w ? 0 : SKUA_ENOMEM;
            if (w) {
                api_writer_init(w, &env, &r, "req_test");
                rc = w->ops->begin(w, &usage);
            }
            rc = rc ? rc : w->ops->prompt_token(w, 0, 1, 6, &score);
            for (int32_t k = 0; k < 2 && !rc; k++)
                rc = w->ops->event(w, k, &event);
            for (int32_t k = 0; k < 2 && !rc; k++)
                rc = w->ops->choice_end(w, k, &(struct api_choice_end){.stop_string = "E"});
            rc = rc ? rc : w->ops->end(w, &usage);
            done = fault_alloc_count() < n;
            fault_set_alloc(0, false);
            CHECK(rc == (done ? 0 : SKUA_ENOMEM), "allocation %d: %d", (int)n, rc);
            api_writer_free(w);
            CHECK(mem_live_blocks() == live, "allocation %d leaves memory behind", (int)n);
        }
        api_request_free(&r);
    }
}

int main(void)
{
    skua_error err = {0};
    const char *path = support_model("tiny-q8_0.gguf");
    json_use_mem();
    json_object_seed(1);
    if (!path || skua_engine_open(path, NULL, &engine, &err)) {
        CHECK(!path, "%s", err.message);
        return support_finish("test_api_completions");
    }
    env = parse_env();
    env.engine = engine;
    env.completions_max_tokens = 16;
    test_bodies();
    test_answers();
    test_scores();
    test_memory();
    skua_engine_close(engine);
    return support_finish("test_api_completions");
}
