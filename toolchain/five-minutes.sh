#!/usr/bin/env bash
# Follows the README as somebody does who has just installed callwright: runs the commands that need nothing but the bundled
# model and the files in examples/, and compares what they write with what the README shows.
# usage: toolchain/five-minutes.sh [--first] README COMMAND…      COMMAND… runs the shell command that is put after it
#        --first: only the first of them
set -euo pipefail
least=3 most=1000
[ "$1" != --first ] || { least=1 most=1; shift; }
readme=$1
shift
inside='' command='' ran=0
shown=()

try() {
    local line text
    [ "$ran" -lt "$most" ] || return 0
    # Not another model, the reader's own text, a chat, or a table of times.
    case $command in '' | *' -m '* | *…* | 'callwright bench'*) return ;; esac
    text=$("$@" "$command" 2>&1 </dev/null) || { echo "error: $command fails:" "$text" >&2; exit 1; }
    for line in "${shown[@]}"; do
        grep -qxF -e "$line" <<<"$text" || { printf 'error: %s does not write\n%s\nbut\n%s\n' "$command" "$line" "$text" >&2; exit 1; }
    done
    printf '$ %s\n%s\n' "$command" "$text"
    ran=$((ran + 1))
}

while IFS= read -r line; do
    case $inside$line in
    '```console') inside=1 ;;
    '1```') try "$@"; inside='' command='' ;;
    '1$ callwright '*) try "$@"; command=${line#'$ '} shown=() ;;
    '1$ '*) try "$@"; command='' ;;
    1*) shown+=("$line") ;;
    esac
done <"$readme"
[ "$ran" -ge "$least" ] || { echo "error: the README has only $ran commands that can be run here" >&2; exit 1; }
[ "$ran" = 1 ] && echo "the README's first command writes what it shows" || echo "the README's $ran commands write what it shows"
