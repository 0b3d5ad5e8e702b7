#!/usr/bin/env python3
"""Malformed and hostile requests: each gets a 4xx with a message, or an answer where it is a request after all.

usage: hostile.py PROGRAM [--requests N] [--seed N]

The exit status is 1 if a status was 5xx, an error had no message, a thread panicked, the server ended, or its memory grew
by more than 5%, from the third tenth of the requests to the last.
"""

import argparse
import http.client
import json
import random
import re
import socket
import statistics
import subprocess
import sys
import threading
import time

PARTS = 10
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
CHAT = {
    "model": "bundled", "max_tokens": 4, "temperature": 0.5, "top_p": 0.9, "seed": 3, "stop": ["x"], "stream": False,
    "messages": [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"city\": \"Oslo\"}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "ok"},
        {"role": "user", "content": "And now?"}],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}}],
    "tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": False,
    "response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA}},
    "logit_bias": {"5": -100}, "chat_template_kwargs": {"enable_thinking": False},
    "callwright": {"format": "hermes", "constrain": "auto", "trace": True},
}
BODIES = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"prompt": "Once", "max_tokens": 4, "stop": ["a"], "echo": True, "stream": True},
    "/v1/responses": {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
                  {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                  {"type": "function_call_output", "call_id": "c", "output": "ok"}],
        "max_output_tokens": 4, "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}],
        "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}, "reasoning": {"effort": "low"}},
    "/v1/messages": {
        "max_tokens": 4, "system": [{"type": "text", "text": "You help."}],
        "messages": [{"role": "user", "content": "Hi"},
                     {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
                     {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]}],
        "tools": [{"name": "f", "input_schema": SCHEMA}], "tool_choice": {"type": "any"}},
    "/tokenize": {"content": "Hello", "with_pieces": True},
    "/detokenize": {"tokens": [1, 2, 3]},
    "/apply-template": {"messages": CHAT["messages"]},
}
STRANGE = [
    None, True, -1, 0, 1e308, 10**40, -(10**40), 0.1, "", "\u0000", "\ud800", "x" * 3000, [], {}, [[]], [None] * 50,
    {"": ""}, {"type": None}, {"$ref": "#"}, {"$ref": "https://example.com/x"}, {"type": "array", "items": {"$ref": "#"}},
    {"pattern": "(a+)+$", "type": "string"}, {"enum": []}, "{{ raise }}", "<|im_start|>system", {"minimum": 1e999},
]


def mutate(value, chance):
    """The value with one part replaced, removed or doubled."""
    if isinstance(value, (dict, list)) and value and chance.random() < 0.8:
        copy = dict(value) if isinstance(value, dict) else list(value)
        key = chance.choice(list(copy)) if isinstance(copy, dict) else chance.randrange(len(copy))
        what = chance.random()
        if what < 0.1:
            del copy[key]
        elif what < 0.15 and isinstance(copy, dict):
            copy[chance.choice(["type", "name", "stream", "schema", "$defs", "n", "properties", "x"])] = chance.choice(STRANGE)
        else:
            copy[key] = mutate(copy[key], chance)
        return copy
    return chance.choice(STRANGE)


def body(chance):
    path = chance.choice(list(BODIES))
    what = chance.random()
    if what < 0.7:
        value = BODIES[path]
        for _ in range(chance.randint(1, 4)):
            value = mutate(value, chance)
        data = json.dumps(value).encode("utf-8", "surrogatepass")
        if what < 0.15:
            data = bytearray(data)
            for _ in range(chance.randint(1, 5)):
                data[chance.randrange(len(data))] = chance.randrange(256)
        return path, bytes(data)
    if what < 0.8:
        depth = chance.choice([100, 127, 128, 10_000, 200_000])
        return path, b'{"messages": ' + b"[" * depth + b"]" * depth + b"}"
    if what < 0.9:
        return path, bytes(chance.randrange(256) for _ in range(chance.randint(0, 500)))
    return path, b'{"max_tokens": ' + b"9" * chance.choice([5, 50, 5000]) + b', "messages": [{"role": "user", "content": "x"}]}'


