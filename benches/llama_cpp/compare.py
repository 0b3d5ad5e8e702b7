#!/usr/bin/env python3
"""callwright beside llama.cpp's own programs: the same GGUF, in alternation, medians.

usage: compare.py CALLWRIGHT LLAMA_BIN GGUF [--pairs N] [--threads N] [--only NAME]…

LLAMA_BIN has llama-bench, llama-server and llama-completion. Each row is a ratio in which 1 is llama.cpp at its defaults. A rate
above 1 and a time below 1 are in favour of callwright.
"""

import argparse
import http.client
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

SENTENCE = "The harbour of the old town has seven piers, and on each of them a keeper counts the boats that come and go. "
FOLDER = pathlib.Path(__file__).resolve().parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("callwright")
    parser.add_argument("llama_bin")
    parser.add_argument("gguf")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", default=str(os.cpu_count()))
    parser.add_argument("--only", action="append")
    args = parser.parse_args()
    print(f"{machine()}; load {os.getloadavg()[0]:.2f}; {args.threads} threads; {pathlib.Path(args.gguf).name}; medians of {args.pairs} pairs")
    print("| | callwright | llama.cpp | ratio |\n|---|--:|--:|--:|")
    rows = {
        "prompt": lambda: prompts(args),
        "decoding": lambda: decoding(args),
        "again": lambda: again(args),
        "cases": lambda: cases(args),
        "start": lambda: start(args),
        "call": lambda: call(args),
        "answers": lambda: answers(args),
    }
    for name, row in rows.items():
        if not args.only or name in args.only:
            row()


def machine():
    names = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return f"{len(names)} × {names[0] if names else 'unknown processor'}"


def report(what, pairs, unit):
    """One row; `pairs` has callwright's figure first."""
    ours, theirs = (statistics.median(side) for side in zip(*pairs))
    ratio = statistics.median(one / other for one, other in pairs)
    digits = 0 if ours > 50 else 3
    print(f"| {what} | {ours:.{digits}f} {unit} | {theirs:.{digits}f} {unit} | {ratio:.2f} |", flush=True)


def run(args, prompt, *more):
    """The usage of one answer."""
    command = [args.callwright, "run", "-m", args.gguf, "-t", args.threads, "--prompt-cache", "off", "--output", "json", *more]
    out = subprocess.run(command, input=prompt, capture_output=True, text=True)
    return json.loads(out.stdout)["usage"]


def llama_bench(args, *more):
    command = [os.path.join(args.llama_bin, "llama-bench"), "-m", args.gguf, "-t", args.threads, "-o", "json", "-r", "1", *more]
    return json.loads(subprocess.run(command, capture_output=True, text=True).stdout)[0]["avg_ts"]


