#!/usr/bin/env bash
# skua quantize: every recipe on both tiny models, the table and the size that it foretells, the same bytes for any number of threads, answers
# of what was written, importance weights, interruptions, a full disk, and one line for every mistake. See lib.bash.
. tests/e2e/lib.bash
moe=$(realpath tests/data/tiny-moe-q8_0.gguf)
dense=$SHARED/models/tiny-bf16.gguf
[ -f "$dense" ] && dense=$(realpath "$dense") || dense=
cd "$WORK" || exit 1

# quantize_all NAME MODEL OPTIONS...: every recipe
quantize_all() {
    local name=$1 model=$2
    shift 2
    for recipe in $recipes; do
        run quantize --dry-run --json "$model" out.gguf "$recipe" "$@"
        check "$name, $recipe, dry run: $(head -c 300 err)" '[ $status -eq 0 ] && [ ! -e out.gguf ]'
        mv out dry.json
        run quantize --json --rmse "$model" out.gguf "$recipe" "$@"
        check "$name, $recipe: $(head -c 300 err)" '[ $status -eq 0 ]'
        cp out all.json
        echo "$recipe" >recipe
        json_check "$name, $recipe" "$WORK/all.json" <<'EOF'
d["file_bytes"] == os.path.getsize(WORK + "/out.gguf") == json.load(open(WORK + "/dry.json"))["file_bytes"]
[{k: v for k, v in t.items() if "rmse" not in k} for t in d["tensors"]] == json.load(open(WORK + "/dry.json"))["tensors"]
d["bytes"] == sum(t["bytes"] for t in d["tensors"]) == sum(t["bytes"] for t in d["types"].values())
all((t["rmse"] is None) == (t["from"] == t["to"] or t["from"] is None) for t in d["tensors"])
all(t["relative_rmse"] < {"Q8_0": .008, "Q6_K": .025, "Q5_K": .05, "Q4_K": .1, "Q3_K": .2, "Q2_K": .35, "IQ4_XS": .1, "IQ4_NL": .1, "Q4_0": .12, "Q4_1": .12, "MXFP4": .15, "NVFP4": .12, "Q4_64A": .12, "Q2_64A": .6, "IQ2_S": .45, "IQ2_XXS": .55, "F16": .0005, "BF16": .003, "F32": 0.0001}[t["to"]] for t in d["tensors"] if t["rmse"] is not None)
d["recipe"] == open(WORK + "/recipe").read().strip() and d["dry_run"] is False
EOF
        run inspect --container out.gguf
        check "$name, $recipe: a sound file" '[ $status -eq 0 ] && is "ok
"'
        rm -f out.gguf
    done
}

# ---- every recipe ----

run quantize --help
check "help" '[ $status -eq 0 ] && [ ! -s err ] && grep -q "^example: skua quantize" out'
recipes=$(sed -n '/^recipes/,/^$/p' out | sed 's/^recipes[^:]*: //')
check "recipes: $recipes" '[ "$(echo $recipes | wc -w)" -eq 30 ]'
# importance weights for all matrices of a model, in the older format
python3 - "$SKUA" "$moe" <<'PY'
import json, struct, subprocess, sys
d = json.loads(subprocess.run([sys.argv[1], "quantize", "--dry-run", "--json", "--allow-requantize", sys.argv[2], "x.gguf", "Q4_K_M"], capture_output=True, check=True).stdout)
entries = [t for t in d["tensors"] if t["reason"] != "kept" and t["name"].startswith("blk.")]
def write(path, entries):
    with open(path, "wb") as f:
        f.write(struct.pack("<i", len(entries)))
        for t in entries:
            name, n = t["name"].encode(), t["shape"][0] * (t["shape"] + [1])[2 if len(t["shape"]) > 2 else -1]
            f.write(struct.pack("<i", len(name)) + name + struct.pack("<ii", 2, n) + struct.pack(f"<{n}f", *(1 + i % 3 for i in range(n))))
write("moe.dat", entries)
write("short.dat", [t for t in entries if t["name"] != "blk.2.ffn_up_exps.weight"])
write("other.dat", [dict(entries[0], shape=[100, 1])])
write("foreign.dat", [dict(entries[0], name="blk.99.attn_q.weight")])
PY
sanitized && recipes="Q4_K_M NVFP4 APEX-Mini"
quantize_all "experts" "$moe" --allow-requantize --imatrix moe.dat
if [ -n "$dense" ]; then
    recipes="MXFP4 NVFP4 APEX-Compact"
    quantize_all "dense" "$dense"
else
    skip "recipes on the dense model"
fi

# ---- what the table says ----

