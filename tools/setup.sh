#!/bin/sh
# Installs what Skua needs on Debian 12, and nothing when all of it is there already.
#   tools/setup.sh           what `make` needs
#   tools/setup.sh --tests   that, and what `make check` needs: test libraries, clang 14, the arm64 cross compiler with its libraries, qemu
# Runs as root, or as a user with sudo.
set -eu

build="gcc libc6-dev make pkg-config"
libraries="libjansson-dev libutf8proc-dev libxxhash-dev libedit-dev"
one_machine="libevent-dev" # its development files are of one architecture at a time; the header files suit any 64-bit machine
one_machine_run="libevent-core-2.1-7 libevent-pthreads-2.1-7"
test_libraries="libcmocka-dev libpcre2-dev"
test_tools="python3 python3-jinja2 clang-14 libclang-rt-14-dev"
cross="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"

die() {
    echo "setup.sh: $1" >&2
    exit 1
}

with_tests=0
for arg; do
    case $arg in
    --tests) with_tests=1 ;;
    -h | --help)
        sed -n '2,5s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *) die "unknown argument '$arg'; known are --tests and --help" ;;
    esac
done

if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
    die "this is not Debian (no apt-get); install by hand: a C11 compiler, GNU make, pkg-config, and the development files of jansson, \
utf8proc, xxhash, libedit and libevent"
fi

native=$(dpkg --print-architecture)
wanted="$build $libraries $one_machine"
need_arm64=0
if [ $with_tests = 1 ]; then
    wanted="$wanted $test_libraries $test_tools"
    # The second architecture is tested on x86 machines; on an arm64 machine the plain build is that test.
    if [ "$native" = amd64 ]; then
        need_arm64=1
        wanted="$wanted $cross"
        for p in $libraries $one_machine_run $test_libraries; do
            wanted="$wanted $p:arm64"
        done
    fi
fi

missing= # a name without an architecture means this machine's
for p in $wanted; do
    dpkg-query -W -f '${Architecture} ${db:Status-Status}\n' "$p" 2>/dev/null | grep -qxE "(all|$native|${p#*:}) installed" || missing="$missing $p"
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 || die "root is needed to install$missing; run this script as root, or install sudo"
    as_root=sudo
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Run a command as root, silently unless it fails.
quietly() {
    $as_root env DEBIAN_FRONTEND=noninteractive "$@" >"$log" 2>&1 </dev/null && return
    cat "$log" >&2
    die "'$*' failed (above); still to be installed:$missing"
}

echo "setup.sh: installing$missing"
[ -z "$as_root" ] || sudo -v || die "sudo refused; root is needed to install$missing"
if [ $need_arm64 = 1 ] && ! dpkg --print-foreign-architectures | grep -qx arm64; then
    quietly dpkg --add-architecture arm64
fi
quietly apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 update
# shellcheck disable=SC2086 # a list of words
quietly apt-get -q -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 --no-install-recommends install $missing
