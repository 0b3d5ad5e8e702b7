"""Reading texts: events, messages, options and errors."""

import datetime
import doctest
import json
import pathlib
import subprocess
import sys
import threading

import pytest

import callwright
import callwright.types
from callwright import CallwrightError, Parser, parse, render

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        },
    }
]
HERMES = 'Let me see.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich", "days": "2"}}\n</tool_call>'


def join(events):
    """Events with adjacent deltas of one kind in one."""
    joined = []
    for event in events:
        last = joined[-1] if joined else {}
        if "delta" in event and {**event, "delta": ""} == {**last, "delta": ""}:
            last["delta"] += event["delta"]
        else:
            joined.append(dict(event))
    return joined


def test_only_calls_that_fit_their_tools_are_runnable():
    wrong = '<tool_call>{"name": "get_weather", "arguments": {"days": 2}}</tool_call>'
    parser = Parser("hermes", TOOLS)
    parser.feed(HERMES + wrong)
    assert parser.runnable_calls() == []
    parser.finish()
    calls = parser.message["tool_calls"]
    assert [call["runnable"] for call in calls] == [True, False]
    assert parser.runnable_calls() == calls[:1]


def test_a_whole_text_becomes_a_message():
    message = parse(HERMES, "hermes", TOOLS)
    assert message["role"] == "assistant"
    assert message["content"] == "Let me see."
    call = message["tool_calls"][0]
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Zürich", "days": 2}
    # The converted number is reported.
    assert [note["repair"]["kind"] for note in message["diagnostics"]] == ["value_type"]
    assert "format" not in message


def test_the_format_is_detected():
    message = parse(HERMES, tools=TOOLS)
    assert message["format"] == "hermes"
    assert message["tool_calls"][0]["function"]["name"] == "get_weather"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_do_not_depend_on_the_pieces(size):
    whole = Parser("hermes", TOOLS)
    expected = join(whole.feed(HERMES) + whole.finish())
    assert [event["type"] for event in expected] == ["text", "call_start", "call_arguments", "repair", "call_end"]
    parser = Parser("hermes", TOOLS)
    events = []
    for at in range(0, len(HERMES), size):
        events += parser.feed(HERMES[at : at + size])
    events += parser.finish()
    assert join(events) == expected
    assert parser.message == whole.message


def test_bytes_may_be_cut_inside_a_character():
    text = HERMES.encode()
    parser = Parser("hermes", TOOLS)
    events = [event for byte in text for event in parser.feed(bytes([byte]))] + parser.finish()
    assert "".join(event["delta"] for event in events if event["type"] == "call_arguments") == '{"city": "Zürich", "days": 2}'
    broken = Parser("hermes")
    broken.feed(b"a\xffb")
    broken.finish()
    assert broken.message["content"] == "a\ufffdb"
    assert "not valid UTF-8" in broken.message["diagnostics"][0]["message"]


def test_the_message_is_known_before_the_end():
    parser = Parser("hermes", TOOLS)
    parser.feed(HERMES[:60])
    assert parser.message["content"] == "Let me see."
    call = parser.message["tool_calls"][0]["function"]
    assert call["name"] == "get_weather" and not call["arguments"].endswith("}")
    assert parse(HERMES[:60], "hermes", TOOLS, partial=True) == parser.message


def test_a_cut_call_is_apart():
    message = parse(HERMES[:60], "hermes", TOOLS)
    assert "tool_calls" not in message
    invalid = message["invalid_tool_calls"][0]
    assert invalid["name"] == "get_weather" and invalid["error"]


def test_a_call_that_does_not_fit_is_reported():
    text = '<tool_call>{"name": "get_weather", "arguments": {"days": 1}}</tool_call>'
    parser = Parser("hermes", TOOLS)
    end = [event for event in parser.feed(text) if event["type"] == "call_end"]
    assert end == [{"type": "call_end", "id": "call00001", "complete": True, "valid": False}]
    parser.finish()
    problem = [note for note in parser.message["diagnostics"] if note["kind"] == "problem"]
    assert problem and "city" in problem[0]["message"]


