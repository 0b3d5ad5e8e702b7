"""Makes the benchmark's suite from the held-out table: tools, values and phrasings that no training row has."""

import json
import random
from dataclasses import dataclass

from . import phrasing, pools, procedural
from .sampler import Asked, Sampler
from .scenes import spoken, user
from .tables import enumerate_text

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


@dataclass
class Row:
    category: str
    messages: list
    tools: list


class Cases(Sampler):
    """Plain questions: nothing around what the table says, and only its own values.

    A few draws go unused: they keep the cases as they were when the suite was first made.
    """

    def wrap(self, asked):
        text = asked.text.strip()
        text = text[0].upper() + text[1:] if asked.open or asked.mark == "!" else text
        return text if asked.open or asked.mark == "?" or text[-1] in ".!?" else text + "."

    def joined(self, a, b):
        """Two requests in one message."""
        rng = self.rng
        if a.mark == b.mark == "!":
            joints = [joint for joint in phrasing.JOINTS if joint.endswith("{}")] if b.open else phrasing.JOINTS
            text = rng.choice(joints).format("\x01", "\x02").replace("\x01", a.text).replace("\x02", b.text)
            return self.wrap(Asked("!", text, concrete=b.concrete, flat=["x", *b.flat]))
        first = a.text[0].upper() + a.text[1:] + ("." if a.mark == "!" and a.text[-1] not in ".?!" else "")
        second = b.text
        if b.mark == "!":
            second = rng.choice(("Please ", "Also, ", "And ", "Then ")) + second + ("" if b.open else ".")
        else:
            second = rng.choice(("", "", "And ", "Also: ")) + second
        return f"{first} {second[0].upper() + second[1:]}"

    def distractors(self, used, count, style, strangers=False):
        """Tools that do not answer: of the same domain (unless `strangers`) and of others."""
        rng = self.rng
        found, taken = [], {concrete.name for concrete in used}
        tools = [concrete.tool for concrete in used]
        for _ in range(count * 4):
            if len(found) >= count:
                break
            if tools and rng.random() < 0.4 and not strangers:
                siblings = [tool for tool in self.domains.get(rng.choice(tools).domain, []) if tool not in tools]
                if not siblings:
                    continue
                tool = rng.choice(siblings)
            else:
                tool = rng.choice(self.tools)
            if tool in tools or any(tool is other.tool for other in found):
                continue
            if strangers and any(tool.domain == other.domain for other in tools):
                continue
            concrete = self.concrete(tool, style)
            if concrete.name not in taken:
                taken.add(concrete.name)
                found.append(concrete)
        return found

    def count(self):
        return self.rng.choices((1, 2, 3, 4, 5, 6, 7, 8), (24, 26, 18, 12, 8, 5, 4, 3))[0]

    def toolset(self, used, extra, style):
        concretes = used + self.distractors(used, extra, style)
        self.rng.shuffle(concretes)
        return offer(concretes)

    def simple(self):
        style = self.style()
        asked = self.ask(self.rng.choice(self.tools), style)
        tools = self.toolset([asked.concrete], self.count() - 1, style)
        category = "simple" if len(tools) == 1 else "multiple"
        return Row(category, [user(self.wrap(asked)), spoken(asked.calls)], tools), asked

    def parallel_same(self):
        style = self.style()
        for _ in range(40):
            self.rng.random()
            asked = self.ask(self.rng.choice(self.tools), style)
            if self.spread(asked):
                break
        tools = self.toolset([asked.concrete], min(self.count() - 1, 3), style)
        return Row("parallel", [user(self.wrap(asked)), spoken(asked.calls)], tools)

    def parallel_two(self):
        style = self.style()
        first = self.rng.choice(self.tools)
        a = self.ask(first, style)
        b = None
        for _ in range(20):
            siblings = [tool for tool in self.domains.get(first.domain, []) if tool is not first]
            second = self.rng.choice(siblings if siblings and self.rng.random() < 0.4 else self.tools)
            if second is first:
                continue
            b = self.ask(second, style)
            if b.concrete.name != a.concrete.name:
                break
            b = None
        if b is None or (a.open and b.open):
            return self.simple()[0]
        if a.open:
            a, b = b, a
        tools = self.toolset([a.concrete, b.concrete], min(self.count() - 1, 3), style)
        return Row("parallel", [user(self.joined(a, b)), spoken(a.calls + b.calls)], tools)

    def unfit(self):
        """The question fits none of the tools; half of the time these are of its own domain."""
        rng, style = self.rng, self.style()
        rng.random()
        tool = rng.choice(self.tools)
        asked = self.ask(tool, style)
        others = self.distractors([asked.concrete], min(self.count(), 5), style, strangers=rng.random() < 0.5)
        others = [other for other in others if not set(other.tool.names) & set(tool.names)]
        if not others:
            return self.simple()[0]
        rng.choice((0, 1))
        return Row("irrelevance", [user(self.wrap(asked)), {"role": "assistant", "content": ""}], offer(others))

    def result(self, tool, drawn):
        """A tool's result and the answer to it."""
        rng = self.rng
        if tool.results and rng.random() < 0.75:
            pairs, answer = rng.choice(tool.results)
            values = {}
            for name, pool in pairs:
                values[name] = pools.draw(rng, pool)[1]
            told = {
                **{path: pair[0] for path, pair in drawn.items() if "." not in path},
                **{name: str(value) for name, value in values.items()},
            }
            return json.dumps(values, ensure_ascii=False), answer.format(**told)
        values = {}
        for _ in range(rng.choice((1, 1, 2, 2, 3))):
            name = rng.choice(
                procedural.PLAIN + ["status", "id", "result", "total", "state", "price", "date", "message", "url"]
            )
            values[name] = pools.draw(
                rng,
                rng.choice(
                    (
                        "invented",
                        "id",
                        "int(0,999)",
                        "num(-9,99)",
                        "sentence",
                        "city",
                        "date",
                        "ok|done|success|created",
                    )
                ),
            )[1]
        if rng.random() < 0.2:
            value = next(iter(values.values()))
            return str(value), f"The result is {value}."
        said = enumerate_text(rng, [f"the {name} is {value}" for name, value in values.items()])
        return json.dumps(values, ensure_ascii=False), said[0].upper() + said[1:] + "."

    def answered(self):
        """Call, result, answer."""
        row, asked = self.simple()
        if asked is None or len(asked.calls) != 1:
            return row, None
        result, answer = self.result(asked.concrete.tool, asked.drawn)
        row.messages += [{"role": "tool", "content": result}, {"role": "assistant", "content": answer}]
        row.category = "follow-up"
        return row, asked

    def corrected(self):
        """A call that fails, and one that heeds the error."""
        rng = self.rng
        row, asked = self.simple()
        flat = [
            path
            for path in (asked.drawn if asked else {})
            if isinstance(asked.drawn[path][1], (str, int, float)) and "." not in path
        ]
        if asked is None or len(asked.calls) != 1 or not flat:
            return row, None
        path = rng.choice(flat)
        parameter = asked.concrete.tool.parameter(path)
        name, arguments = asked.calls[0]
        key = asked.concrete.names[path]
        old = arguments[key]
        for _ in range(5):
            _, new = parameter.draw(rng)
            if new != old:
                break
        shown_old, shown_new = json.dumps(old, ensure_ascii=False), json.dumps(new, ensure_ascii=False)
        error = rng.choice(
            (
                "{key}: {old} is not known. Did you mean {new}?",
                "invalid value {old} for {key}, use {new}",
                "{old} is not available; try {new} as {key}",
                "unknown {key} {old}, closest match: {new}",
                "{key} must be {new}",
            )
        ).format(key=key, old=shown_old, new=shown_new)
        content = rng.choice((f"Error: {error}", json.dumps({"error": error}, ensure_ascii=False), error))
        row.messages += [{"role": "tool", "content": content}, spoken([(name, {**arguments, key: new})])]
        if rng.random() < 0.4:
            result, answer = self.result(asked.concrete.tool, asked.drawn)
            row.messages += [{"role": "tool", "content": result}, {"role": "assistant", "content": answer}]
        row.category = "follow-up"
        return row, None

    def again(self):
        """Call, result, answer, and a second question, short or about another tool."""
        rng = self.rng
        row, asked = self.answered()
        if asked is None or row.category != "follow-up":
            return row, None
        paths = [p.path for p in asked.concrete.shown if p.spread and p.path in asked.drawn]
        if paths and rng.random() < 0.7:
            pair = asked.concrete.tool.parameter(paths[0]).draw(rng)
            text = rng.choice(phrasing.FOLLOW).replace("{}", pair[0])
            self.realize(asked, {**asked.drawn, paths[0]: pair})
            calls = asked.calls
        else:
            same = [self.ask(asked.concrete.tool, "snake") for _ in range(4)]
            same = [other for other in same if set(other.concrete.names) <= set(asked.concrete.names)]
            if not same:
                return row, None
            other = same[0]
            other.concrete = asked.concrete
            self.realize(other, other.drawn)
            text, calls = self.wrap(other), other.calls
        row.messages += [{"role": "user", "content": text}, spoken(calls)]
        if rng.random() < 0.2:
            row.messages[-1:] = [{"role": "assistant", "content": "You're welcome!"}]
            row.messages[-2]["content"] = rng.choice(("Thanks!", "Thank you!", "thx", "Great, thanks."))
        return row, None


