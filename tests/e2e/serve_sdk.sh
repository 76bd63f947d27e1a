#!/usr/bin/env bash
# The official npm clients of OpenAI and Anthropic against skua serve with the shipped model. Their packages come from the registry at the
# first run; without npm or a registry this is skipped. See lib.bash, npm.bash.
. tests/e2e/lib.bash
. tests/e2e/npm.bash
npm_packages sdk 120
cp tests/e2e/sdk/*.mjs "$WORK/"
ln -s "$PACKAGES/node_modules" "$WORK/node_modules"
for suite in openai responses anthropic; do
    SKUA=$SKUA MODEL=$MODEL timeout -k 5 300 node "$WORK/$suite.mjs" >"$WORK/$suite.out" 2>"$WORK/$suite.err" &
done
wait
for suite in openai responses anthropic; do
    cat "$WORK/$suite.err" >&2
    if read -r good _ wrong _ < <(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$WORK/$suite.out"); then
        passed=$((passed + good)) failed=$((failed + wrong))
    else
        bad "$suite did not come to its end: $(tail -c 600 "$WORK/$suite.out")"
    fi
done
finish
