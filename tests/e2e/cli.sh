#!/usr/bin/env bash
# What all commands have in common: help, wrong usage, model files that are none, where the model is searched, output that cannot be
# written, closed streams, too little memory. See lib.bash.
. tests/e2e/lib.bash

model_commands="run inspect tokenize logits imatrix perplexity" # with -m
commands="$model_commands convert quantize shards"

# ---- help ----

run
check "no command" '[ $status -eq 2 ] && [ ! -s "$WORK/out" ] && grep -q "^usage: skua COMMAND" "$WORK/err"'
for help in --help -h help; do
    run $help
    check "skua $help" '[ $status -eq 0 ] && [ ! -s "$WORK/err" ]'
    for c in $commands; do
        check "skua $help names $c" 'grep -qE "^  $c +[a-z]" "$WORK/out"'
    done
done
run --version
check "--version: $(cat "$WORK/out")" '[ $status -eq 0 ] && grep -qE "^skua [0-9]+\.[0-9]+\.[0-9]+$" "$WORK/out"'
for c in $commands; do
    for help in --help -h; do
        run $c $help
        check "$c $help" '[ $status -eq 0 ] && [ ! -s "$WORK/err" ] && grep -q "^usage: skua $c" "$WORK/out" && grep -qE "^example: skua $c " "$WORK/out"'
    done
    check "$c --help in 140 columns" '[ "$(wc -L <"$WORK/out")" -le 140 ]'
    case $c in convert|quantize|imatrix|perplexity|shards) continue ;; esac # their examples name files that are not here
    # what the help shows as an example works
    grep -E "^(example:|        ) *skua $c" "$WORK/out" | sed 's/^example: *//; s/^ *//' >"$WORK/examples"
    while read -r line; do
        case "$line" in *"*.gguf"*) continue ;; esac
        (skua() { "$SKUA" "$@"; }; eval "$line") </dev/null >"$WORK/out" 2>"$WORK/err"
        status=$?
        sound "$line"
        check "example: $line: $status $(head -c 300 "$WORK/err")" '[ $status -eq 0 ] && [ -s "$WORK/out" ]'
    done <"$WORK/examples"
done

# ---- wrong usage: one line, status 2, before any work ----

refused "an unknown command" 2 "unknown command 'walk'" walk
refused "a command with control characters" 2 "unknown command 'a.x1B.m.n'" $'a\x1b[m\n'
for c in $commands; do
    refused "$c --nonsense" 2 "unknown option --nonsense .see skua $c --help." $c --nonsense
    refused "$c -Z" 2 "unknown option -Z" $c -Z
done
for c in $model_commands; do
    refused "$c -m without a value" 2 "option -m needs a value" $c -m
    refused "$c --model without a value" 2 "option --model needs a value" $c --model
done
for c in run logits inspect; do
    for ctx in 0 -1 many 2147483648 99999999999999999999 1.5 "" " 5" 5x 3g; do
        refused "$c --ctx '$ctx'" 2 "--ctx is '$ctx', expected an integer from 1 to 2147483647" $c "--ctx=$ctx"
        refused "$c -c '$ctx'" 2 "--ctx is '$ctx'" $c -c "$ctx"
    done
    refused "$c --ctx without a value" 2 "option --ctx needs a value" $c --ctx
done
while IFS='|' read -r pattern args; do
    eval "refused \"$args\" 2 \"\$pattern\" $args"
