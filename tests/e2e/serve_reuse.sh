#!/usr/bin/env bash
# What conversations find again of their earlier turns: see serve_reuse.py and lib.bash.
. tests/e2e/lib.bash
SKUA=$SKUA MODEL=$MODEL python3 tests/e2e/serve_reuse.py
