#!/usr/bin/env bash
# skua inspect: the verdict on every container of the shared vectors, the report on good models as text and JSON, and one clear line
# and exit status 1 for damaged, foreign and contradictory files. Run from the project root. SKUA: the program. SKUA_SHARED: folder
# of the shared data. Files with one thing wrong are made from the metadata of a tiny model by a small Python script; their tensor
# data is a hole of zeros.
set -u
SKUA=${SKUA:-./build/skua}
SHARED=${SKUA_SHARED:-../shared}
[ -x "$SKUA" ] || { echo "no program at $SKUA (make builds it)" >&2; exit 1; }
WORK=$(mktemp -d) || exit 1
trap 'rm -rf "$WORK"' EXIT
passed=0 failed=0

ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAIL: $1" >&2; }
check() { if eval "$2"; then ok; else bad "$1"; fi; } # name, condition

# Run inspect: out, err (files), status. A crash or a sanitizer report is a failure of its own.
run() {
    "$SKUA" inspect "$@" >"$WORK/out" 2>"$WORK/err"
    status=$?
    if [ $status -gt 2 ] || grep -q 'Sanitizer\|runtime error' "$WORK/err"; then
        bad "inspect $*: status $status: $(head -c 600 "$WORK/err")"
    fi
}

# refused NAME STATUS PATTERN ARGS...: that status, exactly one line on standard error, which matches.
refused() {
    local name=$1 want=$2 pattern=$3
    shift 3
    run "$@"
    if [ $status -eq "$want" ] && [ "$(wc -l <"$WORK/err")" -eq 1 ] && grep -qE "^skua inspect: .*$pattern" "$WORK/err"; then
        ok
    else
        bad "$name: status $status (want $want), stderr: $(head -c 400 "$WORK/err") (want one line with '$pattern')"
    fi
}

# json NAME FILE: evaluates standard input as Python with d = the JSON object; every line is one condition.
json() {
    python3 - "$1" "$2" "$WORK/conditions" <<'PY'
import json, sys
name, path, conditions = sys.argv[1:]
good = 0
try:
    d = json.load(open(path))
except ValueError as e:
    sys.exit(f"FAIL: {name}: not JSON: {e}")
lines = [l.strip() for l in open(conditions) if l.strip()]
for line in lines:
    try:
        result = bool(eval(line, {"d": d}))
    except Exception as e:
        result = False
        print(f"{type(e).__name__}: {e}", file=sys.stderr)
    if result:
        good += 1
    else:
        print(f"FAIL: {name}: {line}", file=sys.stderr)
print(good, len(lines) - good, file=open(conditions + ".count", "w"))
PY
    if [ -f "$WORK/conditions.count" ]; then
        read -r g b <"$WORK/conditions.count"
        passed=$((passed + g)) failed=$((failed + b))
        rm -f "$WORK/conditions.count"
    else
        failed=$((failed + 1))
    fi
}
json_check() { cat >"$WORK/conditions"; json "$@"; }

# ---- usage and files that are no models ----

run --help
check "--help" '[ $status -eq 0 ] && grep -q "^example: skua inspect" "$WORK/out"'
refused "no file with --container" 2 "container needs" --container
refused "two models" 2 "more than one model" a b
refused "unknown option" 2 "" --nonsense
refused "context of 0" 2 "ctx is '0'" --ctx 0 x
refused "context that is no number" 2 "ctx is 'many'" -c many x
refused "context too large" 2 "ctx is '4294967296'" -c 4294967296 x
refused "unknown cache type" 2 "kv-type is 'Q4_K'" --kv-type Q4_K x

