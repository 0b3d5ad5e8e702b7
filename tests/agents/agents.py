#!/usr/bin/env python3
"""Codex, Claude Code and OpenCode, without a terminal and in an empty home, against `callwright serve`. A scripted model server
writes the answers, so that it is known which calls an agent gets; then a real model writes them, where one is at hand.

usage: agents.py PROGRAM [AGENT ...]
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PACKAGES = {"codex": "@openai/codex@0.171.0", "claude": "@anthropic-ai/claude-code@2.1.197", "opencode": "opencode-ai@1.18.33"}
PROGRAM = Path(sys.argv[1]).resolve()
HERE = Path(__file__).resolve().parent
WORK = Path(os.environ.get("CARGO_TARGET_DIR", "target")).resolve() / "agents"
BIN = WORK / "node_modules" / ".bin"
# A busy machine starts an agent in a minute.
PATIENCE = 400
# Two models, which differ in their context. The agents' own prompts have 8,000 to 22,000 tokens.
CONTEXTS = {"wide": 200_000, "narrow": 32_000}
SUMMARY = "The summary: the model looked at many lines."


class Upstream(BaseHTTPRequestHandler):
    """Completes prompts. `script` gets a prompt with tools and returns the answer; None breaks the connection within one."""

    protocol_version = "HTTP/1.1"
    script = None
    prompts = []

    def log_message(self, *_):
        pass

    def reply(self, status, kind, text):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        models = [{"id": name, "max_model_len": context} for name, context in CONTEXTS.items()]
        self.reply(200 if self.path == "/v1/models" else 404, "application/json", json.dumps({"data": models}))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path != "/v1/completions" or body.get("logprobs"):
            return self.reply(400, "application/json", '{"error": {"message": "no"}}')
        prompt = body["prompt"]
        # Agents also ask for titles, with short prompts without tools.
        is_task = "# Tools" in prompt or len(prompt) > 4000
        Upstream.prompts.append(prompt)
        text = Upstream.script(prompt) if is_task else "A title"
        cut, text = text is None, text or "This answer is cut off in the mid"
        event = lambda value: f"data: {json.dumps(value)}\n\n"
        events = "".join(event({"choices": [{"index": 0, "text": text[at:at + 9]}]}) for at in range(0, len(text), 9))
        if cut:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(events.encode())
            self.close_connection = True
            return None
        usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": len(text) // 4}
        end = event({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}], "usage": usage})
        return self.reply(200, "text/event-stream", events + end + "data: [DONE]\n\n")


def calls(*given):
    return "\n".join("<tool_call>\n" + json.dumps({"name": name, "arguments": rest}) + "\n</tool_call>" for name, rest in given)


class Agent:
    """How an agent is started, and what its tools are named."""

    def __init__(self, name, url, model, log):
        self.name, self.url, self.model = name, url, model
        self.server = [sys.executable, str(HERE.parent / "mcp" / "server.py"), "--log", str(log)]

    def run_tool(self, command):
        if self.name == "codex":
            return "exec_command", {"cmd": command}
        return ("Bash" if self.name == "claude" else "bash"), {"command": command, "description": "Run it"}

    def write_tool(self, path, text):
        if self.name == "codex":
            return self.run_tool(f"printf %s {text!r} > {path}")
        # In the order of their schemas, which the server's grammar demands.
        if self.name == "claude":
            return "Write", {"file_path": str(path), "content": text}
        return "write", {"content": text, "filePath": str(path)}

    def mcp_tool(self, arguments):
        return {"codex": "get_weather", "claude": "mcp__notes__get_weather", "opencode": "notes_get_weather"}[self.name], arguments

    def start(self, task, home, folder, way="launch"):
        """Runs the agent: as `callwright launch` does, or with a short prompt, or as its own makers have it."""
        environment = {"HOME": str(home), "PATH": f"{BIN}:{os.environ['PATH']}", "NO_PROXY": "*", "TERM": "dumb"}
        command = [PROGRAM, "launch", self.name, "--url", self.url, "-m", self.model, "--"]
        if self.name == "codex":
            if way != "launch":
                command = ["codex"]
                environment |= {"CODEX_API_KEY": "none", "CODEX_OSS_BASE_URL": f"{self.url}/v1"}
            server = f"mcp_servers.notes={{command={json.dumps(self.server[0])}, args={json.dumps(self.server[1:])}}}"
            command += ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-c", server]
            command += ["--oss", "--local-provider", "ollama"] if way == "oss" else []
            if way == "openai":
                command += ["-c", f'openai_base_url="{self.url}/v1"', "-c", f"model_context_window={CONTEXTS[self.model]}"]
            command += [task] if way == "launch" else ["-m", self.model, task]
        elif self.name == "claude":
            servers = {"mcpServers": {"notes": {"command": self.server[0], "args": self.server[1:]}}}
            command += ["-p", task, "--mcp-config", json.dumps(servers), "--allowedTools", "Bash", "Write", "mcp__notes"]
            environment["MCP_CONNECTION_NONBLOCKING"] = "0"
        else:
            command += ["run", task]
            settings = {"autoupdate": False, "mcp": {"notes": {"type": "local", "command": self.server}}}
            if way == "short":
                # Without its own instructions and tools: a small model on a CPU reads those for minutes.
                settings |= {"tools": {"*": False, "notes_*": True},
                             "agent": {"build": {"prompt": "You are an assistant."}, "title": {"disable": True}}}
            (Path(folder) / "opencode.json").write_text(json.dumps(settings))
            environment |= {f"OPENCODE_DISABLE_{what}": "1" for what in ("MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")}
        try:
            ended = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                                   text=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired as late:
            return f"{late.stdout or b''}", f"did not end within {PATIENCE} seconds\n{late.stderr or b''}"
        return ended.stdout, ended.stderr


class Server:
    """`callwright serve` with these models."""

    def __init__(self, *options):
        self.log = tempfile.TemporaryFile("w+")
        self.home = tempfile.TemporaryDirectory()
        environment = {**os.environ, "XDG_CONFIG_HOME": self.home.name, "NO_PROXY": "*"}
        self.process = subprocess.Popen([PROGRAM, "serve", "--port", "0", *options], stdout=subprocess.PIPE, stderr=self.log,
                                        env=environment, text=True)
        self.url = self.process.stdout.readline().strip().rsplit(" at ", 1)[-1]

    def lines(self):
        self.log.seek(0)
        return self.log.read()

    def end(self):
        self.process.kill()
        self.process.wait()


def in_turn(*answers):
    left = list(answers)
    return lambda _: left.pop(0) if left else "All done."


def overflowing(agent):
    """Looks at many lines until there is a summary in place of them."""
    many = "seq -s ' ' 100000 106000"

    def script(prompt):
        last = prompt[prompt.rindex("<|im_start|>user"):]
        if SUMMARY in prompt:
            return "All done."
        asked = "summar" in last.lower() and "TASK:" not in last and "<tool_response>" not in last
        if asked or "# Tools" not in prompt:
            return f"<summary>\n{SUMMARY}\n</summary>"
        return calls(agent.run_tool(many))
    return script


def session(server, name, model, task, script, way="launch"):
    """Lets an agent work: the files of its folder, the calls of its MCP server, its answer, and all that was written."""
    with tempfile.TemporaryDirectory(dir=WORK) as home, tempfile.TemporaryDirectory() as folder:
        log = Path(home) / "mcp.log"
        agent, folder = Agent(name, server.url, model, log), Path(folder)
        Upstream.script, Upstream.prompts = staticmethod(script(agent, folder)), []
        before = len(server.lines())
        out, error = agent.start(task, home, folder, way)
        files = {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}
        seen = f"{out[-2000:]}\n{error[-3000:]}\n{server.lines()[before:][-2000:]}"
        return files, log.read_text() if log.exists() else "", out, seen


def tried(name, server):
    """The checks of one agent: what is checked, whether it holds, and what to look at if it does not."""
    def work(agent, folder):
        return in_turn(
            calls(agent.write_tool(folder / "written.txt", "three words here")),
            calls(agent.run_tool("wc -w < written.txt > counted.txt")),
            calls(agent.mcp_tool({"city": "Oslo"})),
            calls(agent.run_tool("echo fir''st > first.txt; cat first.txt"), agent.run_tool("echo sec''ond > second.txt; cat second.txt")),
        )

    files, log, out, seen = session(server, name, "wide", "TASK: work with files", work)
    last = next((prompt for prompt in reversed(Upstream.prompts) if "# Tools" in prompt), "")
    results = last[last.rfind("fir''st"):]
    yield "a file is written", files.get("written.txt") == "three words here", seen
    yield "a command is run", files.get("counted.txt", "").strip() == "3", seen
    yield "an MCP tool is used", 'call get_weather {"city": "Oslo"}' in log and "sunny in Oslo" in last, seen
    yield "two parallel calls", re.search(r"\bfirst\b.*\bsecond\b", results, re.S) is not None and "All done." in out, seen

    # Codex has a provider of OpenAI's API, and another way to shorten a conversation with it.
    for way in ("launch", "openai") if name == "codex" else ("launch",):
        by = "" if way == "launch" else f" by its provider {way}"
        _, _, out, seen = session(server, name, "narrow", "TASK: look at many lines", lambda agent, _: overflowing(agent), way)
        compacted = any(SUMMARY in prompt and "# Tools" in prompt for prompt in Upstream.prompts)
        yield f"overflow and compaction{by}", compacted and "All done." in out, seen
        _, _, out, seen = session(server, name, "wide", "TASK: say that all is done", lambda *_: in_turn(None), way)
        yield f"an interrupted answer{by}", "All done." in out and "Reconnecting... 2" not in seen, seen
    if name == "codex":
        _, _, out, seen = session(server, name, "wide", "TASK: say that all is done", lambda *_: in_turn(), "oss")
        yield "an answer with --oss", "All done." in out, seen


def with_real_model(model):
    """A real model calls an MCP tool of an agent that has a short prompt."""
    server = Server("-m", model, "--ctx", "4096", "-n", "200")
    listed = json.load(urllib.request.urlopen(f"{server.url}/v1/models"))["data"][0]["id"]
    question = "What is the weather in Oslo?"
    _, log, _, seen = session(server, "opencode", listed, question, lambda *_: in_turn(), "short")
    server.end()
    return f"opencode: a call by {listed}", 'call get_weather {"city": "Oslo' in log, seen


def real_model():
    """The real model that is at hand, as an option of `serve`."""
    given = os.environ.get("CALLWRIGHT_AGENT_MODEL")
    if given:
        return given
    check = subprocess.run([HERE.parents[1] / "toolchain" / "real_models.py", "--only-check", "qwen2.5-coder-0.5b"], capture_output=True)
    return "qwen2.5-coder-0.5b" if check.returncode == 0 else None


def main():
    WORK.mkdir(parents=True, exist_ok=True)
    install = ["npm", "install", "--silent", "--no-audit", "--no-fund", *PACKAGES.values()]
    try:
        subprocess.run(install, cwd=WORK, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        print(f"SKIPPED all agents: npm cannot install {', '.join(PACKAGES.values())} here", file=sys.stderr)
        return
    agents = sys.argv[2:] or list(PACKAGES)
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    address = f"openai:http://127.0.0.1:{upstream.server_address[1]}/v1"
    models = [word for name in CONTEXTS for word in ("-m", f"{address}#{name}")]
    server = Server(*models, "--template", "chatml", "--format", "hermes")
    failed = [check for name in agents for check in tried(name, server) if not report(f"{name}: {check[0]}", *check[1:])]
    server.end()
    model = real_model()
    if model is None:
        print("SKIPPED a call by a real model: CALLWRIGHT_AGENT_MODEL names none, and Qwen2.5-Coder-0.5B is not in the hub's cache; "
              "make real-models fetches it", file=sys.stderr)
    elif "opencode" in agents:
        failed += [] if report(*with_real_model(model)) else [model]
    sys.exit(1 if failed else 0)


def report(what, holds, seen):
    print(f"{what}: {'ok' if holds else 'FAILED'}", flush=True)
    if not holds:
        print("\n".join(f"  | {line}" for line in seen.splitlines()), flush=True)
    return holds


main()
