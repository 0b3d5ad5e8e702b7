#!/usr/bin/env bash
# Packs the portable build as one archive: the program and llama.cpp's libraries, licences, completions, manual pages, and a
# checksum.
# usage: toolchain/dist.sh [FOLDER [OUT]]       the folder of a portable build, target/portable by default; OUT is target/dist
# It needs GNU's tar and coreutils.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
from=${1:-$target/portable}
[ -x "$from/callwright" ] || { echo "error: there is no program in $from: make portable builds it" >&2; exit 1; }

host=$(rustc -vV | sed -n 's/^host: //p')
name=callwright-$("$from/callwright" --version | cut -d' ' -f2)-$host
out=$(realpath -m "${2:-$target/dist}")
rm -rf "${out:?}/$name" "$out/$name.tar.gz"
mkdir -p "$out/$name/completions" "$out/$name/man" "$out/$name/examples"

cp -P "$from"/* "$out/$name/"
# On macOS it would undo the program's signature.
[ "$(uname)" != Linux ] || ! command -v strip >/dev/null || find "$out/$name" -maxdepth 1 -type f -exec strip {} +
cp LICENSE-MIT LICENSE-APACHE README.md CHANGELOG.md "$out/$name/"
# The README's first commands take these.
cp -r examples/*.json examples/*.toml examples/tools "$out/$name/examples/"
for shell in bash:callwright.bash zsh:_callwright fish:callwright.fish powershell:_callwright.ps1 elvish:callwright.elv; do
    "$from/callwright" completions "${shell%:*}" >"$out/$name/completions/${shell#*:}"
done
"$from/callwright" man "$out/$name/man"

# The packages that are compiled in, with the texts of their licences, where they carry one.
"${CARGO:-cargo}" tree --locked --edges normal --prefix none --no-dedupe --target "$host" --format '{p} {l}' | grep -vE ' \((/|[A-Z]:)' | sort -u |
    while read -r package version licence; do
        printf '\n== %s %s: %s\n\n' "$package" "$version" "$licence"
        find "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"$package-${version#v}" -type f \
            \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' -o -iname 'unlicense*' \) -exec cat {} + 2>/dev/null || true
    done >"$out/$name/LICENCES-OF-OTHERS.txt"

# The same input gives the same archive: names in order, no owner, the time of the last commit.
time=$(git log -1 --format=%ct 2>/dev/null || echo 0)
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$time" -C "$out" -cf - "$name" | gzip -9n >"$out/$name.tar.gz"
(cd "$out" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
ls -l "$out/$name.tar.gz" "$out/$name.tar.gz.sha256"
