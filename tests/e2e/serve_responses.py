"""Kept answers of /v1/responses: going on from them, reading and deleting them, and how many there are."""
import json

from serve_lib import Checks, Server, read_metrics, together

PATH = "/v1/responses"
PLAIN = {"temperature": 0, "max_output_tokens": 24, "reasoning": {"effort": "none"}}
CALL = {"tools": [{"type": "function", "name": "add", "parameters": {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"],
                                                                     "additionalProperties": False}, "strict": True}]}


def user(text):
    return {"role": "user", "content": text}


def texts(answer):
    """What the model said, without the ids."""
    return [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in answer["output"]]


def same(t, name, got, want):
    """Two answers to one prompt. The second one may find more in the cache, never less."""
    t.equal(name + ": the answer", texts(got), texts(want))
    t.equal(name + ": the prompt", got["usage"]["input_tokens"], want["usage"]["input_tokens"])


def refused(s, t, name, method, path, body, status, code, param):
    got, _, text = s.ask(method, path, body)
    e = json.loads(text)["error"]
    t.equal(name, (got, e["code"], e["param"]), (status, code, param))
    return e["message"]


def streamed(s, body):
    events = s.stream(PATH, body)
    return events[-1][1]["response"]


def conversation(s, t, name, ask):
    """Three turns by id beside the same with the whole input, in a server each, so that what is cached must be equal too."""
    questions, items, answers, previous = ["What is the capital of France?", [user("And of Spain?")], "Name a color."], [], [], None
    for i, q in enumerate(questions):
        items += [user(q)] if isinstance(q, str) else q
        a = ask(s[0], {**PLAIN, "instructions": f"Be brief, {i}.", "input": q, **({"previous_response_id": previous} if previous else {})})
        b = ask(s[1], {**PLAIN, "instructions": f"Be brief, {i}.", "input": items, "store": False})
        same(t, f"{name}, turn {i}", a, b)
        t.equal(f"{name}, turn {i}: cached", a["usage"], b["usage"])
        t.equal(f"{name}, turn {i}: echo", (a["previous_response_id"], a["store"], b["store"]), (previous, True, False))
        items += b["output"]
        previous = a["id"]
        answers.append(a)
    t.equal(name + ": kept as answered", [s[0].get(f"{PATH}/{a['id']}") for a in answers], [(200, a) for a in answers])
    return answers


def thinking_and_calls(s, t):
    """Thinking and a call, with its result by id, and as a reference."""
    body = {**PLAIN, **CALL, "reasoning": {"effort": "low"}, "thinking_budget": 8, "tool_choice": "required", "max_output_tokens": 200,
            "input": [user("Add.")]}
    first = [x.post(PATH, body)[1] for x in s]
    kinds = [o["type"] for o in first[0]["output"]]
    t.check("thinking and a call", kinds[-1] == "function_call" and "reasoning" in kinds, first[0])

    def result(a):
        return {"type": "function_call_output", "call_id": a["output"][-1]["call_id"], "output": "2"}

    rest = {**PLAIN, **CALL}
    by_id = s[0].post(PATH, {**rest, "previous_response_id": first[0]["id"], "input": [result(first[0])]})[1]
    whole = s[1].post(PATH, {**rest, "input": [user("Add.")] + first[1]["output"] + [result(first[1])]})[1]
    t.equal("after a call", (texts(by_id), by_id["usage"]), (texts(whole), whole["usage"]))
    references = [{"type": "item_reference", "id": o["id"]} for o in first[0]["output"]]
    same(t, "references", s[0].post(PATH, {**rest, "input": [user("Add.")] + references + [result(first[0])]})[1], whole)
    count = s[0].post(PATH + "/input_tokens", {**CALL, "previous_response_id": first[0]["id"], "input": [result(first[0])],
                                              "reasoning": {"effort": "none"}})
    t.equal("counted", count, (200, {"object": "response.input_tokens", "input_tokens": by_id["usage"]["input_tokens"]}))
    refused(s[0], t, "a result of no call", "POST", PATH, {"previous_response_id": by_id["id"], "input": [{**result(by_id), "call_id": "x"}]}
            if by_id["output"][-1]["type"] == "function_call" else
            {"previous_response_id": by_id["id"], "input": [{"type": "function_call_output", "call_id": "x", "output": ""}]},
            400, "unknown_tool_call_id", "input[0].call_id")


