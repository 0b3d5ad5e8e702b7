#!/usr/bin/env python3
"""Hostile requests, schemas, clients and inputs against the built program, within limits of memory and time.

Each case has a fresh server, unless it says otherwise. A case fails where the server ends, takes longer than it may, takes
more memory than it may, or does not answer another client meanwhile.

usage: attack.py PROGRAM [--schemas N] [--seed N] [--only WORD] [--slow N]
"""

import argparse
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

try:
    import jsonschema
except ImportError:  # The results are then not compared.
    jsonschema = None

MEMORY_MB = 300
# On a quiet machine; `--slow` multiplies them for one that is not.
ANSWER_S = 5
SCHEMA_S = 3
GRACE_S = 1
END_S = 1


class Server:
    """A server of the bundled model, with limits."""

    def __init__(self, program, *options):
        self.home = tempfile.TemporaryDirectory()
        environment = {"PATH": os.environ["PATH"], "HOME": self.home.name, "XDG_CACHE_HOME": self.home.name}
        command = [program, "serve", "--port", "0", "--threads", "1", "--grace", str(GRACE_S), *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30)))
        line = self.process.stdout.readline()
        self.port = int(line.strip().rsplit(":", 1)[1])
        self.ask("/health")
        self.before = self.peak()

    def ask(self, path, body=None, timeout=60):
        """The status of an answer, and its JSON."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                status, text = response.status, response.read()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        try:
            # What reading a large answer takes here is not the server's time.
            return status, json.loads(text) if len(text) < 1 << 20 else None
        except ValueError:
            return status, None

    def peak(self):
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as lines:
            return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))

    def seconds(self):
        """The time of processors that it has used, which other programs do not change."""
        try:
            with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as line:
                return sum(map(int, line.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")
        except OSError:  # It has ended.
            return 0.0

    def connect(self, sent=b""):
        client = socket.create_connection(("127.0.0.1", self.port))
        client.settimeout(20)
        if sent:
            client.sendall(sent)
        return client

    def end(self):
        """How long it takes to end after a signal."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(GRACE_S + 10 * END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return float("inf")
        return time.monotonic() - began

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.home.cleanup()


def chat(**more):
    return {"messages": [{"role": "user", "content": "Call f"}], "max_tokens": 50, **more}


def with_tool(schema):
    function = {"name": "f", "description": "d", "parameters": schema}
    return chat(tool_choice="required", tools=[{"type": "function", "function": function}])


def with_format(schema):
    return chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})


def of(x):
    return {"type": "object", "properties": {"x": x}, "required": ["x"]}


def requests():
    """Requests that are small, and could cost much."""
    text, string = "1" * (4 << 20), {"type": "string"}
    chain = {f"a{i}": {"type": "array", "items": {"$ref": f"#/$defs/a{i + 1}"}} for i in range(399)} | {"a399": string}

    def next_level(i):
        return {"$ref": f"#/$defs/a{i + 1}"}

    levels = {f"a{i}": {"oneOf": [next_level(i), {"type": "array", "items": next_level(i)}, {"properties": {"a": next_level(i)}}]} for i in range(16)}
    levels["a16"] = string
    schemas = {
        "300 optional properties": {"type": "object", "properties": {f"p{i}xx": string for i in range(300)}},
        "a chain of definitions": of({"$ref": "#/$defs/a0"}) | {"$defs": chain},
        "oneOf by levels": of({"$ref": "#/$defs/a0"}) | {"$defs": levels},
        "patterns all at once": of({"type": "string", "allOf": [{"pattern": f".*{i}.*"} for i in range(20)]}),
        "alternatives in alternatives": of({"oneOf": [string, {"anyOf": [string] * 50}]}),
        "a long string": of({"type": "string", "minLength": 10**9}),
        "a large enum": of({"enum": [f"{i:08}" for i in range(100_000)]}),
        "conditions by the hundreds": of(string) | {"allOf": [{"if": of({"const": i}), "then": of({"type": "integer"})} for i in range(300)]},
        "a number of steps": of({"type": "integer", "minimum": -10**300, "maximum": 10**300}),
        "a pattern that repeats": of({"type": "string", "pattern": "(((a{1,200}){1,200}){1,200}){1,200}"}),
    }
    for name, schema in schemas.items():
        yield f"tool: {name}", "/v1/chat/completions", with_tool(schema)
        yield f"response_format: {name}", "/v1/chat/completions", with_format(schema)
    yield "pieces of 4 MB", "/tokenize", {"content": text, "with_pieces": True}
    yield "a prompt of 15 MB", "/v1/completions", {"prompt": text * 3 + text[: 3 << 20]}
    yield "a message of 8 MB", "/v1/chat/completions", chat(messages=[{"role": "user", "content": text * 2}])
    yield "a field of lists", "/v1/chat/completions", chat(other=[[]] * 2_000_000)
    yield "a field of objects", "/v1/chat/completions", chat(other=[{"a": 1}] * 1_000_000)
    yield "nested lists", "/v1/chat/completions", b'{"messages": ' + b"[" * 1_000_000
    yield "many messages", "/v1/chat/completions", chat(messages=[{"role": "user", "content": "a"}] * 100_000)
    yield "many tools", "/v1/chat/completions", chat(tools=[{"type": "function", "function": {"name": f"f{i}"}} for i in range(5000)])
    yield "many stop texts", "/v1/chat/completions", chat(stop=["x"] * 100_000)
    yield "tokens to text", "/detokenize", {"tokens": [1] * 2_000_000}


