/* Bodies of /v1/messages: what becomes of them, and the few that are refused. */
#include "api_parse.h"

static bool count_only;
static const char *beta, *version;

static const char *header(void *user, const char *name)
{
    (void)user;
    return strcmp(name, "anthropic-beta") == 0 ? beta : strcmp(name, "anthropic-version") == 0 ? version : NULL;
}

static int parse(const struct api_env *env, json_t *body, struct api_request *r, struct api_error *e)
{
    return messages_parse(env, body, count_only, header, NULL, r, e);
}

#define USER "{'role':'user','content':'q'}"
#define CALL(id, name, arguments) "{'id':'" id "','type':'function','function':{'name':'" name "','arguments':" arguments "}}"
#define TOOL(name, rest, parameters) "{'type':'function','function':{'name':'" name "'" rest ",'parameters':" parameters "}}"
#define ONE(rest) "{'max_tokens':5,'messages':[" USER "]" rest "}"

static const struct good_body good[] = {
    {__LINE__, "{'model':'claude-sonnet-4','max_tokens':5,'messages':[" USER "]}", "[" USER "]", "", " max=5 model=claude-sonnet-4"},
    {__LINE__, "{'model':'gpt','max_tokens':0,'stream':true,'messages':[" USER "],'stop_sequences':['A','B'],'temperature':0.5,'top_k':7,"
     "'metadata':{'user_id':'u'},'service_tier':'auto','container':'c','mcp_servers':[],'context_management':{'edits':[]},'betas':['x'],"
     "'inference_geo':'eu','speed':'fast','cache_control':{'type':'ephemeral'},'diagnostics':null}",
     "[" USER "]", "", " stream max=0 top-k=7 temperature=0.5 model=gpt stop=A stop=B"},
    /* system texts */
    {__LINE__, "{'max_tokens':5,'system':'be brief','messages':[" USER "]}", "[{'role':'system','content':'be brief'},"
     USER "]", "", " max=5"},
    {__LINE__, "{'max_tokens':5,'system':[{'type':'text','text':'x-anthropic-billing-header: cc_version=1; cch=0'},{'type':'text',"
     "'text':'a'},"
     "{'type':'text','text':'b','cache_control':{'type':'ephemeral'}}],'messages':[" USER ",{'role':'system','content':'c'},{'role':'user',"
     "'content':[{'type':'text','text':'d'},{'type':'mid_conv_system','content':'e'},{'type':'text','text':'f'},"
     "{'type':'mid_conv_system','text':'x-anthropic-billing-header: z'}]},{'role':'system','content':[{'type':'text','text':'g'}]}]}",
     "[{'role':'system','content':'a\\n\\nb','cache_hint':true}," USER ",{'role':'system','content':'c'},{'role':'user','content':'d'},"
     "{'role':'system','content':'e'},{'role':'user','content':'f'},{'role':'system','content':'g'}]", "", " max=5"},
    {__LINE__, "{'max_tokens':5,'system':'x-anthropic-billing-header: a','messages':[{'role':'system','content':"
     "'x-anthropic-billing-header:'}]}",
     "[{'role':'user','content':''}]", "", " max=5"},
    /* results come first, in their order */
    {__LINE__, "{'max_tokens':5,'messages':[{'role':'assistant','content':[{'type':'thinking','thinking':'why','signature':'x'},{"
     "'type':'text',"
     "'text':'so'},{'type':'tool_use','id':'t1','name':'f','input':{'a':1}},{'type':'tool_use','id':'t2','name':'g','input':{}}]},"
     "{'role':'user','content':[{'type':'text','text':'and'},{'type':'tool_result','tool_use_id':'t2','content':'r2','is_error':true},"
     "{'type':'tool_result','tool_use_id':'t1','content':[{'type':'text','text':'r'},{'type':'text','text':'1'},{'type':'tool_reference',"
     "'tool_name':'x'}],'cache_control':{'type':'ephemeral'}},{'type':'text','text':' more'}]},{'role':'user','content':[{'type':"
     "'tool_result','tool_use_id':'t3'}]}]}",
     "[{'role':'assistant','content':'so','reasoning_content':'why','tool_calls':[" CALL("t1", "f", "{'a':1}") "," CALL("t2", "g", "{}")
     "]},{'role':'tool','content':'r2','tool_call_id':'t2'},{'role':'tool','content':'r1','tool_call_id':'t1','cache_hint':true},"
     "{'role':'user','content':'and more'},{'role':'tool','content':'','tool_call_id':'t3'}]", "", " max=5"},
    /* texts that calls stand between; thinking that only the signature carries; redacted thinking */
    {__LINE__, "{'max_tokens':5,'messages':[{'role':'assistant','content':[{'type':'thinking','thinking':'','signature':"
     "'sk1t+26ojNoc4e2abwVuZSZ8n2Fi'},{'type':'redacted_thinking','data':'zz'},{'type':'text','text':'a'},{'type':'text','text':'b'},"
     "{'type':'tool_use','id':'t','name':'f','input':{}},{'type':'text','text':''},{'type':'text','text':'c'}]},{'role':'assistant',"
     "'content':"
     "[{'type':'thinking','thinking':'','signature':'foreign'},{'type':'text','text':'d'}]}]}",
     "[{'role':'assistant','content':'ab\\n\\nc','reasoning_content':'ab','tool_calls':[" CALL("t", "f", "{}") "]},"
     "{'role':'assistant','content':'d'}]", "", " continue max=5"},
    /* the assistant's message at the end is gone on with, calls are not */
    {__LINE__, "{'max_tokens':5,'messages':[" USER ",{'role':'assistant','content':'Sure: {'}]}",
     "[" USER ",{'role':'assistant','content':'Sure: {'}]", "", " continue max=5"},
    {__LINE__, "{'max_tokens':5,'messages':[" USER ",{'role':'assistant','content':[{'type':'tool_use','id':'t','name':'f','input':{}}]}]}",
     NULL, "", " max=5"},
    {__LINE__, "{'max_tokens':5,'messages':[" USER ",{'role':'assistant','content':null},{'role':'user'}]}",
     "[" USER ",{'role':'assistant','content':''},{'role':'user','content':''}]", "", " max=5"},
    /* other blocks */
    {__LINE__, "{'max_tokens':5,'messages':[{'role':'user','content':[{'type':'document','title':'T','context':'C','source':{'type':'text',"
     "'media_type':'text/plain','data':'D'}},{'type':'document','source':{'type':'content','content':[{'type':'text','text':'E'}]}},"
     "{'type':'search_result','title':'S','source':'http://s','content':[{'type':'text','text':'fou'},{'type':'text','text':'nd'}]},"
     "{'type':'text','text':'what'},{'type':'text','text':' now?'}]}]}",
     "[{'role':'user','content':'T\\n\\nC\\n\\nD\\n\\nE\\n\\nS\\n\\nhttp://s\\n\\nfound\\n\\nwhat now?'}]", "", " max=5"},
    {__LINE__, "{'max_tokens':5,'messages':[{'role':'assistant','content':[{'type':'server_tool_use','id':'s','name':'web_search','input':"
     "{'query':'x'}},{'type':'web_search_tool_result','tool_use_id':'s','content':[{'type':'web_search_result','title':'T','url':'u',"
     "'encrypted_content':'zz'}]},{'type':'code_execution_tool_result','content':{'type':'code_execution_result','stdout':'1','stderr':'',"
     "'return_code':0}},{'type':'never_heard_of','data':[1]},{'type':'strange','text':'!'}]},{'role':'user','content':[{'type':'odd'}]}]}",
     "[{'role':'assistant','content':'web_search {\\\"query\\\":\\\"x\\\"}\\n\\nT\\n\\nu\\n\\n1\\n\\n!'},{'role':'user','content':"
     "''}]", "", " max=5"},
    /* tools */
    {__LINE__, ONE(",'tools':[{'name':'f','description':'d','input_schema':{'type':'object'},'strict':true,'cache_control':{'type':"
     "'ephemeral'},'eager_input_streaming':true,'input_examples':[{}],'defer_loading':true},{'type':'custom','name':'g'}]"), NULL,
     "[" TOOL("f", ",'description':'d'", "{'type':'object'}") "," TOOL("g", "", "{'type':'object','properties':{}}") "]",
     " max=5 choice=auto tool=f:strict={\"type\":\"object\"} tool=g"},
    {__LINE__, ONE(",'tools':[{'type':'bash_20250124','name':'bash'},{'type':'web_search_20250305','name':'web_search','max_uses':5},"
     "{'type':'computer_20250124','name':'computer'},{'type':'mcp_toolset'},{'type':'future_1','name':'h','input_schema':{}}],"
     "'tool_choice':"
     "{'type':'tool','name':'web_search','disable_parallel_tool_use':true}"), NULL,
     "[" TOOL("bash", ",'description':'Run a command in a shell that stays open between calls, and return what it prints.'",
              "{'type':'object','properties':{'command':{'type':'string','description':'The command to run'},'restart':{'type':'boolean',"
              "'description':'Start the shell anew instead of running a command'}}}") "," TOOL("h", "", "{}") "]",
     " one-call max=5 choice=auto tool=bash={\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\",\"description\":"
     "\"The command to run\"},\"restart\":{\"type\":\"boolean\",\"description\":\"Start the shell anew instead of running a command\"}}}"
     " tool=h={} warnings=tools of type \"web_search_20250305\" do not run here: it is left out\n"
     "tools of type \"computer_20250124\" do not run here: it is left out\ntools of type \"mcp_toolset\" do not run here: it is left out\n"
     "tool_choice names a tool that is left out: the model decides\n"},
#define TWO ",'tools':[{'name':'f'},{'name':'g'}]"
    {__LINE__, ONE(TWO ",'tool_choice':{'type':'auto'}"), NULL, NULL, " max=5 choice=auto tool=f tool=g"},
    {__LINE__, ONE(TWO ",'tool_choice':{'type':'any'}"), NULL, NULL, " max=5 choice=required tool=f tool=g"},
    {__LINE__, ONE(TWO ",'tool_choice':{'type':'none'}"), NULL, NULL, " max=5 choice=none tool=f tool=g"},
    {__LINE__, ONE(TWO ",'tool_choice':{'type':'tool','name':'g'}"), NULL, NULL, " max=5 choice=required allow=g tool=f tool=g"},
    {__LINE__, ONE(",'tool_choice':{'type':'auto'},'tools':[]"), NULL, "", " max=5"},
    /* thinking and structure */
    {__LINE__, ONE(",'thinking':{'type':'enabled','budget_tokens':500,'display':'omitted'}"), NULL, NULL, " omit max=5 budget=500"},
    {__LINE__, ONE(",'thinking':{'type':'adaptive','display':'summarized'},'output_config':{'effort':'medium'}"), NULL, NULL,
     " max=5 budget=8192"},
    {__LINE__, ONE(",'thinking':{'type':'disabled'}"), NULL, NULL, " no-thinking max=5"},
    {__LINE__, ONE(",'output_config':{'format':{'type':'json_schema','schema':{}}}"), NULL, NULL, " max=5 structure=schema"},
    {__LINE__, ONE(",'output_format':{'type':'json_schema','schema':{}},'output_config':{'effort':'max'}"), NULL, NULL, " max=5 "
     "structure=schema"},
};

