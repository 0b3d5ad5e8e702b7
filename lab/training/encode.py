"""Scenes as packed token ids on disk.

A sequence holds one scene or several. Its arrays say, for each token, which scene it belongs to, which of the scene's
branches (0: the prefix that they share), its place in the conversation, who speaks, and the branch's category; then the hints:
the tool that it tells, the word that ends with it, the place in the sequence that the next token is copied from, what it is to
a value, and the place of the label or value that it goes with.
"""

from dataclasses import dataclass

import numpy as np

from . import hints
from .render import ASSISTANT, END, USER, head, turn

LENGTH = 512
NOBODY, SPOKEN, ASKED = 0, 1, 2
CATEGORIES = ["", "call", "parallel", "irrelevance", "follow-up", "talk", "choice", "match"]
# Sequences that wait for scenes to fill them.
OPEN = 24


def texts(scene):
    """The prefix, and what each branch adds to it."""
    branches = ["".join(turn(message, scene.style) for message in messages) for _, messages in scene.branches]
    return [head(scene.system, scene.tools, scene.style), *branches]


def encode(scenes, tokenizer, folder, limit=None):
    """Writes `folder`/data.npz; stops after `limit` tokens. Returns the numbers of tokens, of sequences, of branches."""
    speakers = {tokenizer.token_to_id(ASSISTANT): SPOKEN, tokenizer.token_to_id(USER): ASKED}
    end, assistant, arguments = map(tokenizer.token_to_id, (END, ASSISTANT, "arguments"))
    open, closed, count, branches = [], [], 0, 0
    for part in chunks(scenes, 256):
        written = [texts(scene) for scene in part]
        encoded = iter(tokenizer.encode_batch([text for scene in written for text in scene]))
        for scene, (start, *said) in zip(part, written):
            encoding = next(encoded)
            hint = hints.Hints(scene.tools, start, encoding)
            prefix = Tokens(encoding.ids, words=hints.words(start, encoding))
            room = LENGTH - len(prefix)
            fitting = []
            for (category, _), text in zip(scene.branches, said):
                encoding = next(encoded)
                ids = encoding.ids
                answer = ids.index(assistant)
                if category in ("choice", "match") and arguments in ids[answer:]:
                    ids = ids[: ids.index(arguments, answer)]
                if len(ids) <= room:
                    tokens = Tokens(ids, category, spoken(ids, speakers, end))
                    tokens.points, tokens.words = hint.pointed(text, encoding), hints.words(text, encoding)
                    copies = list(hint.copies(text))
                    tokens.sources, tokens.parts = hint.copied(copies, encoding), hint.valued(text, copies, encoding)
                    tokens.links = hint.linked(text, copies, encoding)
                    fitting.append(tokens)
                    room -= len(ids)
            if not fitting:
                continue
            size = LENGTH - room
            place = min((s for s in open if s.room >= size), key=lambda s: s.room, default=None)
            if place is None:
                place = Sequence()
                open.append(place)
            place.add(prefix, fitting)
            count, branches = count + size, branches + len(fitting)
            if place.room < 24 or len(open) > OPEN:
                fullest = min(open, key=lambda s: s.room)
                open.remove(fullest)
                closed.append(fullest.arrays)
        if limit and count >= limit:
            break
    closed += [sequence.arrays for sequence in open]
    ids, scene, branch, place, told, kind, points, words, source, part, link = np.stack(closed, axis=1)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(
        folder / "data.npz",
        ids=ids,
        scene=scene.astype(np.uint8),
        branch=branch.astype(np.uint8),
        place=place,
        told=told.astype(np.uint8),
        kind=kind.astype(np.uint8),
        points=points.astype(np.uint8),
        words=words,
        source=source,
        part=part.astype(np.uint8),
        link=link,
    )
    return count, len(closed), branches


def chunks(items, size):
    part = []
    for item in items:
        part.append(item)
        if len(part) == size:
            yield part
            part = []
    yield part


@dataclass
class Tokens:
    """A scene's prefix or one of its branches, cut short where `ids` is: what else has more is not read."""

    ids: list
    category: str = ""
    told: list = ()
    points: list = ()
    words: list = ()
    sources: list = ()
    parts: list = ()
    links: list = ()

    def __len__(self):
        return len(self.ids)


class Sequence:
    def __init__(self):
        self.arrays = np.zeros((11, LENGTH), np.uint16)
        self.used = self.scenes = 0

    @property
    def room(self):
        return LENGTH - self.used

    def add(self, prefix, branches):
        self.scenes += 1
        begin = self.used
        self.put(prefix, 0, 0, begin)
        for number, branch in enumerate(branches, 1):
            self.put(branch, number, len(prefix), begin)

    def put(self, tokens, branch, start, begin):
        """`begin`: where the scene's prefix starts in the sequence."""
        size, at = len(tokens), self.used
        part = self.arrays[:, at : at + size]
        part[0], part[1], part[2], part[3] = tokens.ids, self.scenes, branch, range(start, start + size)
        for row, values in ((4, tokens.told), (6, tokens.points), (7, tokens.words), (9, tokens.parts)):
            part[row] = values[:size] or 0
        part[5] = CATEGORIES.index(tokens.category)
        for place, link in enumerate(tokens.links[:size]):
            part[10, place] = link and at + link
        for place, source in enumerate(tokens.sources[:size]):
            if source:
                part[8, place] = source[1] + (at if source[0] else begin)
        self.used += size


def spoken(ids, speakers, end):
    """Who says each token, the end of the turn included, the role's tag left out."""
    told, speaker = [], NOBODY
    for token in ids:
        told.append(speaker)
        if token in speakers:
            speaker = speakers[token]
        elif token == end:
            speaker = NOBODY
    return told
