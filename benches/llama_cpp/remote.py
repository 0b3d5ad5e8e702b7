#!/usr/bin/env python3
"""The same model behind servers: prompts and calls written and read by callwright (raw), and by the server (chat).

    remote.py CALLWRIGHT LLAMA_SERVER MODEL.gguf OUT [CASES [PYTHON]]

Starts llama-server, `callwright serve`, and the server of llama-cpp-python where the interpreter PYTHON has it
(`pip install 'llama-cpp-python[server]'`), one after the other with the model. Asks each the built-in cases: raw in the formats hermes
and delimited, each without and with the constraint, and chat. The last table is the model in the same process.
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
            urllib.request.urlopen(f"{address}/v1/models", timeout=5).read()
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
    template = out / "template.jinja"
    template.write_text(subprocess.run([callwright, "template", "show", model], capture_output=True, text=True, check=True).stdout)
    servers = {
        "llama-server": [llama_server, "-m", model, "--port", "8461", "-c", "32768", "--parallel", "4", "--jinja"],
        "callwright serve": [callwright, "serve", "-m", model, "--port", "8461"],
    }
    if len(sys.argv) > 6:
        options = ["--model", model, "--port", "8461", "--n_ctx", "8192", "--interrupt_requests", "false"]
        servers["llama-cpp-python"] = [sys.argv[6], "-m", "llama_cpp.server", *options]
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
                # This one does not say how its model's prompts are written.
                models += ["--template", template] if name == "llama-cpp-python" and mode == "raw" else []
                subprocess.run([callwright, "bench", *models, *options, *common, "--out", run], check=False)
        finally:
            server.terminate()
            server.wait()
    print("\n## in the same process\n", flush=True)
    run = out / "here"
    subprocess.run([callwright, "bench", "-m", model, "--preset", "formats", *common, "--out", run], check=False)


if __name__ == "__main__":
    main()
