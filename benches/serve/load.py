#!/usr/bin/env python3
"""Many clients at a time: every answer has to be the one that is given alone, and memory has to stay flat.

usage: load.py PROGRAM [--clients N] [--seconds N] [--model MODEL]

The clients ask in a closed loop; 10% of their requests hang up in mid-stream and 5% are malformed. Answers are at
temperature 0. The exit status is 1 if a status was wrong, an answer was lost or differed, or memory grew by more than 5%
after the first minute.
"""

import argparse
import http.client
import json
import random
import re
import subprocess
import sys
import threading
import time

CITIES = ["Paris", "Oslo", "Rome", "Lima", "Cairo", "Quito", "Delhi", "Seoul", "Accra", "Bern"]


def tool(name, *arguments):
    properties = {argument: {"type": "string"} for argument in arguments}
    schema = {"type": "object", "properties": properties, "required": list(arguments)}
    return {"type": "function", "function": {"name": name, "description": name.replace("_", " "), "parameters": schema}}


TOOLS = [tool("get_weather", "city", "date"), tool("get_time", "city"), tool("send_mail", "to", "text")]


def bodies():
    for number, city in enumerate(CITIES):
        question = [f"What's the weather in {city} tomorrow?", f"What time is it in {city}?", f"Who lives in {city}?"]
        for kind, text in enumerate(question):
            body = {"messages": [{"role": "user", "content": text}], "tools": TOOLS[: 1 + (number + kind) % 3]}
            yield {**body, "temperature": 0, "max_tokens": 64, "model": "bundled"}


MALFORMED = [b"{", b"\xff\xfe", b"[]", b'{"messages": 5}', b'{"messages": [{"role": "user", "content": "x"}], "n": 99}']


def ask(port, body, stream, hang_up=False):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    data = body if isinstance(body, bytes) else json.dumps({**body, "stream": stream}).encode()
    connection.request("POST", "/v1/chat/completions", data)
    response = connection.getresponse()
    if hang_up:
        response.read(200)
        connection.sock and connection.sock.close()
        connection.close()
        return response.status, None
    text = response.read().decode()
    connection.close()
    if response.status != 200:
        return response.status, None
    if not stream:
        choice = json.loads(text)["choices"][0]
        calls = [(c["function"]["name"], c["function"]["arguments"]) for c in choice["message"].get("tool_calls", [])]
        return 200, (choice["message"]["content"] or "", calls, choice["finish_reason"])
    if not text.endswith("data: [DONE]\n\n"):
        return 200, "cut"
    content, calls, reason = "", [], None
    for line in text.split("\n"):
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            content += choice["delta"].get("content") or ""
            for call in choice["delta"].get("tool_calls", []):
                if call["index"] == len(calls):
                    calls.append([call["function"]["name"], ""])
                else:
                    calls[call["index"]][1] += call["function"]["arguments"]
            reason = choice["finish_reason"] or reason
    return 200, (content, [tuple(call) for call in calls], reason)


def memory(pid):
    """Resident memory without what is mapped from files, in MiB."""
    text = open(f"/proc/{pid}/status").read()
    return int(re.search(r"RssAnon:\s+(\d+)", text).group(1)) / 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--model", default="bundled")
    args = parser.parse_args()
    command = [args.program, "serve", "--port", "0", "-m", args.model, "--queue", str(2 * args.clients)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    port = int(re.search(r":(\d+)\s*$", server.stdout.readline()).group(1))
    threading.Thread(target=server.stdout.read, daemon=True).start()
    cases = list(bodies())
    alone = [ask(port, body, False)[1] for body in cases]
    counts = {"answered": 0, "hung up": 0, "malformed": 0, "wrong status": 0, "different": 0, "lost": 0}
    lock, until = threading.Lock(), time.time() + args.seconds

    def client(seed):
        chance = random.Random(seed)
        while time.time() < until:
            what, case = chance.random(), chance.randrange(len(cases))
            kind = "answered"
            try:
                if what < 0.05:
                    status, _ = ask(port, chance.choice(MALFORMED), False)
                    kind = "malformed" if status == 400 else "wrong status"
                elif what < 0.15:
                    status, _ = ask(port, cases[case], True, hang_up=True)
                    kind = "hung up" if status == 200 else "wrong status"
                else:
                    status, answer = ask(port, cases[case], chance.random() < 0.5)
                    if status != 200:
                        kind = "wrong status"
                    elif answer != alone[case]:
                        kind = "different"
                        print(f"{cases[case]['messages'][0]['content']}\n  alone: {alone[case]}\n  now: {answer}")
            except Exception as error:
                kind = "lost"
                print("lost:", repr(error))
            with lock:
                counts[kind] += 1

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(args.clients)]
    started = time.time()
    for thread in threads:
        thread.start()
    first, largest = None, 0
    while any(thread.is_alive() for thread in threads):
        time.sleep(5)
        now = memory(server.pid)
        if first is None and time.time() - started >= min(60, args.seconds / 2):
            first = now
        largest = max(largest, now) if first else 0
    seconds = time.time() - started
    server.terminate()
    status = server.wait(60)
    growth = 100 * (largest / first - 1)
    print(f"{args.clients} clients, {seconds:.0f} s: {counts}")
    print(f"{counts['answered'] / seconds:.1f} answers per second; memory {first:.0f} MiB, at most {largest:.0f} MiB (+{growth:.1f}%)")
    bad = counts["wrong status"] + counts["different"] + counts["lost"] + (status != 0) + (growth > 5)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
