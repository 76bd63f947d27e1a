"""Who may ask, how many, and for how long: keys, hosts, origins, the queue, deadlines; what may be switched on; wrong options."""
import json
import os
import shutil
import socket
import subprocess
import tempfile

from serve_lib import MODEL, SKUA, Checks, Server, chat, until

BUSY = chat("Tell me everything.", max_tokens=-1, ignore_eos=True)


def keys(t):
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
        f.write("# two\nsecond\n\nthird  \n")
        f.flush()
        with Server(t, "--ctx", "512", "--api-key", "first", "--api-key-file", f.name, env={"SKUA_API_KEY": "fourth"}) as s:
            for key in ("first", "second", "third", "fourth"):
                t.equal(f"{key}, bearer", s.ask("GET", "/slots", headers={"Authorization": f"Bearer {key}"})[0], 200)
                t.equal(f"{key}, x-api-key", s.ask("POST", "/v1/messages", chat("Hi", max_tokens=1), {"x-api-key": key})[0], 200)
            for headers in ({}, {"Authorization": "Bearer firs"}, {"Authorization": "Bearer firstx"}, {"Authorization": "first"},
                            {"x-api-key": "#"}, {"x-api-key": ""}):
                status, head, body = s.ask("POST", "/v1/chat/completions", "{", headers)
                t.equal(f"no key {headers}", (status, head.get("www-authenticate"), json.loads(body)["error"]["code"]),
                        (401, "Bearer", "invalid_api_key"))
                status, head, body = s.ask("POST", "/v1/messages", "{", headers)
                t.equal(f"no key {headers}, Anthropic", (status, json.loads(body)["error"]["type"]), (401, "authentication_error"))
            for path in ("/health", "/v1/models", "/health/live"):
                t.equal(path + " is open", s.ask("GET", path)[0], 200)
            for path in ("/metrics", "/slots", "/props", "/stats", "/nothing"):
                t.equal(path + " is not", s.ask("GET", path)[0], 401)
            t.equal("OPTIONS is open", s.ask("OPTIONS", "/v1/chat/completions")[0], 204)
            t.check("keys are in no log", not any(k in s.text() for k in ("first", "second", "third", "fourth")))
    with Server(t, "--ctx", "512", "--api-key", "first", "--public-metrics") as s:
        t.equal("public metrics", (s.ask("GET", "/metrics")[0], s.ask("GET", "/stats")[0]), (200, 401))


def origins(t):
    with Server(t, "--ctx", "512", "--allow-host", "box.lan") as s:
        for host in (f"localhost:{s.port}", "127.0.0.1", f"[::1]:{s.port}", "BOX.lan:8000"):
            t.equal("host " + host, s.ask("GET", "/health", headers={"Host": host})[0], 200)
        for host in ("evil.example", "127.0.0.1.evil.example", "localhost:80@evil", "box.lan.evil"):
            status, _, body = s.ask("GET", "/health", headers={"Host": host})
            t.equal("host " + host, (status, json.loads(body)["error"]["code"]), (403, "host_not_allowed"))
        for origin, want in ((f"http://127.0.0.1:{s.port}", 200), ("http://evil.example", 403), ("null", 403)):
            t.equal("origin " + origin, s.ask("POST", "/tokenize", {"content": "a"}, {"Origin": origin})[0], want)
        t.equal("origin on GET", s.ask("GET", "/health", headers={"Origin": "http://evil.example"})[0], 200)
        t.check("no CORS", "access-control-allow-origin" not in s.ask("OPTIONS", "/v1/messages", headers={"Origin": "http://a.b"})[1])
    with Server(t, "--ctx", "512", "--cors", "https://A.example:443/,http://b.example:3000") as s:
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-stainless-os, authorization"}
        for origin, allowed in (("https://a.example", True), ("http://b.example:3000", True), ("http://b.example", False)):
            status, head, _ = s.ask("OPTIONS", "/v1/chat/completions", headers={"Origin": origin, **asked})
            t.equal("pre-flight " + origin, (status, head.get("access-control-allow-origin"), head.get("vary")),
                    (204, origin if allowed else None, "Origin"))
            t.equal("fields " + origin, head.get("access-control-allow-headers"), "x-stainless-os, authorization" if allowed else None)
            t.equal("post " + origin, s.ask("POST", "/tokenize", {"content": "a"}, {"Origin": origin})[0], 200 if allowed else 403)
        head = s.ask("GET", "/v1/models", headers={"Origin": "https://a.example"})[1]
        t.equal("exposed", head["access-control-expose-headers"], "x-request-id, request-id, retry-after")
    with Server(t, "--ctx", "512", "--cors", "*") as s:
        _, head, _ = s.ask("POST", "/tokenize", {"content": "a"}, {"Origin": "http://any.example"})
        t.equal("any origin", (head["access-control-allow-origin"], head.get("access-control-allow-credentials")), ("*", None))


