#!/usr/bin/env bash
# Checks that the parser, and the program without an engine, compile for other systems and with the oldest compiler that is
# promised. Nothing is linked, so that no compiler or library of those systems is needed. What cannot be installed here is
# skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")/targets
export CARGO_TARGET_DIR
# In place of this machine's CPU, which .cargo/config.toml asks for.
export RUSTFLAGS="-C target-cpu=generic -D warnings"

check() { # check COMPILER ARGUMENTS…
    "$cargo" "$1" check --quiet --locked -p callwright-core "${@:2}"
    "$cargo" "$1" check --quiet --locked -p callwright --no-default-features --features cli "${@:2}"
}

for target in x86_64-pc-windows-gnu aarch64-apple-darwin; do
    if rustup --quiet target add "$target" 2>/dev/null; then
        check "+$(rustup show active-toolchain | cut -d' ' -f1)" --target "$target"
        echo "$target: the parser and the program without an engine compile"
    else
        echo "SKIPPED $target: it cannot be installed here" >&2
    fi
done

oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
if rustup --quiet toolchain install "$oldest" --profile minimal --no-self-update >/dev/null 2>&1; then
    check "+$oldest"
    echo "Rust $oldest: the parser and the program without an engine compile"
else
    echo "SKIPPED Rust $oldest: it cannot be installed here" >&2
fi
