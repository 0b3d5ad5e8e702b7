#!/usr/bin/env bash
# Builds the documentation site in target/docs/site: the book, the API of both crates beside it, and pictures of the report and
# of the server's page, where a browser is installed.
# usage: toolchain/docs.sh PROGRAM
set -euo pipefail
program=$(realpath "$1")
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$target/docs
mkdir -p "$work"

mdbook=0.5.4
if [ "$("$work/tools/bin/mdbook" --version 2>/dev/null)" != "mdbook v$mdbook" ] &&
    ! CARGO_TARGET_DIR=$work/tools/target "$cargo" install --quiet mdbook --version "$mdbook" --locked --no-track --force \
        --no-default-features --features search --root "$work/tools" 2>"$work/tools.log"; then
    echo "SKIPPED the documentation site: mdbook cannot be fetched and compiled here ($work/tools.log)" >&2
    exit 0
fi
rm -rf "$work/tools/target" "$work/source" "$work/site"
cp -r docs "$work/source"

# Pictures are made anew each time, so none is kept in the repository; the pages have a comment in their place.
if command -v python3 >/dev/null; then
    toolchain/pictures.py "$program" "$work/source/pictures"
else
    echo "SKIPPED the pictures: Python 3 is not installed" >&2
fi
for picture in "$work"/source/pictures/*.png; do
    [ -e "$picture" ] || continue
    name=$(basename "$picture")
    sed -i "s#<!-- picture: $name: \(.*\) -->#![\1](pictures/$name)#" "$work"/source/*.md
    grep -qF "](pictures/$name)" "$work"/source/*.md || { echo "error: no page shows $name" >&2; exit 1; }
done

# Files that are not pages are read in the repository.
repository=$(sed -n 's/^repository = "\(http.*\)"$/\1/p' Cargo.toml)
sed -i "s#](\.\./#](${repository}/blob/main/#g" "$work"/source/*.md

RUSTDOCFLAGS="-D warnings" "$cargo" doc --quiet --release --locked --no-deps -p callwright-core -p callwright
cat >"$work/source/api.md" <<'END'
# API

- [callwright](api/callwright/index.html): the library
- [callwright-core](api/callwright_core/index.html): chat templates, formats and the parser alone
END
echo '- [API](api.md)' >>"$work/source/SUMMARY.md"
"$work/tools/bin/mdbook" build --dest-dir "$work/site" "$work/source"
cp -r "$target/doc" "$work/site/api"
toolchain/links.py "$work/site"
echo "$work/site/index.html"
