#!/usr/bin/env bash
# Unpacks an archive of `make dist` into a root where nothing else is but a shell and the C and C++ libraries, and follows the
# README there.
# usage: toolchain/unpacked.sh ARCHIVE [ROOT]      ROOT: a system to unpack it in, such as Debian's; else one is made here
set -euo pipefail
cd "$(dirname "$0")/.."
archive=$(realpath "$1")
root=${2:-}
name=$(basename "$archive" .tar.gz)

if [ "$(id -u)" = 0 ]; then
    enter=(chroot)
elif unshare --map-root-user true 2>/dev/null; then
    enter=(unshare --map-root-user chroot)
else
    echo "SKIPPED the archive in an empty root: only root may change the root here" >&2
    exit 0
fi

if [ -z "$root" ]; then
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    mkdir -p "$root/tmp"
    tar xzf "$archive" -C "$root"
    # The shell, what the example of a tool calls, and the libraries that a system has, at the same places.
    programs=(/bin/sh "$(command -v sed)" "$(command -v env)")
    libraries=$(ldd "${programs[@]}" "$root/$name/callwright" | grep -o '/[^ :]*' | grep -vF "$root/" | sort -u)
    for file in "${programs[@]}" $libraries; do
        mkdir -p "$root${file%/*}"
        cp -L "$file" "$root$file"
    done
else
    rm -rf "${root:?}/$name"
    tar xzf "$archive" -C "$root"
fi
# The loader finds the libraries beside a program by /proc.
mkdir -p "$root/proc"
if [ "$(id -u)" = 0 ]; then
    enter=(unshare --mount sh -c 'mount --rbind /proc "$1/proc" && exec chroot "$@"' sh)
fi
search=/$name:/usr/local/bin:/usr/bin:/bin
toolchain/five-minutes.sh "$root/$name/README.md" \
    "${enter[@]}" "$root" "$(command -v env)" -i HOME=/tmp PATH="$search" /bin/sh -c "cd /$name && eval \"\$0\""

# A program of the native build needs this machine's processor.
[ -e "$root/$name/libggml-cpu-x64.so" ] || exit 0
qemu=$(command -v qemu-x86_64-static || true)
if [ -z "$qemu" ]; then
    echo "SKIPPED processors without AVX2: there is no qemu-x86_64-static (Debian's qemu-user-static)" >&2
    exit 0
fi
# The first has no AVX, the second no AVX2. qemu warns of features that it does not emulate.
mkdir -p "$root/emulated"
cp "$qemu" "$root/emulated/qemu"
for processor in Nehalem SandyBridge,-x2apic,-tsc-deadline; do
    printf '#!/bin/sh\nexec /emulated/qemu -cpu %s /%s/callwright "$@"\n' "$processor" "$name" >"$root/emulated/callwright"
    chmod +x "$root/emulated/callwright"
    echo "$processor:"
    toolchain/five-minutes.sh --first "$root/$name/README.md" \
        "${enter[@]}" "$root" "$(command -v env)" -i HOME=/tmp PATH="/emulated:$search" /bin/sh -c "cd /$name && eval \"\$0\""
done
rm -r "$root/emulated"
