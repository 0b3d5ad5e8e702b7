"""The data: conversations with tools, made from the tables, from procedural tools and from a few word lists.

The benchmark's suite is made by the same code from another table; a row whose question or tool names occur in the
suite is thrown away.
"""

import json
import random
from dataclasses import dataclass

from . import phrasing, pools, procedural
from .sampler import Sampler
from .tables import enumerate_text

# Rows with one tool, with up to two, with up to three; then all.
CURRICULUM = (4000, 9000, 16000)


@dataclass
class Row:
    category: str
    messages: list
    tools: list
    style: str = "delimited"


class Conversations(Sampler):
    def start(self, text):
        rng = self.rng
        messages = [{"role": "user", "content": text}]
        if not self.plain and rng.random() < 0.2:
            messages.insert(0, {"role": "system", "content": rng.choice(phrasing.SYSTEMS)})
        return messages

    def speak(self, calls):
        return {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"type": "function", "function": {"name": name, "arguments": arguments}} for name, arguments in calls
            ],
        }

    def simple(self):
        style = self.style()
        asked = self.ask(self.source(), style)
        tools = self.toolset([asked.concrete], self.count() - 1, style)
        return Row(
            "simple" if len(tools) == 1 else "multiple", self.start(self.wrap(asked)) + [self.speak(asked.calls)], tools
        ), asked

    def parallel_same(self):
        style = self.style()
        for _ in range(40):
            tool = self.rng.choice(self.tools) if self.rng.random() < 0.8 or self.plain else self.source()
            asked = self.ask(tool, style)
            if self.spread(asked):
                break
        tools = self.toolset([asked.concrete], min(self.count() - 1, 3), style)
        return Row("parallel", self.start(self.wrap(asked)) + [self.speak(asked.calls)], tools), asked

    def parallel_two(self):
        style = self.style()
        first = self.source()
        a = self.ask(first, style)
        b = None
        for _ in range(20):
            siblings = [tool for tool in self.domains.get(first.domain, []) if tool is not first]
            second = self.rng.choice(siblings) if siblings and self.rng.random() < 0.4 else self.source()
            if second is first:
                continue
            b = self.ask(second, style)
            if b.concrete.name != a.concrete.name:
                break
            b = None
        if b is None or (a.open and b.open):
            return self.simple()
        if a.open:
            a, b = b, a
        tools = self.toolset([a.concrete, b.concrete], min(self.count() - 1, 3), style)
        return Row("parallel", self.start(self.joined(a, b)) + [self.speak(a.calls + b.calls)], tools), None

    def unfit(self):
        """The question fits none of the tools; half of the time these are of its own domain."""
        rng, style = self.rng, self.style()
        tool = rng.choice(self.tools) if rng.random() < 0.8 or self.plain else self.source()
        asked = self.ask(tool, style)
        others = self.distractors([asked.concrete], min(self.count(), 5), style, strangers=rng.random() < 0.5)
        others = [other for other in others if not set(other.tool.names) & set(tool.names)]
        if not others:
            return self.simple()
        tools = [{"type": "function", "function": other.function} for other in others]
        return Row(
            "irrelevance",
            self.start(self.wrap(asked)) + [{"role": "assistant", "content": rng.choice(phrasing.NO_TOOL)}],
            tools,
        ), None

    def talk(self):
        rng = self.rng
        question, answer = rng.choice(phrasing.TALK)
        tools = [] if rng.random() < 0.3 else self.toolset([], self.count(), self.style())
        return Row("talk", self.start(question) + [{"role": "assistant", "content": answer}], tools), None

    def toolless(self):
        """A request, but no tools at all."""
        asked = self.ask(self.rng.choice(self.tools), "snake")
        return Row(
            "irrelevance",
            self.start(self.wrap(asked)) + [{"role": "assistant", "content": "I have no tools to do that."}],
            [],
        ), None

    def result(self, tool, drawn):
        """A tool's result and the answer to it."""
        rng = self.rng
        if tool.results and rng.random() < 0.75:
            pairs, answer = rng.choice(tool.results)
            values = {}
            for name, pool in pairs:
                values[name] = draw_value(rng, pool)
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
            values[name] = draw_value(
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
            )
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

    def answered_parallel(self):
        row, asked = self.parallel_same()
        if asked is None or len(asked.calls) > 3:
            return row, None
        answers, names = [], asked.concrete.names
        for _, arguments in asked.calls:
            told = {path: (str(arguments[name]),) for path, name in names.items() if name in arguments}
            result, answer = self.result(asked.concrete.tool, told)
            row.messages.append({"role": "tool", "content": result})
            answers.append(answer)
        row.messages.append({"role": "assistant", "content": " ".join(answers)})
        row.category = "follow-up"
        return row, None

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
        row.messages += [{"role": "tool", "content": content}, self.speak([(name, {**arguments, key: new})])]
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
        row.messages += [{"role": "user", "content": text}, self.speak(calls)]
        if rng.random() < 0.2:
            row.messages[-1:] = [{"role": "assistant", "content": "You're welcome!"}]
            row.messages[-2]["content"] = rng.choice(("Thanks!", "Thank you!", "thx", "Great, thanks."))
        return row, None

    MIX = [
        ("simple", 50),
        ("parallel_same", 12),
        ("parallel_two", 10),
        ("unfit", 9),
        ("talk", 3),
        ("toolless", 1),
        ("answered", 6),
        ("answered_parallel", 2),
        ("corrected", 4),
        ("again", 5),
    ]

    def row(self, index):
        """Training row number `index`. Early ones have few tools, mostly procedural, so that copying is learned first."""
        rng = self.rng
        if index < CURRICULUM[1]:
            self.share, self.most = (0.3, 0.6), 1 if index < CURRICULUM[0] else 2
            kind = "simple" if rng.random() < 0.85 else rng.choice(("parallel_same", "answered", "unfit"))
        else:
            self.share, self.most = (0.5, 0.8), 3 if index < CURRICULUM[2] else 8
            kind = rng.choices([name for name, _ in self.MIX], [share for _, share in self.MIX])[0]
        if rng.random() < 0.07:
            row = self.demo()
        else:
            row, _ = getattr(self, kind)()
        row.style = "hermes" if rng.random() < 0.33 else "delimited"
        return row

    def demo(self):
        """The weather, which a first user asks for."""
        tool = self.domains["weather"][0]
        style = self.rng.choice(("snake", "snake", "camel"))
        asked = self.ask(tool, style)
        # A day named in passing is what a model this small forgets first.
        for _ in range(2):
            if "date" not in asked.drawn:
                asked = self.ask(tool, style)
        if self.rng.random() < 0.35:
            self.spread(asked)
        tools = self.toolset([asked.concrete], self.rng.choice((0, 1, 1, 2, 3)), style)
        return Row("demo", self.start(self.wrap(asked)) + [self.speak(asked.calls)], tools)


def draw_value(rng, pool):
    if "|" in pool:
        return rng.choice(pool.split("|"))
    return pools.draw(rng, pool)[1]


def questions(row):
    return [message["content"] for message in row.messages if message["role"] == "user"]


def rows(tools, count, seed, barred=frozenset()):
    """`count` training rows. `barred` holds the suite's tool names and questions; a row with one of them is left out."""
    rng = random.Random(seed)
    sampler = Conversations(tools, rng)
    made, refused = 0, 0
    while made < count:
        row = sampler.row(made)
        names = {tool["function"]["name"] for tool in row.tools}
        if names & barred or any(question in barred for question in questions(row)):
            refused += 1
            if refused > count:
                raise ValueError("the tables share too much with the suite")
            continue
        made += 1
        yield row
