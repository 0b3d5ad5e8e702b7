#!/bin/sh
# Makes a model like the bundled one from nothing: data, tokenizer, training, GGUF, evaluation.
#   lab/training/run.sh [SEED]          writes models/callwright-tiny.gguf (seven to eight hours on two cores)
#   lab/training/run.sh onward [SEED]   goes on with the bundled one: target/training/onward/next/mean.gguf (two to three hours)
#   lab/training/run.sh smoke [SEED]    the steps of the first with a toy: target/training/smoke/new.gguf (a few minutes)
# Each training run within has a seed of its own: SEED (default: 1) and those after it. Further arguments go to every step
# of `python -m lab.training`. What was stopped goes on from its last checkpoint.
set -eu
cd "$(dirname "$0")/../.."

venv=${CALLWRIGHT_VENV:-target/training-venv}
if [ ! -x "$venv/bin/python" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet -r lab/training/requirements.txt
fi

# Beside other work, threads that spin at barriers cost most of the speed; and giving memory back to the system between
# steps, as glibc does, costs half of what is left. Where nothing else runs, spinning (ACTIVE and 100000) was a sixth faster.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-PASSIVE} GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-0}
export MALLOC_TRIM_THRESHOLD_=-1 MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TOP_PAD_=1000000000

mode=full seed=1 share=1 more=
case ${1:-} in smoke | onward)
    mode=$1
    shift
    ;;
esac
case ${1:-} in [0-9]*)
    seed=$1
    shift
    ;;
esac
if [ $mode = smoke ]; then
    share=50 more="--size toy --no-compile --limit 1"
fi
more="$more $*"
work=target/training/$mode
bundled=models/callwright-tiny.gguf
# In logits: by how much the bundled model's threshold of calls was raised. What goes on does so without.
raised=0.5

step() {
    # What $more has are several words.
    nice -n 10 "$venv/bin/python" -m lab.training "$@" --date "$(date +%F)" $more
}

# train FOLDER SCENES TOKENS OPTION…: scenes, training on them, and a GGUF.
train() {
    folder=$work/$1 scenes=$(($2 / share)) tokens=$(($3 / share))
    shift 3
    [ -d "$folder/data" ] || step data --out "$folder" --scenes $scenes --seed "$seed" "$@"
    step train --out "$folder" --tokens $tokens --seed "$seed" "$@"
    step export --out "$folder" --model "$folder/model.gguf"
    seed=$((seed + 1))
}

# onward FOLDER OLD: a long run over everything, at a rate that takes the model far from where it was; a shorter one from
# between the two, without hints, mostly over whether a tool fits and which; and FOLDER/mean.gguf of its end and the old model.
onward() {
    round=$work/$1
    train "$1/everything" 92000 38000000 --from "$2" --lr 0.012 --accumulate 8
    step mean --parts "$round/everything=0.6" "$2=0.4" --model "$round/between.gguf"
    train "$1/decisions" 31000 14000000 --from "$round/between.gguf" --mix decisions --lr 0.006 --accumulate 4 --no-hints
    step mean --parts "$round/decisions=0.6" "$2=0.4" --model "$round/mean.gguf"
}

mkdir -p "$work"
if [ $mode = onward ]; then
    # Any conversations have places where an answer begins.
    places=$work/places old=$work/old.gguf
    [ -d "$places/data" ] || step data --from $bundled --out "$places" --scenes 100
    [ -f "$old" ] || step calibrate --from $bundled --out "$places" --by -$raised --model "$old"
    onward next "$old"
    exit
fi
train first 76000 35000000
train second 92000 38000000 --from "$work/first/model.gguf" --lr 0.012 --accumulate 8
onward third "$work/second/model.gguf"
onward fourth "$work/third/mean.gguf"
new=$bundled
[ $mode = full ] || new=$work/new.gguf
cp "$work/fourth/mean.gguf" "$new"
# The tests know the ids of the model that ships.
[ $mode = smoke ] || step tokens
step evaluate --model "$new"
