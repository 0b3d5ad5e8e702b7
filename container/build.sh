#!/usr/bin/env bash
# Builds the image of the server without a registry: the base is made of Debian's packages, and the program is the portable
# build that is there. Then runs it as the image says, asks for its health, and lets it answer.
# usage: container/build.sh [IMAGE]
# Needs root, buildah and debootstrap. `buildah push IMAGE docker-archive:FILE` makes a file that docker and podman load.
set -euo pipefail
cd "$(dirname "$0")/.."
image=${1:-callwright}
work=$(realpath -m "${CARGO_TARGET_DIR:-target}")/container
suite=bookworm

skip() {
    echo "SKIPPED the container: $1" >&2
    exit 0
}

[ "$(id -u)" = 0 ] || skip "only root makes its base here"
for program in buildah debootstrap; do
    command -v "$program" >/dev/null || skip "$program is not installed"
done
[ -x target/portable/callwright ] || { echo "error: there is no program in target/portable: make portable builds it" >&2; exit 1; }

# Neither a daemon, nor mounts or namespaces that the kernel might forbid.
images() { buildah --root "$work/images" --runroot "$work/run" --storage-driver vfs "$@"; }

mkdir -p "$work"
if ! images inspect --type image "localhost/debian:$suite" >/dev/null 2>&1; then
    rm -rf "$work/base"
    debootstrap --variant=minbase "$suite" "$work/base" >"$work/debootstrap.log" || { tail "$work/debootstrap.log" >&2; exit 1; }
    base=$(images from scratch)
    images add --quiet "$base" "$work/base" / >/dev/null
    images commit --quiet --rm "$base" "localhost/debian:$suite" >/dev/null
    rm -rf "$work/base"
fi

# The health check is part of Docker's kind of image only.
images build --quiet --isolation chroot --format docker --file container/Dockerfile --build-arg PROGRAM=prebuilt \
    --build-arg "BASE=localhost/debian:$suite" --tag "$image" . >"$work/image"
echo "$image: $(images images --format '{{.Size}}' "$image")"

container=$(images from "$image")
# Its log goes to a file: a process that outlives this script would keep a pipe open.
inside() { images run --isolation chroot "$container" -- "$@"; }
# The server itself, below buildah's own processes.
last() { local child; child=$(pgrep -P "$1" | head -n 1); if [ -n "$child" ]; then last "$child"; else echo "$1"; fi; }
leave() {
    [ -z "${server:-}" ] || { kill "$(last "$server")" || true; wait "$server" || true; }
    images rm "$container" >/dev/null
}
trap leave EXIT
user=$(inside id -u)
echo "it runs as user $user"
[ "$user" != 0 ] || { echo "error: the image runs as root" >&2; exit 1; }

mapfile -t command < <(images inspect --type image --format '{{range .Docker.Config.Entrypoint}}{{println .}}{{end}}{{range .Docker.Config.Cmd}}{{println .}}{{end}}' "$image" | sed '/^$/d')
mapfile -t health < <(images inspect --type image --format '{{range .Docker.Config.Healthcheck.Test}}{{println .}}{{end}}' "$image" | sed '/^$/d;1d')
echo "${command[*]}"
images run --isolation chroot --env CALLWRIGHT_API_KEY=key "$container" -- "${command[@]}" >"$work/log" 2>&1 </dev/null &
server=$!
for second in $(seq 120); do
    if inside "${health[@]}" 2>/dev/null; then
        echo "healthy after $second s: ${health[*]}"
        break
    fi
    kill -0 "$server" 2>/dev/null && [ "$second" != 120 ] || { echo "error: it is not healthy:" >&2; cat "$work/log" >&2; exit 1; }
    sleep 1
done
inside curl --fail --silent --header 'Authorization: Bearer key' --header 'Content-Type: application/json' --data '{"model": "bundled",
    "messages": [{"role": "user", "content": "What is the weather in Beijing tomorrow?"}], "tools": [{"type": "function", "function":
    {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]}' \
    http://127.0.0.1:8080/v1/chat/completions | tee "$work/answer"
echo
grep -q '"get_weather"' "$work/answer"
