#!/usr/bin/env bash
# Makes the archive in Debian 11, so that it runs on systems as old: a program needs at least the C library of the system that
# it was linked in. Then follows the README in a bare Debian 11.
# usage: toolchain/old-system.sh [COMMAND…]      COMMAND… runs in the repository in that system, in place of `make portable`
# Needs root, debootstrap, 5 GB in target/, and the Rust toolchain of this machine, which runs there too.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$PWD/target/old-system
suite=bullseye

skip() {
    echo "SKIPPED the archive of Debian 11: $1" >&2
    exit 0
}

[ "$(id -u)" = 0 ] || skip "only root may install a system"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"

mkdir -p "$work"
if [ ! -e "$work/ready" ]; then
    rm -rf "$work/bare" "$work/root"
    debootstrap --variant=minbase --include=ca-certificates "$suite" "$work/bare" >"$work/debootstrap.log" ||
        { tail "$work/debootstrap.log" >&2; exit 1; }
    cp -a "$work/bare" "$work/root"
    cp -L /etc/resolv.conf "$work/root/etc/"
    # Its first clang, 11, is too old for the newest processors.
    chroot "$work/root" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -qq --no-install-recommends cmake make g++ clang-16 libclang-16-dev >"$work/packages.log"
    ln -s clang-16 "$work/root/usr/bin/clang"
    ln -s clang++-16 "$work/root/usr/bin/clang++"
    touch "$work/ready"
fi

cargo=${CARGO_HOME:-$HOME/.cargo} rustup=${RUSTUP_HOME:-$HOME/.rustup}
"$cargo/bin/cargo" fetch --quiet --locked
[ $# != 0 ] || set -- make portable PORTABLE_BUILD=target/old-system/build
# The folders are at the same places in there, and leave with the command.
for folder in "$PWD" "$cargo" "$rustup"; do mkdir -p "$work/root$folder"; done
unshare --mount bash -euc '
    root=$1 at=$2 cargo=$3 rustup=$4
    for folder in "$at" "$cargo" "$rustup" /dev /proc; do mount --rbind "$folder" "$root$folder"; done
    exec chroot "$root" env -i -C "$at" HOME=/root PATH="$cargo/bin:/usr/sbin:/usr/bin:/sbin:/bin" CARGO_HOME="$cargo" \
        RUSTUP_HOME="$rustup" CARGO_NET_OFFLINE=true "${@:5}"
' bash "$work/root" "$PWD" "$cargo" "$rustup" "$@"

toolchain/dist.sh target/portable
toolchain/unpacked.sh target/dist/callwright-*.tar.gz "$work/bare"
