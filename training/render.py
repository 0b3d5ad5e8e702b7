"""Writes a conversation as the model reads it: the one place that renders the chat template.

Inference renders `models/chat_template.jinja` with the Rust side; this renders the same file with the environment of
transformers' `apply_chat_template`. Nothing else in this folder may write prompt text.
"""

import json
from functools import cache
from pathlib import Path

from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = ROOT / "models" / "chat_template.jinja"

SYSTEM, USER, ASSISTANT, TOOL, END = "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>"
PAD = "<|pad|>"
CONTROL = [PAD, SYSTEM, USER, ASSISTANT, TOOL, END]
# Printed text, unlike the control tokens: a call has to come out of the detokenizer.
MARKERS = ["### TOOL_CALL_START ###", "### TOOL_CALL_END ###", "<tool_call>", "</tool_call>"]
STYLES = {"delimited": MARKERS[:2], "hermes": MARKERS[2:]}


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    """transformers' filter: unlike Jinja's own it escapes no HTML and keeps the order of keys."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@cache
def template():
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = tojson
    return environment.from_string(TEMPLATE.read_text())


def render(messages, tools=None, style="delimited", add_generation_prompt=False):
    """The prompt for `messages` and `tools`, both in OpenAI's form."""
    return template().render(
        messages=messages, tools=tools, tool_style=style, add_generation_prompt=add_generation_prompt
    )
