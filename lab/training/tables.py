"""Reads the domain tables: tools written by hand, the phrasings that ask for them, and the values they mention.

% river = Rhine|Nile                               a list of values of the table's own
@ weather                                          a domain
get weather, weather forecast : Get the weather.   a tool: names, then descriptions with " / " between them
- city, location! *city : Where / The city         a parameter: names, `!` required, `*` may be asked for several
                                                   times at once; a pool of pools.py, a|b|c for an enum, [pool] for
                                                   an array, <{n} {x}; n=int(1,9); x=food> for an array of objects;
                                                   a dotted name lies in a nested object
? What's the (weather|forecast) in {city}[ {date}]?  a question; (this|that), [perhaps], {parameter}
! turn the {device} {state=on:on}                  a command in the imperative; {parameter=value:text}
= temperature=int(-9,40) => It is {temperature} degrees in {city}.    a result and the answer to it
"""

import json
import random
from dataclasses import dataclass, field
from pathlib import Path

from . import pools


@dataclass
class Parameter:
    path: str
    names: list
    kind: str
    required: bool
    spread: bool
    descriptions: list
    # Whether a value tells by itself what it is for.
    telling: bool = False

    def schema(self, leaf=True):
        kind = self.kind
        if "|" in kind and kind[0] not in "<[":
            return {"type": "string", "enum": kind.split("|")}
        if kind.startswith("["):
            inner = "integer" if kind.startswith("[int(") else "number" if kind.startswith("[num(") else "string"
            return {"type": "array", "items": {"type": inner}}
        if kind.startswith("<"):
            fields = dict(part.strip().split("=") for part in kind[1:-1].split(";")[1:])
            items = {name: {"type": plain_type(pool)} for name, pool in fields.items()}
            return {"type": "array", "items": {"type": "object", "properties": items, "required": list(items)}}
        return {"type": plain_type(kind)}

    def draw(self, rng):
        kind = self.kind
        if kind.startswith("["):
            pairs = [pools.draw(rng, kind[1:-1]) for _ in range(rng.choice((1, 2, 2, 3, 3, 4)))]
            return enumerate_text(rng, [text for text, _ in pairs]), [value for _, value in pairs]
        if kind.startswith("<"):
            pattern, *fields = [part.strip() for part in kind[1:-1].split(";")]
            texts, values = [], []
            for _ in range(rng.choice((1, 2, 2, 3))):
                drawn = {name: pools.draw(rng, pool) for name, pool in (part.split("=") for part in fields)}
                texts.append(pattern.format(**{name: pair[0] for name, pair in drawn.items()}))
                values.append({name: pair[1] for name, pair in drawn.items()})
            return enumerate_text(rng, texts), values
        return pools.draw(rng, kind)


def plain_type(kind):
    return (
        "integer"
        if kind.startswith("int(")
        else "number"
        if kind.startswith("num(")
        else "boolean"
        if kind == "bool"
        else "string"
    )


def enumerate_text(rng, texts):
    if len(texts) == 1:
        return texts[0]
    if rng.random() < 0.1:
        return ", ".join(texts)
    last = rng.choice((" and ", " and ", ", and ")) if len(texts) > 2 else " and "
    return ", ".join(texts[:-1]) + last + texts[-1]


@dataclass
class Tool:
    domain: str
    names: list
    descriptions: list
    parameters: list = field(default_factory=list)
    phrases: list = field(default_factory=list)
    results: list = field(default_factory=list)

    def parameter(self, path):
        for parameter in self.parameters:
            if parameter.path == path:
                return parameter
        raise KeyError(f"{self.names[0]}: no parameter {path}")