def prompts(args):
    for size in (500, 2000, 4000):
        text = SENTENCE * (size // 26)
        pairs = []
        for _ in range(args.pairs):
            usage = run(args, text, "--max-tokens", "1")
            theirs = llama_bench(args, "-p", str(usage["prompt_tokens"]), "-n", "0")
            pairs.append((usage["prompt_tokens"] / usage["prompt_seconds"], theirs))
        report(f"prompt of {usage['prompt_tokens']} tokens", pairs, "tokens/s")


def decoding(args):
    for repeats, more in ((1, ["--temp", "0"]), (1, ["--temp", "0.8"]), (75, ["--temp", "0"])):
        pairs = []
        for _ in range(args.pairs):
            usage = run(args, SENTENCE * repeats + "Tell a long story.", "--max-tokens", "128", "--no-loop-guard", *more)
            written = usage["completion_tokens"]
            theirs = llama_bench(args, "-p", "0", "-n", str(written), "-d", str(usage["prompt_tokens"]))
            pairs.append((written / usage["completion_seconds"], theirs))
        report(f"decoding {written} tokens after {usage['prompt_tokens']}, temperature {more[1]}", pairs, "tokens/s")


def first_byte(command, env=None):
    """The time until a process writes something."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env=env)
    process.stdout.read(1)
    took = time.monotonic() - began
    process.kill()
    process.wait()
    return took


def again(args):
    """The time to the first token of a second run with the same 4,000 tokens of tools, against the first."""
    tools = [
        {
            "name": f"look_up_{i}",
            "description": f"Looks up records about topic {i} in the central register, with a filter and a limit.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "The city, with its country if it is not unique"},
                    "limit": {"type": "integer", "description": "The largest number of results"},
                },
                "required": ["city"],
            },
        }
        for i in range(32)
    ]
    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "tools.json")
        file.write_text(json.dumps(tools))
        for turn in range(args.pairs):
            cache = pathlib.Path(folder, f"cache{turn}")
            took = []
            for question in ("What is in Oslo?", "And what is in Lima or in Rome?"):
                command = [args.callwright, "run", question, "-m", args.gguf, "-t", args.threads, "--tools", str(file)]
                command += ["--prompt-cache", str(cache), "--output", "json", "--max-tokens", "2"]
                usage = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)["usage"]
                took.append(usage["prompt_seconds"])
            pairs.append((took[1], took[0]))
    report(f"second run with {usage['prompt_tokens']} tokens of tools, another question; in place of llama.cpp the first run", pairs, "s")


class Served:
    """A server as a process."""

    def __init__(self, command, port):
        self.port = port
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                if self.ask("GET", "/health", None)[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise SystemExit(f"{command[0]} does not start")

    def ask(self, method, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()

    def chat(self, body):
        status, answer = self.ask("POST", "/v1/chat/completions", body)
        if status != 200:
            raise SystemExit(f"status {status}: {answer[:200]}")
        return json.loads(answer)

    def close(self):
        self.process.terminate()
        self.process.wait()


def servers(args):
    ours = [args.callwright, "serve", "-m", args.gguf, "-t", args.threads, "--port", "18441", "--parallel", "1", "--ctx", "8192"]
    theirs = [os.path.join(args.llama_bin, "llama-server"), "-m", args.gguf, "-t", args.threads, "--port", "18442"]
    theirs += ["--parallel", "1", "--ctx-size", "8192"]
    return Served(ours, 18441), Served(theirs, 18442)


def timed(args, prepare, ask):
    """Pairs of the seconds that both servers take for the same requests, without the first round. `prepare` makes the requests,
    with callwright's server, and `ask` sends one."""
    ours, theirs = servers(args)
    pairs = []
    try:
        requests = prepare(ours)
        for turn in range(args.pairs + 1):
            took = []
            for server in (ours, theirs):
                began = time.monotonic()
                for request in requests:
                    ask(server, request)
                took.append(time.monotonic() - began)
            if turn > 0:
                pairs.append(tuple(took))
    finally:
        ours.close()
        theirs.close()
    return pairs


def cases(args):
    """The prompts of 52 cases with their tools, asked a second time, a token each."""
    suite = FOLDER.parent / "suites" / "builtin.jsonl"
    found = [json.loads(line) for line in suite.read_text().splitlines() if line.strip()][:52]

    def prompts_of(server):
        # Both get the same text.
        bodies = [{"messages": case["messages"], "tools": case["tools"]} for case in found]
        return [json.loads(server.ask("POST", "/apply-template", body)[1])["prompt"] for body in bodies]

    def ask(server, prompt):
        status, answer = server.ask("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 1, "temperature": 0})
        if status != 200:
            raise SystemExit(f"status {status}: {answer[:200]}")

    report(f"{len(found)} prompts asked again, one token each, by HTTP", timed(args, prompts_of, ask), "s")


def answers(args):
    """Questions with tools, each asked once, at the defaults of both: what a user waits for. The answers differ in length."""
    suite = FOLDER.parent / "suites" / "builtin.jsonl"
    found = [json.loads(line) for line in suite.read_text().splitlines() if line.strip()][::3][:20]
    ours, theirs = servers(args)
    pairs = []
    try:
        for turn, case in enumerate(found):
            body = {"messages": case["messages"], "tools": case["tools"], "temperature": 0, "max_tokens": 200}
            took = {}
            for server in (ours, theirs) if turn % 2 else (theirs, ours):
                began = time.monotonic()
                server.chat(body)
                took[server] = time.monotonic() - began
            pairs.append((took[ours], took[theirs]))
    finally:
        ours.close()
        theirs.close()
    report(f"one of {len(pairs)} answers with tools, asked once", pairs, "s")


def start(args):
    """From the start of the program to the first token."""
    ours = [args.callwright, "run", SENTENCE, "-m", args.gguf, "--max-tokens", "4", "--prompt-cache", "off"]
    theirs = [os.path.join(args.llama_bin, "llama-completion"), "-m", args.gguf, "-p", SENTENCE, "-n", "4", "-no-cnv", "--no-display-prompt", "-t", args.threads]
    for busy in (0, 1):
        others = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(busy)]
        try:
            pairs = [(first_byte(ours), first_byte(theirs)) for _ in range(args.pairs)]
        finally:
            for other in others:
                other.kill()
        report("start to first token" + (", beside a busy core" if busy else ""), pairs, "s")


def call(args):
    """A constrained call: the same JSON from both."""
    schema = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Oslo", "Lima", "Rome"]}, "unit": {"const": "celsius"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["city", "unit", "days"], "additionalProperties": False}
    tool = {"type": "function", "function": {"name": "get_weather_forecast", "description": "The weather", "parameters": schema}}
    questions = ["Weather in Oslo?", "What about Lima for 3 days?", "Rome, please.", "Is it warm in Oslo?"]
    options = {"tools": [tool], "tool_choice": "required", "temperature": 0, "max_tokens": 120}
    bodies = [{"messages": [{"role": "user", "content": question}], **options} for question in questions]
    pairs = timed(args, lambda _: bodies, Served.chat)
    report(f"{len(questions)} required calls, prompts known", pairs, "s")


main()
