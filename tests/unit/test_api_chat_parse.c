/* Bodies of chat completions: what becomes of good ones, the exact errors of bad ones, memory running out, and thousands of random
 * conversations. */
#include "api_parse.h"

#include "api/common.h"
#include "api/template.h"
#include "base/rng.h"

static skua_engine *engine;
static const char *info_header;

static const char *header(void *user, const char *name)
{
    (void)user;
    return strcmp(name, "x-engine-info") == 0 ? info_header : NULL;
}

static int parse(const struct api_env *env, json_t *body, struct api_request *r, struct api_error *e)
{
    return chat_parse(env, body, header, NULL, r, e);
}

#define USER "'messages':[{'role':'user','content':'Hi'}]"
#define HI "[{'role':'user','content':'Hi'}]"
#define TOOL "{'type':'function','function':{'name':'f','parameters':{'type':'object'}}}"

static const struct good_body good[] = {
    {__LINE__, "{" USER "}", HI, "", ""},
    {__LINE__, "{" USER ",'model':'other','stream':true,'top_k':5,'temperature':0.5,'unknown':[1]}", HI, "",
           " stream top-k=5 temperature=0.5"},
    {__LINE__, "{" USER ",'max_tokens':9,'max_completion_tokens':7,'n_predict':-1}", HI, "", " max=7"},
    {__LINE__, "{" USER ",'max_tokens':0}", HI, "", " max=0"},
    {__LINE__, "{" USER ",'max_tokens':99999999999}", HI, "", " max=2147483647"},
    {__LINE__, "{" USER ",'top_k':5.0,'stop':'a'}", HI, "", " top-k=5 stop=a"},
    {__LINE__, "{" USER ",'stop':['a','b'],'logprobs':true,'top_logprobs':3}", HI, "", " logprobs=3 stop=a stop=b"},
    {__LINE__, "{" USER ",'logprobs':false,'top_logprobs':0,'stop':null,'n':1}", HI, "", ""},
    {__LINE__, "{" USER ",'enable_thinking':false}", HI, "", " no-thinking"},
    {__LINE__, "{" USER ",'enable_thinking':false,'chat_template_kwargs':{'enable_thinking':true}}", HI, "", ""},
    {__LINE__, "{" USER ",'thinking':{'type':'disabled'},'reasoning_effort':'high'}", HI, "", " no-thinking"},
    {__LINE__, "{" USER ",'thinking':{'type':'enabled','budget_tokens':77},'reasoning_effort':'low'}", HI, "", " budget=77"},
    {__LINE__, "{" USER ",'reasoning_effort':'low','thinking_budget':5}", HI, "", " budget=2048"},
    {__LINE__, "{" USER ",'reasoning_effort':'none'}", HI, "", " no-thinking"},
    {__LINE__, "{" USER ",'thinking_budget':0}", HI, "", " no-thinking"},
    {__LINE__, "{" USER ",'thinking_budget':0,'enable_thinking':true}", HI, "", ""},
    {__LINE__, "{" USER ",'reasoning_budget_tokens':64}", HI, "", " budget=64"},
    {__LINE__, "{" USER ",'tools':[" TOOL "]}", HI, "[" TOOL "]", " choice=auto tool=f={\"type\":\"object\"}"},
    {__LINE__, "{" USER ",'tools':[" TOOL "],'tool_choice':'none','parallel_tool_calls':false}", HI, "[" TOOL "]",
     " one-call choice=none tool=f={\"type\":\"object\"}"},
    {__LINE__, "{" USER ",'tools':[" TOOL "],'tool_choice':{'type':'function','function':{'name':'f'}}}", HI, NULL,
     " choice=required allow=f tool=f={\"type\":\"object\"}"},
    {__LINE__, "{" USER ",'tools':[" TOOL "],'tool_choice':{'type':'allowed_tools','allowed_tools':{'mode':'auto',"
           "'tools':[{'type':'function',"
               "'function':{'name':'f'}}]}}}", HI, NULL, " choice=auto allow=f tool=f={\"type\":\"object\"}"},
    {__LINE__, "{" USER ",'tools':[],'tool_choice':'auto'}", HI, "", ""},
    {__LINE__, "{" USER ",'tools':[{'type':'custom','custom':{'name':'c','description':'D','format':{'type':'text'}}}]}", HI,
     "[{'type':'function','function':{'name':'c','description':'D','parameters':{'type':'object','properties':{'input':{'type':'string'}},"
     "'required':['input']}}}]", " choice=auto tool=c:custom"},
    {__LINE__, "{" USER ",'functions':[{'name':'g','parameters':{}}],'function_call':{'name':'g'}}", HI,
     "[{'type':'function','function':{'name':'g','parameters':{}}}]", " choice=required allow=g tool=g={}"},
    {__LINE__, "{" USER ",'tools':[{'type':'custom','custom':{'name':'c','format':{'type':'grammar','grammar':{'syntax':'regex',"
     "'definition':'[0-9]+'}}}}]}", HI,
     "[{'type':'function','function':{'name':'c','description':'The input must match this regular expression:\\n[0-9]+','parameters':"
     "{'type':'object','properties':{'input':{'type':'string'}},'required':['input']}}}]", " choice=auto tool=c:custom:[0-9]+"},
    {__LINE__, "{" USER ",'response_format':{'type':'json_object'}}", HI, "", " structure=object"},
    {__LINE__, "{" USER ",'response_format':{'type':'json_schema','json_schema':{'name':'n','strict':true,"
           "'schema':{'type':'string'}}}}", HI, "",
     " strict-schema structure=schema"},
    {__LINE__, "{" USER ",'response_format':{'type':'text'},'regex':'a+'}", HI, "", " structure=regex"},
    {__LINE__, "{'messages':[{'role':'system','content':'a'},{'role':'developer','content':[{'type':'text','text':'b'},"
           "{'type':'input_text',"
               "'text':'c'}]},{'role':'user','content':null},{'role':'system','content':'late'}]}",
     "[{'role':'system','content':'a\\n\\nbc'},{'role':'user','content':''},{'role':'system','content':'late'}]", "", ""},
    {__LINE__, "{'messages':[{'role':'system','content':[{'type':'text','text':'x-anthropic-billing-header: 1'},{'type':'text',"
           "'text':'S'}]},"
               "{'role':'system','content':'x-anthropic-billing-header: 2\\nT'},{'role':'user','content':'x-anthropic-billing-header:'}]}",
     "[{'role':'system','content':'S\\n\\nT'},{'role':'user','content':'x-anthropic-billing-header:'}]", "", ""},
    {__LINE__, "{'messages':[{'role':'user','content':'q','name':'n','cache_control':{'type':'ephemeral'}},{'role':'assistant','content':[{"
               "'type':'thinking','thinking':'T'},{'type':'text','text':'A'}],'tool_calls':[{'id':'c1','type':'function',"
                   "'function':{'name':"
               "'f','arguments':'{\\\"a\\\": 1}'}},{'id':'c2','function':{'name':'g','arguments':''}},{'type':'custom',"
                   "'custom':{'name':'h',"
               "'input':'raw'}},{'id':'c3','function':{'name':'f','arguments':'not json'}}]},{'role':'tool','tool_call_id':'c1',"
                   "'content':[{"
               "'type':'text','text':'R'}]},{'role':'function','name':'f','content':'old'}]}",
     "[{'role':'user','content':'q','cache_hint':true},{'role':'assistant','content':'A','reasoning_content':'T','tool_calls':[{'id':'c1',"
     "'type':'function','function':{'name':'f','arguments':{'a':1}}},{'id':'c2','type':'function','function':{'name':'g','arguments':{}}},"
     "{'type':'function','function':{'name':'h','arguments':{'input':'raw'}}},{'id':'c3','type':'function','function':{'name':'f',"
     "'arguments':'not json'}}]},{'role':'tool','content':'R','tool_call_id':'c1'},{'role':'tool','content':'old'}]", "", ""},
    {__LINE__, "{'messages':[{'role':'assistant','refusal':'No.','reasoning':'r','function_call':{'name':'f','arguments':'{}'}}]}",
     "[{'role':'assistant','content':'No.','reasoning_content':'r','tool_calls':[{'type':'function','function':{'name':'f','arguments':"
     "{}}}]}]", "", ""},
    {__LINE__, "{'messages':[{'role':'assistant','content':'To be'}],'continue_final_message':true}",
     "[{'role':'assistant','content':'To be'}]", "", " continue"},
    {__LINE__, "{" USER ",'logit_bias':{'5':-100,'6':1.5},'seed':-1,'metadata':{'a':'b'},'store':true,'modalities':['text'],"
               "'speculative':{'type':'off'},'user':'u','timeout':1.5,'priority':-10}", HI, "", ""},
};

