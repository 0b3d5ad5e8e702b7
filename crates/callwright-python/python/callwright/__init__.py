"""Tool calls in the text of local models: a streaming parser, chat templates, and checks of both.

>>> import callwright
>>> text = '<tool_call>{"name": "clock", "arguments": {}}</tool_call>'
>>> callwright.parse(text)["tool_calls"][0]["function"]["name"]
'clock'
"""

from __future__ import annotations

import datetime as _datetime
import json as _json
import os as _os
from collections.abc import Iterable as _Iterable
from collections.abc import Mapping as _Mapping
from collections.abc import Sequence as _Sequence
from typing import TYPE_CHECKING, Any, List, Literal, Optional, Tuple, Union, cast

from . import _native
from ._native import CallwrightError, __version__

if TYPE_CHECKING:
    from .types import Event, Format, Message, Report, Source, ToolCall, Tools

__all__ = [
    "CallwrightError",
    "Parser",
    "Prompt",
    "__version__",
    "check_template",
    "formats",
    "parse",
    "render",
    "render_variables",
]


def _json_text(value: object) -> str:
    """JSON. NaN and other values that JSON lacks are refused."""
    return _json.dumps(value, allow_nan=False)


def _tools(tools: Optional[Tools]) -> Optional[str]:
    """Tools as JSON; a path stays a text, which is read as a file."""
    if tools is None:
        return None
    return _json_text(_os.fspath(tools) if isinstance(tools, _os.PathLike) else tools)


def _source(given: Source) -> str:
    return _os.fspath(given)


def _bytes(text: Union[str, bytes]) -> bytes:
    # bytes(5) would be five zeros.
    return text.encode() if isinstance(text, str) else bytes(memoryview(text))


def _time(now: Union[_datetime.datetime, str, None]) -> Optional[str]:
    """A time as text, without its zone: templates know none."""
    return now.replace(tzinfo=None).isoformat() if isinstance(now, _datetime.datetime) else now


class Parser:
    """Reads one answer of a model while it arrives.

    >>> parser = Parser("hermes")
    >>> for piece in ["Let me see. <tool_", "call>", '{"name": "clock", "arguments": {}}</tool_call>']:
    ...     for event in parser.feed(piece):
    ...         print(event["type"])
    text
    call_start
    call_arguments
    call_end
    >>> parser.finish()
    []
    >>> parser.message["tool_calls"][0]["function"]["arguments"]
    '{}'
    """

    __slots__ = ("_native",)

    def __init__(
        self,
        format: Source = "auto",
        tools: Optional[Tools] = None,
        *,
        template: Optional[Source] = None,
        prompt_tail: str = "",
        reasoning: Literal["separate", "text"] = "separate",
        repair: bool = True,
        other_forms: Literal["read", "report", "off"] = "read",
    ) -> None:
        self._native = _native.NativeParser(
            _source(format),
            _tools(tools),
            None if template is None else _source(template),
            prompt_tail,
            reasoning,
            repair,
            other_forms,
        )

    def feed(self, text: Union[str, bytes]) -> List[Event]:
        """Reads the next piece, and returns its events."""
        events = self._native.feed(_bytes(text))
        return [] if events == "[]" else cast("List[Event]", _json.loads(events))

    def finish(self) -> List[Event]:
        """Ends the text, and returns the last events."""
        return cast("List[Event]", _json.loads(self._native.finish()))

    def runnable_calls(self) -> List[ToolCall]:
        """The calls that may be executed: complete ones that fit their tools. Empty before the end."""
        return cast("List[ToolCall]", _json.loads(self._native.runnable_calls()))

    @property
    def message(self) -> Message:
        """The message so far; after the end it has the diagnostics."""
        return cast("Message", _json.loads(self._native.message()))


def parse(
    text: Union[str, bytes],
    format: Source = "auto",
    tools: Optional[Tools] = None,
    *,
    template: Optional[Source] = None,
    prompt_tail: str = "",
    reasoning: Literal["separate", "text"] = "separate",
    repair: bool = True,
    other_forms: Literal["read", "report", "off"] = "read",
    partial: bool = False,
) -> Message:
    """Reads a whole text, and returns its message in OpenAI's form. A partial text may go on."""
    message = _native.parse(
        _bytes(text),
        _source(format),
        _tools(tools),
        None if template is None else _source(template),
        prompt_tail,
        reasoning,
        repair,
        other_forms,
        partial,
    )
    return cast("Message", _json.loads(message))


class Prompt(str):
    """A prompt, with what a parser of its answer has to know."""

    call_format: str
    """The name of the format in which the model is to write calls."""
    prompt_tail: str
    """What the prompt writes after the conversation: the head of the answer, and what it opens."""
    notes: List[str]
    """How the conversation was adapted for the template."""

    def __new__(cls, text: str, call_format: str = "", prompt_tail: str = "", notes: _Iterable[str] = ()) -> Prompt:
        prompt = super().__new__(cls, text)
        prompt.call_format = call_format
        prompt.prompt_tail = prompt_tail
        prompt.notes = list(notes)
        return prompt

    def __reduce__(self) -> Tuple[type, Tuple[str, str, str, List[str]]]:
        return (Prompt, (str(self), self.call_format, self.prompt_tail, self.notes))


def render(
    template: Source,
    messages: Union[_Sequence[_Mapping[str, Any]], _Mapping[str, Any]],
    tools: Optional[Tools] = None,
    *,
    format: Source = "auto",
    add_generation_prompt: bool = True,
    bos_token: str = "",
    eos_token: str = "",
    variables: Optional[_Mapping[str, Any]] = None,
    now: Union[_datetime.datetime, str, None] = None,
) -> Prompt:
    """Renders a conversation, as `callwright render` does."""
    text, call_format, prompt_tail, notes = _native.render(
        _source(template),
        _json_text(messages),
        _tools(tools),
        _source(format),
        add_generation_prompt,
        bos_token,
        eos_token,
        _json_text(variables or {}),
        _time(now),
    )
    return Prompt(text, call_format, prompt_tail, notes)


def render_variables(
    template: Source, variables: _Mapping[str, Any], *, now: Union[_datetime.datetime, str, None] = None
) -> str:
    """Renders a template with exactly these variables, as `callwright render --vars` does."""
    return _native.render_variables(_source(template), _json_text(variables), _time(now))


def check_template(
    template: Source, *, format: Optional[Source] = None, variables: Optional[_Mapping[str, Any]] = None
) -> Report:
    """Reports what a chat template can do: the object of `callwright template check --json`."""
    report = _native.check_template(
        _source(template), None if format is None else _source(format), _json_text(variables or {})
    )
    return cast("Report", _json.loads(report))


def formats() -> List[Format]:
    """The built-in formats, as `callwright template list --json` prints them."""
    return cast("List[Format]", _json.loads(_native.formats()))
