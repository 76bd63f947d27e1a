#!/usr/bin/env bash
# skua bench and skua run --profile: what is measured and reported, files, and one line for every mistake; never how long it took. See
# lib.bash.
. tests/e2e/lib.bash
cd "$WORK" || exit 1
b() { run bench -m "$MODEL" --buffer 1m -r 2 "$@"; }
number='[0-9]+\.[0-9]+'

# ---- reports ----

run bench --help
check "help" '[ $status -eq 0 ] && [ ! -s err ] && grep -q "^example: skua bench" out && grep -q -- "--spec-sim" out && [ "$(wc -L <out)" -le 140 ]'
b --pp 8,16 --tg 3 --depth 0,20 --batch 4,2 --seqs 2,3 --batch-depth 20 --draft auto --spec-sim 0,1 --profile --json all.json --csv all.csv --plot all.svg
check "everything: $(cat err)" '[ $status -eq 0 ] && grep -qx "skua bench: drafting: mtp (bundled), lookup; as far as it is measured to pay" err && [ "$(wc -l <err)" = 1 ]'
check "table" '(for s in prefill "decode, one step" "batch, one held step" "sequences decoded" "speculation with simulated" "kernels of the matrix" "profile of the measured" "memory  "; do grep -q "^$s" out || exit 1; done)'
check "table: decode" 'grep -qE "^ +3 +20 +$number +$number +$number +$number +$number +$number +$number +$number +$number% +$number%$" out'
check "table: T(1) beside the decode step" 'grep -qE "T\(1\) is [+-]$number % off" out'
json_check "JSON" all.json <<'EOF'
set(d) == {"version", "machine", "model", "bandwidth", "kernels", "pp", "tg", "batch", "seqs", "spec_sim", "profile"}
[(r["tokens"], r["depth"], r["samples"]) for r in d["pp"]] == [(8, 0, 2), (16, 0, 2), (8, 20, 2), (16, 20, 2)]
[(r["tokens"], r["depth"], r["samples"]) for r in d["tg"]] == [(3, 0, 6), (3, 20, 6)]
[(r["rows"], r["depth"], r["samples"]) for r in d["batch"]] == [(1, 20, 4), (2, 20, 2), (4, 20, 2)]
[(r["seqs"], r["samples"]) for r in d["seqs"]] == [(1, 4), (2, 2), (3, 2)]
all(0 < r["min_ms"] <= r["ms"] <= r["max_ms"] and 0 <= r["mad_ms"] <= r["max_ms"] - r["min_ms"] for k in ("pp", "tg", "batch", "seqs") for r in d[k])
all(near(r["t_s"], 1000 * r["tokens"] / r["ms"], 1e-6 * r["t_s"]) for r in d["pp"]) and all(near(r["t_s"], 1000 / r["ms"], 1e-6 * r["t_s"]) for r in d["tg"])
all(near(r["bound_ms"], r["bytes"] / d["bandwidth"]["gb_s"] / 1e6, 1e-6 * r["bound_ms"]) and near(r["percent"], 100 * r["bound_ms"] / r["ms"], 1e-6 * r["percent"]) and r["percent_beside"] > 0 for r in d["tg"])
d["tg"][1]["bytes"] - d["tg"][0]["bytes"] == 20 * 2 * 2 * 2 * 256 * 2
d["model"]["file_bytes"] > d["tg"][0]["bytes"] - 2 * d["model"]["state_bytes"] > 0.8 * d["model"]["file_bytes"]
d["batch"][0]["ratio"] == 1 and d["seqs"][0]["ratio"] == 1 and all(r["ratio"] > 0 for r in d["batch"] + d["seqs"])
[s["p"] for s in d["spec_sim"]] == [0, 1] and all(s["plain_tokens"] == 64 <= s["tokens"] and s["ratio"] > 0 for s in d["spec_sim"])
d["spec_sim"][0]["tokens"] == d["spec_sim"][0]["rounds"] and d["spec_sim"][1]["tokens"] == d["spec_sim"][1]["rounds"] + d["spec_sim"][1]["verified"]
all(s["verified"] <= s["drafted"] and s["draft_seconds"] + s["verify_seconds"] + s["commit_seconds"] <= s["seconds"] for s in d["spec_sim"])
d["bandwidth"]["gb_s"] == max(d["bandwidth"]["ways"].values()) == d["bandwidth"]["ways"][d["bandwidth"]["best"]] and d["bandwidth"]["buffer_bytes"] == 1 << 20
{(k["role"], k["type"], k["rows"]) for k in d["kernels"]} >= {("output", "Q8_0", "12 bits per 32"), ("ffn_down", "Q8_0", "12 bits per 32"), ("ssm_alpha", "F32", "float32")}
all(k["tier"] == d["machine"]["kernels"] for k in d["kernels"]) and sum(k["matrices"] for k in d["kernels"]) == 8 * 3 + 6 * 5 + 2 * 4 + 1
(d["profile"]["prefill"]["passes"], d["profile"]["prefill"]["rows"]) == (8, 2 * 2 * 24) and d["profile"]["decode"]["passes"] == d["profile"]["decode"]["rows"] == 12
all(near(sum(o["share"] for o in d["profile"][k]["ops"]), 1, 1e-9) and near(sum(o["ms"] for o in d["profile"][k]["ops"]), d["profile"][k]["ms"], 1e-6) for k in ("prefill", "decode"))
EOF
python3 - <<'PY' >csv_says
import csv, json
rows = list(csv.DictReader(open("all.csv")))
d = json.load(open("all.json"))
assert len(rows) == len(d["pp"]) + len(d["tg"]) + len(d["batch"]) + len(d["seqs"])
for kind in ("pp", "tg", "batch", "seqs"):
    mine = [r for r in rows if r["kind"] == kind]
    assert all(abs(r["ms"] - float(m["median_ms"])) < 1e-6 for r, m in zip(d[kind], mine, strict=True)), kind
    assert all(None not in r and None not in r.values() for r in mine), kind