def try_requests(program, only, failed):
    for name, path, body in requests():
        if only not in name:
            continue
        with Server(program) as server:
            answers = []
            began = time.monotonic()
            def ask():
                try:
                    answers.append(server.ask(path, body, 6 * ANSWER_S))
                except OSError as error:
                    answers.append((0, str(error)))
            thread = threading.Thread(target=ask)
            thread.start()
            time.sleep(0.1)
            try:
                other = server.ask("/health", timeout=ANSWER_S)[0]
            except OSError as error:
                other = str(error)
            thread.join(6 * ANSWER_S)
            took, memory = time.monotonic() - began, server.peak() - server.before if server.process.poll() is None else 0
            status = answers[0][0] if answers else None
            good = status in (200, 400, 413, 429, 503) and took <= ANSWER_S and memory <= MEMORY_MB and other == 200
            alive = server.process.poll() is None
            end = server.end() if alive else 0
            good = good and alive and end <= GRACE_S + END_S
            report(good, name, f"status {status}, {took:.1f} s, {memory} MB more, another client {other}, ends in {end:.1f} s", failed)


def report(good, name, what, failed):
    print(f"{'ok  ' if good else 'FAIL'} {name}: {what}", flush=True)
    if not good:
        failed.append(name)


def schema(random_numbers, depth=0):
    """A schema, some of them large, deep or without a meaning."""
    r = random_numbers
    kind = r.choice(["string", "number", "integer", "boolean", "null", "enum", "const", "pattern", "array", "object", "object", "any", "all", "one", "if", "ref", "map", "tuple", "odd"])
    if depth > 8 or kind in ("string", "number", "integer", "boolean", "null"):
        made = {"type": kind if kind in ("string", "number", "integer", "boolean", "null") else "string"}
        if r.random() < 0.2:
            made |= r.choice([{"minLength": r.choice([0, 3, 10**6])}, {"maxLength": r.choice([0, 5, 10**9])}, {"minimum": r.choice([-5, 0, 10**20])}, {"maximum": 7}, {"multipleOf": r.choice([3, 0.1, 1e-9])}, {"format": r.choice(["date", "email", "uuid", "none"])}])
        return made
    def more(least, most):
        return [schema(r, depth + 1) for _ in range(r.randint(least, most))]
    match kind:
        case "enum":
            return {"enum": [r.choice(["a", 1, None, True, [], {}, "x" * 50]) for _ in range(r.choice([1, 5, 300]))]}
        case "const":
            return {"const": r.choice(["a", 1.5, [1, [2]], {"a": {"b": None}}])}
        case "pattern":
            return {"type": "string", "pattern": r.choice(["^a+$", "(a|b)*c", "(?=x)y", "[", r"\d{1,50}(x{1,50})*", ".*" * r.randint(1, 20), "^(([a-z])+.)+[A-Z]([a-z])+$"])}
        case "array":
            return {"type": "array", "items": schema(r, depth + 1), "minItems": r.choice([0, 1, 50]), "maxItems": r.choice([1, 100, 10**6])}
        case "tuple":
            return {"type": "array", "prefixItems": more(0, 5), "items": r.choice([False, True])}
        case "object":
            wide = r.choice([1, 3, 3, 3, 200])
            properties = {f"p{i}": schema(r, depth + (2 if wide > 10 else 1)) if wide < 10 else {"type": "string"} for i in range(wide)}
            return {"type": "object", "properties": properties, "required": [name for name in properties if r.random() < 0.4], "additionalProperties": r.choice([True, False])}
        case "map":
            return {"type": "object", "additionalProperties": schema(r, depth + 1), "patternProperties": {"^x": schema(r, depth + 1)}, "minProperties": r.choice([0, 2])}
        case "any" | "all" | "one":
            return {f"{kind}Of": more(1, r.choice([2, 4, 12]) if depth < 3 else 2)}
        case "if":
            return {"if": schema(r, depth + 1), "then": schema(r, depth + 1), "else": schema(r, depth + 1)}
        case "ref":
            return {"$ref": r.choice(["#", "#/$defs/a", "#/$defs/none", "http://localhost/x"])}
    return r.choice([{}, True, {"type": ["string", "null"]}, {"type": "nothing"}, {"not": {}}, {"type": "object", "required": ["absent"]}, {"properties": []}])


