#!/usr/bin/env bash
# skua convert: the shared checkpoints become the shared models, byte for byte in every tensor and key but for what is named below; the
# files run; small random checkpoints of every kind, good and bad (convert_cases.py). See lib.bash.
. tests/e2e/lib.bash

run convert --help
check "--help" '[ $status -eq 0 ] && grep -q "^example: skua convert" "$WORK/out"'
refused "nothing" 2 "expected a checkpoint's folder" convert
refused "unknown option" 2 "" convert --nonsense a b

mkdir "$WORK/cases"
if counts=$(python3 tests/e2e/convert_cases.py "$SKUA" "$WORK/cases") && [[ $counts =~ ^[0-9]+\ [0-9]+$ ]]; then
    passed=$((passed + ${counts% *})) failed=$((failed + ${counts#* }))
else
    bad "convert_cases.py did not finish"
fi
rm -rf "$WORK/cases"

# ---- the shared checkpoints ----

if [ ! -d "$SHARED/hf" ] || [ ! -d "$SHARED/models" ]; then
    skip "$SHARED/hf or $SHARED/models is absent: conversion of the shared checkpoints"
    finish
fi

# same OURS THEIRS: tensors in the same order, of the same shape, type and bytes; keys of the same type and value. What may differ: keys that
# only one side has, of the two lists.
same() {
    python3 - "$1" "$2" <<'PY'
import sys
sys.path.insert(0, "tests/support")
from checkpoint import *
(keys, tensors), (their_keys, their_tensors) = map(read_gguf, sys.argv[1:])
ours_only = {"general.type", "general.file_type", "general.quantization_version", "general.sampling.temp", "general.sampling.top_k",
             "general.sampling.top_p", "dflash.attention.causal"}
theirs_only = {"general.alignment"}  # 32, which is what a file without the key has
wrong = [k for k in set(keys) - set(their_keys) if k not in ours_only] + [k for k in set(their_keys) - set(keys) if k not in theirs_only]
wrong += [k for k in set(keys) & set(their_keys) if keys[k] != their_keys[k]]
if "general.alignment" in their_keys and their_keys["general.alignment"] != (4, 32):
    wrong.append("general.alignment")
shared = [k for k in keys if k in their_keys]
if shared != [k for k in their_keys if k in keys]:
    wrong.append("order of keys")
if list(tensors) != list(their_tensors):
    wrong.append("names or order of tensors")
for n in set(tensors) & set(their_tensors):
    a, b = tensors[n], their_tensors[n]
    if a != b:
        wrong.append(f"{n}: {a[:2]} and {b[:2]}, data {'equal' if a[2] == b[2] else 'differ'}")
for w in wrong[:10]:
    print(w, file=sys.stderr)
sys.exit(bool(wrong) or not tensors)
PY
}

# equal CHECKPOINT MODEL OPTIONS...
equal() {
    local checkpoint=$1 model=$2
    shift 2
    run convert "$@" "$SHARED/hf/$checkpoint" "$WORK/$model"
    check "$model: converted without a word on standard error" '[ $status -eq 0 ] && [ ! -s "$WORK/err" ] && [ "$(wc -l <"$WORK/out")" -eq 1 ]'
    check "$model: equal to the shared one" 'same "$WORK/$model" "$SHARED/models/$model"'
}
equal tiny-dense tiny-bf16.gguf
equal tiny-dense tiny-q8_0.gguf --type q8_0
equal tiny-moe tiny-moe-q8_0.gguf --type q8_0
for n in 1 2; do
    equal "tiny-dflash$n" "tiny-dflash$n-bf16.gguf" --tokenizer "$SHARED/hf/tiny-dense" --type bf16
    equal "tiny-dflash$n" "tiny-dflash$n-q8_0.gguf" --tokenizer "$SHARED/hf/tiny-dense" --type q8_0
done

# ---- the files run ----

run convert "$SHARED/hf/tiny-moe" "$WORK/moe.gguf" --type bf16
run logits -m "$WORK/moe.gguf" --ids 516,612,339,433,7688,335 --greedy 4 --precision reference --json
json_check "tiny-moe in BF16" "$WORK/out" <<'EOF'
d["greedy"] == [2414, 289, 13, 8177]
near(d["positions"][0]["top"][0], [612, 9.63355], 1e-4) and near(d["positions"][-1]["top"][0], [2414, 17.38849], 1e-4)
EOF
run run -m "$WORK/moe.gguf" -q --temp 0 -n 20 --no-think "What is the capital of France?"
check "tiny-moe in BF16 answers" '[ $status -eq 0 ] && grep -q Paris "$WORK/out"'
run inspect --json "$WORK/moe.gguf"
json_check "report on tiny-moe in BF16" "$WORK/out" <<'EOF'
d["runs"] is True and d["problems"] == [] and d["mtp"]["state"] == "present" and d["architecture"] == "qwen35moe"
EOF
run convert "$SHARED/hf/tiny-moe" "$WORK/plain.gguf" --no-mtp
run inspect --json "$WORK/plain.gguf"
json_check "without its MTP block" "$WORK/out" <<<'d["runs"] is True and d["problems"] == []'
run convert "$SHARED/hf/tiny-dense" "$WORK/mtp.gguf" --mtp-only
run inspect --json "$WORK/mtp.gguf"
json_check "only its MTP block" "$WORK/out" <<<'"only an MTP block" in d["reason"] and d["container"]["tensors"] == 17'

run inspect --json "$WORK/tiny-bf16.gguf"
json_check "sampling defaults" "$WORK/out" <<<'"general.sampling.temp" in json.dumps(d)'

# Interrupted in the middle: no file, no part of one.
"$SKUA" convert "$SHARED/hf/tiny-dense" "$WORK/stopped.gguf" --type q8_0 >"$WORK/out" 2>"$WORK/err" &
pid=$!
for _ in $(seq 500); do
    compgen -G "$WORK/stopped.gguf.tmp.*" >"$WORK/names" && break
    sleep 0.002
done
kill -TERM $pid 2>/dev/null # the shell lets what runs in the background ignore SIGINT
wait $pid
status=$?
check "interrupted: all or nothing" '! compgen -G "$WORK/stopped.gguf.tmp.*" >"$WORK/names" && { { [ $status -eq 0 ] && [ -f "$WORK/stopped.gguf" ]; } ||
    { [ $status -eq 1 ] && [ ! -e "$WORK/stopped.gguf" ]; }; }'

finish
