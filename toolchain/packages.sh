#!/usr/bin/env bash
# Checks that the crates can be published: packs each in order, compiles what was packed, and reports the sizes.
# The program's crate is compiled without llama.cpp, which would take minutes in a folder of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
limit=10485760 # the registry's

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/packages
export CARGO_TARGET_DIR=$target
# The second crate needs the first, which is not in the registry: cargo resolves both together.
"$cargo" package --quiet --locked --allow-dirty --no-verify -p callwright-core -p callwright
failed=0
for crate in "$target"/package/*.crate; do
    size=$(wc -c <"$crate")
    files=$(tar tzf "$crate")
    echo "$(basename "$crate"): $size bytes, $(wc -l <<<"$files") files"
    if [ "$size" -gt "$limit" ]; then
        echo "error: it is larger than the registry takes ($limit bytes)" >&2
        failed=1
    fi
    for needed in LICENSE-MIT LICENSE-APACHE README.md Cargo.toml; do
        grep -q "^[^/]*/$needed\$" <<<"$files" || { echo "error: it lacks $needed" >&2; failed=1; }
    done
done
[ "$failed" = 0 ] || exit 1

# What was packed compiles alone: a file that is missing in a package is seen only here.
rm -rf "$target/unpacked"
mkdir "$target/unpacked"
for crate in "$target"/package/*.crate; do tar xzf "$crate" -C "$target/unpacked"; done
core=$(echo "$target"/unpacked/callwright-core-*)
for folder in "$target"/unpacked/*; do
    (cd "$folder" && printf '\n[workspace]\n' >>Cargo.toml &&
        "$cargo" check --quiet --no-default-features --config "patch.crates-io.callwright-core.path='$core'" \
            $(case $folder in *callwright-core*) ;; *) echo --features cli,hub,bundled-model ;; esac))
    echo "$(basename "$folder"): what is packed compiles"
done
