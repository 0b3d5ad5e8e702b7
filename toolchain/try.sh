#!/usr/bin/env bash
# Tries what a user gets, where nothing else is: an archive of `make dist`, or what `cargo install` installs.
# usage: toolchain/try.sh ARCHIVE | toolchain/try.sh --install
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

# The README's first command. Its tools are programs, so the archive's examples are tried, too. The arguments are a command that runs a shell's text.
answers() {
    local text
    text=$("$@" 'callwright run "What'\''s the weather in New York and San Francisco?" --tools examples/weather.toml --execute' </dev/null)
    echo "$text"
    [[ $text == *"It is 21 degrees and sunny in New York."* ]] || { echo "error: the README's first command answers something else" >&2; exit 1; }
}

if [ "$1" = --install ]; then
    CARGO_TARGET_DIR=$target "${CARGO:-cargo}" install --quiet --path . --locked --no-track --root "$root"
    cp -r examples "$root/"
    answers env -i -C "$root" HOME="$root" PATH="$root/bin:/usr/bin:/bin" /bin/sh -c
    exit
fi

if [ "$(id -u)" = 0 ]; then
    enter=(unshare --mount sh -c 'mount --rbind /proc "$1/proc" && exec chroot "$@"' sh)
elif unshare --map-root-user true 2>/dev/null; then
    enter=(unshare --map-root-user chroot)
else
    echo "SKIPPED the archive in an empty root: only root may change the root here" >&2
    exit 0
fi
# The loader finds the libraries beside a program by /proc.
mkdir "$root/tmp" "$root/proc"
tar xzf "$1" -C "$root"
name=$(basename "$1" .tar.gz)
# The shell, what the example of a tool calls, and the libraries that a system has, at the same places.
programs=(/bin/sh "$(command -v sed)" "$(command -v env)")
for file in "${programs[@]}" $(ldd "${programs[@]}" "$root/$name/callwright" | grep -o '/[^ :]*' | grep -vF "$root/" | sort -u); do
    mkdir -p "$root${file%/*}"
    cp -L "$file" "$root$file"
done
answers "${enter[@]}" "$root" "$(command -v env)" -i HOME=/tmp PATH="/$name:/usr/bin:/bin" /bin/sh -c "cd /$name && eval \"\$0\""