def load(s):
    """Requests that run, and that wait."""
    m = s.metrics()
    return m["skua_requests_running"], m["skua_requests_waiting"]


def queue(t):
    with Server(t, "--ctx", "65536", "--parallel", "1", "--queue", "1", "--queue-timeout", "600") as s:
        first = s.open_stream("/v1/chat/completions", BUSY, 1)
        second = s.open_stream("/v1/chat/completions", BUSY)
        until(lambda: load(s) == (1, 1), "the second request waits")
        status, head, body = s.ask("POST", "/v1/chat/completions", chat("Hi"))
        t.equal("queue full", (status, json.loads(body)["error"]["code"]), (429, "queue_full"))
        t.check("retry-after", int(head["retry-after"]) >= 1 and int(head["retry-after-ms"]) >= 1000, head)
        t.equal("queue full, Anthropic", s.post("/v1/messages", chat("Hi"))[1]["error"]["type"], "rate_limit_error")
        t.equal("tokenize is not queued", s.ask("POST", "/tokenize", {"content": "a"})[0], 200)
        t.equal("count_tokens is not", s.ask("POST", "/v1/messages/count_tokens", chat("Hi"))[0], 200)
        t.equal("no idle slot", (s.ask("GET", "/slots?fail_on_no_slot=1")[0], s.ask("GET", "/slots")[0]), (503, 200))
        first.close()
        second.close()
        until(lambda: load(s) == (0, 0), "both are gone")
        t.equal("room again", s.ask("POST", "/v1/chat/completions", chat("Hi", max_tokens=2))[0], 200)
    with Server(t, "--ctx", "65536", "--parallel", "1", "--queue-timeout", "0.3", "--request-timeout", "600") as s:
        first = s.open_stream("/v1/chat/completions", BUSY, 1)
        status, a = s.post("/v1/chat/completions", chat("Hi"))
        t.equal("waited too long", (status, a["error"]["code"]), (503, "no_slot"))
        stream = s.stream("/v1/responses", {"input": "Hi", "max_output_tokens": 5})
        t.equal("waited too long, stream", stream[-1][0], "response.failed")
        first.close()
        until(lambda: s.metrics()["skua_requests_running"] == 0, "it is gone")
        status, a = s.post("/v1/chat/completions", {**BUSY, "timeout": 0.3})
        t.equal("deadline", (status, a["error"]["code"]), (504, "deadline_exceeded"))
        stream = s.stream("/v1/messages", {**BUSY, "max_tokens": 60000, "timeout": 0.5})
        t.equal("deadline, stream", (stream[-1][0], stream[-1][1]["error"]["type"]), ("error", "timeout_error"))


