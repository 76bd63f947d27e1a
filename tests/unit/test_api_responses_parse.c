/* Bodies of /v1/responses: what becomes of them, and what is refused with which words. */
#include "api_parse.h"

#include "api/seal.h"

static int parse(const struct api_env *env, json_t *body, struct api_request *r, struct api_error *e)
{
    return responses_parse(env, NULL, body, NULL, NULL, r, e);
}

#define USER "{'role':'user','content':'q'}"
#define CALL(id, name, arguments) "{'id':'" id "','type':'function','function':{'name':'" name "','arguments':" arguments "}}"
#define PROPS(inner) "{'type':'object','properties':{" inner "}}"
#define FUNCTION_TOOL(name, rest, parameters) "{'type':'function','function':{'name':'" name "'" rest ",'parameters':" parameters "}}"

static const struct good_body good[] = {
    /* input */
    {__LINE__, "{'input':'hi'}", "[{'role':'user','content':'hi'}]", "", ""},
    {__LINE__, "{'input':'hi','instructions':'be brief','previous_response_id':null,'background':false,'prompt':null}",
     "[{'role':'system','content':'be brief'},{'role':'user','content':'hi'}]", "", ""},
    {__LINE__, "{'instructions':'a','input':[{'role':'developer','content':'b'},{'type':'message','role':'system','content':"
     "[{'type':'input_text','text':'c'},{'type':'input_text','text':'d'}]},{'role':'user','content':'q'},{'role':'system','content':'e'}]}",
     "[{'role':'system','content':'a\\n\\nb\\n\\ncd'}," USER ",{'role':'system','content':'e'}]", "", ""},
    {__LINE__, "{'instructions':'a','input':[]}", "[{'role':'system','content':'a'}]", "", ""},
    /* one turn of the assistant */
    {__LINE__, "{'input':[{'role':'user','content':'q'},{'type':'reasoning','id':'rs_1','summary':[],'content':[{'type':'reasoning_text',"
     "'text':'why'}]},{'type':'message','role':'assistant','content':[{'type':'output_text','text':'so','annotations':[]}]},"
     "{'type':'function_call','call_id':'c1','name':'f','arguments':'{\\\"a\\\":1}'},{'type':'function_call','call_id':'c2','name':'g',"
     "'namespace':'n','arguments':''},{'type':'function_call_output','call_id':'c1','output':'1'},{'type':'function_call_output',"
     "'call_id':'c2','output':[{'type':'input_text','text':'2'},{'type':'input_text','text':'3'}]}]}",
     "[" USER ",{'role':'assistant','content':'so','tool_calls':[" CALL("c1", "f", "{'a':1}") "," CALL("c2", "n.g", "{}")
     "],'reasoning_content':'why'},{'role':'tool','content':'1','tool_call_id':'c1'},{'role':'tool','content':'23','tool_call_id':'c2'}]",
     "", ""},
    /* texts and calls in turn; reasoning begins the next turn; reasoning before a user's message is dropped */
    {__LINE__, "{'input':[{'role':'assistant','content':'a'},{'type':'custom_tool_call','call_id':'c','name':'patch','input':'x'},"
     "{'role':'assistant','content':'b'},{'type':'reasoning','summary':[{'type':'summary_text','text':'s1'},{'type':'summary_text',"
     "'text':'s2'}]},{'role':'assistant','content':'c'},{'type':'custom_tool_call_output','call_id':'c','output':null},"
     "{'type':'reasoning','summary':[{'text':'lost'}]},{'role':'user','content':'q'}]}",
     "[{'role':'assistant','content':'a\\n\\nb','tool_calls':[" CALL("c", "patch", "{'input':'x'}")
     "]},{'role':'assistant','content':'c','reasoning_content':'s1\\n\\ns2'},{'role':'tool','content':'','tool_call_id':'c'},"
     USER "]", "", ""},
    /* what we sealed, and what somebody else did */
    {__LINE__, "{'input':[{'type':'reasoning','summary':[{'text':'s'}],'content':null,'encrypted_content':'sk1t+26ojNoc4e2abwVuZSZ8n2Fi'},"
     "{'role':'assistant','content':'x'},{'type':'reasoning','summary':[{'text':'s'}],'encrypted_content':'gAAAA'},"
     "{'role':'assistant','content':'y'}]}",
     "[{'role':'assistant','content':'x','reasoning_content':'ab'},{'role':'assistant','content':'y','reasoning_content':'s'}]", "", ""},
    /* items of other kinds */
    {__LINE__, "{'input':[{'role':'user','content':'q'},{'type':'web_search_call','id':'w','status':'completed'},{'type':'mcp_call',"
     "'name':'m',"
     "'output':'found'},{'type':'local_shell_call','call_id':'l','action':{'command':['ls']}},{'type':'local_shell_call_output',"
     "'call_id':'l','output':'a.c'},{'type':'compaction','encrypted_content':'zz'},{'type':'message','role':'assistant','content':"
     "[{'type':'refusal','refusal':'no'}]}]}",
     "[" USER ",{'role':'assistant','content':'found'},{'role':'tool','content':'a.c','tool_call_id':'l'},{'role':'assistant',"
     "'content':'no'}]",
     "", " warnings=input items of type \"web_search_call\" mean nothing here: it is left out\n"
     "input items of type \"local_shell_call\" mean nothing here: it is left out\n"
     "input items of type \"compaction\" mean nothing here: it is left out\n"},
    {__LINE__, "{'input':[{'type':'function_call_output','call_id':'late','output':{'content':'x','success':true}},"
     "{'type':'function_call','call_id':'late','name':'f','arguments':'not JSON'}],'continue_final_message':true}",
     "[{'role':'tool','content':'{\\\"content\\\":\\\"x\\\",\\\"success\\\":true}','tool_call_id':'late'},{'role':'assistant','content':'',"
     "'tool_calls':[" CALL("late", "f", "'not JSON'") "]}]", "", ""},
    {__LINE__, "{'input':[{'role':'user','content':'q'},{'role':'assistant','content':'go'}],'continue_final_message':true}", NULL, "",
     " continue"},
    /* tools */
    {__LINE__, "{'input':'q','tools':[{'type':'function','name':'f','description':'does f','parameters':" PROPS("'a':{'type':'string'}")
     ",'strict':true},{'type':'function','name':'g','parameters':null}]}", NULL,
     "[" FUNCTION_TOOL("f", ",'description':'does f'", PROPS("'a':{'type':'string'}")) "," FUNCTION_TOOL("g", "", PROPS("")) "]",
     " choice=auto tool=f:strict={\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"}}} tool=g"},