mkfifo "$WORK/fifo"
: >"$WORK/empty"
printf 'GGU' >"$WORK/three"
printf 'PK\003\004 this is no model, but it is longer than a header' >"$WORK/foreign"
for case in "missing|cannot open" "|not a regular file" "fifo|not a regular file" "empty|E_TRUNCATED" "three|E_TRUNCATED" "foreign|E_MAGIC"; do
    file="$WORK/${case%%|*}" pattern=${case##*|}
    refused "inspect '${case%%|*}'" 1 "$pattern" "$file"
    check "no text for '${case%%|*}'" '[ ! -s "$WORK/out" ]'
    refused "inspect --json '${case%%|*}'" 1 "$pattern" --json "$file"
    json_check "JSON of '${case%%|*}'" "$WORK/out" <<<'d["runs"] is False and len(d["problems"]) == 1 and d["reason"]'
    refused "inspect --container '${case%%|*}'" 1 "$pattern" --container "$file"
    word=$pattern
    [ "${word#E_}" = "$word" ] && word=error
    check "--container word for '${case%%|*}'" '[ "$(cat "$WORK/out")" = $word ]'
done

# ---- the shared container vectors ----

vectors="$SHARED/spec/gguf_vectors.json"
if [ -f "$vectors" ]; then
    python3 - "$vectors" "$WORK" <<'PY'
import json, sys
work = sys.argv[2]
with open(work + "/expect", "w") as list_:
    for f in json.load(open(sys.argv[1]))["files"]:
        open(f"{work}/v_{f['name']}.gguf", "wb").write(bytes.fromhex(f["hex"]))
        list_.write(f"{f['name']} {f['expect']}\n")
PY
    n=0 all_ok=0
    while read -r name want; do
        file="$WORK/v_$name.gguf"
        n=$((n + 1))
        run --container "$file"
        if [ "$want" = ok ]; then
            check "vector $name" '[ $status -eq 0 ] && [ "$(cat "$WORK/out")" = ok ] && [ ! -s "$WORK/err" ]'
        else
            check "vector $name" '[ $status -eq 1 ] && [ "$(cat "$WORK/out")" = $want ] && [ "$(wc -l <"$WORK/err")" -eq 1 ] && grep -q "$want" "$WORK/err"'
        fi
        # none of them is a model
        run "$file"
        check "vector $name as a model" '[ $status -eq 1 ] && [ "$(wc -l <"$WORK/err")" -eq 1 ]'
    done <"$WORK/expect"
    check "vectors were read" '[ $n -ge 100 ]'
    cut -d' ' -f1 "$WORK/expect" | sed "s#.*#$WORK/v_&.gguf#" >"$WORK/names"
    mapfile -t names <"$WORK/names"
    run --container "${names[@]}"
    check "all vectors in one call" '[ $status -eq 1 ] && diff -q <(sed "s#^$WORK/v_##;s#.gguf: # #" "$WORK/out") "$WORK/expect"'
    rm -f "$WORK"/v_*.gguf
else
    echo "SKIP: $vectors is absent: container vectors (about 105 files, 2 checks each)"
fi

# ---- good models ----

dense="$SHARED/models/tiny-q8_0.gguf" moe="$SHARED/models/tiny-moe-q8_0.gguf" bf16="$SHARED/models/tiny-bf16.gguf"
if [ ! -f "$dense" ] || [ ! -f "$moe" ] || [ ! -f "$bf16" ]; then
    echo "SKIP: $SHARED/models is absent: reports on models and files made from them (about 770 checks)"
    echo "$passed passed, $failed failed"
    [ $failed -eq 0 ] && [ $passed -gt 0 ]
    exit
fi

run "$dense"
check "dense text" '[ $status -eq 0 ] && [ ! -s "$WORK/err" ] && [ "$(tail -n 1 "$WORK/out")" = "runs: yes" ]'
for line in "^name +Tiny-dense" "^architecture +qwen35$" "^trunk: 8 layers, 256 wide, vocabulary of 8192, context of 4096 tokens" \
    "Gated DeltaNet +6 layers \(0-2, 4-6\): 2 key heads, 4 value heads of 128" "full attention +2 layers \(3, 7\): 4 heads, 2 KV heads of 256" \
    "feed-forward +dense, 1024 wide" "output head +the token embedding" "^  present \(block 8\)" \
    "^  trunk  ffn_down.weight +8 +2097152 +2228224 +8.500  Q8_0$" "^  mtp    nextn.eh_proj.weight +1 +131072 " "^  all +\(sum\) +123 " \
    "size +8192 tokens, 7919 merges" "ends an answer +8177 \"<\|im_end\|>\"" "chat template +2849 bytes, mentions enable_thinking$" \
    "tokenizer.ggml.tokens = string\[8192\]$" "rope.dimension_sections = i32\[4\]: 11, 11, 10, 0$" "layer_norm_rms_epsilon = 1e-06$" \
    "\(2849 bytes\)$" "KV cache +16.0 MiB \(16777216 bytes\), per session"; do
    check "dense text has $line" 'grep -qE "$line" "$WORK/out"'
done
check "text is short without --all" '[ "$(wc -l <"$WORK/out")" -lt 150 ]'
run --all "$dense"
check "--all shows every token and the whole template" '[ "$(wc -l <"$WORK/out")" -gt 24000 ] && grep -q "^    8177: \"<|im_end|>\"$" "$WORK/out" && ! grep -q "(2849 bytes)$" "$WORK/out"'

run --json "$dense"
check "dense JSON" '[ $status -eq 0 ] && [ ! -s "$WORK/err" ]'
size=$(wc -c <"$dense")
json_check "dense JSON" "$WORK/out" <<EOF
d["runs"] is True and d["reason"] is None and d["problems"] == [] and d["warnings"] == []
d["name"] == "Tiny-dense" and d["architecture"] == "qwen35" and d["kind"] == "language model, dense"
d["container"]["version"] == 3 and d["container"]["bytes"] == $size and d["container"]["shards"][0]["bytes"] == $size
d["trunk"]["gated_deltanet"]["layers"] == [0, 1, 2, 4, 5, 6] and d["trunk"]["full_attention"]["layers"] == [3, 7]
d["trunk"]["tied_output"] is True and d["trunk"]["feed_forward"] == {"kind": "dense", "width": 1024}
d["mtp"] == {"state": "present", "block": 8}
sum(t["bytes"] for t in d["tensors"]) == d["totals"]["all"]["bytes"] == 16751808
sum(t["tensors"] for t in d["tensors"]) == d["container"]["tensors"] == 123
all(t["status"] == "ok" and sum(t["types"].values()) == t["tensors"] for t in d["tensors"])
abs(d["totals"]["all"]["bits_per_weight"] - 8 * 16751808 / 15642416) < 1e-9
[t["id"] for t in d["tokenizer"]["end_tokens"]] == [8175, 8177] and d["tokenizer"]["pre"] == "qwen35"
d["tokenizer"]["chat_template"] == {"present": True, "bytes": 2849, "enable_thinking": True, "reasoning_effort": False, "preserve_thinking": False}
d["memory"]["ctx"] == 4096 and d["memory"]["kv_type"] == "F16" and d["memory"]["kv_page_rows"] == 256
d["memory"]["state_bytes"] == 6 * 4 * (4 * 128 * 128 + 3 * 1024)
d["memory"]["held_row_bytes"] == 6 * 4 * (((2 + 4) * 128 + 4 + 1024 + 15) // 16 * 16)
d["memory"]["kv_page_bytes"] == 2 * 2 * 2 * 256 * 512 and d["memory"]["kv_bytes"] == 16 * d["memory"]["kv_page_bytes"]
d["memory"]["session_bytes"] == d["memory"]["state_bytes"] + d["memory"]["kv_bytes"]
d["memory"]["total_bytes"] == sum(d["memory"][k] for k in ("file_bytes", "workspace_bytes", "vector_bytes", "session_bytes"))
0 < d["memory"]["workspace_bytes"] < 200 << 20
d["metadata"]["qwen35.block_count"] == {"type": "u32", "value": 9}
d["metadata"]["tokenizer.ggml.tokens"] == {"type": "array", "element_type": "string", "count": 8192}
d["metadata"]["qwen35.rope.dimension_sections"]["value"] == [11, 11, 10, 0]
d["metadata"]["tokenizer.chat_template"]["cut"] is True and d["metadata"]["tokenizer.chat_template"]["bytes"] == 2849
abs(d["metadata"]["qwen35.attention.layer_norm_rms_epsilon"]["value"] - 1e-6) < 1e-18
EOF
run --json --all "$dense"
json_check "--all JSON" "$WORK/out" <<'EOF'
len(d["metadata"]["tokenizer.ggml.tokens"]["value"]) == 8192 and d["metadata"]["tokenizer.ggml.tokens"]["value"][8177] == "<|im_end|>"
len(d["metadata"]["tokenizer.chat_template"]["value"].encode()) == 2849 and "cut" not in d["metadata"]["tokenizer.chat_template"]
EOF
run --json "$dense" -c 1000 --kv-type q8_0
json_check "context and cache type" "$WORK/out" <<'EOF'
d["memory"]["ctx"] == 1000 and d["memory"]["kv_pages"] == 4 and d["memory"]["kv_type"] == "Q8_0"
d["memory"]["kv_page_bytes"] == 2 * 2 * 2 * 256 * (256 // 32 * 34)
EOF
run "$dense" --ctx 8k
check "context beyond the model's: one warning" '[ $status -eq 0 ] && [ "$(wc -l <"$WORK/err")" -eq 1 ] && grep -q "warning: a context of 8192 tokens exceeds the model.s 4096" "$WORK/err" && grep -q "session of 8192 tokens" "$WORK/out"'
"$SKUA" inspect "$dense" 1</dev/null 2>"$WORK/err"
status=$?
check "output that cannot be written is an error" '[ $status -eq 1 ] && grep -q "cannot write" "$WORK/err"'
SKUA_MODEL="$moe" "$SKUA" inspect >"$WORK/out" 2>"$WORK/err"
check "SKUA_MODEL names the model" 'grep -q "^name *Tiny-moe$" "$WORK/out"'

run --json "$moe"
json_check "MoE JSON" "$WORK/out" <<'EOF'
d["runs"] is True and d["architecture"] == "qwen35moe" and d["trunk"]["tied_output"] is False
d["trunk"]["feed_forward"] == {"kind": "moe", "experts": 8, "experts_used": 2, "width": 256, "shared_width": 256}
d["mtp"] == {"state": "present", "block": 4}
{t["role"] for t in d["tensors"] if t["part"] == "mtp"} >= {"nextn.eh_proj.weight", "ffn_gate_exps.weight"}
EOF
run "$moe"
check "MoE text" '[ $status -eq 0 ] && grep -q "8 experts of width 256, 2 used per token, shared expert of width 256" "$WORK/out"'
run --json "$bf16"
json_check "BF16 JSON" "$WORK/out" <<'EOF'
d["runs"] is True and any(t["types"] == {"BF16": 8} for t in d["tensors"])
EOF

refused "dspark" 1 "the file is a DSpark drafter" tests/data/dspark.gguf
check "dspark is described" 'grep -q "^kind *DSpark drafter$" "$WORK/out" && grep -q "  windowed *bool.2.: true, false" "$WORK/out"'
for f in dflash1-bf16:DFlash dflash1-q8_0:DFlash dflash2-bf16:DFlash2 dflash2-q8_0:DFlash2; do
    file="$SHARED/models/tiny-${f%%:*}.gguf" kind="${f##*:} drafter"
    [ -f "$file" ] || continue
    refused "${f%%:*}" 1 "the file is a $kind" "$file"
    check "${f%%:*} is described" 'grep -q "^kind *$kind$" "$WORK/out" && grep -q "target layers *i32.3.: 2, 5, 7" "$WORK/out" && grep -q "  KV heads *2$" "$WORK/out" && grep -q "^runs: no: unsupported: the file is a $kind" "$WORK/out"'
done

# ---- files made from a tiny model ----

# cases: NAME <tab> pattern for the one line on standard error. "+" instead of a pattern: the file runs.
python3 - "$dense" "$moe" "$WORK" >"$WORK/cases" <<'PY'
import copy, math, struct, sys
dense_path, moe_path, work = sys.argv[1:]
U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
CODE = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}
GEOMETRY = {0: (1, 4), 1: (1, 2), 30: (1, 2), 8: (32, 34), 2: (32, 18), 3: (32, 20), 10: (256, 84), 11: (256, 110), 17: (256, 74), 18: (256, 98), 21: (256, 110), 35: (256, 66), 12: (256, 144),
            14: (256, 210), 16: (256, 66), 23: (256, 136), 24: (1, 1), 28: (1, 8), 39: (32, 17)}

class Model:
    """keys: name -> [type, value]; an array's value is (element type, list). tensors: [name, ne, type]."""
    def __init__(self, path):
        b = open(path, "rb").read(4 << 20)
        n_tensors, n_keys = struct.unpack_from("<QQ", b, 8)
        self.p, self.b, self.keys, self.tensors = 24, b, {}, []
        for _ in range(n_keys):
            name = self.string().decode()
            kind, = self.take("I")
            self.keys[name] = [kind, self.value(kind)]
        for _ in range(n_tensors):
            name = self.string().decode()
            n, = self.take("I")
            ne = list(self.take("Q" * n))
            kind, _ = self.take("IQ")
            self.tensors.append([name, ne, kind])
        del self.b
    def take(self, fmt):
        v = struct.unpack_from("<" + fmt, self.b, self.p)
        self.p += struct.calcsize("<" + fmt)
        return v
    def string(self):
        n, = self.take("Q")
        self.p += n
        return self.b[self.p - n:self.p]
    def value(self, kind):
        if kind == STR:
            return self.string()
        if kind == ARR:
            element, n = self.take("IQ")
            return (element, [self.value(element) for _ in range(n)])
        return self.take(CODE[kind])[0]

def encode(kind, v):
    if kind == STR:
        return struct.pack("<Q", len(v)) + v
    if kind == ARR:
        return struct.pack("<IQ", v[0], len(v[1])) + b"".join(encode(v[0], e) for e in v[1])
    return struct.pack("<" + CODE[kind], v)

def write(m, path, split=None, tensors=None, keys=None):
    keys, tensors = m.keys if keys is None else keys, m.tensors if tensors is None else tensors
    out, offset = [], 0
    for name, (kind, v) in keys.items():
        out.append(encode(STR, name.encode("latin1")) + struct.pack("<I", kind) + encode(kind, v))
    for name, ne, kind in tensors:
        block, size = GEOMETRY[kind]
        total = ne[0] // block * size * math.prod(ne[1:])
        out.append(encode(STR, name.encode("latin1")) + struct.pack("<I%dQ" % len(ne), len(ne), *ne) + struct.pack("<IQ", kind, offset))
        offset += (total + 31) // 32 * 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(out)
    with open(path, "wb") as f:
        f.write(head)
        f.truncate((len(head) + 31) // 32 * 32 + offset)

dense, moe = Model(dense_path), Model(moe_path)
made = []
def case(name, pattern, change, base=dense):
    m = copy.copy(base)
    m.keys, m.tensors = dict(base.keys), [list(t) for t in base.tensors]
    change(m)
    write(m, f"{work}/c_{name}.gguf")
    made.append((name, pattern))
def key(name, kind, v):
    return lambda m: m.keys.__setitem__(name, [kind, v])
def drop(name):
    return lambda m: m.keys.pop(name)
def retype(kind, *names):
    def change(m):
        for t in m.tensors:
            if any(t[0].endswith(n) for n in names):
                t[2] = kind
    return change
def reshape(name, ne):
    def change(m):
        next(t for t in m.tensors if t[0] == name)[1] = ne
    return change
def remove(*starts):
    return lambda m: m.tensors.__setitem__(slice(None), [t for t in m.tensors if not t[0].startswith(starts)])
def both(*changes):
    return lambda m: [c(m) for c in changes]
A, T = "qwen35.", "tokenizer.ggml."
S = "E_SCHEMA: "

case("unchanged", "+", lambda m: None)
case("unchanged_moe", "+", lambda m: None, moe)
# architecture
case("arch_llama", "unsupported: architecture 'llama' is not supported; supported: qwen35, qwen35moe", key("general.architecture", STR, b"llama"))
case("arch_missing", S + "key 'general.architecture' is missing", drop("general.architecture"))
case("arch_u32", S + "key 'general.architecture' is of type u32", key("general.architecture", U32, 5))
case("arch_control", r"architecture 'a\?\?.31mb", key("general.architecture", STR, b"a\n\x1b[31mb"))
case("arch_empty", "architecture '' is not supported", key("general.architecture", STR, b""))
case("arch_long", "architecture 'xxxx", key("general.architecture", STR, b"x" * 100000))
case("imatrix", "importance matrix", both(drop("general.architecture"), key("general.type", STR, b"imatrix")))
case("adapter", "adapter", both(drop("general.architecture"), key("general.type", STR, b"adapter")))
case("clip", "projector", key("general.architecture", STR, b"clip"))
# sizes
for n in (0, 513, 1025, 2**31, 2**32 - 1):
    case(f"block_count_{n}", S + (f"key 'qwen35.block_count' is {n}, expected 1 to 1024" if n != 513 else "tensor 'blk.*' is missing"), key(A + "block_count", U32, n))
case("block_count_string", S + "key 'qwen35.block_count' is of type string", key(A + "block_count", STR, b"9"))
case("block_count_negative", S + "key 'qwen35.block_count' is -1", key(A + "block_count", I32, -1))
case("block_count_u64", S + "key 'qwen35.block_count' is 18446744073709551615", key(A + "block_count", U64, 2**64 - 1))
case("block_count_u8", "+", key(A + "block_count", U8, 9))
case("block_count_i64", "+", key(A + "block_count", I64, 9))
case("block_count_small", "tensor 'blk.4.attn_qkv.weight': fused q, k, v in a full-attention layer", key(A + "block_count", U32, 5))
case("nextn_too_many", S + "key 'qwen35.nextn_predict_layers' is 9, expected fewer than block_count", key(A + "nextn_predict_layers", U32, 9))
case("nextn_two", "unsupported: key 'qwen35.nextn_predict_layers' is 2; supported: 0 or 1", key(A + "nextn_predict_layers", U32, 2))
case("nextn_max", S, key(A + "nextn_predict_layers", U32, 2**32 - 1))
for name in ("context_length", "embedding_length", "feed_forward_length", "attention.head_count", "attention.layer_norm_rms_epsilon",
             "ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank", "ssm.inner_size", "block_count"):
    case("missing_" + name, S + f"key 'qwen35.{name}' is missing", drop(A + name))
for name in ("context_length", "embedding_length", "feed_forward_length", "attention.head_count", "attention.head_count_kv",
             "attention.key_length", "rope.dimension_count", "ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank",
             "ssm.inner_size", "full_attention_interval"):
    case("zero_" + name, S + f"key 'qwen35.{name}' is 0", key(A + name, U32, 0))
    case("huge_" + name, "(E_SCHEMA|unsupported): ", key(A + name, U32, 2**32 - 1))
case("embed_2e31", S + "key 'qwen35.embedding_length' is 2147483648", key(A + "embedding_length", U32, 2**31))
case("embed_512", S + r"tensor 'token_embd.weight' has shape \[256, 8192, 1, 1\], expected \[512, vocabulary\]", key(A + "embedding_length", U32, 512))
case("heads_3", S + "key 'qwen35.attention.head_count_kv' is 2, expected a divisor", key(A + "attention.head_count", U32, 3))
case("heads_8", S + "tensor 'blk.3.attn_q.weight' has shape", key(A + "attention.head_count", U32, 8))
case("heads_array", "+", key(A + "attention.head_count", ARR, (U32, [0, 0, 0, 4, 0, 0, 0, 4, 4])))
case("heads_array_short", S + "key 'qwen35.attention.head_count' has 8 entries, expected one per block", key(A + "attention.head_count", ARR, (U32, [4] * 8)))
case("heads_array_long", S + "key 'qwen35.attention.head_count' has 600 entries", key(A + "attention.head_count", ARR, (U32, [4] * 600)))
case("heads_array_strings", S + "key 'qwen35.attention.head_count' is an array of string", key(A + "attention.head_count", ARR, (STR, [b"4"] * 9)))
case("heads_array_mixed", "unsupported: key 'qwen35.attention.head_count' differs", key(A + "attention.head_count", ARR, (I32, [4] * 8 + [2])))
case("key_length_odd", "qwen35.attention.", both(key(A + "attention.key_length", U32, 255), key(A + "attention.value_length", U32, 255)))
case("value_length", S + "key 'qwen35.attention.value_length' is 128", key(A + "attention.value_length", U32, 128))
case("rope_odd", S + "key 'qwen35.rope.dimension_count' is 63", key(A + "rope.dimension_count", U32, 63))
case("rope_wide", S + "key 'qwen35.rope.dimension_count' is 258", key(A + "rope.dimension_count", U32, 258))
case("rope_sections_sum", S + "key 'qwen35.rope.dimension_sections'", key(A + "rope.dimension_sections", ARR, (I32, [11, 11, 11, 0])))
case("rope_sections_negative", S + "key 'qwen35.rope.dimension_sections'", key(A + "rope.dimension_sections", ARR, (I32, [-1, 11, 11, 0])))
case("rope_sections_f32", S + "key 'qwen35.rope.dimension_sections' is of type array of f32", key(A + "rope.dimension_sections", ARR, (F32, [11.0, 11.0, 10.0, 0.0])))
case("rope_base_nan", S + "key 'qwen35.rope.freq_base'", key(A + "rope.freq_base", F32, math.nan))
case("rope_base_zero", S + "key 'qwen35.rope.freq_base' is 0", key(A + "rope.freq_base", F32, 0.0))
case("rope_scaling", "unsupported: key 'qwen35.rope.scaling.type' is 'longrope.'; supported: none, linear, yarn", key(A + "rope.scaling.type", STR, b"longrope\n"))
case("rope_yarn", "+", both(key(A + "rope.scaling.type", STR, b"yarn"), key(A + "rope.scaling.factor", F32, 4.0)))
case("eps_nan", S + "key 'qwen35.attention.layer_norm_rms_epsilon'", key(A + "attention.layer_norm_rms_epsilon", F32, math.nan))
case("eps_inf", S + "key 'qwen35.attention.layer_norm_rms_epsilon'", key(A + "attention.layer_norm_rms_epsilon", F32, math.inf))
case("eps_zero", S + "key 'qwen35.attention.layer_norm_rms_epsilon' is 0", key(A + "attention.layer_norm_rms_epsilon", F32, 0.0))
case("eps_negative", S + "key 'qwen35.attention.layer_norm_rms_epsilon' is -1e-06", key(A + "attention.layer_norm_rms_epsilon", F64, -1e-6))
case("unused_nan", S + "key 'qwen35.rope.scaling.attn_factor' is nan", key(A + "rope.scaling.attn_factor", F32, math.nan))
case("ssm_ratio", S + "key 'qwen35.ssm.time_step_rank' is 4, expected a multiple", key(A + "ssm.group_count", U32, 3))
case("ssm_inner", S + "key 'qwen35.ssm.inner_size' is 510", key(A + "ssm.inner_size", U32, 510))
case("recurrent_short", S + "key 'qwen35.attention.recurrent_layers' has 8 entries", key(A + "attention.recurrent_layers", ARR, (BOOL, [1] * 8)))
case("recurrent_mtp", S + "key 'qwen35.attention.recurrent_layers' marks MTP block 8", key(A + "attention.recurrent_layers", ARR, (BOOL, [1, 1, 1, 0] * 2 + [1])))
case("recurrent_strings", S + "key 'qwen35.attention.recurrent_layers'", key(A + "attention.recurrent_layers", ARR, (STR, [b"1"] * 9)))
case("recurrent_ok", "+", key(A + "attention.recurrent_layers", ARR, (BOOL, [1, 1, 1, 0] * 2 + [0])))
case("no_attention", S + "key 'qwen35.attention.head_count' has no entry for an attention block|tensor 'blk.3.attn_qkv.weight' is missing", key(A + "full_attention_interval", U32, 1024))
# experts
B = "qwen35moe."
for name in ("expert_count", "expert_used_count"):
    case("moe_missing_" + name, S + f"key 'qwen35moe.{name}' is missing", drop(B + name), moe)
    case("moe_zero_" + name, S + f"key 'qwen35moe.{name}' is 0", key(B + name, U32, 0), moe)
case("moe_experts_5000", S + "key 'qwen35moe.expert_count' is 5000, expected 1 to 4096", key(B + "expert_count", U32, 5000), moe)
case("moe_used_9", S + "key 'qwen35moe.expert_used_count' is 9, expected at most expert_count", key(B + "expert_used_count", U32, 9), moe)
case("moe_experts_16", S + "tensor 'blk.0.ffn_gate_inp.weight' has shape", key(B + "expert_count", U32, 16), moe)
case("moe_slices", S + r"tensor 'blk.1.ffn_up_exps.weight' has shape \[256, 256, 7, 1\]", reshape("blk.1.ffn_up_exps.weight", [256, 256, 7]), moe)
case("moe_router_quantised", "unsupported: tensor 'blk.0.ffn_gate_inp.weight'.*type Q8_0 .*supported: F32, F16, BF16$", retype(8, ".ffn_gate_inp.weight"), moe)
case("moe_router_bf16", "+", retype(30, ".ffn_gate_inp.weight"), moe)
case("moe_as_dense", S, key("general.architecture", STR, b"qwen35"), moe)
# tensors
case("embd_missing", S + "tensor 'token_embd.weight' is missing", remove("token_embd"))
case("norm_missing", S + "tensor 'output_norm.weight' is missing", remove("output_norm"))
case("tensor_missing", S + "tensor 'blk.5.ssm_out.weight' is missing", remove("blk.5.ssm_out"))
case("first_missing", S + "tensor 'blk.0.attn_norm.weight' is missing", remove("blk.0.attn_norm"))
case("no_tensors", S + "tensor 'token_embd.weight' is missing", remove(""))
case("embd_short", S + "key 'tokenizer.ggml.tokens' has 8192 elements, expected one per row of tensor 'token_embd.weight' .8000", reshape("token_embd.weight", [256, 8000]))
case("embd_long", S + "key 'tokenizer.ggml.tokens' has 8192 elements", reshape("token_embd.weight", [256, 8224]))
case("embd_3d", S + "tensor 'token_embd.weight' has shape", reshape("token_embd.weight", [256, 4096, 2]))
case("shape_down", S + r"tensor 'blk.2.ffn_down.weight' has shape \[512, 256, 1, 1\], expected \[1024, 256, 1, 1\]", reshape("blk.2.ffn_down.weight", [512, 256]))
case("shape_norm", S + "tensor 'blk.2.ssm_norm.weight' has shape", reshape("blk.2.ssm_norm.weight", [64]))
case("fused_qkv", "unsupported: tensor 'blk.3.attn_qkv.weight': fused", lambda m: m.tensors.append(["blk.3.attn_qkv.weight", [256, 3072], 8]))
case("type_iq3s", "unsupported: tensor 'blk.0.ffn_gate.weight' and 7 more of this role .trunk.: type IQ3_S .*supported: F32, F16, Q4_0", retype(21, "ffn_gate.weight"))
case("type_i8", "unsupported: tensor 'token_embd.weight': type I8", retype(24, "token_embd.weight"))
case("type_f64_norm", "unsupported: tensor 'output_norm.weight': type F64 .*supported: F32, F16, BF16$", retype(28, "output_norm.weight"))
case("type_q8_norm", "unsupported: tensor 'blk.0.attn_norm.weight' and 7 more .*type Q8_0", retype(8, ".attn_norm.weight"))
case("type_many", "unsupported: tensor 'blk.0.attn_qkv.weight'", both(retype(17, "attn_qkv.weight"), retype(18, "ffn_up.weight"), retype(35, "ffn_down.weight"), retype(21, "blk.8.attn_k.weight")))
case("type_and_shape", "unsupported: tensor 'blk.0.ffn_gate.weight'", both(retype(21, "ffn_gate.weight"), reshape("blk.5.ssm_a", [5])))
case("vectors_f16", "+", retype(1, "norm.weight", "ssm_a", "ssm_dt.bias", "ssm_conv1d.weight"))
case("vectors_bf16", "+", retype(30, "norm.weight", "ssm_a", "ssm_dt.bias", "ssm_conv1d.weight"))
case("extra_tensor", "+", lambda m: m.tensors.append(["rope_freqs.weight", [32], 0]))
# MTP
case("mtp_missing", "+", remove("blk.8."))
case("mtp_partial", S + "tensor 'blk.8.nextn.eh_proj.weight' is missing", remove("blk.8.nextn.eh_proj"))
case("mtp_only", "unsupported: the file holds only an MTP block", remove(*[f"blk.{i}." for i in range(8)]))
case("mtp_unannounced", "(E_SCHEMA|unsupported): ", drop(A + "nextn_predict_layers"))
# tokenizer
case("tok_model", "unsupported: tokenizer.ggml.model is .llama.*, supported: gpt2", key(T + "model", STR, b"llama"))
case("tok_pre", "unsupported: tokenizer.ggml.pre is ", key(T + "pre", STR, b"llama-bpe"))
case("tok_pre_missing", "tokenizer.ggml.pre", drop(T + "pre"))
for name in ("model", "tokens", "token_type", "merges"):
    case("tok_missing_" + name, S + f".*key 'tokenizer.ggml.{name}' is missing", drop(T + name))
types = dense.keys[T + "token_type"][1][1]
case("tok_type_u8", S + "key 'tokenizer.ggml.token_type' is of type array of u8, expected array of i32", key(T + "token_type", ARR, (U8, types)))
case("tok_type_short", S + "key 'tokenizer.ggml.token_type' has 8191 elements, expected 8192", key(T + "token_type", ARR, (I32, types[:-1])))
case("tok_type_strings", S + "key 'tokenizer.ggml.token_type'", key(T + "token_type", ARR, (STR, [b"1"] * 8192)))
case("tok_type_value", S, key(T + "token_type", ARR, (I32, [77] + types[1:])))
case("tok_scores_u8", S + "key 'tokenizer.ggml.scores' is of type array of u8", key(T + "scores", ARR, (U8, [0] * 8192)))
case("tok_scores_short", S + "key 'tokenizer.ggml.scores' has 5 elements", key(T + "scores", ARR, (F32, [0.0] * 5)))
tokens = dense.keys[T + "tokens"][1][1]
case("tok_tokens_u32", S + "key 'tokenizer.ggml.tokens' is of type array of u32", key(T + "tokens", ARR, (U32, [1] * 8192)))
case("tok_tokens_short", S + "key 'tokenizer.ggml.tokens' has 8191 elements", both(key(T + "tokens", ARR, (STR, tokens[:-1])), key(T + "token_type", ARR, (I32, types[:-1]))))
case("tok_tokens_none", S, both(key(T + "tokens", ARR, (STR, [])), key(T + "token_type", ARR, (I32, []))))
merges = dense.keys[T + "merges"][1][1]
case("tok_merge_no_space", S + "tokenizer.ggml.merges.0.", key(T + "merges", ARR, (STR, [b"th"] + merges[1:])))
case("tok_merge_two_spaces", S + "tokenizer.ggml.merges.0.", key(T + "merges", ARR, (STR, [b"t h e"] + merges[1:])))
case("tok_merge_unknown", "+", key(T + "merges", ARR, (STR, [b"t Q"] + merges[1:])))
for name in ("eos", "bos", "padding", "eot", "mask", "fim_pre", "unknown"):
    case("tok_id_" + name, S + f".*tokenizer.ggml.{name}_token_id'? is 8192", key(T + name + "_token_id", U32, 8192))
case("tok_id_max", S + ".*tokenizer.ggml.eos_token_id'? is 4294967295", key(T + "eos_token_id", U32, 2**32 - 1))
case("tok_id_none", "+", key(T + "mask_token_id", I32, -1))
case("tok_id_minus_2", S + ".*tokenizer.ggml.mask_token_id'? is -2", key(T + "mask_token_id", I32, -2))
case("tok_id_string", S + ".*tokenizer.ggml.mask_token_id'? is of type string", key(T + "mask_token_id", STR, b"5"))
case("tok_bos_flag", S + ".*tokenizer.ggml.add_bos_token", key(T + "add_bos_token", U32, 1))
# odd but harmless metadata
case("odd_metadata", "+", both(key("odd.string", STR, b"a\x1b[31m\xff\x00\n" + "\u202e\u0085\u00e9".encode()), key("odd.nan", F32, math.nan), key("odd.inf", F64, -math.inf),
     key("odd.u64", U64, 2**64 - 1), key("odd.u64s", ARR, (U64, [2**64 - 1, 3])), key("odd.i64", I64, -2**63), key("odd.empty", ARR, (STR, [])), key("odd.\xff\xfe", U8, 7)))
case("name_array", S + "key 'general.name' is of type array of i8, expected string", key("general.name", ARR, (I8, [-1, 2])))
case("file_type_string", S + "key 'general.file_type' is of type string", key("general.file_type", STR, b"7"))
case("template_array", S + "key 'tokenizer.chat_template' is of type array of i8, expected string", key("tokenizer.chat_template", ARR, (I8, [-1, 2])))
case("huge_context", "+", key(A + "context_length", U32, 2**31 - 1))
for name, pattern in made:
    print(name, pattern, sep="\t")

# a split model, and the same with trouble
def shard(n, total, count, tensors, keys, prefix, number=None):
    k = dict(keys)
    k.update({"split.no": [U16, n if number is None else number], "split.count": [U16, total], "split.tensors.count": [I32, count]})
    write(dense, f"{work}/{prefix}-{n + 1:05d}-of-{total:05d}.gguf", tensors=tensors, keys=k)
t = dense.tensors
for prefix, number in (("s_good", 2), ("s_number", 1)):
    shard(0, 3, len(t), [], dense.keys, prefix)
    shard(1, 3, len(t), t[:60], {}, prefix)
    shard(2, 3, len(t), t[60:], {}, prefix, number)
shard(0, 3, len(t), [], dense.keys, "s_missing")
shard(1, 3, len(t), t[:60], {}, "s_missing")
PY
check "cases were made" '[ "$(wc -l <"$WORK/cases")" -gt 130 ]'

while IFS=$'\t' read -r name pattern; do
    file="$WORK/c_$name.gguf"
    if [ "$pattern" = + ]; then
        run "$file"
        check "$name runs: $(tail -n 1 "$WORK/out"): $(head -c 300 "$WORK/err")" '[ $status -eq 0 ] && [ ! -s "$WORK/err" ] && [ "$(tail -n 1 "$WORK/out")" = "runs: yes" ]'
    else
        refused "$name" 1 "$pattern" "$file"
        check "$name: verdict: $(tail -n 1 "$WORK/out")" 'tail -n 1 "$WORK/out" | grep -q "^runs: no: "'
    fi
    check "$name: nothing unprintable" '! LC_ALL=C grep -q "[^[:print:][:space:]]" <(LC_ALL=C sed "s/[\x80-\xff]//g" "$WORK/out" "$WORK/err")'
    run --json "$file"
    mv "$WORK/out" "$WORK/j_$name.$status.json"
done <"$WORK/cases"

# all the JSON of the cases in one go
read -r g b < <(python3 - "$WORK" <<'PY'
import glob, json, sys
good = bad = 0
for path in glob.glob(sys.argv[1] + "/j_*.json"):
    try:
        d = json.load(open(path))
        assert d["runs"] is path.endswith(".0.json")
        assert bool(d["problems"]) is not d["runs"]
        assert d["reason"] == (d["problems"][0]["message"] if d["problems"] else None)
        assert all(p["class"] in ("E_SCHEMA", "unsupported") and "\n" not in p["message"] for p in d["problems"])
        assert (d["memory"] is None) is not d["runs"]
        good += 1
    except (ValueError, AssertionError, KeyError) as e:
        print(f"FAIL: {path}: {e!r}", file=sys.stderr)
        bad += 1
print(good, bad)
PY
)
passed=$((passed + g)) failed=$((failed + b))
check "JSON of all cases" '[ "$g" -eq "$(wc -l <"$WORK/cases")" ]'

run --json "$WORK/c_type_many.gguf"
json_check "every unusable type is listed" "$WORK/out" <<'EOF'
len(d["problems"]) == 6 and all(p["class"] == "unsupported" for p in d["problems"])
[sum(t in p["message"] for p in d["problems"]) for t in ("IQ2_XS", "IQ3_XXS", "TQ2_0", "IQ3_S")] == [1, 2, 2, 1]
{(t["part"], t["role"]) for t in d["tensors"] if t["status"] == "unsupported"} == {("trunk", "attn_qkv.weight"), ("trunk", "ffn_up.weight"), ("trunk", "ffn_down.weight"), ("mtp", "ffn_up.weight"), ("mtp", "ffn_down.weight"), ("mtp", "attn_k.weight")}
EOF
run "$WORK/c_type_many.gguf"
check "text lists them too" '[ "$(grep -c "^problem: unsupported: tensor" "$WORK/out")" -eq 6 ] && grep -q "(cannot run)$" "$WORK/out"'
run "$WORK/c_type_and_shape.gguf"
check "type and shape problems together" 'grep -q "^problem: unsupported: .*IQ3_S" "$WORK/out" && grep -q "^problem: E_SCHEMA: tensor .blk.5.ssm_a. has shape" "$WORK/out"'
run --json "$WORK/c_mtp_missing.gguf"
json_check "MTP block announced but missing" "$WORK/out" <<'EOF'
d["mtp"] == {"state": "missing", "block": 8} and len(d["warnings"]) == 1 and "MTP" in d["warnings"][0]
d["memory"]["kv_page_bytes"] == 2 * 2 * 2 * 256 * 512
EOF
run --json "$WORK/c_mtp_only.gguf"
json_check "MTP-only file" "$WORK/out" <<'EOF'
d["kind"] == "MTP draft head without a model" and d["runs"] is False
EOF
run --json "$WORK/c_extra_tensor.gguf"
json_check "unknown tensor" "$WORK/out" <<'EOF'
[t["role"] for t in d["tensors"] if t["status"] == "unused"] == ["rope_freqs.weight"] and len(d["warnings"]) == 1
EOF
run --json "$WORK/c_odd_metadata.gguf"
json_check "odd metadata" "$WORK/out" <<'EOF'
d["metadata"]["odd.string"]["value"] == "a\x1b[31m\ufffd\x00\n\u202e\x85\xe9"
d["metadata"]["odd.u64"]["value"] == "18446744073709551615" and d["metadata"]["odd.u64s"]["value"] == ["18446744073709551615", 3]
d["metadata"]["odd.i64"]["value"] == -2**63 and d["metadata"]["odd.nan"]["value"].strip("-") == "nan" and d["metadata"]["odd.inf"]["value"] == "-inf"
d["metadata"]["odd.empty"]["count"] == 0 and d["metadata"]["odd.\\xFF\\xFE"]["value"] == 7
EOF
run "$WORK/c_odd_metadata.gguf"
check "odd metadata as text" 'grep -qF "odd.string = \"a\\x1B[31m\\xFF\\x00\\n\\u202E\\u0085é\"" "$WORK/out"'
run "$WORK/c_huge_context.gguf"
check "huge context" 'grep -q "session of 2147483647 tokens" "$WORK/out" && grep -q "8388608 pages" "$WORK/out"'
run --json "$WORK/c_vectors_f16.gguf"
json_check "widened vectors" "$WORK/out" <<'EOF'
d["memory"]["vector_bytes"] > 100000
EOF

# split files
run --json "$WORK/s_good-00001-of-00003.gguf"
json_check "split model" "$WORK/out" <<'EOF'
d["runs"] is True and len(d["container"]["shards"]) == 3 and d["container"]["tensors"] == 123
d["container"]["bytes"] == sum(s["bytes"] for s in d["container"]["shards"]) == d["memory"]["file_bytes"]
EOF
run "$WORK/s_good-00001-of-00003.gguf"
check "split model as text" '[ $status -eq 0 ] && [ "$(grep -c "of-00003.gguf, " "$WORK/out")" -eq 3 ] && grep -q "^all files" "$WORK/out"'
refused "second shard first" 1 "E_SPLIT" "$WORK/s_good-00002-of-00003.gguf"
refused "shard numbers" 1 "E_SPLIT" "$WORK/s_number-00001-of-00003.gguf"
refused "missing shard" 1 "s_missing-00003-of-00003.gguf" "$WORK/s_missing-00001-of-00003.gguf"
refused "missing shard, container" 1 "E_SPLIT|cannot open" --container "$WORK/s_missing-00001-of-00003.gguf"

# the data itself
python3 - "$dense" "$WORK" <<'PY' || check "damaged copies could be made" false
import json, subprocess, os, struct, sys
path, work = sys.argv[1:]
data = open(path, "rb").read()
def tensor(name):  # offset of the data: found by its name in the tensor table
    at = data.index(struct.pack("<Q", len(name)) + name.encode()) + 8 + len(name)
    dims = struct.unpack_from("<I", data, at)[0]
    offset = struct.unpack_from("<Q", data, at + 4 + 8 * dims + 4)[0]
    start = len(data) - sum(-(-t["bytes"] // 32) * 32 for t in json.loads(subprocess.run([os.environ["SKUA"], "inspect", "--verify", "--json", path],
                            capture_output=True).stdout)["tensors"])
    return start + offset
def damaged(to, *edits):
    b = bytearray(data)
    for at, new in edits:
        b[at:at + len(new)] = new
    open(f"{work}/{to}", "wb").write(b)
ffn, norm = tensor("blk.2.ffn_down.weight"), tensor("blk.3.attn_norm.weight")
damaged("v_scale", (ffn + 34 * (32 * 5 + 3), struct.pack("<H", 0x7E00)))  # row 5 of 1024 values, block 3: NaN
damaged("v_two", (ffn, struct.pack("<H", 0xFC00)), (norm + 4 * 17, struct.pack("<f", float("inf"))))
damaged("v_value", (ffn + 34 * 7 + 2, b"\x55"))
PY
run --verify "$dense"
check "verify: sound" '[ $status -eq 0 ] && grep -q ": ok: 123 tensors, 16.0 MiB, xxh3 [0-9a-f]\{16\}$" "$WORK/out" && [ "$(wc -l <"$WORK/out")" -eq 1 ]'
sum=$(sed 's/.* //' "$WORK/out")
"$SKUA" shards split "$dense" "$WORK/v_split" --max-tensors 50 >/dev/null
run --verify "$WORK/v_split-00001-of-00003.gguf"
check "verify: the same tensors in shards" '[ $status -eq 0 ] && grep -q " xxh3 $sum$" "$WORK/out"'
refused "verify: a scale" 1 "v_scale: the data of 1 tensors is damaged" --verify "$WORK/v_scale"
check "verify: where" 'grep -q "^  blk.2.ffn_down.weight: row 5, from value 0 on: elements 96 to 127 of a Q8_0 row: a scale is not finite$" "$WORK/out"'
refused "verify: two tensors" 1 "v_two: the data of 2 tensors is damaged" --verify "$WORK/v_two"
check "verify: both" '[ "$(grep -c "^  blk" "$WORK/out")" -eq 2 ] && grep -q "^  blk.3.attn_norm.weight: row 0, from value 0 on: elements 17 to 17 of a F32 row" "$WORK/out"'
run --verify "$dense" "$WORK/v_two" "$WORK/v_value"
check "verify: each of several files" '[ $status -eq 1 ] && [ "$(grep -c "xxh3" "$WORK/out")" -eq 3 ] && [ "$(wc -l <"$WORK/err")" -eq 1 ]'
check "verify: another value, another sum" 'grep -q "v_value: ok" "$WORK/out" && ! grep -q "v_value.* $sum$" "$WORK/out"'
run --verify --json "$WORK/v_two"
json_check "verify: JSON" "$WORK/out" <<'EOF'
d["damaged"] == 2 and len(d["tensors"]) == 123 and all(t["checked"] for t in d["tensors"])
sorted(t["name"] for t in d["tensors"] if t["problem"]) == ["blk.2.ffn_down.weight", "blk.3.attn_norm.weight"]
EOF
refused "verify: no file" 2 "verify needs" --verify
refused "verify and container" 2 "exclude each other" --verify --container "$dense"
for options in "--ctx 5" "--kv-type F16" --all; do
    refused "verify and $options" 2 "do not go with --verify" --verify $options "$dense"
    refused "container and $options" 2 "do not go with --container" --container $options "$dense"
done
refused "container and JSON" 2 "and --json do not go with --container" --container --json "$dense"
refused "verify: missing file" 1 "cannot open" --verify "$WORK/none.gguf"

# truncated and corrupted copies
head -c 1000 "$dense" >"$WORK/cut_keys"
head -c 400000 "$dense" >"$WORK/cut_data"
head -c $((size - 100000)) "$dense" >"$WORK/cut_end"
refused "cut in the keys" 1 "E_(COUNT|STRING|ARRAY|TRUNCATED)" "$WORK/cut_keys"
refused "cut in the data" 1 "E_RANGE" "$WORK/cut_data"
refused "cut at the end" 1 "E_RANGE" "$WORK/cut_end"
refused "cut at the end, JSON" 1 "E_RANGE" --json "$WORK/cut_end"
json_check "cut at the end, JSON" "$WORK/out" <<<'d["problems"][0]["class"] == "E_RANGE"'
python3 - "$dense" "$WORK" <<'PY'
import random, sys
data = open(sys.argv[1], "rb").read(400000)
r = random.Random(7)
for i in range(24):
    b = bytearray(data)
    for _ in range(3):
        b[r.randrange(4, 1200) if i % 2 else r.randrange(4, 320000)] = r.randrange(256)
    with open(f"{sys.argv[2]}/m_{i}.gguf", "wb") as f:
        f.write(b)
        f.truncate(17025216)
PY
for i in $(seq 0 23); do
    run "$WORK/m_$i.gguf"
    check "mutant $i: status $status" '{ [ $status -eq 0 ] && [ ! -s "$WORK/err" ]; } || { [ $status -eq 1 ] && [ "$(wc -l <"$WORK/err")" -eq 1 ]; }'
    rm -f "$WORK/m_$i.gguf"
done

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
