"""Requests that nobody should send; see serve_fuzz.sh. Environment: SKUA, MODEL (see lib.bash), and

SERVE_FUZZ_N: how many (5000; SERVE_FUZZ_FULL=1: 50000); SERVE_FUZZ_SEED; SERVE_FUZZ_ONE=INDEX: only that one, shown. Request INDEX of a
seed is always the same.
"""
import json
import os
import random
import re
import sys
import tempfile
import threading

from serve_lib import Checks
from serve_requests import BODIES, case
from serve_strict import Client, Closed, Malformed, Server, plain, strict_json

FULL = os.environ.get("SERVE_FUZZ_FULL") == "1"
N = int(os.environ.get("SERVE_FUZZ_N", "50000" if FULL else "5000"))
SEED = int(os.environ.get("SERVE_FUZZ_SEED", "6"))
CLIENTS = 3
OPENAI_TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
                429: "rate_limit_error"}
ANTHROPIC_TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
                   413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 503: "overloaded_error", 504: "timeout_error"}


def error_problem(c, answer):
    """What is wrong with an error's body, header or code; None."""
    d = answer.json()
    e = d.get("error")
    if not isinstance(e, dict) or not isinstance(e.get("message"), str) or not e["message"]:
        return "no error object"
    if "\n" in e["message"]:
        return "a message of two lines"
    if c.anthropic:
        if d.get("type") != "error" or d.get("request_id") != answer.headers["x-request-id"]:
            return "not the family's shape"
        if e.get("type") != ANTHROPIC_TYPES.get(answer.status, "api_error" if answer.status >= 500 else "invalid_request_error"):
            return "the type of another status"
    else:
        if not {"message", "type", "param", "code"} <= set(e):
            return "not the family's shape"
        if e["type"] != OPENAI_TYPES.get(answer.status, "server_error" if answer.status >= 500 else "invalid_request_error"):
            return "the type of another status"
        if c.code and answer.status in c.statuses and e["code"] not in c.code:
            return "code %r, not %r" % (e["code"], c.code)
        if c.param and answer.status == 400 and not str(e["param"]).startswith(c.param):
            return "param %r, not %r" % (e["param"], c.param)
    if answer.status in (429, 503) and not re.fullmatch("[1-9][0-9]*", answer.headers.get("retry-after", "")):
        return "no retry-after"
    if answer.status == 405 and not answer.headers.get("allow"):
        return "no Allow"
    return None


def stream_problem(answer):
    events = answer.events()
    if not events:
        return "an empty stream"
    name, last = events[-1]
    failed = name in ("error", "response.failed") or (isinstance(last, dict) and "error" in last and name is None)
    if failed:
        return "it fails: %r" % (last,)
    if not (last == "[DONE]" or name in ("response.completed", "response.incomplete", "message_stop")):
        return "no end: %r" % (events[-1],)
    return None


def problem(c, answer):
    """What an answer has that it must not have; None."""
    if answer.status not in c.statuses:
        return "status %d, not one of %s" % (answer.status, sorted(c.statuses))
    if "x-request-id" not in answer.headers or not answer.headers.get("server", "").startswith("skua/"):
        return "a head without id or server"
    if c.method == "HEAD" or answer.status == 204:
        return None
    if answer.status >= 400:
        return error_problem(c, answer)
    kind = answer.headers.get("content-type", "")
    if kind.startswith("text/event-stream"):
        return stream_problem(answer)
    if kind.startswith("application/json"):
        strict_json(answer.body)
    return None


class Fuzzer:
    def __init__(self, server, checks):
        self.server, self.checks, self.lock = server, checks, threading.Lock()
        self.seen, self.n_bad, self.next = {}, 0, 0

    def one(self, client, index):
        """Ask the index-th; the connection for the next one (None: a new one is needed)."""
        c = case(random.Random("%d/%d" % (SEED, index)))
        wrong = answer = None
        client = client or Client(self.server.port)
        try:
            try:
                client.send(c.data)
            except OSError:
                pass  # refused before the end of its body: the answer says why
            answer = client.answer(c.method)
            wrong = problem(c, answer)
        except Closed as e:
            answer = e.answer
            wrong = None if c.may_close else "the connection ends: %s" % e
        except ConnectionResetError as e:
            wrong = None if c.may_close else "the connection is reset: %s" % e
        except (Malformed, ValueError, OSError) as e:
            wrong = "%s: %s" % (type(e).__name__, e)
        with self.lock:
            key = (c.kind, answer.status if answer else 0)
            self.seen[key] = self.seen.get(key, 0) + 1
            if wrong:
                self.n_bad += 1
                self.checks.check("request %d (%s): %s: %r -> %r" % (index, c.kind, wrong, c.data[:500], answer and answer.body[-500:]), False)
        if c.closes or not answer or not answer.whole or answer.headers.get("connection") == "close" or client.buffer:
            client.close()
            return None
        return client

    def run(self, first, n):
        """Requests first .. first + n - 1 by some clients at once; ends early when too much is wrong."""
        self.next = first

        def work():
            client = None
            while True:
                with self.lock:
                    index = self.next
                    self.next += 1
                if index >= first + n or self.n_bad >= 12 or self.server.process.poll() is not None:
                    break
                client = self.one(client, index)
            if client:
                client.close()
        threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()


def known_answers(server):
    """What the server says to some sound requests, without ids and times."""
    out = []
    for path, body in BODIES:
        answer = server.answer(path, dict(body, stream=False) if "stream" in body else body)
        out.append((path, answer.status, json.dumps(plain(answer.json()), sort_keys=True)))
    return out


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as top:
        folder = os.path.join(top, "slots")
        os.mkdir(folder)
        options = ["--parallel", "2", "--queue", "512", "--ctx", "192", "--max-body-mb", "1", "--slot-save-path", folder, "--cache-ram", "8m"]
        with Server(checks, *options) as server:
            f = Fuzzer(server, checks)
            if os.environ.get("SERVE_FUZZ_ONE"):
                index = int(os.environ["SERVE_FUZZ_ONE"])
                print(case(random.Random("%d/%d" % (SEED, index))).data)
                f.one(None, index)
            else:
                want = known_answers(server)
                for first in range(0, N, 1000):
                    f.run(first, min(1000, N - first))
                    got = known_answers(server) if server.process.poll() is None else "nothing: it has ended"
                    checks.check("after %d requests sound ones are answered as before" % (first + 1000), got == want,
                                 "%r, not %r" % ([g for g in got if g not in want][:1], [w for w in want if w not in got][:1]))
                    if f.n_bad >= 12 or server.process.poll() is not None:
                        break
                checks.check("%d requests: no answer that must not be" % N, not f.n_bad)
                server.wait_idle()
                checks.check("only plain names: %r" % os.listdir(folder), not any(n.startswith(".") for n in os.listdir(folder)))
                checks.check("nothing beside them: %r" % os.listdir(top), os.listdir(top) == ["slots"])
            for key in sorted(f.seen) if os.environ.get("SERVE_FUZZ_VERBOSE") else []:
                print("%-28s %3d %6d" % (key + (f.seen[key],)), file=sys.stderr)
    checks.finish()


if __name__ == "__main__":
    main()
