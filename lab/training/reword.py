"""A tool whose words are others, in its name and its description as in the questions for it.

What fits is then told by the words alone: that a question has a word of the tool's, in whatever case and inflection. Of words
that always mean the same a network learns the meaning instead, and does not look for the words that it never saw.
"""

import re
from dataclasses import replace

# Said of any tool, or nothing at all.
COMMON = set(
    """about add all also and any are ask back can could does every find for from get give has have how into its let like
    list look make many may more much need new not off one our out over per please put see set should show some take tell
    than that the them then there they this turn two under use want was what when where which who whose will with would you
    your""".split()
)
WORD = re.compile(r"[A-Za-z]{3,}")
# What a word may end in and be the same word.
ENDING = re.compile(r"(?<=..)(?:ies|es|s|ing|ed|e|y)$")


def stem(word):
    return ENDING.sub("", word.lower())


def texts(parts):
    """The texts of a phrase, in all of its readings."""
    for part in parts:
        if isinstance(part, str):
            yield part
        elif part[0] == "either":
            for branch in part[1]:
                yield from texts(branch)
        elif part[0] == "maybe":
            yield from texts(part[1])


def stems(*found):
    return {stem(word) for text in found for word in WORD.findall(text) if word.lower() not in COMMON}


def shared(tool):
    """What the tool's texts have in common with the questions for it, in a fixed order."""
    asked = stems(*(text for _, phrase in tool.phrases for text in texts(phrase)))
    return sorted(asked & stems(*tool.names, *tool.descriptions))


def instead(text, words):
    def one(found):
        word = found[0]
        new = words.get(stem(word))
        if new is None or word.lower() in COMMON:
            return word
        ending = ENDING.search(word.lower())
        ending = {"ies": "s", "es": "s", "e": "", "y": ""}.get(ending[0], ending[0]) if ending else ""
        if ending in ("ed", "ing"):
            new = new.removesuffix("e")
        new = new.removesuffix(ending) + ending
        return new.upper() if word.isupper() else new.capitalize() if word[0].isupper() else new

    return WORD.sub(one, text)


def within(parts, words):
    """The parts of a phrase, with `words` in the texts of all its readings."""
    made = []
    for part in parts:
        if isinstance(part, str):
            part = instead(part, words)
        elif part[0] == "either":
            part = ("either", [within(branch, words) for branch in part[1]])
        elif part[0] == "maybe":
            part = ("maybe", within(part[1], words))
        made.append(part)
    return made


def reworded(rng, tool, word):
    """`tool` with one to three of the words that it shares with its questions made anew by `word`; itself if it has none.

    What does not have one of these words is left out, as far as something else is left.
    """
    found = shared(tool)
    if not found:
        return tool
    chosen = rng.sample(found, min(len(found), rng.choice((1, 1, 2, 3))))
    words = {}
    for one in chosen:
        new = word().lower()
        if not re.fullmatch(r"[a-z]{2,14}", new) or new in words.values() or new in COMMON:
            return tool
        words[one] = new

    def having(items, parts):
        return [item for item in items if stems(*parts(item)) & words.keys()] or items

    return replace(
        tool,
        names=[instead(name, words) for name in having(tool.names, lambda name: [name])],
        descriptions=[instead(text, words) for text in having(tool.descriptions, lambda text: [text])],
        phrases=[
            (mark, within(phrase, words)) for mark, phrase in having(tool.phrases, lambda phrase: texts(phrase[1]))
        ],
        # Answers have words of their own.
        results=[],
    )