done <<'CASES'
--threads is '0', expected an integer from 1 to 256|run -t 0 x
--threads is '257'|run --threads 257 x
--threads is 'two'|logits --ids 1 -t two
--precision 'double' is unknown; expected auto or reference|run --precision double x
--repack 'yes' is unknown; expected auto, on or off|run --repack yes x
--precision '' is unknown|logits --ids 1 --precision ''
--temp is '-1', expected a number from 0 to 2|run --temp -1 x
--temp is '2.5', expected a number from 0 to 2|run --temp 2.5 x
--temp is 'nan', expected a number from 0 to 2|run --temp nan x
--temp is 'warm'|run --temp warm x
--top-p is '1.5', expected a number from 0 to 1|run --top-p 1.5 x
--min-p is '-0.1'|run --min-p -0.1 x
--top-k is '-2'|run --top-k -2 x
--repeat-penalty is '0', expected a number above 0|run --repeat-penalty 0 x
--presence-penalty is '3'|run --presence-penalty 3 x
--frequency-penalty is '-2.1'|run --frequency-penalty -2.1 x
--repeat-last-n is '-5'|run --repeat-last-n -5 x
--seed is '-1', expected an integer from 0 to 18446744073709551615|run --seed -1 x
--seed is '18446744073709551616'|run -s 18446744073709551616 x
--max-tokens is '-5'|run -n -5 x
--logit-bias '5'; expected ID=X|run --logit-bias 5 x
--logit-bias is '101', expected a number from -100 to 100|run --logit-bias 5=101 x
--logit-bias .id. is '-5'|run --logit-bias -5=1 x
--stop '' is empty|run --stop '' x
more than one prompt .'world'.; put the prompt in quotes, and a model's file behind -m|run hello world
'models/tiny-q8_0.gguf' is a file, not a prompt; expected -m|run models/tiny-q8_0.gguf hello
both a prompt and --file|run -f file x
--raw does not go with|run --raw --think x
--raw does not go with|run --raw --system s x
option --raw takes no value|run --raw=5 x
ambiguous option --s|run --s x
one of --ids and --prompt is needed|logits
one of --ids and --prompt is needed|logits --ids 1 --prompt x
unexpected argument 'x'|logits --ids 1 x
--top is '-1'|logits --ids 1 --top -1
--top is '1001'|logits --ids 1 --top 1001
--greedy is '-1'|logits --ids 1 --greedy -1
unexpected argument 'b'|tokenize a b
both an argument and --file|tokenize -f x a
--pieces does not go with --decode|tokenize --pieces --decode 1
--kv-type is 'F64', expected F16, F32, BF16 or Q8_0|inspect --kv-type F64
more than one model|inspect a b
--container needs|inspect --container
-f is missing|perplexity
-f is missing|imatrix out.gguf
OUT.gguf is missing|imatrix -f x
expected a checkpoint's folder and the name|convert
0 arguments, expected three|quantize
nothing to do, expected list, split or merge|shards
CASES
refused "an unknown cache type" 1 "KV cache type 'F64' is not supported; supported: F16, F32, BF16, Q8_0" run --kv-type F64 x
refused "17 stop strings" 2 "--stop more than 16 times" run $(printf -- '--stop x%d ' $(seq 17)) x
refused "a bias for a token that is none" 1 "token 8192" run --logit-bias 8192=1 x

# ---- model files that are none ----

: >"$WORK/empty.gguf"
printf 'PK\003\004 no model, but longer than the header of one' >"$WORK/foreign.gguf"
head -c 1000 "$MODEL" >"$WORK/cut_keys.gguf"
head -c 400000 "$MODEL" >"$WORK/cut_data.gguf"
head -c 17000000 "$MODEL" >"$WORK/cut_end.gguf"
mkdir "$WORK/folder.gguf"
python3 - "$MODEL" "$WORK" <<'PY'
import sys
data = open(sys.argv[1], "rb").read()
at = data.index(b"qwen35", data.index(b"general.architecture"))
open(sys.argv[2] + "/arch.gguf", "wb").write(data[:at] + b"ll\x1b[1m" + data[at + 6:])
at = data.index(b"attn_norm.weight")
open(sys.argv[2] + "/tensor.gguf", "wb").write(data[:at] + b"attn_n\nrm.weight" + data[at + 16:])
open(sys.argv[2] + "/version.gguf", "wb").write(data[:4] + b"\x09" + data[5:])
PY
name=$'control\x1b[31m\n\xff.gguf'
head -c 400000 "$MODEL" >"$WORK/$name"
while IFS='|' read -r file pattern; do
    for c in "run x" "run --raw x" "tokenize x" "logits --ids 1" "perplexity -f README.md" "imatrix -f README.md $WORK/a.dat"; do
        [ "$file" = arch.gguf ] || [ "$file" = tensor.gguf ] && [ "$c" = "tokenize x" ] && continue # needs the vocabulary only
        refused "$c with $file" 1 "$file: $pattern" $c -m "$WORK/$file"
    done
