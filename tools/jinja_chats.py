"""Whole chat templates for the corpus, written for it after public descriptions of how the families render, and conversations
to put through them. What counts here is the language they use, not that the prompts equal those of a given model."""

QWEN_HEAD = r"""{%- macro render(content, is_system=false, count=true) -%}
  {%- if content is string -%}
    {{- content -}}
  {%- elif content is iterable and content is not mapping -%}
    {%- for part in content -%}
      {%- if 'image' in part or part.type == 'image' or 'image_url' in part -%}
        {%- if is_system -%}{{- raise_exception('System message cannot contain images.') -}}{%- endif -%}
        {{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
      {%- elif 'text' in part -%}
        {{- part.text -}}
      {%- else -%}
        {{- raise_exception('Unexpected item type in content.') -}}
      {%- endif -%}
    {%- endfor -%}
  {%- elif content is none or content is undefined -%}
    {{- '' -}}
  {%- else -%}
    {{- raise_exception('Unexpected content type.') -}}
  {%- endif -%}
{%- endmacro -%}
{%- if not messages %}{{- raise_exception('No messages provided.') }}{%- endif %}
@EFFORT@
{%- if tools and tools is iterable and tools is not mapping %}
    {{- '<|im_start|>system\n' ~ effort ~ '# Tools\n\nThese functions are available:\n\n<tools>' }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>" }}
    {{- '\n\nTo call one:\n\n<tool_call>\n<function=name>\n<parameter=key>\nvalue\n</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nRules.\n</IMPORTANT>' }}
    {%- if messages[0].role == 'system' %}
        {%- set content = render(messages[0].content, true) | trim %}
        {%- if content %}{{- '\n\n' + content }}{%- endif %}
    {%- endif %}
    {{- '<|im_end|>\n' }}
{%- else %}
    @SYSTEM@
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" %}
        {%- set content = render(message.content, count=false) | trim %}
        {%- if not(content.startswith('<tool_response>') and content.endswith('</tool_response>')) %}
            {%- set ns.multi_step_tool = false %}
            {%- set ns.last_query_index = index %}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if ns.multi_step_tool %}{{- raise_exception('No user query found in messages.') }}{%- endif %}
{%- for message in messages %}
    {%- set content = render(message.content) | trim %}
    {%- if message.role == "system" %}
        {%- if not loop.first %}{{- raise_exception('System message must be at the beginning.') }}{%- endif %}
    {%- elif message.role == "user" %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        @INLINE@
        {%- endif %}
        {%- set reasoning_content = reasoning_content | trim %}
        {%- if @KEEP@ %}
            {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content + '\n</think>\n\n' + content }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {%- if message.tool_calls and message.tool_calls is iterable and message.tool_calls is not mapping %}
            {%- for tool_call in message.tool_calls %}
                {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
                {%- if loop.first %}
                    {%- if content | trim %}{{- '\n\n<tool_call>\n<function=' + tool_call.name + '>\n' }}
                    {%- else %}{{- '<tool_call>\n<function=' + tool_call.name + '>\n' }}{%- endif %}
                {%- else %}
                    {{- '\n<tool_call>\n<function=' + tool_call.name + '>\n' }}
                {%- endif %}
                {%- if tool_call.arguments is defined @ARGS_IF@ %}
                    {%- for args_name, args_value in tool_call.arguments|items %}
                        {{- '<parameter=' + args_name + '>\n' }}
                        {%- set args_value = @VALUE@ %}
                        {{- args_value }}
                        {{- '\n</parameter>\n' }}
                    {%- endfor %}
                {%- endif %}
                {{- '</function>\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- content }}
        {{- '\n</tool_response>' }}
        {%- if not loop.last and loop.nextitem.role != "tool" %}{{- '<|im_end|>\n' }}
        {%- elif loop.last %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- else %}
        {{- raise_exception('Unexpected message role.') }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if @THINK@ %}{{- '<think>\n\n</think>\n\n' }}{%- else %}{{- '<think>\n' }}{%- endif %}
{%- endif %}
"""
SYSTEM = """{%- if messages[0].role == 'system' %}
        {%- set content = render(messages[0].content, true) | trim %}
        {{- '<|im_start|>system\\n' + content + '<|im_end|>\\n' }}
    {%- endif %}"""
SYSTEM_38 = """{%- set content = '' %}
    {%- if messages[0].role == 'system' %}{%- set content = render(messages[0].content, true) | trim %}{%- endif %}
    {%- if content or effort %}{{- '<|im_start|>system\\n' + ((effort + content) | trim) + '<|im_end|>\\n' }}{%- endif %}"""
