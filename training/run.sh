#!/bin/sh
# Makes a model like the bundled one from nothing: data, tokenizer, training, GGUF, evaluation.
#   training/run.sh              writes models/callwright-tiny.gguf (two to three hours on two cores)
#   training/run.sh onward       goes on with the bundled one as it was last gone on with: target/training/onward.gguf
#                                (two to three hours; --seed N gives other scenes)
#   training/run.sh smoke        a toy under target/, to try the steps (a few minutes)
# Further arguments go to every step of `python -m training`; a run that was stopped goes on from its last checkpoint.
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
case ${1:-} in smoke | onward)
    mode=$1
    shift
    ;;
esac
if [ $mode = onward ]; then
    bundled=models/callwright-tiny.gguf
    # The threshold from which on the bundled model calls was raised by this: training needs it as it was.
    raised=0.5
    first=target/training/first second=target/training/second
    old=$first/old.gguf
    step() {
        nice -n 10 "$venv/bin/python" -m training "$@"
    }
    mkdir -p $first $second
    # A long run over everything, at a rate that takes the model far from where it was.
    [ -d $first/data ] || step data --from $bundled --out $first --scenes 92000 "$@"
    [ -f $old ] || step calibrate --from $bundled --out $first --by -$raised --model $old
    step train --from $old --out $first --tokens 38e6 --lr 0.012 --accumulate 8 "$@"
    # A shorter one from between the two, without hints, mostly over whether a tool fits and which.
    [ -f $second/between.gguf ] || step mean --parts $first=0.6 $old=0.4 --model $second/between.gguf
    [ -d $second/data ] || step data --from $old --out $second --scenes 31000 --mix decisions "$@"
    step train --from $second/between.gguf --out $second --tokens 14e6 --lr 0.006 --accumulate 4 --no-hints "$@"
    step mean --parts $second=0.6 $old=0.4 --model target/training/onward.gguf
    exit
fi
if [ $mode = smoke ]; then
    exec nice -n 10 "$venv/bin/python" -m training all --size toy --scenes 4000 --tokens 4e5 --no-compile --limit 1 \
        --out target/training-smoke --model target/training-smoke/smoke.gguf "$@"
fi
exec nice -n 10 "$venv/bin/python" -m training all --date "$(date +%F)" "$@"