#define CUSTOM_PROPS "{'type':'object','properties':{'input':{'type':'string'}},'required':['input']}"
    {__LINE__, "{'input':'q','tools':[{'type':'custom','name':'a'},{'type':'custom','name':'b','description':'d','format':{'type':'text'}},"
     "{'type':'custom','name':'c','description':'d','format':{'type':'grammar','syntax':'lark','definition':'start: X'}},"
     "{'type':'custom','name':'e','format':{'type':'grammar','syntax':'regex','definition':'[0-9]+'}}],'max_tool_calls':3,"
     "'parallel_tool_calls':false}", NULL,
     "[" FUNCTION_TOOL("a", "", CUSTOM_PROPS) "," FUNCTION_TOOL("b", ",'description':'d'", CUSTOM_PROPS) ","
     FUNCTION_TOOL("c", ",'description':'d\\n\\nThe input must match this Lark grammar:\\nstart: X'", CUSTOM_PROPS) ","
     FUNCTION_TOOL("e", ",'description':'The input must match this regular expression:\\n[0-9]+'", CUSTOM_PROPS) "]",
     " one-call calls=3 choice=auto tool=a:custom tool=b:custom tool=c:custom tool=e:custom:[0-9]+"
     " warnings=tool \"c\": its Lark grammar is told to the model, but not enforced\n"},
    {__LINE__, "{'input':'q','tools':[{'type':'namespace','name':'files','description':'d','tools':[{'type':'function','name':'read'},"
     "{'type':'custom','name':'write'}]},{'type':'local_shell'},{'type':'web_search_preview'},{'type':'mcp','server_label':'x'}],"
     "'tool_choice':{'type':'function','name':'read','namespace':'files'}}", NULL,
     "[" FUNCTION_TOOL("files.read", "", PROPS("")) "," FUNCTION_TOOL("files.write", "", CUSTOM_PROPS) ","
     FUNCTION_TOOL("local_shell", ",'description':'Run a command on the computer of the user.'",
                   "{'type':'object','properties':{'command':{'type':'array','items':{'type':'string'},'description':"
                   "'The program and its arguments'}},'required':['command']}") "]",
     " choice=required allow=files.read tool=files.read(files+read) tool=files.write(files+write):custom tool=local_shell={\"type\":"
     "\"object\","
     "\"properties\":{\"command\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"description\":\"The program and its arguments\"}},"
     "\"required\":[\"command\"]} warnings=tools of type \"web_search_preview\" do not run here: it is left out\n"
     "tools of type \"mcp\" do not run here: it is left out\n"},