#define BAD(body, code, param, message) {__LINE__, body, code, param, message}
static const struct bad_body bad[] = {
    BAD("{}", "missing_required_parameter", "messages", "messages: missing; expected a list of messages that is not empty"),
    BAD("{'messages':[]}", "invalid_value", "messages", "messages: expected a list of messages that is not empty, got []"),
    BAD("{'messages':'x'}", "invalid_type", "messages", "messages: expected a list, got 'x'"),
    BAD("{'messages':[5]}", "invalid_type", "messages[0]", "messages[0]: expected a message (an object), got 5"),
    BAD("{'messages':[{}]}", "missing_required_parameter", "messages[0].role",
        "messages[0].role: missing; expected 'system', 'developer', 'user', 'assistant' or 'tool'"),
    BAD("{'messages':[{'role':'pope'}]}", "invalid_value", "messages[0].role",
        "messages[0].role: expected 'system', 'developer', 'user', 'assistant', 'tool' or 'function', got 'pope'"),
    BAD("{'messages':[{'role':1}]}", "invalid_type", "messages[0].role",
        "messages[0].role: expected 'system', 'developer', 'user', 'assistant', 'tool' or 'function', got 1"),
    BAD("{'messages':[{'role':'user','content':5}]}", "invalid_type", "messages[0].content",
        "messages[0].content: expected a string or a list of content parts, got 5"),
    BAD("{'messages':[{'role':'user','content':['a']}]}", "invalid_type", "messages[0].content[0]",
        "messages[0].content[0]: expected a content part (an object), got 'a'"),
    BAD("{'messages':[{'role':'user','content':[{'type':'text'}]}]}", "missing_required_parameter", "messages[0].content[0].text",
        "messages[0].content[0].text: missing; expected a string"),
    BAD("{'messages':[{'role':'user','content':[{'type':'image_url','image_url':{}}]}]}", "unsupported_value",
           "messages[0].content[0].type",
        "messages[0].content[0].type: 'image_url' is not supported: this model reads text only"),
    BAD("{'messages':[{'role':'user','content':[{'type':'thinking','thinking':''}]}]}", "unsupported_value", "messages[0].content[0].type",
        "messages[0].content[0].type: expected 'text', 'input_text', 'output_text' or 'refusal', got 'thinking'"),
    BAD("{'messages':[{'role':'tool','content':''}]}", "missing_required_parameter", "messages[0].tool_call_id",
        "messages[0].tool_call_id: missing; expected the id of the call that this answers"),
    BAD("{'messages':[{'role':'assistant','tool_calls':[{'function':{}}]}]}", "missing_required_parameter",
        "messages[0].tool_calls[0].function.name", "messages[0].tool_calls[0].function.name: missing; expected the name of a tool"),
    BAD("{'messages':[{'role':'assistant','tool_calls':[{'function':{'name':'f','arguments':[]}}]}]}", "invalid_type",
        "messages[0].tool_calls[0].function.arguments",
        "messages[0].tool_calls[0].function.arguments: expected JSON text or an object, got []"),
    BAD("{'messages':[{'role':'assistant','tool_calls':[{'type':'x'}]}]}", "invalid_value", "messages[0].tool_calls[0].type",
        "messages[0].tool_calls[0].type: expected 'function' or 'custom', got 'x'"),
    BAD("{" USER ",'temperature':'hot'}", "invalid_type", "temperature", "temperature: expected a number from 0 to 2, got 'hot'"),
    BAD("{" USER ",'temperature':2.5}", "invalid_value", "temperature", "temperature: expected a number from 0 to 2, got 2.5"),
    BAD("{" USER ",'top_k':1.5}", "invalid_value", "top_k", "top_k: expected an integer from -1, got 1.5"),
    BAD("{" USER ",'repeat_penalty':0}", "invalid_value", "repeat_penalty", "repeat_penalty: expected a number above 0, up to 2, got 0"),
    BAD("{" USER ",'n':17}", "invalid_value", "n", "n: expected an integer from 1 to 16, got 17"),
    BAD("{" USER ",'max_tokens':-2}", "invalid_value", "max_tokens", "max_tokens: expected an integer from -1, got -2"),
    BAD("{" USER ",'stop':['']}", "invalid_value", "stop[0]", "stop[0]: expected 1 to 1024 bytes without zero bytes, got ''"),
    BAD("{" USER ",'stop':7}", "invalid_type", "stop", "stop: expected a string or a list of strings, got 7"),
    BAD("{" USER ",'stop':['1','2','3','4','5','6','7','8','9','a','b','c','d','e','f','g','h']}", "invalid_value", "stop",
        "stop: expected at most 16 stop strings, got 17"),
    BAD("{" USER ",'logit_bias':{'x':1}}", "invalid_value", "logit_bias", "logit_bias: expected token ids as keys, got 'x'"),
    BAD("{" USER ",'logit_bias':{'8192':1}}", "invalid_value", "logit_bias.8192",
        "logit_bias.8192: expected token ids from 0 to 8191, got 8192"),
    BAD("{" USER ",'logit_bias':[[1]]}", "invalid_type", "logit_bias[0]",
        "logit_bias[0]: expected a pair of a token id and a number, got [1]"),
    BAD("{" USER ",'logit_bias':{'1':101}}", "invalid_value", "logit_bias.1", "logit_bias.1: expected a number from -100 to 100, got 101"),
    BAD("{" USER ",'stream_options':{}}", "invalid_value", "stream_options", "stream_options: only allowed with 'stream': true"),
    BAD("{" USER ",'stream':'yes'}", "invalid_type", "stream", "stream: expected true or false, got 'yes'"),
    BAD("{" USER ",'top_logprobs':2}", "invalid_value", "top_logprobs", "top_logprobs: only allowed with 'logprobs': true"),
    BAD("{" USER ",'top_logprobs':21,'logprobs':true}", "invalid_value", "top_logprobs",
        "top_logprobs: expected an integer from 0 to 20, got 21"),
    BAD("{" USER ",'tools':[{'type':'web'}]}", "unsupported_value", "tools[0].type",
        "tools[0].type: expected 'function' or 'custom', got 'web'"),
    BAD("{" USER ",'tools':[{'type':'function','function':{'name':'a b'}}]}", "invalid_value", "tools[0].function.name",
        "tools[0].function.name: expected a name of 1 to 128 bytes without white space, quotes and angle brackets, got 'a b'"),
    BAD("{" USER ",'tools':[" TOOL "," TOOL "]}", "invalid_value", "tools[1].function.name",
        "tools[1].function.name: a tool named 'f' is there already; expected names that differ"),
    BAD("{" USER ",'tools':[{'type':'function','function':{'name':'f','parameters':5}}]}", "invalid_type", "tools[0].function.parameters",
        "tools[0].function.parameters: expected an object, got 5"),
    BAD("{" USER ",'tool_choice':'required'}", "invalid_value", "tool_choice", "tool_choice: only allowed with tools"),
    BAD("{" USER ",'tool_choice':'maybe'}", "invalid_value", "tool_choice",
        "tool_choice: expected 'none', 'auto', 'required' or an object, got 'maybe'"),
    BAD("{" USER ",'tools':[" TOOL "],'tool_choice':{'type':'function','function':{'name':'g'}}}", "invalid_value",
        "tool_choice.function.name", "tool_choice.function.name: expected the name of one of the tools, got 'g'"),
    BAD("{" USER ",'tools':[{'type':'custom','custom':{'name':'c','format':{'type':'grammar'}}}]}", "missing_required_parameter",
        "tools[0].custom.format.grammar", "tools[0].custom.format.grammar: missing; expected an object with syntax and definition"),
    BAD("{" USER ",'response_format':{'type':'json_schema'}}", "missing_required_parameter", "response_format.json_schema",
        "response_format.json_schema: missing; expected an object with a schema"),
    BAD("{" USER ",'response_format':{'type':'json_object'},'grammar':'root ::= x'}", "invalid_value", "grammar",
        "grammar: only one of response format, json_schema, grammar and regex may be given"),
    BAD("{" USER ",'reasoning_effort':'huge'}", "invalid_value", "reasoning_effort",
        "reasoning_effort: expected 'none', 'minimal', 'low', 'medium', 'high', 'xhigh' or 'max', got 'huge'"),
    BAD("{" USER ",'thinking':{'type':'on'}}", "invalid_value", "thinking.type",
        "thinking.type: expected 'enabled', 'adaptive' or 'disabled', got 'on'"),
    BAD("{" USER ",'speculative':{'type':'mtp'}}", "unsupported_value", "speculative.type",
        "speculative.type: no 'mtp' drafter is loaded; expected 'auto', 'off'"),
    BAD("{" USER ",'speculative':{'type':'lookup'}}", "unsupported_value", "speculative.type",
        "speculative.type: no 'lookup' drafter is loaded; expected 'auto', 'off'"),
    BAD("{" USER ",'speculative':{'type':'ngram'}}", "unsupported_value", "speculative.type",
        "speculative.type: no 'lookup' drafter is loaded; expected 'auto', 'off'"),
    BAD("{" USER ",'modalities':['text','audio']}", "unsupported_value", "modalities[1]", "modalities[1]: expected 'text' only"),
    BAD("{" USER ",'audio':{}}", "unsupported_parameter", "audio", "audio: not supported by this server; leave it out"),
    BAD("{" USER ",'user':1}", "invalid_type", "user", "user: expected a string, got 1"),
    BAD("{" USER ",'continue_final_message':true}", "invalid_value", "continue_final_message",
        "continue_final_message: only allowed when the last message has the role 'assistant'"),
    BAD("{'messages':[{'role':'user','content':'x'}],"
           "'metadata':'01234567890123456789012345678901234567890123456789012345678901234567890123456789ab'}",
        "invalid_type", "metadata",
        "metadata: expected an object, got '0123456789012345678901234567890123456789012345678901234567890123456789012345..."),
};

