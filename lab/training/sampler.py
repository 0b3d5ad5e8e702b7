"""Makes the tools of the tables concrete, and asks for them: what the training data and the suite have in common.

A conversation sees a tool with a name in some style, some of its descriptions and some of its optional parameters. A
question is one reading of one of the tool's phrasings with values drawn for its parameters, so the calls that answer
it are known.
"""

import re
from dataclasses import dataclass, field

from .tables import enumerate_text, expand

# Values that may hold any punctuation: nothing may be written right after one unless it is quoted.
FREE = {"sentence", "code", "command", "query", "phrase", "remark", "icing"}


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
    def __init__(self, tools, rng):
        self.tools, self.rng = tools, rng
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
            *outer, leaf = (
                parameter.path if rng.random() < 0.5 or "." in parameter.path else rng.choice(parameter.names)
            ).split(".")
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

    def draw(self, parameter):
        return parameter.draw(self.rng)

    def ask(self, tool, style, phrase=None):
        """A question for `tool`, made concrete so that it can be answered."""
        rng = self.rng
        mark, parts = phrase or rng.choice(tool.phrases)
        flat = expand(rng, parts)
        # In the phrase's order: a set's differs from process to process, and with it every draw that follows.
        needed = list(dict.fromkeys(part[1] for part in flat if not isinstance(part, str)))
        concrete = self.concrete(tool, style, needed)
        drawn = {
            path: self.draw(tool.parameter(path))
            for path in needed
            if tool.parameter(path).kind != "bool"
            and any(p[0] == "ref" and p[1] == path for p in flat if not isinstance(p, str))
        }
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
                # What is text is text also where it looks like a number; one item makes a list of one.
                type = asked.concrete.tool.parameter(part[1]).schema()["type"]
                told[part[1]] = str(part[2]) if type == "string" else [part[2]] if type == "array" else part[2]
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
            pair = self.draw(parameter)
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
