"""The data: scenes, each a set of tools under which several people ask.

The branches of a scene share their prefix, so that training reads the tools once for all of them. They differ in what
fits: the same tools see a question for each of them, questions for several at once, and questions that none answers.
"""

import json
import random
import re
from dataclasses import dataclass, field

from . import keywords, phrasing, plain, pools, procedural, related, reword, sampler, tables
from .sampler import Asked, Sampler, camel, write_name
from .strange import Strange
from .tables import enumerate_text, expand

NO_TOOL = "None of the available tools can do that."
# So many scenes come first with one or two tools, most of them procedural: copying is learned there.
EASY = 3000
# So many scenes at the end are mostly about what a first user asks for, with the examples' and the built-in tools: what
# comes last stays best.
LAST = 1200
# The domains of these, with how many of their tools are meant.
FIRST_ASKED = {"weather": 1, "desk": 2}
# So many of the tables' tools are chosen among those with objects in their arguments.
NESTED = 0.25
# So many among those that are told free text, of which the tables have few, though people ask for it a lot.
WORDY = 0.12
# So many questions are in their tool's own words: the phrasings of the tables are far from them, and of those that are
# furthest a network this small learns only to guess.
PLAIN = 0.12
# So many values, tool names and parameters are strange words.
STRANGE_VALUES, STRANGE_NAMES, STRANGE_KEYS = 0.25, 0.04, 0.05
# So many of the tables' tools have other words than in the tables.
REWORDED = 0.1
# So many scenes are of short questions that a word or two decide.
MATCHING = 0.08
# So many of them by words that only have to do with the tool's.
NEAR = 0.5
# So many of the other questions that a tool fits have a word or two that only have to do with those of the tables, and so many
# that none fits words that have to do with no tool: of a topic that it never saw, a network knows no more than that.
AKIN, FOREIGN = 0.2, 0.35
# Among so many of its related words, the closest, a word is changed for another.
CLOSEST = 3
# So many results say that the tool failed.
FAILED = 0.12
# Of two questions for a tool the one that tells more is asked so often: the tables have many that tell one thing.
FULLER = 0.4
# After so many results the same call is made again, and answered with the engine's remark.
MADE_AGAIN = 0.05


@dataclass(frozen=True)
class Mix:
    """What scenes are made of."""

    # How often there is one tool, how often there are two, and so on.
    tools: tuple
    # At least and at most so many questions, and one more for every two tools.
    questions: tuple
    # How often each kind of question.
    kinds: dict
    # Up to where of 1 tools come from the tables, and up to where from `procedural`'s topics; beyond are tools of random words.
    share: tuple = (0.88, 0.97)


EASY_MIX = Mix((2, 1), (5, 7), {"simple": 80, "parallel_same": 10, "unfit": 10}, (0.3, 0.6))
# More that no tool fits than anybody asks: a network that is unsure shall refuse rather than call.
MIXES = {
    "all": Mix(
        (20, 22, 18, 14, 10, 7, 5, 4),
        (6, 8),
        {
            "simple": 34,
            "choice": 32,
            "parallel_same": 16,
            "parallel_two": 14,
            "unfit": 90,
            "talk": 2,
            "answered": 7,
            "answered_parallel": 9,
            "corrected": 5,
            "again": 6,
        },
    ),
    # For a shorter run at the end: mostly whether a tool fits, and which.
    "decisions": Mix(
        (22, 22, 18, 13, 9, 7, 5, 4),
        (7, 9),
        {
            "simple": 30,
            "choice": 44,
            "parallel_same": 12,
            "parallel_two": 10,
            "unfit": 120,
            "talk": 2,
            "answered": 6,
            "answered_parallel": 6,
            "corrected": 4,
            "again": 5,
        },
    ),
}


@dataclass
class Scene:
    system: str
    tools: list
    style: str
    # (category, the messages that follow the system message)
    branches: list = field(default_factory=list)

    def names(self):
        return {tool["function"]["name"] for tool in self.tools}


def spoken(calls):
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"type": "function", "function": {"name": name, "arguments": arguments}} for name, arguments in calls
        ],
    }


def user(text):
    return {"role": "user", "content": text}


def said(text):
    return {"role": "assistant", "content": text}


