"""Every endpoint once; statuses and shapes of errors; what the header says."""
import json
import re
import subprocess

from serve_lib import MODEL, SKUA, Checks, Server, chat, events, together

FRANCE = "What is the capital of France?"


def alone(prompt):
    return subprocess.run([SKUA, "run", "-m", MODEL, "--temp", "0", "-q", "-c", "4096", prompt], capture_output=True, text=True,
                          check=True).stdout.rstrip("\n")


def endpoints(s, t):
    t.equal("health", s.get("/health"), (200, {"status": "ok"}))
    t.equal("v1 health", s.get("/v1/health"), (200, {"status": "ok"}))
    t.equal("live", s.get("/health/live"), (200, {"status": "ok"}))
    t.equal("ready", s.get("/ready"), (200, {"status": "ok"}))
    status, models = s.get("/v1/models")
    t.equal("models", (status, [m["id"] for m in models["data"]]), (200, ["tiny-q8_0"]))
    t.equal("model", s.get("/models/tiny-q8_0")[1], models["data"][0])
    t.equal("no model", (s.get("/v1/models/other")[0], s.get("/v1/models/other")[1]["error"]["code"]), (404, "model_not_found"))
    status, tokens = s.post("/tokenize", {"content": "Hello world", "with_pieces": True})
    ids = [p["id"] for p in tokens["tokens"]]
    t.equal("tokenize", (status, "".join(p["piece"] for p in tokens["tokens"])), (200, "Hello world"))
    t.equal("detokenize", s.post("/detokenize", {"tokens": ids}), (200, {"content": "Hello world"}))
    status, prompt = s.post("/apply-template", chat(FRANCE))
    t.check("apply-template", status == 200 and FRANCE in prompt["prompt"])
    n = len(s.post("/tokenize", {"content": prompt["prompt"]})[1]["tokens"])
    t.equal("count_tokens", s.post("/v1/messages/count_tokens", chat(FRANCE)), (200, {"input_tokens": n}))
    t.equal("input_tokens", s.post("/v1/responses/input_tokens", {"input": FRANCE})[1]["input_tokens"], n)
    status, props = s.get("/props")
    t.check("props", status == 200 and props["n_ctx"] == 4096 and props["model"]["id"] == "tiny-q8_0" and "POST /v1/responses" in props["endpoints"])
    status, slots = s.get("/slots")
    t.equal("slots", (status, len(slots), {x["phase"] for x in slots}), (200, props["parallel"], {"idle"}))
    t.equal("stats", s.get("/stats")[0], 200)
    t.equal("embeddings", s.post("/v1/embeddings", {"input": "a"})[0], 400)
    t.equal("control of nothing", s.post("/v1/chat/completions/control", {"id": "x", "action": "reasoning_end"}), (200, {"success": False}))
    t.equal("cancel of nothing", s.post("/v1/requests/req_none/cancel", {}), (200, {"cancelled": False}))
    t.equal("flush", s.post("/cache/flush", {})[0], 200)
    t.equal("clear", s.post("/cache/clear", {"tier": "ram"}), (200, {"cleared": True}))


