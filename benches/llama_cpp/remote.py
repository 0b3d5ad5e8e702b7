#!/usr/bin/env python3
"""The same model behind servers: prompts and calls written and read by callwright (raw), and by the server (chat).

    remote.py CALLWRIGHT LLAMA_SERVER MODEL.gguf OUT [CASES]

Starts llama-server and `callwright serve` with the model, one after the other, and asks the built-in cases: raw in the formats
hermes and delimited, each without and with the constraint, and chat. The last row of each is the model in the same process.
Writes a run for each server into the folder OUT, and prints the tables. No figure is a time: the servers differ in how many
requests they take at a time.
"""

import subprocess
import sys
import time
import urllib.request
from pathlib import Path


def wait_for(address, server):
    for _ in range(600):
        if server.poll() is not None:
            sys.exit(f"the server at {address} ended: {server.returncode}")
        try:
            urllib.request.urlopen(f"{address}/health", timeout=5).read()
            return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"the server at {address} does not answer")


def main():
    callwright, llama_server, model, out = sys.argv[1:5]
    cases = sys.argv[5] if len(sys.argv) > 5 else "120"
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    common = ["--limit", cases, "--parallel-cases", "4", "--max-tokens", "256"]
    servers = {
        "llama-server": [llama_server, "-m", model, "--port", "8461", "-c", "32768", "--parallel", "4", "--jinja"],
        "callwright serve": [callwright, "serve", "-m", model, "--port", "8461"],
    }
    for name, command in servers.items():
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for("http://127.0.0.1:8461", server)
            for mode, scheme, options in [
                ("raw", "openai", ["--preset", "formats"]),
                ("chat", "openai-chat", []),
            ]:
                run = out / f"{name.replace(' ', '-')}-{mode}"
                print(f"\n## {name}, {mode}\n", flush=True)
                models = ["-m", f"{scheme}:http://127.0.0.1:8461/v1"]
                subprocess.run([callwright, "bench", *models, *options, *common, "--out", run], check=False)
        finally:
            server.terminate()
            server.wait()
    print("\n## in the same process\n", flush=True)
    run = out / "here"
    subprocess.run([callwright, "bench", "-m", model, "--preset", "formats", *common, "--out", run], check=False)


if __name__ == "__main__":
    main()
