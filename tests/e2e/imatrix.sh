#!/usr/bin/env bash
# skua imatrix: the public format, the same bytes for any number of threads and after any interruption, and one line for every mistake. See
# lib.bash.
. tests/e2e/lib.bash
moe=$(realpath tests/data/tiny-moe-q8_0.gguf)
cd "$WORK" || exit 1
python3 - <<'PY' >text.txt
names, things, places = "Anna Ben Clara David Grace".split(), "apples books coins keys drums".split(), "garden house market harbour".split()
for i in range(160):
    print(f"{names[i % 5]} has {(i * 37) % 97} {things[i * 3 % 5]} in the {places[i * 7 % 4]}.", end="\n" if i % 9 == 0 else " ")
PY

# ---- results ----

run imatrix --help
check "help" '[ $status -eq 0 ] && [ ! -s err ] && grep -q "^example: skua imatrix" out && grep -q "MTP block" out'
run imatrix -m "$MODEL" -f text.txt --chunk-size 64 --chunks 9 -t 2 whole.gguf
check "runs: $(cat err)" '[ $status -eq 0 ] && [ ! -s err ] && is "whole.gguf: 62 tensors, 9 chunks of 64 tokens
"'
python3 - whole.gguf <<'PY'
import struct, sys
b = open(sys.argv[1], "rb").read()
at = 24
def take(fmt):
    global at
    v = struct.unpack_from("<" + fmt, b, at)
    at += struct.calcsize("<" + fmt)
    return v[0] if len(v) == 1 else v
def text():
    global at
    n = take("Q")
    at += n
    return b[at - n:at].decode()
def value(t):
    if t == 9:
        e, n = take("IQ")
        return [value(e) for _ in range(n)]
    return text() if t == 8 else take({4: "I", 10: "Q"}[t])
magic, version, n_tensors, n_keys = struct.unpack_from("<4sIQQ", b)
keys = {}
for _ in range(n_keys):
    k = text()
    keys[k] = value(take("I"))
tensors = {}
for _ in range(n_tensors):
    name, n = text(), take("I")
    ne = [take("Q") for _ in range(n)]
    tensors[name] = (ne, take("I"), take("Q"))
data = (at + 31) // 32 * 32
ok = magic == b"GGUF" and version == 3 and keys["general.type"] == "imatrix" and keys["imatrix.datasets"] == ["text.txt"]
ok &= keys["imatrix.chunk_count"] == 9 and keys["imatrix.chunk_size"] == 64 and "general.architecture" not in keys
for name, (ne, t, offset) in tensors.items():
    base, _, kind = name.rpartition(".")
    ok &= t == 0 and kind in ("in_sum2", "counts") and base.startswith("blk.") and base.endswith(".weight")
    ok &= base + ".in_sum2" in tensors and base + ".counts" in tensors
    if kind == "counts":
        ok &= ne == [1] and struct.unpack_from("<f", b, data + offset)[0] == 9 * 64
    else:
        v = struct.unpack_from("<%df" % ne[0], b, data + offset)
        ok &= all(x >= 0 for x in v) and sum(v) > 0
sys.exit(not ok)
PY
check "the public format" "[ $? -eq 0 ]"
run imatrix -m "$MODEL" -f text.txt --chunk-size 64 --chunks 9 -t 1 other.gguf
check "one thread: the same bytes" '[ $status -eq 0 ] && cmp -s whole.gguf other.gguf'
run imatrix -m "$MODEL" -f text.txt --chunk-size 64 --chunks 2 --output-weight head.gguf
check "with the output head" '[ $status -eq 0 ] && is "head.gguf: 63 tensors, 2 chunks of 64 tokens
"'
run imatrix -m "$moe" -f text.txt --chunk-size 64 --chunks 1 moe.gguf
check "experts: $(cat err)" '[ $status -eq 0 ] && grep -q "51 tensors" out && [ "$(wc -l <err)" -le 1 ]'
run imatrix -m "$MODEL" -f text.txt --chunk-size 64 --chunks 500 --save-every 0 all.gguf
check "more chunks than there are: $(cat err)" '[ $status -eq 0 ] && one_line "fewer than --chunks 500"'
run inspect --container whole.gguf
check "a sound file" '[ $status -eq 0 ]'

# ---- interruption and --resume ----

run imatrix -m "$MODEL" -f text.txt --chunk-size 64 --chunks 4 part.gguf
run imatrix -m "$MODEL" -f text.txt --chunk-size 64 --chunks 9 -t 1 --resume part.gguf
check "--resume: the same bytes" '[ $status -eq 0 ] && cmp -s whole.gguf part.gguf'
run imatrix -m "$MODEL" -f text.txt --chunk-size 64 --chunks 9 --resume part.gguf
check "--resume of what is complete" '[ $status -eq 0 ] && cmp -s whole.gguf part.gguf && grep -q "9 chunks" out'

