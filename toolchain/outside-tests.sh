#!/usr/bin/env bash
# Runs the tests that need what is not part of the repository, as far as it is there, and counts the others. The tests
# of a kind have its name in theirs.
set -euo pipefail
cd "$(dirname "$0")/.."

tests() {
    "${CARGO:-cargo}" test --release --locked --workspace --exclude callwright-python --exclude callwright-wasm --lib --bins --tests --quiet -- --ignored "$@"
}

# outside KIND NEEDED COMMAND…: the tests of that kind where the command succeeds.
outside() {
    if "${@:3}" >/dev/null; then
        echo "Tests of kind $1:"
        tests "$1" --show-output
    else
        echo "SKIPPED $(tests "$1" --list | grep -c ': test$') tests of kind $1: $2"
    fi
}

# Absolute: a test runs in its package's folder.
CALLWRIGHT_CONFORMANCE=$(realpath -m "${CALLWRIGHT_CONFORMANCE:-../shared/conformance}")
CALLWRIGHT_BFCL=$(realpath -m "${CALLWRIGHT_BFCL:-../shared/bfcl}")
CALLWRIGHT_BFCL_EVAL=$(realpath -m "${CALLWRIGHT_BFCL_EVAL:-target/bfcl}")
export CALLWRIGHT_CONFORMANCE CALLWRIGHT_BFCL CALLWRIGHT_BFCL_EVAL

outside conformance "CALLWRIGHT_CONFORMANCE names no folder with the conformance data" test -e "$CALLWRIGHT_CONFORMANCE/renders.jsonl"
outside bfcl "CALLWRIGHT_BFCL names no folder with BFCL's data" test -e "$CALLWRIGHT_BFCL/verdicts.jsonl"
outside leaderboard_turns "the package bfcl-eval is not in target/bfcl; make bfcl fetches it" test -d "$CALLWRIGHT_BFCL_EVAL/bfcl_eval"
outside browser "neither chromium nor google-chrome is installed" sh -c 'command -v chromium || command -v chromium-browser || command -v google-chrome'
outside python "Python 3 is not installed" command -v python3
outside real_model "SmolLM2-135M is not in the hub's cache; make real-models fetches it" toolchain/real_models.py --only-check smollm2-135m
outside real_coder "Qwen2.5-Coder-0.5B is not in the hub's cache; make real-models fetches it" toolchain/real_models.py --only-check qwen2.5-coder-0.5b
