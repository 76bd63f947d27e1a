"""What a conversation finds again of its earlier turns: a scripted agent of 8 turns (SERVE_REUSE_FULL=1: 20) on three APIs, with thinking off, with thinking on, and
in a loop of tool calls whose client returns the thinking; what people do with the last turn; the same after kill -9, from files. Every
answer is compared with one that nothing was reused for."""
import copy
import os
import signal
import tempfile
import time

from serve_lib import Checks, Server, until

N_TURNS = 20 if os.environ.get("SERVE_REUSE_FULL") else 8
SLACK = 8    # tokens at the end of an answer that may be read again
LAST_TURN_SLACK = 64
PLACES = ("France", "Italy", "Spain", "Japan", "Germany", "Norway", "Egypt", "Peru", "India", "Greece")
ORDERS = ("What is the capital of {}?", "Tell me one thing about {}, please.")
SYSTEM = ("You are an assistant that answers short questions about countries, cities and numbers. Answer in one sentence. If a tool fits the "
          "question, call it. Never guess, and say so if you do not know. Be polite, be brief, and do not repeat the question.")
TOOL = {"name": "get_weather", "description": "Get the current weather for a city.",
        "schema": {"type": "object", "properties": {"city": {"type": "string", "description": "The city's name."}}, "required": ["city"]}}


class Usage:
    def __init__(self, prompt, cached, answer):
        self.prompt, self.cached, self.answer = prompt, cached, answer


class Chat:
    path = "/v1/chat/completions"

    def __init__(self, thinking, tools):
        self.items = [{"role": "system", "content": SYSTEM}]
        self.fields = {"enable_thinking": thinking, "max_tokens": 48}
        if tools:
            self.fields["tools"] = [{"type": "function", "function": {"name": TOOL["name"], "description": TOOL["description"],
                                                                      "parameters": TOOL["schema"]}}]

    def force(self):
        return {"tool_choice": {"type": "function", "function": {"name": TOOL["name"]}}}

    def body(self):
        return {**self.fields, "messages": self.items}

    def user(self, text):
        self.items.append({"role": "user", "content": text})

    def take(self, a):
        m = a["choices"][0]["message"]
        self.items.append({k: v for k, v in m.items() if v is not None})
        return [m.get(k) for k in ("reasoning_content", "content")], [(c["id"], c["function"]["arguments"]) for c in m.get("tool_calls", [])]

    def results(self, calls, text):
        self.items += [{"role": "tool", "tool_call_id": i, "content": text} for i, _ in calls]

    def usage(self, a):
        u = a["usage"]
        return Usage(u["prompt_tokens"], u["prompt_tokens_details"]["cached_tokens"], u["completion_tokens"])


class Responses(Chat):
    path = "/v1/responses"

    def __init__(self, thinking, tools):
        self.items = [{"role": "developer", "content": SYSTEM}]
        self.fields = {"reasoning": {"effort": "high" if thinking else "none"}, "max_output_tokens": 48}
        if tools:
            self.fields["tools"] = [{"type": "function", "name": TOOL["name"], "description": TOOL["description"], "parameters": TOOL["schema"]}]

    def force(self):
        return {"tool_choice": {"type": "function", "name": TOOL["name"]}}

    def body(self):
        return {**self.fields, "input": self.items}

    def take(self, a):
        self.items += a["output"]
        texts = [p["text"] for o in a["output"] if o["type"] in ("reasoning", "message") for p in o["content"]]
        return texts, [(o["call_id"], o["arguments"]) for o in a["output"] if o["type"] == "function_call"]

    def results(self, calls, text):
        self.items += [{"type": "function_call_output", "call_id": i, "output": text} for i, _ in calls]

    def usage(self, a):
        u = a["usage"]
        return Usage(u["input_tokens"], u["input_tokens_details"]["cached_tokens"], u["output_tokens"])


class Messages(Chat):
    path = "/v1/messages"

    def __init__(self, thinking, tools):
        self.items = []
        self.fields = {"system": SYSTEM, "thinking": {"type": "adaptive" if thinking else "disabled"}, "max_tokens": 48}
        if tools:
            self.fields["tools"] = [{"name": TOOL["name"], "description": TOOL["description"], "input_schema": TOOL["schema"]}]

    def force(self):
        return {"tool_choice": {"type": "tool", "name": TOOL["name"]}}

    def take(self, a):
        self.items.append({"role": "assistant", "content": a["content"]})
        texts = [b.get("thinking", b.get("text")) for b in a["content"] if b["type"] in ("thinking", "text")]
        return texts, [(b["id"], b["input"]) for b in a["content"] if b["type"] == "tool_use"]

    def results(self, calls, text):
        self.items.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": i, "content": text} for i, _ in calls]})

    def usage(self, a):
        u = a["usage"]
        return Usage(u["input_tokens"] + u["cache_read_input_tokens"], u["cache_read_input_tokens"], u["output_tokens"])