def switches(t):
    with tempfile.TemporaryDirectory() as d, Server(t, "--ctx", "512", "--alias", "small", "--alias", "other", "--strict-model", "--parallel", "2",
                                                    "--metrics-compat", "llamacpp", "--props", "--slot-save-path", d) as s:
        for name, want in (("small", 200), ("other", 200), ("tiny-q8_0", 200), ("gpt", 404)):
            t.equal("model " + name, s.ask("POST", "/v1/chat/completions", chat("Hi", max_tokens=1, model=name))[0], want)
        t.check("compat", "llamacpp:prompt_tokens_total" in s.metrics())
        status, props = s.post("/props", {"temperature": 0, "top_k": 7})
        t.equal("props", (status, props["default_generation_settings"]["temperature"], props["default_generation_settings"]["top_k"]), (200, 0, 7))
        t.equal("wrong props", (s.post("/props", {"temperature": 9})[0], s.post("/props", {"x": 1})[0], s.post("/props", {"top_k": 1.5})[0]),
                (400, 400, 400))
        body = chat("Hello", max_tokens=8)
        answer = s.post("/v1/chat/completions", body)[1]["choices"][0]["message"]
        used = [x for x in s.get("/slots")[1] if x["n_tokens"]]
        t.check("a slot holds tokens", bool(used))
        i = max(used, key=lambda x: x["n_tokens"])["id"]
        status, saved = s.post(f"/slots/{i}?action=save", {"filename": "a.bin"})
        t.equal("save", (status, saved.get("n_written")), (200, os.path.getsize(d + "/a.bin")))
        t.equal("erase", s.post(f"/slots/{i}?action=erase", {}), (200, {"id_slot": i, "n_erased": saved["n_saved"]}))
        t.equal("clear", s.post("/cache/clear", {})[0], 200)
        status, restored = s.post(f"/slots/{i}?action=restore", {"filename": "a.bin"})
        t.equal("restore", (status, restored.get("n_restored")), (200, saved["n_saved"]))
        t.equal("answer after it", s.post("/v1/chat/completions", body)[1]["choices"][0]["message"], answer)
        for name in ("../a", "a/b", "..", ".hidden", "", "x\\y", "a\0b", "a\nb", "a\x7f", 7, None):
            t.equal(f"file name {name!r}", s.post("/slots/0?action=save", {"filename": name})[0], 400)
        t.equal("only that file", os.listdir(d), ["a.bin"])
        with tempfile.TemporaryDirectory() as outside:  # links lead out of the folder
            shutil.copy(d + "/a.bin", outside + "/there")
            for name in ("there", "nowhere"):
                os.symlink(f"{outside}/{name}", d + "/link")
                for action in ("save", "restore"):
                    status, a = s.post(f"/slots/0?action={action}", {"filename": "link"})
                    t.check(f"{action} by a link", status == 400 and "link" in a["error"]["message"], a)
                os.unlink(d + "/link")
            with open(d + "/a.bin", "rb") as f, open(outside + "/there", "rb") as g:
                t.check("nothing is written by a link", f.read() == g.read() and os.listdir(outside) == ["there"])
        with open(d + "/bad", "wb") as f:
            f.write(b"no session")
        t.equal("no session file", s.post("/slots/0?action=restore", {"filename": "bad"})[0], 400)
        t.equal("no such file", s.post("/slots/0?action=restore", {"filename": "missing"})[0], 400)
        t.equal("no such slot", s.post("/slots/9?action=erase", {})[0], 404)
        t.equal("no such action", s.post("/slots/0?action=eat", {})[0], 400)
    with Server(t, "--ctx", "512") as s:
        t.equal("props are fixed", s.post("/props", {"temperature": 0})[0], 403)
        t.equal("no folder for slots", s.post("/slots/0?action=save", {"filename": "a"})[0], 400)


def vanished(t):
    """A cache folder that goes away while the server runs costs no answer, and is no client's error."""
    d = tempfile.mkdtemp()
    with Server(t, "--cache-disk", d) as s:
        body = chat("What is the capital of France?", max_tokens=9)
        answer = s.post("/v1/chat/completions", body)[1]["choices"][0]["message"]
        until(lambda: not shutil.rmtree(d, ignore_errors=True) and not os.path.exists(d), "the folder's end")
        status, a = s.post("/cache/flush", {})
        t.equal("nothing to write to", (status, a["error"]["code"], a["error"]["param"]), (503, "cache_not_written", None))
        t.equal("the same answer", s.post("/v1/chat/completions", body)[1]["choices"][0]["message"], answer)


def network(t):
    with Server(t, "--ctx", "512", "--host", "::1", host="::1") as s:
        t.equal("IPv6", s.ask("GET", "/health")[0], 200)
    with Server(t, "--ctx", "512", "--max-connections", "64") as s:
        idle = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(50)]
        t.equal("among idle connections", s.ask("GET", "/health")[0], 200)
        for c in idle:
            c.close()
        body = b"x" * 100
        for name, head, want in (("both lengths", b"Content-Length: 100\r\nTransfer-Encoding: chunked\r\n", b"400"), ("no length", b"", b"411"),
                                 ("compressed", b"Content-Length: 100\r\nContent-Encoding: gzip\r\n", b"415")):
            got = s.raw(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + head + b"\r\n" + body)
            t.check(name, got.startswith(b"HTTP/1.1 " + want) and b'"request_id"' in got, got)
        busy = subprocess.run([SKUA, "serve", "-m", MODEL, "--port", str(s.port)], capture_output=True, text=True, timeout=60)
        t.check("port in use", busy.returncode == 1 and str(s.port) in busy.stderr and busy.stderr.count("\n") == 1, busy.stderr)


