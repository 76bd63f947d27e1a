#!/usr/bin/env bash
# skua run, one answer: what it is, where it goes, that it is always the same, and where it ends. See lib.bash.
. tests/e2e/lib.bash

question="What is the capital of France?"
answer="The capital of France is Paris."
newline=$'\n'
figures='^prompt [0-9]+ tokens, [0-9]+\.[0-9] t/s; generated [0-9]+ tokens, [0-9]+\.[0-9] t/s; end: '
figured() { [ "$(wc -l <"$WORK/err")" -eq 1 ] && grep -qE "$figures$1\$" "$WORK/err"; }

# ---- the answer, exactly, however it is asked for ----

for options in "" --think --no-think "--repack on" "--repack off" "--precision reference" "--precision auto" "--kv-type F32" "--kv-type Q8_0" "-t 1" "-t 2" "-t 3" "-c 100" "--ctx 4k" \
    "-n 100" "--max-tokens 100" "--temperature 0" "--seed 5" "--no-think --system=Answer." "--top-k 1 --temp 1 --no-think"; do
    run run --temp 0 $options "$question"
    check "run $options: status $status, '$(cat "$WORK/out")', $(cat "$WORK/err")" '[ $status -eq 0 ] && is "$answer$newline" && figured "end token"'
done
for tier in scalar avx2 avxvnni avx512 avx512vnni neon dotprod i8mm; do
    SKUA_CPU=$tier "$SKUA" run --temp 0 --no-think "$question" </dev/null >"$WORK/out" 2>"$WORK/err"
    status=$?
    sound "SKUA_CPU=$tier"
    if [ $status -eq 0 ]; then
        check "SKUA_CPU=$tier: $(cat "$WORK/out")" 'is "$answer$newline"'
    else
        check "SKUA_CPU=$tier is refused by name" '[ $tier != scalar ] && one_line "CPU tier .$tier. is unknown or not available.*available: .*scalar"'
    fi
done

printf '%s' "$question" >"$WORK/prompt"
printf '%s\n' "$question" >"$WORK/prompt_newline"
for file in prompt prompt_newline; do
    run run --temp 0 -f "$WORK/$file"
    check "from a file ($file)" '[ $status -eq 0 ] && is "$answer$newline"'
    cp "$WORK/$file" "$WORK/in"
    run run --temp 0
    check "from standard input ($file)" '[ $status -eq 0 ] && is "$answer$newline" && figured "end token"'
    run run --temp 0 --file -
    check "from -f - ($file)" '[ $status -eq 0 ] && is "$answer$newline"'
    rm "$WORK/in"
done
(printf 'What is the capital'; sleep 0.2; printf ' of France?') | "$SKUA" run --temp 0 -q >"$WORK/out" 2>"$WORK/err"
check "from a slow pipe" 'is "$answer$newline" && [ ! -s "$WORK/err" ]'

# ---- streams ----

run run --temp 0 -q "$question"
check "--quiet" '[ $status -eq 0 ] && is "$answer$newline" && [ ! -s "$WORK/err" ]'
run run --temp 0 -q --think --show-thinking "$question"
check "--show-thinking: $(cat "$WORK/err")" '[ $status -eq 0 ] && is "$answer$newline" && grep -q "The user asks for the capital of France" "$WORK/err"'
check "no escape sequences and no tags" '! grep -q $'"'"'\x1b\|think>'"'"' "$WORK/err"'
run run --temp 0 -q --special --no-think "$question"
check "--special" 'is "$answer<|im_end|>$newline"'
run run --temp 0 -q --no-think --stop " is" --stop nothing "$question"
check "--stop" 'is "The capital of France$newline"'
run run --temp 0 --no-think -n 2 "$question"
check "-n 2: $(cat "$WORK/out" "$WORK/err")" 'is "The capital$newline" && figured "token limit"'
run run --temp 0 -n 0 "$question"
check "-n 0" '[ $status -eq 0 ] && [ ! -s "$WORK/out" ] && figured "token limit"'
run run --raw --temp 0 -q -n 6 "The capital of France"
cp "$WORK/out" "$WORK/raw"
run logits --prompt "The capital of France" --pos -1 --greedy 6 --json
python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["greedy"], sep=",")' "$WORK/out" >"$WORK/in"
run tokenize --decode --no-special
check "--raw is what skua logits says, without a newline" '[ -s "$WORK/raw" ] && cmp -s "$WORK/out" "$WORK/raw"'
rm "$WORK/in"

