"""What a conversation tells about how its calls come about, so that the inner layers can be shown it.

A call is the end of several steps: a question's word is found again in a tool, that tool is the one that is meant, its name is
copied, and so are its parameters' names and the question's values. The text shows their outcome alone, and a network this
small does not find all steps at once: after 160 M tokens it named the one tool of six that had a question's word in one case
of three. Each step by itself is easily learned.
"""

import re
import zlib
from typing import NamedTuple

from . import keywords, related
from .render import ASSISTANT, END, USER, signature
from .reword import stem

# What a pointer says instead of a tool's number where a question is to be answered without one.
NONE = 15
# A call up to its name, up to its arguments and up to its end.
CALL = re.compile('{"name": "(?P<name>[^"]*)", "arguments": (?P<body>.*?)}\n(?:### TOOL_CALL_END ###|</tool_call>)')
ASKING = re.compile(re.escape(USER) + "(.*?)" + re.escape(END), re.DOTALL)
# What a token of the user's is to a value that the answer copies: its first, a later one, none of any.
BEGINS, GOES_ON, NO_VALUE = 1, 2, 3
# Texts and numbers in JSON; a text with a colon after it is a key.
JSON = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)"(?P<key>:)?|(?P<number>-?\d+(?:\.\d+)?)')


# A label stands at most so many characters from its value.
NEAR = 20


class Copy(NamedTuple):
    """Something that a call copies."""

    # Where it is written.
    at: int
    # Where it stands: 0 the prefix or 1 the text, and its span there; None, where that is not one place alone.
    place: int | None
    span: tuple = (0, 0)
    # The words of a value's key that none of its tool's other keys has.
    words: frozenset = frozenset()


