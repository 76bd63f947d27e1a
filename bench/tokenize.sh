#!/usr/bin/env bash
# Wall time of `skua tokenize` on 10 MB of text, the program's own sources and documents repeated (median of five; bar: 3 s).
# Usage: bench/tokenize.sh [MODEL] (from the project root; SKUA: the program)
set -eu
SKUA=${SKUA:-./build/skua}
[ -x "$SKUA" ] || { echo "no program at $SKUA (make builds it)" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat README.md docs/*.md src/*/*.[ch] tests/unit/*.c >"$work/once"
while [ "$(stat -c %s "$work/text" 2>/dev/null || echo 0)" -lt 10000000 ]; do
    cat "$work/once" >>"$work/text"
done
truncate -s 10000000 "$work/text"
model=${1:-models/tiny-q8_0.gguf}
for _ in 1 2 3 4 5; do
    start=$EPOCHREALTIME
    "$SKUA" tokenize -m "$model" -f "$work/text" >"$work/ids"
    awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f\n", b - a }' >>"$work/times"
done
echo "$(basename "$model"): 10 MB, $(tr -cs '0-9\n' '\n' <"$work/ids" | grep -c .) tokens, $(sort -n "$work/times" | sed -n 3p) s" \
    "(median of five: $(sort -n "$work/times" | paste -sd' '))"
