#!/usr/bin/env bash
# Quantized files beside llama.cpp's, on the tiny models (tiny-bf16.gguf, and hf/tiny-moe converted to BF16):
#   1. every tensor of every recipe, with and without an imatrix: root mean square error of ours and of what llama.cpp's quantizer
#      makes of the same tensor, type and imatrix, both decoded by llama.cpp (bar: no more than 1.01 times), and whether the bytes
#      are the same; then the whole files that llama.cpp's own recipe makes: its choice of types against ours
#   2. each recipe's distance from the BF16 model: bits per weight, perplexity, KL divergence, agreement on the likeliest token
#   3. our files run by llama.cpp and llama.cpp's files run by skua: greedy answers to five prompts, token for token
# Usage: bench/peer_quant.sh [DIR]   (from the project root; DIR, or NODE_LLAMA: the folder with node_modules, after
#        npm install node-llama-cpp; SKUA: the program; SKUA_SHARED: folder of the shared models; PYTHON: a Python 3 with numpy)
# Needs x86-64 Linux. Takes about ten minutes on two cores. Exit status 0 when all bars hold.
set -u
SKUA=${SKUA:-./build/skua}
SHARED=${SKUA_SHARED:-../shared}
PEER=${1:-${NODE_LLAMA:-}}
BINS=$PEER/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64
[ -n "$PEER" ] || { echo "usage: bench/peer_quant.sh DIR (the folder that holds node_modules with node-llama-cpp)" >&2; exit 2; }
[ -x "$SKUA" ] || { echo "no program at $SKUA (make builds it)" >&2; exit 1; }
[ -e "$BINS/libggml-base.so" ] || { echo "no llama.cpp in $BINS (npm install node-llama-cpp there)" >&2; exit 1; }
[ -e "$SHARED/models/tiny-bf16.gguf" ] || { echo "no models in $SHARED (SKUA_SHARED)" >&2; exit 1; }
for python in ${PYTHON:-python3 /usr/bin/python3}; do
    "$python" -c 'import numpy' 2>/dev/null && break
    python=
done
[ -n "$python" ] || { echo "no Python 3 with numpy (PYTHON)" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" "$(dirname "$0")/peer_quant.py" "$SKUA" "$PEER" "$BINS" "$SHARED" "$work"