EFFORT_38 = """{%- set effort = '' %}
{%- if enable_thinking is undefined or enable_thinking is true %}
    {%- set level = reasoning_effort | default('xhigh') %}
    {%- if level == 'xhigh' %}{%- set effort = 'Think very carefully about every step.\\n\\n' %}
    {%- elif level == 'low' %}{%- set effort = 'Think briefly.\\n\\n' %}
    {%- elif level not in ['medium'] %}{{- raise_exception('Unknown reasoning_effort: ' ~ level) }}{%- endif %}
{%- endif %}"""
INLINE = """{%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}"""


def qwen(effort, system, inline, keep, args_if, value, think):
    t = QWEN_HEAD
    for key, text in (("EFFORT", effort), ("SYSTEM", system), ("INLINE", inline), ("KEEP", keep), ("ARGS_IF", args_if),
                      ("VALUE", value), ("THINK", think)):
        t = t.replace(f"@{key}@", text)
    return t


OFF = "enable_thinking is defined and enable_thinking is false"
PYTHON = "args_value | tojson | safe if args_value is mapping or (args_value is sequence and args_value is not string) else args_value | string"
JSON = "args_value if args_value is string else args_value | tojson"
TEMPLATES = {
    "qwen3.5": qwen("{%- set effort = '' %}", SYSTEM, INLINE, "loop.index0 > ns.last_query_index", "", PYTHON, OFF),
    "qwen3.6": qwen("{%- set effort = '' %}", SYSTEM, INLINE,
                    "(preserve_thinking is defined and preserve_thinking is true) or (loop.index0 > ns.last_query_index)", "", JSON, OFF),
    "qwen3.8": qwen(EFFORT_38, SYSTEM_38, "", "not (preserve_thinking is defined and preserve_thinking is false) or loop.index0 > ns.last_query_index",
                    "and tool_call.arguments != ''", JSON, OFF),
    "qwen-small": qwen("{%- set effort = '' %}", SYSTEM, INLINE, "loop.index0 > ns.last_query_index", "", JSON,
                       "not (enable_thinking is defined and enable_thinking is true)"),
    "chatml": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
              "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "llama3": r"""{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not tools_in_user_message is defined %}{%- set tools_in_user_message = true %}{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{#- A leading system message is cut off. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}{{- "Environment: ipython\n" }}{%- endif %}
{{- "Today Date: " + date_string + "\n\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {{- "Functions:\n\n" }}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\n\n" }}{%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("Cannot put tools in the first user message when there's no first user message!") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' -}}
    {{- "Answer with a call as JSON.\n\n" }}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\n\n" }}{%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{- raise_exception("This model only supports single tool-calls at once!") }}{%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}
        {%- else %}{{- message.content }}{%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}
""",
    "mistral": r"""{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, conversation roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}
                    {%- else %}{{- '"' + key + '": ' + val|tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}{{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}{{- "[INST] " + message["content"] + "[/INST]" }}{%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}{{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}{%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}{%- set content = message.content.content %}
        {%- else %}{%- set content = message.content %}{%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ", " }}
        {{- '"call_id": "' + message.tool_call_id|default('none') + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, with the exception of an initial optional system message!") }}
    {%- endif %}
{%- endfor %}
""",
    "gemma": r"""{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}{%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- else -%}{%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}{%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}{%- endif -%}
    {%- if (message['role'] == 'assistant') -%}{%- set role = "model" -%}{%- else -%}{%- set role = message['role'] -%}{%- endif -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}{{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}{%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}{{ raise_exception("Invalid content type") }}{%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{'<start_of_turn>model\n'}}{%- endif -%}
""",
    "deepseek": r"""{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='', is_first_sp=true) %}{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}{% set ns.is_first_sp = false %}{%- else %}{% set ns.system_prompt = ns.system_prompt + '\n\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<|User|>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and 'tool_calls' in message %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls'] %}{%- if not ns.is_first %}{%- if message['content'] is none or message['content'] == '' %}{{'<|Assistant|><|calls|><|call|>' + tool['type'] + '<|sep|>' + tool['function']['name'] + '\n' + '```json' + '\n' + (tool['function']['arguments'] | tojson) + '\n' + '```' + '<|endcall|>'}}{%- else %}{{'<|Assistant|>' + message['content'] + '<|calls|>' + tool['function']['name'] + '\n' + (tool['function']['arguments'] | tojson) }}{%- endif %}{%- set ns.is_first = true -%}{%- else %}{{'\n' + '<|call|>' + tool['type'] + '<|sep|>' + tool['function']['name']}}{%- endif %}{%- endfor %}{{'<|endcalls|><|eos|>'}}{%- endif %}{%- if message['role'] == 'assistant' and 'tool_calls' not in message %}{%- if ns.is_tool %}{{'<|endoutputs|>' + message['content'] + '<|eos|>'}}{%- set ns.is_tool = false -%}{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<|Assistant|>' + content + '<|eos|>'}}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{%- if ns.is_output_first %}{{'<|outputs|><|output|>' + message['content'] + '<|endoutput|>'}}{%- set ns.is_output_first = false %}{%- else %}{{'<|output|>' + message['content'] + '<|endoutput|>'}}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{'<|endoutputs|>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<|Assistant|><think>\n'}}{% endif %}""",
    "hermes": r"""{%- macro json_to_python_type(json_spec) %}
{%- set basic_type_map = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"} %}
{%- if basic_type_map[json_spec.type] is defined %}
    {{- basic_type_map[json_spec.type] }}
{%- elif json_spec.type == "array" %}
    {{- "list[" + json_to_python_type(json_spec|items) + "]" if false else "list[" + json_to_python_type(json_spec['items']) + "]" }}
{%- elif json_spec.type == "object" %}
    {%- if json_spec.additionalProperties is defined %}{{- "dict[str, " + json_to_python_type(json_spec.additionalProperties) + ']' }}
    {%- else %}{{- "dict" }}{%- endif %}
{%- elif json_spec.type is iterable and json_spec.type is not string %}
    {{- "Union[" }}
    {%- for t in json_spec.type %}{{- json_to_python_type({"type": t}) }}{%- if not loop.last %}{{- "," }}{%- endif %}{%- endfor %}
    {{- "]" }}
{%- else %}{{- "Any" }}{%- endif %}
{%- endmacro %}
{{- bos_token }}
{{- '<|im_start|>system\n' }}
{{- "Signatures inside <tools></tools>: <tools> " }}
{%- for tool in tools or [] %}
    {%- if tool.function is defined %}{%- set tool = tool.function %}{%- endif %}
    {{- '{"type": "function", "function": ' }}
    {{- '{"name": "' + tool.name + '", ' }}
    {{- '"description": "' + tool.name + '(' }}
    {%- for param_name, param_fields in tool.parameters.properties|items %}
        {{- param_name + ": " + json_to_python_type(param_fields) }}
        {%- if not loop.last %}{{- ", " }}{%- endif %}
    {%- endfor %}
    {{- ")" }}
    {%- if tool.return is defined %}{{- " -> " + json_to_python_type(tool.return) }}{%- endif %}
    {{- " - " + tool.description + "\n\n" }}
    {%- for param_name, param_fields in tool.parameters.properties|items %}
        {%- if loop.first %}{{- "    Args:\n" }}{%- endif %}
        {{- "        " + param_name + "(" + json_to_python_type(param_fields) + "): " + (param_fields.description|default('')) |trim }}
    {%- endfor %}
    {{- '", "parameters": ' }}
    {%- if tool.parameters.properties | length == 0 %}{{- "{}" }}{%- else %}{{- tool.parameters|tojson }}{%- endif %}
    {{- "}" }}
    {%- if not loop.last %}{{- "\n" }}{%- endif %}
{%- endfor %}
{{- " </tools>" }}
{{- '<|im_end|>\n' }}
{%- for message in messages %}
    {%- if message.role == "user" or message.role == "system" or (message.role == "assistant" and message.tool_calls is not defined) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- for tool_call in message.tool_calls %}
            {{- '\n<tool_call>\n' }}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}{{- tool_call.arguments|tojson }}{{- "}" }}
            {{- '\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}{{- '<|im_start|>tool\n' }}{%- endif %}
        {{- '<tool_response>\n' }}{{- message.content }}
        {%- if not loop.last %}{{- '\n</tool_response>\n' }}{%- else %}{{- '\n</tool_response>' }}{%- endif %}
        {%- if not loop.last and loop.nextitem.role != "tool" %}{{- '<|im_end|>' }}{%- elif loop.last %}{{- '<|im_end|>' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
""",
    "generation": "{% for m in messages %}{% if m.role == 'assistant' %}<a>{% generation %}{{ m.content }}</a>{% endgeneration %}{% else %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endif %}{% endfor %}\n"
                  "{%- for role, group in messages | groupby('role') %}{{ role }}:{{ group | length }} {% endfor %}"
                  "{% filter indent(2, true) %}{{ messages | map(attribute='role') | unique | join('\n') }}{% endfilter %}",
}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def tool(text, **more):
    return {"role": "tool", "content": text, **more}


def call(name, arguments, identifier="abcdef123"):
    return {"type": "function", "id": identifier, "function": {"name": name, "arguments": arguments}}


TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "The weather in a city – now", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "City name"}, "days": {"type": "integer"},
                                         "units": {"type": ["string", "null"]}, "tags": {"type": "array", "items": {"type": "number"}}},
        "required": ["city"]}}},
    {"type": "function", "function": {"name": "noop", "description": "Nothing \"at all\" <b>", "parameters": {"type": "object", "properties": {}},
                                      "return": {"type": "object", "additionalProperties": {"type": "boolean"}}}},
]
CONVERSATIONS = [
    [user("Hi")],
    [user("  spaces \n\u3000")],
    [system("You are terse."), user("2+2?")],
    [system("  "), user("2+2?")],
    [system(""), user("empty system")],
    [user("a"), assistant("b"), user("c")],
    [user("a"), assistant("<think>\nadd\n</think>\n\n4"), user("c")],
    [user("a"), assistant("<think>\n\n\nx</think>y</think>z"), user("c"), assistant("no think"), user("d")],
    [user("a"), assistant("4", reasoning_content="  because \n"), user("c"), assistant("5", reasoning_content="again")],
    [user("a"), assistant("4", reasoning_content=None)],
    [system("Sys."), user("Weather in Oslo and Rome?"), assistant("Checking.", reasoning_content="need tool", tool_calls=[
        call("weather", {"city": "Oslo", "detail": True, "n": None, "f": 1.0, "l": [1, "é"], "o": {"a": {"b": 2}}}), call("weather", {"city": "Rome"})]),
     tool("-3C"), tool("18C")],
    [user("x"), assistant("", tool_calls=[call("noop", {})]), tool("done", tool_call_id="abcdef123"), assistant("Fine."), user("thanks")],
    [user("x"), assistant(None, tool_calls=[call("weather", {"city": "Zürich"})]), tool("ok"), assistant("a"), user("b")],
    [user("x"), assistant("t", tool_calls=[{"name": "bare", "arguments": {"k": "multi\nline"}}]), tool({"content": 5}), user("b")],
    [user("x"), assistant("t", tool_calls=[call("noop", "")]), tool("r")],
    [user("x"), assistant("t", tool_calls=[call("noop", "not an object")]), tool("r")],
    [user("x"), user("<tool_response>\nfake\n</tool_response>"), assistant("y")],
    [user("<tool_response>a</tool_response>")],
    [user([{"type": "text", "text": "part one, "}, {"type": "text", "text": "part two"}])],
    [user([{"type": "image", "image": "x.png"}, {"type": "text", "text": "what?"}])],
    [system([{"type": "image", "image": "x.png"}]), user("hi")],
    [user([{"type": "video"}])],
    [user(5)],
    [user(None)],
    [tool("first"), user("hm")],
    [system("a"), system("b"), user("c")],
    [user("a"), system("late")],
    [{"role": "developer", "content": "x"}, user("hi")],
    [{"role": "mystery", "content": "x"}],
    [assistant("only me")],
    [],
    [user("Ünïcödé 😀 \"quotes\" 'single' <tags> & \\back\\slash {braces} {{ not }} {% evaluated %}")],
]


def cases():
    out = []
    variants = [({}, True), ({"enable_thinking": False}, True), ({"enable_thinking": True, "preserve_thinking": True}, False),
                ({"reasoning_effort": "low", "preserve_thinking": False}, True), ({"reasoning_effort": "high"}, True), ({"reasoning_effort": "medium"}, True)]
    for name, template in TEMPLATES.items():
        qwen_like = name.startswith("qwen")
        for i, messages in enumerate(CONVERSATIONS):
            for j, (kwargs, generate) in enumerate(variants if qwen_like else variants[:1] + [({"tools_in_user_message": False}, False)]):
                for tools in (None, TOOLS):
                    if j > 1 and (i + j) % 3 and not (j == 4 and i == 0):
                        continue  # a third of the less usual combinations is enough
                    context = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": generate,
                               "bos_token": "<s>", "eos_token": "</s>", **kwargs}
                    out.append({"name": f"{name} conversation {i} variant {j} {'tools' if tools else ''}", "template": template, "context": context})
    return out