def generating(s, t):
    want = alone(FRANCE)
    for path in ("/v1/chat/completions", "/chat/completions"):
        status, a = s.post(path, chat(FRANCE))
        t.equal(path, (status, a["choices"][0]["message"]["content"], a["choices"][0]["finish_reason"]), (200, want, "stop"))
    whole = s.post("/v1/chat/completions", chat(FRANCE))[1]
    stream = s.stream("/v1/chat/completions", chat(FRANCE, stream_options={"include_usage": True}))
    t.equal("chat: last event", stream[-1], (None, "[DONE]"))
    chunks = [e[1] for e in stream[:-1]]
    joined = {k: "".join(c["choices"][0]["delta"].get(k) or "" for c in chunks if c["choices"]) for k in ("content", "reasoning_content")}
    message = whole["choices"][0]["message"]
    t.equal("chat: streamed = whole", joined, {k: message[k] for k in joined})
    t.equal("chat: usage", {k: chunks[-1]["usage"][k] for k in ("prompt_tokens", "completion_tokens")},
            {k: whole["usage"][k] for k in ("prompt_tokens", "completion_tokens")})
    options = {"include_usage": True, "continuous_usage_stats": True}
    for path, body in (("/v1/chat/completions", chat(FRANCE)), ("/v1/completions", {"prompt": "One two", "temperature": 0, "max_tokens": 6})):
        chunks = [e[1] for e in s.stream(path, {**body, "stream_options": options, "timings_per_token": True, "return_tokens": True,
                                                "engine_info": True})[:-1]]
        seen = [c["usage"]["completion_tokens"] for c in chunks]
        t.check(path + ": running usage %r" % seen, seen == sorted(seen) and len(set(seen)) > 3 and 1 in seen and seen[-1] == max(seen))
        timed = [c["timings"] for c in chunks[:-1] if "timings" in c]  # from when it is known what was cached
        t.equal(path + ": running timings", [x["predicted_n"] for x in timed], seen[len(seen) - 1 - len(timed):-1])
        t.check(path + ": cached, from the first on", len(timed) >= len(seen) - 2 and len({x["cache_n"] for x in timed}) == 1, timed)
        t.check(path + ": ids are not returned, and it says so", "return_tokens" in "".join(chunks[-2]["engine"]["warnings"]))
    for path in ("/v1/responses", "/responses"):
        body = {"input": FRANCE, "temperature": 0, "max_output_tokens": 60}
        whole = s.post(path, body)[1]
        stream = s.stream(path, body)
        t.equal(path + ": last event", stream[-1][0], "response.completed")
        t.equal(path + ": numbers", [e[1]["sequence_number"] for e in stream], list(range(len(stream))))
        t.equal(path + ": text", [o["content"][0]["text"] for o in stream[-1][1]["response"]["output"]],
                [o["content"][0]["text"] for o in whole["output"]])
        t.equal(path + ": deltas", "".join(e[1]["delta"] for e in stream if e[0] == "response.output_text.delta"), want)
    for path in ("/v1/messages", "/messages"):
        whole = s.post(path + "?beta=true", chat(FRANCE))[1]
        stream = s.stream(path, chat(FRANCE))
        t.equal(path + ": first and last", (stream[0][0], stream[-1][0]), ("message_start", "message_stop"))
        t.equal(path + ": text", "".join(e[1]["delta"].get("text", "") for e in stream if e[0] == "content_block_delta"), want)
        t.equal(path + ": whole", (whole["content"][-1]["text"], whole["stop_reason"]), (want, "end_turn"))
    prompts = {"prompt": ["The capital of France is", "Two plus two"], "temperature": 0, "max_tokens": 6, "n": 2}
    whole = s.post("/v1/completions", prompts)[1]
    stream = [e[1] for e in s.stream("/completions", prompts)[:-1]]
    t.equal("completions: order", [c["index"] for c in whole["choices"]], [0, 1, 2, 3])
    for i in range(4):
        t.equal(f"completions: choice {i}", "".join(c["choices"][0]["text"] for c in stream if c["choices"] and c["choices"][0]["index"] == i),
                whole["choices"][i]["text"])
    zero = s.post("/v1/chat/completions", chat(FRANCE, max_tokens=0))[1]
    kept = [p for x in s.get("/slots")[1] for p in x["checkpoints"]]
    t.check("slots tell their checkpoints: %r" % kept, kept and all(p["tokens"] > 0 and p["bytes"] > 0 and p["kind"] == "ram" for p in kept))
    saves = re.findall(r'skua_cache_saves_total\{reason="(\w+)"\} (\d+)', s.ask("GET", "/metrics")[2].decode())
    t.check("what checkpoints were kept for: %r" % saves, len(saves) == 3 and dict(saves)["border"] != "0")
    t.equal("only the prompt", (zero["choices"][0]["finish_reason"], zero["usage"]["completion_tokens"]), ("length", 0))
    answers = together([lambda: s.post("/v1/chat/completions", chat(FRANCE))[1]["choices"][0]["message"]["content"]] * 8)
    t.equal("eight equal requests", answers, [want] * 8)
    mixed = ["Name a color.", "Say hello.", "What is two plus three?", "Where is Berlin?"]
    t.equal("mixed requests", together([lambda q=q: s.post("/v1/chat/completions", chat(q, max_tokens=200))[1]["choices"][0]["message"]["content"]
                                        for q in mixed]), [alone(q) for q in mixed])


