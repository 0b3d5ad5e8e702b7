"""Writes a conversation as the model reads it: what `models/chat_template.jinja` makes of it, in plain Python.

The engine's render of the template is the golden: `tests/it/models/training.rs` compares the two byte for byte on generated
conversations. Nothing else in this folder may write prompt text, but `adapter.py`, which asks the program for SmolLM2's.
"""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TEMPLATE = ROOT / "models" / "chat_template.jinja"

SYSTEM, USER, ASSISTANT, TOOL, END = "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>"
PAD = "<|pad|>"
CONTROL = [PAD, SYSTEM, USER, ASSISTANT, TOOL, END]
# Printed text, unlike the control tokens: a call has to come out of the detokenizer.
MARKERS = ["### TOOL_CALL_START ###", "### TOOL_CALL_END ###", "<tool_call>", "</tool_call>"]
STYLES = {"delimited": MARKERS[:2], "hermes": MARKERS[2:]}


def tojson(value):
    return json.dumps(value, ensure_ascii=False)


def word(name):
    written = tojson(name)
    odd = written != f'"{name}"' or not name or any(mark in name for mark in " ,:|?()[]{}")
    return written if odd else name


def kind(schema):
    """A type in few tokens. The generator's schemas have no references, unions or constants; the template knows them."""
    if schema.get("enum"):
        return "|".join(map(word, schema["enum"]))
    if "properties" in schema:
        return "{" + fields(schema) + "}"
    if schema["type"] == "array":
        return "[" + kind(schema["items"]) + "]"
    return schema["type"]


def fields(schema):
    written = []
    for name, inner in schema["properties"].items():
        type = kind(inner)
        optional = "" if name in schema.get("required", []) else "?"
        written.append(word(name) + optional + ("" if type == "string" else ":" + type))
    return ",".join(written)


def signature(tool):
    function = tool["function"]
    description = function.get("description")
    return f"{word(function['name'])}({fields(function['parameters'])})" + (f": {description}" if description else "")


def head(system, tools, style="delimited"):
    """What every conversation with this system message and these tools starts with."""
    if not system and not tools:
        return ""
    text = SYSTEM + (system or "")
    if tools:
        lines = "\n".join(f"{number} {signature(tool)}" for number, tool in enumerate(tools, 1))
        text += ("\n\n" if system else "") + (f"<tools>\n{lines}\n</tools>" if style == "hermes" else lines)
    return text + END


def call_text(call, style="delimited"):
    """A call between its markers."""
    start, end = STYLES[style]
    function = call["function"]
    body = f'{{"name": {tojson(function["name"])}, "arguments": {tojson(function["arguments"])}}}'
    return f"{start}\n{body}\n{end}"


def turn(message, style="delimited"):
    if message["role"] == "user":
        return USER + message["content"] + END
    if message["role"] == "tool":
        return TOOL + message["content"] + END
    parts = [message["content"]] if message["content"] else []
    parts += (call_text(call, style) for call in message.get("tool_calls", []))
    return ASSISTANT + "\n".join(parts) + END


def render(messages, tools=(), style="delimited", add_generation_prompt=False):
    """The prompt for `messages` and `tools`, both in OpenAI's form."""
    system = messages[0]["content"] if messages and messages[0]["role"] == "system" else None
    rest = messages[system is not None :]
    turns = "".join(turn(message, style) for message in rest)
    return head(system, tools, style) + turns + (ASSISTANT if add_generation_prompt else "")
