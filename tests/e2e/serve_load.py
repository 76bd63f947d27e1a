"""Many clients at once; see serve_load.sh. Environment: SKUA, MODEL (see lib.bash), and
SERVE_LOAD_FULL=1: 10,000 short requests and more of the rest; SERVE_LOAD_SEED: the seed of what is random; SERVE_LOAD_ONLY: a part of
the name of the tests to run.
"""
import contextlib
import functools
import os
import random
import re
import selectors
import shutil
import subprocess
import tempfile
import threading
import time

from serve_lib import MODEL, SKUA, WAIT_S, Checks, together, until
from serve_strict import Closed, Server, plain, request

FULL = os.environ.get("SERVE_LOAD_FULL") == "1"
SEED = int(os.environ.get("SERVE_LOAD_SEED", "6"))
MIB = 1 << 20
QUESTION = "What is the capital of France?"
TOOL = {"type": "function", "function": {"name": "look", "description": "Look at a place.", "parameters": {
    "type": "object", "properties": {"place": {"type": "string"}, "n": {"type": "integer"}}, "required": ["place"]}}}
NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}, "required": ["a", "b"]}


def chat(text, **more):
    return "/v1/chat/completions", dict({"messages": [{"role": "user", "content": text}], "temperature": 0, "enable_thinking": False,
                                         "max_tokens": 40}, **more)


def mixed():
    """16 requests that have little in common."""
    return [
        chat(QUESTION),
        chat(QUESTION, stream=True, stream_options={"include_usage": True}),
        chat("Tell me a story.", temperature=1.2, seed=5, max_tokens=60),
        chat("Tell me a story.", temperature=1.2, seed=6, n=3, max_tokens=30),
        chat("Who are you?", enable_thinking=True, thinking_budget=16, max_tokens=48, stream=True),
        chat("Numbers, please.", response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": NUMBERS, "strict": True}}),
        chat("Look at Paris.", tools=[TOOL], tool_choice="required"),
        chat("Hello", logprobs=True, top_logprobs=5, max_tokens=8),
        ("/v1/completions", {"prompt": ["Once upon a time", "The sea"], "max_tokens": 24, "temperature": 0.8, "seed": 9}),
        ("/v1/completions", {"prompt": "int main(", "max_tokens": 40, "temperature": 0, "stream": True, "logprobs": 3}),
        ("/v1/completions", {"prompt": "The capital of France", "echo": True, "logprobs": 2, "max_tokens": 0}),
        ("/v1/completions", {"prompt": "one two three " * 60, "max_tokens": 12, "temperature": 0, "stop": ["four", "\n\n"]}),
        ("/v1/responses", {"input": QUESTION, "temperature": 0, "max_output_tokens": 32, "reasoning": {"effort": "none"}}),
        ("/v1/responses", {"input": "Write a poem.", "temperature": 1, "seed": 3, "max_output_tokens": 48, "stream": True}),
        ("/v1/messages", {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 32, "temperature": 0}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "A poem."}], "max_tokens": 48, "temperature": 1, "seed": 8, "top_k": 40,
                          "stream": True}),
    ]


def reassembled(events):
    """What a stream says, however its text was cut into events."""
    texts, rest = {}, []
    for name, d in events:
        if not isinstance(d, dict) or d.get("type") in ("ping", "response.in_progress"):
            continue
        for choice in d.get("choices", []):
            for where, parts in (("delta", choice.get("delta") or {}), ("choice", choice)):
                for key in ("content", "reasoning_content", "text"):
                    if isinstance(parts.get(key), str):
                        texts[where, choice["index"], key] = texts.get((where, choice["index"], key), "") + parts[key]
            lp = choice.get("logprobs")
            if lp:
                rest.append(("logprobs", choice["index"], plain(lp.get("content", lp.get("token_logprobs")))))
            if choice.get("finish_reason"):
                rest.append((choice["index"], choice["finish_reason"]))
        if isinstance(d.get("delta"), str):
            key = (name, d.get("output_index"))
            texts[key] = texts.get(key, "") + d["delta"]
        elif isinstance(d.get("delta"), dict):
            for key, value in d["delta"].items():
                if isinstance(value, str) and key in ("text", "thinking", "partial_json"):
                    texts[d["index"], key] = texts.get((d["index"], key), "") + value
                elif key == "stop_reason":
                    rest.append((key, value))
        if name in ("response.completed", "response.incomplete"):
            rest.append(plain(d["response"]))
        if d.get("usage") and not d.get("choices"):
            rest.append(plain(d["usage"]))
    return sorted(texts.items(), key=repr), sorted(rest, key=repr)


