"""The generator of serve_fuzz.py: sound bodies of every endpoint, and what can be done to them.

case(rng) is one request: its bytes, and which statuses the specification allows for what was done to it.
"""
import json

TOOLS = [{"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {
    "type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}}}]
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{\"place\": \"x\"}"}}
BODIES = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "max_tokens": 2}),
    ("/v1/chat/completions", {"messages": [{"role": "system", "content": [{"type": "text", "text": "Be brief."}]}, {"role": "user", "content": "Look"},
                                           {"role": "assistant", "content": None, "tool_calls": [CALL]},
                                           {"role": "tool", "tool_call_id": "call_1", "content": "seen"}],
                              "tools": TOOLS, "tool_choice": "auto", "max_tokens": 3, "temperature": 0, "stream": True, "seed": 4,
                              "stream_options": {"include_usage": True}, "stop": ["zzz"], "logit_bias": {"5": -100}, "model": "m"}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_schema", "json_schema": {
        "name": "s", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}}, "max_tokens": 3, "temperature": 0, "n": 2,
        "logprobs": True, "top_logprobs": 2, "chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "low"}),
    ("/v1/completions", {"prompt": "Once", "max_tokens": 2, "temperature": 0, "logprobs": 1, "echo": True, "stop": "zz", "stream": False}),
    ("/v1/completions", {"prompt": [[1, 2], [3]], "max_tokens": 1, "temperature": 0.5, "seed": 1, "best_of": 2, "n": 1, "speculative": False}),
    ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}, {"type": "reasoning", "summary": []},
                                 {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
                                 {"type": "function_call_output", "call_id": "c", "output": "x"}], "instructions": "Be brief.",
                       "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}], "max_output_tokens": 2,
                       "temperature": 0, "reasoning": {"effort": "none"}, "text": {"format": {"type": "text"}}, "stream": True}),
    ("/v1/responses", {"input": "Hi", "max_output_tokens": 2, "temperature": 0, "include": ["reasoning.encrypted_content"], "metadata": {"a": "b"}}),
    ("/v1/messages", {"model": "claude-x", "max_tokens": 2, "temperature": 0, "system": [{"type": "text", "text": "s", "cache_control": {}}],
                      "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [
                          {"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "tool_use", "id": "t", "name": "look", "input": {}}]},
                          {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "y"}]}],
                      "tools": [{"name": "look", "input_schema": {"type": "object"}}], "stream": True, "stop_sequences": ["zz"]}),
    ("/v1/messages", {"max_tokens": 1, "temperature": 0, "messages": [{"role": "user", "content": "Hi"}], "thinking": {"type": "disabled"}}),
    ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "Hi"}]}),
    ("/v1/responses/input_tokens", {"input": "Hi"}),
    ("/tokenize", {"content": "one two", "with_pieces": True}),
    ("/detokenize", {"tokens": [1, 2, 3]}),
    ("/apply-template", {"messages": [{"role": "user", "content": "Hi"}]}),
]
GETS = ["/v1/models", "/v1/models/tiny", "/health", "/health/live", "/ready", "/metrics", "/stats", "/slots", "/props", "/",
        "/v1/responses/resp_none", "/v1/responses/resp_none/input_items"]
OTHERS = [("/v1/embeddings", {"input": "x"}), ("/v1/requests/req_1/cancel", {}), ("/slots/0?action=erase", {}), ("/props", {"temperature": 1}),
          ("/v1/chat/completions/control", {"id": "x", "action": "reasoning_end"}), ("/cache/clear", {"tier": "ram"}), ("/cache/flush", {}),
          ("/slots/0?action=save", {"filename": "a.slot"}), ("/slots/1?action=restore", {"filename": "a.slot"})]
