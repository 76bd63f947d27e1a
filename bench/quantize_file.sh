#!/usr/bin/env bash
# Speed and memory of `skua quantize` on whole files: MB of BF16 input per second and core (bar: 60 for Q4_K_M), and the peak of resident
# memory against twice the largest tensor. Each figure is the best of three, with one thread and with all.
# Usage: bench/quantize_file.sh MODEL.gguf [RECIPE...]   (from the project root; SKUA: the program). The model is made BF16 first, beside
# the output, in a temporary folder (TMPDIR).
set -eu
SKUA=${SKUA:-./build/skua}
[ -x "$SKUA" ] || { echo "no program at $SKUA (make builds it)" >&2; exit 1; }
[ $# -ge 1 ] || { echo "usage: bench/quantize_file.sh MODEL.gguf [RECIPE...]" >&2; exit 2; }
exec python3 - "$SKUA" "$@" <<'PY'
import json, os, subprocess, sys, tempfile, time

skua, model, *recipes = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    source, out = os.path.join(folder, "bf16.gguf"), os.path.join(folder, "out.gguf")
    subprocess.run([skua, "quantize", model, source, "BF16"], stdout=subprocess.DEVNULL, check=True)
    report = subprocess.run([skua, "inspect", "--verify", "--json", source], stdout=subprocess.PIPE, check=True)
    tensors = json.loads(report.stdout)["tensors"]
    mb = sum(t["bytes"] for t in tensors if t["type"] == "BF16") / 1e6
    largest = max(t["bytes"] for t in tensors) / 1e6
    print(f"{os.path.basename(model)}: {mb:.0f} MB of BF16, largest tensor {largest:.0f} MB, {os.cpu_count()} cores")
    for recipe in recipes or ["Q4_K_M", "Q6_K", "Q8_0", "IQ4_XS"]:
        for threads in sorted({1, os.cpu_count()}):
            best, peak = 1e9, 0
            for _ in range(3):
                begin = time.perf_counter()
                p = subprocess.Popen([skua, "quantize", source, out, recipe, "--threads", str(threads)], stdout=subprocess.DEVNULL)
                _, status, usage = os.wait4(p.pid, 0)
                if status:
                    sys.exit(f"{recipe}: status {status}")
                best = min(best, time.perf_counter() - begin)
                peak = max(peak, usage.ru_maxrss * 1024 / 1e6)
            rate = mb / best / threads
            bar = f", bar 60: {'met' if rate >= 60 else 'MISSED'}" if recipe == "Q4_K_M" else ""
            print(f"{recipe}, {threads} thread{'s' * (threads > 1)}: {best:.2f} s, {rate:.0f} MB/s per core{bar}; "
                  f"peak resident {peak:.0f} MB of {2 * largest:.0f} allowed: {'met' if peak <= 2 * largest else 'MISSED'}")
PY