static void test_fields(struct api_env *env)
{
    struct api_request r;
    struct api_error e = {0};
    info_header = "1";
    json_t *body = parse_json("{" USER ",'n':3,'min_tokens':2,'ignore_eos':true,'cache_prompt':false,'seed':7,'stream':true,"
        "'stream_options':{"
                              "'include_usage':true},'speculative':{'n_max':4},'chat_template_kwargs':{'x':[1],'tools':1},"
                              "'preserve_thinking':true,'reasoning_effort':'low','add_generation_prompt':false,"
                                  "'reasoning_format':'inline'}");
    if (CHECK(parse(env, body, &r, &e) == 0, "%s", e.message)) {
        CHECK(r.n == 3 && r.best_of == 3 && r.min_tokens == 2 && r.ignore_end && r.no_cache && r.has_seed && r.sampling.seed == 7,
            "numbers");
        CHECK(r.include_usage && r.draft_max == 4 && !r.no_draft && r.engine_info && r.no_generation_prompt, "switches");
        CHECK(r.reasoning_format == API_REASONING_INLINE && r.thinking_budget == 2048, "thinking");
        check_json(__LINE__, "arguments", r.template_args,
                   "{\"x\":[1],\"enable_thinking\":true,\"preserve_thinking\":true,\"reasoning_effort\":\"low\"}");
        api_request_free(&r);
    }
    info_header = NULL;
    env->strict_model = true;
    body = parse_json("{" USER ",'model':'gpt'}");
    CHECK(parse(env, body, &r, &e) == -1 && e.status == 404 && !strcmp(e.code, "model_not_found"), "%d %s", e.status, e.message);
    json_decref(body);
    env->strict_model = false;
}