static const struct bad_body bad[] = {
    {__LINE__, "{'messages':[" USER "]}", "missing_required_parameter", "max_tokens", "max_tokens: missing; expected an integer from 0"},
    {__LINE__, "{'max_tokens':'5','messages':[" USER "]}", "invalid_type", "max_tokens", "max_tokens: expected an integer from -1, got "
     "'5'"},
    {__LINE__, "{'max_tokens':5}", "missing_required_parameter", "messages", "messages: missing; expected a list of messages"},
    {__LINE__, "{'max_tokens':5,'messages':[]}", "invalid_value", "messages", "messages: expected at least one message, got []"},
    {__LINE__, "{'max_tokens':5,'messages':'hi'}", "invalid_type", "messages", "messages: expected a list, got 'hi'"},
    {__LINE__, "{'max_tokens':5,'messages':['hi']}", "invalid_type", "messages[0]", "messages[0]: expected a message (an object), got "
     "'hi'"},
    {__LINE__, "{'max_tokens':5,'messages':[{'content':'x'}]}", "missing_required_parameter", "messages[0].role",
     "messages[0].role: missing; expected 'user', 'assistant' or 'system'"},
    {__LINE__, "{'max_tokens':5,'messages':[{'role':'tool','content':'x'}]}", "invalid_value", "messages[0].role",
     "messages[0].role: expected 'user', 'assistant' or 'system', got 'tool'"},
    {__LINE__, "{'max_tokens':5,'messages':[{'role':'user','content':3}]}", "invalid_type", "messages[0].content",
     "messages[0].content: expected a string or a list of content blocks, got 3"},
    {__LINE__, "{'max_tokens':5,'messages':[{'role':'user','content':['x']}]}", "invalid_type", "messages[0].content[0]",
     "messages[0].content[0]: expected a content block (an object), got 'x'"},
    {__LINE__, "{'max_tokens':5,'messages':[{'role':'user','content':[{'type':'tool_result','tool_use_id':'t','content':[{'type':'image',"
     "'source':{}}]}]}]}", "unsupported_value", "messages[0].content[0].content[0].type",
     "messages[0].content[0].content[0].type: 'image' is not supported: this model reads text only"},
    {__LINE__, "{'max_tokens':5,'messages':[{'role':'user','content':[{'type':'document','source':{'type':'base64','data':'x'}}]}]}",
     "unsupported_value", "messages[0].content[0].source",
     "messages[0].content[0].source: expected a document whose source is text: this model reads text only"},
    {__LINE__, "{'max_tokens':5,'messages':[{'role':'user','content':[{'type':'tool_result','tool_use_id':3}]}]}", "invalid_type",
     "messages[0].content[0].tool_use_id", "messages[0].content[0].tool_use_id: expected a string, got 3"},
    {__LINE__, "{'max_tokens':5,'messages':[{'role':'assistant','content':[{'type':'tool_use','id':'t'}]}]}", "missing_required_parameter",
     "messages[0].content[0].name", "messages[0].content[0].name: missing; expected the name of the tool (a string)"},
    {__LINE__, "{'max_tokens':5,'messages':[{'role':'assistant','content':[{'type':'tool_use','id':'t','name':'f','input':'{}'}]}]}",
     "invalid_type", "messages[0].content[0].input", "messages[0].content[0].input: expected an object, got '{}'"},
    {__LINE__, ONE(",'system':{'type':'text'}"), "invalid_type", "system",
     "system: expected a string or a list of content blocks, got {'type':'text'}"},
    {__LINE__, ONE(",'system':['x']"), "invalid_type", "system[0]", "system[0]: expected a content block (an object), got 'x'"},
    {__LINE__, ONE(",'stop_sequences':['']"), "invalid_value", "stop_sequences[0]",
     "stop_sequences[0]: expected 1 to 1024 bytes without zero bytes, got ''"},
    {__LINE__, ONE(",'tools':{}"), "invalid_type", "tools", "tools: expected a list, got {}"},
    {__LINE__, ONE(",'tools':['f']"), "invalid_type", "tools[0]", "tools[0]: expected a tool (an object), got 'f'"},
    {__LINE__, ONE(",'tools':[{'input_schema':{}}]"), "missing_required_parameter", "tools[0].name",
     "tools[0].name: missing; expected the name of the tool (a string)"},
    {__LINE__, ONE(",'tools':[{'name':'f','input_schema':[]}]"), "invalid_type", "tools[0].input_schema",
     "tools[0].input_schema: expected an object, got []"},
    {__LINE__, ONE(",'tools':[{'name':'f'},{'name':'f'}]"), "invalid_value", "tools[1].name",
     "tools[1].name: a tool named 'f' is there already; expected names that differ"},
    {__LINE__, ONE(",'tool_choice':'auto'"), "invalid_type", "tool_choice", "tool_choice: expected an object, got 'auto'"},
    {__LINE__, ONE(",'tool_choice':{'type':'any'}"), "invalid_value", "tool_choice.type",
     "tool_choice.type: expected 'auto' or 'none' where no tools are given"},
    {__LINE__, ONE(TWO ",'tool_choice':{}"), "missing_required_parameter", "tool_choice.type",
     "tool_choice.type: missing; expected 'auto', 'any', 'none' or 'tool'"},
    {__LINE__, ONE(TWO ",'tool_choice':{'type':'tool','name':'h'}"), "invalid_value", "tool_choice.name",
     "tool_choice.name: expected the name of one of the tools, got 'h'"},
    {__LINE__, ONE(",'thinking':{'type':'sometimes'}"), "invalid_value", "thinking.type",
     "thinking.type: expected 'enabled', 'adaptive' or 'disabled', got 'sometimes'"},
    {__LINE__, ONE(",'output_config':{'format':{'type':'json_schema'}}"), "missing_required_parameter", "output_config.format.schema",
     "output_config.format.schema: missing; expected a JSON schema (an object)"},
};