def errors(s, t):
    def fails(name, status, code, method, path, body=None, headers=None):
        got, head, text = s.ask(method, path, body, headers)
        e = json.loads(text)["error"]
        t.equal(name, (got, e.get("code", e["type"])), (status, code))
        t.check(name + ": shape", isinstance(e["message"], str) and ("/messages" in path) == ("request_id" in json.loads(text)), text)
        return head

    fails("no path", 404, "not_found", "GET", "/v1/nothing")
    fails("v1 twice", 404, "not_found", "POST", "/v1/v1/chat/completions", {})
    fails("batches", 404, "not_found_error", "POST", "/v1/messages/batches", {})
    t.equal("allow", fails("method", 405, "method_not_allowed", "GET", "/v1/chat/completions")["allow"], "POST")
    t.equal("allow of models", fails("method", 405, "method_not_allowed", "DELETE", "/v1/models")["allow"], "GET, HEAD")
    fails("no JSON", 400, "invalid_json", "POST", "/v1/chat/completions", "{")
    fails("no JSON, Anthropic", 400, "invalid_request_error", "POST", "/v1/messages", "{")
    fails("no object", 400, "invalid_type", "POST", "/v1/chat/completions", "[]")
    fails("no messages", 400, "missing_required_parameter", "POST", "/v1/chat/completions", {})
    fails("web socket", 426, "upgrade_not_supported", "GET", "/v1/responses", None, {"Upgrade": "websocket", "Connection": "Upgrade"})
    long = "word " * 5000
    for path, body, words in (("/v1/chat/completions", chat(long), "maximum context length is 4096 tokens"),
                              ("/v1/responses", {"input": long}, "maximum context length is 4096 tokens"),
                              ("/v1/completions", {"prompt": long}, "maximum context length is 4096 tokens"),
                              ("/v1/messages", chat(long), "prompt is too long")):
        status, a = s.post(path, body)
        t.check(path + ": too long", status == 400 and words in a["error"]["message"], a)
    status, head, _ = s.ask("GET", "/health", headers={"x-request-id": "mine-1"})
    t.equal("request id", head["x-request-id"], "mine-1")
    _, head, _ = s.ask("POST", "/v1/messages", "{", {"x-request-id": "mine-2"})
    t.equal("request-id", head["request-id"], "mine-2")
    status, head, body = s.ask("HEAD", "/v1/models/")
    t.equal("HEAD", (status, body), (200, b""))
    t.equal("OPTIONS", s.ask("OPTIONS", "/v1/messages")[0], 204)
    body = json.dumps(chat("Hi", stream=True, max_tokens=3)).encode()
    old = s.raw(b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    head, _, text = old.partition(b"\r\n\r\n")
    t.check("HTTP/1.0", head.split(b" ")[1] == b"200" and b"chunked" not in head.lower() and text.endswith(b"data: [DONE]\n\n"), old)


def usage_adds_up(s, t):
    before = s.metrics()
    n_prompt = n_generated = 0
    for i in range(3):
        u = s.post("/v1/chat/completions", chat(f"Count to {i}."))[1]["usage"]
        n_prompt += u["prompt_tokens"]
        n_generated += u["completion_tokens"]
    after = s.metrics()
    t.equal("prompt tokens counted", after["skua_prompt_tokens_total"] - before["skua_prompt_tokens_total"], n_prompt)
    t.equal("generated tokens counted", after["skua_generated_tokens_total"] - before["skua_generated_tokens_total"], n_generated)
    fell = [k for k, v in before.items() if k.split("{")[0].endswith("_total") and after.get(k, 0) < v]
    t.equal("counters never fall", fell, [])


def main():
    t = Checks()
    with Server(t, "--ctx", "4096", "--parallel", "4", "--verbose") as s:
        endpoints(s, t)
        generating(s, t)
        errors(s, t)
        usage_adds_up(s, t)
    t.finish()


main()