run quantize --allow-requantize --tensor 'ssm_(alpha|beta)=copy' --tensor 'blk\.0\.ffn_down=bf16' --rmse "$moe" out.gguf Q4_K_M -t 2
cp out table
check "table: $(head -c 300 err)" '[ $status -eq 0 ] && [ "$(wc -l <err)" -eq 1 ] && grep -q "^skua quantize: warning: [0-9]* tensors were quantized already" err'
check "a rule" 'grep -qE "^blk.1.ffn_down_exps.weight +256 x 256 x 8 +Q8_0 +Q4_K +294912 +[0-9.e-]+ +0.0[0-9]+ +- +default$" table'
check "an override" 'grep -qE "^blk.0.ffn_down_exps.weight +256 x 256 x 8 +Q8_0 +BF16 +1048576 .* override$" table'
check "a copied tensor" 'grep -qE "^blk.0.ssm_alpha.weight +256 x 4 +F32 +F32 +4096 +- +- +- +override$" table'
check "a norm" 'grep -qE "^blk.0.attn_norm.weight +256 +F32 +F32 +1024 +- +- +- +kept$" table'
check "the sums" 'tail -n 1 table | grep -qE "^out.gguf: [0-9.]+ MiB \($(stat -c %s out.gguf) bytes\), [0-9.]+ bits per weight, Q4_K_M$"'
check "no progress bar in a file" '! grep -q "\[" err'
run inspect --json out.gguf
json_check "metadata" "$WORK/out" <<'EOF'
d["metadata"]["general.file_type"]["value"] == 15 and d["metadata"]["general.quantization_version"]["value"] == 2
d["metadata"]["qwen35moe.block_count"]["value"] == 5 and "quantize.imatrix.file" not in d["metadata"]
EOF
run quantize --allow-requantize -i moe.dat "$moe" out.gguf Q2_K
check "with importance weights" '[ $status -eq 0 ]'
run inspect --json out.gguf
json_check "provenance" "$WORK/out" <<'EOF'
d["metadata"]["quantize.imatrix.file"]["value"] == "moe.dat" and d["metadata"]["quantize.imatrix.entries_count"]["value"] == 54
EOF
run quantize --allow-requantize "$moe" out.gguf Q4_K_M --tensor 'no_such_name=Q8_0' --tensor 'attn_norm=Q8_0'
check "overrides that decide nothing" '[ $status -eq 0 ] && [ "$(grep -c "^skua quantize: warning: --tensor .*: decides about no tensor that may be quantized$" err)" -eq 2 ]'
run quantize --allow-requantize -i short.dat "$moe" out.gguf Q4_K_M
check "a tensor without weights: $(cat err)" '[ $status -eq 0 ] && grep -q "^skua quantize: warning: short.dat: has nothing about 1 of the tensors, the first is .blk\.2\.ffn_up_exps\.weight" err'
run quantize "$moe" out.gguf COPY
check "COPY" '[ $status -eq 0 ] && [ ! -s err ] && cmp out.gguf "$moe"'

# ---- the same bytes ----

for recipe in Q4_K_M NVFP4; do
    for t in 1 2 5; do
        run quantize --allow-requantize -i moe.dat -t $t "$moe" t$t.gguf $recipe
    done
    SKUA_CPU=scalar run quantize --allow-requantize -i moe.dat "$moe" s.gguf $recipe
    check "$recipe: any number of threads, any CPU tier" 'cmp t1.gguf t2.gguf && cmp t1.gguf t5.gguf && cmp t1.gguf s.gguf'
done
run quantize --allow-requantize "$moe" whole.gguf Q6_K
run shards split "$moe" part --max-tensors 30
run quantize --allow-requantize part-00001-of-00004.gguf joined.gguf Q6_K
check "from shards" '[ $status -eq 0 ] && cmp whole.gguf joined.gguf'

# ---- answers ----

if [ -n "$dense" ]; then
    for recipe in F16 Q8_0 Q5_K_M Q4_K_M Q4_0; do
        run quantize "$dense" out.gguf $recipe
        run run -m out.gguf -q --temp 0 -n 12 --no-think "What is the capital of France?"
        check "$recipe answers: $(head -c 200 out)" 'grep -q "Paris" out'
    done
else
    skip "answers"
fi

# ---- mistakes ----