python3 -c 'print(open("text.txt").read() * 12)' >long.txt
mkdir long && mv long.txt long/text.txt
"$SKUA" imatrix -m "$MODEL" -f long/text.txt --chunk-size 64 --save-every 3 -t 1 stopped.gguf >out 2>err &
pid=$!
for _ in $(seq 200); do [ -e stopped.gguf ] && break; sleep 0.05; done
kill -TERM $pid
wait $pid
status=$?
if [ $status -eq 0 ]; then
    skip "the interruption came too late"
else
    sound "interrupted"
    check "interrupted: $(cat err)" '[ $status -eq 1 ] && one_line "interrupted after [0-9]+ of [0-9]+ chunks; stopped.gguf holds these"'
    n=$(grep -oE "after [0-9]+" err | grep -oE "[0-9]+")
    check "no temporary file is left" '! ls | grep -q "tmp"'
    run imatrix -m "$MODEL" -f long/text.txt --chunk-size 64 --chunks $((n + 1)) --resume stopped.gguf
    check "goes on: $(cat err)" '[ $status -eq 0 ]'
    run imatrix -m "$MODEL" -f long/text.txt --chunk-size 64 --chunks $((n + 1)) straight.gguf
    check "the same bytes as without the interruption" '[ $status -eq 0 ] && cmp -s straight.gguf stopped.gguf'
fi

# ---- mistakes ----

cp whole.gguf held.gguf
refused "another model" 1 "held.gguf: cannot be continued: it has no entry 'blk.0.ffn_[a-z_]+.weight', which this model needs" imatrix -m "$moe" -f text.txt --chunk-size 64 --resume held.gguf
refused "another head" 1 "held.gguf: cannot be continued: it has no entry" imatrix -m "$MODEL" -f text.txt --chunk-size 64 --output-weight --resume held.gguf
refused "less than held" 1 "held.gguf: cannot be continued: it has 63|head.gguf: cannot be continued: it has 63 entries, expected 62" imatrix -m "$MODEL" -f text.txt --chunk-size 64 --resume head.gguf
refused "other chunks" 1 "held.gguf: cannot be continued: its chunks have 64 tokens, --chunk-size is 32" imatrix -m "$MODEL" -f text.txt --chunk-size 32 --resume held.gguf
cp text.txt named.txt
refused "another name" 1 "held.gguf: cannot be continued: its text is 'text.txt', not 'named.txt'" imatrix -m "$MODEL" -f named.txt --chunk-size 64 --resume held.gguf
mkdir other && sed 's/Clara/Klara/' text.txt >other/text.txt
refused "another text" 1 "held.gguf: cannot be continued: its 9 chunks had other tokens than 'text.txt' gives now" imatrix -m "$MODEL" -f other/text.txt --chunk-size 64 --resume held.gguf
refused "fewer chunks" 1 "held.gguf: cannot be continued: it holds 9 chunks, more than the 3" imatrix -m "$MODEL" -f text.txt --chunk-size 64 --chunks 3 --resume held.gguf
refused "nothing to resume" 1 "none.gguf: cannot open" imatrix -m "$MODEL" -f text.txt --resume none.gguf
refused "no importance matrix" 1 "tiny-q8_0.gguf: is no importance matrix|model.gguf: is no importance matrix" imatrix -m "$moe" -f text.txt --resume "$(cp "$MODEL" model.gguf; echo model.gguf)"
check "what was refused is as it was" 'cmp -s whole.gguf held.gguf'
: >empty.txt
refused "empty text" 1 "empty.txt: is empty; expected a text of at least 512 tokens" imatrix -m "$MODEL" -f empty.txt a.gguf
echo "Too short." >short.txt
refused "short text" 1 "short.txt: [0-9]+ tokens do not fill one chunk of 512; expected a longer text or a smaller --chunk-size" imatrix -m "$MODEL" -f short.txt a.gguf
refused "no such text" 1 "none.txt: cannot open" imatrix -m "$MODEL" -f none.txt a.gguf
refused "no such model" 1 "none.gguf" imatrix -m none.gguf -f text.txt a.gguf
refused "no such folder" 1 "none/a.gguf" imatrix -m "$MODEL" -f text.txt none/a.gguf
refused "a folder" 1 "other: is a folder" imatrix -m "$MODEL" -f text.txt other
cp "$moe" own.gguf
refused "onto the model" 1 "own.gguf: is the input" imatrix -m own.gguf -f text.txt own.gguf
refused "onto the text" 1 "text.txt: is the text" imatrix -m "$MODEL" -f text.txt text.txt
check "both are as they were" 'cmp -s "$moe" own.gguf && [ "$(wc -l <text.txt)" -gt 5 ]'
refused "no text" 2 "-f is missing" imatrix -m "$MODEL" a.gguf
refused "no output" 2 "OUT.gguf is missing" imatrix -m "$MODEL" -f text.txt
refused "two outputs" 2 "unexpected argument 'b.gguf'" imatrix -m "$MODEL" -f text.txt a.gguf b.gguf
refused "chunk size" 2 "--chunk-size" imatrix -m "$MODEL" -f text.txt --chunk-size 1 a.gguf
refused "unknown option" 2 "--ctx" imatrix -m "$MODEL" -f text.txt --ctx 5 a.gguf
check "nothing else was written" '[ ! -e a.gguf ] && ! ls | grep -q tmp'

finish
