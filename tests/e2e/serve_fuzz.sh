#!/usr/bin/env bash
# skua serve and malformed requests of all kinds, from a seeded generator: no crash, no hang, the right status codes, sound errors, and the
# same answers afterwards. SERVE_FUZZ_FULL=1: 50,000 of them. See serve_fuzz.py, serve_requests.py and lib.bash.
. tests/e2e/lib.bash

SKUA=$SKUA MODEL=$MODEL python3 tests/e2e/serve_fuzz.py