# ---- the same seed, the same answer, with any number of threads ----

random=(run -q --raw --temp 1.5 --top-p 1 --top-k 0 -n 60 "Once upon a time")
for seed in 0 1 2 18446744073709551615; do
    run "${random[@]}" --seed $seed -t 1
    cp "$WORK/out" "$WORK/seed_$seed"
    for threads in 1 2 4; do
        run "${random[@]}" -s $seed -t $threads
        check "seed $seed with $threads threads" '[ $status -eq 0 ] && [ -s "$WORK/out" ] && cmp -s "$WORK/out" "$WORK/seed_$seed"'
    done
done
check "seeds differ" '[ "$(md5sum "$WORK"/seed_* | cut -d" " -f1 | sort -u | wc -l)" -eq 4 ]'
run "${random[@]}"
check "the default seed is 0" 'cmp -s "$WORK/out" "$WORK/seed_0"'

# ---- prompts of any bytes ----

head -c 1500 /dev/urandom >"$WORK/binary"
printf 'a\0b\xff\xfe<|im_end|>\n' >"$WORK/zero"
for file in binary zero; do
    for options in "" --raw; do
        run run --temp 0 -q -n 5 $options -f "$WORK/$file"
        check "binary prompt $file $options: status $status $(cat "$WORK/err")" '[ $status -eq 0 ] && [ ! -s "$WORK/err" ] && iconv -f UTF-8 -t UTF-8 "$WORK/out" >/dev/null'
    done
done
refused "an empty raw prompt" 1 "prompt is empty" run --raw ""
refused "a missing prompt file" 1 "$WORK/none: cannot open: No such file" run -f "$WORK/none"
refused "a folder as prompt" 1 "$WORK: cannot read: Is a directory" run -f "$WORK"

# ---- the context limit ----

refused "a prompt that does not fit" 1 "context is full: .* the limit is 5 " run --temp 0 -c 5 "$question"
refused "--ctx is the same" 1 "context is full: .* the limit is 5 " run --temp 0 --ctx 5 "$question"
refused "--ctx=5 too" 1 "context is full: .* the limit is 5 " run --temp 0 --ctx=5 "$question"
run run --temp 0 -q --no-think -c 24 "$question"
check "full in the middle: $status '$(cat "$WORK/out")' $(cat "$WORK/err")" '[ $status -eq 1 ] && [ -s "$WORK/out" ] && one_line "context is full: 24 tokens held and 1 more"'
check "what was said is a beginning of the answer" 'case "$answer" in "$(cat "$WORK/out")"*) true ;; *) false ;; esac'
run run --temp 0 --ctx 8192 --no-think "$question"
check "a context longer than trained: $(cat "$WORK/err")" '[ $status -eq 0 ] && is "$answer$newline" && [ "$(wc -l <"$WORK/err")" -eq 2 ] && [ "$(grep -c "warning: --ctx 8192 is more than the 4096 tokens" "$WORK/err")" -eq 1 ]'
head -c 60000 /dev/zero | tr '\0' 'x' >"$WORK/long"
refused "a long file against the model's own context" 1 "context is full: 0 tokens held and [0-9]+ more asked for, the limit is 4096" run -f "$WORK/long"

# ---- interruption and output that goes nowhere ----

endless=(run -q --raw --temp 2 --top-k 0 --top-p 1 --logit-bias 8175=-100 --logit-bias 8177=-100 "Once upon a time")
python3 - "$SKUA" "${endless[@]}" <<'PY'
import signal, subprocess, sys
p = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
first = p.stdout.read(20)
p.send_signal(signal.SIGINT)
out, err = p.communicate(timeout=60)
sys.exit(not (len(first) == 20 and p.returncode == -signal.SIGINT and err == b""))
PY
check "SIGINT ends a run that is no chat" "[ $? -eq 0 ]"
"$SKUA" "${endless[@]}" 2>"$WORK/err" </dev/null | head -c 30 >"$WORK/out"
status=${PIPESTATUS[0]}
sound "a closed pipe"
check "a closed pipe: status $status, $(cat "$WORK/err")" '[ $status -eq 1 ] && one_line "cannot write to standard output: Broken pipe" && [ "$(wc -c <"$WORK/out")" -eq 30 ]'

finish
