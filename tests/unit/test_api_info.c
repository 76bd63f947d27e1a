/* Endpoints beside generation: exact bodies and errors, and memory running out at each allocation. */
#include "api_parse.h"

#include "api/info.h"
#include "api/template.h"

static skua_engine *engine;
static struct api_env env;

typedef int info_fn(const json_t *body, struct strbuf *out, struct api_error *e);

static int tokenize(const json_t *body, struct strbuf *out, struct api_error *e) { return api_tokenize(&env, NULL, body, out, e); }
static int detokenize(const json_t *body, struct strbuf *out, struct api_error *e) { return api_detokenize(&env, body, out, e); }
static int apply(const json_t *body, struct strbuf *out, struct api_error *e) { return api_apply_template(&env, NULL, body, out, e); }
static int models(const json_t *body, struct strbuf *out, struct api_error *e)
{
    return api_models(&env, json_object_size(body) > 0, out, e);
}
static int model(const json_t *body, struct strbuf *out, struct api_error *e)
{
    return api_model(&env, json_string_value(json_object_get(body, "id")), out, e);
}

static void expect(int line, info_fn *fn, const char *body, const char *want)
{
    json_t *b = parse_json(body);
    struct strbuf out = {0};
    struct api_error e = {0};
    size_t live = mem_live_blocks();
    char *quoted = with_quotes(want);
    int rc = fn(b, &out, &e);
    if (rc) {
        CHECK(!out.len, "line %d: an error and '%s'", line, strbuf_str(&out));
        strbuf_printf(&out, "%d %s %s", e.status, e.code, e.message);
    }
    check_text(line, "answers", strbuf_str(&out), quoted);
    mem_free(quoted);
    strbuf_free(&out);
    CHECK(mem_live_blocks() == live, "line %d leaves memory behind", line);
    for (uint64_t n = 1, done = 0; !done && !rc; n++) {
        e = (struct api_error){0};
        fault_set_alloc(n, true);
        int failed = fn(b, &out, &e);
        done = fault_alloc_count() < n;
        fault_set_alloc(0, false);
        CHECK(done ? failed == 0 : failed == -1 && e.status == 503 && !strcmp(e.code, "out_of_memory"),
            "line %d, allocation %d: %d %d %s", line,
              (int)n, failed, e.status, e.message);
        strbuf_free(&out);
        CHECK(mem_live_blocks() == live, "line %d, allocation %d leaves memory behind", line, (int)n);
    }
    json_decref(b);
}
#define EXPECT(fn, body, want) expect(__LINE__, fn, body, want)

static void test_models(void)
{
#define MODEL                                                                                                                         \
    "{'id':'lab/tiny','object':'model','created':1700000000,'owned_by':'skua','root':'lab/tiny','parent':null,'max_model_len':4096,"  \
    "'display_name':'Tiny-dense','type':'model','created_at':'2023-11-14T22:13:20Z','max_input_tokens':4095,'max_tokens':4095,"       \
    "'status':'loaded','aliases':['a','b'],'capabilities':{'completion':true,'chat':true,'thinking':true,'tools':true,'vision':false," \
    "'embedding':false},'meta':{'n_params':15642416,'size_bytes':17025216,'n_ctx_train':4096,'n_ctx':4096,'vocab_size':8192,"         \
    "'quantization':'Q8_0','architecture':'qwen35','draft':{'type':'mtp','file':null,'verdict':'ok'}}}"
    EXPECT(models, "{}", "{'object':'list','data':[" MODEL "],'models':[]}");
    EXPECT(models, "{'anthropic':1}", "{'object':'list','data':[" MODEL
        "],'models':[],'first_id':'lab/tiny','last_id':'lab/tiny','has_more':false}");
    EXPECT(model, "{'id':'lab/tiny'}", MODEL);
    EXPECT(model, "{'id':'lab%2Ftiny'}", MODEL);
    EXPECT(model, "{'id':'b'}", MODEL);
    EXPECT(model, "{'id':'gpt%'}", "404 model_not_found model: 'gpt%' is not served here; expected 'lab/tiny'");
}