def content(path, body, answer):
    if answer.status != 200:
        return answer.status, answer.body[:400]
    return reassembled(answer.events()) if body.get("stream") else plain(answer.json())


def at_once(server, asked):
    """Each asked at the same moment on its own connection; the answers in order."""
    gate = threading.Barrier(len(asked))

    def one(data):
        c = server.client()
        try:
            gate.wait()
            c.send(data)
            return c.answer()
        finally:
            c.close()
    return together([functools.partial(one, request(*a)) for a in asked])


# ---- the same answers as alone ----

def test_equal(checks, start):
    server = start("--parallel", "4", "--queue", "64")
    want = subprocess.run([SKUA, "run", "-m", MODEL, "--temp", "0", "--no-think", "-q", QUESTION], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, check=True).stdout.decode().rstrip("\n")
    for round_ in range(3):
        texts = {a.json()["choices"][0]["message"]["content"] for a in at_once(server, [chat(QUESTION)] * 8)}
        checks.check("8 equal greedy requests, round %d: %r, not only %r" % (round_, texts, want), texts == {want})
    asked = mixed()
    alone = [content(p, b, server.answer(p, b)) for p, b in asked]
    for i, (path, body) in enumerate(asked):
        checks.check("alone: %s %r: %r" % (path, body, alone[i]), not (isinstance(alone[i], tuple) and isinstance(alone[i][0], int)))
    rng = random.Random(SEED)
    for round_ in range(20 if FULL else 4):
        order = list(range(16))
        rng.shuffle(order)
        got = at_once(server, [asked[i] for i in order])
        for i, answer in zip(order, got):
            path, body = asked[i]
            checks.check("16 mixed requests, round %d: %s %r is not as alone:\n%r\n%r" % (round_, path, body, content(path, body, answer), alone[i]),
                         content(path, body, answer) == alone[i])
    server.wait_idle()


# ---- too many ----

def long_answer(n=4000, **more):
    return "/v1/completions", dict({"prompt": "Once", "max_tokens": n, "ignore_eos": True, "temperature": 0, "stream": True}, **more)


def begun(server, path, body, **options):
    """A request whose answer has begun: the connection after the head."""
    c = server.client(**options)
    c.send(request(path, body))
    return c, c.head()


def refused(checks, name, answer, status, code):
    error = answer.json().get("error", {})
    h = answer.headers
    checks.check("%s: %d %r %r" % (name, answer.status, h, error),
                 answer.status == status and error.get("code", error.get("type")) == code and re.fullmatch("[1-9][0-9]*", h.get("retry-after", ""))
                 and re.fullmatch("[1-9][0-9]*", h.get("retry-after-ms", "")))


def test_overload(checks, start):
    server = start("--parallel", "1", "--queue", "1", "--queue-timeout", "1")
    running, head = begun(server, *long_answer(2, timeout=600))
    checks.check("a free server takes a request", head.status == 200)
    running.close()
    server.wait_idle()
    stalled, _ = begun(server, *long_answer(-1), receive_buffer=4096)  # occupies the only slot
    waiting, head = begun(server, *long_answer(2))
    checks.check("one waits", head.status == 200)
    for path, body, code in (chat("Hi") + ("queue_full",), long_answer() + ("queue_full",), ("/v1/responses", {"input": "Hi"}, "queue_full"),
                             ("/v1/messages", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}, "rate_limit_error")):
        if server.metrics()["skua_requests_waiting"] == 1:  # else its time in the queue is over already
            refused(checks, "a full queue: " + path, server.answer(path, body), 429, code)
    checks.check("other questions are answered", server.answer("/tokenize", {"content": "a"}).status == 200 and server.answer("/health").status == 200)
    waiting.close()
    while server.metrics()["skua_requests_waiting"]:  # the closed one
        time.sleep(0.01)
    c = server.client()
    c.send(request(*chat("Hi")))  # waits for more than a second, not streamed
    refused(checks, "too long in the queue", c.answer(), 503, "no_slot")
    c.close()
    stalled.close()
    server.wait_idle()
    checks.check("room again", server.answer(*chat("Hi")).status == 200)


# ---- readers that do not read ----

