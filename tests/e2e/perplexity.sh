#!/usr/bin/env bash
# skua perplexity: the mean log-likelihoods of the goldens, saved predictions and the distance from them, and one line for every mistake. See
# lib.bash.
. tests/e2e/lib.bash
moe=$(realpath tests/data/tiny-moe-q8_0.gguf)
[ -d "$SHARED" ] && SHARED=$(realpath "$SHARED")
cd "$WORK" || exit 1
python3 - <<'PY' >text.txt
names, things, places = "Anna Ben Clara David Grace".split(), "apples books coins keys drums".split(), "garden house market harbour".split()
for i in range(110):
    print(f"{names[i % 5]} has {(i * 37) % 97} {things[i * 3 % 5]} in the {places[i * 7 % 4]}.", end="\n" if i % 9 == 0 else " ")
PY

# ---- goldens: every token of a prompt but the first is scored, in float32 by another implementation ----

prompts="0 2 4" # the others are longer
sanitized && prompts=0
for pair in tiny-bf16:dense-public tiny-q8_0:dense-q8_0-public tiny-moe-q8_0:moe-q8_0-public; do
    model=$SHARED/models/${pair%:*}.gguf golden=$SHARED/golden/${pair#*:}.json
    if [ ! -f "$model" ] || [ ! -f "$golden" ]; then
        skip "$pair"
        continue
    fi
    for i in $prompts; do
        n=$(python3 - "$golden" $i <<'PY'
import json, sys
g = json.load(open(sys.argv[1]))[int(sys.argv[2])]
open("prompt.txt", "w").write(g["prompt"])
json.dump(g["mean_nll"], open("nll", "w"))
print(len(g["ids"]))
PY
)
        run perplexity -m "$model" -f prompt.txt --special --chunk-size "$n" --score-from 0 --precision reference --json
        json_check "${pair%:*}, prompt $i" "$WORK/out" <<'EOF'
d["chunks"] == 1 and d["tokens_scored"] == d["chunk_size"] - 1
near(d["mean_nll"], json.load(open(WORK + "/nll")), 1e-5)
EOF
    done
done

# ---- output ----

run perplexity --help
check "help" '[ $status -eq 0 ] && [ ! -s err ] && grep -q "^example: skua perplexity" out && grep -q "llama.cpp" out'
run perplexity -m "$MODEL" -f text.txt --chunk-size 128 --save-base base.logp
check "text: $(cat err out)" '[ $status -eq 0 ] && [ ! -s err ] && grep -qE "^[0-9]+ chunks of 128 tokens, [0-9]+ tokens scored$" out && grep -qE "^perplexity +[0-9.]+ \+/- [0-9.]+$" out && [ "$(wc -l <out)" -eq 2 ]'
cp out first
run perplexity -m "$MODEL" -f text.txt --chunk-size 128 -t 1
check "one thread: the same" '[ $status -eq 0 ] && cmp -s out first'
run perplexity -m "$MODEL" -f text.txt --chunk-size 128 --json -t 1
cp out plain.json
json_check "JSON" "$WORK/out" <<'EOF'
d["score_from"] == 64 and d["tokens_scored"] == 63 * d["chunks"] and d["chunks"] > 5
near(d["perplexity"], 2.718281828459045 ** d["mean_nll"], 1e-6 * d["perplexity"]) and near(d["perplexity_error"], d["perplexity"] * d["mean_nll_error"], 1e-9)
"base" not in d
EOF
run perplexity -m "$MODEL" -f text.txt --chunk-size 128 --kl-base base.logp --json
json_check "against itself" "$WORK/out" <<'EOF'
d["mean_nll"] == json.load(open(WORK + "/plain.json"))["mean_nll"]
0 <= d["base"]["kl_divergence"]["mean"] <= d["base"]["kl_divergence"]["max"] <= 3e-7
abs(d["base"]["ln_perplexity_ratio"]) < 1e-6 and d["base"]["same_best"] == 1 and d["base"]["delta_p_rms"] < 1e-6
near(d["base"]["perplexity"], d["perplexity"], 1e-4)
EOF
run perplexity -m "$MODEL" -f text.txt --chunk-size 128 --chunks 2 --kl-base base.logp --json --precision reference
json_check "against another precision, with fewer chunks" "$WORK/out" <<'EOF'
d["chunks"] == 2 and d["base"]["kl_divergence"]["mean"] > 1e-9
(lambda k: k["median"] <= k["p90"] <= k["p95"] <= k["p99"] <= k["p99.9"] <= k["max"] < 0.1)(d["base"]["kl_divergence"])
0 < d["base"]["delta_p_rms"] < 0.1 and d["base"]["delta_p_rms"] >= abs(d["base"]["delta_p_mean"]) and d["base"]["same_best"] > 0.9
EOF
run perplexity -m "$MODEL" -f text.txt --chunk-size 128 --kl-base base.logp
check "text with a base" '[ $status -eq 0 ] && [ "$(wc -l <out)" -eq 14 ] && grep -q "same best token  *100.000 % +/- 0.000 %" out'
run perplexity -m "$MODEL" -f text.txt --chunk-size 128 --save-base again.logp --kl-base base.logp
check "saved again: the same bytes" '[ $status -eq 0 ] && cmp -s base.logp again.logp'
run perplexity -m "$MODEL" -f text.txt --chunk-size 3 --chunks 1 --json
json_check "one token" "$WORK/out" <<'EOF'
d["tokens_scored"] == 1 and d["mean_nll_error"] is None
EOF
cp text.txt in
run perplexity -m "$MODEL" -f - --chunk-size 128
rm in
check "standard input" '[ $status -eq 0 ] && cmp -s out first'

# ---- mistakes ----

refused "no such base" 1 "none.logp: cannot open" perplexity -m "$MODEL" -f text.txt --kl-base none.logp
refused "no base" 1 "text.txt: is no file of base log-probabilities" perplexity -m "$MODEL" -f text.txt --kl-base text.txt
head -c 5000 base.logp >cut.logp
refused "half a base" 1 "cut.logp: 5000 bytes do not fit its header" perplexity -m "$MODEL" -f text.txt --chunk-size 128 --kl-base cut.logp
refused "other chunks" 1 "base base.logp: has chunks of 128 tokens, --chunk-size is 64" perplexity -m "$MODEL" -f text.txt --chunk-size 64 --kl-base base.logp
refused "another part" 1 "base base.logp: is scored from position 64, this run from 5" perplexity -m "$MODEL" -f text.txt --chunk-size 128 --score-from 5 --kl-base base.logp
sed 's/Clara/Klara/' text.txt >other.txt
refused "another text" 1 "base base.logp: is of another text: its token [0-9]+ is [0-9]+, that of 'other.txt' is [0-9]+" perplexity -m "$MODEL" -f other.txt --chunk-size 128 --kl-base base.logp
cat text.txt text.txt >twice.txt
refused "more text" 1 "base base.logp: has [0-9]+ chunks, fewer than the [0-9]+ to evaluate|is of another text" perplexity -m "$MODEL" -f twice.txt --chunk-size 128 --kl-base base.logp
python3 - <<'PY'
import struct
b = bytearray(open("base.logp", "rb").read())
n, size, start, chunks = struct.unpack_from("<4I", b, 12)
rows, row = chunks * (size - 1 - start), (12 + 2 * n + 3) // 4 * 4
at = 32 + 4 * chunks * size
short = (12 + 2 * (n - 2) + 3) // 4 * 4 # the same for a vocabulary of two tokens less, by ids that are below
out = b[:at] + b"".join(b[at + i * row:at + i * row + short] for i in range(rows))
struct.pack_into("<I", out, 12, n - 2)
open("vocabulary.logp", "wb").write(out)
b[at:at + 4] = struct.pack("<f", float("nan"))
open("nan.logp", "wb").write(b)
PY
refused "another vocabulary" 1 "base vocabulary.logp: has a vocabulary of [0-9]+ tokens, the model one of [0-9]+" perplexity -m "$MODEL" -f text.txt --chunk-size 128 --kl-base vocabulary.logp
refused "a broken row" 1 "base nan.logp: row 0: a step of nan" perplexity -m "$MODEL" -f text.txt --chunk-size 128 --kl-base nan.logp
: >empty.txt
refused "empty text" 1 "empty.txt: is empty; expected a text of at least 512 tokens" perplexity -m "$MODEL" -f empty.txt
echo "Too short." >short.txt
refused "short text" 1 "short.txt: [0-9]+ tokens do not fill one chunk of 512" perplexity -m "$MODEL" -f short.txt
refused "no such text" 1 "none.txt: cannot open" perplexity -m "$MODEL" -f none.txt
refused "no such folder" 1 "none/a.logp" perplexity -m "$MODEL" -f text.txt --save-base none/a.logp
refused "nothing to score" 2 "scoring from position 127 leaves nothing of chunks of 128 tokens; expected at most 126" perplexity -m "$MODEL" -f text.txt --chunk-size 128 --score-from 127
refused "tiny chunks" 2 "leaves nothing of chunks of 2 tokens; expected at most 0" perplexity -m "$MODEL" -f text.txt --chunk-size 2
refused "no text" 2 "-f is missing" perplexity -m "$MODEL"
refused "an argument" 2 "unexpected argument 'x'" perplexity -m "$MODEL" -f text.txt x
"$SKUA" perplexity -m "$MODEL" -f twice.txt --chunk-size 256 -t 1 --save-base stopped.logp >out 2>err &
pid=$!
for _ in $(seq 100); do ls | grep -q "stopped.logp.tmp" && break; sleep 0.02; done
kill -TERM $pid
wait $pid
status=$?
if [ $status -eq 0 ]; then
    skip "the interruption came too late"
else
    sound "interrupted"
    check "interrupted: $status $(cat err)" '[ $status -eq 1 ] && one_line "interrupted in chunk [0-9]+ of [0-9]+" && ! ls | grep -q "stopped"'
fi

finish
