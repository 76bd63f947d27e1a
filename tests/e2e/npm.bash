# npm_packages NAME: the packages of tests/e2e/NAME/package.json, installed once under the build folder, whose path is then in $PACKAGES;
# or finish with one skipped, and why. No scripts of packages are run.
npm_packages() {
    local why=
    PACKAGES=$(realpath -m "${BUILD:-build}/e2e/$1")
    command -v node >/dev/null || why="node is not installed"
    [ -z "$why" ] && ! command -v npm >/dev/null && why="npm is not installed"
    if [ -z "$why" ] && ! { cmp -s "tests/e2e/$1/package.json" "$PACKAGES/package.json" && [ -e "$PACKAGES/complete" ]; }; then
        rm -rf "$PACKAGES"
        mkdir -p "$PACKAGES"
        cp "tests/e2e/$1/package.json" "$PACKAGES/"
        if timeout -k 5 "$2" npm install --prefix "$PACKAGES" --ignore-scripts --no-package-lock --no-audit --no-fund --no-update-notifier \
            --fetch-retries 1 --fetch-timeout 60000 >"$WORK/npm" 2>&1; then
            : >"$PACKAGES/complete"
        else
            why="npm cannot install the packages: $(grep -m 1 -E 'npm (error|ERR)' "$WORK/npm" | head -c 200)"
        fi
    fi
    if [ -n "$why" ]; then
        skip "$1: $why"
        echo "$passed passed, $failed failed, $skipped skipped"
        exit 0
    fi
}
