# Shared by the end-to-end tests (source it from the project root). SKUA: the program, SKUA_SHARED: folder of the shared data. Gives WORK,
# a temporary folder, MODEL, the shipped model, and the functions below; finish prints the count and sets the exit status.
set -u
SKUA=${SKUA:-./build/skua}
SHARED=${SKUA_SHARED:-../shared}
[ -x "$SKUA" ] || { echo "no program at $SKUA (make builds it)" >&2; exit 1; }
SKUA=$(realpath "$SKUA")
MODEL=$(realpath models/tiny-q8_0.gguf)
unset SKUA_MODEL SKUA_CPU
WORK=$(mktemp -d) || exit 1
trap 'rm -rf "$WORK"' EXIT
passed=0 failed=0 skipped=0

ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAIL: $1" >&2; }
check() { if eval "$2"; then ok; else bad "$1"; fi; } # name, condition
skip() { skipped=$((skipped + 1)); echo "SKIP: $1"; }
sanitized() { grep -q __asan_init "$SKUA"; }

# Run the program with standard input from $WORK/in if that is there, else from nothing: out, err (files), status. A crash or a sanitizer
# report is a failure of its own.
run() {
    local input=/dev/null
    [ -e "$WORK/in" ] && input=$WORK/in
    "$SKUA" "$@" <"$input" >"$WORK/out" 2>"$WORK/err"
    status=$?
    sound "$*"
}
sound() {
    if [ $status -gt 2 ] || grep -q 'Sanitizer\|runtime error' "$WORK/err"; then
        bad "$1: status $status: $(head -c 600 "$WORK/err")"
    fi
}

# Is there exactly one line on standard error, "skua ...: ..." with the extended regular expression in it?
one_line() { [ "$(wc -l <"$WORK/err")" -eq 1 ] && grep -qE "^skua( [a-z]+)?: .*($1)" "$WORK/err" && ! LC_ALL=C grep -q $'[\x01-\x08\x0b-\x1f\x7f]' "$WORK/err"; }

# refused NAME STATUS PATTERN ARGS...: that status, nothing on standard output, and one such line.
refused() {
    local name=$1 want=$2 pattern=$3
    shift 3
    run "$@"
    if [ $status -eq "$want" ] && [ ! -s "$WORK/out" ] && one_line "$pattern"; then
        ok
    else
        bad "$name: status $status (want $want), stderr '$(head -c 400 "$WORK/err")' (want one line with '$pattern'), $(wc -c <"$WORK/out") bytes of output"
    fi
}

# is TEXT: standard output is exactly this.
is() { printf '%s' "$1" | cmp -s - "$WORK/out"; }

# json_check NAME FILE <<conditions: every line is a Python condition about d, the JSON value in FILE; near(a, b, tolerance) compares numbers
# and lists of them.
json_check() {
    cat >"$WORK/conditions"
    python3 - "$1" "$2" "$WORK/conditions" <<'PY'
import json, os, sys
name, path, conditions = sys.argv[1:]
def near(a, b, tolerance):
    if isinstance(a, list):
        return len(a) == len(b) and all(near(x, y, tolerance) for x, y in zip(a, b))
    return abs(a - b) <= tolerance
try:
    d = json.load(open(path))
except ValueError as e:
    sys.exit(f"FAIL: {name}: not JSON: {e}")
good = 0
lines = [l.strip() for l in open(conditions) if l.strip()]
for line in lines:
    try:
        result = bool(eval(line, {"d": d, "near": near, "json": json, "os": os, "WORK": os.path.dirname(conditions)}))
    except Exception as e:
        result = False
        print(f"{type(e).__name__}: {e}", file=sys.stderr)
    if result:
        good += 1
    else:
        print(f"FAIL: {name}: {line}", file=sys.stderr)
print(good, len(lines) - good, file=open(conditions + ".count", "w"))
PY
    if [ -f "$WORK/conditions.count" ]; then
        local g b
        read -r g b <"$WORK/conditions.count"
        passed=$((passed + g)) failed=$((failed + b))
        rm -f "$WORK/conditions.count"
    else
        failed=$((failed + 1))
    fi
}

finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed -eq 0 ] && [ $passed -gt 0 ]
    exit
}
