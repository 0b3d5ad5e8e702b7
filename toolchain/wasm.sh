#!/usr/bin/env bash
# Builds the npm package of the parser, installs it into an empty folder, and runs its tests there.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
work=$(realpath -m "${CARGO_TARGET_DIR:-target}")/npm
crate=crates/callwright-wasm
rm -rf "$work/package" "$work/empty"
mkdir -p "$work/package" "$work/empty"

skip() {
    echo "SKIPPED the npm package: $1" >&2
    exit 0
}

! command -v rustup >/dev/null || rustup target add wasm32-unknown-unknown 2>"$work/rustup.log" || true
[ -d "$(rustc --print sysroot)/lib/rustlib/wasm32-unknown-unknown" ] ||
    skip "the target wasm32-unknown-unknown cannot be installed here"
command -v npm >/dev/null && node -e 'process.exit(Number(process.versions.node.split(".")[0] < 20))' || skip "Node 20 or newer is not installed"

CARGO_TARGET_DIR=$work/tools "$cargo" build --quiet --release --locked --manifest-path toolchain/bindgen/Cargo.toml

# A browser downloads the module, so its size counts. A panic's text is never seen in it: without these texts the module is a
# seventh smaller. They are also in the standard library, which is then compiled with the module. Cargo calls this unstable.
export CARGO_TARGET_DIR=$work/target
build=("$cargo" build --quiet --profile wasm --locked -p callwright-wasm --target wasm32-unknown-unknown)
! command -v rustup >/dev/null || rustup component add rust-src 2>>"$work/rustup.log" || true
most=3110000
if ! { [ -e "$(rustc --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock" ] &&
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zunstable-options -Cpanic=immediate-abort -Zlocation-detail=none -Zfmt-debug=shallow" \
        "${build[@]}" -Zbuild-std=std,panic_abort -Zbuild-std-features=optimize_for_size; }; then
    most=4000000
    "${build[@]}"
fi
"$work/tools/release/bindgen" "$work/target/wasm32-unknown-unknown/wasm/callwright_wasm.wasm" "$work/package"
module=$work/package/native_bg.wasm
# The features are those that Rust's target has.
if npm install --silent --no-audit --no-fund --prefix "$work/optimizer" binaryen@132.0.0 2>"$work/npm.log"; then
    "$work/optimizer/node_modules/.bin/wasm-opt" -Oz --low-memory-unused --enable-bulk-memory --enable-multivalue \
        --enable-mutable-globals --enable-nontrapping-float-to-int --enable-reference-types --enable-sign-ext "$module" -o "$module"
else
    most=4000000
fi
size=$(wc -c <"$module")
echo "native_bg.wasm: $size bytes, $(gzip -9 -c "$module" | wc -c) compressed; at most $most are allowed with the tools that are here"
[ "$size" -le $most ] || { echo "error: the module is larger than $most bytes" >&2; exit 1; }

cp "$crate"/npm/* LICENSE-MIT LICENSE-APACHE "$work/package/"
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
tarball=$(cd "$work/package" && npm version --allow-same-version --no-git-tag-version "$version" >/dev/null && npm pack --silent)
cp "$crate"/tests/* "$work/empty/"
cd "$work/empty"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund --offline "$work/package/$tarball"
node --test package.test.mjs
if npm install --silent --no-audit --no-fund --no-save typescript@5 2>"$work/npm.log"; then
    npx tsc --noEmit --strict --target es2022 --module nodenext types.ts
    echo "the types are accepted"
else
    echo "SKIPPED the check of the types: typescript cannot be fetched" >&2
fi