class Hints:
    """The hints for one scene."""

    def __init__(self, tools, prefix, encoding):
        lines = [signature(tool) for tool in tools]
        self.names = {tool["function"]["name"]: number for number, tool in enumerate(tools, 1)}
        self.own = {key: number for number, mine in enumerate(keywords.own(lines), 1) for key in mine}
        self.near = {key: number for number, mine in enumerate(related.near(lines), 1) for key in mine}
        self.labels = {tool["function"]["name"]: labels(tool["function"]["parameters"]) for tool in tools}
        # Where each tool's name starts in the prefix, and where its parameters end.
        self.lines, at = [], 0
        for tool, line in zip(tools, lines):
            at = prefix.index(line, at)
            self.lines.append((at, at + len(line) - len(tool["function"].get("description", ""))))
            at += len(line)
        self.prefix = prefix
        self.prefix_tokens = starts(encoding)

    def pointed(self, text, encoding):
        """For each token the number of the tool that it tells, 0 where it tells none.

        A word of the user's tells a tool that alone has it, or one that is called and alone has to do with it; the start of an
        answer, and of a name, the tool that is called.
        """
        numbers = {}
        for asked in ASKING.finditer(text):
            answer = asked.end() + len(ASSISTANT)
            calls = [self.names.get(call["name"], 0) for call in CALL.finditer(text, answer, text.find(END, answer))]
            for end, _, key in keywords.words(asked[1]):
                near = self.near.get(key, 0)
                numbers[asked.start(1) + end] = self.own.get(key) or (near if near in calls else 0)
            numbers[answer] = calls[0] if calls else NONE
        for call in CALL.finditer(text):
            numbers[call.start("name")] = self.names.get(call["name"], 0)
        return [numbers.get(end, 0) for _, end in encoding.offsets]

    def copied(self, copies, encoding):
        """For each token where the one after it is copied from: (0 the prefix or 1 the text, a token there), or None.

        Names and keys are those of the tool's line, values stand in the last thing that a user said, or before the call.
        """
        tokens = self.prefix_tokens, starts(encoding)
        sources = [None] * len(encoding.ids)
        for at, place, (start, end), _ in copies:
            for step in range(end - start):
                token, source = tokens[1].get(at + step), tokens[place].get(start + step)
                if token and source is not None:
                    sources[token - 1] = (place, source)
        return sources

    def valued(self, text, copies, encoding):
        """For each token of a user's, before a call with values, whether it begins a value, goes on with one, or neither."""
        parts = [0] * len(encoding.ids)
        turns = list(ASKING.finditer(text))
        for asked, following in zip(turns, [turn.start() for turn in turns[1:]] + [len(text)]):
            spans = [copy.span for copy in copies if copy.place == 1 and asked.start(1) <= copy.span[0] < asked.end(1)]
            # What else is a value is not known then.
            lost = any(copy.place is None and asked.end() < copy.at < following for copy in copies)
            for token, (start, end) in enumerate(encoding.offsets) if spans else ():
                if asked.start(1) <= start and end <= asked.end(1) and end > start:
                    within = [span for span in spans if span[0] <= start < span[1]]
                    begins = any(span[0] == start for span in within)
                    parts[token] = BEGINS if begins else GOES_ON if within else 0 if lost else NO_VALUE
        return parts

    def linked(self, text, copies, encoding):
        """For each token of a user's that begins a value or ends the value's label, the other of the two where that stands
        before it; for the token before a value in a call, the label; 0 for others.

        A label is the nearest word of a user's that the value's key has, and no other key of its tool.
        """
        links = [0] * len(encoding.ids)
        begins = starts(encoding)
        ends = {end: token for token, (start, end) in enumerate(encoding.offsets) if end > start}
        values = [copy for copy in copies if copy.place == 1 and copy.words]
        said = [(found.span(), stem(found[0])) for found in keywords.WORD.finditer(text)] if values else []
        for copy in values:
            begin, end = copy.span
            near = []
            for (first, last), word in said:
                gap = max(begin - last, first - end)
                if word not in copy.words or not 0 <= gap <= NEAR:
                    continue
                # Other values neither have the word nor stand between.
                if all(
                    other is copy or other.span[1] <= min(first, begin) or other.span[0] >= max(last, end)
                    for other in values
                ):
                    near.append((gap, last))
            label = ends.get(min(near)[1]) if near else None
            written, stands = begins.get(copy.at), begins.get(begin)
            if label is not None and written and stands is not None:
                links[max(label, stands)] = min(label, stands)
                links[written - 1] = label
        return links

    def copies(self, text):
        """Each name, key and value of a call."""
        for call in CALL.finditer(text):
            number = self.names.get(call["name"])
            if not number:
                continue
            first, last = self.lines[number - 1]
            yield Copy(call.start("name"), 0, (first, first + len(call["name"])))
            asked = text.rfind(USER, 0, call.start())
            said = text.find(END, asked)
            key = frozenset()
            for part in JSON.finditer(text, call.start("body"), call.end("body")):
                group = "number" if part["text"] is None else "text"
                written = part[group]
                if part["key"]:
                    key = self.labels[call["name"]].get(written, frozenset())
                if not written:
                    continue
                exact = re.compile(r"(?<![\w.])" + re.escape(written) + r"(?!\w)")
                if part["key"]:
                    spans = [
                        (0, found.span()) for found in exact.finditer(self.prefix, first + len(call["name"]), last)
                    ]
                else:
                    spans = [(1, found.span()) for found in exact.finditer(text, asked, said)]
                    spans = spans or [(1, found.span()) for found in exact.finditer(text, said, call.start())][-1:]
                    spans = spans or [(0, found.span()) for found in exact.finditer(self.prefix, first, last)]
                # What has an escape is written otherwise, and what stands there twice has no one place.
                found = spans[0] if len(spans) == 1 else (None,)
                yield Copy(part.start(group), *found, words=frozenset() if part["key"] else key)


def labels(parameters):
    """For each key of the parameters, at any depth, the stems of its words that no other key has."""
    found = {}
    open = [parameters]
    while open:
        schema = open.pop()
        for key, inner in schema.get("properties", {}).items():
            found.setdefault(key, set()).update(stem(word) for word in keywords.WORD.findall(key))
            open.append(inner)
        open += [schema["items"]] if "items" in schema else []
    return {
        key: frozenset(mine).difference(*(other for name, other in found.items() if name != key))
        for key, mine in found.items()
    }


def starts(encoding):
    """The token that starts at each place of the text."""
    found = {}
    for token, (start, end) in enumerate(encoding.offsets):
        if end > start:
            found.setdefault(start, token)
    return found


def words(text, encoding):
    """For each token a number for the word that ends there, the same for the same stem; 0 for others."""
    ends = {end: number(key) for end, _, key in keywords.words(text)}
    return [ends.get(end, 0) for _, end in encoding.offsets]


def number(key):
    return zlib.crc32(key.encode()) % 65535 + 1
