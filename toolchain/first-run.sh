#!/usr/bin/env bash
# Records docs/first-run.svg: what README.md shows. usage: toolchain/first-run.sh DIRECTORY-OF-THE-PROGRAM
# Needs asciinema (Python package, version 2), svg-term (npm package svg-term-cli), and `make real-models`.
set -euo pipefail
if [ "${1:-}" = --scene ]; then
    for line in "callwright run \"What's the weather in New York and San Francisco?\" -m qwen2.5-coder-0.5b --tools examples/weather.toml --execute" \
        "callwright run \"Delete the file old.log\" --tools examples/files.toml --execute --journal run.jsonl </dev/null"; do
        printf '\033[1m$ %s\033[0m\n' "$line"
        eval "$line" || true
        sleep 2
    done
    exit
fi
here=$(cd "$(dirname "$0")" && pwd)
export PATH=$(realpath "$1"):$PATH HF_HOME=${HF_HOME:-$HOME/.cache/huggingface}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
cp -r "$here/../examples" "$root/"
cd "$root"
HOME=$root asciinema rec --quiet --cols 110 --rows 18 --command "$here/first-run.sh --scene" "$root/first-run.cast"
svg-term --in "$root/first-run.cast" --out "$here/../docs/first-run.svg" --window --no-cursor
