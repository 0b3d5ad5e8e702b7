#!/usr/bin/env bash
# What one more piece of a call costs llama.cpp's chat parser, at three lengths of the text before it. Builds
# chat_parse.cpp against the llama.cpp that `cargo build --release` has compiled.
#
#   benches/llama_cpp/run.sh [TEMPLATE]      a chat template that writes calls; the bundled model's if none is given
set -euo pipefail
cd "$(dirname "$0")/../.."
template=${1:-models/chat_template.jinja}
built=$(ls -dt "${CARGO_TARGET_DIR:-target}"/release/build/llama-cpp-sys-2-*/out/lib | head -1)/..
source=$(ls -d "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/llama-cpp-sys-2-*/llama.cpp | tail -1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

clang++ -O2 -std=c++17 -I"$source"/common -I"$source"/include -I"$source"/ggml/include -I"$source"/vendor -o "$work/chat_parse" \
    benches/llama_cpp/chat_parse.cpp "$built"/build/common/libllama-common{,-base}.a \
    "$built"/build/vendor/{cpp-httplib/libcpp-httplib,hash/libvendor-hash}.a \
    "$built"/lib/lib{llama,ggml,ggml-cpu,ggml-base}.a -lpthread -ldl -lm

for kib in 1 32 1024; do
    # The shape of benches/parser.rs: one call whose argument is a long string, cut off where the delta arrives.
    {
        printf '### TOOL_CALL_START ###\n{"name": "write_file", "arguments": {"text": "'
        yes 'The quick brown fox jumps over the lazy dog. ' | tr -d '\n' | head -c $((kib * 1024)) || true
    } >"$work/text"
    "$work/chat_parse" "$template" <"$work/text"
done
