"""Scenes as packed token ids on disk.

A sequence holds one scene or several. Its arrays say, for each token, which scene it belongs to, which of the scene's
branches (0: the prefix that they share), its place in the conversation, who speaks, and the branch's category.
"""

import numpy as np

from .render import ASSISTANT, END, USER, head, turn

LENGTH = 512
NOBODY, SPOKEN, ASKED = 0, 1, 2
CATEGORIES = ["", "call", "parallel", "irrelevance", "follow-up", "talk", "choice"]
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
        flat = [text for scene in part for text in texts(scene)]
        encoded = iter(tokenizer.encode_batch_fast(flat))
        for scene in part:
            prefix, *rest = [next(encoded).ids for _ in range(1 + len(scene.branches))]
            room = LENGTH - len(prefix)
            fitting = []
            for (category, _), ids in zip(scene.branches, rest):
                if category == "choice":
                    ids = ids[: ids.index(arguments, ids.index(assistant))]
                if len(ids) <= room:
                    fitting.append((category, ids))
                    room -= len(ids)
            if not fitting:
                continue
            size = LENGTH - room
            place = min((s for s in open if s.room >= size), key=lambda s: s.room, default=None)
            if place is None:
                place = Sequence()
                open.append(place)
            place.add(prefix, fitting, speakers, end)
            count, branches = count + size, branches + len(fitting)
            if place.room < 24 or len(open) > OPEN:
                fullest = min(open, key=lambda s: s.room)
                open.remove(fullest)
                closed.append(fullest.arrays)
        if limit and count >= limit:
            break
    closed += [sequence.arrays for sequence in open]
    ids, scene, branch, place, told, kind = np.stack(closed, axis=1)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(
        folder / "data.npz",
        ids=ids,
        scene=scene.astype(np.uint8),
        branch=branch.astype(np.uint8),
        place=place,
        told=told.astype(np.uint8),
        kind=kind.astype(np.uint8),
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


class Sequence:
    def __init__(self):
        self.arrays = np.zeros((6, LENGTH), np.uint16)
        self.used = self.scenes = 0

    @property
    def room(self):
        return LENGTH - self.used

    def add(self, prefix, branches, speakers, end):
        self.scenes += 1
        self.put(prefix, 0, 0, [NOBODY] * len(prefix), "")
        for number, (category, ids) in enumerate(branches, 1):
            self.put(ids, number, len(prefix), spoken(ids, speakers, end), category)

    def put(self, ids, branch, start, told, category):
        part = self.arrays[:, self.used : self.used + len(ids)]
        part[0], part[1], part[2], part[4], part[5] = ids, self.scenes, branch, told, CATEGORIES.index(category)
        part[3] = range(start, start + len(ids))
        self.used += len(ids)


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
