#!/usr/bin/env python3
"""Long conversations: how many tokens of the prompts a server reads again.

    long.py CALLWRIGHT LLAMA_SERVER|- MODEL.gguf [OPTION...]

Plays an agent with 8 tools over HTTP, 12 turns with a result of about 300 tokens each, in seven ways, and prints a row for each. The options
are callwright's, such as `--parallel 1`; llama-server gets `-np 1`. A `-` leaves llama-server out. Numbers of tokens are exact and depend on no clock.
A model that makes no call has one put into its place, as clients do that write calls in their own way.
"""

import http.client
import json
import os
import random
import subprocess
import sys
import tempfile

from remote import wait_for

PORT = 8462
TURNS = 12
WORDS = (
    "the file has a list of rivers and towns with their height above sea level as measured in spring while water was high in every "
    "valley of that region and roads were closed for some days before people could travel again to markets"
).split()


def words(seed, count):
    chosen = random.Random(seed)
    return " ".join(chosen.choice(WORDS) for _ in range(count))


def tool(name):
    def text(part, count):
        return {"type": "string", "description": words(name + part, count)}

    properties = {"which": text("which", 12), "limit": text("limit", 12), "format": text("format", 10)}
    parameters = {"type": "object", "properties": properties, "required": ["which"]}
    return {"type": "function", "function": {"name": name, "description": words(name, 18), "parameters": parameters}}


TOOLS = [tool(name) for name in "read_file list_folder search_text run_tests edit_file fetch_page git_log ask_user".split()]


class Conversation:
    def __init__(self, name):
        system = {"role": "system", "content": "You are an agent. " + words("system", 60)}
        self.messages = [system, {"role": "user", "content": f"Conversation {name}: {words(name, 30)}"}]
        self.name, self.tools = name, list(TOOLS)

    def ask(self):
        """The answer, and how many tokens of the prompt were read."""
        body = {"messages": self.messages, "tools": self.tools, "max_tokens": 24, "temperature": 0}
        client = http.client.HTTPConnection("127.0.0.1", PORT, timeout=1800)
        client.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = client.getresponse()
        answer = json.loads(response.read())
        if response.status != 200:
            sys.exit(f"{response.status}: {answer}")
        usage = answer["usage"]
        read = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
        return answer["choices"][0]["message"], read

    def go_on(self, answer, question):
        turn = len(self.messages)
        kept = ("content", "reasoning_content", "tool_calls")
        answer = {"role": "assistant", "content": ""} | {key: answer[key] for key in kept if answer.get(key)}
        call = {"name": "read_file", "arguments": '{"which": "alpha"}'}
        answer.setdefault("tool_calls", [{"id": f"call{turn}", "type": "function", "function": call}])
        self.messages.append(answer)
        for call in answer["tool_calls"]:
            result = words(f"{self.name}{turn}", 230)
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        if question:
            self.messages.append({"role": "user", "content": f"Question {turn}: {words(str(turn), 25)}"})


def play(way):
    """The tokens that were read in each turn."""
    if way == "new conversations":
        return [Conversation(f"N{turn}").ask()[1] for turn in range(6)]
    both, reads = [Conversation("A"), Conversation("B")], []
    for turn in range(TURNS):
        talk = both[turn % 2 if way == "two in turn" else 0]
        if way == "a tool added" and turn == TURNS // 2:
            talk.tools.append(tool("delete_file"))
        answer, read = talk.ask()
        reads.append(read)
        if way == "result edited" and turn % 3 == 2:
            last = talk.messages[-1]
            talk.messages[-1] = last | {"content": last["content"][: len(last["content"]) // 2] + " EDITED"}
            answer, read = talk.ask()
            reads.append(read)
        talk.go_on(answer, way in ("questions", "two in turn", "a tool added") and turn % 3 == 2)
        if way == "reasoning dropped":
            for message in talk.messages[:-2]:
                message.pop("reasoning_content", None)
    return reads


WAYS = ["append only", "questions", "reasoning dropped", "result edited", "two in turn", "a tool added", "new conversations"]


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    callwright, llama_server, model, *options = sys.argv[1:]
    port = ["--port", str(PORT)]
    servers = {"callwright": [callwright, "serve", "-m", model, *port, *options]}
    if llama_server != "-":
        servers["llama-server"] = [llama_server, "-m", model, *port, "-np", "1", "--jinja"]
    print("| | " + " | ".join(servers) + " |\n|---|" + "--:|" * len(servers))
    for way in WAYS:
        cells = []
        for command in servers.values():
            # Nothing of an earlier way is on disk.
            with tempfile.TemporaryDirectory() as cache:
                environment = os.environ | {"XDG_CACHE_HOME": cache}
                server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
                try:
                    wait_for(f"http://127.0.0.1:{PORT}", server)
                    cells.append(f"{sum(play(way)):,}")
                finally:
                    server.terminate()
                    server.wait()
        print(f"| {way} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