def lists(s, t, answers):
    path = f"{PATH}/{answers[2]['id']}/input_items"
    status, up = s.get(path + "?order=asc")
    roles = [i["role"] for i in up["data"] if i["type"] == "message"]
    said = ["".join(p["text"] for p in i["content"]) for i in up["data"] if i["type"] == "message"]
    t.equal("input items", (status, up["object"], up["has_more"], roles), (200, "list", False, ["user", "assistant"] * 2 + ["user"]))
    t.equal("their texts", said[0::2], ["What is the capital of France?", "And of Spain?", "Name a color."])
    t.check("outputs are among them", [o for a in answers[:2] for o in a["output"]] == [i for i in up["data"] if i.get("role") != "user"], up)
    ids = [i["id"] for i in up["data"]]
    t.check("ids", len(set(ids)) == len(ids) and (up["first_id"], up["last_id"]) == (ids[0], ids[-1]), ids)
    t.equal("the newest first", [i["id"] for i in s.get(path)[1]["data"]], ids[::-1])
    paged, after = [], ""
    while True:
        page = s.get(f"{path}?limit=2&after={after}")[1]
        paged += [i["id"] for i in page["data"]]
        after = page["last_id"]
        if not page["has_more"] or len(paged) > 9:
            break
    t.equal("pages", paged, ids[::-1])
    end = s.get(f"{path}?after={ids[0]}")[1]
    t.equal("behind the last", (end["data"], end["first_id"], end["last_id"], end["has_more"]), ([], None, None, False))
    for query, param in (("limit=0", "limit"), ("limit=101", "limit"), ("limit=1x", "limit"), ("order=up", "order"), ("after=none", "after")):
        refused(s, t, query, "GET", f"{path}?{query}", None, 400, "invalid_value", param)
    reference = s.post(PATH, {**PLAIN, "input": [{"type": "item_reference", "id": ids[0]}]})[1]
    same(t, "a reference to an input", reference, s.post(PATH, {**PLAIN, "input": "What is the capital of France?", "store": False})[1])


def unknown(s, t, answers):
    for name, method, path in (("get", "GET", "/resp_none"), ("delete", "DELETE", "/resp_none"), ("items", "GET", "/resp_none/input_items")):
        refused(s, t, name, method, PATH + path, None, 404, "response_not_found", None)
    refused(s, t, "go on", "POST", PATH, {"input": "x", "previous_response_id": "resp_none"}, 400, "previous_response_not_found",
            "previous_response_id")
    refused(s, t, "no id", "POST", PATH, {"input": "x", "previous_response_id": 7}, 400, "invalid_type", "previous_response_id")
    refused(s, t, "conversation", "POST", PATH, {"input": "x", "conversation": "c"}, 400, "previous_response_not_found", "conversation")
    refused(s, t, "reference", "POST", PATH, {"input": [user("x"), {"type": "item_reference", "id": "msg_none"}]}, 400, "invalid_value", "input[1].id")
    refused(s, t, "reference to nothing", "POST", PATH, {"input": [{"type": "item_reference"}]}, 400, "missing_required_parameter", "input[0].id")
    refused(s, t, "events of a kept one", "GET", f"{PATH}/{answers[0]['id']}?stream=true", None, 400, "unsupported_parameter", "stream")
    refused(s, t, "no such part", "GET", f"{PATH}/{answers[0]['id']}/parts", None, 404, "not_found", None)
    refused(s, t, "compact", "POST", PATH + "/compact", {}, 404, "not_found", None)
    refused(s, t, "method", "PUT", f"{PATH}/x", None, 405, "method_not_allowed", None)
    refused(s, t, "a path of its own", "GET", f"{PATH}/input_tokens", None, 405, "method_not_allowed", None)
    hidden = s.post(PATH, {**PLAIN, "input": "Say hello.", "store": False})[1]
    refused(s, t, "not stored", "GET", f"{PATH}/{hidden['id']}", None, 404, "response_not_found", None)
    t.equal("HEAD", s.ask("HEAD", f"{PATH}/{answers[0]['id']}")[0], 200)
    t.equal("nothing but what is before", s.post(PATH, {**PLAIN, "input": [], "previous_response_id": answers[0]["id"]})[0], 200)


