#!/usr/bin/env bash
# Start and memory: wall time of a warm run that ends with the first token (median of five, bar: 150 ms on the shipped model), and the
# peak of resident memory against file + state + 200 MB, while answering. Prints figures and fails only when the program does.
# Usage: bench/startup.sh (from the project root; SKUA: the program, SKUA_SHARED: folder of the shared models)
set -u
SKUA=${SKUA:-./build/skua}
SHARED=${SKUA_SHARED:-../shared}
[ -x "$SKUA" ] || { echo "no program at $SKUA (make builds it)" >&2; exit 1; }
exec python3 - "$SKUA" models/tiny-q8_0.gguf "$SHARED/models/tiny-bf16.gguf" "$SHARED/models/tiny-moe-q8_0.gguf" <<'PY'
import json, os, statistics, subprocess, sys, time

skua, *models = sys.argv[1:]
prompt = "What is the capital of France?"

def run(model, *options):
    """Wall time in ms and peak resident memory in bytes of one run."""
    begin = time.perf_counter()
    p = subprocess.Popen([skua, "run", "-m", model, "--temp", "0", "-q", *options, prompt], stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(p.pid, 0)
    ms = (time.perf_counter() - begin) * 1e3
    if status:
        sys.exit(f"{model}: status {status}")
    return ms, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)

def session_bytes(model):
    """State and the KV pages of a whole answer's context, as skua inspect tells them."""
    command = [skua, "inspect", "--json", "--ctx", "256", model]
    report = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    return json.loads(report.stdout)["memory"]["session_bytes"]

for i, model in enumerate(models):
    if not os.path.exists(model):
        print(f"{model}: absent, skipped")
        continue
    run(model, "-n", "1") # warms the file cache
    times = sorted(run(model, "-n", "1")[0] for _ in range(5))
    bar = f", bar 150 ms: {'met' if statistics.median(times) < 150 else 'MISSED'}" if i == 0 else ""
    name, each = os.path.basename(model), ", ".join(f"{t:.1f}" for t in times)
    print(f"{name}: start to first token {statistics.median(times):.1f} ms (median of five: {each}){bar}")
    peak = max(run(model, "-n", "64", "--ctx", "256")[1] for _ in range(2))
    size, session = os.path.getsize(model), session_bytes(model)
    limit = size + session + 200_000_000
    rest, verdict = peak - size - session, "met" if peak <= limit else "MISSED"
    print(f"{name}: peak resident {peak / 1e6:.1f} MB = file {size / 1e6:.1f} + state {session / 1e6:.1f} + {rest / 1e6:.1f} MB; "
          f"bar {limit / 1e6:.1f} MB: {verdict}")
PY