print("yes")
PY
check "CSV" '[ "$(cat csv_says)" = yes ]'
check "SVG" 'python3 -c "import xml.dom.minidom as m; assert len(m.parse(\"all.svg\").getElementsByTagName(\"circle\")) == 4 + 2 + 3"'

b --tg 2 --json -
json_check "only what is asked for" "$WORK/out" <<'EOF'
len(d["tg"]) == 1 and d["tg"][0]["depth"] == 0 and not d["pp"] and not d["batch"] and not d["seqs"] and not d["spec_sim"] and "profile" not in d
EOF
b --pp 5 --csv -
check "CSV instead of the table" '[ $status -eq 0 ] && [ "$(wc -l <out)" -eq 2 ] && head -1 out | grep -q "^kind,tokens,depth," && ! grep -q prefill out'
b --draft mtp --draft-fixed 3 --spec-sim 1 --batch-depth 0 --json -
json_check "a fixed number of drafts, all accepted" "$WORK/out" <<'EOF'
not d["batch"] and all(s["drafted"] == s["verified"] >= 3 * (s["rounds"] - 1) and s["tokens"] == s["rounds"] + s["verified"] for s in d["spec_sim"])
EOF
b --tg 2,2,1 --depth 3,1,3 --batch 1,1 --seqs 1 --batch-depth 1 -t 1 --kv-type Q8_0 --seed 5 --json -
json_check "each once, depths rising" "$WORK/out" <<'EOF'
[(r["tokens"], r["depth"]) for r in d["tg"]] == [(2, 1), (1, 1), (2, 3), (1, 3)] and len(d["batch"]) == len(d["seqs"]) == 1
d["machine"]["threads"] == d["bandwidth"]["threads"] == 1 and d["machine"]["kv_type"] == "Q8_0"
EOF
SKUA_CPU=scalar run bench -m "$MODEL" --tg 1 -r 1 --buffer 1m --json -
json_check "another tier" "$WORK/out" <<'EOF'
d["machine"]["kernels"] == "scalar" and {k["tier"] for k in d["kernels"]} == {"scalar"}
EOF
run bench -m "$MODEL" --tg 1 -r 1 --buffer 1m --precision reference --json -
json_check "the reference" "$WORK/out" <<'EOF'
d["machine"]["kernels"] == "reference" and {k["rows"] for k in d["kernels"]} == {"float32"}
EOF
b --tg 1 --depth 4100
check "beyond the trained context: a warning" '[ $status -eq 0 ] && one_line "warning: .*4103.*4096"'

