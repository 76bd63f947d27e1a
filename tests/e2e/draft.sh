#!/usr/bin/env bash
# Speculative decoding from the command line: no answer changes, what was armed and what it came to is said, a trace agrees with the answer,
# and every drafter or option that does not fit is refused with one line before the first token. See lib.bash.
. tests/e2e/lib.bash
dflash2=$(realpath models/tiny-dflash2-q8_0.gguf)
prompts=("Once upon a time" "What is the capital of France?" "one two three one two three one two")
n=32
sanitized && n=12
r() { run run -m "$MODEL" --raw -q "$@"; }

# ---- one answer, whoever drafts ----

drafts=("--draft mtp" "--draft lookup" "--draft auto" "--draft none" "--draft $dflash2" "--draft $dflash2 --draft-fixed 7" "--draft mtp --draft-fixed 2"
    "--draft $dflash2 --draft-schedule 0,7,1,0,3,15" "--draft auto --draft-force" "--draft $dflash2 --draft-max 3 --draft-min-gain 0"
    "--draft $dflash2 --draft-taps input --draft-fixed 4 -t 1")
others=("--temp 0" "--temp 0.8 --seed 7" "--temp 0 --repeat-penalty 1.3 --presence-penalty 0.5" "--temp 1 --seed 3 --logit-bias 13=-100" "--temp 0 --stop the"
    "--temp 0 --kv-type Q8_0" "--temp 0 -c 24")
sanitized && others=("${others[@]:0:3}") prompts=("${prompts[@]:1:1}")
for prompt in "${prompts[@]}"; do
    for sampling in "${others[@]}"; do
        # shellcheck disable=SC2086 # options are words
        r $sampling -n $n "$prompt"
        cp "$WORK/out" "$WORK/plain"
        plain=$status
        for draft in "${drafts[@]}"; do
            # shellcheck disable=SC2086
            r $sampling -n $n $draft "$prompt"
            check "$sampling $draft '$prompt': status $status (plain $plain), '$(head -c 200 "$WORK/out")', plain '$(head -c 200 "$WORK/plain")'" \
                '[ $status -eq $plain ] && cmp -s "$WORK/out" "$WORK/plain"'
        done
    done
done
for count in 0 1 2; do
    r --temp 0 -n $count Once
    cp "$WORK/out" "$WORK/plain"
    r --temp 0 -n $count --draft "$dflash2" --draft-fixed 7 Once
    check "-n $count: status $status" '[ $status -eq 0 ] && cmp -s "$WORK/out" "$WORK/plain"'
done
r --temp 0.8 --seed 4 -n $n --draft mtp --draft-fixed 3 --draft-sampling rejection Once
cp "$WORK/out" "$WORK/plain"
r --temp 0.8 --seed 4 -n $n --draft mtp --draft-fixed 3 --draft-sampling rejection Once
check "rejection sampling: the same seed, the same answer" '[ $status -eq 0 ] && [ -s "$WORK/out" ] && cmp -s "$WORK/out" "$WORK/plain"'

# ---- how much is accepted: the recorded rounds, draft for draft, and the recorded lengths within 5 % ----

for v in 1 2; do
    if [ ! -f "$SHARED/models/tiny-dflash$v-bf16.gguf" ] || sanitized; then
        skip "acceptance of dflash$v"
        continue
    fi
    python3 - "$SKUA" "$SHARED" $v "$WORK/trace" <<'PY' >"$WORK/says" 2>&1
import json, re, subprocess, sys
skua, shared, v, trace = sys.argv[1:]
recorded = json.load(open(f"{shared}/golden/dflash{v}-accept.json"))
assert len(recorded) == 7
for r in recorded:
    out = subprocess.run([skua, "run", "-m", f"{shared}/models/tiny-bf16.gguf", "--temp", "0", "--no-think", "-n", "96", "--stats", "--draft",
                          f"{shared}/models/tiny-dflash{v}-bf16.gguf", "--draft-fixed", "7", "--draft-trace", trace, r["q"]],
                         capture_output=True, text=True, check=True).stderr
    al = float(re.search(r"tokens, ([0-9.]+) per round", out).group(1))
    rounds = [json.loads(line) for line in open(trace)][:len(r["trace"])]
    assert abs(al - r["AL"]) <= 0.05 * r["AL"], (r["q"], al, r["AL"])
    assert [[x["drafts"], x["A"]] for x in rounds] == [list(x) for x in r["trace"]], (r["q"], rounds, r["trace"])