/* ---- random conversations ---- */

static json_t *random_value(uint64_t *seed, int depth)
{
    static const char *const keys[] = {"type", "text", "role", "content", "function", "name", "arguments", "id", "input", "thinking"};
    static const char *const texts[] = {"text", "user", "function", "image_url", "", "f", "{}", "\xC3\xA9", "<|im_end|>", "</think>"};
    json_t *v;
    switch (rng_next(seed) % (depth > 3 ? 5 : 7)) {
    case 0: return json_null();
    case 1: return json_integer((json_int_t)rng_next(seed));
    case 2: return json_real(1.5);
    case 3: return json_string(texts[rng_next(seed) % 10]);
    case 4: return json_boolean(rng_next(seed) & 1);
    case 5:
        v = json_array();
        for (uint64_t n = rng_next(seed) % 4; n > 0; n--)
            json_array_append_new(v, random_value(seed, depth + 1));
        return v;
    default:
        v = json_object();
        for (uint64_t n = rng_next(seed) % 5; n > 0; n--)
            json_object_set_new(v, keys[rng_next(seed) % 10], random_value(seed, depth + 1));
        return v;
    }
}

static json_t *random_message(uint64_t *seed)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
    static const char *const contents[] = {"Hi", "", " \n", "<think>a</think>b", "<|im_end|>\n<|im_start|>system",
        "<tool_response>x</tool_response>"};
    json_t *m = json_object();
    const char *role = roles[rng_next(seed) % 6];
    json_object_set_new(m, "role", json_string(role));
    if (rng_next(seed) % 8)
        json_object_set_new(m, "content", json_string(contents[rng_next(seed) % 6]));
    else if (rng_next(seed) % 2)
        json_object_set_new(m, "content", random_value(seed, 0));
    if (!strcmp(role, "tool"))
        json_object_set_new(m, "tool_call_id", json_string("call"));
    if (!strcmp(role, "assistant") && rng_next(seed) % 3 == 0)
        json_object_set_new(m, "tool_calls", json_pack("[{s:s, s:{s:s, s:s}}]", "id", "c", "function", "name", "f", "arguments",
                                                       rng_next(seed) & 1 ? "{\"a\":[1]}" : "oops"));
    if (rng_next(seed) % 6 == 0)
        json_object_set_new(m, "reasoning_content", rng_next(seed) % 4 ? json_string("why") : random_value(seed, 0));
    return m;
}

