"""Clients that go away in every phase, cancel and control requests, signs of life, readers that stall, and the server's own end."""
import json
import signal
import socket
import threading

from serve_lib import Checks, Server, chat, events, until

LONG = "All work and no play makes a dull day. " * 700  # some thousand tokens
ENDLESS = chat("Tell me everything.", max_tokens=-1, ignore_eos=True)
PATHS = (("/v1/chat/completions", ENDLESS), ("/v1/responses", {"input": "Tell me everything.", "ignore_eos": True, "temperature": 0}),
         ("/v1/messages", {**ENDLESS, "max_tokens": 60000}), ("/v1/completions", {"prompt": "Once", "max_tokens": 60000, "ignore_eos": True}))


def running(s):
    m = s.metrics()
    return m["skua_requests_running"] + m["skua_requests_waiting"]


def cancelled(s, phase):
    return s.metrics().get('skua_requests_cancelled_total{phase="%s"}' % phase, 0)


def phases(t):
    with Server(t, "--ctx", "65536", "--parallel", "1", "--cache-ram", "1g", "--slots-debug") as s:
        for path, body in PATHS:  # while tokens come
            before = cancelled(s, "decode")
            c = s.open_stream(path, body, 6)
            c.close()
            until(lambda: running(s) == 0, path + " ends")
            until(lambda: cancelled(s, "decode") - before == 1, path + " is counted")
        before = cancelled(s, "decode")
        c = s.connect()  # not streamed
        c.request("POST", "/v1/chat/completions", json.dumps(ENDLESS))
        until(lambda: s.get("/slots")[1][0]["generated"] > 3, "decoding")
        t.check("the prompt in debugging", "everything." in s.get("/slots")[1][0]["prompt"])
        c.close()
        until(lambda: running(s) == 0, "it ends")
        until(lambda: cancelled(s, "decode") - before == 1, "it is counted")
        first = s.open_stream("/v1/chat/completions", ENDLESS, 3)  # in the queue
        second = s.open_stream("/v1/messages", {**ENDLESS, "max_tokens": 60000})
        until(lambda: s.metrics()["skua_requests_waiting"] == 1, "it waits")
        before = cancelled(s, "queued")
        second.close()
        until(lambda: s.metrics()["skua_requests_waiting"] == 0, "it does not wait any more")
        until(lambda: cancelled(s, "queued") - before == 1, "counted as queued")
        t.equal("the first goes on", s.metrics()["skua_requests_running"], 1)
        first.close()
        until(lambda: running(s) == 0, "the first ends")
        long = chat(LONG, max_tokens=4)  # while its prompt is read
        before = cancelled(s, "prefill")
        c = s.open_stream("/v1/chat/completions", long)
        until(lambda: s.get("/slots")[1][0]["prompt_processed"] > 2000, "a part of the prompt is read")
        c.close()
        until(lambda: running(s) == 0, "the prompt is left")
        until(lambda: cancelled(s, "prefill") - before == 1, "counted as prefill")
        answer = s.post("/v1/chat/completions", long)[1]
        t.check("the retry goes on from there", answer["usage"]["prompt_tokens_details"]["cached_tokens"] >= 2000, answer["usage"])
        body = json.dumps(chat("Hi", max_tokens=3)).encode()  # finished sending, still reading
        got = s.raw(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body,
                    half_close=True)
        t.check("a half-close is no cancel", b"HTTP/1.1 200" in got and b'"completion_tokens":3' in got, got)


def orders(t):
    with Server(t, "--ctx", "65536", "--parallel", "2") as s:
        def ask(id_, results):
            if id_ == "b":
                results.append((200, None, read_all(s, "/v1/chat/completions", ENDLESS, {"x-request-id": id_})))
            else:
                results.append(s.ask("POST", "/v1/chat/completions", ENDLESS, {"x-request-id": id_}))

        for id_ in ("a", "b"):
            results = []
            thread = threading.Thread(target=ask, args=(id_, results))
            thread.start()
            until(lambda: any(x["request_id"] == id_ and x["generated"] > 2 for x in s.get("/slots")[1]), "it runs")
            t.equal("cancel", s.post(f"/v1/requests/{id_}/cancel", {}), (200, {"cancelled": True}))
            thread.join()
            status, _, text = results[0]
            if id_ == "a":
                t.equal("cancelled", (status, json.loads(text)["error"]["code"]), (400, "request_cancelled"))
            else:
                last = events(text.decode())[-1][1]
                t.equal("cancelled stream", (status, last["error"]["code"]), (200, "request_cancelled"))
        results = []
        body = {**ENDLESS, "max_tokens": 400, "ignore_eos": False, "min_tokens": 300, "stream": True}
        thread = threading.Thread(target=lambda: results.append(s.ask("POST", "/v1/chat/completions", body, {"x-request-id": "think"})))
        thread.start()
        until(lambda: results or any(x["request_id"] == "think" and x["generated"] for x in s.get("/slots")[1]), "it thinks")
        status, said = s.post("/v1/chat/completions/control", {"request_id": "think", "action": "reasoning_end"})
        t.equal("control", (status, said["success"] or bool(results)), (200, True))
        t.equal("wrong action", s.post("/v1/chat/completions/control", {"request_id": "think", "action": "x"})[0], 400)
        t.equal("no id", s.post("/v1/chat/completions/control", {"action": "reasoning_end"})[0], 400)
        thread.join()