done <<'CASES'
missing.gguf|cannot open: No such file
folder.gguf|is not a regular file
empty.gguf|E_TRUNCATED
foreign.gguf|E_MAGIC
version.gguf|E_VERSION
cut_keys.gguf|E_[A-Z]+
cut_data.gguf|E_RANGE
cut_end.gguf|E_RANGE
arch.gguf|.*architecture.*supported.*qwen35, qwen35moe
tensor.gguf|.*attn_norm.weight. is missing
CASES
for c in "run x" "tokenize x" "logits --ids 1"; do
    refused "$c with a name of control characters" 1 'control.x1B.31m.n.xFF.gguf: E_RANGE' $c -m "$WORK/$name"
done

# ---- where the model is searched ----

mkdir -p "$WORK/here/models" "$WORK/nowhere" "$WORK/beside" "$WORK/tree/bin" "$WORK/tree/models" "$WORK/prefix/bin" "$WORK/prefix/share/skua" "$WORK/bare"
ln -s "$MODEL" "$WORK/here/models/tiny-q8_0.gguf"
for place in beside/skua tree/bin/skua prefix/bin/skua bare/skua; do
    cp "$SKUA" "$WORK/$place"
done
ln -s "$MODEL" "$WORK/beside/tiny-q8_0.gguf"
ln -s "$MODEL" "$WORK/tree/models/tiny-q8_0.gguf"
ln -s "$MODEL" "$WORK/prefix/share/skua/tiny-q8_0.gguf"
ln -s "$WORK/prefix/bin/skua" "$WORK/nowhere/link"
question="What is the capital of France?" answer="The capital of France is Paris."
found() { # name, folder, program
    (cd "$WORK/$2" && "$WORK/$3" run --temp 0 -q --no-think "$question" </dev/null >"$WORK/out" 2>"$WORK/err")
    status=$?
    sound "$1"
    check "$1: $(cat "$WORK/err")" '[ $status -eq 0 ] && [ "$(cat "$WORK/out")" = "$answer" ] && [ ! -s "$WORK/err" ]'
}
found "in ./models" here bare/skua
found "beside the program" nowhere beside/skua
found "in ../models from the program" nowhere tree/bin/skua
found "in PREFIX/share/skua" nowhere prefix/bin/skua
found "through a link to the program" nowhere nowhere/link
for c in "run x" "tokenize x" "logits --ids 1" inspect; do
    (cd "$WORK/nowhere" && "$WORK/bare/skua" $c </dev/null >"$WORK/out" 2>"$WORK/err")
    status=$?
    check "$c: no model anywhere: $(cat "$WORK/err")" '[ $status -eq 1 ] && one_line "no model: give -m MODEL or set SKUA_MODEL .tiny-q8_0.gguf is not in models, $WORK/bare, .*share/skua"'
done
(cd "$WORK/nowhere" && SKUA_MODEL=$MODEL "$WORK/bare/skua" run --temp 0 -q --no-think "$question" </dev/null >"$WORK/out" 2>"$WORK/err")
check "SKUA_MODEL" '[ "$(cat "$WORK/out")" = "$answer" ]'
SKUA_MODEL=$WORK/missing.gguf "$SKUA" run x </dev/null >"$WORK/out" 2>"$WORK/err"
status=$?
check "SKUA_MODEL names a file that is missing" '[ $status -eq 1 ] && one_line "missing.gguf: cannot open"'
SKUA_MODEL=$WORK/missing.gguf "$SKUA" run -m "$MODEL" --temp 0 -q --no-think "$question" </dev/null >"$WORK/out" 2>"$WORK/err"
check "-m wins over SKUA_MODEL" '[ "$(cat "$WORK/out")" = "$answer" ]'
SKUA_MODEL= "$SKUA" run --temp 0 -q --no-think "$question" </dev/null >"$WORK/out" 2>"$WORK/err"
check "an empty SKUA_MODEL is none" '[ "$(cat "$WORK/out")" = "$answer" ]'