def offer(concretes):
    return [{"type": "function", "function": concrete.function} for concrete in concretes]


def make(tools, seed):
    rng = random.Random(seed)
    sampler = Cases(tools, rng)
    cases, asked_before = [], set()
    for category, count in COUNTS.items():
        if category == "awkward" and not any(map(odd, tools)):
            continue
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
    return Row(category, [user(sampler.wrap(asked)), spoken(asked.calls)], toolset)


def parallel(sampler, rng):
    while True:
        row = sampler.parallel_same() if rng.random() < 0.5 else sampler.parallel_two()
        if row.category == "parallel" and len(row.tools) <= 4:
            return row


def irrelevance(sampler, rng):
    return sampler.unfit()


def nested(sampler, rng):
    deep = [tool for tool in sampler.tools if any("." in p.path or p.kind.startswith("<") for p in tool.parameters)]
    return with_tools(sampler, deep, rng.choice((0, 1, 2)), "nested")


def odd(tool):
    return any(parameter.kind in AWKWARD for parameter in tool.parameters)


def awkward(sampler, rng):
    def has(asked):
        return any(asked.concrete.tool.parameter(path).kind in AWKWARD for path in asked.drawn)

    return with_tools(sampler, list(filter(odd, sampler.tools)), rng.choice((0, 0, 1, 2)), "awkward", has)


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
