#!/usr/bin/env python3
"""What the server adds to a token, and what several streams reach together, in turns with plain decode steps of the same file.

    bench/serve.py MODEL.gguf [TURNS]       (from the project root; SKUA: the program)

Each turn: `skua bench --tg` (decode steps without a server), an answer that is sent whole, one stream, four streams at once; greedy, 128
tokens behind 64. Printed are medians over the turns: ms per token, what they are over the plain step (bar of the 0.8B shape: 3 %; a stream's
share has this client's work on the same cores in it, an answer sent whole has not), and the tokens per second of four streams over those of
one (bar of the 4B shape: 2.75)."""
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time

N_PROMPT, N_TOKENS, N_STREAMS = 64, 128, 4
SKUA = os.environ.get("SKUA", "./build/skua")


def plain(model):
    """ms of a decode step."""
    command = [SKUA, "bench", "-m", model, "--tg", str(N_TOKENS), "--depth", str(N_PROMPT), "-r", "1", "--json", "-", "--buffer", "64m"]
    report = json.loads(subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout)
    return report["tg"][0]["ms"]


class Stream(threading.Thread):
    """One answer; seen: when each chunk came, and how many tokens there were then."""

    def __init__(self, port, model, seed):
        super().__init__()
        prompt = [(1000 + 37 * seed + 11 * i) % 8000 for i in range(N_PROMPT)]
        self.body = json.dumps({"model": model, "prompt": prompt, "max_tokens": N_TOKENS, "temperature": 0, "stream": True,
                                "cache_prompt": False, "stream_options": {"include_usage": True, "continuous_usage_stats": True}})
        self.connection = http.client.HTTPConnection("127.0.0.1", port)
        self.seen = []

    def run(self):
        self.connection.request("POST", "/v1/completions", self.body)
        answer = self.connection.getresponse()
        if answer.status != 200:
            sys.exit(f"status {answer.status}: {answer.read().decode()}")
        for line in answer:
            if line.startswith(b"data: {"):
                self.seen.append((time.perf_counter(), line))
        self.connection.close()
        self.seen = [(t, json.loads(line[6:])["usage"]["completion_tokens"]) for t, line in self.seen]


def whole(port, model):
    """ms per token of an answer that nobody hears of before its end."""
    s = Stream(port, model, 0)
    body = {**json.loads(s.body), "stream": False}
    del body["stream_options"]
    s.connection.request("POST", "/v1/completions", json.dumps(body))
    answer = json.loads(s.connection.getresponse().read())
    s.connection.close()
    return answer["timings"]["predicted_per_token_ms"]


def streams(port, model, n):
    """(tokens per second of all, from the moment when all of them run until the first ends)"""
    all_streams = [Stream(port, model, k) for k in range(n)]
    for s in all_streams:
        s.start()
    for s in all_streams:
        s.join()
    begin = max(next(t for t, k in s.seen if k > 0) for s in all_streams)
    end = min(next(t for t, k in s.seen if k == s.seen[-1][1]) for s in all_streams)
    done = sum(max(k for t, k in s.seen if t <= end) - max(k for t, k in s.seen if t <= begin) for s in all_streams)
    return done / (end - begin)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    model, turns = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    server = subprocess.Popen([SKUA, "serve", "-m", model, "--port", "0", "--parallel", str(N_STREAMS), "--ctx", "1024"], stdin=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True)
    port = None
    for line in server.stderr:
        found = re.search(r"listening on http://[^:]*:(\d+)", line)
        if found:
            port = int(found.group(1))
            break
    threading.Thread(target=server.stderr.read, daemon=True).start()
    if port is None:
        sys.exit("the server did not start")
    try:
        streams(port, model, 1)
        rows = [(plain(model), streams(port, model, 1), streams(port, model, N_STREAMS), whole(port, model)) for _ in range(turns)]
    finally:
        server.terminate()
        server.wait()
    step = statistics.median(r[0] for r in rows)
    one = statistics.median(1e3 / r[1] for r in rows)
    added = statistics.median(1e3 / r[1] / r[0] - 1 for r in rows)
    quiet = statistics.median(r[3] / r[0] - 1 for r in rows)
    together = statistics.median(r[2] / r[1] for r in rows)
    print(f"{model}: plain step {step:.2f} ms; a token of a whole answer {100 * quiet:+.1f} %, of a stream {100 * added:+.1f} % ({one:.2f} ms); "
          f"{N_STREAMS} streams {statistics.median(r[2] for r in rows):.1f} t/s, {together:.2f} times one")


main()