#define TWO "'tools':[{'type':'function','name':'f'},{'type':'custom','name':'p'}]"
    {__LINE__, "{'input':'q'," TWO ",'tool_choice':'required'}", NULL, NULL, " choice=required tool=f tool=p:custom"},
    {__LINE__, "{'input':'q'," TWO ",'tool_choice':'none'}", NULL, NULL, " choice=none tool=f tool=p:custom"},
    {__LINE__, "{'input':'q'," TWO ",'tool_choice':{'type':'custom','name':'p'}}", NULL, NULL, " choice=required allow=p tool=f tool=p:"
     "custom"},
    {__LINE__, "{'input':'q'," TWO ",'tool_choice':{'type':'web_search_preview'}}", NULL, NULL, " choice=auto tool=f tool=p:custom"},
    {__LINE__, "{'input':'q'," TWO ",'tool_choice':{'type':'allowed_tools','mode':'required','tools':[{'type':'function','name':'f'},"
     "{'type':'mcp','server_label':'x'}]}}", NULL, NULL, " choice=required allow=f tool=f tool=p:custom"},
    {__LINE__, "{'input':'q'," TWO ",'tool_choice':{'type':'allowed_tools','tools':[{'type':'mcp'}]}}", NULL, NULL,
     " choice=none tool=f tool=p:custom"},
    {__LINE__, "{'input':'q','tools':[],'tool_choice':'auto'}", NULL, "", ""},
    {__LINE__, "{'input':'q','tools':[{'type':'web_search'}],'tool_choice':'required'}", NULL, "",
     " warnings=tools of type \"web_search\" do not run here: it is left out\n"},
    /* the rest */
    {__LINE__, "{'input':'q','stream':true,'model':'gpt-x','max_output_tokens':1,'temperature':0.5,'stop':'END','truncation':'auto',"
     "'include':['reasoning.encrypted_content','message.output_text.logprobs','file_search_call.results'],'reasoning':{'effort':'low',"
     "'summary':'auto','context':null},'stream_options':{'include_obfuscation':false},'unknown':[1]}", NULL, NULL,
     " stream summary encrypted truncate max=1 logprobs=0 budget=2048 temperature=0.5 stop=END"},
    {__LINE__, "{'input':'q','top_logprobs':4,'reasoning':{'effort':'none','summary':null}}", NULL, NULL, " no-thinking logprobs=4"},
    {__LINE__, "{'input':'q','reasoning':null,'text':{'format':{'type':'json_schema','name':'n','schema':{},'strict':true},"
     "'verbosity':'low'}}", NULL, NULL, " strict-schema structure=schema"},
    {__LINE__, "{'input':'q','text':{'format':{'type':'text'}}}", NULL, NULL, ""},
    {__LINE__, "{'input':'q','text':{'format':{'type':'json_object'}}}", NULL, NULL, " structure=object"},
};