def endless(**more):
    """Some KiB for each token, until the context is full."""
    return chat("Go on.", stream=True, ignore_eos=True, max_tokens=-1, logprobs=True, top_logprobs=20, **more)


def read_all(server, reading, watch):
    """Read these connections to their ends; watch is called now and then."""
    select = selectors.DefaultSelector()
    for c in reading:
        select.register(c.sock, selectors.EVENT_READ, c)
    end = time.monotonic() + WAIT_S
    while select.get_map() and time.monotonic() < end:
        for key, _ in select.select(0.1):
            if not key.data.more() or key.data.buffer.endswith(b"0\r\n\r\n"):
                select.unregister(key.fileobj)
        watch()


def whole_answers(clients):
    """What they said that is whole; the connections are closed."""
    out = []
    for c in clients:
        try:
            c.sock.settimeout(0.1)
            out.append(c.answer())
        except (Closed, OSError):
            pass
        c.close()
    return [a for a in out if a.whole]


def test_stalled(checks, start):
    """200 streams, every other client reads nothing after it has asked, one of them a byte a second. Bound of the memory: what the server
    held before, + for every answer that runs its session and 4 MiB not yet sent, + 64 KiB for each connection."""
    n, parallel = (200, 16) if not FULL else (400, 16)
    server = start("--parallel", str(parallel), "--queue", str(n), "--send-stall-timeout", "0.3", "--cache-ram", "8m")
    path, body = long_answer(16)
    want = reassembled(server.answer(path, body).events())
    server.wait_idle()
    before, session = server.memory(), 18 * MIB
    bound = before + parallel * (session + 4 * MIB) + n * (64 << 10)
    stalled, reading, peak, load = [], [], [before], [0]

    def watch():
        peak.append(server.memory())
        if len(peak) % 16 == 2:
            m = server.metrics()
            load.append(m["skua_requests_running"] + m["skua_requests_waiting"])
        try:
            if time.monotonic() >= slow[1]:
                slow[0].buffer += slow[0].sock.recv(1)
                slow[1] += 1
        except OSError:
            pass
    for i in range(n):
        c = server.client(receive_buffer=0 if i % 2 else 4096)
        c.send(request(path, body) if i % 2 else request(*endless()))
        (reading if i % 2 else stalled).append(c)
    slow = [stalled[0], time.monotonic()]
    read_all(server, reading, watch)
    good = sum(a.status == 200 and reassembled(a.events()) == want for a in whole_answers(reading))
    checks.check("%d of %d readers got their whole answers, beside those who do not read" % (good, n // 2), good == n // 2)
    checks.check("many at once: %r" % load, max(load) > n / 4)
    server.wait_idle()  # those who do not read were cut: none of them has closed
    peak.append(server.memory("VmHWM"))
    checks.check("memory: %.1f MiB before, %.1f at most, bound %.1f" % (before / MIB, max(peak) / MIB, bound / MIB), max(peak) <= bound)
    checks.check("cut: %g of %d" % (server.count("requests_cancelled_total"), n // 2), server.count("requests_cancelled_total") == n // 2)
    checks.check("their streams have no end", not whole_answers(stalled))
    if os.environ.get("SERVE_LOAD_VERBOSE"):
        print("memory: %.1f MiB before, %.1f at most, bound %.1f" % (before / MIB, max(peak) / MIB, bound / MIB))


def test_overflow(checks, start):
    """Time to stall for ever: then the bytes that are not yet sent are the limit, 4 MiB a connection."""
    server = start("--parallel", "16", "--send-stall-timeout", "3600", "--cache-ram", "8m")
    server.answer(*chat("Hi", n=16))
    before = server.memory()
    lazy, _ = begun(server, *endless(n=16), receive_buffer=4096)
    until(lambda: server.count("requests_cancelled_total") == 1, "who does not read is not cut")
    until(lambda: server.count("requests_running") == 0, "its answer runs on")
    peak = server.memory("VmHWM")
    checks.check("memory: %.1f MiB before, %.1f at most" % (before / MIB, peak / MIB), peak <= before + 16 * 18 * MIB + 8 * MIB)
    lazy.close()


# ---- many short ones ----

def short_requests():
    return [request(p, b, h) for p, b, h in [
        chat("Hi", max_tokens=2) + (None,), chat("Hi", max_tokens=2, stream=True) + (None,),
        ("/v1/completions", {"prompt": "a", "max_tokens": 1, "logprobs": 2}, None), chat("Look.", tools=[TOOL], max_tokens=3) + (None,),
        chat("Numbers", max_tokens=3, response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": NUMBERS}}) + (None,),
        ("/v1/responses", {"input": "Hi", "max_output_tokens": 2, "stream": True}, None),
        ("/v1/messages", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}, None),
        ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "Hi"}]}, None),
        ("/tokenize", {"content": "one two three"}, None), ("/v1/models", None, None), ("/health", None, "HEAD"), ("/slots", None, None),
        ("/v1/chat/completions", {"messages": 1}, None), ("/v1/chat/completions", b"{", None), ("/nothing", None, None)]]


