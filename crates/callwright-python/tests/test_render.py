"""Prompts and checks of templates; transformers is the judge of prompts, where it is installed."""

import copy
import json
import os
import pathlib
import pickle

import pytest

import callwright
from callwright import CallwrightError, check_template, render, render_variables
from test_parse import TOOLS

CORE = pathlib.Path(__file__).resolve().parents[2] / "callwright-core"
SHARED = pathlib.Path(os.environ.get("CALLWRIGHT_CONFORMANCE") or CORE.parents[2] / "shared" / "conformance")

CALL = {
    "id": "call00001",
    "type": "function",
    "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}},
}
CONVERSATIONS = {
    "a question": [{"role": "user", "content": "What's the weather in Zürich?"}],
    "a system message": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <b>\"there\"</b>"}],
    "several turns": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "  How are you?\n"},
    ],
    "a call": [
        {"role": "user", "content": "What's the weather in Zürich?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": '{"temp": 21}'},
    ],
}


def templates():
    paths = [CORE / "templates" / "chatml.jinja", *(CORE / "tests" / "cases" / "infer").glob("*.jinja")]
    paths += (SHARED / "templates").glob("**/*.jinja") if SHARED.is_dir() else []
    return sorted(paths)


@pytest.fixture(scope="module")
def tokenizer():
    pytest.importorskip("transformers", reason="transformers cannot be installed here")
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1}, unk_token="<s>")),
        bos_token="<s>",
        eos_token="</s>",
    )


class Failed(Exception):
    """The template raised an error of its own."""


def golden(tokenizer, source, messages, tools):
    """The prompt of transformers. None where Python fails at what is no error in a template, such as an append to a list
    that its sandbox forbids: callwright renders that."""
    try:
        return tokenizer.apply_chat_template(
            copy.deepcopy(messages), tools=tools, chat_template=source, tokenize=False, add_generation_prompt=True
        )
    except Exception as error:
        if type(error).__name__ in ("TemplateError", "UndefinedError", "TemplateSyntaxError"):
            raise Failed from error
        return None


def as_openai_writes(messages):
    """The same conversation with arguments as texts, and no content where there are calls."""
    messages = copy.deepcopy(messages)
    for message in messages:
        if message.get("tool_calls"):
            message["content"] = None
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.dumps(
                call["function"]["arguments"], ensure_ascii=False, separators=(",", ":")
            )
    return messages


@pytest.mark.parametrize("path", templates(), ids=lambda path: path.stem)
def test_prompts_are_those_of_transformers(tokenizer, path):
    source = path.read_text()
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    for what, messages in CONVERSATIONS.items():
        for tools in (None, TOOLS):
            where = f"{what}, {'tools' if tools else 'no tools'}"
            variables = {"messages": messages, "tools": tools, "add_generation_prompt": True, **special}
            try:
                expected = golden(tokenizer, source, messages, tools)
            except Failed:
                with pytest.raises(CallwrightError):
                    render_variables(source, variables)
                continue
            if expected is None:
                continue
            assert render_variables(source, variables) == expected, where
            prompt = render(source, messages, tools, **special)
            # A note says what is written otherwise than the template would.
            if not prompt.notes and prompt != expected:
                # Some templates write calls only if they come as OpenAI writes them. transformers 5 changes these.
                assert prompt == render_variables(source, {**variables, "messages": as_openai_writes(messages)}), where


def test_a_prompt_knows_its_tail():
    prompt = render("chatml", CONVERSATIONS["a question"])
    assert isinstance(prompt, str)
    assert prompt.prompt_tail == "<|im_start|>assistant\n"
    assert prompt.endswith(prompt.prompt_tail)
    opened = "{% for m in messages %}[{{ m.content }}]{% endfor %}{% if add_generation_prompt %}[assistant] <think>\n{% endif %}"
    prompt = render(opened, CONVERSATIONS["a question"])
    assert prompt.prompt_tail == "[assistant] <think>\n"
    message = callwright.parse("Hm.</think>Yes.", "hermes", prompt_tail=prompt.prompt_tail)
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "Yes.")
    assert render(opened, CONVERSATIONS["a question"], add_generation_prompt=False).prompt_tail == ""
    again = pickle.loads(pickle.dumps(prompt))
    assert (again, again.call_format, again.prompt_tail, again.notes) == (prompt, prompt.call_format, prompt.prompt_tail, prompt.notes)


def test_a_template_without_tools_gets_a_format():
    plain = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    prompt = render(plain, CONVERSATIONS["a call"], TOOLS)
    assert prompt.call_format == "delimited" and "get_weather" in prompt and prompt.notes
    prompt = render(plain, CONVERSATIONS["a call"], TOOLS, format="hermes")
    assert prompt.call_format == "hermes" and "<tool_call>" in prompt
    # Without tools and calls the template is used as it is.
    assert render(plain, CONVERSATIONS["a question"]) == "<user>What's the weather in Zürich?"


def test_arguments_may_be_a_text_as_in_openais_responses():
    template = (
        "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content }}"
        "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}\n{% endfor %}"
    )
    messages = copy.deepcopy(CONVERSATIONS["a call"])
    as_object = render(template, messages, TOOLS)
    messages[1]["tool_calls"][0]["function"]["arguments"] = '{"city": "Zürich", "days": 2}'
    assert render(template, messages, TOOLS) == as_object
    assert render(template, {"messages": messages, "tools": TOOLS}) == as_object


def test_variables_reach_the_template():
    template = "{{ messages[0].content }}{{ ' /no_think' if enable_thinking is false }}"
    assert render(template, CONVERSATIONS["several turns"], variables={"enable_thinking": False}) == "Hi /no_think"
    assert render_variables("{{ x }} {{ y | tojson }}", {"x": None, "y": [True, "é"]}) == 'None [true, "é"]'


def test_files_and_names(tmp_path):
    path = tmp_path / "chat.jinja"
    path.write_text("[{{ messages[0].content }}]")
    assert render(path, CONVERSATIONS["several turns"]) == "[Hi]" == render(str(path), CONVERSATIONS["several turns"])
    with pytest.raises(CallwrightError, match="did you mean `chatml`"):
        render("chatlm", CONVERSATIONS["a question"])


def test_messages_that_cannot_be_read_are_errors():
    with pytest.raises(CallwrightError) as raised:
        render("chatml", [{"role": "user", "content": {"a": 5}}, 7])
    assert raised.value.kind == "messages" and "messages[1]" in str(raised.value)
    with pytest.raises(CallwrightError):
        render("chatml", "Hi")
    with pytest.raises(CallwrightError, match="expected an object"):
        render_variables("{{ x }}", [])


def test_a_check_says_what_a_template_lacks():
    report = check_template("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")
    assert report["sound"] is False
    tools = next(render for render in report["renders"] if render["what"] == "tools")
    assert (tools["needed"], tools["outcome"]) == (True, "ignored")
    assert check_template("hermes")["sound"] is True
    assert check_template("chatml", format="hermes")["overlay"] is True
    with pytest.raises(CallwrightError, match="leave the option out"):
        check_template("chatml", format="auto")


def test_an_endless_template_is_stopped():
    with pytest.raises(CallwrightError):
        render("{% for a in range(99999999) %}{% for b in range(99999999) %}{{ a }}{% endfor %}{% endfor %}", CONVERSATIONS["a question"])