def try_schemas(program, count, seed, failed):
    """Generated schemas, in tools and as the form of an answer: against one server, and each in a run of its own."""
    for way in (Serving, Running):
        compared = bad = memory = 0
        slowest = 0.0
        asked = way(program)
        for number in range(count):
            r = random.Random(seed * 1_000_003 + number)
            whole = {"type": "object", "properties": {"x": schema(r)}, "required": ["x"], "$defs": {"a": schema(r, 5)}}
            body = with_tool(whole) if number % 2 == 0 else with_format(whole)
            place = f"schema {number} of seed {seed}, {way.name}"
            good, said, took, answer = asked.ask(body)
            slowest, memory = max(slowest, took), max(memory, asked.memory())
            if not good or took > SCHEMA_S:
                report(False, place, f"{said}, {took:.1f} s of a processor: {json.dumps(body)[:300]}", failed)
                continue
            value = answer and result(*answer)
            if value is None or jsonschema is None:
                continue
            try:
                fits = jsonschema.Draft202012Validator(whole).is_valid(value[0])
            except Exception:  # The schema means nothing to it.
                continue
            compared += 1
            # What the program reports itself is no surprise.
            if not fits and not value[1]:
                bad += 1
                report(False, place, f"{json.dumps(value[0])[:100]} does not fit, and nothing says so: {json.dumps(whole)[:200]}", failed)
        asked.end()
        report(memory <= 2 * MEMORY_MB, f"{count} schemas, {way.name}", f"the slowest {slowest:.1f} s of a processor, {memory} MB more, {compared} results compared, {bad} wrong", failed)


class Serving:
    """Asks one server, and a new one where it has ended."""

    name = "serve"

    def __init__(self, program):
        self.program = program
        self.start()

    def start(self):
        # Prompts that are kept for later are no memory that a schema takes.
        self.server = Server(self.program, "--cache-ram", "0")

    def ask(self, body):
        """Whether it is an answer, what it is, its seconds of a processor, and the message with its finish reason and remarks."""
        before = self.server.seconds()
        try:
            status, answer = self.server.ask("/v1/chat/completions", body, 20 * SCHEMA_S)
        except OSError as error:
            status, answer = str(error), None
        took = self.server.seconds() - before
        if self.server.process.poll() is not None or not answer:
            self.end()
            self.start()
        if status != 200 or not answer:
            return status == 400, f"status {status}", took, None
        choice, more = answer["choices"][0], answer.get("callwright", {})
        told = more.get("misfits") or more.get("notes") or more.get("invalid_tool_calls")
        return True, "status 200", took, (choice["message"], choice["finish_reason"], told)

    def memory(self):
        return self.server.peak() - self.server.before

    def end(self):
        self.server.__exit__()