def test_short(checks, start):
    """RSS after all of them is at most 2 % above that after a warm-up (it may fall, when the C library gives back): nothing is kept."""
    n = 10000 if FULL else 1000
    server = start("--parallel", "2", "--queue", "64", "--cache-ram", "4m")
    asked = short_requests()

    def run(count, first):
        bad = 0
        c = server.client()
        for i in range(first, first + count):
            c.send(asked[i % len(asked)])
            answer = c.answer(asked[i % len(asked)].split(b" ", 1)[0].decode())
            bad += answer.status not in (200, 400, 404)
            if i % 7 == 0 or answer.headers.get("connection") == "close":
                c.close()
                c = server.client()
        c.close()
        wrong[first] = bad

    def share(count):
        threads = [threading.Thread(target=run, args=(count // 4, 1 + k)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    wrong = {}
    share(400)
    server.wait_idle()
    before, files = server.memory(), server.descriptors_at_rest()
    share(n)
    server.wait_idle()
    after = server.memory()
    checks.check("every one of them is answered: %r" % wrong, len(wrong) == 4 and not any(wrong.values()))
    checks.check("%d short requests: %.2f MiB before, %.2f after" % (n, before / MIB, after / MIB), after - before <= 0.02 * before)
    until(lambda: server.descriptors() == files, "descriptors: %d before, %d after" % (files, server.descriptors()))


# ---- clients that go away ----

def leave(server, rng, asked):
    """One request that its client gives up at a random moment: in the middle of the head or body, while it waits, reads its prompt or
    answers, or between its bytes."""
    path, body = rng.choice(asked)
    data = request(path, dict(body, max_tokens=rng.choice((1, 5, 60))) if "max_tokens" in body else body)
    c = server.client(receive_buffer=rng.choice((0, 4096)))
    how = rng.randrange(6)
    try:
        if how == 0:
            c.send(data[:rng.randrange(len(data))])
        elif how == 1:
            c.send(data)
        elif how == 2:
            c.send(data)
            time.sleep(rng.random() * 0.05)
        elif how == 3:
            c.send(data)
            c.sock.settimeout(0.2)  # an answer may be whole after its first bytes
            for _ in range(rng.randrange(1, 6)):
                if not c.more():
                    break
        elif how == 4:
            c.send(data + data)  # two in a row, both left
            c.more()
        else:
            for i in range(0, len(data), 97):
                c.send(data[i:i + 97])
    except OSError:
        pass  # an answer that is over already
    c.close(reset=rng.random() < 0.5)


def test_leave(checks, start):
    server = start("--parallel", "3", "--queue", "16", "--cache-ram", "16m")
    asked = mixed() + [("/v1/completions", {"prompt": "word " * 900, "max_tokens": 5}), long_answer(500), chat("Go on.", n=16, max_tokens=20)]
    want = content(*asked[0], server.answer(*asked[0]))
    server.wait_idle()
    threads = server.answer("/slots").json()
    files = server.descriptors_at_rest()
    n = 2000 if FULL else 200

    def run(seed):
        rng = random.Random(seed)
        for _ in range(n // 4):
            leave(server, rng, asked)
    workers = [threading.Thread(target=run, args=(SEED * 100 + k,)) for k in range(4)]
    for t in workers:
        t.start()
    for t in workers:
        t.join()
    m = server.wait_idle()
    checks.check("%d clients left, nothing is left of them: %r" % (n, m["skua_requests_running"]), m["skua_requests_running"] == 0)
    slots = server.answer("/slots").json()
    checks.check("all slots are free: %r" % slots, len(slots) == len(threads) and not any(s["is_processing"] for s in slots))
    until(lambda: server.descriptors() == files, "descriptors: %d before, %d after" % (files, server.descriptors()))
    checks.check("counted as cancelled: %r" % m, sum(v for k, v in m.items() if k.startswith("skua_requests_cancelled_total")) > 0)
    answer = server.answer(*asked[0])
    checks.check("then the same answer as before: %r, not %r" % (content(*asked[0], answer), want), content(*asked[0], answer) == want)


# ---- orders in the middle of it ----

def test_orders(checks, start):
    """What looks at or changes the server, from many sides at once, while it answers: the answers stay what they are."""
    folder = tempfile.mkdtemp()
    server = start("--parallel", "3", "--queue", "64", "--cache-ram", "8m", "--cache-disk", os.path.join(folder, "cache"), "--props",
                   "--slot-save-path", folder, "--thinking", "on")
    asked = [a for a in mixed() if "n" not in a[1]]
    want = [content(p, b, server.answer(p, b)) for p, b in asked]
    thinking = chat("Think.", enable_thinking=True, max_tokens=60, stream=True)
    orders = [("/metrics", None), ("/stats", None), ("/slots", None), ("/props", None), ("/v1/models", None), ("/health", None), ("/ready", None),
              ("/slots/0?action=save", {"filename": "a"}), ("/slots/1?action=save", {"filename": "b"}), ("/slots/2?action=restore", {"filename": "a"}),
              ("/slots/0?action=restore", {"filename": "b"}), ("/slots/1?action=erase", None), ("/cache/flush", {}), ("/cache/clear", {"tier": "ram"}),
              ("/cache/clear", {"tier": "disk"}), ("/props", {"temperature": 1}), ("/v1/chat/completions/control", {"request_id": "mine", "action": "reasoning_end"}),
              ("/v1/requests/mine/cancel", {}), ("/v1/requests/none/cancel", {}), ("/tokenize", {"content": "a b c"})]
    over, statuses = threading.Event(), set()

    def order(seed):
        rng = random.Random(seed)
        while not over.is_set():
            path, body = rng.choice(orders)
            statuses.add(server.answer(path, body, method="POST" if "action" in path else None).status)

    def victim():
        while not over.is_set():
            try:
                server.answer(*thinking, headers=[("x-request-id", "mine")])
            except Closed:
                pass  # cancelled
    threads = [threading.Thread(target=order, args=(SEED + k,)) for k in range(3)] + [threading.Thread(target=victim)]
    for t in threads:
        t.start()
    for round_ in range(20 if FULL else 3):
        for (path, body), answer, w in zip(asked, at_once(server, asked), want):
            checks.equal("orders, round %d: %s %r" % (round_, path, body), content(path, body, answer), w)
    over.set()
    for t in threads:
        t.join()
    checks.check("every order is answered: %r" % statuses, statuses <= {200, 400})  # 400: a file that is not there yet
    server.wait_idle()
    server.stop()  # it may still be writing checkpoints
    shutil.rmtree(folder)


def test_stopped(checks, start):
    """Told to stop in the middle of everything: running streams end properly, those who wait are told."""
    server = start("--parallel", "2", "--queue", "16", "--drain-timeout", "0.5")
    ends = []
    clients = [begun(server, *long_answer(-1))[0] for _ in range(6)]
    lazy = [begun(server, *long_answer(-1, logprobs=20), receive_buffer=4096)[0] for _ in range(2)]
    server.stop()
    for c in clients:
        c.sock.settimeout(10)
        try:
            while c.more():
                pass
        except OSError:
            pass
        ends.append(b'data: {"error"' in c.buffer or b"data: [DONE]" in c.buffer)
        c.close()
    for c in lazy:
        c.close()
    checks.check("running and waiting streams end with an error event or whole: %r" % ends, all(ends))


TESTS = [test_equal, test_overload, test_stalled, test_overflow, test_short, test_leave, test_orders, test_stopped]


def main():
    checks = Checks()
    for test in TESTS:
        if os.environ.get("SERVE_LOAD_ONLY", "") not in test.__name__:
            continue
        begin_s, servers = time.monotonic(), []
        with contextlib.ExitStack() as stack:
            def start(*options):
                servers.append(stack.enter_context(Server(checks, *options)))
                return servers[-1]
            try:
                test(checks, start)
            except Exception as e:  # what a test meets is told, and the next one has a server of its own
                checks.check(test.__name__, False, "%s: %s; the server: %s" % (type(e).__name__, e, servers and servers[-1].text()[-1000:]))
        print("%s: %.1f s" % (test.__name__, time.monotonic() - begin_s), flush=True)
    checks.finish()


if __name__ == "__main__":
    main()
