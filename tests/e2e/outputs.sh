#!/usr/bin/env bash
# Every command that writes a file, with everything that may be at the output's name: what is no regular file is refused and stays, what
# the command reads is refused and stays, a symbolic link is followed. See lib.bash.
. tests/e2e/lib.bash
head -c 3000 README.md >"$WORK/text.txt"
checkpoint=
[ -d "$SHARED/hf/tiny-dense" ] && checkpoint=$(realpath "$SHARED/hf/tiny-dense")
cd "$WORK" || exit 1
cp "$MODEL" model.gguf

run perplexity -m model.gguf -f text.txt --chunk-size 64 --chunks 1 --save-base base.logp
run imatrix -m model.gguf -f text.txt --chunk-size 64 --chunks 1 weights.dat
check "the inputs are there" '[ -s base.logp ] && [ -s weights.dat ]'
mkdir folder
mkfifo fifo
ln -s fifo link-to-fifo
ln -s loop loop
ln -s nothing link-to-nothing
listing() { find . -printf '%p %y %s %T@ %l\n' | grep -vE '^(\.|\./(out|err|before|after)) ' | sort; }

# Commands with OUT for the output; the program of each is started once for every target.
commands=(
    "quantize model.gguf OUT COPY"
    "shards merge part-00001-of-00002.gguf OUT"
    "imatrix -m model.gguf -f text.txt --chunk-size 64 --chunks 1 OUT"
    "perplexity -m model.gguf -f text.txt --chunk-size 64 --chunks 1 --save-base OUT"
    "logits -m model.gguf --ids 1 --dump OUT"
)
if [ -n "$checkpoint" ]; then
    cp -r "$checkpoint" checkpoint
    commands+=("convert checkpoint OUT")
else
    skip "convert"
fi
run shards split model.gguf part --max-tensors 100
refuse() { # command with OUT, output, pattern
    local words
    read -ra words <<<"$1"
    refused "$1: '$2'" 1 "$3" "${words[@]/#OUT/$2}"
}
listing >before
for command in "${commands[@]}"; do
    refuse "$command" "" "the name of the output is empty"
    refuse "$command" folder "folder: is a folder; expected a name for the output"
    refuse "$command" fifo "fifo: is not a regular file; expected a name for the output"
    refuse "$command" link-to-fifo "link-to-fifo: is not a regular file"
    refuse "$command" link-to-nothing "link-to-nothing: cannot follow the symbolic link: No such file"
    refuse "$command" loop "loop: cannot follow the symbolic link: Too many levels"
    refuse "$command" none/file "none/file.*: cannot create: No such file"
    refuse "$command" text.txt/file "text.txt/file.*: cannot create: Not a directory"
done
while IFS='|' read -r pattern command; do
    read -ra words <<<"$command"
    [ "${words[0]}" = convert ] && [ -z "$checkpoint" ] && continue
    refused "$command" 1 "$pattern; expected another name for the output" "${words[@]}"
done <<'CASES'
model.gguf: is the input|quantize model.gguf ./model.gguf COPY
part-00002-of-00002.gguf: is the input|shards merge part-00001-of-00002.gguf part-00002-of-00002.gguf
weights.dat: is the importance matrix|quantize -i weights.dat model.gguf weights.dat COPY
model.gguf: is the input|imatrix -m model.gguf -f text.txt --chunk-size 64 --chunks 1 model.gguf
text.txt: is the text|imatrix -m model.gguf -f text.txt --chunk-size 64 --chunks 1 text.txt
model.gguf: is the input|perplexity -m model.gguf -f text.txt --save-base model.gguf
text.txt: is the text|perplexity -m model.gguf -f text.txt --save-base text.txt
base.logp: is the base of --kl-base|perplexity -m model.gguf -f text.txt --kl-base ./base.logp --save-base base.logp
model.gguf: is the input|logits -m model.gguf --ids 1 --dump model.gguf
checkpoint/config.json: is a file of the checkpoint|convert checkpoint checkpoint/config.json
checkpoint/tokenizer.json: is a file of the checkpoint|convert checkpoint checkpoint/tokenizer.json
checkpoint/model-00002-of-00003.safetensors: is a file of the checkpoint|convert checkpoint checkpoint/model-00002-of-00003.safetensors
CASES
listing >after
check "nothing was touched: $(diff before after)" 'cmp -s before after'

# a link is followed, and stays
i=0
for command in "${commands[@]}"; do
    i=$((i + 1))
    mkdir "place$i"
    echo old >"place$i/file"
    ln -s "place$i/file" "link$i"
    read -ra words <<<"$command"
    run "${words[@]/#OUT/link$i}"
    check "$command: through a link: $(head -c 300 err)" '[ $status -eq 0 ] && [ -L "link$i" ] && [ "$(wc -c <"place$i/file")" -gt 100 ] && [ "$(ls "place$i")" = file ]'
done
refused "shards with an empty prefix" 2 "PREFIX is empty" shards split model.gguf "" --max-tensors 100

finish