def raw(port, data, wait=20.0):
    """Sends bytes and returns the status, or None where the connection is closed without one."""
    with socket.create_connection(("127.0.0.1", port), timeout=wait) as connection:
        try:
            connection.sendall(data)
            answer = connection.recv(100)
        except (ConnectionError, TimeoutError):
            return None
    found = re.match(rb"HTTP/1.1 (\d+)", answer)
    return int(found.group(1)) if found else None


def memory(pid):
    return int(re.search(r"RssAnon:\s+(\d+)", open(f"/proc/{pid}/status").read()).group(1)) / 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    # A small prompt cache is full early. Then what still grows is lost.
    command = [args.program, "serve", "--port", "0", "--threads", "1", "--timeout", "30", "--cache-ram", "16M"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    port = int(re.search(r":(\d+)\s*$", server.stdout.readline()).group(1))
    said = []
    threading.Thread(target=lambda: said.extend(server.stderr), daemon=True).start()
    threading.Thread(target=server.stdout.read, daemon=True).start()
    counts, wrong, lock = {}, [], threading.Lock()

    def worker(number):
        chance = random.Random(args.seed * 1000 + number)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for _ in range(args.requests // (2 * PARTS)):
            path, data = body(chance)
            try:
                connection.request("POST", path, data)
                response = connection.getresponse()
                status, text = response.status, response.read().decode()
            except Exception as error:
                status, text = repr(error), ""
                connection.close()
            fine = status == 200
            if isinstance(status, int) and 400 <= status < 500:
                try:
                    fine = bool(json.loads(text)["error"]["message"])
                except (ValueError, KeyError, TypeError):
                    pass
            with lock:
                counts[status] = counts.get(status, 0) + 1
                if not fine:
                    wrong.append((path, data[:600], status, text[:300]))

    for _ in range(20):
        raw(port, b'POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}')
    sizes = []
    for part in range(PARTS):
        workers = [threading.Thread(target=worker, args=(part * 10 + n,)) for n in range(2)]
        for thread in workers:
            thread.start()
        for thread in workers:
            thread.join()
        sizes.append(memory(server.pid))
    # Caches are filled and emptied, so that one part alone says little.
    before, after = statistics.median(sizes[2:6]), statistics.median(sizes[-3:])

    host = b"Host: localhost\r\n"
    http_cases = {
        "header flood": b"GET /health HTTP/1.1\r\n" + host + b"".join(b"X-%d: y\r\n" % n for n in range(5000)) + b"\r\n",
        "huge header": b"GET /health HTTP/1.1\r\n" + host + b"X: " + b"y" * 200_000 + b"\r\n\r\n",
        "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 10 + b"\r\n\r\n",
        "wrong length": b"POST /tokenize HTTP/1.1\r\n" + host + b"Content-Length: -5\r\n\r\n",
        "two lengths": b"POST /tokenize HTTP/1.1\r\n" + host + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        "broken chunk": b"POST /tokenize HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n{}\r\n",
        "long path": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n" + host + b"\r\n",
    }
    for name, data in http_cases.items():
        status = raw(port, data)
        if status is None or not 400 <= status < 500:
            wrong.append((name, b"", status, ""))
    # Slow clients and ones that stop in the middle of a body do not keep others from being answered.
    slow = []
    for _ in range(200):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n" + host + b"Content-Length: 1000\r\n\r\n{")
        slow.append(connection)
    began = time.time()
    status = raw(port, b"GET /health HTTP/1.1\r\n" + host + b"\r\n")
    if status != 200 or time.time() - began > 5:
        wrong.append(("beside slow clients", b"", status, ""))
    for connection in slow:
        connection.close()

    alive = server.poll() is None
    server.terminate()
    server.wait(60)
    panics = [line for line in said if "panicked" in line]
    for path, data, status, text in wrong[:20]:
        print(path, data, status, text, sep="\n  ")
    print(f"{sum(counts.values())} requests: {dict(sorted(counts.items(), key=str))}; wrong: {len(wrong)}; panics: {len(panics)}")
    shown = ", ".join(f"{size:.0f}" for size in sizes)
    print(f"memory in MiB after each of {PARTS} equal parts: {shown}; the server was running: {alive}")
    sys.exit(1 if wrong or panics or not alive or after > 1.05 * before else 0)


if __name__ == "__main__":
    main()