# What is made by rule rather than taken from a list keeps its form.
FORMED = set(pools.MAKERS) - {"invented", "user", "id"}
FORMED |= {"date", "bool", "expression", "command", "query", "regex", "given", "family"}


class Scenes(Sampler):
    def __init__(self, tools, rng, tokens=()):
        super().__init__(tools, rng)
        texts = [text for tool in tools for text in (*tool.names, *tool.descriptions, tool.domain)]
        texts += [part for tool in tools for _, phrase in tool.phrases for part in phrase if isinstance(part, str)]
        texts += [*pools.LISTS.values(), *procedural.NOUNS, *phrasing.COMMANDS]
        self.strange = Strange(rng, texts, tokens)
        # Brackets in brackets are what a network this small closes wrongly, and the tables have few of them.
        self.nested = [tool for tool in tools if any("." in p.path or p.kind[0] == "<" for p in tool.parameters)]
        # Lists of whole sentences, whose values end only where the message or a quotation does, and what else is free text.
        self.endless = sampler.FREE | {
            name
            for name, values in pools.LISTS.items()
            if sum(value[-1:] in ".!?" or "\n" in value for value in values.split("|")) > 2
        }
        self.wordy = [tool for tool in tools if any(p.kind in self.endless for p in tool.parameters)]
        self.foreigners = sorted({word for others in related.read().values() for word in others})
        self.labels = procedural.labels(tools)
        self.verbs = plain.verbs(tools)
        # The words of a scene's tools, by their stems, and those with what they have to do with.
        self.said, self.known = set(), set()
        self.dated = False
        self.index = {id(tool): place for place, tool in enumerate(tools)}

    # Values and names

    def draw(self, parameter):
        rng, kind = self.rng, parameter.kind
        text, value = parameter.draw(rng)
        if kind.startswith("[") and not kind.startswith(("[int(", "[num(")):
            if rng.random() < 0.3:
                value = [self.strange.name() if rng.random() < 0.7 else item for item in value]
                if not any(" and " in item or "," in item for item in value):
                    return enumerate_text(rng, value), value
            return text, value if isinstance(value, list) else [value]
        if not isinstance(value, str) or "|" in kind or kind.startswith("<") or parameter.telling:
            return text, value
        chance = rng.random()
        if kind in self.endless:
            if chance < 0.45 and kind not in FORMED:
                value = self.strange.sentence()
                return value, value
        elif chance < (0.08 if kind in FORMED else STRANGE_VALUES) and kind not in ("date", "time"):
            value = self.strange.name() if chance > 0.05 else self.strange.identifier()
            return value, value
        return text, value

    def open(self, asked):
        last = [part for part in asked.flat if part != ""][-1:]
        return bool(last) and last[0][0] == "ref" and asked.concrete.tool.parameter(last[0][1]).kind in self.endless

    def source(self):
        rng = self.rng
        kind = rng.random()
        if kind < self.share[0]:
            ways = (self.nested, self.wordy, self.tools)
            [tools] = rng.choices(ways, (NESTED, WORDY, 1 - NESTED - WORDY))
            return self.reworded(rng.choice(tools or self.tools))
        if kind < self.share[1]:
            if rng.random() < 0.55:
                return procedural.labelled_tool(rng, self.labels)
            noun = self.strange.key() if rng.random() < 0.4 else None
            return procedural.topic_tool(rng, noun)
        return procedural.random_tool(rng, self.strange.key)

    def reworded(self, tool):
        return reword.reworded(self.rng, tool, self.strange.letters) if self.rng.random() < REWORDED else tool

    def concrete(self, tool, style, needed=(), lean=None):
        """As one scene sees it; now and then with names that only the signature tells."""
        rng = self.rng
        made = super().concrete(tool, style, needed, lean)
        function = made.function
        function["parameters"]["properties"] = strip(function["parameters"]["properties"])
        if rng.random() < STRANGE_NAMES and "description" in function:
            function["name"] = write_name(self.strange.key(), tool.domain, style)
        if rng.random() < STRANGE_KEYS:
            self.rename(made, style)
        return made

    def rename(self, made, style):
        """Gives a parameter that is the only one of its type a name without meaning."""
        properties = made.function["parameters"]["properties"]
        flat = [parameter for parameter in made.shown if "." not in made.names[parameter.path]]
        types = {parameter.path: json.dumps(properties[made.names[parameter.path]]) for parameter in flat}
        alone = [path for path in types if list(types.values()).count(types[path]) == 1]
        if not alone:
            return
        path = self.rng.choice(alone)
        words = self.strange.key().split()
        new, old = camel(words) if style == "camel" else "_".join(words), made.names[path]
        if new in properties or properties[old].get("type") == "boolean":
            return
        made.function["parameters"]["properties"] = {
            new if name == old else name: schema for name, schema in properties.items()
        }
        required = made.function["parameters"].get("required", [])
        required[:] = [new if name == old else name for name in required]
        made.names[path] = new

    # Questions

    def pose(self, concrete, fits=True):
        """A question that the tool answers as the scene shows it; None if its phrases want hidden parameters.

        Without `fits` no tool of the scene is to be found by its words.
        """
        rng, tool = self.rng, concrete.tool
        for _ in range(12):
            made = rng.random() < PLAIN and plain.question(rng, concrete, self.verbs, self.endless)
            if made:
                mark, flat = made
            else:
                mark, parts = rng.choice(tool.phrases)
                flat = expand(rng, parts)
            if rng.random() < (AKIN if fits else FOREIGN):
                flat = self.akin(flat) if fits else self.foreign(flat)
            needed = list(dict.fromkeys(part[1] for part in flat if not isinstance(part, str)))
            if not all(path in concrete.names for path in needed):
                continue
            given = {part[1] for part in flat if not isinstance(part, str) and part[0] == "ref"}
            drawn = {path: self.draw(tool.parameter(path)) for path in needed if path in given}
            asked = Asked(mark, "", concrete=concrete, flat=flat, drawn=drawn)
            self.realize(asked, drawn)
            # Spaces before punctuation are taken out of the text, and must not have been a value's.
            if all(text in asked.text for text, _ in drawn.values()) and not (self.dated and self.undated(asked)):
                return asked
        return None

    def akin(self, flat):
        """A phrase with related words, which no tool has, instead of a word or two."""
        rng = self.rng
        words = {}
        for stem in sorted(reword.stems(*reword.texts(flat))):
            others = [word for word in related.read().get(stem, ())[:CLOSEST] if reword.stem(word) not in self.said]
            if others:
                words[stem] = rng.choice(others)
        chosen = rng.sample(sorted(words), min(len(words), rng.choice((1, 1, 2))))
        return reword.within(flat, {stem: words[stem] for stem in chosen})

    def foreign(self, flat):
        """A phrase with words that have to do with no tool instead of some or all."""
        rng = self.rng
        share = rng.choice((0.4, 0.7, 1))
        words = {}
        for stem in sorted(reword.stems(*reword.texts(flat))):
            word = rng.choice(self.foreigners) if rng.random() < 0.7 else self.strange.letters().lower()
            if rng.random() < share and reword.stem(word) not in self.known:
                words[stem] = word
        return reword.within(flat, words)

    def undated(self, asked):
        """Whether a question could have named a day in passing, which a model this small forgets first, and does not."""
        day = asked.drawn.get("date")
        return "date" in asked.concrete.names and (not day or day[0].startswith("on ")) and self.rng.random() < 0.7

    def wrap(self, asked):
        rng, text = self.rng, asked.text.strip()
        open = self.open(asked)
        if asked.mark == "!":
            patterns = [p for p in phrasing.COMMANDS if p.endswith("{}")] if open else phrasing.COMMANDS
            before, after = rng.choice(patterns).split("{}")
            if text[-1] in ".!?" and after == ".":
                after = ""
            text = before + text + after
            return capital(text, asked) if not before and rng.random() < 0.7 else text
        before = rng.choice(phrasing.BEFORE)
        after = "" if open else rng.choice(phrasing.AFTER)
        starts = isinstance(asked.flat[0], str) and asked.flat[0]
        if before.endswith((", ", ": ")) and starts and rng.random() < 0.6 and not re.match(r"I\b|[A-Z]{2}", text):
            text = text[0].lower() + text[1:]
        if text.endswith("?") and not after and not open and rng.random() < 0.12:
            text = text[:-1]
        if after and text[-1] not in ".?!":
            text += "."
        text = before + text + after
        return text[0].lower() + text[1:] if starts and not before and rng.random() < 0.08 else text

    def joined(self, a, b):
        """Two requests in one message."""
        rng = self.rng
        if a.mark == b.mark == "!":
            joints = [j for j in phrasing.JOINTS if j.endswith("{}")] if self.open(b) else phrasing.JOINTS
            first, middle, last = re.split(r"\{\}", rng.choice(joints))
            text = first + a.text + middle + b.text + last
            return self.wrap(Asked("!", text, concrete=b.concrete, flat=["x", *b.flat]))
        first = capital(a.text, a) + ("." if a.mark == "!" and a.text[-1] not in ".?!" else "")
        second = b.text
        if b.mark == "!":
            before = rng.choice(("Please ", "Also, ", "And ", "Then ", "", ""))
            second = (before + second if before else capital(second, b)) + ("" if self.open(b) else ".")
        else:
            second = rng.choice(("", "", "And ", "Also: ")) + second
        return f"{first} {second}"

    # Branches: each takes the scene's tools and gives (category, messages), or None where it cannot be had

    def simple(self, concretes):
        concrete = self.rng.choice(concretes)
        asked = self.pose(concrete)
        if asked and self.rng.random() < FULLER:
            asked = max(asked, self.pose(concrete) or asked, key=lambda made: len(made.calls[0][1]))
        return asked and ("call", [user(self.wrap(asked)), spoken(asked.calls)], asked)

    def choice(self, concretes):
        """A question whose call is read up to the tool's name: choosing is hard, and cheap to show."""
        made = self.simple(concretes)
        return made and ("choice", *made[1:])

    def parallel_same(self, concretes):
        able = [c for c in concretes if any(parameter.spread for parameter in c.shown)]
        for _ in range(6 if able else 0):
            asked = self.pose(self.rng.choice(able))
            if asked and self.spread(asked):
                return "parallel", [user(self.wrap(asked)), spoken(asked.calls)], asked
        return None

    def parallel_two(self, concretes):
        if len(concretes) < 2:
            return None
        a, b = (self.pose(concrete) for concrete in self.rng.sample(concretes, 2))
        if not a or not b or self.open(a) and self.open(b):
            return None
        if self.open(a):
            a, b = b, a
        if self.rng.random() < 0.15:
            # Two for one and one for the other.
            self.spread(self.rng.choice((a, b)))
        return "parallel", [user(self.joined(a, b)), spoken(a.calls + b.calls)], None

    def unfit(self, concretes):
        """A question for a tool that is not offered; often one of the same domain, or of the same words."""
        rng = self.rng
        offered = [concrete.tool for concrete in concretes]
        names = {name for tool in offered for name in tool.names}
        for _ in range(8):
            near = rng.choice(offered)
            kind = rng.random()
            close = kind < 0.4
            if close:
                siblings = [tool for tool in self.domains.get(near.domain, []) if tool not in offered]
                if siblings:
                    tool = self.reworded(rng.choice(siblings))
                elif near.domain in procedural.NOUNS:
                    tool = procedural.near(rng, near)
                    if any(same_verb(tool, other) for other in offered):
                        continue
                else:
                    continue
            elif kind < 0.88:
                tool = self.reworded(rng.choice(self.tools))
            else:
                tool = self.source()
            if (
                # The same parameters: a tool and what it was before it was reworded, which would do.
                any(tool.parameters is other.parameters for other in offered)
                or names & set(tool.names)
                or (not close and any(tool.domain == t.domain for t in offered))
            ):
                continue
            asked = self.pose(Sampler.concrete(self, tool, "snake", [p.path for p in tool.parameters]), fits=False)
            if not asked:
                continue
            if rng.random() < 0.1 and not self.open(asked):
                self.spread(asked)
            return "irrelevance", [user(self.wrap(asked)), said(NO_TOOL)], None
        return None

    def talk(self, concretes):
        question, answer = self.rng.choice(phrasing.TALK)
        return "talk", [user(question), said(answer)], None

    def result(self, concrete, drawn):
        """A tool's result and the answer to it."""
        rng, tool = self.rng, concrete.tool
        if rng.random() < FAILED:
            return self.failure(concrete.name, drawn)
        if tool.results and rng.random() < 0.75:
            pairs, answer = rng.choice(tool.results)
            values = {name: pools.draw(rng, pool)[1] for name, pool in pairs}
            told = {path: pair[0] for path, pair in drawn.items() if "." not in path}
            told |= {name: str(value) for name, value in values.items()}
            try:
                answer = answer.format(**told)
                return self.reported(values, answer), answer
            except (KeyError, IndexError):
                # The answer repeats a parameter that this question left out.
                pass
        names = procedural.PLAIN + ["status", "id", "result", "total", "state", "price", "date", "message", "url"]
        kinds = ("invented", "id", "int(0,999)", "num(-9,99)", "sentence", "city", "date", "ok|done|success|created")
        values = {}
        for _ in range(rng.choice((1, 1, 2, 2, 3))):
            name = rng.choice(names) if rng.random() < 0.7 else self.strange.letters()
            values[name] = pools.draw(rng, rng.choice(kinds))[1] if rng.random() < 0.7 else self.strange.name()
        if rng.random() < 0.2:
            value = next(iter(values.values()))
            return str(value), f"The result is {value}."
        text = enumerate_text(rng, [f"the {name} is {value}" for name, value in values.items()])
        text = text[0].upper() + text[1:] + "."
        return self.reported(values, text), text

    def failure(self, name, drawn):
        """A failure that no other call would mend, as callwright or a service tells it, and what is said of it."""
        rng = self.rng
        told = [pair[0] for pair in drawn.values() if len(pair[0]) < 40]
        reason = rng.choice(phrasing.FAILURES).replace("{}", rng.choice(told) if told else "this")
        content = rng.choice(
            (
                f"error: {name} failed with exit status {rng.choice((1, 1, 2, 127))}: {reason}",
                f"error: {reason}",
                json.dumps({"error": reason}, ensure_ascii=False),
            )
        )
        return content, f"That did not work: {reason}."

    def reported(self, values, answer):
        """A result as a tool writes it: mostly JSON, but also text, which may say all that there is to say."""
        kind = self.rng.random()
        if kind < 0.6:
            return json.dumps(values, ensure_ascii=False)
        if kind < 0.8:
            return answer if kind < 0.75 else answer[0].lower() + answer[1:].rstrip(".")
        between, after = self.rng.choice(((", ", ": "), ("\n", ": "), ("; ", " "), (", ", "="), ("\n", " = ")))
        return between.join(f"{name}{after}{value}" for name, value in values.items())

    def answered(self, concretes):
        made = self.simple(concretes)
        if not made:
            return None
        _, messages, asked = made
        result, answer = self.result(asked.concrete, asked.drawn)
        messages.append({"role": "tool", "content": result})
        if self.rng.random() < MADE_AGAIN:
            remark = phrasing.UNAVAILABLE if result.startswith("error: ") else phrasing.REPEATED
            messages += [messages[-2], {"role": "tool", "content": f"{result}\n{remark}"}]
        return "follow-up", messages + [said(answer)], asked

    def answered_parallel(self, concretes):
        made = self.parallel_same(concretes)
        if not made or len(made[2].calls) > 3:
            return None
        _, messages, asked = made
        answers = []
        for _, arguments in asked.calls:
            told = {path: (str(arguments[name]),) for path, name in asked.concrete.names.items() if name in arguments}
            result, answer = self.result(asked.concrete, told)
            messages.append({"role": "tool", "content": result})
            answers.append(answer)
        return "follow-up", messages + [said(" ".join(answers))], asked

    def corrected(self, concretes):
        """A call that fails, and one that heeds the error."""
        rng = self.rng
        made = self.simple(concretes)
        if not made:
            return None
        _, messages, asked = made
        flat = [
            path for path, pair in asked.drawn.items() if isinstance(pair[1], (str, int, float)) and "." not in path
        ]
        if not flat:
            return None
        path = rng.choice(flat)
        parameter, (name, arguments), key = (
            asked.concrete.tool.parameter(path),
            asked.calls[0],
            asked.concrete.names[path],
        )
        old, new = arguments[key], arguments[key]
        for _ in range(5):
            if new == old:
                _, new = self.draw(parameter)
        shown = {place: json.dumps(value, ensure_ascii=False) for place, value in (("old", old), ("new", new))}
        error = rng.choice(
            (
                "{key}: {old} is not known. Did you mean {new}?",
                "invalid value {old} for {key}, use {new}",
                "{old} is not available; try {new} as {key}",
                "unknown {key} {old}, closest match: {new}",
                "{key} must be {new}",
                "{key} {old} rejected, expected {new}",
            )
        ).format(key=key, **shown)
        content = rng.choice((f"Error: {error}", json.dumps({"error": error}, ensure_ascii=False), error))
        messages += [{"role": "tool", "content": content}, spoken([(name, {**arguments, key: new})])]
        if rng.random() < 0.3:
            result, answer = self.result(asked.concrete, asked.drawn)
            messages += [{"role": "tool", "content": result}, said(answer)]
        return "follow-up", messages, None

    def again(self, concretes):
        """Call, result, answer, and a second question: the same for another value, another one, or thanks."""
        rng = self.rng
        made = self.answered(concretes)
        if not made:
            return None
        _, messages, asked = made
        kind = rng.random()
        paths = [p.path for p in asked.concrete.shown if p.spread and p.path in asked.drawn]
        if kind < 0.12:
            thanks = rng.choice(("Thanks!", "Thank you!", "thx", "Great, thanks."))
            return "follow-up", messages + [user(thanks), said("You're welcome!")], None
        if paths and kind < 0.75:
            pair = self.draw(asked.concrete.tool.parameter(paths[0]))
            text = rng.choice(phrasing.FOLLOW).replace("{}", pair[0])
            self.realize(asked, {**asked.drawn, paths[0]: pair})
            return "follow-up", messages + [user(text), spoken(asked.calls)], None
        second = (self.unfit if kind > 0.94 else self.simple)(concretes)
        return second and ("follow-up", messages + second[1], None)

    def branch(self, concretes, kinds):
        kind = self.rng.choices(list(kinds), list(kinds.values()))[0]
        made = getattr(self, kind)(concretes) or self.simple(concretes)
        return made and made[:2]

    # Scenes

    def offered(self, chosen, count, style):
        """`count` tools as one scene sees them, `chosen` among them: some of one domain, some of another."""
        rng = self.rng
        for _ in range(count * 4):
            if len(chosen) >= count:
                break
            near, kind = rng.choice(chosen), rng.random()
            siblings = [tool for tool in self.domains.get(near.domain, []) if tool not in chosen]
            if kind < 0.45 and siblings:
                tool = self.reworded(rng.choice(siblings))
            elif kind < 0.45 and near.domain in procedural.NOUNS:
                tool = procedural.near(rng, near)
                if any(same_verb(tool, other) for other in chosen):
                    continue
            else:
                tool = self.source()
            if tool not in chosen and not any(set(tool.names) & set(other.names) for other in chosen):
                chosen.append(tool)
        concretes, names = [], set()
        for tool in chosen:
            paths = [part[1] for part in expand(rng, rng.choice(tool.phrases)[1]) if not isinstance(part, str)]
            concrete = self.concrete(tool, style, paths)
            if concrete.name not in names:
                names.add(concrete.name)
                concretes.append(concrete)
        rng.shuffle(concretes)
        return concretes

    def blank(self, concretes, systems=0.15):
        """A scene that nobody has asked anything in yet."""
        rng = self.rng
        texts = [told(concrete.function) for concrete in concretes]
        self.said = keywords.stems(texts)
        self.known = related.known(texts)
        return Scene(
            rng.choice(phrasing.SYSTEMS) if rng.random() < systems else "",
            [{"type": "function", "function": concrete.function} for concrete in concretes],
            "hermes" if rng.random() < 0.33 else "delimited",
        )

    def scene(self, mix=MIXES["all"], last=False):
        rng = self.rng
        self.dated = last
        self.share = mix.share
        style = self.style()
        count = rng.choices(range(1, len(mix.tools) + 1), mix.tools)[0]
        domain = rng.choice(list(FIRST_ASKED)) if rng.random() < (0.7 if last else 0.06) else None
        asked = self.domains.get(domain, [])[: FIRST_ASKED.get(domain)]
        concretes = self.offered([rng.choice(asked) if asked else self.source()], count, style)
        scene = self.blank(concretes)
        asked = set()
        for _ in range(rng.randint(*mix.questions) + len(concretes) // 2):
            made = self.branch(concretes, mix.kinds)
            question = made and made[1][0]["content"]
            if made and question not in asked and len(json.dumps(made[1], ensure_ascii=False)) < 1800:
                asked.add(question)
                scene.branches.append(made)
        return scene

    def matching(self):
        """Many short questions that only a word or two decide: see `keywords` and `related`."""
        rng = self.rng
        self.share = (0.75, 0.85)
        concretes = self.offered([self.source()], rng.randint(2, 12), self.style())
        for concrete in concretes:
            if rng.random() < 0.5:
                concrete.function["parameters"] = {"type": "object", "properties": {}}
        scene = self.blank(concretes, systems=0.05)
        texts = [told(concrete.function) for concrete in concretes]
        own, near = keywords.own(texts), related.near(texts)
        for _ in range(14):
            place = rng.randrange(len(concretes))
            others = [word for at, mine in enumerate(own) if at != place for word in mine.values()]
            if rng.random() < 0.12:
                function = Sampler.concrete(self, self.source(), "snake").function
                mine = [word for _, word, key in keywords.words(told(function)) if key not in self.known]
                answer, others = said(NO_TOOL), []
            else:
                mine = list(own[place].values())
                if near[place] and rng.random() < NEAR:
                    mine, others = list(near[place].values()), []
                answer = spoken([(concretes[place].name, {})])
            if mine:
                text = keywords.question(rng, mine, others, self.strange.letters)
                scene.branches.append(("match", [user(text), answer]))
        return scene

    def toolless(self):
        """No tools: talk, and requests that nothing can be done about."""
        rng = self.rng
        scene = self.blank([], systems=0.3)
        for _ in range(4):
            if rng.random() < 0.5:
                scene.branches.append(self.talk([])[:2])
            else:
                asked = self.pose(Sampler.concrete(self, rng.choice(self.tools), "snake"))
                if asked:
                    scene.branches.append(
                        ("irrelevance", [user(self.wrap(asked)), said("I have no tools to do that.")])
                    )
        return scene


def capital(text, asked):
    """With a capital at its start, unless a value stands there."""
    return text[0].upper() + text[1:] if isinstance(asked.flat[0], str) and asked.flat[0] else text


def told(function):
    """A function's name and description."""
    return function["name"] + " " + function.get("description", "")


def strip(properties):
    """Schemas without descriptions: the prompt does not show them."""
    for schema in properties.values():
        schema.pop("description", None)
        if "properties" in schema:
            strip(schema["properties"])
    return properties


def same_verb(tool, other):
    """Whether two tools on one noun have verbs of one meaning, and so the same use."""
    for group in procedural.VERBS:
        if any(tool.names[0].startswith(verb + " ") for verb in group) and any(
            other.names[0].startswith(verb + " ") for verb in group
        ):
            return tool.domain == other.domain
    return False


def leave_out(scene, barred):
    """Leaves out the branches with a question of `barred`; returns whether the rest of the scene may be used."""
    scene.branches = [
        branch
        for branch in scene.branches
        if not any(message["role"] == "user" and message["content"] in barred for message in branch[1])
    ]
    return bool(scene.branches) and not scene.names() & barred


def scenes(tools, count, seed, barred=frozenset(), easy=EASY, tokens=(), mix="all"):
    """`count` scenes. One with a tool name of `barred` is left out, and so is a branch with such a question.

    `tokens` are what strange words are made of; without them these are made of the tables' words alone.
    """
    rng = random.Random(seed)
    maker = Scenes(tools, rng, tokens)
    made, refused = 0, 0
    while made < count:
        kind = rng.random()
        if kind < 0.01:
            scene = maker.toolless()
        elif kind < 0.01 + MATCHING and made < count - LAST:
            scene = maker.matching()
        else:
            scene = maker.scene(EASY_MIX if made < easy else MIXES[mix], made >= max(easy, count - LAST))
        if not leave_out(scene, barred):
            refused += 1
            if refused > count + 100:
                raise ValueError("the tables share too much with the suite")
            continue
        made += 1
        yield scene


def load(folder):
    """The tools of the tables that are trained on, and those of the domains that are kept out to watch training."""
    paths = sorted(folder.glob("domains*.txt"))
    tools = tables.load(*paths)
    names = list(dict.fromkeys(tool.domain for tool in tools))
    kept = {name for place, name in enumerate(names) if place % 20 == 7 and name not in FIRST_ASKED}
    return [tool for tool in tools if tool.domain not in kept], [tool for tool in tools if tool.domain in kept]
