#!/bin/sh
# Makes a model like the bundled one from nothing: data, tokenizer, training, GGUF, evaluation.
#   training/run.sh              writes models/callwright-tiny.gguf (two to three hours on two cores)
#   training/run.sh smoke        a toy under target/, to try the steps (a few minutes)
# Further arguments go to `python -m training all`; a run that was stopped goes on from its last checkpoint.
set -eu
cd "$(dirname "$0")/.."

venv=${CALLWRIGHT_VENV:-target/training-venv}
if [ ! -x "$venv/bin/python" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet -r training/requirements.txt
fi

# Beside other work, threads that spin at barriers cost most of the speed; and giving memory back to the system between
# steps, as glibc does, costs half of what is left.
export OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0
export MALLOC_TRIM_THRESHOLD_=-1 MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TOP_PAD_=1000000000

mode=full
if [ "${1:-}" = smoke ]; then
    mode=smoke
    shift
fi
if [ $mode = smoke ]; then
    exec nice -n 10 "$venv/bin/python" -m training all --size toy --scenes 4000 --tokens 4e5 --no-compile --limit 1 \
        --out target/training-smoke --model target/training-smoke/smoke.gguf "$@"
fi
exec nice -n 10 "$venv/bin/python" -m training all --date "$(date +%F)" "$@"
