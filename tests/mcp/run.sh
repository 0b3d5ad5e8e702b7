#!/usr/bin/env bash
# Real MCP servers against `callwright run` with the bundled model: the reference servers time, fetch and git for Python,
# filesystem and everything for Node. Lists them, answers a question with one of their tools, and kills a run at ten random
# moments: no process of a server may survive. What cannot be installed here is skipped, and said so.
# usage: tests/mcp/run.sh PROGRAM
set -euo pipefail
program=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
work=${CARGO_TARGET_DIR:-target}/mcp
mkdir -p "$work"
work=$(cd "$work" && pwd)

skipped() { echo "skipped: $1 cannot be installed here" >&2; }
# A word in the command line of every server that is started here.
mark=mcp-of-callwright-$$
servers=()

if [ ! -x "$work/python/bin/python" ]; then
    python3 -m venv "$work/python" 2>"$work/python.log" || true
fi
if "$work/python/bin/python" -m pip install --quiet \
    mcp-server-time==2026.10.19 mcp-server-fetch==2026.10.24 mcp-server-git==2026.10.19 2>>"$work/python.log"; then
    python=$work/python/bin/python
    repository=$work/repository
    [ -d "$repository/.git" ] || git init --quiet "$repository"
    servers+=("\"time\": {\"command\": \"$python\", \"args\": [\"-m\", \"mcp_server_time\", \"--local-timezone=UTC\"], \"env\": {\"MARK\": \"$mark\"}, \"autoApprove\": true}")
    servers+=("\"fetch\": {\"command\": \"$python\", \"args\": [\"-m\", \"mcp_server_fetch\", \"--ignore-robots-txt\"], \"env\": {\"MARK\": \"$mark\"}, \"autoApprove\": true}")
    servers+=("\"git\": {\"command\": \"$python\", \"args\": [\"-m\", \"mcp_server_git\", \"--repository\", \"$repository\"], \"env\": {\"MARK\": \"$mark\"}}")
else
    skipped "the servers for Python (time, fetch, git)"
fi
if command -v npm >/dev/null && (cd "$work" && npm install --silent --no-audit --no-fund \
    @modelcontextprotocol/server-filesystem@2026.8.31 @modelcontextprotocol/server-everything@2026.8.31) 2>"$work/node.log"; then
    bin=$work/node_modules/.bin
    mkdir -p "$work/files"
    echo "The meeting is on Monday." >"$work/files/note.txt"
    servers+=("\"filesystem\": {\"command\": \"$bin/mcp-server-filesystem\", \"args\": [\"$work/files\"], \"env\": {\"MARK\": \"$mark\"}}")
    servers+=("\"everything\": {\"command\": \"$bin/mcp-server-everything\", \"args\": [\"stdio\"], \"env\": {\"MARK\": \"$mark\"}}")
else
    skipped "the servers for Node (filesystem, everything)"
fi
if [ ${#servers[@]} = 0 ]; then
    exit 0
fi
file=$work/mcp.json
{ printf '{"mcpServers": {'; (IFS=,; printf '%s' "${servers[*]}"); printf '}}\n'; } >"$file"

# The processes of servers that run now, by the mark in their environment.
survivors() {
    for environment in /proc/[0-9]*/environ; do
        if grep -qs "$mark" "$environment" 2>/dev/null; then
            process=${environment%/environ}
            # One that has ended and was not waited for is no survivor.
            [ "$(sed 's/.*) //; s/ .*//' "$process/stat" 2>/dev/null)" = Z ] || echo "${process#/proc/}"
        fi
    done
}

"$program" mcp list "$file" | tee "$work/list.log"
! grep -q 'did not start' "$work/list.log"
[ -z "$(survivors)" ] || { echo "servers survive the end of the list: $(survivors)" >&2; exit 1; }

if grep -q get_current_time "$work/list.log"; then
    printf '{"mcpServers": {%s}}\n' "${servers[0]}" >"$work/time.json"
    # Status 1 is for an answer that repeats itself: with some times of the day, this small model's does.
    { "$program" run "What time is it in the time zone Europe/Oslo now?" --mcp "$work/time.json" --execute \
        --tool-choice get_current_time || [ $? = 1 ]; } | tee "$work/time.log"
    grep -A1 '← get_current_time .*Europe/Oslo' "$work/time.log" | grep -q '^[^←→]'
    # Without a network, too, the end is an answer: an error is a result.
    printf '{"mcpServers": {%s}}\n' "${servers[1]}" >"$work/fetch.json"
    "$program" run "Fetch http://127.0.0.1:9/page" --mcp "$work/fetch.json" --execute --tool-choice fetch \
        --no-retry --no-regenerate | tee "$work/fetch.log" || true
    grep -q '← fetch error: ' "$work/fetch.log"
fi

for round in $(seq 10); do
    # All tools together are too many for the bundled model: that run ends early, and the list does not.
    if [ $((round % 2)) = 0 ]; then
        "$program" mcp list "$file" >/dev/null 2>&1 &
    else
        "$program" run "What time is it in Oslo?" --mcp "$file" --execute --yes >/dev/null 2>&1 &
    fi
    running=$!
    sleep "$((RANDOM % 4)).$((RANDOM % 10))"
    kill -KILL $running 2>/dev/null || true
    wait $running 2>/dev/null || true
    # The guards need a moment.
    for _ in $(seq 50); do
        [ -z "$(survivors)" ] && break
        sleep 0.1
    done
    [ -z "$(survivors)" ] || { echo "servers survive kill $round: $(survivors)" >&2; exit 1; }
done
echo "killed at ten random moments: no server survives"
