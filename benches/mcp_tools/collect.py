#!/usr/bin/env python3
"""Installs MCP servers from the Python and npm indexes, asks each for its tools, and reads the lists with callwright.

    collect.py [--out FOLDER] [--callwright PROGRAM] [--only NAME] [--again]

Prints a table: server, tools, tools left out, changes that relax, parts that the grammar leaves unenforced. The lists
are kept in the folder and read again with --again; they are not part of the repository. A server that does not install
or does not answer in time is listed as such: many want an account first.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
INSTALL_S, LIST_S = 400, 120


def servers():
    """(index, package, program, arguments, environment) of each line of servers.txt."""
    for line in (HERE / "servers.txt").read_text().splitlines():
        words = line.split("#")[0].split()
        if not words:
            continue
        index, package, *rest = words
        environment = dict(word.split("=", 1) for word in rest if "=" in word and word.split("=")[0].isupper())
        rest = [word for word in rest if not ("=" in word and word.split("=")[0].isupper())]
        yield index, package, (rest[0] if rest else None), rest[1:], environment


def quiet(command, limit):
    """Runs an installer; its last line of complaint where it fails."""
    ran = subprocess.run(command, timeout=limit, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
    if ran.returncode:
        raise RuntimeError("does not install: " + last_line(ran.stderr))


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["no message"])[-1]


def install(index, package, program, home):
    """Installs a package into a folder of its own; the path of its program."""
    home.mkdir(parents=True, exist_ok=True)
    if index == "npm":
        quiet(["npm", "install", "--prefix", home, "--no-audit", "--no-fund", "--ignore-scripts", package], INSTALL_S)
        name = package.rsplit("@", 1)[0] if package.rfind("@") > 0 else package
        manifest = json.loads((home / "node_modules" / name / "package.json").read_text())
        binary = manifest.get("bin") or {}
        names = [manifest["name"].split("/")[-1]] if isinstance(binary, str) else list(binary)
        return home / "node_modules/.bin" / (program or names[0])
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    quiet([*pip, "--target", home, package], INSTALL_S)
    return home / "bin" / (program or package.split("=")[0].split("[")[0])


def listed(command, home, environment):
    """The tools that a server lists over standard input and output."""
    # A package from an index is given nothing of the environment that it does not need.
    inherited = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    environment = {**inherited, "HOME": str(home), "PYTHONPATH": str(home), "NO_COLOR": "1", **environment}
    complaints = tempfile.TemporaryFile("w+", errors="replace")
    process = subprocess.Popen(command, cwd=home, env=environment, text=True, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=complaints, start_new_session=True)
    timer = threading.Timer(LIST_S, process.kill)
    timer.start()
    try:
        def send(message):
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            process.stdin.flush()

        def answer(number):
            for line in process.stdout:
                try:
                    message = json.loads(line)
                except ValueError:
                    continue
                if isinstance(message, dict) and message.get("id") == number and "method" not in message:
                    if "result" not in message:
                        raise RuntimeError(f"error {message.get('error')}")
                    return message["result"]
            complaints.seek(0)
            raise RuntimeError("no answer: " + last_line(complaints.read()))

        client = {"name": "callwright-bench", "version": "0"}
        send({"id": 1, "method": "initialize", "params": {
            "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": client}})
        answer(1)
        send({"method": "notifications/initialized"})
        tools, number, cursor = [], 2, None
        while True:
            send({"id": number, "method": "tools/list", "params": {"cursor": cursor} if cursor else {}})
            page = answer(number)
            tools += page["tools"]
            number, cursor = number + 1, page.get("nextCursor")
            if not cursor:
                return {"jsonrpc": "2.0", "id": number, "result": {"tools": tools}}
    finally:
        timer.cancel()
        process.kill()


def collect(server, folder, out):
    index, package, program, arguments, environment = server
    name = f"{index}-{package.replace('/', '_').replace('@', '')}"
    path = out / f"{name}.json"
    if path.exists():
        return name, None
    try:
        home = folder / name
        command = [str(install(index, package, program, home)), *arguments]
        path.write_text(json.dumps(listed(command, home, environment), indent=1))
        return name, None
    except (OSError, ValueError, KeyError, RuntimeError, subprocess.SubprocessError) as error:
        return name, f"{type(error).__name__}: {error}".replace("\n", " ")[:240]


def read(callwright, path):
    """What callwright makes of a list: (tools, left out, relaxed, read otherwise, unenforced) or its error."""
    ran = subprocess.run([callwright, "grammar", "--json", "--tools", path], capture_output=True, text=True)
    tools = len(json.loads(path.read_text())["result"]["tools"])
    if ran.returncode:
        return None, f"{tools} tools: {ran.stderr.strip().splitlines()[-1][:160] if ran.stderr else ran.returncode}"
    answer = json.loads(ran.stdout)
    count = lambda change: sum(1 + notice.get("more", 0) for notice in answer["notices"] if notice["change"] == change)
    lost = sum(1 for one in answer["unenforced"] if "left_out" in one)
    kept = [one for one in answer["unenforced"] if "left_out" not in one]
    return (tools, count("left_out") + lost, count("relaxed"), count("read") + count("renamed"), len(kept)), None


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=Path("target/mcp_tools"))
    options.add_argument("--callwright", default="target/release/callwright")
    options.add_argument("--only", action="append", help="a package's name; may be given more than once")
    options.add_argument("--again", action="store_true", help="read the lists that are there, install nothing")
    options.add_argument("--jobs", type=int, default=4)
    options = options.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.again:
        chosen = [server for server in servers() if not options.only or server[1] in options.only]
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
            for name, error in pool.map(lambda server: collect(server, Path(folder), options.out), chosen):
                if error:
                    print(f"{name}: {error}", file=sys.stderr)
    rows, sums = 0, [0] * 5
    print("| server | tools | left out | relaxed | read otherwise | unenforced |\n|---|---|---|---|---|---|")
    for path in sorted(options.out.glob("*.json")):
        counts, error = read(options.callwright, path)
        print(f"| {path.stem} | " + (" | ".join(map(str, counts)) if counts else error + " | | | |") + " |")
        if counts and counts[0]:
            rows, sums = rows + 1, [a + b for a, b in zip(sums, counts)]
    print(f"| {rows} servers | " + " | ".join(map(str, sums)) + " |")


if __name__ == "__main__":
    main()
