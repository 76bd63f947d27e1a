"""Signals in each phase, and a cache folder whose files cannot be written."""
import os
import resource
import signal
import subprocess
import tempfile
import threading
import time

import serve_lib
from serve_lib import MODEL, SKUA, Checks, Server, chat, until

ENDLESS = chat("Tell me everything.", max_tokens=-1, ignore_eos=True)
LONG = chat("word " * 1500, max_tokens=4)


def ends(t, name, process, seconds=10):
    start = time.monotonic()
    t.equal(name, process.wait(60), 0)
    t.check(name + ": soon", time.monotonic() - start < seconds, time.monotonic() - start)


def loading(t):
    """As early as may be; before the handlers are there a signal simply kills."""
    for wait in (0, 0.01, 0.03, 0.1):
        p = subprocess.Popen([SKUA, "serve", "-m", MODEL, "--port", "0"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(wait)
        p.send_signal(signal.SIGTERM)
        text = p.communicate(timeout=60)[1]
        t.check(f"SIGTERM after {wait} s", p.returncode in (0, -signal.SIGTERM) and "anitizer" not in text, (p.returncode, text))


def phases(t):
    for sig in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        with Server(t, "--ctx", "512") as s:
            s.process.send_signal(sig)
            ends(t, f"{sig.name}, idle", s.process, 5)
            s.ended = True
    for name, body in (("prefill", LONG), ("stream", ENDLESS)):
        with Server(t, "--drain-timeout", "30", "--ctx", "4096", "--cache-ram", "0") as s:
            c = s.open_stream("/v1/chat/completions", body, 0 if name == "prefill" else 3)
            until(lambda: s.metrics()["skua_requests_running"] == 1 or name == "prefill", "the request runs")
            s.process.send_signal(signal.SIGTERM)
            until(lambda: "stopping" in s.text(), "the first signal is heard")
            if name == "stream":
                t.check("the answer goes on", s.process.poll() is None)
                s.process.send_signal(signal.SIGTERM)
            ends(t, f"SIGTERM, {name}", s.process, 20)
            s.ended = True
            c.close()


def nohup(t):
    with Server(t, "--ctx", "512", before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as s:
        s.process.send_signal(signal.SIGHUP)
        time.sleep(0.1)
        t.equal("SIGHUP that was ignored at the start", s.get("/health")[0], 200)


def full_disk(t):
    """Files of more than 64 KiB cannot be written, until the limit goes: said once, and that it works again."""
    with tempfile.TemporaryDirectory() as folder:
        small = (65536, resource.RLIM_INFINITY)
        with Server(t, "--ctx", "2048", "--cache-disk", folder, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, small)) as s:
            for word in ("one", "two", "three"):
                t.equal("answered", s.post("/v1/chat/completions", chat(f"{word} " * 80, max_tokens=4))[0], 200)
            until(lambda: s.metrics()["skua_cache_write_errors_total"] >= 2, "writes fail")
            t.equal("said once", s.text().count("(said once)"), 1)
            t.check("and why", "File too large" in s.text(), s.text())
            resource.prlimit(s.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            s.post("/v1/chat/completions", chat("four " * 80, max_tokens=4))
            until(lambda: "can be written again" in s.text(), "that it works again: " + s.text())


def fairness(t):
    """One answer at a time, two keys: the one with many requests does not keep the other waiting behind all of them."""
    with Server(t, "--ctx", "1024", "--parallel", "1", "--api-key", "a", "--api-key", "b") as s:
        order, lock = [], threading.Lock()

        def ask(key, i):
            status = s.post("/v1/chat/completions", chat(f"{key} {i}", max_tokens=30, ignore_eos=True), {"x-api-key": key})[0]
            with lock:
                order.append((key, status))
        threads = [threading.Thread(target=ask, args=("a", i)) for i in range(6)]
        for th in threads:
            th.start()
        until(lambda: read(s)["skua_requests_waiting"] >= 3, "some wait")
        late = [threading.Thread(target=ask, args=("b", i)) for i in range(2)]
        for th in late:
            th.start()
        for th in threads + late:
            th.join()
        t.equal("all are answered", [status for _, status in order], [200] * 8)
        keys = "".join(key for key, _ in order)
        t.check("they take turns", "a" in keys[keys.index("b"):] and keys.rindex("b") < 7, keys)


def read(s):
    return serve_lib.read_metrics(s.ask("GET", "/metrics", headers={"x-api-key": "a"})[2].decode())


def main():
    t = Checks()
    for part in (loading, phases, nohup, full_disk, fairness):
        start = time.monotonic()
        try:
            part(t)
        except Exception as e:  # the others are to be tried all the same
            t.check(part.__name__, False, repr(e))
        if os.environ.get("SKUA_TEST_VERBOSE"):
            print(f"{part.__name__} {time.monotonic() - start:.1f} s")
    t.finish()


main()