static void test_headers(struct api_env *env)
{
    static const struct {
        const char *beta, *version;
        bool strict;
        const char *fields;
    } cases[] = {{NULL, "2023-06-01", false, " max=5"},
                 {"a,model-context-window-exceeded-2025-08-26", "2023-06-01", false, " knows-context max=5"},
                 {"interleaved-thinking-2025-05-14", "2025-08-26", false, " knows-context max=5"},
                 {NULL, "zzzz-zz-zz", false, " max=5"},
                 {NULL, NULL, true, " knows-context max=5"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        beta = cases[i].beta;
        version = cases[i].version;
        env->strict_stop_reason = cases[i].strict;
        check_good(parse, env, &(struct good_body){__LINE__, ONE(""), NULL, NULL, cases[i].fields});
    }
    beta = version = NULL;
    env->strict_stop_reason = false;
    env->anthropic_thinking_client = true;
    check_good(parse, env, &(struct good_body){__LINE__, ONE(""), NULL, NULL, " no-thinking max=5"});
    check_good(parse, env, &(struct good_body){__LINE__, ONE(",'thinking':{'type':'adaptive'}"), NULL, NULL, " max=5"});
    env->anthropic_thinking_client = false;
    env->keep_billing_header = true;
    check_good(parse, env, &(struct good_body){__LINE__, ONE(",'system':'x-anthropic-billing-header: a'"),
                                               "[{'role':'system','content':'x-anthropic-billing-header: a'}," USER "]", NULL, NULL});
    env->keep_billing_header = false;
}

static void test_count(const struct api_env *env)
{
    struct strbuf b = {0};
    count_only = true;
    check_good(parse, env, &(struct good_body){__LINE__, "{'messages':[" USER "]}", "[" USER "]", "", ""});
    count_only = false;
    api_count_body(API_MESSAGES, 25000, &b);
    CHECK(strcmp(strbuf_str(&b), "{\"input_tokens\":25000}") == 0, "%s", strbuf_str(&b));
    strbuf_clear(&b);
    api_count_body(API_RESPONSES, 7, &b);
    CHECK(strcmp(strbuf_str(&b), "{\"object\":\"response.input_tokens\",\"input_tokens\":7}") == 0, "%s", strbuf_str(&b));
    strbuf_free(&b);
}

int main(void)
{
    json_use_mem();
    json_object_seed(1);
    struct api_env env = parse_env();
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        check_good(parse, &env, &good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_bad(parse, &env, &bad[i]);
    test_headers(&env);
    test_count(&env);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        check_memory(parse, &env, good[i].body);
    return support_finish("test_api_messages_parse");
}
