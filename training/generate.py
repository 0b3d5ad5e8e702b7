"""The data: conversations with tools, made from the tables, from procedural tools and from a few word lists.

`Sampler` makes tools concrete (names in some style, some descriptions, some optional parameters), asks for them in
some phrasing and knows the calls that answer. The benchmark's suite is made by the same code from another table; a
row whose question or tool names occur in the suite is thrown away.
"""

import json
import random
import re
from dataclasses import dataclass, field

from . import phrasing, procedural
from .tables import enumerate_text, expand


# Rows with one tool, with up to two, with up to three; then all.
CURRICULUM = (4000, 9000, 16000)


@dataclass
class Row:
    category: str
    messages: list
    tools: list
    style: str = "delimited"


@dataclass
class Concrete:
    """A tool as one conversation sees it."""

    tool: object
    function: dict
    names: dict  # path in the table → path in the schema
    shown: list  # the parameters in the schema

    @property
    def name(self):
        return self.function["name"]


@dataclass
class Asked:
    """What a user wants: a text, a mark (`?` sentence, `!` imperative) and the calls."""

    mark: str
    text: str
    calls: list = field(default_factory=list)
    concrete: object = None
    flat: list = None
    drawn: dict = None

    @property
    def open(self):
        """Whether the text ends in a value whose own end only the text's end shows."""
        last = [part for part in self.flat or [] if part != ""][-1:]
        return bool(last) and last[0][0] == "ref" and self.concrete.tool.parameter(last[0][1]).kind in FREE


# Values that may hold any punctuation: nothing may be written right after one unless it is quoted.
FREE = {"sentence", "code", "command", "query", "phrase", "remark", "icing"}


def camel(words):
    return words[0].lower() + "".join(word.capitalize() for word in words[1:])


def write_name(words, domain, style):
    words = re.split(r"[ _-]+", words)
    if style == "camel":
        return camel(words)
    if style == "dotted":
        prefix = domain.split()[0] if domain else words[-1]
        return f"{prefix}.{'_'.join(words)}"
    if style == "pascal":
        return "".join(word.capitalize() for word in words)
    if style == "kebab":
        return "-".join(words)
    return "_".join(words)


