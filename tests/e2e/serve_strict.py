"""A client that speaks HTTP byte by byte, and a server whose memory and counters are looked at.

Answers are read strictly: a head, a length or a chunk that is not exactly as RFC 9112 has it is an error of its own (Malformed).
"""
import json
import os
import re
import socket
import struct
import time

import serve_lib
from serve_lib import WAIT_S, read_metrics, until

TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Malformed(Exception):
    """The server sent what no HTTP/1.1 client must accept."""


class Closed(Exception):
    """The connection ended before the answer was whole; .answer holds what came."""

    def __init__(self, why, answer=None):
        super().__init__(why)
        self.answer = answer


class Answer:
    def __init__(self):
        self.status, self.headers, self.body, self.whole = 0, {}, b"", False

    def json(self):
        return strict_json(self.body)

    def events(self):
        return sse_events(self.body)


def strict_json(data):
    """The value of UTF-8 text that is JSON and nothing more: no NaN, no key twice."""
    def pairs(items):
        d = dict(items)
        if len(d) != len(items):
            raise ValueError("a key twice in %.200r" % ([k for k, _ in items],))
        return d

    def constant(name):
        raise ValueError(name + " is no JSON")
    return json.loads(data.decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant)


def sse_events(body):
    """[(event name or None, data)] of a whole stream; comments are left out."""
    if body and not body.endswith(b"\n\n"):
        raise Malformed("the stream ends inside an event: %r" % body[-80:])
    out = []
    for block in body.decode("utf-8").split("\n\n")[:-1]:
        name, data = None, None
        for line in block.split("\n"):
            if line.startswith(":"):
                continue
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: ") and data is None:
                data = line[6:]
            else:
                raise Malformed("no line of an event: %r" % line)
        if data is not None:
            out.append((name, data if data == "[DONE]" else strict_json(data.encode())))
    return out


class Client:
    """One connection. Requests are bytes; answers are read whole, or as they come with more()."""

    def __init__(self, port, receive_buffer=0, timeout=None):
        self.sock = socket.socket()
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(timeout or WAIT_S)
        self.sock.connect(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray()

    def send(self, data):
        self.sock.sendall(data)

    def more(self):
        """Some more bytes into buffer; False: the server has closed."""
        data = self.sock.recv(65536)
        self.buffer += data
        return bool(data)

    def close(self, reset=False):
        if reset:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def line(self, answer):
        while b"\n" not in self.buffer:
            if not self.more():
                raise Closed("the head is cut: %r" % self.buffer[:200], answer)
        n = self.buffer.index(b"\n")
        line = bytes(self.buffer[:n])
        del self.buffer[:n + 1]
        if not line.endswith(b"\r") or b"\r" in line[:-1]:
            raise Malformed("a line without CR LF: %r" % line[:200])
        return line[:-1]

    def exactly(self, n, answer, body):
        while len(self.buffer) < n:
            if not self.more():
                answer.body = bytes(body + self.buffer)
                raise Closed("the body is cut", answer)
        data = bytes(self.buffer[:n])
        del self.buffer[:n]
        return data

    def head(self):
        """Status and header of the next answer that is not an interim one."""
        while True:
            answer = Answer()
            line = self.line(answer)
            m = re.fullmatch(rb"HTTP/1\.1 ([1-5][0-9][0-9]) [ -~]*", line)
            if not m:
                raise Malformed("no status line: %r" % line[:200])
            answer.status = int(m.group(1))
            while True:
                line = self.line(answer)
                if not line:
                    break
                name, colon, value = line.partition(b":")
                if not colon or not TOKEN.fullmatch(name) or re.search(rb"[\x00-\x08\x0a-\x1f\x7f]", value):
                    raise Malformed("no header field: %r" % line[:200])
                key = name.decode().lower()
                if key in answer.headers:
                    raise Malformed("header field %s twice" % key)
                answer.headers[key] = value.strip().decode("latin-1")
            if answer.status >= 200:
                return answer

    def answer(self, method="POST"):
        """The next whole answer. Closed if the connection ends before; then .answer is what came."""
        answer = self.head()
        body = bytearray()
        if method == "HEAD" or answer.status in (204, 304):
            answer.whole = True
        elif answer.headers.get("transfer-encoding") == "chunked":
            if "content-length" in answer.headers:
                raise Malformed("both lengths")
            while True:
                size = self.exactly(self.find_line(answer, body), answer, body)
                if not re.fullmatch(rb"[0-9a-fA-F]+\r\n", size):
                    raise Malformed("no chunk size: %r" % size[:80])
                n = int(size, 16)
                data = self.exactly(n + 2, answer, body)
                if data[-2:] != b"\r\n":
                    raise Malformed("no line end after a chunk")
                body += data[:-2]
                if not n:
                    break
            answer.body, answer.whole = bytes(body), True
        elif "content-length" in answer.headers:
            answer.body = self.exactly(int(answer.headers["content-length"]), answer, body)
            answer.whole = True
        else:
            while self.more():
                pass
            answer.body, answer.whole = self.exactly(len(self.buffer), answer, body), True
        return answer

    def find_line(self, answer, body):
        while b"\n" not in self.buffer:
            if not self.more():
                answer.body = bytes(body)
                raise Closed("the stream is cut", answer)
        return self.buffer.index(b"\n") + 1


def request(path, body=None, method=None, headers=()):
    """The bytes of a request; body: bytes, or a value that becomes JSON."""
    method = method or ("GET" if body is None else "POST")
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = ["%s %s HTTP/1.1" % (method, path), "Host: localhost"] + ["%s: %s" % h for h in headers]
    if body is not None or method == "POST":
        lines.append("Content-Length: %d" % len(body or b""))
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")


class Server(serve_lib.Server):
    def client(self, **options):
        return Client(self.port, **options)

    def exchange(self, data):
        """The answer to these bytes, on a connection of its own."""
        c = self.client()
        try:
            c.send(data)
            return c.answer(data.split(b" ", 1)[0].decode())
        finally:
            c.close()

    def answer(self, path, body=None, method=None, headers=()):
        return self.exchange(request(path, body, method, headers))

    def metrics(self):
        return read_metrics(self.answer("/metrics").body.decode())

    def count(self, name):
        """A metric, its labels added up."""
        return sum(v for k, v in self.metrics().items() if k.split("{")[0] == "skua_" + name)

    def memory(self, what="VmRSS"):
        """Bytes, as the kernel counts them."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) << 10 for line in f if line.startswith(what + ":"))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def descriptors_at_rest(self):
        """When the last asking connection is closed on its side too."""
        self.wait_idle()
        return min(self.descriptors() for _ in range(20) if not time.sleep(0.01))

    def wait_idle(self):
        """Until nothing runs or waits and only the asking connection is there; the last metrics."""
        last = {}

        def idle():
            last.update(self.metrics())
            return not last["skua_requests_running"] and not last["skua_requests_waiting"] and last["skua_connections"] == 1
        until(idle, "the server does not become idle")
        return last


VOLATILE = {"id", "created", "created_at", "completed_at", "timings", "call_id", "item_id", "engine", "signature", "encrypted_content",
            "prompt_tokens_details", "input_tokens_details", "cache_read_input_tokens", "input_tokens", "obfuscation"}


def plain(value):
    """An answer's value without what differs from one request to the next: ids, times, and what came from the cache."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k not in VOLATILE}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value