static const struct bad_body bad[] = {
    {__LINE__, "{}", "missing_required_parameter", "input", "input: missing; expected a string or a list of items"},
    {__LINE__, "{'input':7}", "invalid_type", "input", "input: expected a string or a list of items, got 7"},
    {__LINE__, "{'input':[]}", "invalid_value", "input", "input: expected at least one message, got []"},
    {__LINE__, "{'input':[{'type':'reasoning','summary':[]}]}", "invalid_value", "input",
     "input: expected at least one message, got [{'type':'reasoning','summary':[]}]"},
    {__LINE__, "{'input':['x']}", "invalid_type", "input[0]", "input[0]: expected an input item (an object), got 'x'"},
    {__LINE__, "{'input':[{'type':1}]}", "invalid_type", "input[0].type", "input[0].type: expected a string, got 1"},
    {__LINE__, "{'input':[{'id':'x'}]}", "missing_required_parameter", "input[0].type", "input[0].type: missing; expected the kind of "
     "item (a string)"},
    {__LINE__, "{'input':[{'type':'message','content':'x'}]}", "missing_required_parameter", "input[0].role",
     "input[0].role: missing; expected 'user', 'system', 'developer' or 'assistant'"},
    {__LINE__, "{'input':[{'role':'tool','content':'x'}]}", "invalid_value", "input[0].role",
     "input[0].role: expected 'user', 'system', 'developer' or 'assistant', got 'tool'"},
    {__LINE__, "{'input':[{'role':'user','content':7}]}", "invalid_type", "input[0].content",
     "input[0].content: expected a string or a list of content parts, got 7"},
    {__LINE__, "{'input':[{'role':'user','content':[{'type':'input_image','image_url':'data:'}]}]}", "unsupported_value",
     "input[0].content[0].type", "input[0].content[0].type: 'input_image' is not supported: this model reads text only"},
    {__LINE__, "{'input':[{'type':'item_reference','id':'msg_1'}]}", "invalid_value", "input[0].type",
     "input[0].type: items of earlier responses are not kept here; send the items themselves"},
    {__LINE__, "{'input':[{'type':'function_call','name':'f','arguments':'{}'}]}", "missing_required_parameter", "input[0].call_id",
     "input[0].call_id: missing; expected a string"},
    {__LINE__, "{'input':[{'type':'function_call','call_id':'c','name':'f','arguments':[1]}]}", "invalid_type", "input[0].arguments",
     "input[0].arguments: expected JSON text (a string), got [1]"},
    {__LINE__, "{'input':[{'type':'custom_tool_call','call_id':'c','name':'f','input':{}}]}", "invalid_type", "input[0].input",
     "input[0].input: expected a string, got {}"},
    {__LINE__, "{'input':[{'type':'function_call_output','call_id':'c','output':'x'}]}", "unknown_tool_call_id", "input[0].call_id",
     "input[0].call_id: expected the call_id of a call in the input, got 'c'"},
    {__LINE__, "{'input':[{'type':'function_call','call_id':'c','name':'f'},{'type':'function_call_output','call_id':'c','output':7}]}",
     "invalid_type", "input[1].output", "input[1].output: expected a string or a list of content parts, got 7"},
    {__LINE__, "{'input':'q','instructions':['x']}", "invalid_type", "instructions", "instructions: expected a string, got ['x']"},
    {__LINE__, "{'input':'q','previous_response_id':'resp_1'}", "previous_response_not_found", "previous_response_id",
     "previous_response_id: responses are not kept here; send the whole conversation as input"},
    {__LINE__, "{'input':'q','conversation':{'id':'c'}}", "previous_response_not_found", "conversation",
     "conversation: conversations are not kept here; send the whole conversation as input"},
    {__LINE__, "{'input':'q','background':true}", "unsupported_parameter", "background",
     "background: answers are not made in the background; use 'stream'"},
    {__LINE__, "{'input':'q','prompt':{'id':'p'}}", "unsupported_parameter", "prompt",
     "prompt: there are no stored prompts; use 'instructions' and 'input'"},
    {__LINE__, "{'input':'q','max_output_tokens':0}", "invalid_value", "max_output_tokens",
     "max_output_tokens: expected an integer from 1, or -1 for what fits the context, got 0"},
    {__LINE__, "{'input':'q','top_logprobs':21}", "invalid_value", "top_logprobs", "top_logprobs: expected an integer from 0 to 20, "
     "got 21"},
    {__LINE__, "{'input':'q','include':'x'}", "invalid_type", "include", "include: expected a list, got 'x'"},
    {__LINE__, "{'input':'q','truncation':'some'}", "invalid_value", "truncation", "truncation: expected 'disabled' or 'auto', got 'some'"},
    {__LINE__, "{'input':'q','reasoning':{'summary':'long'}}", "invalid_value", "reasoning.summary",
     "reasoning.summary: expected 'none', 'auto', 'concise' or 'detailed', got 'long'"},
    {__LINE__, "{'input':'q','reasoning':{'effort':'huge'}}", "invalid_value", "reasoning.effort",
     "reasoning.effort: expected 'none', 'minimal', 'low', 'medium', 'high', 'xhigh' or 'max', got 'huge'"},
    {__LINE__, "{'input':'q','text':{'format':{'type':'json_schema','name':'n'}}}", "missing_required_parameter", "text.format.schema",
     "text.format.schema: missing; expected a JSON schema (an object)"},
    {__LINE__, "{'input':'q','store':1}", "invalid_type", "store", "store: expected true or false, got 1"},
    {__LINE__, "{'input':'q','tools':{}}", "invalid_type", "tools", "tools: expected a list, got {}"},
    {__LINE__, "{'input':'q','tools':[1]}", "invalid_type", "tools[0]", "tools[0]: expected a tool (an object), got 1"},
    {__LINE__, "{'input':'q','tools':[{'name':'f'}]}", "missing_required_parameter", "tools[0].type",
     "tools[0].type: missing; expected the kind of tool (a string)"},
    {__LINE__, "{'input':'q','tools':[{'type':'function'}]}", "missing_required_parameter", "tools[0].name",
     "tools[0].name: missing; expected the name of the tool (a string)"},
    {__LINE__, "{'input':'q','tools':[{'type':'function','name':'a b'}]}", "invalid_value", "tools[0].name",
     "tools[0].name: expected a name of 1 to 128 bytes without white space, quotes and angle brackets, got 'a b'"},
    {__LINE__, "{'input':'q','tools':[{'type':'namespace','name':'n','tools':[{'type':'function','name':'f','parameters':"
     "3}]}]}", "invalid_type",
     "tools[0].tools[0].parameters", "tools[0].tools[0].parameters: expected an object, got 3"},
    {__LINE__, "{'input':'q','tools':[{'type':'custom','name':'p','format':{'type':'grammar','syntax':"
     "'lark'}}]}", "missing_required_parameter",
     "tools[0].format.definition", "tools[0].format.definition: missing; expected the grammar (a string)"},
    {__LINE__, "{'input':'q','tools':[{'type':'custom','name':'p','format':{'type':'grammar','definition':'x'}}]}",
     "missing_required_parameter", "tools[0].format.syntax", "tools[0].format.syntax: missing; expected 'lark' or 'regex'"},
    {__LINE__, "{'input':'q','tool_choice':'required'}", "invalid_value", "tool_choice",
     "tool_choice: expected 'none' or 'auto' where no tools are given"},
    {__LINE__, "{'input':'q','tool_choice':'most'," TWO "}", "invalid_value", "tool_choice",
     "tool_choice: expected 'none', 'auto' or 'required', got 'most'"},
    {__LINE__, "{'input':'q','tool_choice':{'name':'f'}," TWO "}", "missing_required_parameter", "tool_choice.type",
     "tool_choice.type: missing; expected a string"},
    {__LINE__, "{'input':'q','tool_choice':{'type':'function','name':'nobody'}," TWO "}", "invalid_value", "tool_choice.name",
     "tool_choice.name: expected the name of one of the tools, got 'nobody'"},
    {__LINE__, "{'input':'q','tool_choice':{'type':'allowed_tools'}," TWO "}", "missing_required_parameter", "tool_choice.tools",
     "tool_choice.tools: missing; expected a list of tools"},
    {__LINE__, "{'input':'q','tool_choice':{'type':'allowed_tools','tools':[{'type':'function'}]}," TWO "}", "missing_required_parameter",
     "tool_choice.tools[0].name", "tool_choice.tools[0].name: missing; expected the name of one of the tools"},
    {__LINE__, "{'input':'q','max_tool_calls':0}", "invalid_value", "max_tool_calls", "max_tool_calls: expected an integer from 1, got 0"},
};

