#!/usr/bin/env bash
# skua shards: split, list, merge; the parts run like the whole and give it back byte for byte; mistakes. See lib.bash.
. tests/e2e/lib.bash
moe=$(realpath tests/data/tiny-moe-q8_0.gguf)
cd "$WORK" || exit 1

run shards --help
check "help" '[ $status -eq 0 ] && grep -q "^example: skua shards split" out'

for model in "$moe" "$MODEL"; do
    limits=("--max-size 4m" "--max-size 9000K" "--max-tensors 25" "--max-tensors 1000" "--max-size 1G")
    [ "$model" = "$MODEL" ] && limits=("--max-size 4m")
    for limit in "${limits[@]}"; do
        rm -f ./*.gguf
        # shellcheck disable=SC2086 # two words
        run shards split "$model" p/../part $limit
        check "no folder yet: status $status" '[ $status -eq 1 ]'
        # shellcheck disable=SC2086
        run shards split "$model" part $limit
        check "split $limit: $(cat err)" '[ $status -eq 0 ] && [ ! -s err ]'
        cp out told
        first=$(ls part-00001-of-*.gguf)
        n=$(ls part-*.gguf | wc -l)
        check "the list tells every file" '[ "$(grep -c "part-0000[0-9]-of-0000$n.gguf$" told)" -eq "$n" ] && [ "$(tail -n 1 told | awk "{print \$3}")" -eq "$(cat part-* | wc -c)" ]'
        case $limit in
        "--max-size 4m") check "4m: $n parts" '[ "$n" -ge 5 ] && [ -z "$(find . -name "part-*" -size +4194304c)" ]' ;;
        "--max-size 9000K") check "9000K: $n parts" '[ "$n" -ge 2 ] && [ -z "$(find . -name "part-*" -size +9216000c)" ]' ;;
        "--max-tensors 25") check "25 tensors: $n parts" '[ "$n" -ge 4 ]' ;;
        *) check "one part" '[ "$n" -eq 1 ]' ;;
        esac
        run inspect --container "$first"
        check "the reader takes them" '[ $status -eq 0 ] && [ "$(cat out)" = ok ]'
        run shards list "$first"
        check "list" '[ $status -eq 0 ] && sed "s| \./| |" out | cmp - told'
        run shards list --json "$first"
        echo "$n" >n
        json_check "list --json" "$WORK/out" <<'EOF'
len(d["shards"]) == int(open(WORK + "/n").read()) and d["tensors"] == sum(s["tensors"] for s in d["shards"])
all(os.path.getsize(WORK + "/" + s["file"]) == s["bytes"] for s in d["shards"])
EOF
        if [ "$n" -gt 1 ]; then
            run shards merge "$first" again.gguf
            check "merge: $(cat err)" '[ $status -eq 0 ] && [ ! -s err ] && cmp again.gguf "$model"'
            check "one line" '[ "$(wc -l <out)" -eq 1 ] && grep -q "^again.gguf: [0-9]* tensors of $n shards$" out'
        else
            refused "merge of one" 1 "$first: is a whole file, expected the first of several shards" shards merge "$first" again.gguf
        fi
        if [ "$limit" = "--max-size 4m" ]; then
            run run -m "$first" -q --temp 0 -n 8 --no-think "What is the capital of France?"
            cp out parts_answer
            run run -m "$model" -q --temp 0 -n 8 --no-think "What is the capital of France?"
            check "the parts answer like the whole" 'cmp out parts_answer && [ -s out ]'
        fi
    done
done

# tensors, or metadata, larger than the limit
rm -f ./*.gguf
run shards split "$MODEL" part --max-size 100k
check "too small a limit: $(head -n 1 err)" '[ $status -eq 0 ] && head -n 1 err | grep -q "^skua shards: warning: shard 1 is larger than --max-size, as the metadata alone is$" && grep -q "as its tensor alone is$" err'
first=$(ls part-00001-of-*.gguf)
run shards merge "$first" again.gguf
check "and back" '[ $status -eq 0 ] && cmp again.gguf "$MODEL"'

# ---- mistakes ----

second=${first/-00001-/-00002-}
refused "nothing to do" 2 "expected list, split or merge" shards
refused "unknown action" 2 "'join' is no action, expected list, split or merge" shards join a b
refused "list of nothing" 2 "list with 0 arguments, expected 1" shards list
refused "split without limit" 2 "split needs --max-size SIZE or --max-tensors N" shards split "$MODEL" x
refused "limit of merge" 2 "--max-size and --max-tensors are for 'split'" shards merge "$first" x --max-size 1m
refused "JSON of split" 2 "--json is for 'list'" shards split "$MODEL" x --max-tensors 3 --json
refused "size 0" 2 "--max-size is '0'" shards split "$MODEL" x --max-size 0
refused "size of words" 2 "--max-size is 'big'" shards split "$MODEL" x --max-size big
refused "no file" 1 "nowhere.gguf: cannot open" shards split nowhere.gguf x --max-tensors 3
refused "second part" 1 "open the first one, '$first'" shards list "$second"
refused "already there" 1 "$first: is there already" shards split "$MODEL" part --max-size 100k
refused "merge onto a part" 1 "$second: is the input" shards merge "$first" "$second"
check "as before" 'cmp again.gguf "$MODEL"'
mv "$second" away
refused "a part is missing" 1 "$second" shards merge "$first" x.gguf
mv away "$second"
cp "${first/-00001-/-00003-}" "$second"
refused "a part twice" 1 "E_SPLIT.*split.no is 2, expected 1" shards merge "$first" x.gguf
(
    trap '' XFSZ # the limit on a file's size stands for a full disk
    ulimit -f 2000
    "$SKUA" shards split "$MODEL" full --max-size 8m >out 2>err
    echo $? >full_status
)
check "a full disk: $(cat err)" '[ "$(cat full_status)" = 1 ] && [ ! -s out ] && one_line "full-00001-of-0000[0-9].gguf: cannot write: "'
check "nothing is left: $(ls)" '! ls x* full-* ./*.tmp.* >/dev/null 2>&1'

finish