def said(t):
    """What the start has to say goes to the log; a number of drafts that is too large is lowered, and that is said."""
    with tempfile.NamedTemporaryFile("r", prefix="serve") as log:
        command = [SKUA, "serve", "-m", MODEL, "--port", "0", "--log", log.name, "--draft", "lookup", "--draft-fixed", "999", "--ctx", "5000"]
        p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        text = []
        until(lambda: text.append(log.read()) or "keys:" in "".join(text) or p.poll() is not None, "the server's start")
        p.terminate()
        out, log_text = p.communicate(timeout=60)[0], "".join(text)
        t.check("drafting is in the log", "drafting: lookup" in log_text and "999 drafts in a round are more than" in log_text, log_text)
        t.check("so is the warning", "warning: --ctx 5000 is more than the" in log_text, log_text)
        t.equal("and nothing beside it", out, "")


def bodies(t):
    """A body that is still coming counts: with it, another one has no room, until the first is given up."""
    half = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" + b" " * 900000
    body = b'{"content": "a"' + b" " * 900000 + b"}"
    with Server(t, "--ctx", "512", "--max-body-mb", "1", "--max-bodies-mb", "1") as s:
        with socket.create_connection((s.host, s.port)) as c:
            c.sendall(half)
            until(lambda: s.metrics()["skua_request_body_bytes"] >= 900000, "the first is counted")
            head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
            with socket.create_connection((s.host, s.port), 60) as d:
                d.sendall(head + body[:200000])
                got = d.recv(4096).lower()
            t.check("no room", got.startswith(b"http/1.1 503") and b"retry-after: 1" in got and b"out_of_memory" in got, got)
            t.equal("refused", s.metrics()["skua_request_bodies_refused_total"], 1)
        until(lambda: s.metrics()["skua_request_body_bytes"] == 0, "nothing is left")
        t.equal("room again", s.ask("POST", "/tokenize", body)[0], 200)
    r = subprocess.run([SKUA, "serve", "-m", MODEL, "--max-bodies-mb", "8"], capture_output=True, text=True, timeout=60)
    t.check("less than one", r.returncode == 2 and "--max-bodies-mb 8" in r.stderr, (r.returncode, r.stderr))


def options(t):
    for args, words in ((["--port", "70000"], "--port"), (["--host", "0.0.0.0"], "--allow-unauthenticated"), (["--queue", "x"], "--queue"),
                        (["--thinking", "maybe"], "expected auto, on or off"), (["--chat-keepalive", "x"], "comment"), (["extra"], "extra"),
                        (["--nothing"], "--nothing"), (["--cors", "example.com"], "--cors"), (["--cors", "http://a.b/c"], "https://name[:port]"),
                        (["--cors", "http://a b"], "--cors"), (["--cors", "http://a.b:x"], "--cors"), (["--cors", "http://u@a.b"], "--cors"),
                        (["--api-key", "a b"], "blank"),
                        (["--temp", "3"], "--temp"), (["--response-store", "-1"], "--response-store"),
                        (["--draft-sampling", "rejection"], "compare"), (["--api-key-file", "/dev/null"], "key"),
                        (["--slot-save-path", "/dev/null"], "folder"), (["--slot-save-path", ""], "folder")):
        r = subprocess.run([SKUA, "serve", "-m", MODEL, *args], capture_output=True, text=True, timeout=60)
        t.check(" ".join(args), r.returncode == 2 and words in r.stderr and r.stderr.count("\n") == 1 and not r.stdout, (r.returncode, r.stderr))
    r = subprocess.run([SKUA, "serve", "--port", "0", "-m", "missing.gguf"], capture_output=True, text=True, timeout=60)
    t.check("no model", r.returncode == 1 and "missing.gguf" in r.stderr and r.stderr.count("\n") == 1, (r.returncode, r.stderr))
    r = subprocess.run([SKUA, "serve", "--port", "0", "-m", MODEL, "--ctx", "2000000000"], capture_output=True, text=True, timeout=60)
    t.check("no memory for it", r.returncode == 1 and "--ctx 2000000000 takes" in r.stderr, (r.returncode, r.stderr))
    r = subprocess.run([SKUA, "serve", "--help"], capture_output=True, text=True, timeout=60)
    t.check("help", r.returncode == 0 and "--parallel" in r.stdout)


def main():
    t = Checks()
    for part in (options, said, bodies, keys, origins, queue, switches, vanished, network):
        try:
            part(t)
        except Exception as e:  # the others are to be tried all the same
            t.check(part.__name__, False, repr(e))
    t.finish()


main()