print("yes")
PY
    check "acceptance of dflash$v: $(tail -c 600 "$WORK/says")" '[ "$(cat "$WORK/says")" = yes ]'
done

# ---- what is said ----

run run --raw --temp 0 -n $n --draft "$dflash2" --draft-fixed 99 --draft-trace "$WORK/trace" --stats "Once upon a time"
check "the number is clamped and said" 'grep -q "^skua run: 99 drafts in a round are more than can be drafted: 7 are taken$" "$WORK/err"'
check "what is armed" '[ "$(grep -c "drafting: .* layers" "$WORK/err")" = 1 ] && grep -qx "skua run: drafting: dflash2 (tiny-dflash2-q8_0.gguf: convolution, selector of 8, block of 8, 2 layers, 2 windowed (256), taps 1 4 6), mtp (bundled), lookup, combined; 7 in every round, of the first that has any" "$WORK/err"'
check "what it came to" 'grep -qE "^drafting: [0-9]+ rounds, [0-9]+ of them with drafts \([0-9]+ verified\); [0-9]+ tokens, [0-9]+\.[0-9]+ per round$" "$WORK/err" && grep -q "^  rounds by drafts verified: " "$WORK/err" && grep -qE "^  seconds: draft [0-9.]+, verify [0-9.]+, commit [0-9.]+" "$WORK/err"'
python3 - "$WORK/trace" "$WORK/err" <<'PY' >"$WORK/says" 2>&1
import json, re, sys
rounds = [json.loads(line) for line in open(sys.argv[1])]
assert rounds and all(set(r) == {"drafter", "drafts", "verified", "A"} for r in rounds)
assert all(0 <= r["A"] <= r["verified"] <= len(r["drafts"]) <= 7 and r["verified"] > 0 for r in rounds)
said = re.search(r"(\d+) rounds, (\d+) of them with drafts \((\d+) verified\); (\d+) tokens", open(sys.argv[2]).read())
n, drafting, verified, tokens = map(int, said.groups())
assert drafting == len(rounds) and verified == sum(r["verified"] for r in rounds), (said.group(), rounds)
assert n <= tokens <= n + sum(r["A"] for r in rounds), (said.group(), rounds)
print("yes")
PY
check "the trace agrees with the figures: $(cat "$WORK/says")" '[ "$(cat "$WORK/says")" = yes ]'
for draft in "$dflash2" mtp auto; do
    run run --no-think --temp 0 --draft $draft --draft-force --stats "Tell me a story about a fox."
    check "--draft-force: drafts of $draft in every round" 'grep -q "^  rounds by drafts verified: [1-9]" "$WORK/err" && grep -q "; also where it does not pay$" "$WORK/err"'
done
run run --raw --temp 0 -n 2 --draft lookup --draft-fixed 9 --draft-max 5 Once
check "a number above the limit is said" 'grep -qx "skua run: 9 drafts in a round are more than the limit: 5 are taken" "$WORK/err" && grep -qx "skua run: drafting: lookup; 5 in every round" "$WORK/err"'
r --temp 0 -n 4 --draft auto Once
check "-q: nothing is said" '[ ! -s "$WORK/err" ]'
r --temp 0 -n 4 --stats Once
check "without drafting" '[ "$(cat "$WORK/err")" = "drafting: off" ]'
r --temp 0 -n $n --draft auto --draft-fixed 2 --draft-trace /dev/full "Once upon a time"
check "a full disk: status $status, $(cat "$WORK/err")" '[ $status -eq 1 ] && one_line "/dev/full: cannot be written: No space"'

