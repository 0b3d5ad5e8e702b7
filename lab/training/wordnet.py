"""What words have to do with, read from WordNet 3.0 (Princeton University, https://wordnet.princeton.edu).

Words of the same meaning, the wider and the narrower ones, and those that a word is explained by. Only words are taken, no
explanations. Its licence is LICENSE-wordnet.
"""

import re
from collections import Counter

from .reword import COMMON, stem

NOTICE = "WordNet 3.0 Copyright 2006 by Princeton University. All rights reserved. See LICENSE-wordnet."
# A word that explains more than this share of all meanings says nothing about one of them.
EXPLAINS_ALL = 0.004
# So many meanings of a word are looked at, those that have at least this share of its uses.
SENSES, SHARE = 2, 0.3
# So many related words are kept, the closest.
MOST = 8
KINDS = {"n": "noun", "v": "verb", "a": "adj", "s": "adj", "r": "adv"}
# The first digit of a sense key.
NUMBERED = {"1": "noun", "2": "verb", "3": "adj", "4": "adv", "5": "adj"}
# Pointers to wider and similar meanings and to derived words; and to narrower ones, parts, what a verb entails, and their like.
CLOSE, LOOSE = "@&+", ("~", "#p", "%p", "\\", "$", "*", ">")
ENDINGS = (("", ""), ("s", ""), ("es", ""), ("ies", "y"), ("ed", ""), ("ed", "e"), ("ing", ""), ("ing", "e"))


class WordNet:
    def __init__(self, folder):
        """`folder` has WordNet's database: data.noun, index.noun, cntlist.rev and their like."""
        # For each word its meanings, as (uses, minus its place, key); for each key (words, (pointer, key) pairs, explanation).
        self.senses, self.meanings = {}, {}
        uses = {}
        for line in (folder / "cntlist.rev").read_text().splitlines():
            key, number, count = line.split()
            word, _, rest = key.partition("%")
            uses[word, NUMBERED[rest[0]], int(number)] = int(count)
        for kind in dict.fromkeys(KINDS.values()):
            for line in lines(folder / f"data.{kind}"):
                self.read(kind, line)
            for line in lines(folder / f"index.{kind}"):
                word, _, count, *fields = line.split()
                for number, offset in enumerate(fields[-int(count) :], 1):
                    sense = uses.get((word, kind, number), 0), -number, (kind, offset)
                    self.senses.setdefault(word, []).append(sense)
        self.explains = Counter(word for *_, gloss in self.meanings.values() for word in set(gloss))

    def read(self, kind, line):
        told, _, gloss = line.partition(" | ")
        offset, _, _, count, *fields = told.split()
        after = 2 * int(count, 16)
        pointers = fields[after + 1 :][: 4 * int(fields[after])]
        near = [(symbol, (KINDS[pos], to)) for symbol, to, pos in zip(pointers[::4], pointers[1::4], pointers[2::4])]
        # Without the examples.
        gloss = re.findall("[a-z]+", gloss.partition('"')[0].lower())
        self.meanings[kind, offset] = [word.lower() for word in fields[:after:2]], near, gloss

    def base(self, word):
        """The form that WordNet has."""
        forms = (word[: len(word) - len(end)] + instead for end, instead in ENDINGS if word.endswith(end))
        return next((form for form in forms if form in self.senses), None)

    def related(self, word, known):
        """What `word` has to do with, of the words whose stems are `known`, the closest first."""
        base = self.base(word)
        senses = sorted(self.senses.get(base, []), reverse=True)
        most = sum(count for count, _, _ in senses)
        found = Counter()
        for place, (count, _, key) in enumerate(senses[:SENSES]):
            if place and count < SHARE * most:
                break
            words, near, gloss = self.meanings[key]
            weighed = [(3, words), (1, gloss)]
            for symbol, other in near:
                if symbol in CLOSE or symbol in LOOSE:
                    weighed.append((1.5 if symbol in CLOSE else 1, self.meanings[other][0]))
            for weight, others in weighed:
                for other in others:
                    common = self.explains[other] > EXPLAINS_ALL * len(self.meanings)
                    if other.isalpha() and other.isascii() and len(other) > 2 and not common:
                        found[self.base(other) or other] += weight
        mine = stem(word)
        return [
            other
            for other, _ in found.most_common()
            if len(other) > 2 and stem(other) in known and stem(other)[:4] != mine[:4] and other not in COMMON
        ][:MOST]


def related(wordnet, texts):
    """For each frequent word of `texts` what it has to do with, of their words."""
    counted = Counter(word for text in texts for word in re.findall("[a-z]{3,}", text.lower()) if word not in COMMON)
    words = {}
    for word, count in sorted(counted.items(), key=lambda pair: (-pair[1], pair[0])):
        base = wordnet.base(word)
        if count > 2 and base and len(base) > 2:
            words.setdefault(stem(word), base)
    known = {stem(word) for word in counted}
    found = {word: wordnet.related(word, known) for word in sorted(set(words.values()))}
    return {word: others for word, others in found.items() if others}


def lines(path):
    """Without the licence, which is indented."""
    return [line for line in path.read_text().splitlines() if line[0] != " "]