# Fields whose JSON type section 5.2 and 8.1 of the specification fix, by endpoint: a value of another type is "invalid_type".
NUMBER, INTEGER, BOOL, STRING = "number", "integer", "bool", "string"
SAMPLING = {"temperature": NUMBER, "top_p": NUMBER, "top_k": INTEGER, "min_p": NUMBER, "seed": INTEGER, "presence_penalty": NUMBER,
            "frequency_penalty": NUMBER, "repetition_penalty": NUMBER, "stream": BOOL, "cache_prompt": BOOL, "model": STRING,
            "min_tokens": INTEGER, "ignore_eos": BOOL}
TYPED = {
    "/v1/chat/completions": dict(SAMPLING, max_tokens=INTEGER, n=INTEGER, logprobs=BOOL, top_logprobs=INTEGER, messages="list", tools="list",
                                 stream_options="object", response_format="object", parallel_tool_calls=BOOL),
    "/v1/completions": dict(SAMPLING, max_tokens=INTEGER, n=INTEGER, best_of=INTEGER, echo=BOOL),
    "/v1/responses": dict(SAMPLING, max_output_tokens=INTEGER, instructions=STRING, tools="list", reasoning="object", text="object"),
    "/v1/messages": dict(SAMPLING, max_tokens=INTEGER, messages="list", tools="list"),
}
RANGES = {"temperature": (-0.1, 2.1, 1e300, -1e300), "top_p": (-1, 1.5), "min_p": (-0.5, 2), "presence_penalty": (-3, 3), "top_k": (-2, 1 << 40),
          "frequency_penalty": (2.5, -9), "min_tokens": (-1,), "repetition_penalty": (0, -1, 99)}
JUNK = [None, True, False, 0, 1, -1, 2 ** 31, -2 ** 31 - 1, 2 ** 63, -2 ** 63, 1e308, -1e-320, 0.5, "", "a", "\u0000", "\ud7ff\U0010ffff", "true",
        "x" * 300, "../../etc/passwd", "<|im_end|>", "<tool_call>", [], {}, [[]], [None], {"": ""}, [1, "a", None], {"type": "text"},
        {"type": "text", "text": "t"}, {"type": "zzz", "text": "t"}, {"type": "object"}, {"type": "image_url", "image_url": {"url": "x"}}, [{}],
        {"role": "user", "content": "x"}, ["a"] * 70, "\u2028\u2029", {"type": "function"}, {"type": "enabled", "budget_tokens": 5}]
OK, GENERAL = {200, 400}, {200, 400, 404, 413, 504}


class Case:
    def __init__(self, kind, data, statuses, method="POST", code=(), param="", anthropic=False, may_close=False, closes=False):
        self.kind, self.data, self.statuses, self.method = kind, data, set(statuses), method
        self.code, self.param, self.anthropic = code, param, anthropic
        self.may_close, self.closes = may_close, closes  # the connection may end without an answer; must not be used again


def is_anthropic(path):
    return path.split("?")[0].startswith(("/v1/messages", "/messages"))


def head(method, path, fields):
    return ("%s %s HTTP/1.1\r\n" % (method, path) + "".join("%s: %s\r\n" % f for f in fields) + "\r\n").encode("latin-1")


def post(path, body, fields=()):
    return head("POST", path, [("Host", "localhost"), ("Content-Length", len(body)), *fields]) + body


def dumps(value):
    return json.dumps(value).encode()