# ---- refused: options ----

usage() { refused "$1" 2 "$2" run -m "$MODEL" -n 4 "${@:3}" x; }
without="options of drafting without --draft; expected --draft FILE, mtp, lookup or auto"
for options in "--draft-max 3" "--draft-fixed 3" "--draft-force" "--draft-trace $WORK/t" "--draft none --draft-schedule 1" "--draft-sampling rejection"; do
    # shellcheck disable=SC2086
    usage "$options" "$without" $options
done
usage "both" "both --draft-fixed and --draft-schedule" --draft mtp --draft-fixed 3 --draft-schedule 1
usage "force and fixed" "draft-force does not go with" --draft mtp --draft-fixed 3 --draft-force
for value in "" 1, ,1 1,,2 1,x -1 32 1.5; do
    usage "--draft-schedule '$value'" "draft-schedule .numbers separated by commas. is" --draft mtp --draft-schedule "$value"
done
for value in "" 0 32 x 1x; do
    usage "--draft-max '$value'" "draft-max is '$value', expected an integer from 1 to 31" --draft mtp --draft-max "$value"
done
for value in "" -1 x nan inf 11; do
    usage "--draft-min-gain '$value'" "draft-min-gain is '$value'" --draft mtp --draft-min-gain "$value"
done
usage "an unknown sampling" "draft-sampling 'x' is unknown; expected compare or rejection" --draft mtp --draft-sampling x
usage "unknown taps" "draft-taps 'x' is unknown; expected input or output" --draft "$dflash2" --draft-taps x

# ---- refused: outputs, drafters ----

cp "$MODEL" "$WORK/model.gguf"
cp "$dflash2" "$WORK/drafter.gguf"
echo text >"$WORK/text"
unfit() { refused "$1" "$2" "$3" run -m "$WORK/model.gguf" -q -n 4 "${@:4}"; }
for name in model.gguf drafter.gguf text; do
    unfit "the trace is $name" 1 "$name: is the .*; expected another name for the" --draft "$WORK/drafter.gguf" --draft-trace "$WORK/$name" -f "$WORK/text"
done
unfit "the trace in no folder" 1 "none/t: cannot be written: No such file" --draft auto --draft-trace "$WORK/none/t" x
check "nothing was touched" 'cmp -s "$MODEL" "$WORK/model.gguf" && cmp -s "$dflash2" "$WORK/drafter.gguf" && [ "$(cat "$WORK/text")" = text ]'
unfit "no such file" 1 "none.gguf: cannot open: No such file" --draft "$WORK/none.gguf" x
unfit "a folder" 1 "is not a regular file|is a folder" --draft "$WORK" x
for word in AUTO lookups ""; do
    unfit "the word '$word'" 1 "there is no drafter file '$word'; expected the name of one, mtp, lookup, auto or none" --draft "$word" x
done
unfit "text" 1 "text: .*GGUF" --draft "$WORK/text" x
unfit "a whole model" 1 "the file is a whole model, or a draft head for another one" --draft "$WORK/model.gguf" x
unfit "options of files without one" 1 "options for DFlash drafters, but 'auto' is no drafter file" --draft auto --draft-taps input x
size=$(stat -c %s "$dflash2")
for part in 0 1 4 24 100 1000 5000 20000 $((size / 3)) $((size / 2)) $((size - 1000)) $((size - 1)); do
    head -c "$part" "$dflash2" >"$WORK/cut.gguf"
    unfit "the first $part of $size bytes" 1 "cut.gguf: " --draft "$WORK/cut.gguf" x
done
if [ -f "$SHARED/models/tiny-moe-q8_0.gguf" ]; then
    moe=$(realpath "$SHARED/models/tiny-moe-q8_0.gguf")
    refused "a drafter for another model" 1 "it is a drafter for another model" run -m "$moe" -q -n 4 --draft "$dflash2" x
    refused "another model as a head" 1 "is no draft head for this model" run -m "$MODEL" -q -n 4 --draft "$moe" x
else
    skip "another model"
fi

finish
