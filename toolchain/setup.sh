#!/bin/sh
# Installs what building llama.cpp needs and this machine lacks: cmake, clang and libclang. Shows the commands first.
set -eu

missing() {
    command -v cmake >/dev/null && command -v clang++ >/dev/null || return 0
    # With Xcode's command line tools it is there.
    [ -z "${LIBCLANG_PATH:-}" ] && [ "$(uname)" != Darwin ] || return 1
    # bindgen loads libclang at build time; it looks in these places among others.
    for library in /usr/lib/llvm-*/lib/libclang*.so* /usr/lib*/libclang*.so* /usr/lib/*/libclang*.so* \
        /usr/local/lib/libclang*.so* /usr/lib64/llvm*/lib*/libclang*.so*; do
        [ ! -e "$library" ] || return 1
    done
}

missing || exit 0
root=
[ "$(id -u)" = 0 ] || ! command -v sudo >/dev/null || root="sudo "
if command -v apt-get >/dev/null; then
    set -- "${root}apt-get update -q" \
        "${root}env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends cmake clang libclang-dev g++"
elif command -v dnf >/dev/null; then
    set -- "${root}dnf install -y cmake clang clang-devel gcc-c++"
elif command -v pacman >/dev/null; then
    set -- "${root}pacman -Sy --needed --noconfirm cmake clang"
elif command -v brew >/dev/null; then
    set -- "brew install cmake" # never as root
else
    echo "error: there is no apt-get, dnf, pacman or brew here: install cmake, clang and libclang by hand, then run make again" >&2
    exit 1
fi
echo "llama.cpp is built with cmake, clang and libclang. Not all of them are here. These commands install them now:" >&2
printf '    %s\n' "$@" >&2
for command; do $command; done
if missing; then
    echo "error: cmake, clang or libclang is still not found: put them on PATH, and set LIBCLANG_PATH to libclang's folder" >&2
    exit 1
fi
