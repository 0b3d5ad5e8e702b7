#!/bin/sh
# Installs what building llama.cpp needs and this machine lacks: cmake, clang and libclang. Safe to repeat.
set -eu

missing() {
    command -v cmake >/dev/null || return 0
    command -v clang++ >/dev/null || return 0
    libclang || return 0
    return 1
}

# bindgen loads libclang at build time; it looks in these places among others.
libclang() {
    [ -z "${LIBCLANG_PATH:-}" ] || return 0
    [ "$(uname)" != Darwin ] || return 0 # comes with Xcode's command line tools
    for library in /usr/lib/llvm-*/lib/libclang*.so* /usr/lib*/libclang*.so* /usr/lib/*/libclang*.so* \
        /usr/local/lib/libclang*.so* /usr/lib64/llvm*/lib*/libclang*.so*; do
        [ ! -e "$library" ] || return 0
    done
    return 1
}

missing || exit 0

root=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null && root=sudo
fi
echo "Installing what llama.cpp is built with (cmake, clang, libclang) …" >&2
if command -v apt-get >/dev/null; then
    $root apt-get update -q
    $root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends cmake clang libclang-dev g++
elif command -v dnf >/dev/null; then
    $root dnf install -y cmake clang clang-devel gcc-c++
elif command -v pacman >/dev/null; then
    $root pacman -Sy --needed --noconfirm cmake clang
elif command -v brew >/dev/null; then
    brew install cmake # never as root; clang and libclang come with Xcode's command line tools
else
    echo "No apt-get, dnf, pacman or brew here: install cmake, clang and libclang by hand, then run make again." >&2
    exit 1
fi
if missing; then
    echo "cmake, clang or libclang is still not found; see the package manager's messages above." >&2
    echo "If they are somewhere else, put them on PATH and set LIBCLANG_PATH to libclang's folder." >&2
    exit 1
fi
