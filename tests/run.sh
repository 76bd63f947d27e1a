#!/usr/bin/env bash
# The test runner: builds every configuration, runs every test program and closes with "N passed, N failed[, N skipped]". tests/README.md
# says what runs where and what is counted. Exit status 0 only when nothing failed and something passed.
#   tests/run.sh                  everything
#   tests/run.sh --quick          unit and end-to-end tests of the plain build
#   tests/run.sh --full           the full matrices: promise P1, speculative decoding; nothing else
#   tests/run.sh --only PATTERN   test programs whose CONFIGURATION/KIND/NAME matches the extended regular expression
# Environment: BUILD (object folder, default build), JOBS (compilers and test programs at once, default 2), SKUA_SHARED (folder of the
# shared data, default ../shared), CI=true (a missing tool is a failure, not a skip).
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build} JOBS=${JOBS:-2} CI=${CI:-false}
LIMIT_S=900 # for one test program
unset SKUA_MODEL SKUA_CPU SKUA_TEST_QUICK

die() { echo "tests/run.sh: $1" >&2; exit 2; }

mode=all only=.
while [ $# -gt 0 ]; do
    case $1 in
    --quick) mode=quick ;;
    --full) mode=full ;;
    --only) [ $# -gt 1 ] || die "--only needs a pattern"; only=$2; shift ;;
    *) die "unknown argument '$1'; known are --quick, --full and --only PATTERN" ;;
    esac
    shift
done
pkg-config --exists jansson libutf8proc libxxhash libedit libevent_core libevent_pthreads cmocka || die "libraries are missing; tools/setup.sh --tests installs them"

WORK=$(mktemp -d) || exit 1
trap 'rm -rf "$WORK"' EXIT
trap 'kill $(jobs -p) 2>/dev/null; exit 130' INT TERM
passed=0 failed=0 skipped=0

# ---- configurations ----

declare -A folder=([gcc]=$BUILD [clang]=$BUILD/clang [san]=$BUILD/san [arm64]=$BUILD/arm64)
# Warnings are errors everywhere. Only the first is what users get; the others trade speed of the program, and what a debugger would know,
# for speed of the compiler and linker.
declare -A settings=([gcc]="CC=gcc" [clang]="CC=clang-14 OPT=-O0 CFLAGS=-g0" [san]="CC=gcc SAN=1 OPT=-O1 CFLAGS=-g1" [arm64]="CROSS=1 OPT=-O1 CFLAGS=-g0")
declare -A built

skip() { # name, reason
    if [ "$CI" = true ]; then
        failed=$((failed + 1))
        echo "FAIL $1: $2"
    else
        skipped=$((skipped + 1))
        echo "skip $1: $2"
    fi
}

# Why a configuration cannot be built here; nothing when it can.
lacking() {
    case $1 in
    clang) command -v clang-14 >/dev/null || echo "clang-14 is not installed" ;;
    arm64)
        command -v aarch64-linux-gnu-gcc >/dev/null || echo "aarch64-linux-gnu-gcc is not installed"
        command -v qemu-aarch64 >/dev/null || echo "qemu-aarch64 is not installed"
        PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig pkg-config --exists jansson libutf8proc libxxhash libedit cmocka ||
            echo "the arm64 libraries are not installed"
        ;;
    esac | paste -sd, | sed 's/,/, /g'
}

seconds_since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'; }

build() { # configuration, make goals...
    local c=$1 start=$EPOCHREALTIME
    shift
    # shellcheck disable=SC2086 # settings are words
    if make -j"$JOBS" BUILD="${folder[$c]}" ${settings[$c]} "$@" >"$WORK/build.out" 2>&1 </dev/null; then
        built[$c]=1 passed=$((passed + 1))
        echo "ok $c/build ($(seconds_since "$start") s)"
    else
        built[$c]=0 failed=$((failed + 1))
        echo "FAIL $c/build ($(seconds_since "$start") s)"
        grep -vE '^  (CC|LD|AR) ' "$WORK/build.out" | tail -n 60
    fi
}

