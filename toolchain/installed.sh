#!/usr/bin/env bash
# Tries what a user gets from the build that is there: the archive, unpacked in an empty root, and `cargo install`. Both follow
# the README. llama.cpp is not compiled again.
# usage: toolchain/installed.sh PROGRAM
set -euo pipefail
program=$(realpath "$1")
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$target/installed
rm -rf "$work"
mkdir -p "$work/native" "$work/home"

# Not the archive that is published: that has the portable build.
cp "$program" "$work/native/"
toolchain/dist.sh "$work/native" "$work"
toolchain/unpacked.sh "$work"/callwright-*.tar.gz

CARGO_TARGET_DIR=$target "${CARGO:-cargo}" install --quiet --path . --locked --no-track --root "$work/root"
cp -r examples "$work/home/"
# Nothing of this environment: neither its PATH nor its settings.
toolchain/five-minutes.sh README.md \
    env -i -C "$work/home" HOME="$work/home" PATH="$work/root/bin:/usr/bin:/bin" /bin/sh -c
rm -rf "$work"
