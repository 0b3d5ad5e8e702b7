#!/usr/bin/env bash
# Real clients against `callwright serve` with the bundled model: OpenAI's and Anthropic's libraries for Python, OpenAI's
# for JavaScript, LangChain, rig for Rust, and canitoolcall's probe of an endpoint. What cannot be installed here is skipped, and said so.
# usage: tests/clients/run.sh PROGRAM
set -euo pipefail
program=$1
here=$(cd "$(dirname "$0")" && pwd)
work=${CARGO_TARGET_DIR:-target}/clients
mkdir -p "$work"
work=$(cd "$work" && pwd)

: >"$work/serve.log"   # so that it is there when it is first looked at
"$program" serve --port 0 >"$work/serve.log" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
for _ in $(seq 300); do
    url=$(sed -n 's/^callwright serves .* at \(http.*\)$/\1/p' "$work/serve.log")
    [ -n "$url" ] && break
    sleep 0.1
done
[ -n "$url" ] || { cat "$work/serve.log" >&2; exit 1; }

skipped() { echo "skipped: $1 cannot be installed here" >&2; }

if [ ! -x "$work/python/bin/python" ]; then
    python3 -m venv "$work/python" 2>"$work/python.log" || true
fi
if "$work/python/bin/python" -m pip install --quiet \
    openai==3.57.0 anthropic==2.14.0 langchain-openai==1.7.4 canitoolcall==0.1.1 2>>"$work/python.log"; then
    "$work/python/bin/python" "$here/clients.py" "$url"
    "$work/python/bin/canitoolcall" probe --base-url "$url/v1" --model bundled --timeout 300 | tail -1 |
        tee "$work/probe.log"
    grep -q ' 0 fail, 0 error, 0 skip' "$work/probe.log"
else
    skipped "the clients for Python (openai, anthropic, langchain-openai, canitoolcall)"
fi

if command -v npm >/dev/null && (cd "$work" && npm install --silent --no-audit --no-fund openai@7.57.0) 2>"$work/node.log"; then
    cp "$here/clients.mjs" "$work/"
    node "$work/clients.mjs" "$url"
else
    skipped "the client for JavaScript (openai)"
fi

export CARGO_TARGET_DIR=$work/rig
if cargo fetch --quiet --locked --manifest-path "$here/rig/Cargo.toml" 2>"$work/rig.log"; then
    cargo run --quiet --locked --manifest-path "$here/rig/Cargo.toml" -- "$url"
else
    skipped "the client for Rust (rig)"
fi
