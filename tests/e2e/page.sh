#!/usr/bin/env bash
# The chat page of skua serve in a real browser (Debian's chromium, headless, driven by page.py over its debugging pipe): sending, streaming,
# stopping, regenerating, editing, settings, keys, hostile text, a server that goes away, accessibility. See lib.bash.
. tests/e2e/lib.bash

if ! command -v chromium >/dev/null; then
    skip "chromium is not installed (Debian: apt-get install chromium)"
    echo "$passed passed, $failed failed, $skipped skipped"
    exit 0
fi
python3 tests/e2e/page.py "$SKUA" "$MODEL" "$WORK"
status=$?
if [ -f "$WORK/count" ]; then
    read -r passed failed <"$WORK/count"
fi
[ $status -eq 0 ] || failed=$((failed + (failed == 0)))
finish
