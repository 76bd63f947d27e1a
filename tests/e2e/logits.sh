#!/usr/bin/env bash
# skua logits: the fields of the JSON object, the options, dumps, and the numbers against each other and against the shared reference values.
# See lib.bash.
. tests/e2e/lib.bash

# ---- fields ----

run logits --ids 785,1420,302 --json
json_check "the object" "$WORK/out" <<'EOF'
list(d) == ["ids", "positions"] and d["ids"] == [785, 1420, 302]
[p["pos"] for p in d["positions"]] == [0, 1, 2]
all(list(p) == ["pos", "logsumexp", "mean", "std", "top"] for p in d["positions"])
all(len(p["top"]) == 10 and all(len(t) == 2 and isinstance(t[0], int) and isinstance(t[1], float) for t in p["top"]) for p in d["positions"])
all(p["top"] == sorted(p["top"], key=lambda t: (-t[1], t[0])) and p["logsumexp"] > p["top"][0][1] for p in d["positions"])
EOF
check "one line of JSON and nothing on standard error" '[ $status -eq 0 ] && [ "$(wc -l <"$WORK/out")" -eq 1 ] && [ ! -s "$WORK/err" ]'
cp "$WORK/out" "$WORK/three"
for ids in "785 1420 302" "[785, 1420, 302]" "785,1420,302,"; do
    run logits --ids "$ids" --json
    check "--ids '$ids'" 'cmp -s "$WORK/out" "$WORK/three"'
done
for threads in 1 3; do
    run logits --ids 785,1420,302 --json -t $threads
    check "$threads threads" 'cmp -s "$WORK/out" "$WORK/three"'
done

run logits --prompt "What is the capital of France? It is" --pos 0,5,-1 --top 3 --layers --greedy 4 --mtp --dump "$WORK/rows" --json
cp "$WORK/out" "$WORK/all"
json_check "everything at once" "$WORK/out" <<'EOF'
list(d) == ["ids", "positions", "layers_last_pos", "mtp_last", "greedy", "greedy_margin"]
[p["pos"] for p in d["positions"]] == [0, 5, len(d["ids"]) - 1] and all(len(p["top"]) == 3 for p in d["positions"])
len(d["layers_last_pos"]) == 8 and all(len(row) == 7 and row[0] > 0 for row in d["layers_last_pos"])
all(sum(x * x for x in row[1:]) <= row[0] ** 2 for row in d["layers_last_pos"])
list(d["mtp_last"]) == ["top"] and len(d["mtp_last"]["top"]) == 5
1 <= len(d["greedy"]) <= 4 and len(d["greedy_margin"]) == len(d["greedy"]) and all(m >= 0 for m in d["greedy_margin"])
d["greedy"][0] == d["positions"][-1]["top"][0][0]
near(d["greedy_margin"][0], d["positions"][-1]["top"][0][1] - d["positions"][-1]["top"][1][1], 1e-4)
os.path.getsize(WORK + "/rows") == 3 * 8192 * 4
EOF
python3 - "$WORK/all" "$WORK/rows" <<'PY'
import array, json, math, sys
d = json.load(open(sys.argv[1]))
rows = array.array("f", open(sys.argv[2], "rb").read())
good = True
for i, p in enumerate(d["positions"]):
    row = rows[i * 8192:(i + 1) * 8192]
    best = sorted(range(8192), key=lambda k: (-row[k], k))[:3]
    top = max(row)
    mean = sum(row) / 8192
    std = math.sqrt(sum((x - mean) ** 2 for x in row) / 8191)
    good &= best == [t[0] for t in p["top"]] and all(abs(row[t[0]] - t[1]) < 1e-5 for t in p["top"])
    good &= abs(top + math.log(sum(math.exp(x - top) for x in row)) - p["logsumexp"]) < 1e-5
    good &= abs(mean - p["mean"]) < 1e-5 and abs(std - p["std"]) < 1e-5
sys.exit(not good)
PY
check "the dump holds the rows of which the JSON tells" "[ $? -eq 0 ]"
run logits --prompt "What is the capital of France? It is" --json --top 0 --dump "$WORK/every"
json_check "--top 0, all positions" "$WORK/out" <<'EOF'
all(p["top"] == [] for p in d["positions"]) and len(d["positions"]) == len(d["ids"])
os.path.getsize(WORK + "/every") == len(d["ids"]) * 8192 * 4
EOF
check "a row is the same alone and among all" 'cmp -s <(tail -c 32768 "$WORK/every") <(tail -c 32768 "$WORK/rows") && cmp -s <(head -c 32768 "$WORK/every") <(head -c 32768 "$WORK/rows")'
run logits --prompt "What" --mtp --json
json_check "MTP needs two tokens" "$WORK/out" <<<'len(d["ids"]) == 1 and "mtp_last" not in d'
run logits --prompt "<|im_start|>user" --pos -1 --json
json_check "special tokens are recognised" "$WORK/out" <<<'len(d["ids"]) == 2'
run logits --prompt "<|im_start|>user" --no-special --pos -1 --json
json_check "--no-special" "$WORK/out" <<<'len(d["ids"]) > 4'
printf 'What is the capital of France? It is' >"$WORK/in"
run logits --prompt - --pos 0,5,-1 --top 3 --layers --greedy 4 --mtp --json
check "--prompt - reads standard input" 'cmp -s "$WORK/out" "$WORK/all"'
rm "$WORK/in"
run logits --prompt $'<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n' --greedy 48 --pos -1 --json
json_check "--greedy stops behind the end token" "$WORK/out" <<<'d["greedy"][-1] == 8177 and 8177 not in d["greedy"][:-1] and len(d["greedy_margin"]) == len(d["greedy"]) == 10'

