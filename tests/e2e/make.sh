#!/usr/bin/env bash
# The Makefile rebuilds what other flags or another compiler would build otherwise, and nothing else. See lib.bash.
. tests/e2e/lib.bash
object=$WORK/build/obj/base/error.o
build() { env -u MAKEFLAGS -u MAKELEVEL make -s BUILD="$WORK/build" "$@" "$object" >/dev/null 2>"$WORK/err" || bad "make $*: $(tail -n 3 "$WORK/err")"; }
time_of() { stat -c %Y.%y "$object"; }

build
first=$(time_of)
build
check "the same flags: nothing is built" '[ "$(time_of)" = "$first" ]'
build CFLAGS=-DSOMETHING_ELSE
second=$(time_of)
check "other flags: built again" '[ "$second" != "$first" ]'
build CFLAGS=-DSOMETHING_ELSE
check "the same other flags: nothing is built" '[ "$(time_of)" = "$second" ]'
build
check "the first flags again: built again" '[ "$(time_of)" != "$second" ]'
finish
