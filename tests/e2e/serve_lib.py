"""A real server and a plain client for the end-to-end tests of skua serve. Python's standard library only."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

SKUA = os.environ["SKUA"]
MODEL = os.environ["MODEL"]
WAIT_S = 60  # most that anything may take, also under sanitizers


class Checks:
    """Counts; finish() prints the count and exits."""

    def __init__(self):
        self.passed = self.failed = 0

    def check(self, name, condition, detail=""):
        if condition:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAIL: {name} {detail}"[:1500], file=sys.stderr)

    def equal(self, name, got, want):
        self.check(name, got == want, f"got {got!r}, want {want!r}")

    def finish(self):
        print(f"{self.passed} passed, {self.failed} failed")
        sys.exit(1 if self.failed else 0)


class Server:
    """The program with these options on a free port; `with` ends it and looks at how it ended."""

    def __init__(self, checks, *options, model=MODEL, host="127.0.0.1", env=None, before=None):
        self.checks, self.host = checks, host
        self.log = tempfile.NamedTemporaryFile("w+", prefix="serve", delete=False)
        clean = {k: v for k, v in os.environ.items() if k not in ("SKUA_MODEL", "SKUA_CPU", "SKUA_API_KEY")}
        self.process = subprocess.Popen([SKUA, "serve", "-m", model, "--host", host, "--port", "0", *options],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env={**clean, **(env or {})},
                                        preexec_fn=before)
        self.port = None
        self.ended = False
        until(lambda: self.process.poll() is not None or self._find_port(), "the server's start: " + self.text())
        if not self.port:
            raise RuntimeError("the server did not start: " + self.text())

    def _find_port(self):
        found = re.search(r"listening on http://\S+:(\d+)$", self.text(), re.M)
        self.port = int(found.group(1)) if found else None
        return self.port

    def text(self):
        with open(self.log.name, encoding="utf-8", errors="replace") as f:
            return f.read()

    def stop(self, sig=signal.SIGTERM):
        self.process.send_signal(sig)
        return self.wait()

    def wait(self):
        status = self.process.wait(WAIT_S)
        self.ended = True
        return status

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        status = self.process.wait() if self.ended else self.stop()
        text = self.text()
        self.checks.check("the server ends well", status in (0, -signal.SIGKILL) and not re.search("Sanitizer|runtime error", text),
                          f"status {status}: {text[-1200:]}")
        os.unlink(self.log.name)

    # ---- requests ----

    def connect(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=WAIT_S)

    def ask(self, method, path, body=None, headers=None):
        """(status, headers as a dict with lower-case names, body bytes)"""
        c = self.connect()
        try:
            c.request(method, path, body if body is None or isinstance(body, (bytes, str)) else json.dumps(body), headers or {})
            r = c.getresponse()
            return r.status, {k.lower(): v for k, v in r.getheaders()}, r.read()
        finally:
            c.close()

    def get(self, path, headers=None):
        status, _, body = self.ask("GET", path, headers=headers)
        return status, json.loads(body)

    def post(self, path, body, headers=None):
        status, _, text = self.ask("POST", path, body, headers)
        return status, json.loads(text)

    def stream(self, path, body, headers=None):
        """Events of a streamed answer: a list of (name or None, data: JSON or the text)."""
        status, head, text = self.ask("POST", path, {**body, "stream": True}, headers)
        if status != 200 or not head["content-type"].startswith("text/event-stream"):
            raise RuntimeError(f"no stream: {status} {text[:300]!r}")
        return events(text.decode())

    def raw(self, data, half_close=False):
        """Bytes sent as they are; the answer's bytes until the server closes."""
        with socket.create_connection((self.host, self.port), WAIT_S) as s:
            s.sendall(data)
            if half_close:
                s.shutdown(socket.SHUT_WR)
            got = b""
            while piece := s.recv(65536):
                got += piece
            return got

    def open_stream(self, path, body, n_events=0):
        """A connection on which a request was sent and so many events came; to be dropped by the caller."""
        c = self.connect()
        c.request("POST", path, json.dumps({**body, "stream": True}))
        if n_events:
            r = c.getresponse()
            for _ in range(n_events):
                while r.readline().strip():
                    pass
        return c

    def metrics(self):
        """name{labels} -> value"""
        _, _, text = self.ask("GET", "/metrics")
        return read_metrics(text.decode())


def read_metrics(text):
    values, kinds = {}, {}
    for line in text.splitlines():
        if m := re.fullmatch(r"# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram)", line):
            if m[1] in kinds:
                raise ValueError("a second TYPE of " + m[1])
            kinds[m[1]] = m[2]
            continue
        m = re.fullmatch(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_][a-zA-Z0-9_]*="[^"\\\n]*",?)*\})? (\S+)', line)
        if not m:
            raise ValueError("no metric: " + line)
        if m[1] not in kinds and re.sub("_(bucket|sum|count)$", "", m[1]) not in kinds:
            raise ValueError("no TYPE: " + line)
        if m[1] + (m[2] or "") in values:
            raise ValueError("twice: " + line)
        values[m[1] + (m[2] or "")] = float(m[3])
    return values


def events(text):
    out = []
    for block in text.split("\n\n"):
        name = data = None
        for line in block.split("\n"):
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data = line[6:]
        if data is not None:
            out.append((name, json.loads(data) if data.startswith(("{", "[{")) else data))
    return out


def until(condition, what):
    """Wait until it is true."""
    end = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.02)


def together(calls):
    """Results of functions that run at the same time, in order."""
    results = [None] * len(calls)

    def one(i):
        results[i] = calls[i]()

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(calls))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results


def chat(text, **fields):
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 60, **fields}