# ---- mistakes ----

x() { local name=$1 want=$2 pattern=$3; shift 3; refused "$name" "$want" "$pattern" bench -m "$MODEL" --buffer 1m -r 1 "$@"; }
x "an argument" 2 "unexpected argument 'x'" --tg 1 x
x "no number" 2 "--pp is ''.*integer from 1" --pp ""
x "a comma at the end" 2 "--tg is ''" --tg 1,
x "a word" 2 "--depth is 'deep'" --depth 0,deep
x "nothing to evaluate" 2 "--pp is '0'.*from 1" --pp 0
x "too many rows" 2 "--batch is '33'.*from 1 to 32" --batch 1,33
x "too many sequences" 2 "--seqs is '65'.*from 1 to 64" --seqs 65
x "a rate above 1" 2 "--spec-sim is '1.5'.*from 0 to 1" --spec-sim 0.5,1.5
x "no rate" 2 "--spec-sim is ''" --spec-sim ""
x "a long list" 2 "--tg has more than 32 numbers" --tg "$(seq -s, 40)"
x "a long list of rates" 2 "--spec-sim has more than 32 numbers" --spec-sim "$(seq -s, 0 0.01 0.4)"
x "no repetition" 2 "--repeat is '0'" --tg 1 -r 0
x "two outputs at one place" 2 "more than one of --csv, --json and --plot" --tg 1 --csv - --json -
x "a picture of nothing" 2 "--plot shows --pp, --tg and --batch" --seqs 1 --plot x.svg
x "acceptance without drafts" 2 "--spec-sim simulates acceptance.*expected --draft" --spec-sim 0.5
x "options of drafting without drafts" 2 "options of drafting without --draft" --tg 1 --draft-max 3
x "a drafter that is none" 1 "no drafter file .no-such-file" --tg 1 --draft no-such-file
x "a KV type that is none" 1 "KV cache type 'Q4_K'" --tg 1 --kv-type Q4_K
x "a folder that is not there" 1 "no/such.json" --tg 1 --json no/such.json
refused "no model" 1 "missing.gguf" bench -m missing.gguf --tg 1
check "nothing is left" '[ ! -e x.svg ] && ! ls | grep -q "tmp\."'
if [ -e /dev/full ]; then
    "$SKUA" bench -m "$MODEL" --buffer 1m -r 1 --tg 1 >/dev/full 2>err
    status=$?
    check "a full disk" '[ $status -eq 1 ] && [ "$(wc -l <err)" -eq 1 ] && grep -q "cannot write to standard output" err'
fi

# A request to end: what is known so far is printed, files are not written, one line, status 1.
"$SKUA" bench -m "$MODEL" --buffer 1m --tg 1 --depth 0,1,2 -r 1 --pp 4000 -r 1000 --json stopped.json >out 2>err &
pid=$!
for _ in $(seq 200); do # until it catches the signal (bit 14 of the mask)
    caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' /proc/$pid/status 2>/dev/null)
    [ $((0x${caught:-0} >> 14 & 1)) -eq 1 ] && break
    sleep 0.05
done
kill -TERM $pid # the shell lets what runs in the background ignore SIGINT
wait $pid
status=$?
check "interrupted: status $status, $(cat err)" '[ $status -eq 1 ] && one_line "interrupted" && [ ! -e stopped.json ]'

# ---- run --profile ----

run run -m "$MODEL" --temp 0 --no-think -q -n 4 "What is the capital of France?"
cp out plain
run run -m "$MODEL" --temp 0 --no-think -q -n 4 --profile "What is the capital of France?"
check "the answer is the same" '[ $status -eq 0 ] && cmp -s out plain'
check "profile: $(head -3 err)" 'grep -qE "^prefill: 1 passes, [0-9]+ rows, $number ms in ops$" err && grep -qE "^decode: 3 passes, 3 rows, $number ms in ops$" err'
check "roles" '(for r in attn_qkv ffn_down output ssm_step attention quantize; do [ "$(grep -cE "^  [A-Z_]+ +$r " err)" -eq 2 ] || exit 1; done) && [ "$(grep -cE "^  all +[0-9]+ +$number +100.0% +$number +$number +$number$" err)" -eq 2 ]'

finish
