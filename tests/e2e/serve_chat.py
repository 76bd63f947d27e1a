"""Conversations: what is read again and what is not, also after a restart and a kill; every answer as a cold server gives it."""
import json
import os
import re
import shutil
import signal
import tempfile

from serve_lib import Checks, Server, until

TOOLS = [{"type": "function", "function": {"name": "add", "description": "Add two numbers.", "strict": True, "parameters": {
    "type": "object", "properties": {"a": {"enum": [1, 2]}, "b": {"enum": [3, 4]}}, "required": ["a", "b"], "additionalProperties": False}}}]
SYSTEM = "You are a careful helper. " + "Answer in a few words. " * 20
QUESTIONS = ["What is the capital of France?", "And of Spain?", "What is two plus three?", "Name a color.", "Say hello."]


def turn(s, messages, **fields):
    status, a = s.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 48, "enable_thinking": False, **fields},
                       {"x-engine-info": "1"})
    if status != 200:
        raise RuntimeError(a)
    return a["choices"][0]["message"], a["usage"], a


def conversation(s, t, name, before=None):
    """Five turns. before: the answers that they must be equal to. The answers, and the whole history."""
    messages, answers, kept = [{"role": "system", "content": SYSTEM}], [], 0
    for i, q in enumerate(QUESTIONS):
        messages.append({"role": "user", "content": q})
        message, usage, a = turn(s, messages)
        n, cached = usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
        t.check(f"{name}, turn {i}: at least what was known but 8", cached >= kept - 8, f"{cached} of {n}, {kept} known; {a.get('engine')}")
        t.equal(f"{name}, turn {i}: total", usage["total_tokens"], n + usage["completion_tokens"])
        kept = n + usage["completion_tokens"]
        answers.append(message["content"])
        messages.append({"role": "assistant", "content": message["content"]})
    if before is not None:
        t.equal(name + ": the same answers", answers, before)
    return answers, messages


def responses_usage(s, t):
    items, kept = [], 0
    for i, q in enumerate(QUESTIONS):
        items.append({"role": "user", "content": q})
        status, a = s.post("/v1/responses", {"instructions": SYSTEM, "input": items, "temperature": 0, "max_output_tokens": 48,
                                             "reasoning": {"effort": "none"}})
        u = a["usage"]
        t.check(f"responses, turn {i}", status == 200 and u["input_tokens_details"]["cached_tokens"] >= kept - 8, (u, kept))
        kept = u["input_tokens"] + u["output_tokens"]
        items += a["output"]


def messages_usage(s, t):
    messages, kept = [], 0
    for i, q in enumerate(QUESTIONS):
        messages.append({"role": "user", "content": q})
        status, a = s.post("/v1/messages", {"system": SYSTEM, "messages": messages, "temperature": 0, "max_tokens": 48,
                                            "thinking": {"type": "disabled"}})
        u = a["usage"]
        t.check(f"messages, turn {i}", status == 200 and u["cache_read_input_tokens"] >= kept - 8, (u, kept))
        kept = u["input_tokens"] + u["cache_read_input_tokens"] + u["output_tokens"]
        messages.append({"role": "assistant", "content": a["content"]})


def edits(s, t, messages):
    n = turn(s, messages[:-1])[1]
    t.check("regenerate", n["prompt_tokens"] - n["prompt_tokens_details"]["cached_tokens"] <= 64, n)
    changed = messages[:-2] + [{"role": "user", "content": "Say goodbye."}]
    n = turn(s, changed)[1]
    t.check("edit of the last message", n["prompt_tokens"] - n["prompt_tokens_details"]["cached_tokens"] <= 64, n)
    n = turn(s, messages[:-4] + [{"role": "user", "content": "Name an animal."}])[1]
    t.check("without the last turn", n["prompt_tokens"] - n["prompt_tokens_details"]["cached_tokens"] <= 128, n)


def tool_loop(s, t):
    """A forced call, its result, and what was cached then."""
    messages = [{"role": "user", "content": "Add 2 and 3."}]
    fields = {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "add"}}, "max_tokens": 120}
    message, usage, _ = turn(s, messages, **fields)
    if not message.get("tool_calls"):
        t.check("a forced call", False, message)
        return
    call = message["tool_calls"][0]
    arguments = json.loads(call["function"]["arguments"])
    t.check("its arguments fit the schema", arguments.get("a") in (1, 2) and arguments.get("b") in (3, 4), arguments)
    messages += [{"role": "assistant", "content": message["content"], "tool_calls": message["tool_calls"]},
                 {"role": "tool", "tool_call_id": call["id"], "content": "5"}]
    _, after, _ = turn(s, messages, tools=TOOLS)
    # What a mask was laid on may be other tokens than the same text has when it is read: only the prompt is sure to be known.
    t.check("the prompt is not read again", after["prompt_tokens_details"]["cached_tokens"] >= usage["prompt_tokens"] - 8, (usage, after))
    stream = s.stream("/v1/chat/completions", {"messages": messages[:1], "temperature": 0, "enable_thinking": False, **fields})
    deltas = [c["tool_calls"][0]["function"].get("arguments", "") for _, e in stream[:-1] for c in [e["choices"][0]["delta"]] if "tool_calls" in c]
    t.equal("streamed arguments", "".join(deltas), call["function"]["arguments"])