def places(value, out, at=()):
    """Every place inside a JSON value, as keys from its top."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        out.append(at + (key,))
        places(value[key], out, at + (key,))
    return out


def copy(value):
    return json.loads(json.dumps(value))


def pick(rng):
    path, body = rng.choice(BODIES)
    return path, copy(body)


# ---- what is done to values ----

def mutated(rng):
    """Some values replaced by, added as, or exchanged with others."""
    path, body = rng.choice(BODIES + OTHERS)
    body = copy(body)
    for _ in range(rng.choice((1, 1, 2, 4))):
        all_places = places(body, [])
        if not all_places:
            break
        at = rng.choice(all_places)
        parent = body
        for key in at[:-1]:
            parent = parent[key]
        what = rng.randrange(5)
        if what == 0 and isinstance(parent, dict):
            del parent[at[-1]]
        elif what == 1 and isinstance(parent, list):
            parent.extend(copy(parent) * rng.randrange(1, 4))
        elif what == 2 and isinstance(parent, dict):
            parent[rng.choice(sorted(SAMPLING) + ["grammar", "regex", "json_schema", "thinking", "timeout", "priority", "return_tokens", "best_of",
                                                  "suffix", "functions", "function_call", "logprobs_all", "truncation"])] = copy(rng.choice(JUNK))
        else:
            parent[at[-1]] = copy(rng.choice(JUNK if rng.random() < 0.8 else [v for _, b in BODIES for v in b.values()]))
    return Case("values", post(path, dumps(body)), GENERAL | {403}, anthropic=is_anthropic(path))


def wrong_type(rng):
    path = rng.choice(sorted(TYPED))
    body = copy(next(b for p, b in BODIES if p == path))
    field, kind = rng.choice(sorted(TYPED[path].items()))
    wrong = {"number": ["1", True, [], {}], "integer": ["1", True, [], {}], "bool": [0, "true", [], {}], "string": [1, True, [], {}],
             "list": [1, "a", {}, False], "object": [1, "a", [], True]}[kind]
    body[field] = rng.choice(wrong)
    return Case("wrong type", post(path, dumps(body)), {400}, code=("invalid_type",), param=field, anthropic=is_anthropic(path))


def out_of_range(rng):
    path, body = pick(rng)
    while path not in TYPED:
        path, body = pick(rng)
    field = rng.choice(sorted(RANGES))
    body[field] = rng.choice(RANGES[field])
    return Case("range", post(path, dumps(body)), {400}, param=field, anthropic=is_anthropic(path))


def roles(rng):
    """Random conversations; check 4 of the specification: never a 5xx."""
    path = rng.choice(["/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens", "/apply-template"])
    parts = [{"type": "text", "text": "p"}, {"type": "thinking", "thinking": "t", "signature": ""}, {"type": "redacted_thinking", "data": "x"},
             {"type": "tool_use", "id": "t", "name": "n", "input": {"a": 1}}, {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "r"}]},
             {"type": "image", "source": {}}, {"type": "refusal", "refusal": "no"}, {"type": "document", "source": {"type": "text", "data": "d"}}, {"type": "new"}, {}]
    messages = []
    for _ in range(rng.randrange(0, 7)):
        m = {"role": rng.choice(["user", "assistant", "system", "developer", "tool", "function"])}
        if rng.random() < 0.9:
            m["content"] = rng.choice(["", "text", None, [rng.choice(parts) for _ in range(rng.randrange(3))], "<think>\nx\n</think>\n\ny", "</think>"])
        if rng.random() < 0.3:
            m["tool_calls"] = [dict(CALL, function={"name": "n", "arguments": rng.choice(["{}", "", "no", {"a": [1]}, "{\"a\": \"\\u0000\"}"])})]
        if rng.random() < 0.4:
            m["tool_call_id"] = "call_1"
        if rng.random() < 0.2:
            m[rng.choice(["reasoning_content", "reasoning", "name"])] = "r"
        messages.append(m)
    body = {"messages": messages, "max_tokens": rng.choice((0, 1, 2)), "temperature": 0, "stream": rng.random() < 0.3}
    return Case("roles", post(path, dumps(body)), OK, anthropic=is_anthropic(path))


def unknown_role(rng):
    body = {"messages": [{"role": rng.choice(["", "User", "bot", "\u0000"]), "content": "x"}], "max_tokens": 1}
    path = rng.choice(["/v1/chat/completions", "/v1/messages"])
    return Case("unknown role", post(path, dumps(body)), {400}, param="messages[0].role", anthropic=is_anthropic(path))


def schema(rng, depth=0):
    kinds = [{"type": rng.choice(["string", "integer", "number", "boolean", "null", "zzz", ["string", "null"]])}, {"enum": rng.choice([[], [1], ["a", None]])},
             {"const": rng.choice(JUNK)}, {"type": "string", "pattern": rng.choice(["^a+$", "(", "[a-", "(a*)*b", "\\d{1000}", "(?=x)"])},
             {"type": "string", "minLength": rng.choice([0, 5, 10 ** 9, -1]), "maxLength": 3}, {"$ref": rng.choice(["#", "#/$defs/a", "http://x", ""])},
             {"type": "integer", "minimum": rng.choice([1, -10 ** 30, 0.5]), "maximum": rng.choice([0, 7])}, {"type": "string", "format": "uuid"}, True, {}, 7]
    if depth > 3 or rng.random() < 0.5:
        return rng.choice(kinds)
    inner = [schema(rng, depth + 1) for _ in range(rng.randrange(1, 4))]
    return rng.choice([{"type": "object", "properties": {"k%d" % i: s for i, s in enumerate(inner)}, "required": ["k0", "zz"][:rng.randrange(3)]},
                       {"type": "array", "items": inner[0], "minItems": rng.choice([0, 3, 10 ** 9])}, {"anyOf": inner}, {"allOf": inner},
                       {"$defs": {"a": inner[0]}, "$ref": "#/$defs/a"}, {"type": "array", "prefixItems": inner}, {"oneOf": inner, "not": {}},
                       {"type": "object", "additionalProperties": inner[0]}])


GRAMMAR_WORDS = ["root", "::=", "a", "|", "(", ")", "*", "+", "?", '"x"', "[a-z]", "[^", "\n", "{2,}", "{99999}", ".", "#", "\\x", "ws", '"']


def structured(rng):
    path, body = rng.choice([0, 5, 8, 2]), {}
    path, body = BODIES[path][0], copy(BODIES[path][1])
    what = rng.randrange(5)
    if what == 0:
        tool = {"name": rng.choice(["f", "", "x" * 200, "a b", 5]), "description": "d", "parameters": schema(rng), "strict": rng.random() < 0.5}
        body["tools"] = [{"type": "function", "function": tool} if path.endswith("completions") else dict(tool, type="function", input_schema=tool["parameters"])]
        body["tool_choice"] = rng.choice(["auto", "required", "none", {"type": "any"}, {"type": "function", "function": {"name": "f"}}, "zz"])
    elif what == 1:
        body["grammar"] = " ".join(rng.choice(GRAMMAR_WORDS) for _ in range(rng.randrange(1, 12)))
    elif what == 2:
        body["grammar"] = "root ::= " + " ".join(rng.choice(['"a"', "[a-z]+", "(", ")", "|", "root", "*"]) for _ in range(rng.randrange(1, 8)))
    elif what == 3:
        body["regex"] = rng.choice(["a+", "(", "(a|b){3}", "[", "(a*)*", "a{2000}", "\\p{L}", "(?!x)", ""])
    else:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema(rng), "strict": rng.random() < 0.5}}
        body["json_schema" if rng.random() < 0.2 else "zz"] = schema(rng)
    return Case("structured", post(path, dumps(body)), OK, anthropic=is_anthropic(path))


# ---- what is done to bytes ----

def broken_json(rng):
    path, body = pick(rng)
    data = dumps(body)
    what = rng.randrange(5)
    if what == 0:
        data = data[:rng.randrange(len(data))]
    elif what == 1:
        at = data.index(b'"') + 1
        data = data[:at] + rng.choice([b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\x80"]) + data[at:]
    elif what == 2:
        n = rng.choice((129, 200, 5000, 100000))
        data = b'{"messages":' + rng.choice([b"[" * n + b"]" * n, b'{"a":' * n + b"1" + b"}" * n]) + b"}"
    elif what == 3:
        data += rng.choice([b"}", b"x", b"{}", b",", b"\x00"])
    else:
        data = rng.choice([b"", b" ", b"null", b"[]", b"1", b'"a"', b"{'a':1}", b'{"a":NaN}', b'{"a":01}', b'{"a":+1}', b'{"a":1,}', b"\x00", b'{"a":"\n"}'])
        return Case("no object", post(path, data), {400}, code=("invalid_json", "invalid_type"), anthropic=is_anthropic(path))
    return Case("broken JSON", post(path, data), {400}, code=("invalid_json",), anthropic=is_anthropic(path))


def flipped(rng):
    path, body = pick(rng)
    data = bytearray(dumps(body))
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(data))
        what = rng.randrange(3)
        if what == 0:
            data[at] = rng.randrange(256)
        elif what == 1:
            del data[at:at + rng.randrange(1, 9)]
        else:
            data[at:at] = rng.choice([b"1e999", b"-", b"99999999999999999999999", b"\\ud800", b"\\u0000", b'"', b"[", b"\xef\xbb\xbf", b"null", b"0.1e-999"])
    return Case("bytes", post(path, bytes(data)), GENERAL, anthropic=is_anthropic(path))


def framing(rng):
    path, body = pick(rng)
    data, host, n = dumps(body), ("Host", "localhost"), len(dumps(body))
    length, chunked = ("Content-Length", n), ("Transfer-Encoding", "chunked")
    one = b"%x\r\n%s\r\n0\r\n\r\n" % (n, data)
    cases = [
        ([host, length, chunked], one, {400}), ([host, chunked, length], one, {400}), ([host, length, ("Content-Length", n + 1)], data, {400}),
        ([host], b"", {411}), ([host, ("Content-Length", rng.choice(["-1", "+5", "0x10", "1 2", "", "9" * 30, "5,6"]))], data, {400, 413}),
        ([host, ("Content-Length", 2 << 20)], b"", {413}), ([host, length, ("Content-Encoding", rng.choice(["gzip", "br", "deflate"]))], data, {415}),
        ([host, chunked], b"zz\r\n" + data, {400}), ([host, chunked], b"%x\r\n%s" % (n - 1, data) + b"\r\n0\r\n\r\n", {400}),
        ([host, chunked], b"ffffffffffffffffff\r\n", {400, 413}), ([host, ("Transfer-Encoding", rng.choice(["gzip, chunked", "zz"]))], one, {400, 501}),
        ([host, length] + [("X-%d" % i, "y") for i in range(130)], data, {431}), ([host, length, ("X-Long", "y" * 70000)], data, {431}),
        ([host, length, ("Bad Name", "x")], data, {400}), ([host, length, ("X", "a\x00b")], data, {400}), ([host, length, ("Expect", "zz")], data, {417}),
        ([length], data, {400}), ([host, ("Host", "other"), length], data, {400}), ([("Host", rng.choice(["evil.example", "localhost.evil", "127.0.0.2"])), length], data, {403}),
        ([host, length, ("Origin", "http://evil.example")], data, {403}),
    ]
    fields, body, statuses = rng.choice(cases)
    return Case("framing", head("POST", path, fields) + body, statuses, anthropic=is_anthropic(path), closes=True)


def chunked(rng):
    """Sound, in pieces: the same answer as whole."""
    path, body = pick(rng)
    data, out = dumps(body), b""
    while data:
        n = rng.randrange(1, 60)
        piece, data = data[:n], data[n:]
        out += b"%x%s\r\n%s\r\n" % (len(piece), rng.choice([b"", b";a=b", b";x"]), piece)
    out += b"0\r\n" + rng.choice([b"", b"X-T: 1\r\n"]) + b"\r\n"
    return Case("chunked", head("POST", path, [("Host", "localhost"), ("Transfer-Encoding", "chunked")]) + out, {200}, anthropic=is_anthropic(path))


def first_line(rng):
    line, statuses = rng.choice([
        (b"GET / HTTP/9.9", {505}), (b"GET  / HTTP/1.1", {400}), (b"GET / HTTP/1.1 ", {400}), (b"GET /", {400, 505}), (b"\x16\x03\x01\x02", {400}),
        (b"G\x00T / HTTP/1.1", {400}), (b"GET /" + b"a" * 70000 + b" HTTP/1.1", {431}), (b"GET /%zz HTTP/1.1", {400}), (b"GET /%ff HTTP/1.1", {400}),
        (b"GET /%00 HTTP/1.1", {400}), (b"GET \xff HTTP/1.1", {400}), (b"PRI * HTTP/2.0", {505, 400}), (b"GET nothing HTTP/1.1", {400})])
    return Case("first line", line + b"\r\nHost: localhost\r\n\r\n", statuses, method="GET", closes=True)


def odd_method(rng):
    path = rng.choice([p for p, _ in BODIES + OTHERS[:1]] + GETS[:1])
    method = rng.choice(["PUT", "DELETE", "PATCH", "TRACE", "FOO", "get"] + (["GET", "HEAD"] if path not in GETS else ["POST"]))
    return Case("method", head(method, path, [("Host", "localhost"), ("Content-Length", 0)]), {405}, method=method, anthropic=is_anthropic(path))


def unknown_path(rng):
    path = rng.choice(["/v1/v1/models", "/v1", "/nothing", "/v1/chat", "/v1/chat/completions/x", "/slots/0/1", "/v1/messages/batches", "/..", "//v1/models",
                       "/v1/responses/compact", "/%2e%2e/etc/passwd", "/V1/models", "/v1/completions%20", "/v1/requests/x/stop"])
    return Case("unknown path", post(path, b"{}"), {404, 405}, anthropic=is_anthropic(path))


def slot_tricks(rng):
    name = rng.choice(["../x", "/etc/passwd", "..", ".", "", "a/b", "a\\b", "..\\x", ".hidden", "x" * 5000, "a\u0000b", "a/../b", None, 5, ["a"], {}])
    slot = rng.choice(["0", "1"])
    return Case("slot names", post("/slots/%s?action=%s" % (slot, rng.choice(["save", "restore"])), dumps({"filename": name})), {400}, param="filename")


def slot_paths(rng):
    path, statuses = rng.choice([("/slots/2?action=erase", {404}), ("/slots/-1?action=erase", {404}), ("/slots/x?action=erase", {404}), ("/slots/0", {400}),
                                 ("/slots/99999999999999999999?action=save", {404}), ("/slots/0?action=zz", {400}), ("/slots/0?action=", {400}),
                                 ("/slots/0?action=restore", {400}), ("/slots/%2e%2e/0?action=erase", {404}), ("/slots/0%00?action=erase", {400})])
    return Case("slot paths", post(path, rng.choice([b"{}", b'{"filename":"none"}'])), statuses)


def gets(rng):
    path = rng.choice(GETS) + rng.choice(["", "?", "?a", "?" + "&" * 50, "?x=%ff", "?" + "q" * 2000, "?fail_on_no_slot=1", "/"])
    method = rng.choice(["GET", "GET", "HEAD", "OPTIONS"])
    path = path if path != "//" else "/"
    return Case("reading", head(method, path, [("Host", "localhost")]), {200, 204, 404, 503}, method=method)


KINDS = [(mutated, 30), (wrong_type, 10), (out_of_range, 4), (roles, 10), (unknown_role, 1), (structured, 10), (broken_json, 8), (flipped, 8), (framing, 6),
         (chunked, 3), (first_line, 2), (odd_method, 2), (unknown_path, 2), (slot_tricks, 2), (slot_paths, 1), (gets, 4)]
BAG = [kind for kind, weight in KINDS for _ in range(weight)]


def case(rng):
    return rng.choice(BAG)(rng)