class Agent:
    """A conversation with a server; every answer is also asked for without reuse, of another server."""

    def __init__(self, t, name, api, thinking, loop):
        self.t, self.name, self.loop, self.thinking = t, f"{api.__name__}, {name}", loop, thinking
        self.api = api(thinking, loop)
        self.last = None     # the last answer's usage
        self.before = None   # items before the last turn, and before the one before it
        self.earlier = None

    def ask(self, s, cold, what, api=None):
        api = api or self.api
        body = {**api.body(), "temperature": 0, **(api.force() if self.loop else {})}
        status, a = s.post(api.path, body)
        cold_status, b = cold.post(api.path, {**body, "cache_prompt": False})
        if (status, cold_status) != (200, 200):
            raise RuntimeError(f"{self.name}, {what}: {a} {b}")
        u = api.usage(a)
        other = copy.copy(api)
        other.items = list(api.items)
        texts, calls = api.take(a)
        cold_texts, cold_calls = other.take(b)
        self.t.equal(f"{self.name}, {what}: as a cold answer", (texts, [c[1] for c in calls]), (cold_texts, [c[1] for c in cold_calls]))
        self.t.equal(f"{self.name}, {what}: cold", other.usage(b).cached, 0)
        return u, calls

    def turn(self, s, cold, i):
        self.earlier, self.before = self.before, list(self.api.items)
        text = ORDERS[i % 2].format(PLACES[i // 2 % len(PLACES)])
        if i == 0 or not self.loop:
            self.api.user(text)
        else:
            self.api.results(self.calls, f"It is {i} degrees and sunny in that city today.")
        u, self.calls = self.ask(s, cold, f"turn {i}")
        if self.last:
            keeps_answer = self.loop or not self.thinking
            least = self.last.prompt + (self.last.answer if keeps_answer else 0) - SLACK
            self.t.check(f"{self.name}, turn {i}: reuse", u.cached >= least,
                         f"cached {u.cached} of {u.prompt}, want {least}; last prompt {self.last.prompt}, answer {self.last.answer}")
        self.last = u

    def again(self, s, cold, what, items, text):
        """The conversation with another end: its last turn is all that may be read again."""
        api = copy.copy(self.api)
        api.items = copy.deepcopy(items)
        before = s.post("/tokenize", {"messages": [{"role": "user", "content": text or ""}]})[1]["count"]
        if text:
            api.user(text)
        u, _ = self.ask(s, cold, what, api)
        self.t.check(f"{self.name}, {what}: reuse", u.prompt - u.cached <= before + LAST_TURN_SLACK,
                     f"cached {u.cached} of {u.prompt}, the turn has {before}")

    def changes(self, s, cold, when):
        """What people do with the last turn; the conversation itself stays as it was."""
        if self.loop:
            n = len(self.before)
            self.again(s, cold, "regenerate" + when, self.items_of_turn(n), None)
            return
        text = next(self.text_of(x) for x in self.api.items[len(self.before):])
        self.again(s, cold, "regenerate" + when, self.before, text)
        self.again(s, cold, "edit" + when, self.before, "And what do you know about Portugal?")
        self.again(s, cold, "delete" + when, self.earlier, next(self.text_of(x) for x in self.before[len(self.earlier):]))

    def items_of_turn(self, n):
        """Up to the results that the last answer was for."""
        return self.api.items[:n + (len(self.calls) if not isinstance(self.api, Messages) else 1)]

    @staticmethod
    def text_of(item):
        return item["content"]


def agents(t):
    return [Agent(t, name, api, thinking, loop) for api in (Chat, Responses, Messages)
            for name, thinking, loop in (("thinking off", False, False), ("thinking on", True, False), ("tool loop", True, True))]


def main():
    t = Checks()
    with tempfile.TemporaryDirectory() as d, Server(t, "--ctx", "4096", "--parallel", "1", "--cache-ram", "0") as cold:
        options = ("--ctx", "4096", "--parallel", "2", "--cache-disk", d)
        all_agents = agents(t)
        with Server(t, *options) as s:
            for i in range(N_TURNS):
                for a in all_agents: # in turn, as if by many people
                    a.turn(s, cold, i)
            for a in all_agents:
                a.changes(s, cold, "")
            settled(s)
            s.stop(signal.SIGKILL)
        with Server(t, *options) as s:
            for a in all_agents:
                a.changes(s, cold, " after kill -9")
            t.check("calls are remembered", s.metrics().get('skua_tool_replay_total{source="ram"}', 0) > 0)
            for a in all_agents:
                a.turn(s, cold, N_TURNS)
            # agents of different APIs may hold the same conversation, which is loaded once
            t.check("from files", s.metrics().get("skua_cache_loads_total", 0) >= len(all_agents) / 3)
    t.finish()


def settled(s):
    """What is to be written is written: nothing changes any more."""
    seen = [None]

    def quiet():
        m = s.metrics()
        now = [m.get(k) for k in ('skua_cache_checkpoints{tier="disk"}', 'skua_cache_bytes{tier="disk"}')]
        same, seen[0] = now == seen[0], now
        time.sleep(0.2)
        return same

    until(quiet, "the cache's files")


main()