# ---- test programs ----

# Programs that run a model, or quantize whole ones, for minutes in an emulator; what they test is not the processor's.
too_slow='engine_(generate|session|collect|profile|snapshot|hold|draft_failure|draft_session)|batcher|prefix_cache(_disk|_draft)?'
too_slow="^arm64/unit/test_($too_slow|grammar_mask|requantize|capture|session_file|spec_(mtp|mtp_file|dflash)|tok_pretok|sample_sampler)\$"

names=() configs=() commands=()
add() { # configuration, kind/name, command
    [[ "$1/$2" =~ $only ]] || return 0
    names+=("$1/$2") configs+=("$1") commands+=("$3")
}
programs() { # configuration, prefix of the command, kinds...
    local c=$1 prefix=$2 kind source name
    shift 2
    for kind; do
        for source in tests/"$kind"/test_*.c; do
            name=$kind/$(basename "$source" .c)
            [[ "$c/$name" =~ $too_slow ]] && continue
            add "$c" "$name" "$prefix ${folder[$c]}/tests/$name"
        done
    done
}
scripts() { # configuration, names of scripts (none: all)
    local c=$1 script
    shift
    [ $# -gt 0 ] || set -- $(basename -s .sh tests/e2e/*.sh)
    for script; do
        # The search for leaks takes most of a sanitized program's time; tests/fault looks for leaks of whole commands.
        add "$c" "e2e/$script" "ASAN_OPTIONS=detect_leaks=0 SKUA=${folder[$c]}/skua bash tests/e2e/$script.sh"
    done
}

if [ $mode = full ]; then
    add gcc model/test_one_answer "$BUILD/tests/model/test_one_answer --full"
    add gcc model/test_speculation "$BUILD/tests/model/test_speculation --full"
    add gcc model/test_verify "$BUILD/tests/model/test_verify --full"
elif [ $mode = quick ]; then
    scripts gcc
    programs gcc "" unit
else
    # the longest first, so that both cores are busy to the end
    programs san SKUA_TEST_QUICK=1 model golden
    programs gcc "" model golden
    programs san SKUA_TEST_QUICK=1 fault kern
    # The commands that turn files into files run sanitized in tests/fault, and readers of files in tests/unit and tests/fuzz.
    scripts san chat cli draft logits run serve
    programs arm64 "SKUA_TEST_QUICK=1 qemu-aarch64" kern
    programs gcc "" fault kern
    scripts gcc
    programs san SKUA_TEST_QUICK=1 unit
    for source in tests/fuzz/fuzz_*.c; do
        target=$(basename "$source" .c)
        add san "fuzz/$target" "${folder[san]}/tests/fuzz/$target tests/fuzz/corpus/${target#fuzz_}"
    done
    programs arm64 "SKUA_TEST_QUICK=1 qemu-aarch64" unit
    programs gcc "" unit
    if /usr/bin/python3 -c 'import jinja2' 2>/dev/null; then
        add scripts tools/jinja_oracle "/usr/bin/python3 tools/jinja_oracle.py --check"
    else
        skip scripts/tools/jinja_oracle "/usr/bin/python3 has no jinja2"
    fi
    add scripts tidy/selftest "python3 tests/tidy/selftest.py"
    add scripts tidy/tidy "python3 tests/tidy/tidy.py"
fi

# What a program's output says about its test cases: "passed failed skipped detail". See tests/README.md.
count() { # output file
    awk '
        /^\[  PASSED  \] [0-9]+ test\(s\)/ { cases = 1; p += $4 }
        /^\[  FAILED  \] [0-9]+ test\(s\)/ { cases = 1; f += $4 }
        /^\[  SKIPPED \] [0-9]+ test\(s\)/ { cases = 1; s += $4 }
        /^[0-9]+ passed, [0-9]+ failed/    { cases = 1; p += $1; f += $3 }
        /^SKIP: /                          { s++ }
        /: [0-9]+ checks, [0-9]+ failed, [0-9]+ skipped$/ { program = 1; checks += $(NF - 5); bad += $(NF - 3); lacking += $(NF - 1) }
        /: [0-9]+ inputs$/                 { program = 1; checks += $(NF - 1) }
        /^[0-9]+ cases, [0-9]+ differ$/    { program = 1; checks += $1; bad += $3 }
        END {
            if (!cases && program) { p = checks > bad; f = bad > 0; s += lacking; if (f) p = 0 }
            printf "%d %d %d\n", p, f, s
        }' "$1"
}

run_one() { # index
    local start=$EPOCHREALTIME status child
    mkdir "$WORK/tmp$1"
    timeout -k 10 "$limit" env TMPDIR="$WORK/tmp$1" bash -c "${commands[$1]}" >"$WORK/out$1" 2>&1 </dev/null &
    child=$!
    trap 'kill $child; exit' TERM
    [ $mode = full ] && tail --pid=$child -s 1 -n +1 -f "$WORK/out$1"
    wait $child
    status=$?
    rm -rf "$WORK/tmp$1"
    echo "$status $(seconds_since "$start")" >"$WORK/status$1.new"
    mv "$WORK/status$1.new" "$WORK/status$1"
}

report() { # index
    local status seconds p f s why=
    read -r status seconds <"$WORK/status$1"
    read -r p f s <<<"$(count "$WORK/out$1")"
    if [ "$status" -eq 124 ]; then
        why=", stopped after $limit s"
    elif [ "$status" -gt 128 ]; then
        why=", signal $((status - 128))"
    elif [ "$status" -eq 0 ] && [ "$((p + f + s))" -eq 0 ]; then
        why=", ran no check" status=1
    fi
    [ "$status" -ne 0 ] && [ "$f" -eq 0 ] && f=1
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    if [ "$f" -gt 0 ]; then
        echo "FAIL ${names[$1]} ($seconds s$why)"
        tail -n 200 "$WORK/out$1" | tail -c 20000
    else
        echo "ok ${names[$1]} ($seconds s)"
        [ "$s" -eq 0 ] || grep -iE '^ *skip(ped)?: ' "$WORK/out$1" | sort -u | head -n 5 | sed 's/^/    /'
    fi
}

# ---- build ----

declare -A wanted
for c in "${configs[@]}"; do
    wanted[$c]=1
done
[ $mode = all ] && [ "$only" = . ] && wanted[clang]=1 # it is built only
[ ${#wanted[@]} -gt 0 ] || die "no test program matches '$only'"
for c in gcc clang san arm64; do
    [ -n "${wanted[$c]-}" ] || continue
    [ $c = arm64 ] && [ "$(uname -m)" = aarch64 ] && continue # the plain build is that here
    reason=$(lacking $c)
    if [ -n "$reason" ]; then
        skip "$c" "$reason"
    else
        build $c "${folder[$c]}/skua" tests
    fi
done

# ---- run ----

limit=$LIMIT_S
[ $mode = full ] && limit=86400
running=0 next_report=0
flush() {
    while [ $next_report -lt ${#names[@]} ] && [ -e "$WORK/status$next_report" ]; do
        [ -s "$WORK/status$next_report" ] && report $next_report
        next_report=$((next_report + 1))
    done
}
for i in "${!names[@]}"; do
    c=${configs[$i]}
    if [ "$c" != scripts ] && [ "${built[$c]-}" != 1 ]; then
        if [ "${built[$c]-}" = 0 ]; then
            failed=$((failed + 1))
            echo "FAIL ${names[$i]}: not run, the build failed"
        fi
        : >"$WORK/status$i"
        continue
    fi
    if [ $running -ge "$JOBS" ]; then
        wait -n
        running=$((running - 1))
        flush
    fi
    run_one "$i" &
    running=$((running + 1))
done
wait
flush

echo "$SECONDS s"
if [ $skipped -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ $failed -eq 0 ] && [ $passed -gt 0 ]
