#!/usr/bin/env bash
# Claude Code and Codex, the programs themselves, for a one-turn task against skua serve: all that they send is understood (no status but
# 200), and what they send again is found again. The shipped model's text does not matter: its answers are cut by limits.
# SKUA_AGENTS: a folder with node_modules, after `npm install @anthropic-ai/claude-code @openai/codex` there (700 MB, hence not by itself);
# without it this is skipped.
. tests/e2e/lib.bash
if [ -z "${SKUA_AGENTS:-}" ]; then
    skip "serve_agents: SKUA_AGENTS names no folder with the agents' packages"
    echo "$passed passed, $failed failed, $skipped skipped"
    exit 0
fi
bin=$(realpath "$SKUA_AGENTS")/node_modules/.bin
mkdir -p "$WORK/home/.codex" "$WORK/task"

start() { # options of the server
    : >"$WORK/log"
    "$SKUA" serve -m "$MODEL" --port 0 --parallel 2 "$@" 2>"$WORK/log" &
    server=$!
    port=
    for _ in $(seq 100); do
        port=$(sed -nE 's/.*listening on http:\/\/[^ ]*:([0-9]+)$/\1/p' "$WORK/log")
        [ -n "$port" ] && curl -sf "http://127.0.0.1:$port/ready" >/dev/null && return
        sleep 0.1
    done
    bad "the server did not start: $(cat "$WORK/log")"
}
stop() { kill -TERM $server && wait $server; }
agent() { (cd "$WORK/task" && env -i PATH="$PATH" HOME="$WORK/home" "$@" </dev/null >"$WORK/agent" 2>&1); }
statuses() { sed -nE 's/.* req_[^ ]+ (\/[^ ]+) ([0-9]+): .*/\2/p' "$WORK/log" | sort -u; }

# Claude Code: an answer that its limit cuts is asked for again, which is what the cache is for.
start --ctx 131072
agent ANTHROPIC_BASE_URL="http://127.0.0.1:$port" ANTHROPIC_API_KEY=none DISABLE_TELEMETRY=1 CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 \
    CLAUDE_CODE_MAX_OUTPUT_TOKENS=200 timeout -k 5 200 "$bin/claude" -p "Say hello." --model claude-sonnet-4-5
stop
check "Claude Code: statuses $(statuses)" '[ "$(statuses)" = 200 ]'
again() { # of the prompts after the first, those of which less than 95 % was found again
    sed -nE 's/.*: prompt ([0-9]+) \(([0-9]+) cached.*/\1 \2/p' "$WORK/log" | awk 'NR > 1 && $2 < 0.95 * $1'
}
check "Claude Code: read again: $(again)" '[ -z "$(again)" ]'
check "Claude Code: it understood the answer: $(tail -c 300 "$WORK/agent")" 'grep -q "200 output token maximum" "$WORK/agent"'

# Codex: the context ends its answer.
start --ctx 16384
cat >"$WORK/home/.codex/config.toml" <<TOML
model = "tiny-q8_0"
model_provider = "skua"
[model_providers.skua]
name = "Skua"
base_url = "http://127.0.0.1:$port/v1"
wire_api = "responses"
stream_max_retries = 0
TOML
agent timeout -k 5 200 "$bin/codex" exec --skip-git-repo-check "Say hello."
stop
check "Codex: statuses $(statuses)" '[ "$(statuses)" = 200 ]'
check "Codex: it took the answer: $(tail -c 300 "$WORK/agent")" 'grep -qE "max_output_tokens|tokens used" "$WORK/agent"'
finish