def test_options_change_what_is_read():
    text = "<think>Hm.</think>Yes."
    assert parse(text, "hermes")["reasoning_content"] == "Hm."
    assert parse(text, "hermes", reasoning="text")["content"] == text
    assert parse("Hm.</think>Yes.", "hermes", prompt_tail="<think>\n")["reasoning_content"] == "Hm."
    fenced = '```json\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n```'
    assert "tool_calls" in parse(fenced, "hermes", TOOLS)
    assert "tool_calls" not in parse(fenced, "hermes", TOOLS, other_forms="off")
    single = "<tool_call>{'name': 'get_weather', 'arguments': {'city': 'Oslo'}}</tool_call>"
    assert json.loads(parse(single, "hermes", TOOLS)["tool_calls"][0]["function"]["arguments"]) == {"city": "Oslo"}
    assert "tool_calls" not in parse(single, "hermes", TOOLS, repair=False)


def test_a_template_names_the_format():
    template = (
        "{% for t in tools %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
        "{% for c in m.tool_calls %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    )
    assert parse(HERMES, template=template, tools=TOOLS)["tool_calls"]
    with pytest.raises(CallwrightError, match="both a template and the format"):
        parse(HERMES, "hermes", template=template)


def test_a_template_without_calls_has_the_format_that_its_prompts_get():
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    prompt = render(template, [{"role": "user", "content": "Rain in Oslo?"}], TOOLS)
    written = parse(HERMES, "hermes", TOOLS)["tool_calls"][0]["function"]
    call = json.dumps({"name": written["name"], "arguments": json.loads(written["arguments"])})
    text = f"### TOOL_CALL_START ###\n{call}\n### TOOL_CALL_END ###"
    assert prompt.call_format == "delimited"
    assert parse(text, template=template, tools=TOOLS)["diagnostics"] == []


def test_tools_and_formats_may_be_files(tmp_path):
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    assert parse(HERMES, "hermes", tools) == parse(HERMES, "hermes", TOOLS) == parse(HERMES, "hermes", str(tools))
    declaration = '{#--- callwright\nformat = { name = "mine", payload = "json", start = "<<", end = ">>" }\n---#}\n'
    path = tmp_path / "mine.jinja"
    path.write_text(declaration)
    text = '<<{"name": "get_weather", "arguments": {"city": "Oslo"}}>>'
    assert parse(text, path)["tool_calls"] == parse(text, declaration)["tool_calls"]
    with pytest.raises(CallwrightError) as raised:
        parse(HERMES, "hermes", tmp_path / "none.json")
    assert raised.value.kind == "io" and "none.json" in str(raised.value)


def test_faults_of_tools_are_reported():
    message = parse(HERMES, "hermes", [*TOOLS, {"name": "b", "parameters": {"type": "strnig"}}])
    assert "strnig" in message["tools_notices"][0]["message"]


@pytest.mark.parametrize(
    "arguments, kind, words",
    [
        ({"format": "hermse"}, "format", "did you mean `hermes`?"),
        ({"reasoning": "apart"}, "config", "expected one of: separate, text"),
        ({"other_forms": "no"}, "config", "expected one of: read, report, off"),
        ({"tools": [{"description": "?"}]}, "tools", "name"),
        ({"tools": 5}, "tools", "expected a list of tools"),
        ({"format": "{# nothing #}"}, "format", "declares no tool-call format"),
        ({"template": "{% for %}"}, "template", "template:1"),
    ],
)
def test_errors_say_what_to_do(arguments, kind, words):
    with pytest.raises(CallwrightError) as raised:
        Parser(**arguments)
    error = raised.value
    assert isinstance(error, ValueError)
    assert words in str(error)
    assert error.kind == kind
    assert error.message and error.message in str(error)
    assert error.hint is None or error.hint in str(error)


def test_an_error_of_a_template_has_its_place():
    with pytest.raises(CallwrightError) as raised:
        callwright.render("{{ messages }}\n{% nonsense %}", [{"role": "user", "content": "Hi"}])
    assert (raised.value.line, raised.value.file) == (2, "template")


def test_values_that_are_not_json_are_refused():
    with pytest.raises(ValueError):
        parse("", tools=[{"name": "f", "parameters": {"default": float("nan")}}])
    deep = []
    for _ in range(500):
        deep = [deep]
    with pytest.raises(CallwrightError, match="tools cannot be read as JSON"):
        parse("", tools=deep)
    with pytest.raises(TypeError):
        parse("", tools=[object()])
    with pytest.raises(TypeError):
        Parser().feed(5)
    with pytest.raises(UnicodeEncodeError):
        parse("\ud800")


def test_a_parser_reads_one_answer():
    parser = Parser("hermes", TOOLS)
    parser.feed(HERMES)
    parser.finish()
    message = parser.message
    assert parser.finish() == []
    assert parser.message == message
    with pytest.raises(CallwrightError, match="the text has ended"):
        parser.feed("more")


def test_parsers_work_in_threads():
    text = HERMES * 200
    expected = parse(text, "hermes", TOOLS)
    found = []

    def work():
        found.append(parse(text, "hermes", TOOLS))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def test_a_response_of_a_server_is_read():
    response = json.dumps({"choices": [{"message": {"role": "assistant", "content": HERMES}}]})
    message = parse(response, tools=TOOLS)
    assert message["tool_calls"][0]["function"]["name"] == "get_weather"


def test_every_format_reads_its_sample():
    formats = callwright.formats()
    assert len(formats) >= 27
    for form in formats:
        call = parse(form["sample"], form["name"])["tool_calls"][0]["function"]
        assert call["name"] == "get_weather", form["name"]
        assert json.loads(call["arguments"]) == {"city": "Oslo", "days": 2}, form["name"]


def test_the_package_is_typed():
    folder = pathlib.Path(callwright.__file__).parent
    assert (folder / "py.typed").exists()
    for name in callwright.types.__dict__:
        if isinstance(getattr(callwright.types, name), type) and not name.startswith("_"):
            assert getattr(callwright.types, name).__doc__, name


def test_the_types_fit(tmp_path):
    pytest.importorskip("mypy", reason="mypy cannot be installed here")
    (tmp_path / "use.py").write_text(
        """
import callwright
from callwright.types import Event, Message

parser = callwright.Parser("hermes", [{"name": "clock"}], prompt_tail="<think>")
events: list[Event] = parser.feed("text") + parser.finish()
for event in events:
    if event["type"] == "call_start":
        event["name"].upper()
message: Message = callwright.parse(b"text", partial=True)
prompt: str = callwright.render("chatml", [{"role": "user", "content": "Hi"}])
sound: bool = callwright.check_template("chatml")["sound"]
callwright.Parser(reasoning="apart")  # type: ignore[arg-type]
event["nme"]  # type: ignore[typeddict-item]
"""
    )
    for command in (["mypy", "--strict", "use.py"], ["mypy.stubtest", "callwright"]):
        ran = subprocess.run([sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_examples_of_the_documentation_are_right():
    failed, tried = doctest.testmod(callwright)
    assert (failed, tried > 5) == (0, True)


def test_the_clock_may_be_a_datetime():
    template = "{{ strftime_now('%d %b %Y') }}{{ messages[0].content }}"
    messages = [{"role": "user", "content": "!"}]
    now = datetime.datetime(2026, 1, 15, 12)
    assert callwright.render(template, messages, now=now) == "15 Jan 2026!"
    assert callwright.render(template, messages, now="2026-01-15T12:00:00") == "15 Jan 2026!"
    with pytest.raises(CallwrightError, match="which is no time"):
        callwright.render(template, messages, now="noon")
