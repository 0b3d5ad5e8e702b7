"""The types of events, messages and reports. All of them are plain dicts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Dict, List, Literal, Optional, TypedDict, Union

# Tools: a list in the shape of OpenAI, Anthropic, Gemini, Amazon or MCP, or a file.
Tools = Union[Sequence[Mapping[str, Any]], Mapping[str, Any], str, "os.PathLike[str]"]
# A template or a format: a name, a source text, or a file.
Source = Union[str, "os.PathLike[str]"]


class Range(TypedDict):
    """Bytes of the text."""

    start: int
    end: int


class Text(TypedDict):
    """Text for the user."""

    type: Literal["text"]
    delta: str


class Reasoning(TypedDict):
    """Reasoning, not for the user."""

    type: Literal["reasoning"]
    delta: str


class CallStart(TypedDict):
    """A call begins; its name is known."""

    type: Literal["call_start"]
    id: str
    name: str


class CallArguments(TypedDict):
    """More of a call's arguments, as JSON text."""

    type: Literal["call_arguments"]
    id: str
    delta: str


class CallEnd(TypedDict):
    """A call has ended. Only a complete and valid one may be executed."""

    type: Literal["call_end"]
    id: str
    complete: bool
    valid: bool


class _InvalidToolCall(TypedDict):
    id: str
    name: str
    raw: str
    error: str
    position: Range


class InvalidToolCall(_InvalidToolCall, total=False):
    """A call that must not be executed: it is cut off, or names no tool."""

    arguments: str


class InvalidCall(InvalidToolCall):
    """The event of a call without a name."""

    type: Literal["invalid_call"]


class RepairNote(TypedDict):
    """What was repaired, and where."""

    kind: str
    range: Range


class Repair(RepairNote):
    """The event of a repair."""

    type: Literal["repair"]


Event = Union[Text, Reasoning, CallStart, CallArguments, CallEnd, InvalidCall, Repair]


class Function(TypedDict):
    """A tool's name, and the arguments as JSON text."""

    name: str
    arguments: str


class _ToolCall(TypedDict):
    id: str
    type: Literal["function"]
    function: Function


class ToolCall(_ToolCall, total=False):
    """A call, as in OpenAI's responses; after the end of the text with a flag: whether it may be executed."""

    runnable: bool


class _Diagnostic(TypedDict):
    kind: Literal["repair", "diagnostic", "problem"]
    message: str


class Diagnostic(_Diagnostic, total=False):
    """Something worth knowing about a text, in words."""

    call: str
    repair: RepairNote


class _Message(TypedDict):
    role: Literal["assistant"]
    content: Optional[str]
    diagnostics: List[Diagnostic]


class Message(_Message, total=False):
    """What a model wrote, in OpenAI's form."""

    reasoning_content: str
    tool_calls: List[ToolCall]
    invalid_tool_calls: List[InvalidToolCall]
    # The format that was detected.
    format: str
    tools_notices: List[Dict[str, Any]]


class _Render(TypedDict):
    what: str
    needed: bool
    outcome: Literal["pass", "ignored", "changed", "fail"]


class Render(_Render, total=False):
    """How a template renders a part of a conversation."""

    how: str
    error: str


class RoundTrip(TypedDict):
    """Whether a call that the template writes is read back unchanged."""

    what: str
    written: str
    problem: Optional[str]
    repair: Optional[str]
    declared: Optional[str]


class Difference(TypedDict):
    """Where a prompt no longer begins with the one before."""

    at: int
    tokens: Optional[int]
    lost: Optional[int]
    earlier: str
    later: str


class Turn(TypedDict):
    """Whether a turn's prompt begins with the one before."""

    reasoning: bool
    after: str
    differs: Optional[Difference]


class Report(TypedDict):
    """What a template can do."""

    renders: List[Render]
    round_trips: List[RoundTrip]
    problems: List[str]
    turns: List[Turn]
    markers: List[Dict[str, Any]]
    costs: List[Dict[str, Any]]
    template: str
    format: Optional[str]
    declaration: Optional[str]
    inferred: bool
    notes: List[str]
    why: Optional[str]
    overlay: bool
    model: None
    sound: bool


class Format(TypedDict):
    """A built-in format, with an example of a call."""

    name: str
    payload: str
    start: Optional[str]
    end: Optional[str]
    models: str
    sample: str