# ---- output that cannot be written, streams that are closed ----

# A descriptor that is open for reading only fails each write on every machine; /dev/full is missing on some.
while read -r args; do
    for where in unwritable closed pipe; do
        case $where in
        unwritable) eval "\"$SKUA\" $args" </dev/null 1</dev/null 2>"$WORK/err"; status=$? why="Bad file descriptor" ;;
        closed) eval "\"$SKUA\" $args" </dev/null >&- 2>"$WORK/err"; status=$? why="Bad file descriptor" ;;
        pipe) (exec 3> >(:); sleep 0.3; eval "\"$SKUA\" $args" </dev/null >&3 2>"$WORK/err"; echo $? >"$WORK/status"); status=$(cat "$WORK/status") why="Broken pipe" ;;
        esac
        sound "$args into $where"
        check "$args into $where: $status $(head -c 300 "$WORK/err")" '[ $status -eq 1 ] && one_line "cannot write to standard output"'
        case $args in inspect*) ;; *) check "$args into $where: the reason: $(head -c 300 "$WORK/err")" 'grep -q "$why" "$WORK/err"' ;; esac
    done
done <<'CASES'
run -q --temp 0 --no-think hello
tokenize hello
tokenize --decode --json 1,2
tokenize --pieces hello
logits --ids 1,2
logits --ids 1,2 --json
inspect
inspect --json
inspect --container models/tiny-q8_0.gguf
run --help
tokenize --help
logits --help
inspect --help
convert --help
quantize --help
imatrix --help
perplexity --help
shards --help
shards list models/tiny-q8_0.gguf
--help
--version
CASES
"$SKUA" logits --ids 1,2,3 --json --dump "$WORK/rows" </dev/null >&- 2>"$WORK/err"
check "a closed standard output does not become the dump" '[ "$(stat -c %s "$WORK/rows")" -eq $((3 * 8192 * 4)) ]'
"$SKUA" run --temp 0 --no-think "$question" </dev/null 2>&- >"$WORK/out"
check "a closed standard error" '[ $? -eq 0 ] && [ "$(cat "$WORK/out")" = "$answer" ]'
"$SKUA" tokenize <&- >"$WORK/out" 2>"$WORK/err"
check "a closed standard input is empty" '[ $? -eq 0 ] && [ "$(cat "$WORK/out")" = "" ]'
refused "a dump into a folder that is missing" 1 "$WORK/none/rows[^ ]*: cannot create: No such file" logits --ids 1 --dump "$WORK/none/rows"

# ---- too little memory: an answer or one line ----

if sanitized; then
    skip "too little memory: the sanitizer reserves more than any limit"
else
    answers=0 refusals=0
    for kib in $(seq 30000 5000 150000); do
        (ulimit -v "$kib"; exec "$SKUA" run -t 2 --temp 0 -q --no-think "$question" </dev/null >"$WORK/out" 2>"$WORK/err")
        status=$?
        sound "with $kib KiB"
        if [ $status -eq 0 ]; then
            check "with $kib KiB: an answer" '[ "$(cat "$WORK/out")" = "$answer" ] && [ ! -s "$WORK/err" ]'
            answers=$((answers + 1))
        else
            check "with $kib KiB: status $status, $(cat "$WORK/err")" '[ $status -eq 1 ] && one_line "out of memory|Cannot allocate memory|cannot start"'
            refusals=$((refusals + 1))
        fi
    done
    check "$answers answers, $refusals refusals" '[ $answers -gt 3 ] && [ $refusals -gt 1 ]'
fi

finish
