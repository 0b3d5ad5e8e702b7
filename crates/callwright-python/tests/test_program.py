"""The program in the package, and that it reads and writes the same as the module."""

import json
import pathlib
import subprocess
import sys

import pytest

import callwright
from test_parse import HERMES, TOOLS

pytestmark = pytest.mark.skipif(
    not any((pathlib.Path(callwright.__file__).parent / "program").glob("callwright*")),
    reason="this package is built without the program",
)


def program(*arguments, **options):
    command = [sys.executable, "-m", "callwright", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


@pytest.fixture
def tools(tmp_path):
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(TOOLS))
    return str(path)


def test_the_script_runs_the_program():
    script = pathlib.Path(sys.executable).parent / "callwright"
    ran = subprocess.run([str(script), "--version"], capture_output=True, text=True)
    assert ran.stdout == f"callwright {callwright.__version__}\n"
    assert program("parse", "--nonsense").returncode == 2


@pytest.mark.parametrize("text", [HERMES, HERMES[:60], "Only text.", "<tool_call>{'name': get_weather}</tool_call>"])
def test_messages_are_the_programs(tools, text):
    ran = program("parse", "--format", "hermes", "--tools", tools, input=text)
    message = callwright.parse(text, "hermes", TOOLS)
    for call in message.get("tool_calls", []):
        # The program's messages have no such flag.
        del call["runnable"]
    assert json.loads(ran.stdout) == message
    ran = program("parse", "--format", "hermes", "--tools", tools, "--output", "events", input=text)
    parser = callwright.Parser("hermes", TOOLS)
    events = parser.feed(text) + parser.finish()
    assert [json.loads(line) for line in ran.stdout.splitlines()] == events


def test_formats_and_checks_are_the_programs(tmp_path):
    assert json.loads(program("template", "list", "--json").stdout) == callwright.formats()
    for name in ["chatml", "hermes"]:
        report = json.loads(program("template", "check", name, "--json").stdout)
        assert report == {**callwright.check_template(name), "template": report["template"]}


def test_the_bundled_model_calls(tools):
    ran = program("run", "What's the weather in Beijing tomorrow?", "--tools", tools, "--output", "json")
    if "needs the feature" in ran.stderr:
        pytest.skip("the program in this package has no engine")
    message = json.loads(ran.stdout)["messages"][-1]
    assert message["tool_calls"][0]["function"]["name"] == "get_weather"
