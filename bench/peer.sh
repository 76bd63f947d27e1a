#!/usr/bin/env bash
# Speed beside llama.cpp's on the same files: prefill of a prompt and decode from an empty session. The two programs run in turns, so that
# both meet the same neighbours; medians over all turns, skua's rate over llama.cpp's (median of the turns), and the same of each one's
# best turn, which tells most on a machine that is not quiet.
# Usage: bench/peer.sh DIR MODEL...   (DIR: the folder with node_modules, after npm install node-llama-cpp; SKUA: the program;
#        PP, TG: tokens of the prompt and steps, 512 and 32; TURNS: 3; REPEAT: per turn, 2; THREADS: of both, default all physical cores)
# Fails only when a program does.
set -u
SKUA=${SKUA:-./build/skua}
[ $# -ge 2 ] || { echo "usage: bench/peer.sh DIR MODEL... (DIR: the folder that holds node_modules with node-llama-cpp)" >&2; exit 2; }
[ -x "$SKUA" ] || { echo "no program at $SKUA (make builds it)" >&2; exit 1; }
[ -d "$1/node_modules/node-llama-cpp" ] || { echo "no node-llama-cpp in $1/node_modules (npm install node-llama-cpp there)" >&2; exit 1; }
exec python3 - "$SKUA" "$(dirname "$0")/peer.mjs" "$@" <<'PY'
import json, os, statistics, subprocess, sys

skua, peer, folder, *models = sys.argv[1:]
pp, tg, turns, repeat = (os.environ.get(name, default) for name, default in (("PP", "512"), ("TG", "32"), ("TURNS", "3"), ("REPEAT", "2")))

def output(command):
    p = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    if p.returncode:
        sys.exit(f"{command[0]}: status {p.returncode}")
    return json.loads(p.stdout.decode().splitlines()[-1] if command[0] == "node" else p.stdout)

def turn(model, threads):
    ours = output([skua, "bench", "-m", model, "--pp", pp, "--tg", tg, "-r", repeat, "-t", threads, "--json", "-"])
    theirs = output(["node", peer, folder, model, pp, tg, repeat, threads])
    return {"pp": (ours["pp"][0]["ms"], statistics.median(theirs["pp"])), "tg": (ours["tg"][0]["ms"], statistics.median(theirs["tg"]))}

threads = os.environ.get("THREADS")
if not threads:
    threads = str(output([skua, "bench", "--tg", "1", "-r", "1", "--buffer", "1m", "--json", "-", "-m", models[0]])["machine"]["threads"])
print(f"{threads} threads, {turns} turns of {repeat}; medians in tokens/s")
print(f"{'model':32} {'':8} {'skua':>10} {'llama.cpp':>10} {'ratio':>7} {'best':>7}  each turn")
for model in models:
    rounds = [turn(model, threads) for _ in range(int(turns))]
    for kind, tokens in (("pp", int(pp)), ("tg", 1)):
        ours, theirs = ([1e3 * tokens / r[kind][i] for r in rounds] for i in (0, 1))
        each = " ".join(f"{a / b:.2f}" for a, b in zip(ours, theirs))
        ratio, best = statistics.median(a / b for a, b in zip(ours, theirs)), max(ours) / max(theirs)
        print(f"{os.path.basename(model):32} {kind + ' ' + (pp if kind == 'pp' else tg):8} {statistics.median(ours):10.2f} "
              f"{statistics.median(theirs):10.2f} {ratio:7.3f} {best:7.3f}  {each}", flush=True)
PY
