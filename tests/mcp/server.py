#!/usr/bin/env python3
"""An MCP server that does what it is told, faults included; it needs nothing but Python's standard library.

usage: server.py [TOOL ...] [--log FILE] [--silent | --exit | --stray | --stubborn | --child] [--cursor TEXT] [--http]
"""
import argparse
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

parser = argparse.ArgumentParser()
parser.add_argument("tools", nargs="*")
parser.add_argument("--log", help="append a line here for each call and each cancellation")
parser.add_argument("--silent", action="store_true", help="answer nothing")
parser.add_argument("--exit", action="store_true", help="complain and end")
parser.add_argument("--stray", action="store_true", help="begin with lines that are no messages")
parser.add_argument("--stubborn", action="store_true", help="end neither with the input nor at a signal")
parser.add_argument("--child", action="store_true", help="start a process that goes on, and write its id into the log")
parser.add_argument("--cursor", help="send this cursor with each list of tools, and all tools with it")
parser.add_argument("--http", action="store_true", help="serve streamable HTTP, and print the address")
options = parser.parse_args()

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SUM = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
TOOLS = {
    "get_weather": ("Get the weather forecast for a city", CITY),
    "add": ("Add two whole numbers", SUM),
    "picture": ("Get a picture", {"type": "object"}),
    "unknown": ("Get what no client knows", {"type": "object"}),
    "fail": ("Fail", {"type": "object"}),
    "refuse": ("Refuse the request", {"type": "object"}),
    "crash": ("End the server", {"type": "object"}),
    "hang": ("Take for ever", {"type": "object"}),
    "flood": ("Write without an end", {"type": "object"}),
    "long": ("Answer with a long text", {"type": "object"}),
    "stray": ("Write a line that is no message, then answer", {"type": "object"}),
    "change": ("Become other tools", {"type": "object"}),
    "ask": ("Ask the user for a city", {"type": "object"}),
    "faulty": ("A schema with a fault", {"type": "object", "properties": {"x": {"type": "objekt"}}}),
}
DEEP = {"type": "string"}
for _ in range(100):
    DEEP = {"type": "object", "properties": {"a": DEEP}}
TOOLS["deep"] = ("A schema that is nested 200 deep", DEEP)
names = options.tools or ["get_weather"]
CAPABILITIES = {"tools": {"listChanged": True}, "resources": {}, "prompts": {}}
writing = threading.Lock()


def log(line):
    if options.log:
        with open(options.log, "a") as file:
            file.write(line + "\n")


def write(text):
    with writing:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def listed():
    return [{"name": name, "description": TOOLS[name][0], "inputSchema": TOOLS[name][1]} for name in names]


def text(content):
    return {"content": [{"type": "text", "text": content}]}


def call(name, arguments):
    """The result of a call; an integer is an error's code."""
    log(f"call {name} {json.dumps(arguments, sort_keys=True)}")
    if name == "get_weather":
        return text(f"sunny in {arguments['city']}, 21 degrees")
    if name == "add":
        return {"content": [], "structuredContent": {"sum": arguments["a"] + arguments["b"]}}
    if name == "picture":
        return {"content": [{"type": "image", "mimeType": "image/png", "data": "AAAAAAAA"}]}
    if name == "unknown":
        return {"content": [{"type": "text", "text": "known"}, {"type": "hologram", "data": "AAAA"}]}
    if name == "fail":
        return {**text("there is no such city"), "isError": True}
    if name == "refuse":
        return -32602
    if name == "crash":
        sys.stderr.write("out of cheese\n")
        sys.stderr.flush()
        os._exit(3)
    if name == "hang":
        time.sleep(3600)
    if name == "flood":
        while True:
            write("x" * (1 << 20))
    if name == "long":
        return text("y" * (2 << 20))
    if name == "stray":
        write("DEBUG: a line for nobody")
        return text("after a stray line")
    if name == "change":
        names[:] = ["get_weather"]
        TOOLS["get_weather"] = ("Get the weather for a city and a day", CITY)
        write(json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
        return text("other tools now")
    if name == "ask":
        return text(f"the user answered {json.dumps(ask_user())}")
    return text("ok")


answers = queue.Queue()


def ask_user():
    """What the client answers to a question."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
    asked = {"message": "Which city?", "requestedSchema": schema}
    write(json.dumps({"jsonrpc": "2.0", "id": "q1", "method": "elicitation/create", "params": asked}))
    return answers.get()


def answer(message):
    """What is answered to a message; none to a notification."""
    method, identity = message.get("method"), message.get("id")
    if method == "notifications/cancelled":
        log(f"cancelled {message['params']['requestId']}")
    if method is None and identity == "q1":
        answers.put(message.get("result"))
    if identity is None or method is None:
        return None
    if method == "initialize":
        server = {"name": "test", "version": "1"}
        version = message["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": server}
    elif method == "tools/list":
        # In two pages, as servers with many tools do.
        tools, second = listed(), (message.get("params") or {}).get("cursor")
        half = len(tools) // 2
        result = {"tools": tools, "nextCursor": options.cursor} if options.cursor is not None else \
            {"tools": tools[half:]} if second or not half else {"tools": tools[:half], "nextCursor": "second"}
    elif method == "resources/list":
        # The same page again and again, as a careless server has it.
        result = {"resources": [{"uri": "note://today", "name": "today", "description": "What is on today"}], "nextCursor": "on"}
    elif method == "resources/read":
        result = {"contents": [{"uri": "note://today", "mimeType": "text/plain", "text": "The meeting is at noon."}]}
    elif method == "prompts/list":
        result = {"prompts": [{"name": "plan", "description": "Plan a day", "arguments": [{"name": "day", "required": True}]}]}
    elif method == "prompts/get":
        asked = f"Plan {message['params']['arguments']['day']} for me."
        result = {"messages": [{"role": "user", "content": {"type": "text", "text": asked}}]}
    elif method == "tools/call":
        result = call(message["params"]["name"], message["params"].get("arguments") or {})
    else:
        result = -32601
    if isinstance(result, int):
        return {"jsonrpc": "2.0", "id": identity, "error": {"code": result, "message": "not with me"}}
    return {"jsonrpc": "2.0", "id": identity, "result": result}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        allowed = self.headers.get("Authorization") == "Bearer secret"
        body = answer(message) if allowed else None
        data = json.dumps(body).encode() if body else b""
        self.send_response(401 if not allowed else 200 if body else 202)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.send_error(405)

    do_DELETE = do_GET

    def log_message(self, *_):
        pass


if options.exit:
    sys.exit("there is no database")
if options.stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if options.child:
    log(f"process {subprocess.Popen(['sleep', '3600']).pid}")
log(f"process {os.getpid()}")
if options.http:
    server = HTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}/mcp", flush=True)
    server.serve_forever()
if options.stray:
    write("Starting\nup")
for line in sys.stdin:
    message = json.loads(line)
    if options.silent:
        continue

    def reply(message=message):
        body = answer(message)
        if body is not None:
            write(json.dumps(body))

    if message.get("method") == "tools/call":
        threading.Thread(target=reply, daemon=True).start()
    else:
        reply()
while options.stubborn:
    time.sleep(1)
# A call that goes on does not keep it.
os._exit(0)