# ---- the table ----

run logits --ids 1,8177 --pos -1 --top 2 --layers --mtp --greedy 1
check "the table: $(head -c 300 "$WORK/out")" '[ $status -eq 0 ] && grep -qE "^position 1, after .<.im_end.>.: logsumexp -?[0-9.]+, mean -?[0-9.]+, std [0-9.]+$" "$WORK/out" &&
    [ "$(grep -cE "^    +[0-9]+ +-?[0-9.]+  .*" "$WORK/out")" -eq 7 ] && [ "$(grep -c "^layer " "$WORK/out")" -eq 8 ] && grep -q "^MTP block" "$WORK/out" && grep -qE "^greedy 0: [0-9]+, margin" "$WORK/out"'
run logits --ids "$(seq -s, 0 300)" --top 1
check "no control characters in the table" '! LC_ALL=C grep -q $'"'"'[\x01-\x09\x0b-\x1f\x7f]'"'"' "$WORK/out" && iconv -f UTF-8 -t UTF-8 "$WORK/out" >/dev/null && [ "$(wc -l <"$WORK/out")" -eq 602 ]'

# ---- what is refused ----

refused "an id that is none" 1 "token id 8192 .number 1. is outside the vocabulary of 8192 tokens" logits --ids 1,8192
refused "a negative id" 1 "token id -1 is out of range" logits --ids=-1
refused "an id that is no number" 1 "'x' is no number; expected a list like 1,2,3" logits --ids 1,x
refused "a range" 1 "'1-3' is no number" logits --ids 1-3
refused "a huge id" 1 "'99999999999' is no number" logits --ids 99999999999
refused "no ids" 1 "no tokens" logits --ids ""
refused "no prompt" 1 "no tokens" logits --prompt ""
refused "a position behind the end" 1 "--pos 3 is outside the 3 tokens .expected -3 to 2." logits --ids 1,2,3 --pos 3
refused "a position before the begin" 1 "--pos -4 is outside the 3 tokens" logits --ids 1,2,3 --pos=-4
refused "a position that is no number" 1 "--pos: 'last' is no number" logits --ids 1,2,3 --pos last
refused "a context that is too short" 1 "context is full: 0 tokens held and 3 more asked for, the limit is 2 " logits --ids 1,2,3 -c 2
refused "--ctx is the same" 1 "the limit is 2 " logits --ids 1,2,3 --ctx 2
refused "too short for the continuation" 1 "context is full: 4 tokens held and 1 more" logits --ids 1,2,3 --ctx 4 --greedy 5
refused "many tokens" 1 "context is full: .*the limit is 4096" logits --prompt "$(head -c 120000 /dev/zero | tr '\0' 'a')"
run logits --ids 1,2,3 --ctx 5000 --pos -1
check "a context longer than trained" '[ $status -eq 0 ] && one_line "warning: --ctx 5000 is more than the 4096 tokens"'

# ---- against the shared reference values ----

compare() { # model, golden file, precision, tolerance of logits
    local model="$SHARED/models/$1" golden="$SHARED/golden/$2" ids
    if [ ! -f "$model" ] || [ ! -f "$golden" ]; then
        skip "$model or $golden is absent"
        return
    fi
    ids=$(python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))[0]["ids"], sep=",")' "$golden")
    run logits -m "$model" --ids "$ids" --layers --greedy 48 --mtp --json --precision "$3"
    python3 - "$golden" "$WORK/out" "$4" "$3" <<'PY'
import json, sys
g = json.load(open(sys.argv[1]))[0]
d, tolerance, reference = json.load(open(sys.argv[2])), float(sys.argv[3]), sys.argv[4] == "reference"
worst, good = 0, True
at = {p["pos"]: p for p in d["positions"]}
for p in g["positions"]:
    mine = dict(at[p["pos"]]["top"])
    worst = max([worst] + [abs(mine[i] - x) for i, x in p["top"] if i in mine])
    if reference:
        worst = max(worst, abs(at[p["pos"]]["logsumexp"] - p["logsumexp"]))
        good &= at[p["pos"]]["top"][0][0] == p["top"][0][0]
if reference:
    for a, b in zip(d["layers_last_pos"], g["layers_last_pos"], strict=True):
        worst = max([worst] + [abs(x - y) for x, y in zip(a, b)])
    if g.get("mtp_last"):
        mine = dict(d["mtp_last"]["top"])
        theirs = g["mtp_last"]["top"] if isinstance(g["mtp_last"], dict) else g["mtp_last"]
        worst = max([worst] + [abs(mine[i] - x) for i, x in theirs])
    for a, b, m in zip(d["greedy"], g["greedy"], g["greedy_margin"]):
        if m <= 0.01:
            break
        good &= a == b
print(f"{sys.argv[1].split('/')[-1]}, {sys.argv[4]}: worst {worst:.2g}")
sys.exit(not (good and worst <= tolerance))
PY
    check "$1 against $2, $3" "[ $? -eq 0 ]"
}
compare tiny-bf16.gguf dense-public.json reference 1e-3
compare tiny-q8_0.gguf dense-q8_0-public.json reference 1e-3
compare tiny-moe-q8_0.gguf moe-q8_0-public.json reference 1e-3
compare tiny-q8_0.gguf dense-q8_0-public.json auto 0.16
compare tiny-moe-q8_0.gguf moe-q8_0-public.json auto 0.96

finish
