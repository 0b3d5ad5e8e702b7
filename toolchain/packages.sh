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

# What is public may not break between two versions that promise to be compatible. CALLWRIGHT_BASELINE names another commit.
baseline=${CALLWRIGHT_BASELINE:-$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null || true)}
semver=0.51.0
if [ -z "$baseline" ]; then
    echo "SKIPPED the comparison with the last release: there is no tag such as v0.1.0" >&2
elif [ "$("$target/tools/bin/cargo-semver-checks" --version 2>/dev/null)" != "cargo-semver-checks $semver" ] &&
    ! CARGO_TARGET_DIR=$target/tools/target "$cargo" install --quiet cargo-semver-checks --version "$semver" --locked --no-track --force \
        --root "$target/tools" 2>"$target/tools.log"; then
    echo "SKIPPED the comparison with $baseline: cargo-semver-checks cannot be fetched and compiled here ($target/tools.log)" >&2
else
    rm -rf "$target/tools/target"
    "$target/tools/bin/cargo-semver-checks" semver-checks --baseline-rev "$baseline" -p callwright-core
    "$target/tools/bin/cargo-semver-checks" semver-checks --baseline-rev "$baseline" -p callwright --only-explicit-features \
        --features cli,hub,bundled-model
fi
