"""Questions in a tool's own words: its name or its description, and its values with their labels."""

import re

from .procedural import VERBS, ways

WANTED = [
    "{}",
    "{}",
    "I need the {}",
    "What about the {}",
    "Give me the {}",
    "I'd like the {}",
    "Get me the {}",
    "{} please",
]
TOLD = ["I want to know: {}", "{}", "I need to know this: {}", "Please find out: {}"]
# What is said without a label, because the words that tell it have a preposition already.
DATED = {"date", "moment"}


def verbs(tools):
    """What the tables' commands begin with."""
    found = {verb.split()[0] for group in VERBS for verb in group}
    for tool in tools:
        for mark, parts in tool.phrases:
            if mark == "!" and isinstance(parts[0], str) and (word := re.match(r"[a-z]+(?= )", parts[0])):
                found.add(word[0])
    return found


def asks(rng, tool, verbs):
    """(mark, text): the tool's name or its description as a request."""
    if rng.random() < 0.4 and tool.descriptions:
        first, _, rest = rng.choice(tool.descriptions).rstrip(".").partition(" ")
        verb = imperative(first.lower(), verbs)
        if verb == "tell" and not rest.startswith("me "):
            return "!", f"tell me {rest}"
        if verb and rest:
            return "!", f"{verb} {rest}"
        return "?", rng.choice(TOLD).format(f"{first.lower()} {rest}".strip())
    first, _, rest = re.sub(r"[_-]", " ", rng.choice(tool.names)).partition(" ")
    if first in verbs and rest:
        return "!", f"{first} {rng.choice(('the ', 'a ', 'my ', 'the ', '', ''))}{rest}"
    return "?", rng.choice(WANTED).format(f"{first} {rest}".strip())


def imperative(word, verbs):
    """`presses` → `press`, if that is a verb; None if it is none."""
    for ending, instead in (("", ""), ("s", ""), ("es", ""), ("ies", "y")):
        stem = word[: len(word) - len(ending)] + instead
        if word.endswith(ending) and stem in verbs:
            return stem
    return None


def question(rng, concrete, verbs, endless):
    """(mark, flat) as an expanded phrase has them; None for a tool whose values cannot be told so.

    `endless` are the kinds of values that only the end of the message ends.
    """
    told = [p for p in concrete.shown if p.required or rng.random() < 0.4]
    if any(p.kind == "bool" and p.required for p in told):
        return None
    told = [p for p in told if p.kind != "bool"]
    rng.shuffle(told)
    # What may hold commas comes last, and can only be one.
    last = [p for p in told if p.kind in endless or p.kind[0] in "<["]
    if len(last) > 1:
        return None
    told = [p for p in told if p not in last] + last
    mark, text = asks(rng, concrete.tool, verbs)
    flat = [text]
    joints = [rng.choice((" with ", ", ", ": ", " for ", " ")), *[", "] * (len(told) - 2), rng.choice((" and ", ", "))]
    for parameter, joint in zip(told, joints):
        label = concrete.names[parameter.path].split(".")[-1] if rng.random() < 0.6 else rng.choice(parameter.names)
        label = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", label.split(".")[-1]).replace("_", " ").lower()
        if parameter.kind in DATED:
            way = "{v}"
        elif parameter in last:
            way = rng.choice(("{l}: {v}", "{l} {v}"))
        else:
            way = rng.choice(ways(parameter.kind))
        if len(told) == 1 and rng.random() < 0.5:
            way = "{v}"
        before, after = way.format(l=label, v="\0").split("\0")
        flat += [joint + before, ("ref", parameter.path), after]
    return mark, flat
