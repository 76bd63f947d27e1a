#!/bin/bash
# skua serve, by real requests to a real server.
. tests/e2e/lib.bash
export SKUA MODEL
for part in smoke limits cancel chat responses signals; do
    check "serve: $part" "python3 tests/e2e/serve_$part.py >'$WORK/out' 2>'$WORK/err' || { cat '$WORK/err' >&2; false; }"
done
finish