def deleting(s, t, answers):
    """What is deleted is gone by its id; the conversation that went on from it is not."""
    again = {**PLAIN, "input": "Thanks.", "previous_response_id": answers[2]["id"]}
    before = s.post(PATH, again)[1]
    for a in answers[:2]:
        t.equal("delete", json.loads(s.ask("DELETE", f"{PATH}/{a['id']}")[2]), {"id": a["id"], "object": "response", "deleted": True})
        refused(s, t, "twice", "DELETE", f"{PATH}/{a['id']}", None, 404, "response_not_found", None)
    refused(s, t, "go on from a deleted one", "POST", PATH, {**again, "previous_response_id": answers[1]["id"]}, 400,
            "previous_response_not_found", "previous_response_id")
    same(t, "without the first ones", s.post(PATH, again)[1], before)


def bounded(t):
    """The oldest goes first; keys keep their own; many at once."""
    with Server(t, "--ctx", "1024", "--parallel", "4", "--response-store", "2", "--api-key", "one", "--api-key", "two") as s:
        one, two = {"x-api-key": "one"}, {"Authorization": "Bearer two"}
        body = {**PLAIN, "input": "Hi", "max_output_tokens": 2}
        a, b, c = (s.post(PATH, body, one)[1]["id"] for _ in range(3))
        t.equal("two are kept", [s.get(f"{PATH}/{i}", one)[0] for i in (a, b, c)], [404, 200, 200])
        metrics = read_metrics(s.ask("GET", "/metrics", headers=one)[2].decode())
        t.check("metrics", metrics["skua_responses_kept"] == 2 and metrics['skua_memory_bytes{kind="responses"}'] > 500, metrics)
        t.equal("of another key", (s.get(f"{PATH}/{c}", two)[0], s.ask("DELETE", f"{PATH}/{c}", headers=two)[0], s.get(f"{PATH}/{c}")[0]), (404, 404, 401))
        t.equal("nor gone on from", s.post(PATH, {**body, "previous_response_id": c}, two)[0], 400)
        t.equal("its own", s.post(PATH, {**body, "previous_response_id": c}, one)[0], 200)

        def chain():
            previous = s.post(PATH, body, one)[1]["id"]
            status, answer = s.post(PATH, {**body, "previous_response_id": previous}, one)
            return (status, answer["usage"]["input_tokens"]) if status == 200 else (answer["error"]["code"], s.get(f"{PATH}/{previous}", one)[0])

        got = together([chain] * 8)
        t.check("many at once", all(x == ("previous_response_not_found", 404) or x[0] == 200 for x in got) and len({x[1] for x in got if x[0] == 200}) <= 1, got)
    with Server(t, "--ctx", "1024", "--response-store", "0") as s:
        a = s.post(PATH, {**PLAIN, "input": "Hi", "max_output_tokens": 2})[1]
        t.equal("nothing is kept", (a["store"], s.get(f"{PATH}/{a['id']}")[0]), (False, 404))
        message = refused(s, t, "nor gone on from", "POST", PATH, {"input": "x", "previous_response_id": a["id"]}, 400, "previous_response_not_found",
                          "previous_response_id")
        t.check("with advice", "send the whole conversation" in message, message)


def main():
    t = Checks()
    options = ("--ctx", "2048", "--parallel", "2", "--draft", "lookup")
    with Server(t, *options) as a, Server(t, *options) as b:
        both = (a, b)
        answers = conversation(both, t, "whole", lambda s, body: s.post(PATH, body)[1])
        conversation(both, t, "streamed", streamed)
        thinking_and_calls(both, t)
        lists(a, t, answers)
        unknown(a, t, answers)
        deleting(a, t, answers)
    bounded(t)
    t.finish()


main()