def parse_phrase(text):
    """A phrase as nested lists: text, ("ref", path), ("set", path, value, text), ("maybe", parts), ("either", branches)."""

    def parts(at, closing):
        branches, found, plain = [], [], ""
        while at < len(text):
            letter = text[at]
            if letter in closing:
                break
            if letter == "|" and closing == ")":
                found.append(plain)
                branches.append(found)
                found, plain, at = [], "", at + 1
            elif letter in "([":
                inner, at = parts(at + 1, ")" if letter == "(" else "]")
                found.append(plain)
                found.append(("either", inner) if letter == "(" else ("maybe", inner[0]))
                plain = ""
            elif letter == "{":
                end = text.index("}", at)
                found.append(plain)
                plain = ""
                body = text[at + 1 : end]
                if "=" in body:
                    path, rest = body.split("=", 1)
                    value, shown = rest.split(":", 1)
                    try:
                        value = json.loads(value)
                    except ValueError:
                        pass
                    found.append(("set", path, value, shown))
                else:
                    found.append(("ref", body))
                at = end + 1
            else:
                plain += letter
                at += 1
        found.append(plain)
        branches.append(found)
        return branches, at + 1

    return parts(0, "\0")[0][0]


def expand(rng, parts):
    """One reading of a phrase: a flat list of texts, refs and sets."""
    flat = []
    for part in parts:
        if isinstance(part, str):
            flat.append(part)
        elif part[0] == "either":
            flat.extend(expand(rng, rng.choice(part[1])))
        elif part[0] == "maybe":
            if rng.random() < 0.5:
                flat.extend(expand(rng, part[1]))
        else:
            flat.append(part)
    return flat


def load(*paths):
    """The tools of the tables, checked: every phrase names known parameters and gives all that are required."""
    tools, domain = [], None
    for path in paths:
        for number, line in enumerate(Path(path).read_text().splitlines(), 1):
            line = line.rstrip()
            try:
                if not line or line.startswith("#"):
                    continue
                mark, rest = line[0], line[2:].strip()
                if mark == "%":
                    name, values = rest.split(" = ", 1)
                    pools.LISTS[name] = values.replace("\\n", "\n")
                elif mark == "@":
                    domain = rest
                elif mark == "-":
                    tools[-1].parameters.append(parse_parameter(rest))
                elif mark in "?!" and line[1] == " ":
                    tools[-1].phrases.append((mark, parse_phrase(rest)))
                elif mark == "=":
                    fields, answer = rest.split(" => ")
                    pairs = [part.strip().split("=", 1) for part in fields.split(";")]
                    tools[-1].results.append((pairs, answer))
                else:
                    names, descriptions = line.split(" : ")
                    tools.append(Tool(domain, names.split(", "), descriptions.split(" / ")))
            except Exception as error:
                raise ValueError(f"{path}:{number}: {line}: {error}") from error
    for tool in tools:
        check(tool)
    return tools


def parse_parameter(text):
    head, _, descriptions = text.partition(" : ")
    names, kind = head.rsplit(" ", 1) if "<" not in head else head.split(" <", 1)
    kind = kind if "<" not in head else "<" + kind
    required = names.endswith("!")
    names = [name.strip() for name in names.rstrip("!").split(",")]
    spread = kind.startswith("*")
    return Parameter(names[0], names, kind.lstrip("*"), required, spread, [d for d in descriptions.split(" / ") if d])


def told(parts):
    """The parameters that a phrase gives in some reading, and those that it gives in every one."""
    some, every = set(), set()
    for part in parts:
        if isinstance(part, str):
            continue
        if part[0] == "either":
            somes, everys = zip(*map(told, part[1]))
            some.update(*somes)
            every.update(set.intersection(*everys))
        elif part[0] == "maybe":
            some |= told(part[1])[0]
        else:
            some.add(part[1])
            every.add(part[1])
    return some, every


def check(tool):
    rng = random.Random(0)
    if not tool.phrases:
        raise ValueError(f"{tool.names[0]}: no phrase")
    required = {parameter.path for parameter in tool.parameters if parameter.required}
    for _, phrase in tool.phrases:
        some, every = told(phrase)
        for path in some:
            tool.parameter(path)
        if not required <= every:
            raise ValueError(f"{tool.names[0]}: {phrase}: {required - every} not given")
    for parameter in tool.parameters:
        if "." not in parameter.path and "." in "".join(parameter.names):
            raise ValueError(f"{tool.names[0]}: {parameter.path} has a name inside another object")
        if parameter.kind != "bool":
            parameter.draw(rng)
    for pairs, _ in tool.results:
        for _, pool in pairs:
            pools.draw(rng, pool)