refused "no arguments" 2 "0 arguments, expected three: IN.gguf OUT.gguf RECIPE" quantize
refused "one too many" 2 "4 arguments, expected three" quantize "$moe" a.gguf Q8_0 x
refused "unknown recipe" 2 "unknown recipe 'Q9', expected one of Q8_0, Q6_K, .*, COPY$" quantize "$moe" a.gguf Q9
refused "override without type" 2 "--tensor: 'ffn': expected REGEX=TYPE" quantize --tensor ffn "$moe" a.gguf Q8_0
refused "override with a type that is none" 2 "--tensor: 'ffn=Q9': 'Q9' is no type" quantize --tensor ffn=Q9 "$moe" a.gguf Q8_0
refused "override with a bad expression" 2 "--tensor: 'f\(=Q8_0': not a regular expression" quantize --tensor 'f(=Q8_0' "$moe" a.gguf Q8_0
refused "threads" 2 "--threads is '0', expected an integer from 1 to 256" quantize -t 0 "$moe" a.gguf Q8_0
refused "unknown option" 2 "unknown option --fast" quantize --fast "$moe" a.gguf Q8_0
refused "no such file" 1 "nowhere.gguf: cannot open" quantize nowhere.gguf a.gguf Q8_0
refused "no model" 1 "E_MAGIC" quantize moe.dat a.gguf Q8_0
refused "no folder" 1 "nowhere/a.gguf.* cannot create" quantize "$moe" nowhere/a.gguf COPY
refused "requantizing" 1 "tiny-moe-q8_0.gguf: tensor 'token_embd.weight' is Q8_0 already.*--allow-requantize" quantize "$moe" a.gguf Q4_K_M
refused "no weights" 1 "which needs importance weights, and there is no importance matrix" quantize --allow-requantize "$moe" a.gguf IQ2_XXS
refused "not enough weights" 1 "the importance matrix has none for it" quantize --allow-requantize -i short.dat "$moe" a.gguf IQ2_XXS
refused "weights of another shape" 1 "other.dat: .*'blk.0.[a-z_]*.weight' has 100 columns" quantize --allow-requantize -i other.dat "$moe" a.gguf Q4_K_M
refused "weights of another model" 1 "foreign.dat: none of its 1 entries is of a tensor of the model" quantize --allow-requantize -i foreign.dat "$moe" a.gguf Q4_K_M
seq 200 >numbers
run imatrix -m "$MODEL" -f numbers --chunk-size 64 --chunks 1 dense.dat
refused "weights of a dense model" 1 "dense.dat: entry 'blk.0.ffn_gate.weight' is of a tensor that the model does not have: it was made with another model" \
    quantize --allow-requantize -i dense.dat "$moe" a.gguf Q4_K_M
refused "no weights file" 1 "nowhere.dat: cannot open" quantize --allow-requantize -i nowhere.dat "$moe" a.gguf Q4_K_M
SKUA_CPU=abacus refused "CPU tier" 1 "SKUA_CPU is 'abacus'" quantize "$moe" a.gguf COPY
cp "$moe" same.gguf
refused "onto itself" 1 "same.gguf: is the input" quantize same.gguf same.gguf COPY
ln -s same.gguf link.gguf
refused "onto itself by a link" 1 "link.gguf: is the input" quantize same.gguf link.gguf COPY
check "the input is as it was" 'cmp same.gguf "$moe"'
check "nothing is left: $(ls)" '! ls a.gguf* >/dev/null 2>&1'

# ---- a full disk ----

(
    trap '' XFSZ # the limit on a file's size stands for a full disk
    ulimit -f 2000
    "$SKUA" quantize "$moe" full.gguf COPY >out 2>err
    echo $? >full_status
)
check "a full disk: $(cat err)" '[ "$(cat full_status)" = 1 ] && [ ! -s out ] && one_line "full.gguf: cannot write: " && ! ls full.gguf* >/dev/null 2>&1'

# ---- interrupted, and on a terminal ----

python3 - "$SKUA" "$moe" <<'PY'
import glob, os, pty, signal, subprocess, sys, time
skua, model = sys.argv[1:]
env = dict(os.environ, SKUA_CPU="scalar", TERM="xterm")
command = [skua, "quantize", "--allow-requantize", "-t", "1", model, "i.gguf", "IQ4_XS"]
def interrupted(sig):
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    while not glob.glob("i.gguf.tmp.*") and p.poll() is None:
        time.sleep(0.005)
    p.send_signal(sig)
    out, err = p.communicate()
    return p.returncode == 1 and out == b"" and err == b"skua quantize: interrupted; i.gguf is not written\n" and not glob.glob("i.gguf*")
def terminal():
    main, other = pty.openpty()
    p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=other, env=env)
    os.close(other)
    shown = b""
    while True:
        try:
            piece = os.read(main, 4096)
        except OSError:
            break
        if not piece:
            break
        before, shown = shown, shown + piece
        if b"quantizing [" in shown and b"quantizing [" not in before:
            p.send_signal(signal.SIGINT)
    p.wait()
    return p.returncode == 1 and b"quantizing [" in shown and not glob.glob("i.gguf*")
results = [interrupted(signal.SIGINT), interrupted(signal.SIGTERM), terminal()]
open("results", "w").write(" ".join(str(int(r)) for r in results))
PY
read -r on_int on_term on_terminal <results
check "SIGINT: one line, no file" '[ "$on_int" = 1 ]'
check "SIGTERM: one line, no file" '[ "$on_term" = 1 ]'
check "a progress bar on a terminal" '[ "$on_terminal" = 1 ]'

finish
