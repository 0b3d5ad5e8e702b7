#!/usr/bin/env bash
# Packs the portable build as one archive: the program and llama.cpp's libraries, licences, completions, manual pages, a
# list of what is in it (CycloneDX), and checksums.
# usage: toolchain/dist.sh [FOLDER [OUT]]       the folder of a portable build, target/portable by default; OUT is target/dist
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
from=${1:-$target/portable}
[ -x "$from/callwright" ] || { echo "error: there is no program in $from: make portable builds it" >&2; exit 1; }

host=$(rustc -vV | sed -n 's/^host: //p')
version=$("$from/callwright" --version | cut -d' ' -f2)
name=callwright-$version-$host
out=$(realpath -m "${2:-$target/dist}")
rm -rf "${out:?}/$name" "$out/$name.tar.gz"
mkdir -p "$out/$name/completions" "$out/$name/man" "$out/$name/examples"

cp -P "$from"/* "$out/$name/"
! command -v strip >/dev/null || find "$out/$name" -maxdepth 1 -type f -exec strip {} +
cp LICENSE-MIT LICENSE-APACHE README.md CHANGELOG.md "$out/$name/"
# The README's first commands take these.
cp -r examples/*.json examples/*.toml examples/tools "$out/$name/examples/"
"$from/callwright" completions bash >"$out/$name/completions/callwright.bash"
"$from/callwright" completions zsh >"$out/$name/completions/_callwright"
"$from/callwright" completions fish >"$out/$name/completions/callwright.fish"
"$from/callwright" completions powershell >"$out/$name/completions/_callwright.ps1"
"$from/callwright" completions elvish >"$out/$name/completions/callwright.elv"
"$from/callwright" man "$out/$name/man"

# The packages that are compiled in, with their licences and the texts of these.
"$cargo" metadata --format-version 1 --locked --filter-platform "$host" >"$out/metadata.json"
toolchain/bill.py "$out/metadata.json" callwright --json "$out/$name/callwright.cdx.json" --licences "$out/$name/LICENCES-OF-OTHERS.txt"
rm "$out/metadata.json"

# The same input gives the same archive: names in order, no owner, the time of the last commit.
time=$(git log -1 --format=%ct 2>/dev/null || echo 0)
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$time" -C "$out" -cf - "$name" | gzip -9n >"$out/$name.tar.gz"
(cd "$out" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
ls -l "$out/$name.tar.gz" "$out/$name.tar.gz.sha256"