/* Every key that the response object repeats is there, as it was given or with what holds. */
static void check_echo(const struct api_env *env, const char *body, const char *want)
{
    struct api_request r;
    struct api_error e;
    char *text = with_quotes(want);
    if (CHECK(parse(env, parse_json(body), &r, &e) == 0, "%s", e.message)) {
        check_json(__LINE__, "echoed fields", r.echo_fields, text);
        api_request_free(&r);
    }
    mem_free(text);
}

static void test_echo(const struct api_env *env)
{
    check_echo(env, "{'input':'q'}",
               "{'instructions':null,'max_output_tokens':null,'max_tool_calls':null,'previous_response_id':null,'prompt_cache_key':null,"
               "'safety_identifier':null,'user':null,'service_tier':'default','tool_choice':'auto','truncation':'disabled','tools':[],"
               "'metadata':{},'store':false,'parallel_tool_calls':true,'reasoning':{'effort':null,'summary':null},"
               "'text':{'format':{'type':'text'},'verbosity':'medium'},'temperature':1.0,'top_p':0.95,'top_logprobs':0}");
    check_echo(env, "{'input':'q','instructions':'i','max_output_tokens':9,'max_tool_calls':2,'prompt_cache_key':'k',"
               "'safety_identifier':'s',"
               "'user':'u','service_tier':'flex','tools':[{'type':'web_search'}],'metadata':{'a':'b'},'store':true,"
               "'parallel_tool_calls':false,'reasoning':{'effort':'high','summary':'auto','context':'x'},'text':{'verbosity':'low'},"
               "'temperature':0.7,'top_p':1,'top_logprobs':3,'truncation':'auto'}",
               "{'instructions':'i','max_output_tokens':9,'max_tool_calls':2,'previous_response_id':null,'prompt_cache_key':'k',"
               "'safety_identifier':'s','user':'u','service_tier':'flex','tool_choice':'auto','truncation':'auto','tools':[{'type':"
               "'web_search'}],'metadata':{'a':'b'},'store':true,'parallel_tool_calls':false,'reasoning':{'effort':'high','summary':"
               "'auto'},"
               "'text':{'verbosity':'low','format':{'type':'text'}},'temperature':0.7,'top_p':1.0,'top_logprobs':3}");
}

static void test_limit(const struct api_env *env)
{
    json_t *body = json_object(), *items = json_array();
    struct api_request r;
    struct api_error e;
    json_object_set_new(body, "input", items);
    for (int i = 0; i <= 16384; i++)
        json_array_append_new(items, json_object());
    CHECK(parse(env, body, &r, &e) == -1 && strcmp(e.message, "input: expected at most 16384 items, got 16385") == 0, "%s", e.message);
    json_decref(body);
}

int main(void)
{
    json_use_mem();
    json_object_seed(1);
    const struct api_env env = parse_env();
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        check_good(parse, &env, &good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_bad(parse, &env, &bad[i]);
    test_echo(&env);
    test_limit(&env);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        check_memory(parse, &env, good[i].body);
    return support_finish("test_api_responses_parse");
}
