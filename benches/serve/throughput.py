#!/usr/bin/env python3
"""Requests per second and time to first token beside llama-server, in alternation, with the same GGUF.

usage: throughput.py CALLWRIGHT LLAMA_SERVER GGUF [--rounds N] [--clients N] [--requests N]

Each server answers several requests at a time (4) of more clients (8). All requests share a section of about 1,000 tokens.
It is a system message that describes tools. `free` lets the model write up to 48 tokens. `call` constrains the answer to a call of one of
these tools, by the JSON schema of a call, which both servers turn into a grammar.
"""

import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import threading
import time

PORT = 18431
PLACES = ["Oslo", "Lima", "Rome", "Cairo", "Quito", "Delhi", "Seoul", "Accra", "Bern", "Paris", "Tokyo", "Dakar"]


def tools():
    names = ["get_weather", "get_time", "find_hotel", "book_table", "send_mail", "plan_route", "convert_money", "list_events"]
    made = []
    for name in names:
        words = name.replace("_", " ")
        schema = {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": f"The city for which to {words}, with its country if it is not unique"},
                "date": {"type": "string", "description": "The date, as YYYY-MM-DD, or a word such as today or tomorrow"},
                "limit": {"type": "integer", "description": "The largest number of results to return, from 1 to 50"},
            },
            "required": ["city"],
        }
        text = f"Use this to {words} in a city. It returns a short list with the most relevant results first."
        made.append({"type": "function", "function": {"name": name, "description": text, "parameters": schema}})
    return made


def call_schema():
    """The schema of a call of one of the tools; what the model may write at length is bounded."""
    calls = []
    for tool in tools():
        text = {"type": "string", "maxLength": 40}
        arguments = {"city": text, "date": text, "limit": {"type": "integer", "minimum": 1, "maximum": 50}}
        arguments = {"type": "object", "properties": arguments, "required": ["city", "date"], "additionalProperties": False}
        properties = {"name": {"const": tool["function"]["name"]}, "arguments": arguments}
        call = {"type": "object", "properties": properties, "required": ["name", "arguments"]}
        calls.append({**call, "additionalProperties": False})
    return {"name": "call", "strict": True, "schema": {"anyOf": calls}}


CALL = call_schema()


def body(kind, number):
    question = f"What's the weather in {PLACES[number % len(PLACES)]} on day {number}?"
    messages = [{"role": "user", "content": question}]
    system = {"role": "system", "content": "You may use these tools.\n" + json.dumps(tools())}
    common = {"temperature": 0, "stream": True, "stream_options": {"include_usage": True}, "model": "any"}
    common["messages"] = [system, *messages]
    if kind == "free":
        return {**common, "max_tokens": 48}
    return {**common, "max_tokens": 256, "response_format": {"type": "json_schema", "json_schema": CALL}}


def ask(kind, number):
    """Seconds to the first token and to the end, and the tokens generated."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=600)
    began = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", json.dumps(body(kind, number)), {"Content-Type": "application/json"})
    response = connection.getresponse()
    first, tokens = None, 0
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        data = json.loads(line[6:])
        if "error" in data:
            raise RuntimeError(data)
        for choice in data.get("choices", []):
            delta = choice["delta"]
            if first is None and (delta.get("content") or delta.get("tool_calls")):
                first = time.perf_counter() - began
        if data.get("usage"):
            tokens = data["usage"]["completion_tokens"]
    connection.close()
    if response.status != 200:
        raise RuntimeError(response.status)
    end = time.perf_counter() - began
    return first if first is not None else end, end, tokens


def start(command):
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=5)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return server
        except OSError:
            pass
        if server.poll() is not None:
            raise RuntimeError(f"{command[0]} ended with {server.returncode}")
        time.sleep(0.1)
    raise RuntimeError(f"{command[0]} is not ready")


def measure(kind, clients, requests, offset):
    numbers, results, lock = iter(range(offset, offset + requests)), [], threading.Lock()

    def client():
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            result = ask(kind, number)
            with lock:
                results.append(result)

    ask(kind, offset + requests)
    began = time.perf_counter()
    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    first = sorted(result[0] for result in results)
    longest = first[int(0.95 * (len(first) - 1))]
    tokens = sum(result[2] for result in results) / seconds
    return requests / seconds, tokens, statistics.median(first), statistics.mean(first), longest


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("callwright")
    parser.add_argument("llama_server")
    parser.add_argument("gguf")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=32)
    args = parser.parse_args()
    port, parallel = ["--port", str(PORT)], ["--parallel", "4"]
    commands = {
        "callwright": [args.callwright, "serve", "-m", args.gguf, "--ctx", "4096", *port, *parallel],
        "llama-server": [args.llama_server, "-m", args.gguf, "-c", str(4 * 4096), "--jinja", *port, *parallel],
    }
    version = subprocess.run([args.llama_server, "--version"], capture_output=True, text=True)
    print(re.search(r"version: .*", version.stdout + version.stderr).group(0), "| load", os.getloadavg())
    found = {(name, kind): [] for name in commands for kind in ("free", "call")}
    for turn in range(args.rounds):
        for name, command in commands.items():
            server = start(command)
            try:
                for kind in ("free", "call"):
                    found[name, kind].append(measure(kind, args.clients, args.requests, 1000 * turn))
            finally:
                server.terminate()
                server.wait()
    print("| | requests per second | tokens per second | time to first token, p50 | mean | p95 |\n|---|--:|--:|--:|--:|--:|")
    for kind in ("free", "call"):
        rows = {name: [statistics.median(column) for column in zip(*found[name, kind])] for name in commands}
        for name, (rate, tokens, *first) in rows.items():
            times = " | ".join(f"{seconds:.2f} s" for seconds in first)
            print(f"| {kind}, {name} | {rate:.2f} | {tokens:.0f} | {times} |")
        ratios = [mine / theirs for mine, theirs in zip(rows["callwright"], rows["llama-server"])]
        print(f"| {kind}, ratio | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |")
    print("load", os.getloadavg())


if __name__ == "__main__":
    main()