class Sampler:
    def __init__(self, tools, rng, plain=False):
        """`plain`: no wrapping and no invented noise, for the suite."""
        self.tools, self.rng, self.plain = tools, rng, plain
        self.domains = {}
        for tool in tools:
            self.domains.setdefault(tool.domain, []).append(tool)

    # Tools

    def style(self):
        return self.rng.choices(("snake", "camel", "dotted", "pascal", "kebab"), (55, 22, 15, 4, 4))[0]

    def concrete(self, tool, style, needed=(), lean=None):
        rng = self.rng
        key_style = style if style == "camel" else "snake"
        lean = rng.random() < 0.35 if lean is None else lean
        properties, required, names, shown = {}, [], {}, []
        for parameter in tool.parameters:
            if not parameter.required and parameter.path not in needed and rng.random() < 0.35:
                continue
            schema = parameter.schema()
            *outer, leaf = (parameter.path if rng.random() < 0.5 or "." in parameter.path else rng.choice(parameter.names)).split(".")
            leaf = camel(leaf.split("_")) if key_style == "camel" and "_" in leaf else leaf
            if not lean and rng.random() < 0.6:
                words = parameter.descriptions or [leaf.replace("_", " ").capitalize(), f"The {leaf.replace('_', ' ')}"]
                schema["description"] = rng.choice(words)
            place, must = properties, required
            for part in outer:
                inner = place.setdefault(part, {"type": "object", "properties": {}})
                if parameter.required and part not in must:
                    must.append(part)
                must = inner.setdefault("required", [])
                place = inner["properties"]
            if leaf in place:
                if parameter.path in needed or parameter.required:
                    leaf = parameter.path.split(".")[-1]
                else:
                    continue
            place[leaf] = schema
            if parameter.required:
                must.append(leaf)
            names[parameter.path] = ".".join((*outer, leaf))
            shown.append(parameter)
        for schema in properties.values():
            if schema.get("required") == []:
                del schema["required"]
        function = {"name": write_name(rng.choice(tool.names), tool.domain, style)}
        if not (lean and rng.random() < 0.3):
            function["description"] = rng.choice(tool.descriptions)
        function["parameters"] = {"type": "object", "properties": properties}
        if required:
            function["parameters"]["required"] = required
        return Concrete(tool, function, names, shown)

    def ask(self, tool, style, phrase=None):
        """A question for `tool`, made concrete so that it can be answered."""
        rng = self.rng
        mark, parts = phrase or rng.choice(tool.phrases)
        flat = expand(rng, parts)
        # In the phrase's order: a set's differs from process to process, and with it every draw that follows.
        needed = list(dict.fromkeys(part[1] for part in flat if not isinstance(part, str)))
        concrete = self.concrete(tool, style, needed)
        drawn = {path: tool.parameter(path).draw(rng) for path in needed if tool.parameter(path).kind != "bool" and any(p[0] == "ref" and p[1] == path for p in flat if not isinstance(p, str))}
        asked = Asked(mark, "", concrete=concrete, flat=flat, drawn=drawn)
        self.realize(asked, drawn)
        return asked

    def realize(self, asked, drawn, texts=None):
        out, told = [], {}
        for part in asked.flat:
            if isinstance(part, str):
                out.append(part)
            elif part[0] == "ref":
                out.append((texts or {}).get(part[1], drawn[part[1]][0]))
                told[part[1]] = drawn[part[1]][1]
            else:
                out.append(part[3])
                told[part[1]] = part[2]
        asked.text = re.sub(r" +([,.?!])", r"\1", "".join(out)) if "\n" not in "".join(out) else "".join(out)
        asked.calls = [self.call(asked.concrete, told)]

    def call(self, concrete, told):
        arguments = {}
        for parameter in concrete.shown:
            if parameter.path in told:
                *outer, leaf = concrete.names[parameter.path].split(".")
                place = arguments
                for part in outer:
                    place = place.setdefault(part, {})
                place[leaf] = told[parameter.path]
        return (concrete.name, arguments)

    def spread(self, asked):
        """Turns a question for one thing into one for several, if its tool has a parameter for that."""
        rng = self.rng
        paths = [p.path for p in asked.concrete.shown if p.spread and p.path in asked.drawn]
        if not paths:
            return False
        path = paths[0]
        parameter = asked.concrete.tool.parameter(path)
        pairs, seen = [], set()
        for _ in range(rng.choices((2, 3, 4), (65, 28, 7))[0]):
            pair = parameter.draw(rng)
            if str(pair[1]) not in seen and not (parameter.kind == "sentence"):
                seen.add(str(pair[1]))
                pairs.append(pair)
        if len(pairs) < 2:
            return False
        text = enumerate_text(rng, [text for text, _ in pairs])
        calls = []
        for pair in pairs:
            self.realize(asked, {**asked.drawn, path: pair}, {path: text})
            calls += asked.calls
        asked.calls = calls
        return True

    # What the user writes

    def wrap(self, asked):
        rng = self.rng
        text = asked.text.strip()
        if self.plain:
            if asked.open:
                return text[0].upper() + text[1:]
            return text if asked.mark == "?" else text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")
        if asked.mark == "!":
            ends = text[-1] in ".!?"
            pattern = rng.choice(phrasing.COMMANDS)
            while asked.open and not pattern.endswith("{}"):
                pattern = rng.choice(phrasing.COMMANDS)
            if ends and pattern.endswith("{}."):
                pattern = pattern[:-1]
            text = pattern.format(text.replace("{", "{{").replace("}", "}}")).replace("{{", "{").replace("}}", "}") if "{" in text else pattern.format(text)
            if pattern.startswith("{}") and rng.random() < 0.7:
                text = text[0].upper() + text[1:]
            return text
        before, after = rng.choice(phrasing.BEFORE), "" if asked.open else rng.choice(phrasing.AFTER)
        if before.endswith((", ", ": ")) and rng.random() < 0.6 and not re.match(r"I\b|[A-Z]{2}", text) and isinstance(asked.flat[0], str) and asked.flat[0]:
            text = text[0].lower() + text[1:]
        if text.endswith("?") and not after and not asked.open and rng.random() < 0.12:
            text = text[:-1]
        if after and text[-1] not in ".?!":
            text += "."
        text = before + text + after
        if rng.random() < 0.06 and isinstance(asked.flat[0], str) and asked.flat[0]:
            text = text[0].lower() + text[1:]
        return text

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
            second = rng.choice(("Please {}", "Also, {}", "And {}", "Then {}")).format("\x01").replace("\x01", second) + ("" if b.open else ".")
        else:
            second = rng.choice(("", "", "And ", "Also: ")) + second
        return f"{first} {second}" if not self.plain else f"{first} {second[0].upper() + second[1:]}"

    # Tools around the right one

    def source(self):
        """Some tool: from the tables, of verbs and nouns, or of invented words."""
        rng = self.rng
        if self.plain:
            return rng.choice(self.tools)
        kind = rng.random()
        if kind < self.share[0]:
            return rng.choice(self.tools)
        if kind < self.share[1]:
            return procedural.topic_tool(rng)
        return procedural.random_tool(rng)

    share = (0.5, 0.8)
    most = 8

    def distractors(self, used, count, style, strangers=False):
        """Tools that do not answer: of the same domain (unless `strangers`), of others, procedural."""
        rng = self.rng
        found, taken = [], {concrete.name for concrete in used}
        tools = [concrete.tool for concrete in used]
        for _ in range(count * 4):
            if len(found) >= count:
                break
            kind = rng.random()
            if tools and kind < 0.4 and not strangers:
                pick = rng.choice(tools)
                siblings = [tool for tool in self.domains.get(pick.domain, []) if tool not in tools]
                if siblings:
                    tool = rng.choice(siblings)
                elif pick.domain in procedural.NOUNS and not self.plain:
                    tool = procedural.near(rng, pick)
                    if tool.names[0].split(" ", 1)[0] in next((group for group in procedural.VERBS if pick.names[0].startswith(group)), ()):
                        continue
                else:
                    continue
            elif self.plain or kind < 0.8:
                tool = rng.choice(self.tools)
            else:
                tool = procedural.topic_tool(rng) if rng.random() < 0.6 else procedural.random_tool(rng)
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
        return min(self.most, self.rng.choices((1, 2, 3, 4, 5, 6, 7, 8), (24, 26, 18, 12, 8, 5, 4, 3))[0])

    def toolset(self, used, extra, style):
        concretes = used + self.distractors(used, extra, style)
        self.rng.shuffle(concretes)
        return [{"type": "function", "function": concrete.function} for concrete in concretes]

    # Conversations

    def start(self, text):
        rng = self.rng
        messages = [{"role": "user", "content": text}]
        if not self.plain and rng.random() < 0.2:
            messages.insert(0, {"role": "system", "content": rng.choice(phrasing.SYSTEMS)})
        return messages

    def speak(self, calls):
        return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}} for name, arguments in calls]}

    def simple(self):
        style = self.style()
        asked = self.ask(self.source(), style)
        tools = self.toolset([asked.concrete], self.count() - 1, style)
        return Row("simple" if len(tools) == 1 else "multiple", self.start(self.wrap(asked)) + [self.speak(asked.calls)], tools), asked

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
        return Row("irrelevance", self.start(self.wrap(asked)) + [{"role": "assistant", "content": rng.choice(phrasing.NO_TOOL)}], tools), None

    def talk(self):
        rng = self.rng
        question, answer = rng.choice(phrasing.TALK)
        tools = [] if rng.random() < 0.3 else self.toolset([], self.count(), self.style())
        return Row("talk", self.start(question) + [{"role": "assistant", "content": answer}], tools), None

    def toolless(self):
        """A request, but no tools at all."""
        asked = self.ask(self.rng.choice(self.tools), "snake")
        return Row("irrelevance", self.start(self.wrap(asked)) + [{"role": "assistant", "content": "I have no tools to do that."}], []), None

    def result(self, tool, drawn):
        """A tool's result and the answer to it."""
        rng = self.rng
        if tool.results and rng.random() < 0.75:
            pairs, answer = rng.choice(tool.results)
            values = {}
            for name, pool in pairs:
                values[name] = draw_value(rng, pool)
            told = {**{path: pair[0] for path, pair in drawn.items() if "." not in path}, **{name: str(value) for name, value in values.items()}}
            return json.dumps(values, ensure_ascii=False), answer.format(**told)
        values = {}
        for _ in range(rng.choice((1, 1, 2, 2, 3))):
            name = rng.choice(procedural.PLAIN + ["status", "id", "result", "total", "state", "price", "date", "message", "url"])
            values[name] = draw_value(rng, rng.choice(("invented", "id", "int(0,999)", "num(-9,99)", "sentence", "city", "date", "ok|done|success|created")))
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
        flat = [path for path in (asked.drawn if asked else {}) if isinstance(asked.drawn[path][1], (str, int, float)) and "." not in path]
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
        error = rng.choice(("{key}: {old} is not known. Did you mean {new}?", "invalid value {old} for {key}, use {new}", "{old} is not available; try {new} as {key}", "unknown {key} {old}, closest match: {new}", "{key} must be {new}")).format(key=key, old=shown_old, new=shown_new)
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

    MIX = [("simple", 50), ("parallel_same", 12), ("parallel_two", 10), ("unfit", 9), ("talk", 3), ("toolless", 1), ("answered", 6), ("answered_parallel", 2), ("corrected", 4), ("again", 5)]

    def row(self, index):
        """Training row number `index`. Early ones have few tools, mostly procedural, so that copying is learned first."""
        rng = self.rng
        if index < CURRICULUM[1]:
            self.share, self.most = (0.3, 0.6), 1 if index < CURRICULUM[0] else 2
            kind = "simple" if rng.random() < 0.85 else rng.choice(("parallel_same", "answered", "unfit"))
        else:
            self.share, self.most = (0.5, 0.8), 3 if index < CURRICULUM[2] else 8
            kind = rng.choices([name for name, _ in self.MIX], [share for _, share in self.MIX])[0]
        if rng.random() < 0.03:
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
        if self.rng.random() < 0.35:
            self.spread(asked)
        tools = self.toolset([asked.concrete], self.rng.choice((0, 0, 1, 2)), style)
        return Row("demo", self.start(self.wrap(asked)) + [self.speak(asked.calls)], tools)


def draw_value(rng, pool):
    from .pools import draw

    if "|" in pool:
        return rng.choice(pool.split("|"))
    return draw(rng, pool)[1]


def questions(row):
    return [message["content"] for message in row.messages if message["role"] == "user"]


def rows(tools, count, seed, barred=frozenset()):
    """`count` training rows. `barred` holds the suite's tool names and questions; a row with one of them is left out."""
    rng = random.Random(seed)
    sampler = Sampler(tools, rng)
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
