"""Python clients of `callwright serve`: each makes a call, gives its result and gets the answer, whole and streamed."""

import json
import sys
import urllib.request

import anthropic
import openai
from anthropic.types import Message, RawMessageStreamEvent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

URL = sys.argv[1]
QUESTION = "What's the weather in Beijing tomorrow?"
RESULT = "21 C, sunny"
ARGUMENTS = {"city": "Beijing", "date": "tomorrow"}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "date": {"type": "string"}},
    "required": ["city", "date"],
    "additionalProperties": False,
}
FUNCTION = {"name": "get_weather", "description": "Get the weather", "parameters": SCHEMA}
USER = [{"role": "user", "content": QUESTION}]


def check(name, found, wanted):
    assert found == wanted, f"{name}: {found!r}, not {wanted!r}"
    print(f"ok  {name}")


def has_result(name, text):
    assert "21 C" in text, f"{name}: {text!r}"
    print(f"ok  {name}")


def chat(client):
    tools = [{"type": "function", "function": {**FUNCTION, "strict": True}}]
    create = lambda **more: client.chat.completions.create(model="bundled", tools=tools, **more)
    choice = create(messages=USER).choices[0]
    call = choice.message.tool_calls[0]
    check("openai chat: call", json.loads(call.function.arguments), ARGUMENTS)
    check("openai chat: finish reason", choice.finish_reason, "tool_calls")
    messages = USER + [
        choice.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": RESULT},
    ]
    has_result("openai chat: answer", create(messages=messages).choices[0].message.content)

    with client.chat.completions.stream(model="bundled", messages=USER, tools=tools) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion().choices[0].message
    check("openai chat, streamed: call", final.tool_calls[0].function.parsed_arguments, ARGUMENTS)
    check("openai chat, streamed: the same text", final.tool_calls[0].function.arguments, call.function.arguments)
    assert "tool_calls.function.arguments.done" in kinds
    chunks = create(messages=messages, stream=True, stream_options={"include_usage": True})
    parts = list(chunks)
    has_result("openai chat, streamed: answer", "".join(p.choices[0].delta.content or "" for p in parts if p.choices))
    assert parts[-1].usage.total_tokens > 0

    forced = create(messages=USER, tool_choice={"type": "function", "function": {"name": "get_weather"}})
    check("openai chat: named choice", forced.choices[0].message.tool_calls[0].function.name, "get_weather")
    none = create(messages=USER, tool_choice="none")
    check("openai chat: no call", none.choices[0].message.tool_calls, None)


def structured(client):
    class Place(BaseModel):
        city: str
        capital: bool

    messages = [{"role": "user", "content": "Is Paris a capital?"}]
    parsed = client.chat.completions.parse(model="bundled", messages=messages, response_format=Place, max_tokens=200)
    check("openai structured output", isinstance(parsed.choices[0].message.parsed, Place), True)


def responses(client):
    tools = [{"type": "function", "strict": True, **FUNCTION}]
    create = lambda **more: client.responses.create(model="bundled", tools=tools, **more)
    first = create(input=QUESTION)
    call = first.output[-1]
    check("openai responses: call", json.loads(call.arguments), ARGUMENTS)
    output = {"type": "function_call_output", "call_id": call.call_id, "output": RESULT}
    history = USER + [item.model_dump(exclude_none=True) for item in first.output] + [output]
    has_result("openai responses: answer", create(input=history).output_text)
    with client.responses.stream(model="bundled", tools=tools, input=QUESTION) as stream:
        for _ in stream:
            pass
        check("openai responses, streamed: call", stream.get_final_response().output[-1].arguments, call.arguments)
    with client.responses.stream(model="bundled", tools=tools, input=history) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        has_result("openai responses, streamed: answer", text)


def messages(client):
    tools = [{"name": "get_weather", "description": "Get the weather", "input_schema": SCHEMA}]
    common = {"model": "bundled", "max_tokens": 200, "tools": tools}
    first = client.messages.create(messages=USER, **common)
    call = first.content[-1]
    check("anthropic: call", call.input, ARGUMENTS)
    check("anthropic: stop reason", first.stop_reason, "tool_use")
    history = USER + [
        {"role": "assistant", "content": [block.model_dump() for block in first.content]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": RESULT}]},
    ]
    has_result("anthropic: answer", client.messages.create(messages=history, **common).content[0].text)
    with client.messages.stream(messages=USER, **common) as stream:
        check("anthropic, streamed: call", stream.get_final_message().content[-1].input, ARGUMENTS)
    with client.messages.stream(messages=history, **common) as stream:
        has_result("anthropic, streamed: answer", "".join(stream.text_stream))
    assert client.messages.count_tokens(model="bundled", messages=USER, tools=tools).input_tokens > 0


def langchain():
    @tool
    def get_weather(city: str, date: str) -> str:
        "Get the weather"
        return RESULT

    model = ChatOpenAI(base_url=f"{URL}/v1", api_key="none", model="bundled").bind_tools([get_weather])
    history = [HumanMessage(QUESTION)]
    answer = model.invoke(history)
    check("langchain: call", answer.tool_calls[0]["args"], ARGUMENTS)
    history.append(answer)
    history += [ToolMessage(get_weather.invoke(c["args"]), tool_call_id=c["id"]) for c in answer.tool_calls]
    has_result("langchain: answer", model.invoke(history).content)
    added = None
    for chunk in model.stream(history[:1]):
        added = chunk if added is None else added + chunk
    check("langchain, streamed: call", added.tool_calls[0]["args"], ARGUMENTS)


def strict():
    "Everything has all fields of the libraries' own types, which the libraries themselves do not check."
    function = {"type": "function", **FUNCTION}
    custom = {"type": "custom", "name": "get_weather", "description": "Get the weather"}
    namespace = {"type": "namespace", "name": "sky", "description": "The sky", "tools": [function]}
    chosen = {"type": "custom", "name": "get_weather"}
    chat = {"messages": USER, "tools": [{"type": "function", "function": FUNCTION}]}
    tool = {"name": "get_weather", "description": "Get the weather", "input_schema": SCHEMA}
    bodies = [
        ("/v1/responses", Response, ResponseStreamEvent, {"input": QUESTION, "tools": [function]}),
        ("/v1/responses", Response, ResponseStreamEvent, {"input": QUESTION, "max_output_tokens": 5}),
        ("/v1/responses", Response, ResponseStreamEvent, {"input": QUESTION, "tools": [custom], "tool_choice": chosen}),
        ("/v1/responses", Response, ResponseStreamEvent, {"input": QUESTION, "tools": [namespace, {"type": "web_search"}]}),
        ("/v1/chat/completions", ChatCompletion, ChatCompletionChunk, chat),
        ("/v1/messages", Message, RawMessageStreamEvent, {"messages": USER, "max_tokens": 100, "tools": [tool]}),
    ]
    for path, whole, event, body in bodies:
        def post(stream):
            data = json.dumps({**body, "stream": stream}).encode()
            return urllib.request.urlopen(urllib.request.Request(URL + path, data), timeout=300).read().decode()

        TypeAdapter(whole).validate_json(post(False))
        data = [line[6:] for line in post(True).splitlines() if line.startswith("data: ") and line != "data: [DONE]"]
        for line in data:
            TypeAdapter(event).validate_json(line)
    print("ok  all fields of the libraries' types")


client = openai.OpenAI(base_url=f"{URL}/v1", api_key="none")
chat(client)
structured(client)
responses(client)
messages(anthropic.Anthropic(base_url=URL, api_key="none"))
langchain()
strict()