/* Any order of roles and contents is either rendered or refused with a 4xx. */
static void test_random(const struct api_env *env)
{
    uint64_t seed = 6;
    int accepted = 0, refused = 0;
    for (int i = 0; i < 5000; i++) {
        json_t *messages = json_array(), *body = json_object();
        for (uint64_t n = 1 + rng_next(&seed) % 7; n > 0; n--)
            json_array_append_new(messages, random_message(&seed));
        json_object_set_new(body, "messages", messages);
        if (rng_next(&seed) % 4 == 0)
            json_object_set_new(body, "tools", json_pack("[{s:s, s:{s:s}}]", "type", "function", "function", "name", "f"));
        struct api_request r;
        struct api_error e = {0};
        int rc = parse(env, body, &r, &e);
        if (rc) {
            json_decref(body);
        } else {
            rc = api_prompt_build(env, NULL, &r, &e);
            CHECK(rc || (r.n_prompts == 1 && r.prompts[0].n > 0), "conversation %d: no prompt", i);
            api_request_free(&r);
        }
        accepted += rc == 0;
        refused += rc != 0;
        CHECK(rc == 0 || (e.status == 400 && *e.param && *e.message), "conversation %d: %d %s", i, e.status, e.message);
    }
    CHECK(accepted > 3000 && refused > 100, "%d accepted, %d refused", accepted, refused);
}

int main(void)
{
    skua_error err = {0};
    const char *path = support_model("tiny-q8_0.gguf");
    struct api_env env = parse_env();
    struct api_template *chat = NULL;
    json_use_mem();
    json_object_seed(1);
    if (!path)
        return support_finish("test_api_chat_parse");
    if (skua_engine_open(path, NULL, &engine, &err) || api_template_new(engine, &chat, &err)) {
        CHECK(false, "%s", err.message);
        return support_finish("test_api_chat_parse");
    }
    env.engine = engine;
    env.chat = chat;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        check_good(parse, &env, &good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_bad(parse, &env, &bad[i]);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        check_memory(parse, &env, good[i].body);
    test_fields(&env);
    test_random(&env);
    api_template_free(chat);
    skua_engine_close(engine);
    return support_finish("test_api_chat_parse");
}
