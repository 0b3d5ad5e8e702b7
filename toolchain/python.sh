#!/usr/bin/env bash
# Builds the Python package, installs it into an empty environment, and runs its tests there.
# usage: toolchain/python.sh [PROGRAM|FOLDER]
# The package gets the program, or all files of the folder: that of a portable build has libraries beside the program.
set -euo pipefail
cd "$(dirname "$0")/.."
program=${1:-}
work=$(realpath -m "${CARGO_TARGET_DIR:-target}")/python
crate=crates/callwright-python
staged=$crate/python/callwright/program
mkdir -p "$work"

skip() {
    echo "SKIPPED the Python package: $1" >&2
    exit 0
}

python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || skip "Python 3.9 or newer is not installed"
[ -x "$work/tools/bin/python" ] || python3 -m venv "$work/tools" 2>"$work/tools.log" || skip "Python has no module venv"
"$work/tools/bin/pip" install --quiet --disable-pip-version-check 'maturin>=1.9,<2' 2>>"$work/tools.log" ||
    skip "maturin cannot be fetched"

rm -rf "$staged" "$work/wheels"
trap 'rm -rf "$staged"' EXIT
if [ -n "$program" ]; then
    mkdir "$staged"
    if [ -d "$program" ]; then cp -L "$program"/* "$staged/"; else cp "$program" "$staged/"; fi
    ! command -v strip >/dev/null || strip "$staged"/*
fi

# Not for this machine's processor alone, as other builds here are; so it has a folder of its own.
processor=generic
[ "$(uname -m)" != x86_64 ] || processor=x86-64
RUSTFLAGS="-C target-cpu=$processor" CARGO_TARGET_DIR=$work/target "$work/tools/bin/maturin" build --quiet --release --locked \
    --manifest-path "$crate/Cargo.toml" --out "$work/wheels"
wheels=("$work"/wheels/*.whl)
ls -l "${wheels[0]}"
[ -z "$(find "${wheels[0]}" -size +40000000c)" ] || { echo "error: the wheel is larger than 40 MB" >&2; exit 1; }

# An environment that knows neither the sources nor a compiler.
rm -rf "$work/venv"
python3 -m venv "$work/venv"
pip=("$work/venv/bin/pip" install --quiet --disable-pip-version-check)
"${pip[@]}" --no-index "${wheels[0]}"
"${pip[@]}" pytest 2>>"$work/tools.log" || skip "pytest cannot be fetched"
# The tests that need them are skipped without, and say so.
"${pip[@]}" transformers jinja2 2>>"$work/tools.log" || true
"${pip[@]}" mypy 2>>"$work/tools.log" || true
cd "$crate/tests"
"$work/venv/bin/python" -m pytest -q -rs --rootdir . -p no:cacheprovider .
