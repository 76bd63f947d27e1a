#!/usr/bin/env bash
# skua tokenize: ids, pieces and JSON, and the way back, which gives every byte again. See lib.bash.
. tests/e2e/lib.bash
newline=$'\n'

# ---- forms of output ----

run tokenize "Hello, world! <|im_end|>"
cp "$WORK/out" "$WORK/ids"
check "ids: $(cat "$WORK/out")" '[ $status -eq 0 ] && [ ! -s "$WORK/err" ] && grep -qE "^[0-9]+(,[0-9]+)*,8177$" "$WORK/out" && [ "$(wc -l <"$WORK/out")" -eq 1 ]'
run tokenize --json "Hello, world! <|im_end|>"
json_check "--json" "$WORK/out" <<'EOF'
list(d) == ["ids"] and d["ids"] == [int(x) for x in open(WORK + "/ids").read().split(",")]
EOF
run tokenize --json --pieces "Hello, wörld! <|im_end|> 😀"
json_check "--json --pieces" "$WORK/out" <<'EOF'
list(d) == ["ids", "pieces"] and len(d["ids"]) == len(d["pieces"]) and "<|im_end|>" in d["pieces"]
b"".join(p.encode() if isinstance(p, str) else bytes(p) for p in d["pieces"]).decode() == "Hello, wörld! <|im_end|> 😀"
EOF
cp "$WORK/out" "$WORK/json"
run tokenize --pieces "Hello, wörld! <|im_end|> 😀"
python3 - "$WORK/out" "$WORK/json" <<'PY'
import json, sys
d = json.load(open(sys.argv[2]))
lines = [l.rstrip("\n").split("\t") for l in open(sys.argv[1])]
sys.exit(not ([int(l[0]) for l in lines] == d["ids"] and [json.loads(l[1]) for l in lines] == d["pieces"]))
PY
check "--pieces says the same in lines" "[ $? -eq 0 ]"
run tokenize --no-special "<|im_end|>"
check "--no-special" '[ $status -eq 0 ] && ! grep -qE "(^|,)8177(,|$)" "$WORK/out"'
run tokenize ""
check "no text" '[ $status -eq 0 ] && is "$newline"'

# ---- the way back ----

check_back() { # name; $WORK/in holds the text
    cp "$WORK/in" "$WORK/text"
    "$SKUA" tokenize $2 <"$WORK/text" >"$WORK/ids" 2>"$WORK/err" && "$SKUA" tokenize --decode <"$WORK/ids" >"$WORK/out" 2>>"$WORK/err"
    status=$?
    sound "$1"
    python3 - "$WORK/text" "$WORK/out" <<'PY'
import sys
text, back = open(sys.argv[1], "rb").read(), open(sys.argv[2], "rb").read()
want, i = b"", 0
while i < len(text): # bytes that are no UTF-8 become U+FFFD, each on its own
    for n in (1, 2, 3, 4):
        try:
            text[i:i + n].decode()
            want += text[i:i + n]
            break
        except UnicodeDecodeError:
            pass
    else:
        n = 1
        want += "\ufffd".encode()
    i += n
sys.exit(want != back)
PY
    check "$1 $2: comes back" "[ $? -eq 0 ] && [ $status -eq 0 ] && [ ! -s '$WORK/err' ]"
}
python3 - "$WORK" <<'PY'
import random, sys
r = random.Random(11)
def put(name, data):
    open(f"{sys.argv[1]}/case_{name}", "wb").write(data)
put("bytes", bytes(range(256)) * 3)
put("random", bytes(r.randrange(256) for _ in range(20000)))
put("unicode", "".join(chr(c) for c in (r.choice([r.randrange(0x20, 0x7f), r.randrange(0x800), r.randrange(0x800, 0xd800), r.randrange(0xe000, 0x110000)])
                                        for _ in range(20000))).encode())
put("space", b" \t\r\n\n   \x0b\x0c \xc2\xa0\xe3\x80\x80 " * 50 + b"end  ")
put("special", b"<|im_start|>user\n<think>x</think><|im_end|><|endoftext|><|im_<|im_end|>" * 5)
put("zeros", bytes(5000))
put("words", open("README.md", "rb").read() if __import__("os").path.exists("README.md") else b"The quick brown fox don't\n" * 100)
put("newline", b"\n")
PY
for file in "$WORK"/case_*; do
    cp "$file" "$WORK/in"
    for options in "" --no-special; do
        check_back "${file##*/case_}" "$options"
    done
    run tokenize -f "$file"
    cp "$WORK/out" "$WORK/by_file"
    run tokenize
    check "${file##*/}: -f and standard input" '[ $status -eq 0 ] && cmp -s "$WORK/out" "$WORK/by_file"'
    run tokenize --json --pieces
    cp "$WORK/out" "$WORK/pieces"
    check "${file##*/}: pieces are printable" '! LC_ALL=C grep -qE $'"'"'[\x01-\x09\x0b-\x1f\x7f]'"'"' "$WORK/out" && iconv -f UTF-8 -t UTF-8 "$WORK/out" >/dev/null'
    rm "$WORK/in"
    json_check "${file##*/}: --json --pieces" "$WORK/pieces" <<<'len(d["ids"]) == len(d["pieces"]) and d["ids"] == [int(x) for x in open(WORK + "/by_file").read().split(",")]'
done
for form in "8177,785" "8177 785" "[8177, 785]" " 8177,,785 "; do
    run tokenize --decode "$form"
    cp "$WORK/out" "$WORK/form"
    run tokenize -d "8177,785"
    check "--decode '$form'" '[ $status -eq 0 ] && [ -s "$WORK/out" ] && cmp -s "$WORK/out" "$WORK/form"'
done
run tokenize --decode --no-special "8177"
check "control tokens print nothing with --no-special" '[ $status -eq 0 ] && [ ! -s "$WORK/out" ]'
run tokenize --decode --json "8177"
json_check "--decode --json" "$WORK/out" <<<'d == {"text": "<|im_end|>"}'
run tokenize --decode ""
check "no ids" '[ $status -eq 0 ] && [ ! -s "$WORK/out" ]'

# ---- what is refused ----

refused "a word among the ids" 1 '"x" at byte 2 of the ids is no token id' tokenize --decode "1,x"
refused "control characters among the ids" 1 "at byte 0 of the ids is no token id" tokenize --decode $'\x1b[m'
refused "an id that is none" 1 "token 1 is id 8192, expected below the vocabulary size 8192" tokenize --decode "1,8192"
refused "a huge id" 1 "is no token id" tokenize --decode 99999999999
refused "a missing file" 1 "$WORK/none: cannot open" tokenize -f "$WORK/none"
refused "a folder" 1 "$WORK: cannot read: Is a directory" tokenize -f "$WORK"

# ---- on a terminal nothing but text is printed ----

python3 - "$SKUA" <<'PY'
import os, pty, subprocess, sys
skua = sys.argv[1]
ids = subprocess.run([skua, "tokenize", "a\x1b[31mb\x07\x9bc\nd"], capture_output=True, stdin=subprocess.DEVNULL).stdout.decode()
main, side = pty.openpty()
p = subprocess.run([skua, "tokenize", "--decode", ids], stdin=subprocess.DEVNULL, stdout=side, stderr=subprocess.PIPE)
os.close(side)
seen = os.read(main, 4096)
sys.exit(not (p.returncode == 0 and b"\x1b" not in seen and b"\x07" not in seen and b"\xc2\x9b" not in seen and seen.startswith(b"a^[[31mb^G")
              and seen.endswith(b"c\r\nd")))
PY
check "decoded control characters on a terminal" "[ $? -eq 0 ]"

finish
