#!/usr/bin/env bash
# Builds the documentation site in target/docs/site: the book, the API of the crates, and the page of all recorded runs.
set -euo pipefail
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
# Files that are not pages are read in the repository.
repository=$(sed -n 's/^repository = "\(http.*\)"$/\1/p' Cargo.toml)
sed -i "s#](\.\./#](${repository}/blob/main/#g" "$work"/source/*.md

# One by one: together, the libraries would have the features that the program needs.
for crate in minijinja-transformers callwright-core callwright callwright-bench; do
    RUSTDOCFLAGS="-D warnings" "$cargo" doc --quiet --release --locked --no-deps -p $crate
done
printf '# API\n\n- [%s](api/%s/index.html): %s\n' callwright callwright 'the library' >"$work/source/api.md"
printf -- '- [%s](api/%s/index.html): %s\n' callwright-core callwright_core 'chat templates, formats and the parser alone' >>"$work/source/api.md"
printf -- '- [%s](api/%s/index.html): %s\n' callwright-bench callwright_bench 'the benchmark' >>"$work/source/api.md"
printf -- '- [%s](api/%s/index.html): %s\n' minijinja-transformers minijinja_transformers 'rendering chat templates alone' >>"$work/source/api.md"
echo '- [API](api.md)' >>"$work/source/SUMMARY.md"
printf '\n[All recorded runs on one page](matrix/index.html)\n' >>"$work/source/figures.md"
"$work/tools/bin/mdbook" build --dest-dir "$work/site" "$work/source"
cp -r "$target/doc" "$work/site/api"
"$cargo" run --quiet --release --locked -p callwright-cli --no-default-features -- bench report benches/runs/*/ --matrix "$work/site/matrix"
echo "$work/site/index.html"