def life(t):
    with Server(t, "--ctx", "65536", "--parallel", "1", "--sse-keepalive", "0.2") as s:
        first = s.open_stream("/v1/chat/completions", ENDLESS, 2)
        waiting = []
        for path, body, sign in (("/v1/messages", chat("Hi", max_tokens=2), b"event: ping"),
                                 ("/v1/responses", {"input": "Hi", "max_output_tokens": 2}, b"event: response.in_progress"),
                                 ("/v1/chat/completions", chat("Hi", max_tokens=2), b": keep-alive"),
                                 ("/v1/completions", {"prompt": "Hi", "max_tokens": 2}, b": keep-alive")):
            c = s.connect()
            c.request("POST", path, json.dumps({**body, "stream": True}))
            waiting.append((path, c, sign))
        readers = []
        for path, c, sign in waiting:
            r = c.getresponse()
            n, got = 0, b""
            while n < 3:  # the first one may be a part of the stream's usual beginning
                line = r.readline()
                got += line
                n += line.startswith(sign)
            readers.append((path, c, r, got))
        t.equal("signs of life", len(readers), 4)
        first.close()
        for path, c, r, got in readers:
            text = (got + r.read()).decode()
            last = events(text)[-1]
            t.check(path + " ends well", last[0] in ("message_stop", "response.incomplete", "response.completed") or last[1] == "[DONE]", text[-300:])
            if path == "/v1/responses":
                t.equal("numbers", [e[1]["sequence_number"] for e in events(text)], list(range(len(events(text)))))


def stall(t):
    with Server(t, "--ctx", "65536", "--parallel", "2", "--send-stall-timeout", "1") as s:
        c = socket.socket()
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.connect(("127.0.0.1", s.port))
        body = json.dumps({**ENDLESS, "stream": True, "logprobs": True, "top_logprobs": 20, "logprobs_all": True}).encode()
        c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        until(lambda: s.metrics()["skua_requests_running"] == 1, "it runs")
        t.equal("others are served", s.post("/v1/chat/completions", chat("Hi", max_tokens=3))[0], 200)
        until(lambda: s.metrics()["skua_requests_running"] == 0, "it is given up")
        c.close()


def ends(t):
    with Server(t, "--ctx", "65536", "--parallel", "2", "--drain-timeout", "60") as s:
        body = {**ENDLESS, "max_tokens": 300, "stream": True}
        results = []
        thread = threading.Thread(target=lambda: results.append(s.ask("POST", "/v1/chat/completions", body)))
        thread.start()
        until(lambda: results or any(x["generated"] for x in s.get("/slots")[1]), "it runs")
        t.equal("drained", s.stop(), 0)
        thread.join()
        t.equal("its stream is whole", events(results[0][2].decode())[-1][1], "[DONE]")
    with Server(t, "--ctx", "65536", "--parallel", "2", "--drain-timeout", "0.5") as s:
        streams = []
        threads = [threading.Thread(target=lambda p=p, b=b: streams.append((p, read_all(s, p, b)))) for p, b in PATHS[:3]]
        for th in threads:
            th.start()
        until(lambda: sum(x["generated"] > 0 for x in s.get("/slots")[1]) == 2 and s.metrics()["skua_requests_waiting"] == 1, "they run")
        t.equal("drain time over", s.stop(), 0)
        for th in threads:
            th.join()
        for path, text in streams:
            last = events(text.decode())[-1]
            t.check(path + ": told", last[0] in ("error", "response.failed") or "error" in last[1], text[-300:])
    with Server(t, "--ctx", "65536", "--parallel", "1", "--drain-timeout", "600") as s:
        c = s.open_stream("/v1/chat/completions", ENDLESS, 2)
        s.process.send_signal(signal.SIGINT)
        until(lambda: "stopping" in s.text(), "the first signal")
        t.equal("the second signal", s.stop(signal.SIGINT), 0)
        c.close()


def read_all(s, path, body, headers=None):
    c = s.connect()
    c.request("POST", path, json.dumps({**body, "stream": True}), headers or {})
    r = c.getresponse()
    got = b""
    try:
        while piece := r.read1(65536):
            got += piece
    except Exception:  # the connection may be closed without the last chunk
        pass
    c.close()
    return got


def main():
    t = Checks()
    for part in (phases, orders, life, stall, ends):
        try:
            part(t)
        except Exception as e:  # the others are to be tried all the same
            t.check(part.__name__, False, repr(e))
    t.finish()


main()
