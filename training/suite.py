"""Makes the benchmark's suite from the held-out table: tools, values and phrasings that no training row has."""

import random

from . import tables
from .generate import Conversations, Row

COUNTS = {
    "simple": 50,
    "multiple": 50,
    "parallel": 50,
    "irrelevance": 50,
    "nested": 40,
    "awkward": 40,
    "follow-up": 45,
    "long": 40,
}
AWKWARD = ("remark", "icing", "trademark")


def make(folder, seed):
    tools = tables.load(folder / "suite.txt")
    rng = random.Random(seed)
    sampler = Conversations(tools, rng, plain=True)
    cases, asked_before = [], set()
    for category, count in COUNTS.items():
        made = 0
        while made < count:
            row = MAKERS[category](sampler, rng)
            question = " / ".join(message["content"] for message in row.messages if message["role"] == "user")
            # One case a wording and a set of values; the same question with other tools would count twice.
            if row.category != category or (category, question) in asked_before:
                continue
            asked_before.add((category, question))
            made += 1
            last = row.messages[-1]
            expected = [call["function"] for call in last.get("tool_calls", [])]
            cases.append(
                {
                    "id": f"{category}-{made:03}",
                    "category": category,
                    "messages": row.messages[:-1],
                    "tools": row.tools,
                    "expected": expected,
                }
            )
    return cases


def with_tools(sampler, tools, extra, category, wanted=lambda asked: True):
    """A question for one of `tools` for which `wanted` holds, and `extra` other tools."""
    rng, style = sampler.rng, sampler.style()
    while True:
        tool = rng.choice(tools)
        asked = sampler.ask(tool, style)
        if wanted(asked):
            break
    toolset = sampler.toolset([asked.concrete], extra, style)
    return Row(category, sampler.start(sampler.wrap(asked)) + [sampler.speak(asked.calls)], toolset)


def parallel(sampler, rng):
    while True:
        row, _ = sampler.parallel_same() if rng.random() < 0.5 else sampler.parallel_two()
        if row.category == "parallel" and len(row.tools) <= 4:
            return row


def irrelevance(sampler, rng):
    row, _ = sampler.unfit()
    return row


def nested(sampler, rng):
    deep = [tool for tool in sampler.tools if any("." in p.path or p.kind.startswith("<") for p in tool.parameters)]
    return with_tools(sampler, deep, rng.choice((0, 1, 2)), "nested")


def awkward(sampler, rng):
    def has(asked):
        return any(asked.concrete.tool.parameter(path).kind in AWKWARD for path in asked.drawn)

    odd = [tool for tool in sampler.tools if any(p.kind in AWKWARD for p in tool.parameters)]
    return with_tools(sampler, odd, rng.choice((0, 0, 1, 2)), "awkward", has)


def follow_up(sampler, rng):
    while True:
        kind = rng.randrange(3)
        if kind == 0:
            row, _ = sampler.answered()
        elif kind == 1:
            row, _ = sampler.corrected()
            if row.messages[-1].get("tool_calls") is None:
                continue
        else:
            row, _ = sampler.again()
            if row.messages[-1].get("tool_calls") is None:
                continue
        if row.category == "follow-up" and len(row.tools) <= 4 and len(row.messages) > 2:
            return row


MAKERS = {
    "simple": lambda sampler, rng: with_tools(sampler, sampler.tools, 0, "simple"),
    "multiple": lambda sampler, rng: with_tools(sampler, sampler.tools, rng.choice((1, 2, 3)), "multiple"),
    "parallel": parallel,
    "irrelevance": irrelevance,
    "nested": nested,
    "awkward": awkward,
    "follow-up": follow_up,
    "long": lambda sampler, rng: with_tools(sampler, sampler.tools, 7, "long"),
}