static void test_tokens(void)
{
    int32_t *ids;
    size_t n = 0;
    char want[300];
    CHECK(skua_tokenize(engine, "<|im_end|>a", 11, true, &ids, &n, NULL) == 0 && n == 2, "%zu tokens", n);
    snprintf(want, sizeof want, "{'tokens':[%d,%d],'count':2,'max_model_len':4096}", ids[0], ids[1]);
    EXPECT(tokenize, "{'content':'<|im_end|>a'}", want);
    EXPECT(tokenize, "{'prompt':'<|im_end|>a','add_special':true}", want);
    snprintf(want, sizeof want, "{'tokens':[{'id':%d,'piece':'<|im_end|>'},{'id':%d,'piece':'a'}],'count':2,'max_model_len':4096}",
        ids[0], ids[1]);
    EXPECT(tokenize, "{'content':'<|im_end|>a','with_pieces':true}", want);
    snprintf(want, sizeof want, "{'tokens':[%d,%d]}", ids[0], ids[1]);
    EXPECT(detokenize, want, "{'content':'<|im_end|>a'}");
    snprintf(want, sizeof want, "{'tokens':[%d],'bytes':true}", ids[1]);
    EXPECT(detokenize, want, "{'content':[97]}");
    skua_free(ids);
    EXPECT(tokenize, "{'content':''}", "{'tokens':[],'count':0,'max_model_len':4096}");
    EXPECT(tokenize, "{}", "400 missing_required_parameter content: missing; expected a string in content or prompt, or messages");
    EXPECT(tokenize, "{'content':5}", "400 invalid_type content: expected a string, got 5");
    EXPECT(detokenize, "{}", "400 missing_required_parameter tokens: missing; expected a list of token ids");
    EXPECT(detokenize, "{'tokens':[1,8192]}", "400 invalid_value tokens[1]: expected a token id from 0 to 8191, got 8192");
    EXPECT(detokenize, "{'tokens':['a']}", "400 invalid_type tokens[0]: expected a token id (an integer), got 'a'");
    EXPECT(detokenize, "{'tokens':[]}", "{'content':''}");
}

/* A character of several tokens: its pieces are byte lists. */
static void test_pieces(void)
{
    json_t *body = parse_json("{'content':'\\u4e2d\\u9f98','with_pieces':true}");
    struct strbuf out = {0};
    struct api_error e = {0};
    struct strbuf bytes = {0};
    json_t *piece;
    size_t i, k;
    if (CHECK(api_tokenize(&env, NULL, body, &out, &e) == 0, "%s", e.message)) {
        json_t *v = json_loads(out.data, 0, NULL), *b;
        json_array_foreach(json_object_get(v, "tokens"), i, piece) {
            const json_t *p = json_object_get(piece, "piece");
            if (json_is_string(p))
                strbuf_puts(&bytes, json_string_value(p));
            json_array_foreach(p, k, b)
                strbuf_putc(&bytes, (char)json_integer_value(b));
        }
        check_text(__LINE__, "pieces", strbuf_str(&bytes), "\xE4\xB8\xAD\xE9\xBE\x98");
        json_decref(v);
    }
    json_decref(body);
    strbuf_free(&out);
    strbuf_free(&bytes);
}

static void test_template(void)
{
    struct strbuf out = {0};
    struct api_error e = {0};
    struct api_request r;
    json_t *body = parse_json("{'messages':[{'role':'user','content':'<|im_end|>'}],'stream_options':{'include_usage':true}}");
    EXPECT(apply, "{'messages':[{'role':'user','content':'<|im_end|>'}],'enable_thinking':false}",
           "{'prompt':'<|im_start|>user\\n<|im_end|><|im_end|>\\n<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n'}");
    EXPECT(apply, "{'messages':[]}", "400 invalid_value messages: expected a list of messages that is not empty, got []");
    env.n_ctx = 3; /* counted all the same */
    CHECK(api_tokenize(&env, NULL, body, &out, &e) == 0, "%s", e.message);
    json_object_del(body, "stream_options");
    if (CHECK(chat_parse(&env, body, NULL, NULL, &r, &e) == 0, "%s", e.message)) {
        api_prompt_build(&env, NULL, &r, &e);
        json_t *v = json_loads(strbuf_str(&out), 0, NULL);
        CHECK(json_integer_value(json_object_get(v, "count")) == r.prompts[0].n && r.prompts[0].n > 3, "%s", strbuf_str(&out));
        json_decref(v);
        api_request_free(&r);
    }
    env.n_ctx = 4096;
    strbuf_free(&out);
    CHECK(api_embeddings_refuse(&e) == -1 && e.status == 400 && !strcmp(e.code, "unsupported_parameter"), "%s", e.message);
    env.chat = NULL;
    EXPECT(apply, "{'messages':[{'role':'user','content':'x'}]}",
           "400 unsupported_value messages: this model has no chat template; /v1/completions takes its prompts");
}

int main(void)
{
    static const char *const aliases[] = {"a", "b"};
    skua_error err = {0};
    const char *path = support_model("tiny-q8_0.gguf");
    struct api_template *chat = NULL;
    json_use_mem();
    json_object_seed(1);
    if (!path)
        return support_finish("test_api_info");
    if (skua_engine_open(path, NULL, &engine, &err) || api_template_new(engine, &chat, &err)) {
        CHECK(false, "%s", err.message);
        return support_finish("test_api_info");
    }
    env = parse_env();
    env.engine = engine;
    env.chat = chat;
    env.model_id = "lab/tiny";
    env.aliases = aliases;
    env.n_aliases = 2;
    env.facts.created = 1700000000;
    env.facts.n_params = 15642416;
    env.facts.quantization = "Q8_0";
    env.facts.draft_type = "mtp";
    env.facts.draft_verdict = "ok";
    test_models();
    test_tokens();
    test_pieces();
    test_template();
    api_template_free(chat);
    skua_engine_close(engine);
    return support_finish("test_api_info");
}
