#!/usr/bin/env bash
# skua serve under load: many streams of which half are not read, thousands of short requests, clients that go away, overload, and the
# same answers as alone. SERVE_LOAD_FULL=1: 10,000 short requests and more of the rest. See serve_load.py and lib.bash.
. tests/e2e/lib.bash

SKUA=$SKUA MODEL=$MODEL python3 tests/e2e/serve_load.py