class Running:
    """Asks the program itself, once for each schema."""

    name = "run"

    def __init__(self, program):
        self.program = program
        self.home = tempfile.TemporaryDirectory()
        self.environment = {"PATH": os.environ["PATH"], "HOME": self.home.name}
        self.peak, self.before = 0, 0
        self.ask(chat())
        self.before, self.peak = self.peak, 0

    def ask(self, body):
        file = f"{self.home.name}/body.json"
        with open(file, "w", encoding="utf-8") as out:
            json.dump(body, out)
        command = [self.program, "run", "--messages", file, "--output", "json", "--threads", "1"]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as said:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=said, env=self.environment,
                                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30)))
            end = threading.Timer(20 * SCHEMA_S, process.kill)
            end.start()
            _, waited, used = os.wait4(process.pid, 0)
            end.cancel()
            process.returncode = os.waitstatus_to_exitcode(waited)
            self.peak, took = used.ru_maxrss // 1024, used.ru_utime + used.ru_stime
            out.seek(0), said.seek(0)
            text, remarks = out.read(), said.read()
        if process.returncode:
            return process.returncode in (1, 2, 3), f"exit status {process.returncode}: {remarks[-100:]}", took, None
        answer = json.loads(text)
        message = answer["messages"][-1]
        told = b"note:" in remarks or b"warning:" in remarks or answer["diagnostics"] or message.get("invalid_tool_calls")
        return True, "exit status 0", took, (message, answer["finish_reason"], told)

    def memory(self):
        return self.peak - self.before

    def end(self):
        self.home.cleanup()


def result(message, finish, told):
    """What was made, and whether the answer says that it does not fit."""
    if finish == "length":
        return None
    calls = message.get("tool_calls")
    text = calls[0]["function"]["arguments"] if calls else message["content"]
    try:
        return json.loads(text), bool(told)
    except (TypeError, ValueError):
        return None


def try_clients(program, only, failed):
    """Clients that do nothing, and the signal to end meanwhile."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, most), most))
    body = json.dumps({"content": "1" * 400_000, "with_pieces": True})
    states = {
        "idle": (b"", 1100),
        "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0", 1100),
        "half a line": (b"GET /hea", 1100),
        "half the headers": (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ", 1100),
        "half a body": (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{", 1100),
        "answers that are not read": (f"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode(), 60),
        "pipelined requests": (b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000, 200),
    }
    for name, (sent, count) in states.items():
        if only not in name:
            continue
        with Server(program) as server:
            clients = []
            for _ in range(count):
                try:
                    clients.append(server.connect(sent))
                except OSError:
                    pass
            began = time.monotonic()
            try:
                status = server.ask("/health", timeout=ANSWER_S)[0]
            except OSError as error:
                status = str(error)
            took, memory, end = time.monotonic() - began, server.peak() - server.before, server.end()
            good = status == 200 and took <= ANSWER_S and memory <= MEMORY_MB and end <= GRACE_S + END_S
            report(good, f"{count} clients: {name}", f"another client {status} in {took:.1f} s, {memory} MB more, ends in {end:.1f} s", failed)


def try_inputs(program, only, failed):
    """Inputs without an end, and files that mean harm, to the program itself."""
    cases = {
        "standard input without an end": (["run", "-"], "/dev/zero"),
        "tools without an end": (["run", "Hello", "--tools", "/dev/zero"], "/dev/null"),
        "messages without an end": (["run", "--messages", "/dev/zero"], "/dev/null"),
        "lines without an end": (["parse", "--batch"], "/dev/zero"),
        "a configuration without an end": (["run", "Hello", "--models", "/dev/zero"], "/dev/null"),
    }
    for name, (arguments, given) in cases.items():
        if only not in name:
            continue
        began = time.monotonic()
        with open(given, "rb") as source, tempfile.TemporaryDirectory() as home:
            process = subprocess.Popen(
                [program, *arguments], stdin=source, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={"PATH": os.environ["PATH"], "HOME": home},
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)))
            try:
                error = process.communicate(timeout=6 * ANSWER_S)[1].decode(errors="replace")
            except subprocess.TimeoutExpired:
                process.kill()
                error = "it does not end"
        good = process.returncode in (1, 2) and error.startswith("error:")
        report(good, name, f"status {process.returncode}, {time.monotonic() - began:.1f} s: {error.strip()[:100]}", failed)


def main():
    options = argparse.ArgumentParser(usage=__doc__)
    options.add_argument("program")
    options.add_argument("--schemas", type=int, default=2000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--only", default="")
    options.add_argument("--slow", type=int, default=1)
    given = options.parse_args()
    global ANSWER_S, SCHEMA_S, END_S
    ANSWER_S, SCHEMA_S, END_S = (limit * given.slow for limit in (ANSWER_S, SCHEMA_S, END_S))
    failed = []
    try_requests(given.program, given.only, failed)
    try_clients(given.program, given.only, failed)
    try_inputs(given.program, given.only, failed)
    if given.only in "schemas":
        try_schemas(given.program, given.schemas, given.seed, failed)
    print(f"{len(failed)} failed" if failed else "all hold")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