def structured(s, t):
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 1, "maximum": 99}},
              "required": ["name", "age"], "additionalProperties": False}
    body = {"messages": [{"role": "user", "content": "Describe a person."}], "temperature": 0, "max_tokens": 100, "thinking_budget": 8,
            "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}}}
    status, a = s.post("/v1/chat/completions", body)
    value = json.loads(a["choices"][0]["message"]["content"])
    t.check("schema", status == 200 and set(value) == {"name", "age"} and 1 <= value["age"] <= 99 and len(value["name"]) <= 12, a)
    status, a = s.post("/v1/chat/completions", {**body, "response_format": {"type": "json_object"}, "enable_thinking": False})
    t.check("object", status == 200 and (a["choices"][0]["finish_reason"] == "length"
                                         or isinstance(json.loads(a["choices"][0]["message"]["content"]), dict)), a)
    status, a = s.post("/v1/completions", {"prompt": "Answer: ", "grammar": 'root ::= "yes" | "no"', "temperature": 0, "max_tokens": 9})
    t.check("grammar", status == 200 and a["choices"][0]["text"] in ("yes", "no"), a)
    bad = {**body, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "string", "pattern": "(?=a)"},
                                                                             "strict": True}}}
    t.equal("what is not supported", s.post("/v1/chat/completions", bad)[0], 400)
    for field, text in (("grammar", "root = x"), ("regex", "(?=a)")):
        status, a = s.post("/v1/completions", {"prompt": "a", field: text})
        t.equal(f"a {field} that is none is refused by its name", (status, a["error"]["param"]), (400, field))


def custom_tools(s, t):
    """The regular expression of a custom tool binds its input; one that cannot be enforced is refused by the tool's name."""
    def ask(definition, seed):
        chat = {"type": "grammar", "grammar": {"syntax": "regex", "definition": definition}}
        flat = {"type": "grammar", "syntax": "regex", "definition": definition}
        return (s.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Go."}], "tools": [{"type": "custom", "custom": {"name": "p", "format": chat}}],
            "tool_choice": "required", "enable_thinking": False, "max_tokens": 120, "seed": seed}),
                s.post("/v1/responses", {
            "input": "Go.", "tools": [{"type": "custom", "name": "p", "format": flat}], "tool_choice": "required",
            "reasoning": {"effort": "none"}, "max_output_tokens": 120, "seed": seed}))

    pattern = "[a-z]{3}\n[0-9]{1,4}"
    for seed in range(3):
        (_, chat), (_, responses) = ask(pattern, seed)
        inputs = [c["custom"]["input"] for c in chat["choices"][0]["message"].get("tool_calls", [])]
        inputs += [c["input"] for c in responses["output"] if c["type"] == "custom_tool_call"]
        t.check("input of a custom tool", len(inputs) >= 2 and all(re.fullmatch(pattern, i) for i in inputs), inputs)
    for status, answer in ask("a(?=b)", 1) + ask("(a", 1):
        t.check("an expression that is refused", status == 400 and 'tool "p": ' in answer["error"]["message"], answer)


def strict_texts(s, t):
    """What a strict tool's schema says of its strings binds them, though they are written without quotes."""
    shapes = {"code": ({"type": "string", "pattern": "^[A-Z]{2}-[0-9]{1,3}$"}, "[A-Z]{2}-[0-9]{1,3}"),
              "day": ({"$ref": "#/$defs/day"}, "[0-9]{4}-[0-9]{2}-[0-9]{2}"),
              "note": ({"type": "string", "minLength": 2, "maxLength": 5}, "(?s:.){2,5}"),
              "unit": ({"type": "string", "enum": ["m", "km"]}, "k?m")}
    schema = {"type": "object", "properties": {k: v for k, (v, _) in shapes.items()}, "required": list(shapes), "additionalProperties": False,
              "$defs": {"day": {"type": "string", "format": "date"}}}

    def ask(schema, seed):
        tool = {"type": "function", "function": {"name": "save", "strict": True, "parameters": schema}}
        return s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Go."}], "tools": [tool], "seed": seed,
                                               "tool_choice": "required", "enable_thinking": False, "max_tokens": 300})
    for seed in range(3):
        status, a = ask(schema, seed)
        calls = a["choices"][0]["message"].get("tool_calls", []) if status == 200 else []
        values = [json.loads(c["function"]["arguments"]) for c in calls]
        t.check("strings of a strict tool", values and all(set(v) == set(shapes) and all(
            re.fullmatch(shapes[k][1], v[k]) for k in shapes) for v in values), a)
    for bad, word in (({"type": "string", "pattern": "a(?=b)"}, "pattern"), ({"type": "string", "format": "colour"}, "format")):
        status, a = ask({"type": "object", "properties": {"x": bad}, "required": ["x"], "additionalProperties": False}, 1)
        t.check("what cannot be enforced is refused", status == 400 and word in a["error"]["message"], a)


def main():
    t = Checks()
    folder = tempfile.mkdtemp()
    options = ("--ctx", "4096", "--parallel", "2", "--draft", "lookup", "--cache-disk", folder)
    try:
        with Server(t, *options) as s:
            answers, messages = conversation(s, t, "first")
            edits(s, t, messages)
            responses_usage(s, t)
            messages_usage(s, t)
            tool_loop(s, t)
            structured(s, t)
            custom_tools(s, t)
            strict_texts(s, t)
        t.check("remembered calls are saved", os.path.exists(folder + "/calls.replay"))
        with Server(t, *options) as s:  # what a stopped server has left
            messages.append({"role": "user", "content": "Thanks."})
            _, usage, a = turn(s, messages)
            t.check("after a restart", usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] <= 80, a)
            t.equal("from the disk", a["engine"]["cache"]["source"], "disk")
            conversation(s, t, "again", answers)
            s.post("/cache/flush", {})
            s.stop(signal.SIGKILL)
        with Server(t, *options) as s:  # and a killed one
            _, usage, a = turn(s, messages)
            t.check("after a kill", usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] <= 80, a)
        with Server(t, "--ctx", "4096", "--parallel", "1", "--cache-ram", "0") as s:
            conversation(s, t, "with nothing cached but the live session", answers)
    finally:
        shutil.rmtree(folder)
    t.finish()


main()
